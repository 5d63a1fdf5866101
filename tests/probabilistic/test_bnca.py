import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn import config_context

from isometry.core.basis import eigenbasis
from isometry.probabilistic import BNCA
from isometry.probabilistic.bnca import best_threshold, newton_step, training_distances


def slow_candidates(Y, y, k):
    """(i, C_i, H_i) for every anchor with a hit and a miss among its k nearest."""
    for i in range(len(Y)):
        C = [j for j in np.argsort(np.sum((Y - Y[i]) ** 2, axis=1), kind="stable") if j != i][:k]
        H = [j for j in C if y[j] == y[i]]
        if 0 < len(H) < len(C):
            yield i, C, H


def slow_log_posterior(lam, Y, y, k, m0, delta, product=True):
    total = -delta / 2 * np.sum((lam - m0) ** 2)
    for i, C, H in slow_candidates(Y, y, k):
        e = {t: -lam @ (Y[i] - Y[t]) ** 2 for t in C}
        logp = {t: e[t] - logsumexp(list(e.values())) for t in C}
        total += sum(logp[j] for j in H) if product else logsumexp([logp[j] for j in H])
    return total


def bohning(psi):
    """H, b, c with lse(0, η) ≤ ½ ηᵀHη − bᵀη + c."""
    M = len(psi)
    H, lse = (np.eye(M) - np.ones((M, M)) / (M + 1)) / 2, logsumexp(np.append(0, psi))
    g = np.exp(psi - lse)
    return H, H @ psi - g, psi @ H @ psi / 2 - g @ psi + lse


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(9, 7, 5, 1), d=3, seed=1)
    return X, y, eigenbasis(X, 3)(X)


def problem(Y, y, **params):
    return BNCA(**params)._problem(Y, y)


@pytest.mark.parametrize("likelihood", ["product", "sum"])
def test_value_and_gradient(data, numeric_gradient, likelihood):
    _, y, Y = data
    lam = np.array([2.0, -0.3, 1.0])  # weights may be negative
    f = problem(Y, y, n_neighbors=5, likelihood=likelihood, prior_mean=0.5, prior_precision=2.0)
    oracle = lambda l: -slow_log_posterior(l, Y, y, 5, 0.5, 2.0, likelihood == "product")  # noqa: E731
    value, gradient = f(lam)
    assert_allclose(value, oracle(lam), rtol=1e-12)
    assert_allclose(gradient, numeric_gradient(oracle, lam), rtol=1e-6, atol=1e-7)
    with config_context(working_memory=0.001):  # MiB: one anchor at a time
        assert_allclose(f(lam)[0], value, rtol=1e-12)
        assert_allclose(
            f.precision(lam), problem(Y, y, n_neighbors=5, likelihood=likelihood, prior_precision=2.0).precision(lam)
        )


def test_P11a_one_step_is_the_literal_double_loop(data):
    _, y, Y = data
    m, m0, delta = np.array([1.5, 0.2, 0.9]), 0.5, 2.0
    P, linear = delta * np.eye(3), np.full(3, delta * m0)
    for i, C, H_i in slow_candidates(Y, y, 5):
        w = {t: (Y[i] - Y[t]) ** 2 for t in C}
        for j in H_i:
            W = np.array([w[j] - w[t] for t in C if t != j]).T  # (K, M)
            H, b, _ = bohning(W.T @ m)
            P, linear = P + W @ H @ W.T, linear + W @ b
    f = problem(Y, y, n_neighbors=5, prior_mean=m0, prior_precision=delta)
    assert_allclose(f.precision(None), P, rtol=1e-12)
    assert_allclose(newton_step(f, np.linalg.inv(P), m)[0], np.linalg.solve(P, linear), rtol=1e-10)


