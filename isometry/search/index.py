"""An index over a metric: rows under their ids, searched by distance."""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from isometry.core.progress import progress, report
from isometry.eval.neighbors import Gallery, NeighborSearch
from isometry.io.columns import listing
from isometry.io.model_card import outline
from isometry.io.store import StoreError, digest, load, save
from isometry.parameters import KW_ONLY, Count, check_parameters, parameters
from isometry.search.engines import Engine, Exact, Faiss, import_faiss
from isometry.search.ids import check_ids, find_ids
from isometry.search.quantizer import Quantizer
from isometry.search.space import Space

__all__ = ["Index", "Near", "Neighbors"]

QUERIES = 8192  # rows that are mapped and searched at a time, between two steps of a progress bar


class Neighbors(NamedTuple):
    """The k nearest of each query, nearest first; ties in the order in which rows were added.

    Attributes
    ----------
    ids : ndarray of shape (m, k)
        Ids of the nearest rows.
    scores : ndarray of shape (m, k)
        Distances, or cosines.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Index
    >>> found = Index().fit(np.array([[0.0], [1.0], [5.0]])).search(np.array([[0.9]]), 2)
    >>> found.ids.tolist()
    [[1, 0]]
    """

    ids: np.ndarray  # (m, k)
    scores: np.ndarray  # (m, k) distances, or cosines


class Near(NamedTuple):
    """All that is near enough to some queries, by query and then in the order in which rows were added.

    Attributes
    ----------
    queries : ndarray of shape (t,)
        Numbers of the rows of the queries.
    ids : ndarray of shape (t,)
        Ids of what is near.
    scores : ndarray of shape (t,)
        Distances, or cosines.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Index
    >>> index = Index().fit(np.array([[0.0], [1.0], [5.0]]))
    >>> near = index.within(np.array([[0.4], [9.0]]), 1.0)
    >>> near.queries.tolist(), near.ids.tolist()
    ([0, 0], [0, 1])
    """

    queries: np.ndarray  # (t,) numbers of rows of the queries
    ids: np.ndarray  # (t,)
    scores: np.ndarray  # (t,) distances, or cosines


