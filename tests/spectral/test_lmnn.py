"""Proof tests of M11 (LMNN)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.optimize import lsq_linear
from sklearn.datasets import load_breast_cancer, load_wine, make_classification
from sklearn.exceptions import ConvergenceWarning

from isometry import LMNN, Labels, NeighborTriplets, Triplets
from isometry.core import parts
from isometry.core.frame import resolved
from isometry.core.graph import target_neighbors
from isometry.spectral import impostors, large_margin
from isometry.spectral.impostors import Impostors, ListedTriplets, best_multiple
from isometry.spectral.large_margin import certificate, target_coordinates
from tests.conftest import make_blobs


def small(n=24, d=3, seed=0):
    X, y = make_blobs(n=n, d=d, n_classes=2, seed=seed)
    X = X / X.std(axis=0)
    return X - X.mean(axis=0), y


def slow_objective(X, y, targets, L, mu, margin):
    Z = X @ L.T
    d = lambda i, j: float(np.sum((Z[i] - Z[j]) ** 2))  # noqa: E731
    total = 0.0
    for i in range(len(X)):
        for j in targets[i]:
            if j < 0:
                continue
            total += (1 - mu) * d(i, j)
            for l in range(len(X)):
                if y[l] != y[i]:
                    total += mu * max(0.0, margin + d(i, j) - d(i, l))
    return total


def problem(X, y, k=3, margin=1.0):
    return Impostors(X, y, target_neighbors(X, y, k), margin, None)


@pytest.mark.parametrize("seed", range(3))
def test_M11e_value_is_the_triple_loop(seed):
    X, y = small(seed=seed)
    y[0] = 7  # a class of one has no target
    L = np.random.default_rng(seed).standard_normal((2, 3))
    P = problem(X, y)
    P.refresh(L)
    slow = slow_objective(X, y, target_neighbors(X, y, 3), L, 0.3, 1.0)
    assert_allclose(P.value(L, 0.3), slow, rtol=1e-10)
    assert_allclose(P(L, 0.3, 1e-12)[0], slow, rtol=1e-8)


@pytest.mark.parametrize("step", [1e-3, 3e-2, 1.0])
def test_the_list_of_impostors_is_complete_wherever_the_metric_goes(monkeypatch, step):
    """The list is kept while points have moved less than its slack, and made anew after larger steps."""
    monkeypatch.setattr(impostors, "ROWS", 40)
    monkeypatch.setattr(impostors, "COLUMNS", 70)
    X, y = make_blobs(n=300, d=3, n_classes=4, seed=5)
    X = X / X.std(axis=0)
    P, rng, listed = problem(X, y, margin=0.1), np.random.default_rng(0), []
    monkeypatch.setattr(P, "_pairs_within", lambda *a, f=P._pairs_within: (listed.append(1), f(*a))[1])
    L = np.eye(3)
    for _ in range(25):
        L = L + step * rng.standard_normal((3, 3)) / 3
        assert_allclose(P(L, 0.5, 1e-12)[0], P.value(L, 0.5), rtol=1e-8)
    assert len(listed) < 12 if step < 1e-2 else len(listed) > 20 if step == 1.0 else listed


@pytest.mark.parametrize("kind", ["labels", "triplets"])
def test_M11a_gradient_by_finite_differences(kind):
    X, y = small()
    L, h = np.random.default_rng(1).standard_normal((2, 3)), 1e-6
    if kind == "labels":
        P = problem(X, y)
        P.refresh(0.0 * L)  # every pair is listed
    else:
        P = ListedTriplets(X, NeighborTriplets(2).draw(X, Labels(y), None), 1.0)
    _, g, _ = P(L, 0.4, 0.1)
    for index in np.ndindex(L.shape):
        e = np.zeros_like(L)
        e[index] = h
        assert_allclose(g[index], (P(L + e, 0.4, 0.1)[0] - P(L - e, 0.4, 0.1)[0]) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_M11b_reaches_the_semidefinite_optimum(seed):
    X, y = small(seed=seed)
    ours = LMNN(tol=1e-7, max_iter=500, strength=1.0).fit(X, y)
    exact = LMNN(solver="sdp", strength=1.0).fit(X, y)
    assert_allclose(ours.objective_, exact.objective_, rtol=1e-4)
    assert_allclose(
        ours.objective_, slow_objective(X, y, target_neighbors(X, y, 3), ours.components_, 0.5, 1.0), rtol=1e-9
    )


def test_M11c_optimality_with_weights_on_the_kinks():
    """0 ∈ ∂f: triplets on the kink carry weights in [0, 1] that make the subgradient vanish on the range of W."""
    X, y = small()
    learner = LMNN(tol=1e-8, max_iter=1000, strength=1.0).fit(X, y)
    L, targets = learner.components_, target_neighbors(X, y, 3)
    Z, W = X @ L.T, learner.mahalanobis_
    fixed, kinks = np.zeros((3, 3)), []
    for i in range(len(X)):
        for j in targets[i]:
            a = X[i] - X[j]
            fixed += 0.5 * np.outer(a, a)
            for l in np.flatnonzero(y != y[i]):
                b = X[i] - X[l]
                h = 1 + np.sum((Z[i] - Z[j]) ** 2) - np.sum((Z[i] - Z[l]) ** 2)
                term = 0.5 * (np.outer(a, a) - np.outer(b, b))
                if h > 2e-3:
                    fixed += term
                elif h > -2e-3:
                    kinks.append(term)
    A = np.stack([(K @ W).ravel() for K in kinks], axis=1) if kinks else np.zeros((9, 1))
    fit = lsq_linear(A, -(fixed @ W).ravel(), bounds=(0, 1))
    assert np.linalg.norm(A @ fit.x + (fixed @ W).ravel()) <= 2e-2 * np.linalg.norm(fixed @ W) + 1e-3
    G = fixed + sum(t * K for t, K in zip(fit.x, kinks))
    assert np.linalg.eigvalsh((G + G.T) / 2)[0] >= -2e-2 * np.linalg.norm(fixed)


def six_points():
    """Only the first feature tells the classes apart; the best multiple of the Euclidean metric is 0."""
    return np.array([[-0.1, -0.1, -0.1, 0.1, 0.1, 0.1], [1, 0, -1, 1, 0, -1.0]]).T, np.repeat([0, 1], 3)


def hidden_direction():
    """Classes differ in one feature, which is 500 times narrower than the noise in the others."""
    rng, y = np.random.RandomState(0), np.arange(300) % 3
    X = rng.randn(300, 5)
    X[:, 0] = 0.1 * X[:, 0] + y
    X[:, 1:] *= 50
    return X, y


def many_classes():
    rng, y = np.random.RandomState(0), np.arange(200) % 100
    return rng.randn(100, 30)[y] + 0.5 * rng.randn(200, 30), y


HARD = {
    "six points": (six_points, 2),
    "hidden direction": (hidden_direction, 3),
    "many classes": (many_classes, 1),
    "wine, raw": (lambda: load_wine(return_X_y=True), 3),
    "breast cancer, raw": (lambda: load_breast_cancer(return_X_y=True), 3),
}


@pytest.mark.parametrize("name", HARD)
def test_by_default_it_ends_at_the_minimum(name):
    """Within 0.1 % of a longer search where it says so, and never farther above it than it claims to have proven."""
    make, k = HARD[name]
    X, y = make()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        learner = LMNN(n_neighbors=k, strength=1.0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 1e-5 may be out of reach of rounding
        longer = LMNN(n_neighbors=k, tol=1e-5, max_iter=1500, strength=1.0).fit(X, y)
    assert learner.converged_ == (learner.gap_ <= learner.tol) == (not said)
    assert longer.objective_ >= (1 - learner.gap_) * learner.objective_ - 1e-4
    if name == "many classes":  # 30 features from 100 pairs of targets: a proof takes thousands of steps
        assert learner.objective_ <= 1.01 * longer.objective_
    else:
        assert learner.converged_ and learner.objective_ <= 1.001 * longer.objective_ + 1e-4
    if name == "six points":
        assert learner.objective_ < 1e-4
    if name == "hidden direction":
        assert learner.objective_ < 42


@pytest.mark.parametrize("batch_size", [None, "auto"])
@pytest.mark.parametrize("seed", range(3))
def test_directions_that_are_left_out_come_back_where_they_matter(seed, batch_size, monkeypatch):
    """Half of the targets' loss is thrown away before sharp hinges, and much of it again and again."""
    X, y = make_blobs(n=60, d=8, n_classes=3, seed=seed)
    X = X / X.std(axis=0)
    whole = LMNN(tol=1e-4, max_iter=3000, strength=1.0, random_state=0, batch_size=batch_size)
    if batch_size == "auto":
        monkeypatch.setattr(parts, "MOST_WORK", 0)
        monkeypatch.setattr(parts, "PART_ROWS", 30)
    whole.fit(X, y)
    widths = []
    evaluate = Impostors.__call__
    monkeypatch.setattr(
        Impostors, "__call__", lambda self, L, *more: (widths.append(len(L)), evaluate(self, L, *more))[1]
    )
    monkeypatch.setattr(large_margin, "WIDE", 2)
    monkeypatch.setattr(large_margin, "LEFT_OUT", (0.5, 1e-2))
    narrow = LMNN(**whole.get_params()).fit(X, y)
    assert min(widths) <= 4 and len(set(widths)) > 2
    assert narrow.components_.shape == whole.components_.shape == (8, 8)
    assert narrow.gap_ <= 1e-4 and whole.gap_ <= 1e-4
    assert_allclose(narrow.objective_, whole.objective_, rtol=1e-4)
    if batch_size is None:
        assert_allclose(problem(X, y).value(narrow.components_, 0.5), narrow.objective_, rtol=1e-8)


