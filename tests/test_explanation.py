"""What a metric looks at: shares of features add up, are Shapley values, and their intervals cover the truth."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import GMML, KDCA, RCA, FixedMetric, Kernelized, Pairs, explain
from isometry.explanation import feature_shares, spread


@pytest.fixture(scope="module")
def wine():
    return load_wine()


def fixed(W):
    return FixedMetric(mahalanobis=W)


def random_metric(d, seed=0):
    A = np.random.default_rng(seed).normal(size=(d, d))
    return A @ A.T


def test_shares_of_a_linear_metric_are_shapley_values():
    rng = np.random.default_rng(0)
    W, X = random_metric(4), rng.normal(size=(30, 4)) * [1, 10, 0.1, 3]
    found = explain(fixed(W).fit(X), X)
    delta = X[7] - X[3]
    values = np.zeros(4)
    orders = list(permutations(range(4)))
    for order in orders:  # what each feature adds to the squared distance of the features before it
        present = np.zeros(4)
        for j in order:
            without = present @ W @ present
            present[j] = delta[j]
            values[j] += (present @ W @ present - without) / len(orders)
    assert found.linear
    np.testing.assert_allclose(found.distance(3, 7), values, rtol=1e-9, atol=1e-9 * np.abs(values).max())


def test_importance_is_the_mean_share_over_all_pairs():
    rng = np.random.default_rng(1)
    W, X = random_metric(3, 1), rng.normal(size=(25, 3)) @ rng.normal(size=(3, 3))
    found = explain(fixed(W).fit(X), X)
    shares = np.array([(a - b) * (W @ (a - b)) for a in X for b in X])
    np.testing.assert_allclose(found.importance, shares.sum(axis=0) / shares.sum(), rtol=1e-9)
    assert found.importance.sum() == pytest.approx(1, abs=1e-12)


def test_units_and_offsets_of_features_do_not_matter(wine):
    model = make_pipeline(StandardScaler(), GMML(reg=0.1)).fit(wine.data, wine.target)
    inside = explain(model[-1], model[0].transform(wine.data))
    whole = explain(model, wine.data)
    np.testing.assert_allclose(whole.importance, inside.importance, atol=1e-8)
    projected = make_pipeline(StandardScaler(), PCA(5), GMML(reg=0.1)).fit(wine.data, wine.target)
    found = explain(projected, wine.data)
    assert found.linear and len(found.importance) == 13  # of the columns, not of the components


def test_shares_of_a_curved_metric_add_up(wine):
    X = StandardScaler().fit_transform(wine.data)
    metric = KDCA(reg=0.1).fit(X, wine.target)
    found = explain(metric, X, n_draws=2)
    assert not found.linear
    assert found.incomplete < 1e-3
    for i, j in ((0, 100), (3, 70)):
        squared = metric.pair_distance(X, [[i, j]])[0] ** 2
        assert found.distance(i, j).sum() == pytest.approx(squared, rel=1e-2)


def test_a_curved_map_that_is_linear_after_all_gives_the_linear_shares(wine):
    X = StandardScaler().fit_transform(wine.data)
    metric = Kernelized(GMML(reg=0.1), kernel="linear").fit(X, wine.target)
    A, B, s = X[:5], X[60:65], spread(X)
    straight, bent = (feature_shares(metric.transform, A, B, s, linear) for linear in (True, False))
    np.testing.assert_allclose(straight, bent, rtol=1e-6, atol=1e-8 * np.abs(straight).max())


def test_a_planted_feature_is_found_and_its_interval_allows_for_the_sample():
    """Intervals of 95 % around the importance in a half sample's spread cover that of a very large sample."""

    def draw(n, seed):
        rng = np.random.default_rng(seed)
        y = np.arange(n) % 2
        return rng.normal(size=(n, 4)) * [0.3, 1, 1, 2] + np.outer(y, [1, 0, 0, 0]), y

    X, y = draw(200_000, 1000)
    truth = explain(RCA(reg=0).fit(X, y), X).importance
    covered = 0
    for seed in range(60):
        X, y = draw(150, seed)
        found = explain(RCA(reg=0).fit(X, y), X, y, n_draws=30, random_state=seed)
        assert found.varied == "metric"
        covered += np.sum((found.low <= truth) & (truth <= found.high))
    assert truth.argmax() == 0
    assert covered / 240 >= 0.88  # 0.95 less three standard errors of 60 independent samples


