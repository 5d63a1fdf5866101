"""Files made to harm: `load` refuses them or reads wrong numbers, but runs, imports and allocates nothing."""

from __future__ import annotations

import contextlib
import copy
import inspect
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry.io import StoreError, load, save
from isometry.io import store as store_module
from isometry.io.classes import _modules, find_class
from isometry.spectral.rca import RCA
from tests.io.forgeries import (
    BIG,
    DEEP,
    MODELS,
    OLD,
    TREES,
    attempt,
    examine,
    make_originals,
    make_watchman,
    pack,
    sign,
    tree_of,
    unpack,
    with_tree,
)

pytest.importorskip("torch")  # networks are among the files


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    return make_originals(tmp_path_factory.mktemp("files"))


# ---------------------------------------------------------------------------------------------------- the watchman


@pytest.fixture(scope="module")
def watchman():
    return make_watchman()


@pytest.fixture
def memory():
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_the_watchman_watches(tmp_path, watchman):
    (tmp_path / "module_of_a_stranger.py").write_text("x = 1\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(AssertionError), watchman("none"):
            __import__("importlib").import_module("module_of_a_stranger")
    finally:
        sys.path.remove(str(tmp_path))


# ---------------------------------------------------------------------------------------------------- chosen by hand


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "m"
    rng = np.random.default_rng(0)
    save(make_pipeline(StandardScaler(), RCA()).fit(rng.normal(size=(20, 3)), np.arange(20) % 2), path)
    return path.read_bytes()


@pytest.mark.parametrize("version", ["1", "2"])
def test_forged_trees_are_refused(version, plain_model, tmp_path, watchman, memory):
    header, body = unpack(plain_model)
    header["__metadata__"]["format_version"] = version
    data = pack(header, body)
    assert len(TREES) > 200
    for tree in TREES:
        assert not attempt(with_tree(data, tree), tmp_path / "m", watchman), tree
        wrapped = {"$object": "isometry.RCA" if version == "2" else "isometry.rca:RCA", "params": {}}
        wrapped["state"] = {"x_": tree, "y_": copy.deepcopy(tree)}
        attempt(with_tree(data, wrapped), tmp_path / "m", watchman)
    for text in (DEEP, '{"$tuple":' * 3000 + "[]" + "}" * 3000, "[" + "9" * 9999 + "]", "NaN", "", "{", "\ud800"):
        header["__metadata__"]["estimator"] = text
        with contextlib.suppress(UnicodeEncodeError):
            sign(header, body)
        assert not attempt(pack(header, body), tmp_path / "m", watchman), text[:20]


def test_forged_headers_are_refused(plain_model, tmp_path, watchman, memory):
    header, body = unpack(plain_model)
    name = next(n for n, e in header.items() if n != "__metadata__" and e["data_offsets"][1] > 8)
    right = header[name]
    for change in (
        {"shape": [BIG, BIG]},
        {"shape": [2**61]},
        {"shape": [-3]},
        {"shape": [1] * 100},
        {"shape": "3"},
        {"shape": [3.0]},
        {"shape": [True, True, True]},
        {"data_offsets": [0, BIG]},
        {"data_offsets": [-8, 16]},
        {"data_offsets": [8, 0]},
        {"data_offsets": [0]},
        {"data_offsets": None},
        {"dtype": "F128"},
        {"dtype": "BF16"},
        {"dtype": ["F64"]},
        {"dtype": "BOOL"},
        {"extra": 1},
    ):
        assert not attempt(pack({**header, name: {**right, **change}}, body), tmp_path / "m", watchman), change
    for entry in (None, [], 3, "x", {}):
        assert not attempt(pack({**header, name: entry}, body), tmp_path / "m", watchman), entry
    for metadata in (None, [], 3, {"format": 3}, {"format": "isometry"}, {**header["__metadata__"], "estimator": 3}):
        assert not attempt(pack({**header, "__metadata__": metadata}, body), tmp_path / "m", watchman), metadata
    for version in ("0", "3", "-1", "x", "", "٢", "1.0", "9" * 9999):
        metadata = {**header["__metadata__"], "format_version": version}
        assert not attempt(pack({**header, "__metadata__": metadata}, body), tmp_path / "m", watchman), version
    for text in (b"[]", b"3", b'{"a":' * 9999, b'{"x":1,"x":1}', b"\xff\xfe"):
        assert not attempt(len(text).to_bytes(8, "little") + text + body, tmp_path / "m", watchman)
    for length in (2**63, 2**64 - 1, len(plain_model), 0):
        assert not attempt(length.to_bytes(8, "little") + plain_model[8:], tmp_path / "m", watchman)


def test_an_array_is_used_once_and_none_is_left_over(plain_model, tmp_path, watchman, memory):
    tree = tree_of(plain_model)
    scaler = tree["params"]["steps"][0]["$tuple"][1]
    scaler["state"]["mean_"] = scaler["state"]["scale_"]
    assert not attempt(with_tree(plain_model, tree), tmp_path / "m", watchman)
    with pytest.raises(StoreError, match=r"used twice|belong to nothing"):
        load(tmp_path / "m")
    scaler["state"]["mean_"] = 0.0
    assert not attempt(with_tree(plain_model, tree), tmp_path / "m", watchman)


def test_wide_text_of_old_files_stays_within_the_size_of_the_file(tmp_path, watchman, memory):
    """One long name among many makes an array of text hundreds of times as large as the file."""
    data = (OLD / "chunks.safetensors").read_bytes()
    tree = tree_of(data)
    names = ["x" * 3000, *map(str, range(2000))]
    tree["state"]["names_"] = {"$items": names, "dtype": "<U3000", "shape": [2001]}
    data = with_tree(data, tree)
    assert 100 * len(data) < 4 * 3000 * 2001
    assert attempt(data, tmp_path / "m", watchman)
    assert load(tmp_path / "m").names_.tolist() == names


def test_the_position_of_a_random_generator_is_checked(originals, tmp_path):
    for data in originals[2 * MODELS.index("random_state") :][:2]:
        tree = tree_of(data)
        state = tree["params"]["random_state"]["$random_state"]
        for position in (-1, 625, 10**6):
            state[2] = position
            (tmp_path / "m").write_bytes(with_tree(data, tree))
            with pytest.raises(StoreError, match="makes no sense"):
                load(tmp_path / "m")


def test_memory_of_a_pipeline_is_neither_written_nor_read(plain_model, tmp_path):
    tree = tree_of(plain_model)
    tree["params"]["memory"] = str(tmp_path / "cache")
    (tmp_path / "m").write_bytes(with_tree(plain_model, tree))
    model = load(tmp_path / "m")
    assert model.memory is None
    model.fit(np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2)
    assert not (tmp_path / "cache").exists()
    save(model.set_params(memory=str(tmp_path / "cache")), tmp_path / "m")
    assert str(tmp_path) not in (tmp_path / "m").read_text(errors="replace")


def test_parameters_come_under_their_name_alone(plain_model, tmp_path):
    """Not among the attributes, which are set after parameters were checked: neither a folder nor other steps."""
    for name, value in (("memory", str(tmp_path / "cache")), ("steps", [3]), ("verbose", True)):
        tree = tree_of(plain_model)
        tree["state"][name] = value
        (tmp_path / "m").write_bytes(with_tree(plain_model, tree))
        with pytest.raises(StoreError, match=f"cannot have an attribute '{name}'"):
            load(tmp_path / "m")


@pytest.mark.parametrize("name", ["fit", "transform", "predict", "score", "named_steps", "classes_", "__class__"])
def test_attributes_do_not_cover_methods_of_a_pipeline(name, plain_model, tmp_path):
    """Among them those that a pipeline has only where its last step has them."""
    tree = tree_of(plain_model)
    tree["state"][name] = {"$type": "float64"}  # a callable
    (tmp_path / "m").write_bytes(with_tree(plain_model, tree))
    with pytest.raises(StoreError, match=f"cannot have an attribute '{name}'"):
        load(tmp_path / "m")


@pytest.mark.parametrize("kind", ["estimator", "plain"])
def test_no_class_of_the_list_lets_its_methods_be_covered(kind):
    for name in _modules(kind):
        cls = find_class(name, kind)
        if cls is None:  # a function of the method table
            continue
        methods = [m for m in dir(cls) if hasattr(type(inspect.getattr_static(cls, m)), "__get__")]
        assert "__init__" in methods
        for method in methods:
            with pytest.raises(StoreError, match="cannot have an attribute"):
                store_module._check_attribute(cls, method)


def test_the_command_line_cannot_be_run_by_a_file(plain_model, tmp_path):
    header, body = unpack(plain_model)
    header["__metadata__"]["format_version"] = "1"
    forged = with_tree(pack(header, body), {"$object": "isometry.cli.__main__:x", "params": {}, "state": {}})
    (tmp_path / "m").write_bytes(forged)
    code = f"""
import sys
sys.argv = ["host", "list"]
from isometry.io import StoreError, load
try:
    load({str(tmp_path / "m")!r})
except StoreError as error:
    print("refused", "isometry.cli" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused False\n")


# ---------------------------------------------------------------------------------------------------- no files at all


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices with names")
def test_pipe_device_folder_and_impossible_names(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    code = f"from isometry.io import load; load({str(tmp_path / 'pipe')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "StoreError" in done.stderr and "pipe or device" in done.stderr
    for name, words in ((tmp_path, "folder"), ("/dev/zero", "device"), ("/dev/null", "device"), ("a\0b", "null")):
        with pytest.raises(StoreError, match=words):
            load(name)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError, match="cannot be read"):
        load(tmp_path / "loop")
    with pytest.raises(StoreError, match="there is no file"):
        load(tmp_path / "none")


def test_what_is_promised_is_written_down():
    """What the tests of this file hold is what SECURITY.md promises."""
    text = " ".join((Path(__file__).parents[2] / "SECURITY.md").read_text().split())
    for promise in (
        "runs nothing from it",
        "can only name classes of a fixed list (`isometry/io/classes.py`)",
        "The `memory` of a pipeline, a folder that scikit-learn would unpickle from, is never taken from a file",
        "Pipes, devices and folders are refused",
        "takes more than four times the size of the file",
        "ends with the estimator or with `StoreError`",
        "without control characters",
    ):
        assert promise in text, promise


# ---------------------------------------------------------------------------------------------------- at random


def test_hundreds_of_mutants(originals, tmp_path, watchman, memory):
    read = examine(480, originals, tmp_path / "m", watchman)
    assert 0 < read < 240  # some mutations change a harmless value


# ---------------------------------------------------------------------------------------------------- equal bytes


@pytest.mark.parametrize("name", MODELS)
def test_the_same_metric_gives_the_same_bytes(name, tmp_path):
    model = load(OLD / f"{name}.safetensors")
    save(model, tmp_path / "a")
    save(model, tmp_path / "b")
    save(load(tmp_path / "a"), tmp_path / "c")
    first = (tmp_path / "a").read_bytes()
    assert (tmp_path / "b").read_bytes() == first and (tmp_path / "c").read_bytes() == first


def test_other_programs_read_the_container(tmp_path):
    from safetensors import safe_open

    save(load(OLD / "DeepMetric.safetensors"), tmp_path / "m")
    with safe_open(tmp_path / "m", framework="numpy") as file:
        metadata, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert metadata["format"] == "isometry" and "isometry.deep.DeepMetric" in metadata["estimator"]
    assert metadata["sha256"] == store_module._digest(metadata["estimator"], arrays)