def nearly_determined(size):
    """Three classes that differ along one direction alone, which all five features nearly hide, and the other four."""
    rng = np.random.default_rng(0)
    y, noise = np.arange(90) % 3, rng.standard_normal((90, 4))
    Z = np.c_[noise, size * (y + 0.1 * rng.standard_normal(90))]
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    return Z @ Q, y, noise @ Q[:4]


@pytest.mark.parametrize("size", [1e-7, 1e-9, 1e-12])
def test_what_rounding_hides_from_a_scatter_is_left_out_and_said(size):
    """Squares of such differences are rounding errors of those of others: a search for them overflowed. The objective
    would be lower with them, so that nothing is proven of it."""
    X, y, rest = nearly_determined(size)
    with pytest.warns(ConvergenceWarning, match="nearly determine one another"):
        learner = LMNN(strength=1.0).fit(X, y)
    samples, lost = resolved(rest - rest.mean(axis=0))
    assert lost < 1e-14  # four directions and a fifth of nothing
    expected = LMNN(strength=1.0).fit(samples, y)
    assert expected.converged_ and not learner.converged_ and learner.gap_ == 1.0
    assert_allclose(learner.objective_, expected.objective_, rtol=2e-3)  # both within tol of the minimum


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_a_scatter_resolves_stays(dtype):
    """Down to a millionth of the largest deviation, though the square of that is below the precision of float32."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = (rng.standard_normal((300, 6)) * np.logspace(0, -4, 6)) @ Q
    X = (X - X.mean(axis=0)).astype(dtype)
    assert resolved(X)[0] is X
    flat = X.copy()
    flat[:, 5] = flat[:, :5].sum(axis=1)
    # a direction without deviation is known up to eps · 1e8, the ratio of the squares of other deviations
    assert_allclose(resolved(flat)[0], flat, rtol=0, atol=1e-7 if dtype == np.float64 else 1e-5)


def test_a_feature_that_is_a_sum_of_others_is_not_worth_a_word():
    X, y = load_wine(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = LMNN(strength=1.0).fit(np.c_[X, X[:, :3].sum(axis=1)], y)
    assert learner.converged_
    assert_allclose(learner.objective_, LMNN(strength=1.0).fit(X, y).objective_, rtol=2e-3)


def test_a_minimum_of_zero_needs_no_other_proof():
    """With fewer samples than features, classes come apart where targets do not: there is no way back from there."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 60)), np.arange(40) % 3
    learner = LMNN(strength=1.0).fit(X, y)
    assert learner.converged_ and learner.gap_ <= learner.tol
    assert 0 <= learner.objective_ < 1e-6
    assert learner.n_iter_ < 20


