"""Centroids of k-means that depend neither on the order of the rows nor on a rotation of the features."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans

from isometry.core.order import row_order


def centroids(X: np.ndarray, k: int, seed: int, n_init: int = 3) -> np.ndarray:
    """(k', d) centroids of the rows of X (n, d); k' < k where there are fewer distinct rows.

    Rows are brought to an order of their own before k-means draws its starts.
    """
    points = np.asarray(X, dtype=np.float64)[row_order(X)]
    if k == 1:
        return points.mean(axis=0, keepdims=True)
    distinct = np.unique(points, axis=0)
    return distinct if len(distinct) <= k else KMeans(k, n_init=n_init, random_state=seed).fit(points).cluster_centers_


def class_centroids(
    X: np.ndarray, codes: np.ndarray, k: int, seed: int, *, share: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """(K, d) at most k centroids of each class, and no more than a share of its rows; and the class (K,) of each."""
    counts = np.bincount(codes)
    found = [centroids(X[codes == c], max(1, min(k, int(share * n))), seed) for c, n in enumerate(counts)]
    return np.concatenate(found), np.repeat(np.arange(len(found)), [len(f) for f in found])
