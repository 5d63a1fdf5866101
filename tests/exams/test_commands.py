"""Every command with every bad table and every bad model: refused, or right; never a traceback, no input is changed."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from isometry.cli import app

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
LABELS = np.repeat(["ant", "bee", "cow", "dog"], 12)
X = RNG.normal(size=(48, 4)) + 2.5 * (np.arange(4) == np.repeat(np.arange(4), 12)[:, None])
CLEAN = pd.DataFrame(X.round(6), columns=list("pqrs")).assign(kind=LABELS)
TEXT = CLEAN.to_csv(index=False)
GOOD, REFUSED, EITHER = "as the clean table", "refused", "refused, or finite numbers"  # gaps and text are prepared
NO_CLASSES = "refused by what learns from classes"


def changed(**columns):
    return CLEAN.assign(**columns).to_csv(index=False)


def with_cell(text, column="q", row=7):
    frame = CLEAN.astype(object)
    frame.loc[row, column] = text
    return frame.to_csv(index=False)


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def parquet(frame):
    file = io.BytesIO()
    frame.to_parquet(file)
    return file.getvalue()


LINES = TEXT.splitlines()
NUMBERS = CLEAN[list("pqrs")].to_numpy()
TABLES = {  # name → (ending, contents, what must come of it where labels are needed)
    "clean": ("csv", TEXT, GOOD),
    "empty": ("csv", "", REFUSED),
    "blank lines only": ("csv", "\n\n\n", REFUSED),
    "header only": ("csv", LINES[0] + "\n", REFUSED),
    "one row": ("csv", "\n".join(LINES[:2]), NO_CLASSES),
    "two rows of two classes": ("csv", "\n".join([LINES[0], LINES[1], LINES[-1]]), NO_CLASSES),
    "no labels": ("csv", CLEAN.drop(columns="kind").to_csv(index=False), REFUSED),
    "labels only": ("csv", CLEAN[["kind"]].to_csv(index=False), REFUSED),
    "a name twice": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,q,s,kind", 1), REFUSED),
    "the target twice": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,kind,s,kind", 1), REFUSED),
    "rows longer than the header": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,r,kind", 1), REFUSED),
    "one longer row": ("csv", "\n".join([*LINES[:5], LINES[5] + ",7", *LINES[6:]]), REFUSED),
    "one shorter row": ("csv", "\n".join([*LINES[:5], "1.0,2.0", *LINES[6:]]), EITHER),
    "a missing cell": ("csv", with_cell(None), EITHER),
    "a missing label": ("csv", with_cell(None, "kind"), NO_CLASSES),
    "a missing column": ("csv", changed(q=np.nan), EITHER),
    "text in a column": ("csv", changed(q=np.where(np.arange(48) % 2, "red", "blue")), EITHER),
    "one text": ("csv", with_cell("unknown"), EITHER),
    "dates": ("csv", changed(q=pd.date_range("2020-01-01", periods=48)), EITHER),
    "complex numbers": ("csv", with_cell("1+2j"), EITHER),
    "infinity": ("csv", with_cell("inf"), EITHER),
    "NaN": ("csv", with_cell("nan"), EITHER),
    "a number beyond floats": ("csv", with_cell("1e999"), EITHER),
    "one class": ("csv", changed(kind="ant"), EITHER),
    "classes of one": ("csv", changed(kind=[f"c{k}" for k in range(48)]), NO_CLASSES),
    "infinity as a class": ("csv", changed(kind=np.where(LABELS == "ant", np.inf, 1.0)), NO_CLASSES),
    "classes that are huge floats": ("csv", changed(kind=np.where(LABELS == "ant", 1e17, 1e17 + 16)), NO_CLASSES),
    "classes that are fractions": ("csv", changed(kind=np.where(LABELS == "ant", 0.1, 0.2)), EITHER),
    "row numbers without a name": ("csv", CLEAN.to_csv(), GOOD),
    "semicolons": ("csv", CLEAN.to_csv(index=False, sep=";"), GOOD),
    "decimal commas": ("csv", CLEAN.to_csv(index=False, sep=";", decimal=","), GOOD),
    "tabs": ("csv", CLEAN.to_csv(index=False, sep="\t"), GOOD),
    "bars": ("csv", CLEAN.to_csv(index=False, sep="|"), GOOD),
    "byte order mark": ("csv", TEXT.encode("utf-8-sig"), GOOD),
    "Windows line ends": ("csv", TEXT.replace("\n", "\r\n"), GOOD),
    "quoted": ("csv", CLEAN.to_csv(index=False, quoting=1), GOOD),
    "compressed": ("csv.gz", gzip.compress(TEXT.encode()), GOOD),
    "UTF-16": ("csv", TEXT.encode("utf-16"), REFUSED),
    "Latin-1": ("csv", TEXT.replace("ant", "fourmi é").encode("latin-1"), REFUSED),
    "noise": ("csv", RNG.bytes(5000), REFUSED),
    "noise in the middle": ("csv", TEXT[:900].encode() + RNG.bytes(200) + TEXT[900:].encode(), REFUSED),
    "zero bytes": ("csv", TEXT[:900] + "\0\0\0" + TEXT[900:], EITHER),
    "a quote that does not end": ("csv", TEXT[:900] + '"' + TEXT[900:], REFUSED),
    "cut compression": ("csv.gz", gzip.compress(TEXT.encode())[:-200], REFUSED),
    "text called compressed": ("csv.gz", TEXT, REFUSED),
    "harmful names": ("csv", TEXT.replace("p,q", "\x1b[31mp,:smile:[bold]q", 1), EITHER),
    "harmful classes": ("csv", TEXT.replace("ant", "\x1b]0;ant\x07:smile:[bold]\u202e"), EITHER),
    "a harmful cell": ("csv", with_cell("\x1b[31mred\x9b2J"), EITHER),
    "a name of 10,000 signs": ("csv", TEXT.replace("p,q", "p" * 10_000 + ",q", 1), EITHER),
    "all constant": ("csv", changed(p=1.0, q=2.0, r=3.0, s=4.0), EITHER),
    "a constant column": ("csv", changed(q=2.0), EITHER),
    "a column twice under two names": ("csv", changed(t=CLEAN.p), EITHER),
    "truth values": ("csv", changed(q=np.arange(48) % 2 == 0), EITHER),
    "1e200": ("csv", changed(**{c: 1e200 * CLEAN[c] for c in "pqrs"}), EITHER),
    "1e-200": ("csv", changed(**{c: 1e-200 * CLEAN[c] for c in "pqrs"}), EITHER),
    "far from the origin": ("csv", changed(**{c: 1e12 + CLEAN[c] for c in "pqrs"}), EITHER),
    "equal rows": ("csv", pd.concat([CLEAN[::12]] * 12).to_csv(index=False), EITHER),
    "wide": ("csv", CLEAN.join(pd.DataFrame(RNG.normal(size=(48, 60)))).to_csv(index=False), EITHER),
    "npz, damaged": ("npz", npz(X=NUMBERS, y=LABELS)[:-600] + bytes(600), REFUSED),
    "npz, cut": ("npz", npz(X=NUMBERS, y=LABELS)[:700], REFUSED),
    "npz, objects": ("npz", npz(X=NUMBERS, y=LABELS.astype(object)), REFUSED),
    "npz, too few labels": ("npz", npz(X=NUMBERS, y=LABELS[:-1]), REFUSED),
    "npz, names that hold the target": ("npz", npz(X=NUMBERS, y=LABELS, feature_names=list("pqry")), REFUSED),
    "npz, images": ("npz", npz(X=NUMBERS.reshape(48, 2, 2), y=LABELS), REFUSED),
    "npz, too few names": ("npz", npz(X=NUMBERS, y=LABELS, feature_names=list("pq")), REFUSED),
    "npz, complex": ("npz", npz(X=NUMBERS + 1j, y=LABELS), REFUSED),
    "npz, nothing": ("npz", npz(), REFUSED),
    "npy, a vector": ("npy", TEXT, REFUSED),
    "parquet, damaged": ("parquet", parquet(CLEAN)[:-100] + bytes(100), REFUSED),
    "parquet, ragged vectors": ("parquet", parquet(CLEAN.assign(q=[[1.0] * (1 + k % 3) for k in range(48)])), REFUSED),
    "parquet, clean": ("parquet", parquet(CLEAN), GOOD),
    "an unknown ending": ("xlsx", TEXT, REFUSED),
}


# ------------------------------------------------------------------------------------------------- commands and results


def invoke(*args):
    done = CliRunner().invoke(app, list(map(str, args)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output and done.exit_code in (0, 1, 2), done.output
    assert done.exit_code == 0 or re.search(r"error|Error", done.stderr), done.output
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", done.output), "it controls the terminal"
    return done


def invoke_train(table, target, out, made):
    size = ["--epochs", 1, "--embedding", 3, "--protocol", "closed", "--validation", 0.5]
    return invoke("train", table, "-y", target, "-o", out / "run", *size)


CALLS = {  # name → the command for (table, target, folder of results, files made of the clean table)
    "fit": lambda t, y, out, made: invoke("fit", "RCA", t, "-y", y, "-o", out / "m"),
    "transform": lambda t, y, out, made: invoke("transform", made.model, t, "-y", y, "-o", out / "z.csv"),
    "compare": lambda t, y, out, made: invoke(
        "compare", t, "-y", y, "--methods", "RCA,GMML", "--folds", 3, "--save", out / "m"
    ),
    "train": invoke_train,
    "adapt": lambda t, y, out, made: invoke(
        "adapt", t, "--labels", y, "--known-classes", "--folds", 3, "--budget", 0, "--save", out / "m"
    ),
    "verify": lambda t, y, out, made: invoke("verify", t, "-y", y, "--folds", 2, "--save", out / "m"),
    "verify by a model": lambda t, y, out, made: invoke(
        "verify", t, "--drop", y, "--pairs", made.pairs, "--model", made.verifier, "-o", out / "z.csv"
    ),
    "index build": lambda t, y, out, made: invoke("index", "build", t, "--drop", y, "-o", out / "m"),
    "index build by a model": lambda t, y, out, made: invoke(
        "index", "build", t, "--drop", y, "--model", made.model, "-o", out / "m"
    ),
    "index query": lambda t, y, out, made: invoke(
        "index", "query", made.index, t, "--drop", y, "-k", made.k, "-o", out / "z.csv"
    ),
    "explain": lambda t, y, out, made: invoke(
        "explain", made.model, t, "-y", y, "--draws", 3, "--json", "--report", out / "page.html"
    ),
    "explore": lambda t, y, out, made: invoke("explore", t, "-y", y, "--methods", "RCA", "-o", out / "page.html"),
    "explore a model": lambda t, y, out, made: invoke(
        "explore", t, "-y", y, "--model", made.model, "-o", out / "page.html"
    ),
    "explore with texts": lambda t, y, out, made: invoke(
        "explore", t, "--model", made.model, "--show", y, "-o", out / "page.html"
    ),
}
NEEDS_NO_CLASSES = ("transform", "verify by a model", "index build", "index build by a model", "index query")
NEEDS_NO_CLASSES += ("explain", "explore a model", "explore with texts")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What was made of the clean table: a metric, a verifier, an index; and pairs of its rows."""
    folder = tmp_path_factory.mktemp("made")
    table, pairs, out = folder / "clean.csv", folder / "pairs.csv", folder / "out"
    out.mkdir()
    table.write_text(TEXT)
    pairs.write_text("a,b\n" + "\n".join(f"{k},{(7 * k + 5) % 48}" for k in range(48)))
    files = SimpleNamespace(pairs=pairs, table=table, k=3)
    for name, command in (("model", "fit"), ("verifier", "verify"), ("index", "index build by a model")):
        assert CALLS[command](table, "kind", out, files).exit_code == 0
        setattr(files, name, (out / "m").rename(folder / name))
    return files


