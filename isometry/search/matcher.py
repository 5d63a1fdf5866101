"""Matches between two tables: which rows mean the same thing."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from scipy.stats import beta
from sklearn.base import BaseEstimator

from isometry.core.distance import pair_sqdist
from isometry.eval.intervals import Interval
from isometry.eval.neighbors import Gallery, NeighborSearch
from isometry.eval.verification import roc
from isometry.parameters import KW_ONLY, check_parameters, parameters
from isometry.search.ids import check_ids
from isometry.search.space import Space

__all__ = ["Matcher", "Matches"]


class Matches(NamedTuple):
    """Pairs of rows that match, in the order of the first table, then of the second.

    Attributes
    ----------
    left : ndarray of shape (t,)
        Ids of the first table.
    right : ndarray of shape (t,)
        Ids of the second table.
    scores : ndarray of shape (t,)
        Distances, or cosines.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Matcher
    >>> found = Matcher(1.0).match(np.array([[0.0], [3.0]]), np.array([[0.5], [9.0]]))
    >>> found.left.tolist(), found.right.tolist()
    ([0], [0])
    """

    left: np.ndarray  # (t,) ids of the first table
    right: np.ndarray  # (t,) ids of the second
    scores: np.ndarray  # (t,) distances, or cosines


@parameters
class Matcher(BaseEstimator):
    """Matches between the rows of two tables that are near enough to one another.

    "one-to-one" chooses pairs so that Σ (threshold − distance) is largest, with each row in one pair at most: the
    assignment problem with the right to leave rows out.

    Parameters
    ----------
    threshold : float or None, default=None
        The largest distance of a match; with ``metric="cosine"`` the least cosine. None: by `fit_threshold`.
    metric : fitted metric, "euclidean" or "cosine", default="euclidean"
        A fitted metric, or "euclidean" or "cosine" for embeddings as they are.
    kind : {"one-to-one", "one-to-many", "many-to-one", "many-to-many"}, default="one-to-one"
        "one-to-one"; "one-to-many": each row of the second table matches its nearest of the first, which may match
        several; "many-to-one": the other way round; "many-to-many": all pairs near enough.

    Attributes
    ----------
    threshold_ : float
        The threshold that `fit_threshold` found.
    rate_ : Interval
        The share it was asked to keep, on the pairs it saw, and the ends of its 95 % interval.

    Notes
    -----
    For record linkage and alignment: the same products in two shops, the same sentences in two languages. Within
    one table use `duplicates`. A threshold from pairs that are known is better than a guess: see `fit_threshold`.

    Distances cost O(n m p) for tables of n and m rows; the assignment is over the pairs near enough only.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Matcher
    >>> A, B = np.array([[0.0], [1.0], [7.0]]), np.array([[1.2], [0.9]])
    >>> Matcher(1.5).match(A, B, ids=["a", "b", "c"], other_ids=["x", "y"]).left.tolist()
    ['a', 'b']
    """

    threshold: float | None = None
    _: KW_ONLY
    metric: Any = "euclidean"
    kind: Literal["one-to-one", "one-to-many", "many-to-one", "many-to-many"] = "one-to-one"

    def match(self, X: Any, Y: Any, *, ids: Any = None, other_ids: Any = None) -> Matches:
        """The matches between the rows of two tables.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Rows of the first table.
        Y : array-like of shape (n, d)
            Rows of the second table.
        ids : array-like of shape (m,) or None, default=None
            Names of the rows of X; None: their numbers.
        other_ids : array-like of shape (n,) or None, default=None
            Names of the rows of Y; None: their numbers.

        Returns
        -------
        Matches
            Ids of both tables, and scores.
        """
        check_parameters(self)
        space = Space(self.metric)
        Z, G, radius = space.embed(X, "X"), space.embed(Y, "Y"), space.radius(self._threshold())
        left = check_ids(np.arange(len(Z)) if ids is None else ids, len(Z))
        right = check_ids(np.arange(len(G)) if other_ids is None else other_ids, len(G), "other_ids")
        if self.kind == "many-to-one":
            i, j, d = _nearest(Z, G, radius)
        elif self.kind == "one-to-many":
            j, i, d = _nearest(G, Z, radius)
        else:
            found = list(NeighborSearch(Z, Gallery(G), False).pairs_within(radius))
            i, j, d = (np.concatenate(part) for part in zip(*found, strict=True))
            if self.kind == "one-to-one":
                chosen = _assignment(i, j, np.sqrt(d.astype(np.float64)), radius, (len(Z), len(G)))
                i, j, d = i[chosen], j[chosen], d[chosen]
        order = np.lexsort((j, i))
        return Matches(left[i[order]], right[j[order]], space.scores(d[order]))

    def is_match(self, X: Any, Y: Any) -> np.ndarray:
        """Whether row i of X and row i of Y are near enough.

        Parameters
        ----------
        X : array-like of shape (m, d)
            Rows of the first table.
        Y : array-like of shape (m, d)
            Rows of the second table.

        Returns
        -------
        ndarray of bool, shape (m,)
            Whether they are.
        """
        check_parameters(self)
        space = Space(self.metric)
        return np.asarray(_paired(space, X, Y) <= space.radius(self._threshold()))

    def fit_threshold(
        self,
        X: Any,
        Y: Any,
        same: Any,
        *,
        fpr: float | None = None,
        precision: float | None = None,
        criterion: str | None = None,
    ) -> Self:
        """Choose the threshold by pairs that the metric was not learned from: row i of X and row i of Y.

        Parameters
        ----------
        X : array-like of shape (m, d)
            One row of each pair.
        Y : array-like of shape (m, d)
            The other row of each pair.
        same : array-like of bool, shape (m,)
            Whether they mean the same.
        fpr : float or None, default=None
            Share of the pairs that differ which may be accepted; as many are accepted as that allows.
        precision : float or None, default=None
            Least share of pairs that are the same among those accepted; as many are accepted as that allows.
        criterion : {"accuracy", "balanced"} or None, default=None
            "accuracy" or "balanced": accept so that most pairs, or most of either kind, are told rightly.

        Returns
        -------
        self
            The matcher, with ``threshold_``.
        """
        targets = {"fpr": fpr, "precision": precision, "criterion": criterion}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            raise ValueError("give one target: fit_threshold(…, fpr=0.01), precision=0.99 or criterion='accuracy'")
        space, same = Space(self.metric), np.asarray(same).astype(bool)
        d = _paired(space, X, Y)
        curve = roc(d, same)
        if fpr is not None:
            radius = curve.threshold_at_fpr(fpr)
            accepted = d <= radius
            rate = _share(int(accepted[~same].sum()), int((~same).sum()))
        elif precision is not None:
            radius = _threshold_at_precision(d, same, precision)
            accepted = d <= radius
            rate = _share(int(same[accepted].sum()), int(accepted.sum()))
        else:
            radius = curve.best_threshold(str(criterion))
            accepted = d <= radius
            rate = _share(int((accepted == same).sum()), len(same))
        if radius < 0:
            raise ValueError(f"fpr={fpr} would accept no pair: the nearest of the {len(d)} pairs is one that differs")
        self.threshold_ = float(1 - radius**2 / 2) if space.is_cosine else float(radius)
        self.rate_ = rate
        return self

    def _threshold(self) -> float:
        threshold = getattr(self, "threshold_", self.threshold) if self.threshold is None else self.threshold
        if threshold is None:
            raise ValueError("Matcher has no threshold: give one, or choose it by pairs with fit_threshold")
        return float(threshold)


def _paired(space: Space, X: Any, Y: Any) -> np.ndarray:
    """(m,) distances, after `Space.embed`, of row i of X and row i of Y."""
    Z, G = space.embed(X, "X"), space.embed(Y, "Y")
    if len(Z) != len(G):
        raise ValueError(f"X has {len(Z)} rows and Y has {len(G)}: row i of each is a pair")
    rows = np.arange(len(Z))
    return np.sqrt(pair_sqdist(Z, rows, rows, G).astype(np.float64))


def _nearest(Z: np.ndarray, G: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows i of Z, their nearest j of G, and squared distances, where these are within the radius."""
    found = list(NeighborSearch(Z, Gallery(G), False).blocks(1))
    i, j, d = (np.concatenate(part) for part in zip(*found, strict=True))
    near = d[:, 0] <= np.float64(radius) ** 2
    return i[near], j[near, 0], d[near, 0]


