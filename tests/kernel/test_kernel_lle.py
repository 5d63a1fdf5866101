"""KernelLLE: the trace ratio in coefficients of the kernel."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import KernelLLE, LLERegularizedML, Pairs

GAMMA, K_NEAREST = 0.3, 5


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


def slow_reconstruction(G, D, k, reg):
    """E = (I − S)ᵀ(I − S)/n from inner products G and squared distances D, point by point."""
    n = len(G)
    S = np.zeros((n, n))
    for i in range(n):
        near = [j for j in np.argsort(D[i]) if j != i][:k]
        local = np.array([[G[i, i] - G[i, j] - G[i, l] + G[j, l] for l in near] for j in near])
        w = np.linalg.solve(local + reg * np.trace(local) / k * np.eye(k), np.ones(k))
        S[i, near] = w / w.sum()
    return (np.eye(n) - S).T @ (np.eye(n) - S) / n


def slow_laplacians(y):
    """L_w, L_b: Laplacians of similar and dissimilar pairs over their numbers; −1 is in no pair."""
    n = len(y)
    parts = {True: [np.zeros((n, n)), 0], False: [np.zeros((n, n)), 0]}
    for i in range(n):
        for j in range(i):
            if y[i] >= 0 and y[j] >= 0:
                e = np.eye(n)[i] - np.eye(n)[j]
                part = parts[bool(y[i] == y[j])]
                part[0] += np.outer(e, e)
                part[1] += 1
    return parts[True][0] / parts[True][1], parts[False][0] / parts[False][1]


def matrices(X, y, K, lam, V=None):
    """Numerator and denominator over T, without ridge; geometry of the kernel's part in the span of V, if given."""
    G = X @ X.T if V is None else K @ V @ V.T @ K
    L_w, L_b = slow_laplacians(y)
    E = slow_reconstruction(G, np.diag(G)[:, None] + np.diag(G) - 2 * G, K_NEAREST, 1e-3)
    return K @ L_b @ K, K @ (L_w + lam * E) @ K


@pytest.mark.parametrize("geometry", ["input", "kernel"])
def test_M18a_M18c_coefficients_are_orthonormal_and_the_ratio_is_the_largest(data, gram, geometry):
    X, y, _ = data
    K = gram(rbf, X)
    model = KernelLLE(
        2, gamma=GAMMA, variance=1.0, ridge=0.0, reg=0.5, n_neighbors=K_NEAREST, geometry=geometry, max_rank=8
    ).fit(X, y)
    T, lam = model.dual_coef_.T, model.ratio_
    assert_allclose(T.T @ K @ T, np.eye(2), atol=1e-9)
    V = model.basis_  # all T that are allowed are V times orthonormal columns
    B, C = matrices(X, y, K, 0.5, V if geometry == "kernel" else None)
    assert_allclose(np.trace(T.T @ B @ T) / np.trace(T.T @ C @ T), lam, rtol=1e-6)
    g = sla.eigvalsh(V.T @ (B - lam * C) @ V)[-2:].sum()
    assert abs(g) < 1e-6 * np.linalg.norm(V.T @ B @ V)  # g(λ*) = 0: no subspace has a larger ratio


