"""BoostMetric: both solvers against a conic solver and the conditions of the minimum."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import BoostMetric, Labels, RandomComparisons, Triplets
from isometry.core.frame import Frame
from isometry.sampling import comparisons
from isometry.spectral.boost_metric import ExponentialLoss
from tests.conftest import make_blobs
from tests.differences import central_differences


def given(seed=0, m=50, d=3):
    X, y = make_blobs(n=24, d=d, seed=seed)
    return X, RandomComparisons(m).draw(X, Labels(y), np.random.RandomState(seed))


def matrices(X, t):
    """A_r = z_an z_anᵀ − z_ap z_apᵀ of scaled samples."""
    X = Frame.of(X, scaled=True).X
    return [
        np.outer(X[a] - X[n], X[a] - X[n]) - np.outer(X[a] - X[p], X[a] - X[p])
        for a, p, n in zip(t.a, t.p, t.n, strict=True)
    ]


def price(A, reg):
    return reg * np.median([abs(np.trace(a)) for a in A]) / len(A[0])


def slow_value(W, A, nu):
    return np.log(np.mean([np.exp(-np.sum(a * W)) for a in A])) + nu * np.trace(W)


def conic(A, nu):
    V = cp.Variable(A[0].shape, PSD=True)
    h = cp.hstack([-cp.trace(a @ V) for a in A])
    problem = cp.Problem(cp.Minimize(cp.log_sum_exp(h) - np.log(len(A)) + nu * cp.trace(V)))
    problem.solve(solver="CLARABEL")
    return problem.value


@pytest.mark.parametrize("reg", [0.1, 0.5])
def test_B18a_both_solvers_reach_the_value_of_the_conic_solver(reg):
    X, t = given()
    A = matrices(X, t)
    expected = conic(A, price(A, reg))
    psd = BoostMetric(reg=reg, tol=1e-8, max_iter=2000, strength=1.0).fit(X, t)
    boost = BoostMetric(reg=reg, solver="boost", tol=1e-6, max_iter=3000, strength=1.0).fit(X, t)
    unit = 2 * np.var(X, axis=0).sum()
    for model, rtol in ((psd, 1e-6), (boost, 1e-3)):
        assert_allclose(slow_value(unit * model.mahalanobis_, A, price(A, reg)), expected, rtol=rtol)
        assert_allclose(model.objective_, expected, rtol=rtol)


def test_B18b_boosting_stops_where_the_minimum_is(rng):
    X, t = given(1)
    A, unit = matrices(X, t), 2 * np.var(X, axis=0).sum()
    nu = price(A, 0.5)
    for solver in ("psd", "boost"):
        W = unit * BoostMetric(reg=0.5, solver=solver, tol=1e-7, max_iter=5000, strength=1.0).fit(X, t).mahalanobis_
        u = np.exp([-np.sum(a * W) for a in A])
        top = sla.eigvalsh(sum(w * a for w, a in zip(u / u.sum(), A, strict=True)))[-1]
        assert top <= nu * (1 + 2e-3)
    huge = BoostMetric(reg=1e4, solver="boost", strength=1.0)
    with pytest.warns(UserWarning, match="a penalty outweighs it"):
        huge.fit(X, t)  # no direction is worth its price
    assert_allclose(huge.mahalanobis_, 0, atol=1e-15)


@pytest.mark.filterwarnings("ignore:BoostMetric did not converge")
def test_B18c_the_path_adds_one_direction_at_a_time():
    X, t = given(2, d=5)
    model = BoostMetric(solver="boost", reg=0.05, max_iter=500, strength=1.0).fit(X, t)
    early = [BoostMetric(solver="boost", reg=0.05, max_iter=k, strength=1.0).fit(X, t) for k in (1, 2, 3)]
    assert [np.linalg.matrix_rank(m.path_) for m in early] == [1, 2, 3]
    assert_allclose([m.objective_ for m in early], model.history_[:3], rtol=1e-9)
    assert_allclose(model.mahalanobis_, model.path_.T @ model.path_, atol=1e-10 * np.abs(model.mahalanobis_).max())
    assert np.all(np.diff(model.history_) < 1e-9)


def test_B18d_huge_gaps_stay_finite(rng):
    X, t = given(3)
    f = ExponentialLoss(100 * X, comparisons(t, "auto", X, None), 0.1)
    L = 10 * np.eye(3)
    assert np.abs(f.gaps(L)).max() > 1e4
    value, gradient = f(L)
    assert np.isfinite(value) and np.isfinite(gradient).all()
    g = ExponentialLoss(X, comparisons(t, "auto", X, None), 0.1)
    L = rng.standard_normal((3, 3)) / 4
    assert_allclose(g(L)[1], central_differences(lambda L: g(L)[0], L), rtol=1e-5, atol=1e-6)
    assert_allclose(2 * L @ g.metric_gradient(L), g(L)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("solver", ["psd", "boost"])
def test_triplets_that_can_all_be_met_leave_a_finite_metric(solver, rng):
    """Without a bound on the trace the value would have no minimum."""
    y = np.repeat([0, 1], 15)
    X = np.c_[10.0 * y, np.zeros(30)] + 0.1 * rng.standard_normal((30, 2))
    model = BoostMetric(solver=solver, reg=1e-3, strength=1.0).fit(X, y)
    assert model.converged_ and np.isfinite(model.mahalanobis_).all() and np.isfinite(model.objective_)
    t = comparisons(Labels(y), "auto", X, None)
    assert t.edges.gaps(model.transform(X)).max() < 0
    f = ExponentialLoss(X, t, 0.1, 2.0)
    L = rng.standard_normal((2, 2)) * 2
    assert np.vdot(L, L) > 2
    assert_allclose(f(L)[1], central_differences(lambda L: f(L)[0], L), rtol=1e-5, atol=1e-6)
    assert_allclose(2 * L @ f.metric_gradient(L), f(L)[1], rtol=1e-9)


def test_contradicting_triplets_are_counted():
    X = given()[0]
    with pytest.warns(UserWarning, match="2 of 2 comparisons contradict"):
        BoostMetric(strength=1.0).fit(X, Triplets([0, 0], [1, 2], [2, 1], n_samples=len(X)))
