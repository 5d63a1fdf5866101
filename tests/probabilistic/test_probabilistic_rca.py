import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import subspace_angles
from scipy.optimize import minimize
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry.probabilistic import ProbabilisticRCA
from isometry.supervision import Chunklets


def slow_within(X, codes):
    """(1/N) Σ_l Σ_{i∈l} (x_i − μ_l)(x_i − μ_l)ᵀ."""
    C, N = np.zeros((X.shape[1],) * 2), 0
    for l in np.unique(codes[codes >= 0]):
        for x in X[codes == l]:
            delta = x - X[codes == l].mean(axis=0)
            C, N = C + np.outer(delta, delta), N + 1
    return C / N


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(10, 8, 7, 9), d=4, spread=2.0)
    return X, np.where(np.arange(len(y)) % 5 == 0, -1, y)


def fit(X, codes, p=None, **params):
    return ProbabilisticRCA(p, reg=0.0, **params).fit(X, Chunklets(codes))


@pytest.mark.parametrize("margin", [None, 10.0])
def test_P16a_chunklets_become_white(data, margin):
    X, codes = data
    Z = fit(X, codes, margin=margin).transform(X)
    assert_allclose(slow_within(Z, codes), (1 if margin is None else margin / 4) * np.eye(4), atol=1e-10)


def test_P16b_constraint_is_met_and_no_feasible_metric_has_a_larger_determinant(data):
    X, codes = data
    C, W = slow_within(X, codes), fit(X, codes, margin=3.0).mahalanobis_
    assert_allclose(np.trace(W @ C), 3.0, rtol=1e-10)
    rng, best = np.random.default_rng(0), np.linalg.slogdet(W)[1]
    for _ in range(1000):
        A = rng.standard_normal((4, 4))
        M = np.linalg.inv(C) + rng.uniform(0, 1) * (A @ A.T)
        M *= 3.0 / np.trace(M @ C)
        assert np.linalg.slogdet(M)[1] < best


def test_P16c_margin_d_is_plain_relevant_component_analysis(data):
    X, codes = data
    assert_allclose(fit(X, codes).mahalanobis_, np.linalg.inv(slow_within(X, codes)), rtol=1e-9)


def test_P16d_equivariance(data):
    X, codes = data
    A = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    B = np.linalg.inv(A)
    W = fit(X, codes).mahalanobis_
    assert_allclose(fit(X @ A, codes).mahalanobis_, B @ W @ B.T, rtol=1e-8, atol=1e-9 * np.abs(B @ W @ B.T).max())


@pytest.mark.parametrize("p", [1, 2, 3])
def test_P17a_value_is_the_best_of_random_starts(data, p):
    X, codes = data
    m, C, S = 2.5, slow_within(X, codes), np.cov(X.T, bias=True)

    def negative(theta):  # the constraint is active: scale to it
        L = theta.reshape(p, 4)
        L = L * np.sqrt(m / np.trace(L @ C @ L.T))
        return -np.linalg.slogdet(L @ S @ L.T)[1]

    rng = np.random.default_rng(p)
    best = min(minimize(negative, rng.standard_normal(4 * p), method="BFGS", tol=1e-9).fun for _ in range(10))
    assert_allclose(negative(fit(X, codes, p, margin=m).components_.ravel()), best, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_P17b_projected_chunklets_become_white(data, p):
    X, codes = data
    L = fit(X, codes, p, margin=5.0).components_
    assert_allclose(L @ slow_within(X, codes) @ L.T, 5.0 / p * np.eye(p), atol=1e-10)


def test_P17c_full_rank_is_the_full_rank_form(data):
    X, codes = data
    assert_allclose(fit(X, codes, 4, margin=7.0).mahalanobis_, 7 / 4 * np.linalg.inv(slow_within(X, codes)), rtol=1e-9)


def test_P17d_classes_as_chunklets_span_the_discriminant_space(overlapping):
    X, y = overlapping(sizes=(12, 9, 14), d=5, spread=2.0)
    L = ProbabilisticRCA(2, reg=0.0).fit(X, y).components_
    lda = LinearDiscriminantAnalysis(solver="eigen", n_components=2).fit(X, y).scalings_[:, :2]
    assert subspace_angles(L.T, lda).max() < 1e-6


def test_useless_input_is_named(data):
    X, codes = data
    with pytest.raises(ValueError, match="no chunklet has 2 samples"):
        fit(X, np.arange(len(X)))
    with pytest.raises(ValueError, match="margin=0 must be positive"):
        fit(X, codes, margin=0)
