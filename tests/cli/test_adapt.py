"""`isometry adapt`: files of embeddings with labels, pairs, triplets and relevant documents; good ones and bad ones."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from isometry import load
from isometry.cli import app
from isometry.io import read_card


def run(*args, code=0, command="adapt"):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, [command, *map(str, args)])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """40 people with 8 embeddings each; six numbers tell people apart, six louder ones do not."""
    folder = tmp_path_factory.mktemp("adapt")
    r = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 8)
    signal = r.normal(size=(40, 6))[y] + 0.4 * r.normal(size=(320, 6))
    X = np.hstack([signal, 2.5 * r.normal(size=(320, 6))]).astype(np.float32)
    person, name = np.array([f"p{k}" for k in y]), np.array([f"r{k}" for k in range(320)])
    np.savez(folder / "e.npz", X=X, y=y, ids=name, classes=np.array([f"p{k}" for k in range(40)]))
    np.save(folder / "e.npy", X)
    np.save(folder / "y.npy", person)
    pd.DataFrame({"name": name, "person": person, "vector": list(X)}).to_parquet(folder / "e.parquet")
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(12)]).assign(name=name, person=person)
    frame.to_csv(folder / "e.csv", index=False)
    pd.DataFrame({"name": name, "person": person})[::-1].to_csv(folder / "labels.csv", index=False)
    pd.DataFrame({"name": name}).to_csv(folder / "ids.csv", index=False)
    i = np.flatnonzero(np.arange(320) % 8 < 7)
    pd.DataFrame({"a": name[i], "b": name[i + 1]}).to_csv(folder / "same.csv", index=False)
    asks = np.flatnonzero(np.arange(320) % 8 < 4)
    pd.DataFrame({"q": name[asks], "d": name[asks + 4], "grade": 1 + asks % 2}).to_csv(folder / "r.csv", index=False)
    far = (i + 88) % 320
    pd.DataFrame({"a": name[i], "p": name[i + 1], "n": name[far]}).to_csv(folder / "t.csv", index=False)
    return folder


FAST = ("--folds", 3, "--no-heads", "--budget", 1e6)


@pytest.fixture(scope="module")
def told(folder):
    out = run(folder / "e.npz", *FAST, "--save", folder / "head.safetensors", "--report", folder / "page.html")
    return out


def test_labels_give_a_table_a_verdict_a_head_and_a_page(folder, told):
    for word in (
        "MAP@R",
        "recall@1",
        "nDCG@10",
        "pair AUC",
        "before",
        "after",
        "Map all embeddings by",
        "saved:",
        "tried, best first:",
    ):
        assert word in told
    head = load(folder / "head.safetensors")
    assert head.transform(np.load(folder / "e.npy")).shape[0] == 320
    card = read_card(folder / "head.safetensors")
    assert card["quality"]["map@r"]["after"] > card["quality"]["map@r"]["before"] + 0.1
    assert card["data"]["rows"] == 320 and card["method"].startswith("adapt(")
    page = (folder / "page.html").read_text()
    seen = _Parsed()
    seen.feed(page)
    assert seen.titles == ["Before and after", "How to use it", "What was tried", "How this was computed"]
    assert seen.plots >= 5 and not seen.outside
    assert "head.safetensors" in page and "isometry export" in page
    assert "map@r" in run(folder / "head.safetensors", command="info")


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


@pytest.mark.parametrize(
    "given",
    [
        ("e.parquet", "--labels", "person", "--drop", "name"),
        ("e.csv", "--target", "person", "--drop", "name"),
        ("e.npy", "--labels", "y.npy"),
        ("e.npy", "--labels", "labels.csv", "--id", "ids.csv"),
        ("e.npz", "--labels", "labels.csv", "--id", "ids"),
    ],
    ids=["parquet", "csv", "npy", "ids of a file", "ids of an array"],
)
def test_all_formats_say_the_same(folder, told, given):
    paths = [folder / part if str(part).endswith((".parquet", ".csv", ".npy", ".npz")) else part for part in given]
    found = json.loads(run(*paths, *FAST, "--json"))
    number = next(line for line in told.splitlines() if line.startswith("MAP@R")).split()[1]
    assert f"{found['scores']['map@r']['before']:.4f}" == number
    assert found["adapted"] and found["data"]["rows"] == 320


def test_pairs_triplets_and_relevance(folder):
    same = json.loads(run(folder / "e.csv", "--id", "name", "--drop", "person", "--pairs", folder / "same.csv", *FAST,
                          "--json"))  # fmt: skip
    assert same["supervision"] == "pairs" and same["adapted"] and same["data"]["groups"] == 40
    found = json.loads(run(folder / "e.npz", "--id", "ids", "--relevance", folder / "r.csv", *FAST, "--json"))
    assert found["map"] == "query" and found["data"]["queries"] == 160 and "ndcg@10" in found["scores"]
    run(folder / "e.npz", "--id", "ids", "--relevance", folder / "r.csv", *FAST, "--save", folder / "q.safetensors")
    exported = CliRunner().invoke(app, ["export", str(folder / "q.safetensors"), str(folder / "q.duckdb.sql")])
    assert exported.exit_code == 0 and ("queries alone" in exported.output) and (folder / "q.duckdb.sql").exists()
    both = json.loads(run(folder / "e.npz", "--id", "ids", "--relevance", folder / "r.csv", "--map", "symmetric",
                          *FAST, "--json"))  # fmt: skip
    assert both["map"] == "symmetric"
    assert both["scores"]["ndcg@10"]["before"] == pytest.approx(found["scores"]["ndcg@10"]["before"])
    triplets = run(folder / "e.npz", "--id", "ids", "--triplets", folder / "t.csv", *FAST)
    assert "triplet accuracy" in triplets


def test_documents_of_their_own_file(folder):
    np.save(folder / "documents.npy", np.load(folder / "e.npy")[4:][::8])
    pd.DataFrame({"q": np.arange(320), "d": np.arange(320) // 8}).to_csv(folder / "numbers.csv", index=False)
    found = json.loads(run(folder / "e.npy", "--documents", folder / "documents.npy", "--relevance",
                           folder / "numbers.csv", *FAST, "--json"))  # fmt: skip
    assert found["data"]["documents"] == 40 and found["data"]["queries"] == 320


def test_quiet_prints_nothing_and_lines_fit_eighty_columns(folder, monkeypatch):
    assert run(folder / "e.npz", *FAST, "--quiet") == ""
    from isometry.cli import outputs

    monkeypatch.setattr(outputs, "PIPE_WIDTH", 80)
    assert all(len(line) <= 80 for line in run(folder / "e.npz", *FAST).splitlines())


def bad_rows(folder):
    X = np.load(folder / "e.npy")
    X[3, 1], X[17, 0], X[5] = np.nan, np.inf, 0
    return X


def test_bad_rows_are_named_and_left_out_when_told_so(folder):
    X = bad_rows(folder)
    np.savez(folder / "bad.npz", X=X, y=np.load(folder / "y.npy"), ids=np.array([f"r{k}" for k in range(320)]))
    assert "2 rows of" in (error := run(folder / "bad.npz", *FAST, code=2)) and "NaN" in error and "(3, 17)" in error
    assert "(r3, r17)" in run(folder / "bad.npz", "--id", "ids", *FAST, code=2)
    out = run(folder / "bad.npz", *FAST, "--skip-bad")
    assert "317 embeddings" in out and "are 0 and have no direction (5)" in out
    pd.DataFrame(X, columns=[f"x{k}" for k in range(12)]).assign(y=np.load(folder / "y.npy")).to_csv(
        folder / "bad.csv", index=False
    )
    assert "rows of" in (error := run(folder / "bad.csv", "--labels", "y", *FAST, code=2)) and "(3, 17)" in error
    only = np.load(folder / "e.npy")
    only[5] = 0
    np.save(folder / "zero.npy", only)
    assert "1 rows of" in (error := run(folder / "zero.npy", "--labels", folder / "y.npy", code=2)) and "(5)" in error


def test_ids_that_are_not_there_are_counted_listed_and_refused(folder):
    pairs = pd.read_csv(folder / "same.csv")
    pairs.iloc[:7, 0] = [f"x{k}" for k in range(7)]
    pairs.to_csv(folder / "strange.csv", index=False)
    args = (folder / "e.npz", "--id", "ids", "--pairs", folder / "strange.csv", *FAST)
    error = run(*args, code=2)
    assert "7 names in" in error and "(x0, x1, x2, x3, x4 and 2 more)" in error
    assert "7 lines of" in run(*args, "--skip-bad")
    labels = pd.read_csv(folder / "labels.csv")
    labels.iloc[:2, 0] = ["who", "whom"]
    labels.to_csv(folder / "strange_labels.csv", index=False)
    args = (folder / "e.npz", "--id", "ids", "--labels", folder / "strange_labels.csv", *FAST)
    assert "2 ids of" in (error := run(*args, code=2)) and "(who, whom)" in error
    out = run(*args, "--skip-bad")
    assert "2 embeddings have no label" in out and "318 embeddings" in out
    numbered = run(folder / "e.npy", "--pairs", folder / "same.csv", code=2)
    assert "the rows are numbered 0 to 319" in numbered
    labels = pd.concat([labels[2:], labels[2:3].assign(person="p0")])
    labels.to_csv(folder / "twice.csv", index=False)
    assert "more than one label" in run(folder / "e.npz", "--id", "ids", "--labels", folder / "twice.csv", code=2)


def test_contradictions_are_refused_or_left_out(folder):
    pairs = pd.read_csv(folder / "same.csv").assign(same=1)
    both = pd.concat([pairs, pairs.iloc[:2, [1, 0]].set_axis(["a", "b"], axis=1).assign(same=0)])
    both.to_csv(folder / "both.csv", index=False)
    args = (folder / "e.npz", "--id", "ids", "--pairs", folder / "both.csv", *FAST)
    assert "2 pairs are listed as the same and as different" in run(*args, code=2)
    assert "4 lines of" in run(*args, "--skip-bad")
    triplets = pd.read_csv(folder / "t.csv")
    pd.concat([triplets, triplets.iloc[:1, [0, 2, 1]].set_axis(list("apn"), axis=1)]).to_csv(
        folder / "turned.csv", index=False
    )
    args = (folder / "e.npz", "--id", "ids", "--triplets", folder / "turned.csv", *FAST)
    assert "2 triplets contradict one another" in run(*args, code=2)
    assert "2 lines of" in run(*args, "--skip-bad")


def test_row_numbers_that_pandas_writes_are_neither_embeddings_nor_names(folder):
    frame = pd.read_csv(folder / "e.csv")
    frame.to_csv(folder / "numbered.csv")
    args = ("--labels", "person", "--drop", "name", *FAST, "--json")
    done = CliRunner().invoke(app, ["adapt", str(folder / "numbered.csv"), *map(str, args)])
    assert "counts the rows: it is left out" in done.stderr
    numbered = json.loads(done.stdout)
    plain = json.loads(run(folder / "e.csv", *args))
    assert numbered["data"]["features"] == plain["data"]["features"] == 12
    assert numbered["scores"] == plain["scores"]
    relevance = pd.DataFrame({"q": np.arange(160), "d": 160 + np.arange(160)})
    relevance.to_csv(folder / "plain_r.csv", index=False)
    relevance.to_csv(folder / "numbered_r.csv")  # else a query would be 0, 1, …, and the document a grade
    found = [
        json.loads(run(folder / "e.npy", "--relevance", folder / f"{name}_r.csv", *FAST, "--json"))
        for name in ("plain", "numbered")
    ]
    assert found[0]["scores"] == found[1]["scores"] and found[1]["data"]["queries"] == 160


def test_names_of_features_in_an_npz_file_are_checked(folder):
    X, y = np.load(folder / "e.npy"), np.load(folder / "y.npy")
    np.savez(folder / "named.npz", X=X, y=y, feature_names=[*"abcdefghijk", "y"])
    assert "'y' is the name of an array" in run(folder / "named.npz", *FAST, code=2)
    np.savez(folder / "named.npz", X=X, y=y, feature_names=[*"ab"])
    assert "12 columns but there are 2 feature names" in run(folder / "named.npz", *FAST, code=2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("e.parquet", "--labels", "persona"), ("no column 'persona'", "did you mean 'person'")),
        (("e.parquet", "--labels", "person", "--id", "nam"), ("no column 'nam'",)),
        (("e.npz", "--labels", "z"), ("no array 'z'",)),
        (("e.npy",), ("--labels, --pairs, --triplets, --relevance", "got nothing")),
        (("e.npz", "--labels", "y", "--pairs", "same.csv"), ("--labels and --pairs",)),
        (("e.npz", "--map", "half"), ("expected auto, symmetric, query",)),
        (("e.npz", "--documents", "e.npy"), ("--documents are those of --relevance",)),
        (("e.npz", "--id", "ids", "--relevance", "same.csv"), ("queries and documents at once", "--documents")),
        (("e.npz", "--id", "ids", "--pairs", "t.csv"), ("holds", "expected 1 or 0")),
        (("e.npz", "--id", "ids", "--triplets", "same.csv"), ("2 columns", "three columns")),
        (("none.npy", "--labels", "y"), ("there is no file",)),
        (("e.npz", "--id", "y"), ("names more than one row",)),
        (("e.npz", "--save", "e.npz"), ("which would be lost",)),
    ],
)
def test_wrong_usage_is_told_in_words(folder, args, words):
    paths = [folder / a if str(a).endswith((".npz", ".npy", ".csv", ".parquet")) else a for a in args]
    error = run(*paths, code=2)
    assert all(word in error for word in words), error


@pytest.mark.parametrize("name", ["e.npy", "e.npz", "e.parquet"])
def test_a_truncated_file_is_refused(folder, name):
    whole = (folder / name).read_bytes()
    cut = folder / f"cut{name[1:]}"
    cut.write_bytes(whole[: len(whole) // 2])
    error = run(cut, "--labels", folder / "y.npy", code=2)
    assert "cannot be read" in error and "Traceback" not in error


def test_a_header_without_rows_is_refused(folder):
    (folder / "header.csv").write_text("x0,x1,person\n")
    assert "columns x0, x1, person but no rows" in run(folder / "header.csv", "--labels", "person", code=2)


def test_too_few_classes_are_refused(folder):
    np.save(folder / "two.npy", np.arange(320) % 2)
    assert "2 classes" in run(folder / "e.npy", "--labels", folder / "two.npy", code=2)
