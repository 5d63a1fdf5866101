"""PCCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import PCCA


def KernelPCCA(
    n_components: int | None = None,
    *,
    beta: float = 3.0,
    margin: float = 1.0,
    reg: float = 1e-3,
    pairs: Any = "auto",
    max_iter: Iterations = 200,
    tol: NotNegative = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel pairwise constrained component analysis: `PCCA` in feature space.

    min_A mean over pairs of (1/β) log(1 + exp(β t (|A(k_i − k_j)|² − b))) + reg tr(AKAᵀ),  k_i = k(X, x_i)

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of rows of A; None: 40, or the rank of the kernel if that is lower.
    beta : float, default=3.0
        Sharpness β of the loss.
    margin : float, default=1.0
        Squared distance b that separates similar from dissimilar. Only βb shapes the metric: margin b and sharpness β
        give √b times the map of margin 1 and sharpness βb.
    reg : float, default=0.001
        Penalty on the map in feature space, in the unit of the kernel: for the same distances, a kernel c times as
        large needs c times as much.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
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
    For a sparse list of pairs of bent data. With thousands of samples give ``landmarks``; where a linear map will
    do, `PCCA` is faster.

    An evaluation costs O(m p + n r p) for m pairs and r coordinates of the kernel, which costs O(n³), with m
    landmarks O(n m²).

    The published step A − 2ηAK Lap is the gradient in the coordinates used here: it is better conditioned than the raw
    gradient 2AK Lap K by a factor of K.

    References
    ----------
    | A. Mignon, F. Jurie, "PCCA: a new approach for distance learning from sparse pairwise constraints", CVPR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelPCCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelPCCA(2, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PCCA(n_components, beta=beta, margin=margin, reg=reg, pairs=pairs, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
