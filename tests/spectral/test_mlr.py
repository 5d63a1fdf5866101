"""MLR: its rankings by enumeration, its slopes by differences, and its minimum by a conic solver."""

from itertools import combinations, pairwise, permutations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import MLR, Labels, Pairs
from isometry.core.edges import DenseEdges
from isometry.core.frame import Frame
from isometry.spectral.mlr import area_loss, precision_loss, worst_ranking
from tests.conftest import make_blobs
from tests.differences import central_differences


def same(y):
    return lambda rows: y[rows, None] == y


def ranking_loss(order, hit, loss):
    """1 − AUC or 1 − AP of a ranking."""
    places = [k for k, i in enumerate(order) if hit[i]]
    if loss == "map":
        return 1 - np.mean([(a + 1) / (place + 1) for a, place in enumerate(places)])
    wrong = sum(hit[order[b]] and not hit[order[a]] for a, b in combinations(range(len(order)), 2))
    return wrong / (sum(hit) * (len(hit) - sum(hit)))


def feature(order, hit, d):
    """⟨W, ψ(q, y)⟩ = mean over (p, n) of ±(s_p − s_n), s = −d, + where p comes first."""
    place = {i: k for k, i in enumerate(order)}
    P, N = [i for i in order if hit[i]], [i for i in order if not hit[i]]
    return np.mean([(1 if place[p] < place[n] else -1) * (d[n] - d[p]) for p in P for n in N])


def by_enumeration(d, hit, loss):
    right = sorted(range(len(d)), key=lambda i: (not hit[i], d[i]))
    return max(
        ranking_loss(y, hit, loss) - feature(right, hit, d) + feature(y, hit, d) for y in permutations(range(len(d)))
    )


@pytest.mark.parametrize("loss", ["auc", "map"])
def test_B19a_the_worst_ranking_is_that_of_enumeration(loss, rng):
    y = np.array([0, 0, 0, 1, 1, 1, 1])
    for _ in range(4):
        Z = 0.7 * rng.standard_normal((7, 2))
        D = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
        expected = np.mean([by_enumeration(np.delete(D[q], q), np.delete(y == y[q], q), loss) for q in range(7)])
        make = area_loss if loss == "auc" else precision_loss
        value, _ = DenseEdges(7).evaluate(Z, make(same(y), np.ones(7, dtype=bool)))
        assert_allclose(value, expected, rtol=1e-10)


def test_B19a_the_programme_equals_all_interleavings(rng):
    for _ in range(20):
        near, far = np.sort(rng.random(4)), np.sort(rng.random(3))
        best = -np.inf
        for b in np.ndindex(4, 4, 4, 4):
            if all(u <= v for u, v in pairwise(b)):
                worth = sum(
                    k / (a + k) / 4 + 2 / 12 * sum(near[a - 1] - far[n] for n in range(k)) for a, k in enumerate(b, 1)
                )
                best = max(best, worth)
        worth, path = worst_ranking(near, far)
        assert_allclose(worth, best, rtol=1e-12)
        assert np.all(np.diff(path) >= 0)


@pytest.mark.parametrize("loss", ["auc", "map"])
def test_B19b_slopes(loss, rng):
    X, y = make_blobs(n=14, d=3)
    y[:2] = 0, 9  # a query without a relevant sample
    side = Labels(y)
    objective = MLR(loss=loss, strength=1.0)._objective(Frame.of(X, scaled=True).X, side, None)
    L = rng.standard_normal((3, 3))
    assert_allclose(objective(L)[1], central_differences(lambda L: objective(L)[0], L), rtol=1e-5, atol=1e-7)
    assert_allclose(2 * L @ objective.metric_gradient(L), objective(L)[1], rtol=1e-8, atol=1e-10)


def test_B19c_the_area_is_a_sum_over_all_triplets(rng):
    y, Z = np.arange(12) % 3, rng.standard_normal((12, 2))
    D = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    total = 0.0
    for q in range(12):
        P, N = [i for i in range(12) if y[i] == y[q] and i != q], [i for i in range(12) if y[i] != y[q]]
        total += np.mean([max(0.0, 1 + 2 * (D[q, p] - D[q, n])) for p in P for n in N]) / 12
    assert_allclose(DenseEdges(12).evaluate(Z, area_loss(same(y), np.ones(12, dtype=bool)))[0], total, rtol=1e-12)


def test_B19d_a_perfect_order_with_margin_costs_nothing():
    y = np.repeat([0, 1], 4)
    Z = np.c_[10.0 * y, np.linspace(0, 0.1, 8)]
    for make in (area_loss, precision_loss):
        value, pull = DenseEdges(8).evaluate(Z, make(same(y), np.ones(8, dtype=bool)))
        assert value == 0 and not pull.any()


def test_the_minimum_is_that_of_the_conic_solver():
    X, y = make_blobs(n=12, d=2, n_classes=2)
    Xs, m = Frame.of(X, scaled=True).X, []
    W = cp.Variable((2, 2), PSD=True)
    for q in range(12):
        P, N = [i for i in range(12) if y[i] == y[q] and i != q], [i for i in range(12) if y[i] != y[q]]
        A = np.array(
            [np.outer(Xs[q] - Xs[p], Xs[q] - Xs[p]) - np.outer(Xs[q] - Xs[n], Xs[q] - Xs[n]) for p in P for n in N]
        )
        m.append(cp.sum(cp.pos(1 + 2 * (A.reshape(-1, 4) @ cp.vec(W, order="C")))) / len(A))
    problem = cp.Problem(cp.Minimize(sum(m) / 12 + 0.05 / 2 * cp.trace(W)))
    problem.solve(solver="CLARABEL")
    model = MLR(reg=0.05, tol=1e-9, max_iter=3000, strength=1.0).fit(X, y)
    assert problem.value - 1e-6 <= model.objective_ <= problem.value + 2e-3 * abs(problem.value)


def test_pairs_are_relevance_lists():
    X, y = make_blobs()
    A, B = MLR(strength=1.0).fit(X, y), MLR(strength=1.0).fit(X, Labels(y).to(Pairs))
    assert_allclose(A.objective_, B.objective_, rtol=1e-3)
    with pytest.raises(ValueError, match="nothing to rank"):
        MLR(strength=1.0).fit(X, Pairs([0, 2], [1, 3], [True, False], n=len(X)))


@pytest.mark.filterwarnings("ignore:MLR did not converge")
def test_batches_and_average_precision_come_near():
    X, y = make_blobs(n=40)
    scale = np.sqrt(2 * np.var(X, axis=0).sum())
    whole, parts = (
        MLR(batch_size=b, random_state=0, max_iter=m, strength=1.0).fit(X, y) for b, m in ((None, 60), (20, 8))
    )
    objective = MLR(strength=1.0)._objective(Frame.of(X, scaled=True).X, Labels(y), None)
    values = [objective(m.components_ * scale)[0] for m in (whole, parts)]
    assert 0.999 * values[0] < values[1] < 1.1 * values[0]
    model = MLR(loss="map", batch_size=10, random_state=0, max_iter=2, strength=1.0).fit(X, y)
    f = MLR(loss="map", strength=1.0)._objective(Frame.of(X, scaled=True).X, Labels(y), None)
    assert f(model.components_ * scale)[0] < f(np.eye(4))[0]
