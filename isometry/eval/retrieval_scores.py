"""Retrieval quality of embeddings: values per query, then means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isometry.eval.hubs import corrected_search
from isometry.eval.labels import encode, labelled
from isometry.eval.neighbors import NeighborSearch


@dataclass(frozen=True)
class Retrieval:
    """Per-query retrieval values of the q queries that have a relevant gallery item, in the order of ``queries``.

    Attributes
    ----------
    queries : ndarray of shape (q,)
        Rows of Z.
    recall_at : dict of int to ndarray
        For each k whether one of the k nearest is relevant (q,).
    precision_at : dict of int to ndarray
        For each k the share of the k nearest that is relevant (q,).
    r_precision : ndarray of shape (q,)
        Precision at R, the number of relevant items.
    map_at_r : ndarray of shape (q,)
        Mean average precision at R.
    n_without_match : int
        Number of queries without a relevant item.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import retrieval
    >>> found = retrieval(np.array([[0.0], [0.1], [5.0], [5.1]]), [0, 0, 1, 1], ks=(1,))
    >>> found.recall_at[1].tolist(), found.map_at_r.tolist()
    ([True, True, True, True], [1.0, 1.0, 1.0, 1.0])
    """

    queries: np.ndarray  # (q,) rows of Z
    recall_at: dict[int, np.ndarray]  # k → (q,) bool
    precision_at: dict[int, np.ndarray]  # k → (q,)
    r_precision: np.ndarray  # (q,)
    map_at_r: np.ndarray  # (q,)
    n_without_match: int

    def mean(self) -> dict[str, float]:
        """Means over the queries, by name.

        Returns
        -------
        dict of str to float
            Means: ``recall@1`` and so on, ``precision@1`` and so on, ``r_precision``, ``map@r``.
        """
        columns = {f"recall@{k}": v for k, v in self.recall_at.items()}
        columns |= {f"precision@{k}": v for k, v in self.precision_at.items()}
        columns |= {"r_precision": self.r_precision, "map@r": self.map_at_r}
        return {name: float(v.mean()) for name, v in columns.items()}


def retrieval(
    Z: np.ndarray,
    y: Any,
    *,
    gallery: np.ndarray | None = None,
    gallery_y: Any = None,
    ks: Sequence[int] = (1, 5, 10),
    correction: Any = None,
) -> Retrieval:
    """Rank the gallery by distance from each row of Z; an item is relevant when it has the label of the query.

    With rel_i the relevance of the i-th nearest item, P_i = Σ_{l≤i} rel_l / i, and R relevant items in the gallery::

        recall@k = max_{i≤k} rel_i     precision@k = P_k     R-precision = P_R     MAP@R = Σ_{i≤R} P_i rel_i / R

    Without a gallery the rows of Z are ranked for one another, never for themselves. Ties of distance go to the smaller
    index. Ranks beyond the end of the gallery count as irrelevant. Queries without a relevant item are left out and
    counted; unlabelled rows take no part.

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
    correction : str, HubnessCorrection or None, default=None
        Distances that leave fewer hubs, by which items are ranked: a name of `HubnessCorrection`, or one.

    Returns
    -------
    Retrieval
        Values of the queries that have a relevant item.

    Notes
    -----
    Distances cost O(m n p).

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "A metric learning reality check", ECCV 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import retrieval
    >>> Z = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> sorted(retrieval(Z, [0, 0, 1, 1], ks=(1,)).mean().items())
    [('map@r', 1.0), ('precision@1', 1.0), ('r_precision', 1.0), ('recall@1', 1.0)]
    """
    if (gallery is None) != (gallery_y is None):
        raise ValueError("gallery and gallery_y go together: give both, or neither to search among the rows of Z.")
    if not ks or min(ks) < 1:
        raise ValueError(f"ks={tuple(ks)} must hold ranks of 1 or more.")
    codes, gallery_codes = encode(y, y if gallery is None else gallery_y)
    Z, codes, rows = labelled(Z, codes)
    if gallery is None:
        gallery_codes = codes
    else:
        gallery, gallery_codes, _ = labelled(gallery, gallery_codes, "gallery")
    search = corrected_search(NeighborSearch.over(Z, gallery), correction)
    sizes = np.bincount(gallery_codes, minlength=codes.max() + 1)
    R = sizes[codes] - search.within  # (m,) relevant items of each query
    matched = np.flatnonzero(R > 0)
    if len(matched) == 0:
        raise ValueError("no query has an item of its own label in the gallery: give a gallery that shares labels.")
    values = np.empty((len(Z), 2 * len(ks) + 2))
    for queries, depth in _by_depth(matched, np.maximum(R[matched], max(ks)), search.n_available):
        for block, index, _ in search.blocks(depth, queries):
            values[block] = _block_values(gallery_codes[index] == codes[block, None], R[block], ks)
    recall, precision = (dict(zip(ks, part)) for part in np.split(values[matched, :-2].T, 2))
    return Retrieval(
        queries=rows[matched],
        recall_at={k: v.astype(bool) for k, v in recall.items()},
        precision_at=precision,
        r_precision=values[matched, -2],
        map_at_r=values[matched, -1],
        n_without_match=len(Z) - len(matched),
    )


def _by_depth(queries: np.ndarray, depth: np.ndarray, n_available: int) -> list[tuple[np.ndarray, int]]:
    """Queries grouped by the depth of ranking they need, up to the next power of two: small classes stay cheap."""
    depth = np.minimum(2 ** np.ceil(np.log2(depth)).astype(np.intp), n_available)
    return [(queries[depth == t], int(t)) for t in np.unique(depth)]


def _block_values(relevant: np.ndarray, R: np.ndarray, ks: Sequence[int]) -> np.ndarray:
    """Columns recall@k…, precision@k…, R-precision, MAP@R from relevance (b, t) by rank, where t ≥ R."""
    rank = np.arange(1, relevant.shape[1] + 1)  # (t,)
    found = np.cumsum(relevant, axis=1, dtype=np.int32)  # (b, t)
    at_k = np.stack([found[:, min(k, len(rank)) - 1] for k in ks], axis=1)  # (b, |ks|)
    counted = relevant & (rank <= R[:, None])  # (b, t)
    r_precision = counted.sum(axis=1) / R
    return np.column_stack([at_k > 0, at_k / np.asarray(ks), r_precision, map_at_r(relevant, R)])


def map_at_r(relevant: np.ndarray, R: np.ndarray) -> np.ndarray:
    """MAP@R (b,) from relevance (b, t) by rank, where t ≥ R; 0 where R is."""
    rank = np.arange(1, relevant.shape[1] + 1)
    counted = relevant & (rank <= R[:, None])
    return np.asarray(np.sum(np.cumsum(relevant, axis=1) / rank, axis=1, where=counted) / np.maximum(R, 1))
