"""MarginSVM against a conic solver, and the properties of ν."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.core.edges import ListedEdges
from isometry.sampling import RandomPairs
from isometry.spectral import MarginSVM
from isometry.spectral.margin_svm import Dual
from isometry.supervision import Labels, Pairs


def problem(seed=0, m=20, d=3):
    """m dissimilar and m similar pairs, each of two samples of its own; dissimilar ones have mean zᵀz = 1."""
    rng = np.random.default_rng(seed)
    far, near = 0.6 * rng.standard_normal((m, d)), 0.2 * rng.standard_normal((m, d))
    near, far = (Z / np.sqrt(np.mean(np.sum(far**2, axis=1))) for Z in (near, far))
    X = np.zeros((4 * m, d))
    X[1::2] = np.r_[far, near]
    i = np.arange(0, 4 * m, 2)
    return X, Pairs(i, i + 1, np.repeat([0, 1], m), n=4 * m), far, near


def conic(far, near, C_S, C_D, nu, psd=True):
    """The primal, as printed in the class."""
    d, m = far.shape[1], len(far)
    W, g, xi = cp.Variable((d, d), symmetric=True), cp.Variable(nonneg=True), cp.Variable(m, nonneg=True)
    stretched = cp.sum(cp.multiply(far @ W, far), axis=1) - np.sum(far**2, axis=1)
    half = cp.sum_squares(cp.vec(W, order="F")) / 2  # of W itself, some versions of cvxpy lose the square
    cost = half + C_S * cp.trace(W @ near.T @ near) / len(near) + C_D * (-nu * g + cp.sum(xi) / m)
    programme = cp.Problem(cp.Minimize(cost), [stretched >= g - xi] + ([W >> 0] if psd else []))
    programme.solve(solver="CLARABEL")
    return programme.value, W.value, float(g.value)


def solved(X, side, **params):
    return MarginSVM(tol=1e-9, max_iter=20_000, **params, strength=1.0).fit(X, side)


@pytest.mark.parametrize("psd", [True, False])
@pytest.mark.parametrize("seed, C_S, C_D, nu", [(0, 1.0, 10.0, 0.52), (1, 30.0, 100.0, 0.33), (2, 5.0, 20.0, 0.99)])
def test_M15a_equals_the_conic_solver(seed, C_S, C_D, nu, psd):
    X, side, far, near = problem(seed)
    value, W, g = conic(far, near, C_S, C_D, nu, psd)  # ν|D| is no integer: g is unique
    model = solved(X, side, C_S=C_S, C_D=C_D, nu=nu, psd=psd)
    a = model.dual_coef_
    N = sum(c * np.outer(z, z) for c, z in zip(a, far, strict=True)) - C_S * near.T @ near / len(near)
    w, V = np.linalg.eigh(N)
    ours = (V * np.maximum(w, 0)) @ V.T if psd else N
    dual = sum(a * np.sum(far**2, axis=1)) - np.sum(ours**2) / 2
    assert -1e-12 <= model.gap_ <= 1e-6
    assert_allclose(dual, value, rtol=1e-6, atol=1e-6)
    assert_allclose(ours, W, atol=1e-4 * max(1, np.abs(W).max()))
    assert_allclose(model.margin_, g, atol=1e-3 * max(1, g))
    kept = np.linalg.eigh(W)
    assert_allclose(model.mahalanobis_, (kept[1] * np.maximum(kept[0], 0)) @ kept[1].T, atol=1e-4 * max(1, W.max()))


def test_M15b_free_multipliers_lie_on_the_margin():
    X, side, far, _ = problem(3)
    model = solved(X, side, C_D=100.0)
    a, h = model.dual_coef_, np.sum((far @ model.mahalanobis_) * far, axis=1) - np.sum(far**2, axis=1)
    free = (a > 1e-6 * a.max()) & (a < 5 * (1 - 1e-6))
    assert free.sum() >= 2
    assert_allclose(h[free], model.margin_, rtol=1e-4)


def test_M15c_nu_bounds_margin_errors_and_support():
    X, side, far, _ = problem(4)
    model = solved(X, side, C_D=100.0, nu=0.5)
    a, h = model.dual_coef_, np.sum((far @ model.mahalanobis_) * far, axis=1) - np.sum(far**2, axis=1)
    assert model.margin_ > 1
    errors, support = np.sum(h < model.margin_ * (1 - 1e-4)), np.sum(a > 1e-6 * a.max())
    assert errors <= 10 <= support < 20
    assert_allclose(a.sum(), 50, rtol=1e-6)


def test_M15d_without_similar_pairs_both_modes_agree():
    X, side, _, _ = problem(5)
    A, B = (solved(X, side, C_S=0.0, psd=psd).mahalanobis_ for psd in (True, False))
    assert_allclose(A, B, atol=1e-5 * A.max())
    assert np.linalg.eigvalsh(B).min() > -1e-12


def test_gradient_of_the_dual():
    X, side, _, near = problem(6, m=8)
    far = side.dissimilar
    for psd in (True, False):
        dual = Dual(X, ListedEdges(far.i, far.j, len(X)), far.weight / 8, 20 * near.T @ near / 8, 10.0, 0.5, psd)
        b = np.random.default_rng(7).uniform(0, 1, 8)
        numeric = [(dual(b + e)[0] - dual(b - e)[0]) / 2e-6 for e in 1e-6 * np.eye(8)]
        assert_allclose(dual(b)[1], numeric, rtol=1e-6, atol=1e-8)


def test_scatter_and_projection():
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((12, 3)), np.arange(12) % 3
    i, j, w = Labels(y).dissimilar
    w = rng.uniform(0.1, 1, len(w))
    dual = Dual(X, ListedEdges(i, j, 12), w / w.sum(), np.zeros((3, 3)), 1.0, 0.6, True)
    a = rng.uniform(0, 1, len(i))
    slow = sum(c * np.outer(X[p] - X[q], X[p] - X[q]) for c, p, q in zip(a, i, j, strict=True))
    assert_allclose(dual.scatter(a), slow, rtol=1e-10)
    v = rng.normal(0.2, 1, len(i))
    x = cp.Variable(len(i))
    feasible = [x >= 0, x <= 1, dual.weight @ x >= 0.6]
    cp.Problem(cp.Minimize(cp.sum_squares(x - v)), feasible).solve(solver="CLARABEL")
    assert_allclose(dual.project(v), x.value, atol=1e-5)
    inside = np.clip(v + 1, 0, 1)
    assert_allclose(dual.project(inside), inside, rtol=0, atol=0)


def test_units_of_the_data_do_not_matter():
    X, side, _, _ = problem(9)
    assert_allclose(
        MarginSVM(strength=1.0).fit(X * 1e4, side).transform(X * 1e4),
        MarginSVM(strength=1.0).fit(X, side).transform(X),
        atol=1e-8,
    )


def test_weight_of_similar_pairs_silences_noise(planted):
    """W follows the scatter of dissimilar pairs, noise included, until C_S takes it away."""
    X, y = planted
    share = []
    for C_S in (1.0, 10.0):
        W = MarginSVM(C_S=C_S, strength=1.0).fit(X, y).mahalanobis_
        share.append(np.trace(W[:2, :2]) / np.trace(W))  # the first two features hold the classes
    assert share[0] < 0.3 and share[1] > 0.8


def test_sampled_pairs():
    rng = np.random.default_rng(10)
    X, y = rng.standard_normal((30, 3)), np.arange(30) % 3
    model = MarginSVM(2, pairs=RandomPairs(50), random_state=0, strength=1.0).fit(X, y)
    assert model.dual_coef_.shape == (50,) and model.components_.shape == (2, 3)


@pytest.mark.parametrize("params", [{"nu": 0}, {"nu": 1.1}, {"C_S": -1}, {"C_D": 0}])
def test_wrong_parameters_are_named(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        MarginSVM(**params, strength=1.0).fit(*problem()[:2])
