"""Cluster scores against information and pair counts of the same k-means clustering."""

from itertools import combinations
from math import comb, log

import numpy as np
import pytest
from sklearn.cluster import KMeans

from isometry.eval import ari, cluster_scores, nmi
from isometry.supervision import Labels


def slow_nmi(a, b):
    n = len(a)
    H = {name: -sum(v.count(c) / n * log(v.count(c) / n) for c in set(v)) for name, v in {"a": a, "b": b}.items()}
    pairs = list(zip(a, b))
    mutual = sum(pairs.count(p) / n * log(n * pairs.count(p) / (a.count(p[0]) * b.count(p[1]))) for p in set(pairs))
    return 2 * mutual / (H["a"] + H["b"])


def slow_ari(a, b):
    together = [[v[i] == v[j] for i, j in combinations(range(len(v)), 2)] for v in (a, b)]
    both, (in_a, in_b) = sum(x and y for x, y in zip(*together)), map(sum, together)
    expected = in_a * in_b / comb(len(a), 2)
    return (both - expected) / ((in_a + in_b) / 2 - expected)


def overlapping_classes():
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], size=45, p=[0.5, 0.3, 0.2])
    return rng.standard_normal((45, 2)) + 2.0 * np.array([[0, 0], [1, 0], [0, 1]])[
        np.searchsorted(["a", "b", "c"], y)
    ], y


def test_scores_of_one_clustering():
    Z, y = overlapping_classes()
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(Z).tolist()
    scores = cluster_scores(Z, y, random_state=0)
    expected = {"nmi": slow_nmi(y.tolist(), clusters), "ari": slow_ari(y.tolist(), clusters)}
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert 0.1 < scores["ari"] < 0.9
    assert nmi(Z, y, 0) == scores["nmi"] != scores["ari"] == ari(Z, y, 0)


def test_separated_classes_are_found_whatever_they_are_called():
    y = np.repeat(["x", "y", "z"], [4, 10, 20])
    Z = 50.0 * np.repeat([0, 1, 2], [4, 10, 20])[:, None] + np.random.default_rng(1).random((34, 2))
    assert cluster_scores(Z, y) == pytest.approx(dict.fromkeys(("nmi", "ari", "ami", "pairwise_f1"), 1.0))


def test_unlabelled_rows_take_no_part():
    Z, y = overlapping_classes()
    known = np.arange(45) % 4 > 0
    hidden = Labels(np.where(known, y, "?"), unlabelled="?")
    assert cluster_scores(Z, hidden) == cluster_scores(Z[known], y[known])
