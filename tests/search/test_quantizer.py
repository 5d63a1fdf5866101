"""Quantizer: codes decode to within half a step, searches are those of the decoded embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

import isometry
from isometry import Quantizer
from isometry.eval.neighbors import nearest_columns
from isometry.search.quantizer import _differing_bits

KINDS = ("float16", "int8", "binary")


@pytest.fixture
def Z():
    Z = np.random.default_rng(0).normal(size=(200, 21)).astype(np.float32) + 0.4
    Z[:, 3] = 0  # a dimension that is dead
    Z[:, 4] = 2  # a constant one
    return Z


def test_decoding_misses_by_half_a_step_at_most(Z):
    for rotate in (False, True):
        quantizer = Quantizer("int8", rotate=rotate).fit(Z)
        error = quantizer.decode(quantizer.encode(Z)) - Z
        if rotate:
            error = error @ quantizer.rotation_
        assert (np.abs(error) <= 0.5 * quantizer.scale_ * (1 + 1e-4)).all()
    assert_allclose(
        Quantizer("int8").fit(Z).scale_, np.where(np.abs(Z).max(axis=0) > 0, np.abs(Z).max(axis=0) / 127, 1)
    )
    half = Quantizer("float16").fit(Z)
    assert_allclose(half.decode(half.encode(Z)), Z, rtol=2**-11)


def test_bits_are_the_signs_and_decode_to_the_nearest_pair_of_values(Z):
    quantizer = Quantizer("binary").fit(Z)
    codes = quantizer.encode(Z)
    assert codes.shape == (200, 3) and codes.dtype == np.uint8
    m = Z.astype(np.float64).mean(axis=0)
    bits = np.array([[z > c for z, c in zip(row, m.astype(np.float32))] for row in Z])
    assert_array_equal(np.unpackbits(codes, axis=1)[:, :21].astype(bool), bits)
    assert_array_equal(np.unpackbits(codes, axis=1)[:, 21:], 0)
    spread = np.abs(Z - m).mean(axis=0)
    assert_allclose(quantizer.decode(codes), np.where(bits, m + spread, m - spread), atol=1e-6)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_decoded_codes(kind, rotate, Z):
    quantizer = Quantizer(kind, rotate=rotate).fit(Z)
    codes = quantizer.encode(Z)
    D = ((Z[:9, None].astype(np.float64) - quantizer.decode(codes)[None]) ** 2).sum(axis=2)
    assert_allclose(quantizer.scores(Z[:9], codes), -D, atol=1e-5 * D.max())


def test_differing_bits_are_counted():
    rng = np.random.default_rng(0)
    for d in (1, 8, 63, 64, 65, 200):
        A, B = rng.random((5, d)) < 0.5, rng.random((7, d)) < 0.5
        found = _differing_bits(np.packbits(A, axis=1), np.packbits(B, axis=1))
        assert_array_equal(found, (A[:, None] != B[None]).sum(axis=2))


@pytest.mark.parametrize("kind", KINDS)
def test_search_is_exact_when_all_are_candidates_and_ordered_by_embeddings(kind, Z):
    quantizer = Quantizer(kind).fit(Z)
    index, d = quantizer.search(Z[:20] + 0.1, quantizer.encode(Z), 10, rescore=20, fine=Z)
    D = ((Z[:20, None].astype(np.float64) + 0.1 - Z[None]) ** 2).sum(axis=2)
    if kind == "binary":
        assert_array_equal(index, np.argsort(D, axis=1, kind="stable")[:, :10])
    assert_allclose(d, np.take_along_axis(D, index, axis=1), rtol=0.2 if kind != "binary" else 1e-4)


def test_candidates_are_those_with_fewest_differing_bits(Z):
    quantizer = Quantizer("binary").fit(Z)
    codes = quantizer.encode(Z)
    index, _ = quantizer.search(Z[:20], codes, 4, rescore=3, fine=Z)
    H = _differing_bits(codes[:20], codes)
    candidates = np.argsort(H, axis=1, kind="stable")[:, :12]
    assert all(set(row) <= set(c) for row, c in zip(index.tolist(), candidates.tolist()))


def test_round_trip(Z, tmp_path):
    quantizer = Quantizer("binary", rotate=True).fit(Z)
    isometry.save(quantizer, tmp_path / "q.safetensors")
    back = isometry.load(tmp_path / "q.safetensors")
    assert_array_equal(back.encode(Z), quantizer.encode(Z))
    assert_array_equal(back.decode(back.encode(Z)), quantizer.decode(quantizer.encode(Z)))


def test_bad_input(Z):
    bad = Z.copy()
    bad[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"1 of the 200 rows of Z hold NaN or infinity \(rows 4\)"):
        Quantizer().fit(bad)
    with pytest.raises(NotFittedError):
        Quantizer().encode(Z)
    quantizer = Quantizer().fit(Z)
    with pytest.raises(ValueError, match="Z has 20 columns; the quantizer was fitted to 21"):
        quantizer.encode(Z[:, :20])
    with pytest.raises(ValueError, match=r"int8 or float16 \(n, 21\), or bits in uint8 \(n, 3\)"):
        quantizer.decode(np.zeros((3, 21), dtype=np.int32))
    with pytest.raises(ValueError, match="k=0 neighbours"):
        quantizer.search(Z, quantizer.encode(Z), 0)
    with pytest.raises(ValueError, match="give those of the same rows"):
        quantizer.search(Z, quantizer.encode(Z, "binary"), 3, fine=Z[:9])
    with pytest.raises(ValueError, match="the largest number of float16"):
        Quantizer("float16").fit(1e6 * Z).encode(1e6 * Z)
    with pytest.raises(ValueError, match="kind='int4' is unknown"):
        Quantizer("int4").fit(Z)


@pytest.mark.parametrize("n", [1, 7, 100, 1003])
@pytest.mark.parametrize("kind", [np.float32, np.uint16])
def test_the_nearest_columns_are_those_of_a_sort(n, kind):
    D = np.random.default_rng(0).integers(0, 30, size=(6, n)).astype(kind)  # many ties
    for k in {1, min(n, 3), n}:
        columns, values = nearest_columns(D, k)
        expected = np.argsort(D, axis=1, kind="stable")[:, :k]
        assert_array_equal(columns, expected)
        assert_array_equal(values, np.take_along_axis(D, expected, axis=1))