@parameters
class Index(BaseEstimator):
    """Rows under ids, searched by a learned metric, by Euclidean distance or by the cosine.

    Embeddings are kept in 32 bits. The exact engine compares with all rows, in blocks within scikit-learn's
    ``working_memory``, and gives the true neighbours. FAISS is for millions of rows.

    Parameters
    ----------
    metric : fitted metric, Pipeline, "euclidean" or "cosine", default="euclidean"
        A fitted metric or pipeline, which maps the rows and is saved with them; or "euclidean" or "cosine" for
        embeddings as they are.
    engine : {"exact", "faiss-flat", "faiss-ivf", "faiss-hnsw"}, default="exact"
        "exact"; or with FAISS "faiss-flat" (exact), "faiss-ivf" (cells) or "faiss-hnsw" (a graph), the last two
        approximate.
    quantizer : {"float16", "int8", "binary"} or None, default=None
        Kind of short codes to keep in place of embeddings, see `Quantizer`; "binary" keeps bits to find candidates by
        and bytes to order them.
    effort : int or None, default=None
        Number of cells or candidates that a search of the approximate engines looks at; None: what finds nearly all.
    rescore : int, default=4
        Number of candidates for each neighbour, with "binary".
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    ids_ : ndarray of shape (n,)
        Ids of the rows, int64 or text.
    embeddings_ : ndarray of shape (n, p)
        Embeddings as float32, or their codes.
    origin_ : ndarray of shape (p,) or None
        What was subtracted from embeddings, so that 32 bits have their digits where they differ; None for the cosine.

    Notes
    -----
    For search in production: rows under ids, added and removed, saved with their metric. For one evaluation in
    memory `isometry.eval.nearest` is enough.

    A query costs O(n p) with the exact engine; memory is O(n p), 4 bytes a number, or less with a ``quantizer``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import GMML, Index
    >>> X, y = load_iris(return_X_y=True)
    >>> index = Index(GMML().fit(X, y)).fit(X[:100])
    >>> ids, distances = index.search(X[:2], 3)
    >>> ids[:, 0].tolist()
    [0, 1]
    >>> len(index.add(X[100:]).remove([0, 1]))
    148
    """

    metric: Any = "euclidean"
    _: KW_ONLY
    engine: Literal["exact", "faiss-flat", "faiss-ivf", "faiss-hnsw"] = "exact"
    quantizer: Literal["float16", "int8", "binary"] | None = None
    effort: Count | None = None
    rescore: Count = 4
    verbose: bool | int = False

    def fit(self, X: Any, y: Any = None, *, ids: Any = None) -> Self:
        """Fill the index with rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows.
        y : object, default=None
            Not used.
        ids : array-like of shape (n,) or None, default=None
            Names of the rows, whole numbers or text; None: their numbers.

        Returns
        -------
        self
            The index.
        """
        check_parameters(self)
        if self.engine != "exact":
            if self.quantizer is not None:
                raise ValueError(f"quantizer={self.quantizer!r} goes with engine='exact', not with {self.engine!r}")
            import_faiss(self.engine)
        space = Space(self.metric)
        with progress(self.verbose, "map", word="rows"):
            Z = space.embed(X)
        self.ids_ = check_ids(np.arange(len(Z)) if ids is None else ids, len(Z))
        self.n_features_in_, self.origin_ = space.n_features, space.origin
        if self.quantizer is not None:
            self.quantizer_ = Quantizer(self.quantizer).fit(Z)
        self.embeddings_, self.fine_ = self._coded(Z)
        self.cells_: np.ndarray | None = None
        self._made: Engine | None = None
        return self

    def add(self, X: Any, ids: Any = None) -> Self:
        """Add rows under ids that are not there yet.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Rows.
        ids : array-like of shape (m,) or None, default=None
            Names of the rows; None: numbers go on where they ended.

        Returns
        -------
        self
            The index.
        """
        if not hasattr(self, "ids_"):
            return self.fit(X, ids=ids)
        Z = self._space.embed(X)
        if ids is None:
            if self.ids_.dtype.kind == "U":
                raise ValueError("the ids of this index are text, so that new rows need theirs: give ids")
            ids = self.ids_.max(initial=-1) + 1 + np.arange(len(Z))
        ids = check_ids(ids, len(Z))
        if ids.dtype.kind != self.ids_.dtype.kind:
            raise ValueError("ids of an index are all whole numbers or all text: those given are of the other kind")
        known = np.isin(ids, self.ids_)
        if known.any():
            raise ValueError(
                f"{known.sum()} of {len(ids)} ids are in the index already: {listing(ids[known])}. Remove them first"
            )
        coded, fine = self._coded(Z)
        self.ids_ = np.concatenate([self.ids_, ids])
        self.embeddings_ = np.concatenate([self.embeddings_, coded])
        self.fine_ = None if fine is None else np.concatenate([self.fine_, fine])
        self._made = None
        return self

    def remove(self, ids: Any) -> Self:
        """Remove rows by their ids.

        Parameters
        ----------
        ids : array-like
            Ids; any that is not there is an error, and then nothing is removed.

        Returns
        -------
        self
            The index.
        """
        check_is_fitted(self)
        keep = np.ones(len(self.ids_), dtype=bool)
        keep[find_ids(self.ids_, ids, "the index")] = False
        self.ids_, self.embeddings_ = self.ids_[keep], self.embeddings_[keep]
        self.fine_ = None if self.fine_ is None else self.fine_[keep]
        self._made = None
        return self

    def search(self, X: Any, k: int = 10) -> Neighbors:
        """The k nearest rows of each query.

        Euclidean distance and fitted metrics give distances, least first; the cosine gives cosines, greatest first.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Queries.
        k : int, default=10
            Number of neighbours.

        Returns
        -------
        Neighbors
            Their ids and scores.
        """
        check_is_fitted(self)
        if not 1 <= k <= len(self):
            raise ValueError(f"k={k} neighbours were asked for, but the index holds {len(self)} rows")
        Q, space, engine = self._queries(X)
        rows, d = np.empty((len(Q), k), dtype=np.intp), np.empty((len(Q), k), dtype=np.float32)
        with progress(self.verbose, "search", -(-len(Q) // QUERIES), word="rows"):
            for start in range(0, len(Q), QUERIES):
                block = slice(start, start + QUERIES)
                rows[block], d[block] = engine.search(Q[block], k)
                report(min(start + QUERIES, len(Q)))
        return Neighbors(self.ids_[rows], space.scores(d))

    def within(self, X: Any, threshold: float) -> Near:
        """All rows near enough to each query.

        Compares with all rows, whatever the engine, and of codes with what they stand for.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Queries.
        threshold : float
            The largest distance, or the least cosine.

        Returns
        -------
        Near
            Their ids and scores, by query.
        """
        check_is_fitted(self)
        space = self._space
        Q, radius = space.embed(X), space.radius(threshold)
        if self._made is not None and isinstance(self._made, Exact):
            gallery = self._made.gallery
        else:
            gallery = Gallery(self.embeddings_ if self.quantizer is None else self._decoded())
        found = list(NeighborSearch(Q, gallery, False).pairs_within(radius))
        i, j, d = (np.concatenate(part) for part in zip(*found, strict=True))
        return Near(i, self.ids_[j], space.scores(d))

    def __len__(self) -> int:
        return len(getattr(self, "ids_", ()))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "ids_")

    def save(self, path: str | os.PathLike[str], card: dict[str, Any] | None = None) -> None:
        """Write rows, ids and metric to one file without pickle.

        Parameters
        ----------
        path : str or path-like
            The file; an older one is replaced only by a complete one.
        card : dict or None, default=None
            What else should be known of it, as JSON can hold it.
        """
        save(self, path, card)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, metric: Any = None, n_features: int | None = None) -> Self:
        """Read an index back.

        Engines of FAISS are built again at the first search.

        Parameters
        ----------
        path : str or path-like
            The file, as `save` wrote it.
        metric : fitted metric, str or None, default=None
            What the index is expected to be of: an error if it is one of another metric.
        n_features : int or None, default=None
            Width that rows are expected to have: an error if it is another.

        Returns
        -------
        Index
            The index.
        """
        index = load(path)
        if not isinstance(index, cls):
            raise StoreError(f"{path} holds {type(index).__name__}, not an index: Index().fit(X).save(path) writes one")
        index._check_consistent(path)
        if n_features is not None and n_features != index.n_features_in_:
            raise StoreError(f"{path} is an index of rows with {index.n_features_in_} features, not {n_features}")
        if metric is not None and not _same_metric(index.metric, metric):
            raise StoreError(
                f"{path} is an index by {outline(index.metric)}, which is not the {outline(metric)} that is expected: "
                "build it anew with this metric"
            )
        return index

    def _check_consistent(self, path: Any) -> None:
        """What a damaged or forged file may get wrong: one id for each row, numbers of the right kind, one width."""
        Z, ids, fine = (getattr(self, name, None) for name in ("embeddings_", "ids_", "fine_"))
        kinds = {None: np.float32, "float16": np.float16, "int8": np.int8, "binary": np.uint8}
        good = (
            isinstance(Z, np.ndarray)
            and isinstance(ids, np.ndarray)
            and Z.ndim == 2
            and ids.shape == (len(Z),)
            and ids.dtype.kind in "iU"
            and Z.dtype == kinds.get(self.quantizer)
            and (self.quantizer != "binary" or (isinstance(fine, np.ndarray) and len(fine) == len(Z)))
            and (Z.dtype.kind != "f" or bool(np.isfinite(Z).all()))
        )
        if not good:
            raise StoreError(f"{path} is no whole index: its ids and rows do not go together")
        self._made = None

    def _only_of_fit(self) -> tuple[str, ...]:
        """What a file does not hold."""
        return ("_made",)

    @property
    def _space(self) -> Space:
        space = Space(self.metric, self.n_features_in_)
        space.origin = self.origin_
        return space

    def _coded(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Embeddings or their codes, and finer codes beside bits."""
        if self.quantizer is None:
            return Z, None
        return self.quantizer_.encode(Z), self.quantizer_.encode(Z, "int8") if self.quantizer == "binary" else None

    def _decoded(self) -> np.ndarray:
        return np.asarray(self.quantizer_.decode(self.embeddings_ if self.fine_ is None else self.fine_))

    def _queries(self, X: Any) -> tuple[np.ndarray, Space, Engine]:
        space = self._space
        if getattr(self, "_made", None) is None:
            if self.quantizer is not None:
                self._made = _Coded(self.quantizer_, self.embeddings_, self.fine_, self.rescore)
            elif self.engine == "exact":
                self._made = Exact(self.embeddings_)
            else:
                made = Faiss(self.embeddings_, self.engine, self.effort, self.cells_)
                self._made, self.cells_ = made, made.cells
        assert self._made is not None
        return space.embed(X, "the queries"), space, self._made


class _Coded:
    """An engine of short codes."""

    def __init__(self, quantizer: Quantizer, codes: np.ndarray, fine: np.ndarray | None, rescore: int):
        self.quantizer, self.codes, self.fine, self.rescore = quantizer, codes, fine, rescore

    def search(self, Q: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return self.quantizer.search(Q, self.codes, k, rescore=self.rescore, fine=self.fine)


def _same_metric(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return digest(a) == digest(b)
