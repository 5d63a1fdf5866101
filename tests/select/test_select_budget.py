"""The budget of a comparison: by a clock that only the learners of these tests move."""

import logging

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_iris

from isometry import NCA
from isometry.base import LinearMetric
from isometry.core.progress import OutOfTime, report, time_limit
from isometry.eval import mean_interval
from isometry.parameters import parameters
from isometry.registry import all_methods
from isometry.select import compare
from isometry.select.budget import Budget, Costs, Schedule, duration, extrapolate
from isometry.select.candidates import DEFAULT, resolve
from isometry.supervision import Labels

IRIS = load_iris(return_X_y=True)


class Clock:
    """Stands still but for those who move it."""

    now = 0.0

    def __call__(self):
        return Clock.now


@pytest.fixture(autouse=True)
def at_zero():
    Clock.now = 0.0


def budget(seconds):
    return Budget(seconds, Clock())


@parameters
class Search(LinearMetric):
    """A learner of ten iterations, each of which takes ``step`` seconds."""

    step: float = 1.0

    def _fit(self, X, side):
        for _ in range(10):
            Clock.now += self.step
            report(0.0)
        self._store(np.eye(X.shape[1])[:1], X.dtype)


class Closed(TransformerMixin, BaseEstimator):
    """Takes ``seconds`` at 100 rows, and grows with the cube of their number; cannot be stopped."""

    def __init__(self, seconds=1.0):
        self.seconds = seconds

    def fit(self, X, y=None):
        Clock.now += self.seconds * (len(X) / 100) ** 3
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X[:, :2]


def test_without_a_budget_everything_is_fitted():
    found = compare(*IRIS, {"slow": Search(1e6)}, n_splits=3)
    assert found["slow"].n_fits == 3 and not found["slow"].left_out and found["slow"].score is not None


def test_a_search_that_takes_too_long_is_stopped_and_named():
    """A fit may take a tenth of 100 s: 9 s fit in, 90 s do not, and are stopped at the second iteration."""
    found = compare(*IRIS, {"quick": Search(0.9), "slow": Search(9.0)}, budget=budget(100))
    assert found["quick"].n_fits == 5 and found["quick"].score is not None
    slow = found["slow"]
    assert slow.score is None and slow.n_fits == 0 and slow.left_out == "stopped after 18 s" and not slow.failures
    note = next(n for n in found.notes if n.startswith("left out"))
    assert "do not fit into the budget of 1.7 min: slow (stopped after 18 s)" in note and "--budget" in note
    assert "slow" not in found.verdict and "left out: stopped after 18 s" in str(found)
    assert_allclose(Clock.now, 5 * 9 + 18)


def test_what_cannot_be_stopped_is_not_begun():
    """400 rows: fits on 200 of them tell that one on 320 takes 33 s, and 5 fits do not fit into 60 s."""
    X, y = np.random.default_rng(0).normal(size=(400, 3)), np.arange(400) % 2
    found = compare(X, y, {"cube": Closed(1.0)}, budget=budget(60))
    assert found["cube"].left_out.endswith("a fit") and found["cube"].n_fits == 0
    assert Clock.now == 8  # one fit on 200 rows
    again = compare(X, y, {"cube": Closed(0.1)}, budget=budget(60))
    assert again["cube"].n_fits == 5


def test_the_baselines_take_part_whatever_they_cost():
    found = compare(*IRIS, {"slow": Search(1e3)}, budget=budget(1e-9))
    assert found["Euclidean"].n_fits == found["Covariance"].n_fits == 5
    assert found["slow"].left_out


def test_when_time_runs_out_metrics_are_ranked_on_the_folds_they_share():
    """From its third fit on one takes 100 s, which nothing can stop: the next has no time left in that fold."""

    class Tires(Closed):
        fits = 0

        def fit(self, X, y=None):
            Tires.fits += 1
            Clock.now += 100 if Tires.fits > 2 else 0.1
            self.n_features_in_ = X.shape[1]
            return self

    found = compare(*IRIS, {"tires": Tires(), "steady": Search(0.1)}, budget=budget(60))
    assert [found[n].n_fits for n in ("Euclidean", "tires", "steady")] == [3, 3, 2] and not found.interrupted
    assert found.verdict.startswith("The budget is used up; what follows rests on the 2 of 5 folds that all")
    scored = np.isfinite(found["steady"].values)
    assert scored.sum() == 60
    assert_array_equal(np.isfinite(found["Euclidean"].values), scored)


def test_after_an_interruption_only_shared_folds_count():
    class Interrupts(Closed):
        fits = 0

        def fit(self, X, y=None):
            Interrupts.fits += 1
            if Interrupts.fits == 3:
                raise KeyboardInterrupt
            return super().fit(X, y)

    found = compare(*IRIS, {"last": Interrupts(0.0)})
    assert found.interrupted and [found[n].n_fits for n in ("Euclidean", "Covariance", "last")] == [3, 3, 2]
    assert found.verdict.startswith(
        "Interrupted after 8 of 15 fits; what follows rests on the 2 of 5 folds that all metrics finished. "
    )
    scored = np.isfinite(found["last"].values)
    assert scored.sum() == 60
    for name in ("Euclidean", "Covariance", "last"):
        assert_array_equal(np.isfinite(found[name].values), scored)
    gap = found["last"].values[scored] - found["Euclidean"].values[scored]
    assert_allclose(found["last"].difference, mean_interval(gap))


def test_cheap_candidates_come_first():
    X, y = np.random.default_rng(0).normal(size=(400, 3)), np.arange(400) % 2
    order = []

    class Noted(Closed):
        def fit(self, X, y=None):
            if len(X) == 320:
                order.append(self.seconds)
            return super().fit(X, y)

    compare(X, y, [("a", Noted(0.5)), ("b", Noted(0.01)), ("c", Noted(0.1))], budget=budget(1e3), n_splits=5)
    assert order[:3] == [0.01, 0.1, 0.5]