def numbers(command, table, target, out, made, done):
    """What came of it: shares of features, points of a page, or rows as a written file maps, finds or judges them."""
    if command == "explain":
        features = json.loads(done.stdout)["features"]
        return np.array([[f["share"], f["low"], f["high"]] for f in sorted(features, key=lambda f: f["name"])], float)
    if command.startswith("explore"):
        page = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', (out / "page.html").read_text())
        spaces = json.loads(page[1])["spaces"]
        return np.hstack([np.array(part, float) for s in spaces for part in (s["widest"], s["distance"])])
    if command in ("fit", "compare", "adapt", "train"):
        metric = out / "run" / "model.safetensors" if command == "train" else out / "m"
        assert CALLS["transform"](table, target, out, SimpleNamespace(model=metric)).exit_code == 0
    if command == "verify":
        judge = SimpleNamespace(pairs=made.pairs, verifier=out / "m")
        if CALLS["verify by a model"](table, target, out, judge).exit_code != 0:
            return np.zeros((0, 3))  # there are fewer rows than the pairs name
    if command.startswith("index build"):
        built = SimpleNamespace(index=out / "m", k=min(3, int(done.stdout.split()[0])))
        assert CALLS["index query"](table, target, out, built).exit_code == 0
    return pd.read_csv(out / "z.csv").select_dtypes("number").to_numpy(dtype=float)


