"""MMC and its rank-one form against the equations written out, a conic solver, and the laws they must obey."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry.core.linalg import SingularMatrixWarning
from isometry.sampling import RandomPairs
from isometry.spectral import MMC, RankOneMMC
from isometry.supervision import Labels, Pairs


def problem(seed=0, n=24, d=3, classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + rng.standard_normal((classes, d))[y]
    return X, y


def slow_scatters(X, y):
    """Mean scatters of similar and dissimilar pairs, and the dissimilar differences."""
    d = X.shape[1]
    S, D, near, far = np.zeros((d, d)), np.zeros((d, d)), 0, []
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            if y[i] == y[j]:
                S, near = S + np.outer(z, z), near + 1
            else:
                D, far = D + np.outer(z, z), far + [z]
    return S / near, D / len(far), np.array(far)


def mean_distance(W, far):
    return np.mean([np.sqrt(max(z @ W @ z, 0)) for z in far])


def conic(S, far, diagonal=False):
    """min tr(WS) s.t. mean √(zᵀWz) ≥ 1, in whitened variables."""
    R = np.diag(np.sqrt(np.diag(S))) if diagonal else sla.cholesky(S, lower=True)
    Z = sla.solve_triangular(R, far.T, lower=True).T
    d = len(S)
    V = cp.diag(cp.Variable(d, nonneg=True)) if diagonal else cp.Variable((d, d), PSD=True)
    q = cp.sum(cp.multiply(Z @ V, Z), axis=1)
    cp.Problem(cp.Minimize(cp.trace(V)), [cp.sum(cp.sqrt(q)) >= len(far)]).solve(solver="CLARABEL")
    return sla.solve_triangular(R, sla.solve_triangular(R, V.value, lower=True, trans="T").T, lower=True, trans="T")


def metric_of(model, X, y):
    return model.fit(X, y).mahalanobis_


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_M01a_kkt_conditions_hold_at_the_solution(seed):
    X, y = problem(seed, d=4)
    S, _, far = slow_scatters(X, y)
    W = metric_of(MMC(reg=0.0, tol=1e-9, strength=1.0), X, y)
    R = sla.cholesky(S, lower=True)
    V = R.T @ W @ R
    V /= np.trace(V)
    Z = sla.solve_triangular(R, far.T, lower=True).T
    q = [np.sqrt(z @ V @ z) for z in Z]
    G = sum(np.outer(z, z) / (2 * qz) for z, qz in zip(Z, q, strict=True))
    top = sla.eigvalsh(G)[-1]
    assert_allclose(top, sum(q) / 2, rtol=1e-6)
    assert_allclose((top * np.eye(4) - G) @ V / top, 0, atol=1e-5)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("seed", [0, 3])
def test_M01b_equals_the_conic_solver(seed, diagonal):
    X, y = problem(seed, n=12)
    S, _, far = slow_scatters(X, y)
    expected = conic(S, far, diagonal)
    model = MMC(reg=0.0, diagonal=diagonal, tol=1e-9, strength=1.0)
    W = metric_of(model, X, y)
    assert_allclose(mean_distance(W, far), 1.0, rtol=1e-6)
    assert_allclose(np.trace(W @ S), np.trace(expected @ S), rtol=1e-6)
    assert_allclose(W, expected, atol=1e-4 * np.abs(expected).max())
    assert 0 <= model.gap_ + 1e-12 < 1e-6


def test_M01c_distances_do_not_depend_on_a_linear_map_of_the_data():
    X, y = problem(4)
    A = np.random.default_rng(5).standard_normal((3, 3)) + 2 * np.eye(3)
    model = MMC(reg=0.0, tol=1e-10, strength=1.0)
    pairs = np.stack(np.triu_indices(len(X), 1), axis=1)
    d0 = model.fit(X, y).pair_distance(X, pairs)
    d1 = model.fit(X @ A.T + 7, y).pair_distance(X @ A.T + 7, pairs)
    assert_allclose(d1, d0, atol=1e-5 * d0.max())


def test_M01d_diagonal_scale_law():
    """w* = argmin sᵀw − C log Σ_D √((z∘z)ᵀw) has sᵀw* = C/2, and C changes nothing but the scale."""
    X, y = problem(6)
    S, _, far = slow_scatters(X, y)
    s, W = np.diag(S), metric_of(MMC(reg=0.0, diagonal=True, tol=1e-10, strength=1.0), X, y)
    assert_allclose(W, np.diag(np.diag(W)), atol=1e-15)
    for C in (0.3, 2.0):
        w = np.diag(W) * (C / 2) / (s @ np.diag(W))
        q = np.sqrt(far**2 @ w)
        slope = s - C * (far**2 / (2 * q[:, None])).sum(axis=0) / q.sum()  # 0 where w > 0, ≥ 0 where w = 0
        assert_allclose(slope[w > 1e-6 * w.max()], 0, atol=2e-5 * s.max())
        assert np.all(slope > -2e-5 * s.max())


def test_M01e_rank_can_exceed_one():
    """M_S = I and differences e1, e2, (e1 ± e2)/√2 give V = I/2, g = 4/√2; one direction reaches 2.61."""
    h = np.sqrt(0.5)
    ends = np.array([[1, 0], [0, 1], [h, h], [h, -h], [1, 0], [0, 1]])  # the last two are the similar pairs
    X = np.zeros((12, 2))
    X[1::2] = ends
    i = np.arange(0, 12, 2)
    side = Pairs(i, i + 1, np.repeat([0, 1], [4, 2]), n=12)
    W = metric_of(MMC(reg=0.0, tol=1e-10, strength=1.0), X, side)
    V = W / np.trace(W)
    assert_allclose(V, np.eye(2) / 2, atol=1e-6)
    g = sum(np.sqrt(z @ V @ z) for z in ends[:4])
    assert_allclose(g, 4 / np.sqrt(2), rtol=1e-9)
    angles = np.linspace(0, np.pi, 721)
    best = max(sum(abs(z @ [np.cos(t), np.sin(t)]) for z in ends[:4]) for t in angles)
    assert best < 2.614 < g


def test_pairs_and_labels_give_the_same_metric():
    X, y = problem(8)
    side = Labels(y)
    W = metric_of(MMC(strength=1.0), X, y)
    assert_allclose(
        metric_of(MMC(strength=1.0), X, Pairs.from_edges(side.similar, side.dissimilar, len(X))), W, rtol=1e-6
    )


def test_sampled_pairs_keep_the_whole_similar_scatter():
    """With all dissimilar pairs drawn, sampling changes nothing; with a few, the constraint holds on average only."""
    X, y = problem(9)
    W = metric_of(MMC(strength=1.0), X, y)
    assert_allclose(
        metric_of(MMC(pairs=RandomPairs(10_000), random_state=0, strength=1.0), X, y), W, rtol=1e-5, atol=1e-9
    )
    few = metric_of(MMC(pairs=RandomPairs(40), random_state=0, strength=1.0), X, y)
    assert 0.5 < mean_distance(few, slow_scatters(X, y)[2]) < 2


def test_low_rank_search_reaches_a_rank_one_optimum():
    X, y = load_iris(return_X_y=True)
    full, thin = MMC(tol=1e-9, strength=1.0).fit(X, y), MMC(1, tol=1e-9, strength=1.0).fit(X, y)
    assert thin.components_.shape == (1, 4)
    assert_allclose(thin.mahalanobis_, full.mahalanobis_, rtol=1e-4, atol=1e-6)


def test_alpha_is_the_mean_distance_of_dissimilar_pairs():
    X, y = problem(10)
    far = slow_scatters(X, y)[2]
    for diagonal in (False, True):
        assert_allclose(
            mean_distance(metric_of(MMC(alpha=2.5, diagonal=diagonal, strength=1.0), X, y), far), 2.5, rtol=1e-6
        )


def test_unused_direction_of_similar_pairs_gets_a_ridge_and_a_warning():
    X, y = problem(11)
    X[:, 2] = y  # varies between classes only
    with pytest.warns(SingularMatrixWarning, match="ridge"):
        model = MMC(reg=0.0, strength=1.0).fit(X, y)
    assert np.isfinite(model.components_).all()


def test_equal_similar_points_are_refused():
    X = np.repeat(np.random.default_rng(0).standard_normal((3, 2)), 2, axis=0)
    with pytest.raises(ValueError, match="every similar pair joins two equal samples"):
        MMC(strength=1.0).fit(X, np.repeat([0, 1, 2], 2))


@pytest.mark.parametrize("params", [{"alpha": 0}, {"reg": -1.0}])
def test_wrong_parameters_are_named(params):
    with pytest.raises(ValueError, match=rf"{next(iter(params))}=.* must"):
        MMC(**params, strength=1.0).fit(*problem())


def test_M02a_value_is_the_top_eigenvalue_and_the_sdp_optimum():
    X, y = problem(12, d=4)
    S, D, _ = slow_scatters(X, y)
    model = RankOneMMC(reg=0.0, strength=1.0).fit(X, y)
    W = model.mahalanobis_
    R = sla.cholesky(S, lower=True)
    half = sla.solve_triangular(R, D, lower=True)
    Dw = sla.solve_triangular(R, half.T, lower=True)
    V = cp.Variable((4, 4), PSD=True)
    programme = cp.Problem(cp.Maximize(cp.trace(V @ Dw)), [cp.trace(V) <= 1])
    programme.solve(solver="CLARABEL")
    assert_allclose(np.trace(W @ S), 1, rtol=1e-10)
    assert_allclose([np.trace(W @ D), model.eigenvalue_], sla.eigvalsh(D, S)[-1], rtol=1e-10)
    assert_allclose(np.trace(W @ D), programme.value, rtol=1e-7)


def test_M02b_rank_is_one():
    X, y = problem(13, d=4)
    model = RankOneMMC(strength=1.0).fit(X, y)
    assert model.components_.shape == (1, 4)
    assert np.linalg.matrix_rank(model.mahalanobis_) == 1


def test_M02c_distances_do_not_depend_on_a_linear_map_of_the_data():
    X, y = problem(14)
    A = np.random.default_rng(15).standard_normal((3, 3)) + 2 * np.eye(3)
    pairs = np.stack(np.triu_indices(len(X), 1), axis=1)
    model = RankOneMMC(reg=0.0, strength=1.0)
    d0 = model.fit(X, y).pair_distance(X, pairs)
    assert_allclose(model.fit(X @ A.T - 3, y).pair_distance(X @ A.T - 3, pairs), d0, rtol=1e-8)


def test_M02d_two_balanced_classes_give_the_lda_direction():
    X, y = problem(16, n=40, d=4, classes=2)
    u = RankOneMMC(reg=0.0, strength=1.0).fit(X, y).components_[0]
    v = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).coef_[0]
    assert_allclose(abs(u @ v) / np.linalg.norm(u) / np.linalg.norm(v), 1, atol=1e-12)
