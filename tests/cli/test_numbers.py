"""Columns of numbers as targets: taken for classes or for numbers to predict, and said which."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from isometry import load
from isometry.cli import app
from isometry.io import TableError, read_table, write_table


def run(*args, code=0):
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The price follows the first column; so does the number of rooms, in steps."""
    path = tmp_path_factory.mktemp("numbers") / "houses.csv"
    r = np.random.default_rng(0)
    X = r.normal(size=(90, 4))
    price = 3 * X[:, 0] + 0.1 * r.normal(size=90)
    cells = pd.DataFrame(X, columns=list("abcd"))
    cells.assign(price=price, rooms=np.rint(price).astype(int)).to_csv(path, index=False)
    return path


def test_fractions_are_predicted(table, tmp_path):
    told = run("fit", "MLKR", table, "--target", "price", "--drop", "rooms", "-o", tmp_path / "m.safetensors")
    assert "note: price: numbers to predict" in told
    L = load(tmp_path / "m.safetensors")[-1].components_
    assert np.abs(L[:, 0]).max() > 3 * np.abs(L[:, 1:]).max()  # the column that the price follows
    outcome = json.loads(run("compare", table, "--target", "price", "--drop", "rooms", "--methods", "MLKR", "--json"))
    assert outcome["scoring"] == "knn_r2" and outcome["best"] == "MLKR"


def test_whole_numbers_are_classes_unless_told(table, tmp_path):
    arguments = (table, "--target", "rooms", "--drop", "price", "--methods", "RCA")
    told = run("compare", *arguments)
    n = len(pd.read_csv(table)["rooms"].unique())
    assert f"rooms: whole numbers, taken for the names of {n} classes; --target-is numbers" in told
    outcome = json.loads(run("compare", *arguments, "--target-is", "numbers", "--sample", 60, "--json"))
    assert outcome["scoring"] == "knn_r2" and outcome["data"]["n_samples"] == 60
    told = run("fit", "MLKR", table, "--target", "rooms", "--drop", "price", "-o", tmp_path / "m.safetensors")
    assert "rooms: numbers to predict" in told  # MLKR learns from nothing else


def test_numbers_are_carried_along_unchanged(table, tmp_path):
    run("fit", "MLKR", table, "--target", "price", "--drop", "rooms", "-o", tmp_path / "m.safetensors")
    run(
        "transform", tmp_path / "m.safetensors", table, "--target", "price", "--drop", "rooms", "-o", tmp_path / "z.csv"
    )
    before, after = pd.read_csv(table)["price"], pd.read_csv(tmp_path / "z.csv")["price"]
    assert np.array_equal(before, after)


def test_what_is_no_number_is_refused(table, tmp_path):
    cells = pd.read_csv(table)
    for column, bad, message in (
        ("price", np.nan, "1 missing label, the first in row 3"),
        ("price", np.inf, "1 infinite number, the first in row 3"),
        ("rooms", "many", "numbers to predict must be numbers"),
    ):
        broken = cells.assign(**{column: cells[column].astype(object)})
        broken.loc[3, column] = bad
        broken.to_csv(tmp_path / "b.csv", index=False)
        other = "rooms" if column == "price" else "price"
        told = run("fit", "MLKR", tmp_path / "b.csv", "--target", column, "--drop", other, "-o", tmp_path / "m", code=2)
        assert message in " ".join(told.split()), told
    flat = cells.assign(price=1.5)
    flat.to_csv(tmp_path / "flat.csv", index=False)
    told = run(
        "fit", "MLKR", tmp_path / "flat.csv", "--target", "price", "--drop", "rooms", "-o", tmp_path / "m", code=1
    )
    assert "MLKR needs targets that vary; y is constant" in told
    told = run("compare", table, "--target", "price", "--target-is", "classes", code=2)
    assert "holds fractions" in told and "--target-is numbers" in told
    assert "expected classes, numbers or auto" in run("compare", table, "--target", "price", "--target-is", "x", code=2)


def test_tables_keep_numbers(tmp_path):
    r = np.random.default_rng(0)
    X, y = r.normal(size=(5, 2)), r.normal(size=5)
    for name in ("t.csv", "t.npz"):
        write_table(tmp_path / name, X, y=y)
        assert np.array_equal(read_table(tmp_path / name, "y", target_is="auto").y, y)
        with pytest.raises(TableError, match="holds fractions"):
            read_table(tmp_path / name, "y")
    with pytest.raises(ValueError, match="target_is='n' must be"):
        read_table(tmp_path / "t.csv", "y", target_is="n")
