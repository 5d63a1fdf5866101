"""Confidence intervals for means of per-point values, their differences, and other statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.utils import check_random_state


class Interval(NamedTuple):
    """An estimate between the ends of its confidence interval.

    Attributes
    ----------
    mean : float
        The estimate.
    low : float
        Lower end.
    high : float
        Upper end.

    Examples
    --------
    >>> from isometry.eval import Interval
    >>> Interval(0.5, 0.4, 0.6).contains(0.45)
    True
    """

    mean: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Whether a value lies between the ends, or on one.

        Parameters
        ----------
        value : float
            The value.

        Returns
        -------
        bool
            Whether it does.
        """
        return self.low <= value <= self.high


def mean_interval(values: np.ndarray, level: float = 0.95, groups: np.ndarray | None = None) -> Interval:
    """The mean of values v_1 … v_n, with its t interval; values of one group may depend on one another.

    With group sums S_g over n_g values, m = Σ S_g / Σ n_g and G groups (every value its own group by default)::

        m ± t_{G−1} · sqrt( G/(G−1) · Σ_g (S_g − n_g m)² ) / n

    This is the cluster-robust interval of a mean: only the groups need be independent. With groups of one it is the
    ordinary t interval. One group alone says nothing about the spread between groups, so its interval is infinite.

    Parameters
    ----------
    values : ndarray of shape (n,)
        The values.
    level : float, default=0.95
        Confidence of the interval.
    groups : ndarray of shape (n,) or None, default=None
        The group of each value; None: each its own.

    Returns
    -------
    Interval
        The mean, and the ends of its interval.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import mean_interval
    >>> found = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> found.mean, bool(found.low < 2 < found.high)
    (2.0, True)
    """
    v = _as_values(values)
    _check_level(level)
    n, m = len(v), v.mean()
    residual = v - m
    if groups is not None:
        residual = np.bincount(_group_codes(groups, n), weights=residual)  # (G,)  S_g − n_g m
    G = len(residual)
    if G == 1:
        return Interval(float(m), -np.inf, np.inf)
    error = np.sqrt(G / (G - 1) * np.sum(residual**2)) / n
    half = stats.t.ppf((1 + level) / 2, G - 1) * error
    return Interval(float(m), float(m - half), float(m + half))


def paired_interval(a: np.ndarray, b: np.ndarray, level: float = 0.95, groups: np.ndarray | None = None) -> Interval:
    """``mean_interval`` of a − b, two measurements of the same points: what a adds over b.

    Parameters
    ----------
    a : ndarray of shape (n,)
        Values of the points under one metric.
    b : ndarray of shape (n,)
        Values of the same points under another.
    level : float, default=0.95
        Confidence of the interval.
    groups : ndarray of shape (n,) or None, default=None
        The group of each point; None: each its own.

    Returns
    -------
    Interval
        The mean difference, and the ends of its interval.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import paired_interval
    >>> paired_interval(np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0])).mean > 0
    True
    """
    a, b = _as_values(a), _as_values(b)
    if len(a) != len(b):
        raise ValueError(f"a has {len(a)} values and b has {len(b)}: pair them, one of each for every point.")
    return mean_interval(a - b, level, groups)


def pair_rate_interval(
    rate: float,
    residual: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    counted: np.ndarray,
    level: float = 0.95,
    *,
    new: bool = False,
) -> Interval:
    """A share of pairs, with an interval that allows for pairs that have an end in common.

    Pairs depend on one another where they meet in a group. With S_g the sum of r over the pairs that touch g, S_gh over
    those between g and h, and M the share of all p, q that meet::

        variance = Σ_{p, q that meet} r_p r_q / (1 − M) = (Σ_g S_g² − Σ_{g<h} S_gh²) / (1 − M)

    The divisor makes up for deviations that are taken from the estimate itself, which makes r_p r_q of equal pairs too
    small by the variance over m²; only those that meet are summed. Where each pair meets itself alone, it is the usual
    m/(m − 1). The interval is that of Clopper and Pearson for as many independent pairs as have this variance, after
    Korn and Graubard (1998): it holds for rates near 0. A rate of 0 or 1 shows no variance; at least G/2 pairs are
    independent.

    The share among other groups, which come later, varies as well: the difference of two shares, each of as many groups
    drawn alike, has twice the variance of one. With ``new``, the interval is one of that share.

    Parameters
    ----------
    rate : float
        The share.
    residual : ndarray of shape (m,)
        What each pair adds to the rate, with sum 0.
    a : ndarray of shape (m,)
        To which group, a sample or a class, one end of each pair belongs.
    b : ndarray of shape (m,)
        To which group the other end belongs.
    counted : ndarray of shape (m,)
        Which pairs the share is one of.
    level : float, default=0.95
        Confidence of the interval.
    new : bool, default=False
        Whether the interval is to hold the share among as many new groups; else that among all there could be.

    Returns
    -------
    Interval
        The share, and the ends of its interval.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import pair_rate_interval
    >>> wrong = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    >>> ends = np.arange(10)
    >>> found = pair_rate_interval(0.1, (wrong - 0.1) / 10, ends, ends, np.ones(10, dtype=bool))
    >>> bool(found.low < 0.1 < found.high)
    True
    """
    _check_level(level)
    codes = np.unique(np.concatenate([a, b]), return_inverse=True)[1]
    a, b = np.minimum(*codes.reshape(2, -1)), np.maximum(*codes.reshape(2, -1))
    m, G = int(counted.sum()), len(np.unique(np.concatenate([a[counted], b[counted]])))
    if G < 2:
        return Interval(float(rate), 0.0, 1.0)
    met = _sum_over_meeting(counted / m, a, b)
    if met > 1 - 1 / (2 * m):  # every pair meets every other, as where one group takes part in all of them
        return Interval(float(rate), 0.0, 1.0)
    variance = _sum_over_meeting(residual, a, b) / (1 - met) * (2 if new else 1)
    n = G / 4 if new else G / 2
    if 0 < rate < 1 and variance > 0:
        shrink = (stats.norm.ppf((1 + level) / 2) / stats.t.ppf((1 + level) / 2, G - 1)) ** 2
        n = min(float(rate * (1 - rate) / variance * shrink), m / 2 if new else m)
    x = rate * n
    low = stats.beta.ppf((1 - level) / 2, x, n - x + 1) if x > 0 else 0.0
    high = stats.beta.ppf((1 + level) / 2, x + 1, n - x) if x < n else 1.0
    return Interval(float(rate), float(low), float(high))


