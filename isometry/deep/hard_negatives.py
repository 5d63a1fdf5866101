"""Hard negatives of queries: documents that are near to a query and do not belong to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isometry.deep.samplers import as_array, positive
from isometry.eval.neighbors import NeighborSearch
from isometry.parameters import one_of


class HardNegatives(NamedTuple):
    """What ``mine_hard_negatives`` finds: documents for each query, and how many.

    Attributes
    ----------
    documents : array (n, k)
        Rows of documents by falling cosine, −1 where fewer than k were found.
    found : array (n,)
        How many were found for each query.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.deep import mine_hard_negatives
    >>> documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> mined = mine_hard_negatives(documents[:1], documents, positives=[0], k=2)
    >>> mined.documents.tolist(), mined.found.tolist()
    ([[1, 2]], [2])
    """

    documents: np.ndarray  # (n, k), −1 where fewer than k were found
    found: np.ndarray  # (n,)


def mine_hard_negatives(
    queries: Any,
    documents: Any,
    positives: Sequence[Any] | np.ndarray,
    k: int = 3,
    *,
    skip: int = 0,
    depth: int | None = None,
    max_score: float | None = None,
    margin: float | None = None,
    relative_margin: float | None = None,
    sample: str = "top",
    random_state: int = 0,
) -> HardNegatives:
    """The documents of highest cosine to each query that are no known positives of it and pass all filters.

    Queries are visited in blocks, O(block · documents) memory. A near document without a label may be a positive that
    nobody marked: ``relative_margin=0.05`` leaves out most of these.

    Parameters
    ----------
    queries : array (n, p)
        Embeddings of the queries.
    documents : array (m, p)
        Embeddings of the documents.
    positives : sequence (n,)
        The document that belongs to each query, or a list of several.
    k : int, default=3
        Negatives of each query.
    skip : int, default=0
        Leave out so many of the nearest documents that are not positives.
    depth : int or None, default=None
        How many of them are looked at; None: ``skip + 10 k``.
    max_score : float or None, default=None
        Only cosines below this; None: any.
    margin : float or None, default=None
        Only cosines below s⁺ − margin, where s⁺ is the smallest cosine to a positive; None: any.
    relative_margin : float or None, default=None
        Only cosines below s⁺ − relative_margin · abs(s⁺); None: any.
    sample : {"top", "random"}, default="top"
        The first k that pass, or k of them at random.
    random_state : int, default=0
        Seed of that choice.

    Returns
    -------
    HardNegatives
        ``documents`` (n, k), by falling cosine, −1 where there are fewer than k, and ``found`` (n,), how many.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.deep import mine_hard_negatives
    >>> documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> mine_hard_negatives(documents[:1], documents, positives=[0], k=1).documents
    array([[1]])
    """
    one_of("sample", sample, ("top", "random"))
    positive("k", k)
    Q, D = _directions(queries, "queries"), _directions(documents, "documents")
    own = [np.atleast_1d(np.asarray(p, dtype=np.intp)) for p in positives]
    if len(own) != len(Q):
        raise ValueError(f"{len(Q)} queries need as many entries of positives, got {len(own)}")
    for i, rows in enumerate(own):
        if not len(rows) or rows.min() < 0 or rows.max() >= len(D):
            raise ValueError(f"positives of query {i} must be one or more of 0 … {len(D) - 1}, got {rows.tolist()}")
    most = max(map(len, own), default=1)
    looked_at = skip + 10 * k if depth is None else positive("depth", depth)
    table = np.stack([np.resize(rows, most) for rows in own]) if own else np.empty((0, 1), dtype=np.intp)  # (n, most)
    index, rng = np.full((len(Q), k), -1, dtype=np.intp), np.random.default_rng(random_state)
    norm = np.einsum("ip,ip->i", D, D)  # 1, or 0 for a row of zeros
    blocks = NeighborSearch.over(Q, D).blocks(min(looked_at + most, len(D))) if len(Q) else ()
    for rows, near, sqdist in blocks:
        score = (np.einsum("ip,ip->i", Q[rows], Q[rows])[:, None] + norm[near] - sqdist) / 2  # (b, t) cosines
        least = np.einsum("ip,ijp->ij", Q[rows], D[table[rows]]).min(1, keepdims=True)  # (b, 1)
        passes = ~(near[:, :, None] == table[rows][:, None]).any(2)
        rank = passes.cumsum(1)  # among those that are no positives
        passes &= (rank > skip) & (rank <= looked_at)
        if max_score is not None:
            passes &= score < max_score
        if margin is not None:
            passes &= score < least - margin
        if relative_margin is not None:
            passes &= score < least - relative_margin * np.abs(least)
        column = _chosen(passes, k, rng if sample == "random" else None)  # (b, ≤ k)
        found = np.take_along_axis(near, np.minimum(column, near.shape[1] - 1), 1)
        index[rows, : column.shape[1]] = np.where(column < near.shape[1], found, -1)
    return HardNegatives(index, (index >= 0).sum(1))


def _chosen(passes: np.ndarray, k: int, rng: np.random.Generator | None) -> np.ndarray:
    """k columns that pass in each row (b, ≤ k), the first or any, ascending; the width where there are fewer."""
    width = passes.shape[1]
    luck = np.broadcast_to(np.arange(width) / width, passes.shape) if rng is None else rng.random(passes.shape)
    order = np.argsort(np.where(passes, luck, 2), axis=1, kind="stable")[:, :k]
    return np.sort(np.where(np.take_along_axis(passes, order, 1), order, width), axis=1)


def _directions(Z: Any, name: str) -> np.ndarray:
    Z = as_array(Z)
    if Z.ndim != 2 or not np.isfinite(Z).all():
        raise ValueError(f"{name} must be a finite matrix (n, p), got shape {Z.shape}")
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return np.asarray(Z / np.where(length > 0, length, 1))
