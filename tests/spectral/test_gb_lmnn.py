"""GBLMNN: its objective in loops, its trees beside scikit-learn's, and what it can learn that a linear map cannot."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeRegressor

import isometry
from isometry import GBLMNN, LMNN
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.spectral.gb_lmnn import Forest, MappedHinges, accuracy, held_out
from tests.conftest import make_blobs
from tests.differences import central_differences


def exclusive_or(n=400, d=8, seed=0):
    """Classes by the signs of the first two features; the others are noise."""
    X = np.random.default_rng(seed).uniform(-1, 1, size=(n, d))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def slow_value(Z, targets, strangers, mu):
    total = 0.0
    for i, (T, S) in enumerate(zip(targets, strangers, strict=True)):
        for j in T[T >= 0]:
            t = np.sum((Z[i] - Z[j]) ** 2)
            total += (1 - mu) * t
            total += mu * sum(max(0.0, 1 + t - np.sum((Z[i] - Z[l]) ** 2)) for l in S[S >= 0])
    return total


def test_B22_value_and_gradient_at_the_mapped_samples(rng):
    X, y = make_blobs(n=20, d=3)
    y = np.where(np.arange(20) == 0, 9, y)
    y = np.unique(y, return_inverse=True)[1]
    targets, strangers = target_neighbors(X, y, 2), nearest_misses(X, y, 5)
    assert (targets < 0).any()
    f, Z = MappedHinges(targets, strangers, 0.3), rng.standard_normal((20, 2))
    value, gradient = f(Z)
    assert_allclose(value, slow_value(Z, targets, strangers, 0.3), rtol=1e-12)
    numeric = central_differences(lambda Z: slow_value(Z, targets, strangers, 0.3), Z)
    assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def test_B22a_the_objective_falls_every_round():
    X, y = exclusive_or(150)
    model = GBLMNN(n_estimators=9, validation=0.0).fit(X, y)  # one list of strangers
    assert len(model.history_) == 10 and np.all(np.diff(model.history_) < 0)
    assert model.n_trees_ == 9 == model.n_iter_


def test_B22b_no_tree_is_LMNN():
    X, y = make_blobs()
    model, plain = GBLMNN(n_estimators=0).fit(X, y), LMNN(strength=1.0).fit(X, y)
    W, V = (m.components_.T @ m.components_ for m in (model, plain))
    assert_allclose(W, V, atol=1e-3 * np.abs(V).max())  # LMNN's tol: rows are in another order
    assert_allclose(np.diff(model.transform(X), axis=0), np.diff(X, axis=0) @ model.components_.T, atol=1e-9)
    assert model.n_trees_ == 0


def test_B22c_trees_are_kept_as_arrays(tmp_path, rng):
    X, y = exclusive_or(120, 4)
    model = GBLMNN(n_estimators=5, validation=0.0, random_state=0).fit(X, y)
    isometry.save(model, tmp_path / "bent")
    assert_allclose(isometry.load(tmp_path / "bent").transform(X), model.transform(X), rtol=0, atol=0)
    trees = [(DecisionTreeRegressor(max_depth=3).fit(X, rng.standard_normal((120, 2))), s) for s in (0.5, 2.0)]
    roots, nodes = Forest.of(trees, 2)
    new = rng.uniform(-2, 2, size=(50, 4)).astype(np.float32)
    expected = sum(s * tree.predict(new) for tree, s in trees)
    assert_allclose(Forest(roots, *nodes).predict(new), expected, rtol=1e-12)


def test_B22d_learns_an_exclusive_or():
    X, y = exclusive_or(600)
    train, test = np.arange(600) < 400, np.arange(600) >= 400
    scores = {}
    for learner in (LMNN(strength=1.0), GBLMNN(random_state=0)):
        Z = learner.fit(X[train], y[train]).transform(X)
        scores[type(learner).__name__] = KNeighborsClassifier(3).fit(Z[train], y[train]).score(Z[test], y[test])
    assert scores["GBLMNN"] > 0.95 > scores["LMNN"]


def test_it_stops_by_held_out_accuracy():
    X, y = make_blobs(n=90)
    model = GBLMNN(n_estimators=60, patience=3, random_state=0).fit(X, y)
    assert model.n_trees_ <= len(model.history_) - 1 < 60 and "held-out" in model.stop_reason_


def test_what_is_held_out(rng):
    codes = np.repeat(np.arange(4), [1, 2, 3, 50])
    held = held_out(codes, 0.2, np.random.RandomState(0))
    assert np.bincount(codes[held], minlength=4).tolist() == [0, 0, 1, 10]
    assert not held_out(codes, 0.0, None).any()


def test_accuracy_is_a_vote(rng):
    X, y = make_blobs(n=60)
    expected = KNeighborsClassifier(3).fit(X[:40], y[:40]).score(X[40:], y[40:])
    assert_allclose(accuracy(X[:40], y[:40], X[40:], y[40:], 3), expected)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_an_offset_of_the_features_does_not_matter(shift):
    X, y = exclusive_or(150, 4)
    A, B = GBLMNN(n_estimators=5, random_state=0).fit(X, y), GBLMNN(n_estimators=5, random_state=0).fit(X + shift, y)
    assert_allclose(A.transform(X), B.transform(X + shift), atol=1e-5)
