"""MCML in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import MCML


def KernelMCML(
    n_components: int | None = None,
    *,
    penalty: Literal["trace", "frobenius"] = "trace",
    reg: float = 1e-4,
    max_iter: Iterations = 500,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel maximally collapsing metric learning: `MCML` in feature space.

    min_{R ⪰ 0} (1/n) Σ_i KL(p⁰_i ‖ p_i) + reg tr(RK),  p_ij ∝ exp(−(k_i − k_j)ᵀR(k_i − k_j)),  k_i = k(X, x_i)

    or with reg/2 · tr(RKRK): the trace and the Frobenius norm of the metric in feature space. Convex in R.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading eigenvectors of the metric to keep; None: all.
    penalty : {"trace", "frobenius"}, default="trace"
        Which norm of the metric is penalised.
    reg : float, default=0.0001
        Weight of the penalty. It must be positive: where K has full rank every class can be collapsed, and without a
        penalty there is no minimiser.
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
    For labels of bent classes that can become points in feature space. Convex, but with a rich kernel every class
    can collapse: the penalty decides, and rows held out should choose it. Where a linear map will do, `MCML` is
    faster.

    An evaluation costs O(n² r) for r coordinates of the kernel, which costs O(n³), with m landmarks O(n m²).

    References
    ----------
    | A. Globerson, S. Roweis, "Metric learning by collapsing classes", NIPS 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelMCML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelMCML(2, reg=0.01, max_iter=20, random_state=0).fit(X[::5], y[::5])
    >>> metric.transform(X).shape
    (150, 2)
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = MCML(n_components, penalty=penalty, reg=reg, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
