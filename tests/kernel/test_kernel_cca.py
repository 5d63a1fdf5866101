"""Proof tests of kernel canonical correlation analysis."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import eigh

from isometry import CCA, KernelCCA, load


def curved_views(n=150, seed=0):
    """One hidden angle, of which one view sees the direction and the other its double: no linear correlation."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0, 2 * np.pi, n)
    X1 = np.stack([np.cos(t), np.sin(t)], axis=1) + 0.05 * rng.normal(size=(n, 2))
    X2 = np.stack([np.cos(2 * t), np.sin(2 * t), rng.normal(size=n)], axis=1) + 0.05 * rng.normal(size=(n, 3))
    return X1, X2


def fit(X1, X2, method=KernelCCA, **options):
    d1, d2 = X1.shape[1], X2.shape[1]
    return method(views=[range(d1), range(d1, d1 + d2)], **options).fit(np.hstack([X1, X2]))


def test_a_linear_kernel_gives_linear_correlations(rng):
    X1, X2 = rng.normal(size=(80, 3)), rng.normal(size=(80, 4))
    X2[:, :2] += X1[:, :2]
    for reg in (0.0, 0.3):
        a = fit(X1, X2, kernel="linear", variance=1.0, reg=reg)
        b = fit(X1, X2, CCA, reg=reg)
        assert_allclose(a.correlations_, b.correlations_, rtol=1e-9)
        for view, X in enumerate((X1, X2)):
            D = [
                np.linalg.norm(Z[:, None] - Z[None], axis=2)
                for Z in (a.transform_view(X, view), b.transform_view(X, view))
            ]
            assert_allclose(D[0], D[1], atol=1e-8)


def test_correlations_solve_the_problem_of_the_kernels(rng):
    """K₁K₂β = ρ (K₁² + κ₁K₁)α and the other way round, as one large generalised eigenproblem."""
    X1, X2 = curved_views(40)
    gamma, reg = 0.7, 0.2
    learner = fit(X1, X2, kernel="rbf", gamma=gamma, variance=1.0, reg=reg, n_components=3)
    n, H = 40, np.eye(40) - 1 / 40
    K = [H @ np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2)) @ H for X in (X1, X2)]
    ranks = [phi.learner_.components_.shape[1] for phi in learner.kernel_maps_]
    # the ridge of the covariance K/n of r coordinates is reg · tr(K)/(n r)
    kappa = [reg * np.trace(k) / r for k, r in zip(K, ranks, strict=True)]
    A = np.block([[np.zeros((n, n)), K[0] @ K[1]], [K[1] @ K[0], np.zeros((n, n))]])
    B = np.block([[K[0] @ K[0] + kappa[0] * K[0], np.zeros((n, n))], [np.zeros((n, n)), K[1] @ K[1] + kappa[1] * K[1]]])
    values = eigh(A, B + 1e-9 * np.eye(2 * n), eigvals_only=True)[::-1]
    assert_allclose(learner.correlations_, values[:3], rtol=1e-4)


def test_it_finds_what_no_line_shows():
    X1, X2 = curved_views(300)
    new1, new2 = curved_views(300, seed=1)

    def found(learner):
        """The share of new samples whose partner is the nearest of twenty in the other view."""
        Z1, Z2 = learner.transform_view(new1, 0), learner.transform_view(new2, 1)
        D = np.linalg.norm(Z1[:, None] - Z2[None], axis=2)
        rank = (np.diag(D)[:, None] > D).sum(axis=1)
        return float(np.mean(rank < 15))

    curved = fit(X1, X2, n_components=4)
    straight = fit(X1, X2, CCA)
    assert curved.correlations_[0] > 0.9 > 0.3 > straight.correlations_[0]
    assert found(curved) > 0.5 > 0.2 > found(straight)


def test_it_comes_back_from_its_file(tmp_path):
    X1, X2 = curved_views(60)
    learner = fit(X1, X2, n_components=2)
    learner.save(tmp_path / "kcca.safetensors")
    again = load(tmp_path / "kcca.safetensors")
    X = np.hstack([X1, X2])
    assert_allclose(again.transform(X), learner.transform(X), rtol=0)
    assert_allclose(learner.transform(X), np.hstack([learner.transform_view(X1, 0), learner.transform_view(X2, 1)]))


def test_bad_views_are_named(rng):
    X = rng.normal(size=(30, 4))
    with pytest.raises(ValueError, match="needs two views, and got 3"):
        KernelCCA(views=[[0], [1], [2]]).fit(X)
    with pytest.raises(ValueError, match="view 1 is constant"):
        KernelCCA().fit(np.hstack([X[:, :2], np.ones((30, 2))]))
    learner = KernelCCA().fit(X)
    with pytest.raises(ValueError, match="view 1 has 2 columns, but X has 3"):
        learner.transform_view(X[:, :3], 1)
    with pytest.raises(ValueError, match="view=2 must be 0 or 1"):
        learner.transform_view(X[:, :2], 2)
