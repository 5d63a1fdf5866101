"""isometry index, export, info FILE, and --unit."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from isometry.cli import app
from isometry.io import load


def run(*args, code=0):
    done = CliRunner().invoke(app, [str(a) for a in args])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) + 2 * np.eye(4)[y]
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(kind=[f"k{c}" for c in y], name=[f"r{i}" for i in range(60)])
    frame.to_csv(folder / "t.csv", index=False)
    frame.drop(columns="kind").to_csv(folder / "items.csv", index=False)
    frame.drop(columns="kind").head(5).to_csv(folder / "queries.csv", index=False)
    run("fit", "GMML", folder / "t.csv", "-y", "kind", "--drop", "name", "--out", folder / "m.safetensors", "--quiet")
    return folder


def test_build_and_query(folder, tmp_path):
    out = tmp_path / "i.safetensors"
    model = folder / "m.safetensors"
    made = json.loads(
        run("index", "build", folder / "items.csv", "--model", model, "--id", "name", "-o", out, "--json")
    )
    assert made["rows"] == 60 and made["features"] == 4
    found = json.loads(run("index", "query", out, folder / "queries.csv", "--id", "name", "-k", 3, "--json"))
    Z = load(model).transform(pd.read_csv(folder / "items.csv").drop(columns="name"))
    for q in range(5):
        d = np.linalg.norm(Z - Z[q], axis=1)
        order = np.argsort(d)[:3]
        lines = [line for line in found["neighbors"] if line["query"] == f"r{q}"]
        assert [line["id"] for line in lines] == [f"r{i}" for i in order]
        assert [line["rank"] for line in lines] == [1, 2, 3]
        assert_allclose([line["score"] for line in lines], d[order], atol=1e-5)
    text = run("index", "query", out, folder / "queries.csv", "--id", "name", "-k", 3)
    assert "r0" in text and "distance" in text
    run(
        "index",
        "query",
        out,
        folder / "queries.csv",
        "--id",
        "name",
        "--threshold",
        0.8,
        "-o",
        tmp_path / "near.csv",
        "-q",
    )
    near = pd.read_csv(tmp_path / "near.csv")
    assert len(near) == (np.linalg.norm(Z[:5, None] - Z[None], axis=2) <= 0.8).sum()
    csv = run("index", "query", out, folder / "queries.csv", "--id", "name", "-k", 2, "-o", "-", "-q")
    assert csv.splitlines()[0] == "query,rank,id,score" and len(csv.splitlines()) == 11


def test_embeddings_by_cosine_in_codes(folder, tmp_path):
    X = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)
    np.save(tmp_path / "e.npy", X)
    options = ("--metric", "cosine", "--quantizer", "int8", "-o", tmp_path / "i.safetensors", "-q")
    run("index", "build", tmp_path / "e.npy", *options)
    found = json.loads(run("index", "query", tmp_path / "i.safetensors", tmp_path / "e.npy", "-k", 1, "--json"))
    assert [line["id"] for line in found["neighbors"]] == list(range(50))
    assert min(line["score"] for line in found["neighbors"]) > 0.999


def test_columns_of_an_index_are_known_by_name(folder, tmp_path):
    out, items = tmp_path / "i.safetensors", pd.read_csv(folder / "items.csv")
    run("index", "build", folder / "items.csv", "--id", "name", "-o", out)

    def asked(frame, *more):
        frame.to_csv(tmp_path / "q.csv", index=False)
        return json.loads(run("index", "query", out, tmp_path / "q.csv", "-k", 2, "--json", *more))["neighbors"]

    plain = asked(items.head(5), "--id", "name")
    assert [line["id"] for line in plain if line["rank"] == 1] == [f"r{i}" for i in range(5)]
    assert asked(items.head(5)[["name", "s", "q", "r", "p"]], "--id", "name") == plain
    assert asked(items.head(5).assign(more=1.0), "--id", "name") == plain
    other = items.head(5).rename(columns=dict(zip("pqrs", "abcd", strict=True)))  # none of the names: by place
    assert asked(other, "--id", "name") == plain
    items.drop(columns=["q", "name"]).assign(z=0.0).to_csv(tmp_path / "q.csv", index=False)
    assert "lacks: q" in run("index", "query", out, tmp_path / "q.csv", code=2).replace("\n", " ")


def test_what_is_wrong_with_an_index_is_said(folder, tmp_path):
    out, items = tmp_path / "i.safetensors", folder / "items.csv"
    build = ("index", "build", items, "--id", "name")
    assert "there is no folder" in run(*build, "-o", tmp_path / "no" / "i", code=2)
    assert "metric='angle' is unknown" in run(*build, "-o", out, "--metric", "angle", code=2)
    assert "engine='fast' is unknown" in run(*build, "-o", out, "--engine", "fast", code=2)
    assert not out.exists()
    run(*build, "-o", out, "-q")
    whole = out.read_bytes()
    for command in (
        ("transform", out, items, "-o", tmp_path / "z.csv"),
        ("explain", out, items),
        ("export", out, "x.npy"),
    ):
        assert "holds Index, which is no metric" in run(*command, code=2)
    assert "holds Pipeline, not an index" in run("index", "query", folder / "m.safetensors", items, code=2)
    text = run("index", "query", out, items, "--id", "name", "--model", folder / "m.safetensors", code=2)
    assert "is an index by euclidean" in text
    pd.read_csv(items)[["p", "q", "name"]].to_csv(tmp_path / "narrow.csv", index=False)
    assert "lacks: r, s" in run("index", "query", out, tmp_path / "narrow.csv", "--id", "name", code=2)
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    text = run("index", "query", out, tmp_path / "narrow.npy", code=2)
    assert "have 2 features" in text and "have 4" in text
    assert "k=61 neighbours" in run("index", "query", out, items, "--id", "name", "-k", 61, code=2)
    out.write_bytes(whole[:-7])
    assert "damaged or cut" in run("index", "query", out, items, code=2)
    twice = pd.read_csv(items)
    twice.loc[3, "name"] = "r1"
    twice.to_csv(tmp_path / "twice.csv", index=False)
    text = run("index", "build", tmp_path / "twice.csv", "--id", "name", "-o", out, code=2)
    assert "1 of the ids come more than once: r1" in text
    zero = pd.read_csv(items)
    zero.loc[7, list("pqrs")] = 0.0
    zero.to_csv(tmp_path / "zero.csv", index=False)
    text = run("index", "build", tmp_path / "zero.csv", "--id", "name", "-o", out, "--metric", "cosine", code=2)
    assert "zero vectors (rows 7)" in text
    X = pd.read_csv(items)[list("pqrs")].to_numpy()
    X[3, 1], X[17] = np.nan, np.inf
    np.save(tmp_path / "gaps.npy", X)
    text = run("index", "build", tmp_path / "gaps.npy", "-o", out, code=2)
    assert "in 2 rows, counted from 0: 3, 17" in text
    run("index", "build", items, "--id", "name", "--model", folder / "m.safetensors", "-o", out, "-q")
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "--drop", "name", "-o", tmp_path / "other.safetensors", "-q")
    other = ("index", "query", out, items, "--id", "name", "--model", tmp_path / "other.safetensors")
    assert re.search(r"an index by Pipeline\(.*, GMML\), which is not the Pipeline\(.*, RCA\)", run(*other, code=2))


@pytest.mark.parametrize("name", ["m.npy", "m.py", "m.duckdb.sql", "m.pgvector.sql", "dense"])
def test_export(folder, name, tmp_path):
    done = json.loads(run("export", folder / "m.safetensors", tmp_path / name, "--json"))
    assert done["features"] == 4 and (tmp_path / name).exists()


def test_export_that_cannot_be(folder, tmp_path):
    kernel = tmp_path / "k.safetensors"
    run("fit", "KDCA", folder / "t.csv", "-y", "kind", "--drop", "name", "-o", kernel, "-q")
    text = run("export", kernel, tmp_path / "m.npy", code=2)
    assert "cannot be exported as npy" in text and "Forms it can: onnx, numpy" in text
    assert "the ending says no form" in run("export", kernel, tmp_path / "m.txt", code=2)
    assert "which would be lost" in run("export", kernel, kernel, code=2)


def test_unit_length(folder, tmp_path):
    out = tmp_path / "u.safetensors"
    run("fit", "RCA", folder / "t.csv", "-y", "kind", "--drop", "name", "--unit", "-o", out, "-q")
    Z = load(out).transform(pd.read_csv(folder / "t.csv")[list("pqrs")])
    assert_allclose(np.linalg.norm(Z, axis=1), 1)
    outcome = json.loads(run("compare", folder / "t.csv", "-y", "kind", "--drop", "name", "--methods", "RCA", "--unit",
                             "--folds", 3, "--json"))  # fmt: skip
    names = {r["name"] for r in outcome["results"]}
    assert names == {"Euclidean", "Euclidean, unit length", "Covariance, unit length", "RCA, unit length"}
    assert "--unit goes with one metric" in run(
        "fit", "auto", folder / "t.csv", "-y", "kind", "--unit", "-o", out, code=2
    )


def test_the_card_of_a_file(folder):
    card = json.loads(run("info", folder / "m.safetensors", "--json"))
    assert card["method"] == "GMML" and card["features"] == 4 and card["parameters"]["reg"] == "auto"
    assert card["data"]["rows"] == 60 and len(card["data"]["fingerprint"]) == 16
    assert {"isometry", "numpy", "scikit-learn"} <= card["versions"].keys()
    assert "parameters" in run("info", folder / "m.safetensors")


def test_names_that_options_had_before(folder, tmp_path):
    """``--ids`` and ``--quantize`` are still taken; help shows the name that other commands have first."""
    out = tmp_path / "i.safetensors"
    made = ("index", "build", folder / "items.csv", "--ids", "name", "--quantize", "int8", "-o", out, "--json")
    assert json.loads(run(*made))["quantizer"] == "int8"
    assert "r0" in run("index", "query", out, folder / "queries.csv", "--ids", "name", "-k", 2)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", run("index", "build", "--help"))
    assert re.search(r"--id\W+--ids", shown) and re.search(r"--quantizer\W+--quantize", shown)


def test_export_takes_its_file_as_other_commands_do(folder, tmp_path):
    model = folder / "m.safetensors"
    for words in ((tmp_path / "a.npy",), ("--out", tmp_path / "b.npy"), ("-o", tmp_path / "c.npy")):
        run("export", model, *words, "-q")
        assert_allclose(np.load(words[-1]), np.load(tmp_path / "a.npy"))
    assert "name one file to write" in run("export", model, code=2)
    assert "there are two" in run("export", model, tmp_path / "a.npy", "-o", tmp_path / "b.npy", code=2)
