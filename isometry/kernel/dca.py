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
    n_components : int or None, default=None
        Number of directions, at most rank(C_b), which is the default.
    algorithm : {"gevp", "hoi"}, default="gevp"
        "gevp", the maximiser: generalised eigenvectors of (C_b, C_w); or "hoi", the two steps of the paper, which stay
        in range(C_b).
    within : {"chunklet_mean", "pooled"}, default="chunklet_mean"
        C_w as the mean of the chunklets' covariances ("chunklet_mean") or "pooled" over samples.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on the variation within chunklets, in feature space ε tr(TᵀKT), as a number; "auto": the data
        choose it, see `AutomaticStrength`.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks`` or ``max_rank``.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels or chunklets whose groups no linear map tells apart, in closed form. With thousands of samples give
    ``landmarks``; where classes are linearly apart, `DCA` is faster and overfits less.

    A fit costs O(n³), with m landmarks O(n m²).

    K_w is always singular, so that the eigenproblem of (K_b, K_w) means nothing without the ridge.

    References
    ----------
    | S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma, "Learning distance metrics with contextual constraints for image
      retrieval", CVPR 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KDCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KDCA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    learner = DCA(n_components, algorithm=algorithm, within=within, reg=reg)
    return Kernelized(learner, kernel, gamma=gamma, **{"center": True, **options})
