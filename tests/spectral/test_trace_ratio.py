"""The trace-ratio metric: optimality, the null-space branch, and what must not change it."""

import warnings

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist

import isometry
from isometry.core.linalg import SingularMatrixWarning
from isometry.spectral import TraceRatioML
from isometry.supervision import Pairs


def problem(seed=0, n=60, d=6, classes=4):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 2 * rng.standard_normal((classes, d))[y], y


def slow_scatters(X, y):
    """Mean outer products of the differences of similar and of dissimilar pairs."""
    S, D = [], []
    for i in range(len(X)):
        for j in range(i):
            (S if y[i] == y[j] else D).append(np.outer(X[i] - X[j], X[i] - X[j]))
    return np.mean(S, axis=0), np.mean(D, axis=0)


def ratio(U, D, S):
    return np.trace(U.T @ D @ U) / np.trace(U.T @ S @ U)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_M08a_the_ratio_is_the_root_of_g(p):
    X, y = problem()
    S, D = slow_scatters(X, y)
    model = TraceRatioML(p, reg=0.0).fit(X, y)
    L = model.components_
    g = sla.eigvalsh(D - model.ratio_ * S)[::-1][:p].sum()
    assert abs(g) <= 1e-8 * np.linalg.norm(D, 2)
    assert_allclose(L @ L.T, np.eye(p), atol=1e-12)
    assert_allclose(ratio(L.T, D, S), model.ratio_, rtol=1e-9)


@pytest.mark.parametrize("p", [2, 3])
def test_M08b_no_other_orthonormal_map_has_a_larger_ratio(p):
    X, y = problem(1)
    S, D = slow_scatters(X, y)
    best = TraceRatioML(p, reg=0.0).fit(X, y).ratio_
    generalised = np.linalg.qr(sla.eigh(D, S)[1][:, ::-1][:, :p])[0]
    U = np.linalg.qr(np.random.default_rng(2).standard_normal((10_000, 6, p)))[0]
    top = np.einsum("mip,ij,mjp->m", U, D, U) / np.einsum("mip,ij,mjp->m", U, S, U)
    assert ratio(generalised, D, S) < best
    assert top.max() < best
    near = np.linalg.qr(TraceRatioML(p, reg=0.0).fit(X, y).components_.T + 1e-3 * U[:200])[0]
    assert np.all([ratio(V, D, S) < best for V in near])


def test_M08c_zero_columns_and_rotations_change_nothing():
    X, y = problem(3)
    Q = np.linalg.qr(np.random.default_rng(4).standard_normal((10, 10)))[0]
    pairs = np.stack(np.triu_indices(len(X), 1), axis=1)
    wide = np.c_[X, np.zeros((len(X), 4))]
    d0 = TraceRatioML(3, reg=0.0).fit(X, y).pair_distance(X, pairs)
    assert_allclose(TraceRatioML(3, reg=0.0).fit(wide, y).pair_distance(wide, pairs), d0, rtol=1e-7)
    turned = wide @ Q.T + 5
    assert_allclose(TraceRatioML(3, reg=0.0).fit(turned, y).pair_distance(turned, pairs), d0, rtol=1e-7)


def test_M08d_one_direction_is_the_top_generalised_eigenvector():
    X, y = problem(5)
    S, D = slow_scatters(X, y)
    model = TraceRatioML(1, reg=0.0).fit(X, y)
    w, V = sla.eigh(D, S)
    assert_allclose(model.ratio_, w[-1], rtol=1e-9)
    v = V[:, -1] / np.linalg.norm(V[:, -1])
    assert_allclose(abs(model.components_[0] @ v), 1, atol=1e-8)


def test_M08e_the_ratio_falls_with_the_number_of_directions():
    X, y = problem(6)
    with pytest.warns(UserWarning, match="rotation"):
        whole = TraceRatioML(6, reg=0.0).fit(X, y)
    ratios = [TraceRatioML(p, reg=0.0).fit(X, y).ratio_ for p in range(1, 6)] + [whole.ratio_]
    assert np.all(np.diff(ratios) < 0)
    S, D = slow_scatters(X, y)
    assert_allclose(whole.ratio_, np.trace(D) / np.trace(S), rtol=1e-9)
    assert_allclose(whole.mahalanobis_, np.eye(6), atol=1e-12)


