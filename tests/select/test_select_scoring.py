"""Held-out values: their mean is the score, and their spread gives the interval of the score."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier

from isometry.eval import mean_interval, pair_auc
from isometry.select.scoring import FoldScorer, choose_scoring
from isometry.supervision import Labels, Pairs, Quadruplets, Triplets


@pytest.fixture
def fold():
    r = np.random.default_rng(0)
    y, y_test = r.integers(4, size=60), r.integers(4, size=25)
    centres = 2 * r.normal(size=(4, 3))
    return centres[y] + r.normal(size=(60, 3)), y, centres[y_test] + r.normal(size=(25, 3)), y_test


def slow_nearest(z, Z, exclude=None):
    d = [np.inf if g == exclude else np.sum((z - Z[g]) ** 2) for g in range(len(Z))]
    return np.argsort(d)[: len(Z) - (exclude is not None)]


def slow_hit(labels, truth):
    votes = {c: list(labels).count(c) for c in labels}
    most = max(votes.values())
    return float(next(c for c in labels if votes[c] == most) == truth)


@pytest.mark.parametrize("protocol", ["closed", "open"])
def test_knn_values_are_hits_among_training_points_or_among_the_held_out(fold, protocol):
    Z, y, Z_test, y_test = fold
    values = FoldScorer("knn", 3, protocol).values(Z, y, Z_test, y_test)
    for t in range(len(Z_test)):
        if protocol == "closed":
            expected = slow_hit(y[slow_nearest(Z_test[t], Z)[:3]], y_test[t])
        else:
            expected = slow_hit(y_test[slow_nearest(Z_test[t], Z_test, exclude=t)[:3]], y_test[t])
        assert values[t] == expected
    assert 0 < values.mean() < 1


@pytest.mark.parametrize("scoring", ["recall@2", "precision@2", "map@r", "r_precision"])
def test_retrieval_values_in_the_open_protocol(fold, scoring):
    _, _, Z, y = fold
    values = FoldScorer(scoring, protocol="open").values(None, None, Z, y)
    for t in range(len(Z)):
        found = y[slow_nearest(Z[t], Z, exclude=t)] == y[t]
        R = found.sum()
        if R == 0:
            assert np.isnan(values[t])
            continue
        precision = np.cumsum(found) / np.arange(1, len(found) + 1)
        expected = {
            "recall@2": found[:2].any(),
            "precision@2": precision[1],
            "map@r": np.sum((precision * found)[:R]) / R,
            "r_precision": precision[R - 1],
        }[scoring]
        assert_allclose(values[t], expected, rtol=1e-12)


def test_a_query_without_partner_has_no_value():
    Z = np.arange(5.0)[:, None]
    values = FoldScorer("map@r", protocol="open").values(None, None, Z, np.array([0, 0, 1, 1, 2]))
    assert np.isnan(values[4]) and np.isfinite(values[:4]).all()


def delong(d, similar):
    """AUC and its variance (DeLong et al. 1988), placements by loops."""
    s, t = d[similar], d[~similar]
    wins = np.array([[float(a < b) + 0.5 * (a == b) for b in t] for a in s])
    return wins.mean(), wins.mean(axis=1).var(ddof=1) / len(s) + wins.mean(axis=0).var(ddof=1) / len(t)


def test_values_of_disjoint_pairs_have_the_mean_and_the_variance_of_delong():
    r = np.random.default_rng(1)
    Z = np.round(4 * r.normal(size=(400, 2))) / 4  # exact fractions, so that there are true ties
    similar = np.repeat([True, False], [80, 120])
    Z[1:160:2] = Z[0:160:2] + np.round(3 * r.normal(size=(80, 2))) / 4
    i, j = np.arange(0, 400, 2), np.arange(1, 400, 2)
    pairs = Pairs(i, j, similar, n=400)
    v = FoldScorer("pair_auc", grouped=True).values(None, None, Z, pairs)
    auc, variance = delong(((Z[i] - Z[j]) ** 2).sum(axis=1), similar)
    assert_allclose(v.mean(), auc, rtol=1e-9)
    interval = mean_interval(v, 0.95, groups=pairs.components())
    assert_allclose((interval.high - interval.mean) / 1.972, np.sqrt(variance), rtol=0.01)


def test_weights_and_soft_similarities_enter_the_auc():
    r = np.random.default_rng(2)
    Z = r.normal(size=(30, 2))
    i, j = np.triu_indices(30, 1)
    s, w = r.choice([0, 0.3, 1], size=len(i)), r.uniform(size=len(i))
    v = FoldScorer("pair_auc").values(None, None, Z, Pairs(i, j, s, n=30, weight=w))
    d = np.linalg.norm(Z[i] - Z[j], axis=1)
    twice = pair_auc(np.tile(d, 2), np.repeat([True, False], len(d)), np.concatenate([w * s, w * (1 - s)]))
    assert_allclose(v.mean(), twice, rtol=1e-9)


def test_samples_in_no_pair_have_no_value():
    v = FoldScorer("pair_auc").values(None, None, np.arange(5.0)[:, None], Pairs([0, 0], [1, 3], [True, False], n=5))
    assert_allclose(v, [1, 1, np.nan, 1, np.nan])


def test_label_auc_interval_covers_the_truth():
    """Pairs share samples; intervals over samples must cover nominally all the same."""
    r = np.random.default_rng(3)
    truth = None
    covered = []
    for trial in range(201):
        n = 3000 if trial == 0 else 40
        y = np.arange(n) % 4
        Z = np.array([[0, 0], [2, 0], [0, 2], [2, 2.0]])[y] + r.normal(size=(n, 2))
        v = FoldScorer("pair_auc", protocol="open").values(None, None, Z, y)
        if truth is None:
            truth = v.mean()
        else:
            covered.append(mean_interval(v, 0.9).contains(truth))
    assert 0.85 <= np.mean(covered) <= 0.99


def test_labels_beyond_a_chunk_give_the_auc_of_all_pairs():
    r = np.random.default_rng(4)
    y = r.integers(5, size=1500)
    Z = r.normal(size=(1500, 2)) + y[:, None]
    i, j = np.triu_indices(len(y), 1)
    exact = pair_auc(np.linalg.norm(Z[i] - Z[j], axis=1), y[i] == y[j])
    v = FoldScorer("pair_auc").values(None, None, Z, Labels(y))
    assert np.isfinite(v).all()
    assert_allclose(v.mean(), exact, atol=0.005)


def test_ordering_counts_triplets_and_quadruplets_in_the_right_order():
    r = np.random.default_rng(5)
    Z = r.normal(size=(12, 2))
    a, b, c, d = np.array([r.permutation(12)[:4] for _ in range(50)]).T
    D = np.linalg.norm(Z[:, None] - Z, axis=2)
    judge = FoldScorer("ordering")
    assert_allclose(judge.values(None, None, Z, Triplets(a, b, c, n_samples=12)).mean(), np.mean(D[a, b] < D[a, c]))
    four = judge.values(None, None, Z, Quadruplets(a, b, c, d, n_samples=12))
    assert_allclose(four.mean(), np.mean(D[a, b] < D[c, d]))


def test_scoring_follows_the_supervision():
    labels, pairs = Labels([0, 1]), Pairs([0], [1], [True], n=2)
    triplets = Triplets([0], [1], [2], n_samples=3)
    assert [choose_scoring(None, s) for s in (labels, pairs, triplets)] == ["knn", "pair_auc", "ordering"]
    assert choose_scoring("precision@10", labels) == "precision@10"
    for scoring, side, allowed in (
        ("recall@0", labels, "'map@r'"),
        ("knn", pairs, "choose 'pair_auc'"),
        ("knn", triplets, "choose 'ordering' or 'pair_auc'"),
    ):
        with pytest.raises(ValueError, match=f"scoring='{scoring}' does not suit {side.kind}.*{allowed}"):
            choose_scoring(scoring, side)


def test_the_open_protocol_is_scored_by_map_at_r():
    labels, pairs = Labels([0, 0, 1, 1]), Pairs([0], [1], [True], n=4)
    assert choose_scoring(None, labels, "open") == "map@r" and choose_scoring(None, labels) == "knn"
    assert choose_scoring("knn", labels, "open") == "knn" and choose_scoring(None, pairs, "closed") == "pair_auc"


@pytest.mark.parametrize("protocol", ["closed", "open"])
def test_balanced_accuracy_is_that_of_scikit_learn(protocol):
    rng = np.random.default_rng(4)
    y, y_test = (np.repeat([0, 1, 5], [n, 9, 4]) for n in (60, 40))
    Z, Z_test = (rng.normal(size=(len(v), 2)) + v[:, None] * 0.3 for v in (y, y_test))
    found = FoldScorer("balanced_accuracy", 1, protocol).values(Z, y, Z_test, y_test)
    if protocol == "closed":
        answers = KNeighborsClassifier(1).fit(Z, y).predict(Z_test)
    else:
        others = [np.arange(len(Z_test)) != i for i in range(len(Z_test))]
        answers = [KNeighborsClassifier(1).fit(Z_test[o], y_test[o]).predict(Z_test[~o])[0] for o in others]
    assert_allclose(found.mean(), balanced_accuracy_score(y_test, answers), rtol=1e-12)
    plain = FoldScorer("knn", 1, protocol).values(Z, y, Z_test, y_test)
    assert found.mean() < plain.mean() - 0.05  # which the large class carries
    assert np.array_equal(found > 0, plain > 0)
