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
    n_components : rank of the metric; None: all coordinates of the kernel
    n_neighbors, mu, max_iter, tol, verbose : of `LMNN`
    random_state : seed of the learner and of the landmarks
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    References
    ----------
    L. Torresani, K.-C. Lee, "Large margin component analysis", NIPS 2006.
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
    options = {"center": True, "variance": 0.95, "random_state": random_state, **options}
    return Kernelized(learner, kernel, gamma=gamma, **options)
