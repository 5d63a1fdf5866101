"""Matcher: the best assignment by trying all, thresholds that keep their promise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isometry import GMML, Matcher


def best_gain(D, threshold):
    """The largest Σ (threshold − d) over all ways to pair rows with columns, by trying them."""
    m, n = D.shape
    gain = np.where(threshold >= D, threshold - D, 0)
    if m > n:
        gain, m, n = gain.T, n, m
    return max(sum(gain[i, j] for i, j in enumerate(p)) for p in itertools.permutations(range(n), m))


@pytest.mark.parametrize("seed", range(20))
def test_one_to_one_is_the_best_of_all_assignments(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.normal(size=(rng.integers(1, 7), 2)), rng.normal(size=(rng.integers(1, 7), 2))
    D = np.linalg.norm(A[:, None] - B[None], axis=2)
    threshold = float(rng.uniform(0.3, 2))
    found = Matcher(threshold).match(A, B)
    assert len(set(found.left)) == len(found.left) and len(set(found.right)) == len(found.right)
    assert (found.scores <= threshold).all()
    assert (threshold - found.scores).sum() == pytest.approx(best_gain(D, threshold), abs=1e-5)
    assert found.scores == pytest.approx(D[found.left, found.right], abs=1e-5)


def test_the_other_kinds():
    A, B = np.array([[0.0], [1.0], [50.0]]), np.array([[0.1], [0.2], [0.9], [90.0]])
    pairs = {
        kind: list(zip(*(part.tolist() for part in Matcher(0.85, kind=kind).match(A, B)[:2])))
        for kind in ("one-to-one", "one-to-many", "many-to-one", "many-to-many")
    }
    assert pairs == {
        "one-to-one": [(0, 0), (1, 2)],
        "one-to-many": [(0, 0), (0, 1), (1, 2)],
        "many-to-one": [(0, 0), (1, 2)],
        "many-to-many": [(0, 0), (0, 1), (1, 1), (1, 2)],
    }


def test_nothing_is_near():
    for kind in ("one-to-one", "one-to-many", "many-to-one", "many-to-many"):
        assert len(Matcher(0.1, kind=kind).match([[0.0, 0]], [[5.0, 5], [6, 6]]).left) == 0


def test_ids_metric_and_cosine():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.arange(60) % 2
    metric = GMML().fit(X, y)
    shuffled = rng.permutation(60)
    found = Matcher(1e-3, metric=metric).match(X, X[shuffled], other_ids=[f"r{i}" for i in shuffled])
    assert found.right.tolist() == [f"r{i}" for i in range(60)]
    found = Matcher(0.9999, metric="cosine").match(X, 7 * X[shuffled])
    assert_array_equal(shuffled[found.right], found.left)
    with pytest.raises(ValueError, match="2 of the other_ids"):
        Matcher(1.0).match(X[:4], X[:4], other_ids=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="has no threshold"):
        Matcher().match(X, X)


def pairs_of(rng, m):
    same = rng.random(m) < 0.3
    A = rng.normal(size=(m, 3))
    return A, A + np.where(same, 0.3, 1.0)[:, None] * rng.normal(size=(m, 3)), same


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("target", [{"fpr": 0.05}, {"precision": 0.8}])
def test_the_target_is_met_and_as_much_as_it_allows_is_accepted(metric, target):
    A, B, same = pairs_of(np.random.default_rng(0), 2000)
    matcher = Matcher(metric=metric).fit_threshold(A, B, same, **target)
    accepted = matcher.is_match(A, B)

    def reached(accepted):
        return accepted[~same].mean() if "fpr" in target else same[accepted].mean()

    assert reached(accepted) <= 0.05 if "fpr" in target else reached(accepted) >= 0.8
    assert matcher.rate_.mean == pytest.approx(reached(accepted))
    if "fpr" in target:  # one more pair that differs would break it
        assert (accepted[~same].sum() + 1) / (~same).sum() > 0.05


def test_the_interval_covers_the_rate_of_fresh_pairs():
    rng = np.random.default_rng(1)
    A, B, same = pairs_of(rng, 400_000)
    d = np.linalg.norm(A - B, axis=1)
    covered = 0
    for _ in range(200):
        part = rng.integers(len(A), size=500)
        matcher = Matcher().fit_threshold(A[part], B[part], same[part], fpr=0.1)
        covered += matcher.rate_.contains((d[~same] <= matcher.threshold_).mean())
    assert covered >= 180


def test_targets_that_cannot_be():
    A, B, same = pairs_of(np.random.default_rng(0), 50)
    with pytest.raises(ValueError, match="give one target"):
        Matcher().fit_threshold(A, B, same)
    with pytest.raises(ValueError, match="no threshold reaches precision=1"):
        Matcher().fit_threshold(A, A, np.arange(50) % 2 == 0, precision=1.0)
    with pytest.raises(ValueError, match="would accept no pair"):
        Matcher().fit_threshold(A, A, np.arange(50) % 2 == 0, fpr=0.0)
    with pytest.raises(ValueError, match="X has 50 rows and Y has 49"):
        Matcher(1.0).is_match(A, B[:49])