def _sum_over_meeting(v: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """Σ v_p v_q over all pairs p, q that have a group in common, for groups a ≤ b of the ends."""
    size, apart = int(b.max()) + 1, a != b
    touched = np.bincount(a, v, size) + np.bincount(b[apart], v[apart], size)
    between = np.unique(a[apart] * size + b[apart], return_inverse=True)[1]
    return float(touched @ touched - np.sum(np.bincount(between, v[apart]) ** 2))


def bootstrap_interval(
    values: np.ndarray | Sequence[np.ndarray],
    statistic: Callable[..., float],
    level: float = 0.95,
    n_boot: int = 1000,
    random_state: int | np.random.RandomState | None = 0,
    *,
    strata: np.ndarray | None = None,
) -> Interval:
    """A statistic with its percentile interval over samples of the rows, drawn with replacement.

    Where no stratum has two points nothing can vary, and the interval is infinite.

    Parameters
    ----------
    values : ndarray or sequence of ndarray
        An array, or a tuple of arrays with one row per point, which are passed on as several arguments:
        ``bootstrap_interval((distance, similar), pair_auc, strata=similar)``.
    statistic : callable
        Function of the values that gives a number.
    level : float, default=0.95
        Confidence of the interval.
    n_boot : int, default=1000
        Number of samples.
    random_state : int, RandomState instance or None, default=0
        Seed of the samples.
    strata : ndarray or None, default=None
        Stratum of each row; each keeps its size in every sample. None: one stratum.

    Returns
    -------
    Interval
        The statistic of the values themselves, and the ends of its interval.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import bootstrap_interval
    >>> found = bootstrap_interval(np.arange(10.0), np.mean, n_boot=100)
    >>> found.mean, bool(found.low < 4.5 < found.high)
    (4.5, True)
    """
    _check_level(level)
    arrays = [np.asarray(v) for v in (values if isinstance(values, tuple) else (values,))]
    n = len(arrays[0])
    if n == 0 or any(len(v) != n for v in arrays):
        raise ValueError(f"values must be aligned arrays of one row or more, got lengths {[len(v) for v in arrays]}.")
    estimate = float(statistic(*arrays))
    codes = np.zeros(n, dtype=np.intp) if strata is None else _group_codes(strata, n)
    members = [np.flatnonzero(codes == c) for c in range(codes.max() + 1)]
    if max(map(len, members)) == 1:
        return Interval(estimate, -np.inf, np.inf)
    rng = check_random_state(random_state)
    replicates = np.empty(n_boot)
    for r in range(n_boot):
        rows = np.concatenate([m[rng.randint(len(m), size=len(m))] for m in members])
        replicates[r] = statistic(*(v[rows] for v in arrays))
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))


def _as_values(values: np.ndarray) -> np.ndarray:
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or len(v) == 0:
        raise ValueError(f"values must be a one-dimensional array with at least one entry, got shape {v.shape}.")
    if not np.isfinite(v).all():
        raise ValueError(f"{np.sum(~np.isfinite(v))} of {len(v)} values are not finite: a mean needs finite values.")
    return v


def _group_codes(groups: np.ndarray, n: int) -> np.ndarray:
    codes = np.unique(np.asarray(groups), return_inverse=True)[1]
    if codes.shape != (n,):
        raise ValueError(f"there are {n} values but group names of shape {codes.shape}: give one group per value.")
    return codes


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level={level} is a probability of covering the truth: choose it between 0 and 1, e.g. 0.95.")
