import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.probabilistic import IGML


def slow_igml(X, y, lam):
    """W = (Xᵀ K_L⁻¹ X)⁻¹ with the n × n label kernel."""
    Xc = X - X.mean(axis=0)
    K = np.array([[float(a == b) for b in y] for a in y]) + lam * np.eye(len(y))
    return np.linalg.inv(Xc.T @ np.linalg.inv(K) @ Xc)


@pytest.fixture
def data(overlapping):
    return overlapping(sizes=(30, 18, 11, 1), d=4)


def fit(X, y, lam=1e-2, **params):
    return IGML(label_reg=lam, reg=0.0, **params).fit(X, y).mahalanobis_


@pytest.mark.parametrize("lam", [1e-3, 0.5, 20.0])
def test_P18a_class_moments_give_the_metric_of_the_label_kernel(data, lam):
    X, y = data
    W = slow_igml(X, y, lam)
    assert_allclose(fit(X, y, lam), W, rtol=1e-9, atol=1e-10 * np.abs(W).max())


def test_P18b_stationary_point_of_the_divergence(data, numeric_gradient):
    X, y = data
    Xc, lam = X - X.mean(axis=0), 0.1
    K = np.linalg.inv((y[:, None] == y) + lam * np.eye(len(y)))
    W = fit(X, y, lam)

    def divergence(M):
        return np.trace(K @ Xc @ M @ Xc.T) - np.linalg.slogdet(M)[1]

    slope = numeric_gradient(divergence, W, h=1e-7)
    assert np.abs(slope).max() < 1e-5 * np.abs(np.linalg.inv(W)).max()
    assert divergence(1.1 * W) > divergence(W) + 1e-3
    assert divergence(0.9 * W) > divergence(W) + 1e-3


def test_P18c_limits_of_the_label_ridge_whiten_within_classes_or_in_total(data):
    X, y = data
    within = np.zeros((4, 4))
    for c in np.unique(y):
        Z = X[y == c] - X[y == c].mean(axis=0)
        within += Z.T @ Z
    Xc = X - X.mean(axis=0)
    assert_allclose(fit(X, y, 1e-9) / 1e-9, np.linalg.inv(within), rtol=1e-6)
    assert_allclose(fit(X, y, 1e9) / 1e9, np.linalg.inv(Xc.T @ Xc), rtol=1e-6)


def test_P18d_invariances(data):
    X, y = data
    A = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    B, W = np.linalg.inv(A), fit(X, y)
    assert_allclose(fit(X @ A, y), B @ W @ B.T, rtol=1e-8, atol=1e-9 * np.abs(B @ W @ B.T).max())
    assert_allclose(fit(X + 100.0, y), W, rtol=1e-8)


def test_n_components_keeps_the_leading_eigenvectors(data):
    X, y = data
    w, V = np.linalg.eigh(fit(X, y))
    assert_allclose(fit(X, y, n_components=2), (V[:, 2:] * w[2:]) @ V[:, 2:].T, rtol=1e-8)


def test_wrong_label_ridge_is_named(data):
    with pytest.raises(ValueError, match="label_reg=0 must be positive"):
        IGML(label_reg=0, reg=1e-8).fit(*data)