@pytest.mark.parametrize("constraint", ["rkhs", "coef"])
@pytest.mark.parametrize("basis", ["all", "constrained"])
def test_M18_constraints_and_bases_against_the_eigenproblem_in_coefficients(data, gram, constraint, basis):
    """Over T = Bc, B the samples that may carry coefficients, with TᵀKT = I or TᵀT = I, no ratio is larger."""
    X, y, new = data
    hidden = np.where(np.arange(25) % 2 > 0, y, -1)
    model = KernelLLE(
        2, gamma=GAMMA, variance=1.0, ridge=0.0, reg=0.5, n_neighbors=K_NEAREST, constraint=constraint, basis=basis
    ).fit(X, hidden)
    H = np.eye(25) - 1 / 25
    K = H @ gram(rbf, X) @ H  # centred, as the method's coordinates are
    B, C = matrices(X, hidden, K, 0.5)
    free = np.flatnonzero(hidden >= 0) if basis == "constrained" else np.arange(25)
    inner = K[np.ix_(free, free)] if constraint == "rkhs" else np.eye(len(free))
    w, E = sla.eigh(inner)
    E = E[:, w > 1e-9 * w[-1]] / np.sqrt(w[w > 1e-9 * w[-1]])  # c = Eu meets the constraint if uᵀu = I
    if constraint == "coef":  # coefficients that map all samples to 0 are no direction
        _, s, Qt = sla.svd(K[:, free], full_matrices=False)
        E = Qt[s > 1e-9 * s[0]].T
    B, C, lam = E.T @ B[np.ix_(free, free)] @ E, E.T @ C[np.ix_(free, free)] @ E, model.ratio_
    assert abs(sla.eigvalsh(B - lam * C)[-2:].sum()) < 1e-5 * np.linalg.norm(B)
    Z = model.transform(np.r_[X, new])
    N = np.r_[gram(rbf, X), gram(rbf, new, X)]
    N = (N - gram(rbf, X).mean(axis=0)) @ H  # rows: centred kernel values of each sample
    c = np.linalg.lstsq(N[:, free] @ E, Z, rcond=None)[0]  # (q, 2)
    assert_allclose(N[:, free] @ E @ c, Z, atol=1e-6 * np.abs(Z).max())  # a map of those samples' coefficients
    assert_allclose(c.T @ c, np.eye(2), atol=1e-5)


@pytest.mark.parametrize("constraint", ["rkhs", "coef"])
def test_M18_landmarks_alone_carry_coefficients(data, gram, distances, constraint):
    """If all samples are in similar pairs both bases are the landmarks; if some are, those that are landmarks too."""
    X, y, new = data
    settings = {"gamma": GAMMA, "variance": 1.0, "ridge": 0.0, "reg": 0.5, "constraint": constraint}
    models = [KernelLLE(2, basis=b, landmarks=10, random_state=0, **settings).fit(X, y) for b in ("all", "constrained")]
    assert_allclose(models[1].ratio_, models[0].ratio_, rtol=1e-8)
    assert_allclose(distances(models[1], new), distances(models[0], new), rtol=1e-5)

    hidden = np.where(np.arange(25) % 3 > 0, y, -1)
    model = KernelLLE(2, basis="constrained", landmarks=10, random_state=0, **settings).fit(X, hidden)
    rows = [int(np.flatnonzero((mark == X).all(axis=1))[0]) for mark in model.landmarks_]
    free = hidden[rows] >= 0
    assert 2 < free.sum() < 10
    H, K = np.eye(10) - 1 / 10, gram(rbf, X[rows])
    N = (gram(rbf, np.r_[X, new], X[rows]) - K.mean(axis=0)) @ H  # (31, 10) centred kernel values of each sample
    Z = model.transform(np.r_[X, new])
    c = np.linalg.lstsq(N[:, free], Z, rcond=None)[0]
    assert_allclose(N[:, free] @ c, Z, atol=1e-6 * np.abs(Z).max())
    inner = (H @ K @ H)[np.ix_(free, free)] if constraint == "rkhs" else np.eye(free.sum())
    assert_allclose(c.T @ inner @ c, np.eye(2), atol=1e-5)

    pair = np.setdiff1d(np.arange(25), rows)[:2]
    with pytest.raises(ValueError, match="none of the 10 landmarks occurs in a similar pair"):
        KernelLLE(2, basis="constrained", landmarks=10, random_state=0).fit(
            X, Pairs([pair[0], pair[0]], [pair[1], rows[0]], [True, False], n=25)
        )


def test_M18_a_class_of_one_is_in_no_similar_pair(data, gram):
    """So its sample carries no coefficient of the "constrained" basis."""
    X, y, _ = data
    alone, free, H = np.where(np.arange(25) < 21, y, np.arange(25)), np.arange(21), np.eye(25) - 1 / 25
    model = KernelLLE(2, gamma=GAMMA, basis="constrained", variance=1.0, ridge=0.0, reg=0.5).fit(X, alone)
    Z, N = model.transform(X), (H @ gram(rbf, X) @ H)[:, free]
    T = np.eye(25)[:, free] @ np.linalg.lstsq(N, Z, rcond=None)[0]
    shift = (model.dual_coef_.T - T).mean(axis=0)  # of the coefficients, which a centred kernel does not see
    assert_allclose(model.dual_coef_.T, T + shift, atol=1e-6 * np.abs(T).max())


