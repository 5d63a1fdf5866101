"""Layers, light imports, registry and exports: rules that keep the code in order."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils import get_tags

import isometry
from isometry.base import LinearMetric, MetricLearner
from isometry.kernelized import KernelMetric
from isometry.mixed import MixedMetric
from isometry.moments import MomentsMetric
from isometry.registry import FAMILIES, METHODS, all_methods
from isometry.searched import SearchedMetric
from isometry.strength import AutomaticStrength, ScatterMetric
from isometry.supervision import Candidates, Chunklets, Labels, Pairs, Quadruplets, Targets, Triplets

ROOT = Path(isometry.__file__).parent
# each layer may import itself and the layers before it
LAYERS = [
    {"core"},
    {"parameters"},
    {"supervision"},
    {"sampling"},
    {"chunks"},
    {"eval"},
    {"registry"},
    {"base"},
    {"trial"},
    {"strength"},
    {"mixed"},
    {"searched"},
    {"moments"},
    {"fixed", "kernelized", "normalized", "shrunk"},
    {"spectral", "geometric", "probabilistic", "deep"},
    {"kernel"},  # kernel versions of linear methods
    {"explanation"},
    {"select"},
    {"io"},
    {"search"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# called inside a method only: the learner saves and scores itself
LATE = {("base", "io"), ("select", "io"), ("select", "report")}


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
        assert package != "plotly", "pages draw with less"
        if package == "matplotlib":
            assert me == "report", f"{package} belongs under report/"
            assert not top, f"{package} is imported inside functions"
        optional = {"PIL", "timm", "torchvision", "transformers", "tensorboard", "datasets"}
        if package in {"pandas", "pyarrow", "cvxpy", "pymanopt", "dask", "faiss", "onnx", *optional}:
            assert not top, f"{package} is imported inside functions"


def test_no_module_is_called_utils():
    assert not [p for p in modules() if p.stem in {"utils", "util", "helpers", "common", "misc"}]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_is_light():
    heavy = ("torch", "pandas", "plotly", "matplotlib", "sklearn", "typer", "isometry.registry")
    out = run(f"import sys, isometry; print([m for m in {heavy!r} if m in sys.modules])")
    assert out.strip() == "[]"


def test_the_method_table_imports_no_method():
    facts = "title, m.equation, m.cite, m.sees, m.family, m.name"
    code = (
        f"import sys; from isometry.registry import METHODS; [(m.{facts}) for m in METHODS];"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'numpy', 'sklearn') or "
        "m.startswith('isometry') and not m.startswith('isometry.registry') and m != 'isometry'])"
    )
    assert run(code).strip() == "[]"


def test_learners_do_not_import_torch_or_plotting():
    code = (
        "import sys, isometry; isometry.LMNN; print([m for m in ('torch', 'plotly', 'matplotlib') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_without_torch_a_loss_says_which_extra_it_needs():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import isometry.deep\ntry:\n    isometry.deep.Triplet\n"
        "except ModuleNotFoundError as error:\n    print(error)"
    )
    assert run(code).strip() == 'isometry.deep.Triplet needs torch: pip install "isometry[deep]"'


REFERENCE = r'(After )?[A-Z].+, ".+",( .+)? (17|18|19|20)\d\d( \(\w+\))?'  # authors, "title", place year


@pytest.mark.parametrize("row", METHODS, ids=lambda m: m.key)
def test_registry_row_is_complete(row):
    assert row.family in FAMILIES
    for field in ("key", "name", "title", "kind", "sees", "equation", "section", "target"):
        assert getattr(row, field).strip(), f"{row.key} has no {field}"
    assert re.fullmatch(REFERENCE, row.cite) or row.name == "Euclidean"
    if row.family == "deep":
        pytest.importorskip("torch")
    assert row.load().__doc__, f"{row.name} has no docstring"
    assert all(reason.strip() for reason in row.xfails.values()), "an exception needs a reason"


@pytest.mark.parametrize("row", METHODS, ids=lambda m: m.key)
def test_registry_row_repeats_nothing(row):
    """What the class says is not written a second time; variants and factories say what the class cannot."""
    if row.family == "deep":
        pytest.importorskip("torch")
    method = row.load()
    assert bool(row.variant) or not (row.own_title or row.own_equation or row.reference)
    assert bool(row.own_sees) == (row.kind != "estimator")
    assert bool(row.builds) == (row.kind == "estimator" and not isinstance(method, type))
    said = " ".join(inspect.getdoc(method).split())
    for own, shown in ((row.own_title, row.title), (row.own_equation, row.equation)):
        assert (" ".join(shown.split()) in said) == (not own), f"{shown!r} in the docstring of {row.target}"


def small_sides():
    """Each kind of supervision, of four samples."""
    y = np.array([0, 0, 1, 1])
    return {
        "labels": Labels(y),
        "pairs": Pairs([0, 0], [1, 2], [True, False], n=4),
        "chunklets": Chunklets(y, negative_links="all"),
        "triplets": Triplets([0], [1], [2], n_samples=4),
        "quadruplets": Quadruplets([0], [1], [2], [3], n_samples=4),
        "candidates": Candidates(np.eye(2, dtype=bool)[y]),
        "targets": Targets([0.1, 0.5, 0.7, 2.0]),
    }


@pytest.mark.parametrize("row", all_methods(kind="estimator"), ids=lambda m: m.name)
def test_the_table_says_what_supervision_the_learner_takes(row):
    from isometry.select.candidates import can_use

    if row.family == "deep":
        pytest.importorskip("torch")
    learner, told = row.make(), set(row.sees.split(", "))
    taken = {kind for kind, side in small_sides().items() if told != {"none"} and can_use(learner, side)}
    assert told - {"none"} <= taken
    # those are cut into pairs, or slices that stand for classes, which says less
    assert taken - told <= {"chunklets", "triplets", "quadruplets", "targets"}
    assert ("none" in told) == (not get_tags(learner).target_tags.required)


@pytest.mark.parametrize("row", all_methods(kind="loss"), ids=lambda m: m.name)
def test_the_table_says_which_tuples_a_loss_takes(row):
    torch = pytest.importorskip("torch")
    from isometry.deep import Siamese

    told = set(row.sees.split(", "))
    loss, (a, b, c) = row.example(), torch.randn(3, 4, 4)
    assert "views" not in told or hasattr(loss, "views")
    if not told & {"pairs", "triplets"}:
        with pytest.raises((TypeError, ValueError), match=r"nothing would be trained|has no form for pairs"):
            Siamese(loss)
        return
    batch = (a, b, torch.tensor([1, 0, 1, 0])) if "pairs" in told else (a, b, c)
    assert Siamese(loss)(torch.nn.Identity(), batch).isfinite()


def test_registry_keys_and_names_are_unique():
    keys, names = [m.key for m in METHODS], [m.name for m in METHODS]
    assert len(set(keys)) == len(keys)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_package_exports_the_methods_of_its_family(family):
    if family == "deep":
        pytest.importorskip("torch")
    package = importlib.import_module(f"isometry.{family}")
    methods = {row.target.split(":")[1]: row.load() for row in all_methods(family=family)}
    others = [name for names in getattr(package, "_OTHERS", {}).values() for name in names]
    assert package.__all__ == dir(package) == sorted({*methods, *others})
    for name in package.__all__:
        found = getattr(package, name)
        assert methods.get(name, found) is found
        assert not inspect.ismodule(found)
        if family != "deep":
            assert getattr(isometry, name) is found
    with pytest.raises(AttributeError, match="NoSuchMethod"):
        package.NoSuchMethod  # noqa: B018


def test_everything_is_what_the_package_says():
    names = ast.literal_eval(run("import isometry\nfrom isometry import *\ndel isometry\nprint(dir())"))
    found = {name for name in names if not name.startswith("__")}
    assert found == set(isometry.__all__)
    assert {"LMNN", "KDCA", "Kernelized", "Pairs", "PairVerifier", "RandomPairs", "compare", "load"} <= found
    assert not found & {"Any", "importlib", "annotations", "eval", "io"}
    assert isometry.PairVerifier is isometry.select.PairVerifier


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


def has_a_body(method) -> bool:
    function = getattr(method, "fget", None) or getattr(method, "__func__", method)
    return inspect.isfunction(function) and function.__code__.co_names != ("NotImplementedError",)


@pytest.mark.parametrize("method", all_methods(kind="estimator"), ids=lambda m: m.name)
def test_no_learner_overrides_a_public_method_that_has_a_body(method):
    if method.family == "deep":
        pytest.importorskip("torch")
    ours = [c for c in type(method.make()).__mro__ if c.__module__.startswith("isometry")]
    concrete = [(k, c) for k, c in enumerate(ours) if not c.__doc__.startswith("Abstract")]
    overrides = {
        (c.__name__, name)
        for k, c in concrete
        for name, value in vars(c).items()
        if not name.startswith("_") and has_a_body(value)
        if any(has_a_body(vars(base).get(name)) for base in ours[k + 1 :])
    }
    assert not overrides


# what the abstract learners ask of a method, or offer to it, under a private name
HOOKS = {
    "_sees": "kinds of supervision it takes",
    "_needs": "kinds of pairs that must not be missing",
    "_unlabelled": "what becomes of samples without a label",
    "_fit": "learns from samples",
    "_fit_moments": "learns from class moments",
    "_pooled": "whether the sum of the class scatters is enough",
    "_transform": "maps samples, where the map is not linear",
    "_store": "keeps the map",
}


def test_an_author_meets_few_private_names():
    strengths = [AutomaticStrength, ScatterMetric, MixedMetric, SearchedMetric]
    bases = [MetricLearner, LinearMetric, *strengths, MomentsMetric, KernelMetric]
    private = {name for base in bases for name in vars(base) if name.startswith("_") and not name.startswith("__")}
    abstract = {ROOT / "geometric" / "matrices.py", ROOT / "spectral" / "task_metric.py"}  # learners to derive from
    used = set()
    for family in ("spectral", "geometric", "probabilistic", "kernel"):
        for path in set((ROOT / family).glob("*.py")) - abstract:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                    used.add(node.attr)
                elif isinstance(node, ast.FunctionDef):
                    used.add(node.name)
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    used.add(node.targets[0].id)
    assert private & used - {"_n_features_out"} == set(HOOKS)  # that one is of scikit-learn
    assert len(HOOKS) <= 8