def test_changed_pairs_and_neighbors_agree_with_distances(wine):
    X = StandardScaler().fit_transform(wine.data)
    metric = GMML(reg=0.1).fit(X, wine.target)
    found = explain(metric, X, names=wine.feature_names)
    D = [np.linalg.norm(V[:, None] - V, axis=2) for V in (X, metric.transform(X))]
    D = [d / np.sqrt(np.mean(d**2)) for d in D]
    nearer, farther = found.changed(5)
    assert nearer and farther
    for pair in (*nearer, *farther):
        assert pair.factor == pytest.approx(D[1][pair.i, pair.j] / D[0][pair.i, pair.j], rel=1e-9)
    assert nearer[0].factor <= nearer[-1].factor < 1 < farther[-1].factor <= farther[0].factor
    before, after = found.neighbors([0, 50], 4)
    for mine, d in ((before, D[0]), (after, D[1])):
        for row, near in zip((0, 50), mine, strict=True):
            order = np.argsort(d[row], kind="stable")
            assert set(near) == set([k for k in order if k != row][:4])


def test_the_ball_has_learned_radius_one(wine):
    X = StandardScaler().fit_transform(wine.data)
    metric = GMML(reg=0.1).fit(X, wine.target)
    found = explain(metric, X, names=wine.feature_names)
    points = found.ball("proline", 6)
    Z = metric.transform(X)
    unit = np.sqrt(2 * Z.var(axis=0).sum())
    steps = np.zeros((len(points), 13))
    steps[:, [wine.feature_names.index("proline"), 6]] = points
    length = np.linalg.norm(metric.transform(steps) - metric.transform(np.zeros((1, 13))), axis=1)
    np.testing.assert_allclose(length, unit, rtol=1e-9)


def test_pairs_are_enough_for_the_interval(wine):
    X = StandardScaler().fit_transform(wine.data)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(X), (2, 800))
    keep = i < j
    pairs = Pairs(i[keep], j[keep], wine.target[i[keep]] == wine.target[j[keep]], n=len(X))
    found = explain(GMML(reg=0.1).fit(X, pairs), X, pairs, n_draws=5)
    assert found.varied == "metric" and np.all(found.low <= found.importance)


def test_tables_with_text_and_gaps_are_explained_by_the_columns_they_become():
    import pandas as pd

    from isometry.io.prepare import preparation
    from isometry.select.inputs import make_scaler

    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    frame = pd.DataFrame({"size": rng.normal(size=90) + y, "colour": np.array(["red", "green", "blue"])[y]})
    frame.loc[3, "size"] = np.nan
    model = make_pipeline(preparation(frame, make_scaler("standard")), GMML(reg=0.1)).fit(frame, y)
    found = explain(model, frame)
    assert any("colour" in name for name in found.names) and any("size" in name for name in found.names)
    assert found.importance.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m, X: explain(m, X, level=2), "between 0 and 1"),
        (lambda m, X: explain(m, X, n_draws=1), "at least 2"),
        (lambda m, X: explain(m, X[:2]), "at least 3"),
        (lambda m, X: explain(m, X, np.zeros(3)), "one label for each sample"),
        (lambda m, X: explain(m, X, names=["a"]), "1 names for 4 features"),
        (lambda m, X: explain(m, np.where(np.arange(4) == 1, np.nan, X)), "rows 0, 1, 2, 3, 4 hold gaps"),
        (lambda m, X: explain(m, X).distance(0, 1000), "row 1000 does not exist"),
        (lambda m, X: explain(m, X).distance(0, [1.0]), "4 finite features"),
        (lambda m, X: explain(m, X).ball("nothing", 0), "no feature 'nothing'"),
        (lambda m, X: explain(m, X).ball(9, 0), "feature 9 does not exist"),
        (lambda m, X: explain(m, X).neighbors([500]), "between 0 and 149"),
        (lambda m, X: explain(m, X).neighbors([0], 150), "choose between 1 and 149"),
    ],
)
def test_bad_input_is_named(call, says):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=says):
        call(GMML(reg=0.1).fit(X, y), X)


def test_jumps_that_slopes_do_not_show_are_told():
    class Steps:
        """One jump: its slopes are 0 almost everywhere."""

        def transform(self, X):
            return (np.asarray(X)[:, :1] > 0).astype(float)

    X = np.random.default_rng(0).normal(size=(40, 3)) * 3
    with pytest.warns(UserWarning, match="jumps or bends"):
        explain(Steps(), X)