# ---------------------------------------------------------------------------------------------------------- every table


def written(folder, ending, contents):
    table = folder / f"t.{ending}"
    table.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    return table, "y" if ending == "npz" else "kind"


@pytest.mark.parametrize("command", CALLS)
def test_every_bad_table(command, made, tmp_path):
    assert len(TABLES) >= 40
    kept = {path: path.read_bytes() for path in (made.table, made.pairs, made.model, made.verifier, made.index)}
    results, wrong = {}, {}
    for name, (ending, contents, expected) in TABLES.items():
        folder = tmp_path / str(len(results))
        out = folder / "out"
        out.mkdir(parents=True)
        table, target = written(folder, ending, contents)
        before = table.read_bytes()
        try:
            done = CALLS[command](table, target, out, made)
            assert table.read_bytes() == before and sorted(p.name for p in folder.iterdir()) == ["out", table.name]
            results[name] = None
            if done.exit_code == 0:
                Z = results[name] = numbers(command, table, target, out, made, done)
                assert np.isfinite(Z).all() and len(Z) and "nan" not in done.stdout, done.stdout
                if command == "compare":
                    scores = re.findall(r" (-?\d\.\d+) \[(-?\d\.\d+), (-?\d\.\d+)\]", done.stdout)
                    least = -np.inf if "knn_r2" in done.stdout else 0.0  # of numbers to predict, which fractions are
                    rows = np.array(scores, dtype=float)
                    assert len(rows) and ((least <= rows) & (rows <= 1)).all()
                    assert (rows[:, 1] <= rows[:, 0]).all() and (rows[:, 0] <= rows[:, 2]).all()
                assert expected != REFUSED, "it was accepted"
                assert expected != NO_CLASSES or command in NEEDS_NO_CLASSES, "it was accepted"
            else:
                assert expected != GOOD and (expected != REFUSED or done.exit_code == 2), done.stderr
                if command != "train":
                    assert not any(out.iterdir())
                elif done.exit_code == 2:
                    assert not [*out.rglob("model.safetensors")]
                else:  # a training that ended badly keeps its weights, and says so
                    assert re.search(r"training stopped|no epoch was finished", done.stderr), done.stderr
            if expected == GOOD:
                np.testing.assert_allclose(results[name], results["clean"], rtol=1e-12, atol=1e-12)
        except AssertionError as error:
            wrong[name] = str(error)[:500]
            results.setdefault(name, None)
    assert wrong == {}
    assert sum(Z is not None for Z in results.values()) >= 8
    assert {path: path.read_bytes() for path in kept} == kept


