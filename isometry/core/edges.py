"""Edges: the pairs whose distances an objective depends on, and its gradient from the slopes in these distances.

An objective f of squared distances d_ij = |z_i − z_j|² has slopes c_ij = ∂f/∂d_ij. All a gradient ever needs of them is
the product of their Laplacian with some features V,  pull = (diag(C1 + Cᵀ1) − C − Cᵀ) V :  with V = Z it gives
∂f/∂L = 2 pullᵀ X for Z = X Lᵀ, and with V = X it gives ∂f/∂W = Xᵀ pull.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from isometry.core.distance import batches, pair_sqdist, row_blocks, sqdist, sqdist_blocks
from isometry.core.threads import product

# loss(d, where) → (value, slopes): d is a block (b, n) of the distance matrix, or a block (b,) of listed distances;
# `where` is the slice, or the indices, of anchors or of list positions. The loss may overwrite d and return that as
# its slopes.
EdgeLoss = Callable[[np.ndarray, Any], tuple[float, np.ndarray]]


class Edges(Protocol):
    """The pairs of points whose distances an objective depends on."""

    def evaluate(self, Z: np.ndarray, loss: Any, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        """The value of the loss on the distances of Z, and the pull of its slopes on V (default: Z)."""
        ...


class MeasuredEdges(Edges, Protocol):
    """Edges whose distances in a second map of the points can be asked for, block by block."""

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        """The block of distances that a loss sees at ``where``."""
        ...


@runtime_checkable
class DivisibleEdges(Edges, Protocol):
    """Edges that can be divided into mini-batches."""

    @property
    def size(self) -> int:
        """Number of anchors, or of listed pairs."""
        ...

    def part(self, rows: np.ndarray) -> tuple[slice | np.ndarray, Edges]:
        """The points and edges of some anchors, or of some listed pairs, alone."""
        ...


@dataclass(frozen=True)
class DenseEdges:
    """All ordered pairs of n points, visited in blocks of anchors; d_ii is +inf and its slope must be 0."""

    n: int

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        value, pull = 0.0, np.zeros(V.shape)
        for rows, D in sqdist_blocks(Z):
            f, C = loss(D, rows)  # (b, n)
            value += float(f)
            add_pull(pull, C, rows, V)
        return value, pull

    @property
    def size(self) -> int:
        return self.n

    def part(self, anchors: np.ndarray) -> tuple[slice, AnchorEdges]:
        return slice(None), AnchorEdges(anchors)

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        """The block of distances a loss sees at ``where``, in another map of the same points; 0 on the diagonal."""
        return sqdist(Z[where], Z)


@dataclass(frozen=True)
class AnchorEdges:
    """Some anchors with all points; as in `DenseEdges` the distance of a point to itself is +inf."""

    anchors: np.ndarray

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        value, pull = 0.0, np.zeros(V.shape)
        for block in row_blocks(len(self.anchors), len(Z) * Z.itemsize):
            rows = self.anchors[block]
            D = sqdist(Z[rows], Z)
            D[np.arange(len(rows)), rows] = np.inf
            f, C = loss(D, block)  # (b, n)
            value += float(f)
            add_pull(pull, C, rows, V)
        return value, pull


def add_pull(pull: np.ndarray, C: np.ndarray, rows: slice | np.ndarray, V: np.ndarray) -> None:
    """pull += (diag(C1 + Cᵀ1) − C − Cᵀ) V for slopes C (b, n) of distinct anchors ``rows``."""
    pull[rows] += C.sum(axis=1)[:, None] * V[rows] - product(C, V)
    pull += C.sum(axis=0)[:, None] * V - product(C.T, V[rows])


@dataclass(frozen=True)
class TriangleEdges:
    """All unordered pairs of n points: the block of anchors ``rows`` is compared with the points from rows.start on.

    The loss sees (b, n − rows.start); entries on and left of the diagonal hold pairs seen elsewhere, or of a point with
    itself: their slope must be 0 and they must not count.
    """

    n: int
    rows: int = 128  # in a block; short ones compute few pairs twice, and stay in the cache

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        value, pull = 0.0, np.zeros(V.shape)
        for rows in batches(self.n, self.rows):
            f, C = loss(self.sqdist(Z, rows), rows)  # (b, n − start)
            value += float(f)
            right = slice(rows.start, self.n)
            pull[rows] += C.sum(axis=1)[:, None] * V[rows] - C @ V[right]
            pull[right] += C.sum(axis=0)[:, None] * V[right] - C.T @ V[rows]
        return value, pull

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        return sqdist(Z[where], Z[where.start :])


@dataclass(frozen=True)
class ListedEdges:
    """Listed pairs (i, j) of n points."""

    i: np.ndarray
    j: np.ndarray
    n: int

    @property
    def size(self) -> int:
        return len(self.i)

    def part(self, pairs: np.ndarray) -> tuple[np.ndarray, ListedEdges]:
        points, position = np.unique(np.concatenate([self.i[pairs], self.j[pairs]]), return_inverse=True)
        return points, ListedEdges(position[: len(pairs)], position[len(pairs) :], len(points))

    @cached_property
    def incidence(self) -> sp.csr_matrix:
        """(m, n): +1 at i, −1 at j."""
        m = len(self.i)
        columns = np.stack([self.i, self.j], axis=1).ravel()
        signs = np.tile([1.0, -1.0], m)
        return sp.csr_matrix((signs, columns, np.arange(0, 2 * m + 1, 2)), shape=(m, self.n))

    @cached_property
    def _by_anchor(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of the pairs in order of i, where each i begins, and their j: the pattern of a CSR matrix."""
        order = np.argsort(self.i, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.i, minlength=self.n))])
        return order, starts, self.j[order]

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        d = self.sqdist(Z)
        value, c = 0.0, np.empty(len(d))
        for block in row_blocks(len(d), 64):
            f, c[block] = loss(d[block], block)
            value += float(f)
        return value, self.pull(c, Z if V is None else V)

    def pull(self, c: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Laplacian of the slopes c (m,) times V."""
        order, starts, columns = self._by_anchor
        C = sp.csr_matrix((c[order].astype(V.dtype, copy=False), columns, starts), shape=(self.n, self.n))
        degree = np.bincount(self.i, c, self.n) + np.bincount(self.j, c, self.n)
        return degree[:, None] * V - C @ V - C.T @ V

    def sqdist(self, Z: np.ndarray, where: slice = slice(None)) -> np.ndarray:
        """Distances of the listed pairs: gathered, or picked from matrix products where the list is long."""
        i, j = self.i[where], self.j[where]
        n, p = Z.shape
        if len(i) * (10 + 0.6 * p) < n * n * (0.7 + 0.02 * p) or len(i) < len(self.i):  # nanoseconds of both ways
            return pair_sqdist(Z, i, j)
        order, starts, columns = self._by_anchor
        d, norms = np.empty(len(i), dtype=Z.dtype), np.einsum("ij,ij->i", Z, Z)
        for rows in row_blocks(n, n * Z.itemsize):
            span = slice(starts[rows.start], starts[rows.stop])  # pairs with i in these rows
            anchors, others = i[order[span]], columns[span]
            products = product(Z[rows], Z.T).ravel().take((anchors - rows.start) * n + others)
            d[order[span]] = norms[anchors] + norms[others] - 2 * products
        return np.maximum(d, 0, out=d)


@dataclass(frozen=True)
class NeighborEdges:
    """k chosen neighbours of each anchor. Where the index is −1 there is none: d is +inf and its slope must be 0."""

    index: np.ndarray  # (a, k)
    anchors: np.ndarray | None = None  # (a,) distinct points; None: all n, in order

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        a, k = self.index.shape
        d, value, C = self.sqdist(Z), 0.0, np.empty((a, k), dtype=Z.dtype)
        for rows in row_blocks(a, 64 * k):
            f, C[rows] = loss(d[rows], rows)  # (b, k)
            value += float(f)
        return value, self.pull(C, V)

    def pull(self, C: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Laplacian of the slopes C (a, k) times V."""
        (a, k), n = self.index.shape, len(V)
        anchors = slice(None) if self.anchors is None else self.anchors
        graph = sp.csr_matrix((C.ravel(), self.columns, np.arange(0, a * k + 1, k)), shape=(a, n))
        degree = np.bincount(self.columns, weights=C.ravel(), minlength=n)
        degree[anchors] += C.sum(axis=1)
        pull = degree.astype(V.dtype, copy=False)[:, None] * V
        pull -= graph.T @ V[anchors]
        pull[anchors] -= graph @ V
        return pull

    @property
    def size(self) -> int:
        return len(self.index)

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, NeighborEdges]:
        anchors, index = rows if self.anchors is None else self.anchors[rows], self.index[rows]
        points, position = np.unique(np.concatenate([anchors, index.ravel()]), return_inverse=True)
        position -= int(points[0] < 0)  # a missing neighbour, −1, is first in ``points`` and must stay −1
        return points[points >= 0], NeighborEdges(position[len(rows) :].reshape(index.shape), position[: len(rows)])

    def sqdist(self, Z: np.ndarray) -> np.ndarray:
        """(a, k) distances of the anchors to their neighbours."""
        a, k = self.index.shape
        anchors = np.arange(a) if self.anchors is None else self.anchors
        d = pair_sqdist(Z, np.repeat(anchors, k), self.columns).reshape(a, k)
        d[self.index < 0] = np.inf
        return d

    @cached_property
    def columns(self) -> np.ndarray:
        """Neighbours of all anchors as one vector; point 0 in place of a missing one, whose slope is 0."""
        return np.maximum(self.index, 0).ravel()


@dataclass(frozen=True)
class CenterEdges:
    """Every point with every centre. The last ``k`` rows of Z are the centres; a loss sees blocks (b, k) of points."""

    k: int
    n: int  # points

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        n = self.n
        value, pull = 0.0, np.zeros(V.shape)
        for rows in row_blocks(n, max(self.k, Z.shape[1]) * Z.itemsize):
            f, C = loss(sqdist(Z[rows], Z[n:]), rows)  # (b, k)
            value += float(f)
            pull[rows] += C.sum(axis=1)[:, None] * V[rows] - C @ V[n:]
            pull[n:] += C.sum(axis=0)[:, None] * V[n:] - C.T @ V[rows]
        return value, pull

    @property
    def size(self) -> int:
        return self.n

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, CenterEdges]:
        return np.concatenate([rows, np.arange(self.n, self.n + self.k)]), CenterEdges(self.k, len(rows))
