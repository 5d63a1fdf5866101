"""The command line: what each command does, and how it fails."""

from __future__ import annotations

import inspect
import os
import re
import signal
import stat
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner

from isometry import __version__
from isometry.cli import app
from isometry.cli.inputs import draw_sample, load_embedded
from isometry.cli.methods import EVERYWHERE, documented, parameter_docs
from isometry.cli.outputs import UsageError
from isometry.io import Table, load, read_table
from isometry.registry import METHODS, all_methods, get
from isometry.registry.around import ROWS as AROUND
from tests.test_strength import planted

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


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "isometry", "--version"], capture_output=True, text=True)
    assert done.stdout == f"isometry {__version__}\n" and done.returncode == 0


def test_version():
    assert run("--version") == f"isometry {__version__}\n"


# ------------------------------------------------------------------------------------------------------ list, info


def test_list_shows_every_method_on_one_line():
    lines = run("list").splitlines()
    assert len(lines) == len(METHODS) + len(AROUND) + 2
    for row, line in zip((*METHODS, *AROUND), lines[2:], strict=True):
        cells = re.split(r"\s{2,}", line.strip())
        assert cells == [row.key, row.name, row.family, row.sees, " ".join(row.title.split())]


def test_list_filters():
    of_family = run("list", "--family", "geometric").splitlines()  # what stands around learners goes with every family
    assert len(of_family) == len(all_methods(family="geometric")) + len(AROUND) + 2
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
    assert re.search(r"^mu .* Weight μ of the push term", text, re.M)
    assert re.search(r"^verbose .* progress bar", text, re.M)


def test_info_finds_rows_by_key():
    assert run("info", get("RCA").key.lower()).startswith("RCA (")
    assert "did you mean" in run("info", "RCAA", code=2)


@pytest.mark.parametrize("row", [m for m in METHODS if m.family != "deep"], ids=lambda m: m.key)
def test_info_of_every_classical_method(row):
    assert row.key in run("info", row.key)


def test_parameter_docs_are_parsed():
    entries = 'a, b : int, default=1\n    First\n    and more.\nc : {"x", "y"}\n    Third : ``part``; and so on.'
    doc = f"Head.\n\nParameters\n----------\n{entries}\n\nNotes\n-----\nf : no\n    No."
    shared = {"a": "First and more.", "b": "First and more."}
    assert parameter_docs(doc) == shared | {"c": "Third : part; and so on."}
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
        (["iris", "--sample", "1000"], "between the number of classes, 3, and the number of rows, 150"),
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
    run("fit", "Covariance", folder / "t.csv", "--drop", "kind", "-o", tmp_path / "m", "--no-scale", "--set", "reg=0.0")
    X = read_table(folder / "t.csv", drop="kind").X
    expected = np.linalg.inv(np.cov(X.T))
    ratio = load(tmp_path / "m").mahalanobis_ / expected
    np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-8)


