"""What a learned distance is made of: the share of every feature in it, and what it has changed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_random_state
from tqdm.auto import tqdm

from isometry.core.distance import pair_sqdist, row_blocks
from isometry.core.warn import warn_user
from isometry.eval import nearest
from isometry.supervision import Supervision

__all__ = ["Changed", "Explanation", "explain"]

Map = Callable[[np.ndarray], np.ndarray]  # samples → their images

LINEAR = 1e-5  # relative error of a linear map, from which on a map counts as curved
STEP = 1e-2  # of a finite difference, in standard deviations of the feature
CURVED_PAIRS = 64  # pairs whose shares are averaged where the map is curved
NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)  # of the integral along the line between two samples
COPIES = 1e-9  # distance, in units of the mean, up to which two samples count as copies of one another
INCOMPLETE = 0.1  # share of the squared distance that the shares of features may fail to add up to, without a warning
MOST_ROWS = 2_000  # rows among which the pairs that changed most are looked for


class Changed(NamedTuple):
    """Two rows that learning has moved, and by which factor: below 1 they are nearer than before."""

    i: int
    j: int
    factor: float


@dataclass(frozen=True)
class Explanation:
    """What `explain` found out about a fitted metric.

    Attributes
    ----------
    names : list of str
        The features.
    importance : ndarray of shape (d,)
        Share of each feature in the mean squared distance of two samples; the shares add up to 1. A negative one says
        that the feature mostly takes back what others add.
    low, high : ndarray of shape (d,)
        Ends of the intervals of ``importance``.
    level : float
        Confidence of these intervals.
    varied : str
        What the intervals allow for: "metric" if it was learned again from half samples, else "rows".
    linear : bool
        Whether the map is linear. If so the shares are exact; else they come from slopes along the line between two
        samples.
    incomplete : float
        Share of the mean squared distance that these slopes miss; 0 for a linear map.
    """

    names: list[str]
    importance: np.ndarray
    low: np.ndarray
    high: np.ndarray
    level: float
    varied: str
    linear: bool
    incomplete: float
    _X: np.ndarray  # (n, d)
    _map: Map
    _before: Map  # to where distance was Euclidean before

    def __str__(self) -> str:
        exact = (
            "The map is linear, so the shares are exact."
            if self.linear
            else f"The map is curved: the shares come from its slopes and miss {self.incomplete:.1%} of the distances."
        )
        allows = (
            "the rows that the metric was learned from"
            if self.varied == "metric"
            else "the rows that are compared; the metric is taken as given"
        )
        return f"{exact} The {100 * self.level:g} % intervals allow for {allows}."

    def ranking(self) -> list[tuple[str, float, float, float]]:
        """Name, importance and its interval of every feature, the largest first."""
        order = np.argsort(-self.importance, kind="stable")
        return [
            (self.names[k], float(self.importance[k]), float(self.low[k]), float(self.high[k])) for k in order.tolist()
        ]

    def distance(self, a: Any, b: Any) -> np.ndarray:
        """Shares (d,) of the features in the squared learned distance of two samples, given as rows or row numbers.

        They add up to that squared distance; with a curved map, as nearly as slopes along the line between them allow.
        """
        return feature_shares(self._map, self._row(a)[None], self._row(b)[None], spread(self._X), self.linear)[0]

    def changed(self, k: int = 10, n_neighbors: int = 10) -> tuple[list[Changed], list[Changed]]:
        """The k pairs that came nearer most, and those that moved apart most, among neighbours before or after.

        Distances are compared in units of their root mean square, before and after.
        """
        rows = np.unique(np.linspace(0, len(self._X) - 1, MOST_ROWS).astype(np.intp))
        spaces = [self._before(self._X[rows]), self._map(self._X[rows])]
        m = min(n_neighbors, len(rows) - 1)
        near = np.hstack([nearest(V, m)[0] for V in spaces])  # (n, 2m)
        pairs = np.stack([np.repeat(np.arange(len(rows)), 2 * m), near.ravel()])
        i, j = np.unique(np.sort(pairs, axis=0), axis=1)
        old, new = (np.sqrt(pair_sqdist(V, i, j)) / _root_mean_square(V) for V in spaces)
        differ = old > COPIES  # copies of one another stay so, whatever the metric
        i, j, factor = rows[i[differ]], rows[j[differ]], new[differ] / old[differ]
        found = [Changed(int(i[m]), int(j[m]), float(factor[m])) for m in np.argsort(factor, kind="stable")]
        return [c for c in found[:k] if c.factor < 1], [c for c in found[: -k - 1 : -1] if c.factor > 1]

    def neighbors(self, rows: Any, k: int = 5) -> tuple[np.ndarray, np.ndarray]:
        """The k nearest other rows of each of some rows, before and after: two arrays (m, k) of row numbers."""
        rows = np.atleast_1d(np.asarray(rows, dtype=np.intp))
        if rows.size and not (-len(self._X) <= rows.min() and rows.max() < len(self._X)):
            raise ValueError(f"rows must be between 0 and {len(self._X) - 1}, got {rows.min()} to {rows.max()}")
        if not 1 <= k < len(self._X):
            raise ValueError(f"k={k} neighbours were asked for: choose between 1 and {len(self._X) - 1}")
        rows = rows % len(self._X)
        return _others(self._before(self._X), rows, k), _others(self._map(self._X), rows, k)

    def ball(self, feature: int | str, other: int | str, n_points: int = 100) -> np.ndarray:
        """Points (n_points, 2) at learned distance 1 from the mean, in the plane of two features of a linear metric.

        The unit of distance is the root mean square over all samples, that of a feature its own.
        """
        if not self.linear:
            raise ValueError("only a linear metric has the same ball everywhere; this map is curved")
        ij = [self._column(feature), self._column(other)]
        E = np.zeros((2, self._X.shape[1]))
        E[[0, 1], ij] = 1
        centre = self._X.mean(axis=0)
        L = (self._map(centre + E) - self._map(centre[None])) / _root_mean_square(self._map(self._X))  # (2, p)
        angle = np.linspace(0, 2 * np.pi, n_points)
        around = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        length = np.linalg.norm(around @ L, axis=1)
        with np.errstate(divide="ignore"):
            return np.asarray(around / length[:, None])

    def _row(self, a: Any) -> np.ndarray:
        if isinstance(a, (int, np.integer)):
            if not -len(self._X) <= a < len(self._X):
                raise ValueError(f"row {a} does not exist: there are rows 0 to {len(self._X) - 1}")
            return self._X[a]
        row = np.asarray(a, dtype=np.float64).ravel()
        if row.shape != (self._X.shape[1],) or not np.isfinite(row).all():
            raise ValueError(f"a sample has {self._X.shape[1]} finite features; got {a!r}")
        return row

    def _column(self, feature: int | str) -> int:
        if isinstance(feature, str):
            if feature not in self.names:
                raise ValueError(f"there is no feature {feature!r}; there are {', '.join(self.names[:20])}")
            return self.names.index(feature)
        if not 0 <= feature < len(self.names):
            raise ValueError(f"feature {feature} does not exist: there are 0 to {len(self.names) - 1}")
        return int(feature)


def explain(
    metric: Any,
    X: Any,
    y: Any = None,
    *,
    names: Sequence[str] | None = None,
    n_draws: int = 20,
    level: float = 0.95,
    random_state: Any = 0,
    verbose: bool = False,
) -> Explanation:
    """Say what a fitted metric looks at: the share of every feature in its distances, with intervals.

    The squared distance of samples a and b under a map f is the sum of the shares of their features::

        s_j = δ_j (J̄ᵀ Δ)_j,   δ = b − a,   Δ = f(b) − f(a),   J̄ = ∫₀¹ f'(a + tδ) dt,   Σ_j s_j = |Δ|²

    For a linear map, s_j = δ_j (W δ)_j: the Shapley value of feature j in the squared distance. The importance of a
    feature is the mean of its share over all pairs of samples, divided by the mean squared distance.

    Parameters
    ----------
    metric : metric learner or Pipeline
        Fitted metric learner, or a pipeline that ends with one.
    X : array-like of shape (n_samples, n_features)
        Samples, among which distances are explained. A table with text or gaps is first led through the first step of a
        pipeline; its features are then the columns which that step makes.
    y : array-like, Supervision or None, default=None
        If given, the intervals allow for the samples that the metric was learned from: it is learned again from half of
        them, ``n_draws`` times. A half sample differs from the whole as much as the whole does from the truth. Without
        ``y`` the metric counts as given, and the intervals are those of the mean over pairs of samples.
    names : sequence of str or None, default=None
        Names of the features; None: the columns of a DataFrame.
    n_draws : int, default=20
        Number of half samples.
    level : float, default=0.95
        Confidence of the intervals.
    random_state : int, RandomState instance or None, default=0
        Seed of what is random; an int gives the same result again.
    verbose : bool, default=False
        Whether to show a progress bar.

    Returns
    -------
    Explanation
        Importances and their intervals; ``ranking()`` lists features by importance, ``distance(a, b)`` gives the shares
        in one distance.

    Notes
    -----
    Costs O(n² d) for the mean over pairs, times ``n_draws`` fits with y.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import GMML, explain
    >>> iris = load_iris()
    >>> metric = GMML(reg=0.1).fit(iris.data, iris.target)
    >>> found = explain(metric, iris.data, names=iris.feature_names)
    >>> found.ranking()[0][0]
    'petal length (cm)'
    >>> bool(abs(found.distance(0, 100).sum() - metric.pair_distance(iris.data, [[0, 100]])[0] ** 2) < 1e-9)
    True
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level} is the confidence of the intervals: choose it between 0 and 1, e.g. 0.95")
    if n_draws < 2:
        raise ValueError(f"n_draws={n_draws} must be at least 2: intervals come from the spread between draws")
    model = getattr(metric, "pipeline_", metric)  # of one that has chosen another for itself
    rng = check_random_state(random_state)
    front, rest, table = numbers_only(model, X)
    names = feature_names(names, front, X, table.shape[1])
    if len(table) < 3:
        raise ValueError(f"X has {len(table)} samples: distances are explained among at least 3")
    embed = plain_map(rest)
    linear = is_linear(embed, table)
    pairs = draw_pairs(len(table), rng)
    importance, incomplete = mean_shares(embed, table, pairs, linear)
    if incomplete > INCOMPLETE:
        warn_user(
            f"the shares of features miss {incomplete:.0%} of the squared distances: the map of "
            f"{type(_learner(rest)).__name__} has jumps or bends that its slopes do not show"
        )
    if y is None:
        draws = _row_draws(embed, table, linear, n_draws, rng)
    else:
        draws = _metric_draws(rest, table, y, linear, pairs, n_draws, rng, verbose)
    half = stats.norm.ppf((1 + level) / 2) * np.sqrt(np.mean((draws - importance) ** 2, axis=0))  # (d,)
    ends, varied = (importance - half, importance + half), "rows" if y is None else "metric"
    before = plain_map(rest[:-1]) if isinstance(rest, Pipeline) and len(rest) > 1 else np.asarray
    return Explanation(names, importance, *ends, level, varied, linear, incomplete, table, embed, before)


