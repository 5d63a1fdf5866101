"""Proof tests of B25, whitening."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA

from isometry import RCA, Covariance, Labels, Whitening
from isometry.core.distance import sqdist
from tests.conftest import make_blobs


@pytest.fixture
def data():
    return make_blobs(n=60, d=4, seed=3)


def within_covariance(X, y):
    R = X - np.array([X[y == c].mean(axis=0) for c in np.unique(y)])[y]
    return R.T @ R / (len(X) - len(np.unique(y)))


def test_B25a_full_power_without_ridge_makes_the_covariance_the_identity(data):
    X, _ = data
    Z = Whitening(power=1, reg=0).fit_transform(X)
    assert_allclose(np.cov(Z.T), np.eye(4), atol=1e-10)
    assert_allclose(Whitening(power=1, reg=0).fit(X).mahalanobis_, Covariance(reg=0.0).fit(X).mahalanobis_, rtol=1e-9)


@pytest.mark.parametrize("power", [0, 0.5, 1, 1.5])
def test_B25_variances_become_their_power(data, power):
    """With a ridge r = reg tr/d, the direction of variance λ gets λ/(λ + r)^power."""
    X, _ = data
    lam = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    Z = Whitening(power=power, reg=0.1).fit_transform(X)
    assert_allclose(np.cov(Z.T), np.diag(lam / (lam + 0.1 * lam.mean() * (power > 0)) ** power), atol=1e-9 * lam[0])


@pytest.mark.parametrize("options", [{}, {"within": True, "power": 1}, {"remove": 1}, {"n_components": 2}])
def test_B25b_zca_has_the_distances_of_pca_and_is_symmetric(data, options):
    X, y = data
    pca, zca = (Whitening(rotate=r, reg=1e-2, **options).fit(X, y) for r in ("pca", "zca"))
    assert zca.components_.shape == (4, 4)
    assert_allclose(zca.components_, zca.components_.T, atol=1e-12)
    D = sqdist(pca.transform(X))
    assert_allclose(sqdist(zca.transform(X)), D, atol=1e-10 * D.max())


def test_B25b_zca_is_the_inverse_root_of_the_covariance(data):
    X, _ = data
    L = Whitening(power=1, reg=0, rotate="zca").fit(X).components_
    assert_allclose(L @ L, np.linalg.inv(np.cov(X.T)), rtol=1e-9)


def test_B25c_within_classes_at_full_power_is_rca(data):
    """RCA divides the scatter by n, whitening by its degrees of freedom n − c."""
    X, y = data
    W = Whitening(power=1, within=True, reg=0).fit(X, y).mahalanobis_
    assert_allclose(W, np.linalg.inv(within_covariance(X, y)), rtol=1e-9)
    assert_allclose(W, RCA(reg=0.0).fit(X, y).mahalanobis_ * (len(X) - 3) / len(X), rtol=1e-9)


def test_B25d_removing_without_power_is_an_orthogonal_projector(data):
    X, y = data
    L = Whitening(power=0, remove=2, rotate="zca", reg=1e-2).fit(X).components_
    U = np.linalg.eigh(np.cov(X.T))[1][:, ::-1][:, :2]
    assert_allclose(L, np.eye(4) - U @ U.T, atol=1e-10)
    nap = Whitening(power=0, remove=1, within=True, rotate="zca", reg=1e-2).fit(X, y).components_
    u = np.linalg.eigh(within_covariance(X, y))[1][:, -1]
    assert_allclose(nap, np.eye(4) - np.outer(u, u), atol=1e-10)


def test_B25d_power_0_is_pca(data):
    X, _ = data
    Z, expected = Whitening(2, power=0, reg=1e-2).fit_transform(X - X.mean(axis=0)), PCA(2).fit_transform(X)
    assert_allclose(np.abs(Z), np.abs(expected), atol=1e-9)


def test_B25d_a_share_of_the_variance(data):
    X, _ = data
    for share in (0.5, 0.8, 0.95, 0.999):
        p = PCA(share).fit(X).n_components_
        assert len(Whitening(share, reg=0).fit(X).components_) == p


def test_B25e_fewer_samples_than_features(rng):
    X = rng.standard_normal((6, 15))
    learner = Whitening(power=1, reg=0).fit(X)
    assert learner.components_.shape == (5, 15)
    assert_allclose(np.cov(learner.transform(X).T), np.eye(5), atol=1e-8)
    away = np.linalg.svd(X - X.mean(axis=0))[2][-1]  # orthogonal to all differences of samples
    assert_allclose(learner.components_ @ away, 0, atol=1e-9)


def test_B25e_what_varies_between_classes_alone_is_kept(rng):
    """A feature that is the class itself has no variance within classes; it is the best there is."""
    y = np.arange(30) % 3
    X = np.c_[rng.standard_normal((30, 2)), y]
    L = Whitening(within=True, power=1, reg=1e-2).fit(X, y).components_
    assert np.linalg.matrix_rank(L) == 3
    assert np.linalg.norm(L[:, 2]) > 3 * np.linalg.norm(L[:, 0])


@pytest.mark.parametrize("within", [False, True])
def test_B25f_streaming_is_the_array(data, within):
    X, y = data
    whole, parts = Whitening(within=within, reg=1e-2).fit(X, y), Whitening(within=within, reg=1e-2)
    for rows in np.array_split(np.arange(len(X)), 7):
        parts.partial_fit(X[rows], y[rows] if within else None)
    assert_allclose(parts.components_, whole.components_, atol=1e-10)
    some = np.where(np.arange(60) % 4, y, -1)
    known = some >= 0
    if within:
        a, b = (
            Whitening(within=True, reg=1e-2).fit(X, Labels(some, unlabelled=-1)),
            Whitening(within=True, reg=1e-2).fit(X[known], y[known]),
        )
        assert_allclose(a.components_, b.components_)


def test_B25_errors(data):
    X, _ = data
    with pytest.raises(ValueError, match="requires y"):
        Whitening(within=True, reg=1e-2).fit(X)
    with pytest.raises(ValueError, match="all samples are equal"):
        Whitening(reg=1e-2).fit(np.ones((5, 3)))
    with pytest.raises(ValueError, match="remove=4 leaves no direction"):
        Whitening(remove=4, reg=1e-2).fit(X)
    with pytest.raises(ValueError, match=r"n_components=1.5 must be a whole number, or a share"):
        Whitening(1.5, reg=1e-2).fit(X)
    with pytest.raises(ValueError, match="n_components=9"):
        Whitening(9, reg=1e-2).fit(X)
