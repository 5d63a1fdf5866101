"""LSML against metric-learn's formula, a conic solver, and its special cases."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from isometry import LSML, Labels, Quadruplets, RandomComparisons
from isometry.spectral.lsml import residual_loss
from tests.conftest import make_blobs
from tests.differences import central_differences


def given(seed=0, n=20, d=3, m=40):
    X, y = make_blobs(n=n, d=d, seed=seed)
    return X, RandomComparisons(m, anchored=False).draw(X, Labels(y), np.random.RandomState(seed))


def total_loss(W, vab, vcd, prior_inverse, gamma=1.0, w=None):
    """metric-learn's ``_total_loss`` typed in, with a price γ; its weights have sum 1."""
    w = np.full(len(vab), 1 / len(vab)) if w is None else w / w.sum()
    dab, dcd = (np.sqrt(np.sum(v.dot(W) * v, axis=1)) for v in (vab, vcd))
    violated = dab > dcd
    residual = w[violated].dot((dab[violated] - dcd[violated]) ** 2)
    return gamma * residual + np.sum(W * prior_inverse) - np.linalg.slogdet(W)[1]


def differences(X, q):
    return X[q.a] - X[q.b], X[q.c] - X[q.d]


def conic(vab, vcd, prior_inverse, gamma):
    """[√u − √v]₊² is the least of (√u − √v')² over 0 ≤ v' ≤ v."""
    d = vab.shape[1]
    W, lower = cp.Variable((d, d), PSD=True), cp.Variable(len(vab), nonneg=True)
    u, v = (cp.sum(cp.multiply(z @ W, z), axis=1) for z in (vab, vcd))
    roots = sum(cp.geo_mean(cp.hstack([u[k], lower[k]])) for k in range(len(vab)))
    residual = (cp.sum(u) + cp.sum(lower) - 2 * roots) / len(vab)
    problem = cp.Problem(cp.Minimize(gamma * residual + cp.trace(W @ prior_inverse) - cp.log_det(W)), [lower <= v])
    problem.solve(solver="CLARABEL")
    return W.value


@pytest.mark.parametrize("gamma", [1.0, 50.0])
def test_B05a_no_higher_than_a_conic_solver_in_the_formula_of_metric_learn(gamma):
    X, q = given(m=25)
    vab, vcd = differences(X, q)
    model = LSML(gamma=gamma, prior=np.eye(3), tol=1e-9, max_iter=2000, strength=1.0).fit(X, q)
    ours = total_loss(model.mahalanobis_, vab, vcd, np.eye(3), gamma)
    reference = conic(vab, vcd, np.eye(3), gamma)
    assert_allclose(ours, total_loss(reference, vab, vcd, np.eye(3), gamma), rtol=1e-6)
    assert_allclose(model.mahalanobis_, reference, atol=1e-3 * np.abs(reference).max())
    assert ours < total_loss(np.eye(3), vab, vcd, np.eye(3), gamma) - 0.1


def test_B05b_finite_differences(rng):
    X, q = given(1)
    vab, vcd = differences(X, q)
    objective, L = LSML(gamma=30.0, strength=1.0)._objective(X, q, None), rng.standard_normal((3, 3))
    value, gradient = objective(L)
    assert_allclose(value, total_loss(L.T @ L, vab, vcd, np.eye(3), 30.0) - 3, rtol=1e-10)
    assert_allclose(gradient, central_differences(lambda L: objective(L)[0], L), rtol=1e-6, atol=1e-5)
    assert_allclose(2 * L @ objective.metric_gradient(L), gradient, rtol=1e-8)


def test_B05c_without_a_price_the_prior_stays():
    X, q = given(2)
    for prior in ("covariance", np.diag([1.0, 2.0, 5.0])):
        W0 = np.linalg.inv(np.cov(X, rowvar=False)) if isinstance(prior, str) else prior
        assert_allclose(LSML(gamma=0, prior=prior, strength=1.0).fit(X, q).mahalanobis_, W0, rtol=1e-6, atol=1e-8)
    unit = 2 * np.var(X, axis=0).sum()
    assert_allclose(LSML(gamma=0, strength=1.0).fit(X, q).mahalanobis_, np.eye(3) / unit, rtol=1e-8, atol=1e-12)


def test_B05d_one_feature_is_a_problem_in_one_number():
    X, q = given(3)
    X = X[:, :1]
    vab, vcd = differences(X, q)
    W = LSML(gamma=20.0, prior=np.eye(1), tol=1e-9, strength=1.0).fit(X, q).mahalanobis_
    best = minimize_scalar(lambda w: total_loss(np.array([[w]]), vab, vcd, np.eye(1), 20.0), bounds=(1e-6, 10))
    assert_allclose(W[0, 0], best.x, rtol=1e-4)


def test_B05e_a_weight_is_a_repetition():
    X, q = given(5)
    often = np.where(np.arange(40) % 4, 1, 2)
    rows = np.repeat(np.arange(40), often)
    model = LSML(tol=1e-9, max_iter=1000, strength=1.0)
    listed = model.fit(X, Quadruplets(q.a[rows], q.b[rows], q.c[rows], q.d[rows], n_samples=len(X))).mahalanobis_
    weighed = model.fit(X, Quadruplets(q.a, q.b, q.c, q.d, n_samples=len(X), weight=3.0 * often)).mahalanobis_
    assert_allclose(weighed, listed, atol=1e-6 * np.abs(listed).max())
    assert np.abs(model.fit(X, q).mahalanobis_ - listed).max() > 1e-4 * np.abs(listed).max()


def test_equal_points_have_no_slope():
    value, slopes = residual_loss(np.ones(3))(np.array([[4.0, 0.0, 0.0], [0.0, 0.0, 4.0]]), slice(None))
    assert value == 4.0
    assert_allclose(slopes, [[1.0, 0, 0], [0, 0, 0]])


def test_the_prior_stays_outside_the_row_space():
    X, q = given(4, n=8, d=3, m=20)
    wide = X @ np.linalg.qr(np.random.default_rng(3).standard_normal((12, 3)))[0].T  # 8 rows, 12 columns, rank 3
    plain, embedded = LSML(strength=1.0).fit(X, q), LSML(strength=1.0).fit(wide, q)
    assert_allclose(embedded.pair_distance(wide, [[0, 1], [2, 5]]), plain.pair_distance(X, [[0, 1], [2, 5]]), rtol=1e-3)
    assert np.linalg.matrix_rank(embedded.mahalanobis_) == 12


def test_a_prior_that_is_no_metric_is_refused():
    X, q = given()
    with pytest.raises(ValueError, match="positive definite"):
        LSML(prior=np.diag([1.0, 1.0, 0.0]), strength=1.0).fit(X, q)
    with pytest.warns(UserWarning, match="2 of 2 comparisons contradict"):
        LSML(strength=1.0).fit(X, Quadruplets([0, 2], [1, 3], [2, 0], [3, 1], n_samples=len(X)))
