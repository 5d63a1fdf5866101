"""Proof tests of B03, sliced inverse regression."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry import SIR, Euclidean, Kernelized, Targets, load
from isometry.core.distance import sqdist
from tests.conftest import make_blobs


def linear_model(n=400, d=5, seed=0):
    """y depends on one direction of elliptic samples."""
    rng = np.random.default_rng(seed)
    mix = rng.standard_normal((d, d)) + 2 * np.eye(d)
    X = rng.standard_normal((n, d)) @ mix
    beta = rng.standard_normal(d)
    return X, np.tanh(X @ beta / 3) + 0.1 * rng.standard_normal(n), beta


def test_B03a_slices_of_whole_numbers_are_the_classes_of_lda():
    X, y = make_blobs(n=60, d=4, seed=3)
    learner = SIR(reg=0).fit(X, y)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    angles = np.linalg.svd(np.linalg.qr(learner.components_.T)[0].T @ np.linalg.qr(lda.scalings_[:, :2])[0])[1]
    assert_allclose(angles, 1, atol=1e-9)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    R, M = X - means[y], means - X.mean(axis=0)
    S_b, S_w = M.T @ (M * np.bincount(y)[:, None]), R.T @ R
    lam = np.sort(np.linalg.eigvals(np.linalg.solve(S_w, S_b)).real)[::-1][:2]
    assert_allclose(learner.eigenvalues_, lam / (1 + lam), rtol=1e-9)


def test_B03a_the_optimum_by_its_condition():
    X, y, _ = linear_model(100)
    learner = SIR(3, reg=0).fit(X, y)
    V = learner.components_ / np.sqrt(learner.eigenvalues_)[:, None]
    T = np.cov(X.T, ddof=0)
    edges = np.quantile(y, np.arange(1, 10) / 10)
    codes = np.searchsorted(edges, y)
    M = np.array([X[codes == k].mean(axis=0) for k in range(10)]) - X.mean(axis=0)
    S_b = M.T @ M / 10
    assert_allclose(V @ T @ V.T, np.eye(3), atol=1e-9)
    assert_allclose(S_b @ V.T, T @ V.T * learner.eigenvalues_, atol=1e-9 * np.abs(S_b).max())


def test_B03b_of_elliptic_samples_the_first_direction_is_that_of_least_squares():
    X, y, beta = linear_model(5000)
    first = SIR(1).fit(X, y).components_[0]
    ols = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]
    for other in (ols, beta):
        cosine = abs(first @ other) / np.linalg.norm(first) / np.linalg.norm(other)
        assert np.arccos(min(cosine, 1)) < 0.05


def test_B03c_affine_maps_do_not_matter(rng):
    X, y, _ = linear_model(100)
    T = rng.standard_normal((5, 5)) + 2 * np.eye(5)
    D = sqdist(SIR(reg=0).fit_transform(X, y))
    assert_allclose(sqdist(SIR(reg=0).fit_transform(X @ T.T + 3, y)), D, atol=1e-8 * D.max())
    assert_allclose(sqdist(SIR(reg=0).fit_transform(X, 5 * y + 7)), D, atol=1e-9 * D.max())


def test_B03d_chunks_give_the_map_of_the_array():
    """If the edges are the same: those of the first chunk."""
    X, _ = make_blobs(n=90)
    y = np.arange(90) % 6
    whole, parts = SIR().fit(X, y), SIR()
    for rows in np.array_split(np.random.default_rng(0).permutation(90), 3):
        parts.partial_fit(X[rows], y[rows])
    assert_allclose(parts.mahalanobis_, whole.mahalanobis_, rtol=1e-8, atol=1e-12)


def test_B03d_later_chunks_are_cut_where_the_first_was(tmp_path):
    X, y, _ = linear_model(300)
    parts = SIR().partial_fit(X[:200], y[:200])
    edges = np.quantile(y[:200], np.arange(1, 10) / 10)
    assert_allclose(parts.slices_.edges, edges)
    parts.partial_fit(X[200:], y[200:])
    codes = np.searchsorted(edges, y)
    assert_allclose(parts.moments_.counts, np.bincount(codes))
    assert_allclose(parts.mahalanobis_, SIR().fit(X, codes).mahalanobis_, rtol=1e-8, atol=1e-12)
    parts.save(tmp_path / "sir.isometry")
    again = load(tmp_path / "sir.isometry").partial_fit(X[:50], y[:50])
    assert_allclose(again.components_, parts.partial_fit(X[:50], y[:50]).components_)
    assert not hasattr(parts.fit(X, y), "slices_")
    with pytest.raises(ValueError, match="SIR needs targets that vary"):
        SIR().partial_fit(X[:5], np.ones(5))


def test_B03d_dask_arrays():
    da = pytest.importorskip("dask.array")
    X, y, _ = linear_model(120)
    whole = SIR().fit(X, y)
    for target in (y, da.from_array(y, chunks=40)):
        parts = SIR().fit(da.from_array(X, chunks=(40, 5)), target)
        assert_allclose(parts.mahalanobis_, whole.mahalanobis_, rtol=1e-8, atol=1e-12)


def test_B03_several_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    Y = np.c_[X[:, 0], 100 * X[:, 1]] + 0.05 * rng.standard_normal((600, 2)) * [1, 100]
    L = SIR(2).fit(X, Y).components_
    angles = np.linalg.svd(np.linalg.qr(L.T)[0].T @ np.eye(6)[:, :2])[1]
    assert angles.min() > 0.98
    assert_allclose(SIR(2).fit(X, Targets(Y)).components_, L)


def test_B03_an_even_function_moves_no_mean_and_that_is_said():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((3000, 2))
    with pytest.warns(UserWarning, match="no more than by chance.*MLKR"):
        SIR().fit(np.r_[X, -X], np.r_[X[:, 0] ** 2, X[:, 0] ** 2])


def test_B03_helps_neighbours_predict():
    X, y, _ = linear_model(300)
    plain, learned = Euclidean().fit(X).score(X[200:], Targets(y[200:])), SIR().fit(X[:200], y[:200])
    assert learned.score(X[200:], y[200:]) > plain + 0.1


def test_B03_number_of_directions():
    X, y, _ = linear_model(100)
    assert len(SIR(n_slices=3).fit(X, y).components_) == 2
    assert len(SIR().fit(X[:20], y[:20]).components_) == 3  # at most n/5 slices
    assert len(SIR(2).fit(X, y).components_) == 2
    plain, weighted = SIR(2, weighted=False).fit(X, y), SIR(2).fit(X, y)
    scale = np.sqrt(weighted.eigenvalues_)[:, None]
    assert_allclose(plain.components_ * scale, weighted.components_, rtol=1e-9)
    assert Kernelized(SIR(2), center=True, variance=0.9).fit(X, y).transform(X).shape == (100, 2)
