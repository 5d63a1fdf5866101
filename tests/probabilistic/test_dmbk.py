import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.probabilistic import DMBK
from isometry.probabilistic.dmbk import WhiteDivergence
from isometry.supervision import Labels


def slow_kl(U, m0, S0, m1, S1, constant=True):
    """KL(N(Uᵀm0, UᵀS0U) ‖ N(Uᵀm1, UᵀS1U)), or as the survey prints it, without −p/2."""
    A, B, delta = U.T @ S0 @ U, U.T @ S1 @ U, U.T @ (m0 - m1)
    inverse = np.linalg.inv(B)
    logs = np.log(np.linalg.det(B) / np.linalg.det(A))
    return (np.trace(inverse @ A) + delta @ inverse @ delta - U.shape[1] * constant + logs) / 2


def slow_dmbk(V, X, y, reg, shrinkage, terms, constant=True):
    """The objective at V scaled to the constraint, pair by pair."""
    n, d = X.shape
    similar = [(i, j) for i in range(n) for j in range(i) if y[i] == y[j]]
    dissimilar = [(i, j) for i in range(n) for j in range(i) if y[i] != y[j]]
    U = V / np.sqrt(np.mean([np.sum((V.T @ (X[i] - X[j])) ** 2) for i, j in similar]))
    stats = []
    for c in np.unique(y):
        G = X[y == c]
        if len(G) > 1:
            S = np.cov(G.T, bias=True)
            stats.append((len(G), G.mean(axis=0), S + shrinkage * np.trace(S) / d * np.eye(d)))
    kl = [(a[0] * b[0], slow_kl(U, a[1], a[2], b[1], b[2], constant)) for a in stats for b in stats if a is not b]
    total = sum(w * k for w, k in kl)
    balance, plain = np.mean([np.log(w * k / total) for w, k in kl]), np.mean([np.log(k) for _, k in kl])
    far = np.mean([np.linalg.norm(U.T @ (X[i] - X[j])) for i, j in dissimilar])
    return terms[0] * balance + terms[1] * plain + reg * far


@pytest.fixture
def data(overlapping):
    return overlapping(sizes=(9, 7, 6, 1), d=4)


def problem(X, y, **params):
    return DMBK(**params, strength=1.0)._problem(X - X.mean(axis=0), Labels(y), np.random.RandomState(0))


@pytest.mark.parametrize(("divergence", "terms"), [("normalised", (1, 0)), ("plain", (0, 1)), ("both", (1, 1))])
@pytest.mark.parametrize(("reg", "constant"), [(0.0, True), (0.7, True), (0.7, False)])
def test_P15a_value_and_gradient(data, numeric_gradient, divergence, terms, reg, constant):
    X, y = data
    V = np.random.default_rng(0).standard_normal((4, 2))
    f = problem(X, y, divergence=divergence, reg=reg, shrinkage=0.1, kl_constant=constant)
    value, gradient = f(V)
    assert_allclose(value, -slow_dmbk(V, X, y, reg, 0.1, terms, constant), rtol=1e-9)
    assert_allclose(gradient, numeric_gradient(lambda U: f(U)[0], V), rtol=1e-6, atol=1e-8)


def test_P15a_over_subspaces_of_whitened_classes(data, numeric_gradient):
    """What whiten=True descends: the same objective at a basis of the span in which the classes are white."""
    X, y = data
    V = np.random.default_rng(0).standard_normal((4, 2))
    f = WhiteDivergence(problem(X, y, reg=0.7, shrinkage=0.1), 0.2)
    C = sum(np.sum(y == c) * np.cov(X[y == c].T, bias=True) for c in range(3)) / np.sum(y < 3)
    w, E = np.linalg.eigh(C + 0.2 * np.trace(C) / 4 * np.eye(4))
    basis = (E / np.sqrt(w)) @ E.T @ np.linalg.qr(V)[0]
    value, gradient = f(V)
    assert_allclose(value, -slow_dmbk(basis, X, y, 0.7, 0.1, (1, 0)), rtol=1e-9)
    assert_allclose(f(V @ np.random.default_rng(1).standard_normal((2, 2)))[0], value, rtol=1e-9)  # the span alone
    assert_allclose(gradient, numeric_gradient(lambda U: f(U)[0], V), rtol=1e-6, atol=1e-8)
    assert_allclose(np.abs(f.normalise(V)), np.abs(problem(X, y).normalise(basis)), rtol=1e-9)


