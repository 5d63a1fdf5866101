"""DCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.spectral import DCA
from isometry.strength import Reg


def KDCA(
    n_components: int | None = None,
    *,
    algorithm: Literal["gevp", "hoi"] = "gevp",
    within: Literal["chunklet_mean", "pooled"] = "chunklet_mean",
    reg: Reg = "auto",
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
