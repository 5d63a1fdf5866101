"""Targets of a regression as supervision: values, slices, cutting, the score, and comparisons by it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsRegressor

from isometry import LMNN, MLKR, Euclidean, Labels, Pairs, PairVerifier, Targets, compare
from isometry.base import LinearMetric, MetricLearner
from isometry.eval import SCORERS, get_scorer, knn_residuals, loo_residuals, r2_values
from isometry.select.folds import make_plan
from isometry.supervision import Slices, as_supervision


class Regressor(LinearMetric):
    """The identity, from targets."""

    _sees = (Targets,)

    def _fit(self, X, side):
        self.side_ = side
        self._store(np.eye(X.shape[1]), X.dtype)


def regression(n=80, d=4, q=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :q] + 0.1 * rng.standard_normal((n, q))


def test_S1_values_shape_and_cutting():
    one, two = Targets([3, 1, 2]), Targets([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    assert one.values.tolist() == [[3.0], [1.0], [2.0]] and one.shape == (3,) and one.ndim == 1 and len(one) == 3
    assert two.shape == (3, 2) and two.ndim == 2 and one.kind == "targets"
    assert one[np.array([2, 2, 0])].values.ravel().tolist() == [2, 2, 3]  # a bootstrap may repeat rows
    assert two[1:].values.tolist() == [[3, 4], [5, 6]]
    assert one.components().tolist() == [0, 1, 2]
    assert Targets(two).values is not None and Targets(two).shape == (3, 2)
    for edges in ("similar", "dissimilar"):
        with pytest.raises(NotImplementedError, match="targets have no"):
            getattr(one, edges)


@pytest.mark.parametrize(
    "y, message",
    [
        ([1.0, np.nan, 2.0], "1 missing or infinite targets.* row 1"),
        ([1.0, 2.0, np.inf], "1 missing or infinite targets.* row 2"),
        (["a", "b", "c"], "targets must be numbers, and y holds 'a'"),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        (np.zeros((3, 0)), r"got shape \(3, 0\)"),
    ],
)
def test_S1_bad_targets_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        Targets(y)


def test_S1_integers_are_numbers_only_for_methods_of_targets():
    X, _ = regression(6)
    assert isinstance(Regressor().fit(X, [3, 1, 2, 2, 1, 3]).side_, Targets)
    assert isinstance(as_supervision([3, 1, 2]), Labels) and isinstance(as_supervision([3, 1], numbers=True), Targets)
    with pytest.raises(ValueError, match="continuous"):
        LMNN().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="y has 5 entries but X has 6 rows"):
        Regressor().fit(X, np.arange(5))


def test_S1_constant_targets_are_refused_and_a_constant_column_is_not():
    X, y = regression(20)
    with pytest.raises(ValueError, match=r"Regressor needs targets that vary; y is constant, \[7.0\]"):
        Regressor().fit(X, np.full(20, 7))
    with pytest.raises(ValueError, match="the targets are constant"):
        Regressor().fit(X, y).score(X, np.ones(20))
    side = Regressor().fit(X, np.c_[np.ones(20), y]).side_
    assert_allclose(side.varying, y)


def test_S1_pairs_are_no_targets():
    X, _ = regression(6)
    with pytest.raises(TypeError, match="learns from targets; it cannot use pairs"):
        Regressor().fit(X, Pairs([0], [1], [True], n=6))
    with pytest.raises(ValueError, match="PairVerifier needs labels, pairs"):
        PairVerifier(Euclidean()).fit(X, Targets(X[:, 0]))


def test_S1_quantile_slices_hold_equally_many_and_ties_share_one():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(100)
    codes = Targets(y).to(Labels).codes
    assert np.bincount(codes).tolist() == [10] * 10
    assert np.all(np.diff(codes[np.argsort(y)]) >= 0)  # in the order of y
    tied = np.round(y)
    codes = Slices.of(Targets(tied), 4).codes(Targets(tied))
    assert all(len(np.unique(codes[tied == v])) == 1 for v in np.unique(tied))
    assert Slices.of(Targets([5, 5, 5, 1, 9, 9]), 3).codes(Targets([5, 1, 9])).tolist() == [1, 0, 2]


@pytest.mark.parametrize("end", ["largest", "smallest"])
def test_S1_slices_are_at_least_two_however_many_values_are_equal(end):
    y = np.r_[np.zeros(95), -np.arange(1, 13.0)] * (1 if end == "largest" else -1)
    codes = Targets(y).to(Labels).codes
    assert len(np.unique(codes)) >= 2


def test_S1_slices_of_several_targets_are_clusters():
    rng = np.random.default_rng(1)
    group = np.arange(60) % 3
    Y = np.array([[0, 0], [1, 1000], [2, -1000]])[group] + 0.01 * rng.standard_normal((60, 2)) * [1, 1000]
    codes = Slices.of(Targets(Y), 3).codes(Targets(Y))
    assert len(set(zip(group.tolist(), codes.tolist()))) == 3
    assert Targets(Y).to(Labels) is None


def test_S1_methods_of_labels_learn_from_slices_when_told_that_y_are_targets():
    X, y = regression(60)
    a, b = LMNN().fit(X, Targets(y)), LMNN().fit(X, Targets(y).to(Labels))
    assert_allclose(a.components_, b.components_)


@pytest.mark.parametrize("q", [1, 2])
def test_S1_score_is_the_r2_of_leave_one_out_5_nn(q):
    X, Y = regression(40, q=q)
    predicted = np.empty_like(Y)
    for i in range(40):
        others = np.arange(40) != i
        predicted[i] = KNeighborsRegressor(5).fit(X[others], Y[others]).predict(X[i : i + 1])
    expected = r2_score(Y, predicted)
    y = Y[:, 0] if q == 1 else Y
    assert_allclose(Regressor().fit(X, y).score(X, y), expected, rtol=1e-12)
    assert_allclose(Euclidean().fit(X).score(X, Targets(y)), expected, rtol=1e-12)
    assert_allclose(get_scorer("knn_r2")(Euclidean().fit(X), X, y), expected, rtol=1e-12)
    assert "knn_r2" in SCORERS


def test_S1_residuals_of_a_gallery():
    X, Y = regression(50, q=2)
    fitted = KNeighborsRegressor(3).fit(X[:30], Y[:30])
    residuals = knn_residuals(X[:30], Y[:30], X[30:], Y[30:], k=3)
    assert_allclose(residuals, Y[30:] - fitted.predict(X[30:]))
    assert_allclose(r2_values(residuals, Y[30:]).mean(), r2_score(Y[30:], fitted.predict(X[30:])))
    assert loo_residuals(X[:3], Y[:3]).shape == (3, 2)  # no more neighbours than there are
    with pytest.raises(ValueError, match="50 rows but there are 30 targets"):
        loo_residuals(X, Y[:30])


def test_S1_lives_inside_scikit_learn():
    X, y = regression(60)
    scores = cross_val_score(Regressor(), X, y.ravel(), cv=KFold(3, shuffle=True, random_state=0))
    assert scores.shape == (3,) and np.isfinite(scores).all()
    a, b = train_test_split(Targets(y), random_state=0)
    assert isinstance(a, Targets) and len(a) == 45 and len(b) == 15
    assert Regressor().__sklearn_tags__().target_tags.multi_output
    assert not Euclidean().__sklearn_tags__().target_tags.multi_output


def test_S1_folds_are_plain():
    plan = make_plan(Targets(np.arange(23)), "closed", 5, 2, np.random.RandomState(0))
    assert plan.groups is None and len(plan.splits) == 10
    assert sorted(np.concatenate([s.test for s in plan.splits[:5]]).tolist()) == list(range(23))
    with pytest.raises(ValueError, match="at least 10 samples"):
        make_plan(Targets(np.arange(9)), "closed", 5, 1, np.random.RandomState(0))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("q", [1, 2])
def test_S1_compare_scores_targets_by_r2(q, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6)) * [1, 1, 5, 5, 5, 5]
    Y = X[:, :q] + 0.05 * rng.standard_normal((90, q))
    learners = [("weighted", _Weighted())]
    result = compare(X, Y[:, 0] if q == 1 else Targets(Y), learners, scaler=None, n_splits=3)
    scores = {r.name: r.score.mean for r in result.results}
    assert result.scoring == "knn_r2" and result.best == "weighted" and "R²" in result.verdict
    assert scores["weighted"] > 0.8 > 0.6 > scores["Euclidean"]
    assert "knn_r2" in result.report(tmp_path / "page.html", X, Y[:, 0] if q == 1 else Targets(Y)).read_text()
    with pytest.raises(ValueError, match="does not suit targets: choose 'knn_r2'"):
        compare(X, Targets(Y), learners, scoring="knn")
    with pytest.raises(ValueError, match="y is constant"):
        compare(X, Targets(np.ones(90)), learners)


class _Weighted(MetricLearner):
    """The first two features alone."""

    _sees = (Targets,)

    def _fit(self, X, side):
        self.fitted_ = True

    def _transform(self, X):
        return X[:, :2]


def test_codes_of_classes_are_not_taken_for_numbers_without_a_word():
    """Said where a method could take them for either, and only then."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 4
    with pytest.warns(UserWarning, match=r"whole numbers from 0 to 3, as codes of classes do, and MLKR takes .*Labels"):
        as_numbers = MLKR(strength=1.0, max_iter=5).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        said = MLKR(strength=1.0, max_iter=5).fit(X, Targets(y))
        classes = MLKR(strength=1.0, max_iter=5).fit(X, Labels(y))
        for numbers in (y + 1, y.astype(float), 10 * y, np.arange(60), y % 2, rng.poisson(30, size=60)):
            MLKR(strength=1.0, max_iter=5).fit(X, numbers)
    assert np.array_equal(as_numbers.components_, said.components_)
    assert np.abs(said.components_ - classes.components_).max() > 1e-3
