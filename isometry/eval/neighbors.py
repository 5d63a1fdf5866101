"""Exact nearest neighbours of embeddings under Euclidean distance: filter by one matrix product, then measure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_array

from isometry.core.distance import pair_sqdist, row_blocks
from isometry.core.threads import in_threads, n_threads

MAX_FOLD = 32  # a folded column stands for at most this many gallery items
COLUMNS_PER_NEIGHBOR = 4  # with 4k folded columns about 1.1 k candidates pass the filter
CANDIDATE_BYTES = 64  # index, distance and order of a candidate
# a block takes 1/16 of working_memory, and all of it in the worst case: equal points, none of which is filtered out
RESERVE = 16
DOUBT_BYTES = 34  # of a pair that must be measured: two marks, two row numbers, a distance and its rounding
MIN_THREADED_DISTANCES = 1 << 22  # with fewer, starting threads takes longer than they save
CROWDED = 16  # candidates for each neighbour, from which on it is asked whether points are copies of one another


def nearest(
    Z: np.ndarray, k: int, gallery: np.ndarray | None = None, *, correction: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest gallery items of every row of Z, by squared Euclidean distance.

    Ties go to the smaller index. Without a ``gallery`` the rows of Z are searched among themselves, and a row is never
    its own neighbour (a duplicate of it may be). float32 and float64 are kept.

    Parameters
    ----------
    Z : ndarray of shape (m, p)
        Queries.
    k : int
        Number of neighbours.
    gallery : ndarray of shape (n, p) or None, default=None
        Items to search; None: Z itself.
    correction : str, HubnessCorrection or None, default=None
        Distances that leave fewer hubs, by which items are ordered, and which are returned: a name of
        `HubnessCorrection`, or one.

    Returns
    -------
    indices : ndarray of shape (m, k)
        Neighbours, nearest first.
    distances : ndarray of shape (m, k)
        Their squared distances.

    Notes
    -----
    Time is O(m n p), memory O(block · n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import nearest
    >>> index, distance = nearest(np.array([[0.0], [1.0], [3.0]]), 1)
    >>> index.tolist(), distance.round(6).tolist()
    ([[1], [0], [1]], [[1.0], [1.0], [4.0]])
    """
    plain = NeighborSearch.over(Z, gallery)
    if correction is None:
        search: Any = plain
    else:
        from isometry.eval.hubs import corrected_search

        search = corrected_search(plain, correction)
    if not 1 <= k <= search.n_available:
        raise ValueError(
            f"k={k} neighbours were asked for, but each query has {search.n_available} gallery items to choose from"
            f"{' besides itself' if search.within else ''}: choose k between 1 and {search.n_available}."
        )
    m = search.n_queries
    dtype = plain.queries.dtype if search is plain else np.float64
    indices, sqdist = np.empty((m, k), dtype=np.intp), np.empty((m, k), dtype=dtype)
    for rows, index, d in search.blocks(k):
        indices[rows], sqdist[rows] = index, d
    return indices, sqdist