def test_a_bound_that_needs_the_ridge_is_no_proof():
    """The direction is resolved, and found, but so small that the ridge adds more than `tol` to the loss along it."""
    X, y, _ = nearly_determined(1e-5)
    with pytest.warns(ConvergenceWarning, match="hardly more than rounding errors"):
        learner = LMNN(strength=1.0).fit(X, y)
    assert learner.gap_ == 1.0
    X, y, _ = nearly_determined(1e-2)
    larger = LMNN(strength=1.0).fit(X, y)
    assert larger.converged_
    assert_allclose(learner.objective_, larger.objective_, rtol=1e-2)


def test_directions_without_pull_are_not_taken_for_a_proof():
    """A feature in which targets hardly differ can be stretched almost for free: no ridge may hide that."""
    rng, y = np.random.RandomState(0), np.arange(120) % 3
    X = rng.randn(120, 4)
    X[:, 3] = 1e-3 * y + 1e-7 * rng.randn(120)  # tells the classes apart, on a scale of its own
    targets = target_neighbors(X - X.mean(axis=0), y, 3)
    best = slow_objective(X, y, targets, np.diag([0, 0, 0, 1e3]), 0.5, 1.0)  # neighbouring classes at distance 1
    learner = LMNN(strength=1.0).fit(X, y)
    assert learner.objective_ <= best
    if learner.converged_:
        assert best >= (1 - learner.gap_) * learner.objective_ - 1e-4


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mu", [0.2, 0.5, 1.0])
def test_the_bound_is_below_the_semidefinite_optimum(seed, mu):
    """Weak duality holds at any metric, near the minimum or not, and is nearly tight at the minimum."""
    X, y = small(seed=seed)
    minimum = LMNN(solver="sdp", mu=mu, strength=1.0).fit(X, y).objective_
    P, rng = problem(X, y), np.random.default_rng(seed)
    T, inverse = target_coordinates(P, mu)
    assert_allclose(T @ inverse, np.eye(3), atol=1e-9)
    for L in rng.standard_normal((5, 3, 3)):
        for tau in (0.1, 1e-3):
            proof = certificate(P, L @ inverse.T, T, mu, tau)
            assert proof.bound <= minimum * (1 + 1e-6) + 1e-6
            assert_allclose(proof.value, P.value(L, mu), rtol=1e-9)
            push, _ = P.push_gradient(L, tau)  # finite differences in W along the directions that L can take
            G = np.linalg.solve(T.T, proof.G) @ inverse
            gradient = P(L, mu, tau)[1]
            assert_allclose(
                2 * L @ ((1 - mu) * P.target_scatter + mu * push), gradient, atol=1e-8 * np.abs(gradient).max()
            )
            assert_allclose(2 * L @ G, gradient, atol=1e-4 * np.abs(gradient).max())  # up to the ridge of 1e-6
    learner = LMNN(mu=mu, strength=1.0).fit(X, y)
    assert learner.converged_ and minimum >= (1 - learner.tol) * learner.objective_ - 1e-4
    assert (learner.gap_ is None) == (mu == 1)  # without pull nothing is proven


