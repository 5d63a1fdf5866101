"""Losses of neighbour probabilities p_ij ∝ exp(−|z_i − z_j|²), in half the time of a loss on all ordered pairs.

With e_ij = exp(−d_ij), s_i = Σ_j e_ij and h_i = Σ_{j ∈ class of i} e_ij, the slopes of such a loss are
c_ij = e_ij (m_ij u_i − v_i), where m marks pairs of one class and u, v follow from s and h. Only C + Cᵀ matters, and
e is symmetric: e_ij (m_ij (u_i + u_j) − v_i − v_j) is worked out for i < j alone, in tiles that stay in the cache. Both
passes, for the sums and for the slopes, compute the tiles: that costs no more than to keep them, unless the points have
many coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from isometry.core.distance import sqdist, sqdist_factors
from isometry.core.edges import AnchorEdges, EdgeLoss, add_pull
from isometry.core.probability import exp_
from isometry.core.threads import in_threads, n_threads

ROWS, COLUMNS = 128, 1024  # size of a tile of the distance matrix, which is not higher than wide
WIDE_ROWS, WIDE_COLUMNS = (
    512,
    512,
)  # the same, where points have many coordinates: sums over columns are added less often
MIN_THREADED_POINTS = 1000  # with fewer points, starting threads takes longer than they save
KEPT_FROM = 128  # coordinates; with more, a tile is kept for the second pass instead of computed twice
KEPT_MIB = 256  # most memory for that
MIN_SUM = {np.dtype(np.float64): 1e-240, np.dtype(np.float32): 1e-20}  # smaller sums of exponentials are inaccurate


class Slopes(NamedTuple):
    """What a loss makes of the sums s and h, point by point."""

    value: np.ndarray  # (n,)
    u: np.ndarray  # (n,)
    v: np.ndarray  # (n,)
    smallest: np.ndarray  # (n,) the smaller of the sums used, s or h: where it underflows, the others are inaccurate


@dataclass(frozen=True)
class SoftmaxLoss:
    """A loss of neighbour probabilities in two forms; called, it is the loss on rows of distances."""

    rows: EdgeLoss  # exact however far the neighbours are
    sums: Callable[[np.ndarray, np.ndarray], Slopes]  # s, h (n,) → slopes

    def __call__(self, D: np.ndarray, where: Any) -> tuple[float, np.ndarray]:
        return self.rows(D, where)


class Tile(NamedTuple):
    """Rows × columns right of the diagonal, and the rectangles in it, counted from its corner, where classes agree."""

    rows: slice
    columns: slice
    same: list[tuple[slice, slice]]

    def size(self) -> int:
        return (self.rows.stop - self.rows.start) * (self.columns.stop - self.columns.start)


@dataclass(frozen=True)
class SoftmaxEdges:
    """All pairs of n points with classes ``codes``, for a `SoftmaxLoss`.

    Points whose exponentials underflow, because all their neighbours are far, are evaluated row by row.
    """

    codes: np.ndarray  # (n,)

    def evaluate(self, Z: np.ndarray, loss: SoftmaxLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        order, n = self._order, len(Z)
        left, right = sqdist_factors(Z[order])
        np.negative(right, out=right)
        V1 = np.column_stack([V[order], np.ones(n, dtype=V.dtype)])  # one more column sums up the slopes
        parts = n_threads() if n >= MIN_THREADED_POINTS else 1
        wide = Z.shape[1] >= KEPT_FROM
        shape = (WIDE_ROWS, WIDE_COLUMNS) if wide else (ROWS, COLUMNS)
        tiles, starts = self._tiling(shape)
        keeps = wide and int(starts[-1]) * Z.itemsize <= KEPT_MIB << 20
        kept = np.empty(int(starts[-1]) if keeps else 0, dtype=Z.dtype)

        def sums(part: int, parts: int) -> np.ndarray:
            total = np.zeros((2, n))  # s, h
            buffer = np.empty(shape, dtype=Z.dtype)
            for k in range(part, len(tiles), parts):
                tile = tiles[k]
                E = exponentials(left, right, tile, kept[starts[k] : starts[k + 1]] if keeps else buffer)
                add_both_ways(total[0], E, tile.rows.start, tile.columns.start)
                for i, j in tile.same:
                    add_both_ways(total[1], E[i, j], tile.rows.start + i.start, tile.columns.start + j.start)
            return total

        s, h = np.sum(in_threads(sums, parts), axis=0)
        with np.errstate(all="ignore"):  # points with sum 0 divide by it; they are evaluated again below
            slopes = loss.sums(s[self._rank], h[self._rank])
        accurate = slopes.smallest > MIN_SUM[Z.dtype]
        u, v = (np.where(accurate, x, 0)[order].astype(Z.dtype) for x in (slopes.u, slopes.v))

        def pulls(part: int, parts: int) -> np.ndarray:
            pull = np.zeros(V1.shape)
            buffers = np.empty((2, *shape), dtype=Z.dtype)
            added = np.empty((max(shape), V1.shape[1]), dtype=np.result_type(Z, V1))  # fresh memory takes time
            for k in range(part, len(tiles), parts):
                rows, columns, same = tile = tiles[k]
                if keeps:
                    E = kept[starts[k] : starts[k + 1]].reshape(len(v[rows]), -1)
                else:
                    E = exponentials(left, right, tile, buffers[0])
                C = np.add.outer(-v[rows], -v[columns], out=leading_part(buffers[1], E.shape))  # becomes C + Cᵀ
                for i, j in same:
                    C[i, j] += np.add.outer(u[rows][i], u[columns][j])
                C *= E
                pull[rows] += np.matmul(C, V1[columns], out=added[: C.shape[0]])
                pull[columns] += np.matmul(C.T, V1[rows], out=added[: C.shape[1]])
            return pull

        pull = np.sum(in_threads(pulls, parts), axis=0)[self._rank]
        value = float(slopes.value[accurate].sum())
        pull = pull[:, -1:] * V - pull[:, :-1]
        return (value, pull) if accurate.all() else self._add_far(np.flatnonzero(~accurate), Z, V, loss, value, pull)

    def _add_far(
        self, far: np.ndarray, Z: np.ndarray, V: np.ndarray, loss: SoftmaxLoss, value: float, pull: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Add the points whose exponentials underflow, by the loss on rows of distances, which does not."""
        for rows in np.array_split(far, -(-len(far) // ROWS)):
            D = sqdist(Z[rows], Z)
            D[np.arange(len(rows)), rows] = np.inf
            f, C = loss.rows(D, rows)
            value += float(f)
            add_pull(pull, C, rows, V)
        return value, pull

    @property
    def size(self) -> int:
        return len(self.codes)

    def part(self, anchors: np.ndarray) -> tuple[slice, AnchorEdges]:
        return slice(None), AnchorEdges(anchors)

    @cached_property
    def _order(self) -> np.ndarray:
        """Points class by class, so that pairs of one class lie near the diagonal."""
        return np.argsort(self.codes, kind="stable")

    @cached_property
    def _sorted(self) -> np.ndarray:
        return self.codes[self._order]

    @cached_property
    def _rank(self) -> np.ndarray:
        return np.argsort(self._order)

    @cached_property
    def _tilings(self) -> dict[tuple[int, int], tuple[list[Tile], np.ndarray]]:
        return {}

    def _tiling(self, shape: tuple[int, int]) -> tuple[list[Tile], np.ndarray]:
        """Tiles of this shape, and (tiles + 1,) where each begins, if all are laid out one after the other.

        Large tiles come first, so that threads that take every other one have as much to do.
        """
        if shape not in self._tilings:
            tiles = sorted(self._make_tiles(*shape), key=Tile.size, reverse=True)
            self._tilings[shape] = tiles, np.concatenate([[0], np.cumsum([t.size() for t in tiles], dtype=np.intp)])
        return self._tilings[shape]

    def _make_tiles(self, height: int, width: int) -> Iterator[Tile]:
        codes, n = self._sorted, len(self.codes)
        ends = np.searchsorted(codes, codes, side="right")  # (n,) where the class of a point ends
        for a in range(0, n, height):
            b = min(a + height, n)
            starts = a + np.flatnonzero(np.diff(codes[a:b], prepend=codes[a] - 1))  # of the classes in these rows
            classes = [(int(i), int(ends[i])) for i in starts if i + 1 < ends[i]]  # a class of one has no pair
            for c in range(a, n, width):
                e = min(c + width, n)
                same = [
                    (slice(i - a, min(end, b) - a), slice(max(i, c) - c, min(end, e) - c))
                    for i, end in classes
                    if max(i, c) < min(end, e)
                ]
                yield Tile(slice(a, b), slice(c, e), same)


def leading_part(buffer: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The first numbers of a buffer, as a contiguous matrix of this shape."""
    return buffer.ravel()[: shape[0] * shape[1]].reshape(shape)


def exponentials(left: np.ndarray, right: np.ndarray, tile: Tile, buffer: np.ndarray) -> np.ndarray:
    """exp(−|z_i − z_j|²) for i < j in a tile, and 0 for the others."""
    A, B = left[tile.rows], right[tile.columns]
    E = exp_(np.matmul(A, B.T, out=leading_part(buffer, (len(A), len(B)))))  # (b, c)
    if tile.rows.start == tile.columns.start:
        E[:, : len(A)][np.tri(len(A), min(len(A), E.shape[1]), dtype=bool)] = 0
    return E


def add_both_ways(total: np.ndarray, E: np.ndarray, row: int, column: int) -> None:
    """total += sums of a symmetric matrix of which E is a part above the diagonal, with this first row and column."""
    total[row : row + len(E)] += E.sum(axis=1)
    total[column : column + E.shape[1]] += E.sum(axis=0)
