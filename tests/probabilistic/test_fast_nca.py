import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context

from isometry.core import graph
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.probabilistic import NCA, FastNCA
from isometry.supervision import Labels


def slow_neighbors(X, y, i, k):
    """H_i and M_i by sorting."""
    order = [j for j in np.argsort(np.sum((X - X[i]) ** 2, axis=1), kind="stable") if j != i]
    return [j for j in order if y[j] == y[i]][:k], [j for j in order if y[j] != y[i]][:k]


def slow_hit_probability(L, X, y, i, k):
    hits, misses = slow_neighbors(X, y, i, k)
    e = {j: np.exp(-np.sum((L @ (X[i] - X[j])) ** 2)) for j in hits + misses}
    return sum(e[j] for j in hits) / sum(e.values())


def slow_fast_nca(L, X, y, k, reg=0.0):
    return np.mean([slow_hit_probability(L, X, y, i, k) for i in range(len(X))]) - reg * np.sum(L**2)


def problem(X, y, **params):
    return FastNCA(strength=1.0, **params)._objective(X - X.mean(axis=0), Labels(y), None)


@pytest.fixture
def data(overlapping):
    return overlapping(sizes=(9, 6, 3, 1), d=4)  # classes smaller than k + 1, one of them alone


@pytest.mark.parametrize("k", [1, 4, 7])
def test_P06a_value_and_gradient_with_small_classes(data, numeric_gradient, k):
    X, y = data
    L = np.random.default_rng(k).standard_normal((2, 4)) / 2
    value, gradient = problem(X, y, n_neighbors=k, reg=0.1)(L)
    assert_allclose(value, -slow_fast_nca(L, X, y, k, 0.1), rtol=1e-12)
    assert_allclose(gradient, numeric_gradient(lambda M: -slow_fast_nca(M, X, y, k, 0.1), L), rtol=1e-6, atol=1e-8)


def test_P06b_all_neighbours_is_regularised_nca(data):
    X, y = data
    L = np.random.default_rng(1).standard_normal((3, 4))
    fast, exact = (
        problem(X, y, n_neighbors=100, reg=0.2),
        NCA(reg=0.2, strength=1.0)._objective(X - X.mean(axis=0), Labels(y), None),
    )
    assert_allclose(fast(L)[0], exact(L)[0], rtol=1e-12)
    assert_allclose(fast(L)[1], exact(L)[1], rtol=1e-10, atol=1e-13)
    assert_allclose(fast.metric_gradient(L), exact.metric_gradient(L), rtol=1e-10, atol=1e-13)
    both = [
        m(2, reg="auto", tol=1e-8, max_iter=500, strength=1.0, **kw).fit(X, y)
        for m, kw in ((FastNCA, {"n_neighbors": 100}), (NCA, {}))
    ]
    assert_allclose(both[0].reg_, both[1].reg_, rtol=1e-10)
    assert_allclose(both[0].mahalanobis_, both[1].mahalanobis_, rtol=1e-3, atol=1e-4)


def test_P06c_far_away_points_leave_the_old_anchors_alone(data):
    X, y = data
    keep = y < 2  # classes with more than k members
    X, y, k = X[keep], y[keep], 3
    n = len(X)
    far = 1e3 + np.random.default_rng(2).standard_normal((5, 4))
    X2, y2 = np.vstack([X, far]), np.append(y, [0, 0, 0, 0, 0])
    L = np.random.default_rng(3).standard_normal((2, 4)) / 2
    before, after = (problem(A, b, n_neighbors=k, reg=0.0) for A, b in ((X, y), (X2, y2)))
    Z, Z2 = X @ L.T, X2 @ L.T
    for rows in (slice(0, 4), slice(4, n)):
        old, new = (p.loss(p.edges.sqdist(z)[rows], rows) for p, z in ((before, Z), (after, Z2)))
        assert_allclose(np.array(new[0]) * len(X2), old[0] * n, rtol=1e-12)  # both are means
        assert_allclose(new[1] * len(X2), old[1] * n, rtol=1e-12, atol=1e-15)
        assert np.array_equal(before.edges.index[rows], after.edges.index[rows])


def test_P06d_the_probability_of_a_hit_rises(planted):
    X, y = planted
    fit = FastNCA(2, n_neighbors=5, init="pca", max_iter=500, strength=1.0).fit(X, y)
    before, after = -fit.history_[0], -fit.history_[-1]
    assert after > before + 0.2
    assert_allclose(slow_fast_nca(fit.components_, X, y, 5, fit.reg_), after, rtol=1e-9)


def test_blocks_do_not_matter(overlapping):
    X, y = overlapping(sizes=(120, 80), d=3)
    objective, L = problem(X, y), np.random.default_rng(1).standard_normal((2, 3))
    value, gradient = objective(L)
    with config_context(working_memory=0.01):  # MiB: a few rows at a time
        small = objective(L)
    assert_allclose(small[0], value, rtol=1e-12)
    assert_allclose(small[1], gradient, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("one_index_first", [False, True])
def test_neighbour_search_is_exact(data, monkeypatch, one_index_first):
    X, y = data
    monkeypatch.setattr(graph, "MANY_CLASSES", 0 if one_index_first else 100)
    for k in (2, 5):
        hits, misses = target_neighbors(X, y, k), nearest_misses(X, y, k)
        for i in range(len(X)):
            H, M = slow_neighbors(X, y, i, k)
            assert [j for j in hits[i] if j >= 0] == H
            assert [j for j in misses[i] if j >= 0] == M


def test_unlabelled_rows_are_nobodys_neighbour(data):
    X, y = data
    y = np.where(np.arange(len(y)) % 4 == 0, -1, y)
    misses, hits = nearest_misses(X, y, 3), target_neighbors(X, y, 3)
    assert np.all(misses[y < 0] == -1)
    assert np.all(hits[y < 0] == -1)
    assert np.all(y[misses[misses >= 0]] >= 0)
    assert np.all(y[hits[hits >= 0]] >= 0)


def test_P06_neighbours_are_sought_anew_in_the_learned_space(planted):
    """n_updates: the search goes on over the hits and misses of the learned space, and ends where it gains no more."""
    X, y = planted
    settings = {"n_neighbors": 5, "init": "pca", "reg": 1e-3, "max_iter": 500}
    once, more = (FastNCA(2, n_updates=k, strength=1.0, **settings).fit(X, y) for k in (0, 20))

    def on_its_own_graph(L, k=5):  # Σ p_i over neighbours in the learned space, point by point
        Z, total = X @ L.T, 0.0
        for i in range(len(X)):
            hits, misses = slow_neighbors(Z, y, i, k)
            e = {j: np.exp(-np.sum((Z[i] - Z[j]) ** 2)) for j in hits + misses}
            total += sum(e[j] for j in hits) / sum(e.values())
        return total / len(X) - 1e-3 * np.sum(L**2)

    assert more.n_iter_ > once.n_iter_
    assert_allclose(more.history_[: len(once.history_)], once.history_, rtol=1e-12)
    assert on_its_own_graph(more.components_) > on_its_own_graph(once.components_) + 1e-3


@pytest.mark.parametrize("params", [{"n_neighbors": 0}, {"n_updates": -1}])
def test_wrong_parameters_are_named(data, params):
    with pytest.raises(ValueError, match="=".join(str(v) for v in next(iter(params.items())))):
        FastNCA(strength=1.0, **params).fit(*data)