def _assignment(i: np.ndarray, j: np.ndarray, d: np.ndarray, radius: float, shape: tuple[int, int]) -> np.ndarray:
    """Which of the listed pairs to take so that no row is in two and Σ (radius − d) is largest.

    Every row i also has a column of its own to be left out by, so that a full assignment exists; all costs are moved
    by one and the same number, since the solver takes 0 for no edge.
    """
    m, n = shape
    rows, place = np.unique(i, return_inverse=True)
    alone = np.arange(len(rows))
    unit = max(radius, np.finfo(np.float64).tiny)
    cost = np.concatenate([(d - radius) / unit, np.zeros(len(rows))]) - 1.0
    # 32 bits: older versions of scipy match no graphs of other indices
    ends = tuple(np.concatenate(side).astype(np.int32) for side in ([place, alone], [j, n + alone]))
    graph = coo_array((cost, ends), (len(rows), n + m))
    if not len(rows):
        return np.zeros(0, dtype=np.intp)
    column = min_weight_full_bipartite_matching(graph.tocsr())[1]  # (rows,) of each row
    return np.flatnonzero(column[place] == j)


def _threshold_at_precision(d: np.ndarray, same: np.ndarray, precision: float) -> float:
    """The largest distance up to which at least this share of the pairs is the same."""
    if not 0 < precision <= 1:
        raise ValueError(f"precision={precision} is a share of the accepted pairs: choose it above 0 and at most 1")
    order = np.argsort(d)
    right = np.cumsum(same[order]) / np.arange(1, len(d) + 1)
    last = np.append(np.diff(d[order]) > 0, True)  # equal distances are accepted together
    meets = np.flatnonzero(last & (right >= precision))
    if not len(meets):
        raise ValueError(
            f"no threshold reaches precision={precision} on these pairs; the best is {right[last].max():.4f}"
        )
    return float(d[order][meets[-1]])


def _share(k: int, n: int, level: float = 0.95) -> Interval:
    """k/n with the interval of Clopper and Pearson."""
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(1 - tail, k + 1, n - k)) if k < n else 1.0
    return Interval(k / n, low, high)
