"""Every point as a combination of its neighbours: the weights of locally linear embedding."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from isometry.core.distance import row_blocks


def reconstruction_weights(X: np.ndarray, n_neighbors: int = 10, reg: float = 1e-3) -> sp.csr_matrix:
    """S (n, n), k entries a row: s_i = argmin |x_i − Σ_j s_ij x_j|² over the k nearest neighbours, Σ_j s_ij = 1.

    s_i = G_i⁻¹1 / 1ᵀG_i⁻¹1 with the Gram matrix of the differences to the neighbours, and ``reg`` · tr(G_i)/k on its
    diagonal, without which it is singular for k > d.
    """
    n, k = len(X), min(n_neighbors, len(X) - 1)
    neighbors = NearestNeighbors(n_neighbors=k).fit(X).kneighbors(return_distance=False)  # (n, k)
    weights = np.empty((n, k))
    for rows in row_blocks(n, 8 * k * max(k, X.shape[1])):
        delta = X[neighbors[rows]].astype(np.float64, copy=False) - X[rows, None]  # (b, k, d)
        weights[rows] = _affine_weights(delta @ delta.transpose(0, 2, 1), reg)
    return sp.csr_matrix((weights.ravel(), neighbors.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))


def _affine_weights(G: np.ndarray, reg: float) -> np.ndarray:
    """(b, k) rows w with w ∝ G⁻¹1, Σw = 1; uniform where G = 0: all neighbours are copies of the point."""
    b, k, _ = G.shape
    trace = np.trace(G, axis1=1, axis2=2)  # (b,)
    G = G + np.where(trace > 0, reg * trace / k, 1.0)[:, None, None] * np.eye(k)
    w = np.linalg.solve(G, np.ones((b, k, 1)))[..., 0]
    return w / w.sum(axis=1, keepdims=True)
