"""What choosing the best of several metrics is worth: in each fold by what they did in the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from isometry.eval import Interval, mean_interval
from isometry.select.folds import Plan
from isometry.select.result import BASELINE, AutomaticChoice
from isometry.select.verdict import p_value

LEAST_ERRORS = 1.0  # standard errors by which the best must lead Euclidean to be chosen; the verdict asks for more


def choose(gains: Sequence[np.ndarray], groups: np.ndarray | None) -> int:
    """The metric with the highest mean of ``gains`` (n,) over Euclidean; 0, which is Euclidean, if it leads by little.

    Gains that are not known are NaN. A metric that lacks some of them cannot be chosen: these may be the hard ones.
    """
    most = max(np.isfinite(g).sum() for g in gains)
    means = [float(np.mean(g[np.isfinite(g)])) if np.isfinite(g).sum() == most > 0 else -np.inf for g in gains]
    best = int(np.argmax(np.round(means, 12)))
    if best == 0 or means[best] <= 0:
        return 0
    known = np.isfinite(gains[best])
    interval = mean_interval(gains[best][known], 0.68, None if groups is None else groups[known])
    return best if means[best] > LEAST_ERRORS * (interval.high - interval.mean) else 0


def values_of_choice(V: Sequence[np.ndarray], plan: Plan) -> tuple[np.ndarray, list[int]]:
    """Values (repeats, n) of the metric that would be chosen in each fold, and which one that is.

    ``V`` are the values (repeats, n) of the metrics, Euclidean first. What a fold shows has no part in its choice, so
    that the mean is not that of the luckiest.
    """
    values, chosen = np.full_like(V[0], np.nan), []
    for split in plan.splits:
        others = np.ones(V[0].shape[1], dtype=bool)
        others[split.test] = False
        gains = [np.where(others, v[split.repeat] - V[0][split.repeat], np.nan) for v in V]
        k = choose(gains, plan.groups) if any(np.isfinite(g).any() for g in gains) else 0
        chosen.append(k)
        values[split.repeat, split.test] = V[k][split.repeat, split.test]
    return values, chosen


def automatic_choice(
    names: Sequence[str], V: Sequence[np.ndarray], plan: Plan, level: float, best: str | None = None
) -> AutomaticChoice | None:
    """The metric to take: the ``best`` of those that the comparison finds reliably better, if there is one.

    Else it is the one with the highest mean, if choosing by the other folds is reliably better: that is one comparison
    with Euclidean at this ``level``, where to find the best of many takes as many. What led by luck does not pass it.
    None if nothing was scored. ``V`` are the values (repeats, n) of the metrics, Euclidean first.
    """
    values, chosen = values_of_choice(V, plan)
    difference = gain_interval(values - V[0], None, plan, level)
    if difference is None:
        return None
    gain = _over_repeats(values - V[0])
    known = np.isfinite(gain)
    p = p_value(gain[known], _of_rows(plan, known))
    leader = best or names[choose([_over_repeats(v - V[0]) for v in V], plan.groups)]
    picked = leader if best or (difference.mean > 0 and p <= 1 - level) else BASELINE
    by_fold = [names[k] for k in chosen]
    return AutomaticChoice(picked, leader, difference, by_fold, difference.mean, p, sure=best is not None)


def learned_from_all(
    choice: AutomaticChoice, V: Sequence[np.ndarray], halves: np.ndarray | None, plan: Plan, level: float
) -> AutomaticChoice:
    """The choice with what it gains when learned from all samples; as it is where ``halves`` is None."""
    difference = None if halves is None else gain_interval(values_of_choice(V, plan)[0] - V[0], halves, plan, level)
    return choice if difference is None else replace(choice, difference=difference, of_all=True)


def gain_interval(gains: np.ndarray, halves: np.ndarray | None, plan: Plan, level: float) -> Interval | None:
    """What choosing gains on new samples; None if nothing was scored.

    ``gains`` (repeats, n) are those of metrics learned from all folds but one, m = n (k − 1)/k of the samples. The bias
    of a cross-validation falls as 1/n (Burman, 1989), so that what half of these samples teach, ``halves`` (repeats,
    n), tells what all n will::

        g(n) = g(m) + (g(m) − g(m/2)) / k

    Without ``halves`` it is g(m). The interval is over samples, or groups of them, and √(1 + k/(k − 1)) as wide as if
    their gains were independent. They are not: all are of metrics learned from much the same samples, and others would
    have given other metrics. The factor is that of Nadeau and Bengio (2003), whose variance of the mean of k splits is
    1/k + (samples held out) / (samples learned from), in place of 1/k, times that of one split.
    """
    k = plan.n_splits
    gain = _over_repeats(gains if halves is None else gains + (gains - halves) / k)
    known = np.isfinite(gain)
    if not known.any():
        return None
    mean, low, high = mean_interval(gain[known], level, _of_rows(plan, known))
    factor = np.sqrt(1 + k / max(k - 1, 1))
    return Interval(mean, mean - factor * (mean - low), mean + factor * (high - mean))


def _of_rows(plan: Plan, rows: np.ndarray) -> np.ndarray | None:
    return None if plan.groups is None else plan.groups[rows]


def _over_repeats(V: np.ndarray) -> np.ndarray:
    """Mean over the repeats (r, n) → (n,), NaN where one is missing."""
    return np.asarray(V.mean(axis=0))
