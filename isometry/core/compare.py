"""Comparisons as edges: the pair (i, j) should be nearer than the pair (k, l). Triplets are those with k = i."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from isometry.core.distance import row_blocks
from isometry.core.edges import EdgeLoss, ListedEdges


@dataclass(frozen=True)
class ComparisonEdges:
    """m comparisons of pairs of n points. A loss sees (2, b): distances of the near pairs above those of the far ones.

    A pair may occur in many comparisons: its distance is measured once, and its slopes are added up.
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    l: np.ndarray
    n: int

    @cached_property
    def _listed(self) -> tuple[ListedEdges, np.ndarray]:
        """Every pair once, and the positions (2, m) of the near and far pair of each comparison among them."""
        a, b = (np.concatenate(ends).astype(np.int64) for ends in ((self.i, self.k), (self.j, self.l)))
        keys, position = np.unique(np.minimum(a, b) * self.n + np.maximum(a, b), return_inverse=True)
        return ListedEdges(keys // self.n, keys % self.n, self.n), position.reshape(2, -1)

    @property
    def size(self) -> int:
        return len(self.i)

    def part(self, rows: np.ndarray) -> tuple[np.ndarray, ComparisonEdges]:
        ends = np.concatenate([end[rows] for end in (self.i, self.j, self.k, self.l)])
        points, position = np.unique(ends, return_inverse=True)
        i, j, k, l = position.reshape(4, -1)
        return points, ComparisonEdges(i, j, k, l, len(points))

    def evaluate(self, Z: np.ndarray, loss: EdgeLoss, V: np.ndarray | None = None) -> tuple[float, np.ndarray]:
        pairs, position = self._listed
        d = pairs.sqdist(Z)
        value, c = 0.0, np.zeros(len(d))
        for block in row_blocks(self.size, 64):
            f, slopes = loss(d[position[:, block]], block)  # (2, b)
            value += float(f)
            c += np.bincount(position[:, block].ravel(), slopes.ravel(), len(d))
        return value, pairs.pull(c, Z if V is None else V)

    def gaps(self, Z: np.ndarray) -> np.ndarray:
        """(m,) squared distance of the near pair − that of the far pair."""
        pairs, position = self._listed
        near, far = pairs.sqdist(Z)[position]
        return near - far

    @cached_property
    def n_contradictions(self) -> int:
        """How many comparisons lie on a circle, such as a < b and b < a: no distance satisfies all on a circle."""
        pairs, (near, far) = self._listed
        graph = sp.coo_matrix((np.ones(self.size), (near, far)), shape=(pairs.size, pairs.size))
        strong = connected_components(graph, connection="strong")[1]  # pairs that are on a common circle
        return int((strong[near] == strong[far]).sum())
