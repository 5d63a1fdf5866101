import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.linalg import eigh
from scipy.special import expit, logsumexp

from isometry.core.basis import eigenbasis
from isometry.core.probability import binary_entropy, jaakkola_jordan, jaakkola_jordan_constant
from isometry.probabilistic import BayesianML
from isometry.probabilistic.bayesian import Prior, Seen, SigmoidLikelihood
from isometry.supervision import Labels, Pairs


def slow_vectors(Y, pairs):
    """u = (−1, w) and t of every pair."""
    u = [np.append(-1, (Y[i] - Y[j]) ** 2) for i, j in zip(pairs.i, pairs.j, strict=True)]
    return np.array(u).reshape(len(pairs.i), Y.shape[1] + 1), np.where(pairs.similarity > 0.5, 1, -1)


def slow_step(xi, U, t, theta0, delta):
    """One round of the updates, pair by pair, and the evidence bound by its definition."""
    P, b = delta * np.eye(len(theta0)), delta * theta0
    for x, u, s in zip(xi, U, t, strict=True):
        P, b = P + 2 * np.tanh(x / 2) / (4 * x) * np.outer(u, u), b - s * u / 2
    V = np.linalg.inv(P)
    m = V @ b
    elbo = 0.0
    for x, u, s in zip(xi, U, t, strict=True):  # E_q of the bound on log σ(z), z = −t uᵀθ
        z, zz = -s * u @ m, (u @ m) ** 2 + u @ V @ u
        elbo += np.log(expit(x)) + (z - x) / 2 - np.tanh(x / 2) / (4 * x) * (zz - x**2)
    K = len(m)
    elbo -= (
        delta * np.trace(V) + delta * np.sum((m - theta0) ** 2) - K - np.linalg.slogdet(V)[1] - K * np.log(delta)
    ) / 2
    return m, V, np.sqrt([(u @ m) ** 2 + u @ V @ u for u in U]), elbo


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(7, 6, 5), d=3)
    return X, y, Labels(y).to(Pairs)


def likelihood(Y, pairs, delta=1.0):
    q = Y.shape[1] + 1
    return SigmoidLikelihood(Seen.of(Y, pairs), Prior(np.ones(q), delta * np.eye(q), np.zeros((q, q))))


def in_order(pairs):
    """Similar pairs first, as the likelihood keeps them."""
    order = np.argsort(pairs.similarity < 0.5, kind="stable")
    return Pairs(pairs.i[order], pairs.j[order], pairs.similarity[order], n=len(pairs))


def test_P09a_updates_and_evidence_bound_by_their_definitions(data):
    X, _, pairs = data
    Y, pairs = eigenbasis(X, 3)(X), in_order(pairs)
    U, t = slow_vectors(Y, pairs)
    problem, state, xi, bounds = likelihood(Y, pairs, 2.0), (np.ones(len(t)), None, None), np.ones(len(t)), []
    for _ in range(12):
        state, negative = problem.step(state)
        m, V, xi, elbo = slow_step(xi, U, t, np.ones(4), 2.0)
        assert_allclose(state[1], m, rtol=1e-8)
        assert_allclose(state[2], V, rtol=1e-8, atol=1e-10)
        assert_allclose(state[0], xi, rtol=1e-8)
        assert_allclose(-negative, elbo, rtol=1e-9)
        bounds.append(elbo)
    assert np.all(np.diff(bounds) >= -1e-9)
    fit = BayesianML(prior_precision=2.0, covariance="variational", tol=1e-12, max_iter=500).fit(X, pairs)
    assert np.all(np.diff(fit.history_) <= 1e-9)
    assert fit.elbo_ >= bounds[-1] - 1e-9


