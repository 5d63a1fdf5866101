"""Nearest samples of the same class, beside a loop."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isometry.core.graph import FEW_MEMBERS, target_neighbors


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
