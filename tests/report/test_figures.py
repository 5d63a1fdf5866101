"""The numbers behind the pictures, and that each picture shows them."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry.eval import Interval, pair_auc
from isometry.kernelized import Kernelized
from isometry.probabilistic.nca import NCA
from isometry.report import convergence, distance_histogram, embedding, forest, metric_heatmap, roc_curve, views
from isometry.select.result import Comparison, MethodResult
from isometry.spectral.covariance import Covariance
from isometry.spectral.rca import RCA

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 15)
    return rng.normal(size=(45, 5)) + 2 * (y[:, None] == ["a", "b", "c", "d", "e"]), y


def test_plane_keeps_the_two_widest_directions(data):
    X = data[0]
    C = X - X.mean(axis=0)
    values, vectors = np.linalg.eigh(C.T @ C)
    P = views.planar(X)
    assert_allclose(np.sum(P**2, axis=0), values[::-1][:2])
    assert_allclose(np.abs(P), np.abs(C @ vectors[:, ::-1][:, :2]), atol=1e-12)
    assert_array_equal(views.planar(X), P)
    assert_array_equal(views.planar(X[:, :2]), X[:, :2])
    assert_array_equal(views.planar(X[:, :1]), np.c_[X[:, :1], np.zeros(45)])
    with pytest.raises(ValueError, match="rows and columns"):
        views.planar(np.ones(3))


def test_pairs_are_those_of_the_equation(data):
    X, y = data
    d, similar = views.pair_sample(X, y)
    slow = [(np.linalg.norm(X[i] - X[j]), y[i] == y[j]) for i in range(45) for j in range(i + 1, 45)]
    assert_allclose(d, [v for v, _ in slow])
    assert_array_equal(similar, [s for _, s in slow])
    assert len(views.pair_sample(X, y, max_rows=10)[0]) == 45
    assert_array_equal(views.pair_sample(X, y, max_rows=10)[0], views.pair_sample(X, y, max_rows=10)[0])


def test_densities_integrate_to_one():
    d, similar = np.array([0.1, 0.2, 0.9, 4.0]), np.array([True, True, False, False])
    edges, same, different = views.densities(d, similar, bins=4)
    assert_array_equal(edges, [0, 1, 2, 3, 4])
    assert_allclose(same, [1, 0, 0, 0])
    assert_allclose(different, [0.5, 0, 0, 0.5])
    assert_array_equal(views.densities(d, np.ones(4, dtype=bool))[2], 0)


def test_remaining_share_falls_from_one_to_zero_either_way():
    assert_allclose(views.remaining([10, 6, 5, 2]), [1, 0.5, 0.375, 0])
    assert_allclose(views.remaining([2, 5, 10]), [1, 0.625, 0])
    assert_array_equal(views.remaining([3, 3]), [0, 0])
    assert_array_equal(views.remaining([]), [])


def test_leading_features_come_first():
    W = np.array([[1.0, 0.5, 0], [0.5, 9, -2], [0, -2, 2]])
    block, names = views.leading_features(W, ["a", "b", "c"], 2)
    assert names == ["b", "c"]
    assert_allclose(block, np.array([[9, -2], [-2, 2]]) / 4)
    assert views.leading_features(W, None, 9)[1] == ["x1", "x2", "x0"]
    with pytest.raises(ValueError, match="2 feature names for a metric over 3"):
        views.leading_features(W, ["a", "b"], 2)


def test_embedding_draws_every_point_once_by_class(data):
    ax = embedding(*data)
    assert sum(len(line.get_xdata()) for line in ax.lines) == 45
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "c"]
    assert_allclose(np.c_[ax.lines[1].get_data()], views.planar(data[0])[15:30])
    assert len(embedding(data[0]).lines) == 1
    assert embedding(data[0], np.arange(45)).get_legend() is None
    with pytest.raises(ValueError, match="45 rows but y has 3"):
        embedding(data[0], [1, 2, 3])


def test_heat_map_shows_the_matrix(data):
    metric = make_pipeline(StandardScaler(), RCA()).fit(*data)
    ax = metric_heatmap(metric, list("pqrst"))
    W = metric[-1].mahalanobis_
    order = np.argsort(-np.diag(W))
    assert [t.get_text() for t in ax.get_yticklabels()] == ["pqrst"[k] for k in order]
    assert_allclose(ax.images[0].get_array(), W[np.ix_(order, order)] / np.diag(W).mean())
    low, high = ax.images[0].get_clim()
    assert low == -high  # zero is the colour in the middle
    assert len(metric_heatmap(metric, max_features=2).get_yticklabels()) == 2
    with pytest.raises(TypeError, match="Kernelized is not linear"):
        metric_heatmap(Kernelized(Covariance()).fit(data[0]))
    with pytest.raises(ValueError, match="square"):
        metric_heatmap(np.ones((2, 3)))


def test_histogram_and_curve(data):
    d, similar = views.pair_sample(*data)
    ax = distance_histogram(d, similar)
    assert [p.get_label() for p in ax.patches] == ["same class", "different class"]
    assert_allclose(ax.patches[0].get_data().values, views.densities(d, similar)[1])
    ax = roc_curve(d, similar, label="RCA")
    assert ax.get_legend().get_texts()[0].get_text() == f"RCA AUC {pair_auc(d, similar):.3f}"
    x, y = ax.lines[0].get_data()
    assert_allclose(np.trapezoid(y, x), pair_auc(d, similar))


def test_convergence(data):
    metric = NCA(n_components=2, random_state=0).fit(*data)
    ax = convergence(make_pipeline(metric))
    assert_array_equal(ax.lines[0].get_ydata(), metric.history_)
    assert convergence(metric, ax) is ax and len(ax.lines) == 2
    with pytest.raises(TypeError, match="RCA keeps no history_"):
        convergence(RCA().fit(*data))


def result(name, score, difference, reliable, **more):
    values = np.linspace(0, 1, 7)
    interval = Interval(score, score - 0.05, score + 0.05)
    return MethodResult(name, RCA(), interval, difference, reliable, 0.01, values, n_fits=3, **more)


def test_forest_shows_each_difference():
    rows = [
        result("A", 0.9, Interval(0.1, 0.02, 0.3), "better"),
        result("Euclidean", 0.8, None, ""),
        result("B", 0.7, Interval(-0.1, -np.inf, np.inf), "unclear"),
        result("C", 0.6, Interval(-0.2, -0.3, -0.1), "worse"),
    ]
    comparison = Comparison(rows, "knn", "closed", 3, 1, 0.9, "", {}, {})
    ax = forest(comparison)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["C", "B", "A"]
    spans, means = ax.lines[0:6:2], ax.lines[1:6:2]
    assert_allclose([line.get_xdata() for line in spans], [[-0.3, -0.1], [-1, 1], [0.02, 0.3]])
    assert_allclose(np.ravel([line.get_xdata() for line in means]), [-0.2, -0.1, 0.1])
    assert [line.get_color() for line in means] == [views.WORSE, views.UNCLEAR, views.BETTER]
    assert ax.get_xlabel() == "knn − Euclidean, 90 % interval"
    with pytest.raises(ValueError, match="no metric was compared"):
        forest(Comparison(rows[1:2], "knn", "closed", 3, 1, 0.9, "", {}, {}))