def test_lines_off_a_terminal(capsys):
    compare(*IRIS, {"quick": Search(1.0)}, budget=budget(1000), n_splits=3, verbose=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "3 metrics on 3 folds: 9 fits, within 17 min",
        "fold 1 of 3 done after 10 s; about 20 s to go",
        "fold 2 of 3 done after 20 s; about 10 s to go",
        "fold 3 of 3 done after 30 s",
    ]


def test_lines_go_to_the_log_where_somebody_listens(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="isometry"):
        compare(*IRIS, [], n_splits=2)
    assert [r.message.partition(" after")[0] for r in caplog.records][1:] == ["fold 1 of 2 done", "fold 2 of 2 done"]
    assert capsys.readouterr().err == ""


def test_slow_fits_are_announced(capsys):
    X, y = np.random.default_rng(0).normal(size=(400, 3)), np.arange(400) % 2
    compare(X, y, {"cube": Closed(1.0)}, budget=budget(1000), verbose=True)
    assert "slow, for each of 5 fits: cube about 16 s" in capsys.readouterr().err  # by the usual exponent


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0])
def test_extrapolation_follows_the_power_of_n(p):
    sizes = np.array([200, 400, 800, 1600])
    found = extrapolate(sizes, 0.01 * sizes**p, 10 * 1600)
    measured = np.log(found / (0.01 * 1600.0**p)) / np.log(10)
    weight = np.sum(np.log(sizes / 1600) ** 2) / np.log(2) ** 2  # against one doubling with 1.5
    assert_allclose(measured, (weight * p + 1.5) / (weight + 1))
    assert_allclose(extrapolate(sizes, 0.01 * sizes**p, 3200, 3.0), 0.01 * 1600.0**p * 8)
    assert_allclose(extrapolate([200], [1.0], 800), 8.0)


def test_rest_is_the_sum_over_what_is_left():
    costs = Costs(3, workers=2, expected={0: 1.0, 1: 10.0})
    costs.add(0, 2.0)
    costs.add(0, 4.0)
    assert costs.of(0) == 3.0 and costs.of(1) == 10.0
    assert costs.rest([0, 1, 2]) == (3 + 10 + 6.5) / 2  # of the third nothing is known: the median of the others
    assert costs.order() == [2, 0, 1] and Costs(2).rest([0, 1]) is None


def test_later_folds_give_up_the_costliest_until_the_rest_fits():
    costs = Costs(4)
    for c, seconds in enumerate((1.0, 2.0, 40.0, 10.0)):
        costs.add(c, seconds)
    schedule = Schedule(budget(60), costs, 5, frozenset({0}), frozenset(), {}, 0.0)
    schedule.trim(1)
    assert schedule.left_out == {2: "about 40 s a fit"} and schedule.kept() == [0, 1, 3]
    Clock.now = 50.0
    schedule.trim(3)
    assert schedule.kept() == [0, 1]
    Clock.now = 1e6
    schedule.trim(4)
    assert schedule.kept() == [0]  # a baseline


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "about 0.2 s"), (9.0, "about 9 s"), (12.3, "about 12 s"), (120, "about 2 min"), (7200, "about 2 h")],
)
def test_durations_in_words(seconds, text):
    assert duration(seconds) == text
    assert duration(seconds, about=False) == text.removeprefix("about ")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_time_limit_ends_a_search_of_the_package():
    seen = []

    def over():
        seen.append(1)
        return len(seen) == 3

    with time_limit(over), pytest.raises(OutOfTime):
        NCA(random_state=0).fit(*IRIS)
    assert len(seen) == 3
    NCA(random_state=0, max_iter=5).fit(*IRIS)
    assert len(seen) == 3


def test_a_budget_of_no_time_is_refused():
    with pytest.raises(ValueError, match="budget=0 is the number of seconds"):
        compare(*IRIS, [], budget=0)


def test_the_candidates_of_auto_metric_by_default_and_equal_rows_once():
    side = Labels(IRIS[1])
    names = [c.name for c in resolve("default", side, 0)]
    assert names[2:] == list(DEFAULT) and len(DEFAULT) == 14
    everything = resolve("all", side, 0)
    made = [repr(c.estimator) for c in everything]
    assert len(set(made)) == len(made)
    assert {"BayesianML", "ITML"} <= {c.name for c in everything}
    note = next(n for n in compare(*IRIS, n_splits=2, budget=budget(1e9)).notes if "more methods" in n)
    assert note.startswith(f"{len(everything) - len(names)} more methods") and "--methods all" in note


# their iterations are a little algebra of matrices (d, d), or of a kernel whose eigenvectors take all the time; those
# of SDML are in scikit-learn's graphical lasso
QUICK = {"TraceRatioML", "LLERegularizedML", "LowRankGMML", "KernelLLE", "SDML"}
ITERATIVE = [
    row
    for row in all_methods(kind="estimator")
    if "iterative" in row.traits and row.family != "deep" and "matrix-samples" not in row.traits
]


@pytest.mark.parametrize("row", [r for r in ITERATIVE if r.name not in QUICK], ids=lambda r: r.name)
@pytest.mark.filterwarnings("ignore")
def test_every_iterative_method_can_be_stopped(row):
    y = np.arange(60) % 3
    X = np.random.default_rng(0).normal(size=(60, 4)) + np.eye(3, 4)[y]
    X = np.abs(X) if "histograms" in row.traits else X
    with time_limit(lambda: True), pytest.raises(OutOfTime):
        row.example().fit(X, y)
