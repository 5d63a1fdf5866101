"""Model files made to harm, and a watchman who sees what reading them does."""

from __future__ import annotations

import contextlib
import copy
import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import isometry
from isometry.io import StoreError, load, save
from isometry.io import store as store_module
from isometry.io.classes import _modules, find_class

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


def make_originals(folder):
    """Files of both formats."""
    files = []
    for name in MODELS:
        files.append((OLD / f"{name}.safetensors").read_bytes())
        save(load(OLD / f"{name}.safetensors"), folder / name)
        files.append((folder / name).read_bytes())
    for k, model in enumerate(make_newer()):
        save(model, folder / f"newer{k}")
        files.append((folder / f"newer{k}").read_bytes())
    return files


def make_newer():
    """Models of kinds that the oldest format did not know: made of others, with links, ids, columns and choices."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 3)) + y[:, None]
    frame = pd.DataFrame(X, columns=list("abc")).assign(d=np.array(["u", "v", "w"])[rng.integers(0, 3, 60)])
    parts = [("numbers", StandardScaler(), list("abc")), ("words", OneHotEncoder(handle_unknown="ignore"), ["d"])]
    metric = isometry.RCA(reg=0.1).fit(X, y)
    yield isometry.PairVerifier(isometry.GMML(reg=0.1), n_splits=3, random_state=0).fit(X, y)
    yield isometry.AutoMetric([isometry.RCA(reg=0.1)], n_splits=3).fit(X, y)
    yield isometry.Normalized(isometry.RCA(reg=0.1)).fit(X, y)
    yield isometry.Index(metric, quantizer="int8").fit(X, ids=[f"row {k}" for k in range(60)])
    yield make_pipeline(ColumnTransformer(parts), isometry.RCA(reg=0.1)).fit(frame, y)


# ---------------------------------------------------------------------------------------------------- the watchman


WATCHED = {"exec", "compile", "marshal.loads", "import", "os.system", "os.exec", "os.fork", "os.remove", "os.mkdir"}
watch = {"on": False, "seen": [], "file": ""}


def note(event, args):
    if not watch["on"]:
        return
    other_file = event == "open" and not isinstance(args[0], int) and str(args[0]) != watch["file"]
    if event in WATCHED or other_file or event.startswith(("subprocess", "socket", "ctypes", "pickle", "shutil")):
        watch["seen"].append((event, str(args)[:200]))


def make_watchman():
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


def attempt(data: bytes, path: Path, watchman, slack: int = SLACK) -> bool:
    """Whether the file was read; that nothing but that and a StoreError can happen is asserted."""
    path.unlink(missing_ok=True)  # ext4 waits for the disk where a file is cut to nothing and written anew
    path.write_bytes(data)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with watchman(path):
        try:
            model = load(path)
        except StoreError:
            model = None
    peak = tracemalloc.get_traced_memory()[1] - before
    assert peak <= 4 * len(data) + slack, f"{peak} bytes for a file of {len(data)}"
    assert model is None or isinstance(model, BaseEstimator)
    return model is not None


# ---------------------------------------------------------------------------------------------------- chosen by hand


BIG, DEEP = 10**18, "[" * 5000 + "]" * 5000
NAMES = [
    *("os:system", "os.system", "subprocess:Popen", "builtins:eval", "isometry.cli.__main__:main", "antigravity:x"),
    *("isometry.cli.app:main", "isometry.cli.app:app", "isometry.io.store:os", "isometry.io.store:PCA", "this:s"),
    *("isometry.base:MetricLearner", "isometry.sampling:Sampler", "isometry.deep.trainer:Trainer", "isometry.KDCA"),
    *("isometry.report.page:Path", "isometry.deep:__getattr__", "sklearn.utils:Bunch", "isometry.MetricLearner"),
    *("sklearn.preprocessing:FunctionTransformer", "sklearn.pipeline:FeatureUnion", "isometry", ":", "", "a" * 9999),
    *("isometry.select.result:Comparison", "isometry.deep.DeepMetricc", "isometry.__main__", 7, None, ["x"], {}),
]
TREES = [
    *({"$object": name, "params": {}, "state": {}} for name in NAMES),
    *({"$plain": name, "state": {}} for name in [*NAMES, "isometry.RCA", "isometry.EdgeList"]),
    *({"$named": name, "items": [[1]]} for name in [*NAMES, "isometry.RCA", "isometry.Labels", "isometry.EdgeList"]),
    *({"$object": "isometry.RCA", "params": params, "state": {}} for params in ({"no": 1}, {"self": 1}, [], None, 3)),
    *({"$object": "isometry.RCA", "params": {}, "state": {k: 1}} for k in ("fit", "transform", "__class__", "a b", "")),
    *({"$object": "isometry.RCA", "params": {}, "state": {k: 1}} for k in ("reg", "n_components", "partial_fit")),
    *(
        {"$object": "sklearn.pipeline.Pipeline", "params": {"steps": [{"$tuple": ["a", None]}]}, "state": {k: "x"}}
        for k in ("memory", "steps", "transform", "predict", "inverse_transform")
    ),
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
