"""scatter(X, a) = Σ a_ij (x_i − x_j)(x_i − x_j)ᵀ = Xᵀ Laplacian(a) X, in its dense, sparse and pair-list forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from isometry.core.distance import row_blocks
from isometry.core.graph import nearest_misses, target_neighbors


def laplacian(A: Any) -> Any:
    """diag(A1 + Aᵀ1) − A − Aᵀ for coefficients A (n, n), dense or sparse, symmetric or not."""
    if sp.issparse(A):
        degree = np.asarray(A.sum(axis=1)).ravel() + np.asarray(A.sum(axis=0)).ravel()
        return (sp.diags(degree) - A - A.T).tocsr()
    return np.diag(A.sum(axis=1) + A.sum(axis=0)) - A - A.T


def scatter(X: np.ndarray, A: Any) -> np.ndarray:
    """Σ_ij A_ij (x_i − x_j)(x_i − x_j)ᵀ (d, d) for a coefficient matrix A (n, n), dense or sparse."""
    return X.T @ (laplacian(A) @ X)


def pair_scatter(X: np.ndarray, i: np.ndarray, j: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """Σ_m weight_m (x_i − x_j)(x_i − x_j)ᵀ over listed pairs, in blocks, summed in float64."""
    d = X.shape[1]
    S = np.zeros((d, d))
    for block in row_blocks(len(i), d * 8, buffers=3):
        delta = (X[i[block]] - X[j[block]]).astype(np.float64, copy=False)  # (b, d)
        S += delta.T @ (delta if weight is None else delta * weight[block, None])
    return S


def neighbor_scatters(X: np.ndarray, codes: np.ndarray, k_same: int, k_other: int) -> tuple[np.ndarray, np.ndarray]:
    """S_w and S_b: (1/n) Σ_i (1/k_i) Σ_j (x_i − x_j)(x_i − x_j)ᵀ over the k_i nearest of the class, and of others.

    k_i is the number that exists, up to ``k_same`` and ``k_other``; a class of one adds nothing to S_w.
    """
    same, other = target_neighbors(X, codes, k_same), nearest_misses(X, codes, min(k_other, len(X) - 1))
    S_w, S_b = (_mean_scatter(X, neighbors) for neighbors in (same, other))
    return S_w, S_b


def _mean_scatter(X: np.ndarray, neighbors: np.ndarray) -> np.ndarray:
    i, column = np.nonzero(neighbors >= 0)
    weight = 1 / (len(X) * np.bincount(i, minlength=len(X)))[i] if len(i) else np.zeros(0)
    return pair_scatter(X, i, neighbors[i, column], weight)
