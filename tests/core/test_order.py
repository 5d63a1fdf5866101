"""A seed gives one metric for the same samples, in whatever order a table lists its rows and columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris

from isometry import CDML, HierarchicalLMNN, LaplacianKernelML, Pairs
from isometry.core.distance import sqdist
from isometry.core.order import column_order, row_order
from tests.conftest import make_blobs

LEARNERS = {  # with the share of the largest distance that another order of the columns may change
    "LaplacianKernelML": (LaplacianKernelML(tol=1e-3, random_state=0), 1e-3),
    "CDML": (CDML(n_epochs=5, random_state=0), 1e-3),
    "CDML in batches": (CDML(n_epochs=5, batch_size=16, random_state=0), 1e-3),
    "HierarchicalLMNN": (HierarchicalLMNN(random_state=0), 1e-6),  # the root of the rounding errors of transform
}


def distances(learner, X, y, new):
    return np.sqrt(sqdist(np.asarray(learner.fit(X, y).transform(new), dtype=np.float64)))


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_order_of_rows_and_columns_does_not_matter(name):
    (X, y), (learner, tol) = make_blobs(), LEARNERS[name]
    base = distances(learner, X, y, X)
    rng = np.random.default_rng(2)
    rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
    shuffled = distances(learner, X[rows], y[rows], X)
    assert np.abs(shuffled - base).max() <= 1e-3 * base.max()
    shuffled = distances(learner, X[:, columns], y, X[:, columns])
    assert np.abs(shuffled - base).max() <= tol * base.max()


def test_positions_and_multipliers_stay_with_their_samples_and_pairs():
    """`LaplacianKernelML` sorts the samples for itself alone."""
    X, y = make_blobs()
    learner = LaplacianKernelML(tol=1e-3, random_state=0)
    for side in (y, Pairs([0, 9, 3, 30], [1, 40, 20, 12], [1, 0, 0, 1], n=len(X))):
        learner.fit(X, side)
        assert np.abs(learner.transform(X) - learner.embedding_).max() <= 1e-9 * np.abs(learner.embedding_).max()
        assert np.abs(learner.samples_ + learner.origin_ - X).max() <= 1e-12 * np.abs(X).max()
    gap = np.sum((learner.embedding_[[9, 3]] - learner.embedding_[[40, 20]]) ** 2, axis=1)
    assert np.all(gap >= 1 - 1e-3) and np.all((gap <= 1 + 1e-2) | (learner.multipliers_ <= 1e-3))


def test_sorting_follows_the_values_alone():
    X = np.unique(load_iris(return_X_y=True)[0], axis=0)  # many equal values
    rng = np.random.default_rng(0)
    for _ in range(5):
        rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
        Y = X[rows][:, columns]
        assert_array_equal(Y[row_order(Y)][:, column_order(Y)], X[row_order(X)][:, column_order(X)])
        Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        assert_array_equal(row_order(7 * X @ Q.T + 1e3), row_order(X))  # another unit, origin, and axes
    assert_array_equal(column_order(np.array([[3.0, 0.0, 3.0], [9.0, 1.0, 4.0]])), [1, 2, 0])
