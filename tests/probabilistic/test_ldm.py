import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp

from isometry.core.basis import eigenbasis, pair_features
from isometry.core.graph import pair_neighbors
from isometry.probabilistic import LDM, NCA
from isometry.supervision import Labels, Pairs


def slow_ldm(lam, Y, y):
    """Σ_i [lse over S_i − lse over S_i ∪ D_i] of −λᵀw_ij / number of anchors with a partner."""
    terms = []
    for i in range(len(Y)):
        e = {j: -lam @ (Y[i] - Y[j]) ** 2 for j in range(len(Y)) if j != i}
        similar = [e[j] for j in e if y[j] == y[i]]
        if similar:
            terms.append(logsumexp(similar) - logsumexp(list(e.values())))
    return np.mean(terms)


def slow_bound(lam, at, Y, y):
    """Jensen's bound with φ the softmax over S_i of −λ'ᵀw at the expansion point λ' = at."""
    terms = []
    for i in range(len(Y)):
        others = [j for j in range(len(Y)) if j != i]
        w = {j: (Y[i] - Y[j]) ** 2 for j in others}
        similar = [j for j in others if y[j] == y[i]]
        if similar:
            a = np.array([-at @ w[j] for j in similar])
            phi = np.exp(a - logsumexp(a))
            entropy = -np.sum(phi * np.log(phi))
            jensen = -sum(f * (lam @ w[j]) for f, j in zip(phi, similar, strict=True)) + entropy
            terms.append(jensen - logsumexp([-lam @ w[j] for j in others]))
    return np.mean(terms)


def bound_and_value(lams, at, Y, y):
    """Jensen's bound and the likelihood at many λ (m, 3) at once."""
    w, same = (Y[:, None] - Y) ** 2, (y[:, None] == y) & ~np.eye(len(y), dtype=bool)
    use = same.any(axis=1)
    w, same, other = w[use], same[use], ~np.eye(len(y), dtype=bool)[use]
    phi = np.where(same, np.exp(-w @ at), 0)  # (a, n)
    phi /= phi.sum(axis=1, keepdims=True)
    entropy = -np.sum(phi * np.log(np.where(phi > 0, phi, 1)), axis=1)
    e = -np.einsum("ijk,mk->mij", w, lams)
    everyone = logsumexp(np.where(other, e, -np.inf), axis=2)
    own = logsumexp(np.where(same, e, -np.inf), axis=2)
    return (np.sum(phi * e, axis=2) + entropy - everyone).mean(axis=1), (own - everyone).mean(axis=1)


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(6, 5, 3, 1), d=3)
    return eigenbasis(X, 3)(X), y


def objective(Y, y, reg=0.0, **params):
    return LDM(reg=reg, **params, strength=1.0)._objective(Y, Labels(y))


def test_value_and_gradient(data, numeric_gradient):
    Y, y = data
    lam = np.random.default_rng(0).uniform(0.2, 2, 3)
    value, gradient = objective(Y, y, reg=0.1)(lam)
    assert_allclose(value, -slow_ldm(lam, Y, y) + 0.1 * lam.sum(), rtol=1e-12)
    slow = numeric_gradient(lambda l: -slow_ldm(l, Y, y) + 0.1 * l.sum(), lam)
    assert_allclose(gradient, slow, rtol=1e-6, atol=1e-9)


def test_P12a_the_bound_touches_from_below(data, numeric_gradient):
    Y, y = data
    rng = np.random.default_rng(1)
    at = rng.uniform(0, 2, 3)
    f = objective(Y, y)
    assert_allclose(slow_bound(at, at, Y, y), -f(at)[0], rtol=1e-12)
    slope = numeric_gradient(lambda l: slow_bound(l, at, Y, y), at)
    assert_allclose(slope, -f(at)[1], rtol=1e-6, atol=1e-8)
    lams = rng.uniform(0, 5, (2000, 3))
    bound, value = bound_and_value(lams, at, Y, y)
    assert np.all(bound <= value + 1e-12)
    for lam, b, v in zip(lams[:20], bound, value, strict=False):  # which are the bound and the objective
        assert_allclose([b, v], [slow_bound(lam, at, Y, y), -f(lam)[0]], rtol=1e-10)


