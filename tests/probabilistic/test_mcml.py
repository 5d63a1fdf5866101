import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from isometry.core.solve import fista
from isometry.probabilistic import MCML
from isometry.supervision import Labels
from tests.oracles import psd_project


def slow_mcml(W, X, y):
    """(1/m) Σ_i KL(p⁰_i ‖ p_i) over the anchors that have a partner."""
    kl, m = 0.0, 0
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        partners = sum(y[j] == y[i] for j in others)
        if partners == 0:
            continue
        m += 1
        e = {j: np.exp(-(X[i] - X[j]) @ W @ (X[i] - X[j])) for j in others}
        for j in others:
            if y[j] == y[i]:
                kl += (1 / partners) * np.log((1 / partners) / (e[j] / sum(e.values())))
    return kl / m


def problem(X, y, **params):
    return MCML(strength=1.0, **params)._objective(X - X.mean(axis=0), Labels(y), None)


@pytest.fixture
def data(overlapping):
    return overlapping(sizes=(9, 6, 4, 1), d=3)  # the class of one has no target


def test_objective_is_the_mean_divergence(data):
    X, y = data
    L = np.random.default_rng(1).standard_normal((3, 3)) / 2
    assert_allclose(problem(X, y)(L)[0], slow_mcml(L.T @ L, X, y), rtol=1e-12)
    W = L.T @ L
    assert_allclose(problem(X, y, reg=0.3)(L)[0], slow_mcml(W, X, y) + 0.3 * np.trace(W), rtol=1e-12)
    squared = slow_mcml(W, X, y) + 0.15 * np.sum(W * W)
    assert_allclose(problem(X, y, reg=0.3, penalty="frobenius")(L)[0], squared, rtol=1e-12)


@pytest.mark.parametrize("penalty", ["trace", "frobenius"])
def test_P01a_gradient_with_unbalanced_classes(data, numeric_gradient, penalty):
    X, y = data
    objective = problem(X, y, reg=0.1, penalty=penalty)
    L = np.random.default_rng(1).standard_normal((3, 3)) / 2
    assert_allclose(objective(L)[1], numeric_gradient(lambda M: objective(M)[0], L), rtol=1e-6, atol=1e-8)
    slow = numeric_gradient(lambda W: slow_mcml((W + W.T) / 2, X, y), L.T @ L)
    assert_allclose(problem(X, y).metric_gradient(L), slow, rtol=1e-6, atol=1e-8)


def test_P01b_optimality_conditions_hold_and_every_start_agrees_with_projected_gradient(data):
    X, y = data
    settings = {"reg": 1e-3, "tol": 1e-9, "max_iter": 2000}
    objective, rng = problem(X, y, reg=1e-3), np.random.default_rng(2)
    fits = [MCML(init=rng.standard_normal((3, 3)), strength=1.0, **settings).fit(X, y) for _ in range(3)]
    values = [objective(f.components_)[0] for f in fits]
    G, W = objective.metric_gradient(fits[0].components_), fits[0].mahalanobis_
    scale = np.abs(objective.metric_gradient(np.eye(3))).max()
    assert np.abs(G @ W).max() < 1e-5 * scale
    assert np.linalg.eigvalsh(G)[0] > -1e-5 * scale

    use, delta = np.bincount(y)[y] > 1, X[:, None] - X  # (n, n, d)
    P0 = (y[:, None] == y) * ~np.eye(len(X), dtype=bool) / np.maximum(np.bincount(y)[y] - 1, 1)[:, None]

    def convex(W):  # the same function of W itself, which may leave the cone on the way
        D = np.einsum("ijk,kl,ijl->ij", delta, W, delta) + np.diag(np.full(len(X), np.inf))
        logp = -D - np.logaddexp.reduce(-D, axis=1)[:, None]
        C = ((P0 - np.exp(logp)) * use[:, None]) / use.sum()
        kl = np.sum(P0[P0 > 0] * np.log(P0[P0 > 0])) - np.sum(P0[P0 > 0] * logp[P0 > 0])
        return kl / use.sum() + 1e-3 * np.trace(W), np.einsum("ij,ijk,ijl->kl", C, delta, delta) + 1e-3 * np.eye(3)

    oracle = fista(convex, psd_project, np.eye(3), max_iter=2000, tol=1e-9)
    assert_allclose(values, oracle.value, rtol=1e-6)
    for fit in fits[1:]:
        assert_allclose(fit.mahalanobis_, W, atol=1e-4 * np.abs(W).max())


def test_P01c_divergence_is_nonnegative_and_vanishes_where_classes_collapse():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1], [8, 6])
    X = np.column_stack([y.astype(float), rng.standard_normal((14, 2))])
    objective = problem(X, y)
    for _ in range(20):
        assert objective(rng.standard_normal((3, 3)) * rng.uniform(0, 3))[0] >= 0
    along = [objective(np.sqrt(s) * np.eye(3)[:1])[0] for s in (0, 1, 4, 16, 64)]
    assert np.all(np.diff(along) < 0)
    assert along[-1] < 1e-12
    fit = MCML(max_iter=500, strength=1.0).fit(X, y)
    assert np.all(np.isfinite(fit.components_))
    assert objective(fit.components_)[0] < 1e-3


def test_P01d_one_feature_is_a_scalar_problem(overlapping):
    X, y = overlapping(sizes=(8, 7), d=1, spread=0.8, seed=5)
    oracle = minimize_scalar(lambda w: slow_mcml(np.array([[w]]), X, y), bounds=(0, 20), method="bounded")
    assert oracle.x > 0.01  # a minimum inside
    fit = MCML(tol=1e-10, max_iter=1000, strength=1.0).fit(X, y)
    assert_allclose(fit.mahalanobis_[0, 0], oracle.x, rtol=1e-4)


def test_n_components_keeps_the_leading_eigenvectors(data):
    X, y = data
    full, cut = (MCML(p, reg=1e-2, tol=1e-8, strength=1.0).fit(X, y) for p in (None, 2))
    w, V = np.linalg.eigh(full.mahalanobis_)
    assert_allclose(cut.mahalanobis_, (V[:, 1:] * w[1:]) @ V[:, 1:].T, rtol=1e-6, atol=1e-10)


def test_unknown_penalty_is_named(data):
    with pytest.raises(ValueError, match="penalty='l1' is unknown"):
        MCML(penalty="l1", strength=1.0).fit(*data)