def test_the_history_is_of_the_objective():
    X, y = small(n=60, seed=1)
    for learner in (LMNN(strength=1.0), LMNN(2, strength=1.0)):
        learner.fit(X, y)
        assert_allclose(learner.history_[-1], learner.objective_, rtol=1e-6)
    P = problem(X - X.mean(axis=0), y)
    first, last = LMNN(init=np.eye(3), max_iter=1, strength=1.0), LMNN(init=np.eye(3), max_iter=0, strength=1.0)
    for learner in (first, last):
        with pytest.warns(ConvergenceWarning, match="within"):
            learner.fit(X, y)
        assert_allclose(learner.history_[0], P.value(np.eye(3), 0.5), rtol=1e-9)
    assert last.n_iter_ == 0 and not last.converged_
    assert_allclose(last.mahalanobis_, np.eye(3), atol=1e-12)


def test_units_of_the_features_cost_no_iterations():
    """In coordinates of the pull the search is the same in any units, but for rounding."""
    X, y = small(n=90, d=3, seed=2)
    triplets, unit = NeighborTriplets(3).draw(X, Labels(y), None), np.array([1e-3, 1.0, 1e4])
    plain, scaled = (
        LMNN(init=init, strength=1.0).fit(Z, triplets) for Z, init in ((X, np.eye(3)), (X * unit, np.diag(1 / unit)))
    )
    assert scaled.converged_ and scaled.n_iter_ <= 3 * plain.n_iter_
    assert_allclose(scaled.objective_, plain.objective_, rtol=plain.tol)


