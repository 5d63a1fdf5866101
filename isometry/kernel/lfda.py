"""LFDA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.spectral import LFDA
from isometry.strength import Reg


def KernelLFDA(
    n_components: int | None = None,
    *,
    n_neighbors: int = 7,
    embedding: Literal["weighted", "plain", "orthonormal"] = "weighted",
    reg: Reg = "auto",
    beta: float = 0.0,
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel local Fisher discriminant analysis: `LFDA` in feature space.

    max_T tr((TᵀK_lwT)⁻¹ TᵀK_lbT),  K_l· = K Laplacian(A_l·) K

    with A_lw, A_lb the weights of pairs in the local scatters of `LFDA`, near being near in feature space.

    Parameters
    ----------
    n_components, n_neighbors, embedding, reg, beta : of `LFDA`
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise

    References
    ----------
    M. Sugiyama, "Dimensionality reduction of multimodal labeled data by local Fisher discriminant analysis", JMLR 2007.
    """
    return Kernelized(
        LFDA(n_components, n_neighbors=n_neighbors, embedding=embedding, reg=reg, beta=beta),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": 0.95, **options},
    )
