"""A known matrix as a metric."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from isometry import GMML, FixedMetric, Pairs, PairVerifier, compare, load
from tests.conftest import make_blobs


def test_U_distances_are_those_of_the_matrix(rng):
    X, y = make_blobs()
    L = rng.standard_normal((2, 4))
    W = L.T @ L
    for metric in (FixedMetric(L), FixedMetric(components=L.tolist()), FixedMetric(mahalanobis=W)):
        metric.fit(X, y)
        z = X[0] - X[5]
        assert_allclose(metric.pair_distance(X, [[0, 5]]), np.sqrt(z @ W @ z))
        assert_allclose(metric.mahalanobis_, W, atol=1e-12)
    assert_allclose(FixedMetric(L).fit(X).components_, L)


def test_U_a_learned_metric_can_be_fixed_saved_compared_and_verified(tmp_path):
    X, y = make_blobs(n=60)
    learned = GMML().fit(X, y)
    fixed = FixedMetric(mahalanobis=learned.mahalanobis_).fit(X)
    fixed.save(tmp_path / "fixed.isometry")
    assert_allclose(load(tmp_path / "fixed.isometry").transform(X), fixed.transform(X), rtol=0, atol=0)
    assert_allclose(fixed.score(X, y), learned.score(X, y))
    result = compare(X, y, [("fixed", clone(fixed))], n_splits=3, scaler=None)
    assert any(r.name == "fixed" and r.score is not None for r in result.results)
    pairs = Pairs(np.arange(30), np.arange(30, 60), y[:30] == y[30:], n=60)
    assert PairVerifier(clone(fixed)).fit(X, y).predict_proba(X, pairs).shape[0] == 30


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "one of the two"),
        ({"components": np.eye(4), "mahalanobis": np.eye(4)}, "one of the two"),
        ({"components": np.eye(3)}, r"components has shape \(3, 3\), but X has 4 features"),
        ({"mahalanobis": np.ones((2, 4))}, r"mahalanobis has shape \(2, 4\)"),
        ({"mahalanobis": np.diag([1.0, 1, 1, -0.5])}, "smallest eigenvalue is -0.5"),
        ({"mahalanobis": np.triu(np.ones((4, 4)))}, "not symmetric"),
        ({"components": np.full((1, 4), np.nan)}, "components contains NaN"),
    ],
)
def test_U_a_matrix_that_is_no_metric_of_these_samples_is_refused(options, message):
    X, _ = make_blobs()
    with pytest.raises(ValueError, match=message):
        FixedMetric(**options).fit(X)
