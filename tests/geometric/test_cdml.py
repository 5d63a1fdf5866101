"""CDML: distances along learned curves."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from isometry.core.curves import Curves, root_real_parts
from isometry.core.solve import adam, lbfgs
from isometry.geometric import CDML, GMML, cdml
from isometry.sampling import AllPairs, RandomPairs, signed_edges
from isometry.supervision import Labels, Pairs
from tests.conftest import make_blobs


def curves(p=2, d=3, c=4, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    M = noise * rng.normal(size=(p, d, c))
    M[..., 0] = rng.normal(size=(p, d))
    return Curves(M, n_quad=64)


def theta(M, t):
    """θ(t) (d,) of one curve M (d, c)."""
    return sum(M[:, k] * t ** (k + 1) for k in range(M.shape[1]))


def theta_speed(M, t):
    return np.linalg.norm(sum((k + 1) * M[:, k] * t**k for k in range(M.shape[1])))


def slow_foot(M, x):
    """The best t of a fine grid, refined twice."""
    low, high = -6.0, 6.0
    for _ in range(3):
        grid = np.linspace(low, high, 4001)
        points = sum(M[:, k, None] * grid ** (k + 1) for k in range(M.shape[1]))  # (d, grid)
        best = grid[np.argmin(((points - x[:, None]) ** 2).sum(axis=0))]
        low, high = best - (high - low) / 2000, best + (high - low) / 2000
    return best


def slow_sqdist(curves, x, x_):
    """Σ_l a_l (arc length between the foot points)², by adaptive integration."""
    total = 0.0
    for M in curves.M:
        unit = quad(lambda t, M=M: theta_speed(M, t), 0, 1)[0]
        total += (unit * quad(lambda t, M=M: theta_speed(M, t), slow_foot(M, x), slow_foot(M, x_))[0]) ** 2
    return total


def test_M32a_degree_one_is_a_mahalanobis_distance():
    X, y = make_blobs()
    model = CDML(degree=1, n_epochs=3).fit(X, y)
    L = model.curves_[:, :, 0] / model.scale_
    assert_allclose(model.transform(X), (X - X.mean(axis=0)) @ L.T, atol=1e-9)
    start = CDML(degree=1, n_epochs=0).fit(X, y)
    W = GMML(reg=0.0).fit(X, y).mahalanobis_
    assert_allclose(start.curves_[..., 0].T @ start.curves_[..., 0], W, rtol=1e-8)


def test_M32b_gradient_with_degree_four():
    X, y = make_blobs(n=12, d=3)
    model = CDML(2, degree=4, margins=(0.5, 2.0), n_quad=64, n_epochs=0).fit(X, y)
    Y, M = X / 5, curves().M
    signed = signed_edges(Labels(y), AllPairs(), Y, None)
    value, gradient = model._cost(M, Y, signed)
    slopes = np.empty_like(M)
    for index in np.ndindex(M.shape):
        E = np.zeros_like(M)
        E[index] = 1e-6
        slopes[index] = (model._cost(M + E, Y, signed)[0] - model._cost(M - E, Y, signed)[0]) / 2e-6
    assert value > 0.1 and np.abs(gradient).min(axis=(0, 1)).max() > 1e-6
    assert_allclose(gradient, slopes, atol=1e-6 * np.abs(gradient).max())


def test_M32_value_is_the_slow_objective():
    X, y = make_blobs(n=6, d=3)
    Y, c = X / 5, curves(c=3)
    model = CDML(2, reg=0.01, margins=(0.5, 2.0), n_quad=64, n_epochs=0).fit(X, y)
    losses = []
    for i in range(6):
        for j in range(i):
            s = slow_sqdist(c, Y[i], Y[j])
            losses.append(max(s - 0.5, 0) ** 2 if y[i] == y[j] else max(2.0 - s, 0) ** 2)
    fast = model._cost(c.M, Y, signed_edges(Labels(y), AllPairs(), Y, None))[0]
    assert_allclose(fast, np.mean(losses) + 0.01 * np.sum(c.M**2), rtol=1e-6)


@pytest.mark.parametrize("c", [1, 2, 3, 4])
def test_M32c_the_map_gives_the_distances_along_the_curves(c):
    X = np.random.default_rng(1).normal(size=(3, 3))
    cv = curves(c=c)
    Z = cv.embed(cv.project(X))
    for i in range(3):
        for j in range(3):
            assert_allclose(np.sum((Z[i] - Z[j]) ** 2), slow_sqdist(cv, X[i], X[j]), rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("c", [2, 3, 5])
def test_M32d_foot_points_beat_a_fine_grid(c):
    X = 2 * np.random.default_rng(2).normal(size=(30, 3))
    cv = curves(p=2, c=c, noise=1.0, seed=3)
    T = cv.project(X)
    grid = np.linspace(-5, 5, 20001)
    for l, M in enumerate(cv.M):
        points = sum(M[:, k, None] * grid ** (k + 1) for k in range(c))  # (d, grid)
        for x, t in zip(X, T[:, l], strict=True):
            best = np.min(((points - x[:, None]) ** 2).sum(axis=0))
            assert np.sum((theta(M, t) - x) ** 2) <= best * (1 + 1e-12)
            slope = sum((k + 1) * M[:, k] * t**k for k in range(c)) @ (theta(M, t) - x)
            assert abs(slope) < 1e-8 * (1 + theta_speed(M, t) ** 2)


def test_a_curve_that_lost_its_degree_still_has_foot_points():
    M = np.zeros((1, 2, 3))
    M[0, :, 0] = [2.0, 0.0]
    X = np.array([[1.0, 5.0], [-3.0, 2.0]])
    cv = Curves(M)
    assert_allclose(cv.project(X), [[0.5], [-1.5]], atol=1e-9)
    assert_allclose(cv.embed(cv.project(X)), [[2.0], [-6.0]], atol=1e-8)
    assert_allclose(np.sort(root_real_parts(np.array([6.0, -5.0, 1.0]))), [2, 3])


def test_training_lowers_the_objective_on_curved_classes():
    rng = np.random.default_rng(0)
    angle, y = rng.uniform(0, np.pi, size=80), np.arange(80) % 2
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 + 0.6 * y)[:, None] + 0.02 * rng.normal(size=(80, 2))
    model = CDML(random_state=0, n_epochs=40).fit(X, y)
    assert len(model.history_) == model.n_iter_ + 1 == 41
    assert model.history_[-1] < 0.6 * model.history_[0]


def wine(step=1):
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X)[::step], y[::step]


def objective(model, X, y):
    """Value and gradient over all pairs, at the curves that were found."""
    Y = (X - model.mean_) / model.scale_
    return model._cost(model.curves_, Y, signed_edges(Labels(y), AllPairs(), Y, None))


def test_lines_reach_a_stationary_point_in_any_order_of_the_rows():
    X, y = wine()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = CDML(degree=1, random_state=0).fit(X, y)
        long = CDML(degree=1, tol=1e-6, n_epochs=5000, random_state=0).fit(X, y)
        order = np.random.default_rng(0).permutation(len(X))
        other = CDML(degree=1, random_state=0).fit(X[order], y[order])
    value, gradient = objective(model, X, y)
    assert model.converged_ and long.converged_
    assert np.linalg.norm(gradient) * np.linalg.norm(model.curves_) <= 1e-3 * value
    assert_allclose(model.history_[-1], value, rtol=1e-12)
    assert_allclose(value, objective(long, X, y)[0], rtol=1e-3)
    assert_allclose(objective(other, X, y)[0], value, rtol=2e-3)


def test_curves_descend_to_a_small_part_of_the_start_and_claim_no_convergence_at_a_jump():
    X, y = wine(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = CDML(4, n_epochs=200, random_state=0).fit(X, y)
    value, gradient = objective(model, X, y)
    assert_allclose(model.history_[-1], value, rtol=1e-12)
    assert model.history_[-1] == model.history_.min() <= 0.02 * model.history_[0]
    stationary = np.linalg.norm(gradient) * np.linalg.norm(model.curves_) <= 1e-3 * value
    assert model.converged_ == stationary
    assert any(issubclass(w.category, ConvergenceWarning) for w in caught) != model.converged_


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_search_begins_anew_only_while_that_moves_it(monkeypatch, degree):
    """At a jump L-BFGS takes no step, and may still end a rounding error lower: that is no reason to begin again."""
    X, y = np.random.default_rng(0).standard_normal((60, 2)), np.arange(60) % 2
    runs = []

    def counted(*args, **options):
        runs.append(lbfgs(*args, **options))
        assert len(runs) < 10, "it begins anew for ever"
        return runs[-1]

    monkeypatch.setattr(cdml, "lbfgs", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        CDML(degree=degree, random_state=0).fit(X, y)
    assert all(run.n_iter > 0 for run in runs[:-1]) and (degree == 1 or len(runs) == 1)


def test_history_of_batches_is_the_whole_objective():
    X, y = wine(3)
    with pytest.warns(ConvergenceWarning, match="n_epochs=3 reached. Raise `n_epochs`"):
        model = CDML(2, batch_size=20, n_epochs=3, random_state=0).fit(X, y)
    assert_allclose(model.history_[-1], objective(model, X, y)[0], rtol=1e-12)
    assert len(model.history_) == 4 and not model.converged_


@pytest.mark.parametrize("kind", ["labels", "pairs", "sampler"])
def test_batches_cover_everything_once(kind):
    X, y = make_blobs(n=45)
    model = CDML(batch_size=20, pairs=RandomPairs(100) if kind == "sampler" else "auto")
    i, j = np.triu_indices(45, 1)
    side = Pairs(i, j, y[i] == y[j], n=45) if kind == "pairs" else Labels(y)
    if kind == "sampler":
        side = RandomPairs(100).draw(X, side, np.random.RandomState(0))
    seen = list(model._batches(X, side, np.random.RandomState(0)))
    if kind == "labels":
        assert sorted(len(Y) for Y, _ in seen) == [15, 15, 15]
        assert_allclose(np.sort(np.concatenate([Y for Y, _ in seen]), axis=0), np.sort(X, axis=0))
    else:
        sums = sum(signed.weight @ (Y[signed.edges.i] - Y[signed.edges.j]) ** 2 for Y, signed in seen)
        assert_allclose(sums, np.sum((X[side.i] - X[side.j]) ** 2, axis=0))
        assert max(len(Y) for Y, _ in seen) <= 20
    assert model.set_params(n_epochs=2, random_state=0).fit(X, side).n_iter_ == 2


def test_units_and_origin_do_not_matter():
    X, y = make_blobs()
    A, B = (CDML(random_state=0, n_epochs=5).fit(Y, y).transform(Y) for Y in (X, 1e3 * X + 1e4))
    assert_allclose(A, B, rtol=1e-4, atol=1e-4 * np.abs(A).max())


def test_adam_takes_its_textbook_steps():
    """Two steps on f(x) = x²/2 from 1, by hand; the first always has the length of the step."""
    one = adam(lambda x: (x @ x / 2, x), np.ones(1), [[()]], whole=lambda x: x @ x / 2, step=0.1)
    assert_allclose(one.x, 0.9, rtol=1e-7)
    m, v = 0.9 * 0.1 + 0.1 * 0.9, 0.999 * 0.001 + 0.001 * 0.81
    two = adam(lambda x: (x @ x / 2, x), np.ones(1), [[(), ()]], whole=lambda x: x @ x / 2, step=0.1)
    assert_allclose(two.x, 0.9 - 0.1 * (m / (1 - 0.81)) / np.sqrt(v / (1 - 0.999**2)), rtol=1e-6)
    assert_allclose(two.history, [two.x @ two.x / 2], rtol=1e-6)
    assert not one.converged and not two.converged


def test_adam_returns_to_the_lowest_point_with_half_the_step():
    """Beside the jump at 0.5 nothing is lower: the search ends there, below the step it began with."""

    def cliff(x):
        return (float(x[0]) if x[0] >= 0.5 else 5.0), np.ones(1)

    solution = adam(cliff, np.ones(1), ([()] for _ in range(5000)), step=0.3)
    assert solution.value == solution.x[0] == min(solution.history)
    assert 0.5 <= solution.x[0] <= 0.5 + 2 * 0.3 / 64
    assert solution.reason == "no lower value with ever smaller steps" and not solution.converged
    rough = adam(cliff, np.ones(1), ([()] for _ in range(30)), step=0.3)
    assert rough.reason == "30 epochs done" and not rough.converged


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 9}, "n_components=9 must be between 1 and"),
        ({"degree": 0}, "degree=0"),
        ({"margins": (2, 1)}, "0 ≤ u < v"),
        ({"batch_size": 1}, "batch_size=1"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        CDML(**params).fit(*make_blobs())
