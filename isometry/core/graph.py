"""Neighbour graphs under a mask of labels, and connected components of pair lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

from isometry.core.distance import batches, pair_sqdist, row_blocks, sqdist, sqdist_factors
from isometry.core.memory import once
from isometry.core.threads import in_slices

MANY_CLASSES = 100  # with more classes, one search among all points comes before one search for each class
FEW_MEMBERS = 256  # up to so many points, their whole matrix of distances costs less than setting up a search
MANY_FEATURES = 128  # from here on, a search takes most of its time for products, and single precision halves that
MIN_THREADED_ROWS = 500  # with fewer, starting threads takes longer than they save
CANDIDATES = 2  # times as many of them as neighbours are looked for
SEARCHED_BYTES = 1 << 22  # of distances to all points that are looked through at a time
RESOLVED = 1e-8  # smallest share of the largest squared norm that a distance by a matrix product is trusted with


def nearest_allowed(X: np.ndarray, k: int, allowed: Callable[[Any], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest points j of every i among those with ``allowed(rows) → (b, n) mask``; i itself never counts.

    Returns indices (n, k) and squared distances (n, k), nearest first, ties by index; where fewer than
    k points are allowed, the last entries are −1 and +inf.
    """
    n = len(X)
    k = min(k, n - 1)
    index, dist = np.empty((n, k), dtype=np.intp), np.empty((n, k), dtype=X.dtype)
    for rows in row_blocks(n, n * X.itemsize):
        D = sqdist(X[rows], X)  # (b, n)
        D[~allowed(rows)] = np.inf
        b = rows.stop - rows.start
        D[np.arange(b), np.arange(rows.start, rows.stop)] = np.inf
        index[rows], dist[rows] = k_smallest(D, k)
    index[~np.isfinite(dist)] = -1
    return index, dist


