"""AutoMetric: the best metric, or Euclidean distance and why."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_wine

import isometry
from isometry import AutoMetric, Labels, Pairs, Shrunk, Triplets
from isometry.select.crossfit import automatic_choice, choose, values_of_choice
from isometry.select.folds import Plan, Split
from tests.test_strength import planted

QUICK = {"learners": ["RCA", "GMML", "FisherML"], "budget": None}


def test_a_planted_direction_is_found_and_the_pipeline_fitted():
    X, y = planted()
    model = AutoMetric(**QUICK).fit(X, y)
    assert model.best_ in ("RCA", "GMML", "FisherML")
    assert model.verdict_.startswith(f"Take {model.best_}: ")
    mean, low, high = model.difference_
    assert 0 < low < mean < high
    assert_allclose(model.transform(X), model.pipeline_.transform(X))
    assert set(model.leaderboard_["name"]) == {"Euclidean", "Covariance", "RCA", "GMML", "FisherML"}
    assert model.score(X, y) > isometry.Euclidean().fit(X, y).score(X, y)


def test_shuffled_labels_keep_euclidean():
    kept = 0
    for seed in range(20):
        X, y = planted(seed, n=90, noise=4)
        model = AutoMetric(random_state=seed, **QUICK).fit(X, np.random.default_rng(seed).permutation(y))
        kept += model.best_ == "Euclidean"
        if model.best_ == "Euclidean":
            assert model.verdict_.startswith("Keep Euclidean distance: ")
    assert kept >= 19


def test_a_choice_is_made_without_the_fold_it_is_valued_in():
    """Of metrics that are noise, the best in all folds gains by luck; the choice by the other folds gains nothing."""
    rng = np.random.default_rng(0)
    n, k = 400, 30
    V = [np.zeros((1, n)), *(rng.choice([-1.0, 1.0], size=(1, n)) for _ in range(k))]
    splits = [Split(np.flatnonzero(np.arange(n) % 4 != f), np.flatnonzero(np.arange(n) % 4 == f)) for f in range(4)]
    values, chosen = values_of_choice(V, Plan(splits, None))
    luckiest = max(v.mean() for v in V)
    assert luckiest > 0.05 and abs(values.mean()) < luckiest / 2
    for f, split in enumerate(splits):
        others = np.setdiff1d(np.arange(n), split.test)
        means = [v[0, others].mean() for v in V]
        assert chosen[f] in (0, int(np.argmax(means)))
        assert_allclose(values[0, split.test], V[chosen[f]][0, split.test])


def test_a_metric_that_lacks_folds_cannot_be_chosen():
    few = np.where(np.arange(40) < 10, 1.0, np.nan)
    assert choose([np.zeros(40), few, np.full(40, 0.1)], None) == 2
    assert choose([np.zeros(40), few], None) == 0


def test_euclidean_is_taken_unless_a_metric_is_reliably_better():
    n = 100
    V = [np.zeros((1, n)), np.tile([1.0, 0.0], n // 2)[None]]
    splits = [Split(np.arange(50, 100), np.arange(50)), Split(np.arange(50), np.arange(50, 100))]
    names = ["Euclidean", "RCA"]
    assert automatic_choice(names, V, Plan(splits, None), 0.95).picked == "RCA"
    little = [V[0], np.where(np.arange(n) % 10 == 0, 1.0, np.where(np.arange(n) % 14 == 0, -1.0, 0.0))[None]]
    assert automatic_choice(names, little, Plan(splits, None), 0.95).picked == "Euclidean"
    lucky = [V[0], np.where(np.arange(n) < 50, V[1], 0.0), np.where(np.arange(n) >= 50, V[1], 0.0)]
    assert automatic_choice([*names, "DCA"], lucky, Plan(splits, None), 0.95).picked == "Euclidean"  # each in one fold
    assert automatic_choice(names, [np.full((1, n), np.nan)] * 2, Plan(splits, None), 0.95) is None


def test_pairs_and_triplets():
    X, y = planted(n=90)
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, 90)
    model = AutoMetric(["RCA", "GMML"], budget=None, n_splits=3).fit(X, pairs)
    assert model.best_ in ("RCA", "GMML")
    a = np.arange(90)
    triplets = Triplets(
        np.tile(a, 3), np.concatenate([(a + k) % 90 for k in (3, 6, 9)]), np.tile((a + 1) % 90, 3), n_samples=90
    )
    learners = [("Shrunk", Shrunk(isometry.LMNN(max_iter=30)))]
    assert AutoMetric(learners, budget=None, n_splits=2).fit(X, triplets).best_ in ("Shrunk", "Euclidean")


def test_saved_and_read_again(tmp_path):
    X, y = load_wine(return_X_y=True)
    model = AutoMetric(**QUICK).fit(X, y)
    model.save(tmp_path / "auto.safetensors")
    again = isometry.load(tmp_path / "auto.safetensors")
    assert_allclose(again.transform(X), model.transform(X))
    assert again.verdict_ == model.verdict_ and again.best_ == model.best_
    assert clone(model).get_params() == model.get_params()


def test_a_budget_that_is_over_keeps_euclidean():
    X, y = planted()
    model = AutoMetric(budget=1e-9).fit(X, y)
    assert model.best_ in ("Euclidean", "Covariance")
    assert np.isfinite(model.transform(X)).all()


def test_the_comparison_shows_what_choosing_is_worth():
    X, y = planted()
    comparison = isometry.compare(X, y, ["RCA", "GMML"])
    assert comparison.automatic.picked == comparison.best
    assert "AutoMetric, the best by the other folds" in str(comparison)


def test_bad_arguments_are_named():
    X, y = planted(n=30)
    with pytest.raises(ValueError, match="budget=-1 must be positive"):
        AutoMetric(budget=-1).fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        AutoMetric().fit(X)
    with pytest.raises(TypeError, match="no 'weights'"):
        AutoMetric().fit(X, y, weights=y)
