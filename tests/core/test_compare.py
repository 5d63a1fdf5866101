"""Comparisons as edges, and comparisons drawn from labels, against loops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context

from isometry import Labels, NeighborTriplets, OrdinalTriplets, Quadruplets, RandomComparisons, Triplets
from isometry.core.basis import BasisProblem
from isometry.core.compare import ComparisonEdges
from isometry.core.frame import Frame
from isometry.core.objective import DistanceObjective
from isometry.core.start import mean_sqdist
from isometry.sampling import comparisons
from tests.conftest import make_blobs
from tests.differences import central_differences


def random_edges(rng, m=30, n=9):
    i, k = rng.integers(0, n, size=(2, m))
    return ComparisonEdges(i, (i + rng.integers(1, n, m)) % n, k, (k + rng.integers(1, n, m)) % n, n)


def product_loss(d, where):
    """Σ near² + near · far: slopes that differ in the two pairs."""
    return float(np.sum(d[0] ** 2 + d[0] * d[1])), np.stack([2 * d[0] + d[1], d[0]])


def slow_value(edges, Z):
    total = 0.0
    for i, j, k, l in zip(edges.i, edges.j, edges.k, edges.l, strict=True):
        near, far = np.sum((Z[i] - Z[j]) ** 2), np.sum((Z[k] - Z[l]) ** 2)
        total += near**2 + near * far
    return total


def test_S2_value_and_pull_are_those_of_loops(rng):
    edges, Z = random_edges(rng), rng.standard_normal((9, 3))
    value, pull = edges.evaluate(Z, product_loss)
    assert_allclose(value, slow_value(edges, Z), rtol=1e-12)
    assert_allclose(2 * pull, central_differences(lambda Z: slow_value(edges, Z), Z), rtol=1e-6, atol=1e-5)
    gaps = [np.sum((Z[edges.i[t]] - Z[edges.j[t]]) ** 2) - np.sum((Z[edges.k[t]] - Z[edges.l[t]]) ** 2) for t in (0, 7)]
    assert_allclose(edges.gaps(Z)[[0, 7]], gaps, rtol=1e-10)


def test_S2_gradients_in_map_and_metric_agree_and_blocks_do_not_matter(rng):
    edges, X, L = random_edges(rng, 200), rng.standard_normal((9, 4)), rng.standard_normal((2, 4))
    objective = DistanceObjective(X, edges, product_loss)
    value, gradient = objective(L)
    assert_allclose(gradient, central_differences(lambda L: objective(L)[0], L), rtol=1e-6, atol=1e-4)
    in_metric, G = objective.in_metric(L)
    assert_allclose(2 * L @ G, gradient, rtol=1e-10)
    assert_allclose(in_metric, value, rtol=1e-12)
    with config_context(working_memory=0.002):
        assert_allclose(objective(L)[1], gradient, rtol=1e-10)


def test_S2_batches_average_to_the_whole(rng):
    edges, X, L = random_edges(rng, 40), rng.standard_normal((9, 4)), rng.standard_normal((2, 4))
    objective = DistanceObjective(X, edges, product_loss)
    parts = [objective.batch(rows) for rows in np.arange(40).reshape(4, 10)]
    assert_allclose(np.mean([part(L)[0] for part in parts]), objective(L)[0], rtol=1e-12)
    assert_allclose(np.mean([part(L)[1] for part in parts], axis=0), objective(L)[1], rtol=1e-10)


def test_S2_circles_are_counted(rng):
    X = rng.standard_normal((6, 2))
    chain = Quadruplets([0, 1], [1, 2], [1, 2], [2, 3], n_samples=6)  # 01 < 12 < 23
    assert comparisons(chain, "auto", X, rng).edges.n_contradictions == 0
    circle = Quadruplets([0, 1, 2, 4], [1, 2, 3, 5], [1, 2, 0, 0], [2, 3, 1, 1], n_samples=6)  # 01 < 12 < 23 < 01
    with pytest.warns(UserWarning, match="3 of 4 comparisons contradict one another"):
        comparisons(circle, "auto", X, rng)
    opposite = Triplets([0, 0], [1, 2], [2, 1], n_samples=6)
    with pytest.warns(UserWarning, match="2 of 2 comparisons"):
        comparisons(opposite, "auto", X, rng)
    itself = Quadruplets([0], [1], [1], [0], n_samples=6)
    with pytest.warns(UserWarning, match="1 of 1"):
        comparisons(itself, "auto", X, rng)


def test_S4_weights_of_fixed_directions(rng):
    """Values and slopes are those of W = Σ w b bᵀ, for fewer and for more directions than features."""
    edges, X = random_edges(rng), rng.standard_normal((9, 4))
    objective = DistanceObjective(X, edges, product_loss, linear=np.diag([1.0, 2.0, 3.0, 4.0]))
    for K in (2, 7):
        basis, w = rng.standard_normal((K, 4)), rng.random(K)
        problem = BasisProblem(objective, basis)
        value, slope = problem(w)
        W = basis.T @ np.diag(w) @ basis
        expected = slow_value(edges, X @ np.linalg.cholesky(W + 1e-14 * np.eye(4))) + np.trace(W @ objective.linear)
        assert_allclose(value, expected, rtol=1e-8)
        assert_allclose(slope, central_differences(lambda w, f=problem: f(w)[0], w), rtol=1e-5, atol=1e-4)
        L = problem.components(w)
        assert_allclose(L.T @ L, W, atol=1e-12)


def test_S5_a_scaled_frame_has_mean_squared_distance_1(rng):
    X = 7 + 3 * rng.standard_normal((20, 4))
    for part in (X, X[:3]):
        frame = Frame.of(part, scaled=True)
        assert_allclose(mean_sqdist(frame.X), 1, rtol=1e-12)
        L = rng.standard_normal((2, frame.X.shape[1]))
        lifted = frame.lift(L)
        assert_allclose((part - part.mean(axis=0)) @ lifted.T, frame.X @ L.T, atol=1e-12)
        assert_allclose(frame.lower(lifted), L, atol=1e-12)
    square = frame.extend(np.eye(frame.X.shape[1]))
    assert_allclose(square, np.eye(4) / frame.unit, atol=1e-12)


def test_S6_neighbor_triplets_have_their_own_number_of_misses():
    X, y = make_blobs(n=30)
    t = NeighborTriplets(2, misses=5).draw(X, Labels(y), None)
    assert len(t.a) == 30 * 10 and np.all(y[t.a] == y[t.p]) and np.all(y[t.a] != y[t.n])
    D = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    for a in (0, 17):
        others = [j for j in np.argsort(D[a]) if y[j] != y[a]]
        assert set(t.n[t.a == a]) == set(others[:5])


def test_S6_a_class_with_one_member_gives_no_anchor():
    X, y = make_blobs(n=30)
    y = np.where(np.arange(30) == 0, 9, y)
    for sampler in (NeighborTriplets(3), RandomComparisons(500), OrdinalTriplets()):
        t = sampler.draw(X, Labels(y), np.random.RandomState(0))
        own = y[t.a] == y[t.p]
        assert own.any() and (isinstance(sampler, OrdinalTriplets) or own.all())
        assert not np.any(own & (t.a == 0))
    lonely = Labels(np.arange(30))
    with pytest.raises(ValueError, match="nothing to compare"):
        comparisons(lonely, "auto", X, np.random.RandomState(0))


def test_S6_random_comparisons_are_uniform_over_their_kind():
    y = np.array([0, 0, 1, 1, 1, 2])
    t = RandomComparisons(20_000).draw(None, Labels(y), np.random.RandomState(0))
    assert np.all(y[t.a] == y[t.p]) and np.all(y[t.a] != y[t.n]) and np.all(t.a != t.p)
    counts = {key: np.mean((t.a == key[0]) & (t.p == key[1])) for key in ((0, 1), (2, 3), (2, 4), (4, 3))}
    assert_allclose(list(counts.values()), [1 / 5, 1 / 10, 1 / 10, 1 / 10], atol=0.02)
    assert_allclose([np.mean(t.n[t.a == 2] == n) for n in (0, 1, 5)], 1 / 3, atol=0.05)
    even = RandomComparisons(20_000, balanced=True).draw(None, Labels(y), np.random.RandomState(0))
    assert_allclose(np.mean(y[even.a] == 0), 1 / 2, atol=0.02)
    q = RandomComparisons(3, anchored=False).draw(None, Labels(y), np.random.RandomState(0))
    assert np.all(y[q.a] == y[q.b]) and np.all(y[q.c] != y[q.d]) and len(q.a) == 3
    unlabelled = Labels(np.array([0, -1, 0, 1, 1, -1]), unlabelled=-1)
    t = RandomComparisons(100).draw(None, unlabelled, np.random.RandomState(0))
    assert not {1, 5} & {*t.a, *t.p, *t.n}


def test_S6_ordinal_triplets_follow_the_order():
    X, y = make_blobs(n=40, n_classes=4)
    t = OrdinalTriplets(2, misses=6).draw(X, Labels(y), None)
    own = y[t.a] == y[t.p]
    rising, falling = (y[t.a] < y[t.p]) & (y[t.p] < y[t.n]), (y[t.a] > y[t.p]) & (y[t.p] > y[t.n])
    assert np.all(own & (y[t.n] != y[t.a]) | rising | falling) and rising.any() and falling.any()
    D = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    expected = set()
    for i in range(40):
        near = sorted((j for j in range(40) if j != i and y[j] == y[i]), key=lambda j: D[i, j])[:2]
        far = sorted((j for j in range(40) if y[j] != y[i]), key=lambda j: D[i, j])[:6]
        expected |= {(i, j, l) for j in near for l in far}
        expected |= {(i, j, l) for j in far for l in far if y[i] < y[j] < y[l] or y[i] > y[j] > y[l]}
    assert set(zip(t.a, t.p, t.n, strict=True)) == expected and len(t.a) == len(expected)
