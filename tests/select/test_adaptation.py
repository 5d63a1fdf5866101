"""Adapted embeddings: what is learned, what is kept, and what is warned of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from isometry import Labels, Pairs, Relevance, Triplets, adapt, load
from isometry.core.moments import ArrayMoments
from isometry.core.threads import _controller
from isometry.eval import Interval, document_ranking, listed_retrieval, retrieval
from isometry.moments import MomentsMetric
from isometry.registry import get
from isometry.select import adaptation
from isometry.select.adaptation import Score, _remarks
from isometry.select.budget import Budget
from isometry.select.heads import (
    Blends,
    Head,
    Setting,
    class_lesson,
    class_relevance,
    document_relevance,
    make_head,
)
from isometry.select.questions import ClassQuestions
from isometry.select.tasks import few_of_each, groups_of_pairs

QUICK = {"heads": False, "n_splits": 3, "budget": None}


def planted(n_classes=40, each=10, noise=2.5, seed=0):
    """Classes differ in six features; six others are louder and say nothing."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), each)
    signal = rng.normal(size=(n_classes, 6))[y] + 0.5 * rng.normal(size=(len(y), 6))
    return np.hstack([signal, noise * rng.normal(size=(len(y), 6))]), y


@pytest.fixture(scope="module")
def outcome():
    return adapt(*planted(), **QUICK)


def test_planted_classes_are_found(outcome):
    assert outcome.adapted and outcome.kind == "labels" and outcome.held_out == "whole classes"
    assert [s.name for s in outcome.scores] == ["map@r", "recall@1", "recall@10", "ndcg@10", "pair_auc"]
    assert outcome.main.difference.low > 0.1
    for s in outcome.scores:
        assert s.after - s.before == pytest.approx(s.difference.mean, abs=1e-12)
        assert s.difference.low <= s.difference.mean <= s.difference.high
    assert "MAP@R" in outcome.verdict and "whole classes held out" in str(outcome)


def test_small_decompositions_and_batches_have_one_thread(monkeypatch):
    """On a busy machine threads of BLAS wait for each other far longer than they work."""
    pytest.importorskip("torch")
    from isometry.deep import DeepMetric

    used = {"maps": set(), "heads": set()}

    def spied(work, key):
        def spy(*args, **kwargs):
            # maps are learned by NumPy and SciPy; other libraries bring a BLAS of their own, which is not used there
            libs = threadpool_info() if key == "heads" else _controller().info()
            kinds = ("blas", "openmp") if key == "heads" else ("blas",)
            used[key] |= {lib["num_threads"] for lib in libs if lib["user_api"] in kinds}
            return work(*args, **kwargs)

        return spy

    monkeypatch.setattr(adaptation, "learned_maps", spied(adaptation.learned_maps, "maps"))
    monkeypatch.setattr(DeepMetric, "fit", spied(DeepMetric.fit, "heads"))
    with threadpool_limits(limits=2):
        adapt(*planted(n_classes=12, each=6), n_splits=3, budget=None)
    assert used == {"maps": {1}, "heads": {1}}


def test_the_head_maps_new_classes_as_well_as_it_said(outcome):
    gains = []
    for seed in range(9, 15):  # as many classes as a fold held out
        X, y = planted(n_classes=13, seed=seed)
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        before, after = (retrieval(Z, y).mean()["map@r"] for Z in (unit, outcome.transform(X)))
        gains.append(after - before)
    assert outcome.main.difference.contains(np.mean(gains))


def test_the_head_is_saved_with_its_scores(outcome, tmp_path):
    from isometry.io import read_card

    outcome.save(tmp_path / "head.safetensors")
    X, _ = planted(seed=9)
    np.testing.assert_array_equal(load(tmp_path / "head.safetensors").transform(X), outcome.transform(X))
    card = read_card(tmp_path / "head.safetensors")
    assert card["quality"]["map@r"]["after"] == pytest.approx(outcome.main.after, abs=1e-6)
    assert card["verdict"] == outcome.verdict


