"""Outputs of every command: none replaces an input, a pipe or another output, and one that fails loses no other."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from isometry.cli import app
from isometry.cli.outputs import as_options, explain
from isometry.io import load

KIND = ("-y", "kind")
NAMED = ("--id", "ids.csv", "--known-classes", "--folds", 2, "--no-heads")
ADAPT = ("adapt", "t.csv", "--labels", "kind", "--known-classes", "--folds", 2, "--no-heads")
JUDGE = ("verify", "t.csv", "--drop", "kind", "--pairs", "p.csv", "--model", "v")
RELEVANT = ("adapt", "t.csv", "--drop", "kind", "--relevance", "r.csv", "--documents", "d.csv")
WRITERS = [  # command, inputs among the above, ending of the output that is given last
    (("fit", "RCA", "t.csv", *KIND, "-o"), ("t.csv",), ""),
    (("transform", "m", "t.csv", *KIND, "-o"), ("t.csv", "m"), ".csv"),
    (("compare", "t.csv", *KIND, "--methods", "RCA", "--folds", 2, "--save"), ("t.csv",), ""),
    (("compare", "t.csv", *KIND, "--methods", "RCA", "--folds", 2, "--report"), ("t.csv",), ".html"),
    (("verify", "t.csv", *KIND, "--folds", 2, "--save"), ("t.csv",), ""),
    (("verify", "t.csv", *KIND, "--folds", 2, "--report"), ("t.csv",), ".html"),
    ((*JUDGE, "-o"), ("t.csv", "p.csv", "v"), ".csv"),
    ((*ADAPT, "--save"), ("t.csv",), ""),
    ((*ADAPT, "--report"), ("t.csv",), ".html"),
    ((*RELEVANT, "--save"), ("t.csv", "r.csv", "d.csv"), ""),
    (("adapt", "d.csv", "--labels", "l.csv", *NAMED, "--save"), ("d.csv", "l.csv", "ids.csv"), ""),
    (("compare", "d.csv", "--view", "e.csv", "--methods", "CCA", "--folds", 2, "--save"), ("d.csv", "e.csv"), ""),
    (("fit", "CCA", "d.csv", "--view", "e.csv", "-o"), ("d.csv", "e.csv"), ""),
    (("index", "build", "t.csv", "--drop", "kind", "--model", "m", "-o"), ("t.csv", "m"), ""),
    (("index", "query", "i", "t.csv", "--drop", "kind", "--model", "m", "-k", 2, "-o"), ("t.csv", "i", "m"), ".csv"),
    (("explain", "m", "t.csv", *KIND, "--draws", 2, "--report"), ("t.csv", "m"), ".html"),
    (("explore", "t.csv", *KIND, "--model", "m", "-o"), ("t.csv", "m"), ".html"),
    (("explore", "t.csv", *KIND, "--model", "m", "--model", "m2", "-o"), ("t.csv", "m2"), ".html"),
    *((("export", "m"), ("m",), e) for e in (".npy", ".safetensors", ".onnx", ".py", ".duckdb.sql", ".pgvector.sql")),
]
named = pytest.mark.parametrize("writer", WRITERS, ids=lambda w: f"{w[0][0]} {w[0][-1]} {w[2]}")
REPORTS = [w for w in WRITERS if w[2] == ".html"]


def run(*args, code=0):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, list(map(str, args)))
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A table, what is made of it, and tables that say something of its rows."""
    folder = tmp_path_factory.mktemp("made")
    rng = np.random.default_rng(0)
    y = np.arange(48) % 4
    X = pd.DataFrame(rng.normal(size=(48, 4)) + 2.5 * np.eye(4)[y], columns=list("pqrs"))
    X.assign(kind=[f"k{c}" for c in y]).to_csv(folder / "t.csv", index=False)
    X.to_csv(folder / "d.csv", index=False)
    X[["p", "q"]].to_csv(folder / "e.csv", index=False)
    rows = np.arange(48)
    pd.DataFrame({"id": rows + 100}).to_csv(folder / "ids.csv", index=False)
    pd.DataFrame({"id": rows + 100, "kind": y}).to_csv(folder / "l.csv", index=False)
    pd.DataFrame({"a": rows, "b": (rows + 4) % 48}).to_csv(folder / "p.csv", index=False)
    pd.DataFrame({"q": rows, "d": (rows + 4) % 48}).to_csv(folder / "r.csv", index=False)
    run("fit", "RCA", folder / "t.csv", *KIND, "-o", folder / "m")
    run("fit", "GMML", folder / "t.csv", *KIND, "-o", folder / "m2")
    run("verify", folder / "t.csv", *KIND, "--folds", 2, "--save", folder / "v")
    run("index", "build", folder / "t.csv", "--drop", "kind", "--model", folder / "m", "-o", folder / "i")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@named
def test_an_output_that_is_an_input_is_refused(writer, folder):
    command, inputs, ending = writer
    for name in inputs:
        os.link(name, f"same as {name}{ending}")
        before = contents(folder)
        error = run(*command, f"same as {name}{ending}", code=2)
        assert "which would be lost" in error
        assert contents(folder) == before