@pytest.mark.parametrize("p", [2, 3])
def test_null_space_branch_collapses_every_class(p):
    """12 samples of 4 classes in 30 dimensions: rank 11, of which similar pairs use 8, so 3 directions cost nothing."""
    X, y = problem(7, n=12, d=30)
    S, D = slow_scatters(X, y)
    model = TraceRatioML(p, reg=0.0).fit(X, y)
    L = model.components_
    assert model.ratio_ == np.inf
    assert np.trace(L @ S @ L.T) < 1e-12 * np.trace(S)
    N = sla.null_space(S)
    assert_allclose(np.trace(L @ D @ L.T), sla.eigvalsh(N.T @ D @ N)[::-1][:p].sum(), rtol=1e-9)
    Z = model.transform(X)
    for c in range(4):
        assert np.ptp(Z[y == c], axis=0).max() < 1e-6 * np.ptp(Z)


def test_beyond_the_null_space_the_ratio_is_finite():
    X, y = problem(7, n=12, d=30)
    S, D = slow_scatters(X, y)
    model = TraceRatioML(5, reg=0.0).fit(X, y)
    assert np.isfinite(model.ratio_)
    assert_allclose(ratio(model.components_.T, D, S), model.ratio_, rtol=1e-8)
    Q = sla.orth(S + D, rcond=1e-9)  # the best of 2000 random maps inside the span stays below
    U = Q @ np.linalg.qr(np.random.default_rng(8).standard_normal((2000, Q.shape[1], 5)))[0]
    assert max(ratio(V, D, S) for V in U) < model.ratio_


def test_given_lam_is_the_maximum_margin_criterion():
    X, y = problem(9)
    S, D = slow_scatters(X, y)
    L = TraceRatioML(2, lam=0.7, reg=0.0).fit(X, y).components_
    assert_allclose(np.trace(L @ (D - 0.7 * S) @ L.T), sla.eigvalsh(D - 0.7 * S)[-2:].sum(), rtol=1e-10)


def test_default_size():
    X, y = problem(10)
    assert TraceRatioML(reg=0.0).fit(X, y).components_.shape == (3, 6)
    assert TraceRatioML(reg=0.0).fit(X[:, :3], y).components_.shape == (2, 3)  # three would be a rotation
    side = Pairs([0, 1, 2, 3, 0], [4, 5, 6, 7, 1], [1, 1, 1, 1, 0], n=len(X))
    assert TraceRatioML(reg=0.0).fit(X, side).components_.shape[0] == 2


def test_unknown_lam_is_named():
    with pytest.raises(ValueError, match="lam='best'"):
        TraceRatioML(lam="best", reg=0.0).fit(*problem())


@pytest.mark.parametrize("classes, members", [(5, 6), (60, 2)])
def test_float32_sees_the_same_null_space(classes, members):
    """Few samples, or small classes: the scatter within classes is singular, which rounding must not hide."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), members)
    X = rng.standard_normal((len(y), 100)) + 2 * rng.standard_normal((classes, 100))[y]
    X = X.astype(np.float32)
    fits = [TraceRatioML(4, reg=0.0).fit(X.astype(dtype), y) for dtype in (np.float32, np.float64)]
    assert all(np.isinf(fit.ratio_) for fit in fits)
    assert fits[0].components_.dtype == np.float32
    new = rng.standard_normal((20, 100))
    found, expected = (pdist(fit.transform(new)) for fit in fits)
    assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("name", ["TraceRatioML", "FisherML", "DCA", "RCA", "GMML"])
def test_float32_with_duplicated_columns(name):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 200)
    X = rng.standard_normal((200, 6)) + 1.5 * rng.standard_normal((4, 6))[y]
    X = np.hstack([X, X @ rng.standard_normal((6, 3)), X[:, :2]]).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingularMatrixWarning)
        found, expected = (pdist(getattr(isometry, name)().fit(X.astype(t), y).transform(X)) for t in "fd")
    assert_allclose(found, expected, rtol=2e-3)
