"""Edges: where an objective looks at distances, and how its slopes come back.

An objective f of squared distances d_ij = |z_i − z_j|² has slopes c_ij = ∂f/∂d_ij. All a gradient ever needs of them is
the product of their Laplacian with some features V,  pull = (diag(C1 + Cᵀ1) − C − Cᵀ) V :  with V = Z it gives
∂f/∂L = 2 pullᵀ X for Z = X Lᵀ, and with V = X it gives ∂f/∂W = Xᵀ pull.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from isometry.core.distance import row_blocks, sqdist, sqdist_blocks

# loss(d, where) → (value, slopes): d is a block (b, n) of the distance matrix, or a block (b,) of listed distances;
# `where` is the slice of anchors, or of list positions. The loss may overwrite d and return it as slopes.
Loss = Callable[[np.ndarray, slice], tuple[float, np.ndarray]]


@dataclass(frozen=True)
class DenseEdges:
    """All ordered pairs of n points, visited in blocks of anchors; d_ii is +inf and its slope must be 0."""

    n: int

    def evaluate(self, Z: np.ndarray, loss: Loss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        value, pull = 0.0, np.zeros(V.shape)
        for rows, D in sqdist_blocks(Z):
            f, C = loss(D, rows)  # (b, n)
            value += float(f)
            pull[rows] += C.sum(axis=1)[:, None] * V[rows] - C @ V
            pull += C.sum(axis=0)[:, None] * V - C.T @ V[rows]
        return value, pull

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        """The block of distances a loss sees at ``where``, in another map of the same points; 0 on the diagonal."""
        return sqdist(Z[where], Z)


@dataclass(frozen=True)
class ListedEdges:
    """Listed pairs (i, j) of n points."""

    i: np.ndarray
    j: np.ndarray
    n: int

    @cached_property
    def incidence(self) -> sp.csr_matrix:
        """(m, n): +1 at i, −1 at j."""
        m = len(self.i)
        columns = np.stack([self.i, self.j], axis=1).ravel()
        signs = np.tile([1.0, -1.0], m)
        return sp.csr_matrix((signs, columns, np.arange(0, 2 * m + 1, 2)), shape=(m, self.n))

    def evaluate(self, Z: np.ndarray, loss: Loss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        width = max(Z.shape[1], 0 if V is None else V.shape[1])
        value, pull = 0.0, np.zeros((Z if V is None else V).shape)
        for block in row_blocks(len(self.i), width * Z.itemsize, buffers=4, limit_mib=16):
            i, j = self.i[block], self.j[block]
            delta = Z[i] - Z[j]  # (b, p)
            f, c = loss(np.einsum("ij,ij->i", delta, delta), block)
            value += float(f)
            if V is not None:
                delta = V[i] - V[j]
            delta *= c[:, None].astype(delta.dtype, copy=False)
            pull += self.incidence[block].T @ delta
        return value, pull

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        delta = Z[self.i[where]] - Z[self.j[where]]
        return np.einsum("ij,ij->i", delta, delta)


@dataclass(frozen=True)
class NeighborEdges:
    """k chosen neighbours of each anchor. Where the index is −1 there is none: d is +inf and its slope must be 0."""

    index: np.ndarray  # (a, k)
    anchors: np.ndarray | None = None  # (a,) distinct points; None: all n, in order

    def evaluate(self, Z: np.ndarray, loss: Loss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        V = Z if V is None else V
        (a, k), n = self.index.shape, len(Z)
        anchors = slice(None) if self.anchors is None else self.anchors
        value, C = 0.0, np.empty((a, k), dtype=Z.dtype)
        for rows in row_blocks(a, k * Z.shape[1] * Z.itemsize, buffers=2):
            f, C[rows] = loss(self.sqdist(Z, rows), rows)  # (b, k)
            value += float(f)
        graph = sp.csr_matrix((C.ravel(), self.columns, np.arange(0, a * k + 1, k)), shape=(a, n))
        pull = np.bincount(self.columns, weights=C.ravel(), minlength=n)[:, None] * V - graph.T @ V[anchors]
        pull[anchors] += C.sum(axis=1)[:, None] * V[anchors] - graph @ V
        return value, pull

    def sqdist(self, Z: np.ndarray, where: slice) -> np.ndarray:
        delta = Z[self.index[where]]  # (b, k, p)
        delta -= (Z[where] if self.anchors is None else Z[self.anchors[where]])[:, None]
        d = np.einsum("ijk,ijk->ij", delta, delta)
        d[self.index[where] < 0] = np.inf
        return d

    @cached_property
    def columns(self) -> np.ndarray:
        """Neighbours in one row after another; a missing one, whose slope is 0, points anywhere."""
        return np.maximum(self.index, 0).ravel()


Edges = DenseEdges | ListedEdges | NeighborEdges
