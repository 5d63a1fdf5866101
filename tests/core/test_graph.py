"""Nearest samples of the same class, beside a loop."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isometry.core import graph
from isometry.core.graph import FEW_MEMBERS, MANY_FEATURES, nearest_misses, target_neighbors


def by_loops(X, codes, k):
    found = np.full((len(X), k), -1)
    for i in range(len(X)):
        others = np.flatnonzero((codes == codes[i]) & (np.arange(len(X)) != i))
        near = others[np.argsort(((X[others] - X[i]) ** 2).sum(axis=1), kind="stable")][:k]
        found[i, : len(near)] = near
    return found


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 5))


@pytest.mark.parametrize("n", [6, 40, FEW_MEMBERS + 30])  # the last one is found by a search
@pytest.mark.parametrize("change", ["none", "far from the origin", "an outlier", "float32"])
def test_targets_are_the_nearest_of_the_class(n, change):
    codes = np.concatenate([np.zeros(n, dtype=int), np.ones(4, dtype=int), [2]])
    X = rows(len(codes))
    if change == "far from the origin":
        X += 1e6
    elif change == "an outlier":  # beside it a matrix product cannot tell the distances of the others
        X[1] = 1e12
    elif change == "float32":
        X = X.astype(np.float32)
    k = 5 if n > 6 else 3
    assert_array_equal(target_neighbors(X, codes, k), by_loops(X.astype(np.float64), codes, k))


def test_copies_and_samples_without_a_label():
    """Of a sample's copies each is one of its nearest, and it is none itself; −1 belongs to no class."""
    X, codes = np.repeat(rows(12), 3, axis=0), np.tile([0, 0, 0, 1, 1, 1], 6)
    codes[-3:] = -1
    found = target_neighbors(X, codes, 2)
    known = np.flatnonzero(codes >= 0)
    assert_array_equal(np.sort(found[known] // 3, axis=1), np.repeat(known[:, None] // 3, 2, axis=1))
    assert (found[known] != known[:, None]).all() and (found[-3:] == -1).all()


@pytest.mark.parametrize("d", [5, MANY_FEATURES + 2])
@pytest.mark.parametrize("change", ["none", "far from the origin", "an outlier", "copies", "float32"])
def test_misses_are_the_nearest_of_other_classes(d, change):
    rng = np.random.default_rng(0)
    n, k = 90, 4
    codes, X = rng.integers(-1, 3, n), rng.standard_normal((n, d))
    if change == "far from the origin":
        X += 1e6
    elif change == "an outlier":  # beside it single precision cannot tell the distances of the others
        X[1] = 1e9
    elif change == "copies":  # of other rows by rows of another class, which are their nearest, once or many times
        codes[:12], X[1:10] = [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0], X[0]
    elif change == "float32":
        X = X.astype(np.float32)
    found = nearest_misses(X, codes, k)
    assert (found[codes < 0] == -1).all()
    X = X.astype(np.float64)
    for i in np.flatnonzero(codes >= 0):
        others = np.flatnonzero((codes != codes[i]) & (codes >= 0))
        nearest = np.sort(((X[others] - X[i]) ** 2).sum(axis=1))[:k]
        assert len(set(found[i])) == k and np.isin(found[i], others).all()
        np.testing.assert_allclose(((X[found[i]] - X[i]) ** 2).sum(axis=1), nearest, rtol=1e-6)


def test_single_precision_decides_where_it_can_and_nowhere_else():
    rng = np.random.default_rng(0)
    X, codes = rng.standard_normal((60, MANY_FEATURES)), np.arange(60) % 3
    for rows, certain in ((X, True), (np.vstack([X[:-1], X[-1:] * 1e9]), False), (X * 0, False)):
        misses, todo = np.full((60, 3), -1), np.ones(60, dtype=bool)
        graph._add_certain_misses(misses, todo, rows, codes)
        assert np.all(todo != certain)
        assert np.all((misses >= 0) == certain)


def test_few_strangers_are_all_misses():
    X, codes = np.random.default_rng(0).standard_normal((40, MANY_FEATURES)), np.repeat([0, 1], [37, 3])
    found = nearest_misses(X, codes, 5)
    assert_array_equal(np.sort(found[:37], axis=1), np.tile([-1, -1, 37, 38, 39], (37, 1)))