@pytest.mark.parametrize("p", [1, 2])
def test_M18b_the_linear_kernel_is_the_linear_method(data, distances, p):
    X, y, new = data
    settings = {"reg": 0.5, "n_neighbors": K_NEAREST}
    linear = LLERegularizedML(p, weighting="mean", **settings).fit(X, y)
    kernel = KernelLLE(p, kernel="linear", variance=1.0, ridge=0.0, **settings).fit(X, y)
    assert_allclose(kernel.ratio_, linear.ratio_, rtol=1e-8)
    assert_allclose(distances(kernel, np.r_[X, new]), distances(linear, np.r_[X, new]), rtol=1e-6, atol=1e-9)


def test_M18d_training_samples_are_mapped_by_the_kernel(data, gram):
    X, y, new = data
    model = KernelLLE(2, gamma=GAMMA).fit(X, y)
    K, N = gram(rbf, X), gram(rbf, new, X)
    assert_allclose(model.transform(X), (K - K.mean(axis=0)) @ model.dual_coef_.T, atol=1e-9)
    assert_allclose(model.transform(new), (N - K.mean(axis=0)) @ model.dual_coef_.T, atol=1e-9)


def test_M18e_iris_does_not_collapse():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), KernelLLE(), KNeighborsClassifier(3))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    assert cross_val_score(pipeline, X, y, cv=folds).mean() >= 0.90


def test_unlabelled_samples_count_in_the_geometry(data, gram):
    X, y, _ = data
    hidden, K = np.where(np.arange(25) % 3 > 0, y, -1), gram(rbf, X)
    model = KernelLLE(2, gamma=GAMMA, ridge=0.0, reg=0.5, n_neighbors=K_NEAREST).fit(X, hidden)
    B, C = matrices(X, hidden, K, 0.5)
    T = model.dual_coef_.T
    assert_allclose(np.trace(T.T @ B @ T) / np.trace(T.T @ C @ T), model.ratio_, rtol=1e-6)


def test_a_precomputed_kernel_has_only_its_own_geometry(data, gram, distances):
    X, y, new = data
    K, N = gram(rbf, X), gram(rbf, new, X)
    named = KernelLLE(2, gamma=GAMMA, geometry="kernel").fit(X, y)
    expected = distances(named, new)
    for geometry in ("kernel", "input"):
        matrix = KernelLLE(2, kernel="precomputed", geometry=geometry).fit(K, y)
        assert_allclose(distances(matrix, N), expected, rtol=1e-6)


def test_the_ridge_is_relative_to_the_denominator(data, gram):
    X, y, _ = data
    model = KernelLLE(2, gamma=GAMMA, ridge=0.3, reg=0.5, n_neighbors=K_NEAREST).fit(X, y)
    B, C = matrices(X, y, gram(rbf, X), 0.5)
    V, T = model.basis_, model.dual_coef_.T
    r = V.shape[1]
    ridge = 0.3 * np.trace(V.T @ C @ V) / r * 2  # T has two orthonormal columns
    assert_allclose(np.trace(T.T @ B @ T) / (np.trace(T.T @ C @ T) + ridge), model.ratio_, rtol=1e-6)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"geometry": "flat"}, "geometry='flat' is unknown"),
        ({"constraint": "trace"}, "constraint='trace' is unknown; expected 'rkhs' or 'coef'"),
        ({"basis": "some"}, "basis='some' is unknown"),
        ({"n_neighbors": 0}, "at least 1"),
        ({"ridge": -1.0}, "ridge=-1.0 must not be negative"),
        ({"n_components": 0}, "n_components=0 must be at least 1"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        KernelLLE(**params).fit(data[0], data[1])
