"""KDCA and KernelFisherML against their equations in coefficients of the kernel."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import DCA, KDCA, FisherML, KernelFisherML, Labels, Pairs

GAMMA = 0.3


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


def slow_dca_matrices(K, y):
    """K_w, the mean of the classes' covariances of k_i, and K_b, the mean over ordered pairs of classes."""
    classes = np.unique(y)
    nu = {c: np.mean([K[i] for i in range(len(y)) if y[i] == c], axis=0) for c in classes}
    K_w, K_b, pairs = np.zeros_like(K), np.zeros_like(K), 0
    for c in classes:
        members = [K[i] - nu[c] for i in range(len(y)) if y[i] == c]
        K_w += sum(np.outer(k, k) for k in members) / len(members) / len(classes)
        for e in classes:
            if e != c:
                K_b += np.outer(nu[c] - nu[e], nu[c] - nu[e])
                pairs += 1
    return K_w, K_b / pairs


def slow_pair_matrices(K, y):
    """Σ_S, Σ_D: means of (k_i − k_j)(k_i − k_j)ᵀ."""
    S, D = [], []
    for i in range(len(y)):
        for j in range(i):
            (S if y[i] == y[j] else D).append(np.outer(K[i] - K[j], K[i] - K[j]))
    return np.mean(S, axis=0), np.mean(D, axis=0)


def loo_1nn(Z, y):
    D = ((Z[:, None] - Z[None]) ** 2).sum(axis=2) + np.diag(np.full(len(y), np.inf))
    return np.mean(y[D.argmin(axis=1)] == y)


@pytest.mark.parametrize("within", ["chunklet_mean", "pooled"])
@pytest.mark.parametrize("algorithm", ["gevp", "hoi"])
def test_M20a_the_linear_kernel_is_dca(data, distances, algorithm, within):
    X, y, new = data
    linear = DCA(algorithm=algorithm, within=within, reg=1e-3).fit(X, y)
    kernel = KDCA(algorithm=algorithm, within=within, kernel="linear", reg=1e-3).fit(X, y)
    assert_allclose(distances(kernel, np.r_[X, new]), distances(linear, np.r_[X, new]), rtol=1e-7, atol=1e-9)


def test_M20b_coefficients_whiten_the_ridged_within_matrix_and_maximise_the_ratio(data, gram):
    X, y, _ = data
    K = gram(rbf, X)
    K_w, K_b = slow_dca_matrices(K, y)
    model = KDCA(gamma=GAMMA, reg=1e-3).fit(X, y)
    T = model.dual_coef_.T  # (n, p)
    eps = 1e-3 * np.trace(np.linalg.solve(K, K_w)) / 24  # reg · trace of the covariance in feature space / its rank
    assert_allclose(T.T @ (K_w + eps * K) @ T, np.eye(2), atol=1e-8)
    values = sla.eigvalsh(K_b, K_w + eps * K)[::-1]
    assert_allclose(T.T @ K_b @ T, np.diag(values[:2]), rtol=1e-6, atol=1e-8 * values[0])


@pytest.mark.parametrize("algorithm", ["gevp", "hoi"])
def test_M20c_exclusive_or(algorithm):
    rng = np.random.default_rng(0)
    corner = np.arange(120) % 4
    X = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])[corner] + 0.3 * rng.standard_normal((30, 2))[np.arange(120) // 4]
    y = corner // 2
    X[y == 1, 0] += 0.1  # the only difference of the class means: a linear map looks along the first axis
    model = KDCA(1, algorithm=algorithm, gamma=0.5, reg=1e-3).fit(X, y)
    assert loo_1nn(model.transform(X), y) > 0.95
    assert loo_1nn(DCA(1, algorithm=algorithm, reg=1e-8).fit(X, y).transform(X), y) < 0.65


def test_M20d_a_permutation_of_the_samples_permutes_the_coefficients(data):
    X, y, _ = data
    order = np.random.default_rng(1).permutation(25)
    T, P = (
        KDCA(gamma=GAMMA, reg=1e-3).fit(X, y).dual_coef_,
        KDCA(gamma=GAMMA, reg=1e-3).fit(X[order], y[order]).dual_coef_,
    )
    signs = np.sign(np.sum(T[:, order] * P, axis=1, keepdims=True))
    assert_allclose(signs * P, T[:, order], atol=1e-5 * np.abs(T).max())


def test_M21a_orthonormal_coefficients_reach_the_smallest_eigenvalues(data, gram):
    X, y, _ = data
    K = gram(rbf, X)
    S, D = slow_pair_matrices(K, y)
    model = KernelFisherML(3, gamma=GAMMA, reg=1e-3).fit(X, y)
    T = model.dual_coef_.T
    assert_allclose(T.T @ K @ T, np.eye(3), atol=1e-8)
    smallest = sla.eigvalsh(S - D, K)[:3]
    assert_allclose(np.trace(T.T @ (S - D) @ T), smallest.sum(), rtol=1e-7)
    assert_allclose(model.learner_.eigenvalues_, smallest, rtol=1e-7)


def test_M21a_similar_coefficients_whiten_the_similar_scatter(data, gram):
    X, y, _ = data
    K = gram(rbf, X)
    S, D = slow_pair_matrices(K, y)
    T = KernelFisherML(3, constraint="similar", gamma=GAMMA, reg=1e-3).fit(X, y).dual_coef_.T
    C = S + 1e-3 * np.trace(np.linalg.solve(K, S)) / 24 * K
    assert_allclose(T.T @ C @ T, np.eye(3), atol=1e-8)
    values = sla.eigvalsh(D, C)[::-1][:3]
    assert_allclose(T.T @ D @ T, np.diag(values), rtol=1e-6, atol=1e-8 * values[0])


@pytest.mark.parametrize("constraint, linear", [("orthonormal", "orthonormal"), ("similar", "scatter")])
def test_M21b_the_linear_kernel_is_the_linear_method(data, distances, constraint, linear):
    X, y, new = data
    A = KernelFisherML(2, constraint=constraint, kernel="linear", reg=1e-3).fit(X, y)
    B = FisherML(2, constraint=linear, reg=1e-3).fit(X, y)
    assert_allclose(distances(A, np.r_[X, new]), distances(B, np.r_[X, new]), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("constraint", ["orthonormal", "similar"])
def test_M21c_both_forms_of_the_map_agree(data, gram, constraint):
    X, y, _ = data
    K = gram(rbf, X)
    model = KernelFisherML(2, constraint=constraint, gamma=GAMMA, reg=1e-3).fit(X, y)
    Q = model.learner_.components_.T
    assert_allclose((K - K.mean(axis=0)) @ model.dual_coef_.T, model._phi(X) @ Q, atol=1e-9)
    assert_allclose(model.transform(X), model._phi(X) @ Q, atol=1e-9)


def test_pairs_and_labels_agree(data, distances):
    X, y, new = data
    pairs = Labels(y).to(Pairs)
    assert_allclose(
        distances(KernelFisherML(2, reg=1e-3).fit(X, pairs), new),
        distances(KernelFisherML(2, reg=1e-3).fit(X, y), new),
        rtol=1e-7,
    )
    assert_allclose(distances(KDCA(reg=1e-3).fit(X, pairs), new), distances(KDCA(reg=1e-3).fit(X, y), new), rtol=1e-7)


def test_a_wrong_constraint_is_named():
    with pytest.raises(ValueError, match="constraint='scatter' is unknown; expected 'orthonormal' or 'similar'"):
        KernelFisherML(constraint="scatter", reg=1e-3)
