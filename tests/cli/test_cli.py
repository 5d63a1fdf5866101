"""The command line: what each command does, and how it fails."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from isometry import __version__
from isometry.cli import app
from isometry.cli.methods import parameter_docs
from isometry.io import load, read_table
from isometry.registry import METHODS, all_methods, get

COMMAND = [sys.executable, "-m", "isometry.cli"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    X = rng.normal(size=(60, 4)) + 2 * (y[:, None] == ["a", "b", "c", "d"])
    pd.DataFrame(X, columns=list("pqrs")).assign(kind=y).to_csv(folder / "t.csv", index=False)
    np.savez(folder / "t.npz", X=X, y=y, feature_names=list("pqrs"))
    return folder


def run(*args, code=0):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def shell(*args, **options):
    return subprocess.run([*COMMAND, *map(str, args)], capture_output=True, text=True, **options)


def test_version():
    assert run("--version") == f"isometry {__version__}\n"


# ------------------------------------------------------------------------------------------------------ list, info


def test_list_shows_every_method_on_one_line():
    lines = run("list").splitlines()
    assert len(lines) == len(METHODS) + 2
    for row, line in zip(METHODS, lines[2:], strict=True):
        cells = re.split(r"\s{2,}", line.strip())
        assert cells == [row.key, row.name, row.family, row.sees, " ".join(row.title.split())]


def test_list_filters():
    assert len(run("list", "--family", "geometric").splitlines()) == len(all_methods(family="geometric")) + 2
    assert len(run("list", "--sees", "pairs").splitlines()) == len(all_methods(sees="pairs")) + 2
    assert "expected one of spectral" in run("list", "--family", "spectrum", code=2)
    assert "no method sees 'dreams'" in run("list", "--sees", "dreams", code=2)


def test_info_shows_the_row_and_the_parameters():
    text = run("info", "lmnn")
    row = get("LMNN")
    for part in (row.title, row.equation, row.cite, row.deviates, row.section):
        assert " ".join(part.split()) in text
    for name, parameter in inspect.signature(row.load()).parameters.items():
        assert re.search(rf"^{name} +{re.escape(repr(parameter.default))} +\S", text, re.M), name
    assert re.search(r"^mu .* μ in \[0, 1\], weight of the push term", text, re.M)
    assert re.search(r"^verbose .* show a progress bar", text, re.M)


def test_info_finds_rows_by_key():
    assert run("info", get("RCA").key.lower()).startswith("RCA (")
    assert "did you mean" in run("info", "RCAA", code=2)


@pytest.mark.parametrize("row", [m for m in METHODS if m.family != "deep"], ids=lambda m: m.key)
def test_info_of_every_classical_method(row):
    assert row.key in run("info", row.key)


def test_parameter_docs_are_parsed():
    doc = "Head.\n\nParameters\n----------\na, b : first\n    and more\nc : third : part\n\nNotes\n-----\nd : no"
    assert parameter_docs(doc) == {"a": "first and more", "b": "first and more", "c": "third : part"}
    assert parameter_docs("Nothing here.") == {}


# ------------------------------------------------------------------------------------------------------ compare


def test_compare_prints_writes_and_saves(folder, tmp_path):
    out = run(
        *("compare", folder / "t.csv", "--target", "kind", "--methods", "RCA,GMML", "--folds", 3, "--seed", 1),
        *("--report", tmp_path / "report", "--save", tmp_path / "best"),
    )
    assert "t: 60 rows, 4 features, labels kind" in out
    for name in ("RCA", "GMML", "Euclidean", "Covariance"):
        assert re.search(rf"^{name} +\d\.\d{{4}} +\[\d\.\d{{4}}, \d\.\d{{4}}\]", out, re.M)
    assert "Euclidean" in out.split("\n\n")[-1]  # the verdict
    assert f"report: {tmp_path / 'report' / 'index.html'}" in out and (tmp_path / "report" / "index.html").exists()
    best = load(tmp_path / "best")
    assert list(best.feature_names_in_) == list("pqrs")
    again = run("compare", folder / "t.npz", "--methods", "RCA,GMML", "--folds", 3, "--seed", 1)
    assert table_of(out) == table_of(again)  # the same numbers from csv and npz


def table_of(text):
    """Lines of scores, without the time of a fit."""
    return [line.rsplit(maxsplit=1)[0] for line in text.splitlines() if re.search(r"\[\d\.\d{4}, ", line)]


def test_compare_options_reach_the_comparison(folder):
    options = ["--scoring", "map@r", "--repeats", 2, "--tune", "--scaler", "none", "--neighbors", 1, "--float32"]
    out = run("compare", folder / "t.csv", "-y", "kind", "--methods", "RCA", "--folds", 2, *options)
    assert "map@r" in out.splitlines()[1]


def test_compare_runs_on_embedded_data():
    out = run("compare", "--methods", "RCA", "--folds", 2)
    assert out.startswith("wine: 178 rows, 13 features, labels cultivar")


def test_compare_takes_a_sample_of_a_named_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = run("compare", "iris", "--sample", 60, "--methods", "RCA", "--folds", 2)
    assert out.startswith("iris, 60 of 150 rows: 60 rows, 4 features, labels species")


@pytest.mark.parametrize(
    "args, words",
    [
        (["t.csv", "-y", "kind", "--methods", "nonsense"], "no method called 'nonsense'"),
        (["none.csv", "-y", "kind"], "there is no file"),
        (["t.csv", "-y", "kinds"], "did you mean 'kind'?"),
        (["t.csv"], "name their column in .*t.csv with --target"),
        (["t.csv", "-y", "kind", "--protocol", "ajar"], "must be 'closed' or 'open'"),
        (["t.csv", "-y", "kind", "--scoring", "luck"], "luck"),
        (["t.csv", "-y", "kind", "--folds", "1"], "n_splits=1 must be at least 2"),
        (["t.csv", "-y", "kind", "--folds", "many"], "--folds"),
        (["t.csv", "-y", "kind", "--save", "no/where"], "there is no folder"),
        (["t.csv", "-y", "kind", "--report", "t.csv/report"], "cannot make a folder for the report"),
        (["t.csv", "-y", "kind", "--report", "no/where.html"], "there is no folder"),
        (["t.csv", "-y", "kind", "--drop", "zz"], "no column 'zz'"),
        (["--target", "kind"], "wine is embedded and knows its labels"),
        (["iris", "--sample", "1000"], "between 2 and the number of rows, 150"),
    ],
)
def test_compare_usage_errors(args, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert re.search(words, run("compare", *args, code=2))


# ------------------------------------------------------------------------------------------------------ fit, transform


def test_fit_then_transform(folder, tmp_path):
    model = tmp_path / "m.safetensors"
    out = run(
        "fit",
        "RCA",
        folder / "t.csv",
        "-y",
        "kind",
        "-o",
        model,
        "--set",
        "n_components=2",
        "--set",
        "reduction=fisher",
    )
    assert "RCA(n_components=2, reduction='fisher'): 60 rows, 4 features → 2 dimensions" in out
    metric, table = load(model), read_table(folder / "t.csv", "kind")
    Z = metric.transform(pd.DataFrame(table.X, columns=table.feature_names))
    assert metric[0].__class__.__name__ == "StandardScaler" and Z.shape == (60, 2)
    for name, source in (("z.csv", "t.csv"), ("z.npz", "t.npz"), ("z.parquet", "t.csv")):
        target = ["-y", "y" if source == "t.npz" else "kind"]
        run("transform", model, folder / source, "-o", tmp_path / name, *target)
        back = read_table(tmp_path / name, "y" if name == "z.npz" else "kind")
        assert_array_equal(back.X, Z)
        assert_array_equal(back.y, table.y)
    run("transform", model, folder / "t.csv", "-o", tmp_path / "z.npy")
    assert_array_equal(np.load(tmp_path / "z.npy"), Z)


def test_fit_without_scaling_and_labels(folder, tmp_path):
    run("fit", "Covariance", folder / "t.csv", "--drop", "kind", "-o", tmp_path / "m", "--no-scale")
    X = read_table(folder / "t.csv", drop="kind").X
    expected = np.linalg.inv(np.cov(X.T))
    ratio = load(tmp_path / "m").mahalanobis_ / expected
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-8)


def test_fit_tells_how_the_search_ended(folder, tmp_path):
    done = CliRunner().invoke(
        app, ["fit", "NCA", str(folder / "t.csv"), "-y", "kind", "-o", str(tmp_path / "m"), "--set", "max_iter=1"]
    )
    assert done.exit_code == 0 and "1 iterations: " in done.stdout
    assert done.stderr.startswith("warning: NCA did not converge") and ".py" not in done.stderr
    assert load(tmp_path / "m")[-1].random_state == 0


@pytest.mark.parametrize(
    "args, code, words",
    [
        (["fit", "RCA", "t.csv", "-y", "kind", "-o", "m", "--set", "colour=red"], 2, "parameter of RCA: n_components"),
        (["fit", "RCA", "t.csv", "-y", "kind", "-o", "m", "--set", "reg"], 2, "expected name=value"),
        (["fit", "RCA", "t.csv", "-y", "kind", "-o", "no/m"], 2, "there is no folder"),
        (["fit", "RCA", "t.csv", "-y", "kind"], 2, "--out"),
        (["fit", "RAC", "t.csv", "-y", "kind", "-o", "m"], 2, "did you mean"),
        (["fit", "RCA", "t.csv", "-y", "kind", "-o", "m", "--set", "reduction=umap"], 1, "reduction='umap' is unknown"),
        (["fit", "RCA", "t.csv", "--drop", "kind", "-o", "m"], 1, "requires y"),
        (["transform", "none", "t.csv", "-o", "z.csv"], 2, "there is no file none"),
        (["transform", "t.csv", "t.csv", "-o", "z.csv"], 2, "no safetensors file"),
    ],
)
def test_errors_of_fit_and_transform(args, code, words, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir(folder))
    assert words in run(*args, code=code)
    assert sorted(os.listdir(folder)) == before


def test_transform_checks_the_columns(folder, tmp_path):
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "m")
    pd.DataFrame({"p": [1.0], "q": [2.0], "r": [3.0]}).to_csv(tmp_path / "u.csv", index=False)
    assert "no column 's'" in run("transform", tmp_path / "m", tmp_path / "u.csv", "-o", tmp_path / "z.csv", code=2)
    frame = pd.DataFrame({"s": [4.0, 0.0], "note": ["x", "y"], "r": [3.0, 0.0], "q": [2.0, 0.0], "p": [1.0, 0.0]})
    frame.to_csv(tmp_path / "v.csv", index=False)  # other order, one column more
    run("transform", tmp_path / "m", tmp_path / "v.csv", "-o", tmp_path / "z.npy")
    expected = load(tmp_path / "m").transform(frame[list("pqrs")])
    assert_array_equal(np.load(tmp_path / "z.npy"), expected)
    assert "not that of a table" in run("transform", tmp_path / "m", tmp_path / "v.csv", "-o", tmp_path / "z.x", code=2)


# ------------------------------------------------------------------------------------------------------ as a process


def test_errors_come_without_traceback_unless_asked(folder):
    args = ["fit", "RCA", folder / "t.csv", "-y", "kind", "-o", folder / "m", "--set", "reduction=umap"]
    done = shell(*args)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == "error: reduction='umap' is unknown; expected 'pca' or 'fisher'\n"
    done = shell("--debug", *args)
    assert done.returncode == 1 and "Traceback" in done.stderr and "ValueError: reduction='umap'" in done.stderr


def test_piped_output_is_plain_and_whole():
    done = shell("list", env={**os.environ, "COLUMNS": "40", "TERM": "xterm-256color"})
    assert done.returncode == 0 and done.stderr == "" and "\x1b" not in done.stdout
    longest = max(METHODS, key=lambda m: len(m.title))
    assert " ".join(longest.title.split()) in done.stdout


GMML_IS_STUCK = """
import threading
from isometry import GMML
from isometry.cli import main

def fit(self, X, y=None):
    print("stuck", flush=True)
    threading.Event().wait()

GMML.fit = fit
main()
"""


def test_interrupt_prints_what_is_finished(folder):
    options = [folder / "t.csv", "-y", "kind", "--methods", "RCA,GMML", "--folds", "20"]
    process = subprocess.Popen(
        [sys.executable, "-c", GMML_IS_STUCK, "compare", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "60 rows" in process.stdout.readline()
        assert process.stdout.readline() == "stuck\n"  # in the first fold; RCA has done it
        process.send_signal(signal.SIGINT)
        out, error = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in error
    assert "Interrupted after 3 of 80 fits" in out and re.search(r"^RCA +\d\.\d{4}", out, re.M)


def test_starts_fast_and_names_what_is_missing():
    light = "import sys, isometry.cli; assert not {'numpy', 'sklearn', 'pandas', 'torch'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", light], check=True)
    missing = "import sys; sys.modules['typer'] = None; import isometry.cli"
    done = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == 'the isometry command needs typer: pip install "isometry[cli]"\n'