def test_fit_tells_how_the_search_ended(folder, tmp_path):
    done = CliRunner().invoke(
        app,
        ["fit", "NCA", str(folder / "t.csv"), "-y", "kind", "-o", str(tmp_path / "m")]
        + ["--set", "max_iter=1", "--set", "strength=1"],
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
import time
from isometry import GMML
from isometry.cli import main

def fit(self, X, y=None):
    print("stuck", flush=True)
    while True:  # a signal that comes just before a wait without end would not wake it
        time.sleep(0.01)

GMML.fit = fit
main()
"""


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl_c", "sigterm"])
def test_interrupt_prints_what_is_finished(number, code, folder):
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
        process.send_signal(number)
        out, error = process.communicate()
    finally:
        process.kill()
    assert process.returncode == code
    assert "Traceback" not in error
    assert "Interrupted after 3 of 80 fits" in out and re.search(r"^RCA +\d\.\d{4}", out, re.M)


def test_starts_fast_and_names_what_is_missing():
    light = "import sys, isometry.cli; assert not {'numpy', 'sklearn', 'pandas', 'torch'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", light], check=True)
    missing = "import sys; sys.modules['typer'] = None; import isometry.cli"
    done = subprocess.run([sys.executable, "-c", missing], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == 'the isometry command needs typer: pip install "isometry[cli]"\n'


# ------------------------------------------------------------------------------------------------ nothing is destroyed


@pytest.fixture
def fitted(folder, tmp_path):
    """A folder of its own with a table, a model, and other names for both."""
    (tmp_path / "t.csv").write_bytes((folder / "t.csv").read_bytes())
    run("fit", "RCA", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "m")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to("t.csv")
    os.link(tmp_path / "t.csv", tmp_path / "hard.csv")
    os.link(tmp_path / "m", tmp_path / "hard_m.csv")
    (tmp_path / "link_m.csv").symlink_to("m")
    return tmp_path


@pytest.mark.parametrize("out", ["t.csv", "./t.csv", "sub/../t.csv", "link.csv", "hard.csv"])
@pytest.mark.parametrize(
    "command",
    [
        ["fit", "RCA", "t.csv", "-y", "kind", "-o"],
        ["transform", "m", "t.csv", "-o"],
        ["compare", "t.csv", "-y", "kind", "--methods", "RCA", "--folds", "2", "--save"],
    ],
    ids=lambda c: c[0],
)
def test_an_output_that_is_the_table_is_refused(command, out, fitted, monkeypatch):
    monkeypatch.chdir(fitted)
    before = {f.name: f.read_bytes() for f in fitted.iterdir() if f.is_file()}
    assert f"{Path(out)} is the table itself" in run(*command, out, code=2)
    assert {f.name: f.read_bytes() for f in fitted.iterdir() if f.is_file()} == before


@pytest.mark.parametrize("out", ["hard_m.csv", "link_m.csv", "sub/../link_m.csv"])
def test_transform_does_not_replace_its_model(out, fitted, monkeypatch):
    monkeypatch.chdir(fitted)
    before = (fitted / "m").read_bytes()
    assert "is the model itself" in run("transform", "m", "t.csv", "-o", out, code=2)
    assert (fitted / "m").read_bytes() == before and (fitted / out).read_bytes() == before


@pytest.mark.parametrize("save, report", [("r.html", "r.html"), ("r/index.html", "r"), ("s/../r.html", "r.html")])
def test_report_and_model_need_two_names(save, report, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").mkdir()
    (tmp_path / "s").mkdir()
    options = ["-y", "kind", "--methods", "RCA", "--folds", 2, "--save", save, "--report", report]
    assert "are one file" in run("compare", folder / "t.csv", *options, code=2)


@pytest.mark.skipif(os.name != "posix", reason="pipes with names")
def test_pipes_and_devices_are_not_replaced(fitted):
    os.mkfifo(fitted / "pipe.csv")
    (fitted / "link_to_pipe").symlink_to("pipe.csv")
    for out in ("pipe.csv", "link_to_pipe"):  # devices are treated alike, but none is risked here
        assert "pipe or device" in run("fit", "RCA", fitted / "t.csv", "-y", "kind", "-o", fitted / out, code=2)
    assert "pipe or device" in run("transform", fitted / "m", fitted / "t.csv", "-o", fitted / "pipe.csv", code=2)
    assert stat.S_ISFIFO((fitted / "pipe.csv").stat().st_mode)
    assert "standard output" in run("fit", "RCA", fitted / "t.csv", "-y", "kind", "-o", "-", code=2)


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_transform_prints_csv(out, fitted):
    done = shell("transform", fitted / "m", fitted / "t.csv", "-y", "kind", "-o", out, cwd=fitted)
    assert done.returncode == 0 and done.stderr == "60 rows, 4 dimensions\n"
    run("transform", fitted / "m", fitted / "t.csv", "-y", "kind", "-o", fitted / "z.csv")
    assert done.stdout == (fitted / "z.csv").read_text() and not (fitted / "-").exists()


@pytest.mark.parametrize("failing, kept", [("isometry.report.write_report", "m"), ("isometry.io.save", "r.html")])
def test_a_result_that_cannot_be_written_does_not_lose_the_other(failing, kept, folder, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(failing, fail)
    outputs = ["--save", tmp_path / "m", "--report", tmp_path / "r.html"]
    options = ["-y", "kind", "--methods", "RCA", "--folds", 2, *outputs]
    done = CliRunner().invoke(app, list(map(str, ["compare", folder / "t.csv", *options])))
    assert done.exit_code == 1 and "error: no space left" in done.stderr and "Euclidean" in done.stdout
    assert [name for name in ("m", "r.html") if (tmp_path / name).exists()] == [kept]
    if kept == "m":
        assert "fitted on all rows (" in done.stdout and f"): {tmp_path / 'm'}" in done.stdout
        assert load(tmp_path / "m") is not None
    else:
        assert "saved" not in done.stdout


def test_compare_fails_where_every_metric_failed(folder, monkeypatch):
    from isometry.spectral.euclidean import Euclidean
    from isometry.spectral.rca import RCA

    def fail(*_, **__):
        raise ValueError("nothing works today")

    for learner in (Euclidean, RCA):
        monkeypatch.setattr(learner, "fit", fail)
    monkeypatch.setattr("isometry.spectral.covariance.Covariance.fit", fail)
    error = run("compare", folder / "t.csv", "-y", "kind", "--methods", "RCA", "--folds", 2, code=1)
    assert "every metric failed, Euclidean included" in error


def test_train_does_not_write_over_its_table(folder, tmp_path):
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "history.csv").write_bytes((folder / "t.csv").read_bytes())
    error = run("train", tmp_path / "history.csv", "-y", "kind", "-o", tmp_path, "--fresh", code=2)
    assert "is the table itself" in error
    assert (tmp_path / "history.csv").read_bytes() == (folder / "t.csv").read_bytes()


def test_train_keeps_what_it_reads_from_its_folder(folder, tmp_path):
    """A fresh run removes checkpoints and results of the one before: a table, settings or weights among them stay."""
    pytest.importorskip("torch")  # names in a file of settings are known with it alone
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "settings.json").write_text('{"fingerprint": ""}')
    (tmp_path / "network.safetensors").write_bytes(b"weights")
    (tmp_path / "checkpoints" / "c.toml").write_text("embedding = 3\n")
    (tmp_path / "checkpoints" / "t.csv").write_bytes((folder / "t.csv").read_bytes())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    to_train = ("-y", "kind", "-o", tmp_path, "--fresh", "--epochs", 1)
    for table, more, said in (
        (tmp_path / "checkpoints" / "t.csv", (), "the table"),
        (folder / "t.csv", ("--config", tmp_path / "checkpoints" / "c.toml"), "--config"),
        (folder / "t.csv", ("--weights", tmp_path / "network.safetensors"), "--weights itself"),
    ):
        error = run("train", table, *to_train, *more, code=2)
        assert said in error and ("would be lost" in error or "removes" in error)
        assert {path: path.read_bytes() for path in before} == before


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_termination_removes_half_written_files(fitted):
    code = """
import time
from isometry.cli.app import main
from isometry.cli import app
import isometry.io.store as store

def write(path, *_):
    path.write_bytes(b"half")
    print("writing", flush=True)
    while True:  # a signal that comes just before a wait without end would not wake it
        time.sleep(0.01)

store.write_tensors = write
main()
"""
    before = sorted(os.listdir(fitted)), (fitted / "m").read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "fit", "RCA", "t.csv", "-y", "kind", "-o", "m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=fitted,
    )
    try:
        assert process.stdout.readline() == "writing\n"
        assert len(os.listdir(fitted)) == len(before[0]) + 1
        process.terminate()
        _, error = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 143 and error == ""
    assert (sorted(os.listdir(fitted)), (fitted / "m").read_bytes()) == before


# ------------------------------------------------------------------------------------------------ names in the terminal


HARMFUL = "\x1b]0;gotcha\x07\x1b[31m:smile:[bold]\u202eabc\x9b2J"


def is_harmless(text):
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in text.replace("\n", ""))


def test_harmful_names_do_not_reach_the_terminal(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv").rename(columns={"kind": HARMFUL})
    frame.to_parquet(tmp_path / "t.parquet")
    out = run("compare", tmp_path / "t.parquet", "-y", HARMFUL, "--methods", "RCA", "--folds", 2)
    assert is_harmless(out) and ":smile:[bold]" in out and "\\x1b]0;gotcha\\x07" in out
    error = run("compare", tmp_path / "t.parquet", "-y", "nothing", code=2)
    assert is_harmless(error) and ":smile:[bold]" in error
    error = run("fit", "RCA", tmp_path / "t.parquet", "-y", "p", "-o", tmp_path / "m", code=2)
    assert is_harmless(error)
    frame.assign(**{"note" + HARMFUL: "x"}).to_parquet(tmp_path / "u.parquet")
    strict = ["--prepare", "none"]
    error = run("fit", "RCA", tmp_path / "u.parquet", "-y", HARMFUL, "-o", tmp_path / "m", *strict, code=2)
    assert is_harmless(error) and "note" in error


def test_harmful_text_of_a_file_does_not_reach_the_terminal(folder, tmp_path):
    from safetensors.numpy import save_file

    metadata = {"format": "isometry", "format_version": HARMFUL, "versions": HARMFUL}
    save_file({"x": np.ones(2)}, tmp_path / "m", metadata=metadata)
    error = run("transform", tmp_path / "m", folder / "t.csv", "-o", tmp_path / "z.csv", code=2)
    assert is_harmless(error) and ":smile:[bold]" in error


def test_names_that_cannot_be_printed(folder, tmp_path):
    strange = tmp_path / os.fsdecode(b"t\xff.csv")
    try:
        strange.write_bytes((folder / "t.csv").read_bytes())
    except OSError:
        pytest.skip("this file system has no such names")
    done = shell("fit", "RCA", strange, "-y", "nothing", "-o", tmp_path / "m")
    assert done.returncode == 2 and "Traceback" not in done.stderr and "nothing" in done.stderr


# ------------------------------------------------------------------------------------------------ tables of other kinds


def test_delimiter_decimal_and_drop_reach_the_table(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv").assign(**{"a note, long": "x", "day": "2020-01-31"})
    frame.to_csv(tmp_path / "t.csv", sep=":", decimal=",", index=False)
    drop = ["--drop", '"a note, long", day']
    options = ["--delimiter", ":", "--decimal", ",", *drop]
    run("fit", "RCA", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "m", *options)
    run("transform", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "z.npy", *options[:4])
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "m2")
    run("transform", tmp_path / "m2", folder / "t.csv", "-o", tmp_path / "z2.npy")
    # the same numbers; pandas may lay dropped columns out in another order, in which products round differently
    assert_allclose(np.load(tmp_path / "z.npy"), np.load(tmp_path / "z2.npy"), rtol=1e-10, atol=1e-12)
    out = run("compare", tmp_path / "t.csv", "-y", "kind", "--methods", "RCA", "--folds", 2, *options)
    assert "60 rows, 4 features" in out
    strict = [*options[:4], "--prepare", "none"]
    error = run("fit", "RCA", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "m", *strict, code=2)
    assert "--drop" in error and "day (dates" in error and "--one-hot" in error


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("command", ["fit", "compare", "verify", "explore", "transform", "explain"])
def test_numbers_too_large_to_be_scaled_are_named_by_their_column(command, gaps, fitted):
    out = fitted / "sub"
    frame = pd.read_csv(fitted / "t.csv")
    frame["q"] *= 1e200
    if gaps:
        frame.loc[3, "p"] = np.nan
    table = out / "huge.csv"
    frame.to_csv(table, index=False)
    line = {
        "fit": ("fit", "RCA", table, "-o", out / "m"),
        "compare": ("compare", table, "--methods", "RCA"),
        "verify": ("verify", table),
        "explore": ("explore", table, "--methods", "RCA", "-o", out / "page.html"),
        "transform": ("transform", fitted / "m", table, "-o", out / "z.csv"),
        "explain": ("explain", fitted / "m", table),
    }[command]
    error = run(*line, "-y", "kind", code=2)
    if not (gaps and command in ("transform", "explain")):  # where the gap itself is refused
        assert re.search(r"huge holds numbers as large as .*\(in column q\): .* Take a larger unit", error), error
    assert "NaN" not in error and sorted(p.name for p in out.iterdir()) == ["huge.csv"]


def test_a_table_as_it_comes_is_compared_saved_and_used(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv")
    frame.insert(0, "id", np.arange(60) * 3 + 7)
    frame["town"] = np.where(np.arange(60) % 4, "Oslo", "Rome")
    frame["day"] = "2020-01-31"
    frame.loc[::5, "q"] = np.nan
    frame.to_csv(tmp_path / "t.csv", sep=";", index=False)
    options = ["-y", "kind", "--methods", "RCA", "--folds", 2]
    done = CliRunner().invoke(app, list(map(str, ["compare", tmp_path / "t.csv", *options, "--save", tmp_path / "m"])))
    assert done.exit_code == 0, done.output
    assert "t: 60 rows, 6 features" in done.stdout and "left out of the features: id has a different" in done.stderr
    assert "gaps in q are filled" in done.stdout and "town is a category" in done.stdout
    run("transform", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "z.npy")
    cells = frame.drop(columns=["id", "kind"]).assign(day=18292.0)
    assert_array_equal(np.load(tmp_path / "z.npy"), load(tmp_path / "m").transform(cells))
    for learner, settings in (("RCA", ()), ("auto", ("--set", "learners=['RCA', 'GMML']", "--set", "n_splits=2"))):
        told = run("fit", learner, tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "f", *settings)
        assert "town is a category" in told and "ColumnTransformer" not in told
        run("transform", tmp_path / "f", tmp_path / "t.csv", "-o", tmp_path / "z.csv")
        assert len(pd.read_csv(tmp_path / "z.csv")) == 60
        error = run("export", tmp_path / "f", tmp_path / "f.npy", code=2)
        assert "fills gaps or codes categories" in error and "--drop" in error
    strict = ["--prepare", "none", "--drop", "id,day"]
    assert "town (text" in run("compare", tmp_path / "t.csv", *options, *strict, code=2)
    assert "values in 1 columns: q (12 of 60 rows)" in run(
        "compare", tmp_path / "t.csv", *options, *strict, "--one-hot", code=2
    )
    run("compare", tmp_path / "t.csv", *options, *strict, "--one-hot", "--impute")
    assert "expected auto or none" in run("compare", tmp_path / "t.csv", *options, "--prepare", "magic", code=2)


def test_a_metric_of_dates_maps_dates(folder, tmp_path):
    """Dates are numbers when they are read; a metric of numbers alone does not know which of them were dates."""
    frame = pd.read_csv(folder / "t.csv")
    frame["day"] = pd.date_range("2020-01-01", periods=len(frame)).strftime("%Y-%m-%d")
    frame.to_csv(tmp_path / "t.csv", index=False)
    run("fit", "RCA", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "m")
    text = run("transform", tmp_path / "m", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "z.csv")
    assert "60 rows, 5 dimensions" in text


def test_fit_says_what_it_does_to_the_columns(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv")
    frame.loc[3, frame.columns[0]] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    text = run("fit", "RCA", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "m")
    assert f"note: gaps in {frame.columns[0]} are filled with the median" in text


def test_fit_takes_the_embedded_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "RCA(): 150 rows, 4 features" in run("fit", "RCA", "iris", "-o", tmp_path / "m")


# ------------------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    "name, setting, words",
    [
        ("NCA", "max_iter=abc", "max_iter of NCA must be a whole number, such as max_iter="),
        ("NCA", "max_iter=1.5", "max_iter of NCA must be a whole number"),
        ("NCA", "tol=small", "tol of NCA must be a number"),
        ("NCA", "random_state=abc", "random_state of NCA must be a whole number or None"),
        ("RCA", "n_components=two", "n_components of RCA must be a whole number or None"),
        ("KDCA", "gamma=wide", "gamma of Kernelized must be a number or None"),
    ],
)
def test_settings_of_the_wrong_kind(name, setting, words, folder, tmp_path):
    error = run("fit", name, folder / "t.csv", "-y", "kind", "-o", tmp_path / "m", "--set", setting, code=2)
    assert f"--set {setting}: {words}" in error


@pytest.mark.parametrize("setting", ["tol=1", "max_iter=3", "random_state=None", "n_components=None", "init=pca"])
def test_settings_of_the_right_kind(setting, folder, tmp_path):
    run("fit", "NCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "m", "--set", "max_iter=2", "--set", setting)


@pytest.mark.parametrize("n", [3, 4, 10, 148, 149, 150])
def test_a_sample_of_any_size(n):
    table = draw_sample(load_embedded("iris", None), n, seed=0)
    counts = Counter(table.y.tolist())
    assert len(table.X) == len(table.y) == n and len(counts) == 3
    assert max(counts.values()) - min(counts.values()) <= 1  # iris has 50 of each
    whole = {tuple(row) for row in load_embedded("iris", None).X}
    assert all(tuple(row) in whole for row in table.X)


def test_a_sample_keeps_proportions_and_rare_classes():
    y = np.repeat(["many", "some", "one"], [900, 99, 1])
    table = Table(np.arange(1000.0)[:, None], y, ["a"], "y", "t")
    for n in (3, 10, 100, 555, 999):
        drawn = draw_sample(table, n, seed=1)
        counts = Counter(drawn.y.tolist())
        assert len(drawn.y) == n and counts["one"] == 1
        assert abs(counts["some"] - 0.099 * n) <= 1
        assert len(set(drawn.X.ravel())) == n
        assert_array_equal(drawn.y, y[drawn.X.ravel().astype(int)])
        assert_array_equal(draw_sample(table, n, seed=1).X, drawn.X)
    with pytest.raises(UsageError, match="between the number of classes, 3, and the number of rows, 1000"):
        draw_sample(table, 2, seed=1)


@pytest.mark.parametrize("module", ["typer", "isometry.cli.fit", "sklearn.pipeline", "isometry.io.store"])
def test_ctrl_c_during_imports(module, folder, tmp_path):
    code = f"""
import sys

class Interrupter:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupter())
from isometry.cli import main
main()
"""
    args = ["fit", "RCA", str(folder / "t.csv"), "-y", "kind", "-o", str(tmp_path / "m")]
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_ctrl_c_while_the_commands_are_read():
    code = """
