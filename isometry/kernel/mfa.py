"""MFA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.spectral import MFA
from isometry.strength import Reg


def KernelMFA(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    n_misses: int = 20,
    margin: Literal["sample", "class"] = "sample",
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel marginal Fisher analysis: `MFA` in feature space.

    max_T tr((TᵀK_wT)⁻¹ TᵀK_bT)

    K_w, K_b are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near pairs inside classes and across them.

    Parameters
    ----------
    n_components, n_neighbors, n_misses, margin, reg : of `MFA`
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise

    References
    ----------
    S. Yan, D. Xu, B. Zhang, H.-J. Zhang, Q. Yang, S. Lin, "Graph embedding and extensions: a general framework for
    dimensionality reduction", TPAMI 2007.
    """
    return Kernelized(
        MFA(n_components, n_neighbors=n_neighbors, n_misses=n_misses, margin=margin, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": 0.95, **options},
    )
