"""Files made to harm: `load` refuses them or reads wrong numbers, but runs, imports and allocates nothing."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry.io import StoreError, load, save
from isometry.io import store as store_module
from isometry.io.classes import _modules, find_class
from isometry.spectral.rca import RCA

OLD = Path(__file__).parent / "files_0_1"
MODELS = ["pipeline", "chunks", "sampler", "random_state", "KernelFisherML", "BayesianML", "SPDGMML", "DeepMetric"]
SLACK = 2**20  # bytes beside the arrays: Python objects of a header of some kilobytes


# ------------------------------------------------------------------------------------------------ the parts of a file


def unpack(data: bytes) -> tuple[dict, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def pack(header: dict, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def sign(header: dict, body: bytes) -> None:
    """Make the checksum right, as a forger would."""
    types = store_module.read_tensors.__globals__["DTYPES"]
    arrays = {
        name: np.frombuffer(body, types[e["dtype"]], int(np.prod(e["shape"])), e["data_offsets"][0]).reshape(e["shape"])
        for name, e in header.items()
        if name != "__metadata__"
    }
    header["__metadata__"]["sha256"] = store_module._digest(header["__metadata__"]["estimator"], arrays)


def with_tree(data: bytes, tree) -> bytes:
    """The file with another tree of values, and a checksum that is right."""
    header, body = unpack(data)
    header["__metadata__"]["estimator"] = json.dumps(tree)
    sign(header, body)
    return pack(header, body)


def tree_of(data: bytes):
    return json.loads(unpack(data)[0]["__metadata__"]["estimator"])


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Files of both formats."""
    folder, files = tmp_path_factory.mktemp("files"), []
    for name in MODELS:
        files.append((OLD / f"{name}.safetensors").read_bytes())
        save(load(OLD / f"{name}.safetensors"), folder / name)
        files.append((folder / name).read_bytes())
    return files


# ---------------------------------------------------------------------------------------------------- the watchman


WATCHED = {"exec", "compile", "marshal.loads", "import", "os.system", "os.exec", "os.fork", "os.remove", "os.mkdir"}
watch = {"on": False, "seen": [], "file": ""}


def note(event, args):
    if not watch["on"]:
        return
    other_file = event == "open" and not isinstance(args[0], int) and str(args[0]) != watch["file"]
    if event in WATCHED or other_file or event.startswith(("subprocess", "socket", "ctypes", "pickle", "shutil")):
        watch["seen"].append((event, str(args)[:200]))


@pytest.fixture(scope="module")
def watchman():
    """Reports what a block imports, runs or opens; the classes that files may name are imported before."""
    for kind in ("estimator", "plain", "named"):
        for name in _modules(kind):
            find_class(name, kind)
    sys.addaudithook(note)  # for the life of the process: therefore it can be switched off

    @contextlib.contextmanager
    def watching(file):
        modules = set(sys.modules)
        watch.update(on=True, seen=[], file=str(file))
        try:
            yield
        finally:
            watch["on"] = False
        assert not watch["seen"] and set(sys.modules) == modules

    return watching


def attempt(data: bytes, path: Path, watchman) -> bool:
    """Whether the file was read; that nothing but that and a StoreError can happen is asserted."""
    path.write_bytes(data)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with watchman(path):
        try:
            model = load(path)
        except StoreError:
            model = None
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak <= 4 * len(data) + SLACK, f"{peak} bytes for a file of {len(data)}"
    assert model is None or isinstance(model, BaseEstimator)
    return model is not None


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


