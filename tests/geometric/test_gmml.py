"""GMML: regular, regularised and weighted."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from isometry.core.linalg import SingularMatrixWarning
from isometry.core.spd import geodesic
from isometry.geometric import GMML
from isometry.supervision import Pairs
from tests.conftest import make_blobs
from tests.oracles import riemannian_distance


def slow_scatters(X, y):
    """Means of (x_i − x_j)(x_i − x_j)ᵀ over similar and dissimilar pairs."""
    similar, dissimilar = [], []
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            (similar if y[i] == y[j] else dissimilar).append(np.outer(z, z))
    return np.mean(similar, axis=0), np.mean(dissimilar, axis=0)


def all_pairs(y, flip=False):
    i, j = np.triu_indices(len(y), 1)
    return Pairs(i, j, (y[i] == y[j]) != flip, n=len(y))


def spd(d, seed):
    A = np.random.default_rng(seed).normal(size=(d, 2 * d))
    return A @ A.T / d


def test_M23a_riccati():
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    W = GMML(reg=0.0).fit(X, y).mahalanobis_
    assert np.linalg.norm(W @ S @ W - D) <= 1e-9 * np.linalg.norm(D)


def test_M23b_value_and_that_nothing_is_lower():
    X, y = make_blobs(d=3)
    S, D = slow_scatters(X, y)
    W = GMML(reg=0.0).fit(X, y).mahalanobis_

    def cost(W):
        return np.trace(W @ S) + np.trace(np.linalg.inv(W) @ D)

    value = 2 * np.sum(np.sqrt(np.linalg.eigvals(S @ D).real))
    assert_allclose(cost(W), value, rtol=1e-10)

    def by_factor(v):
        L = v.reshape(3, 3)
        return cost(L.T @ L)

    for seed in range(2):
        assert_allclose(minimize(by_factor, spd(3, seed).ravel()).fun, value, rtol=1e-7)


def test_M23c_turns_with_the_data_but_is_not_affine_invariant():
    X, y = make_blobs()
    rng = np.random.default_rng(1)
    Q, T = np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.normal(size=(4, 4)) + 2 * np.eye(4)
    W = GMML(reg=0.0).fit(X, y).mahalanobis_
    assert_allclose(GMML(reg=0.0).fit(X @ Q.T, y).mahalanobis_, Q @ W @ Q.T, atol=1e-9 * np.abs(W).max())
    stretched = T.T @ GMML(reg=0.0).fit(X @ T.T, y).mahalanobis_ @ T  # the same metric, were it affine invariant
    assert np.abs(stretched / np.trace(stretched) - W / np.trace(W)).max() > 0.05


def test_M23d_diagonal_scatters():
    a, b = np.array([0.5, 1.0, 2.0]), np.array([3.0, 0.2, 1.0])
    X = np.vstack([np.zeros(3), np.diag(a), np.diag(b)])  # pairs from the origin along the axes
    W = GMML(reg=0.0).fit(X, Pairs([0] * 6, np.arange(1, 7), [True] * 3 + [False] * 3, n=7)).mahalanobis_
    assert_allclose(W, np.diag(b / a), atol=1e-12)


def test_M23e_swapping_roles_inverts():
    X, y = make_blobs()
    W, swapped = (GMML(reg=0.0).fit(X, all_pairs(y, flip)).mahalanobis_ for flip in (False, True))
    assert_allclose(swapped, np.linalg.inv(W), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("prior", ["identity", "covariance", spd(4, 7)], ids=["identity", "covariance", "array"])
def test_M24a_gradient_vanishes(prior):
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    named = {"identity": np.eye(4), "covariance": np.linalg.inv(np.cov(X.T))}
    W0 = named[prior] if isinstance(prior, str) else prior
    W = GMML(reg=0.3, prior=prior).fit(X, y).mahalanobis_
    V = np.linalg.inv(W)
    terms = S, -V @ D @ V, 0.3 * np.linalg.inv(W0), -0.3 * V @ W0 @ V
    assert np.abs(sum(terms)).max() < 1e-9 * max(np.abs(term).max() for term in terms)


def test_M24b_strong_prior_wins():
    X, y = make_blobs()
    W0 = spd(4, 7)
    gap = [np.abs(GMML(reg=reg, prior=W0).fit(X, y).mahalanobis_ - W0).max() for reg in (1e4, 1e6)]
    assert gap[0] > 1e-4
    assert_allclose(gap[1], gap[0] / 100, rtol=0.05)


def test_M24c_without_scatter_only_the_prior_is_left():
    W0 = spd(3, 7)
    X = np.r_[np.ones((6, 3)), [[1.0, 2.0, 3.0]]]  # the last sample is in no pair
    W = GMML(reg=0.5, prior=W0).fit(X, Pairs([0, 2], [1, 3], [True, False], n=7)).mahalanobis_
    assert_allclose(W, W0, rtol=1e-9)


def test_M24d_a_vanishing_prior_is_plain_gmml():
    X, y = make_blobs()
    assert_allclose(GMML(reg=1e-11).fit(X, y).mahalanobis_, GMML(reg=0.0).fit(X, y).mahalanobis_, rtol=1e-8)


@pytest.mark.parametrize("t", [0.25, 0.5, 0.8])
def test_M25a_divides_the_geodesic(t):
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    W = GMML(t=t, reg=0.0).fit(X, y).mahalanobis_
    length = riemannian_distance(np.linalg.inv(S), D)
    assert length > 1
    assert_allclose(riemannian_distance(W, np.linalg.inv(S)), t * length, rtol=1e-8)
    assert_allclose(riemannian_distance(W, D), (1 - t) * length, rtol=1e-8)


def test_M25b_the_ends():
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    assert_allclose(GMML(t=0, reg=0.0).fit(X, y).mahalanobis_, np.linalg.inv(S), rtol=1e-8, atol=1e-12)
    assert_allclose(GMML(t=1, reg=0.0).fit(X, y).mahalanobis_, D, rtol=1e-8)


def test_M25c_the_geodesic_may_be_walked_from_either_end():
    A, B = spd(4, 0), spd(4, 1)
    assert_allclose(geodesic(A, B, 0.3), geodesic(B, A, 0.7), rtol=1e-9)
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    assert_allclose(GMML(t=0.3, reg=0.0).fit(X, y).mahalanobis_, geodesic(D, np.linalg.inv(S), 0.7), rtol=1e-8)


@pytest.mark.parametrize("t", [0.25, 0.5, 0.8])
def test_M25d_riemannian_gradient_vanishes(t):
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    W = GMML(t=t, reg=0.0).fit(X, y).mahalanobis_
    R = sla.sqrtm(W)  # log(WA) is similar to the symmetric log(RAR), by one R for both terms
    gradient = (1 - t) * sym_log(R @ S @ R) + t * sym_log(R @ np.linalg.inv(D) @ R)
    assert np.abs(gradient).max() < 1e-9


def sym_log(A):
    w, V = np.linalg.eigh(A)
    return (V * np.log(w)) @ V.T


def test_weighted_and_regularised_together():
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    W0 = spd(4, 7)
    W = GMML(t=0.3, reg=0.2, prior=W0).fit(X, y).mahalanobis_
    assert_allclose(W, geodesic(np.linalg.inv(S + 0.2 * np.linalg.inv(W0)), D + 0.2 * W0, 0.3), rtol=1e-8)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 1.0])
def test_beyond_the_row_space_the_prior_alone_is_left(t):
    """With fewer samples than features, what is solved among the samples is the solution among all features."""
    X, y = np.random.default_rng(0).normal(size=(9, 20)), np.arange(9) % 3
    S, D = slow_scatters(X, y)
    W = geodesic(np.linalg.inv(S + 0.2 * np.eye(20)), D + 0.2 * np.eye(20), t)
    for side in (y, all_pairs(y)):
        assert_allclose(GMML(t=t, reg=0.2).fit(X, side).mahalanobis_, W, rtol=1e-8, atol=1e-9 * np.abs(W).max())


def test_leading_components_beyond_the_row_space():
    """For t = 1 the prior is the smallest part of W, so that its leading directions are among the samples."""
    X, y = np.random.default_rng(0).normal(size=(9, 20)), np.arange(9) % 3
    W = slow_scatters(X, y)[1] + 0.2 * np.eye(20)
    w, V = np.linalg.eigh(W)
    assert w[-3] > 1.01 * w[-4]  # or the directions would not be determined
    L = GMML(3, t=1.0, reg=0.2).fit(X, y).components_
    assert_allclose(L.T @ L, (V[:, -3:] * w[-3:]) @ V[:, -3:].T, rtol=1e-8, atol=1e-9 * w[-1])


def test_leading_components():
    X, y = make_blobs()
    w, V = np.linalg.eigh(GMML(reg=0.0).fit(X, y).mahalanobis_)
    L = GMML(2, reg=0.0).fit(X, y).components_
    assert L.shape == (2, 4)
    assert_allclose(L.T @ L, (V[:, 2:] * w[2:]) @ V[:, 2:].T, rtol=1e-8, atol=1e-10)


def test_directions_without_variance_are_left_out_and_singular_scatters_get_a_ridge():
    X, y = make_blobs()
    doubled = GMML(reg=0.0).fit(np.c_[X, X[:, :1]], y)
    assert doubled.components_.shape == (4, 5)
    with pytest.warns(SingularMatrixWarning, match="relative ridge of 0.0001"):
        few = GMML(reg=0.0).fit(np.random.default_rng(0).normal(size=(8, 20)), [0, 0, 0, 0, 1, 1, 1, 1])
    assert few.components_.shape == (7, 20)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"t": 1.5}, r"t=1.5 must lie in \[0, 1\]"),
        ({"reg": -1}, "reg=-1 must not be negative"),
        ({"reg": 1, "prior": "uniform"}, "prior='uniform' is unknown"),
        ({"reg": 1, "prior": -np.eye(4)}, "positive definite"),
        ({"n_components": 5}, "n_components=5 must be between 1 and"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        GMML(**params).fit(*make_blobs())


def test_the_ridge_of_a_singular_similar_scatter_leaves_the_other_alone():
    """A feature that is constant within classes: S is singular where D is not."""
    X, y = make_blobs(n=60, d=4)
    X = np.column_stack([X, y])
    with pytest.warns(SingularMatrixWarning):
        W = GMML(reg=0.0).fit(X, y).mahalanobis_
    S, D = slow_scatters(X, y)
    S += 1e-4 * np.trace(S) / 5 * np.eye(5)
    assert np.linalg.norm(W @ S @ W - D) <= 1e-7 * np.linalg.norm(D)
    D += 1e-4 * np.trace(D) / 5 * np.eye(5)
    assert np.linalg.norm(W @ S @ W - D) > 1e-5 * np.linalg.norm(D)
