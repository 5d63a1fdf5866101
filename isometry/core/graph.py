"""Neighbour graphs under a mask of labels, and connected components of pair lists."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from isometry.core.distance import row_blocks, sqdist


def nearest_allowed(X: np.ndarray, k: int, allowed) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest points j of every i among those with ``allowed(rows) → (b, n) mask``; i itself never counts.

    Returns indices (n, k) and squared distances (n, k), nearest first, ties by index; places beyond the number of
    allowed points hold −1 and +inf.
    """
    n = len(X)
    k = min(k, n - 1)
    index, dist = np.empty((n, k), dtype=np.intp), np.empty((n, k), dtype=X.dtype)
    for rows in row_blocks(n, n * X.itemsize):
        D = sqdist(X[rows], X)  # (b, n)
        D[~allowed(rows)] = np.inf
        b = rows.stop - rows.start
        D[np.arange(b), np.arange(rows.start, rows.stop)] = np.inf
        index[rows], dist[rows] = _k_smallest(D, k)
    index[~np.isfinite(dist)] = -1
    return index, dist


def _k_smallest(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the k smallest entries of each row, in order, ties by column."""
    kth = np.partition(D, k - 1, axis=1)[:, k - 1 : k]  # the k-th value, so that ties at the edge are seen
    below, at = kth > D, kth == D
    fill = at & (np.cumsum(at, axis=1) <= k - below.sum(axis=1, keepdims=True))
    cols = np.nonzero(below | fill)[1].reshape(len(D), k)
    d = np.take_along_axis(D, cols, axis=1)
    order = np.argsort(d, axis=1, kind="stable")
    return np.take_along_axis(cols, order, axis=1), np.take_along_axis(d, order, axis=1)


def target_neighbors(X: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) indices of the k nearest points with the same label, −1 where a class has fewer; class by class."""
    n = len(X)
    targets = np.full((n, min(k, max(1, np.bincount(codes[codes >= 0]).max() - 1))), -1, dtype=np.intp)
    for c in range(codes.max() + 1):
        members = np.flatnonzero(codes == c)
        if len(members) < 2:
            continue
        index, _ = nearest_allowed(
            X[members], k, lambda rows, m=len(members): np.ones((rows.stop - rows.start, m), bool)
        )
        targets[members, : index.shape[1]] = members[index]
    return targets


def components(i: np.ndarray, j: np.ndarray, n: int) -> np.ndarray:
    """(n,) component number of every node of the graph with edges i–j."""
    graph = sp.coo_matrix((np.ones(len(i)), (i, j)), shape=(n, n))
    return connected_components(graph, directed=False)[1]
