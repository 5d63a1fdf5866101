"""The comparison: honest about chance, leakage, failures and interruptions."""

import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import GMML, LMNN, NCA, RCA, Covariance, FisherML, Labels, Pairs, Triplets
from isometry.eval import mean_interval
from isometry.select import Comparison, compare
from isometry.select.folds import make_plan

IRIS = load_iris(return_X_y=True)


def planted(n=200, noise=8, seed=0, n_classes=4):
    """Classes far apart in two dimensions, under noise dimensions of larger scale."""
    r = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    angle = 2 * np.pi * y / n_classes
    signal_ = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + r.normal(size=(n, 2))
    return np.hstack([signal_, 3 * r.normal(size=(n, noise))]), y


class Stub(TransformerMixin, BaseEstimator):
    """A transformer that keeps the first ``keep`` features, or does what the test asks for."""

    def __init__(self, keep=None):
        self.keep = keep

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X[:, : self.keep]


class Fails(Stub):
    def fit(self, X, y=None):
        raise RuntimeError("this learner\n   never works")


class FailsSometimes(Stub):
    """Fails where row 0 of the data, which holds the largest value, is not in the training part."""

    def fit(self, X, y=None):
        if X.max() < 100:
            raise RuntimeError("needs the large value")
        return super().fit(X, y)


class GivesNaN(Stub):
    def transform(self, X):
        return np.full((len(X), 2), np.nan)


class Warns(Stub):
    def fit(self, X, y=None):
        warnings.warn("did not converge", ConvergenceWarning, stacklevel=2)
        warnings.warn("something else", UserWarning, stacklevel=2)
        return super().fit(X, y)


def test_a_planted_metric_is_found_and_called_reliable():
    X, y = planted()
    found = compare(X, y, [FisherML(), Stub(1)], scaler=None)
    assert found.best == "FisherML" and found["FisherML"].reliable == "better"
    assert found.results[0].name == "FisherML" and found["FisherML"].difference.low > 0.1
    assert found["Euclidean"].difference is None and found["Euclidean"].reliable == ""
    assert found.verdict.startswith("FisherML is reliably better than Euclidean: +")
    assert "over 200 held-out points" in found.verdict
    Z = found.best_estimator.transform(X)
    assert found.best_estimator.named_steps["learner"].__class__ is FisherML
    assert KNeighborsClassifier(3).fit(Z, y).score(Z, y) > 0.9


def test_scores_and_differences_are_those_of_a_plain_loop():
    """The whole computation again, slowly, with scikit-learn: scaler inside the fold, hits, repeats, intervals."""
    X, y = IRIS
    found = compare(X, y, [NCA(n_components=2, random_state=0)], n_splits=3, n_repeats=2, n_neighbors=1, random_state=5)
    plan = make_plan(Labels(y), "closed", 3, 2, np.random.RandomState(5))
    hits = {name: np.zeros((2, len(y))) for name in ("NCA", "Covariance", "Euclidean")}
    maps = {"NCA": NCA(n_components=2, random_state=0), "Covariance": Covariance(), "Euclidean": Stub()}
    for train, test, repeat in plan.splits:
        for name, learner in maps.items():
            model = make_pipeline(StandardScaler(), clone(learner), KNeighborsClassifier(1)).fit(X[train], y[train])
            hits[name][repeat, test] = model.predict(X[test]) == y[test]
    for name, label in (("NCA", "NCA(n_components=2, random_state=0)"), ("Covariance", "Covariance")):
        values, base = hits[name].mean(axis=0), hits["Euclidean"].mean(axis=0)
        assert_allclose(found[label].values, values)
        assert_allclose(found[label].score.mean, values.mean())
        assert_allclose(found[label].difference, mean_interval(values - base))
        assert found[label].n_fits == 6
    assert found.n_splits == 3 and found.n_repeats == 2


def test_random_labels_give_no_reliable_metric():
    """Without leakage nothing can be learned: accuracy stays at chance and nothing is called better."""
    r = np.random.default_rng(0)
    better = 0
    for seed in range(6):
        X, y = r.normal(size=(90, 12)), r.integers(3, size=90)
        found = compare(X, y, [FisherML(), RCA(), GMML(), NCA(max_iter=20)], n_splits=3, random_state=seed)
        better += found.best is not None
        assert all(r.score.low < 1 / 3 + 0.1 for r in found.results)
        assert found.best or found.verdict.startswith("No metric is reliably better than Euclidean here")
    assert better == 0


