"""LMNN in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Seed
from isometry.spectral import LMNN


def KernelLMNN(
    n_components: int | None = None,
    *,
    n_neighbors: int = 3,
    mu: float = 0.5,
    max_iter: int = 1000,
    tol: float = 1e-3,
    random_state: Seed = None,
    verbose: bool = False,
    kernel: Any = "rbf",
    gamma: float | None = None,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel large margin nearest neighbours: `LMNN` in feature space; of low rank, large margin component analysis.

    min_T (1 − μ) Σ d²(i, j) + μ Σ [1 + d²(i, j) − d²(i, l)]₊,  d²(i, j) = |Tᵀ(k_i − k_j)|²

    with k_i = k(X, x_i), j a target neighbour of i and l of another class, as in `LMNN`.

    Parameters
    ----------
    n_components : int or None, default=None
        Rank of the metric; None: all coordinates of the kernel.
    n_neighbors : int, default=3
        Number k of target neighbours; a smaller class uses all its members.
    mu : float, default=0.5
        Weight μ of the push term.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float, default=0.001
        As in `LMNN`: how far above the minimum the objective may be, relatively.
    random_state : int, RandomState instance or None, default=None
        Seed of the learner and of the landmarks.
    verbose : bool, default=False
        Whether to show a progress bar.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the distance of the kernel. "auto": the data choose it; 1 is the
        method as published. See `SearchedMetric`.
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks``; the kernel is centred and loses its
        last components (``variance="auto"``), if not told otherwise.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels and k-nearest neighbours where no linear map separates the classes. It searches: `KDCA` or
    `KernelFisherML` come first. With thousands of samples give ``landmarks``.

    An iteration costs O(T p + n r p) for T active triplets and r coordinates of the kernel, which costs O(n³), with
    m landmarks O(n m²).

    References
    ----------
    | L. Torresani, K.-C. Lee, "Large margin component analysis", NIPS 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelLMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelLMNN(2, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    learner = LMNN(
        n_components,
        n_neighbors=n_neighbors,
        mu=mu,
        max_iter=max_iter,
        tol=tol,
        random_state=random_state,
        strength=strength,
        verbose=verbose,
    )
    options = {"center": True, "variance": "auto", "random_state": random_state, **options}
    return Kernelized(learner, kernel, gamma=gamma, **options)