@pytest.mark.parametrize("likelihood", ["product", "sum"])
def test_P11b_both_solvers_find_the_maximum_of_the_posterior(data, likelihood):
    X, y, Y = data
    settings = {"n_neighbors": 6, "likelihood": likelihood, "max_iter": 20000, "prior_precision": 0.5}
    direct = BNCA(tol=1e-12, covariance="bohning", **settings).fit(X, y)
    steps = BNCA(tol=1e-15, solver="bohning", **settings).fit(X, y)
    oracle = minimize(
        lambda l: -slow_log_posterior(l, Y, y, 6, 1.0, 0.5, likelihood == "product"), np.ones(3), tol=1e-12
    )
    assert_allclose(direct.posterior_mean_, oracle.x, atol=1e-5)
    assert_allclose(steps.posterior_mean_, direct.posterior_mean_, atol=1e-6)
    f = problem(Y, y, **settings)
    V, m, bounds = np.linalg.inv(f.precision(None)), np.ones(3), []
    for _ in range(15):
        m, _ = newton_step(f, V, m)
        bounds.append(f.elbo(m, V))
    assert np.all(np.diff(bounds) >= -1e-10)
    assert_allclose(direct.elbo_, max(bounds), atol=1e-3)
    laplace = BNCA(tol=1e-12, **settings).fit(X, y)
    assert_allclose(laplace.posterior_mean_, direct.posterior_mean_, rtol=1e-12)
    assert laplace.elbo_ < direct.elbo_  # the bound is greatest for Böhning's covariance


def test_P11b_evidence_bound_lies_below_the_evidence():
    rng = np.random.default_rng(0)
    y = np.arange(14) % 2
    X = (rng.standard_normal(14) + 1.2 * y)[:, None]
    fit, other = (BNCA(n_neighbors=4, tol=1e-12, covariance=c).fit(X, y) for c in ("bohning", "laplace"))
    Y = (X - X.mean()) @ fit.basis_.T
    grid = np.linspace(-7, 9, 161)
    log_joint = [slow_log_posterior(np.array([g]), Y, y, 4, 1.0, 1.0) - np.log(2 * np.pi) / 2 for g in grid]
    log_evidence = logsumexp(log_joint) + np.log(grid[1] - grid[0])
    assert log_evidence - 1 < fit.elbo_ <= log_evidence
    assert log_evidence - 2 < other.elbo_ <= fit.elbo_


def test_P11c_bohnings_quadratic_lies_above_and_touches():
    rng = np.random.default_rng(2)
    for M in range(1, 6):
        psi, eta = 3 * rng.standard_normal((2, 2000, M))
        H, lse = bohning(psi[0])[0], lambda z: logsumexp(np.insert(z, 0, 0, axis=1), axis=1)
        g = np.exp(psi - lse(psi)[:, None])
        b, c = psi @ H - g, np.sum(psi * (psi @ H / 2 - g), axis=1) + lse(psi)
        for k in range(5):
            for part, slow in zip((b[k], c[k]), bohning(psi[k])[1:], strict=True):
                assert_allclose(part, slow, rtol=1e-12)
        assert np.all(lse(eta) <= np.sum(eta * (eta @ H / 2 - b), axis=1) + c + 1e-12)
        assert_allclose(np.sum(psi * (psi @ H / 2 - b), axis=1) + c, lse(psi), rtol=1e-12, atol=1e-12)


def test_P11d_sampled_distances_and_the_order_of_the_covariances(data, numeric_gradient):
    X, y, Y = data
    fit = BNCA(prior_mean=6.0, n_neighbors=6).fit(X, y)  # far from 0: cutting does not matter
    query = np.array([[0, 12], [3, 20]])
    mean, std = fit.pair_sqdist_moments(X, query)
    d = np.array(
        [[np.sum((L @ (X[i] - X[j])) ** 2) for i, j in query] for L in fit.sample_metric(4000, random_state=0)]
    )
    assert_allclose(d.mean(axis=0), mean, rtol=0.03)
    assert_allclose(d.std(axis=0), std, rtol=0.1)
    f, lam = problem(Y, y, n_neighbors=6), np.array([2.0, 0.5, 1.0])
    laplace = np.array([numeric_gradient(lambda l, k=k: f(l)[1][k], lam) for k in range(3)])
    assert_allclose(f.precision(lam), laplace, rtol=1e-6, atol=1e-6)
    assert np.linalg.eigvalsh(f.precision(None) - f.precision(lam))[0] > 0
    sure, less = (BNCA(n_neighbors=6, covariance=c).fit(X, y).posterior_covariance_ for c in ("bohning", "laplace"))
    assert np.linalg.eigvalsh(less - sure)[0] > 0
    summed = problem(Y, y, n_neighbors=6, likelihood="sum")
    slow = np.array([numeric_gradient(lambda l, k=k: summed(l)[1][k], lam) for k in range(3)])
    assert_allclose(summed.precision(lam), slow, rtol=1e-5, atol=1e-6)


