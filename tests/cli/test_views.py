"""Two views of the same samples in two files: compared, learned, and each mapped alone."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from isometry import CCA
from isometry.cli import app
from isometry.io import load


@pytest.fixture
def files(tmp_path):
    """Six and five columns that follow three hidden ones; two names occur in both."""
    rng = np.random.default_rng(0)
    S = rng.normal(size=(90, 3))
    views = [S @ rng.normal(size=(3, d)) + 0.3 * rng.normal(size=(90, d)) for d in (6, 5)]
    for name, X, columns in zip("ab", views, ("pqrstu", "pqxyz"), strict=True):
        pd.DataFrame(X, columns=list(columns)).to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_views_find_each_other_and_each_is_mapped_alone(files):
    a, b, model = files / "a.csv", files / "b.csv", files / "m.safetensors"
    done = run("compare", a, "--view", b, "--methods", "CCA", "--save", model, "--report", files / "page", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["scoring"] == "view_mrr" and found["best"] == "CCA" and (files / "page" / "index.html").exists()
    for name, view in (("a", "first"), ("b", "second")):
        assert (
            run("transform", model, files / f"{name}.csv", "--view", view, "-o", files / f"z{name}.csv").exit_code == 0
        )
    X = np.hstack([pd.read_csv(a), pd.read_csv(b)])
    whole = make_pipeline(StandardScaler(), CCA(views=[range(6), range(6, 11)])).fit(X).transform(X)
    parts = np.hstack([pd.read_csv(files / "za.csv"), pd.read_csv(files / "zb.csv")])
    np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["CCA", "auto"])
def test_fit_between_views(files, method):
    done = run("fit", method, files / "a.csv", "--view", files / "b.csv", "-o", files / "m")
    assert done.exit_code == 0, done.output
    columns = pd.read_csv(files / "b.csv")[list("zyxqp")]  # in another order: names tell
    columns.to_csv(files / "b2.csv", index=False)
    images = []
    for name in ("b", "b2"):
        done = run("transform", files / "m", files / f"{name}.csv", "--view", "second", "-o", files / "z.csv")
        assert done.exit_code == 0, done.output
        images.append(pd.read_csv(files / "z.csv").to_numpy())
    np.testing.assert_allclose(*images, rtol=0, atol=1e-12)  # rounding depends on where columns lie in memory


def test_a_method_of_labels_and_views(files):
    """The two tables are its views, and the labels stand in the first."""
    frame = pd.read_csv(files / "a.csv")
    frame.assign(kind=np.where(frame["p"] > 0, "u", "v")).to_csv(files / "labelled.csv", index=False)
    words = ("fit", "FishMML", files / "labelled.csv", "--view", files / "b.csv", "-y", "kind", "-o", files / "m")
    assert run(*words).exit_code == 0
    metric = load(files / "m")[-1]
    assert metric.views == [list(range(6)), list(range(6, 11))] and metric.n_features_in_ == 11


@pytest.mark.parametrize(
    "words, told",
    [
        (["fit", "RCA", "a.csv", "--view", "b.csv", "-o", "m"], "RCA knows no views"),
        (["fit", "CCA", "a.csv", "--view", "b.csv", "-o", "b.csv"], "is the second view itself"),
        (["fit", "CCA", "a.csv", "--view", "short.csv", "-o", "m"], "90 and 40 rows"),
        (["fit", "CCA", "a.csv", "--view", "b.csv", "--unit", "-o", "m"], "both views to one length"),
        (["compare", "a.csv", "--view", "b.csv", "--unit"], "scale each view"),
        (["compare", "a.csv", "--view", "none.csv"], "none.csv"),
        (["compare", "a.csv", "--view", "b.csv", "-y", "p"], "leave out --target"),
        (["compare", "a.csv", "--view", "b.csv", "--methods", "RCA"], "no metric between two views"),
        (["transform", "cca", "b.csv", "--view", "third", "-o", "z.csv"], "expected first or second"),
        (["transform", "cca", "a.csv", "--view", "second", "-o", "z.csv"], "no column 'x'"),
        (["transform", "rca", "a.csv", "--view", "first", "-o", "z.csv"], "no metric between two views"),
    ],
)
def test_what_does_not_fit_is_said(files, monkeypatch, words, told):
    monkeypatch.chdir(files)
    pd.read_csv("b.csv")[:40].to_csv("short.csv", index=False)
    assert run("fit", "CCA", "a.csv", "--view", "b.csv", "-o", "cca").exit_code == 0
    assert run("fit", "Covariance", "a.csv", "-o", "rca").exit_code == 0
    done = run(*words)
    assert done.exit_code == 2 and told in done.stderr.replace("\n", " "), done.output
    assert not (files / "z.csv").exists() and not (files / "m").exists()
