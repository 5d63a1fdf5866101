import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from isometry.probabilistic import ITML
from isometry.probabilistic.logdet import implicit_distance
from isometry.sampling import RandomPairs
from isometry.supervision import Pairs
from tests.oracles import logdet_divergence


def listed(pairs):
    """(i, j, +1 or −1) of every pair."""
    return list(zip(pairs.i, pairs.j, np.where(pairs.similarity > 0.5, 1, -1), strict=True))


def slow_itml(W, W0, X, pairs, bounds, gamma):
    """D(W, W₀) + γ Σ h(d²/bound) over violated pairs, and the multipliers λ_c."""
    value, lam = logdet_divergence(W, W0), []
    for i, j, t in listed(pairs):
        r = (X[i] - X[j]) @ W @ (X[i] - X[j]) / bounds[0 if t > 0 else 1]
        violated = t * (r - 1) > 0
        value += gamma * (r - np.log(r) - 1) if violated else 0
        lam.append(gamma * t * (1 - 1 / r) / bounds[0 if t > 0 else 1] if violated else 0)
    return value, np.array(lam)


@pytest.fixture
def data(overlapping):
    X, _ = overlapping(sizes=(6, 5), d=3, seed=4)
    return X, Pairs([0, 1, 6, 0, 2, 5], [2, 3, 8, 7, 9, 10], [1, 1, 1, 0, 0, 0], n=len(X)), (0.8, 9.0)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
def test_P13a_no_duality_gap_and_the_metric_of_cyclic_projections(data, gamma):
    X, pairs, bounds = data
    A = np.random.default_rng(0).standard_normal((3, 3))
    W0 = A @ A.T + np.eye(3)
    fit = ITML(gamma=gamma, bounds=bounds, prior=W0, tol=1e-12, strength=1.0).fit(X, pairs)
    W = fit.mahalanobis_
    value, lam = slow_itml(W, W0, X, pairs, bounds, gamma)
    assert np.any(lam > 1e-3)
    P = np.linalg.inv(W0)
    dual = 0.0
    for (i, j, t), l in zip(listed(pairs), lam, strict=True):
        P = P + t * l * np.outer(X[i] - X[j], X[i] - X[j])
        dual += gamma * np.log(1 - t * l * bounds[0 if t > 0 else 1] / gamma)
    dual += np.linalg.slogdet(P @ W0)[1]
    assert abs(value - dual) < 1e-8 * max(1, value)
    assert abs(value - dual) / max(1, value) <= fit.duality_gap_ + 1e-12
    assert np.abs(P @ W - np.eye(3)).max() < 1e-5
    cyclic = ITML(gamma=gamma, bounds=bounds, prior=W0, solver="bregman", tol=1e-14, max_iter=20000, strength=1.0).fit(
        X, pairs
    )
    assert_allclose(W, cyclic.mahalanobis_, rtol=1e-6, atol=1e-6 * np.abs(W).max())


def test_P13a_labels_reach_a_closed_gap(overlapping):
    X, y = overlapping(sizes=(20, 15, 10))
    for sampler in ("auto", RandomPairs(60)):
        fit = ITML(pairs=sampler, random_state=0, strength=1.0).fit(X, y)
        assert fit.duality_gap_ <= 1e-8
        assert fit.converged_


@pytest.mark.parametrize("solver", ["lbfgs", "bregman"])
def test_P13b_a_prior_that_meets_every_bound_stays(data, solver):
    X, W0 = data[0], np.diag([1.0, 2.0, 0.5])
    i, j = np.triu_indices(len(X), 1)
    d = np.array([(X[a] - X[b]) @ W0 @ (X[a] - X[b]) for a, b in zip(i, j, strict=True)])
    u, l = np.sort(d)[[19, 20]]  # the twenty nearest pairs are called similar
    fit = ITML(bounds=(u * (1 + 1e-9), l * (1 - 1e-9)), prior=W0, solver=solver, strength=1.0).fit(
        X, Pairs(i, j, d <= u, n=len(X))
    )
    assert_allclose(fit.mahalanobis_, W0, rtol=0, atol=1e-12)