def test_P12b_minorise_maximise_climbs_to_the_same_optimum(overlapping):
    X, y = overlapping(sizes=(5, 4), d=2, seed=2)
    Y = eigenbasis(X, 2)(X)
    reg, lam, values = 1e-2, np.ones(2), []
    for _ in range(15):
        step = minimize(
            lambda l, at=lam: reg * l.sum() - slow_bound(l, at, Y, y), lam, bounds=[(0, None)] * 2, tol=1e-12
        )
        lam = step.x
        values.append(slow_ldm(lam, Y, y) - reg * lam.sum())
    assert np.all(np.diff(values) >= -1e-9)
    fit = LDM(reg=reg, tol=1e-10, max_iter=1000, strength=1.0).fit(Y, y)  # principal coordinates: its basis is the axes
    assert_allclose(fit.mahalanobis_, np.diag(lam), atol=1e-3 * lam.max())
    bounded = LDM(reg=reg, solver="mm", tol=1e-10, max_iter=1000, strength=1.0).fit(Y, y)
    assert np.all(np.diff(bounded.history_) <= 1e-12)
    assert_allclose(-bounded.history_[: len(values)], values, rtol=1e-5)  # the same steps, one by one
    assert_allclose(bounded.history_[-1], fit.history_[-1], rtol=1e-9)
    assert_allclose(bounded.mahalanobis_, fit.mahalanobis_, atol=1e-3 * lam.max())


@pytest.mark.parametrize("kind", ["all", "near", "pairs"])
def test_P12b_both_solvers_meet_on_every_kind_of_supervision(overlapping, kind):
    X, y = overlapping(sizes=(12, 9, 1), d=3, seed=3)
    side = Labels(y).to(Pairs) if kind == "pairs" else y
    settings = {"reg": 1e-2, "n_neighbors": 4 if kind == "near" else None, "tol": 1e-11, "max_iter": 2000}
    direct, bounded = (LDM(solver=solver, **settings, strength=1.0).fit(X, side) for solver in ("lbfgs", "mm"))
    assert_allclose(bounded.history_[-1], direct.history_[-1], rtol=1e-8)
    assert_allclose(bounded.mahalanobis_, direct.mahalanobis_, atol=1e-3 * np.abs(direct.mahalanobis_).max())


def test_an_unknown_solver_is_named(data):
    with pytest.raises(ValueError, match="solver='newton' is unknown; expected 'lbfgs' or 'mm'"):
        LDM(solver="newton", strength=1.0).fit(*data)


def test_P12c_axes_and_all_pairs_are_the_log_likelihood_of_nca(data):
    Y, y = data
    lam = np.random.default_rng(2).uniform(0, 2, 3)
    nca = NCA(objective="log", strength=1.0)._objective(Y, Labels(y), None)
    assert_allclose(objective(Y, y)(lam)[0], nca(np.diag(np.sqrt(lam)))[0], rtol=1e-12)


def test_P12d_projected_gradient_vanishes(overlapping):
    rng = np.random.default_rng(3)
    X, y = overlapping(sizes=(20, 15), d=3)
    X = np.column_stack([X, 3 * rng.standard_normal((35, 2))])  # noise: some weights end at 0
    basis = eigenbasis(X, 5)
    fit = LDM(reg=1e-2, tol=1e-9, max_iter=1000, strength=1.0).fit(X, y)
    lam = np.einsum("li,ij,lj->l", basis.map, fit.mahalanobis_, basis.map) / np.sum(basis.map**2, axis=1) ** 2
    _, g = objective(basis(X), y, reg=1e-2)(lam)
    assert np.sum(lam < 1e-12) >= 1
    assert_allclose(np.maximum(lam - g, 0), lam, atol=1e-5)