def test_P09a_jaakkola_jordan_is_a_bound_that_touches():
    z = np.linspace(-12, 12, 401)
    for xi in (0.0, 1e-9, 0.5, 3.0, -4.0, 40.0):
        bound = z / 2 - jaakkola_jordan(xi) * z**2 + jaakkola_jordan_constant(abs(xi))
        assert np.all(bound <= np.log(expit(z)) + 1e-12)
        touch = xi / 2 - jaakkola_jordan(xi) * xi**2 + jaakkola_jordan_constant(abs(xi))
        assert_allclose(touch, -np.log1p(np.exp(-xi)), rtol=1e-10, atol=1e-14)
    assert_allclose(jaakkola_jordan(0.0), 1 / 8, rtol=1e-12)
    assert_allclose(jaakkola_jordan(2.0), np.tanh(1.0) / 8, rtol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_P09b_bound_lies_below_the_evidence_and_the_mean_is_near_the_exact_one(seed):
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.standard_normal(4), 2 + rng.standard_normal(4)])[:, None]
    i, j = np.array([0, 1, 4, 5, 0, 1, 2, 3]), np.array([2, 3, 6, 7, 4, 5, 6, 7])
    pairs = Pairs(i, j, np.arange(8) < 4, n=8)
    fit = BayesianML(covariance="variational", tol=1e-12, max_iter=1000).fit(x, pairs)
    U, t = slow_vectors(x @ fit.basis_.T, pairs)
    grid = np.linspace(-6, 8, 400)
    theta = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    log_joint = (
        -np.log1p(np.exp(t * (theta @ U.T))).sum(axis=1) - np.sum((theta - 1) ** 2, axis=1) / 2 - np.log(2 * np.pi)
    )
    log_evidence = logsumexp(log_joint) + 2 * np.log(grid[1] - grid[0])
    exact_mean = np.exp(log_joint - logsumexp(log_joint)) @ theta
    assert fit.elbo_ <= log_evidence
    assert fit.elbo_ > log_evidence - 1
    assert_allclose(fit.posterior_mean_, exact_mean, atol=0.15)
    mode = BayesianML(tol=1e-12).fit(x, pairs)  # Laplace: the same bound of another Gaussian
    assert log_evidence - 1 < mode.elbo_ <= fit.elbo_ + 1e-9
    assert log_joint.max() <= -mode.history_[-1] - np.log(2 * np.pi) <= log_joint.max() + 1e-2  # grid of width 0.035


def test_P09c_no_pairs_return_the_prior_and_pairs_shrink_the_covariance(data):
    X, _, pairs = data
    none = Pairs([], [], [], n=len(X))
    fit = BayesianML(prior_mean=0.7, prior_threshold=2.0, prior_precision=4.0).fit(X, none)
    assert_allclose(fit.posterior_mean_, [2.0, 0.7, 0.7, 0.7], rtol=1e-12)
    assert_allclose(fit.posterior_covariance_, np.eye(4) / 4, rtol=1e-12, atol=1e-15)
    Y = eigenbasis(X, 3)(X)
    half = Pairs(pairs.i[::2], pairs.j[::2], pairs.similarity[::2], n=len(X))
    few, many = (likelihood(Y, p).step((np.full(len(p.i), 0.8), None, None))[0][2] for p in (half, pairs))
    assert np.linalg.eigvalsh(few - many)[0] > 0


def test_P09d_the_informative_direction_weighs_most():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = np.column_stack(
        [6.0 * y, 2 * rng.standard_normal(40), 1.5 * rng.standard_normal(40)]
    ) + 0.3 * rng.standard_normal((40, 3))
    fit = BayesianML(link="sigmoid").fit(X, y)
    gamma = fit.posterior_mean_[1:]
    first = np.abs(fit.basis_ / np.linalg.norm(fit.basis_, axis=1, keepdims=True))[:, 0].argmax()
    assert first == gamma.argmax()
    assert gamma[first] > 2 * np.delete(gamma, first).max()
    along = np.zeros((20, 2, 3))
    along[:, 1] = np.linspace(0, 8, 20)[:, None] * fit.basis_[first] / np.linalg.norm(fit.basis_[first])
    p = fit.pair_probability(along)
    assert np.all(np.diff(p) < 0)
    assert p[0] > 0.5 > p[-1]


def test_predictive_probability_is_near_the_integral(data):
    X, _, pairs = data
    fit = BayesianML(prior_precision=0.5).fit(X, Pairs(pairs.i[::20], pairs.j[::20], pairs.similarity[::20], n=len(X)))
    u, mean, variance = fit._excess((X[:6] @ fit.basis_.T - X[6:12] @ fit.basis_.T) ** 2)
    for k in range(6):
        density = lambda e, k=k: np.exp(-((e - mean[k]) ** 2) / (2 * variance[k])) / np.sqrt(2 * np.pi * variance[k])  # noqa: E731
        width = 10 * np.sqrt(variance[k])
        span = (mean[k] - width, mean[k] + width)
        exact = quad(lambda e, f=density: expit(-e) * f(e), *span)[0]
        noise = quad(lambda e, f=density: binary_entropy(expit(-e)) * f(e), *span)[0]
        assert_allclose(fit._average(mean, variance)[k], exact, atol=0.015)
        assert_allclose(fit._noise_entropy(mean, variance)[k], noise, atol=2e-3)
        assert_allclose(mean[k], fit.posterior_mean_ @ u[k])
        assert_allclose(variance[k], u[k] @ fit.posterior_covariance_ @ u[k])


