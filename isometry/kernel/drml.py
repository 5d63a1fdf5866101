"""DRML in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.geometric import DRML
from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative


def KernelDRML(
    n_components: int | None = None,
    *,
    reg: float = 0.01,
    prior: Any = "identity",
    pairs: Any = "auto",
    init: Any = "pca",
    max_iter: Iterations = 200,
    tol: NotNegative = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = 500,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel dimensionality reduction and metric learning: `DRML` in feature space.

    min_{T,Λ} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + reg D(Λ, Λ₀),  d² = |Λ^{1/2}Tᵀ(k_i − k_j)|²,  TᵀKT = I

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of columns of T; None: all components that are kept of the kernel.
    reg : float, default=0.01
        Weight of the LogDet divergence that keeps Λ near Λ₀ and of full rank; in an rbf kernel d² ≤ 2 before learning,
        so that it is smaller than in `DRML`.
    prior : "identity" or ndarray, default="identity"
        Prior Λ₀ of the metric: "identity" or a positive definite array (p, p).
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    init : {"pca", "identity", "lda", "random"} or ndarray, default="pca"
        Where the search starts; named starts are scaled to mean squared distance 1, an array is a map (p, d).
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    variance : float, default=0.95
        Share of the trace of the centred kernel that is kept: directions of almost no variance do not generalise.
    max_rank : float or None, default=500
        Largest number of components to keep, or a share of the landmarks if below 1; None: no limit.
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
    For pairs or labels of bent classes and a map to few dimensions. It searches; `KDCA` and `KernelFisherML`, in
    closed form, come first.

    An evaluation costs O(n² p) over all pairs, the kernel O(n³), with m landmarks O(n m²).

    References
    ----------
    | M. Harandi, M. Salzmann, R. Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML
      2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelDRML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelDRML(2, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = DRML(n_components, reg=reg, prior=prior, pairs=pairs, init=init, strength=strength, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
