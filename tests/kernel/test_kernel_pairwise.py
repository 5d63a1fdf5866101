"""KernelPCCA, KernelDRML and KernelMarginSVM against their equations in values of the kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import DRML, PCCA, KernelDRML, KernelMarginSVM, KernelPCCA, Labels, MarginSVM, Pairs
from isometry.core.kernels import fit_kernel_map

GAMMA = 0.3


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


@pytest.fixture
def few(data):
    X, y, _ = data
    keep = np.r_[0:5, 11:15, 19:22]
    return X[keep], y[keep]


def coordinates(X):
    """Q (n, r) and M = V e^{1/2} (n, r) with K = MMᵀ: A = TᵀM is the map in coordinates."""
    phi = fit_kernel_map(X, "rbf", {"gamma": GAMMA})
    return phi, phi(X), phi.basis * phi.spectrum


def slow_pcca(A, K, y, beta, b, reg):
    """mean (1/β) log(1 + exp(β t (|A(k_i − k_j)|² − b))) + reg tr(AKAᵀ)."""
    losses = []
    for i in range(len(y)):
        for j in range(i):
            t = 1 if y[i] == y[j] else -1
            losses.append(np.log1p(np.exp(beta * t * (np.sum((A @ (K[i] - K[j])) ** 2) - b))) / beta)
    return np.mean(losses) + reg * np.trace(A @ K @ A.T)


def test_P22a_the_linear_kernel_is_pcca(data, distances):
    X, y, new = data
    settings = {"reg": 0.01, "tol": 1e-9, "max_iter": 2000}
    linear, kernel = (
        PCCA(2, strength=1.0, **settings).fit(X, y),
        KernelPCCA(2, kernel="linear", **settings, strength=1.0).fit(X, y),
    )
    assert_allclose(kernel.history_[[0, -1]], linear.history_[[0, -1]], rtol=1e-8)
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-5 * expected.max())


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_P22b_P22c_gradient_in_coefficients_and_its_functional_form(few, gram, numeric_gradient, beta):
    X, y = few
    K, n, reg, b = gram(rbf, X), 12, 0.02, 1.3
    A = np.random.default_rng(1).standard_normal((2, n))
    numeric = numeric_gradient(lambda A: slow_pcca(A, K, y, beta, b, reg), A)
    lap, m = np.zeros((n, n)), n * (n - 1) / 2
    for i in range(n):
        for j in range(i):
            t, e = (1 if y[i] == y[j] else -1), np.eye(n)[i] - np.eye(n)[j]
            d = np.sum((A @ (K[i] - K[j])) ** 2)
            lap += t / (1 + np.exp(-beta * t * (d - b))) / m * np.outer(e, e)
    assert_allclose(2 * A @ K @ lap @ K + 2 * reg * A @ K, numeric, atol=1e-8)
    phi, Q, M = coordinates(X)
    for side in (Labels(y), Labels(y).to(Pairs)):
        objective = PCCA(2, beta=beta, margin=b, reg=reg, strength=1.0)._objective(Q, side, np.random.RandomState(0))
        value, slope = objective(A @ M)
        assert_allclose(value, slow_pcca(A, K, y, beta, b, reg), rtol=1e-9)
        assert_allclose(slope @ M.T, numeric, atol=1e-8)
        # the step in coordinates is the published one, A K Lap, and not the raw gradient, A K Lap K
        assert_allclose(slope @ phi.basis.T, 2 * A @ K @ lap + 2 * reg * A, atol=1e-6)


def test_P22d_a_precomputed_kernel_is_the_named_one(data, gram, distances):
    X, y, new = data
    named = KernelPCCA(3, gamma=GAMMA, reg=0.01, strength=1.0).fit(X, y)
    matrix = KernelPCCA(3, kernel="precomputed", reg=0.01, strength=1.0).fit(gram(rbf, X), y)
    expected = distances(named, new)
    assert_allclose(distances(matrix, gram(rbf, new, X)), expected, atol=1e-4 * expected.max())


@pytest.mark.parametrize("p", [2, None])
def test_M31a_the_linear_kernel_is_drml(data, distances, p):
    X, y, new = data
    linear = DRML(p, tol=1e-9, strength=1.0).fit(X, y)
    kernel = KernelDRML(p, reg=0.1, tol=1e-9, kernel="linear", variance=1.0, strength=1.0).fit(X, y)
    assert_allclose(kernel.history_[-1], linear.history_[-1], rtol=1e-8)
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-5 * expected.max())


def test_P22_the_penalty_has_the_unit_of_the_kernel(data, gram, distances):
    """A kernel c times as large needs c times the penalty: L and φ change by √c, |L|² by c."""
    X, y, new = data
    K, N = gram(rbf, X), gram(rbf, new, X)
    settings = {"kernel": "precomputed", "tol": 1e-10, "max_iter": 5000}
    once, large = (
        KernelPCCA(2, reg=0.01, **settings, strength=1.0).fit(K, y),
        KernelPCCA(2, reg=0.07, **settings, strength=1.0).fit(7 * K, y),
    )
    expected = distances(once, N)
    assert_allclose(distances(large, 7 * N), expected, atol=1e-4 * expected.max())
    assert_allclose(large.history_[-1], once.history_[-1], rtol=1e-8)
    without = KernelPCCA(2, reg=0.01, **settings, strength=1.0).fit(
        7 * K, y
    )  # no unit of its own: the same reg is another penalty
    assert abs(without.history_[-1] - once.history_[-1]) > 1e-2 * abs(once.history_[-1])


def slow_drml(T, Lam, K, y, reg):
    """The objective with d² = (k_i − k_j)ᵀTΛTᵀ(k_i − k_j), pair by pair."""
    similar, dissimilar = [], []
    for i in range(len(y)):
        for j in range(i):
            d = (K[i] - K[j]) @ T @ Lam @ T.T @ (K[i] - K[j])
            (similar if y[i] == y[j] else dissimilar).append(np.log1p(np.exp(d if y[i] == y[j] else -d)))
    return np.mean(similar) + np.mean(dissimilar) + reg * (np.trace(Lam) - np.log(np.linalg.det(Lam)) - len(Lam))


def test_M31b_the_subspace_is_orthonormal_in_feature_space(data, gram):
    X, y, _ = data
    K, model = gram(rbf, X), KernelDRML(2, reg=0.05, gamma=GAMMA, variance=0.9, tol=1e-9, strength=1.0).fit(X, y)
    lam = np.sum(model.learner_.components_**2, axis=1)  # components are Λ^{1/2}Vᵀ with Λ diagonal
    T = (model.dual_coef_ / np.sqrt(lam)[:, None]).T
    assert_allclose(T.T @ K @ T, np.eye(2), atol=1e-9)
    assert_allclose(model.history_[-1], slow_drml(T, np.diag(lam), K, y, 0.05), rtol=1e-9)
    l = np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean())[::-1]
    assert model.basis_.shape[1] == next(r for r in range(1, 26) if l[:r].sum() >= 0.9 * l.sum())


def test_M31c_training_samples_are_mapped_like_new_ones(data):
    X, y, _ = data
    model = KernelDRML(2, gamma=GAMMA, strength=1.0)
    Z = model.fit_transform(X, y)
    assert_allclose(np.vstack([model.transform(x[None]) for x in X]), Z, atol=1e-9)
    assert_allclose(Z, model.learner_.transform(model._phi(X)), atol=1e-9)


@pytest.mark.parametrize("psd", [True, False])
def test_M22a_the_linear_kernel_is_the_linear_method(data, distances, psd):
    X, y, new = data
    settings = {"C_D": 100.0, "psd": psd, "tol": 1e-6}
    linear = MarginSVM(**settings, strength=1.0).fit(X, y)
    kernel = KernelMarginSVM(kernel="linear", variance=1.0, **settings, strength=1.0).fit(X, y)
    assert linear.margin_ > 0.1
    assert_allclose(kernel.learner_.margin_, linear.margin_, rtol=1e-5)
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-6 * expected.max())


def test_M22b_distances_are_sums_of_squared_kernel_values(few, gram):
    """Without W ⪰ 0: d² = Σ_D a (k_ik − k_il − k_jk + k_jl)² − C_S/|S| Σ_S (same)², in units of mean zᵀz = 1."""
    X, y = few
    K, side = gram(rbf, X), Labels(y)
    S, D = side.similar, side.dissimilar
    model = KernelMarginSVM(C_S=0.7, C_D=2.0, psd=False, gamma=GAMMA, variance=1.0, strength=1.0).fit(X, y)
    a = model.learner_.dual_coef_
    unit = np.mean([K[i, i] + K[j, j] - 2 * K[i, j] for i, j in zip(D.i, D.j, strict=True)])
    Q = model._phi(X) / np.sqrt(unit)
    W = sum(w * np.outer(Q[i] - Q[j], Q[i] - Q[j]) for w, i, j in zip(a, D.i, D.j, strict=True))
    W -= 0.7 * np.mean([np.outer(Q[i] - Q[j], Q[i] - Q[j]) for i, j in zip(S.i, S.j, strict=True)], axis=0)

    def cross(i, j, k, l):
        return (K[i, k] - K[i, l] - K[j, k] + K[j, l]) / unit

    for k, l in [(0, 1), (2, 8), (5, 11)]:
        far = sum(w * cross(i, j, k, l) ** 2 for w, i, j in zip(a, D.i, D.j, strict=True))
        near = np.mean([cross(i, j, k, l) ** 2 for i, j in zip(S.i, S.j, strict=True)])
        assert_allclose((Q[k] - Q[l]) @ W @ (Q[k] - Q[l]), far - 0.7 * near, atol=1e-9)
    w, V = np.linalg.eigh(W)  # what is left of it as a metric is its positive part
    L = model.learner_.components_
    assert_allclose(unit * L.T @ L, (V * np.maximum(w, 0)) @ V.T, atol=1e-8)


def test_M22c_multipliers_obey_the_box_and_the_share(data):
    X, y, _ = data
    C_D, nu = 100.0, 0.3
    model = KernelMarginSVM(C_D=C_D, nu=nu, gamma=GAMMA, tol=1e-6, strength=1.0).fit(X, y)
    a, D = model.learner_.dual_coef_, Labels(y).dissimilar
    bound = C_D / len(D.i)
    assert a.min() >= 0 and a.max() <= bound * (1 + 1e-9)
    assert_allclose(a.sum(), C_D * nu, rtol=1e-6)  # the margin is positive, so that the share is used up
    F, Z = model._phi(X), model.transform(X)
    unit = np.mean([np.sum((F[i] - F[j]) ** 2) for i, j in zip(D.i, D.j, strict=True)])
    gain = np.array([np.sum((Z[i] - Z[j]) ** 2) - np.sum((F[i] - F[j]) ** 2) / unit for i, j in zip(D.i, D.j)])
    g = model.learner_.margin_
    assert g > 0.5
    assert np.mean(gain < g - 0.02) <= nu <= np.mean(gain < g + 0.02)  # at most a share ν lies within the margin
    assert np.all(a[gain < g - 0.02] > 0.99 * bound)  # those are at their bound
    assert np.all(a[gain > g + 0.02] < 0.01 * bound)  # pairs beyond the margin have no part
