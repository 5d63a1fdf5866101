"""Metrics on fixed directions: W = Σ_k w_k b_k b_kᵀ with w ≥ 0, and those of fixed eigenvectors, W = V diag(λ) Vᵀ.

With V the principal directions of the data, a squared distance is linear in λ: d² = λᵀw with w_ij = (Vᵀ(x_i − x_j))²
entry by entry. Coordinates are scaled so that the mean of Σ_l w^l over all pairs is 1: λ = 1 is the Euclidean metric
with mean squared distance 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isometry.core.linalg import RANK_TOL, fix_signs, top_eigenvectors, triangular_factor
from isometry.core.solve import Solution, lbfgs
from isometry.core.start import mean_sqdist


@dataclass(frozen=True)
class EigenBasis:
    """Scaled principal coordinates y = map (x − mean)."""

    mean: np.ndarray  # (d,)
    map: np.ndarray  # (K, d) = Vᵀ/√s

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return (np.asarray(X, dtype=np.float64) - self.mean) @ self.map.T  # (n, K)

    def components(self, weights: np.ndarray) -> np.ndarray:
        """L (p, d) with LᵀL = V diag(λ/s) Vᵀ, widest first; negative λ count as 0, and rows of zeros are dropped."""
        lam = np.maximum(weights, 0)
        order = np.argsort(-lam, kind="stable")
        order = order[: max(1, np.count_nonzero(lam))]
        return np.sqrt(lam[order])[:, None] * self.map[order]


def eigenbasis(X: np.ndarray, n_components: int) -> EigenBasis:
    """The leading principal directions of X, as many as carry variance and at most ``n_components``."""
    mean = X.mean(axis=0, dtype=np.float64)
    Xc = np.asarray(X, dtype=np.float64) - mean
    values, V = top_eigenvectors(Xc.T @ Xc, p=n_components)
    Vt = fix_signs(V[:, values > RANK_TOL * max(values[0], 0)].T)
    if len(Vt) == 0:
        raise ValueError("all samples are equal: the data have no direction to weigh")
    return EigenBasis(mean, Vt / np.sqrt(mean_sqdist(Xc @ Vt.T)))


def pair_features(Y: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """w (m, K) of listed pairs, from coordinates Y (n, K)."""
    return (Y[i] - Y[j]) ** 2


class MetricFunction(Protocol):
    """A function of metrics W."""

    def in_metric(self, L: np.ndarray, /) -> tuple[float, np.ndarray]:
        """Value and ∂f/∂W (d, d) at W = LᵀL."""
        ...


@dataclass(frozen=True)
class BasisProblem:
    """An objective over metrics, as one over the weights w ≥ 0 of W = Σ_k w_k b_k b_kᵀ; convex in w where it is in W.

    ∂f/∂w_k = b_kᵀ (∂f/∂W) b_k: no table of all comparisons and all directions is ever made.
    """

    objective: MetricFunction
    basis: np.ndarray  # (K, d), rows b_k

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        value, G = self.objective.in_metric(self.components(w))
        return value, np.einsum("ki,ki->k", self.basis @ G, self.basis)

    def components(self, w: np.ndarray) -> np.ndarray:
        """L with LᵀL = W: a row for each direction, or for each feature if those are fewer."""
        B = np.sqrt(np.maximum(w, 0))[:, None] * self.basis
        return B if len(B) <= B.shape[1] else triangular_factor(B.T @ B)

    def minimize(self, w: np.ndarray, max_iter: int, tol: float, least: float = 0.0) -> Solution:
        """The weights, none below ``least``."""
        return bounded_below(self, w, max_iter, tol, least)


def bounded_below(
    fun: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray, max_iter: int, tol: float, least: float = 0.0
) -> Solution:
    """L-BFGS over x ≥ ``least``.

    It begins anew where it ends, without memory of its steps, until that lowers the value by less than tol: with many
    variables at their bound a search can end early.
    """
    bounds: list[tuple[float | None, float | None]] = [(least, None)] * x.size
    n_iter, history, value = 0, list[float](), np.inf
    while True:
        solution = lbfgs(fun, x, bounds=bounds, max_iter=max(max_iter - n_iter, 1), tol=tol, memory=20)
        solution = solution.following(n_iter, max_iter, history)
        x, n_iter, history = solution.x, solution.n_iter, solution.history
        if n_iter >= max_iter or value - solution.value <= tol * abs(solution.value):
            return solution
        value = solution.value
