"""Losses of neighbour probabilities p_ij ∝ exp(−|z_i − z_j|²), at half the price of a loss on all ordered pairs.

With e_ij = exp(−d_ij), s_i = Σ_j e_ij and h_i = Σ_{j ∈ class of i} e_ij, the slopes of such a loss are
c_ij = e_ij (m_ij u_i − v_i), where m marks pairs of one class and u, v follow from s and h. Only C + Cᵀ matters, and
e is symmetric: e_ij (m_ij (u_i + u_j) − v_i − v_j) is worked out for i < j alone, in tiles that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from sklearn import get_config

from isometry.core.distance import sqdist
from isometry.core.edges import AnchorEdges, Loss, add_pull
from isometry.core.threads import in_threads, n_threads

ROWS, COLUMNS = 128, 1024  # of a tile
KEPT_MIB = 128  # tiles are kept between the two passes if they all fit in here, else computed again
THREADED = 1000  # points from which threads are worth their start
TINY = {np.dtype(np.float64): 1e-290, np.dtype(np.float32): 1e-30}  # a smaller sum of exponentials has lost digits


class Slopes(NamedTuple):
    """What a loss makes of the sums s and h, point by point."""

    value: np.ndarray  # (n,)
    u: np.ndarray  # (n,)
    v: np.ndarray  # (n,)
    smallest: np.ndarray  # (n,) the sum on which the digits of the others hang: s, or h


class SoftmaxLoss(NamedTuple):
    """A loss of neighbour probabilities in two forms; called, it is the loss on rows of distances."""

    rows: Loss  # exact however far the neighbours are
    sums: Callable[[np.ndarray, np.ndarray], Slopes]  # s, h (n,) → slopes

    def __call__(self, D: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        return self.rows(D, where)


class Tile(NamedTuple):
    """Rows × columns right of the diagonal, and how far the first columns can be of the class of a row."""

    rows: slice
    columns: slice
    hits: int


@dataclass(frozen=True)
class SoftmaxEdges:
    """All pairs of n points with classes ``codes``, for a `SoftmaxLoss`.

    Points whose exponentials underflow, because all their neighbours are far, are done row by row.
    """

    codes: np.ndarray  # (n,)

    def evaluate(self, Z: np.ndarray, loss: SoftmaxLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        order, n = self._order, len(Z)
        Zs, Vs = Z[order], V[order]
        sq = np.einsum("ij,ij->i", Zs, Zs)
        keep = n * n * Z.itemsize / 2 <= min(KEPT_MIB, get_config()["working_memory"] / 4) * 2**20
        parts = n_threads() if n >= THREADED else 1
        kept: dict[int, np.ndarray] = {}

        def sums(part: int, parts: int) -> np.ndarray:
            total = np.zeros((2, n))  # s, h
            for k, tile in self._share(part, parts):
                E = exponentials(Zs, sq, tile)
                add_both_ways(total[0], E, tile)
                if tile.hits:
                    add_both_ways(total[1], np.where(self._same(tile), E[:, : tile.hits], 0), tile)
                if keep:
                    kept[k] = E
            return total

        s, h = np.sum(in_threads(sums, parts), axis=0)
        with np.errstate(all="ignore"):  # far points divide by nothing; they are done below
            slopes = loss.sums(s[self._rank], h[self._rank])
        near = slopes.smallest > TINY[Z.dtype]
        u, v = (np.where(near, x, 0)[order].astype(Z.dtype) for x in (slopes.u, slopes.v))

        def pulls(part: int, parts: int) -> np.ndarray:
            pull, degree = np.zeros(V.shape), np.zeros(n)
            for k, tile in self._share(part, parts):
                rows, columns, hits = tile
                C = np.add.outer(-v[rows], -v[columns])  # (b, c): C + Cᵀ, in the end
                if hits and u.any():
                    C[:, :hits] += np.where(self._same(tile), np.add.outer(u[rows], u[columns][:hits]), 0)
                C *= kept[k] if keep else exponentials(Zs, sq, tile)
                add_both_ways(degree, C, tile)
                pull[rows] -= C @ Vs[columns]
                pull[columns] -= C.T @ Vs[rows]
            pull += degree[:, None] * Vs
            return pull

        value, pull = float(slopes.value[near].sum()), np.sum(in_threads(pulls, parts), axis=0)[self._rank]
        return (value, pull) if near.all() else self._far(np.flatnonzero(~near), Z, V, loss, value, pull)

    def _far(self, far, Z, V, loss, value, pull) -> tuple[float, np.ndarray]:
        """Adds the points whose exponentials underflow, with a softmax that is shifted row by row."""
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
    def _tiles(self) -> list[Tile]:
        return list(self._walk())

    def _share(self, part: int, parts: int) -> list[tuple[int, Tile]]:
        """Every ``parts``-th tile, with its number."""
        return list(enumerate(self._tiles))[part::parts]

    def _walk(self) -> Iterator[Tile]:
        codes, n = self._sorted, len(self.codes)
        for a in range(0, n, ROWS):
            b = min(a + ROWS, n)
            end = int(np.searchsorted(codes, codes[b - 1], side="right"))  # of the class of the last row
            for c in range(a, n, COLUMNS):
                e = min(c + COLUMNS, n)
                yield Tile(slice(a, b), slice(c, e), max(0, min(end, e) - c))

    def _same(self, tile: Tile) -> np.ndarray:
        """(b, hits) pairs of one class."""
        codes = self._sorted
        return codes[tile.rows, None] == codes[tile.columns][: tile.hits]


def exponentials(Z: np.ndarray, sq: np.ndarray, tile: Tile) -> np.ndarray:
    """exp(−|z_i − z_j|²) for i < j in a tile, and 0 for the others."""
    rows, columns, _ = tile
    E = Z[rows] @ Z[columns].T  # (b, c)
    E *= 2
    E -= sq[rows, None]
    E -= sq[columns]
    np.minimum(E, 0, out=E)
    np.exp(E, out=E)
    if rows.start == columns.start:
        b = rows.stop - rows.start
        E[:, :b][np.tri(b, min(b, E.shape[1]), dtype=bool)] = 0
    return E


def add_both_ways(total: np.ndarray, E: np.ndarray, tile: Tile) -> None:
    """total += sums of a symmetric matrix of which E is a tile above the diagonal, or its first columns."""
    total[tile.rows] += E.sum(axis=1)
    start = tile.columns.start
    total[start : start + E.shape[1]] += E.sum(axis=0)
