"""duplicates and communities: against loops over all pairs, at thresholds that are met exactly, in any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from isometry import GMML, communities, duplicates


def near_matrix(Z, threshold, cosine):
    n = len(Z)
    near = np.zeros((n, n), dtype=bool)
    for i in range(n):
        for j in range(n):
            if cosine:
                near[i, j] = Z[i] @ Z[j] / np.linalg.norm(Z[i]) / np.linalg.norm(Z[j]) >= threshold
            else:
                near[i, j] = np.sqrt(((Z[i] - Z[j]) ** 2).sum()) <= threshold
    return near


def slow_groups(near):
    n, seen, groups = len(near), set(), []
    for start in range(n):
        if start in seen:
            continue
        group, todo = {start}, [start]
        while todo:
            i = todo.pop()
            new = {j for j in range(n) if near[i, j]} - group
            group |= new
            todo += new
        seen |= group
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups, key=lambda g: (-len(g), g[0]))


def slow_communities(near, min_size):
    n = len(near)
    candidates = [[j for j in range(n) if near[i, j]] for i in range(n)]
    order = sorted((i for i in range(n) if len(candidates[i]) >= min_size), key=lambda i: -len(candidates[i]))
    taken, found = set(), []
    for i in order:
        members = [j for j in candidates[i] if j not in taken]
        if len(members) >= min_size:
            taken |= set(members)
            found.append(set(members))
    return sorted(found, key=len, reverse=True)


@pytest.mark.parametrize("metric, threshold", [("euclidean", 0.55), ("cosine", 0.97)])
@pytest.mark.parametrize("memory", [1, 1024])
def test_duplicates_are_those_of_loops(metric, threshold, memory):
    Z = np.random.default_rng(0).normal(size=(400, 3))
    near = near_matrix(Z, threshold, metric == "cosine")
    with config_context(working_memory=memory):
        found = duplicates(Z, threshold, metric=metric)
    assert [g.tolist() for g in found.groups] == slow_groups(near)
    pairs = {(i, j) for i, j in zip(*np.nonzero(near)) if i < j}
    assert {tuple(p) for p in found.pairs.tolist()} == pairs and found.n_pairs == len(pairs)
    values = -found.scores if metric == "cosine" else found.scores
    assert (np.diff(values) >= 0).all()
    few = duplicates(Z, threshold, metric=metric, max_pairs=5)
    assert_array_equal(few.pairs, found.pairs[:5])
    assert len(few.groups) == len(found.groups) and few.n_pairs == found.n_pairs


def test_copies_are_found_at_the_strictest_threshold():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(50, 20)).astype(np.float32)
    Z[30:] = Z[:20]
    assert [g.tolist() for g in duplicates(Z, 0.0).groups] == [[i, 30 + i] for i in range(20)]
    Z[30:] *= rng.uniform(0.01, 90, size=(20, 1)).astype(np.float32)  # the same directions
    found = duplicates(Z, 1.0, metric="cosine")
    assert [g.tolist() for g in found.groups] == [[i, 30 + i] for i in range(20)]
    assert_allclose(found.scores, 1, atol=1e-12)
    assert duplicates(Z, 0.0).groups == []


def test_a_metric_and_ids():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(80, 4)), np.arange(80) % 2
    metric = GMML().fit(X, y)
    X[1] = X[0]
    found = duplicates(X, 1e-9, metric=metric, ids=[f"r{i}" for i in range(80)])
    assert found.pairs.tolist() == [["r0", "r1"]]
    with pytest.raises(ValueError, match="come more than once"):
        duplicates(X, 1.0, ids=np.zeros(80, dtype=int))
    with pytest.raises(ValueError, match="must not be negative"):
        duplicates(X, -1.0)
    with pytest.raises(ValueError, match="between −1 and 1"):
        duplicates(X, 1.5, metric="cosine")


def test_thousands_of_copies_take_little_memory():
    """All pairs are near: eight million, none of which is kept but the nearest."""
    import tracemalloc

    Z = np.ones((4000, 4), dtype=np.float32)
    with config_context(working_memory=8):
        tracemalloc.start()
        found = duplicates(Z, 0.5, max_pairs=1000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert found.n_pairs == 4000 * 3999 // 2 and len(found.groups[0]) == 4000
    assert peak < 32 * 2**20  # a matrix of all distances would take 64 MB


@pytest.mark.parametrize("metric, threshold", [("euclidean", 0.7), ("cosine", 0.9)])
@pytest.mark.parametrize("memory", [1, 1024])
@pytest.mark.parametrize("min_size", [1, 3, 12])
def test_communities_are_those_of_loops(metric, threshold, memory, min_size):
    Z = np.random.default_rng(3).normal(size=(300, 3))
    near = near_matrix(Z, threshold, metric == "cosine")
    with config_context(working_memory=memory):
        found = communities(Z, threshold, min_size=min_size, metric=metric)
    assert [set(c.tolist()) for c in found] == slow_communities(near, min_size)


def test_the_centre_comes_first():
    Z = np.array([[0.0], [0.3], [0.1], [0.2], [9.0]])
    found = communities(Z, 0.21, min_size=3, ids=["a", "b", "c", "d", "e"])
    assert [c.tolist() for c in found] == [["c", "a", "d", "b"]]