def test_near_neighbours_are_a_part_of_the_sum(data, numeric_gradient):
    Y, y = data
    lam, k = np.array([0.5, 1.0, 2.0]), 2
    terms = []
    for i in range(len(Y)):
        order = [j for j in np.argsort(np.sum((Y - Y[i]) ** 2, axis=1), kind="stable") if j != i]
        S, D = [j for j in order if y[j] == y[i]][:k], [j for j in order if y[j] != y[i]][:k]
        if S:
            e = {j: -lam @ (Y[i] - Y[j]) ** 2 for j in S + D}
            terms.append(logsumexp([e[j] for j in S]) - logsumexp(list(e.values())))
    f = objective(Y, y, n_neighbors=k)
    assert_allclose(f(lam)[0], -np.mean(terms), rtol=1e-12)
    assert_allclose(f(lam)[1], numeric_gradient(lambda l: f(l)[0], lam), rtol=1e-6, atol=1e-9)


def test_pairs_are_gathered_around_their_anchors():
    i, j, s = np.array([0, 0, 2, 4]), np.array([1, 2, 3, 5]), np.array([True, False, True, True])
    anchors, index, is_hit, weight = pair_neighbors(i, j, s, np.arange(1.0, len(i) + 1))
    assert anchors.tolist() == [0, 2]  # the only points with both kinds
    rows = zip(index.tolist(), is_hit.tolist(), weight.tolist(), strict=True)
    assert [sorted(zip(*row, strict=True)) for row in rows] == [
        [(1, True, 1.0), (2, False, 2.0)],
        [(0, False, 2.0), (3, True, 3.0)],
    ]
    assert_allclose(pair_features(np.array([[1.0, 2.0], [4.0, 0.0]]), [0], [1]), [[9.0, 4.0]])


def test_weights_multiply_the_exponentials(data, numeric_gradient):
    """Σ_j s w exp(−d) / Σ_j w exp(−d) for pairs of similarity s and weight w, and its gradient; both solvers."""
    Y, y = data
    rng = np.random.default_rng(3)
    i, j = np.triu_indices(len(Y), 1)
    s, w = np.where(rng.random(len(i)) < 0.3, rng.random(len(i)), y[i] == y[j]), rng.choice([0.0, 0.2, 1, 3], len(i))
    terms, lam, pairs = [], rng.uniform(0, 2, 3), Pairs(i, j, s, n=len(Y), weight=w)
    for a in range(len(Y)):
        mine = (i == a) | (j == a)
        near, far = np.sum((w * s)[mine]), np.sum((w * (1 - s))[mine])
        if near > 0 and far > 0:
            e = w[mine] * np.exp(-((Y[i[mine]] - Y[j[mine]]) ** 2) @ lam)
            terms.append(np.log(np.sum(s[mine] * e) / np.sum(e)))
    f = LDM(reg=0.0, strength=1.0)._objective(Y, pairs)
    assert_allclose(f(lam)[0], -np.mean(terms), rtol=1e-12)
    assert_allclose(f(lam)[1], numeric_gradient(lambda l: f(l)[0], lam), rtol=1e-6, atol=1e-9)
    direct, bounded = (
        LDM(solver=k, reg=1e-2, tol=1e-11, max_iter=2000, strength=1.0).fit(Y, pairs) for k in ("lbfgs", "mm")
    )
    assert_allclose(bounded.history_[-1], direct.history_[-1], rtol=1e-8)


def test_pairs_without_a_common_sample_are_refused(data):
    Y, _ = data
    with pytest.raises(ValueError, match="occurs in a similar and in a dissimilar pair"):
        LDM(strength=1.0).fit(Y, Pairs([0, 2], [1, 3], [True, False], n=len(Y)))


def test_coordinates_have_mean_squared_distance_one(overlapping):
    X, _ = overlapping(sizes=(8, 7), d=4)
    Y = eigenbasis(np.column_stack([X, X[:, 0], np.ones(15)]) * 7 + 3, 6)(
        np.column_stack([X, X[:, 0], np.ones(15)]) * 7 + 3
    )
    assert Y.shape[1] == 4  # a copy and a constant add no direction
    i, j = np.triu_indices(15, 1)
    assert_allclose(
        pair_features(Y, i, j).sum(axis=1).mean() * 14 / 15, 1.0, rtol=1e-9
    )  # mean over ordered pairs, i = j too
    assert_allclose(Y.T @ Y - np.diag(np.diag(Y.T @ Y)), 0, atol=1e-9)