def one_violated_pair(similar):
    """A prior, a violated pair v, and X, pairs, bounds in which a second pair is content and W₀-orthogonal to v."""
    W0 = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 1.5]])
    v = np.array([1.0, -2.0, 0.5])
    p = v @ W0 @ v
    xi = 0.3 * p if similar else 3.0 * p
    w = np.linalg.svd((W0 @ v)[None])[2][1]  # W₀-orthogonal to v: its distance will not move
    q = w @ W0 @ w
    bounds = (xi, max(10 * xi, q)) if similar else (0.01 * xi, xi)
    scale = np.sqrt(2 * bounds[1] / q) if similar else np.sqrt(bounds[0] / (2 * q))  # the other pair is content
    X = np.array([np.zeros(3), v, 50 * np.ones(3), 50 * np.ones(3) + scale * w])
    return W0, v, xi, X, Pairs([0, 2], [1, 3], [similar, not similar], n=4), bounds


@pytest.mark.parametrize("similar", [True, False])
def test_P13c_one_violated_hard_bound_has_a_closed_form(similar):
    W0, v, xi, X, pairs, bounds = one_violated_pair(similar)
    p = v @ W0 @ v
    fit = ITML(gamma=np.inf, solver="bregman", bounds=bounds, prior=W0, tol=1e-12, strength=1.0).fit(X, pairs)
    expected = W0 + (xi - p) / p**2 * np.outer(W0 @ v, W0 @ v)
    assert_allclose(fit.mahalanobis_, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("similar", [True, False])
def test_P13c_one_projection_solves_a_soft_pair(similar, gamma):
    W0, _, _, X, pairs, bounds = one_violated_pair(similar)
    exact = ITML(gamma=gamma, bounds=bounds, prior=W0, tol=1e-13, strength=1.0).fit(X, pairs)
    with pytest.warns(ConvergenceWarning):
        once = ITML(gamma=gamma, solver="bregman", bounds=bounds, prior=W0, max_iter=1, strength=1.0).fit(X, pairs)
    assert_allclose(once.mahalanobis_, exact.mahalanobis_, rtol=1e-5, atol=1e-5)


def weighed(pairs, **changes):
    return Pairs(pairs.i, pairs.j, changes.pop("s", pairs.similarity), n=pairs.n_samples, **changes)


def test_P13_a_weight_is_a_price_for_both_solvers(data):
    """Cyclic projections and L-BFGS meet for weights and soft similarities; weight 0 and 2 are no pair and two."""
    X, pairs, bounds = data
    cyclic = ITML(bounds=bounds, solver="bregman", tol=1e-14, max_iter=20000, strength=1.0)
    s, w = np.array([1, 0.8, 1, 0, 0.3, 0]), np.array([2, 0.5, 1, 3, 1, 0.1])
    for side in (weighed(pairs, weight=w), weighed(pairs, s=s, weight=w)):
        exact = ITML(bounds=bounds, tol=1e-13, strength=1.0).fit(X, side).mahalanobis_
        assert_allclose(cyclic.fit(X, side).mahalanobis_, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
        assert np.abs(exact - cyclic.fit(X, pairs).mahalanobis_).max() > 1e-2 * np.abs(exact).max()
    rows = [0, 0, 2, 3, 3, 5]
    listed = Pairs(pairs.i[rows], pairs.j[rows], pairs.similarity[rows], n=len(X))
    twice = cyclic.fit(X, listed).mahalanobis_
    again = cyclic.fit(X, weighed(pairs, weight=[2, 0, 1, 2, 0, 1])).mahalanobis_
    assert_allclose(again, twice, rtol=0, atol=1e-6 * np.abs(twice).max())


@pytest.mark.parametrize("params", [{"gamma": np.inf, "solver": "bregman"}, {"online": "projection"}], ids=str)
def test_P13_bounds_that_hold_exactly_cannot_weigh_pairs(data, params):
    X, pairs, bounds = data
    model = ITML(bounds=bounds, strength=1.0, **params)
    learn = model.partial_fit if "online" in params else model.fit
    for changes in ({"weight": [1, 2, 1, 1, 1, 1]}, {"s": [1, 0.8, 1, 0, 0, 0]}):
        with pytest.raises(ValueError, match=r"ITML\(.*\) .* cannot weigh them"):
            learn(X, weighed(pairs, **changes))
    few = Pairs(pairs.i[1:], pairs.j[1:], pairs.similarity[1:], n=len(X))
    W = learn(X, weighed(pairs, weight=[0, 2, 2, 2, 2, 2])).mahalanobis_
    fresh = ITML(bounds=bounds, strength=1.0, **params)
    again = (fresh.partial_fit if "online" in params else fresh.fit)(X, few).mahalanobis_
    assert_allclose(W, again, rtol=0, atol=1e-12 * np.abs(W).max())


def test_P14_the_weight_of_a_pair_multiplies_the_step(data):
    """Weight 0 is no step; a soft pair takes one step as similar, then one as dissimilar."""
    X, pairs, bounds = data

    def stream(side, eta=0.1):
        return ITML(bounds=bounds, eta=eta, strength=1.0).partial_fit(X, side).mahalanobis_

    assert_allclose(stream(weighed(pairs, weight=np.full(6, 3.0))), stream(pairs, eta=0.3), rtol=1e-12, atol=1e-12)
    few = Pairs(pairs.i[1:], pairs.j[1:], pairs.similarity[1:], n=len(X))
    assert_allclose(stream(weighed(pairs, weight=[0, 1, 1, 1, 1, 1])), stream(few), rtol=1e-12, atol=1e-12)
    soft = stream(weighed(pairs, s=[0.7, 1, 1, 0, 0, 0]))
    i, j = np.r_[pairs.i[:1], pairs.i], np.r_[pairs.j[:1], pairs.j]
    split = Pairs(i, j, [1, 0, 1, 1, 0, 0, 0], n=len(X), weight=[0.7, 0.3, 1, 1, 1, 1, 1])
    assert_allclose(soft, stream(split), rtol=1e-12, atol=1e-12)
    assert np.abs(soft - stream(pairs)).max() > 1e-6


def test_P13d_the_problem_has_no_preferred_coordinates(data):
    X, pairs, bounds = data
    rng = np.random.default_rng(2)
    A, B = rng.standard_normal((2, 3, 3))
    A += 2 * np.eye(3)
    W0 = B @ B.T + np.eye(3)
    W = ITML(bounds=bounds, prior=W0, tol=1e-13, strength=1.0).fit(X, pairs).mahalanobis_
    moved = (
        ITML(bounds=bounds, prior=A @ W0 @ A.T, tol=1e-13, strength=1.0).fit(X @ np.linalg.inv(A), pairs).mahalanobis_
    )
    assert_allclose(moved, A @ W @ A.T, rtol=1e-5, atol=1e-5 * np.abs(moved).max())


def test_P13_default_bounds_are_percentiles_of_squared_distances(overlapping):
    X, y = overlapping(sizes=(9, 8))
    d = [np.sum((X[i] - X[j]) ** 2) for i in range(len(X)) for j in range(i)]
    fit = ITML(strength=1.0).fit(X, y)
    assert_allclose(fit.bounds_, np.percentile(d, [5, 95]), rtol=1e-12)
    assert_allclose(fit.threshold_, np.sqrt(np.mean(fit.bounds_)), rtol=1e-12)


def online(W, v, similar, bounds, **params):
    """One pair given to the stream, from the metric W."""
    X, pairs = np.array([np.zeros(len(v)), v]), Pairs([0], [1], [similar], n=2)
    return ITML(prior=W, bounds=bounds, strength=1.0, **params).partial_fit(X, pairs).mahalanobis_


@pytest.mark.parametrize("similar", [True, False])
@pytest.mark.parametrize("eta", [0.01, 1.0, 100.0])
def test_P14a_the_loss_step_is_the_argmin_of_its_objective(similar, eta):
    rng = np.random.default_rng(3)
    A, v = rng.standard_normal((3, 3)), rng.standard_normal(3)
    W0 = A @ A.T + 0.5 * np.eye(3)
    p = v @ W0 @ v
    y = 0.4 * p if similar else 2.5 * p
    W = online(W0, v, similar, (y, 2 * y) if similar else (y / 2, y), eta=eta * y**2)
    # stationary: W_t⁻¹ − W⁻¹ + η (vᵀWv − y) v vᵀ = 0
    residual = np.linalg.inv(W0) - np.linalg.inv(W) + eta * (v @ W @ v - y) * np.outer(v, v)
    assert np.abs(residual).max() < 1e-10 * max(1, np.abs(np.linalg.inv(W)).max(), eta * y)

    def objective(theta):
        L = theta.reshape(3, 3)
        M = L.T @ L
        return logdet_divergence(M, W0) + eta / 2 * (v @ M @ v - y) ** 2

    assert objective(np.linalg.cholesky(W).T) <= minimize(objective, np.linalg.cholesky(W0).T.ravel()).fun + 1e-9


def test_P14b_positive_definite_after_a_hundred_thousand_pairs():
    rng = np.random.default_rng(5)
    model = ITML(bounds=(0.5, 4.0), strength=1.0)
    for _ in range(20):
        X = rng.standard_normal((200, 3))
        i, j = rng.integers(0, 200, size=(2, 5200))
        keep = np.flatnonzero(i != j)[:5000]
        model.set_params(eta=10 ** rng.uniform(-3, 3))
        model.partial_fit(X, Pairs(i[keep], j[keep], rng.random(len(keep)) < 0.5, n=200))
    W = model.mahalanobis_
    assert_allclose(W, W.T, rtol=0, atol=0)
    assert np.linalg.eigvalsh(W)[0] > 0


@pytest.mark.parametrize("similar", [True, False])
def test_P14c_projection_meets_the_bound_and_moves_the_inverse_by_rank_one(similar):
    rng = np.random.default_rng(6)
    A, v = rng.standard_normal((4, 4)), rng.standard_normal(4)
    W0 = A @ A.T + np.eye(4)
    p = v @ W0 @ v
    W = online(W0, v, similar, (p / 2, p / 1.5) if similar else (p * 1.5, p * 2), online="projection")
    assert_allclose(v @ W @ v, p / 2 if similar else p * 2, rtol=1e-10)
    s = np.linalg.svd(np.linalg.inv(W) - np.linalg.inv(W0), compute_uv=False)
    assert s[0] > 1e-3
    assert s[1] < 1e-9 * s[0]


@pytest.mark.parametrize("rule", ["loss", "projection"])
def test_P14_a_pair_within_its_bound_changes_nothing(rule):
    W0, v = np.diag([1.0, 2.0]), np.array([1.0, 1.0])  # squared distance 3
    for similar, bounds in ((True, (3.1, 9.0)), (False, (0.1, 2.9))):
        assert_allclose(online(W0, v, similar, bounds, online=rule), W0, rtol=0, atol=1e-14)


def test_P14d_slack_passes_never_raise_the_cost_of_the_violations(data):
    X, pairs, bounds = data
    model, costs = ITML(online="slack", bounds=bounds, gamma=0.3, strength=1.0), []
    for _ in range(6):
        W = model.partial_fit(X, pairs).mahalanobis_
        costs.append(slow_itml(W, W, X, pairs, bounds, 1.0)[0])
    assert np.all(np.diff(costs) <= 1e-9)
    assert costs[-1] < 0.9 * costs[0]


def test_P14_cutting_the_stream_elsewhere_gives_the_same_metric(data):
    X, pairs, bounds = data
    whole = ITML(bounds=bounds, strength=1.0).partial_fit(X, pairs)
    cut = ITML(bounds=bounds, strength=1.0)
    for part in (slice(0, 2), slice(2, 6)):
        cut.partial_fit(X, Pairs(pairs.i[part], pairs.j[part], pairs.similarity[part], n=len(X)))
    assert_allclose(cut.mahalanobis_, whole.mahalanobis_, rtol=1e-12, atol=1e-12)


def test_P14_both_forms_of_the_implicit_distance_agree():
    for p, y, eta in ((1.0, 2.0, 0.4), (1.0, 2.0, 0.6), (3.0, 0.1, 2.0), (1e-6, 5.0, 1e3)):
        d = implicit_distance(p, y, eta)
        assert d > 0
        # the new distance solves 1/d − 1/p = η (d − y) with the sign of the pull
        assert_allclose(1 / d - 1 / p, eta * (d - y), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gamma": 0}, "gamma=0 must be positive"),
        ({"solver": "cg"}, "solver='cg' is unknown"),
        ({"gamma": np.inf}, "needs solver='bregman'"),
        ({"bounds": (2, 1)}, "must satisfy 0 < u < l"),
    ],
)
def test_wrong_parameters_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        ITML(strength=1.0, **params).fit(*data[:2])