class Spy(Stub):
    """Remembers the training data of every fit, to be looked at by the test."""

    seen: list = []

    def fit(self, X, y=None):
        Spy.seen.append((X.copy(), y))
        return super().fit(X, y)


@pytest.mark.parametrize("protocol", ["closed", "open"])
def test_the_scaler_and_the_learner_see_the_training_fold_alone(protocol):
    X, y = planted(n=120, n_classes=6)
    Spy.seen.clear()
    compare(X, y, [Spy()], protocol=protocol, n_splits=3)
    plan = make_plan(Labels(y), protocol, 3, 1, np.random.RandomState(0))
    assert len(Spy.seen) == 3 + (len(Spy.seen) == 4)  # one more if it was refitted on all data
    for split, (seen_X, seen_y) in zip(plan.splits, Spy.seen, strict=False):
        rows = X[split.train]
        assert_allclose(seen_X, (rows - rows.mean(axis=0)) / rows.std(axis=0), atol=1e-12)
        assert_array_equal(seen_y, y[split.train])
        if protocol == "open":
            assert not set(y[split.test]) & set(seen_y)


def test_the_open_protocol_ranks_held_out_classes_among_themselves():
    X, y = planted(n=240, n_classes=12)
    found = compare(X, y, ["FisherML"], protocol="open", scoring="map@r", n_splits=4, scaler="none")
    assert found.protocol == "open" and found["FisherML"].reliable == "better"
    values = found["FisherML"].values - found["Euclidean"].values
    assert_allclose(found["FisherML"].difference, mean_interval(values, 0.95, groups=y))  # classes are the groups
    assert "points of MAP@R" in found.verdict


def test_pairs_alone_are_enough():
    X, y = planted(n=400)
    fours = np.random.default_rng(1).permutation(400).reshape(100, 4)
    i, j = (fours[:, place].ravel() for place in np.triu_indices(4, 1))  # all pairs within each four
    pairs = Pairs(i, j, y[i] == y[j], n=400)
    found = compare(X, pairs, ["GMML", "RCA", "LMNN"], scaler=None, name="pairs")
    assert found.scoring == "pair_auc" and found.best is not None
    assert found["GMML"].difference.low > 0
    assert found["LMNN"].failures[0].startswith("TypeError: LMNN learns from labels or triplets; it cannot use pairs")
    assert found["Covariance"].score is not None
    assert found.data == {
        "name": "pairs",
        "n_samples": 400,
        "n_features": 10,
        "n_classes": None,
        "supervision": "pairs",
        "feature_names": None,
        "class_names": None,
    }


def test_triplets_are_scored_by_their_order():
    X, y = planted(n=150)
    r = np.random.default_rng(2)
    a, p, n = r.integers(150, size=(3, 6000))
    keep = (a != p) & (y[a] == y[p]) & (y[a] != y[n])
    found = compare(X, Triplets(a[keep], p[keep], n[keep], n_samples=150), ["FisherML"], scaler=None, n_splits=3)
    assert found.scoring == "ordering" and found.best == "FisherML"
    assert "one connected graph" in found.notes[0] and "points of triplet accuracy" in found.verdict


def test_a_failing_learner_is_reported_and_stops_nothing():
    found = compare(*IRIS, [Fails(), GivesNaN(), GMML()])
    assert found["Fails"].failures == ["RuntimeError: this learner never works"] * 5
    assert found["Fails"].score is None and found["Fails"].difference is None and found["Fails"].reliable == ""
    assert found["GivesNaN"].failures[0].endswith("embedding entries that are not finite")
    assert found["GMML"].score is not None
    assert {r.name for r in found.results[-2:]} == {"Fails", "GivesNaN"}
    assert "Fails and GivesNaN failed." in found.verdict
    assert "failed: RuntimeError: this learner never works" in str(found)


