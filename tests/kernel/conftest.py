"""What the tests of the kernel methods share: kernels by loops, central differences, learned distances."""

import numpy as np
import pytest

from tests.differences import central_differences


def kernel_by_loops(k, X, Y=None):
    """(n, m) k(x_i, y_j), one by one."""
    Y = X if Y is None else Y
    return np.array([[k(x, y) for y in Y] for x in X])


@pytest.fixture
def gram():
    return kernel_by_loops


@pytest.fixture
def numeric_gradient():
    return central_differences


@pytest.fixture
def data():
    """Unbalanced classes that overlap: X (n, d), y (n,), and samples that no fit has seen."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), (11, 8, 6))
    X = rng.standard_normal((25, 3)) + 1.2 * rng.standard_normal((3, 3))[y]
    return X, y, rng.standard_normal((6, 3))


@pytest.fixture
def distances():
    """Squared learned distances of all pairs of rows."""

    def measure(learner, X):
        Z = np.asarray(learner.transform(X), dtype=np.float64)
        return ((Z[:, None] - Z[None]) ** 2).sum(axis=2)

    return measure
