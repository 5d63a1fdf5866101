"""What "auto" scales by: the angle between embeddings, the spread of features otherwise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import normalize

from isometry import Labels
from isometry.eval import retrieval
from isometry.select import compare
from isometry.select.folds import make_plan
from isometry.select.inputs import choose_scaler, looks_like_embeddings

RNG = np.random.default_rng(0)
Y = np.arange(240) % 12
CENTRES = RNG.normal(size=(12, 96))
EMBEDDED = CENTRES[Y] + RNG.normal(size=(240, 96))


def test_rows_of_unit_length_are_compared_by_their_angle_in_either_protocol():
    unit = normalize(EMBEDDED)
    assert choose_scaler("auto", unit, "closed") == ("normalize", True)
    assert choose_scaler("auto", unit.astype(np.float16).astype(np.float64), "open") == ("normalize", True)
    assert choose_scaler("auto", EMBEDDED, "closed") == ("standard", False)
    assert choose_scaler("auto", EMBEDDED, "open") == ("normalize", True)
    assert choose_scaler("minmax", unit, "open") == ("minmax", False)


@pytest.mark.parametrize(
    "X",
    [
        load_wine().data,
        load_digits().data,  # many features of one sign
        EMBEDDED * np.geomspace(0.1, 1000, 96),  # of many scales
        normalize(RNG.normal(size=(50, 3))),  # points on a sphere in space
        np.zeros((9, 100)),
        EMBEDDED * np.geomspace(0.1, 10, 240)[:, None],  # of many lengths
    ],
    ids=["wine", "digits", "scales", "few", "zeros", "lengths"],
)
def test_other_tables_are_no_embeddings(X):
    assert not looks_like_embeddings(X)


def test_before_is_the_cosine_of_the_raw_vectors():
    found = compare(EMBEDDED, Y, ["GMML"], protocol="open", n_splits=3)
    assert found.scoring == "map@r" and found.settings["scaler"] == "normalize"
    assert found.notes[0].startswith("rows look like embeddings") and "--scaler standard" in found.notes[0]
    values = found["Euclidean"].values
    unit = EMBEDDED / np.linalg.norm(EMBEDDED, axis=1, keepdims=True)
    for split in make_plan(Labels(Y), "open", 3, 1, np.random.RandomState(0)).splits:
        cosine = retrieval(unit[split.test], Y[split.test], ks=(1,)).map_at_r
        assert_allclose(values[split.test], cosine)
