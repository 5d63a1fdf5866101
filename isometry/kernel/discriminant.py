"""Discriminant methods in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.spectral import DCA, FisherML

CONSTRAINTS = {"orthonormal": "orthonormal", "similar": "scatter"}  # of T in feature space -> of FisherML


def KDCA(
    n_components: int | None = None,
    *,
    algorithm: str = "gevp",
    within: str = "chunklet_mean",
    reg: float = 1e-3,
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel discriminative component analysis: `DCA` in feature space.

    max_T det(TᵀK_bT) / det(Tᵀ(K_w + εK)T),  K_w = mean over chunklets of cov(k_i),  K_b = mean (ν_j − ν_i)(ν_j − ν_i)ᵀ

    with k_i = k(X, x_i) and ν_j the mean of k_i over chunklet j, over chunklets known to differ; z(x) = Tᵀk(X, x).

    Parameters
    ----------
    n_components, algorithm, within : of `DCA`
    reg : relative ridge on the variation within chunklets; in feature space it is ε tr(TᵀKT)
    kernel, gamma, **options : of `Kernelized`

    Notes
    -----
    K_w is always singular, so that the eigenproblem of (K_b, K_w) means nothing without the ridge.

    References
    ----------
    S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma, "Learning distance metrics with contextual constraints for image
    retrieval", CVPR 2006.
    """
    learner = DCA(n_components, algorithm=algorithm, within=within, reg=reg)
    return Kernelized(learner, kernel, gamma=gamma, **{"center": True, **options})


def KernelFisherML(
    n_components: int | str = "auto",
    *,
    constraint: str = "orthonormal",
    reg: float = 1e-3,
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Similar pairs near, dissimilar pairs far, on average, in feature space: kernel relative of `FisherML`.

    min_T tr(Tᵀ(Σ_S − Σ_D)T)  subject to  TᵀKT = I, or TᵀΣ_ST = I

    with Σ_S, Σ_D the means of (k_i − k_j)(k_i − k_j)ᵀ over similar and over dissimilar pairs, k_i = k(X, x_i).

    Parameters
    ----------
    n_components : p; "auto" is c − 1 with labels; with pairs, the number of directions that separate at all
    constraint : "orthonormal" (TᵀKT = I), or "similar" (TᵀΣ_ST = I), which does not change under linear maps of the
        feature space
    reg : relative ridge on the similar scatter ("similar" only)
    kernel, gamma, **options : of `Kernelized`

    References
    ----------
    B. Alipanahi, M. Biggs, A. Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.
    """
    if constraint not in CONSTRAINTS:
        raise ValueError(f"constraint={constraint!r} is unknown; expected 'orthonormal' or 'similar'")
    learner = FisherML(n_components, constraint=CONSTRAINTS[constraint], reg=reg)
    return Kernelized(learner, kernel, gamma=gamma, **{"center": True, **options})
