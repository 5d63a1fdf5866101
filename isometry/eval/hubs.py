"""Hubs, items that are near neighbours of far too many queries: how many there are, and distances that have fewer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from isometry.core.distance import row_blocks, sqdist
from isometry.core.graph import k_smallest
from isometry.eval.neighbors import NeighborSearch, nearest

CORRECTIONS = ("csls", "local_scaling", "nicdm", "mutual_proximity")
CANDIDATES = 10  # nearest items whose corrected distances are compared, for each neighbour asked for


@dataclass(frozen=True)
class Hubness:
    """How unevenly items serve as neighbours.

    N_k(j) is the number of queries with item j among their k nearest.

    Attributes
    ----------
    k : int
        Number of neighbours.
    k_occurrence : ndarray of shape (n,)
        The numbers N_k.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import hubness
    >>> found = hubness(np.array([[0.0], [1.0], [2.5], [-1.1]]), k=1)
    >>> found.k_occurrence.tolist(), found.antihubs
    ([2, 2, 0, 0], 0.5)
    """

    k: int
    k_occurrence: np.ndarray  # (n,) N_k

    @property
    def skewness(self) -> float:
        """E(N_k − k)³/σ³: 0 without hubs, and large where a few items are neighbours of nearly all queries."""
        gap = self.k_occurrence - self.k_occurrence.mean()
        spread = gap.std()
        return float(np.mean(gap**3) / spread**3) if spread > 0 else 0.0

    @property
    def antihubs(self) -> float:
        """The share of items that are among the k nearest of no query."""
        return float(np.mean(self.k_occurrence == 0))

    @property
    def robin_hood(self) -> float:
        """The share of all neighbour places that would have to be moved to give every item equally many."""
        N = self.k_occurrence
        return float(np.abs(N - N.mean()).sum() / (2 * max(N.sum(), 1)))


def hubness(Z: np.ndarray, k: int = 10, gallery: np.ndarray | None = None, correction: Any = None) -> Hubness:
    """How often each gallery item is among the k nearest of a query.

    Parameters
    ----------
    Z : ndarray of shape (m, p)
        Queries.
    k : int, default=10
        Number of neighbours.
    gallery : ndarray of shape (n, p) or None, default=None
        Items; None: the other rows of Z.
    correction : str, HubnessCorrection or None, default=None
        Distances that leave fewer hubs: a name of `HubnessCorrection`, or one.

    Returns
    -------
    Hubness
        The numbers, and how uneven they are.

    Notes
    -----
    Distances cost O(m n p).

    References
    ----------
    | M. Radovanović, A. Nanopoulos, M. Ivanović, "Hubs in space", JMLR 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import hubness
    >>> found = hubness(np.random.default_rng(0).normal(size=(60, 50)), k=5)
    >>> int(found.k_occurrence.sum()), bool(found.skewness > 0)
    (300, True)
    """
    index, _ = nearest(Z, k, gallery, correction=correction)
    return Hubness(k, np.bincount(index.ravel(), minlength=len(Z if gallery is None else gallery)))


class HubnessCorrection:
    """Distances between queries x and gallery items y that leave fewer hubs.

    "csls" is 2d² − r(x) − r(y) with r the mean squared distance to the k nearest of the other side, which for unit
    vectors is −2 times the published similarity (Conneau et al. 2018); "local_scaling" is 1 − exp(−d²/(s(x)s(y)))
    with s the distance of the k-th nearest (Zelnik-Manor and Perona 2005); "nicdm" is d/√(t(x)t(y)) with t the mean
    distance to the k nearest (Jégou et al. 2010); "mutual_proximity" is ``1 − P(D > d | x) P(D > d | y)``, D the
    distances to all items of the other side, taken for Gaussian (Schnitzer et al. 2012).

    A correction belongs to a set of points, not to a metric: fit it to the gallery that is searched.

    Parameters
    ----------
    method : {"csls", "local_scaling", "nicdm", "mutual_proximity"}, default="csls"
        Which of the four distances above.
    k : int, default=10
        Number of neighbours that the correction looks at.

    Notes
    -----
    Where some items are neighbours of nearly all queries, as happens in many dimensions; `hubness` says whether
    they are. It costs a search of the gallery among itself, O(n² p), once.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import HubnessCorrection
    >>> gallery = np.random.default_rng(0).normal(size=(50, 20))
    >>> index, distance = HubnessCorrection("csls", k=5).fit(gallery).rerank(gallery[:3] + 0.01, 2)
    >>> index[:, 0].tolist()
    [0, 1, 2]
    """

    def __init__(self, method: str = "csls", k: int = 10):
        if method not in CORRECTIONS:
            raise ValueError(f"method={method!r} is unknown: choose from {', '.join(CORRECTIONS)}")
        if k < 1:
            raise ValueError(f"k={k} must be at least 1")
        self.method, self.k = method, k

    def fit(self, gallery: np.ndarray, queries: np.ndarray | None = None) -> HubnessCorrection:
        """Learn how near others are to each gallery item.

        Parameters
        ----------
        gallery : ndarray of shape (n, p)
            Items that will be searched.
        queries : ndarray of shape (m, p) or None, default=None
            The other side; None, where these come later: other items.

        Returns
        -------
        HubnessCorrection
            Itself.
        """
        self.gallery_ = np.asarray(gallery)
        self.sizes_ = self._sizes(NeighborSearch.over(self.gallery_, queries))
        return self

    def rerank(self, Z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest gallery items of every row of Z by corrected distance.

        They are sought among the 10 k nearest by distance itself; by "mutual_proximity" among all.

        Parameters
        ----------
        Z : ndarray of shape (m, p)
            Queries.
        k : int
            Number of neighbours.

        Returns
        -------
        indices : ndarray of shape (m, k)
            Neighbours, nearest first.
        distances : ndarray of shape (m, k)
            Their corrected distances.
        """
        if not hasattr(self, "gallery_"):
            raise ValueError("fit the correction to the gallery first")
        return nearest(Z, k, self.gallery_, correction=self)

    def search(self, search: NeighborSearch) -> CorrectedSearch:
        """A search by corrected distance. Of a gallery that is not fitted, the queries are the other side.

        Parameters
        ----------
        search : NeighborSearch
            A search by distance itself.

        Returns
        -------
        CorrectedSearch
            The search by corrected distance.
        """
        of_queries = self._sizes(search)
        if hasattr(self, "sizes_"):
            if len(self.sizes_) != len(search.gallery):
                raise ValueError(
                    f"the correction was fitted to {len(self.sizes_)} items, and the gallery has "
                    f"{len(search.gallery)}: fit it to the gallery that is searched"
                )
            return CorrectedSearch(search, self.method, of_queries, self.sizes_)
        of_items = of_queries if search.within else self._sizes(search.reverse())
        return CorrectedSearch(search, self.method, of_queries, of_items)

    def _sizes(self, search: NeighborSearch) -> np.ndarray:
        """(m, 2) what the method needs to know about the neighbourhood of each query; the second is of two moments."""
        sizes = np.zeros((search.n_queries, 2))
        if self.method == "mutual_proximity":
            for rows, D in _all_distances(search):
                sizes[rows] = np.column_stack([np.nanmean(D, axis=1), np.nanstd(D, axis=1)])
            return sizes
        for rows, _, d in search.blocks(min(self.k, search.n_available)):
            d = d.astype(np.float64)
            by_method = {"csls": d.mean(axis=1), "local_scaling": np.sqrt(d[:, -1]), "nicdm": np.sqrt(d).mean(axis=1)}
            sizes[rows, 0] = by_method[self.method]
        return sizes


