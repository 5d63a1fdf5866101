"""DRML: Stiefel × SPD."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import check_grad

from isometry.core.solve import riemannian
from isometry.geometric import DRML
from isometry.sampling import RandomPairs
from isometry.supervision import Labels, Pairs


def data(n=24, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 1.5, d) + 1.5 * rng.normal(size=(3, d))[y]
    return X, y


def slow_cost(X, y, V, Lam, reg, Lam0):
    """The objective of the paper (squared exponent, means), pair by pair."""
    W, similar, dissimilar = V @ Lam @ V.T, [], []
    for i in range(len(X)):
        for j in range(i):
            q = np.exp((X[i] - X[j]) @ W @ (X[i] - X[j]))
            (similar if y[i] == y[j] else dissimilar).append(np.log(1 + (q if y[i] == y[j] else 1 / q)))
    M = Lam @ np.linalg.inv(Lam0)
    return np.mean(similar) + np.mean(dissimilar) + reg * (np.trace(M) - np.log(np.linalg.det(M)) - len(M))


def random_point(d, p, seed):
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.normal(size=(d, p)))[0]
    A = rng.normal(size=(p, p))
    return V, 0.05 * A @ A.T + 0.05 * np.eye(p)


def objective(model, X, y):
    return model._objective(X, Labels(y), np.random.RandomState(0))


def half(Lam, V):
    w, Q = np.linalg.eigh(Lam)
    return (Q * np.sqrt(w)) @ Q.T @ V.T


@pytest.mark.parametrize("p", [2, 4])
def test_M30_value_is_the_slow_cost(p):
    X, y = data()
    V, Lam = random_point(4, p, 1)
    fast = objective(DRML(p, reg=0.3, strength=1.0), X, y)(half(Lam, V))[0]
    assert_allclose(fast, slow_cost(X, y, V, Lam, 0.3, np.eye(p)), rtol=1e-12)


@pytest.mark.parametrize("prior", ["identity", np.diag([3.0, 0.5])])
def test_M30a_gradient(prior):
    X, y = data()
    f = objective(DRML(2, prior=prior, strength=1.0), X, y)
    L = 0.2 * np.random.default_rng(2).normal(size=(2, 4))
    error = check_grad(lambda v: f(v.reshape(2, 4))[0], lambda v: f(v.reshape(2, 4))[1].ravel(), L.ravel())
    assert error < 1e-6 * np.linalg.norm(f(L)[1])


def test_M30b_without_information_the_rows_are_orthonormal():
    X = np.r_[np.ones((12, 4)), [[1.0, 2.0, 3.0, 4.0]]]  # the last sample is in no pair
    L = DRML(2, tol=1e-10, strength=1.0).fit(X, Pairs([0, 2, 4], [1, 3, 5], [True, False, True], n=13)).components_
    assert_allclose(L @ L.T, np.eye(2), atol=1e-8)


def test_M30c_large_reg_gives_the_identity():
    X, y = data()
    maps = [DRML(2, reg=reg, strength=1.0).fit(X, y).components_ for reg in (1e2, 1e4)]
    gap = [np.abs(L @ L.T - np.eye(2)).max() for L in maps]
    assert gap[0] > 1e-4  # the pairs still pull
    assert_allclose(gap[1], gap[0] / 100, rtol=0.2)


def test_M30d_full_rank_is_convex_any_start_gives_the_conic_solution():
    cp = pytest.importorskip("cvxpy")
    X, y = data(n=14, d=3)
    W = cp.Variable((3, 3), PSD=True)
    similar, dissimilar = [], []
    for i in range(len(X)):
        for j in range(i):
            d2 = cp.trace(W @ np.outer(X[i] - X[j], X[i] - X[j]))
            (similar if y[i] == y[j] else dissimilar).append(cp.logistic(d2 if y[i] == y[j] else -d2))
    penalty = cp.trace(W) - cp.log_det(W) - 3
    cost = cp.sum(cp.hstack(similar)) / len(similar) + cp.sum(cp.hstack(dissimilar)) / len(dissimilar) + 0.1 * penalty
    best = cp.Problem(cp.Minimize(cost)).solve(solver=cp.CLARABEL)
    for init in ("pca", "identity", np.random.default_rng(3).normal(size=(3, 3))):
        model = DRML(init=init, tol=1e-9, strength=1.0).fit(X, y)
        assert_allclose(model.history_[-1], best, rtol=1e-7)
        assert_allclose(model.mahalanobis_, W.value, atol=2e-4)


def test_M30e_cost_does_not_see_a_common_rotation():
    X, y = data()
    V, Lam = random_point(4, 2, 4)
    O = np.linalg.qr(np.random.default_rng(5).normal(size=(2, 2)))[0]
    costs = [slow_cost(X, y, V @ R, R.T @ Lam @ R, 0.1, np.eye(2)) for R in (np.eye(2), O)]
    assert_allclose(costs[0], costs[1], rtol=1e-12)
    f = objective(DRML(2, strength=1.0), X, y)
    assert_allclose(f(half(O.T @ Lam @ O, V @ O))[0], costs[0], rtol=1e-12)


@pytest.mark.parametrize("prior", [np.eye(2), np.array([[2.0, 0.7], [0.7, 1.0]])])
def test_M30_equals_the_search_on_stiefel_times_spd(prior):
    """With Λ₀ ≠ I the spectral penalty is what is left of the two-manifold problem once the rotation is chosen best."""
    from pymanopt.manifolds import Product, Stiefel, SymmetricPositiveDefinite

    X, y = data()
    plain, inverse = objective(DRML(2, reg=0.1, strength=1.0), X, y), np.linalg.inv(prior)
    i, j = np.triu_indices(len(X), 1)
    t = np.where(y[i] == y[j], 1.0, -1.0)
    weight = np.where(t > 0, 1 / (t > 0).sum(), 1 / (t < 0).sum())

    def cost(V, Lam):
        d2 = np.einsum("ma,ab,mb->m", (X[i] - X[j]) @ V, Lam, (X[i] - X[j]) @ V)
        M = Lam @ inverse
        return weight @ np.logaddexp(0, t * d2) + 0.1 * (np.trace(M) - np.log(np.linalg.det(M)) - 2)

    def gradient(V, Lam):
        L = half(Lam, V)
        S = plain.metric_gradient(L)  # scatter of the slopes; the penalty has no part in it
        return 2 * S @ V @ Lam, V.T @ S @ V + 0.1 * (inverse - np.linalg.inv(Lam))

    manifold = Product([Stiefel(4, 2), SymmetricPositiveDefinite(2)])
    starts = [random_point(4, 2, seed) for seed in range(3)]
    best = min(riemannian(manifold, cost, gradient, list(s), max_iter=300, tol=1e-8).value for s in starts)
    values = [
        DRML(2, prior=prior, tol=1e-9, init=half(Lam, V), strength=1.0).fit(X, y).history_[-1] for V, Lam in starts
    ]
    assert_allclose(min(values), best, rtol=1e-7)


def test_components_are_the_factor_of_v_and_lambda():
    X, y = data()
    L = DRML(2, strength=1.0).fit(X, y).components_
    assert_allclose(L @ L.T, np.diag(np.diag(L @ L.T)), atol=1e-12)
    assert (L @ L.T)[0, 0] >= (L @ L.T)[1, 1] > 0


def test_pairs_and_labels_agree():
    X, y = data()
    i, j = np.triu_indices(len(X), 1)
    listed = DRML(tol=1e-9, strength=1.0).fit(X, Pairs(i, j, y[i] == y[j], n=len(X)))
    assert_allclose(listed.mahalanobis_, DRML(tol=1e-9, strength=1.0).fit(X, y).mahalanobis_, atol=1e-6)
    assert DRML(pairs=RandomPairs(50), random_state=0, strength=1.0).fit(X, y).converged_


@pytest.mark.parametrize(
    ("params", "message"),
    [({"reg": 0}, "must be positive"), ({"prior": "covariance"}, "unknown"), ({"prior": np.eye(3)}, "shape")],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        DRML(**params, strength=1.0).fit(*data())