def test_P10a_the_score_peaks_at_even_odds_and_is_symmetric(data):
    fit = BayesianML(link="sigmoid").fit(*data[:2])
    a = np.linspace(-4, 4, 81)
    score = fit._score(a, np.full(81, 0.7), "entropy")
    assert_allclose(score, score[::-1], rtol=1e-9)
    assert_allclose(score[40], np.log(2), rtol=1e-12)
    assert np.all(np.delete(score, 40) < np.log(2) - 1e-5)
    assert np.all(fit._score(a, np.full(81, 0.7), "bald") < score)
    assert_allclose(fit._score(a, np.full(81, 1e-18), "bald"), 0, atol=1e-6)  # a known metric has nothing to learn
    assert_allclose(fit._score(a, np.full(81, 0.7), "point"), binary_entropy(expit(a)), rtol=1e-9, atol=1e-12)


def test_P10b_an_answer_leaves_exactly_this_variance(data):
    X, _, pairs = data
    few = Pairs(pairs.i[:9], pairs.j[:9], pairs.similarity[:9], n=len(X))
    fit = BayesianML(covariance="variational").fit(X, few)
    pool = np.array([[3, 12], [3, 12]])  # the same pair twice
    u, mean, variance = fit._excess(fit._pair_features(X, pool))
    xi = np.sqrt(mean[0] ** 2 + variance[0])
    gain = 2 * np.tanh(xi / 2) / (4 * xi)
    P = np.linalg.inv(fit.posterior_covariance_) + gain * np.outer(u[0], u[0])
    after = u[0] @ np.linalg.inv(P) @ u[0]
    assert_allclose(after, variance[0] / (1 + gain * variance[0]), rtol=1e-9)
    _, scores = fit.select_queries(X, 2, pairs=pool)
    expected = fit._score(mean[:1], np.array([after]), "entropy")
    assert_allclose(scores, [fit.query_score(X, pool[:1])[0], expected[0]], rtol=1e-9)


@pytest.mark.parametrize("strategy", ["entropy", "bald", "point"])
def test_P10c_greedy_choice_is_the_exhaustive_one(data, strategy):
    X, _, pairs = data
    fit = BayesianML().fit(X, Pairs(pairs.i[:20], pairs.j[:20], pairs.similarity[:20], n=len(X)))
    queries, scores = fit.select_queries(X, 4, strategy=strategy)
    every = np.array([(i, j) for i in range(len(X)) for j in range(i)])
    V, taken = fit.posterior_covariance_, []
    for query, score in zip(queries, scores, strict=True):
        u, mean, _ = fit._excess(fit._pair_features(X, every))
        variance = np.array([a @ V @ a for a in u])
        slow = fit._score(mean, variance, strategy)
        slow[taken] = -np.inf
        k = int(slow.argmax())
        assert set(every[k]) == set(query)
        assert_allclose(score, slow[k], rtol=1e-8)
        taken.append(k)
        V = V - fit._variance_reduction(mean[[k]], variance[[k]]) * np.outer(V @ u[k], V @ u[k]) / variance[k]


def slow_resolved(mean, variance):
    """1 − E[Var(e | t)]/Var(e) for e ~ N(mean, variance) and P(t = 1 | e) = σ(−e), on a grid."""
    e = mean + np.sqrt(variance) * np.linspace(-10, 10, 20_001)
    density = np.exp(-((e - mean) ** 2) / (2 * variance))
    left = 0.0
    for p in (expit(-e), expit(e)):
        q = p * density
        centre = q @ e / q.sum()
        left += q @ (e - centre) ** 2 / density.sum()
    return 1 - left / variance


def test_P10b_variance_that_an_answer_takes_away_on_average(data):
    X, _, pairs = data
    fit = BayesianML().fit(X, Pairs(pairs.i[:9], pairs.j[:9], pairs.similarity[:9], n=len(X)))
    mean, variance = np.array([0.0, 0.3, -1.0, 2.0, -6.0]), np.array([1.0, 0.01, 4.0, 0.5, 2.0])
    slow = [slow_resolved(*moments) for moments in zip(mean, variance, strict=True)]
    assert_allclose(fit._variance_reduction(mean, variance), slow, rtol=1e-3)  # the quadrature has 32 nodes
    assert min(slow) > 0 and max(slow) < 2 / np.pi  # a noiseless answer at even odds would take away 2/π


