"""The Python of the README and on the pages of the site runs, page by page, as a reader would."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ["start.md", "choose.md", *sorted(f"guides/{p.name}" for p in (DOCS / "guides").glob("*.md"))]
COMMANDS = ["start.md"]  # pages whose commands are run as well, with the Python between them, in their order
NEEDS = {"isometry.deep": "torch", ".onnx": "onnxscript", "to_csv": "pandas"}
NEEDS |= {"onnxruntime": "onnxruntime", "import pandas": "pandas"}


def blocks(page, languages="python"):
    text = (DOCS / page).read_text("utf-8")
    found = re.findall(rf"^```({languages})\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [(language, block) for language, block in found if not block.startswith("pip install")]


def run_commands(block):
    """Lines of a shell, in the folder of the test; commands of isometry in this process, which is quicker."""
    from typer.testing import CliRunner

    from isometry.cli import app

    for line in block.splitlines():
        words = shlex.split(line, comments=True)
        if words[0] == "isometry":
            out = CliRunner().invoke(app, words[1:])
            assert out.exit_code == 0, f"{line}\n{out.output}"
        else:
            subprocess.run(line, shell=True, check=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ["../README.md", *(page for page in PAGES if blocks(page))])
def test_python_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for language, block in blocks(page, "python|sh" if page in COMMANDS else "python"):
        missing = [package for sign, package in NEEDS.items() if sign in block and find_spec(package) is None]
        if missing:
            pytest.skip(f"{page} needs {', '.join(missing)}")
        if language == "sh":
            run_commands(block)
        else:
            exec(compile(block, page, "exec"), names)


def test_a_loop_of_pytorch_metric_learning_gives_the_same_after_its_change():
    torch = pytest.importorskip("torch")
    pytest.importorskip("pytorch_metric_learning")
    ((_, block),) = blocks("coming_from.md", "py")
    before, after = block.split("# after")
    torch.manual_seed(0)
    shared = {
        "torch": torch,
        "model": torch.nn.Linear(8, 4),
        "images": torch.randn(24, 8),
        "labels": torch.arange(24) % 4,
    }
    values = []
    for part in (before, after):
        names = dict(shared)
        exec(compile(part, "coming_from.md", "exec"), names)
        values.append(float(names["value"].detach()))
    assert values[0] == pytest.approx(values[1], rel=1e-5) and values[0] > 0


def test_every_task_has_a_guide():
    index = (DOCS / "guides" / "index.md").read_text("utf-8")
    for page in PAGES[2:]:
        name = Path(page).stem
        assert name == "index" or re.search(rf"^{name}$", index, re.MULTILINE), f"the index does not list {page}"


def test_versions_on_the_page_are_those_that_are_tested():
    """The oldest are the bounds of pyproject.toml, the newest the pins of constraints.txt."""
    root = DOCS.parent
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    pins = dict(line.split("==") for line in (root / "constraints.txt").read_text("utf-8").split())
    page = (DOCS / "start.md").read_text("utf-8")
    told = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    asked = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    assert {name for name, _, _ in told} >= {"Python", "numpy", "scipy", "scikit-learn", "pandas", "torch"}
    for name, oldest, newest in told:
        if name == "Python":
            assert project["requires-python"] == f">={oldest}"
            assert f"Programming Language :: Python :: {newest}" in project["classifiers"]
        else:
            assert f"{name}>={oldest}" in asked and pins[name] == newest, name


def test_every_extra_for_users_is_on_the_page():
    extras = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    page = (DOCS / "start.md").read_text("utf-8")
    for extra in extras.keys() - {"browser", "docs", "publish", "test"}:  # of those who work on the library
        assert f"`{extra}`" in page or f"isometry[{extra}]" in page, extra


def test_numbers_on_the_page_are_those_that_the_command_and_the_block_give(tmp_path):
    """Scores to two points, which other kernels of BLAS may move by a sample or two, and what is concluded."""
    pytest.importorskip("pandas")
    from sklearn.datasets import load_digits, load_wine
    from typer.testing import CliRunner

    import isometry
    from isometry.cli import app

    page = (DOCS / "start.md").read_text("utf-8")
    command = re.search(r"^isometry (compare wines.csv .*?) --report", page, re.MULTILINE)[1].split()
    load_wine(as_frame=True).frame.to_csv(tmp_path / "wines.csv", index=False)
    out = CliRunner().invoke(app, [command[0], str(tmp_path / "wines.csv"), *command[2:], "--json"])
    found = {row["name"]: row["score"]["mean"] for row in json.loads(out.stdout)["results"]}
    told = dict(re.findall(r"^(\w+) +(0\.\d{4}) \[", page, re.MULTILINE))
    assert told.keys() >= {"GMML", "NCA", "Euclidean"}
    for name, score in told.items():
        assert float(score) == pytest.approx(found[name], abs=0.02), name
    assert "No metric is reliably better than Euclidean here" in page and '"best": null' in out.stdout
    percent = re.search(r"FisherML finds (\d+) % .* Euclidean distance finds (\d+) %", page)
    X, y = load_digits(return_X_y=True)
    searched = isometry.compare(X[:600], y[:600], ["FisherML"], scoring="map@r", n_splits=3)
    scores = {r.name: 100 * r.score.mean for r in searched.results}
    assert [int(p) for p in percent.groups()] == pytest.approx([scores["FisherML"], scores["Euclidean"]], abs=2)