def test_threshold_and_probability(data):
    X, y, _ = data
    fit = BNCA(n_neighbors=6, link="threshold").fit(X, y)
    i, j = np.triu_indices(len(X), 1)
    pairs = np.stack([i, j], axis=1)
    mean, std = fit.pair_sqdist_moments(X, pairs)
    same = y[i] == y[j]
    gain = [np.mean(mean[same] <= level) - np.mean(mean[~same] <= level) for level in mean]
    chosen = np.mean(mean[same] <= fit.bias_ + 1e-12) - np.mean(mean[~same] <= fit.bias_ + 1e-12)
    assert_allclose(chosen, max(gain), rtol=1e-9)
    assert_allclose(fit.pair_probability(X, pairs), norm.cdf((fit.bias_ - mean) / std), rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("link", ["isotonic", "threshold"])
@pytest.mark.parametrize("strategy", ["entropy", "bald"])
def test_each_query_counts_as_answered_when_the_next_is_chosen(data, link, strategy):
    X, y, _ = data
    fit = BNCA(n_neighbors=6, link=link).fit(X, y)
    pairs = np.stack(np.triu_indices(len(X), 1), axis=1)
    u, mean, variance = fit._excess(fit._pair_features(X, pairs))
    rho = fit._variance_reduction(mean, variance)
    if link == "threshold":  # the variance of a Gaussian cut at 0, on average over both sides
        z = mean / np.sqrt(variance)
        assert_allclose(rho, norm.pdf(z) ** 2 / (norm.cdf(z) * norm.sf(z)), rtol=1e-9)
    assert np.all((rho >= 0) & (rho < 1)) and rho.max() > 0.01
    queries, scores = fit.select_queries(X, 4, pairs=pairs, strategy=strategy)
    V, taken = fit.posterior_covariance_, []
    for query, score in zip(queries, scores, strict=True):
        variance = np.array([v @ V @ v for v in u])
        slow = fit._score(mean, variance, strategy)
        slow[taken] = -np.inf
        assert_allclose(score, slow.max(), rtol=1e-8)
        k = int(np.flatnonzero((pairs == query).all(axis=1))[0])
        assert_allclose(slow[k], slow.max(), rtol=1e-8)
        taken.append(k)
        rho = fit._variance_reduction(mean[[k]], variance[[k]])[0]
        V = V - rho * np.outer(V @ u[k], V @ u[k]) / variance[k]
    alone = fit.query_score(X, queries, strategy=strategy)
    assert_allclose(alone[0], scores[0], rtol=1e-9)
    if strategy == "bald":  # the answers assumed before have changed what is left to ask
        assert np.abs(alone[1:] - scores[1:]).max() > 1e-4


def test_negative_weights_enter_the_threshold():
    Y, codes = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), np.array([0, 0, 1])
    # λᵀw with λ = (1, −0.5): 1 for the similar pair, −2 and −1 for the others
    sqdist, similar = training_distances(Y, codes, np.array([1.0, -0.5]))
    assert_allclose(np.sort(sqdist), [-2, -2, -1, -1, 1, 1])
    assert_allclose(best_threshold(sqdist, similar), 1.0)
    assert_allclose(best_threshold(*training_distances(Y, codes, np.array([1.0, 1.0]))), 1.0)


def test_pure_neighbourhoods_switch_to_hits_and_misses(data):
    X, y, _ = data
    apart = X + 100.0 * y[:, None]
    with pytest.warns(UserWarning, match="candidates='hits_misses' is used instead"):
        switched = BNCA(n_neighbors=3).fit(apart, y)
    plain = BNCA(n_neighbors=3, candidates="hits_misses").fit(apart, y)
    assert_allclose(switched.posterior_mean_, plain.posterior_mean_, rtol=1e-9)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"likelihood": "max"}, "likelihood='max' is unknown; expected 'product' or 'sum'"),
        ({"candidates": "all"}, "candidates='all' is unknown"),
        ({"n_neighbors": 0}, "n_neighbors=0 must be at least 1"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        BNCA(**params).fit(data[0], data[1])