@pytest.mark.parametrize("command", CALLS)
def test_what_is_no_file(command, made, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "out").mkdir()
    for name in ("none.csv", "folder.csv", "loop.csv", "pipe.csv", ""):
        done = CALLS[command](tmp_path / name, "kind", tmp_path / "out", made)
        assert done.exit_code == 2, done.output
    assert not any((tmp_path / "out").iterdir())


BESIDE = {  # tables that say something of the rows of another
    "pairs to verify": lambda t, made, out: ("verify", made.table, "--drop", "kind", "--pairs", t, "--save", out),
    "pairs to judge": lambda t, made, out: (
        *("verify", made.table, "--drop", "kind", "--pairs", t, "--model", made.verifier, "-o", f"{out}.csv"),
    ),
    "pairs to adapt to": lambda t, made, out: ("adapt", made.table, "--drop", "kind", "--pairs", t, "--save", out),
    "triplets": lambda t, made, out: ("adapt", made.table, "--drop", "kind", "--triplets", t, "--save", out),
    "relevance": lambda t, made, out: ("adapt", made.table, "--drop", "kind", "--relevance", t, "--save", out),
    "labels": lambda t, made, out: ("adapt", made.table, "--drop", "kind", "--labels", t, "--save", out),
    "ids": lambda t, made, out: ("adapt", made.table, "--labels", "kind", "--id", t, "--save", out),
    "documents": lambda t, made, out: (
        *("adapt", made.table, "--drop", "kind", "--relevance", made.pairs, "--documents", t, "--save", out),
    ),
}