def test_a_learner_that_fails_in_some_folds_is_compared_on_the_others():
    X, y = IRIS[0].copy(), IRIS[1]
    X[0, 0] = 200.0
    found = compare(X, y, [FailsSometimes()], scaler=None)
    partial = found["FailsSometimes"]
    assert len(partial.failures) == 1 and partial.n_fits == 5
    assert np.isfinite(partial.values).sum() == 120 and np.isfinite(found["Euclidean"].values).all()
    assert_allclose(partial.difference, (0, 0, 0))  # it is Euclidean itself on the points it has
    assert partial.score.mean > found["Euclidean"].score.mean  # it lacks a hard fold, which must not win it a place
    first = [r.name for r in found.results if r.name != "Covariance"]  # whose strength is 0 here
    assert first[:2] == ["Euclidean", "FailsSometimes"]
    assert any(n.startswith("FailsSometimes failed in 1 of 5 fits and is compared on the rest") for n in found.notes)


def test_if_nothing_works_nothing_is_claimed():
    found = compare(*IRIS, ["RCA"], scaler=Fails())
    assert found.best is None and found.best_estimator is None and all(r.score is None for r in found.results)
    assert found.verdict == (
        "Nothing can be said: Euclidean itself was not scored (RuntimeError: this learner never works). Euclidean, "
        "Covariance and RCA failed."
    )


def test_warnings_are_collected_and_not_shown():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(*IRIS, [Warns()], n_splits=3)
    assert found["Warns"].unconverged == 3 and found["Warns"].warnings == ["something else"]
    assert found["Euclidean"].unconverged == 0 and found["Euclidean"].warnings == []


def test_equal_metrics_tie_and_the_simplest_comes_first():
    found = compare(*IRIS, [Stub()], n_splits=3)
    assert found["Stub"].difference == (0, 0, 0) and found["Stub"].reliable == "unclear"
    order = [r.name for r in found.results]
    assert order.index("Euclidean") < order.index("Stub")


def test_results_do_not_depend_on_the_number_of_jobs_and_repeat_for_a_seed():
    X, y = load_wine(return_X_y=True)
    learners = [NCA(n_components=2, init="random", max_iter=15), "RCA"]
    one, again, two = (compare(X, y, learners, n_splits=3, random_state=3, n_jobs=n) for n in (None, 1, 2))
    for a, b, c in zip(one.results, again.results, two.results, strict=True):
        assert a.name == b.name == c.name
        assert_array_equal(a.values, b.values)
        assert_array_equal(a.values, c.values)
        assert a.score == b.score == c.score and a.difference == b.difference == c.difference
    assert one.verdict == two.verdict
    other = compare(X, y, learners, n_splits=3, random_state=4)
    assert not np.array_equal(other["RCA"].values, one["RCA"].values)


def test_tuning_happens_inside_the_training_fold():
    """The number of features that Stub keeps is chosen by inner folds; the held-out fold is not among what it sees."""
    X, y = planted(n=150)
    found = compare(X, y, [Stub(10)], tune={"Stub(keep=10)": {"keep": [1, 2, 10]}}, scaler=None)
    assert found["Stub(keep=10)"].best_params == [{"keep": 2}] * 5
    assert found.best_estimator.named_steps["learner"].keep == 2
    assert found["Euclidean"].best_params == []
    Spy.seen.clear()
    compare(X, y, [Spy(3)], tune={"Spy(keep=3)": {"keep": [3]}}, scaler=None, n_splits=2)
    outer = make_plan(Labels(y), "closed", 2, 1, np.random.RandomState(0)).splits[0]
    allowed = {row.tobytes() for row in X[outer.train]}
    assert all({row.tobytes() for row in seen} <= allowed for seen, _ in Spy.seen[:4])  # 3 inner fits and the outer one
    assert [len(seen) for seen, _ in Spy.seen[:4]] == [50, 50, 50, 75]


def test_default_grids_and_failing_settings():
    X, y = planted(n=120)
    found = compare(X, y, ["GMML"], tune="default", n_splits=2)
    assert len(found["GMML"].best_params) == 2 and set(found["GMML"].best_params[0]) == {"n_components", "t"}
    one_bad = compare(X, y, [Stub(2)], tune={"Stub(keep=2)": {"keep": ["x", 2]}}, n_splits=2)
    assert one_bad["Stub(keep=2)"].best_params == [{"keep": 2}] * 2
    all_bad = compare(X, y, [Stub(2)], tune={"Stub(keep=2)": {"keep": ["x"]}}, n_splits=2)
    assert all_bad["Stub(keep=2)"].failures[0].startswith("ValueError: every parameter setting failed while tuning")


