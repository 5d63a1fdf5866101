import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.neighbors import NeighborhoodComponentsAnalysis

from isometry.probabilistic import NCA
from isometry.supervision import Labels
from tests.conftest import assert_refitted


def slow_nca(L, X, y, reg=0.0, log=False):
    """(1/n) Σ_i p_i − reg |L|², or with log p_i over the anchors that have a partner."""
    p = []
    for i in range(len(X)):
        e = [0.0 if j == i else np.exp(-np.sum((L @ (X[i] - X[j])) ** 2)) for j in range(len(X))]
        hits = [e[j] for j in range(len(X)) if y[j] == y[i] and j != i]
        if log and not hits:
            continue
        p.append(sum(hits) / sum(e))
    return np.mean(np.log(p) if log else p) - reg * np.sum(L**2)


def problem(X, y, **params):
    return NCA(strength=1.0, **params)._objective(X - X.mean(axis=0), Labels(y), None)


@pytest.fixture
def data(overlapping):
    return overlapping(sizes=(9, 6, 4, 1), d=4)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("reg", [0.0, 0.2])
@pytest.mark.parametrize("p", [2, 4])
def test_P03a_P04a_P05a_value_and_gradient(data, numeric_gradient, log, reg, p):
    X, y = data
    objective = problem(X, y, objective="log" if log else "sum", reg=reg)
    L = np.random.default_rng(p).standard_normal((p, 4)) / 2
    value, gradient = objective(L)
    assert_allclose(value, -slow_nca(L, X, y, reg, log), rtol=1e-12)
    assert_allclose(gradient, numeric_gradient(lambda M: -slow_nca(M, X, y, reg, log), L), rtol=1e-6, atol=1e-8)


def test_P03b_limits_at_zero_and_at_infinite_scale(data):
    X, y = data
    n, counts = len(X), np.bincount(y)
    objective, L = problem(X, y), np.random.default_rng(0).standard_normal((3, 4))
    assert_allclose(-n * objective(0 * L)[0], np.sum((counts[y] - 1) / (n - 1)), rtol=1e-12)
    hits = 0
    for i in range(n):
        d = [np.inf if j == i else np.sum((L @ (X[i] - X[j])) ** 2) for j in range(n)]
        hits += y[int(np.argmin(d))] == y[i]
    assert_allclose(-n * objective(1e4 * L)[0], hits, rtol=1e-12)


def test_P03c_ascends_and_reaches_scikit_learns_value(overlapping):
    X, y = overlapping(sizes=(25, 25, 20), d=5, seed=1)
    start = np.eye(5)[:2]
    ours = NCA(2, init=start, max_iter=300, tol=1e-7, strength=1.0).fit(X, y)
    peer = NeighborhoodComponentsAnalysis(2, init=start, max_iter=300, tol=1e-7, random_state=0).fit(X, y)
    objective = problem(X, y)
    assert np.all(np.diff(ours.history_) <= 0)
    assert ours.history_[-1] < ours.history_[0] - 0.02
    assert -objective(ours.components_)[0] >= -objective(peer.components_)[0] * (1 - 1e-3)


@pytest.mark.parametrize("kind", ["sum", "log"])
def test_P03d_block_size_does_not_matter(overlapping, kind):
    X, y = overlapping(sizes=(300, 150, 100), d=3)
    objective, L = problem(X, y, objective=kind), np.random.default_rng(1).standard_normal((2, 3))
    value, gradient = objective(L)
    with config_context(working_memory=0.06):  # MiB: three rows at a time
        small_value, small_gradient = objective(L)
    assert_allclose(small_value, value, rtol=1e-12)
    assert_allclose(small_gradient, gradient, rtol=1e-10, atol=1e-13)


def test_P04b_log_likelihood_is_negative_and_zero_only_at_certainty(data):
    X, y = data
    objective, rng = problem(X, y, objective="log"), np.random.default_rng(4)
    for _ in range(10):
        assert objective(rng.standard_normal((4, 4)) * rng.uniform(0, 2))[0] > 1e-6  # classes overlap
    apart = np.column_stack([10.0 * y, X])
    assert 0 <= problem(apart, y, objective="log")(5 * np.eye(5)[:1])[0] < 1e-12


