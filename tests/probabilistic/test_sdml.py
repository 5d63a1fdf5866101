"""SDML against a conic solver, its optimality conditions and its special cases."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from isometry import SDML, Labels, Pairs
from isometry.probabilistic.sdml import sparse_precision
from tests.oracles import psd_project


def slow_E(X, y, balance, W0):
    """W₀⁻¹ + balance η* (M_S − M_D), by loops."""
    d = X.shape[1]
    S, D, n = np.zeros((d, d)), np.zeros((d, d)), [0, 0]
    for i in range(len(X)):
        for j in range(i):
            z = np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                S, n[0] = S + z, n[0] + 1
            else:
                D, n[1] = D + z, n[1] + 1
    K = S / n[0] - D / n[1]
    root = np.linalg.cholesky(W0)
    return np.linalg.inv(W0) + balance / np.linalg.eigvalsh(-root.T @ K @ root)[-1] * K


@pytest.fixture
def data(overlapping):
    return overlapping(spread=2.0)


@pytest.mark.parametrize("prior", ["identity", "array"])
def test_B04a_equals_the_conic_solver(data, prior):
    X, y = data
    W0 = np.eye(4) if prior == "identity" else np.diag([0.5, 1.0, 2.0, 1.0]) + 0.2
    E = slow_E(X, y, 0.9, W0)
    lam = 0.1 * np.abs(E - np.diag(np.diag(E))).max()
    W = cp.Variable((4, 4), PSD=True)
    off = cp.sum(cp.abs(W - cp.diag(cp.diag(W))))
    cp.Problem(cp.Minimize(cp.trace(E @ W) - cp.log_det(W) + lam * off)).solve(solver="CLARABEL")
    model = SDML(prior="identity" if prior == "identity" else W0, tol=1e-10, max_iter=2000, strength=1.0).fit(X, y)
    assert_allclose(model.mahalanobis_, W.value, atol=1e-4 * np.abs(W.value).max())


def test_B04b_without_sparsity_it_is_an_inverse(data):
    X, y = data
    assert_allclose(
        SDML(sparsity=0, strength=1.0).fit(X, y).mahalanobis_, np.linalg.inv(slow_E(X, y, 0.9, np.eye(4))), rtol=1e-8
    )


def test_B04c_full_sparsity_is_diagonal(data):
    X, y = data
    W = SDML(sparsity=1.0, strength=1.0).fit(X, y).mahalanobis_
    assert_allclose(W, np.diag(1 / np.diag(slow_E(X, y, 0.9, np.eye(4)))), rtol=1e-8, atol=1e-12)
    few, many = (
        np.count_nonzero(np.abs(SDML(sparsity=s, strength=1.0).fit(X, y).mahalanobis_) > 1e-9) for s in (0.8, 0.05)
    )
    assert few < many


def test_B04d_labels_are_all_their_pairs(data):
    X, y = data
    A, B = SDML(strength=1.0).fit(X, y).mahalanobis_, SDML(strength=1.0).fit(X, Labels(y).to(Pairs)).mahalanobis_
    assert_allclose(A, B, rtol=1e-6, atol=1e-8)


def test_B04e_constant_columns():
    X, y = load_digits(return_X_y=True)
    X, y = X[:200], y[:200]
    W = SDML(strength=1.0).fit(X, y).mahalanobis_
    constant = np.ptp(X, axis=0) == 0
    assert constant.any() and np.isfinite(W).all()
    assert_allclose(np.diag(W)[constant], 1, rtol=1e-6)  # of the prior


def test_B04f_optimality_conditions(data):
    X, y = data
    E = slow_E(X, y, 0.9, np.eye(4))
    lam = 0.3 * np.abs(E - np.diag(np.diag(E))).max()
    W = sparse_precision(E, 0.3, 5000, 1e-12).x
    R = E - np.linalg.inv(W)
    assert_allclose(np.diag(R), 0, atol=1e-5)
    off = ~np.eye(4, dtype=bool)
    assert np.all(np.abs(R[off]) <= lam * (1 + 1e-4))
    support = off & (np.abs(W) > 1e-6)
    assert support.any() and not support[off].all()
    assert_allclose(R[support], -lam * np.sign(W[support]), rtol=1e-3)


def test_labels_without_meaning_keep_the_prior():
    X = np.array([[0.0], [4.0], [1.0], [3.0]])
    with pytest.warns(UserWarning, match="the prior is kept"):
        model = SDML(strength=1.0).fit(X, Pairs([0, 2], [1, 3], [True, False], n=4))
    assert_allclose(model.mahalanobis_, 1)


def test_the_problem_always_has_a_minimum(rng):
    """Also where a fixed price, as the peers', gives a matrix that is not positive definite."""
    X, y = 100 * rng.standard_normal((40, 5)), np.arange(40) % 2
    X[:, 0] += 300 * y
    W = SDML(balance=1.0, sparsity=0.5, strength=1.0).fit(X, y).mahalanobis_
    assert_allclose(W, psd_project(W), atol=1e-8)
    assert W[0, 0] > 10 * W[1, 1]
