"""What a metric says of itself, and what its file keeps of that."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import GMML, LMNN, FixedMetric, Index, Kernelized, Pairs
from isometry.eval import get_scorer
from isometry.io import card, fingerprint, read_card


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    return rng.normal(size=(90, 4)) + 2 * np.eye(4)[y], y


def test_a_card_holds_parameters_data_versions_and_quality(data):
    X, y = data
    metric = GMML(reg=0.1).fit(X[:60], y[:60])
    facts = metric.card(X[60:], y[60:])
    assert facts["estimator"] == "GMML" and facts["parameters"]["reg"] == 0.1
    assert facts["features"] == 4 and facts["dimensions"] == 4
    assert facts["data"] == {"rows": 30, "features": 4, "fingerprint": fingerprint(X[60:], y[60:])}
    assert facts["quality"]["knn"] == pytest.approx(metric.score(X[60:], y[60:])) and facts["quality"]["rows"] == 30
    assert facts["versions"]["isometry"] == isometry.__version__
    json.dumps(facts, allow_nan=False)


def test_it_is_stored(data, tmp_path):
    X, y = data
    model = make_pipeline(StandardScaler(), LMNN(max_iter=300, n_components=2)).fit(X, y)
    path = tmp_path / "m.safetensors"
    isometry.save(model, path)
    kept = read_card(path)
    assert kept["estimator"] == "Pipeline(StandardScaler, LMNN)"
    assert kept["parameters"]["n_components"] == 2 and kept["n_iter"] == model[-1].n_iter_ and kept["dimensions"] == 2
    isometry.save(model, path, card(model, X, y))
    assert read_card(path)["quality"]["knn"] == pytest.approx(get_scorer("knn")(model, X, y))
    Index(model).fit(X).save(path)
    assert read_card(path)["rows"] == 90 and read_card(path)["estimator"] == "Index"


def test_what_json_cannot_hold_becomes_text(data, tmp_path):
    X, y = data
    for metric in (FixedMetric(np.eye(4)), Kernelized(GMML(), landmarks=9, random_state=0)):
        facts = metric.fit(X, y).card()
        json.dumps(facts, allow_nan=False)
    assert facts["estimator"] == "Kernelized(GMML)" and facts["parameters"]["learner"] == "GMML"


def test_fingerprints_follow_rows_labels_and_pairs(data):
    X, y = data
    pairs = Pairs([0, 1], [2, 3], [True, False], n=90)
    others = Pairs([0, 1], [2, 4], [True, False], n=90)
    prints = {fingerprint(X), fingerprint(X, y), fingerprint(X, y[::-1]), fingerprint(X[::-1], y)}
    prints |= {fingerprint(X, pairs), fingerprint(X, others)}
    assert len(prints) == 6
    assert fingerprint(X.copy(), list(y)) == fingerprint(X, y)
