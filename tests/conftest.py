"""Small problems that many tests share."""

from __future__ import annotations

import signal

import numpy as np
import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background of a shell: tests of Ctrl-C need it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def make_planted(n=120, d=8, n_classes=3, noise=5.0, seed=0):
    """Classes differ in the first two features; the others are noise of larger variance, which Euclidean follows."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    angle = 2 * np.pi * y / n_classes
    X = noise * rng.standard_normal((n, d))
    X[:, :2] = 4 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.7 * rng.standard_normal((n, 2))
    return X, y


def make_blobs(n=45, d=4, n_classes=3, seed=0):
    """Overlapping classes of unequal size and shape."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, n_classes, size=n))
    y[: 2 * n_classes] = np.repeat(np.arange(n_classes), 2)
    mix = rng.standard_normal((d, d)) + 2 * np.eye(d)
    return (rng.standard_normal((n, d)) + 1.2 * rng.standard_normal((n_classes, d))[y]) @ mix, y


def assert_refitted(A, B, rtol=1e-9):
    """Two outcomes of one fit are equal up to rounding, which in BLAS may depend on where in memory an array lies."""
    np.testing.assert_allclose(A, B, rtol=0, atol=rtol * max(np.abs(A).max(), np.abs(B).max()))


@pytest.fixture
def planted():
    return make_planted()


@pytest.fixture
def blobs():
    return make_blobs()
