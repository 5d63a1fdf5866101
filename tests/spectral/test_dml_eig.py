"""DMLeig against a conic solver, its duality gap, and its special cases."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import DMLeig, Labels, Pairs, RankOneMMC
from isometry.sampling import AllPairs, signed_edges
from isometry.spectral.dml_eig import SoftMinimum
from tests.conftest import make_blobs
from tests.differences import central_differences


def dissimilar(X, y):
    i, j = np.triu_indices(len(X), 1)
    return (X[i] - X[j])[y[i] != y[j]], (X[i] - X[j])[y[i] == y[j]]


def problem(seed=0, mu=0.3, d=3):
    X, y = make_blobs(n=16, d=d, seed=seed)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return SoftMinimum(X, signed_edges(Labels(y), AllPairs(), X, None), mu), dissimilar(X, y)[0]


def slow_value(V, far, mu):
    q = np.array([z @ V @ z for z in far])
    return -q.min() + mu * np.log(np.mean(np.exp((q.min() - q) / mu)))


@pytest.mark.parametrize("mu", [0.3, 0.02])
def test_B12a_equals_the_conic_solver(mu):
    f, far = problem(mu=mu)
    solution, gap = f.minimize(np.eye(3), 2000, 1e-7)
    L = solution.x / np.linalg.norm(solution.x)
    V = cp.Variable((3, 3), PSD=True)
    q = cp.sum(cp.multiply(far @ V, far), axis=1)
    reference = cp.Problem(cp.Minimize(mu * cp.log_sum_exp(-q / mu)), [cp.trace(V) == 1])
    reference.solve(solver="CLARABEL")
    expected = reference.value - mu * np.log(len(far))
    assert_allclose(solution.value, slow_value(L.T @ L, far, mu), rtol=1e-10)
    assert_allclose(solution.value, expected, rtol=1e-5, atol=1e-7)
    assert gap <= 1e-5 * abs(solution.value)


def test_B12b_the_gap_is_positive_and_closes(rng):
    f, far = problem()
    best = f.minimize(np.eye(3), 2000, 1e-8)[0].value
    for _ in range(5):
        L = rng.standard_normal((3, 3))
        value, gradient = f(L)
        V = L.T @ L / np.trace(L.T @ L)
        assert_allclose(value, slow_value(V, far, 0.3), rtol=1e-10)
        assert_allclose(gradient, central_differences(lambda L: f(L)[0], L), rtol=1e-5, atol=1e-8)
        assert_allclose(2 * L @ f.metric_gradient(L), gradient, atol=1e-10)
        assert f.gap(L) >= value - best > 0
    model = DMLeig(strength=1.0).fit(*make_blobs())
    assert model.converged_ and 0 <= model.duality_gap_ < 1e-3


def test_B12c_a_wide_soft_minimum_is_the_mean():
    """μ → ∞: the top eigenvector of M_S^{−½} M_D M_S^{−½}, which is RankOneMMC."""
    X, y = make_blobs(seed=1)
    model, one = (
        DMLeig(mu=1e5, reg=0.0, tol=1e-9, max_iter=3000, strength=1.0).fit(X, y),
        RankOneMMC(reg=0.0, strength=1.0).fit(X, y),
    )
    a, b = model.mahalanobis_, one.mahalanobis_
    assert_allclose(a / np.linalg.norm(a), b / np.linalg.norm(b), atol=2e-3)


def test_B12d_affine_maps_do_not_matter():
    X, y = make_blobs(seed=2)
    T = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    A, B = (
        DMLeig(reg=0.0, tol=1e-6, max_iter=1000, strength=1.0).fit(X, y),
        DMLeig(reg=0.0, tol=1e-6, max_iter=1000, strength=1.0).fit(X @ T.T, y),
    )
    assert_allclose(
        B.mahalanobis_, sla.inv(T).T @ A.mahalanobis_ @ sla.inv(T), atol=1e-3 * np.abs(B.mahalanobis_).max()
    )
    near = dissimilar(X, y)[1]
    assert_allclose(np.mean([z @ A.mahalanobis_ @ z for z in near]), 1, rtol=1e-6)  # tr(W M_S) = 1


def test_equal_dissimilar_samples_are_left_out_and_said():
    X, y = make_blobs()
    X, y = np.r_[X, X[:1]], np.r_[y, 2]
    with pytest.warns(UserWarning, match="1 dissimilar pairs join two equal samples"):
        model = DMLeig(strength=1.0).fit(X, y)
    side = Labels(y).to(Pairs)
    with pytest.warns(UserWarning, match="left out"):
        other = DMLeig(strength=1.0).fit(X, side)
    assert_allclose(model.mahalanobis_, other.mahalanobis_, atol=1e-3 * np.abs(model.mahalanobis_).max())
    with pytest.raises(ValueError, match="every dissimilar pair joins"), pytest.warns(UserWarning, match="left out"):
        DMLeig(strength=1.0).fit(X, Pairs([0, 1], [len(y) - 1, 2], [False, True], n=len(y)))
