"""Proof tests of B15, regressive virtual metric learning."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry import RVML, Kernelized
from isometry.core.distance import sqdist
from isometry.spectral.rvml import landmarks
from tests.conftest import make_blobs


@pytest.fixture
def data():
    return make_blobs(n=60, d=4, seed=3)


def codes(y):
    V = np.eye(y.max() + 1)[y]
    return V - V.mean(axis=0)


def metric(X, V, lam):
    """W of the minimiser, by the normal equations with an inverse."""
    X = X - X.mean(axis=0)
    n, s = len(X), np.trace(np.cov(X.T, ddof=0)) / X.shape[1]
    Lt = np.linalg.inv(X.T @ X / n + lam * s * np.eye(X.shape[1])) @ X.T @ V / n
    return Lt @ Lt.T


@pytest.mark.parametrize("reg", [0, 1e-2, 1.0])
def test_B15a_normal_equations(data, reg):
    X, y = data
    W = RVML(reg=reg).fit(X, y).mahalanobis_
    assert_allclose(W, metric(X, codes(y), reg), rtol=1e-8, atol=1e-12)
    V = landmarks(X - X.mean(axis=0), y, None, np.random.RandomState(0))
    W = RVML(points="landmarks", reg=reg, random_state=0).fit(X, y).mahalanobis_
    assert_allclose(W, metric(X, V - V.mean(axis=0), reg), rtol=1e-8, atol=1e-12)


def test_B15a_no_other_map_has_a_lower_objective(data, rng):
    X, y = data
    X, V, lam = X - X.mean(axis=0), codes(y), 0.1
    s = np.trace(np.cov(X.T, ddof=0)) / 4
    learner = RVML(reg=lam).fit(X, y)

    def objective(L):
        return np.sum((X @ L.T - V) ** 2) / len(X) + lam * s * np.sum(L**2)

    Lt = np.linalg.solve(X.T @ X / len(X) + lam * s * np.eye(4), X.T @ V / len(X))
    assert_allclose(Lt @ Lt.T, learner.mahalanobis_, rtol=1e-8, atol=1e-12)
    for _ in range(20):
        assert objective(Lt.T + 1e-3 * rng.standard_normal((3, 4))) > objective(Lt.T)


def test_B15b_without_ridge_the_rows_span_ldas_space(data):
    X, y = data
    L = RVML(reg=0).fit(X, y).components_
    assert L.shape == (2, 4)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :2]
    angles = np.linalg.svd(np.linalg.qr(L.T)[0].T @ np.linalg.qr(lda)[0])[1]
    assert_allclose(angles, 1, atol=1e-9)


def test_B15c_kernelized_is_kernel_ridge_regression_on_codes(data):
    X, y = data
    learner = Kernelized(RVML(reg=0.1), "rbf", gamma=0.05, center=True).fit(X, y)
    K = np.exp(-0.05 * sqdist(X))
    H = np.eye(60) - 1 / 60
    K = H @ K @ H
    r = learner.basis_.shape[1]
    predicted = K @ np.linalg.solve(K + 0.1 * np.trace(K) / r * np.eye(60), codes(y))  # λ n s with s = tr K/(n r)
    D = sqdist(predicted)
    assert_allclose(sqdist(learner.transform(X)), D, atol=1e-8 * D.max())


def test_B15d_a_large_ridge_leaves_the_cross_covariance(data):
    X, y = data
    W = RVML(reg=1e8).fit(X, y).mahalanobis_
    C = codes(y).T @ (X - X.mean(axis=0))
    assert_allclose(W / np.trace(W), C.T @ C / np.trace(C.T @ C), atol=1e-6)


def test_B15_landmarks_are_centres_of_the_own_class():
    X = np.array([[0.0, 0], [0.2, 0], [10, 0], [10.2, 0], [5, 5], [5, 5.2]])
    y = np.array([0, 0, 0, 0, 1, 1])
    V = landmarks(X, y, 2, np.random.RandomState(0))
    assert_allclose(V[:4, 0], [0.1, 0.1, 10.1, 10.1])
    assert_allclose(landmarks(X, y, None, np.random.RandomState(0))[4:], [[5, 5.1]] * 2)
    same = np.r_[X, X[:1], X[:1]]
    assert np.isfinite(landmarks(same, np.r_[y, 2, 2], 2, np.random.RandomState(0))).all()


def test_B15_chunks_give_the_map_of_the_array(data):
    X, y = data
    whole, parts = RVML(reg=1e-2).fit(X, y), RVML(reg=1e-2)
    for rows in np.array_split(np.random.default_rng(0).permutation(60), 5):
        parts.partial_fit(X[rows], y[rows])
    assert_allclose(parts.mahalanobis_, whole.mahalanobis_, rtol=1e-8)
    with pytest.raises(AttributeError, match="has no attribute 'partial_fit'"):
        RVML(points="landmarks", reg=1e-2).partial_fit(X, y)


def test_B15_errors():
    with pytest.raises(ValueError, match="all samples are equal"):
        RVML(reg=1e-2).fit(np.ones((4, 2)), [0, 0, 1, 1])
