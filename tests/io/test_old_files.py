"""Model files of earlier versions: read by this one, to the same numbers, whatever has moved since."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.io import load
from tests.io.files_0_1.make import contents

FOLDERS = [Path(__file__).parent / "files_0_1"]
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.safetensors"))]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_old_file_reads_to_the_same_values(file):
    expected = json.loads((file.parent / "contents.json").read_text(encoding="utf-8"))
    model = load(file)
    found = contents(model)  # later versions may have more parameters
    assert {k: found.get(k) for k in expected["contents"][file.stem]} == expected["contents"][file.stem]  # bit for bit
    kind = expected["samples"][file.stem]
    with np.load(file.parent / "data.npz") as data:
        samples, before = data[kind], data[f"{file.stem} of {kind}"]
    # products of the same numbers differ in the last digits between processors; networks work in float32
    digits = 1e-5 if "weights_" in vars(model) or before.dtype == np.float32 else 1e-10
    assert_allclose(np.asarray(model.transform(samples)), before, rtol=0, atol=digits * np.abs(before).max())


def test_all_old_files_are_there():
    for folder in FOLDERS:
        expected = json.loads((folder / "contents.json").read_text(encoding="utf-8"))
        assert sorted(file.stem for file in folder.glob("*.safetensors")) == sorted(expected["contents"])