def test_the_head_can_be_exported_and_searched_with(outcome, tmp_path):
    import runpy

    from isometry import Index
    from isometry.io import export, exportable_forms

    X = planted(seed=9)[0].astype(np.float32)
    assert {"onnx", "numpy"} <= set(exportable_forms(outcome.head))
    export(outcome.head, tmp_path / "head.py")
    alone = runpy.run_path(str(tmp_path / "head.py"))["transform"]
    np.testing.assert_allclose(alone(X), outcome.transform(X), atol=1e-5)
    found = Index(outcome.head).add(X).search(X[:5], k=3)
    assert found.ids[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_labels_leave_the_embeddings_as_they_are(seed):
    X, y = planted(seed=seed)
    kept = adapt(X, np.random.default_rng(seed).permutation(y), **QUICK)
    assert not kept.adapted and kept.verdict.startswith("Keep the embeddings")
    np.testing.assert_allclose(kept.transform(X), X / np.linalg.norm(X, axis=1, keepdims=True), atol=1e-12)


def test_similar_pairs_alone_are_groups():
    X, y = planted()
    first = np.flatnonzero(np.arange(len(y)) % 10 < 9)  # a chain through each class
    found = adapt(X, Pairs(first, first + 1, np.ones(len(first)), n=len(y)), **QUICK)
    assert found.adapted and found.kind == "pairs" and found.data["groups"] == 40
    assert any("no dissimilar pairs were given" in note for note in found.notes)
    same = adapt(X, y, **QUICK)
    assert found.main == same.main  # the groups are the classes


def test_pairs_of_both_kinds_and_triplets():
    X, y = planted(n_classes=60, each=4)
    a = 4 * np.arange(60)
    i, j = np.concatenate([a, a + 1, a, a + 2]), np.concatenate([a + 1, a + 2, (a + 6) % 240, (a + 7) % 240])
    # islands of two classes, so that parts can be held out whole
    island = (y[i] // 2 == y[j] // 2) | (y[i] == y[j])
    pairs = Pairs(i[island], j[island], (y[i] == y[j])[island], n=len(y))
    assert groups_of_pairs(pairs) is None
    found = adapt(X, pairs, **QUICK)
    assert found.main.name == "pair_auc" and {"map@r", "recall@1"} <= {s.name for s in found.scores}
    assert found.main.difference.mean > 0.02
    pick = 8 * np.arange(30)
    triplets = Triplets(
        np.concatenate([pick, pick + 1, pick + 4]),
        np.concatenate([pick + 1, pick + 2, pick + 5]),
        np.concatenate([pick + 4, pick + 5, pick + 2]),
        n_samples=240,
    )
    found = adapt(X, triplets, **QUICK)
    assert [s.name for s in found.scores] == ["ordering", "pair_auc"]
    assert found.main.difference.mean > 0.05


def relevance(seed=0):
    """Queries see the documents' six features through a rotation that a map must undo."""
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(60, 6))
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    i = np.arange(240)
    return D[i % 60] @ (0.5 * np.eye(6) + turn).T + 0.3 * rng.normal(size=(240, 6)), D, Relevance(i, i % 60)


def test_a_map_of_queries_alone_leaves_documents_where_they_are():
    Q, D, R = relevance()
    found = adapt(Q, R, documents=D, query_only=True, **QUICK)
    assert found.adapted and found.query_only and found.setting.method == "query map"
    assert found.main.name == "ndcg@10" and found.main.difference.low > 0.1
    unit = D / np.linalg.norm(D, axis=1, keepdims=True)
    new, _, _ = relevance()
    hits = np.mean(np.argmax(found.transform(new) @ unit.T, axis=1) == np.arange(240) % 60)
    plain = np.mean(np.argmax(new @ unit.T, axis=1) == np.arange(240) % 60)
    assert hits > plain + 0.2
    both = adapt(Q, R, documents=D, **QUICK)
    assert not both.query_only and both.kind == "relevance"


def test_relevance_of_classes_is_that_of_listed_rows():
    """The closed form from class moments, against the list of all others of the class."""
    X, y = planted(n_classes=5, each=4)
    y[:2] = 1  # classes of different sizes
    i, j = np.nonzero((y[:, None] == y) & ~np.eye(len(y), dtype=bool))
    listed = document_relevance(X, X, i, j, np.ones(len(i)))
    for a, b in zip(class_relevance(ArrayMoments(X, y)), listed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_heads_have_the_distances_of_the_blends_they_were_chosen_by(share, unit):
    X, y = planted()
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    lesson = class_lesson(X, y, query_only=False, heads=False)
    _, L = next(get("GMML").make().path(lesson.moments[0][1]))
    Z = next(Z for s, u, Z in Blends(lesson, X).under(L) if s == share and u == unit)
    head = make_head(lesson, Setting("GMML", 10.0, share, unit), L)
    blended, mapped = (((A[:20, None] - A[20:40]) ** 2).sum(axis=2) for A in (Z, head.queries(X)))
    np.testing.assert_allclose(mapped / mapped.mean(), blended / blended.mean(), rtol=1e-8)
    np.testing.assert_allclose(head.estimator(X[:50]).transform(3 * X), head.queries(X), atol=1e-10)


@pytest.mark.filterwarnings("ignore:n_components equals the number of features")
@pytest.mark.parametrize("name", ["GMML", "RCA", "FisherML", "DCA", "Covariance"])
def test_the_way_from_moments_is_that_of_fits_with_these_ridges(name):
    X, y = planted()
    learner = get(name).make()
    assert isinstance(learner, MomentsMetric)
    unit = np.trace(np.cov(X, rowvar=False, ddof=0)) / X.shape[1]
    for reg, L in learner.path(ArrayMoments(X, y)):
        scaled = reg * (unit if learner.reg_has_unit else 1.0)
        fitted = get(name).make(reg=scaled).fit(X, y).components_
        np.testing.assert_allclose(L.T @ L, fitted.T @ fitted, rtol=1e-8, atol=1e-10)
    assert not hasattr(learner, "components_")


def test_quick_map_at_r_is_that_of_retrieval():
    X, y = planted(n_classes=6, each=5)
    asked = ClassQuestions(X, y)
    np.testing.assert_allclose(asked.first(X, X).v, retrieval(X, y).map_at_r, atol=1e-12)
    other = ClassQuestions(X[::2], y[::2], X[1::2], y[1::2])
    found = retrieval(X[::2], y[::2], gallery=X[1::2], gallery_y=y[1::2])
    np.testing.assert_allclose(other.first(X[::2], X[1::2]).v, found.map_at_r, atol=1e-12)


def test_listed_retrieval_is_that_of_labels_and_of_documents():
    X, y = planted(n_classes=8, each=4)
    i, j = np.nonzero((y[:, None] == y) & ~np.eye(len(y), dtype=bool))
    listed, labelled = listed_retrieval(X, None, i, j), retrieval(X, y, ks=(1, 10))
    np.testing.assert_array_equal(listed["map@r"], labelled.map_at_r)
    np.testing.assert_array_equal(listed["recall@10"], labelled.recall_at[10])
    rng = np.random.default_rng(0)
    i, j = np.arange(30), rng.integers(len(X), size=30)
    grade = rng.integers(1, 4, size=30).astype(float)
    Q = rng.normal(size=(30, X.shape[1]))
    ranked = document_ranking(Q, X, {int(a): {int(b): g} for a, b, g in zip(i, j, grade)}, ks=(1, 10))
    found = listed_retrieval(Q, X, i, j, grade)
    np.testing.assert_allclose(found["ndcg@10"], ranked.ndcg_at[10], atol=1e-12)
    with pytest.raises(ValueError, match="no query has a relevant document"):
        listed_retrieval(Q, X, i[:0], j[:0])


def test_equal_vectors_over_the_split_few_classes_and_high_scores_are_warned_of():
    X, y = planted(n_classes=6, each=10, noise=0.01)
    X[10:15] = X[0]  # five of another class
    found = adapt(X, y, **QUICK)
    told = " ".join(found.warnings)
    assert "equal one on the other side" in told and "only 6 classes" in told
    rng = np.random.default_rng(0)
    clear = np.repeat(rng.normal(size=(30, 8)), 6, axis=0) + 1e-3 * rng.normal(size=(180, 8))
    assert any("little left to gain" in w for w in adapt(clear, np.repeat(np.arange(30), 6), **QUICK).warnings)


def test_a_score_that_falls_reliably_is_warned_of():
    found = adapt(*planted(), **QUICK)
    assert found.adapted and not any("reliably worse" in w for w in found.warnings)
    worse = Score("recall@1", 0.936, 0.874, Interval(-0.062, -0.09, -0.03))
    unsure = Score("recall@10", 0.99, 0.98, Interval(-0.01, -0.03, 0.01))
    (told,) = [w for w in _remarks(replace(found, scores=[found.main, worse, unsure])) if "reliably worse" in w]
    assert "chosen by MAP@R" in told and "recall@1 −6.2 points (0.9360 to 0.8740)" in told and "recall@10" not in told
    kept = replace(found, scores=[found.main, worse], setting=Setting("identity"))
    assert not any("reliably worse" in w for w in _remarks(kept))


def test_the_card_of_a_head_says_what_that_head_scores(outcome):
    assert outcome.quality()["quality"]["map@r"]["after"] == pytest.approx(outcome.main.after, abs=1e-6)
    kept = replace(outcome, setting=Setting("identity")).quality()["quality"]["map@r"]
    assert kept["after"] == kept["before"] == pytest.approx(outcome.main.before, abs=1e-6)


def test_hubs_are_warned_of():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 10)
    X = rng.normal(size=(400, 60))
    X[::20] *= 0.05  # near the centre: neighbours of all
    X += 2.0
    found = adapt(X, y, **QUICK)
    assert found.hubs[0] > 3 and any("hubs" in w for w in found.warnings)


def test_known_classes_look_among_known_rows():
    X, y = planted(n_classes=5, each=40)
    found = adapt(X, y, protocol="closed", **QUICK)
    assert found.held_out == "rows of known classes" and found.adapted


def test_a_sample_holds_some_rows_of_each_class_or_of_some_classes():
    codes = np.repeat(np.arange(100), 7)
    rng = np.random.RandomState(0)
    few = few_of_each(codes, np.arange(700), 80, rng)
    assert np.unique(np.bincount(codes[few])[np.unique(codes[few])]).tolist() == [4] and len(few) == 80
    some = few_of_each(codes, np.arange(350), 200, rng)
    assert len(np.unique(codes[some])) == 50 and np.all(np.bincount(codes[some])[:50] == 4)


@pytest.mark.parametrize(
    ("X", "y", "more", "match"),
    [
        (np.array([[1.0, np.nan]] * 3), [0, 1, 2], {}, "3 rows of X hold NaN"),
        (np.zeros((2, 3)), [0, 1], {}, "2 rows of X are 0"),
        (np.ones((4, 3), dtype=int), [0, 0, 1, 1], {}, "floating-point"),
        (np.eye(4), [0, 0, 1, 1], {}, "only 2 classes"),
        (np.eye(4), Relevance(np.array([0]), np.array([0])), {}, "give their embeddings"),
        (np.eye(4), [0, 0, 1, 1], {"documents": np.eye(4)}, "go with Relevance"),
        (np.eye(4), Relevance(np.arange(4), np.arange(4)), {"documents": np.eye(3)}, "numbers"),
        (np.eye(4), Relevance(np.arange(4), np.arange(4)), {"documents": np.eye(4)}, "4 queries"),
        (np.eye(4), Labels([0, 0, 1, 1]), {"protocol": "half"}, "'open' or 'closed'"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_words(X, y, more, match):
    with pytest.raises(ValueError, match=match):
        adapt(X, y, **more)


def test_a_mapped_file_gives_the_same_as_an_array(tmp_path, monkeypatch):
    X, y = planted()
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    at_once = adapt(X.astype(np.float32), y, **QUICK)
    monkeypatch.setattr("isometry.core.rows.IN_MEMORY_MIB", 0)
    late = adapt(np.load(tmp_path / "x.npy", mmap_mode="r"), y, **QUICK)
    assert late.setting == at_once.setting
    np.testing.assert_allclose([s.after for s in late.scores], [s.after for s in at_once.scores], atol=1e-3)


def test_a_query_head_maps_as_its_pipeline_does():
    A = np.random.default_rng(0).normal(size=(5, 5))
    X = np.random.default_rng(1).normal(size=(30, 5))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    head = Head(A, query_only=True)
    np.testing.assert_allclose(head.estimator(unit).transform(X), head.queries(unit), atol=1e-12)
    assert head.documents(unit) is unit


class Clock:
    """Stands still, but for each map that is learned and each head that is trained."""

    def __init__(self, monkeypatch, of_maps=1.0, of_heads=1.0, late=None):
        self.now, self.maps, self.heads, self.late = 0.0, 0, 0, late
        learned, trained = adaptation.learned_maps, adaptation.trained_head

        def slow_maps(*args, **kwargs):
            for found in learned(*args, **kwargs):
                self.maps += 1
                self.now += 1e3 if self.maps == self.late else of_maps
                yield found

        def slow_head(*args):
            self.heads += 1
            self.now += of_heads
            return trained(*args)

        monkeypatch.setattr(adaptation, "learned_maps", slow_maps)
        monkeypatch.setattr(adaptation, "trained_head", slow_head)

    def __call__(self):
        return self.now


def of_methods(found):
    return [setting.method for setting, _ in found.candidates]


def test_a_budget_that_is_long_enough_leaves_nothing_out(monkeypatch):
    clock = Clock(monkeypatch)
    found = adapt(*planted(), **QUICK | {"budget": Budget(1e3, clock)})
    assert sorted(of_methods(found)) == ["Covariance", "DCA", "FisherML", "GMML", "RCA"]
    assert not any("left out" in note for note in found.notes)
    assert found.main == adapt(*planted(), **QUICK).main


def test_the_first_fold_takes_its_share_of_the_budget_and_the_others_try_the_same(monkeypatch):
    clock = Clock(monkeypatch)
    found = adapt(*planted(), **QUICK | {"budget": Budget(22.5, clock)})  # 22.5 · 0.8 / 3 = 6 maps a fold
    assert clock.maps >= 18 and set(of_methods(found)) == {"GMML", "RCA"} and found.adapted
    (note,) = [note for note in found.notes if "left out" in note]
    assert note == (
        "left out, since the budget of 22 s ends before: RCA with ridges below 1, FisherML, DCA, Covariance. "
        "A larger budget (--budget) adds them"
    )


def test_folds_that_come_too_late_are_left_out(monkeypatch):
    clock = Clock(monkeypatch, late=45)  # in the third of five folds of twenty maps
    found = adapt(*planted(), **QUICK | {"n_splits": 5, "budget": Budget(200, clock)})
    assert len(found.by_fold) == 2 and len(of_methods(found)) == 5
    assert any("ends before: 3 of 5 folds. A larger" in note for note in found.notes)


def test_a_second_fold_that_is_cut_short_leaves_what_both_tried(monkeypatch):
    clock = Clock(monkeypatch, late=26)  # the second ridge of RCA
    found = adapt(*planted(), **QUICK | {"budget": Budget(200, clock)})
    assert len(found.by_fold) == 2 and set(of_methods(found)) == {"GMML", "RCA"}
    assert any("1 of 3 folds" in note for note in found.notes)


@pytest.mark.parametrize("late", [1, 20])  # the first and the last map of the first fold
def test_a_budget_that_is_over_keeps_the_embeddings(monkeypatch, late):
    X, y = planted()
    found = adapt(X, y, **QUICK | {"budget": Budget(100, Clock(monkeypatch, late=late))})
    assert not found.adapted and found.candidates == [] and found.main.difference == (0, 0, 0)
    assert found.verdict.startswith("Keep the embeddings as they are: the budget was over before a map could be")
    assert any(note.endswith("ends before: all maps. A larger budget (--budget) adds them") for note in found.notes)
    np.testing.assert_allclose(found.transform(X), X / np.linalg.norm(X, axis=1, keepdims=True), atol=1e-12)


def test_a_budget_over_before_the_first_fold_learns_nothing(monkeypatch):
    clock = Clock(monkeypatch)
    looked = adaptation.check_embeddings
    monkeypatch.setattr(adaptation, "check_embeddings", lambda *a: (setattr(clock, "now", 5.0), looked(*a))[1])
    found = adapt(*planted(), budget=Budget(1.0, clock))
    assert clock.maps == clock.heads == 0 and not found.adapted and "the budget was over" in found.verdict


@pytest.mark.parametrize(("seconds", "n_trained"), [(30, 1), (1e3, 3)])
def test_heads_are_trained_where_every_fold_has_time_for_one(monkeypatch, seconds, n_trained):
    pytest.importorskip("torch")
    clock = Clock(monkeypatch, of_maps=0.1, of_heads=10.0)
    found = adapt(*planted(n_classes=12, each=6), n_splits=3, budget=Budget(seconds, clock))
    assert clock.heads - (found.setting.method == "linear head") == n_trained
    assert ("linear head" in of_methods(found)) == (n_trained == 3)
    assert any("ends before: linear heads. A" in note for note in found.notes) == (n_trained == 1)


def test_a_budget_of_no_time_is_refused():
    with pytest.raises(ValueError, match="budget=0 is the number of seconds"):
        adapt(*planted(), budget=0)