@pytest.mark.parametrize("kind", BESIDE)
def test_every_bad_table_beside_another(kind, made, tmp_path):
    """None of them holds names of rows, so that all are refused; one column may be labels, if it is as long."""
    wrong = {}
    for k, (name, (ending, contents, _)) in enumerate(TABLES.items()):
        (tmp_path / str(k)).mkdir()
        table, _ = written(tmp_path / str(k), ending, contents)
        before, out = table.read_bytes(), tmp_path / str(k) / "m"
        try:
            done = invoke(*BESIDE[kind](table, made, out))
            assert table.read_bytes() == before
            right = (kind, name) == ("labels", "labels only")
            assert done.exit_code == 2 or (right and done.exit_code == 0), done.output
            assert right or list((tmp_path / str(k)).iterdir()) == [table]
        except AssertionError as error:
            wrong[name] = str(error)[:500]
    assert wrong == {}


# ---------------------------------------------------------------------------------------------------------- every model


READERS = {  # commands that read a model
    "info": lambda m, made, out: ("info", m),
    "transform": lambda m, made, out: ("transform", m, made.table, "-y", "kind", "-o", out / "z.csv"),
    "explain": lambda m, made, out: ("explain", m, made.table, "-y", "kind", "--report", out / "page.html"),
    "explore": lambda m, made, out: ("explore", made.table, "-y", "kind", "--model", m, "-o", out / "page.html"),
    "export": lambda m, made, out: ("export", m, out / "m.npy"),
    "index build": lambda m, made, out: (
        *("index", "build", made.table, "--drop", "kind", "--model", m, "-o", out / "i"),
    ),
    "index query": lambda m, made, out: ("index", "query", m, made.table, "--drop", "kind", "-o", out / "z.csv"),
    "index query by a model": lambda m, made, out: (
        *("index", "query", made.index, made.table, "--drop", "kind", "--model", m, "-o", out / "z.csv"),
    ),
    "verify": lambda m, made, out: (
        *("verify", made.table, "--drop", "kind", "--pairs", made.pairs, "--model", m, "-o", out / "z.csv"),
    ),
}


@pytest.mark.parametrize("command", READERS)
def test_a_table_is_no_model(command, made, tmp_path):
    (tmp_path / "out").mkdir()
    for ending, contents, _ in TABLES.values():
        model, _ = written(tmp_path, ending, contents)
        done = invoke(*READERS[command](model, made, tmp_path / "out"))
        assert done.exit_code == 2 and not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize("command", READERS)
def test_a_damaged_model_is_refused(command, made, tmp_path):
    (tmp_path / "out").mkdir()
    own = {"index query": made.index, "verify": made.verifier}.get(command, made.model)
    data = own.read_bytes()
    assert invoke(*READERS[command](own, made, tmp_path / "out")).exit_code == 0
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    for bad in (b"", data[:7], data[: len(data) // 2], data[:-1], data + b"\0", data[:200] + b"\0\0" + data[202:]):
        model = tmp_path / "m"
        model.write_bytes(bad)
        done = invoke(*READERS[command](model, made, tmp_path / "out"))
        assert done.exit_code == 2 and not any((tmp_path / "out").iterdir()), done.output
    os.mkfifo(tmp_path / "pipe")
    for name in ("none", "pipe", "out"):
        done = invoke(*READERS[command](tmp_path / name, made, tmp_path / "out"))
        assert done.exit_code == 2 and not any((tmp_path / "out").iterdir()), done.output


@pytest.mark.parametrize("command", READERS)
def test_a_model_of_another_kind_is_refused_or_right(command, made, tmp_path):
    """A metric, a verifier and an index: each is read by the commands that can use it."""
    (tmp_path / "out").mkdir()
    for model in (made.model, made.verifier, made.index):
        before = model.read_bytes()
        done = invoke(*READERS[command](model, made, tmp_path / "out"))
        assert done.exit_code in (0, 2) and model.read_bytes() == before, done.output
        assert done.exit_code == 0 or not any((tmp_path / "out").iterdir())
        for path in (tmp_path / "out").iterdir():
            path.unlink()