def test_P10d_the_undecided_pair_comes_first(data):
    X, _, _ = data
    fit = BayesianML(prior_precision=1e4, prior_threshold=10.0).fit(X, Pairs([], [], [], n=len(X)))
    axis = fit.basis_[0] / np.sum(fit.basis_[0] ** 2)
    pool = np.outer([0, 0.2, np.sqrt(10.0), 6.0, 0.4], axis)  # squared distances to row 0; the threshold is 10
    chosen, scores = fit.select_queries(pool, 1, pairs=[[0, 1], [0, 3], [0, 2], [0, 4]])
    assert chosen.tolist() == [[0, 2]]
    assert_allclose(scores, np.log(2), rtol=1e-6)


def test_P10_pools_and_baselines(data):
    X, y, _ = data
    fit = BayesianML().fit(X, y)
    queries, _ = fit.select_queries(X, 5, strategy="random", pool_size=30, random_state=0)
    again, _ = fit.select_queries(X, 5, strategy="random", pool_size=30, random_state=0)
    assert np.array_equal(queries, again)
    assert np.all(queries[:, 0] > queries[:, 1])
    assert len({tuple(q) for q in queries.tolist()}) == 5
    with pytest.raises(ValueError, match="n_queries=31 must be between 1 and the number of pairs at hand, 30"):
        fit.select_queries(X, 31, pool_size=30)
    with pytest.raises(ValueError, match="strategy='best' is unknown"):
        fit.query_score(X, [[0, 1]], strategy="best")


def test_every_pair_is_drawn_once_when_the_pool_is_large():
    from isometry.probabilistic.posterior import _random_pairs

    for n in (2, 3, 7, 40):
        drawn = _random_pairs(n, 10**6, np.random.RandomState(0))
        assert sorted(map(tuple, drawn.tolist())) == sorted((i, j) for i in range(n) for j in range(i))
    large = _random_pairs(200_000, 1000, np.random.RandomState(0))
    assert np.all((large[:, 1] >= 0) & (large[:, 1] < large[:, 0]) & (large[:, 0] < 200_000))


def chunks(pairs, n, size):
    order = np.random.default_rng(0).permutation(len(pairs.i))
    for start in range(0, len(order), size):
        k = order[start : start + size]
        yield Pairs(pairs.i[k], pairs.j[k], pairs.similarity[k], n=n)


def deviations(a, b):
    """How far apart the means of two posteriors are, and how far their deviations: in deviations of b."""
    std = np.sqrt(np.diag(b.posterior_covariance_))
    spread = np.abs(np.sqrt(np.diag(a.posterior_covariance_)) / std - 1).max()
    return np.abs((a.posterior_mean_ - b.posterior_mean_) / std).max(), spread


@pytest.mark.parametrize("covariance", ["laplace", "variational"])
def test_partial_fit_of_pairs_in_memory_is_one_fit(data, covariance):
    X, _, pairs = data
    settings = {"tol": 1e-12, "max_iter": 2000, "covariance": covariance}
    stream, whole = BayesianML(**settings), BayesianML(**settings).fit(X, pairs)
    for chunk in chunks(pairs, len(X), 20):
        stream.partial_fit(X + 5.0, chunk)
    assert max(deviations(stream, whole)) < 1e-3
    assert_allclose(stream.basis_, whole.basis_, rtol=1e-9)
    assert_allclose(stream.elbo_, whole.elbo_, rtol=1e-6)


