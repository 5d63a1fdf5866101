"""What the tests of the probabilistic methods share: small labelled data and central differences."""

import numpy as np
import pytest

from tests.differences import central_differences


@pytest.fixture
def numeric_gradient():
    return central_differences


@pytest.fixture
def overlapping():
    """Unbalanced classes that overlap: X (n, d), y (n,)."""

    def make(sizes=(14, 9, 5), d=4, seed=0, spread=1.0):
        rng = np.random.default_rng(seed)
        y = np.repeat(np.arange(len(sizes)), sizes)
        return rng.standard_normal((len(y), d)) + spread * rng.standard_normal((len(sizes), d))[y], y

    return make