import typer.main
from isometry.cli import main

def interrupted(*_, **__):
    raise KeyboardInterrupt

typer.main.get_command = interrupted
main()
"""
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("row", AROUND, ids=lambda m: m.key)
def test_what_stands_around_learners_is_shown_as_well(row):
    assert not {row.key, row.name} & {fact for m in METHODS for fact in (m.key, m.name)}
    for text in (run("info", row.key), run("info", row.name.lower())):
        assert text.startswith(row.name) and row.title in text and " ".join(row.equation.split()) in text
    with pytest.raises(KeyError, match=f"{row.name} is no method, but stands around one"):
        get(row.name)
    assert (row.name in run("list", "--sees", "none")) == (row.sees == "none")


@pytest.mark.parametrize("row", [*METHODS, *AROUND], ids=lambda m: m.key)
def test_every_parameter_has_a_meaning(row):
    if row.family == "deep":
        pytest.importorskip("torch")
    target = row.load()
    texts = documented(target)
    taken = inspect.signature(target).parameters.values()
    named = [p.name for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    empty = [name for name in named if not (texts.get(name) or EVERYWHERE.get(name))]
    assert not empty, f"{row.name}: say in the docstring what {', '.join(empty)} means"


def test_info_of_a_loss_says_what_its_base_takes():
    pytest.importorskip("torch")
    text = run("info", "Triplet")
    for name in ("margin", "swap", "distance", "miner", "normalize", "reduction"):
        assert re.search(rf"^{name} +\S+ +\S", text, re.M), name


def test_fit_auto_says_its_verdict_and_is_read_again(folder, tmp_path):
    model, mapped = tmp_path / "auto.safetensors", tmp_path / "mapped.csv"
    settings = ["--set", "learners=['RCA', 'GMML']", "--set", "budget=None"]
    said = run("fit", "auto", folder / "t.csv", "-y", "kind", "-o", model, *settings)
    assert " ".join(load(model).verdict_.split()) in " ".join(said.split())
    run("transform", model, folder / "t.csv", "--drop", "kind", "-o", mapped)
    assert len(mapped.read_text().splitlines()) == 61


def test_save_says_what_is_saved_and_why(tmp_path, monkeypatch):
    """What the verdict says to take, and not what leads by chance."""
    monkeypatch.chdir(tmp_path)
    options = ["--methods", "GMML[weighted]", "--folds", 3, "--save", "m"]
    out = run("compare", "wine", "--sample", 60, *options)
    assert "GMML[weighted], is +1.7 points" in " ".join(out.split())
    assert "saved Euclidean, fitted on all rows (no metric is reliably better: this is the preparation" in out
    assert "isometry fit saves another metric" in out and load("m")[-1].transform(np.eye(13)).shape == (13, 13)
    X, y = planted()
    pd.DataFrame(X).add_prefix("x").assign(kind=y).to_csv("t.csv", index=False)
    out = run("compare", "t.csv", "-y", "kind", "--methods", "FisherML", "--folds", 3, "--save", "m")
    assert "saved FisherML, fitted on all rows (reliably better than Euclidean)" in out


# ------------------------------------------------------------------------------------------------ for other programs


def test_json_is_all_that_is_printed(folder, tmp_path):
    import json

    rows = json.loads(run("list", "--family", "geometric", "--json"))
    assert [r["name"] for r in rows] == [m.name for m in (*all_methods(family="geometric"), *AROUND)]
    assert json.loads(run("info", "LMNN", "--json"))[0]["equation"] == get("LMNN").equation
    options = ["-y", "kind", "--methods", "RCA", "--folds", 2, "--save", tmp_path / "m", "--report", tmp_path / "r"]
    found = json.loads(run("compare", folder / "t.csv", *options, "--json"))
    assert {r["name"] for r in found["results"]} == {"Euclidean", "Covariance", "RCA"}
    assert found["verdict"] and found["saved"] == str(tmp_path / "m") and found["report"].endswith("index.html")
    rca = next(r for r in found["results"] if r["name"] == "RCA")
    assert rca["score"]["low"] <= rca["score"]["mean"] <= rca["score"]["high"] and rca["n_fits"] == 2
    whole = ["--set", "strength=1"]  # the search goes on to its end
    fitted = json.loads(run("fit", "NCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "f", *whole, "--json"))
    assert fitted["rows"] == 60 and fitted["n_iter"] > 0 and fitted["converged"] is True
    mapped = json.loads(run("transform", tmp_path / "f", folder / "t.csv", "-o", tmp_path / "z.csv", "--json"))
    assert mapped == {"file": str(tmp_path / "z.csv"), "rows": 60, "dimensions": 4}


def test_quiet_prints_nothing(folder, tmp_path):
    model, table = tmp_path / "m", folder / "t.csv"
    for args in (
        ["list"],
        ["info", "RCA"],
        ["compare", table, "-y", "kind", "--methods", "RCA", "--folds", 2],
        ["fit", "RCA", table, "-y", "kind", "-o", model],
        ["info", model],
        ["transform", model, table, "-o", tmp_path / "z.csv"],
    ):
        done = CliRunner().invoke(app, [*map(str, args), "--quiet"])
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", ""), args


def test_a_file_tells_what_it_is(folder, tmp_path, monkeypatch):
    import json

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    options = ["-y", "kind", "--methods", "RCA", "--folds", 2]
    for name in ("m", "n"):
        run("compare", folder / "t.csv", *options, "--save", tmp_path / name)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()
    card = json.loads(run("info", tmp_path / "m", "--json"))
    assert card["estimator"] == f"Pipeline(StandardScaler, {type(load(tmp_path / 'm')[-1]).__name__})"
    assert card["date"] == "1970-01-02" and card["data"]["rows"] == 60 and len(card["data"]["fingerprint"]) == 16
    assert card["versions"]["isometry"] == __version__ and 0 < card["score"]["mean"] <= 1
    out = run("info", tmp_path / "m")
    assert "1970-01-02" in out and card["verdict"] in out
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "f")
    other = json.loads(run("info", tmp_path / "f", "--json"))
    assert other["data"] == card["data"] and other["method"] == "RCA"
    assert "--measure" in other["quality"]["not measured"]
    told = run("fit", "RCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "f", "--measure")
    quality = json.loads(run("info", tmp_path / "f", "--json"))["quality"]
    assert set(quality) == {"knn", "map@r", "on"} and 0 <= quality["knn"]["before"] <= 1
    assert quality["on"] == "12 rows held out, learned from the 48 others" and quality["on"] in told
    assert f"knn (before {quality['knn']['before']}, after" in run("info", tmp_path / "f")
    assert "no file of isometry" in run("info", folder / "t.csv", code=2)
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "-o", tmp_path / "f")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", json.loads(run("info", tmp_path / "f", "--json"))["date"])


def test_the_shell_completes_methods():
    from isometry.cli.options import complete_method

    assert complete_method("lmn") == ["LMNN", "LMNN[semi_hard]"]
    assert "--show-completion" in run("--help")
    environment = {**os.environ, "_ISOMETRY_COMPLETE": "complete_bash", "COMP_WORDS": "isometry info LMN"}
    code = "import sys; sys.argv[0] = 'isometry'; from isometry.cli import app; app(prog_name='isometry')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "COMP_CWORD": "2"}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["LMNN", "LMNN[semi_hard]"]
