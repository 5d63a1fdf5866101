"""How the nearest embeddings are found: exactly, by short codes, or by FAISS."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from isometry.core.distance import pair_sqdist
from isometry.eval.neighbors import Gallery, NeighborSearch

TRAINING = 256  # rows for each cell that FAISS learns its cells from
LINKS = 32  # of each row in a graph
EFFORT = 128  # candidates that a search of a graph follows, at least
MARGIN = 2  # candidates for each neighbour, which are then measured and ordered as an exact search orders them


class Engine(Protocol):
    """Finds the rows nearest to queries."""

    def search(self, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows (m, k) and squared distances (m, k), nearest first, ties by row."""


class Exact:
    """All rows, in blocks; `NeighborSearch` measures what one matrix product cannot decide."""

    def __init__(self, Z: np.ndarray):
        self.gallery = Gallery(Z)

    def search(self, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        search = NeighborSearch(Q, self.gallery, False)
        rows, d = np.empty((len(Q), k), dtype=np.intp), np.empty((len(Q), k), dtype=Q.dtype)
        for block, found, sqdist in search.blocks(k):
            rows[block], d[block] = found, sqdist
        return rows, d


class Faiss:
    """FAISS: "faiss-flat" compares with all rows, "faiss-ivf" with those of the nearest cells, "faiss-hnsw" by a graph.

    What it finds is measured and ordered once more, so that equal rows have equal distances in every engine.
    """

    def __init__(self, Z: np.ndarray, kind: str, effort: int | None, cells: np.ndarray | None = None):
        faiss = import_faiss(kind)
        n, p = Z.shape
        self.Z, self.kind, self.effort = Z, kind, effort
        if kind == "faiss-flat":
            self.index = faiss.IndexFlatL2(p)
        elif kind == "faiss-hnsw":
            self.index = faiss.IndexHNSWFlat(p, LINKS)
        else:
            n_cells = max(1, int(4 * np.sqrt(n))) if cells is None else len(cells)
            n_cells = min(n_cells, max(1, n // 4))
            self.index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p), p, n_cells)
            if cells is not None and len(cells) == n_cells:
                self.index.quantizer.add(cells)
                self.index.is_trained = True
            else:
                # warnings of FAISS about few rows for a cell go to stdout, which belongs to the caller
                self.index.cp.min_points_per_centroid = 1
                rows = np.random.RandomState(0).permutation(n)[: TRAINING * n_cells]
                self.index.train(Z[rows])
        self.index.add(Z)

    @property
    def cells(self) -> np.ndarray | None:
        """(c, p) the centres of the cells, which a file keeps: they take longest to find."""
        if self.kind != "faiss-ivf":
            return None
        return np.asarray(self.index.quantizer.reconstruct_n(0, self.index.nlist))

    def search(self, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        if self.kind == "faiss-ivf":
            self.index.nprobe = self.effort or max(8, self.index.nlist // 16)
        elif self.kind == "faiss-hnsw":
            self.index.hnsw.efSearch = max(self.effort or EFFORT, MARGIN * k)
        found = self.index.search(np.ascontiguousarray(Q), min(len(self.Z), MARGIN * k))[1]  # (m, c) −1 where fewer
        i = np.repeat(np.arange(len(Q)), found.shape[1])
        d = pair_sqdist(Q, i, np.maximum(found, 0).ravel(), self.Z).reshape(found.shape)
        d[found < 0] = np.inf
        order = np.lexsort((found, d), axis=1)[:, :k]
        rows, d = np.take_along_axis(found, order, axis=1), np.take_along_axis(d, order, axis=1)
        few = (rows < 0).any(axis=1)  # the cells or the part of the graph that was looked at held fewer than k rows
        if few.any():
            rows[few], d[few] = Exact(self.Z).search(Q[few], k)
        return rows, d


def import_faiss(kind: str) -> Any:
    """FAISS, or an error that says how to install it and how to do without."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(
            f"engine={kind!r} needs faiss: pip install \"isometry[index]\". engine='exact' needs nothing more",
            name="faiss",
        ) from error
    return faiss
