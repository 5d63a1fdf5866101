"""The accuracy page: what is measured next, what is kept, and what its figures say."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from benchmarks import accuracy, accuracy_page, tables
from benchmarks.accuracy import Row, Task, fill, is_done, measure, stamp
from benchmarks.accuracy_page import largest_block, mean_ranks, summarise
from benchmarks.tables import Fold
from isometry.eval import knn_hits
from isometry.registry import get
from isometry.select.verdict import p_value

RCA, PLAIN = Row("M06", "published"), Row("EUC", "published")


def cell(gain=0.01, p=0.5, gains=None, **more):
    figures = {"gain": gain, "gains": gains or [gain], "p": p, "score": 0.9, "seconds": 0.2, "unconverged": 0}
    return {"stamp": stamp(RCA)} | figures | more


@pytest.fixture(autouse=True)
def sizes(monkeypatch):
    """Of sets that are not there: so many rows that one order of them is enough."""
    monkeypatch.setattr(tables, "shape_of", lambda name: (2_000, 3, 2))


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy, "STORE", tmp_path / "accuracy.json")
    return tmp_path / "accuracy.json"


def test_every_method_comes_as_published_and_with_automatic_strength_where_it_has_one():
    rows = accuracy.rows()
    assert len(set(rows)) == len(rows) and rows[0] == PLAIN
    assert {Row("M06", "published"), Row("M06", "automatic"), Row("AutoMetric", "automatic")} <= set(rows)
    assert all(row.method is None or row.method.published for row in rows if row.setting == "automatic")
    assert Row("M06", "published").make("closed").reg == get("M06").published["reg"]
    assert Row("M06", "automatic").make("closed").reg == "auto"
    turns = [accuracy.turn_of(row) for row in rows]
    assert turns == sorted(turns)  # closed forms, then what iterates, kernels last


def test_a_run_goes_on_where_the_last_one_stopped(store, monkeypatch):
    measured = []

    def one(task, limit):
        measured.append(task.data)
        return cell(over=limit) if task.data == "slow" else cell()

    monkeypatch.setattr(accuracy, "measure", one)
    tasks = [Task(RCA, name, "closed") for name in ("old", "new", "slow")]
    cells = {tasks[0].name: cell() | {"stamp": "older"}}
    assert [t.data for t in fill(tasks, cells, limit=5, minutes=1)] == ["new", "slow", "old"]  # what is missing first
    kept = json.loads(store.read_text())
    assert kept == cells and kept.keys() == {t.name for t in tasks}
    assert not list(fill(tasks, accuracy.read_store(), limit=5, minutes=1))
    assert [t.data for t in fill(tasks, accuracy.read_store(), limit=6, minutes=1)] == ["slow"]  # given up too soon
    assert not list(fill(tasks, {}, limit=5, minutes=-1))
    assert not is_done(None, tasks[0], 5)
    monkeypatch.setattr(tables, "shape_of", lambda name: (999, 3, 2))  # of which one order is not enough
    again = fill(tasks, accuracy.read_store(), limit=5, minutes=1, jobs=2)
    assert {t.data for t in again} == {"old", "new", "slow"}


def test_a_cell_is_the_paired_difference_to_euclidean(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)) * [1, 20, 20], np.arange(60) % 2
    X[:, 0] += 6 * y
    part = [Fold(X[:40], y[:40], X[40:], y[40:])] * 2
    monkeypatch.setattr(accuracy, "shuffles", lambda name: 1)
    monkeypatch.setattr(accuracy, "shuffled_folds", lambda name, seed: (part, np.arange(40)))
    accuracy.prepared.cache_clear()
    plain = measure(Task(PLAIN, "any", "closed"), 60)
    assert plain["gain"] == 0 and plain["p"] == 1
    found = measure(Task(RCA, "any", "closed"), 60)
    assert_allclose(found["score"], plain["score"] + found["gain"], atol=1e-5)
    assert found["gain"] > 0.2 and found["p"] < 0.01 and found["seconds"] > 0
    part[1:] = [Fold(np.ones((9, 3)), np.arange(9) % 2, X[:20], y[:20])]
    accuracy.prepared.cache_clear()
    failed = measure(Task(RCA, "any", "closed"), 60)
    assert failed["failure"].startswith("fold 2: ValueError: all samples are equal") and "gain" not in failed
    accuracy.prepared.cache_clear()


def test_what_a_row_gains_is_its_mean_over_the_orders(monkeypatch):
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
    monkeypatch.setattr(tables, "sample", lambda name: (X, y))
    monkeypatch.setattr(accuracy, "shuffles", lambda name: 3)
    monkeypatch.setattr(accuracy, "outcome", lambda task, splits, limit: ({}, np.ones(180)))  # all rows are named
    accuracy.prepared.cache_clear()
    found = measure(Task(RCA, "any", "closed"), 60)
    accuracy.prepared.cache_clear()
    plain, of_row = [], np.zeros(60)
    for seed in range(3):
        splits, held = tables.shuffled_folds("any", seed)
        hits = np.array([hit for f in splits for hit in knn_hits(f.X, f.y, f.X_test, f.y_test, 3)])
        plain.append(hits.mean())
        of_row[held] += (1 - hits) / 3
    assert len(set(plain)) == 3
    assert_allclose(found["gains"], 1 - np.array(plain), rtol=1e-3)  # four digits are kept
    assert_allclose(found["gain"], 1 - np.mean(plain), rtol=1e-5)
    assert_allclose(found["p"], p_value(of_row, None), rtol=1e-5)


def test_small_tables_are_split_in_more_orders(monkeypatch):
    for n, wanted in ((1_000, 1), (999, 2), (350, 3), (99, 10)):
        monkeypatch.setattr(tables, "shape_of", lambda name, n=n: (n, 3, 2))
        assert tables.shuffles("any") == wanted


def test_every_order_holds_out_every_row_once(monkeypatch):
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    monkeypatch.setattr(tables, "sample", lambda name: (X, y))
    as_it_is, held = tables.shuffled_folds("any", 0)
    assert sorted(held) == list(range(20))
    for mine, theirs in zip(as_it_is, tables.folds("any", "closed"), strict=True):
        assert_array_equal(mine.X_test, theirs.X_test)
    splits, held = tables.shuffled_folds("any", 1)
    assert sorted(held) == list(range(20))
    assert_allclose(np.concatenate([fold.y_test for fold in splits]), y[held])
    assert not np.array_equal(held, tables.shuffled_folds("any", 2)[1])
    for fold in splits:
        assert_allclose(fold.X.mean(axis=0), 0, atol=1e-12)  # standardised by the rows to learn from


def test_a_fit_over_the_limit_is_ended_and_said(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((600, 30)), np.arange(600) % 3
    monkeypatch.setattr(accuracy, "shuffles", lambda name: 1)
    monkeypatch.setattr(accuracy, "shuffled_folds", lambda name, seed: ([Fold(X, y, X, y)], np.arange(600)))
    accuracy.prepared.cache_clear()
    found = measure(Task(Row("P20", "published"), "any", "closed"), 0.0)  # the kernel counts whole seconds
    accuracy.prepared.cache_clear()
    assert found.get("over") == 0.0 or found["seconds"] < 1


def test_a_summary_counts_sets_and_corrects_for_their_number():
    tasks = [Task(RCA, name, "closed") for name in "abcdef"]
    cells = {
        tasks[0].name: cell(0.1, 0.001),
        tasks[1].name: cell(-0.2, 0.001),
        tasks[2].name: cell(0.1, 0.03),  # not with three others
        tasks[3].name: {"stamp": "older", "over": 30, "seconds": None, "unconverged": 0},
        tasks[4].name: cell(0.04, 0.9, stamp="older"),
    }
    found = summarise(tasks, cells)
    assert (found.better, found.worse, found.over, found.older, found.waiting) == (1, 1, ["d"], 2, 1)
    assert_allclose(found.mean, 1.0)
    assert found.worst == ("b", -20.0)


def test_ranks_have_the_critical_difference_of_nemenyi():
    changes = np.array([[3.0, 2, 5, 1], [1, 1, 1, 1], [0, 1, 2, 0.5]])
    ranks, difference, p = mean_ranks(changes)
    assert_allclose(ranks, [(1 + 1 + 1 + 1.5) / 4, (2 + 2.5 + 3 + 1.5) / 4, (3 + 2.5 + 2 + 3) / 4])
    assert_allclose(difference, 2.3437 * np.sqrt(3 * 4 / (6 * 4)), rtol=1e-4)  # q of Demšar's table for three
    assert_allclose(p, stats.friedmanchisquare(*changes).pvalue)


def test_ranks_are_of_rows_and_sets_without_a_gap():
    tasks = {row: [Task(row, name, "closed") for name in "abcd"] for row in (RCA, PLAIN, Row("M07", "published"))}
    cells = {t.name: cell() for group in tasks.values() for t in group}
    del cells[Task(RCA, "d", "closed").name]
    found = [summarise(group, cells) for group in tasks.values()]
    rows, sets = largest_block(found, list("abcd"))
    assert (len(rows), sets) == (3, ["a", "b", "c"])  # nine cells, and not two rows of four


def test_the_page_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy_page, "PAGE", accuracy_page.ROOT / tmp_path / "accuracy.md")
    monkeypatch.setattr(accuracy_page, "ROOT", tmp_path)
    monkeypatch.setattr(accuracy_page, "IMAGES", tmp_path)
    monkeypatch.setattr(accuracy_page, "shape_of", lambda name: (10, 2, 2))
    tasks = [Task(row, name, "closed") for row in (PLAIN, RCA, Row("M07", "published")) for name in "abc"]
    cells = {t.name: cell() for t in tasks[:5]} | {
        tasks[5].name: {"stamp": stamp(RCA), "over": 30.0, "seconds": None, "unconverged": 0}
    }
    accuracy_page.write(tasks, cells)
    page = (tmp_path / "accuracy.md").read_text()
    assert "| RCA | published | +1.0 | +1.0 a | 0 | 0 | 0.2 | 2/3 |" in page
    assert "On no set: DCA." in page and "more than 30 s of CPU time" in page and "- RCA, published: c" in page
    assert (tmp_path / "accuracy_closed.png").exists()
    low = Task(Row("M06", "automatic"), "a", "closed")
    cells[low.name] = cell(-0.03, 0.04, gains=[-0.05, -0.01])
    accuracy_page.write([*tasks, low], cells)
    page = (tmp_path / "accuracy.md").read_text()
    assert "| RCA | a | -3.0 | 0.04 | 2 | -5.0 | -1.0 |" in page
