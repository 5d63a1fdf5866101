"""Metrics with fixed eigenvectors: W = V diag(λ) Vᵀ, V the principal directions of the data.

A squared distance is then linear in λ: d² = λᵀw with w_ij = (Vᵀ(x_i − x_j))² entry by entry. Coordinates are scaled so
that the mean of Σ_l w^l over all pairs is 1: λ = 1 is the Euclidean metric with mean squared distance 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isometry.core.linalg import RANK_TOL, fix_signs, top_eigenvectors
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
