"""Proof tests of B26: canonical correlations and Procrustes rotations between two views."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import orthogonal_procrustes
from sklearn.cross_decomposition import CCA as SklearnCCA

from isometry import CCA, Procrustes, load


def two_views(n=200, d1=4, d2=3, seed=0):
    """Views that share two hidden signals."""
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((n, 2))
    X1 = H @ rng.standard_normal((2, d1)) + rng.standard_normal((n, d1))
    X2 = H @ rng.standard_normal((2, d2)) + rng.standard_normal((n, d2))
    return X1 + 3, X2 - 5


def fit(method, X1, X2, **options):
    d1, d2 = X1.shape[1], X2.shape[1]
    return method(views=[range(d1), range(d1, d1 + d2)], **options).fit(np.hstack([X1, X2]))


def test_B26a_correlations_are_scikit_learns():
    X1, X2 = two_views()
    learner = fit(CCA, X1, X2, reg=0)
    Z1, Z2 = SklearnCCA(3, max_iter=5000, tol=1e-14).fit(X1, X2).transform(X1, X2)
    theirs = [abs(np.corrcoef(Z1[:, k], Z2[:, k])[0, 1]) for k in range(3)]
    assert_allclose(learner.correlations_, theirs, rtol=1e-6)
    ours = learner.transform_view(X1, 0), learner.transform_view(X2, 1)
    assert_allclose([np.corrcoef(ours[0][:, k], ours[1][:, k])[0, 1] for k in range(3)], learner.correlations_)


def test_B26a_constraints_and_weights():
    X1, X2 = two_views()
    for power in (0, 1, 2.5):
        learner = fit(CCA, X1, X2, reg=0, power=power)
        rho = learner.correlations_
        Z = [learner.transform_view(X, v) for v, X in enumerate((X1, X2))]
        for v in Z:
            assert_allclose(v.mean(axis=0), 0, atol=1e-10)
            assert_allclose(np.cov(v.T, ddof=0), np.diag(rho ** (2 * power)), atol=1e-9)
        assert_allclose(Z[0].T @ Z[1] / len(X1), np.diag(rho ** (2 * power + 1)), atol=1e-9)


def test_B26b_a_rotated_view_is_laid_upon_the_other(rng):
    X1, _ = two_views()
    R = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    for scale in (True, False):
        learner = fit(Procrustes, X1, X1 @ R + 7, scale=scale)
        A, B = learner.components_[:4, :4], learner.components_[4:, 4:]
        unit = np.trace(np.cov(X1.T, ddof=0)) if scale else 1.0
        assert_allclose(A.T @ B * unit, R, atol=1e-9)
        assert_allclose(learner.transform_view(X1, 0), learner.transform_view(X1 @ R + 7, 1), atol=1e-9)


def test_B26b_procrustes_is_scipys_rotation():
    X1, X2 = two_views(d2=4)
    X1, X2 = X1 - X1.mean(axis=0), X2 - X2.mean(axis=0)
    learner = fit(Procrustes, X1, X2, scale=False)
    R = orthogonal_procrustes(X1, X2)[0]
    assert_allclose(learner.components_[:4, :4].T @ learner.components_[4:, 4:], R, atol=1e-9)
    assert_allclose(learner.components_[:4, :4] @ learner.components_[:4, :4].T, np.eye(4), atol=1e-10)


def test_B26c_affine_maps_of_a_view_do_not_matter_to_cca(rng):
    X1, X2 = two_views()
    T, S = (rng.standard_normal((d, d)) + 2 * np.eye(d) for d in (4, 3))
    a, b = fit(CCA, X1, X2, reg=0), fit(CCA, X1 @ T + 1, X2 @ S - 2, reg=0)
    assert_allclose(a.correlations_, b.correlations_, rtol=1e-9)

    def distances(learner, V1, V2):
        Z1, Z2 = learner.transform_view(V1, 0), learner.transform_view(V2, 1)
        return np.linalg.norm(Z1[:, None] - Z2[None], axis=2)

    D = distances(a, X1, X2)
    assert_allclose(distances(b, X1 @ T + 1, X2 @ S - 2), D, atol=1e-8 * D.max())


@pytest.mark.parametrize("method", [CCA, Procrustes])
def test_B26d_views_can_be_swapped(method):
    X1, X2 = two_views()
    a, b = fit(method, X1, X2), fit(method, X2, X1)
    for view, X in ((0, X1), (1, X2)):
        Z, swapped = a.transform_view(X, view), b.transform_view(X, 1 - view)
        assert_allclose(np.abs(swapped), np.abs(Z), atol=1e-9)


@pytest.mark.parametrize("method", [CCA, Procrustes])
def test_B26_transform_puts_both_views_side_by_side(method, tmp_path):
    X1, X2 = two_views()
    X = np.hstack([X2[:, :1], X1, X2[:, 1:]])
    views = [[1, 2, 3, 4], [0, 5, 6]]
    learner = method(2, views=views).fit(X)
    Z = learner.transform(X - X.mean(axis=0))
    assert_allclose(Z, np.hstack([learner.transform_view(X1, 0), learner.transform_view(X2, 1)]), atol=1e-9)
    learner.save(tmp_path / "views.isometry")
    again = load(tmp_path / "views.isometry")
    assert_allclose(again.transform_view(X2, 1), learner.transform_view(X2, 1), rtol=0, atol=0)


def test_B26_finds_the_other_half():
    """Weights help to find the view that belongs to a view, among samples never seen."""
    X1, X2 = two_views(600, 12, 12, seed=1)
    train, test = slice(0, 300), slice(300, 600)

    def hit_rate(learner):
        Z1, Z2 = learner.transform_view(X1[test], 0), learner.transform_view(X2[test], 1)
        order = np.argsort(np.linalg.norm(Z1[:, None] - Z2[None], axis=2), axis=1)[:, :10]
        return np.mean(order == np.arange(300)[:, None]) * 10

    plain, weighted = (hit_rate(fit(CCA, X1[train], X2[train], power=power)) for power in (0, 1))
    assert weighted > plain + 0.1 and plain > 10 / 300


def test_B26_more_columns_than_samples():
    X1, X2 = two_views(20, 30, 25)
    with pytest.warns(UserWarning, match="as many columns as there are samples"):
        learner = fit(CCA, X1, X2, reg=0)
    assert np.isfinite(learner.components_).all() and learner.correlations_[0] < 1
    assert np.isfinite(fit(Procrustes, X1, X2).components_).all()


def test_B26_constant_columns_get_no_weight():
    X1, X2 = two_views()
    learner = fit(CCA, np.c_[X1, np.full(200, 9.0)], X2, reg=0)
    assert_allclose(learner.components_[:, 4], 0, atol=1e-12)
    assert_allclose(learner.correlations_, fit(CCA, X1, X2, reg=0).correlations_, rtol=1e-9)


def test_B26_errors():
    X1, X2 = two_views()
    X = np.hstack([X1, X2])
    with pytest.raises(ValueError, match="CCA needs two views, and got 3"):
        CCA(views=[[0], [1], [2]]).fit(X)
    with pytest.raises(ValueError, match="view 1 is constant"):
        CCA(views=[[0], [1]]).fit(np.c_[X1[:, 0], np.ones(200)])
    with pytest.raises(ValueError, match="n_components=4 must be between 1 and the number of features, 3"):
        fit(CCA, X1, X2, n_components=4)
    learner = fit(CCA, X1, X2)
    with pytest.raises(ValueError, match="view 1 has 3 columns, but X has 4"):
        learner.transform_view(X1, 1)
    with pytest.raises(ValueError, match="view=2 must be 0 or 1"):
        learner.transform_view(X1, 2)
