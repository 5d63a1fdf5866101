"""DMLMJ in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.geometric import DMLMJ
from isometry.kernelized import Kernelized
from isometry.strength import Reg


def KernelDMLMJ(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel metric learning through maximal Jeffrey divergence: `DMLMJ` in feature space.

    max_T KL(P ‖ Q) + KL(Q ‖ P),  P = N(0, TᵀK_ST),  Q = N(0, TᵀK_DT)

    K_S, K_D are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near samples of the class and of others.

    Parameters
    ----------
    n_components, n_neighbors, reg : of `DMLMJ`
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise

    References
    ----------
    B. Nguyen, C. Morell, B. De Baets, "Supervised distance metric learning through maximization of the Jeffrey
    divergence", Pattern Recognition 2017.
    """
    return Kernelized(
        DMLMJ(n_components, n_neighbors=n_neighbors, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": 0.95, **options},
    )
