"""Proof tests of B16, robust geometric metric learning."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import RGML, Chunklets, Labels
from isometry.geometric.rgml import Problem, class_differences, karcher_mean, least_shrink, ridge_of
from tests.conftest import make_blobs
from tests.oracles import riemannian_distance


def spread_classes(n=25, d=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], n)
    shape = [rng.standard_normal((d, d)) + 1.5 * np.eye(d) for _ in range(3)]
    return np.concatenate([rng.standard_normal((n, d)) @ M for M in shape]) + 5 * rng.standard_normal((3, d))[y], y


def problem(rho="tyler", shrink=0.05, reg=0.1, seed=0):
    X, y = spread_classes(seed=seed)
    classes, counts = class_differences(X, y, 200, np.random.RandomState(0))
    pooled = sum(Z.T @ Z / len(Z) for Z in classes) / 3
    return Problem(classes, np.array(counts) / sum(counts), np.full(3, shrink), reg, rho == "tyler"), pooled


def random_state(d=3, c=3, seed=1):
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((c + 1, d, 2 * d))
    S = M @ np.swapaxes(M, 1, 2) / d
    return S[0], S[1:]


@pytest.mark.parametrize("rho", ["tyler", "gaussian"])
def test_B16b_slopes_by_differences(rho):
    f, _ = problem(rho)
    A, S = random_state()
    H = np.random.default_rng(2).standard_normal((3, 3))
    H, h = H + H.T, 1e-6
    for k in range(3):
        G, root = f.gradient(k, A, S[k])
        up, down = (f.class_value(k, A, root @ sla.expm(s * h * H) @ root) for s in (1, -1))
        assert_allclose((up - down) / (2 * h), np.sum(G * H), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("rho", ["tyler", "gaussian"])
@pytest.mark.parametrize("reg", [0, 0.1, 10.0])
def test_B16b_no_step_raises_the_objective(rho, reg):
    f, pooled = problem(rho, reg=reg)
    state, values = (pooled, np.repeat(pooled[None], 3, axis=0)), [np.inf]
    for _ in range(8):
        state, value = f.step(state)
        assert_allclose(value, f.value(*state))
        values.append(value)
    assert np.all(np.diff(values) <= 1e-10)
    assert values[-1] < f.value(pooled, np.repeat(pooled[None], 3, axis=0)) - 1e-3


@pytest.mark.parametrize("rho", ["tyler", "gaussian"])
def test_B16b_it_ends_where_all_slopes_vanish(rho):
    f, pooled = problem(rho)
    state = pooled, np.repeat(pooled[None], 3, axis=0)
    for _ in range(60):
        state, _ = f.step(state)
    A, S = state
    for k in range(3):
        assert np.abs(f.gradient(k, A, S[k])[0]).max() < 1e-4
    L = np.linalg.inv(sla.sqrtm(A).real)
    assert np.abs(sum(sla.logm(L @ s @ L).real for s in S)).max() < 1e-4  # A is the middle


def test_B16a_gaussian_with_a_large_pull_is_the_pooled_covariance():
    X, y = spread_classes()
    learner = RGML(rho="gaussian", reg=1e3, shrink=0, n_pairs=10_000, tol=1e-9, strength=1.0).fit(X, y)
    pooled = sum(np.cov(X[y == c].T) for c in range(3)) / 3
    W = learner.mahalanobis_
    expected = np.linalg.inv(2 * pooled)  # pairs have twice the variance
    assert_allclose(W, expected, rtol=0, atol=5e-3 * np.abs(expected).max())


def test_B16a_without_pull_gaussian_classes_keep_their_own_covariance_and_the_metric_is_their_middle():
    X, y = spread_classes()
    learner = RGML(rho="gaussian", reg=0, shrink=0, n_pairs=10_000, tol=1e-9, strength=1.0).fit(X, y)
    S = np.array([2 * np.cov(X[y == c].T) for c in range(3)])
    A = np.linalg.inv(learner.mahalanobis_)
    total = sum(riemannian_distance(A, s) ** 2 for s in S)
    rng = np.random.default_rng(0)
    for _ in range(20):
        E = 1e-2 * rng.standard_normal((3, 3))
        root = sla.sqrtm(A).real
        assert sum(riemannian_distance(root @ sla.expm(E + E.T) @ root, s) ** 2 for s in S) > total


def test_B16c_turns_and_stretches_with_the_features():
    X, y = spread_classes()
    T = np.random.default_rng(1).standard_normal((3, 3)) + 2 * np.eye(3)
    options = {"shrink": 0, "n_pairs": 10_000, "tol": 1e-9, "max_iter": 150}
    W, V = (
        RGML(**options, strength=1.0).fit(X, y).mahalanobis_,
        RGML(**options, strength=1.0).fit(X @ T.T + 3, y).mahalanobis_,
    )
    back = T.T @ V @ T
    assert_allclose(back / np.trace(back), W / np.trace(W), rtol=0, atol=1e-4)


def test_B16d_tyler_looks_at_directions_not_at_lengths():
    X, y = spread_classes()
    X = X - np.array([X[y == c].mean(axis=0) for c in range(3)])[y]
    wide = X * np.where(y == 1, 10.0, 1.0)[:, None]
    options = {"shrink": 0, "n_pairs": 10_000, "tol": 1e-9, "max_iter": 150}

    def shape(X, rho):
        W = RGML(rho=rho, **options, strength=1.0).fit(X, y).mahalanobis_
        return W / np.linalg.det(W) ** (1 / 3)

    assert_allclose(shape(wide, "tyler"), shape(X, "tyler"), atol=2e-3)
    assert np.abs(shape(wide, "gaussian") - shape(X, "gaussian")).max() > 1e-2


def test_B16d_outliers_do_little_harm():
    X, y = spread_classes(60)
    clean = {rho: RGML(rho=rho, n_pairs=10_000, strength=1.0).fit(X, y).mahalanobis_ for rho in ("tyler", "gaussian")}
    spoilt = X.copy()
    spoilt[::20] += 100 * np.random.default_rng(0).standard_normal((9, 3))

    def harm(rho):
        W, C = RGML(rho=rho, n_pairs=10_000, strength=1.0).fit(spoilt, y).mahalanobis_, clean[rho]
        return riemannian_distance(W / np.trace(W), C / np.trace(C))

    assert harm("tyler") < 0.5 * harm("gaussian")


def test_B16_karcher_mean_of_commuting_matrices_is_geometric():
    S = np.array([np.diag([1.0, 4.0]), np.diag([9.0, 4.0]), np.diag([3.0, 32.0])])
    share = np.array([0.25, 0.25, 0.5])
    expected = np.exp(np.tensordot(share, np.log(np.array([[1, 4], [9, 4], [3, 32]])), axes=1))
    assert_allclose(karcher_mean(S, share, np.eye(2)), np.diag(expected), atol=1e-9)


def test_B16_small_and_empty_classes_take_no_part():
    X, y = make_blobs(n=60)
    odd = np.r_[X, X[:2] + 50, np.repeat(X[:1], 12, axis=0)], np.r_[y, 7, 7, [8] * 12]  # of two; without variance
    a, b = RGML(strength=1.0).fit(X, y), RGML(strength=1.0).fit(*odd)
    assert_allclose(b.mahalanobis_, a.mahalanobis_, rtol=1e-6)


def test_B16_if_no_class_is_large_enough_they_are_one():
    X, y = make_blobs(n=60)
    pairs = Chunklets(np.arange(60) // 2)
    with pytest.warns(UserWarning, match="all classes are taken for one"):
        learner = RGML(strength=1.0).fit(X, pairs)
    assert np.linalg.matrix_rank(learner.mahalanobis_) == 4
    assert RGML(strength=1.0).fit(X, Chunklets(y)).mahalanobis_.shape == (4, 4)


def test_B16_pairs_are_drawn_where_there_are_many():
    X = np.random.default_rng(0).standard_normal((50, 2))
    few, n = class_differences(X, np.zeros(50, dtype=int), 100, np.random.RandomState(0))
    assert few[0].shape == (100, 2) and n == [50]
    every, _ = class_differences(X, np.zeros(50, dtype=int), 2000, np.random.RandomState(0))
    assert every[0].shape == (1225, 2)


def test_B16_errors_and_start():
    with pytest.raises(ValueError, match="all samples of every class are equal"):
        RGML(strength=1.0).fit(np.array([[0.0, 1], [0, 1], [2, 3], [2, 3]]), Labels([0, 0, 1, 1]))
    assert np.linalg.eigvalsh(ridge_of(np.zeros((2, 2)), 0))[0] > 0


def test_B16_classes_that_span_few_dimensions():
    """Tyler's ρ alone would let the variance of what a class does not span go to 0."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    X = rng.standard_normal((80, 8))
    X[y == 0, 5:] = 0.0
    learner = RGML(strength=1.0).fit(X, y)
    assert learner.converged_ and np.linalg.cond(learner.mahalanobis_) < 1e4
    assert least_shrink(X[:40]) == 1 - 0.9 * 5 / 8 and least_shrink(X[40:]) == 0