BIG, DEEP = 10**18, "[" * 5000 + "]" * 5000
NAMES = [
    *("os:system", "os.system", "subprocess:Popen", "builtins:eval", "isometry.cli.__main__:main", "antigravity:x"),
    *("isometry.cli.app:main", "isometry.cli.app:app", "isometry.io.store:os", "isometry.io.store:PCA", "this:s"),
    *("isometry.base:MetricLearner", "isometry.sampling:Sampler", "isometry.deep.trainer:Trainer", "isometry.KDCA"),
    *("isometry.report.page:Path", "isometry.deep:__getattr__", "sklearn.utils:Bunch", "isometry.MetricLearner"),
    *("sklearn.preprocessing:FunctionTransformer", "sklearn.pipeline:FeatureUnion", "isometry", ":", "", "a" * 9999),
    *("isometry.select.calibrate:PairVerifier", "isometry.deep.DeepMetricc", "isometry.__main__", 7, None, ["x"], {}),
]
TREES = [
    *({"$object": name, "params": {}, "state": {}} for name in NAMES),
    *({"$plain": name, "state": {}} for name in [*NAMES, "isometry.RCA", "isometry.EdgeList"]),
    *({"$named": name, "items": [[1]]} for name in [*NAMES, "isometry.RCA", "isometry.Labels", "isometry.EdgeList"]),
    *({"$object": "isometry.RCA", "params": params, "state": {}} for params in ({"no": 1}, {"self": 1}, [], None, 3)),
    *({"$object": "isometry.RCA", "params": {}, "state": {k: 1}} for k in ("fit", "transform", "__class__", "a b", "")),
    *({"$object": "isometry.RCA", "params": {}, "state": state} for state in ([], None, 3, [["a", 1]])),
    *({"$object": "sklearn.pipeline.Pipeline", "params": {"steps": s}, "state": {}} for s in (None, [], 3, [3], ["a"])),
    {"$object": "sklearn.pipeline.Pipeline", "params": {"steps": [{"$tuple": ["a", 3]}]}, "state": {}},
    {"$object": "sklearn.pipeline.Pipeline", "params": {}, "state": {}},
    {"$object": "isometry.RCA"},
    *({"$items": ["a"] * n, "dtype": t, "shape": [n]} for n in (0, 1, 99) for t in ("<U999999999", "O", "f8", "V9", 3)),
    *({"$items": ["a"], "dtype": "<U1", "shape": s} for s in ([2], [BIG, BIG], [-1, -1], [0, BIG], "x", None, [1.5])),
    *({"$range": r} for r in ([0, BIG, 1], [0, 1, 0], [], ["a"], 3, None, [0, 10**4000, 1])),
    *({"$slice": r} for r in ([0, BIG, 1], [], [1, 2, 3, 4], 3)),
    *({"$float": f} for f in ("1e999", "nan", "x", None, 3, "9" * 9999)),
    *({"$scalar": s} for s in (3, None, [1], {"$array": "0"}, {"$array": "99"})),
    *({"$complex": s} for s in (3, None, [1], {"$array": "0"}, {"$array": "99"})),
    *({"$text": s} for s in (3, None, [1], {}, "0", "99")),
    *({"$array": s} for s in (3, None, [1], {}, "0", "99")),
    *({"$tuple": s} for s in (3, None, "x", {"$tuple": [1]})),
    *({"$dict": s} for s in (3, None, "xy", [1], [[1]], [[[1], 2]], [[{"$dict": []}, 1]])),
    *({"$random_state": s} for s in ([], 3, ["MT19937", [1], 0, 0, 0.0], ["MT19937", {"$array": "0"}, 10**9, 0, 0.0])),
    *([], {}, None, True, 3, 1.5, "x", [[]], {"$unheard_of": 1}, {"params": {}, "$object": "isometry.RCA"}, {"$": 1}),
]


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


# ---------------------------------------------------------------------------------------------------- at random


HOSTILE = [None, True, -1, 0, 1, BIG, -BIG, 1e308, 0.5, "", "x", "0", "1", "nan", [], {}, [[]], *NAMES, *TREES[-60:]]


def places(tree, path=()):
    """Every node of a JSON tree, as the way to it."""
    yield path
    for k, v in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(v, (*path, k))


def at(tree, path):
    for k in path:
        tree = tree[k]
    return tree


def mutate_json(tree, rng):
    """Some nodes replaced, removed, renamed, repeated, or exchanged for other nodes of the same tree."""
    tree = {"root": copy.deepcopy(tree)}
    for _ in range(rng.integers(1, 4)):
        ways = [p for p in places(tree) if len(p) > 1]
        if not ways:
            break
        *parent, k = ways[rng.integers(len(ways))]
        node = at(tree, parent)
        act = rng.integers(5)
        if act == 0:
            node[k] = copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
        elif act == 1:
            del node[k]
        elif act == 2:
            node[k] = copy.deepcopy(at(tree, ways[rng.integers(len(ways))]))
        elif act == 3 and isinstance(node, dict):
            node[("fit", "__class__", "$object", "$array", "a b", "shape")[rng.integers(6)]] = node.pop(k)
        elif isinstance(node, list):
            node.extend(copy.deepcopy(node[: 1 + rng.integers(50)]))
    return tree.get("root")


def mutate_bytes(data, rng):
    """Bytes changed, cut out, repeated or put in; the first kilobyte, where the sizes stand, is hit more often."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        end = min(len(data), 1000) if rng.random() < 0.5 else len(data)
        start = int(rng.integers(max(end, 1)))
        act, n = rng.integers(4), int(rng.integers(1, 40))
        if act == 0 and data:
            data[start % len(data)] = rng.integers(256)
        elif act == 1:
            del data[start : start + n]
        elif act == 2:
            data[start:start] = data[start : start + n]
        else:
            data[start:start] = rng.bytes(n)
    return bytes(data)


def mutant(data, rng):
    kind = rng.integers(4)
    if kind == 0:
        return mutate_bytes(data, rng)
    header, body = unpack(data)
    if kind == 1:
        return pack(mutate_json(header, rng), body)
    tree = mutate_json(tree_of(data), rng)
    if kind == 2:
        return with_tree(data, tree)
    header["__metadata__"]["estimator"] = json.dumps(tree).replace('"$', '"$' if rng.random() < 0.5 else '"', 1)
    sign(header, body)
    return pack(header, body)


def examine(n, originals, path, watchman):
    read, rng = 0, np.random.default_rng(n)
    for k in range(n):
        read += attempt(mutant(originals[k % len(originals)], rng), path, watchman)
    return read


def test_hundreds_of_mutants(originals, tmp_path, watchman, memory):
    read = examine(480, originals, tmp_path / "m", watchman)
    assert 0 < read < 240  # some mutations change a harmless value


@pytest.mark.slow
def test_ten_thousand_mutants(originals, tmp_path, watchman, memory):
    read = examine(10_000, originals, tmp_path / "m", watchman)
    assert 0 < read < 5_000


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
