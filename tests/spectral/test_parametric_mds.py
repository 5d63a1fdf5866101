"""ParametricMDS: dissimilarities, stress and S-stress against loops, a conic solver and a general minimiser."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from isometry.core.edges import DenseEdges
from isometry.sampling import RandomPairs
from isometry.spectral import MMC, ParametricMDS, RBFParametricMDS, TraceSDP
from isometry.spectral.stress import Targets, fit_map, label_targets
from isometry.supervision import Labels, Pairs


def problem(seed=0, n=15, d=3, classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((classes, d))[y]
    return X - X.mean(axis=0), y


def slow_delta(X, y, beta=None):
    n = len(X)
    d2 = np.array([[np.sum((a - b) ** 2) for b in X] for a in X])
    beta = d2.sum() / n**2 if beta is None else beta
    k = [[(np.exp(-d2[i, j] / beta) + (y[i] == y[j])) / 2 for j in range(n)] for i in range(n)]
    return np.sqrt(np.maximum(2 - 2 * np.array(k), 0))


def slow_stress(L, X, delta):
    total, n = 0.0, len(X)
    for i in range(n):
        for j in range(i):
            total += (np.linalg.norm(L @ (X[i] - X[j])) - delta[i, j]) ** 2
    return total / (n * (n - 1) / 2)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_M16a_stress_falls_to_a_stationary_point(p):
    X, y = problem()
    model = ParametricMDS(p, tol=1e-15, max_iter=20_000, strength=1.0).fit(X, y)
    L, delta = model.components_, slow_delta(X, y)
    assert np.all(np.diff(model.history_) <= 1e-15)
    assert_allclose(model.history_[-1], slow_stress(L, X, delta), rtol=1e-9)
    gradient = np.zeros_like(L)
    for index in np.ndindex(L.shape):
        e = np.zeros_like(L)
        e[index] = 1e-6
        gradient[index] = (slow_stress(L + e, X, delta) - slow_stress(L - e, X, delta)) / 2e-6
    assert np.abs(gradient).max() < 1e-6


def test_stress_is_the_best_of_many_starts():
    X, y = problem(1)
    delta, rng = slow_delta(X, y), np.random.default_rng(2)
    i, j = np.triu_indices(15, 1)

    def f(v):
        return np.mean((np.linalg.norm((X[i] - X[j]) @ v.reshape(3, 3).T, axis=1) - delta[i, j]) ** 2)

    best = min(minimize(f, rng.standard_normal(9)).fun for _ in range(5))
    assert_allclose(ParametricMDS(tol=1e-13, max_iter=20_000, strength=1.0).fit(X, y).history_[-1], best, rtol=1e-5)


def test_M16b_dissimilarities_are_a_metric_that_separates_the_classes():
    X, y = problem(3)
    targets = label_targets(X, Labels(y), "auto", 2.0, np.random.RandomState(0))
    delta = targets.delta(slice(0, 15))
    same = y[:, None] == y
    assert_allclose(delta, slow_delta(X, y, 2.0), atol=1e-7)
    assert delta[same].max() < 1 <= delta[~same].min()
    assert np.all(delta[:, :, None] + delta[None] >= delta[:, None] - 1e-12)  # δ_ij + δ_jk ≥ δ_ik
    assert_allclose(targets.weight(slice(0, 15)) * 15 * 14, 1)
    beta = ParametricMDS(beta=2.0, tol=1e-14, max_iter=5000, strength=1.0).fit(X, y)
    assert_allclose(beta.history_[-1], slow_stress(beta.components_, X, slow_delta(X, y, 2.0)), rtol=1e-9)


@pytest.mark.parametrize("start", ["pca", "random"])
def test_M16c_euclidean_targets_give_an_isometry(start):
    X, _ = problem(4)
    D = np.array([[np.linalg.norm(a - b) for b in X] for a in X])
    targets = Targets(DenseEdges(15), lambda rows: D[rows], lambda rows: 1 / (15 * 14))
    L0 = np.eye(3) if start == "pca" else np.random.default_rng(5).standard_normal((3, 3))
    solution = fit_map(X, targets, L0, max_iter=2000, tol=1e-30)
    assert solution.value < 1e-12
    assert_allclose(solution.x.T @ solution.x, np.eye(3), atol=1e-5)


@pytest.mark.parametrize("seed", [6, 7])
def test_M16d_sstress_equals_the_conic_solver(seed):
    X, y = problem(seed)
    delta, (i, j) = slow_delta(X, y), np.triu_indices(15, 1)
    Z = X[i] - X[j]
    W = cp.Variable((3, 3), PSD=True)
    programme = cp.Problem(
        cp.Minimize(cp.sum_squares(cp.sum(cp.multiply(Z @ W, Z), axis=1) - delta[i, j] ** 2) / len(Z))
    )
    programme.solve(solver="CLARABEL")
    model = ParametricMDS(loss="sstress", tol=1e-9, max_iter=2000, strength=1.0).fit(X, y)
    assert_allclose(model.history_[-1], programme.value, rtol=1e-7)
    assert_allclose(model.mahalanobis_, W.value, atol=1e-5)


def test_listed_and_sampled_pairs_stand_for_all():
    X, y = problem(8)
    side = Labels(y)
    exact = ParametricMDS(2, strength=1.0).fit(X, y).mahalanobis_
    listed = ParametricMDS(2, strength=1.0).fit(X, Pairs.from_edges(side.similar, side.dissimilar, 15)).mahalanobis_
    sampled = ParametricMDS(2, pairs=RandomPairs(10_000), random_state=0, strength=1.0).fit(X, y).mahalanobis_
    assert_allclose(listed, exact, rtol=1e-8)
    assert_allclose(sampled, exact, rtol=1e-6)
    # 12 of 30 similar and 12 of 75 dissimilar pairs: each kind keeps its share of the total weight
    some = label_targets(X, side, RandomPairs(12), 1.0, np.random.RandomState(0)).weight(slice(0, 24))
    assert_allclose([some[:12].sum(), some[12:].sum()], [15 * 4 / 2 / 105, 1 - 15 * 4 / 2 / 105], rtol=1e-12)


def test_radial_basis_reaches_less_stress_than_a_linear_map():
    X, y = problem(9, n=40)
    linear, curved = ParametricMDS(2, strength=1.0).fit(X, y), RBFParametricMDS(2, n_basis=20, random_state=0).fit(X, y)
    delta, Z = slow_delta(X, y), curved.transform(X)
    assert Z.shape == (40, 2) and curved.centers_.shape == (20, 3)
    assert slow_stress(np.eye(2), Z, delta) < 0.8 * linear.history_[-1]
    x = X[3] + 0.1
    c = curved.centers_ + curved.mean_
    psi = [np.exp(-np.sum((x - c_l) ** 2) / curved.beta_) for c_l in c]
    assert_allclose(curved.transform(x[None])[0], curved.coef_ @ psi, rtol=1e-9)


def test_radial_basis_descends_stress_plus_ridge():
    X, y = problem(10, n=20)
    model = RBFParametricMDS(2, n_basis=6, reg=0.01, tol=1e-13, max_iter=5000, random_state=0).fit(X, y)
    c = model.centers_ + model.mean_
    Psi = np.array([[np.exp(-np.sum((x - c_l) ** 2) / model.beta_) for c_l in c] for x in X])
    G = sum(np.outer(Psi[i] - Psi[j], Psi[i] - Psi[j]) for i in range(20) for j in range(i)) / 190
    delta, eps = slow_delta(X, y), 0.01 * np.trace(G) / 6

    def f(L):
        return slow_stress(L, Psi, delta) + eps * np.sum(L**2)

    assert_allclose(model.history_[-1], f(model.coef_), rtol=1e-9)
    assert np.all(np.diff(model.history_) <= 1e-15)
    rng = np.random.default_rng(0)
    assert all(f(model.coef_ + 1e-3 * rng.standard_normal((2, 6))) > f(model.coef_) for _ in range(30))


def test_targets_of_weight_zero_are_no_targets():
    with pytest.raises(ValueError, match="needs pairs with a target; y holds none"):
        ParametricMDS(strength=1.0).fit(np.eye(3), Pairs([0, 1], [1, 2], target=[1.0, 2.0], n=3, weight=[0, 0]))


def test_M03_target_distances_equal_the_conic_solver():
    """The second side information of the trace-normalised programme: a distance for each pair."""
    X, _ = problem(11)
    rng = np.random.default_rng(12)
    i, j = np.triu_indices(15, 1)
    keep = rng.random(len(i)) < 0.5
    i, j, e, weight = i[keep], j[keep], rng.uniform(0.2, 2, keep.sum()), rng.uniform(0.5, 2, keep.sum())
    Z = X[i] - X[j]
    W = cp.Variable((3, 3), PSD=True)
    gap = cp.sum(cp.multiply(Z @ W, Z), axis=1) - e**2
    programme = cp.Problem(cp.Minimize(cp.sum(cp.multiply(weight, cp.square(gap))) / weight.sum()))
    programme.solve(solver="CLARABEL")
    side = Pairs(i, j, target=e, n=15, weight=weight)
    model = TraceSDP(target_distances=True, reg=1e-6).set_params(tol=1e-9, max_iter=2000).fit(X, side)
    assert_allclose(model.history_[-1], programme.value, rtol=1e-7)
    assert_allclose(model.mahalanobis_, W.value, atol=1e-5)


def test_M03_distances_of_a_hidden_metric_are_found_again():
    X, _ = problem(13, n=30)
    L, (i, j) = np.random.default_rng(14).standard_normal((3, 3)), np.triu_indices(30, 1)
    e = np.linalg.norm((X[i] - X[j]) @ L.T, axis=1)
    for loss in ("stress", "sstress"):
        model = ParametricMDS(loss=loss, tol=1e-12, max_iter=5000, strength=1.0).fit(X, Pairs(i, j, target=e, n=30))
        assert_allclose(model.mahalanobis_, L.T @ L, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="needs pairs with a target; y holds none"):
        ParametricMDS(strength=1.0).fit(X, Pairs([], [], target=[], n=30))
    with pytest.raises(ValueError, match="needs similar pairs; y holds none"):
        MMC(strength=1.0).fit(X, Pairs(i, j, target=e, n=30))


@pytest.mark.parametrize("params, word", [({"loss": "strain"}, "loss='strain'"), ({"beta": 0}, "beta=0")])
def test_wrong_parameters_are_named(params, word):
    with pytest.raises(ValueError, match=word):
        ParametricMDS(**params, strength=1.0).fit(*problem())


@pytest.mark.parametrize("params", [{"n_basis": 0}, {"reg": -1}, {"n_components": 0}])
def test_wrong_parameters_of_the_basis_are_named(params):
    with pytest.raises(ValueError, match=next(iter(params))):
        RBFParametricMDS(**params).fit(*problem())
