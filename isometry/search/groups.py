"""Near-duplicates and communities among rows, in blocks: no matrix of all pairs is ever held."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from isometry.core.distance import pair_sqdist
from isometry.core.progress import progress, report
from isometry.eval.neighbors import Gallery, NeighborSearch
from isometry.search.ids import check_ids
from isometry.search.space import Space

__all__ = ["Duplicates", "communities", "duplicates"]


class Duplicates(NamedTuple):
    """Rows so near to one another that they may be copies.

    Attributes
    ----------
    groups : list of ndarray
        Ids that are linked by near pairs, largest group first, then by the first row.
    pairs : ndarray of shape (t, 2)
        Ids of near pairs, nearest first.
    scores : ndarray of shape (t,)
        Their distances, or cosines.
    n_pairs : int
        Number of near pairs there are, of which ``pairs`` may hold the nearest only.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import duplicates
    >>> found = duplicates(np.array([[0.0], [5.0], [0.1]]), 0.5)
    >>> found.n_pairs, found.groups[0].tolist()
    (1, [0, 2])
    """

    groups: list[np.ndarray]  # ids that are linked by near pairs, largest group first, then by the first row
    pairs: np.ndarray  # (t, 2) ids of near pairs, nearest first
    scores: np.ndarray  # (t,) their distances, or cosines
    n_pairs: int  # near pairs there are, of which ``pairs`` may hold the nearest only


def duplicates(
    X: Any,
    threshold: float,
    *,
    metric: Any = "euclidean",
    ids: Any = None,
    max_pairs: int | None = 1_000_000,
    verbose: bool = False,
) -> Duplicates:
    """Groups of rows that are linked by pairs near enough to one another, and the nearest of these pairs.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows.
    threshold : float
        The largest distance of a near pair; with ``metric="cosine"`` the least cosine.
    metric : fitted metric, "euclidean" or "cosine", default="euclidean"
        A fitted metric, or "euclidean" or "cosine" for embeddings as they are.
    ids : array-like of shape (n,) or None, default=None
        Names of the rows; None: their numbers.
    max_pairs : int or None, default=1000000
        Number of pairs that are listed, the nearest ones; None: all. Groups are always of all pairs.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    Duplicates
        Groups, and the nearest pairs with their scores.

    Notes
    -----
    For cleaning a table, or finding the same object entered twice. Groups follow links, so that a chain of near
    rows is one group; around centres see `communities`, between two tables `Matcher`. Distances cost O(n² p) time,
    memory O(block · n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import duplicates
    >>> found = duplicates(np.array([[0.0, 0], [5, 5], [0, 0.1], [9, 0], [5, 5]]), 0.5)
    >>> [group.tolist() for group in found.groups]
    [[0, 2], [1, 4]]
    >>> found.pairs.tolist()
    [[1, 4], [0, 2]]
    """
    if max_pairs is not None and max_pairs < 1:
        raise ValueError(f"max_pairs={max_pairs} must be at least 1, or None")
    space, Z, ids = _embedded(X, metric, ids)
    n, total = len(Z), 0
    group = np.arange(n)  # (n,) the first row that is linked with each
    found: list[list[np.ndarray]] = []
    with progress(verbose, "duplicates", word="pairs"):
        for i, j, d in NeighborSearch(Z, Gallery(Z), True).pairs_within(space.radius(threshold)):
            upper = i < j
            i, j, d = i[upper], j[upper], d[upper]
            total += len(i)
            group = _linked(group, i, j)
            found.append([i, j, d])
            if max_pairs is not None and sum(len(part[0]) for part in found) > 2 * max_pairs:
                found = [_nearest_pairs(found, max_pairs)]
            report(total)
    i, j, d = _nearest_pairs(found, max_pairs)
    sizes = np.bincount(group, minlength=n)
    first = np.flatnonzero(sizes > 1)
    first = first[np.argsort(-sizes[first], kind="stable")]
    members = np.split(np.argsort(group, kind="stable"), np.cumsum(sizes)[:-1])  # by the first row of each group
    pairs = np.column_stack([ids[i], ids[j]])
    return Duplicates([ids[members[g]] for g in first], pairs, space.scores(d), total)


def _linked(group: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """The first row of each connected component, where further rows i, j are linked."""
    n = len(group)
    rows, columns = np.concatenate([i, np.arange(n)]), np.concatenate([j, group])
    graph = coo_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(n, n))
    label = connected_components(graph, directed=False)[1]
    first = np.unique(label, return_index=True)[1]
    return np.asarray(first[label])


def _nearest_pairs(parts: list[list[np.ndarray]], most: int | None) -> list[np.ndarray]:
    """The nearest pairs i, j, d of all parts, in the order of distance, then of rows."""
    i, j, d = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((j, i, d))[:most]
    return [i[order], j[order], d[order]]


def communities(
    X: Any,
    threshold: float,
    *,
    min_size: int = 10,
    metric: Any = "euclidean",
    ids: Any = None,
    verbose: bool = False,
) -> list[np.ndarray]:
    """Rows around centres, as many as can be: each row within the threshold of the centre of its community.

    Every row is asked how many others are near enough. From the most crowded row on, in this order, those near it that
    no earlier community has taken are one, if there are at least ``min_size`` of them. Communities do not overlap, and
    rows may belong to none.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Rows.
    threshold : float
        The largest distance from the centre; with ``metric="cosine"`` the least cosine.
    min_size : int, default=10
        Least number of members of a community, its centre included.
    metric : fitted metric, "euclidean" or "cosine", default="euclidean"
        A fitted metric, or "euclidean" or "cosine" for embeddings as they are.
    ids : array-like of shape (n,) or None, default=None
        Names of the rows; None: their numbers.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    list of ndarray
        Ids, those nearest to the centre first, which itself comes first if it was not taken; largest community first,
        and of equal ones the one that was found first.

    Notes
    -----
    For a first look at what a collection holds, with nothing but a threshold. Copies are for `duplicates`, a fixed
    number of clusters for k-means. Distances cost O(n² p) time, memory O(block · n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import communities
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [9.0]])
    >>> [c.tolist() for c in communities(X, 0.15, min_size=2)]
    [[1, 0, 2], [3, 4]]
    """
    if min_size < 1:
        raise ValueError(f"min_size={min_size} must be at least 1")
    space, Z, ids = _embedded(X, metric, ids)
    radius = space.radius(threshold)
    search = NeighborSearch(Z, Gallery(Z), False)  # a row is near itself
    counts = np.zeros(len(Z), dtype=np.intp)
    free = np.ones(len(Z), dtype=bool)
    found: list[np.ndarray] = []
    with progress(verbose, "communities", word="communities"):
        for rows, near in search.near_blocks(radius):
            counts[rows] = near.sum(axis=1)
            report(len(found))
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] >= min_size]
        for rows, near in search.near_blocks(radius, order):
            near &= free
            for b in np.flatnonzero(near.sum(axis=1) >= min_size):
                members = np.flatnonzero(near[b] & free)
                if len(members) < min_size:
                    continue  # others of this block have taken too many
                free[members] = False
                d = pair_sqdist(Z, np.full(len(members), rows[b]), members)
                d[members == rows[b]] = -1  # before its copies
                found.append(members[np.lexsort((members, d))])
            report(len(found))
    found.sort(key=len, reverse=True)
    return [ids[members] for members in found]


def _embedded(X: Any, metric: Any, ids: Any) -> tuple[Space, np.ndarray, np.ndarray]:
    space = Space(metric)
    Z = space.embed(X)
    return space, Z, check_ids(np.arange(len(Z)) if ids is None else ids, len(Z))
