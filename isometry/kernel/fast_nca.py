"""Fast NCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernel.coefficient_penalty import CoefficientFastNCA
from isometry.kernelized import Kernelized
from isometry.parameters import Count, Iterations, NotNegative, one_of
from isometry.probabilistic import FastNCA


def KernelFastNCA(
    n_components: int | None = 30,
    *,
    n_neighbors: Count = 10,
    penalty: str = "rkhs",
    reg: float | Literal["auto"] = "auto",
    init: Any = "pca",
    max_iter: Iterations = 500,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel fast neighbourhood component analysis: `FastNCA` in feature space.

    max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_i = Σ_{j∈H_i} p_ij,  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²) on H_i ∪ M_i

    with H_i the n_neighbors nearest samples of the same class and M_i those of other classes, by the distance of
    feature space, k_ii + k_jj − 2k_ij.

    Parameters
    ----------
    n_components : int or None, default=30
        Number p of columns of T; None: as many as the rank of the kernel.
    n_neighbors : int, default=10
        Number k of hits and of misses; a smaller class gives all its members.
    penalty : {"rkhs", "coef"}, default="rkhs"
        What ``reg`` weighs: "rkhs", tr(TᵀKT), the norm of the map in feature space; or "coef", ``|T|²``, that of its
        coefficients, which suppresses directions of little variance.
    reg : float or "auto", default="auto"
        Weight of the penalty; "auto": a thousandth of the value above which a map of 0 becomes a local optimum. It is
        needed: where K has full rank, p_i → 1 comes for free.
    init : {"pca", "identity", "random"} or ndarray, default="pca"
        Where the search starts. LDA, which separates the classes completely in feature space, leads nowhere.
    max_iter : int, default=500
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool, default=False
        Whether to show a progress bar.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the distance of the kernel. "auto": the data choose it; 1 is the
        method as published. See `SearchedMetric`.
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks`` or ``max_rank``.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels whose classes no linear map separates, and more samples than `KernelNCA` can compare. Neighbours are
    those of the feature space; where a linear map will do, `FastNCA` is faster.

    An evaluation costs O(n k p + n r p) for r coordinates of the kernel, which costs O(n³), with m landmarks
    O(n m²).

    The survey's gradient of the penalty, 2 reg T, is that of ``|T|²``, which depends on the basis; the norm of the
    map is tr(TᵀKT), with gradient 2 reg KT.

    References
    ----------
    | W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelFastNCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelFastNCA(2, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    one_of("penalty", penalty, PENALTIES)
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PENALTIES[penalty](n_components, n_neighbors=n_neighbors, reg=reg, init=init, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)


PENALTIES = {"rkhs": FastNCA, "coef": CoefficientFastNCA}