@dataclass(frozen=True)
class CorrectedSearch:
    """A neighbour search by corrected distances; it is used like a `NeighborSearch`."""

    plain: NeighborSearch
    method: str
    of_queries: np.ndarray  # (m, 2)
    of_items: np.ndarray  # (n, 2)

    @property
    def within(self) -> bool:
        return self.plain.within

    @property
    def n_available(self) -> int:
        return self.plain.n_available

    @property
    def n_queries(self) -> int:
        return self.plain.n_queries

    def blocks(self, k: int, queries: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``(rows, indices (b, k), corrected distances (b, k))``, nearest first, ties by index."""
        if self.method == "mutual_proximity":
            for rows, D in _all_distances(self.plain, queries):
                value = corrected(self.method, D, self.of_queries[rows, None], self.of_items[None])
                value[np.isnan(D)] = np.inf  # a row is never its own neighbour
                yield rows, *k_smallest(value, k)
            return
        for rows, index, d in self.plain.blocks(min(CANDIDATES * k, self.n_available), queries):
            distance = np.sqrt(d.astype(np.float64))
            value = corrected(self.method, distance, self.of_queries[rows, None], self.of_items[index])
            order = np.lexsort((index, value), axis=1)[:, :k]
            yield rows, np.take_along_axis(index, order, axis=1), np.take_along_axis(value, order, axis=1)


def corrected(method: str, d: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Corrected distances from distances d (b, c) and the sizes (…, 2) of the neighbourhoods of queries and items."""
    if method == "csls":
        return np.asarray(2 * d**2 - x[..., 0] - y[..., 0])
    if method == "mutual_proximity":
        a, b = (ndtr((d - s[..., 0]) / np.maximum(s[..., 1], 1e-300)) for s in (x, y))
        return np.asarray(a + b - a * b)  # 1 − (1 − a)(1 − b), exact also where both are small
    product = np.maximum(x[..., 0] * y[..., 0], 1e-300)  # 0 where k duplicates are nearest
    return np.asarray(-np.expm1(-(d**2) / product) if method == "local_scaling" else d / np.sqrt(product))


def corrected_search(search: NeighborSearch, correction: Any) -> NeighborSearch | CorrectedSearch:
    """A search as it is for None and "none"; else by the correction of that name, or by a `HubnessCorrection`."""
    if correction is None or (isinstance(correction, str) and correction == "none"):
        return search
    if isinstance(correction, str):
        correction = HubnessCorrection(correction)
    if not isinstance(correction, HubnessCorrection):
        raise TypeError(
            f"correction={correction!r} must be None, one of {', '.join(CORRECTIONS)}, or a HubnessCorrection"
        )
    return correction.search(search)


def _all_distances(
    search: NeighborSearch, queries: np.ndarray | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Queries, in blocks, and their distances to all items (b, n), NaN for a query itself."""
    items, sought = (Z.astype(np.float64) for Z in (search.gallery.points, search.queries))
    centre = items.mean(axis=0)
    items, sought = items - centre, sought - centre
    queries = np.arange(search.n_queries) if queries is None else queries
    for block in row_blocks(len(queries), 8 * len(items)):
        rows = queries[block]
        D = np.sqrt(sqdist(sought[rows], items))
        if search.within:
            D[np.arange(len(rows)), rows] = np.nan
        yield rows, D
