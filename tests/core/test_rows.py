"""Rows of unit length read block by block, keys of equal rows, and maps of queries alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from isometry.core.bilinear import BilinearMoments, query_maps
from isometry.core.moments import ArrayMoments
from isometry.core.rows import UnitRows, look_at_rows, part_of, unit_length, unit_rows


@pytest.fixture
def X():
    return np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_read_late_are_those_brought_to_unit_length_at_once(X, dtype):
    X = X.astype(dtype)
    lazy, rows = UnitRows(X), np.array([3, 7, 41])
    wide = X.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    eps = np.finfo(lazy.dtype).eps
    assert lazy.dtype == (np.float64 if dtype == np.float64 else np.float32)
    np.testing.assert_allclose(lazy[10:20], wide[10:20], atol=4 * eps)
    np.testing.assert_array_equal(lazy.take(rows)[1:], lazy[rows[1:]])
    np.testing.assert_array_equal(lazy.take(rows).take(np.array([2]))[:], lazy[41:42])
    np.testing.assert_array_equal(part_of(unit_rows(X), rows), part_of(lazy, rows)[:])


def test_moments_of_rows_read_late_are_those_of_the_array(X):
    codes = np.arange(50) % 4
    late, at_once = ArrayMoments(UnitRows(X), codes), ArrayMoments(UnitRows(X)[:], codes)
    np.testing.assert_allclose(late.covariance(), at_once.covariance(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(late.mean_pair_scatters(), at_once.mean_pair_scatters(), rtol=1e-12, atol=1e-14)


def test_one_look_finds_bad_rows_rows_of_zeros_and_equal_rows(X):
    X[4] = 0
    X[5, 2], X[9, 0] = np.nan, np.inf
    X[20] = X[30]
    X[40], X[41] = 0.0, -0.0
    facts = look_at_rows(X)
    assert facts.bad.tolist() == [5, 9] and facts.zero.tolist() == [4, 40, 41]
    assert not facts.unit and look_at_rows(unit_length(X[10:])).unit
    keys = facts.keys
    assert keys[20] == keys[30] and keys[4] == keys[40] == keys[41]
    assert len(np.unique(keys)) == 50 - 3
    turned = X[:, ::-1]
    assert not np.intersect1d(look_at_rows(turned).keys[10:20], keys).size  # the same numbers in another order


def test_the_query_map_minimises_what_it_says():
    """The objective, written with loops over queries and documents, has no slope at the map of every ridge."""
    rng = np.random.default_rng(1)
    Q, D = rng.normal(size=(9, 4)), rng.normal(size=(6, 4))
    relevant = rng.random((9, 6)) < 0.4
    relevant[np.arange(9), np.arange(9) % 6] = True
    D[: len(D)] += 0.5 * Q[:6]
    centred = D - D.mean(axis=0)
    t = np.where(relevant, len(D) / relevant.sum(axis=1, keepdims=True), 0.0)
    P = (relevant / relevant.sum(axis=1, keepdims=True)) @ centred
    moments = BilinearMoments(Q.T @ Q / 9, centred.T @ centred / 6, P.T @ Q / 9)
    C, S, M = moments
    tau, unit = np.trace(S @ C) / np.trace(M), np.trace(S) * np.trace(C) / 16

    def objective(A, ridge):
        A = A.reshape(4, 4)
        error = sum(((A @ q) @ d - tau * t[i, j]) ** 2 for i, q in enumerate(Q) for j, d in enumerate(centred)) / (
            len(Q) * len(D)
        )
        return error + ridge * unit * np.sum((A - np.eye(4)) ** 2)

    def gradient(A, ridge):
        A = A.reshape(4, 4)
        return (2 * S @ A @ C - 2 * tau * M + 2 * ridge * unit * (A - np.eye(4))).ravel()

    assert check_grad(objective, gradient, rng.normal(size=16), 0.3) < 1e-4
    for ridge, A in zip((10.0, 0.1), query_maps(moments, (10.0, 0.1)), strict=True):
        np.testing.assert_allclose(gradient(A.ravel(), ridge), 0, atol=1e-10)
    (far,) = query_maps(moments, (1e9,))
    np.testing.assert_allclose(far, np.eye(4), atol=1e-7)


def test_documents_that_are_no_nearer_teach_nothing():
    C = np.eye(3)
    with pytest.raises(ValueError, match="no nearer"):
        list(query_maps(BilinearMoments(C, C, -C), (1.0,)))
