"""Retrieval where relevant items are listed query by query: the scores of labels, without labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isometry.eval.neighbors import NeighborSearch
from isometry.eval.ranking_scores import Gains, scores_at_k
from isometry.eval.retrieval_scores import by_depth, values_by_rank


def listed_retrieval(
    queries: np.ndarray,
    documents: np.ndarray | None,
    i: np.ndarray,
    j: np.ndarray,
    grade: np.ndarray | None = None,
    ks: Sequence[int] = (1, 10),
) -> dict[str, np.ndarray]:
    """Rank documents by distance from each query, where the relevant ones are listed.

    Scores as those of `retrieval` and `document_ranking`: ``map@r``, ``recall@k`` (whether one of the first k is
    relevant) and ``ndcg@k``.

    Parameters
    ----------
    queries : array of shape (m, p)
        Embeddings of queries.
    documents : array of shape (n, p) or None
        Embeddings of documents; None: the queries are ranked for one another, never for themselves.
    i : array of shape (r,)
        Rows of queries.
    j : array of shape (r,)
        Rows of documents that are relevant to these queries.
    grade : array of shape (r,) or None, default=None
        How relevant they are, above 0; None: all alike.
    ks : sequence of int, optional
        Depths; 1 and 10 unless given.

    Returns
    -------
    dict of array
        Values (m,) by name, NaN for queries to which nothing is relevant.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import listed_retrieval
    >>> documents = np.array([[0.0], [1.0], [3.0]])
    >>> found = listed_retrieval(np.array([[0.9]]), documents, np.array([0]), np.array([1]))
    >>> float(found["map@r"][0])
    1.0
    """
    if not ks or min(ks) < 1:
        raise ValueError(f"ks={tuple(ks)} must hold ranks of 1 or more.")
    search = NeighborSearch.over(queries, documents)
    m, n = search.n_queries, len(search.gallery)
    gains = Gains.listed(i, j, np.ones(len(i)) if grade is None else np.asarray(grade, dtype=np.float64), m, n)
    matched = np.flatnonzero(gains.R > 0)
    if not len(matched):
        raise ValueError("no query has a relevant document with a grade above 0.")
    names = ["map@r", *(f"recall@{k}" for k in ks), *(f"ndcg@{k}" for k in ks)]
    values = np.full((m, len(names)), np.nan)
    for wanted, depth in by_depth(matched, np.maximum(gains.R[matched], max(ks)), search.n_available):
        for block, index, _ in search.blocks(depth, wanted):
            gain, R = gains.at(block, index), gains.R[block]
            hit, best = gain > 0, gains.ideal(block, max(ks))
            by_rank = values_by_rank(hit, R, ks)  # recall@k …, precision@k …, R-precision, MAP@R
            ndcg = [scores_at_k(gain, hit, R, best, k)[:, 2] for k in ks]
            values[block] = np.column_stack([by_rank[:, -1], by_rank[:, : len(ks)], *ndcg])
    return dict(zip(names, values.T, strict=True))