class Gallery:
    """Points to search among; what is worked out of them for one search serves the next."""

    def __init__(self, points: np.ndarray):
        self.points = points  # (n, p), all of them finite: see `as_embeddings`
        self._bounds: _Bounds | None = None

    def __len__(self) -> int:
        return len(self.points)

    def bounds(self, fold: int) -> _Bounds:
        """Bounds on distances to the points, folded; those of the last fold asked for are kept."""
        if self._bounds is None or len(self._bounds.spread) != -(-len(self) // fold):
            self._bounds = _Bounds.of(self.points, fold)
        return self._bounds


@dataclass(frozen=True)
class NeighborSearch:
    """Queries and the gallery they search; when the queries are the gallery, each has itself to leave out."""

    queries: np.ndarray  # (m, p)
    gallery: Gallery  # (n, p)
    within: bool  # the queries are the gallery

    @classmethod
    def over(cls, Z: np.ndarray, gallery: np.ndarray | None = None) -> NeighborSearch:
        """Validate the embeddings; without a gallery the rows of Z are searched among themselves."""
        Z = as_embeddings(Z, "Z")
        if gallery is None:
            return cls(Z, Gallery(Z), True)
        gallery = as_embeddings(gallery, "gallery")
        if gallery.shape[1] != Z.shape[1]:
            raise ValueError(
                f"Z has {Z.shape[1]} columns and the gallery {gallery.shape[1]}: transform both with the same metric."
            )
        dtype = np.result_type(Z, gallery)
        return cls(Z.astype(dtype, copy=False), Gallery(gallery.astype(dtype, copy=False)), False)

    def reverse(self) -> NeighborSearch:
        """The same with gallery and queries exchanged."""
        return self if self.within else NeighborSearch(self.gallery.points, Gallery(self.queries), False)

    @property
    def n_queries(self) -> int:
        return len(self.queries)

    @property
    def n_available(self) -> int:
        """How many gallery items one query can have as neighbours."""
        return len(self.gallery) - self.within

    def blocks(self, k: int, queries: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``(rows, indices (b, k), sqdist (b, k))`` over blocks of the queries (all of them, or the listed ones).

        An item whose lower bound on the distance exceeds the k-th smallest upper bound is no neighbour. The few others
        are measured, so the answer depends neither on rounding in the matrix product nor on blocks and threads.
        """
        queries = np.arange(self.n_queries) if queries is None else queries
        n, items = len(self.gallery), self.gallery.points
        bounds = self.gallery.bounds(fold=max(1, min(MAX_FOLD, n // (COLUMNS_PER_NEIGHBOR * k))))
        parts = n_threads() if len(queries) * n >= MIN_THREADED_DISTANCES else 1
        row_bytes = n * items.itemsize + 2 * k * CANDIDATE_BYTES
        blocks = list(row_blocks(len(queries), row_bytes, buffers=RESERVE * parts, limit_mib=np.inf))
        most = max((block.stop - block.start for block in blocks), default=0)
        buffers = np.empty((min(parts, len(blocks)), most, bounds.rows.shape[0]), dtype=items.dtype)
        copies: _Copies | None = None
        for first in range(0, len(blocks), parts):
            group = [queries[block] for block in blocks[first : first + parts]]
            work = partial(self._search_block, group, bounds, buffers, k, copies is None)
            for block, rows, (i, j, found) in zip(blocks[first:], group, in_threads(work, len(group)), strict=False):
                if found is None and copies is None:
                    copies = _Copies.of(items)
                    if copies.largest > max(1, CROWDED * k):  # a search among different points has few candidates
                        yield from self._blocks_of_copies(copies, k, queries[block.start :])
                        return
                yield rows, *(self._measured(rows, i, j, k) if found is None else found)

    def _search_block(
        self, group: list[np.ndarray], bounds: _Bounds, buffers: np.ndarray, k: int, cautious: bool, part: int, _: int
    ) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
        """Candidates (position in the rows, item) of one block of a group, and the k nearest of them.

        None in place of these if the search is cautious and has found suspiciously many candidates.
        """
        rows = group[part]
        lower, slack = bounds.lower(self.queries[rows], out=buffers[part, : len(rows)])
        if self.within:
            lower[np.arange(len(rows)), rows] = _far(lower.dtype)
        i, j = _candidates(lower.reshape(len(rows), -1, len(bounds.spread)), bounds.spread, slack, k)
        crowded = cautious and len(i) > CROWDED * k * len(rows)
        return i, j, None if crowded else self._measured(rows, i, j, k)

    def _measured(self, rows: np.ndarray, i: np.ndarray, j: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest of the candidates (position in the rows, item), by their measured distances."""
        return _first_k(i, j, pair_sqdist(self.queries, rows[i], j, self.gallery.points), len(rows), k)

    def near_blocks(self, radius: float, queries: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield ``(rows, near (b, n))`` over blocks of the queries: which items are within the radius of each query.

        As in `blocks`, pairs that one matrix product cannot decide are measured. The array is a new one each time.
        """
        queries = np.arange(self.n_queries) if queries is None else queries
        n, items = len(self.gallery), self.gallery.points
        bounds, square = self.gallery.bounds(fold=1), np.float64(radius) ** 2
        for block in row_blocks(len(queries), n * (items.itemsize + DOUBT_BYTES), buffers=1, limit_mib=np.inf):
            rows = queries[block]
            lower, slack = bounds.lower(self.queries[rows], out=np.empty((len(rows), n), dtype=items.dtype))
            size = slack.astype(np.float64) / (2 * bounds.alpha)  # (b,) |z|²
            most = square * (1 + bounds.alpha) - size + slack
            least = square * (1 - bounds.alpha) - size - 2 * slack
            possible = lower <= most.astype(items.dtype)[:, None]
            lower += bounds.spread
            near = lower <= least.astype(items.dtype)[:, None]
            if self.within:
                possible[np.arange(len(rows)), rows] = near[np.arange(len(rows)), rows] = False
            possible &= ~near
            i, j = np.nonzero(possible)
            near[i, j] = pair_sqdist(self.queries, rows[i], j, items) <= square
            yield rows, near

    def pairs_within(self, radius: float) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``(i, j, sqdist)`` of all queries i and items j within the radius, by i and then j, block by block."""
        for rows, near in self.near_blocks(radius):
            i, j = np.nonzero(near)
            yield rows[i], j, pair_sqdist(self.queries, rows[i], j, self.gallery.points)

    def _blocks_of_copies(
        self, copies: _Copies, k: int, queries: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The blocks of `blocks`, by a search among the different points of the gallery.

        In the order of distance and then of index, the first item of each of the k nearest points comes before every
        item of a point farther away, so that their items are enough; a query that is left out itself needs one more.
        """
        search = NeighborSearch(self.queries, Gallery(self.gallery.points[copies.first]), False)
        for rows, group, d in search.blocks(min(k + self.within, len(copies.first)), queries):
            size = np.minimum(copies.size[group], k + self.within)  # (b, g)
            nearer = np.cumsum(size, axis=1) - size
            tie = np.maximum.accumulate(np.where(np.diff(d, axis=1, prepend=-1.0) > 0, nearer, 0), axis=1)
            size[tie >= k + self.within] = 0  # nearer points have enough items
            i = np.repeat(np.arange(len(rows)), size.sum(axis=1))
            start = np.repeat(copies.start[group].ravel(), size.ravel())
            turn = np.arange(len(start)) - np.repeat(np.cumsum(size.ravel()) - size.ravel(), size.ravel())
            j, distance = copies.items[start + turn], np.repeat(d.ravel(), size.ravel())
            if self.within:
                other = j != rows[i]
                i, j, distance = i[other], j[other], distance[other]
            yield rows, *_first_k(i, j, distance, len(rows), k)


@dataclass(frozen=True)
class _Copies:
    """The different points of a gallery, in the order of the first item of each, and which items are each of them."""

    first: np.ndarray  # (m,) first item
    start: np.ndarray  # (m,) where its items begin
    size: np.ndarray  # (m,)
    items: np.ndarray  # (n,) in ascending order for each point

    @classmethod
    def of(cls, gallery: np.ndarray) -> _Copies:
        rows = np.ascontiguousarray(gallery + 0.0)  # −0 is 0
        whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
        _, first, code = np.unique(whole, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        point = rank[code.ravel()]  # (n,)
        size = np.bincount(point)
        return cls(first[order], np.cumsum(size) - size, size, np.argsort(point, kind="stable"))

    @property
    def largest(self) -> int:
        return int(self.size.max())


@dataclass(frozen=True)
class _Bounds:
    """Bounds on distances to a gallery from one matrix product.

    With z, g centred, ``|g|² − 2 z·g`` computed in precision ε misses the measured ``d − |z|²`` by at most
    ``α (|z|² + |g|²)``, where α = 4 (p + 2) ε leaves room for 5p + 10 roundings of ε/2: 4 by centring, p by the norms,
    2p + 2 by the product, 2p + 4 by measuring. Up to a term of z alone, d is then bounded by
    ``l = (1 − α)|g|² − 2 z·g`` from below and by ``l + 2α|g|² + 2α|z|²`` from above.

    The gallery is folded into w layers of h columns, item j at layer j // h and column j % h, so that the best item of
    each column is found quickly; entries beyond n hold items farther than any other.
    """

    center: np.ndarray  # (p,)
    alpha: float
    rows: np.ndarray  # (w h, p + 1) [g, (1 − α)|g|²]
    spread: np.ndarray  # (h,) 2α max |g|² of a column

    @classmethod
    def of(cls, gallery: np.ndarray, fold: int) -> _Bounds:
        (n, p), dtype = gallery.shape, gallery.dtype
        h = -(-n // fold)
        center = gallery.mean(axis=0, dtype=np.float64).astype(dtype)
        alpha = 4 * (p + 2) * np.finfo(dtype).eps
        rows, norm = np.zeros((fold * h, p + 1), dtype=dtype), np.zeros(fold * h, dtype=dtype)
        rows[:n, :p] = gallery - center
        norm[:n] = np.einsum("ij,ij->i", rows[:n, :p], rows[:n, :p])
        rows[:n, p] = (1 - alpha) * norm[:n]
        rows[n:, p] = _far(dtype)
        return cls(center, alpha, rows, 2 * alpha * norm.reshape(fold, h).max(axis=0))

    def lower(self, Z: np.ndarray, out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """l (b, w h), and 2α|z|² (b,)."""
        z = Z - self.center
        slack = 2 * self.alpha * np.einsum("ij,ij->i", z, z)
        return np.matmul(np.column_stack([-2 * z, np.ones_like(slack)]), self.rows.T, out=out), slack


def _candidates(lower: np.ndarray, spread: np.ndarray, slack: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """(query, item) of all entries of ``lower`` (b, w, h) that may be among the k nearest of their query.

    The best items of the h columns are distinct, so the k-th smallest of their upper bounds holds for k items;
    and an item passes only where the best of its column passes.
    """
    _, w, h = lower.shape
    best = lower.min(axis=1) if w > 1 else lower[:, 0]  # (b, h)
    upper = best + spread  # (b, h)
    upper.partition(k - 1, axis=1)
    bound = upper[:, k - 1] + slack  # (b,)
    i, column = np.divmod(np.flatnonzero(best <= bound[:, None]), h)  # (c,)
    if w == 1:
        return i, column
    c, layer = np.divmod(np.flatnonzero(lower[i, :, column] <= bound[i, None]), w)  # of (c, w)
    return i[c], layer * h + column[c]


def nearest_columns(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k smallest entries of each row of D (b, n): their columns (b, k) and values, in order, ties by column."""
    b, n = D.shape
    fold = max(1, min(MAX_FOLD, n // (COLUMNS_PER_NEIGHBOR * k)))
    whole = n - n % fold  # the columns that can be folded; the few others are all candidates
    i, j = _candidates(D[:, :whole].reshape(b, fold, -1), np.zeros(1, D.dtype), np.zeros(b, D.dtype), k)
    if whole < n:
        i = np.concatenate([i, np.repeat(np.arange(b), n - whole)])
        j = np.concatenate([j, np.tile(np.arange(whole, n), b)])
        order = np.argsort(i, kind="stable")
        i, j = i[order], j[order]
    return _first_k(i, j, D[i, j].astype(np.float32), b, k)


def _first_k(i: np.ndarray, j: np.ndarray, d: np.ndarray, b: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k first by distance d, then index j, of the candidates (i, j) of b queries; i ascends, k or more of each."""
    start = np.searchsorted(i, np.arange(b + 1))  # (b + 1,)
    most = np.diff(start).max()
    column = np.arange(len(i)) - start[i]
    D, J = np.full((b, most), np.inf, dtype=d.dtype), np.zeros((b, most), dtype=np.intp)
    D[i, column], J[i, column] = d, j
    order = np.argsort(D, axis=1)  # not stable, for speed
    D, J = np.take_along_axis(D, order, axis=1), np.take_along_axis(J, order, axis=1)
    tied = (np.diff(D[:, : k + 1], axis=1) == 0).any(axis=1)  # the item after the k-th may tie with it
    J[tied] = _sort_within_ties(D[tied], J[tied])
    return J[:, :k], D[:, :k]


def _sort_within_ties(D: np.ndarray, J: np.ndarray) -> np.ndarray:
    """J (b, c) with the entries of equal D, ascending in each row, put in ascending order."""
    run = np.zeros_like(J)
    np.cumsum(D[:, 1:] > D[:, :-1], axis=1, out=run[:, 1:])
    run *= J.max(initial=0) + 1
    return np.asarray(np.sort(J + run, axis=1) - run)


def as_embeddings(Z: np.ndarray, name: str) -> np.ndarray:
    """A table of floats whose squared distances are finite, or an error that says what is wrong with it."""
    Z = np.asarray(check_array(Z, dtype=[np.float64, np.float32], input_name=name))
    largest = np.sqrt(np.finfo(Z.dtype).max / Z.shape[1]) / 8  # every bound is below 16 p largest² = max / 4
    if max(Z.max(), -Z.min()) > largest:
        raise ValueError(f"{name} has entries beyond ±{largest:.1e}, whose squares overflow {Z.dtype}: rescale it.")
    return Z


def _far(dtype: np.dtype) -> float:
    """Larger than every bound (see ``as_embeddings``), and small enough that adding a bound does not overflow."""
    return float(np.finfo(dtype).max / 2)