def test_P04c_diagonal_metric_is_the_local_distance_metric_likelihood(data):
    X, y = data
    lam = np.random.default_rng(5).uniform(0, 1, 4)
    total, m = 0.0, 0
    for i in range(len(X)):  # lse over S_i − lse over S_i ∪ D_i of −λᵀw_ij, w_ij the squared differences
        similar = [-lam @ (X[i] - X[j]) ** 2 for j in range(len(X)) if j != i and y[j] == y[i]]
        every = [-lam @ (X[i] - X[j]) ** 2 for j in range(len(X)) if j != i]
        if similar:
            total, m = total + np.logaddexp.reduce(similar) - np.logaddexp.reduce(every), m + 1
    assert_allclose(-problem(X, y, objective="log")(np.diag(np.sqrt(lam)))[0], total / m, rtol=1e-12)


def test_P04d_an_outlier_leaves_everything_finite(data):
    X, y = data
    X = X.copy()
    X[0] += 50 * X.std(axis=0)
    value, gradient = problem(X, y, objective="log")(3 * np.eye(4))
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert np.abs(gradient).max() > 0
    assert np.all(np.isfinite(NCA(objective="log", reg=1e-3, max_iter=2000, strength=1.0).fit(X, y).components_))


def test_P05b_no_penalty_is_plain_nca(data):
    X, y = data
    L = np.random.default_rng(6).standard_normal((2, 4))
    plain, penalised = problem(X, y), problem(X, y, reg=0.5)
    assert_allclose(penalised(L)[0] - 0.5 * np.sum(L**2), plain(L)[0], rtol=1e-13)
    assert_allclose(penalised(L)[1] - 2 * 0.5 * L, plain(L)[1], rtol=1e-12, atol=1e-14)
    assert_refitted(NCA(2, reg=0.0, strength=1.0).fit(X, y).components_, NCA(2, strength=1.0).fit(X, y).components_)


def slow_critical(X, y):
    """λ_max of (1/n) Σ_ij (p_i p_ij − 1[y_i = y_j] p_ij)(x_i − x_j)(x_i − x_j)ᵀ at the uniform softmax."""
    n, S = len(X), np.zeros((X.shape[1],) * 2)
    for i in range(n):
        p_i = (np.sum(y == y[i]) - 1) / (n - 1)
        for j in range(n):
            if j != i:
                S += (p_i - (y[i] == y[j])) / (n - 1) / n * np.outer(X[i] - X[j], X[i] - X[j])
    return np.linalg.eigvalsh(S)[-1]


def test_P05c_the_penalty_is_paid_for_by_the_gain(data):
    X, y = data
    reg = 0.3 * slow_critical(X, y)
    tiny = 1e-3 * np.random.default_rng(7).standard_normal((2, 4))
    fit = NCA(2, reg=reg, init=tiny, tol=1e-9, max_iter=1000, strength=1.0).fit(X, y)
    L = fit.components_
    assert np.sum(L**2) > 1e-2
    assert reg * np.sum(L**2) <= slow_nca(L, X, y) - slow_nca(0 * L, X, y) + 1e-9


def test_P05d_zero_is_a_local_optimum_exactly_above_the_critical_penalty(data):
    X, y = data
    critical = slow_critical(X, y)
    assert_allclose(NCA(reg="auto", strength=1.0).fit(X, y).reg_, 1e-3 * critical, rtol=1e-9)
    tiny = 1e-3 * np.random.default_rng(8).standard_normal((4, 4))
    above, below = (
        NCA(reg=s * critical, init=tiny, tol=1e-10, max_iter=1000, strength=1.0).fit(X, y).components_
        for s in (1.1, 0.85)
    )
    assert np.sum(above**2) < 1e-9
    assert np.sum(below**2) > 1e-3


def test_labels_that_show_nowhere_switch_the_automatic_penalty_off():
    X = np.tile([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], (2, 1))
    y = np.repeat([0, 1], 4)  # both classes hold the same four points
    with pytest.warns(UserWarning, match="do not show in any direction"):
        fit = NCA(reg="auto", strength=1.0).fit(X, y)
    assert fit.reg_ == 0


@pytest.mark.parametrize(("params", "message"), [({"objective": "max"}, "objective='max'"), ({"reg": "x"}, "reg='x'")])
def test_unknown_options_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        NCA(strength=1.0, **params).fit(*data)
