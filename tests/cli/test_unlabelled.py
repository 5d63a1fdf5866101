"""``--unlabelled drop``: rows without a label are left out, and the others keep their numbers and names."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from isometry import load
from isometry.cli import app
from isometry.cli.inputs import draw_sample
from isometry.io import read_table

DROP = ("--unlabelled", "drop")
TOLD = "3 of 60 rows have no label in kind: left out"


def run(*args, code=0):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, [*map(str, args)])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """60 rows of three kinds, three of them without one; the same rows whole, and without these three."""
    folder = tmp_path_factory.mktemp("unlabelled")
    r = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = r.normal(size=(60, 4)) + 2 * np.eye(4)[y]
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(kind=[f"k{c}" for c in y])
    frame.loc[[0, 7, 30], "kind"] = None
    frame.to_csv(folder / "t.csv", index=False)
    frame.dropna(subset=["kind"]).to_csv(folder / "labelled.csv", index=False)
    run("fit", "GMML", folder / "labelled.csv", "-y", "kind", "-o", folder / "m.safetensors", "-q")
    return folder


COMMANDS = {
    "compare": ("--methods", "RCA", "--folds", 3),
    "fit": ("-o", "new.safetensors"),
    "verify": ("--folds", 3),
    "explore": ("--methods", "RCA", "-o", "page.html"),
    "explain": ("--draws", 2),
    "transform": ("-o", "z.csv"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_refused_with_a_way_out_that_works(command, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = {"fit": ("GMML",), "explain": (folder / "m.safetensors",), "transform": (folder / "m.safetensors",)}
    args = (command, *first.get(command, ()), folder / "t.csv", "-y", "kind", *COMMANDS[command])
    told = run(*args, code=2)
    assert "3 missing labels, the first in row 0" in told and "--unlabelled drop" in told
    done = run(*args, *DROP)
    page = (tmp_path / "page.html").read_text() if command == "explore" else ""
    assert TOLD in done + page
    assert "expected refuse or drop" in run(*args, "--unlabelled", "skip", code=2)


def test_the_metric_is_that_of_the_labelled_rows(folder, tmp_path):
    run("fit", "GMML", folder / "t.csv", "-y", "kind", *DROP, "-o", tmp_path / "m.safetensors", "-q")
    X = pd.read_csv(folder / "t.csv")[list("pqrs")]
    expected = load(folder / "m.safetensors").transform(X)
    assert np.array_equal(load(tmp_path / "m.safetensors").transform(X), expected)
    told = [
        json.loads(run("verify", file, "-y", "kind", *more, "--folds", 3, "--json"))
        for file, more in ((folder / "labelled.csv", ()), (folder / "t.csv", DROP))
    ]
    assert told[0]["threshold"] == told[1]["threshold"] and told[0]["auc"] == told[1]["auc"]


def test_row_numbers_stay_those_of_the_file(folder, tmp_path):
    """Row 8 of the table is the sixth row that is left: what is told of it is told by its own number."""
    explain = ("explain", folder / "m.safetensors")
    more = ("-y", "kind", "--draws", 2, "--json")
    kept = [r for r in range(60) if r not in (0, 7, 30)]
    here = json.loads(run(*explain, folder / "t.csv", *more, *DROP, "--pair", 8, 59, "--report", tmp_path / "e.html"))
    there = json.loads(run(*explain, folder / "labelled.csv", *more, "--pair", kept.index(8), 56))
    assert here["pair"]["rows"] == [8, 59] and here["pair"]["shares"] == there["pair"]["shares"]
    assert [[kept[i], kept[j], by] for i, j, by in map(_listed, there["nearer"])] == [*map(_listed, here["nearer"])]
    page = (tmp_path / "e.html").read_text()
    assert "rows 8 and 59" in page and "59 (k2)" in page
    assert "has no such row with a label" in run(*explain, folder / "t.csv", *more, *DROP, "--pair", 7, 8, code=2)

    report = ("--folds", 3, "--methods", "RCA", "--report")
    run("compare", folder / "t.csv", "-y", "kind", *DROP, *report, tmp_path / "c.html", "-q")
    run("compare", folder / "labelled.csv", "-y", "kind", *report, tmp_path / "d.html", "-q")
    named = [_rows_of(tmp_path / name) for name in ("c.html", "d.html")]
    assert named[0] == [kept[r] for r in named[1]] and named[0]

    few = draw_sample(read_table(folder / "t.csv", "kind", unlabelled="drop"), 12, seed=0)
    whole = pd.read_csv(folder / "t.csv").iloc[few.rows]
    assert np.array_equal(whole[list("pqrs")], few.X) and np.array_equal(whole["kind"], few.y)


def test_texts_of_a_page_belong_to_their_rows(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv").assign(name=[f"name{k:02d}" for k in range(60)])
    frame.to_csv(tmp_path / "n.csv", index=False)
    page = tmp_path / "page.html"
    run("explore", tmp_path / "n.csv", "-y", "kind", *DROP, "--show", "name", "--model", folder / "m.safetensors",
        "-o", page, "-q")  # fmt: skip
    text = page.read_text()
    data = json.JSONDecoder().raw_decode(text, text.index('{"title"'))[0]
    assert data["rows"] == [r for r in range(60) if r not in (0, 7, 30)]
    assert data["text"] == [f"name{r:02d}" for r in data["rows"]]


def test_what_goes_by_row_numbers_is_refused(folder, tmp_path):
    pd.DataFrame({"a": [1, 2], "b": [4, 5]}).to_csv(tmp_path / "pairs.csv", index=False)
    table, out = folder / "t.csv", ("-o", tmp_path / "m.safetensors")
    told = run("verify", table, "--pairs", tmp_path / "pairs.csv", "--drop", "kind", *DROP, code=2)
    assert "--unlabelled is for the labels of --target, not for pairs" in told
    assert "row by row" in run("fit", "CCA", table, "--view", table, *DROP, *out, code=2)
    told = run("adapt", table, "--pairs", tmp_path / "pairs.csv", "--drop", "kind", *DROP, code=2)
    assert "not for --pairs" in told
    told = run("fit", "GMML", table, "--drop", "kind", *DROP, *out, code=2)
    assert "name it with --target" in told


def test_embeddings_without_a_label(folder, tmp_path):
    adapt = ("adapt", folder / "t.csv", "--labels", "kind", "--known-classes", "--folds", 3, "--no-heads")
    told = run(*adapt, code=2)
    assert "3 missing labels" in told and "--unlabelled drop" in told
    assert "3 of 60 embeddings have no label in kind: left out" in run(*adapt, *DROP)
    assert "expected refuse or drop" in run(*adapt, "--unlabelled", "skip", code=2)


def test_other_commands_do_not_name_the_option(folder, tmp_path):
    out = ("-o", tmp_path / "i.safetensors")
    told = run("index", "build", folder / "t.csv", "--id", "kind", *out, code=2)
    assert "--id kind" in told and "3 missing ids, the first in row 0" in told and "--unlabelled" not in told


def _listed(change):
    """(i, j, factor) of a pair that has moved."""
    i, j, by = change if isinstance(change, list) else change.values()
    return [i, j, round(by, 9)]


def _rows_of(page):
    """Numbers of the rows whose neighbours a page lists."""
    import re

    return [int(found) for found in re.findall(r"<th>row (\d+):", page.read_text())]
