"""Proof tests of B28: measures of hubness, and corrected distances."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from scipy.stats import norm, skew

from isometry.eval import Hubness, HubnessCorrection, hubness, nearest, retrieval
from isometry.eval.hubs import CORRECTIONS, corrected_search
from isometry.eval.neighbors import NeighborSearch


def clouds(n=40, m=25, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)), rng.standard_normal((m, d))


def slow(method, Z, gallery, k):
    """(n, m) corrected distances by loops; without a gallery NaN on the diagonal."""
    within = gallery is None
    gallery = Z if within else gallery
    n, m = len(Z), len(gallery)
    D = np.array([[np.linalg.norm(z - g) for g in gallery] for z in Z])
    if within:
        np.fill_diagonal(D, np.nan)
    out = np.full((n, m), np.nan)
    for i in range(n):
        for j in range(m):
            if within and i == j:
                continue
            row, column = np.sort(D[i][~np.isnan(D[i])]), np.sort(D[:, j][~np.isnan(D[:, j])])
            d, a, b = D[i, j], row[:k], column[:k]
            if method == "csls":
                out[i, j] = 2 * d**2 - np.mean(a**2) - np.mean(b**2)
            elif method == "local_scaling":
                out[i, j] = 1 - np.exp(-(d**2) / (a[-1] * b[-1]))
            elif method == "nicdm":
                out[i, j] = d / np.sqrt(a.mean() * b.mean())
            else:
                far = norm.sf(d, row.mean(), row.std()) * norm.sf(d, column.mean(), column.std())
                out[i, j] = 1 - far
    return out


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28a_formulas_by_loops(method, within):
    Z, other = clouds(22, 30)
    gallery = None if within else other
    expected = slow(method, Z, gallery, 4)
    index, value = nearest(Z, 3, gallery, correction=HubnessCorrection(method, k=4))
    order = np.argsort(np.where(np.isnan(expected), np.inf, expected), axis=1)[:, :3]
    assert_allclose(index, order)
    assert_allclose(value, np.take_along_axis(expected, order, axis=1), rtol=1e-9, atol=1e-12)


def test_B28a_csls_of_unit_vectors_is_the_published_similarity():
    Z, g = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in clouds())
    cosine = Z @ g.T
    r = np.sort(cosine, axis=1)[:, -10:].mean(axis=1)[:, None] + np.sort(cosine, axis=0)[-10:].mean(axis=0)
    index, value = nearest(Z, 2, g, correction="csls")
    similarity = 2 * cosine - r
    assert_allclose(np.take_along_axis(-2 * similarity, index, axis=1), value, atol=1e-9)
    assert_allclose(index[:, 0], similarity.argmax(axis=1))


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28b_symmetric_input_gives_symmetric_output(method):
    Z, _ = clouds(12)
    index, value = nearest(Z, 11, correction=HubnessCorrection(method, k=3))
    D = np.zeros((12, 12))
    np.put_along_axis(D, index, value, axis=1)
    assert_allclose(D, D.T, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28c_skewness_falls_in_300_dimensions(method):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 5
    Z = rng.standard_normal((400, 300)) + 0.15 * rng.standard_normal((5, 300))[y]
    before, after = hubness(Z, 5), hubness(Z, 5, correction=method)
    assert after.skewness < 0.75 * before.skewness
    assert after.antihubs < before.antihubs and after.robin_hood < before.robin_hood


def test_B28c_measures_by_their_definitions():
    Z, g = clouds(30, 20)
    found = hubness(Z, 4, g)
    D = np.linalg.norm(Z[:, None] - g[None], axis=2)
    N = np.bincount(np.argsort(D, axis=1)[:, :4].ravel(), minlength=20)
    assert found.k_occurrence.tolist() == N.tolist() and N.sum() == 120
    assert_allclose(found.skewness, skew(N))
    assert_allclose(found.antihubs, np.mean(N == 0))
    assert_allclose(found.robin_hood, np.maximum(N - 6, 0).sum() / 120)
    even = Hubness(2, np.full(5, 2))
    assert even.skewness == even.antihubs == even.robin_hood == 0
    hub = Hubness(1, np.array([10] + [0] * 9))
    assert hub.robin_hood == 0.9 and hub.antihubs == 0.9


@pytest.mark.parametrize("none", [None, "none"])
def test_B28d_no_correction_is_todays_result(none):
    Z, g = clouds()
    y, t = np.arange(40) % 4, np.arange(25) % 4
    for gallery in (None, g):
        for a, b in zip(nearest(Z, 3, gallery), nearest(Z, 3, gallery, correction=none)):
            assert_allclose(a, b, rtol=0, atol=0)
    a = retrieval(Z, y, gallery=g, gallery_y=t).mean()
    assert a == retrieval(Z, y, gallery=g, gallery_y=t, correction=none).mean()


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28_retrieval_ranks_by_the_corrected_distance(method):
    Z, g = clouds(20, 24)
    y, t = np.arange(20) % 3, np.arange(24) % 3
    found = retrieval(Z, y, gallery=g, gallery_y=t, ks=(1, 2), correction=method)
    rank = np.argsort(slow(method, Z, g, 10), axis=1)
    relevant = t[rank] == y[:, None]
    assert_allclose(found.mean()["recall@1"], relevant[:, 0].mean())
    assert_allclose(found.mean()["precision@2"], relevant[:, :2].mean())
    assert_allclose(found.mean()["r_precision"], relevant[:, :8].mean())


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28_a_fitted_correction_knows_its_gallery_alone(method):
    """Queries that come one by one get what they would get together."""
    Z, g = clouds(10, 30)
    correction = HubnessCorrection(method, k=5).fit(g)
    together, value = correction.rerank(Z, 4)
    for i in range(10):
        index, one = correction.rerank(Z[i : i + 1], 4)
        assert_allclose(index[0], together[i])
        assert_allclose(one[0], value[i], rtol=1e-9, atol=1e-12)
    told = HubnessCorrection(method, k=5).fit(g, queries=Z).rerank(Z, 4)
    for a, b in zip(told, nearest(Z, 4, g, correction=HubnessCorrection(method, k=5))):
        assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28_blocks_and_types_do_not_matter(method):
    Z, g = clouds(60, 50)
    whole = nearest(Z, 3, g, correction=method)
    with sklearn.config_context(working_memory=0.01):
        parts = nearest(Z, 3, g, correction=method)
    assert_allclose(parts[0], whole[0])
    assert_allclose(parts[1], whole[1], rtol=1e-9, atol=1e-12)
    assert (nearest(Z.astype(np.float32), 3, g.astype(np.float32), correction=method)[0] == whole[0]).mean() > 0.98


@pytest.mark.parametrize("method", CORRECTIONS)
def test_B28_duplicates_are_survived(method):
    Z = np.repeat(clouds(4)[0], 15, axis=0)
    index, value = nearest(Z, 5, correction=method)
    assert np.isfinite(value).all() and np.all(index // 15 == np.arange(60)[:, None] // 15)


def test_B28_errors():
    Z, g = clouds()
    with pytest.raises(ValueError, match="method='hub' is unknown: choose from csls"):
        nearest(Z, 2, correction="hub")
    with pytest.raises(ValueError, match="k=0 must be at least 1"):
        HubnessCorrection(k=0)
    with pytest.raises(TypeError, match="correction=3 must be None, one of csls"):
        nearest(Z, 2, correction=3)
    with pytest.raises(ValueError, match="fit the correction to the gallery first"):
        HubnessCorrection().rerank(Z, 2)
    with pytest.raises(ValueError, match="fitted to 25 items, and the gallery has 40"):
        nearest(Z, 2, correction=HubnessCorrection().fit(g))
    with pytest.raises(ValueError, match="choose k between 1 and 25"):
        HubnessCorrection().fit(g).rerank(Z, 26)
    search = NeighborSearch.over(Z)
    assert corrected_search(search, None) is search and search.reverse() is search