def test_if_the_winner_cannot_be_refitted_the_next_one_is():
    class OnlyParts(Stub):
        def fit(self, X, y=None):
            if len(X) == 200:
                raise MemoryError("too large")
            return super().fit(X, y)

    X, y = planted()
    found = compare(X, y, [OnlyParts(2), FisherML()], scaler=None)
    assert found.best == "OnlyParts(keep=2)"
    assert isinstance(found.best_estimator.named_steps["learner"], FisherML)
    assert "OnlyParts(keep=2) could not be fitted on all data (MemoryError: too large)" in found.notes[-1]


def test_labels_may_be_words_and_tables_may_be_frames():
    X, y = IRIS
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    frame = pd.DataFrame(X, columns=names)
    a, b, c = (compare(X_, y_, "RCA", n_splits=3) for X_, y_ in ((X, y), (frame, words), (frame, y.astype(float))))
    assert a["RCA"].score == b["RCA"].score == c["RCA"].score
    assert b.data["feature_names"] == names and b.data["class_names"] == ["setosa", "versicolor", "virginica"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        b.best_estimator.transform(frame)  # names agree: nothing to warn of


def test_float32_stays_float32():
    dtypes = set()

    class Notes(Stub):
        def fit(self, X, y=None):
            dtypes.add(X.dtype)
            return super().fit(X, y)

    found = compare(IRIS[0].astype(np.float32), IRIS[1], [Notes()], n_splits=2)
    assert dtypes == {np.dtype(np.float32)}
    assert found.best_estimator.transform(IRIS[0].astype(np.float32)).dtype == np.float32


def test_it_is_said_that_one_class_has_nearly_all_samples():
    X = np.random.RandomState(0).normal(size=(100, 3))
    rare = np.where(np.arange(100) % 10, "no", "yes")
    (note,) = [n for n in compare(X, rare, ["RCA"], n_splits=3).notes if "always answering" in n]
    assert note.startswith("90 % of the samples are of class no") and "right in 0.9000" in note
    for y, scoring in ((np.arange(100) % 3, "knn"), (rare, "map@r")):
        found = compare(X, y, ["RCA"], n_splits=3, scoring=scoring)
        assert not [n for n in found.notes if "always answering" in n]


def test_unlabelled_rows_are_trained_on_and_never_scored():
    y = IRIS[1].copy()
    y[::3] = -1
    found = compare(IRIS[0], Labels(y, unlabelled=-1), ["GMML"], n_splits=3)
    assert_array_equal(np.isnan(found["GMML"].values), y == -1)
    assert found["GMML"].score.mean > 0.9


def test_other_scalers_and_transformers():
    names = {s: compare(*IRIS, [PCA(2)], scaler=s, n_splits=2).settings["scaler"] for s in ("minmax", None)}
    assert names == {"minmax": "minmax", None: "none"}
    found = compare(*IRIS, [PCA(2)], scaler=StandardScaler(with_mean=False), n_splits=2)
    assert found.best_estimator.named_steps["scaler"].with_mean is False


X_, Y_ = IRIS
NAN = X_.copy()
NAN[7, 2] = np.nan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NAN, Y_), "X has 1 entries that are NaN or infinite .first at row 7, column 2.: impute"),
        ((np.where(X_ > 7.8, -np.inf, X_), Y_), "X has 1 entries that are NaN or infinite"),
        ((pd.DataFrame({"a": ["x"] * 150}), Y_), "X must be a table of numbers, one row per sample: could not convert"),
        ((pd.DataFrame({"a": ["x"] * 150, "b": 1.0}), Y_), "that do not hold numbers: a. Drop them, or give scaler= a"),
        ((X_, np.zeros(150)), "y has 1 class: a comparison needs at least 2"),
        ((X_, Y_[:-1]), "y has 149 entries but X has 150 rows"),
        ((X_, None), "y is None"),
        ((X_, np.where(Y_ == 1, np.nan, Y_)), "y has 50 missing labels"),
        ((X_[:4], [0, 0, 1, 1]), "n_splits=5 folds need at least 5 samples"),
        ((X_, Y_, "LMNNN"), "no method called 'LMNNN'"),
    ],
)
def test_bad_data_is_refused_before_any_work(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "half-open"}, "protocol='half-open' must be 'closed' or 'open'"),
        ({"protocol": "open"}, "only 3 classes have 2 or more samples"),
        ({"n_splits": 1}, "n_splits=1 must be at least 2"),
        ({"level": 95}, "level=95"),
        ({"scaler": "log"}, "scaler='log' is unknown: choose auto, standard, minmax"),
        ({"scaler": StandardScaler}, "must be a name or a transformer such as StandardScaler()"),
        ({"scoring": "f1"}, "scoring='f1' does not suit labels"),
        ({"n_neighbors": 200}, "n_neighbors=200, but a fold has only 120 points"),
        ({"tune": {"NCA": {}}}, "tune names 'NCA'"),
    ],
)
def test_bad_options_are_refused_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        compare(*IRIS, [], **options)


