"""Proof tests of B27: unit length after the map of any learner."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import cosine_distances
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import GMML, ITML, KDCA, LMNN, Covariance, Euclidean, FisherML, Labels, Normalized, Pairs, Targets
from isometry.core.distance import sqdist
from isometry.supervision import Chunklets
from tests.conftest import make_blobs


@pytest.fixture
def data():
    X, y = make_blobs(n=60)
    return X + 3, y


@pytest.mark.parametrize("learner", [GMML(reg=0.0), LMNN(), KDCA(reg=1e-3), Euclidean()], ids=repr)
def test_B27a_norms_are_1(data, learner):
    X, y = data
    Z = Normalized(learner).fit(X, y).transform(X)
    assert_allclose(np.linalg.norm(Z, axis=1), 1, rtol=1e-12)
    assert np.isfinite(Normalized(learner).fit(X, y).transform(100 * X)).all()


def test_B27a_it_is_the_formula(data):
    X, y = data
    L = GMML(reg=0.0).fit(X, y).components_
    for center in (True, False):
        V = (X - center * X.mean(axis=0)) @ L.T
        Z = Normalized(GMML(reg=0.0), center=center).fit_transform(X, y)
        assert_allclose(Z, V / np.linalg.norm(V, axis=1, keepdims=True), rtol=1e-9, atol=1e-12)


def test_B27b_the_scale_of_the_map_does_not_matter(data):
    X, y = data
    learner = Normalized(GMML(reg=0.0)).fit(X, y)
    Z = learner.transform(X)
    learner.learner_.components_ = 7 * learner.learner_.components_
    learner.center_ = 7 * learner.center_
    assert_allclose(learner.transform(X), Z, rtol=1e-12, atol=1e-14)


def test_B27c_euclidean_becomes_the_cosine_of_centred_rows(data):
    X, _ = data
    for center in (True, False):
        D = sqdist(Normalized(Euclidean(), center=center).fit_transform(X))
        assert_allclose(D / 2, cosine_distances(X - center * X.mean(axis=0)), atol=1e-12)


def test_B27c_a_sample_at_the_centre_is_mapped_to_0(data):
    X, y = data
    learner = Normalized(GMML(reg=0.0)).fit(X, y)
    Z = learner.transform(np.vstack([X.mean(axis=0), X[:2]]))
    assert_allclose(Z[0], 0, atol=0)
    assert_allclose(np.linalg.norm(Z[1:], axis=1), 1)
    assert_allclose(Normalized(Euclidean(), center=False).fit(X).transform(np.zeros((1, 4))), 0, atol=0)


def test_B27d_pipeline_clone_and_search(data):
    X, y = data
    model = make_pipeline(StandardScaler(), Normalized(FisherML(2, reg=1e-6)))
    assert repr(clone(model)) == repr(model)
    search = GridSearchCV(model, {"normalized__learner__reg": [1e-6, 1e-1], "normalized__center": [True, False]}, cv=3)
    assert search.fit(X, y).best_estimator_.transform(X).shape == (60, 2)
    names = Normalized(FisherML(2, reg=1e-6)).fit(X, y).get_feature_names_out()
    assert names.tolist() == ["normalized0", "normalized1"]


@pytest.mark.parametrize("learner", [GMML(reg=0.0), LMNN(), KDCA(reg=1e-3)], ids=repr)
def test_B27d_save_and_load(data, learner, tmp_path):
    X, y = data
    fitted = Normalized(learner).fit(X, y)
    fitted.save(tmp_path / "metric.isometry")
    again = isometry.load(tmp_path / "metric.isometry")
    assert type(again) is Normalized and repr(again) == repr(fitted)
    assert_allclose(again.transform(X), fitted.transform(X), rtol=0, atol=0)


def test_B27_sees_what_the_learner_sees(data):
    X, y = data
    pairs = Labels(y).to(Pairs)
    a, b = (Normalized(GMML(reg=0.0)).fit_transform(X, side) for side in (pairs, y))
    assert_allclose(sqdist(a), sqdist(b), atol=1e-9)
    with pytest.raises(TypeError, match="LMNN learns from"):
        Normalized(LMNN()).fit(X, pairs.to(Chunklets))
    with pytest.raises(TypeError, match="learner must be a metric learner such as GMML"):
        Normalized(StandardScaler()).fit(X, y)
    with pytest.raises(ValueError, match="y to be passed"):
        Normalized(GMML(reg=0.0)).fit(X)
    assert Normalized(GMML(reg=0.0))._sees == GMML._sees and Targets not in Normalized(GMML(reg=0.0))._sees
    some = Labels(np.where(np.arange(60) % 3, y, -1), unlabelled=-1)
    known = some.labelled
    a, b = Normalized(GMML(reg=0.0)).fit(X, some), Normalized(GMML(reg=0.0)).fit(X[known], y[known])
    assert_allclose(a.transform(X), b.transform(X))


def test_B27_reports_how_the_learner_ended(data):
    X, y = data
    learner = Normalized(LMNN(strength=1.0)).fit(X, y)
    assert learner.n_iter_ == learner.learner_.n_iter_ and learner.converged_


def test_B27_streams_if_the_learner_does(data):
    X, y = data
    whole, parts = Normalized(GMML(reg=0.0)).fit(X, y), Normalized(GMML(reg=0.0))
    for rows in np.array_split(np.arange(60), 6):
        parts.partial_fit(X[rows], y[rows])
    assert_allclose(sqdist(parts.transform(X)), sqdist(whole.transform(X)), atol=1e-9)
    assert not hasattr(Normalized(LMNN()), "partial_fit")
    early = Normalized(GMML(reg=0.0)).partial_fit(X[:2], y[:2])  # one class
    with pytest.raises(NotFittedError, match="partial_fit with more rows"):
        early.transform(X)


@pytest.mark.filterwarnings("ignore:this GMML was learned by fit")
def test_B27_a_chunk_after_a_fit_begins_anew_or_goes_on_as_the_learner_does(data):
    X, y = data
    anew = Normalized(GMML(reg=0.0)).fit(X[:30] + 9, y[:30]).partial_fit(X, y)
    assert_allclose(sqdist(anew.transform(X)), sqdist(Normalized(GMML(reg=0.0)).fit_transform(X, y)), atol=1e-9)
    on = Normalized(ITML(random_state=0)).fit(X[:40], y[:40])
    on.partial_fit(X[40:], y[40:])
    assert_allclose(on.mean_, X.mean(axis=0))
    assert on.n_samples_seen_ == 60


def test_B27_float32_stays(data):
    X, y = data
    Z = Normalized(Covariance(reg=0.0)).fit(X.astype(np.float32), y).transform(X.astype(np.float32))
    assert Z.dtype == np.float32
