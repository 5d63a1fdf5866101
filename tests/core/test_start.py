"""Where searches begin: the scale of a neighbour softmax, and maps that are given."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import LMNN, MCML, MLKR, MMC, NCA, FastNCA
from isometry.core.distance import sqdist
from isometry.core.frame import Frame
from isometry.core.start import MAX_MEDIAN_SQDIST, initial_map, neighbor_sqdist


def nearest(X):
    D = sqdist(X)
    np.fill_diagonal(D, np.inf)
    return D.min(axis=1)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e5])
def test_many_dimensions_take_the_nearest_neighbour(unit):
    X = unit * np.random.default_rng(0).standard_normal((200, 30))
    assert_allclose(neighbor_sqdist(X, np.random.RandomState(0)), np.median(nearest(X)), rtol=1e-9)


def test_few_dimensions_keep_most_points_within_reach():
    X = np.random.default_rng(0).standard_normal((400, 1))
    D = sqdist(X)
    found = neighbor_sqdist(X, np.random.RandomState(0))
    assert found > 10 * np.median(nearest(X))
    assert_allclose(found, np.median(D[~np.eye(400, dtype=bool)]) / MAX_MEDIAN_SQDIST, rtol=1e-6)


def test_duplicates_and_a_single_place():
    X = np.random.default_rng(0).standard_normal((100, 20))
    twice = neighbor_sqdist(np.vstack([X, X]), np.random.RandomState(0))
    assert_allclose(twice, np.median(nearest(X)), rtol=1e-9)
    assert neighbor_sqdist(np.ones((10, 3)), np.random.RandomState(0)) == 1.0


@pytest.mark.parametrize("learner", [NCA, FastNCA, MCML])
def test_the_unit_of_the_data_does_not_matter(learner):
    """A named start is scaled to the data, so that the search is the same in any unit."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    X = rng.standard_normal((90, 6)) + 0.7 * y[:, None]
    options = {"init": "pca", "max_iter": 8, "random_state": 0}
    first, *others = (learner(**options).fit(unit * X, y) for unit in (1.0, 2.0**-20, 2.0**20))
    for other in others:
        assert_allclose(other.history_, first.history_, rtol=1e-7)


@pytest.mark.parametrize("learner", [NCA, LMNN, MLKR, MCML, MMC], ids=lambda c: c.__name__)
@pytest.mark.parametrize("strength", [1.0, "auto"])
@pytest.mark.filterwarnings("ignore")
def test_a_start_of_all_features_serves_fewer_samples_than_features(learner, strength, rng):
    X, y = rng.normal(size=(18, 30)), np.arange(18) % 3
    fit = learner(init=np.eye(30), strength=strength, random_state=0, max_iter=5).fit(X, y)
    assert fit.components_.shape[1] == 30 and np.isfinite(fit.components_).all()


def test_a_start_with_more_rows_than_samples_keeps_its_metric_between_them(rng):
    X, L = rng.normal(size=(10, 30)), rng.normal(size=(20, 30))
    frame = Frame.of(X)
    for p, rows in ((20, 20), (20, 9), (20, 15)):
        start = initial_map(frame, None, L[:rows], p, np.random.RandomState(0))
        assert start.shape == (9, 9)
        np.testing.assert_allclose(sqdist(frame.X @ start.T), sqdist(X @ L[:rows].T), rtol=1e-9, atol=1e-9)
    for rows, columns in ((21, 30), (8, 30), (20, 29)):
        with pytest.raises(ValueError, match=r"init must have shape \(9 to 20, 30\) \(n_components, n_features\), got"):
            initial_map(frame, None, np.ones((rows, columns)), 20, np.random.RandomState(0))
