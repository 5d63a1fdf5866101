"""ROC quantities against counts over all thresholds and all pairs of pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.eval import pair_auc, roc
from isometry.eval.verification import auc_and_residuals


def tied_pairs(seed, n=60, values=8):
    rng = np.random.default_rng(seed)
    similar = rng.random(n) < 0.3
    return rng.integers(0, values, size=n) + 2.0 * ~similar, similar


def slow_auc(distance, similar, weight):
    wins = total = 0.0
    for d, w in zip(distance[similar], weight[similar]):
        for e, v in zip(distance[~similar], weight[~similar]):
            wins += w * v * ((d < e) + 0.5 * (d == e))
            total += w * v
    return wins / total


def rates(distance, similar, threshold):
    return np.mean(distance[~similar] <= threshold), np.mean(distance[similar] <= threshold)


@pytest.mark.parametrize("seed", range(3))
def test_auc_counts_ties_as_half(seed):
    distance, similar = tied_pairs(seed)
    one = np.ones(len(distance))
    weight = np.random.default_rng(seed).integers(0, 4, size=len(distance)).astype(float)
    assert pair_auc(distance, similar) == pytest.approx(slow_auc(distance, similar, one), rel=1e-12)
    assert roc(distance, similar).auc == pytest.approx(slow_auc(distance, similar, one), rel=1e-12)
    assert pair_auc(distance, similar, weight) == pytest.approx(slow_auc(distance, similar, weight), rel=1e-12)
    assert roc(distance, similar, weight).auc == pytest.approx(slow_auc(distance, similar, weight), rel=1e-12)


def test_perfect_separation_is_exactly_one():
    distance, similar = np.arange(1001.0), np.arange(1001) < 333
    assert pair_auc(distance, similar) == 1 and pair_auc(-distance, similar) == 0
    assert pair_auc(np.zeros(1001), similar) == 0.5


def test_residuals_sum_to_zero_and_are_the_slopes_of_the_auc():
    """d/dw_p of the AUC at weights w is r_p / w_p, where r_p is the residual of pair p."""
    distance, similar = tied_pairs(3)
    weight = np.random.default_rng(3).uniform(0.5, 2, size=len(distance))
    auc, r = auc_and_residuals(distance, weight * np.stack([similar, ~similar]))
    assert auc == pytest.approx(slow_auc(distance, similar, weight), rel=1e-12)
    assert r.sum() == pytest.approx(0, abs=1e-12)
    for p in (0, 7, 31, 58):
        h = 1e-5 * np.eye(len(distance))[p]
        slope = (slow_auc(distance, similar, weight + h) - slow_auc(distance, similar, weight - h)) / 2e-5
        assert r[p] / weight[p] == pytest.approx(slope, abs=1e-9)


def test_every_point_of_the_curve_is_what_its_threshold_accepts():
    distance, similar = tied_pairs(4)
    curve = roc(distance, similar)
    assert_allclose(curve.thresholds, [-np.inf, *np.unique(distance)])
    for f, t, threshold in zip(curve.fpr, curve.tpr, curve.thresholds):
        assert_allclose((f, t), rates(distance, similar, threshold), rtol=1e-12)


def test_points_on_a_straight_stretch_of_the_curve_are_kept():
    curve = roc(np.arange(6.0), np.arange(6) < 3)
    assert_allclose(curve.thresholds, [-np.inf, 0, 1, 2, 3, 4, 5])
    assert [curve.threshold_at_fpr(f) for f in (0, 0.34, 0.67)] == [2, 3, 4]


@pytest.mark.parametrize("criterion", ["accuracy", "balanced"])
def test_best_threshold(criterion):
    distance, similar = tied_pairs(5)

    def value(threshold):
        f, t = rates(distance, similar, threshold)
        return (t + 1 - f) / 2 if criterion == "balanced" else np.mean((distance <= threshold) == similar)

    candidates = [-np.inf, *np.unique(distance)]
    best = max(candidates, key=lambda threshold: (round(value(threshold), 12), -threshold))
    assert roc(distance, similar).best_threshold(criterion) == best


def test_best_thresholds_differ_for_rare_similar_pairs():
    distance, similar = tied_pairs(5)
    curve = roc(distance, similar)
    assert curve.best_threshold() < curve.best_threshold("balanced")


def test_best_threshold_with_weights_is_that_of_repeated_pairs():
    distance, similar = tied_pairs(6)
    weight = np.where(similar, 5, 1)
    repeated = roc(np.repeat(distance, weight), np.repeat(similar, weight))
    assert roc(distance, similar, weight).best_threshold() == repeated.best_threshold()
    assert roc(distance, similar).best_threshold() != repeated.best_threshold()


@pytest.mark.parametrize("fpr", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_threshold_at_fpr_is_the_largest_allowed(fpr):
    distance, similar = tied_pairs(7)
    allowed = [t for t in [-np.inf, *np.unique(distance)] if rates(distance, similar, t)[0] <= fpr]
    assert roc(distance, similar).threshold_at_fpr(fpr) == max(allowed)


def test_threshold_at_fpr_accepts_nothing_when_the_nearest_pair_is_dissimilar():
    curve = roc(np.array([1.0, 2.0, 3.0]), np.array([False, True, False]))
    assert curve.threshold_at_fpr(0.4) == -np.inf
    assert curve.threshold_at_fpr(0.5) == 2.0


@pytest.mark.parametrize("seed", range(3))
def test_equal_error_rate_lies_on_the_curve(seed):
    curve = roc(*tied_pairs(seed))
    assert 0 < curve.eer < 0.5
    assert np.interp(curve.eer, curve.fpr, curve.tpr) == pytest.approx(1 - curve.eer, rel=1e-12)


@pytest.mark.parametrize(
    "distance, similar, auc, eer",
    [
        ([1, 2, 3, 4], [1, 1, 0, 0], 1.0, 0.0),
        ([1, 2, 3, 4], [0, 0, 1, 1], 0.0, 1.0),
        ([1, 1, 1, 1, 1], [0, 1, 0, 1, 1], 0.5, 0.5),
        ([1, 2, 3, 4], [1, 0, 1, 0], 0.75, 0.5),
    ],
)
def test_extremes(distance, similar, auc, eer):
    curve = roc(np.array(distance, dtype=float), np.array(similar))
    assert curve.auc == pytest.approx(auc)
    assert curve.eer == pytest.approx(eer)


@pytest.mark.parametrize("measure", [roc, pair_auc])
@pytest.mark.parametrize(
    "distance, similar, weight, message",
    [
        ([1.0, 2.0], [True, True], None, "no dissimilar pair among the 2 given"),
        ([1.0, 2.0], [False, False], None, "no similar pair among the 2 given"),
        ([1.0, 2.0], [True, False], [0.0, 1.0], "no similar pair"),
        ([1.0, np.nan], [True, False], None, "1 distances are not finite"),
        ([1.0, 2.0], [1, -1], None, "similar must be boolean"),
        ([1.0, 2.0], [True], None, "two vectors of one length"),
        ([1.0, 2.0], [True, False], [1.0, -1.0], "one finite number ≥ 0"),
    ],
)
def test_errors(measure, distance, similar, weight, message):
    with pytest.raises(ValueError, match=message):
        measure(np.array(distance), np.array(similar), weight)


def test_unknown_criterion_and_rate():
    curve = roc(*tied_pairs(0))
    with pytest.raises(ValueError, match="choose one of 'accuracy', 'balanced'"):
        curve.best_threshold("f1")
    with pytest.raises(ValueError, match="between 0 and 1"):
        curve.threshold_at_fpr(5)