def test_M11d_no_impostors():
    """Classes far apart: with μ = 1 nothing is to be done and the start stays, with loss 0."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 15)
    X = rng.standard_normal((30, 3)) + 100 * y[:, None]
    learner = LMNN(mu=1.0, init="identity", strength=1.0).fit(X, y)
    assert learner.objective_ == 0
    assert_allclose(learner.mahalanobis_, np.eye(3), atol=1e-12)
    pull = LMNN(mu=0.0, strength=1.0).fit(X, y)
    assert pull.objective_ < problem(X - X.mean(axis=0), y).value(np.eye(3), 0.0)


def test_blocks_and_caps():
    X, y = make_blobs(n=60, d=4, seed=2)
    X = X / X.std(axis=0)
    free = LMNN(tol=1e-5, strength=1.0).fit(X, y)
    assert free.max_impostors_ is None
    with sklearn.config_context(working_memory=0.01):
        blocked, tiled = (
            LMNN(max_impostors=1000, tol=1e-5, strength=1.0).fit(X, y),
            LMNN(tol=1e-5, strength=1.0).fit(X, y),
        )
    assert tiled.max_impostors_ is None
    assert_allclose([blocked.objective_, tiled.objective_], free.objective_, rtol=1e-4)
    with pytest.warns(ConvergenceWarning):  # a list that changes every 20 iterations
        capped = LMNN(max_impostors=5, strength=1.0).fit(X, y)
    assert capped.max_impostors_ == 5 and capped.objective_ <= 1.5 * free.objective_


def test_given_triplets_replace_neighbours():
    X, y = small()
    targets = target_neighbors(X, y, 3)
    triplets = [(i, j, l) for i in range(24) for j in targets[i] if j >= 0 for l in np.flatnonzero(y != y[i])]
    a, p, n = np.array(triplets).T
    from_triplets = LMNN(tol=1e-7, max_iter=500, strength=1.0).fit(X, Triplets(a, p, n, n_samples=24))
    from_labels = LMNN(tol=1e-7, max_iter=500, strength=1.0).fit(X, y)
    assert_allclose(from_triplets.objective_, from_labels.objective_, rtol=1e-5)


def test_low_rank_and_parameter_errors():
    X, y = small()
    assert LMNN(2, strength=1.0).fit(X, y).components_.shape == (2, 3)
    for params, message in (
        ({"mu": 2}, "mu=2"),
        ({"margin": 0}, "margin=0"),
        ({"n_neighbors": 0}, "at least 1"),
        ({"solver": "gd"}, "expected 'lbfgs' or 'sdp'"),
        ({"init": "zero"}, "unknown"),
        ({"init": np.eye(2)}, "shape"),
    ):
        with pytest.raises(ValueError, match=message):
            LMNN(strength=1.0, **params).fit(X, y)


def test_progress_bar(capsys):
    X, y = small()
    LMNN(verbose=True, strength=1.0).fit(X, y)
    assert "LMNN" in capsys.readouterr().err


@pytest.mark.parametrize("tau", [1e-1, 1e-6])
def test_lists_and_tiles_agree(tau, monkeypatch):
    """Where impostors are many, all pairs are visited tile by tile: the same value and gradient as from a list."""
    X, y = make_classification(400, 8, n_informative=6, n_classes=3, random_state=0)
    codes = Labels(y).codes
    monkeypatch.setattr(impostors, "COLUMNS", 96)  # several tiles, some of which hold several classes
    L = np.random.default_rng(0).standard_normal((5, 8))
    listed, tiled = (Impostors(X, codes, target_neighbors(X, codes, 3), 1.0, None) for _ in range(2))
    tiled.visit_all = True
    value, gradient, sharp = listed(L, 0.4, tau)
    assert listed.listed_pairs is not None and tiled.listed_pairs is None
    found = tiled(L, 0.4, tau)
    assert_allclose(found[0], value, rtol=1e-12)
    assert_allclose(found[1], gradient, atol=1e-10 * np.abs(gradient).max())
    assert_allclose([found[2], sharp], listed.value(L, 0.4), rtol=1e-10)
    for P in (listed, tiled):  # the gradient in W gives that in L
        push, sums = P.push_gradient(L, tau)
        assert_allclose(2 * L @ (0.6 * P.target_scatter + 0.4 * push), gradient, atol=1e-10 * np.abs(gradient).max())
        assert_allclose(0.6 * np.vdot(L @ P.target_scatter, L) + 0.4 * sums.sharp(tau), sharp, rtol=1e-10)
    # it changes to all pairs and back by itself, and the value never depends on it
    monkeypatch.setattr(impostors, "MAX_LISTED_SHARE", 0.0)
    few = Impostors(X, codes, target_neighbors(X, codes, 3), 1.0, None)
    for scale in (0.1, 0.3, 1.0, 3.0, 10.0):
        assert_allclose(few(scale * L, 0.4, tau)[0], listed(scale * L, 0.4, tau)[0], rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-25, 1e20])
def test_float32_neither_overflows_nor_underflows(unit):
    X, y = make_blobs(n=60, d=3)
    X = unit * (X - X.mean(axis=0))
    codes = Labels(y).codes
    listed, tiled = (Impostors(X, codes, target_neighbors(X, codes, 3), unit**2, None) for _ in range(2))
    tiled.visit_all = True
    value = listed(np.eye(3), 0.5, 1e-6 * unit**2)[0]
    assert_allclose(value, tiled(np.eye(3), 0.5, 1e-6 * unit**2)[0], rtol=1e-10)
    assert listed.listed_pairs is not None and len(listed.listed_pairs.a) > 0


def test_bounds_in_float32_lose_no_pair():
    """In float32, far from the origin: every pair below its bound passes."""
    rng = np.random.default_rng(0)
    Z = 1000 + rng.standard_normal((300, 7))
    square = rng.uniform(0, 9, 300)
    left, right, bound = impostors.factors_and_bounds(Z, square, np.float32)
    D = np.sum((Z[:, None] - Z) ** 2, axis=2)
    assert np.all((left @ right.T < bound[:, None])[square[:, None] > D])
    left, right, bound = impostors.factors_and_bounds(Z - 1000, square, np.float32)
    passed = left @ right.T < bound[:, None]
    assert np.all(passed[square[:, None] > D]) and passed.sum() < 1.01 * np.sum(square[:, None] > D)


@pytest.mark.parametrize("mu, scale", [(0.5, 1.0), (0.1, 1e-4), (0.9, 1e3)])
def test_best_multiple_of_a_start(mu, scale):
    """No other multiple has a smaller loss, in whatever units; a sample of the anchors gives about the same."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    X = scale * (rng.standard_normal((300, 4)) + y[:, None])
    targets = target_neighbors(X, y, 3)
    full = Impostors(X, y, targets, 1.0, None)
    w = best_multiple(X, y, targets, mu, 1.0, rng)
    losses = [full.value(np.sqrt(v * w) * np.eye(4), mu) for v in (0.5, 0.9, 0.97, 1.0, 1.03, 1.1, 2.0)]
    assert losses[3] <= 1.002 * min(losses) and losses[0] > 1.01 * losses[3] < losses[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(impostors, "MAX_SAMPLED_TRIPLETS", 300 * 3 * 150)
        some = [best_multiple(X, y, targets, mu, 1.0, np.random.RandomState(seed)) for seed in range(5)]
    assert len(set(some)) > 1
    assert_allclose(some, w, rtol=0.3)


def test_a_triplet_of_weight_two_is_a_triplet_listed_twice():
    """One of weight 0 is not there; and a method of triplets takes them as they are, without a word."""
    X, y = make_blobs()
    t = NeighborTriplets(2).draw(X, Labels(y), None)
    weight = np.arange(len(t.a)) % 3
    rows = np.repeat(np.arange(len(t.a)), weight)
    listed = Triplets(t.a[rows], t.p[rows], t.n[rows], n_samples=len(X))
    weighed = Triplets(t.a, t.p, t.n, n_samples=len(X), weight=weight)
    L = np.random.default_rng(0).standard_normal((4, 4))
    A, B = (ListedTriplets(X, side, 1.0) for side in (listed, weighed))
    for one, other in zip(A(L, 0.4, 0.1), B(L, 0.4, 0.1), strict=True):
        assert_allclose(one, other, rtol=1e-10)
    (G, sums), (G_w, sums_w) = (P.push_gradient(L, 0.1) for P in (A, B))
    assert_allclose(G, G_w, rtol=1e-9, atol=1e-9 * np.abs(G).max())
    assert_allclose(sums, sums_w, rtol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (LMNN(tol=1e-4, strength=1.0).fit(X, side) for side in (listed, weighed))
    assert_allclose(first.objective_, second.objective_, rtol=2e-4)  # both are within tol of the minimum
    with pytest.raises(ValueError, match="solver='sdp' cannot weigh triplets"):
        LMNN(solver="sdp", strength=1.0).fit(X, weighed)
