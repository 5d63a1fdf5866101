"""KernelMCML, KernelNCA and KernelFastNCA against their objectives in coefficients of the kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import MCML, NCA, FastNCA, KernelFastNCA, KernelMCML, KernelNCA, Labels
from isometry.core.kernels import fit_kernel_map
from isometry.kernel.coefficient_penalty import CoefficientFastNCA

GAMMA = 0.3


def rbf(x, y):
    return np.exp(-GAMMA * np.sum((x - y) ** 2))


@pytest.fixture
def few(data):
    X, y, _ = data
    keep = np.r_[0:5, 11:15, 19:22]  # 12 samples: K is small enough to differentiate entry by entry
    return X[keep], y[keep]


def coordinates(X, gamma=GAMMA):
    """Q (n, r) and M = V e^{1/2} (n, r) with K = MMᵀ: k_i = M q_i, T = V e^{−1/2} Aᵀ."""
    phi = fit_kernel_map(X, "rbf", {"gamma": gamma})
    return phi(X), phi.basis * phi.spectrum


def slow_mcml(R, K, y):
    """(1/n) Σ_i KL(p⁰_i ‖ p_i) with d² = (k_i − k_j)ᵀR(k_i − k_j)."""
    kl, n = 0.0, len(y)
    for i in range(n):
        e = {j: np.exp(-(K[i] - K[j]) @ R @ (K[i] - K[j])) for j in range(n) if j != i}
        own = [j for j in e if y[j] == y[i]]
        kl += sum(np.log(sum(e.values()) / e[j] / len(own)) / len(own) for j in own)
    return kl / n


def slow_nca(T, K, y, reg, near=None):
    """(1/n) Σ_i p_i − reg tr(TᵀKT); ``near[i]`` are the candidates of i, all others if not given."""
    total, n = 0.0, len(y)
    for i in range(n):
        candidates = [j for j in range(n) if j != i] if near is None else near[i]
        e = {j: np.exp(-np.sum((T.T @ (K[i] - K[j])) ** 2)) for j in candidates}
        total += sum(e[j] for j in e if y[j] == y[i]) / sum(e.values())
    return total / n - reg * np.trace(T.T @ K @ T)


def slow_neighbors(K, y, k):
    """k hits and k misses of every sample by k_ii + k_jj − 2k_ij."""
    near = []
    for i in range(len(y)):
        d = {j: K[i, i] + K[j, j] - 2 * K[i, j] for j in range(len(y)) if j != i}
        hits, misses = ([j for j in d if (y[j] == y[i]) == same] for same in (True, False))
        near.append(sorted(hits, key=d.get)[:k] + sorted(misses, key=d.get)[:k])
    return near


def loo_1nn(Z, y):
    D = ((Z[:, None] - Z[None]) ** 2).sum(axis=2) + np.diag(np.full(len(y), np.inf))
    return np.mean(y[D.argmin(axis=1)] == y)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_P02a_the_linear_kernel_is_mcml(data, distances, penalty):
    X, y, new = data
    settings = {"penalty": penalty, "reg": 1e-2, "tol": 1e-9, "max_iter": 2000}
    linear, kernel = (
        MCML(strength=1.0, **settings).fit(X, y),
        KernelMCML(kernel="linear", **settings, strength=1.0).fit(X, y),
    )
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-6 * expected.max())


def test_P02b_penalties_are_norms_in_feature_space(data, gram):
    X, y, _ = data
    model = KernelMCML(gamma=GAMMA, strength=1.0).fit(X, y)
    K, L, T = gram(rbf, X), model.learner_.components_, model.dual_coef_.T
    R, W = T @ T.T, L.T @ L
    assert_allclose(np.trace(R @ K), np.sum(L**2), rtol=1e-7)
    assert_allclose(np.trace(R @ K @ R @ K), np.sum(W**2), rtol=1e-7)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_P02c_gradient_in_coefficients(few, gram, numeric_gradient, penalty):
    X, y = few
    K, n, reg = gram(rbf, X), 12, 0.07
    A = np.random.default_rng(1).standard_normal((n, n)) / n
    R = A @ A.T

    def value(R):
        R = (R + R.T) / 2
        size = np.trace(R @ K) if penalty == "trace" else np.trace(R @ K @ R @ K) / 2
        return slow_mcml(R, K, y) + reg * size

    numeric = numeric_gradient(value, R)
    D = np.array([[(K[i] - K[j]) @ R @ (K[i] - K[j]) for j in range(n)] for i in range(n)])
    P = np.exp(-D) * (1 - np.eye(n))
    P /= P.sum(axis=1, keepdims=True)
    same = (y[:, None] == y) & ~np.eye(n, dtype=bool)
    C = (same / same.sum(axis=1, keepdims=True) - P) / n
    formula = sum(C[i, j] * np.outer(K[i] - K[j], K[i] - K[j]) for i in range(n) for j in range(n))
    formula += reg * (K if penalty == "trace" else K @ R @ K)
    assert_allclose(formula, numeric, atol=1e-8)
    # what the solver sees: W = MᵀRM in coordinates, hence ∂f/∂R = M ∂f/∂W Mᵀ
    Q, M = coordinates(X)
    objective = MCML(penalty=penalty, reg=reg, strength=1.0)._objective(Q - Q.mean(axis=0), Labels(y), None)
    L = np.linalg.cholesky(M.T @ R @ M + 1e-15 * np.eye(n)).T
    assert_allclose(M @ objective.metric_gradient(L) @ M.T, formula, atol=1e-7)
    assert_allclose(objective(L)[0], value(R), rtol=1e-8)


def test_P02d_both_forms_of_the_map_agree_on_new_samples(data, gram):
    X, y, new = data
    model = KernelMCML(gamma=GAMMA, strength=1.0).fit(X, y)
    assert_allclose(gram(rbf, new, X) @ model.dual_coef_.T, model.learner_.transform(model._phi(new)), atol=1e-8)


def test_P07a_the_linear_kernel_is_fast_nca(data, distances):
    X, y, new = data
    settings = {"n_neighbors": 3, "reg": 0.02, "init": "pca", "tol": 1e-9, "max_iter": 1000}
    linear, kernel = (
        FastNCA(2, strength=1.0, **settings).fit(X, y),
        KernelFastNCA(2, kernel="linear", **settings, strength=1.0).fit(X, y),
    )
    Q, rng = kernel._phi(X), np.random.RandomState(0)
    in_space = FastNCA(2, strength=1.0, **settings)._objective(X - X.mean(axis=0), Labels(y), rng)
    in_coordinates = FastNCA(2, strength=1.0, **settings)._objective(Q - Q.mean(axis=0), Labels(y), rng)
    assert np.array_equal(in_space.edges.index, in_coordinates.edges.index)
    V = kernel.basis_.T @ X  # (r, d) orthonormal rows: q = Vx
    A = rng.standard_normal((2, 3))
    assert_allclose(in_coordinates(A)[0], in_space(A @ V)[0], rtol=1e-10)
    assert_allclose(kernel.history_[-1], linear.history_[-1], rtol=1e-8)
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-5 * expected.max())


def test_P07b_gradient_in_coefficients(few, gram, numeric_gradient):
    X, y = few
    K, n, reg, k = gram(rbf, X), 12, 0.03, 3
    near = slow_neighbors(K, y, k)
    T = np.random.default_rng(2).standard_normal((n, 2))
    numeric = numeric_gradient(lambda T: slow_nca(T, K, y, reg, near), T)
    C = np.zeros((n, n))  # ∂(mean p_i)/∂d²_ij = −(p_ij [hit] − p_i p_ij)/n
    for i in range(n):
        e = {j: np.exp(-np.sum((T.T @ (K[i] - K[j])) ** 2)) for j in near[i]}
        p = sum(e[j] for j in e if y[j] == y[i]) / sum(e.values())
        for j in e:
            C[i, j] = -(e[j] / sum(e.values())) * ((y[j] == y[i]) - p) / n
    lap = sum(C[i, j] * np.outer(K[i] - K[j], K[i] - K[j]) for i in range(n) for j in range(n))
    assert_allclose(2 * lap @ T - 2 * reg * K @ T, numeric, atol=1e-8)
    # what the solver sees: A = TᵀM in coordinates, minimised, hence ∂f/∂T = −M (∂f/∂A)ᵀ
    Q, M = coordinates(X)
    objective = FastNCA(2, n_neighbors=k, reg=reg, strength=1.0)._objective(Q, Labels(y), None)
    assert_allclose(-M @ objective(T.T @ M)[1].T, numeric, atol=1e-8)
    assert_allclose(-objective(T.T @ M)[0], slow_nca(T, K, y, reg, near), rtol=1e-9)


def test_P07b_coefficient_penalty(few, gram, numeric_gradient):
    X, y = few
    K, reg, k = gram(rbf, X), 0.03, 3
    near = slow_neighbors(K, y, k)

    def value(T):
        return slow_nca(T, K, y, 0.0, near) - reg * np.sum(T**2)

    T = np.random.default_rng(2).standard_normal((12, 2))
    Q, M = coordinates(X)
    learner = CoefficientFastNCA(2, n_neighbors=k, reg=reg)
    learner.set_params(spectrum=np.sum(Q**2, axis=0))  # all samples carry coefficients
    objective = learner._objective(Q, Labels(y), None)
    assert_allclose(-objective(T.T @ M)[0], value(T), rtol=1e-9)
    assert_allclose(-M @ objective(T.T @ M)[1].T, numeric_gradient(value, T), atol=1e-8)
    # the fitted map is a stationary point of the penalised objective as a function of its coefficients
    settings = {"n_neighbors": k, "penalty": "coef", "reg": reg, "gamma": GAMMA, "tol": 1e-9, "max_iter": 2000}
    model = KernelFastNCA(2, **settings, strength=1.0).fit(X, y)
    T = model.dual_coef_.T
    assert np.abs(numeric_gradient(value, T)).max() < 1e-5
    assert value(T) > value(0.9 * T) and value(T) > value(1.1 * T)
    assert model.learner.spectrum is None  # only the fitted copy knows it
    assert_allclose(model.learner_.spectrum, model.spectrum_)
    with pytest.raises(ValueError, match="use KernelFastNCA"):
        CoefficientFastNCA().fit(X, y)
    with pytest.raises(ValueError, match="penalty='norm' is unknown; expected 'rkhs' or 'coef'"):
        KernelFastNCA(penalty="norm", strength=1.0)


@pytest.mark.parametrize("case", ["all", "landmarks", "unlabelled", "landmarks, centred"])
@pytest.mark.parametrize("reg", [0.01, "auto"])
def test_P07_the_coefficient_penalty_is_that_of_the_coefficients(data, case, reg):
    """What the solver minimised, less the accuracy, is reg |T|² for the T that is stored."""
    X, y, _ = data
    known = np.where(np.arange(25) % 2 > 0, y, -1) if case == "unlabelled" else y  # −1 is unlabelled
    options = {"landmarks": 8} if "landmarks" in case else {"max_rank": 6}
    settings = {"n_neighbors": 3, "max_iter": 2000}
    model = KernelFastNCA(
        2,
        penalty="coef",
        reg=reg,
        gamma=GAMMA,
        random_state=0,
        center="centred" in case,
        **settings,
        **options,
        strength=1.0,
    ).fit(X, Labels(known, unlabelled=-1))
    Q, L = model._phi(X)[known >= 0], model.learner_.components_
    accuracy = FastNCA(2, reg=0.0, strength=1.0, **settings)._objective(
        Q - Q.mean(axis=0), Labels(known[known >= 0]), None
    )
    weight, size = model.learner_.reg_, np.sum(model.dual_coef_**2)
    assert weight > 0 and weight * size > 1e-4
    assert_allclose(model.history_[-1] - accuracy(L)[0], weight * size, rtol=1e-6)
    if reg == "auto":  # a thousandth of the least weight for which T = 0 is a local optimum
        eigenvalues = np.linalg.eigvalsh(
            accuracy.metric_gradient(np.zeros((1, Q.shape[1]))) * np.sqrt(np.outer(model.spectrum_, model.spectrum_))
        )
        assert_allclose(weight, -1e-3 * eigenvalues[0], rtol=1e-6)


def test_P07_neighbours_are_those_of_feature_space(few, gram):
    X, y = few
    K = gram(lambda a, b: (0.5 * (a @ b) + 1) ** 3, X)
    near = slow_neighbors(K, y, 2)
    assert near != slow_neighbors(X @ X.T, y, 2)  # they are others in the input space
    model = KernelFastNCA(2, n_neighbors=2, kernel="poly", gamma=0.5, strength=1.0).fit(X, y)
    Q = model._phi(X)
    index = FastNCA(2, n_neighbors=2, strength=1.0)._objective(Q, Labels(y), None).edges.index
    assert [sorted(j for j in row if j >= 0) for row in index.tolist()] == [sorted(row) for row in near]


def test_P07c_rings():
    rng = np.random.default_rng(0)
    y, angle = np.arange(90) % 2, rng.uniform(0, 2 * np.pi, 90)
    radius = 1 + 1.5 * y + 0.15 * rng.standard_normal(90)
    X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert loo_1nn(KernelFastNCA(1, strength=1.0).fit(X, y).transform(X), y) > 0.95
    assert loo_1nn(FastNCA(1, strength=1.0).fit(X, y).transform(X), y) < 0.85


@pytest.mark.parametrize("objective", ["sum", "log"])
def test_P08a_the_linear_kernel_is_nca(data, distances, objective):
    X, y, new = data
    settings = {"objective": objective, "reg": 0.02, "tol": 1e-9, "max_iter": 1000}
    start = np.random.default_rng(3).standard_normal((2, 3)) / 2
    V = KernelNCA(2, kernel="linear", strength=1.0).fit(X, y).basis_.T @ X  # (r, d) orthonormal rows
    assert_allclose(V @ V.T, np.eye(3), atol=1e-10)
    linear = NCA(2, init=start, strength=1.0, **settings).fit(X, y)
    kernel = KernelNCA(2, kernel="linear", init=start @ V.T, **settings, strength=1.0).fit(X, y)
    assert_allclose(kernel.history_[[0, -1]], linear.history_[[0, -1]], rtol=1e-8)
    expected = distances(linear, np.r_[X, new])
    assert_allclose(distances(kernel, np.r_[X, new]), expected, atol=1e-5 * expected.max())


def test_P08b_gradient_in_coefficients(few, gram, numeric_gradient):
    X, y = few
    K, reg = gram(rbf, X), 0.03
    T = np.random.default_rng(4).standard_normal((12, 2))
    Q, M = coordinates(X)
    objective = NCA(2, reg=reg, strength=1.0)._objective(Q, Labels(y), None)
    assert_allclose(-objective(T.T @ M)[0], slow_nca(T, K, y, reg), rtol=1e-9)
    numeric = numeric_gradient(lambda T: slow_nca(T, K, y, reg), T)
    assert_allclose(-M @ objective(T.T @ M)[1].T, numeric, atol=1e-8)


@pytest.mark.parametrize("method", [KernelNCA, KernelFastNCA, KernelMCML])
def test_P08c_a_precomputed_kernel_is_the_named_one(data, gram, distances, method):
    X, y, new = data
    params = {"n_components": 3, "reg": 1e-2}
    named = method(gamma=GAMMA, **params).fit(X, y)
    matrix = method(kernel="precomputed", **params).fit(gram(rbf, X), y)
    expected = distances(named, new)
    assert_allclose(distances(matrix, gram(rbf, new, X)), expected, atol=1e-5 * expected.max())


def test_more_components_than_the_kernel_has_are_too_many(data):
    X, y, _ = data
    assert KernelNCA(30, reg=1e-2, strength=1.0).fit(X, y).transform(X).shape == (25, 25)
