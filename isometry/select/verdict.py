"""Which differences to Euclidean can be relied on, and the outcome in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from isometry.eval import Interval, mean_interval
from isometry.select.result import BASELINE, AutomaticChoice, MethodResult

FLIP_UP_TO = 200  # beyond this many differing groups the t distribution is as good as the exact one
ENUMERATE_UP_TO = 12  # 2^12 sign patterns are listed, more are sampled
N_FLIPS = 9999


def p_value(gain: np.ndarray, groups: np.ndarray | None = None) -> float:
    """Two-sided p of "the gains (n,) have mean zero"; gains of one group may depend on one another.

    The larger of the t test that belongs to the interval and, where few points or groups differ at all, the sign-flip
    test of their sums, which is exact when gains are symmetric about zero (for hits it is McNemar's test). A handful of
    changed points thus never passes for evidence.
    """
    sums = gain if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], weights=gain)
    freedom = len(sums) - 1
    if freedom < 1 or not sums.any():
        return 1.0
    interval = mean_interval(gain, 0.95, groups)
    half = interval.high - interval.mean
    t = abs(interval.mean) / half * stats.t.ppf(0.975, freedom) if half > 0 else np.inf
    return max(2 * float(stats.t.sf(t, freedom)), _flip_p(sums[sums != 0]))


def _flip_p(sums: np.ndarray) -> float:
    """Share of sign patterns under which |Σ ± s_g| is at least |Σ s_g|."""
    m = len(sums)
    if m > FLIP_UP_TO:
        return 0.0
    if m <= ENUMERATE_UP_TO:
        signs = 1.0 - 2.0 * (np.arange(2**m)[:, None] >> np.arange(m) & 1)  # (2^m, m)
    else:
        signs = 1.0 - 2.0 * np.random.default_rng(0).integers(2, size=(N_FLIPS + 1, m), dtype=np.int8)
        signs[0] = 1  # the pattern that was observed
    extreme = np.abs(signs @ sums) >= abs(sums.sum()) * (1 - 1e-9)
    return float(extreme.mean())


def holm(p: Sequence[float], alpha: float) -> np.ndarray:
    """(m,) which hypotheses Holm's step-down rejects: p_(k) ≤ α / (m − k + 1), and all smaller ones too."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    passed = np.logical_and.accumulate(values[order] <= alpha / np.arange(len(p), 0, -1))
    rejected = np.zeros(len(p), dtype=bool)
    rejected[order] = passed
    return rejected


def write_verdict(
    results: list[MethodResult], best: str | None, unit: str, level: float, automatic: AutomaticChoice | None = None
) -> str:
    """One to four sentences; ``results`` are sorted, best first."""
    scored = [r for r in results if r.score is not None]
    sentences: list[str] = []
    euclidean = next(r for r in results if r.name == "Euclidean")
    if euclidean.score is None:
        sentences.append(f"Nothing can be said: Euclidean itself was not scored ({'; '.join(euclidean.failures[:1])}).")
    elif best is None:
        sentences.append(_none_better(scored, unit, level))
        if automatic is not None and automatic.picked != BASELINE:
            sentences.append(
                f"To choose a metric by the other folds is: that is one comparison, and not as many as there are "
                f"metrics. So AutoMetric takes {automatic.picked}."
            )
    else:
        sentences.append(_better(scored, best, unit, level))
    failed = [r.name for r in results if r.score is None and r.failures]
    if failed:
        sentences.append(f"{_listed(failed)} failed.")
    return " ".join(sentences)


def _better(scored: list[MethodResult], best: str, unit: str, level: float) -> str:
    winner, euclidean = (next(r for r in scored if r.name == name) for name in (best, "Euclidean"))
    text = (
        f"{best} is reliably better than Euclidean: {_gap(winner, unit, level)}, {_score(winner):.4f} against "
        f"{_score(euclidean):.4f} over {_n_points(winner)} held-out points."
    )
    if best == "Covariance":
        text += " The supervision sets its strength alone; none of the better metrics that learn from it scores higher."
    others = [r.name for r in scored if r.reliable == "better" and r.name != best]
    if others:
        named = _listed(others) if len(others) < 4 else f"{len(others)} others"
        text += f" So {'are' if len(others) > 1 else 'is'} {named}, with no higher score."
    higher = [r.name for r in scored if r.difference and r.difference.mean > _difference(winner).mean + 1e-9]
    if higher:
        text += f" {_listed(higher)} scored higher still, but not reliably better than Euclidean."
    return text


def _none_better(scored: list[MethodResult], unit: str, level: float) -> str:
    text = "No metric is reliably better than Euclidean here"
    rivals = [r for r in scored if r.difference is not None]
    if not rivals:
        return f"{text}: no other metric could be scored."
    top = rivals[0]
    mean, low, _ = _difference(top)
    gap = f"{_gap(top, unit, level)} against Euclidean over {_n_points(top)} held-out points"
    same = [r.name for r in rivals if not any(_difference(r))]
    if mean <= 0 and same:
        named = _listed(same) if len(same) < 5 else f"{len(same)} metrics"
        return (
            f"{text}: none scores higher on the same {_n_points(top)} held-out points. {named} "
            f"{'agree' if len(same) > 1 else 'agrees'} with it on every one: a metric whose strength the data choose "
            "keeps Euclidean distance where it sees no gain."
        )
    if mean <= 0:
        return f"{text}: none scores higher on the same points. The next, {top.name}, is {gap}."
    doubt = "within chance" if low <= 0 else f"not enough for the best of {len(rivals)} that were tried"
    return f"{text}: the highest score, of {top.name}, is {gap}, {doubt}."


def _gap(result: MethodResult, unit: str, level: float) -> str:
    mean, low, high = (f"{100 * v:+.1f}".replace("-", "−") for v in _difference(result))
    return f"{mean} points of {unit} ({100 * level:g} % interval {low} to {high})"


def _difference(result: MethodResult) -> Interval:
    assert result.difference is not None
    return result.difference


def _score(result: MethodResult) -> float:
    assert result.score is not None
    return result.score.mean


def _n_points(result: MethodResult) -> int:
    return int(np.isfinite(result.values).sum())


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
