"""Distances, scatters, moments, edges: each fast form against the sum written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose

from isometry import FixedMetric
from isometry.core.distance import pair_distances, pair_sqdist, row_blocks, sqdist, sqdist_blocks
from isometry.core.edges import DenseEdges, ListedEdges
from isometry.core.graph import components, nearest_allowed, target_neighbors
from isometry.core.moments import ArrayMoments, StreamMoments, all_pair_scatters, total_scatter
from isometry.core.objective import DistanceObjective
from isometry.core.scatter import laplacian, pair_scatter, scatter


def slow_scatter(X, pairs, weights):
    S = np.zeros((X.shape[1], X.shape[1]))
    for (i, j), w in zip(pairs, weights):
        S += w * np.outer(X[i] - X[j], X[i] - X[j])
    return S


@pytest.fixture
def data(rng):
    return rng.standard_normal((20, 3)) + 5, rng.integers(0, 3, 20)


def test_sqdist_is_the_sum_of_squares(data):
    X, _ = data
    slow = np.array([[np.sum((a - b) ** 2) for b in X[:7]] for a in X])
    assert_allclose(sqdist(X, X[:7]), slow, atol=1e-12)
    assert sqdist(X).min() >= 0


def test_distances_whose_squares_overflow_are_refused():
    Z = np.array([[0.0, 0.0], [3.0, 4.0], [1e200, 0.0]])
    assert_allclose(pair_distances(Z, np.array([0]), np.array([1])), [5.0])
    with pytest.raises(ValueError, match=r"rows 1 and 2 is too large: its square overflows float64"):
        pair_distances(Z, np.array([0, 1]), np.array([1, 2]))
    metric = FixedMetric(np.eye(2)).fit(Z[:2])
    for args in ((Z, [[0, 2]]), (Z[None, [0, 2]],)):
        with pytest.raises(ValueError, match="is too large"):
            metric.pair_distance(*args)


def test_pair_sqdist_and_blocks(data):
    X, _ = data
    i, j = np.triu_indices(20, 1)
    D = sqdist(X)
    with sklearn.config_context(working_memory=0.001):
        assert len(list(row_blocks(20, 20 * 8))) > 1
        assert_allclose(pair_sqdist(X, i, j), D[i, j], atol=1e-12)
        blocks = np.vstack([block.copy() for _, block in sqdist_blocks(X)])
    assert np.isinf(np.diag(blocks)).all()
    np.fill_diagonal(blocks, 0)
    np.fill_diagonal(D, 0)
    assert_allclose(blocks, D, atol=1e-12)


def test_blocks_of_nothing():
    assert list(row_blocks(0, 8)) == []


@pytest.mark.parametrize("form", ["dense", "sparse", "listed"])
def test_scatter_is_the_sum_of_outer_products(data, rng, form):
    X, _ = data
    A = np.where(rng.random((20, 20)) < 0.3, rng.standard_normal((20, 20)), 0)  # not symmetric, signs mixed
    pairs = np.argwhere(A != 0)
    slow = slow_scatter(X, pairs, A[A != 0])
    if form == "listed":
        fast = pair_scatter(X, pairs[:, 0], pairs[:, 1], A[A != 0])
    else:
        fast = scatter(X, A if form == "dense" else sp.csr_matrix(A))
    assert_allclose(fast, slow, atol=1e-10)


def test_laplacian_rows_sum_to_zero(rng):
    A = rng.random((6, 6))
    assert_allclose(laplacian(A).sum(axis=1), 0, atol=1e-12)
    assert_allclose(laplacian(sp.csr_matrix(A)).toarray(), laplacian(A), atol=1e-12)


@pytest.mark.parametrize("kind", ["array", "stream"])
def test_all_pair_scatters_from_moments(data, kind):
    X, y = data
    moments = ArrayMoments(X, y) if kind == "array" else StreamMoments(3).update(X[:9], y[:9]).update(X[9:], y[9:])
    S, D, n_s, n_d = all_pair_scatters(moments)
    i, j = np.triu_indices(20, 1)
    same = y[i] == y[j]
    assert (n_s, n_d) == (same.sum(), (~same).sum())
    assert_allclose(S, slow_scatter(X, zip(i[same], j[same]), np.ones(same.sum())), rtol=1e-10)
    assert_allclose(D, slow_scatter(X, zip(i[~same], j[~same]), np.ones((~same).sum())), rtol=1e-10)


def test_equal_classes_take_the_short_cut_to_the_same_scatter(rng):
    X, y = rng.standard_normal((12, 2)), np.repeat([0, 1, 2], 4)
    S, D, *_ = all_pair_scatters(ArrayMoments(X, y))
    i, j = np.triu_indices(12, 1)
    same = y[i] == y[j]
    assert_allclose(S, slow_scatter(X, zip(i[same], j[same]), np.ones(same.sum())), rtol=1e-12)
    assert_allclose(D, slow_scatter(X, zip(i[~same], j[~same]), np.ones((~same).sum())), rtol=1e-12)


def test_moments_merge_in_any_order_and_leave_out_unlabelled_rows(data, rng):
    X, y = data
    y = np.where(rng.random(20) < 0.2, -1, y)
    whole = StreamMoments(3).update(X, y)
    parts = [StreamMoments(3).update(X[k::3], y[k::3]) for k in (2, 0, 1)]
    merged = parts[0].merge(parts[1]).merge(parts[2])
    arrays = ArrayMoments(X, y)
    w = np.array([0.5, 2.0, 1.0])
    for other in (merged, arrays):
        assert_allclose(other.counts, whole.counts)
        assert_allclose(other.means, whole.means, rtol=1e-12)
        assert_allclose(other.within(w)[0], whole.within(w)[0], rtol=1e-9)
    labelled = X[y >= 0] - X[y >= 0].mean(axis=0)
    assert_allclose(total_scatter(arrays, arrays.within(np.ones(3))[0]), labelled.T @ labelled, rtol=1e-9)


def test_moments_far_from_the_origin_do_not_cancel(rng):
    X, y = rng.standard_normal((500, 4)), rng.integers(0, 3, 500)
    near, far = (ArrayMoments(X + shift, y).within(np.ones(3))[0] for shift in (0.0, 1e6))
    assert_allclose(far, near, rtol=1e-6)
    single = ArrayMoments((X + 100).astype(np.float32), y).within(np.ones(3))[0]
    assert_allclose(single, near, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize("dense", [True, False])
def test_edges_pull_is_the_laplacian_times_the_features(data, rng, dense):
    """Value and pull of f = Σ c_ij sin(d_ij) for both kinds of edges, against the Laplacian of its slopes."""
    Z, _ = data
    V = rng.standard_normal((20, 5))
    C = rng.standard_normal((20, 20))
    np.fill_diagonal(C, 0)
    D = sqdist(Z)
    if dense:
        edges = DenseEdges(20)

        def loss(d, rows):
            d = np.where(np.isinf(d), 0, d)
            return (C[rows] * np.sin(d)).sum(), C[rows] * np.cos(d)

    else:
        i, j = np.nonzero(C)
        edges = ListedEdges(i, j, 20)

        def loss(d, where):
            return (C[i[where], j[where]] * np.sin(d)).sum(), C[i[where], j[where]] * np.cos(d)

    for working_memory in (64, 0.002):
        with sklearn.config_context(working_memory=working_memory):
            value, pull = edges.evaluate(Z, loss)
            _, other = edges.evaluate(Z, loss, V=V)
        assert_allclose(value, (C * np.sin(D)).sum(), rtol=1e-10)
        assert_allclose(pull, laplacian(C * np.cos(D)) @ Z, atol=1e-9)
        assert_allclose(other, laplacian(C * np.cos(D)) @ V, atol=1e-9)


def test_objective_gradients_by_finite_differences(data, rng):
    X, _ = data
    X = X - X.mean(axis=0)
    i, j = np.triu_indices(20, 1)
    objective = DistanceObjective(
        X,
        ListedEdges(i, j, 20),
        lambda d, where: (np.log1p(d).sum(), 1 / (1 + d)),
        penalty=lambda L: (float(np.sum(L**4)), 4 * L**3),
        linear=np.diag([1.0, 2.0, 3.0]),
    )
    L, h = rng.standard_normal((2, 3)), 1e-6
    _, g = objective(L)
    for index in np.ndindex(L.shape):
        e = np.zeros_like(L)
        e[index] = h
        assert_allclose(g[index], (objective(L + e)[0] - objective(L - e)[0]) / (2 * h), rtol=1e-6)
    bare = DistanceObjective(X, objective.edges, objective.loss, linear=objective.linear)
    assert_allclose(2 * L @ bare.metric_gradient(L), bare(L)[1], rtol=1e-10)


def test_nearest_allowed_breaks_ties_by_index():
    X = np.array([[0.0], [1.0], [1.0], [-1.0], [5.0]])
    index, dist = nearest_allowed(X, 2, lambda rows: np.ones((rows.stop - rows.start, 5), bool))
    assert index[0].tolist() == [1, 2] and dist[0].tolist() == [1, 1]
    only, far = nearest_allowed(
        X, 3, lambda rows: np.tile([False, True, False, False, True], (rows.stop - rows.start, 1))
    )
    assert only[0].tolist() == [1, 4, -1] and np.isinf(far[0, 2])


def test_target_neighbors_are_the_nearest_of_the_class(data):
    X, y = data
    y = np.where(np.arange(20) == 4, 3, y)  # a class of one
    targets = target_neighbors(X, y, 2)
    D = sqdist(X)
    for i in range(20):
        mates = [j for j in np.argsort(D[i], kind="stable") if j != i and y[j] == y[i]][:2]
        assert [j for j in targets[i] if j >= 0] == mates


def test_components():
    assert components(np.array([0, 3]), np.array([1, 4]), 5).tolist() == [0, 0, 1, 2, 2]
