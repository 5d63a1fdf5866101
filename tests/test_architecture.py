"""Layers, light imports, registry and exports: rules that keep the code in order."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import isometry
from isometry.registry import FAMILIES, METHODS, all_methods

ROOT = Path(isometry.__file__).parent
# each layer may import itself and the layers before it
LAYERS = [
    {"core"},
    {"parameters"},
    {"supervision"},
    {"sampling"},
    {"eval"},
    {"registry"},
    {"base"},
    {"moments"},
    {"kernelized"},
    {"spectral", "geometric", "probabilistic", "deep"},
    {"kernel"},  # kernel versions of linear methods
    {"select"},
    {"io"},
    {"report"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# called inside a method only: the learner saves and scores itself
LATE = {("base", "io"), ("select", "report")}


def modules():
    return sorted(ROOT.rglob("*.py"))


def layer(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports(path: Path):
    """(module, whether at the top level of the file) for every import."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in top


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_upward(path):
    me = layer(path)
    if me == "__init__":
        return
    for module, top in imports(path):
        if not module.startswith("isometry."):
            continue
        other = module.split(".")[1]
        if not top and (me, other) in LATE:
            continue
        same_family = other == me
        assert same_family or LEVEL[other] < LEVEL[me], f"{path.name} ({me}) imports {module}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_libraries_stay_where_they_belong(path):
    me = layer(path)
    for module, top in imports(path):
        package = module.split(".")[0]
        if package in {"torch", "accelerate"}:
            assert me == "deep", f"{package} belongs under deep/"
        if package in {"plotly", "matplotlib"}:
            assert me == "report", f"{package} belongs under report/"
            assert not top, f"{package} is imported inside functions"
        if package in {"pandas", "pyarrow", "cvxpy", "pymanopt", "dask", "faiss", "onnx"}:
            assert not top, f"{package} is imported inside functions"


def test_no_module_is_called_utils():
    assert not [p for p in modules() if p.stem in {"utils", "util", "helpers", "common", "misc"}]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_is_light():
    heavy = ("torch", "pandas", "plotly", "matplotlib", "sklearn", "typer")
    out = run(f"import sys, isometry; print([m for m in {heavy!r} if m in sys.modules])")
    assert out.strip() == "[]"


def test_learners_do_not_import_torch_or_plotting():
    code = (
        "import sys, isometry; isometry.LMNN; print([m for m in ('torch', 'plotly', 'matplotlib') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


@pytest.mark.parametrize("row", METHODS, ids=lambda m: m.key)
def test_registry_row_is_complete(row):
    assert row.family in FAMILIES
    for field in ("key", "name", "title", "kind", "sees", "equation", "cite", "section", "target"):
        assert getattr(row, field).strip(), f"{row.key} has no {field}"
    if row.family == "deep":
        pytest.importorskip("torch")
    assert row.load().__doc__, f"{row.name} has no docstring"
    assert all(reason.strip() for reason in row.xfails.values()), "an exception needs a reason"


def test_registry_keys_and_names_are_unique():
    keys, names = [m.key for m in METHODS], [m.name for m in METHODS]
    assert len(set(keys)) == len(keys)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "deep"])
def test_every_exported_class_has_a_row(family):
    import importlib

    package = importlib.import_module(f"isometry.{family}")
    targets = {row.target.split(":")[1] for row in METHODS if row.target.startswith(f"isometry.{family}.")}
    assert targets <= set(package.__all__)
    for name in package.__all__:
        assert getattr(isometry, name) is getattr(package, name)


def test_dir_lists_what_getattr_finds():
    pytest.importorskip("torch")
    for name in dir(isometry):
        assert getattr(isometry, name) is not None
    with pytest.raises(AttributeError, match="isometry list"):
        isometry.NoSuchMethod  # noqa: B018


@pytest.mark.parametrize("method", all_methods(kind="estimator"), ids=lambda m: m.name)
def test_no_method_leaves_a_hook_of_its_base_open(method):
    if method.family == "deep":
        pytest.importorskip("torch")
    made = inspect.getmembers(type(method.make()), inspect.isfunction)
    ours = [(name, f) for name, f in made if f.__module__.startswith("isometry")]
    assert any(name == "fit" for name, _ in ours)
    assert not [name for name, f in ours if f.__code__.co_names == ("NotImplementedError",)]