def test_whitened_maps_are_searched_not_made_afterwards(data):
    """The literal optimum, whitened in its span, is no better than what whiten=True finds."""
    X, y = data
    f = WhiteDivergence(problem(X, y), 1e-3)
    white, literal = (DMBK(2, whiten=w, random_state=0, strength=1.0).fit(X, y) for w in (True, False))
    best = f(np.linalg.solve(f.root, white.components_.T))[0]
    assert_allclose(white.history_[-1], best, rtol=1e-9)
    assert best <= f(np.linalg.solve(f.root, literal.components_.T))[0]
    assert white.converged_


def test_P15b_divergences_depend_on_the_span_only_and_balance_has_a_ceiling(data):
    X, y = data
    rng, f = np.random.default_rng(1), problem(X, y, reg=0.0)
    for _ in range(10):
        U = rng.standard_normal((4, 2))
        value = f.divergence(U)[0]
        assert_allclose(f.divergence(U @ rng.standard_normal((2, 2)))[0], value, rtol=1e-9)
        assert value <= -np.log(3 * 2)  # three classes have a divergence


@pytest.mark.parametrize("whiten", [True, False])
def test_P15c_mean_similar_distance_is_one_and_classes_are_white(data, whiten):
    X, y = data
    L = DMBK(2, whiten=whiten, shrinkage=1e-9, random_state=0, strength=1.0).fit(X, y).components_
    Z = X @ L.T
    similar = [np.sum((Z[i] - Z[j]) ** 2) for i in range(len(X)) for j in range(i) if y[i] == y[j]]
    assert_allclose(np.mean(similar), 1.0, rtol=1e-9)
    C = sum((y == c).sum() * np.cov(Z[y == c].T, bias=True) for c in range(3))
    skew = np.abs(C / (np.trace(C) / 2) - np.eye(2)).max()
    assert skew < 1e-5 if whiten else skew > 1e-2


def test_P15d_full_dimension_has_one_divergence_and_a_class_none_to_itself(data):
    X, y = data
    rng, f = np.random.default_rng(2), problem(X, y)
    values = [f.divergence(rng.standard_normal((4, 4)))[0] for _ in range(5)]
    assert_allclose(values, values[0], rtol=1e-9)
    KL = f.kl(rng.standard_normal((4, 2)))[0]
    assert_allclose(np.diag(KL), 0, atol=1e-12)
    assert np.all(KL[~np.eye(3, dtype=bool)] > 0.01)
    assert np.abs(KL - KL.T).max() > 0.01


def test_the_best_start_wins(data):
    X, y = data
    one, many = (
        DMBK(2, whiten=False, n_init=k, random_state=0, tol=1e-8, strength=1.0).fit(X, y).components_.T for k in (1, 6)
    )
    f = problem(X, y)
    assert f(many)[0] <= f(one)[0] + 1e-9
    assert f(one)[0] < f(np.linalg.qr(np.random.default_rng(3).standard_normal((4, 2)))[0])[0]


def test_default_size_stays_below_the_number_of_features(overlapping):
    for d, expected in ((2, 1), (4, 3), (9, 4)):
        X, y = overlapping(sizes=(8, 7, 6, 6), d=d)
        assert DMBK(n_init=1, max_iter=2000, random_state=0, strength=1.0).fit(X, y).components_.shape == (expected, d)


def test_wrong_parameters_are_named(data):
    with pytest.raises(ValueError, match="divergence='kl' is unknown"):
        DMBK(divergence="kl", strength=1.0).fit(*data)
    with pytest.raises(ValueError, match="n_init=0 must be at least 1"):
        DMBK(n_init=0, strength=1.0).fit(*data)


def test_trials_go_from_one_start_and_what_is_chosen_from_all(overlapping, monkeypatch):
    X, y = overlapping(sizes=(30, 30, 30), d=4)
    starts = []
    plain = DMBK._starts
    monkeypatch.setattr(DMBK, "_starts", lambda self, *a: starts.append(self.n_init) or plain(self, *a))
    model = DMBK(2, random_state=0, n_init=4, max_iter=20).fit(X, y)
    assert starts == [1, 1, 1, 4 if model.strength_ else 1]
    starts.clear()
    noise = DMBK(2, random_state=0, n_init=4, max_iter=20).fit(X, np.random.default_rng(0).permutation(y))
    assert noise.strength_ == 0 and starts == [1, 1, 1, 1]
    starts.clear()
    DMBK(2, random_state=0, n_init=4, max_iter=20, strength=1.0).fit(X, y)
    assert starts == [4]