def stream_of(n_pairs, delta=1.0, d=6, n=300, seed=0):
    """Rows and pairs labelled by the model."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(1, 2, d)
    theta = 1 + rng.standard_normal(d + 1) / np.sqrt(delta)
    i = rng.integers(0, n, n_pairs)
    j = (i + rng.integers(1, n, n_pairs)) % n
    excess = (eigenbasis(X, d)(X)[i] - eigenbasis(X, d)(X)[j]) ** 2 @ theta[1:] - theta[0]
    return X, Pairs(i, j, rng.random(n_pairs) < expit(-excess), n=n)


@pytest.mark.parametrize("delta", [1.0, 0.1])
def test_partial_fit_in_60_chunks_stays_within_half_a_deviation(delta):
    """At default settings; and with a memory of a tenth of the pairs, the others kept as quadratics only."""
    X, pairs = stream_of(6000, delta)
    whole = BayesianML(prior_precision=delta).fit(X, pairs)
    for memory, limit in ((200_000, 0.02), (600, 0.5)):
        stream = BayesianML(prior_precision=delta, memory=memory)
        for chunk in chunks(pairs, len(X), 100):
            stream.partial_fit(X, chunk)
        off, spread = deviations(stream, whole)
        assert off < limit and spread < limit / 2, (off, spread)
        assert len(stream._seen.sign) == min(memory, 6000)


def test_without_memory_the_posterior_is_the_prior_of_new_pairs(data):
    X, _, pairs = data
    first, second = (
        Pairs(pairs.i[s], pairs.j[s], pairs.similarity[s], n=len(X)) for s in (slice(0, 60), slice(60, None))
    )
    for covariance in ("laplace", "variational"):
        settings = {"tol": 1e-12, "max_iter": 2000, "covariance": covariance}
        stream = BayesianML(memory=0, **settings).partial_fit(X, first)
        mean, before = stream.posterior_mean_.copy(), stream.posterior_covariance_.copy()
        assert_allclose(stream._prior.mean, mean, rtol=1e-5, atol=1e-6)
        assert_allclose(np.linalg.inv(stream._prior.precision), before, rtol=1e-5, atol=1e-7)
        stream.partial_fit(X, second)
        prior = Prior(mean, np.linalg.inv(before), np.zeros_like(before))
        problem = SigmoidLikelihood(Seen.of((X - X.mean(axis=0)) @ stream.basis_.T, second), prior)
        if covariance == "variational":
            state = (np.ones(len(second.i)), None, None)
            for _ in range(300):
                state, _ = problem.step(state)
            assert_allclose(stream.posterior_mean_, state[1], rtol=1e-4, atol=1e-5)
        else:
            assert_allclose(problem(stream.posterior_mean_)[1], 0, atol=1e-3)  # of scores of order 10
        assert np.linalg.eigvalsh(before - stream.posterior_covariance_)[0] > 0


def test_newton_has_the_slopes_of_its_value(data, numeric_gradient):
    X, _, pairs = data
    problem, theta = likelihood(eigenbasis(X, 3)(X), pairs, 0.7), np.array([0.4, 1.5, -0.3, 0.8])
    value, gradient, H = problem(theta)
    U, t = slow_vectors(eigenbasis(X, 3)(X), pairs)
    assert_allclose(value, np.sum(np.log1p(np.exp(t * (U @ theta)))) + 0.35 * np.sum((theta - 1) ** 2), rtol=1e-12)
    assert_allclose(gradient, numeric_gradient(lambda v: problem(v)[0], theta), rtol=1e-6, atol=1e-6)
    slow = [numeric_gradient(lambda v, k=k: problem(v)[1][k], theta) for k in range(4)]
    assert_allclose(H, slow, rtol=1e-5, atol=1e-6)
    fit = BayesianML(tol=1e-14).fit(X, pairs)
    value, gradient, H = SigmoidLikelihood(fit._seen, fit._prior)(fit.posterior_mean_)
    assert gradient @ np.linalg.solve(H, gradient) < 1e-12
    assert_allclose(fit.posterior_covariance_, np.linalg.inv(H), rtol=1e-6, atol=1e-10)


def slow_sandwich(U, t, pairs, m, delta):
    """H⁻¹ (δI + Σ g_a gᵀ_b over pairs a, b with a row in common) H⁻¹, pair by pair; and H⁻¹."""
    p = expit(t * (U @ m))
    H = delta * np.eye(len(m)) + (U.T * (p * (1 - p))) @ U
    J, G = delta * np.eye(len(m)), U * (t * p)[:, None]
    ends = [{i, j} for i, j in zip(pairs.i, pairs.j, strict=True)]
    for a, one in enumerate(ends):
        for b, other in enumerate(ends):
            if one & other:
                J = J + np.outer(G[a], G[b])
    return np.linalg.inv(H) @ J @ np.linalg.inv(H), np.linalg.inv(H)


def test_sandwich_covariance_by_its_definition(data):
    X, y, pairs = data
    pairs = in_order(pairs)
    fit = BayesianML(prior_precision=0.5, tol=1e-12).fit(X, y)
    U, t = slow_vectors((X - X.mean(axis=0)) @ fit.basis_.T, pairs)
    V, inverse = slow_sandwich(U, t, pairs, fit.posterior_mean_, 0.5)
    ratio, v = eigh(V, inverse)  # directions in which the two are uncorrelated
    wide = (inverse @ v * np.maximum(ratio, 1)) @ (inverse @ v).T
    assert_allclose(fit.posterior_covariance_, wide, rtol=1e-6, atol=1e-9)
    assert ratio[-1] > 1.5 and np.linalg.eigvalsh(fit.posterior_covariance_ - inverse)[0] > -1e-12
    apart = Pairs([0, 2, 4, 6], [1, 3, 5, 7], [1, 1, 0, 0], n=len(X))  # no row twice: nothing hangs together
    a, b = (BayesianML(covariance=c).fit(X, apart) for c in ("sandwich", "laplace"))
    assert np.linalg.eigvalsh(a.posterior_covariance_ - b.posterior_covariance_)[0] > -1e-12
    assert BayesianML().fit(X, apart).link_ is None and fit.link_ is not None
    assert_allclose(BayesianML().fit(X, apart).posterior_covariance_, b.posterior_covariance_, rtol=1e-12)


def test_forgetting_keeps_the_sandwich(data):
    """Right after it the same curvature and dependence are there, whoever holds them."""
    X, y, _ = data
    fit, small = (BayesianML(memory=memory, tol=1e-14).fit(X, y) for memory in (200_000, 40))
    assert_allclose(small.posterior_covariance_, fit.posterior_covariance_, rtol=1e-12)
    m = fit.posterior_mean_
    whole, rest = (SigmoidLikelihood(f._seen, f._prior) for f in (fit, small))
    assert len(small._seen.sign) == 40
    assert_allclose(rest(m)[1], whole(m)[1], atol=1e-8)
    assert_allclose(rest(m)[2], whole(m)[2], rtol=1e-9)
    assert_allclose(rest.sandwich(m, rest(m)[2]), whole.sandwich(m, whole(m)[2]), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"covariance": "full"}, "covariance='full' is unknown"),
        ({"link": "probit"}, "link='probit' is unknown"),
        ({"memory": -1}, "memory=-1 must not be negative"),
        ({"prior_precision": 0.0}, "prior_precision=0.0 must be positive"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        BayesianML(**params).fit(data[0], data[1])


def test_sampled_metrics_and_intervals_follow_the_posterior(data):
    X, _, pairs = data
    few = Pairs(pairs.i[::9], pairs.j[::9], pairs.similarity[::9], n=len(X))
    fit = BayesianML(prior_mean=4.0, prior_precision=2.0).fit(X, few)  # far from 0: cutting does not matter
    L = fit.sample_metric(4000, random_state=0)
    query = np.array([[0, 9], [2, 15]])
    mean, std = fit.pair_sqdist_moments(X, query)
    d = np.array([[np.sum((M @ (X[i] - X[j])) ** 2) for i, j in query] for M in L])
    assert_allclose(d.mean(axis=0), mean, rtol=0.02)
    assert_allclose(d.std(axis=0), std, rtol=0.1)
    lower, upper = fit.pair_distance_interval(X, query, level=0.8)
    inside = (np.sqrt(d) > lower) & (np.sqrt(d) < upper)
    assert_allclose(inside.mean(axis=0), 0.8, atol=0.03)
    assert_allclose(fit.pair_distance(X, query) ** 2, mean, rtol=1e-9)
    assert_allclose(fit.pair_sqdist_moments(X[query]), (mean, std), rtol=1e-9)
    with pytest.raises(ValueError, match="level=1 must lie between"):
        fit.pair_distance_interval(X, query, level=1)


def test_P09_exact_probabilities_are_integrals_over_the_posterior(data):
    X, _, pairs = data
    fit = BayesianML(prior_precision=0.3).fit(X, Pairs(pairs.i[:9], pairs.j[:9], pairs.similarity[:9], n=len(X)))
    query = np.stack([pairs.i[::7], pairs.j[::7]], axis=1)
    exact, quick = fit.pair_probability(X, query, exact=True), fit.pair_probability(X, query)
    w = ((X[query[:, 0]] - X[query[:, 1]]) @ fit.basis_.T) ** 2
    for p, v in zip(exact, w, strict=True):
        u = np.append(-1, v)
        mean, std = u @ fit.posterior_mean_, np.sqrt(u @ fit.posterior_covariance_ @ u)
        slow = quad(lambda z, m=mean, s=std: expit(-m - s * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), -9, 9)[0]
        assert_allclose(p, slow, atol=5e-4)  # thirty-two nodes
    assert 1e-3 < np.abs(exact - quick).max() < 0.02
