"""`isometry explain`, typed as a user would."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from typer.testing import CliRunner

import isometry
from isometry.cli import app
from tests.report.test_html import EVIL, Page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explain")
    data = load_wine(as_frame=True)
    data.frame.rename(columns={"alcohol": EVIL}).to_csv(folder / "wine.csv", index=False)
    run("fit", "GMML", folder / "wine.csv", "-y", "target", "-o", folder / "metric.safetensors")
    return folder


def run(*args, code=0):
    result = CliRunner().invoke(app, [str(a) for a in args])
    assert result.exit_code == code, result.output
    return result


def test_shares_are_those_of_the_library(folder):
    args = (folder / "metric.safetensors", folder / "wine.csv", "-y", "target", "--pair", 0, 100)
    told = json.loads(run("explain", *args, "--json", "--draws", 3).stdout)
    table = pd.read_csv(folder / "wine.csv")
    X, y = table.drop(columns="target"), table["target"].to_numpy()
    found = isometry.explain(isometry.load(folder / "metric.safetensors"), X, y, n_draws=3)
    assert told["features"][0]["name"] == found.ranking()[0][0]
    np.testing.assert_allclose([f["share"] for f in told["features"]], sorted(found.importance)[::-1], rtol=1e-9)
    np.testing.assert_allclose(told["pair"]["shares"], found.distance(0, 100), rtol=1e-9, atol=1e-12)
    assert told["varied"] == "metric" and told["linear"]


def test_table_page_and_silence(folder, tmp_path):
    args = ("explain", folder / "metric.safetensors", folder / "wine.csv", "--drop", "target", "--draws", 2)
    result = run(*args, "--pair", 3, 4, "--report", tmp_path / "page.html")
    assert "proline" in result.output and "rows 3 and 4: squared distance" in result.output
    page = Page((tmp_path / "page.html").read_text())
    assert "script" not in page.tags and "img" not in page.tags and page.urls == ["data:,"]
    for title in ("What the metric looks at", "The unit ball", "One distance, taken apart", "What has changed"):
        assert title in page.text
    assert run(*args, "--quiet").stdout == ""
    labelled = ("explain", folder / "metric.safetensors", folder / "wine.csv", "--target", "target", "--draws", 2)
    assert run(*labelled).stderr == ""  # a bar is for terminals


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--pair", 0, 178], "has rows 0 to 177"),
        (["--report", "wine.csv"], "is the table itself"),
        (["--target", "nothing"], "nothing"),
    ],
)
def test_wrong_usage_is_named(more, says, folder, monkeypatch):
    monkeypatch.chdir(folder)
    result = run("explain", "metric.safetensors", "wine.csv", *more, code=2)
    assert says in result.stderr and result.stdout == ""