@named
@pytest.mark.skipif(os.name != "posix", reason="pipes with names")
def test_a_pipe_as_output_is_refused_before_anything_is_computed(writer, folder):
    command, _, ending = writer
    os.mkfifo(f"pipe{ending}")
    before = contents(folder)
    assert "pipe or device" in run(*command, f"pipe{ending}", code=2)
    assert stat.S_ISFIFO(os.stat(f"pipe{ending}").st_mode) and contents(folder) == before


@named
def test_a_folder_that_is_not_there_is_named_at_once(writer, folder):
    command, _, ending = writer
    assert "there is no folder" in run(*command, f"none/out{ending}", code=2)


@pytest.mark.parametrize("writer", REPORTS, ids=lambda w: w[0][0])
def test_a_page_in_a_folder_does_not_replace_an_input(writer, folder):
    command, inputs, _ = writer
    for name in inputs:
        (folder / f"pages of {name}").mkdir()
        os.link(name, folder / f"pages of {name}" / "index.html")
        assert "which would be lost" in run(*command, f"pages of {name}", code=2)
        assert (folder / name).read_bytes() == (folder / f"pages of {name}" / "index.html").read_bytes()
    assert "standard output" in run(*command, "-", code=2)
    assert "folder" in run(*command, "t.csv/pages", code=2)
    assert "ends in .html" in run(*command, os.devnull, code=2)


@pytest.mark.parametrize("writer", [w for w in WRITERS if w[2] == "" or w[0][0] == "export"], ids=lambda w: w[0][0])
@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_what_is_no_text_is_not_written_to_standard_output(writer, out, folder):
    command, before = writer[0], contents(folder)
    form = ("--form", "npy") if command[0] == "export" else ()
    assert "standard output" in run(*command, out, *form, code=2)
    assert contents(folder) == before


@pytest.mark.parametrize("command", [w[0][:-1] for w in WRITERS if w[0][-1] == "--save" and w[2] == ""][:3])
def test_report_and_model_need_two_names(command, folder):
    (folder / "pages").mkdir()
    for save, report in (("one.html", "one.html"), ("pages/index.html", "pages"), ("./one.html", "one.html")):
        assert "are one file" in run(*command, "--save", save, "--report", report, code=2)
    assert not (folder / "one.html").exists() and not any((folder / "pages").iterdir())


COMPARE = ("compare", "t.csv", *KIND, "--methods", "RCA", "--folds", 2)
VERIFY = ("verify", "t.csv", *KIND, "--folds", 2)


@pytest.mark.parametrize("command", [COMPARE, VERIFY, ADAPT], ids=lambda c: c[0])
@pytest.mark.parametrize("fails", ["page", "model", "both"])
def test_each_result_is_written_whatever_becomes_of_the_others(command, fails, folder, monkeypatch):
    def fail(*_, **__):
        raise OSError(f"no space left for the {fails}")

    pages = {"compare": "write_report", "verify": "write_verification_report", "adapt": "write_adaptation_report"}
    if fails != "model":
        monkeypatch.setattr(f"isometry.report.{pages[command[0]]}", fail)
    if fails != "page":
        monkeypatch.setattr("isometry.io.save", fail)
        monkeypatch.setattr("isometry.io.store.save", fail)
    done = CliRunner().invoke(app, [*map(str, command), "--report", "page.html", "--save", "new", "--json"])
    assert done.exit_code == 1 and done.stderr.count(f"error: no space left for the {fails}") == 1 + (fails == "both")
    written = json.loads(done.stdout)  # the numbers are said in any case
    assert written["saved"] == ("new" if fails == "page" else None)
    assert written["report"] == ("page.html" if fails == "model" else None)
    assert [os.path.exists(name) for name in ("new", "page.html")] == [fails == "page", fails == "model"]


@pytest.mark.parametrize(
    "command, page",
    [
        (("verify", "t.csv", *KIND, "--folds", 2), "isometry.report.write_verification_report"),
        (ADAPT, "isometry.report.write_adaptation_report"),
        (("explain", "m", "t.csv", *KIND, "--draws", 2), "isometry.report.explanation_page.write_explanation"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_page_that_cannot_be_written_loses_nothing_else(command, page, folder, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(page, fail)
    save = () if command[0] == "explain" else ("--save", "new")
    done = CliRunner().invoke(app, [*map(str, command), "--report", "page.html", *save])
    assert done.exit_code == 1 and "error: no space left" in done.stderr
    assert {"verify": "AUC", "adapt": "MAP@R", "explain": "share"}[command[0]] in done.stdout
    assert "report:" not in done.stdout
    if save:
        assert load("new") is not None and "saved: new" in done.stdout


def test_settings_are_named_as_options():
    """What `compare` says in Python by a setting, with the option in brackets, the command says by the option."""
    told = as_options(
        "to try them: learners='all' (--methods all); scoring='precision@3' (--scoring precision@3) shows"
    )
    assert told == "to try them: --methods all; --scoring precision@3 shows"
    plain = "A larger budget (--budget) adds them; leave it out with --drop c (in Python drop=['c'])"
    assert as_options(plain) == plain
    assert explain(ValueError("Lower n_splits=5 (--folds), or")) == "Lower --folds, or"


def test_notes_of_a_comparison_name_options():
    done = CliRunner().invoke(app, ["compare", "iris", "--folds", "3", "--budget", "5"])
    assert "--methods all" in done.stdout and "--scoring precision@3 shows its table" in done.stdout
    assert "learners=" not in done.stdout and "scoring=" not in done.stdout
