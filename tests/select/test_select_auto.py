"""AutoMetric: the best metric, or Euclidean distance and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import AutoMetric, Labels, Pairs, Shrunk, Triplets, compare
from isometry.eval import Interval, mean_interval
from isometry.kernelized import KernelMetric
from isometry.select.budget import Budget
from isometry.select.candidates import default_learners as candidates
from isometry.select.candidates import resolve
from isometry.select.comparison import _measure, _rank
from isometry.select.crossfit import automatic_choice, choose, gain_interval, values_of_choice
from isometry.select.fits import Study
from isometry.select.folds import Plan, Split, make_plan
from isometry.select.halves import gains_of_halves, halved
from isometry.select.result import MethodResult
from isometry.select.scoring import FoldScorer
from isometry.select.verdict import write_verdict
from isometry.supervision import Targets
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


def test_what_the_comparison_finds_reliable_is_taken():
    n = 100
    names = ["Euclidean", "RCA", "DCA"]
    V = [np.zeros((1, n)), np.tile([1.0, 0.0], n // 2)[None], np.tile([0.6, 0.3], n // 2)[None]]
    splits = [Split(np.arange(50, 100), np.arange(50)), Split(np.arange(50), np.arange(50, 100))]
    assert automatic_choice(names, V, Plan(splits, None), 0.95).picked == "RCA"  # the highest mean
    choice = automatic_choice(names, V, Plan(splits, None), 0.95, "DCA")
    assert choice.picked == choice.leader == "DCA" and choice.sure
    doubtful = replace(choice, difference=Interval(0.004, -0.002, 0.01), p=0.06)  # of choosing, not of DCA
    told = "DCA by itself is reliably better, allowing for how many were tried"
    assert f"p = 0.06 ({told}); take DCA" in str(doubtful)
    assert told not in str(replace(doubtful, sure=False)) and told not in str(choice)


def compared(share, n=200, seed=0):
    """A comparison of Euclidean distance and four metrics, the best of which is right for a further share of samples.

    Values and marks are as `compare` makes them; nothing is learned.
    """
    rng = np.random.default_rng(seed)
    base, u = (rng.random(n) < 0.5).astype(float), rng.random(n)
    V = [base[None], *(np.where(u < share * k / 10, 1.0, base)[None] for k in (10, 9, 8, 7))]
    names = ["Euclidean", "A", "B", "C", "D"]
    results = [MethodResult(name, None, None, None, "", 0.0, v[0]) for name, v in zip(names, V, strict=True)]
    _measure(results, V, None, 0.95)
    best = _rank(results)
    fold = np.arange(n) % 4
    plan = Plan([Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(4)], None)
    choice = automatic_choice(names, V, plan, 0.95, best)
    return best, choice, write_verdict(results, best, "accuracy", 0.95, choice)


def test_comparison_and_automatic_choice_say_the_same():
    """The more samples a metric is right for, the surer the gain: none, then of choosing, then of one among many."""
    seen = []
    for share in np.arange(0.0, 0.3, 0.0025):
        best, choice, verdict = compared(share)
        if best is not None:
            seen.append("sure")
            assert choice.picked == best and str(choice).endswith(f"take {best}") and choice.sure
            assert verdict.startswith(f"{best} is reliably better than Euclidean")
        elif choice.picked != "Euclidean":
            seen.append("choosing")
            assert str(choice).endswith(f"take {choice.picked}") and not choice.sure
            assert ("the interval allows for other samples" in str(choice)) == (choice.difference.low <= 0)
            assert verdict.startswith("No metric is reliably better than Euclidean here")
            assert f"So AutoMetric takes {choice.picked}" in verdict
        else:
            seen.append("none")
            assert "keep Euclidean" in str(choice) and "AutoMetric takes" not in verdict
    assert list(dict.fromkeys(seen)) == ["none", "choosing", "sure"]


def test_choosing_is_held_to_the_level_that_marks_are():
    """What leads by little is not taken: neither it nor the choice is reliably better."""
    rng = np.random.default_rng(1)
    seen = {"Euclidean": 0, "A": 0}
    fold = np.arange(120) % 4
    plan = Plan([Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(4)], None)
    for _ in range(200):
        gain = rng.choice([-1.0, 0.0, 1.0], size=(1, 120), p=[0.15, 0.7, 0.15])
        seen[automatic_choice(["Euclidean", "A"], [np.zeros((1, 120)), gain], plan, 0.95).picked] += 1
    assert 0 < seen["A"] <= 14  # of 200 a fortieth, 5, are above zero by chance; beyond 14 with a chance of 2e-4


def test_strength_is_chosen_by_the_score_of_the_comparison():
    aims = []
    original = isometry.trial._aim

    class Recorded(isometry.GMML):
        def _fit_moments(self, moments):
            aims.append(original.get())
            return super()._fit_moments(moments)

    X, y = planted(n=60)
    isometry.compare(X, y, {"Recorded": Recorded()}, scoring="map@r", n_splits=2)
    assert {(a.score, a.protocol) for a in aims} == {("map@r", "closed")}
    aims.clear()
    AutoMetric({"Recorded": Recorded()}, budget=None, n_splits=2).fit(X, y)
    assert {(a.score, a.n_neighbors, a.protocol) for a in aims} == {("neighbors", 3, "closed")}


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
    assert model.best_ == "Euclidean"
    assert "the budget was over before a learned metric could be compared" in model.verdict_
    assert np.isfinite(model.transform(X)).all()


def test_interrupted_it_gives_what_was_found():
    X, y = planted()

    class Impatient(isometry.RCA):
        fits = 0

        def fit(self, X, y=None):
            Impatient.fits += 1
            if Impatient.fits == 3:
                raise KeyboardInterrupt
            return super().fit(X, y)

    model = AutoMetric({"GMML": isometry.GMML(), "Impatient": Impatient()}, budget=None).fit(X, y)
    assert model.comparison_.interrupted and not model.comparison_.automatic.of_all
    assert model.verdict_.endswith("The comparison was interrupted: this rests on what had finished.")
    assert np.isfinite(model.transform(X)).all()


def test_candidates_suit_the_supervision():
    X, y = planted(n=60)
    of_labels = dict(candidates(Labels(y)))
    assert {"KDCA", "KernelFisherML", "GMML", "NCM"} <= of_labels.keys() and "SIR" not in of_labels
    kernels = [e for e in of_labels.values() if isinstance(e, KernelMetric)]
    assert [e.landmarks for e in kernels] == [300, 300]  # memory grows with the samples, not with their square
    for learner in map(inner, of_labels.values()):
        assert isinstance(learner, Shrunk) or "auto" in (learner.get_params().get(name) for name in ("reg", "strength"))
    of_targets = dict(candidates(Targets(X[:, 0])))
    assert {"SIR", "MLKR", "GMML"} <= of_targets.keys() and "KDCA" not in of_targets


def inner(estimator):
    return getattr(estimator, "learner", estimator) if isinstance(estimator, KernelMetric) else estimator


def test_targets_of_a_regression_are_valued_by_their_neighbours():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 8)) * [1, 1, 4, 4, 4, 4, 4, 4]
    model = AutoMetric(["SIR", "GMML"], scaler=None, budget=None).fit(X, X[:, 0] + 0.5 * X[:, 1])
    assert model.comparison_.scoring == "knn_r2"
    assert model.best_ == "SIR" and model.difference_[1] > 0


def test_the_interval_is_about_learning_from_all_samples():
    """g(n) = g(m) + (g(m) − g(m/2)) / k, with the variance of Nadeau and Bengio; a curve in 1/n is met exactly."""
    n, k = 60, 5
    splits = [Split(np.flatnonzero(np.arange(n) % k != f), np.flatnonzero(np.arange(n) % k == f)) for f in range(k)]
    plan = Plan(splits, None)

    def curve(size):
        return 0.3 - 7 / size

    noise = np.random.default_rng(0).standard_normal((1, n))
    noise -= noise.mean()
    m = n * (k - 1) / k
    found = gain_interval(curve(m) + noise, curve(m / 2) + noise, plan, 0.95)
    assert_allclose(found.mean, curve(n), rtol=1e-12)
    plain = mean_interval(curve(n) + noise[0], 0.95)
    assert_allclose(found.high - found.mean, 1.5 * (plain.high - plain.mean))  # √(1 + 5/4)
    assert_allclose(gain_interval(curve(m) + noise, None, plan, 0.95).mean, curve(m))
    assert gain_interval(np.full((1, n), np.nan), None, plan, 0.95) is None


def test_half_of_each_class_or_half_of_the_classes():
    y = np.repeat(np.arange(6), 10)
    split = Split(np.arange(50), np.arange(50, 60))
    closed = Study(None, y, "passthrough", FoldScorer("knn"), 0)
    half = halved(split, closed)
    assert np.bincount(y[half.train]).tolist() == [5] * 5 and set(half.train) <= set(split.train)
    opened = Study(None, y, "passthrough", FoldScorer("map@r", protocol="open"), 0)
    half = halved(split, opened)
    assert sorted(np.bincount(y[half.train], minlength=6).tolist()) == [0, 0, 0, 10, 10, 10]
    assert halved(Split(np.arange(30), np.arange(30, 60)), opened) is None  # three classes are too few to halve
    targets = Study(None, Targets(np.linspace(0, 1, 60)), "passthrough", FoldScorer("knn_r2"), 0)
    assert len(halved(split, targets).train) == 25
    side = Labels(y)
    pairs = Study(None, Pairs.from_edges(side.similar, side.dissimilar, 60), "passthrough", FoldScorer("pair_auc"), 0)
    assert halved(split, pairs) is None


def test_gains_of_halves_are_those_of_fits_to_them():
    X, y = planted(n=90)
    plan = make_plan(Labels(y), "closed", 3, 1, np.random.RandomState(0))
    study = Study(X, y, "passthrough", FoldScorer("precision@3"), 0)
    rivals = resolve(["GMML"], Labels(y), 0)
    gains = gains_of_halves(study, rivals, plan, [2, 0, 2], None, None, 0.0)
    assert not gains[0, plan.splits[1].test].any()  # Euclidean was chosen there
    for split in (plan.splits[0], plan.splits[2]):
        half = halved(split, study).train
        model = clone(rivals[2].estimator).fit(X[half], y[half])
        scores = [
            study.scorer.values(f(X[half]), y[half], f(X[split.test]), y[split.test])
            for f in (model.transform, lambda rows: rows)
        ]
        assert_allclose(gains[0, split.test], scores[0] - scores[1])
    over = Budget(1.0, lambda: 10.0)
    assert gains_of_halves(study, rivals, plan, [2, 0, 2], None, over, started=0.0) is None


def test_the_comparison_shows_what_choosing_is_worth():
    X, y = planted()
    comparison = isometry.compare(X, y, ["RCA", "GMML"])
    assert comparison.automatic.picked == comparison.best
    assert "AutoMetric, which takes in each fold what was best in the others" in str(comparison)


def test_bad_arguments_are_named():
    X, y = planted(n=30)
    with pytest.raises(ValueError, match="budget=-1 must be positive"):
        AutoMetric(budget=-1).fit(X, y)
    with pytest.raises(ValueError, match="requires y"):
        AutoMetric().fit(X)
    with pytest.raises(TypeError, match="no 'weights'"):
        AutoMetric().fit(X, y, weights=y)


def test_a_table_with_dates_and_words_is_told_how_to_be_read():
    numbers = np.random.RandomState(0).normal(size=(40, 2))
    frame = pd.DataFrame(numbers, columns=["a", "b"])
    filled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    auto = AutoMetric(["RCA"], n_splits=2, scaler=filled).fit(frame, np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"2020-01-31.*\n?.*read_table\(table, model=metric\)"):
        auto.transform(frame.assign(a="2020-01-31"))
    with pytest.raises(ValueError, match=r"read_table\(table, model=metric\)"):
        auto.transform(frame.assign(a=pd.Timestamp("2020-01-31")))


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_compare_and_auto_metric_take_the_same_by_the_same_score(load):
    """The same candidates, folds and rule: what one says to take, the other takes."""
    X, y = load(return_X_y=True)
    X, y = X[::2], y[::2]
    found = compare(X, y, scoring="precision@3", n_splits=3)
    model = AutoMetric(n_splits=3, budget=None).fit(X, y)
    assert [r.name for r in model.comparison_.results] == [r.name for r in found.results]
    assert model.best_ == found.automatic.picked == found.best_name
    assert found.automatic.p == model.comparison_.automatic.p
    assert found.automatic.measured == model.comparison_.automatic.measured == found.automatic.difference.mean
    assert any("decides by precision@3" in note for note in compare(X, y, ["RCA"], n_splits=3).notes)
    assert not any("decides by precision@3" in note for note in found.notes)


def test_the_verdict_tells_what_was_measured_and_what_is_expected():
    X, y = load_breast_cancer(return_X_y=True)
    model = AutoMetric(["RCA", "FisherML"], n_splits=3, budget=None).fit(X[::2], y[::2])
    choice = model.comparison_.automatic
    assert choice.of_all and choice.measured != choice.difference.mean
    assert f"by {choice.measured:+.4f} on samples held out ({choice.chance})" in model.verdict_
    assert f"learned from all samples, by {choice.difference.mean:+.4f} on new ones" in model.verdict_
    assert all(type(value) is float for value in model.difference_)
