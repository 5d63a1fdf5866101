"""The symmetric evaluation of neighbour-softmax losses against the one that visits all ordered pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import isometry.core.softmax as softmax
from isometry.core.distance import sqdist_factors
from isometry.core.edges import DenseEdges
from isometry.core.probability import LOWEST, exp_
from isometry.core.softmax import SoftmaxEdges
from isometry.probabilistic.nca import is_alone, log_loss, same_class, sum_loss
from isometry.supervision import Labels


def problem(n=317, p=3, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    y[5] = 9  # alone in its class
    return scale * rng.standard_normal((n, p)), Labels(y)


def losses(labels):
    yield sum_loss(same_class(labels), len(labels))
    yield log_loss(same_class(labels), is_alone(labels))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e3])
def test_equals_all_ordered_pairs(monkeypatch, threads, scale):
    """Also where neighbours are so far that their exponentials underflow (scale 30: some; 1000: all)."""
    monkeypatch.setattr(softmax, "ROWS", 40)
    monkeypatch.setattr(softmax, "COLUMNS", 100)
    monkeypatch.setattr(softmax, "MIN_THREADED_POINTS", 100)
    monkeypatch.setattr(softmax, "n_threads", lambda: threads)
    Z, labels = problem(scale=scale)
    V = np.random.default_rng(1).standard_normal((len(Z), 5))
    for loss in losses(labels):
        for features in (None, V):
            f0, pull0 = DenseEdges(len(Z)).evaluate(Z, loss, features)
            f, pull = SoftmaxEdges(labels.codes).evaluate(Z, loss, features)
            assert_allclose(f, f0, rtol=1e-12, atol=1e-300)
            assert_allclose(pull, pull0, rtol=1e-9, atol=1e-12 * np.abs(pull0).max(initial=1e-300))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mib", [0, 256])
def test_points_of_many_coordinates_in_kept_tiles(monkeypatch, threads, mib):
    monkeypatch.setattr(softmax, "WIDE_ROWS", 50)
    monkeypatch.setattr(softmax, "WIDE_COLUMNS", 60)
    monkeypatch.setattr(softmax, "KEPT_FROM", 3)
    monkeypatch.setattr(softmax, "KEPT_MIB", mib)
    monkeypatch.setattr(softmax, "MIN_THREADED_POINTS", 100)
    monkeypatch.setattr(softmax, "n_threads", lambda: threads)
    Z, labels = problem()
    for loss in losses(labels):
        f0, pull0 = DenseEdges(len(Z)).evaluate(Z, loss)
        f, pull = SoftmaxEdges(labels.codes).evaluate(Z, loss)
        assert_allclose(f, f0, rtol=1e-12)
        assert_allclose(pull, pull0, rtol=1e-9, atol=1e-12 * np.abs(pull0).max())


@pytest.mark.parametrize("first", [1, 2, 40, 41, 99, 100, 101, 102, 140, 316])
def test_classes_that_end_anywhere_in_a_tile(monkeypatch, first):
    monkeypatch.setattr(softmax, "ROWS", 40)
    monkeypatch.setattr(softmax, "COLUMNS", 100)
    Z, _ = problem()
    labels = Labels((np.arange(len(Z)) >= first).astype(int))
    for loss in losses(labels):
        f0, pull0 = DenseEdges(len(Z)).evaluate(Z, loss)
        f, pull = SoftmaxEdges(labels.codes).evaluate(Z, loss)
        assert_allclose(f, f0, rtol=1e-12)
        assert_allclose(pull, pull0, rtol=1e-9, atol=1e-12 * np.abs(pull0).max())


def test_factors_multiply_to_distances():
    Z, _ = problem()
    left, right = sqdist_factors(Z)
    assert_allclose(left @ right.T, ((Z[:, None] - Z) ** 2).sum(axis=2), atol=1e-12)
    assert all(part.dtype == np.float32 for part in sqdist_factors(Z, np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponentials_are_exact_or_zero(dtype):
    """Numbers too small to be normalised never appear; exact zeros do, and infinite distances give them."""
    x = -np.concatenate([np.linspace(0, 1000, 4001), [np.inf]]).astype(dtype)
    e, tiny = exp_(x.copy()), np.finfo(dtype).tiny
    assert np.all((e == 0) | (e >= tiny)) and e[-1] == 0 and e[0] == 1
    seen = x > LOWEST[np.dtype(dtype)] + 40
    assert_allclose(e[seen], np.exp(x[seen].astype(np.float64)), rtol=20 * np.finfo(dtype).eps * 40)


def test_float32_stays_near():
    Z, labels = problem()
    for loss in losses(labels):
        f0, pull0 = DenseEdges(len(Z)).evaluate(Z, loss)
        f, pull = SoftmaxEdges(labels.codes).evaluate(Z.astype(np.float32), loss)
        assert_allclose(f, f0, rtol=1e-5)
        assert_allclose(pull, pull0, atol=1e-5 * np.abs(pull0).max())
