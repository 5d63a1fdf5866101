"""SPDGMML, GrassmannGMML and the descriptors: samples that are matrices."""

import pickle

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

import isometry
from isometry.geometric import GMML, SPDGMML, GrassmannGMML
from isometry.geometric.descriptors import CovarianceDescriptor, SubspaceDescriptor, region_channels
from isometry.geometric.grassmann import oblique_projectors
from isometry.supervision import Labels, Pairs


def signals(n=24, channels=4, times=30, seed=0):
    """Raw data whose classes differ in how the channels mix."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    mix = rng.normal(size=(3, channels, channels)) + 2 * np.eye(channels)
    return np.einsum("nij,njt->nit", mix[y], rng.normal(size=(n, channels, times))), y


def spd_data(**kw):
    X, y = signals(**kw)
    return CovarianceDescriptor().fit_transform(X), y


def subspace_data(**kw):
    X, y = signals(**kw)
    return SubspaceDescriptor(2).fit_transform(X), y


DATA = {SPDGMML: spd_data, GrassmannGMML: subspace_data}
both = pytest.mark.parametrize("cls", list(DATA))


def slow_scatters(T, y):
    """Means of (T_i − T_j)² over similar and dissimilar pairs."""
    similar, dissimilar = [], []
    for i in range(len(T)):
        for j in range(i):
            (similar if y[i] == y[j] else dissimilar).append((T[i] - T[j]) @ (T[i] - T[j]))
    return np.mean(similar, axis=0), np.mean(dissimilar, axis=0)


def rotation(d, seed=5):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]


def logs(X):
    return np.stack([sla.logm(x) for x in X])


def projectors(X):
    return X @ X.swapaxes(1, 2)


def sqdist(Z):
    return ((Z[:, None] - Z[None]) ** 2).sum(axis=2)


def trace_distances(W, T):
    return np.array([[np.trace(W @ (a - b) @ (a - b)) for b in T] for a in T])


def test_M28a_riccati():
    X, y = spd_data()
    S, D = slow_scatters(logs(X), y)
    W = SPDGMML(reg=0).fit(X, y).mahalanobis_
    assert_allclose(W @ S @ W, D, atol=1e-9 * np.abs(D).max())


def test_M28_shift_and_geodesic():
    X, y = spd_data()
    S, D = slow_scatters(logs(X), y)
    prior = np.diag([1.0, 2.0, 3.0, 4.0])
    W = SPDGMML(reg=0.1, prior=prior, t=0.3).fit(X, y).mahalanobis_
    lam = 0.1 * np.trace(S) / 4
    A, B = np.linalg.inv(S + lam * np.linalg.inv(prior)), D + lam * prior
    R = sla.sqrtm(A)
    expected = R @ sla.fractional_matrix_power(np.linalg.inv(R) @ B @ np.linalg.inv(R), 0.3) @ R
    assert_allclose(W, expected, rtol=1e-8, atol=1e-10)


def test_M28b_distances_and_the_log_euclidean_case():
    X, y = spd_data()
    T = logs(X)
    model = SPDGMML().fit(X, y)
    assert_allclose(sqdist(model.transform(X)), trace_distances(model.mahalanobis_, T), rtol=1e-8, atol=1e-9)
    model.components_ = np.eye(4)
    frobenius = [[np.linalg.norm(a - b) ** 2 for b in T] for a in T]
    assert_allclose(sqdist(model.transform(X)), frobenius, rtol=1e-8, atol=1e-9)


def test_M28c_congruence_by_a_rotation():
    X, y = spd_data()
    Q = rotation(4)
    W, turned = (SPDGMML().fit(A, y).mahalanobis_ for A in (X, Q @ X @ Q.T))
    assert_allclose(turned, Q @ W @ Q.T, atol=1e-9 * np.abs(W).max())


def test_M28d_diagonal_matrices():
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    v = rng.normal(size=(20, 3)) + y[:, None] * np.array([2.0, 0.0, 1.0])
    X = np.stack([np.diag(np.exp(a)) for a in v])
    S, D = slow_scatters(np.stack([np.diag(a) for a in v]), y)
    W = SPDGMML(reg=0).fit(X, y).mahalanobis_
    assert_allclose(W, np.diag(np.sqrt(np.diag(D) / np.diag(S))), rtol=1e-8, atol=1e-12)


def test_M28_flat_form_is_gmml_on_the_entries():
    X, y = spd_data()
    T = logs(X)
    V = np.array([[t[i, j] * (1 if i == j else np.sqrt(2)) for i in range(4) for j in range(i, 4)] for t in T])
    model = SPDGMML(form="flat").fit(X, y)
    trace = np.mean([(V[a] - V[b]) @ (V[a] - V[b]) for a in range(24) for b in range(a) if y[a] == y[b]])
    expected = GMML(reg=1e-2 * trace / 10).fit(V, y)
    assert_allclose(model.mahalanobis_, expected.mahalanobis_, rtol=1e-8, atol=1e-9)
    assert model.transform(X).shape == (24, 10) == (24, len(model.get_feature_names_out()))
    model.components_ = np.eye(10)
    assert_allclose(sqdist(model.transform(X)), sqdist(T.reshape(24, -1)), rtol=1e-8, atol=1e-9)


def test_M29a_a_subspace_has_many_bases():
    X, y = subspace_data()
    rng = np.random.default_rng(1)
    model = GrassmannGMML(max_iter=20).fit(X, y)
    for other in (X @ rotation(2), X @ (rng.normal(size=(len(X), 2, 2)) + 2 * np.eye(2))):
        again = GrassmannGMML(max_iter=20).fit(other, y)
        assert_allclose(again.mahalanobis_, model.mahalanobis_, rtol=1e-6, atol=1e-9)
        assert_allclose(model.transform(other), model.transform(X), atol=1e-9)


def test_M29b_distances_and_the_projection_metric():
    X, y = subspace_data()
    model = GrassmannGMML().fit(X, y)
    assert_allclose(model.inner_, np.eye(4))
    assert_allclose(sqdist(model.transform(X)), trace_distances(model.mahalanobis_, projectors(X)), atol=1e-9)
    model.components_ = np.eye(4)
    P = projectors(X)
    assert_allclose(sqdist(model.transform(X)), [[np.linalg.norm(a - b) ** 2 for b in P] for a in P], atol=1e-12)


def test_M29c_rotation():
    X, y = subspace_data()
    Q = rotation(4)
    for max_iter in (1, 20):
        W, turned = (GrassmannGMML(max_iter=max_iter).fit(A, y).mahalanobis_ for A in (X, Q @ X))
        assert_allclose(turned, Q @ W @ Q.T, atol=1e-7 * np.abs(W).max())


@pytest.mark.parametrize("max_iter", [1, 30])
def test_M29d_riccati_at_the_last_pass_and_the_fixed_point(max_iter):
    X, y = subspace_data()
    model = GrassmannGMML(max_iter=max_iter, tol=1e-8).fit(X, y)
    W, V = model.mahalanobis_, model.inner_
    P = np.stack([x @ np.linalg.inv(x.T @ V @ x) @ x.T for x in X])
    S, D = slow_scatters(P, y)
    shift = 1e-2 * np.trace(S) / 4 * np.eye(4)
    assert_allclose(W @ (S + shift) @ W, D + shift, atol=1e-9 * np.abs(D).max())
    assert (np.linalg.norm(W - V) <= 1e-8 * np.linalg.norm(W)) == (max_iter > 1)
    assert model.converged_ and len(model.history_) == model.n_iter_


def test_M29_the_rotation_free_form_is_the_qr_form():
    X, _ = subspace_data()
    A = np.random.default_rng(2).normal(size=(4, 4))
    W = A @ A.T
    M = sla.cholesky(W, lower=True)  # W = M Mᵀ
    slow = []
    for x in X:
        R = np.linalg.qr(M.T @ x)[1]
        slow.append(x @ np.linalg.inv(R) @ np.linalg.inv(R).T @ x.T)
    assert_allclose(oblique_projectors(X, W), slow, rtol=1e-8)


def test_M29_says_when_the_passes_ran_out():
    X, y = subspace_data()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached"):
        GrassmannGMML(max_iter=2, tol=1e-12).fit(X, y)


@both
def test_pairs_and_labels_agree_and_order_does_not_matter(cls):
    X, y = DATA[cls]()
    side = Labels(y)
    base = cls().fit(X, y).mahalanobis_
    listed = cls().fit(X, Pairs.from_edges(side.similar, side.dissimilar, len(X))).mahalanobis_
    order = np.random.default_rng(3).permutation(len(X))
    moved = cls().fit(X[order], np.array(["b", "a", "c"])[y][order]).mahalanobis_
    assert_allclose(listed, base, rtol=1e-8)
    assert_allclose(moved, base, rtol=1e-8)


@both
def test_the_estimator_contract(cls, tmp_path):
    X, y = DATA[cls]()
    model = clone(cls()).fit(X, y)
    Z = model.transform(X)
    assert_allclose(pickle.loads(pickle.dumps(model)).transform(X), Z, rtol=0)
    isometry.save(model, tmp_path / "metric")
    assert_allclose(isometry.load(tmp_path / "metric").transform(X), Z, rtol=0)
    assert_allclose(model.pair_distance(X, [[0, 1], [2, 5]]), np.sqrt(sqdist(Z)[[0, 2], [1, 5]]))
    assert len(model.get_feature_names_out()) == Z.shape[1]
    Z32 = cls().fit(X.astype(np.float32), y).transform(X.astype(np.float32))
    assert Z32.dtype == np.float32
    assert_allclose(sqdist(Z32), sqdist(Z), atol=1e-3 * sqdist(Z).max())


@both
def test_messy_samples(cls):
    X, y = DATA[cls]()
    assert np.isfinite(cls().fit(np.r_[X, X[:5]], np.r_[y, y[:5]]).transform(X)).all()  # duplicates
    assert np.isfinite(cls().fit(X[:6], [0, 0, 1, 1, 2, 0]).transform(X)).all()  # few, one class of one
    with pytest.raises(ValueError, match="all samples are equal"):
        cls().fit(np.repeat(X[:1], 6, axis=0), [0, 0, 0, 1, 1, 1])


@both
def test_wrong_input_is_named(cls):
    X, y = DATA[cls]()
    with pytest.raises(ValueError, match="takes an array"):
        cls().fit(X[:, 0], y)
    with pytest.raises(ValueError, match="fitted on matrices of shape"):
        cls().fit(X, y).transform(X[:, :, :1])
    with pytest.raises(ValueError, match="fitted on matrices of shape"):
        cls().fit(X, y).transform(X[:, :3])
    with pytest.raises(ValueError, match="NaN"):
        cls().fit(np.where(np.arange(X.size).reshape(X.shape) == 3, np.nan, X), y)
    with pytest.raises(ValueError, match=r"t=2 must lie in \[0, 1\]"):
        cls(t=2).fit(X, y)
    with pytest.raises(ValueError, match="reg=-1"):
        cls(reg=-1).fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes"):
        cls().fit(X, np.zeros(len(X)))


def test_wrong_matrices_are_named():
    X, y = spd_data()
    with pytest.raises(ValueError, match=r"1 matrices are not symmetric \(first at row 2"):
        SPDGMML().fit(X + (np.arange(24) == 2)[:, None, None] * np.triu(np.ones((4, 4))), y)
    with pytest.raises(ValueError, match="negative eigenvalue"):
        SPDGMML().fit(-X, y)
    with pytest.raises(ValueError, match="square"):
        SPDGMML().fit(X[:, :, :3], y)
    with pytest.raises(ValueError, match="form='tall'"):
        SPDGMML(form="tall").fit(X, y)
    U, y = subspace_data()
    with pytest.raises(ValueError, match=r"full rank \(first at row 0"):
        GrassmannGMML().fit(U[:, :, [0, 0]], y)
    with pytest.raises(ValueError, match="k ≤ d"):
        GrassmannGMML().fit(U.swapaxes(1, 2), y)
    with pytest.raises(ValueError, match="max_iter=0"):
        GrassmannGMML(max_iter=0).fit(U, y)


def test_covariance_descriptor():
    X, _ = signals(n=3)
    C = CovarianceDescriptor(reg=0.1).fit_transform(X)
    for c, x in zip(C, X, strict=True):
        plain = np.cov(x, bias=True)
        assert_allclose(c, plain + 0.1 * np.trace(plain) / 4 * np.eye(4))
    flat = CovarianceDescriptor().fit_transform(np.ones((2, 3, 5), dtype=np.float32))
    assert flat.dtype == np.float32 and np.linalg.eigvalsh(flat).min() > 0
    with pytest.raises(ValueError, match="reg=0 must be positive"):
        CovarianceDescriptor(reg=0).fit_transform(X)
    with pytest.raises(ValueError, match="fitted on matrices"):
        CovarianceDescriptor().fit(X).transform(X[:, :, :9])


@pytest.mark.parametrize("center", [True, False])
def test_subspace_descriptor(center):
    X, _ = signals(n=3)
    U = SubspaceDescriptor(2, center=center).fit_transform(X)
    for u, x in zip(U, X, strict=True):
        x = x - x.mean(axis=1, keepdims=True) if center else x
        V = np.linalg.eigh(x @ x.T)[1][:, -2:]
        assert_allclose(u @ u.T, V @ V.T, atol=1e-9)
    with pytest.raises(ValueError, match="n_components=9 must be between 1 and 4"):
        SubspaceDescriptor(9).fit_transform(X)


def test_region_channels():
    I = np.random.default_rng(0).random((2, 4, 5))
    F = region_channels(I).reshape(2, 5, 4, 5)
    for f, i in zip(F[:, :, 1, 2], I, strict=True):
        assert_allclose(f, [1 / 3, 0.5, i[1, 2], abs(i[2, 2] - i[0, 2]) / 2, abs(i[1, 3] - i[1, 1]) / 2])
    with pytest.raises(ValueError, match="height, width"):
        region_channels(I[0])


@both
def test_works_in_a_pipeline_from_raw_data(cls):
    X, y = signals(n=60)
    describe = CovarianceDescriptor() if cls is SPDGMML else SubspaceDescriptor(2)
    score = cross_val_score(make_pipeline(describe, cls(), KNeighborsClassifier(3)), X, y, cv=3).mean()
    assert score > 0.9
