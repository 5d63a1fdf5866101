import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from isometry.core.probability import pair_logistic
from isometry.core.threshold import ThresholdObjective, minimize_threshold
from isometry.probabilistic import LDML, PCCA
from isometry.sampling import signed_edges
from isometry.supervision import Labels, Pairs


def slow_ldml(W, b, X, pairs, reg=0.0):
    """−mean [s log p + (1 − s) log(1 − p)] + reg tr W,  p = σ(b − d_W²)."""
    total = 0.0
    for i, j, s in zip(pairs.i, pairs.j, pairs.similarity, strict=True):
        p = 1 / (1 + np.exp((X[i] - X[j]) @ W @ (X[i] - X[j]) - b))
        total -= s * np.log(p) + (1 - s) * np.log(1 - p)
    return total / len(pairs.i) + reg * np.trace(W)


def problem(X, side, reg=0.0):
    signed = signed_edges(side, "auto", X, None)
    average = 1 / (signed.n_similar + signed.n_dissimilar)
    loss = signed.loss(pair_logistic, similar=average, dissimilar=average)
    return ThresholdObjective([X - X.mean(axis=0)], signed.edges, loss, [reg])


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(8, 6, 4), d=3)
    return X, y, Labels(y).to(Pairs)


def test_P20a_gradients_in_the_factor_the_metric_and_the_threshold(data, numeric_gradient):
    X, y, pairs = data
    L, b = np.random.default_rng(0).standard_normal((3, 3)) / 2, 0.7
    oracle = lambda M, c: slow_ldml(M.T @ M, c, X, pairs, 0.1)  # noqa: E731
    for side in (pairs, Labels(y)):
        objective = problem(X, side, reg=0.1)
        value, (gradient, slope) = objective([L, np.array([b])])
        assert_allclose(value, oracle(L, b), rtol=1e-12)
        assert_allclose(gradient, numeric_gradient(lambda M: oracle(M, b), L), rtol=1e-6, atol=1e-8)
        assert_allclose(slope, numeric_gradient(lambda c: oracle(L, c[0]), [b])[0], rtol=1e-6)
        slow = numeric_gradient(lambda W: slow_ldml((W + W.T) / 2, b, X, pairs, 0.1), L.T @ L)
        assert_allclose(objective.metric_gradient([L, np.array([b])])[0], slow, rtol=1e-6, atol=1e-8)


def test_P20b_mean_probability_is_the_share_of_similar_pairs(data):
    X, y, pairs = data
    for side in (y, pairs):
        fit = LDML(tol=1e-9, max_iter=1000, strength=1.0).fit(X, side)
        assert_allclose(fit.pair_probability(X, pairs).mean(), pairs.similarity.mean(), atol=1e-6)


def test_P20c_one_feature_is_logistic_regression(overlapping):
    X, y = overlapping(sizes=(15, 12), d=1, spread=2.0, seed=1)
    pairs = Labels(y).to(Pairs)
    square = (X[pairs.i] - X[pairs.j]) ** 2
    oracle = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10000).fit(-square, pairs.similarity > 0.5)
    assert oracle.coef_[0, 0] > 0.01
    fit = LDML(tol=1e-10, max_iter=1000, strength=1.0).fit(X, y)
    assert_allclose(fit.mahalanobis_[0, 0], oracle.coef_[0, 0], rtol=1e-5)
    assert_allclose(fit.bias_, oracle.intercept_[0], rtol=1e-5)
    assert_allclose(fit.pair_probability(X, pairs), oracle.predict_proba(-square)[:, 1], rtol=1e-5)


@pytest.mark.parametrize("reg", [0.0, 5e-2])
def test_P20d_certificate_and_equal_value_from_three_starts(data, reg):
    X, y, pairs = data
    fit, rng = LDML(reg=reg, tol=1e-9, max_iter=2000, strength=1.0).fit(X, y), np.random.default_rng(1)
    objective, W = problem(X, pairs, reg), fit.mahalanobis_
    (G,) = objective.metric_gradient([fit.components_, np.array([fit.bias_])])
    scale = np.abs(objective.metric_gradient([np.eye(3), np.ones(1)])[0]).max()
    assert np.abs(G @ W).max() < 1e-5 * scale
    assert np.linalg.eigvalsh(G)[0] > -1e-5 * scale
    for _ in range(3):
        start = rng.standard_normal((3, 3))
        again = minimize_threshold(objective, [start, rng.uniform(-1, 3, size=1)], tol=1e-9, max_iter=2000)
        assert_allclose(again.value, slow_ldml(W, fit.bias_, X, pairs, reg), rtol=1e-7)


def test_a_blind_start_is_escaped(data):
    X, y, _ = data
    objective = problem(X, Labels(y))
    blind = np.zeros((3, 3))
    blind[0, 0] = 1e-3  # two of three directions start at 0, where the factor has no slope
    free, full = (
        minimize_threshold(objective, [L, np.ones(1)], tol=1e-9, max_iter=2000, restarts=r)
        for L, r in ((blind, 5), (np.eye(3), 0))
    )
    assert_allclose(free.value, full.value, rtol=1e-7)
    stuck = minimize_threshold(objective, [blind, np.ones(1)], tol=1e-9, max_iter=2000, restarts=0)
    assert stuck.value > full.value + 1e-4


def test_P21b_fixed_threshold_is_pairwise_constrained_component_analysis(data):
    X, y, pairs = data
    ldml = LDML(fit_bias=False, tol=1e-9, max_iter=1000, strength=1.0).fit(X, y)
    pcca = PCCA(3, beta=1.0, tol=1e-9, max_iter=1000, strength=1.0).fit(X, y)
    assert_allclose(ldml.bias_, 1, rtol=1e-14)  # it went to the unit of the search and back
    assert_allclose(ldml.mahalanobis_, pcca.mahalanobis_, atol=1e-4)
    assert_allclose(*(slow_ldml(f.mahalanobis_, 1.0, X, pairs) for f in (ldml, pcca)), rtol=1e-8)


def test_fewer_components_descend_from_the_cut_solution(data):
    X, y, pairs = data
    full, cut = LDML(tol=1e-8, strength=1.0).fit(X, y), LDML(1, tol=1e-8, strength=1.0).fit(X, y)
    w, V = np.linalg.eigh(full.mahalanobis_)
    truncated = slow_ldml(w[-1] * np.outer(V[:, -1], V[:, -1]), full.bias_, X, pairs)
    here = slow_ldml(cut.mahalanobis_, cut.bias_, X, pairs)
    assert cut.components_.shape == (1, 3)
    assert slow_ldml(full.mahalanobis_, full.bias_, X, pairs) < here < truncated


def test_threshold_is_the_distance_of_even_odds(data):
    X, y, pairs = data
    fit = LDML(strength=1.0).fit(X, y)
    assert_allclose(fit.threshold_**2, fit.bias_, rtol=1e-12)
    near = fit.pair_distance(X, pairs) < fit.threshold_
    assert np.array_equal(fit.pair_probability(X, pairs) > 0.5, near)
    assert 0 < near.sum() < len(near)
