"""NCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import NCA


def KernelNCA(
    n_components: int | None = 30,
    *,
    objective: Literal["sum", "log"] = "sum",
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
    """Kernel neighbourhood component analysis: `NCA` in feature space.

    max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_i = Σ_{j: y_j = y_i} p_ij,  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²),  k_i = k(X, x_i)

    Parameters
    ----------
    n_components : int or None, default=30
        Number p of columns of T; None: as many as the rank of the kernel.
    objective : {"sum", "log"}, default="sum"
        "sum" of p_i, or "log": sum of log p_i (anchors without a partner are left out).
    reg : float or "auto", default="auto"
        Penalty on the map in feature space; "auto": a thousandth of the value above which a map of 0 becomes a local
        optimum. It is needed: where K has full rank, p_i → 1 comes for free.
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
    For labels and neighbours where no linear map separates the classes, up to some thousand samples; beyond,
    `KernelFastNCA` or ``landmarks``. Rich kernels reach any training accuracy: keep the penalty, and look at rows
    held out.

    An evaluation costs O(n² p + n r p) for r coordinates of the kernel, which costs O(n³), with m landmarks
    O(n m²).

    References
    ----------
    | W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.
    | J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelNCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelNCA(2, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = NCA(n_components, objective=objective, reg=reg, init=init, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