def k_smallest(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the k smallest entries of each row, in order, ties by column."""
    kth = np.partition(D, k - 1, axis=1)[:, k - 1 : k]  # the k-th value, to find all entries equal to it
    below, at = kth > D, kth == D
    fill = at & (np.cumsum(at, axis=1) <= k - below.sum(axis=1, keepdims=True))
    cols = np.nonzero(below | fill)[1].reshape(len(D), k)
    d = np.take_along_axis(D, cols, axis=1)
    order = np.argsort(d, axis=1, kind="stable")
    return np.take_along_axis(cols, order, axis=1), np.take_along_axis(d, order, axis=1)


@once
def target_neighbors(X: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) the k nearest other points with the same label, nearest first, −1 where a class has fewer."""
    targets = np.full((len(X), min(k, max(1, np.bincount(codes[codes >= 0]).max() - 1))), -1, dtype=np.intp)
    for members in _classes(codes):
        m = min(k, len(members) - 1)
        if m > 0:
            found = _nearest_of_few(X[members], m) if len(members) <= FEW_MEMBERS else None
            if found is None:
                found = NearestNeighbors(n_neighbors=m).fit(X[members]).kneighbors(return_distance=False)
            targets[members, :m] = members[found]
    return targets


def _nearest_of_few(X: np.ndarray, k: int) -> np.ndarray | None:
    """(n, k) the k nearest other rows, nearest first, by one matrix of distances; None where these are too coarse."""
    Z = X - X.mean(axis=0, dtype=np.float64)
    D = sqdist(Z)
    largest = np.einsum("ij,ij->i", Z, Z).max()
    np.fill_diagonal(D, np.inf)
    index, dist = k_smallest(D, k)
    # rounding errors of some 1e-15 of the largest norm cannot change which are the k nearest, nor by much their order
    return index if largest > 0 and dist[:, -1].min() > RESOLVED * largest else None


@once
def nearest_misses(X: np.ndarray, codes: np.ndarray, k: int) -> np.ndarray:
    """(n, k) the k nearest points with another label, nearest first, −1 where there are fewer."""
    n, misses = len(X), np.full((len(X), k), -1, dtype=np.intp)
    classes, todo = _classes(codes), codes >= 0
    if len(classes) > MANY_CLASSES:
        near = NearestNeighbors(n_neighbors=min(4 * k, n - 1)).fit(X).kneighbors(return_distance=False)  # (n, 4k)
        other = (codes[near] != codes[:, None]) & (codes[near] >= 0)
        order = np.argsort(~other, axis=1, kind="stable")  # others first, nearest first
        enough = other.sum(axis=1) >= k
        misses[enough & todo] = np.take_along_axis(near, order, axis=1)[enough & todo, :k]
        todo &= ~enough
    elif X.shape[1] >= MANY_FEATURES:
        _add_certain_misses(misses, todo, X, codes)
    for members in classes:
        rows = members[todo[members]]
        others = np.flatnonzero((codes != codes[members[0]]) & (codes >= 0)) if len(rows) else rows
        m = min(k, len(others))
        if m:
            found = NearestNeighbors(n_neighbors=m).fit(X[others]).kneighbors(X[rows], return_distance=False)
            misses[rows, :m] = others[found]
    return misses


def _add_certain_misses(misses: np.ndarray, todo: np.ndarray, X: np.ndarray, codes: np.ndarray) -> None:
    """Fill in the ``misses`` (n, k) that single precision is enough to tell, and take their rows off those ``todo``.

    It gives more candidates than are needed, and double precision chooses among them. That is certain where the last
    candidate is farther than those chosen by more than the rounding errors: all other points are farther still.
    """
    known, k = np.flatnonzero(todo), misses.shape[1]
    own, m = codes[known], CANDIDATES * k
    if len(known) - np.bincount(own).max(initial=0) <= m:
        return
    Z = X[known] - X[known].mean(axis=0, dtype=np.float64)
    unit = np.sqrt(np.einsum("ij,ij->i", Z, Z).max())
    if not 0 < unit < np.inf:
        return
    Z /= unit
    left, right = sqdist_factors(Z, np.float32)
    error = 4 * left.shape[1] * np.finfo(np.float32).eps  # norms are at most 1

    def work(mine: slice) -> None:
        size = max(1, SEARCHED_BYTES // (4 * len(known)))
        for rows in batches(mine.stop - mine.start, size):
            i = np.arange(mine.start + rows.start, mine.start + rows.stop)  # (b,)
            D = left[i] @ right.T  # (b, n)
            D[own[i, None] == own] = np.inf
            j = np.sort(np.argpartition(D, m - 1, axis=1)[:, :m], axis=1)  # (b, m); of equally near ones, the first
            d = pair_sqdist(Z, np.repeat(i, m), j.ravel()).reshape(j.shape)
            order = np.argsort(d, axis=1, kind="stable")[:, :k]
            last = np.take_along_axis(d, order[:, -1:], axis=1)[:, 0]
            certain = last + error < np.take_along_axis(D, j, axis=1).max(axis=1)
            misses[known[i[certain]]] = known[np.take_along_axis(j, order, axis=1)[certain]]
            todo[known[i[certain]]] = False

    in_slices(work, len(known), MIN_THREADED_ROWS)


def _classes(codes: np.ndarray) -> list[np.ndarray]:
    """Members of every class; rows with code −1 belong to none."""
    order = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


def undirected(neighbors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair once of the graph that joins row i to ``neighbors`` (n, k) of it; −1: none."""
    i, j = np.repeat(np.arange(len(neighbors)), neighbors.shape[1]), neighbors.ravel()
    return unique_pairs(i[j >= 0], j[j >= 0])


def unique_pairs(i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each unordered pair once, in the order of first appearance."""
    low, high = np.minimum(i, j).astype(np.int64), np.maximum(i, j).astype(np.int64)
    _, first = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_index=True)
    first.sort()
    return low[first].astype(np.intp), high[first].astype(np.intp)


def components(i: np.ndarray, j: np.ndarray, n: int) -> np.ndarray:
    """(n,) component number of every node of the graph with edges i–j."""
    graph = sp.coo_matrix((np.ones(len(i)), (i, j)), shape=(n, n))
    return connected_components(graph, directed=False)[1]


def pair_neighbors(
    i: np.ndarray, j: np.ndarray, similar: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Listed pairs gathered around every point that has both similar and dissimilar ones.

    Returns those anchors (a,), their partners (a, k) with −1 for none, which partners are similar (a, k), and the
    weights of the pairs (a, k), 1 for none.
    """
    anchor, other = np.concatenate([i, j]), np.concatenate([j, i])
    hit, weight = np.concatenate([similar, similar]), np.concatenate([weight, weight])
    n = int(anchor.max(initial=-1)) + 1
    n_hits, n_all = np.bincount(anchor[hit], minlength=n), np.bincount(anchor, minlength=n)
    both = (n_hits > 0) & (n_hits < n_all)
    keep = both[anchor]
    anchor, other, hit, weight = anchor[keep], other[keep], hit[keep], weight[keep]
    order = np.argsort(anchor, kind="stable")
    anchors, first, count = np.unique(anchor[order], return_index=True, return_counts=True)
    row = np.repeat(np.arange(len(anchors)), count)
    column = np.arange(len(row)) - first[row]
    index = np.full((len(anchors), count.max(initial=0)), -1, dtype=np.intp)
    index[row, column] = other[order]
    is_hit = np.zeros(index.shape, dtype=bool)
    is_hit[row, column] = hit[order]
    weights = np.ones(index.shape)
    weights[row, column] = weight[order]
    return anchors, index, is_hit, weights
