"""Every command with every bad table: refused, or a right result; never a traceback, and no input is changed."""

from __future__ import annotations

import gzip
import io
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from isometry.cli import app
from isometry.io import read_table

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
LABELS = np.repeat(["ant", "bee", "cow", "dog"], 12)
X = RNG.normal(size=(48, 4)) + 2.5 * (np.arange(4) == np.repeat(np.arange(4), 12)[:, None])
CLEAN = pd.DataFrame(X.round(6), columns=list("pqrs")).assign(kind=LABELS)
TEXT = CLEAN.to_csv(index=False)
GOOD, REFUSED, EITHER = "as the clean table", "refused", "refused, or finite numbers"  # gaps and text are prepared


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
    "one row": ("csv", "\n".join(LINES[:2]), REFUSED),
    "two rows of two classes": ("csv", "\n".join([LINES[0], LINES[1], LINES[-1]]), REFUSED),
    "no labels": ("csv", CLEAN.drop(columns="kind").to_csv(index=False), REFUSED),
    "labels only": ("csv", CLEAN[["kind"]].to_csv(index=False), REFUSED),
    "a name twice": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,q,s,kind", 1), REFUSED),
    "the target twice": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,kind,s,kind", 1), REFUSED),
    "rows longer than the header": ("csv", TEXT.replace("p,q,r,s,kind", "p,q,r,kind", 1), REFUSED),
    "one longer row": ("csv", "\n".join([*LINES[:5], LINES[5] + ",7", *LINES[6:]]), REFUSED),
    "one shorter row": ("csv", "\n".join([*LINES[:5], "1.0,2.0", *LINES[6:]]), EITHER),
    "a missing cell": ("csv", with_cell(None), EITHER),
    "a missing label": ("csv", with_cell(None, "kind"), REFUSED),
    "a missing column": ("csv", changed(q=np.nan), EITHER),
    "text in a column": ("csv", changed(q=np.where(np.arange(48) % 2, "red", "blue")), EITHER),
    "one text": ("csv", with_cell("unknown"), EITHER),
    "dates": ("csv", changed(q=pd.date_range("2020-01-01", periods=48)), EITHER),
    "complex numbers": ("csv", with_cell("1+2j"), EITHER),
    "infinity": ("csv", with_cell("inf"), EITHER),
    "NaN": ("csv", with_cell("nan"), EITHER),
    "a number beyond floats": ("csv", with_cell("1e999"), EITHER),
    "one class": ("csv", changed(kind="ant"), EITHER),
    "classes of one": ("csv", changed(kind=[f"c{k}" for k in range(48)]), REFUSED),
    "infinity as a class": ("csv", changed(kind=np.where(LABELS == "ant", np.inf, 1.0)), REFUSED),
    "classes that are huge floats": ("csv", changed(kind=np.where(LABELS == "ant", 1e17, 1e17 + 16)), REFUSED),
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
COMMANDS = ("fit", "transform", "compare", "train")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "clean.csv").write_text(TEXT)
    invoke("fit", "RCA", folder / "clean.csv", "-y", "kind", "-o", folder / "m")
    return folder / "m"


def invoke(*args):
    done = CliRunner().invoke(app, list(map(str, args)))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.output and done.exit_code in (0, 1, 2), done.output
    assert done.exit_code == 0 or re.search(r"error|Error", done.stderr), done.output
    return done


def call(command, table, target, out, model):
    options = ["-y", target]
    if command == "fit":
        return invoke("fit", "RCA", table, "-o", out / "m", *options)
    if command == "transform":
        return invoke("transform", model, table, "-o", out / "z.csv", *options)
    if command == "compare":
        return invoke("compare", table, *options, "--methods", "RCA,GMML", "--folds", 3, "--save", out / "m")
    size = ["--epochs", 1, "--embedding", 3, "--protocol", "closed", "--validation", 0.5]
    return invoke("train", table, "-o", out / "run", *options, *size)


def numbers(command, table, target, out):
    """What came of it: the table as it was mapped, or mapped by the model that was written."""
    if command != "transform":
        metric = out / "run" / "model.safetensors" if command == "train" else out / "m"
        assert call("transform", table, target, out, metric).exit_code == 0
    return read_table(out / "z.csv", target).X


@pytest.mark.parametrize("command", COMMANDS)
def test_every_bad_table(command, model, tmp_path):
    assert len(TABLES) >= 40
    results, wrong = {}, {}
    for name, (ending, contents, expected) in TABLES.items():
        folder = tmp_path / str(len(results))
        out = folder / "out"
        out.mkdir(parents=True)
        table = folder / f"t.{ending}"
        table.write_bytes(contents if isinstance(contents, bytes) else contents.encode())
        before, target = table.read_bytes(), "y" if ending == "npz" else "kind"
        try:
            done = call(command, table, target, out, model)
            assert table.read_bytes() == before and sorted(p.name for p in folder.iterdir()) == ["out", table.name]
            results[name] = None
            if done.exit_code == 0:
                Z = results[name] = numbers(command, table, target, out)
                assert np.isfinite(Z).all() and len(Z) and "nan" not in done.stdout, done.stdout
                if command == "compare":
                    scores = re.findall(r"(\d\.\d+) \[(\d\.\d+), (\d\.\d+)\]", done.stdout)
                    assert scores and all(0 <= float(v) <= 1 for row in scores for v in row)
                assert expected != REFUSED or command == "transform", "it was accepted"
            else:
                assert expected != GOOD, done.stderr
                if command != "train" or done.exit_code == 2:
                    assert not [p for p in out.rglob("*") if p.name in ("m", "z.csv", "model.safetensors")]
                else:  # a training that ended badly keeps its weights, and says so
                    assert re.search(r"training stopped|no epoch was finished", done.stderr), done.stderr
            if expected == GOOD:
                np.testing.assert_allclose(results[name], results["clean"], rtol=1e-12, atol=1e-12)
        except AssertionError as error:
            wrong[name] = str(error)[:500]
            results.setdefault(name, None)
    assert wrong == {}
    assert sum(Z is not None for Z in results.values()) >= 8


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file(command, model, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for name in ("none.csv", "folder.csv", "loop.csv", ""):
        done = call(command, tmp_path / name, "kind", tmp_path, model)
        assert done.exit_code == 2, done.output
    assert not (tmp_path / "m").exists() and not (tmp_path / "z.csv").exists()


@pytest.mark.parametrize("bad", ["empty", "clean", "noise", "npz, objects", "parquet, clean"])
def test_a_table_is_no_model(bad, tmp_path):
    ending, contents, _ = TABLES[bad]
    (tmp_path / f"m.{ending}").write_bytes(contents if isinstance(contents, bytes) else contents.encode())
    (tmp_path / "t.csv").write_text(TEXT)
    done = invoke("transform", tmp_path / f"m.{ending}", tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "z.csv")
    assert done.exit_code == 2 and not (tmp_path / "z.csv").exists()
