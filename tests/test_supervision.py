"""Supervision objects: edges, conversions, cutting, and life inside scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, KFold, cross_validate, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import isometry
from isometry import (
    DCA,
    GMML,
    ITML,
    LDML,
    LMNN,
    PCCA,
    RCA,
    AllPairs,
    Candidates,
    Chunklets,
    Labels,
    NeighborPairs,
    NeighborTriplets,
    Pairs,
    Quadruplets,
    RandomChunklets,
    RandomPairs,
    Triplets,
)
from isometry.sampling import ALL_PAIRS_UP_TO, choose_pairs, resolve_sampler, signed_edges
from isometry.supervision import as_supervision
from tests.conftest import make_blobs
from tests.test_parameters import METHODS, data_for

SHUFFLED = KFold(3, shuffle=True, random_state=0)


def edges(e):
    return {(min(i, j), max(i, j)) for i, j in zip(e.i.tolist(), e.j.tolist())}


def test_labels_list_each_pair_once():
    side = Labels(["b", "a", "b", "c"])
    assert side.classes.tolist() == ["a", "b", "c"] and side.codes.tolist() == [1, 0, 1, 2]
    assert edges(side.similar) == {(0, 2)}
    assert edges(side.dissimilar) == {(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)}


def test_unlabelled_rows_are_in_no_pair():
    side = Labels([0, -1, 0, 1], unlabelled=-1)
    assert edges(side.similar) == {(0, 2)} and edges(side.dissimilar) == {(0, 3), (2, 3)}
    assert Labels([-1, 1]).classes.tolist() == [-1, 1]  # by default −1 is a class like any other


@pytest.mark.parametrize(
    "y, message",
    [
        ([0.0, np.nan, 1.0], r"1 missing label \(first at row 1\)"),
        (np.array(["a", None, "b"], dtype=object), "missing"),
        ([0.1, 0.2, 0.35], "continuous"),
        ([[0, 1], [1, 0]], "one-dimensional"),
    ],
)
def test_bad_labels_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        Labels(y)


@pytest.mark.parametrize("y", [[0, "a", 0], np.array([0, "a", 2.5], dtype=object), ("a", 1), ["x", True]])
def test_text_and_numbers_are_no_labels_together(y, blobs):
    """As text, 1 and "1" would be one class without a word; as objects, they have no order."""
    with pytest.raises(TypeError, match=r"labels must be of one kind, but y holds the text '[ax]' and .*turn all into"):
        Labels(y)
    with pytest.raises(TypeError, match="labels must be of one kind"):
        RCA().fit(blobs[0][: len(y)], y)
    side = Labels(["a", -1, "b", "a"], unlabelled=-1)  # a mark for unknown labels is none of them
    assert side.classes.tolist() == ["a", "b"] and side.codes.tolist() == [0, -1, 1, 0]


@pytest.mark.parametrize("y", [[(1, 2), 0], [0, {"a": 1}], [{1}, {2}], [1j, 2], [object(), object()]])
def test_labels_that_cannot_be_sorted_are_named(y, blobs):
    """Sets have an order of a kind, by which equal ones do not come side by side."""
    y = np.array([*y, None, *y], dtype=object)[[0, 1, 3, 4]]
    with pytest.raises(TypeError, match="labels must be numbers, text, or values of one kind that can be sorted"):
        Labels(y)


@pytest.mark.parametrize("learn", [RCA().fit, isometry.MLKR().fit, lambda X, y: isometry.compare(X, y, ["RCA"])])
def test_labels_of_different_lengths_are_named(learn, blobs):
    X = blobs[0]
    with pytest.raises(ValueError, match="one label or number for each sample, but some of its entries are lists"):
        learn(X, [[0, (1, 2)][k % 2] for k in range(len(X))])


def test_pairs_understand_booleans_signs_and_soft_similarity():
    for similar in ([True, False], [1, -1], [1.0, 0.0]):
        side = Pairs([0, 1], [1, 2], similar, n=3)
        assert edges(side.similar) == {(0, 1)} and edges(side.dissimilar) == {(1, 2)}
    soft = Pairs([0, 1], [1, 2], [0.25, 1.0], n=3, weight=[2.0, 1.0])
    assert soft.similar.weight.tolist() == [0.5, 1.0] and soft.dissimilar.weight.tolist() == [1.5]


@pytest.mark.parametrize(
    "args, message",
    [
        (([0], [3], [True]), "index 3, but there are 3 samples"),
        (([-1], [1], [True]), "index -1"),
        (([1], [1], [True]), "with itself"),
        (([0, 1], [1], [True]), "equal lengths"),
        (([0], [1], [2.0]), "similarities in"),
        (([0.5], [1], [True]), "sample indices"),
    ],
)
def test_bad_pairs_are_named(args, message):
    with pytest.raises(ValueError, match=message):
        Pairs(*args, n=3)


def test_a_pair_of_weight_zero_joins_nothing():
    pairs = Pairs([0, 1, 3], [1, 2, 4], [True, True, False], n=5, weight=[1.0, 0.0, 0.0])
    assert pairs.similar.i.tolist() == [0] and len(pairs.dissimilar.i) == 0
    assert pairs.to(Chunklets).codes.tolist() == [0, 0, -1, -1, -1]
    assert len(np.unique(pairs.components())) == 4


def test_groups_refuse_weights_and_soft_similarities():
    with pytest.raises(ValueError, match=r"chunklets .* cannot weigh them: pair 1 of y has the similarity 0\.01"):
        Pairs([0, 1], [1, 2], [1.0, 0.01], n=3).to(Chunklets)
    with pytest.raises(ValueError, match=r"weights of the similar pairs of y range from 0\.5 to 2"):
        Pairs([0, 1], [1, 2], [True, True], n=3, weight=[0.5, 2.0]).to(Chunklets)
    alike = Pairs([0, 1, 0], [1, 2, 3], [True, True, False], n=4, weight=[2.0, 2.0, 0.5])  # equal within each kind
    assert alike.to(Chunklets).codes.tolist() == [0, 0, 0, 1]


def test_bad_weights_triplets_quadruplets_chunklets_candidates():
    with pytest.raises(ValueError, match="weight"):
        Pairs([0], [1], [True], n=3, weight=[-1.0])
    with pytest.raises(ValueError, match="twice"):
        Triplets([0], [0], [1], n_samples=3)
    with pytest.raises(ValueError, match="itself"):
        Quadruplets([0], [0], [1], [2], n_samples=3)
    with pytest.raises(ValueError, match="integer"):
        Chunklets(["a", "b"])
    with pytest.raises(ValueError, match="negative_links"):
        Chunklets([0, 1], negative_links=np.ones((3, 3)))
    with pytest.raises(ValueError, match="no candidate"):
        Candidates([[1, 0], [0, 0]])
    with pytest.raises(ValueError, match="0/1"):
        Candidates([[2, 0]])


def test_cutting_gives_the_induced_subgraph_renumbered():
    side = Pairs([0, 1, 2, 3], [1, 2, 3, 4], [1, 0, 1, 0], n=5)
    part = side[[4, 3, 1]]
    assert len(part) == 3 and edges(part.similar) == set() and edges(part.dissimilar) == {(0, 1)}
    assert edges(side[np.array([True, True, False, True, True])].dissimilar) == {(2, 3)}
    assert edges(side[1:4].similar) == {(1, 2)}
    with pytest.raises(ValueError, match="repeated rows"):
        side[[0, 0, 1]]
    assert Labels([5, 6, 7])[[0, 0, 2]].codes.tolist() == [0, 0, 1]  # labels may repeat: a bootstrap is fine
    t = Triplets([0, 3], [1, 4], [2, 0], n_samples=5)[[0, 1, 2]]
    assert (t.a.tolist(), t.p.tolist(), t.n.tolist()) == ([0], [1], [2])
    q = Quadruplets([0], [1], [2], [3], n_samples=5)
    assert len(q[[0, 1, 2]].a) == 0 and len(q[[3, 2, 1, 0]].a) == 1


def test_conversions():
    side = Pairs([0, 1, 4], [1, 2, 0], [1, 1, 0], n=6)
    chunks = side.to(Chunklets)
    assert chunks.codes[0] == chunks.codes[1] == chunks.codes[2] != chunks.codes[4]
    assert chunks.codes[3] == chunks.codes[5] == -1
    assert chunks.negative_links.sum() == 2
    assert edges(chunks.dissimilar) == {(0, 4), (1, 4), (2, 4)}
    t = Triplets([0], [1], [2], n_samples=3).to(Pairs)
    assert edges(t.similar) == {(0, 1)} and edges(t.dissimilar) == {(0, 2)}
    q = Quadruplets([0], [1], [2], [3], n_samples=4).to(Pairs)
    assert edges(q.similar) == {(0, 1)} and edges(q.dissimilar) == {(2, 3)}
    assert Labels([0, 1, 0]).to(Candidates).mask.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert Pairs([0], [1], [1], n=2).to(Labels) is None
    assert side.components().tolist() == [0, 0, 0, 1, 0, 2]


def test_impossible_conversion_says_what_is_needed(blobs):
    X, _ = blobs
    with pytest.raises(TypeError, match="LMNN learns from labels or triplets; it cannot use pairs"):
        LMNN(strength=1.0).fit(X, Pairs([0], [1], [True], n=len(X)))
    with pytest.raises(ValueError, match="y has 3 entries but X has 45 rows"):
        GMML().fit(X, Pairs([0], [1], [True], n=3))
    assert as_supervision(None) is None


def test_metric_learn_tuples(blobs):
    X, _ = blobs
    T = np.stack([X[[0, 1, 2]], X[[1, 5, 40]]], axis=1)  # (3, 2, d)
    rows, side = Pairs.from_tuples(T, [1, 1, -1])
    assert_allclose(rows[side.i], T[:, 0])
    assert_allclose(rows[side.j], T[:, 1])
    learner = GMML(reg=0.1).fit(rows, side)
    assert_allclose(learner.pair_distance(T), learner.pair_distance(rows, side))
    metric = learner.get_metric()
    assert_allclose(metric(T[0, 0], T[0, 1]), learner.pair_distance(T)[0])
    assert metric(T[0, :1], T[0, 1:]) == metric(T[0, 0].tolist(), T[0, 1].tolist()) == metric(T[0, 0], T[0, 1])
    for u, v in ((X[:4], X[1:5]), (X[0, :-1], X[1, :-1]), ([*X[0], 1.0], X[1])):
        with pytest.raises(ValueError, match=f"a metric of {X.shape[1]} features compares two vectors of as many"):
            metric(u, v)


def test_tuples_and_back(blobs):
    """Arrays of points become samples with indices, and indices become arrays of points."""
    X, _ = blobs
    triplets = Triplets([0, 3, 0], [1, 4, 2], [2, 0, 7], n_samples=len(X))
    quadruplets = Quadruplets([0, 3], [1, 4], [0, 5], [2, 6], n_samples=len(X))
    pairs = Pairs([0, 3, 0], [1, 4, 2], [1, -1, 1], n=len(X))
    for kind, side, columns in ((Triplets, triplets, "apn"), (Quadruplets, quadruplets, "abcd")):
        T = side.tuples(X)
        assert_allclose(T, np.stack([X[getattr(side, name)] for name in columns], axis=1))
        rows, again = kind.from_tuples(T, weight=np.arange(len(T)))
        assert len(rows) == len(again) == len(np.unique(T.reshape(-1, X.shape[1]), axis=0))
        assert_allclose(again.tuples(rows), T)
        assert again.weight.tolist() == list(range(len(T)))
        with pytest.raises(ValueError, match=rf"expected {side.kind} as an array \(m, {len(columns)}, d\), got shape"):
            kind.from_tuples(T[:, :2])
        with pytest.raises(ValueError, match="X must be the table of the 45 samples, got shape"):
            side.tuples(X[1:])
    T, y = pairs.tuples(X)
    assert y.tolist() == [1, -1, 1] and T.shape == (3, 2, X.shape[1])
    rows, again = Pairs.from_tuples(T, y, weight=[1, 2, 3])
    assert_allclose(again.tuples(rows)[0], T)
    assert again.similarity.tolist() == [1, 0, 1] and again.weight.tolist() == [1, 2, 3]
    assert Pairs([0], [1], [0.3], n=2).tuples(X[:2])[1].tolist() == [0.3]


def test_equal_points_of_one_tuple_stay_two_samples():
    """Points that are equal in different tuples are one sample."""
    u, v, w = np.eye(3)
    X, side = Pairs.from_tuples([[u, u], [u, v], [w, w], [v, v]], [1, -1, 1, -1])
    assert len(X) == 6 and np.all(side.i != side.j)
    assert_allclose(side.tuples(X)[0], [[u, u], [u, v], [w, w], [v, v]])
    assert side.i[0] == side.i[1]
    assert GMML(reg=0.1).fit(X, side).pair_distance(X, side)[0] == 0
    T = [[u, u, v], [u, v, v], [u, v, u], [u, u, u], [u, v, w]]
    X, side = Triplets.from_tuples(T)
    assert_allclose(side.tuples(X), T)
    assert len(X) == 3 + 1 + 1 + 1 + 2 and side.n_samples == len(X)
    T = [[u, u, v, w], [u, v, u, v], [v, w, u, u]]
    X, side = Quadruplets.from_tuples(T)
    assert_allclose(side.tuples(X), T)
    assert len(X) == 3 + 2 and side.a[1] == side.c[1]


def test_weights_of_triplets_and_quadruplets():
    t = Triplets([0, 3, 1], [1, 4, 2], [2, 0, 4], n_samples=5, weight=[2.0, 0.0, 1.0])
    q = Quadruplets([0, 1], [1, 2], [2, 3], [3, 4], n_samples=5, weight=[0.5, 3.0])
    assert t[[2, 1, 0, 4]].weight.tolist() == [2.0, 1.0] and q[[4, 3, 2, 1]].weight.tolist() == [3.0]
    for side in (t, q):
        pairs = side.to(Pairs)
        assert pairs.weight.tolist() == [*side.weight, *side.weight]
        assert pairs.similar.weight.tolist() == [w for w in side.weight if w > 0]
        with pytest.raises(ValueError, match="cannot weigh them"):
            side.to(Chunklets)
        with pytest.raises(ValueError, match="cannot weigh them"):
            DCA().fit(np.random.default_rng(0).standard_normal((5, 2)), side)
    assert Triplets([0], [1], [2], n_samples=3).weight.tolist() == [1.0]
    for wrong in ([-1.0, 1, 1], [1.0], [np.nan, 1, 1], [[1.0, 1, 1]]):
        with pytest.raises(ValueError, match="weight must hold one finite number ≥ 0 for each triplet"):
            Triplets([0, 3, 1], [1, 4, 2], [2, 0, 4], n_samples=5, weight=wrong)
    with pytest.raises(ValueError, match="for each quadruplet"):
        Quadruplets([0], [1], [2], [3], n_samples=4, weight=[np.inf])


@pytest.mark.parametrize("learner", [GMML(reg=0.1), ITML(strength=1.0), LDML(strength=1.0), RCA()], ids=repr)
def test_triplets_in_a_method_of_pairs_are_taken_apart_with_a_warning(learner):
    X, y = make_blobs()
    t = NeighborTriplets(2).draw(X, Labels(y), np.random.RandomState(0))
    q = Quadruplets(t.a, t.p, t.n, t.a, n_samples=len(X))
    name = type(learner).__name__
    for side, near, far in ((t, "a and p", "a and n"), (q, "a and b", "c and d")):
        said = f"{name} does not compare distances: of each of the {side.kind}, {near} become a similar pair and {far}"
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.fit(X, side)
        assert [str(w.message).startswith(said) for w in caught].count(True) == 1
        assert caught[0].filename == __file__
    weight = 1.0 + (np.arange(len(t.a)) % 2)
    if "RCA" not in name:  # weighs pairs, hence also those of triplets
        rows = np.repeat(np.arange(len(t.a)), weight.astype(int))
        twice = Triplets(t.a[rows], t.p[rows], t.n[rows], n_samples=len(X))
        weighed = Triplets(t.a, t.p, t.n, n_samples=len(X), weight=weight)
        A, B = (learner.fit(X, side).mahalanobis_ for side in (twice, weighed))
        assert_allclose(A, B, atol=1e-4 * np.abs(A).max())


def all_pairs(y):
    return Labels(y).to(Pairs)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
def test_no_learner_takes_comparisons_apart_without_a_word(method):
    """They are learned from as they are, taken apart with a warning, or refused by name."""
    (X, y), learner = data_for(method), method.example()
    t = NeighborTriplets(2).draw(X.reshape(len(X), -1), Labels(y), np.random.RandomState(0))
    if "max_iter" in learner.get_params():
        learner.set_params(max_iter=2)
    for side in (t, Quadruplets(t.a, t.p, t.n, t.a, n_samples=len(X))):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                learner.fit(X, side)
            except TypeError as error:
                assert f"it cannot use {side.kind}" in str(error)
                continue
        told = [w for w in caught if "does not compare distances" in str(w.message)]
        assert len(told) == (side.kind not in method.sees and method.sees != "none")


def test_grid_search_over_a_pipeline_with_pairs_as_y():
    """StandardScaler and PCA stand in front, and each fold sees its own pairs only."""
    X, y = make_blobs(n=60, d=5)
    pipe = Pipeline([("scale", StandardScaler()), ("pca", PCA()), ("metric", GMML())])
    grid = {"pca__n_components": [2, 4], "metric__t": [0.2, 0.5]}
    search = GridSearchCV(pipe, grid, cv=SHUFFLED, error_score="raise").fit(X, all_pairs(y))
    assert 0.5 < search.best_score_ <= 1
    assert search.transform(X).shape == (60, search.best_params_["pca__n_components"])


def test_cross_validate_and_split_with_supervision():
    X, y = make_blobs(n=60, d=4)
    scores = cross_validate(
        make_pipeline(StandardScaler(), ITML(strength=1.0)), X, all_pairs(y), cv=SHUFFLED, error_score="raise"
    )
    assert np.all((scores["test_score"] > 0.5) & (scores["test_score"] <= 1))
    A, B, a, b = train_test_split(X, all_pairs(y), random_state=0)
    assert len(A) == len(a) == 45 and len(B) == len(b) == 15
    assert cross_validate(GMML(), X, y, cv=SHUFFLED)["test_score"].min() > 0.3  # labels: leave-one-out 1-NN


def test_sampler_parameters_are_searchable():
    X, y = make_blobs(n=60)
    search = GridSearchCV(
        ITML(pairs=RandomPairs(50), random_state=0, strength=1.0), {"pairs__n": [20, 40]}, cv=SHUFFLED
    ).fit(X, y)
    assert search.best_params_["pairs__n"] in (20, 40)
    with pytest.raises(TypeError, match="sampler"):
        PCCA(pairs="all", strength=1.0).fit(X, y)


def test_random_pairs_are_distinct_and_of_the_right_kind():
    X, y = make_blobs(n=60)
    side = RandomPairs(200).draw(X, Labels(y), np.random.RandomState(0))
    S, D = side.similar, side.dissimilar
    assert len(edges(S)) == len(S.i) == 200 and len(edges(D)) == len(D.i) == 200
    assert np.all(y[S.i] == y[S.j]) and np.all(y[D.i] != y[D.j])
    few = RandomPairs(10**6).draw(X, Labels(y), np.random.RandomState(0))  # more than there are: all of them
    assert edges(few.similar) == edges(Labels(y).similar) and edges(few.dissimilar) == edges(Labels(y).dissimilar)


def test_random_pairs_are_uniform_over_pairs_or_over_classes():
    y = np.repeat([0, 1], [40, 10])  # 780 and 45 similar pairs
    labels, X = Labels(y), np.zeros((50, 1))
    share = lambda sampler: np.mean(  # noqa: E731
        [y[sampler.draw(X, labels, np.random.RandomState(s)).similar.i].mean() for s in range(60)]
    )
    assert abs(share(RandomPairs(20)) - 45 / 825) < 0.02
    assert abs(share(RandomPairs(20, balanced=True)) - 0.5) < 0.06


def test_auto_takes_all_pairs_up_to_a_limit_and_a_sample_beyond():
    most = 2000  # the largest n with n (n − 1) / 2 ≤ two million
    assert most * (most - 1) / 2 <= ALL_PAIRS_UP_TO < (most + 1) * most / 2
    assert isinstance(resolve_sampler("auto", most), AllPairs)
    assert repr(resolve_sampler("auto", most + 1)) == "RandomPairs()"
    assert isinstance(resolve_sampler("auto", 5, all_up_to=10), AllPairs)
    assert isinstance(resolve_sampler("auto", 6, all_up_to=10), RandomPairs)
    own = NeighborPairs(2)
    assert resolve_sampler(own, 10**6) is own
    X, y = make_blobs(n=20)
    labels, rng = Labels(y), np.random.RandomState(0)
    assert choose_pairs(labels, "auto", X, rng) is labels
    listed = choose_pairs(labels, "auto", X, rng, all_up_to=0)  # more pairs are asked for than there are
    assert edges(listed.similar) == edges(labels.similar) and edges(listed.dissimilar) == edges(labels.dissimilar)
    with pytest.raises(TypeError, match="must be 'auto' or a sampler"):
        resolve_sampler("all", 10)


def test_pairs_of_labels_are_counted_without_being_listed():
    labels = Labels(np.array([0, 0, 0, 1, 1, 2, -1, -1]), unlabelled=-1)
    assert labels.pair_counts == (len(labels.similar.i), len(labels.dissimilar.i)) == (4, 11)


def test_neighbor_samplers():
    X, y = make_blobs(n=40)
    side = NeighborPairs(2).draw(X, Labels(y), None)
    assert np.all(y[side.similar.i] == y[side.similar.j]) and np.all(y[side.dissimilar.i] != y[side.dissimilar.j])
    t = NeighborTriplets(2).draw(X, Labels(y), None)
    assert np.all(y[t.a] == y[t.p]) and np.all(y[t.a] != y[t.n]) and len(t.a) == 40 * 4
    LMNN(strength=1.0).fit(X, t)


def test_random_chunklets():
    _, y = make_blobs(n=60)
    chunks = RandomChunklets(8, size=3).draw(None, Labels(y), np.random.RandomState(0))
    counts = np.bincount(chunks.codes[chunks.codes >= 0])
    assert counts.tolist() == [3] * 8
    for c in range(8):
        assert len(set(y[chunks.codes == c])) == 1
    with pytest.raises(ValueError, match="no class has 50"):
        RandomChunklets(size=50).draw(None, Labels(y), np.random.RandomState(0))


@pytest.mark.parametrize("sampler", ["auto", AllPairs()])
def test_signed_edges_dense_and_listed_agree(sampler):
    X, y = make_blobs(n=20)
    link = lambda d, t: (np.exp(-d / 10) * t, -np.exp(-d / 10) * t / 10)  # noqa: E731
    values = []
    for side in (Labels(y), all_pairs(y)):
        signed = signed_edges(side, sampler, X, np.random.RandomState(0))
        loss = signed.loss(link, similar=0.7, dissimilar=0.2)
        values.append((*signed.edges.evaluate(X, loss), signed.n_similar, signed.n_dissimilar))
    for a, b in zip(*values):
        assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_soft_and_weighted_pairs_change_the_metric_as_they_should(blobs):
    """A pair listed twice = a pair of weight two."""
    X, y = blobs
    base = all_pairs(y)
    twice = Pairs(
        np.r_[base.i, base.i[:50]], np.r_[base.j, base.j[:50]], np.r_[base.similarity, base.similarity[:50]], n=len(X)
    )
    weight = np.ones(len(base.i))
    weight[:50] = 2
    heavy = Pairs(base.i, base.j, base.similarity, n=len(X), weight=weight)
    assert_allclose(GMML().fit(X, twice).mahalanobis_, GMML().fit(X, heavy).mahalanobis_, rtol=1e-10)


def test_public_names_have_reprs():
    assert repr(Pairs([0], [1], [True], n=2)) == "Pairs(n_samples=2, n_pairs=1)"
    assert repr(Triplets([0], [1], [2], n_samples=3)) == "Triplets(n_samples=3, n_triplets=1)"
    assert "RCA" in repr(RCA()) and isometry.__version__ == "0.2.0"


def test_pairs_with_a_target_are_cut_and_joined_like_others():
    side = Pairs([0, 1, 3], [1, 2, 4], target=[1.0, 2.0, 3.0], n=5)
    assert len(side.similar.i) == len(side.dissimilar.i) == 0
    assert [g.tolist() for g in map(np.flatnonzero, np.eye(2, dtype=bool)[side.components()].T)] == [[0, 1, 2], [3, 4]]
    part = side[[1, 2, 0]]
    assert (part.i.tolist(), part.j.tolist(), part.target.tolist()) == ([2, 0], [0, 1], [1.0, 2.0])
    both = Pairs([0], [1], [True], n=3, target=[0.5])[[0, 1]]
    assert both.target.tolist() == [0.5] and len(both.similar.i) == 1
    for target in ([1.0], [1.0, -1.0, 2.0], [1.0, np.nan, 2.0]):
        with pytest.raises(ValueError, match="one finite distance ≥ 0 for each of the 3 pairs"):
            Pairs([0, 1, 3], [1, 2, 4], target=target, n=5)
    with pytest.raises(ValueError, match="give similar or target"):
        Pairs([0], [1], n=3)


@pytest.mark.parametrize(
    "y",
    [
        np.random.default_rng(0).integers(-5, 5, 100).astype(np.int8),
        np.tile(np.array([-128, 127], dtype=np.int8), 200),
        np.random.default_rng(0).integers(0, 9, 50) * 3,
        np.array([250, 3, 250], dtype=np.uint8),
        np.array([2**63 + 1, 2**63 + 3, 2**63 + 1, 2**63 + 1], dtype=np.uint64),
        np.array([-(2**62), 2**62]),
        np.zeros(0, dtype=int),
        np.array([True, False, True]),
        np.array(["b", "a", "b"]),
    ],
    ids=lambda y: f"{y.dtype}-{len(y)}",
)
def test_classes_are_numbered_as_by_sorting(y):
    labels, (classes, codes) = Labels(y), np.unique(y, return_inverse=True)
    assert labels.classes.dtype == classes.dtype and labels.codes.dtype == np.intp
    assert np.array_equal(labels.classes, classes) and np.array_equal(labels.codes, codes)
