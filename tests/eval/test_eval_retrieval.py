"""Retrieval values against the definitions, written with loops."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from isometry.eval import retrieval
from isometry.supervision import Labels


def slow_retrieval(Z, y, G, g, ks, within):
    rows = {}
    for q, z in enumerate(Z):
        ranked = sorted((((z - x) ** 2).sum(), j) for j, x in enumerate(G) if not (within and j == q))
        rel = [g[j] == y[q] for _, j in ranked]
        R = sum(rel)
        if R == 0:
            continue
        precision = [sum(rel[:i]) / i for i in range(1, len(rel) + 1)]
        row = [any(rel[:k]) for k in ks] + [sum(rel[:k]) / k for k in ks]
        rows[q] = row + [precision[R - 1], sum(precision[i] * rel[i] for i in range(R)) / R]
    return np.array(list(rows)), np.array(list(rows.values()), dtype=float)


def assert_matches(result, queries, values, ks):
    assert_array_equal(result.queries, queries)
    columns = [result.recall_at[k] for k in ks] + [result.precision_at[k] for k in ks]
    assert_allclose(np.column_stack([*columns, result.r_precision, result.map_at_r]), values, rtol=1e-12)


def unequal_classes(seed, n, dims=3, values=4):
    rng = np.random.default_rng(seed)
    y = np.minimum(rng.geometric(0.35, size=n), 9)  # classes from half of the rows down to single ones
    return rng.integers(0, values, size=(n, dims)) + 0.5 * (y % 3)[:, None], y


@pytest.mark.parametrize("seed, n, ks", [(0, 70, (1, 5, 10)), (1, 45, (3,)), (2, 12, (1, 11, 40))])
def test_within_one_set(seed, n, ks):
    Z, y = unequal_classes(seed, n)
    result = retrieval(Z, y, ks=ks)
    queries, values = slow_retrieval(Z, y, Z, y, ks, within=True)
    assert_matches(result, queries, values, ks)
    assert result.n_without_match == n - len(queries)


def test_the_cases_above_have_queries_without_a_match():
    assert sum(retrieval(*unequal_classes(seed, n)).n_without_match for seed, n in [(0, 70), (1, 45), (2, 12)]) > 0


def test_against_a_gallery():
    (Z, y), (G, g) = unequal_classes(3, 30), unequal_classes(4, 50)
    y[:3] = 77  # not in the gallery
    result = retrieval(Z, y, gallery=G, gallery_y=g, ks=(1, 4))
    queries, values = slow_retrieval(Z, y, G, g, (1, 4), within=False)
    assert_matches(result, queries, values, (1, 4))
    assert result.n_without_match == 30 - len(queries) >= 3


def test_blocks_do_not_matter():
    Z, y = unequal_classes(5, 300)
    whole = retrieval(Z, y)
    with config_context(working_memory=0.25):
        parts = retrieval(Z, y)
    assert_array_equal(parts.map_at_r, whole.map_at_r)
    assert parts.mean() == whole.mean()


def test_map_at_r_by_hand():
    Z = np.array([[0.0], [1.0], [2.0], [3.0], [10.0]])
    result = retrieval(Z[:1], ["a"], gallery=Z[1:], gallery_y=["a", "b", "a", "a"], ks=(2,))
    assert result.map_at_r[0] == pytest.approx((1 / 1 + 2 / 3) / 3)  # relevant at ranks 1 and 3 of the first R = 3
    assert result.r_precision[0] == pytest.approx(2 / 3)
    assert result.precision_at[2][0] == pytest.approx(1 / 2)


def test_precision_beyond_the_gallery_counts_misses():
    result = retrieval(np.array([[0.0]]), [1], gallery=np.array([[1.0], [2.0]]), gallery_y=[1, 1], ks=(4,))
    assert result.precision_at[4][0] == 0.5
    assert result.recall_at[4][0]


def test_means_by_name():
    Z, y = unequal_classes(6, 40)
    result = retrieval(Z, y, ks=(1, 2))
    mean = result.mean()
    assert list(mean) == ["recall@1", "recall@2", "precision@1", "precision@2", "r_precision", "map@r"]
    assert mean["recall@2"] == np.mean(result.recall_at[2]) != mean["recall@1"]
    assert mean["map@r"] == np.mean(result.map_at_r) != mean["r_precision"]


def test_separated_classes_are_perfect():
    y = np.repeat([0, 1, 2], [2, 9, 30])
    Z = 100.0 * y[:, None] + np.random.default_rng(7).random((41, 2))
    mean = retrieval(Z, y, ks=(1,)).mean()
    assert mean == {"recall@1": 1.0, "precision@1": 1.0, "r_precision": 1.0, "map@r": pytest.approx(1.0)}


def test_unlabelled_rows_take_no_part_and_positions_are_kept():
    Z, y = unequal_classes(8, 50)
    hidden = y.copy()
    hidden[::5] = -1
    known = np.flatnonzero(hidden != -1)
    result, cut = retrieval(Z, Labels(hidden, unlabelled=-1)), retrieval(Z[known], y[known])
    assert_array_equal(result.queries, known[cut.queries])
    assert_array_equal(result.map_at_r, cut.map_at_r)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"y": [0, 1, 2]}, "no query has an item of its own label"),
        ({"y": [0, 0, 1], "gallery": np.eye(3)}, "go together"),
        ({"y": [0, 0, 1], "ks": (0, 1)}, "ranks of 1 or more"),
        ({"y": [0, 0]}, "Z has 3 rows but there are 2 labels"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        retrieval(np.eye(3), **arguments)
