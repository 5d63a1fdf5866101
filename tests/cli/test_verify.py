"""`isometry verify`: learning from labels or pairs, its page, its file, and judging pairs with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from isometry import PairVerifier, load
from isometry.cli import app


def run(*args, code=0):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, ["verify", *map(str, args)])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """150 people with 4 rows each; pairs of two rows of one person, and of two persons, in islands of two people."""
    folder = tmp_path_factory.mktemp("verify")
    r = np.random.default_rng(0)
    y = np.repeat(np.arange(150), 4)
    X = 2 * r.normal(size=(150, 3))[y] + r.normal(size=(600, 3))
    frame = pd.DataFrame(X, columns=list("pqr")).assign(person=[f"p{k}" for k in y], name=[f"r{k}" for k in range(600)])
    frame.to_csv(folder / "t.csv", index=False)
    base = 8 * np.arange(75)
    a = np.concatenate([base, base + 4, base, base + 1])
    b = np.concatenate([base + 1, base + 5, base + 4, base + 6])
    pairs = pd.DataFrame({"a": [f"r{k}" for k in a], "b": [f"r{k}" for k in b], "same": (y[a] == y[b]).astype(int)})
    pairs.to_csv(folder / "pairs.csv", index=False)
    pairs[pairs["same"] == 1].iloc[:, :2].to_csv(folder / "same.csv", index=False)
    pd.DataFrame({"a": a, "b": b, "same": np.where(y[a] == y[b], "same", "different")}).to_csv(
        folder / "numbers.csv", index=False
    )
    return folder


@pytest.mark.parametrize(("more", "shown"), [((), True), (("--quiet",), False), (("--json",), False)])
def test_fits_are_counted_on_a_terminal(more, shown, folder):
    """One of all rows, and one for each fold; silent where nobody looks."""
    pty = pytest.importorskip("pty")  # not on Windows
    args = ["verify", folder / "t.csv", "--target", "person", "--drop", "name", "--folds", 3, *more]
    ours, theirs = pty.openpty()
    pytest.importorskip("termios").tcsetwinsize(theirs, (24, 100))
    try:
        command = [sys.executable, "-m", "isometry", *map(str, args)]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
        os.write(theirs, b"end")  # so that there is something to read
        told = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert ("verify: 100%" in told and "4/4" in told) if shown else told == "end"


def test_labels_give_a_threshold_with_its_errors_a_page_and_a_file(folder):
    told = run(folder / "t.csv", "--target", "person", "--drop", "name", "--fpr", 0.05, "--prior", 0.5,
               "--save", folder / "v.safetensors", "--report", folder / "page.html")  # fmt: skip
    assert "false matches" in told and "AUC" in told and "different beyond" in told
    assert all(len(line) <= 120 for line in told.splitlines())
    verifier = load(folder / "v.safetensors")
    assert isinstance(verifier, PairVerifier)
    assert 0.03 < verifier.operating_point().fpr.mean <= 0.05
    page = (folder / "page.html").read_text()
    seen = _Parsed()
    seen.feed(page)
    assert {"Thresholds", "Errors", "Do probabilities mean what they say?", "Distances"} <= set(seen.titles)
    assert seen.plots >= 4 and not seen.outside
    assert f"{verifier.auc_:.4f}" in page


class _Parsed(HTMLParser):
    def __init__(self):
        super().__init__()
        self.titles, self.plots, self.outside, self.inside = [], 0, [], ""

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        self.plots += tag == "svg"
        self.outside += [v for k, v in attributes if k in ("src", "href") and v and v.startswith("http")]

    def handle_data(self, text):
        if self.inside == "h2":
            self.titles.append(text)
        self.inside = ""


def test_what_is_held_out_is_said_and_can_be_chosen(folder):
    asked = (folder / "t.csv", "--target", "person", "--drop", "name", "--fpr", 0.05)
    told = " ".join(run(*asked).split())
    assert "metric GMML;" in told and "whole classes were held out: errors among new classes" in told
    known = (*asked, "--protocol", "closed")
    assert "no pair held out is the same: a fold needs two rows of a class" in run(*known, code=1)  # 4 rows, 5 folds
    told = " ".join(run(*known, "--folds", 2, "--save", folder / "known.safetensors").split())
    assert "errors among new rows of these classes (--protocol open: new classes)" in told
    assert load(folder / "known.safetensors").protocol_ == "closed"
    assert json.loads(run(*asked, "--json"))["protocol"] == "open"
    assert "--protocol new is unknown: closed or open" in run(*asked, "--protocol", "new", code=2)
    pairs = (folder / "t.csv", "--pairs", folder / "pairs.csv", "--id", "name", "--drop", "person")
    assert "note: whole classes" not in run(*pairs) and "--protocol is for labels" in run(
        *pairs, "--protocol", "open", code=2
    )


def test_unit_length_after_the_map(folder):
    run(folder / "t.csv", "--target", "person", "--drop", "name", "--unit", "--prior", 0.5, "-q",
        "--save", folder / "unit.safetensors")  # fmt: skip
    X = pd.read_csv(folder / "t.csv")[list("pqr")]
    np.testing.assert_allclose(np.linalg.norm(load(folder / "unit.safetensors").transform(X), axis=1), 1)


def test_pairs_by_names_and_by_numbers_are_the_same(folder):
    by_name = json.loads(
        run(folder / "t.csv", "--drop", "person", "--id", "name", "--pairs", folder / "pairs.csv", "--json")
    )
    by_number = json.loads(run(folder / "t.csv", "--drop", "person,name", "--pairs", folder / "numbers.csv", "--json"))
    assert by_name == by_number
    assert by_name["pairs"] == 300 and by_name["same"] == 150 and by_name["prior"] == 0.5
    rate = by_name["false_match_rate"]
    assert rate["low"] < rate["mean"] < rate["high"]


@pytest.mark.filterwarnings("ignore:y holds no different pairs")
def test_same_pairs_alone_are_enough(folder):
    out = json.loads(
        run(folder / "t.csv", "--drop", "person", "--id", "name", "--pairs", folder / "same.csv", "--json")
    )
    assert out["sampled_negatives"] > 4000 and out["auc"] > 0.8


def test_a_file_judges_pairs(folder):
    table = (folder / "t.csv", "--drop", "person", "--id", "name", "--pairs", folder / "pairs.csv")
    run(*table, "--band", "0.05,0.05", "--save", folder / "band.safetensors", "--quiet")
    told = run(*table, "--model", folder / "band.safetensors", "--out", folder / "judged.csv")
    judged = pd.read_csv(folder / "judged.csv")
    counts = judged["decision"].value_counts()
    assert told.startswith(f"300 pairs: {counts[1]} same, {counts[-1]} different, {counts[0]} undecided")
    verifier = load(folder / "band.safetensors")
    assert np.all((judged["decision"] == 1) == (judged["distance"] <= verifier.threshold_))
    assert np.all((judged["decision"] == -1) == (judged["distance"] > verifier.reject_threshold_))
    pairs = pd.read_csv(folder / "pairs.csv")
    assert (
        judged["first"].tolist() == pairs.iloc[:, 0].tolist() and judged["second"].tolist() == pairs.iloc[:, 1].tolist()
    )
    shown = run(*table, "--model", folder / "band.safetensors").splitlines()
    assert shown[2].split()[:2] == [*pairs.iloc[0, :2]] and "the first 10 are shown" in shown[-1]
    assert "expected a csv" in run(*table, "--model", folder / "band.safetensors", "--out", "z.npy", code=2)
    same = pairs["same"] == 1
    assert judged["probability"][same].mean() > 0.3 + judged["probability"][~same].mean()


@pytest.mark.parametrize("option", ["--save", "--report"])
def test_a_model_that_judges_leaves_nothing_to_save(folder, tmp_path, option):
    asked = (folder / "t.csv", "--drop", "person", "--id", "name", "--pairs", folder / "pairs.csv")
    told = run(*asked, "--model", folder / "band.safetensors", option, tmp_path / "new", code=2)
    assert "leave out --save and --report" in " ".join(told.split())
    assert not (tmp_path / "new").exists()


def test_columns_are_known_by_name_not_by_place(folder, tmp_path):
    table = (folder / "t.csv", "--drop", "person", "--id", "name", "--pairs", folder / "pairs.csv")
    run(*table, "--save", tmp_path / "v", "--quiet")
    run(*table, "--model", tmp_path / "v", "--out", tmp_path / "a.csv")
    frame = pd.read_csv(folder / "t.csv")
    frame[["r", "name", "p", "person", "q"]].to_csv(tmp_path / "turned.csv", index=False)
    run(tmp_path / "turned.csv", *table[1:], "--model", tmp_path / "v", "--out", tmp_path / "b.csv")
    # rounding depends on where columns lie in memory
    pd.testing.assert_frame_equal(*(pd.read_csv(tmp_path / f"{name}.csv") for name in "ab"), rtol=1e-9)
    frame.rename(columns={"p": "other"}).to_csv(tmp_path / "renamed.csv", index=False)
    assert "no column 'p'" in run(tmp_path / "renamed.csv", *table[1:], "--model", tmp_path / "v", code=2)


def test_wrong_usage_is_named(folder, tmp_path):
    table = folder / "t.csv"
    bad, odd, both = tmp_path / "bad.csv", tmp_path / "odd.csv", tmp_path / "both.csv"
    pd.DataFrame({"a": ["r0", "x1", "x2"], "b": ["r1", "r2", "x3"], "same": [1, 0, 1]}).to_csv(bad, index=False)
    pd.DataFrame({"a": ["r0"], "b": ["r1"], "same": ["perhaps"]}).to_csv(odd, index=False)
    pd.DataFrame({"a": ["r0", "r1"], "b": ["r1", "r0"], "same": [1, 0]}).to_csv(both, index=False)
    id_ = ("--drop", "person", "--id", "name")
    for args, message in (
        ((table,), "say which rows are the same"),
        (
            (table, *id_, "--pairs", bad),
            "3 names in .* are not in the table (x1, x2, x3): --id says which column names them",
        ),
        ((table, "--drop", "person,name", "--pairs", bad), "the rows are numbered 0 to 599"),
        ((table, *id_, "--pairs", odd), "holds 'perhaps': expected 1 or 0"),
        ((table, *id_, "--pairs", both), "1 pairs are listed as the same and as different, such as rows 0 and 1"),
        ((table, *id_, "--pairs", tmp_path / "none.csv"), "there is no file"),
        ((table, "--drop", "name", "--target", "person", "--fpr", 0.1, "--precision", 0.9), "one target"),
        ((table, "--drop", "name", "--target", "person", "--cost", "ten"), "expected two numbers such as 10,1"),
        ((table, "--drop", "name", "--target", "person", "--fpr", 7), "choose it between 0 and 1"),
        ((table, "--drop", "name", "--target", "person", "--model", table), "--model judges pairs"),
        ((table, *id_, "--pairs", folder / "pairs.csv", "--model", table), "safetensors"),
    ):
        told = " ".join(run(*args, code=2).split())
        assert message.replace(".*", "") in told or all(part in told for part in message.split(".*")), told


@pytest.mark.filterwarnings("ignore:left out of the features")
def test_a_table_as_it_comes_gives_a_threshold_and_is_judged_whatever_the_order_of_its_columns(folder):
    clean = pd.read_csv(folder / "t.csv")
    rng = np.random.default_rng(1)
    messy = clean.assign(q=clean["q"].mask(rng.random(600) < 0.1), kind=np.where(clean["p"] > 0, "high", "low"))
    messy.to_csv(folder / "messy.csv", index=False)
    told = run(folder / "messy.csv", "--target", "person", "--fpr", 0.05, "--save", folder / "messy.safetensors")
    assert "gaps in q are filled" in told and "kind is a category" in told
    verifier = load(folder / "messy.safetensors")
    assert list(verifier.feature_names_in_) == ["p", "q", "r", "kind"] and verifier.operating_point().fpr.mean > 0.03
    messy[["kind", "person", "r", "name", "q", "p"]].to_csv(folder / "turned.csv", index=False)
    pairs = pd.read_csv(folder / "pairs.csv")
    for table in ("messy.csv", "turned.csv"):
        model = ("--model", folder / "messy.safetensors", "--pairs", folder / "pairs.csv", "--id", "name")
        run(folder / table, *model, "--out", folder / "judged.csv", "--quiet")
        rows = np.array([[int(name[1:]) for name in line] for line in pairs[["a", "b"]].to_numpy()])
        expected = verifier.pair_distance(messy[["p", "q", "r", "kind"]], rows)
        np.testing.assert_allclose(pd.read_csv(folder / "judged.csv")["distance"], expected, rtol=1e-12)
    assert "columns that are not numbers: name" in run(
        folder / "messy.csv", "--target", "person", "--prepare", "none", code=2
    )


def test_auto_chooses_for_what_is_held_out_and_names_its_choice(folder):
    few = ["--method", "auto", "--set", "learners=['RCA', 'GMML']", "--folds", 2, "--drop", "name"]
    for protocol in ("open", "closed"):
        told = run(folder / "t.csv", "--target", "person", *few, "--protocol", protocol,
                   "--save", folder / "a.safetensors")  # fmt: skip
        chosen = load(folder / "a.safetensors").metric_[-1]
        assert chosen.protocol == protocol
        assert f"metric auto: {chosen.best_}" in told
    run(folder / "t.csv", "--target", "person", *few, "--save", folder / "a.safetensors")
    assert load(folder / "a.safetensors").metric_[-1].protocol == "open"  # 150 classes
    run(folder / "t.csv", "--target", "person", *few, "--set", "protocol=closed", "--save", folder / "a.safetensors")
    assert load(folder / "a.safetensors").metric_[-1].protocol == "closed"


def test_a_line_that_nobody_asked_for_is_explained_and_kept_also_where_it_accepts_nothing(folder):
    far = ["--method", "Euclidean", "--prior", 0.0001, "--drop", "name", "--save", folder / "far.safetensors"]
    told = run(folder / "t.csv", "--target", "person", *far)
    assert "no pair is called the same" in told and "inf" not in told
    assert load(folder / "far.safetensors").threshold_ == -np.inf
    assert "--fpr" in run(folder / "t.csv", "--target", "person", "--drop", "name")
    assert "--fpr" not in run(folder / "t.csv", "--target", "person", "--drop", "name", "--fpr", 0.05)


def test_a_saved_metric_is_no_method_and_no_verifier(folder):
    from isometry import RCA

    frame = pd.read_csv(folder / "t.csv")
    RCA().fit(frame[list("pqr")], frame["person"]).save(folder / "rca.safetensors")
    told = run(folder / "t.csv", "--target", "person", "--method", folder / "rca.safetensors", code=2)
    assert "Name its method" in told
    told = run(folder / "t.csv", "--model", folder / "rca.safetensors", "--pairs", folder / "pairs.csv", code=2)
    assert "holds RCA, which is no verifier" in told


def test_columns_of_text_are_named_in_python(folder):
    frame = pd.read_csv(folder / "t.csv")
    with pytest.raises(ValueError, match=r"do not hold numbers: name\. Drop them, or encode"):
        PairVerifier().fit(frame.drop(columns="person"), frame["person"])
    judge = PairVerifier(random_state=0).fit(frame[list("pqr")], frame["person"])
    with pytest.raises(ValueError, match=r"read_table\(table, model=verifier\)"):
        judge.predict(frame, [[0, 1]])


def test_one_of_a_kind_is_told_in_the_singular_and_warnings_once(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv")
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    run(folder / "t.csv", "--target", "person", "--drop", "name", "--save", tmp_path / "v.safetensors", "-q")
    asked = (tmp_path / "t.csv", "--model", tmp_path / "v.safetensors", "--id", "name", "--drop", "person", "--pairs")
    (tmp_path / "p.csv").write_text("a,b\nr1,r2\n")
    done = CliRunner().invoke(app, ["verify", *map(str, asked), str(tmp_path / "p.csv")])
    assert "1 pair: " in done.stdout and done.stderr.count("decimal comma") == 1
    (tmp_path / "p.csv").write_text("a,b\nr1,r2\nr1,gone\n")
    assert "1 name in " in run(*asked, tmp_path / "p.csv", code=2)