def test_pairs_have_no_open_protocol():
    with pytest.raises(ValueError, match="holds out classes, but y holds pairs"):
        compare(*(IRIS[0], Pairs([0, 1], [2, 3], [True, False], n=150)), protocol="open")


def test_the_printed_table_and_the_frame_agree():
    found = compare(*IRIS, ["RCA", Fails()], n_splits=3)
    frame = found.to_frame().set_index("method")
    assert list(frame.index) == [r.name for r in found.results]
    assert frame.loc["RCA", "difference"] == found["RCA"].difference.mean
    assert f"{found['RCA'].score.mean:.4f}" in str(found) and found.verdict in str(found)
    with pytest.raises(KeyError, match="no metric called 'NCA' was compared; there are"):
        found["NCA"]


def test_progress_is_shown_on_request_only(capsys):
    compare(*IRIS, [], n_splits=2)
    assert capsys.readouterr() == ("", "")
    compare(*IRIS, [], n_splits=2, verbose=True)
    assert "2 metrics on 2 folds: 4 fits" in capsys.readouterr().err


INTERRUPTED = """
import os, sys, time
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris
from isometry.select import compare
from isometry.select.progress import Progress

def tell(line):  # in one piece: an unbuffered print writes the end of its line apart, and processes share the pipe
    os.write(1, line)

Progress.done = lambda self, key: tell(b"finished\\n")

class Stuck(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        tell(b"stuck\\n")
        while True:  # a signal that comes just before a wait without end would not wake it
            time.sleep(0.01)
    def transform(self, X):
        return X

found = compare(*load_iris(return_X_y=True), [Stuck()], n_jobs=int(sys.argv[1]))
print(found.interrupted, {name: (found[name].n_fits, found[name].n_planned) for name in sys.argv[2:]})
print(found.verdict)
print(type(found.best_estimator).__name__)
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_keeps_what_has_finished(n_jobs):
    """A real process and a real SIGINT, sent to the whole process group as a terminal does.

    It is sent when nothing can happen any more: each worker is stuck in a fit, and all fits before it are in.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(n_jobs), "Euclidean", "Covariance", "Stuck"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        said = [process.stdout.readline() for _ in range(3 * n_jobs)]
        assert sorted(said) == ["finished\n"] * 2 * n_jobs + ["stuck\n"] * n_jobs
        os.killpg(process.pid, signal.SIGINT)
        state, verdict, best = process.communicate()[0].splitlines()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    assert state == f"True {{'Euclidean': ({n_jobs}, 5), 'Covariance': ({n_jobs}, 5), 'Stuck': (0, 5)}}"
    assert verdict.startswith(f"Interrupted after {2 * n_jobs} of 15 fits")
    assert best == "Pipeline"


def test_lmnn_on_wine_runs_as_the_readme_says():
    found = compare(*load_wine(return_X_y=True), [LMNN(max_iter=20)], n_splits=2)
    assert isinstance(found, Comparison) and found["LMNN(max_iter=20)"].score.mean > 0.93


@pytest.mark.parametrize("package", ["isometry.eval", "isometry.io", "isometry.report", "isometry.select"])
def test_no_public_name_hides_a_module(package):
    """After ``import isometry.select``, ``isometry.select.compare`` is one thing, whatever is imported besides."""
    for name in import_module(package).__all__:
        assert find_spec(f"{package}.{name}") is None, name
