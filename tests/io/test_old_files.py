"""Model files of earlier versions: read by this one, to the same numbers, whatever has moved since."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import GMML
from isometry.io import StoreError, classes, load, save
from isometry.registry import all_methods
from tests.io.files_0_1.make import contents

FOLDERS = [Path(__file__).parent / "files_0_1"]
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.safetensors"))]


def today(path: str) -> str:
    """A place in a model under the names that attributes have today."""
    renamed = {old: new for table in classes.RENAMED_ATTRIBUTES.values() for old, new in table.items()}
    return ".".join(renamed.get(name, name) for name in path.split("."))


def test_old_chunks_go_on():
    """Moments of version 0.1 were kept about 0."""
    model, fresh = load(FOLDERS[0] / "chunks.safetensors"), GMML()
    with np.load(FOLDERS[0] / "data.npz") as data:
        X = data["X"]
    y = model.moments_.classes[np.arange(len(X)) % len(model.moments_.classes)]
    before = model.moments_.counts @ model.moments_.means  # sums of the rows so far
    model.partial_fit(X, y)
    fresh.partial_fit(X, y)
    assert_allclose(model.moments_.counts @ model.moments_.means, before + X.sum(axis=0), rtol=1e-12)
    assert np.all(model.moments_.counts >= fresh.moments_.counts)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_old_file_reads_to_the_same_values(file):
    if file.stem.startswith(("DeepMetric", "network")):
        pytest.importorskip("torch")
    expected = json.loads((file.parent / "contents.json").read_text(encoding="utf-8"))
    model = load(file)
    found = contents(model)  # later versions may have more parameters
    stored = {today(k): v for k, v in expected["contents"][file.stem].items()}
    assert {k: found.get(k) for k in stored} == stored  # bit for bit
    kind = expected["samples"][file.stem]
    with np.load(file.parent / "data.npz") as data:
        samples, before = data[kind], data[f"{file.stem} of {kind}"]
    # products of the same numbers differ in the last digits between processors; networks work in float32
    digits = 1e-5 if "weights_" in vars(model) or before.dtype == np.float32 else 1e-12
    assert_allclose(np.asarray(model.transform(samples)), before, rtol=0, atol=digits * np.abs(before).max())


def test_all_old_files_are_there():
    for folder in FOLDERS:
        expected = json.loads((folder / "contents.json").read_text(encoding="utf-8"))
        assert sorted(file.stem for file in folder.glob("*.safetensors")) == sorted(expected["contents"])


# every class that a file of version 0.1 may name, as it names it
CLASSES_0_1 = sorted(
    {
        name
        for file in FOLDERS[0].glob("*.safetensors")
        for name in re.findall(r'\\"\$(?:object|plain|named)\\": \\"([^"\\]+)\\"', file.read_bytes().decode("latin-1"))
    }
)


def test_every_estimator_of_version_0_1_is_among_the_old_files():
    pytest.importorskip("torch")  # DeepMetric is one of them
    kept = {name.partition(":")[2] for name in CLASSES_0_1}
    assert len(kept) == len(CLASSES_0_1) > 50
    now = {row.target.partition(":")[2] for row in all_methods(kind="estimator") if isinstance(row.load(), type)}
    assert len(kept & now) > 40  # the others may have got new names since


def test_new_files_say_public_names(tmp_path):
    pytest.importorskip("torch")  # DeepMetric is one of them
    for file in FILES:
        save(load(file), tmp_path / "m")
        data = (tmp_path / "m").read_bytes()
        names = re.findall(r'\\"\$(?:object|plain)\\": \\"([^"\\]+)\\"', data.decode("latin-1"))
        assert names and not [name for name in names if ":" in name]
        assert b'"format_version":"2"' in data
        model = load(file)
        left_out = tuple(f".{name}" for name in getattr(model, "_only_of_fit", tuple)())  # `transform` does not need it
        kept = {k: v for k, v in contents(model).items() if not k.startswith(left_out)} if left_out else contents(model)
        assert contents(load(tmp_path / "m")) == kept


def test_moved_and_renamed_classes_are_found(tmp_path, monkeypatch):
    """RCA moves to the module of GMML under another name, and two of its parameters change."""
    from isometry.geometric import gmml
    from isometry.spectral.rca import RCA

    class ChunkletAnalysis(RCA):
        pass

    monkeypatch.setattr(gmml, "ChunkletAnalysis", ChunkletAnalysis, raising=False)
    monkeypatch.setitem(classes._modules("estimator"), "isometry.ChunkletAnalysis", "isometry.geometric.gmml")
    monkeypatch.delitem(classes._modules("estimator"), "isometry.RCA")
    before = load(FOLDERS[0] / "NCA.safetensors")
    with pytest.raises(StoreError, match="not on the list"):
        load(FOLDERS[0] / "RCA.safetensors")
    monkeypatch.setitem(classes.RENAMED, "isometry.RCA", "isometry.ChunkletAnalysis")
    assert type(load(FOLDERS[0] / "RCA.safetensors")) is ChunkletAnalysis
    monkeypatch.setitem(classes.RENAMED_PARAMETERS, "isometry.NCA", {"max_iter": "tol", "tol": None})
    assert load(FOLDERS[0] / "NCA.safetensors").tol == before.max_iter
