"""Index: the true neighbours by any metric and engine, ids that can be trusted, files that are whole."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import GMML, Index, Kernelized, Normalized
from isometry.io import StoreError

FAISS = ("faiss-flat", "faiss-ivf", "faiss-hnsw")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    return rng.normal(size=(300, 6)) + 2 * np.eye(6)[y], y


def brute(Z, Q, k, cosine=False):
    """Loops over pairs in float64: the order and the scores."""
    out = []
    for q in Q:
        if cosine:
            s = [-float(q @ z) / (np.linalg.norm(q) * np.linalg.norm(z)) for z in Z]
        else:
            s = [float(np.sqrt(((q - z) ** 2).sum())) for z in Z]
        order = sorted(range(len(Z)), key=lambda j: s[j])[:k]
        out.append([(j, -s[j] if cosine else s[j]) for j in order])
    return np.array([[j for j, _ in row] for row in out]), np.array([[s for _, s in row] for row in out])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_exact_search_is_that_of_loops(metric, data):
    X, _ = data
    with config_context(working_memory=1):
        ids, scores = Index(metric).fit(X).search(X[:20] + 0.1, 7)
    expected, values = brute(X, X[:20] + 0.1, 7, cosine=metric == "cosine")
    assert_array_equal(ids, expected)
    assert_allclose(scores, values, atol=1e-6 * max(1, np.abs(values).max()))


@pytest.mark.parametrize(
    "metric",
    [
        GMML(),
        make_pipeline(StandardScaler(), GMML()),
        Kernelized(GMML(), landmarks=40, random_state=0),
        Normalized(GMML()),
    ],
    ids=["linear", "pipeline", "kernel", "unit"],
)
def test_a_fitted_metric_maps_rows_and_queries(metric, data):
    X, y = data
    metric = metric.fit(X, y)
    Z = metric.transform(X)
    ids, scores = Index(metric).fit(X[:200]).search(X[200:], 5)
    expected, values = brute(Z[:200], Z[200:], 5)
    assert_array_equal(ids, expected)
    assert_allclose(scores, values, rtol=1e-4)


def test_digits_are_kept_far_from_the_origin(data):
    X, _ = data
    ids, scores = Index().fit(X + 1e7).search(X[:50] + 1e7, 5)
    expected, values = brute(X, X[:50], 5)
    assert_array_equal(ids, expected)
    assert_allclose(scores, values, atol=1e-6)


@pytest.mark.parametrize("engine", FAISS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_faiss_finds_what_the_exact_engine_finds(engine, metric, data):
    pytest.importorskip("faiss")
    X, _ = data
    exact = Index(metric).fit(X).search(X[:50] + 0.01, 10)
    found = Index(metric, engine=engine, effort=300).fit(X).search(X[:50] + 0.01, 10)  # looks everywhere
    assert_array_equal(found.ids, exact.ids)
    assert_array_equal(found.scores, exact.scores)


@pytest.mark.parametrize("engine", ["faiss-ivf", "faiss-hnsw"])
def test_a_search_that_looks_at_too_few_rows_is_made_whole(engine, data):
    pytest.importorskip("faiss")
    X, _ = data
    exact = Index().fit(X).search(X[:5], 290)
    found = Index(engine=engine, effort=1).fit(X).search(X[:5], 290)
    assert all(len(set(row)) == 290 for row in found.ids.tolist())
    assert engine == "faiss-hnsw" or (found.ids == exact.ids).all()


def test_without_faiss_a_word_says_what_to_do():
    code = (
        "import sys; sys.modules['faiss'] = None; import isometry\n"
        "try: isometry.Index(engine='faiss-ivf').fit([[0.0, 1], [1, 0]])\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert 'pip install "isometry[index]"' in done.stdout and "engine='exact'" in done.stdout


def test_add_and_remove_are_a_fit_of_what_is_left(data):
    X, _ = data
    names = [f"r{i}" for i in range(300)]
    index = Index("cosine").fit(X[:100], ids=names[:100])
    index.add(X[100:], ids=names[100:]).remove(names[50:120])
    left = [i for i in range(300) if not 50 <= i < 120]
    whole = Index("cosine").fit(X[left], ids=[names[i] for i in left])
    a, b = index.search(X[:30], 4), whole.search(X[:30], 4)
    assert_array_equal(a.ids, b.ids)
    assert_array_equal(a.scores, b.scores)
    assert len(index) == 230


def test_numbers_go_on_after_rows_were_removed(data):
    X, _ = data
    index = Index().fit(X[:10]).remove([3, 4]).add(X[10:12])
    assert index.ids_.tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]


def test_ids_that_repeat_or_are_missing_are_counted_and_listed(data):
    X, _ = data
    with pytest.raises(ValueError, match=r"2 of the ids come more than once: 1, 4\."):
        Index().fit(X[:6], ids=[1, 1, 4, 4, 5, 6])
    with pytest.raises(ValueError, match="there are 6 rows but 2 ids"):
        Index().fit(X[:6], ids=[1, 2])
    index = Index().fit(X[:6], ids=list("abcdef"))
    with pytest.raises(KeyError, match="2 of 3 ids are not in the index: y, z"):
        index.remove(["a", "y", "z"])
    assert len(index) == 6
    with pytest.raises(ValueError, match="1 of 2 ids are in the index already: c"):
        index.add(X[:2], ids=["q", "c"])
    with pytest.raises(ValueError, match="are text, so that new rows need theirs"):
        index.add(X[:2])
    with pytest.raises(ValueError, match="whole numbers"):
        index.remove([1])


def test_bad_rows_are_named(data):
    X, y = data
    bad = X.copy()
    bad[[3, 7]] = np.nan
    with pytest.raises(ValueError, match=r"2 of the 300 rows of X hold NaN or infinity \(rows 3, 7\)"):
        Index().fit(bad)
    with pytest.raises(ValueError, match=r"2 of the 300 rows of X hold NaN or infinity \(rows 3, 7\)"):
        Index(GMML().fit(X, y)).fit(bad)
    bad = X.copy()
    bad[5] = 0
    with pytest.raises(ValueError, match=r"1 of the 300 rows of X are zero vectors \(rows 5\)"):
        Index("cosine").fit(bad)
    index = Index().fit(X)
    with pytest.raises(ValueError, match="the rows of the queries have 4 features, but the embeddings here have 6"):
        index.search(X[:, :4])
    with pytest.raises(ValueError, match="k=301 neighbours"):
        index.search(X, 301)
    with pytest.raises(ValueError, match="too large for 32 bits"):
        Index().fit([[0.0, 1e60], [1.0, 0.0]])
    with pytest.raises(NotFittedError):
        Index().search(X)
    with pytest.raises(ValueError, match="metric='cosin' is unknown"):
        Index("cosin").fit(X)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_within_is_that_of_loops_at_the_threshold_too(metric):
    Z = np.array([[0.0, 1], [0, 2], [3, 0], [4, 0], [0, 1], [3, 4]])  # distances are whole
    near = Index(metric).fit(Z).within(Z, 1.0 if metric == "euclidean" else 0.8)
    found = set(zip(near.queries.tolist(), near.ids.tolist()))
    expected = set()
    for i in range(6):
        for j in range(6):
            cosine = Z[i] @ Z[j] / np.linalg.norm(Z[i]) / np.linalg.norm(Z[j])
            ok = np.linalg.norm(Z[i] - Z[j]) <= 1 if metric == "euclidean" else cosine >= 0.8 - 1e-12
            if ok:
                expected.add((i, j))
    assert found == expected


@pytest.mark.parametrize("quantizer", ["float16", "int8", "binary"])
def test_codes_in_place_of_embeddings(quantizer, data):
    X, _ = data
    plain = Index().fit(X)
    coded = Index(quantizer=quantizer, rescore=100).fit(X[:250]).add(X[250:])
    a, b = plain.search(X[:40] + 0.05, 5), coded.search(X[:40] + 0.05, 5)
    same = np.mean([len(set(p) & set(q)) / 5 for p, q in zip(a.ids.tolist(), b.ids.tolist())])
    assert same > 0.95
    assert_allclose(b.scores, a.scores, atol=0.05)
    assert coded.embeddings_.nbytes < plain.embeddings_.nbytes
    assert len(coded.remove([0])) == 299


def test_round_trip(data, tmp_path):
    X, y = data
    metric = make_pipeline(StandardScaler(), GMML()).fit(X, y)
    path = tmp_path / "i.safetensors"
    for index in (
        Index(metric).fit(X, ids=[f"r{i}" for i in range(300)]),
        Index("cosine", quantizer="binary").fit(X),
    ):
        before = index.search(X[:9], 3)
        index.save(path)
        for back in (Index.load(path), isometry.load(path)):
            after = back.search(X[:9], 3)
            assert_array_equal(after.ids, before.ids)
            assert_array_equal(after.scores, before.scores)
    assert b"pickle" not in path.read_bytes()


def test_a_file_keeps_the_cells_of_faiss(data, tmp_path):
    pytest.importorskip("faiss")
    X, _ = data
    index = Index(engine="faiss-ivf", effort=2).fit(X)
    before = index.search(X[:9], 3)
    index.save(tmp_path / "i.safetensors")
    back = Index.load(tmp_path / "i.safetensors")
    assert_array_equal(back.cells_, index.cells_)
    assert_array_equal(back.search(X[:9], 3).ids, before.ids)


def test_an_index_of_another_metric_or_width_is_refused(data, tmp_path):
    X, y = data
    path = tmp_path / "i.safetensors"
    metric = GMML().fit(X, y)
    Index(metric).fit(X).save(path)
    assert len(Index.load(path, metric=metric, n_features=6)) == 300
    with pytest.raises(StoreError, match="not the GMML that is expected"):
        Index.load(path, metric=GMML(reg=0.5).fit(X, y))
    with pytest.raises(StoreError, match="not the cosine that is expected"):
        Index.load(path, metric="cosine")
    with pytest.raises(StoreError, match="with 6 features, not 5"):
        Index.load(path, n_features=5)
    metric.save(path)
    with pytest.raises(StoreError, match="holds GMML, not an index"):
        Index.load(path)


def test_damaged_files_and_folders_that_cannot_be_written(data, tmp_path):
    X, _ = data
    index, path = Index().fit(X), tmp_path / "i.safetensors"
    index.save(path)
    whole = path.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(StoreError):
            Index.load(path)
    index.ids_ = index.ids_[:-1]
    index.save(path)
    with pytest.raises(StoreError, match="no whole index"):
        Index.load(path)
    with pytest.raises(FileNotFoundError, match="create it first"):
        index.save(tmp_path / "nowhere" / "i.safetensors")
