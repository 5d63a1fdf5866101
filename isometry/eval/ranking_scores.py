"""Scores of rankings: the first hit, average precision at k with its divisor named, discounted gains."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isometry.eval.labels import encode, labelled
from isometry.eval.neighbors import NeighborSearch


@dataclass(frozen=True)
class Ranking:
    """Per-query scores of the q queries that have a relevant item, in the order of ``queries``.

    Attributes
    ----------
    queries : ndarray of shape (q,)
        Rows of Z.
    reciprocal_rank : ndarray of shape (q,)
        One over the rank of the first relevant item.
    map_at_min : dict of int to ndarray
        For each k the average precision (q,), divided by min(k, R).
    map_at_R : dict of int to ndarray
        For each k the average precision (q,), divided by R.
    ndcg_at : dict of int to ndarray
        For each k the normalised discounted gain (q,).
    n_without_match : int
        Number of queries without a relevant item.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import ranking
    >>> found = ranking(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1], ks=(1,))
    >>> found.reciprocal_rank.tolist(), found.n_without_match
    ([1.0, 1.0, 1.0, 1.0], 0)
    """

    queries: np.ndarray  # (q,) rows of Z
    reciprocal_rank: np.ndarray  # (q,)
    map_at_min: dict[int, np.ndarray]  # k → (q,), divided by min(k, R)
    map_at_R: dict[int, np.ndarray]  # k → (q,), divided by R
    ndcg_at: dict[int, np.ndarray]  # k → (q,)
    n_without_match: int

    def mean(self) -> dict[str, float]:
        """Means over the queries, by name.

        Returns
        -------
        dict of str to float
            Means: ``mrr``, ``map@5/min``, ``map@5/R``, ``ndcg@5`` and so on.
        """
        columns = {"mrr": self.reciprocal_rank}
        columns |= {f"map@{k}/min": v for k, v in self.map_at_min.items()}
        columns |= {f"map@{k}/R": v for k, v in self.map_at_R.items()}
        columns |= {f"ndcg@{k}": v for k, v in self.ndcg_at.items()}
        return {name: float(v.mean()) for name, v in columns.items()}


def ranking(
    Z: np.ndarray,
    y: Any,
    *,
    gallery: np.ndarray | None = None,
    gallery_y: Any = None,
    ks: Sequence[int] = (1, 5, 10),
    within: Any = None,
    gallery_within: Any = None,
) -> Ranking:
    """Rank the gallery by distance from each row of Z; an item is relevant when it has the label of the query.

    With rel_i the relevance of the i-th nearest item, P_i the precision there, R relevant items, r the first hit::

        MRR = 1/r     MAP@k/min = Σ_{i≤k} P_i rel_i / min(k, R)     MAP@k/R = Σ_{i≤k} P_i rel_i / R
        nDCG@k = Σ_{i≤k} rel_i / log₂(i + 1) over the best that is possible

    Under one name other libraries divide by R, by min(k, R), or by the hits that were found: the names say which.
    Without a gallery the rows of Z are ranked for one another. Ties of distance go to the smaller index. Queries
    without a relevant item are left out and counted.

    Parameters
    ----------
    Z : ndarray of shape (m, p)
        Queries.
    y : array-like of shape (m,)
        Their labels; rows without one take no part.
    gallery : ndarray of shape (n, p) or None, default=None
        Items to rank, in place of Z itself.
    gallery_y : array-like of shape (n,) or None, default=None
        Labels of the gallery.
    ks : sequence of int, default=(1, 5, 10)
        Depths.
    within : array-like of shape (m,) or None, default=None
        A parent of each query, such as a category: it is ranked among the items of its parent only.
    gallery_within : array-like of shape (n,) or None, default=None
        The parent of each item of the gallery.

    Returns
    -------
    Ranking
        Scores of the queries that have a relevant item.

    Notes
    -----
    Distances cost O(m n p), the ranks O(m n log n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import ranking
    >>> Z = np.array([[0.0], [1.0], [2.5], [3.0]])
    >>> round(ranking(Z, [0, 1, 1, 0], ks=(1,)).mean()["mrr"], 6)
    0.416667
    """
    if (gallery is None) != (gallery_y is None):
        raise ValueError("gallery and gallery_y go together: give both, or neither to search among the rows of Z.")
    codes, gallery_codes = encode(y, y if gallery is None else gallery_y)
    Z, codes, rows = labelled(Z, codes)
    if gallery is not None:
        gallery, gallery_codes, gallery_rows = labelled(gallery, gallery_codes, "gallery")
    else:
        gallery_codes, gallery_rows = codes, rows
    parents = _parents(within, gallery_within, rows, gallery_rows, gallery is None)
    parts = []
    for mine, theirs in parents:
        items = None if gallery is None else gallery[theirs]
        search = NeighborSearch.over(Z[mine], items) if len(mine) and len(theirs) else None
        own, all_codes = codes[mine], gallery_codes[theirs]
        R = (np.bincount(all_codes, minlength=codes.max() + 1) if len(all_codes) else np.zeros(codes.max() + 1, int))[
            own
        ]
        R = R - (gallery is None)
        if search is None or not (R > 0).any():
            continue
        queries = np.flatnonzero(R > 0)
        values = _scores(search, queries, lambda q, j, own=own, c=all_codes: c[j] == own[q, None], R, None, ks)
        parts.append((mine[queries], values[queries]))
    if not parts:
        raise ValueError("no query has an item of its own label to be ranked: give a gallery that shares labels.")
    found, values = (np.concatenate(p) for p in zip(*parts))
    order = np.argsort(found)
    return _as_ranking(rows[found[order]], values[order], ks, len(Z) - len(found))


def _parents(
    within: Any, gallery_within: Any, rows: np.ndarray, gallery_rows: np.ndarray, alone: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Queries and items of each parent; all of them, if there are no parents."""
    if within is None:
        if gallery_within is not None:
            raise ValueError("gallery_within needs within: a parent for each query too.")
        yield np.arange(len(rows)), np.arange(len(gallery_rows))
        return
    if not alone and gallery_within is None:
        raise ValueError("within needs gallery_within: a parent for each item of the gallery too.")
    parent, gallery_parent = encode(within, within if alone else gallery_within)
    parent, gallery_parent = parent[rows], gallery_parent[gallery_rows]
    for code in np.unique(parent[parent >= 0]):
        yield np.flatnonzero(parent == code), np.flatnonzero(gallery_parent == code)


def document_ranking(
    queries: np.ndarray,
    documents: np.ndarray,
    relevance: Mapping[Hashable, Mapping[Hashable, float] | Sequence[Hashable]],
    *,
    query_ids: Sequence[Hashable] | None = None,
    document_ids: Sequence[Hashable] | None = None,
    ks: Sequence[int] = (1, 5, 10),
) -> Ranking:
    """Rank documents for queries whose relevant documents are listed, with gains if there are grades.

    Scores as those of ``ranking``; a document is a hit if its grade g is above 0, and nDCG has gains 2^g − 1.
    ``queries`` and ``documents`` are embeddings compared by Euclidean distance: bring them to unit length first if
    cosines are meant.

    Parameters
    ----------
    queries : ndarray of shape (m, p)
        Embeddings of the queries.
    documents : ndarray of shape (n, p)
        Embeddings of the documents.
    relevance : mapping
        Query → its relevant documents, or document → grade.
    query_ids : sequence or None, default=None
        The names of queries that ``relevance`` uses; None: the numbers of the rows.
    document_ids : sequence or None, default=None
        The names of documents that ``relevance`` uses; None: the numbers of the rows.
    ks : sequence of int, default=(1, 5, 10)
        Depths.

    Returns
    -------
    Ranking
        Scores of the queries that have a relevant document.

    Notes
    -----
    Distances cost O(m n p), the ranks O(m n log n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import document_ranking
    >>> documents = np.array([[0.0], [1.0], [3.0]])
    >>> found = document_ranking(np.array([[0.9]]), documents, {"q": {"c": 1}}, query_ids=["q"], document_ids="abc")
    >>> round(found.mean()["mrr"], 6)
    0.333333
    """
    query_of = {q: i for i, q in enumerate(range(len(queries)) if query_ids is None else query_ids)}
    document_of = {d: i for i, d in enumerate(range(len(documents)) if document_ids is None else document_ids)}
    for name, known, data in (("query", query_of, queries), ("document", document_of, documents)):
        if len(known) != len(data):
            raise ValueError(f"{len(data)} rows need as many different {name} ids, got {len(known)}.")
    unknown = [q for q in relevance if q not in query_of]
    unknown += [d for documents_of in relevance.values() for d in documents_of if d not in document_of]
    if unknown:
        names = ", ".join(map(repr, unknown[:5])) + (" …" if len(unknown) > 5 else "")
        raise ValueError(
            f"relevance names {len(unknown)} ids that there are not: {names}; give query_ids and document_ids."
        )
    gains = _Gains.of(relevance, query_of, document_of, len(queries))
    matched = np.flatnonzero(gains.R > 0)
    if not len(matched):
        raise ValueError("no query has a relevant document with a grade above 0.")
    search = NeighborSearch.over(queries, documents)
    values = _scores(search, matched, gains.at, gains.R, gains, ks)
    return _as_ranking(matched, values[matched], ks, len(queries) - len(matched))


@dataclass(frozen=True)
class _Gains:
    """Grades as one sorted list of (query, document) pairs, so that a block of ranks is looked up at once."""

    key: np.ndarray  # (r,) query · n + document, ascending
    gain: np.ndarray  # (r,) 2^g − 1
    R: np.ndarray  # (m,) relevant documents of each query
    n: int

    @classmethod
    def of(
        cls, relevance: Mapping[Any, Any], query_of: Mapping[Any, int], document_of: Mapping[Any, int], m: int
    ) -> _Gains:
        pairs = [
            (query_of[q], document_of[d], float(grades[d]) if isinstance(grades, Mapping) else 1.0)
            for q, grades in relevance.items()
            for d in grades
        ]
        i, j = (np.array([p[k] for p in pairs], dtype=np.intp) for k in (0, 1))
        grade = np.array([p[2] for p in pairs])
        if len(pairs) and not (np.isfinite(grade) & (grade >= 0)).all():
            raise ValueError("grades of relevance must be finite numbers ≥ 0.")
        kept = grade > 0
        i, j, grade = i[kept], j[kept], grade[kept]
        n = len(document_of)
        key, first = np.unique(i * n + j, return_index=True)
        return cls(key, np.exp2(grade[first]) - 1, np.bincount(i[first], minlength=m), n)

    def at(self, queries: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Gains (b, t) of documents by rank."""
        wanted = queries[:, None] * self.n + index
        place = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        return np.where(self.key[place] == wanted, self.gain[place], 0.0)

    def ideal(self, query: np.ndarray, depth: int) -> np.ndarray:
        """The largest gains (b, depth) of each query, in falling order."""
        best = np.zeros((len(query), depth))
        for row, q in enumerate(query):
            own = np.sort(
                self.gain[np.searchsorted(self.key, q * self.n) : np.searchsorted(self.key, (q + 1) * self.n)]
            )
            best[row, : min(depth, len(own))] = own[::-1][:depth]
        return best


def _scores(
    search: NeighborSearch, queries: np.ndarray, gain_at: Any, R: np.ndarray, gains: _Gains | None, ks: Sequence[int]
) -> np.ndarray:
    """Columns 1/r, MAP@k/min …, MAP@k/R …, nDCG@k … for the queries; ranks are read deeper until each has a hit."""
    if not ks or min(ks) < 1:
        raise ValueError(f"ks={tuple(ks)} must hold ranks of 1 or more.")
    values = np.zeros((search.n_queries, 1 + 3 * len(ks)))
    depth = min(max(ks), search.n_available)
    left = queries
    first = True
    while len(left):
        missing = []
        for block, index, _ in search.blocks(depth, left):
            gain = np.asarray(gain_at(block, index), dtype=np.float64)  # (b, t)
            hit = gain > 0
            place = hit.argmax(1)
            found = hit[np.arange(len(block)), place]
            values[block[found], 0] = 1 / (place[found] + 1)
            if first:
                best = gains.ideal(block, max(ks)) if gains else (np.arange(max(ks)) < R[block, None]).astype(float)
                values[block, 1:] = np.concatenate([_at_k(gain, hit, R[block], best, k) for k in ks], 1)[
                    :, _by_kind(len(ks))
                ]
            missing.append(block[~found])
        left, first = np.concatenate(missing), False
        if depth == search.n_available:
            break
        depth = min(4 * depth, search.n_available)
    return values


def _by_kind(n: int) -> np.ndarray:
    """From three columns for each k to all k of the first, of the second, of the third."""
    return np.arange(3 * n).reshape(n, 3).T.ravel()


def _at_k(gain: np.ndarray, hit: np.ndarray, R: np.ndarray, best: np.ndarray, k: int) -> np.ndarray:
    """MAP@k/min, MAP@k/R and nDCG@k (b, 3) from gains (b, t) by rank, and the best possible (b, ≥ k)."""
    hit, rank = hit[:, :k], np.arange(1, min(k, hit.shape[1]) + 1)
    total = np.sum(np.cumsum(hit, axis=1) / rank, axis=1, where=hit)
    discount = 1 / np.log2(np.arange(2, k + 2))
    dcg = gain[:, :k] @ discount[: hit.shape[1]]
    return np.column_stack([total / np.minimum(k, R), total / R, dcg / (best[:, :k] @ discount)])


def _as_ranking(queries: np.ndarray, values: np.ndarray, ks: Sequence[int], missing: int) -> Ranking:
    by_min, by_R, ndcg = (dict(zip(ks, part)) for part in np.split(values[:, 1:].T, 3))
    return Ranking(queries, values[:, 0], by_min, by_R, ndcg, missing)
