"""Learners of parts of the data with the strength that all of them chose."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import GMML, NCA, RCA, Normalized, PairVerifier, Shrunk
from isometry.select.strengths import of_same_strength


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 8)
    signal = rng.normal(size=(30, 3))[y] + 0.4 * rng.normal(size=(240, 3))
    return np.hstack([signal, 2 * rng.normal(size=(240, 3))]), y


def relative(model, X):
    """Squared distances, of any unit."""
    Z = model.transform(X)
    d = ((Z[:20, None] - Z[20:40]) ** 2).sum(axis=2)
    return d / d.mean()


LEARNERS = [
    GMML(),
    RCA(),
    NCA(max_iter=40, random_state=0),
    Shrunk(GMML(reg=0.01)),
    Normalized(GMML()),
    make_pipeline(StandardScaler(), GMML()),
    GMML(reg=0.1),
]


@pytest.mark.filterwarnings("ignore:NCA did not converge")  # it ends where the other was ended
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda e: " ".join(repr(e).split())[:40])
def test_learned_anew_from_the_same_rows_it_is_the_same_metric(data, learner):
    X, y = data
    fitted = learner.fit(X, y)
    again = of_same_strength(fitted)
    assert not hasattr(again, "components_")
    np.testing.assert_allclose(relative(again.fit(X, y), X), relative(fitted, X), rtol=1e-6, atol=1e-9)


def test_euclidean_distance_stays_so(data):
    X, y = data
    fitted = GMML().fit(X, np.random.default_rng(1).permutation(y))
    assert fitted.share_ == 0
    part = of_same_strength(fitted).fit(X[::2], y[::2])
    np.testing.assert_allclose(relative(part, X), relative(fitted, X), rtol=1e-9)


def test_a_verifier_chooses_the_strength_once(data, monkeypatch):
    X, y = data
    chosen = []
    choose = GMML._choose
    monkeypatch.setattr(GMML, "_choose", lambda self, *args, **more: chosen.append(1) or choose(self, *args, **more))
    PairVerifier(GMML(), random_state=0).fit(X, y)
    assert len(chosen) == 1
