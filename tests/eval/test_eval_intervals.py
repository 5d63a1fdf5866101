"""Intervals against the textbook formula, their limits, and their coverage in simulations."""

import numpy as np
import pytest
from scipy import stats

from isometry.eval import Interval, bootstrap_interval, mean_interval, pair_auc, paired_interval


def slow_group_interval(values, groups, level):
    n, m, names = len(values), np.mean(values), sorted(set(groups))
    G = len(names)
    squares = 0.0
    for g in names:
        members = [v for v, h in zip(values, groups) if h == g]
        squares += (sum(members) - len(members) * m) ** 2
    half = stats.t.ppf(0.5 + level / 2, G - 1) * np.sqrt(G / (G - 1) * squares) / n
    return m, m - half, m + half


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_t_interval(level):
    v = np.random.default_rng(0).exponential(size=17)
    low, high = stats.t.interval(level, 16, loc=v.mean(), scale=v.std(ddof=1) / np.sqrt(17))
    assert mean_interval(v, level) == pytest.approx((v.mean(), low, high), rel=1e-12)
    assert mean_interval(v, level, groups=np.arange(17)) == pytest.approx((v.mean(), low, high), rel=1e-12)


def test_groups():
    rng = np.random.default_rng(1)
    v, groups = rng.random(30), rng.choice(["a", "b", "c", "d"], size=30, p=[0.4, 0.3, 0.2, 0.1])
    assert mean_interval(v, 0.9, groups) == pytest.approx(slow_group_interval(v, groups, 0.9), rel=1e-12)


def test_repeating_every_value_adds_no_knowledge_when_copies_are_grouped():
    v = np.random.default_rng(2).random(12)
    assert mean_interval(np.repeat(v, 5), groups=np.repeat(np.arange(12), 5)) == pytest.approx(
        mean_interval(v), rel=1e-12
    )
    assert mean_interval(np.repeat(v, 5)).high < mean_interval(v).high


def test_paired():
    rng = np.random.default_rng(3)
    a, b, groups = rng.random(20) < 0.7, rng.random(20) < 0.5, np.arange(20) // 4
    assert paired_interval(a, b, 0.8) == mean_interval(a.astype(float) - b, 0.8)
    assert paired_interval(a, b, 0.8, groups) == mean_interval(a.astype(float) - b, 0.8, groups)
    assert paired_interval(a, b).mean == pytest.approx(a.mean() - b.mean())


def test_limits():
    assert mean_interval([0.25]) == Interval(0.25, -np.inf, np.inf)
    assert mean_interval([1.0, 2.0, 3.0], groups=["a", "a", "a"]) == Interval(2.0, -np.inf, np.inf)
    assert mean_interval(np.ones(5, dtype=bool)) == Interval(1.0, 1.0, 1.0)
    assert paired_interval([1, 2, 3], [1, 2, 3]) == Interval(0.0, 0.0, 0.0)
    assert bootstrap_interval([0.5], np.mean) == Interval(0.5, -np.inf, np.inf)
    assert bootstrap_interval(([1.0, 2.0], [True, False]), pair_auc, strata=[1, 0]) == Interval(1.0, -np.inf, np.inf)
    assert bootstrap_interval(np.full(6, 2.0), np.mean, n_boot=20) == Interval(2.0, 2.0, 2.0)


def test_contains_includes_the_ends():
    interval = Interval(1.0, 0.0, 2.0)
    assert [interval.contains(v) for v in (-0.1, 0.0, 2.0, 2.1)] == [False, True, True, False]


def coverage(hits):
    return np.mean(list(hits))


def test_mean_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    assert 0.935 < coverage(mean_interval(rng.normal(3, 2, size=8)).contains(3) for _ in range(1500)) < 0.965
    assert 0.47 < coverage(mean_interval(rng.normal(3, 2, size=8), 0.5).contains(3) for _ in range(1500)) < 0.53


def test_grouped_interval_covers_and_the_plain_one_does_not():
    rng = np.random.default_rng(5)
    sizes = np.tile([2, 4, 6], 8)
    groups = np.repeat(np.arange(24), sizes)
    samples = [np.repeat(rng.standard_normal(24), sizes) + 0.5 * rng.standard_normal(96) for _ in range(800)]
    assert 0.92 < coverage(mean_interval(v, groups=groups).contains(0) for v in samples) < 0.98
    assert coverage(mean_interval(v).contains(0) for v in samples) < 0.8


def test_bootstrap_interval_covers():
    rng = np.random.default_rng(6)
    samples = rng.exponential(2.0, size=(250, 60))
    hits = (
        bootstrap_interval(v, np.median, n_boot=150, random_state=r).contains(2 * np.log(2))
        for r, v in enumerate(samples)
    )
    assert 0.92 < coverage(hits) < 0.98


def test_bootstrap_of_the_mean_is_close_to_the_normal_interval():
    v = np.random.default_rng(7).random(400)
    low, high = stats.norm.interval(0.9, v.mean(), v.std() / 20)
    found = bootstrap_interval(v, np.mean, 0.9, n_boot=3000)
    assert found.mean == v.mean()
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))


def test_bootstrap_keeps_rows_of_several_arrays_together_and_strata_sizes():
    n_similar = 3
    similar = np.arange(40) < n_similar
    distance = np.where(similar, 1.0, 2.0) + np.random.default_rng(8).random(40)
    sizes = []

    def statistic(d, s):
        sizes.append(s.sum())
        assert np.all((d < 2) == s)
        return pair_auc(d, s)

    assert bootstrap_interval((distance, similar), statistic, n_boot=50, strata=similar) == Interval(1.0, 1.0, 1.0)
    assert set(sizes) == {n_similar}


def test_bootstrap_is_deterministic_for_a_seed():
    v = np.random.default_rng(9).random(30)
    first, again, other = (bootstrap_interval(v, np.mean, n_boot=50, random_state=r) for r in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: mean_interval([]), "at least one entry"),
        (lambda: mean_interval([1.0, np.nan]), "1 of 2 values are not finite"),
        (lambda: mean_interval([1.0, 2.0], level=95), "between 0 and 1"),
        (lambda: mean_interval([1.0, 2.0], groups=[1]), "2 values but group names of shape"),
        (lambda: paired_interval([1.0], [1.0, 2.0]), "a has 1 values and b has 2"),
        (lambda: bootstrap_interval(([1.0], [1.0, 2.0]), np.mean), "aligned arrays"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
