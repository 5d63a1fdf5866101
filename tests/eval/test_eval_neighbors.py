"""Nearest neighbours against a sort of all measured distances."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context

from isometry.core.distance import pair_sqdist
from isometry.eval import nearest, neighbors
from isometry.eval.neighbors import NeighborSearch


def slow_nearest(Z, k, gallery=None):
    G = Z if gallery is None else gallery
    indices, sqdist = [], []
    for i, z in enumerate(Z):
        items = [(sum((float(a) - float(b)) ** 2 for a, b in zip(z, g)), j) for j, g in enumerate(G)]
        ranked = sorted(item for item in items if gallery is not None or item[1] != i)[:k]
        indices.append([j for _, j in ranked])
        sqdist.append([d for d, _ in ranked])
    return np.array(indices), np.array(sqdist)


def assert_same(found, expected, rtol=0.0):
    assert_array_equal(found[0], expected[0])
    assert_allclose(found[1], expected[1], rtol=rtol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 7, 52])
def test_ties_and_duplicates_go_to_the_smaller_index(dtype, k):
    Z = np.random.default_rng(0).integers(0, 3, size=(53, 3)).astype(dtype)  # 27 places for 53 points
    assert_same(nearest(Z, k), slow_nearest(Z, k))
    assert_same(nearest(Z[:20], k, gallery=Z), slow_nearest(Z[:20], k, Z))


@pytest.mark.parametrize("n, k", [(131, 1), (131, 3), (257, 2), (97, 96), (5, 4), (2, 1)])
def test_general_position(n, k):
    Z = np.random.default_rng(n).standard_normal((n, 4))
    assert_same(nearest(Z, k), slow_nearest(Z, k), rtol=1e-12)


def test_gallery_of_one_and_query_found_in_the_gallery():
    Z = np.array([[0.0, 0.0], [3.0, 4.0]])
    assert_same(nearest(Z, 1, gallery=Z[1:]), ([[0], [0]], [[25.0], [0.0]]))


@pytest.mark.parametrize("k", [1, 5])
def test_rounding_in_the_matrix_product_does_not_show(k):
    rng = np.random.default_rng(1)
    clusters = rng.choice([-5000, 5000], size=(140, 1)) + rng.integers(0, 6, size=(140, 4))
    Z = clusters.astype(np.float32)  # norms of 10⁸ are beyond float32's exact integers, differences are exact
    assert_same(nearest(Z, k), slow_nearest(Z, k))


def test_distances_that_measure_equal_are_tied_though_the_product_tells_them_apart():
    a = np.random.default_rng(6).integers(-6, 7, size=90).astype(np.float32)
    query = np.array([[0, 5000]], dtype=np.float32)
    measured = a * a + query[0, 1] ** 2  # 25 000 000 and more: float32 keeps even numbers only
    expected = np.lexsort((np.arange(90), measured))[:3]
    assert set(np.abs(a[expected])) == {0, 1}
    found = nearest(query, 3, gallery=np.column_stack([a, np.zeros_like(a)]))
    assert_same(found, (expected[None], measured[None, expected]))


def test_data_far_from_the_origin_and_outliers_lose_no_digits():
    rng = np.random.default_rng(2)
    Z = rng.standard_normal((80, 3)) + 1e6
    Z[7] += 1e9
    assert_same(nearest(Z, 4), slow_nearest(Z, 4), rtol=1e-12)


def test_float32_stays_float32_with_relative_precision():
    Z = np.random.default_rng(3).standard_normal((60, 16)).astype(np.float32)
    indices, sqdist = nearest(Z, 5)
    assert sqdist.dtype == np.float32
    assert nearest(Z.astype(np.float64), 5)[1].dtype == np.float64
    assert_allclose(sqdist, slow_nearest(Z, 5)[1], rtol=1e-5)
    assert_allclose(sqdist, ((Z[:, None] - Z[indices]) ** 2).sum(-1), rtol=1e-5)


def test_equal_points_are_neighbours_by_index():
    indices, sqdist = nearest(np.ones((6, 2)), 3)
    assert_array_equal(indices, [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]])
    assert_array_equal(sqdist, 0)


@pytest.mark.parametrize("within", [True, False])
def test_blocks_do_not_matter(within):
    Z = np.random.default_rng(4).integers(0, 4, size=(700, 3)).astype(float)
    gallery = None if within else Z[:300]
    whole = nearest(Z, 3, gallery)
    with config_context(working_memory=0.5):
        assert len(list(NeighborSearch.over(Z, gallery).blocks(3))) > 5
        assert_same(nearest(Z, 3, gallery), whole)


def test_listed_queries():
    Z = np.random.default_rng(5).standard_normal((40, 3))
    rows, indices, sqdist = next(NeighborSearch.over(Z).blocks(4, queries=np.array([31, 2, 17])))
    assert_array_equal(rows, [31, 2, 17])
    expected = slow_nearest(Z, 4)
    assert_same((indices, sqdist), (expected[0][rows], expected[1][rows]), rtol=1e-12)


@pytest.mark.parametrize("k", [0, 5, 99])
def test_k_out_of_range(k):
    with pytest.raises(ValueError, match=rf"k={k} .* 4 gallery items .* besides itself: choose k between 1 and 4"):
        nearest(np.eye(5), k)


@pytest.mark.parametrize(
    "Z, gallery, message",
    [
        (np.eye(3), np.eye(2), "Z has 3 columns and the gallery 2"),
        (np.full((3, 2), np.nan), None, "Z contains NaN"),
        (np.eye(3), np.full((3, 3), np.inf), "gallery contains infinity"),
        (np.full((3, 2), 1e30, dtype=np.float32), None, "squares overflow float32"),
        (np.full((3, 2), -1e200), None, "squares overflow float64"),
    ],
)
def test_bad_embeddings(Z, gallery, message):
    with pytest.raises(ValueError, match=message):
        nearest(Z, 1, gallery)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 7, 40, 52])
def test_copies_are_found_by_their_points(dtype, k, monkeypatch):
    """The search among different points, forced on small data: the same neighbours in the same order."""
    monkeypatch.setattr(neighbors, "CROWDED", 0)
    used = []
    of = neighbors._Copies.of
    monkeypatch.setattr(neighbors._Copies, "of", lambda gallery: used.append(True) or of(gallery))
    rng = np.random.default_rng(0)
    for Z in (
        rng.integers(0, 3, size=(53, 3)),
        rng.integers(0, 2, size=(53, 1)),
        np.ones((53, 2)),
        np.eye(5)[rng.integers(0, 5, size=53)],
        np.where(rng.random((53, 2)) < 0.5, 0.0, -0.0),
        np.r_[rng.standard_normal((20, 2)), np.ones((33, 2))],
    ):
        Z = Z.astype(dtype)
        assert_same(nearest(Z, k), slow_nearest(Z, k), rtol=1e-6)
        few = min(k, 48)
        assert_same(nearest(Z[:20], few, gallery=Z[5:]), slow_nearest(Z[:20], few, Z[5:]), rtol=1e-6)
    assert used


@pytest.mark.parametrize("n_points", [1, 2, 10])
def test_collapsed_embeddings_measure_few_pairs(n_points, monkeypatch):
    """Copies of few points tie in all distances: they must not be measured pair by pair."""
    measured = []
    monkeypatch.setattr(neighbors, "pair_sqdist", lambda X, i, j, Y: measured.append(len(i)) or pair_sqdist(X, i, j, Y))
    n, k = 4000, 3
    Z = np.random.default_rng(0).standard_normal((n_points, 8))[np.arange(n) % n_points]
    with config_context(working_memory=16):  # several blocks
        index, d = nearest(Z, k)
    assert sum(measured) <= 50 * n
    assert_array_equal(d, 0)
    expected = [[j for j in range(i % n_points, n, n_points) if j != i][:k] for i in range(n)]
    assert_array_equal(index, expected)
