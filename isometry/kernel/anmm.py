"""ANMM in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.spectral import ANMM
from isometry.strength import Reg


def KernelANMM(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    n_misses: int | None = None,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel average neighbourhood margin maximisation: `ANMM` in feature space.

    max_T tr(Tᵀ(K_b − K_w)T)  subject to  TᵀKT = I

    K_w, K_b are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near samples of the class and of others.

    Parameters
    ----------
    n_components, n_neighbors, n_misses, reg : of `ANMM`
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise

    References
    ----------
    F. Wang, C. Zhang, "Feature extraction by maximizing the average neighborhood margin", CVPR 2007.
    """
    return Kernelized(
        ANMM(n_components, n_neighbors=n_neighbors, n_misses=n_misses, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": 0.95, **options},
    )
