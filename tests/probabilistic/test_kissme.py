"""Proof tests of B13, KISSME and XQDA."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import KISSME, XQDA, Labels, Pairs
from isometry.core.moments import CrossMoments
from isometry.moments import mean_pair_scatters
from tests.conftest import make_blobs
from tests.oracles import psd_project

BOTH = pytest.mark.parametrize("method", [KISSME, XQDA])


@pytest.fixture
def data():
    return make_blobs(n=60, d=4, seed=3)


def ridged(M, reg):
    return M + reg * np.trace(M) / len(M) * np.eye(len(M))


def test_B13a_the_difference_of_inverses_in_the_joint_basis(data):
    X, y = data
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    lam, V = sla.eigh(M_D, M_S)
    difference = np.linalg.inv(M_S) - np.linalg.inv(M_D)
    assert_allclose(V @ np.diag(1 - 1 / lam) @ V.T, difference, atol=1e-12 * np.abs(difference).max() * 100)
    above = lam > 1
    W = XQDA(reg=0).fit(X, y)
    assert_allclose(W.mahalanobis_, (V[:, above] * (1 - 1 / lam[above])) @ V[:, above].T, rtol=1e-9)
    assert_allclose(W.eigenvalues_, lam[::-1][: above.sum()])
    assert_allclose(W.threshold_, np.log(lam[above]).sum())


def test_B13a_the_ridge_is_on_both_scatters(data):
    """On that of similar pairs alone it would push λ below 1, and with it directions out of the map."""
    X, y = data
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    lam = sla.eigh(ridged(M_D, 1.0), ridged(M_S, 1.0))[0][::-1]
    assert_allclose(XQDA(reg=1.0).fit(X, y).eigenvalues_, lam[lam > 1])
    assert np.sum(lam > 1) > np.sum(sla.eigh(M_D, ridged(M_S, 1.0))[0] > 1)


@pytest.mark.parametrize("reg", [0, 0.1, 1.0])
def test_B13e_kissme_is_the_published_formula(data, reg):
    """inv(cov of similar differences) − inv(cov of dissimilar ones), projected on the PSD cone."""
    X, y = data
    i, j = np.triu_indices(len(X), 1)
    Z, same = X[i] - X[j], y[i] == y[j]
    S, D = ridged(Z[same].T @ Z[same] / same.sum(), reg), ridged(Z[~same].T @ Z[~same] / (~same).sum(), reg)
    raw = np.linalg.inv(S) - np.linalg.inv(D)
    learner = KISSME(reg=reg).fit(X, y)
    assert_allclose(learner.mahalanobis_, psd_project(raw), atol=1e-10 * np.abs(raw).max())
    assert_allclose(learner.threshold_, np.linalg.slogdet(D)[1] - np.linalg.slogdet(S)[1])


def test_B13e_without_anything_to_cut_off_it_is_exact_and_the_threshold_is_the_likelihood_ratio():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 6
    X = 3 * rng.standard_normal((6, 3))[y] + rng.standard_normal((60, 3))
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    raw = np.linalg.inv(M_S) - np.linalg.inv(M_D)
    assert np.linalg.eigvalsh(raw)[0] > 0
    learner = KISSME(reg=0).fit(X, y)
    assert_allclose(learner.mahalanobis_, raw, rtol=1e-10)
    z = X[0] - X[1]
    normals = [-0.5 * (z @ np.linalg.solve(M, z) + np.linalg.slogdet(M)[1]) for M in (M_D, M_S)]
    d = learner.pair_distance(X, [[0, 1]])[0] ** 2
    assert_allclose(d - learner.threshold_, 2 * (normals[0] - normals[1]))
    assert_allclose(XQDA(reg=0).fit(X, y).mahalanobis_, raw, rtol=1e-9)


def brute_cross(X, y, g):
    d, S, D, n_s, n_d = X.shape[1], 0, 0, 0, 0
    for i in range(len(X)):
        for j in range(i):
            if g[i] == g[j]:
                continue
            outer = np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                S, n_s = S + outer, n_s + 1
            else:
                D, n_d = D + outer, n_d + 1
    assert np.shape(S) == (d, d)
    return S / n_s, D / n_d


def test_B13c_pairs_across_groups_by_loops(data):
    X, y = data
    g = np.random.default_rng(0).integers(0, 3, len(X))
    expected = brute_cross(X, y, g)
    for side in (Labels(y), Labels(y).to(Pairs)):
        for got, M in zip(CrossMoments(X, side, g).mean_pair_scatters(), expected):
            assert_allclose(got, M, rtol=1e-10)
    cameras = np.array(["north", "south", "west"])[g]
    a, b = KISSME(reg=0.1).fit(X, y, groups=cameras), KISSME(reg=0.1).fit(X, Labels(y).to(Pairs), groups=g)
    S, D = (ridged(M, 0.1) for M in expected)
    assert_allclose(a.mahalanobis_, psd_project(np.linalg.inv(S) - np.linalg.inv(D)), rtol=1e-9)
    assert_allclose(b.mahalanobis_, a.mahalanobis_, rtol=1e-9)


@BOTH
def test_B13c_groups_take_out_what_belongs_to_the_group(method):
    """A camera shifts a feature and sees some classes more often, which only pairs of one camera take for class."""
    rng = np.random.default_rng(1)
    y = np.arange(160) % 8
    g = np.where(np.arange(160) < 120, y % 2, 1 - y % 2)
    own = 2 * rng.standard_normal((8, 2))[y] + 0.5 * rng.standard_normal((160, 2))
    X = np.c_[own, 4.0 * g + rng.standard_normal(160)]
    plain, across = method(reg=0.01).fit(X, y), method(reg=0.01).fit(X, y, groups=g)
    shift = [np.diag(m.mahalanobis_)[2] / np.diag(m.mahalanobis_)[:2].mean() for m in (plain, across)]
    assert shift[1] < 0.2 * shift[0]


@BOTH
def test_B13d_labels_are_all_their_pairs(method, data):
    X, y = data
    a, b = method(reg=0.1).fit(X, y), method(reg=0.1).fit(X, Labels(y).to(Pairs))
    assert_allclose(b.mahalanobis_, a.mahalanobis_, rtol=1e-9)


def test_B13_singular_vectors_of_the_authors_program(data):
    X, y = data
    M_S, M_D = (ridged(M, 0.1) for M in mean_pair_scatters(X, Labels(y)))
    U, s, _ = np.linalg.svd(np.linalg.inv(M_S) @ M_D)
    U = U[:, s > 1]
    raw = np.linalg.inv(U.T @ M_S @ U) - np.linalg.inv(U.T @ M_D @ U)
    lam, V = sla.eigh(U.T @ M_D @ U, U.T @ M_S @ U)
    assert_allclose((V * (1 - 1 / lam)) @ V.T, raw, atol=1e-12)
    V, lam = V[:, lam > 1], lam[lam > 1]
    W = XQDA(subspace="svd", reg=0.1).fit(X, y).mahalanobis_
    assert_allclose(W, U @ (V * (1 - 1 / lam)) @ V.T @ U.T, atol=1e-10 * np.abs(W).max())


@BOTH
def test_B13_directions_are_the_leading_ones(method, data):
    X, y = data
    full, two = method(reg=0.1).fit(X, y), method(2, reg=0.1).fit(X, y)
    assert two.components_.shape == (2, 4)
    if method is KISSME:
        lam, U = np.linalg.eigh(full.mahalanobis_)
        assert_allclose(two.mahalanobis_, (U[:, -2:] * lam[-2:]) @ U[:, -2:].T, atol=1e-9)
    else:
        assert_allclose(two.mahalanobis_, full.components_[:2].T @ full.components_[:2], atol=1e-12)


@BOTH
def test_B13_useless_labels_keep_one_direction_and_say_so(method):
    X = np.array([[0.0, 1.0], [0.0, -1.0], [0.1, 2.0], [0.1, -2.0]])
    pairs = Pairs([0, 2, 0, 1], [1, 3, 2, 3], [True, True, False, False], n=4)
    X2 = np.c_[X[:, 0] * 0, X[:, 1]]
    with pytest.warns(UserWarning, match="spread no more than similar ones"):
        learner = method().fit(X2, pairs)
    assert learner.components_.shape[0] == 1 and np.ptp(learner.transform(X2)) > 0


def test_B13_errors(data):
    X, y = data
    with pytest.raises(ValueError, match="no dissimilar pair joins two groups"):
        KISSME(reg=0.1).fit(np.eye(4), Pairs([0, 0], [1, 2], [True, False], n=4), groups=[0, 1, 0, 1])
    with pytest.raises(ValueError, match="no similar pair joins two groups"):
        KISSME(reg=0.1).fit(X, y, groups=y)
    with pytest.raises(ValueError, match="X has 60 samples but groups has 59"):
        KISSME(reg=0.1).fit(X, y, groups=y[:-1])
    with pytest.raises(ValueError, match="all samples are equal"):
        KISSME(reg=0.1).fit(np.ones((4, 2)), [0, 0, 1, 1])