def is_linear(embed: Map, X: np.ndarray) -> bool:
    """Whether a map of samples is linear (up to a shift) on the samples: it is if it adds up the features' effects."""
    some = X[np.linspace(0, len(X) - 1, min(len(X), 32)).astype(np.intp)]
    J, centre = slopes_at_mean(embed, X)
    Z, origin = embed(some), embed(centre[None])
    expected = origin + (some - centre) @ J  # (m, p)
    scale = np.abs(Z - origin).max(initial=0.0)
    return bool(np.abs(Z - expected).max(initial=0.0) <= LINEAR * max(scale, np.finfo(np.float64).tiny))


def slopes_at_mean(embed: Map, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Change of the map (d, p) per unit of each feature, from the mean one standard deviation on; and the mean."""
    centre, s = X.mean(axis=0), spread(X)
    J = (embed(centre + np.diag(s)) - embed(centre[None])) / s[:, None]
    return J, centre


def spread(X: np.ndarray) -> np.ndarray:
    """(d,) standard deviations; 1 for a constant feature."""
    s = X.std(axis=0)
    return np.where(s > 0, s, 1.0)


def draw_pairs(n: int, rng: np.random.RandomState) -> np.ndarray:
    """(2, m) rows of random pairs of different samples."""
    i = rng.randint(n, size=CURVED_PAIRS)
    return np.stack([i, (i + 1 + rng.randint(n - 1, size=CURVED_PAIRS)) % n])


def mean_shares(embed: Map, X: np.ndarray, pairs: np.ndarray, linear: bool) -> tuple[np.ndarray, float]:
    """Importance (d,) of the features over all pairs (of a linear map) or over some; and what it fails to explain."""
    if linear:  # mean over pairs of δ_j (Wδ)_j = 2 Σ_k W_jk C_jk
        J, centre = slopes_at_mean(embed, X)
        R = X - centre
        total = np.einsum("dp,dp->d", J, R.T @ (R @ J) / len(X))
        return total / (total.sum() or 1.0), 0.0
    A, B = X[pairs[0]], X[pairs[1]]
    shares = feature_shares(embed, A, B, spread(X), linear)
    whole = float(np.sum((embed(B) - embed(A)) ** 2))
    missed = abs(float(shares.sum()) - whole) / whole if whole else 0.0
    return shares.sum(axis=0) / (shares.sum() or 1.0), missed


def feature_shares(embed: Map, A: np.ndarray, B: np.ndarray, s: np.ndarray, linear: bool) -> np.ndarray:
    """Shares (m, d) of the features in |f(b) − f(a)|², by slopes at nodes of the line from a to b."""
    D, gap = B - A, embed(B) - embed(A)  # (m, d), (m, p)
    m, d = D.shape
    nodes, weights = (np.array([0.0]), np.array([2.0])) if linear else (NODES, WEIGHTS)
    shares = np.zeros(D.shape)
    for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        at = A + node * D
        for some in row_blocks(d, 16 * m * d):  # features
            size = s[some] * (1.0 if linear else STEP)
            step = np.zeros((len(size), 1, d))
            step[np.arange(len(size)), 0, np.arange(d)[some]] = size
            ahead, behind = (embed((at + sign * step).reshape(-1, d)).reshape(len(size), m, -1) for sign in (1, -1))
            slope = (ahead - behind) / (2 * size[:, None, None])  # (features, m, p)
            shares[:, some] += weight * D[:, some] * np.einsum("fmp,mp->mf", slope, gap)
    return shares


def _row_draws(embed: Map, X: np.ndarray, linear: bool, n_draws: int, rng: np.random.RandomState) -> np.ndarray:
    """Importance (n_draws, d) in resampled rows, the metric as it is."""
    found = []
    for _ in range(n_draws):
        rows = rng.randint(len(X), size=len(X))
        found.append(mean_shares(embed, X[rows], draw_pairs(len(X), rng), linear)[0])
    return np.array(found)


def _metric_draws(
    model: Any,
    X: np.ndarray,
    y: Any,
    linear: bool,
    pairs: np.ndarray,
    n_draws: int,
    rng: np.random.RandomState,
    verbose: bool,
) -> np.ndarray:
    """Importance (n_draws, d) of metrics that were learned from half of the samples, among all of them."""
    side = y if isinstance(y, Supervision) else np.asarray(y)
    if len(side) != len(X):
        raise ValueError(f"y has {len(side)} rows but X has {len(X)}: give one label for each sample")
    found, failure = [], None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts of the data; the metric itself has said what holds for all of it
        for _ in tqdm(range(n_draws), "half samples", disable=not verbose):
            half = np.sort(rng.permutation(len(X))[: len(X) // 2])
            try:
                learned = clone(model).fit(X[half], side[half])
            except ValueError as error:  # a half may lack a class or a kind of pairs
                failure = error
                continue
            found.append(mean_shares(plain_map(learned), X, pairs, linear)[0])
    if len(found) < max(2, n_draws // 2):
        raise ValueError(f"half of the samples is too little to learn from again ({failure}): leave out y")
    return np.array(found)


def numbers_only(model: Any, X: Any) -> tuple[Any, Any, np.ndarray]:
    """The step that makes numbers of a table (None if it holds numbers), the rest of the model, and these numbers."""
    kinds = [getattr(kind, "kind", "O") for kind in X.dtypes] if hasattr(X, "dtypes") and hasattr(X, "columns") else []
    numeric = all(kind in "fiub" for kind in kinds)
    if numeric:
        table = check_array(X, dtype=np.float64, ensure_all_finite=False)
        if np.isfinite(table).all():
            return None, model, table
    if not isinstance(model, Pipeline) or len(model) < 2:
        bad = [] if not numeric else np.flatnonzero(~np.isfinite(table).all(axis=1)).tolist()
        where = f"rows {', '.join(map(str, bad[:5]))} hold gaps or infinite numbers" if bad else "X holds text"
        raise ValueError(f"{where}: the metric needs numbers; fill the gaps or code the text first, in a pipeline")
    front = model[0]
    table = check_array(np.asarray(front.transform(X)), dtype=np.float64)
    return front, model[1:], table


def feature_names(names: Sequence[str] | None, front: Any, X: Any, d: int) -> list[str]:
    if names is None and front is not None and hasattr(front, "get_feature_names_out"):
        names = [str(name) for name in front.get_feature_names_out()]
    elif names is None and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    names = [f"x{k}" for k in range(d)] if names is None else [str(name) for name in names]
    if len(names) != d:
        raise ValueError(f"there are {len(names)} names for {d} features")
    return names


def _learner(model: Any) -> Any:
    return model[-1] if isinstance(model, Pipeline) else model


def plain_map(model: Any) -> Map:
    """The map of a fitted model, in double precision."""

    def embed(X: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            return np.asarray(model.transform(X), dtype=np.float64)

    return embed


def _root_mean_square(V: np.ndarray) -> float:
    """Root of the mean squared distance of two rows."""
    return float(np.sqrt(2 * V.var(axis=0).sum())) or 1.0


def _others(V: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """(m, k) nearest rows of V to each of ``rows``, itself left out."""
    found = nearest(V[rows], k + 1, V)[0]
    own = found == rows[:, None]
    own[~own.any(axis=1), -1] = True  # where copies of a row hide it, the farthest goes
    return found[~own].reshape(len(rows), k)
