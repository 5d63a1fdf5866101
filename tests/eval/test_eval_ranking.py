"""Scores of rankings against loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, ndcg_score

from isometry.eval import (
    ami,
    class_thresholds,
    cluster_scores,
    document_ranking,
    pair_spearman,
    pairwise_f1,
    ranking,
    retrieval,
)

RNG = np.random.default_rng(0)
Z, LABELS = RNG.integers(0, 4, (40, 2)).astype(float), RNG.integers(0, 6, 40)  # many ties of distance
PARENT = RNG.integers(0, 3, 40)


def order_of(z, items, skip=None):
    """Items by distance, then by index."""
    return [j for j in sorted(range(len(items)), key=lambda j: (np.sum((z - items[j]) ** 2), j)) if j != skip]


def slow(hits, R, k):
    """1/r, MAP@k/min, MAP@k/R, nDCG@k of relevances by rank, by loops."""
    first = next((1 / (i + 1) for i, h in enumerate(hits) if h), 0.0)
    total = sum(sum(hits[: i + 1]) / (i + 1) for i in range(min(k, len(hits))) if hits[i])
    dcg = sum(h / np.log2(i + 2) for i, h in enumerate(hits[:k]))
    best = sum(1 / np.log2(i + 2) for i in range(min(k, R)))
    return first, total / min(k, R), total / R, dcg / best


@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_scores_are_their_loops(k):
    found = ranking(Z, LABELS, ks=(k,))
    rows = [i for i in range(40) if (LABELS[i] == LABELS).sum() > 1]
    assert found.queries.tolist() == rows and found.n_without_match == 40 - len(rows)
    for n, i in enumerate(rows):
        hits = [bool(LABELS[j] == LABELS[i]) for j in order_of(Z[i], Z, skip=i)]
        expected = slow(hits, sum(hits), k)
        values = found.reciprocal_rank[n], found.map_at_min[k][n], found.map_at_R[k][n], found.ndcg_at[k][n]
        assert values == pytest.approx(expected, rel=1e-12)


def test_several_depths_agree_with_one():
    both = ranking(Z, LABELS, ks=(2, 7))
    for k in (2, 7):
        one = ranking(Z, LABELS, ks=(k,))
        for name in ("map_at_min", "map_at_R", "ndcg_at"):
            assert getattr(both, name)[k] == pytest.approx(getattr(one, name)[k], rel=1e-12)
    names = ["mrr", "map@2/min", "map@7/min", "map@2/R", "map@7/R", "ndcg@2", "ndcg@7"]
    assert list(both.mean()) == names
    # with k beyond all classes the divisors agree, and recall at 1 is precision at 1
    wide = ranking(Z, LABELS, ks=(39,)).mean()
    assert wide["map@39/min"] == pytest.approx(wide["map@39/R"], rel=1e-12)
    assert ranking(Z, LABELS, ks=(1,)).mean()["map@1/min"] == pytest.approx(retrieval(Z, LABELS).mean()["recall@1"])


def test_a_gallery_and_parents():
    gallery, gy, gp = Z[20:], LABELS[20:], PARENT[20:]
    found = ranking(Z[:20], LABELS[:20], gallery=gallery, gallery_y=gy, within=PARENT[:20], gallery_within=gp, ks=(3,))
    n = 0
    for i in range(20):
        items = [j for j in range(20) if gp[j] == PARENT[i]]
        hits = [bool(gy[items[j]] == LABELS[i]) for j in order_of(Z[i], gallery[items])]
        if not any(hits):
            assert i not in found.queries
            continue
        assert found.queries[n] == i
        values = found.reciprocal_rank[n], found.map_at_min[3][n], found.map_at_R[3][n], found.ndcg_at[3][n]
        assert values == pytest.approx(slow(hits, sum(hits), 3), rel=1e-12)
        n += 1
    assert n == len(found.queries) and found.n_without_match == 20 - n
    alone = ranking(Z, LABELS, within=PARENT)
    for parent in range(3):
        rows = np.flatnonzero(parent == PARENT)
        part = ranking(Z[rows], LABELS[rows])
        mine = np.isin(alone.queries, rows)
        assert alone.queries[mine].tolist() == rows[part.queries].tolist()
        assert alone.reciprocal_rank[mine] == pytest.approx(part.reciprocal_rank)
    with pytest.raises(ValueError, match="within needs gallery_within"):
        ranking(Z[:20], LABELS[:20], gallery=gallery, gallery_y=gy, within=PARENT[:20])
    with pytest.raises(ValueError, match="no query has an item of its own label"):
        ranking(Z[:3], [0, 1, 2])


def test_documents_with_grades():
    """Distances without ties, so that scikit-learn's nDCG of the gains 2^g − 1 has one answer."""
    queries, documents = RNG.standard_normal((5, 3)), RNG.standard_normal((30, 3))
    grade = RNG.integers(0, 4, (5, 30)) * (RNG.random((5, 30)) < 0.3)
    grade[2] = 0
    relevance = {f"q{i}": {f"d{j}": int(grade[i, j]) for j in np.flatnonzero(grade[i])} for i in range(5)}
    names = {"query_ids": [f"q{i}" for i in range(5)], "document_ids": [f"d{j}" for j in range(30)]}
    found = document_ranking(queries, documents, relevance, ks=(4,), **names)
    assert found.queries.tolist() == [0, 1, 3, 4] and found.n_without_match == 1
    for n, i in enumerate(found.queries):
        d = np.sum((queries[i] - documents) ** 2, 1)
        assert found.ndcg_at[4][n] == pytest.approx(ndcg_score([2.0 ** grade[i] - 1], [-d], k=4), rel=1e-12)
        hits = [bool(grade[i, j] > 0) for j in np.argsort(d)]
        assert found.reciprocal_rank[n] == pytest.approx(slow(hits, sum(hits), 4)[0])
        assert found.map_at_min[4][n] == pytest.approx(slow(hits, sum(hits), 4)[1])
    flat = document_ranking(queries[:1], documents, {0: [3, 5]}, ks=(4,))
    graded = document_ranking(queries[:1], documents, {0: {3: 1, 5: 1, 7: 0}}, ks=(4,))
    assert flat.mean() == graded.mean()


def test_unknown_ids_are_named():
    with pytest.raises(ValueError, match="relevance names 2 ids that there are not: 'q', 7"):
        document_ranking(Z[:2], Z[:5], {"q": [1], 0: [7]})
    with pytest.raises(ValueError, match="5 rows need as many different document ids, got 3"):
        document_ranking(Z[:2], Z[:5], {0: ["a"]}, document_ids="abca")
    with pytest.raises(ValueError, match="grades of relevance must be finite numbers ≥ 0"):
        document_ranking(Z[:2], Z[:5], {0: {1: -1.0}})
    with pytest.raises(ValueError, match=r"ks=\(0,\) must hold ranks of 1 or more"):
        ranking(Z, LABELS, ks=(0,))


def test_clusters_as_guesses_of_classes():
    z = RNG.standard_normal((30, 2)) + 3 * np.arange(30)[:, None] // 10
    y = RNG.integers(0, 3, 30)
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(z)
    pairs = [(y[i] == y[j], clusters[i] == clusters[j]) for i in range(30) for j in range(i)]
    tp, fp, fn = (sum(p == kind for p in pairs) for kind in ((True, True), (False, True), (True, False)))
    assert pairwise_f1(z, y) == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert ami(z, y) == pytest.approx(adjusted_mutual_info_score(y, clusters))
    assert set(cluster_scores(z, y)) == {"nmi", "ari", "ami", "pairwise_f1"}


def test_rank_correlation_of_scored_pairs():
    assert pair_spearman([3.0, 2.0, 1.0], [0.1, 0.5, 0.9]) == pytest.approx(1.0)
    d, s = RNG.random(50), RNG.random(50)
    ranks = [np.argsort(np.argsort(v)) for v in (-d, s)]
    assert pair_spearman(d, s) == pytest.approx(np.corrcoef(*ranks)[0, 1])
    with pytest.raises(ValueError, match="no order to compare"):
        pair_spearman([1.0, 1.0], [0.0, 1.0])


@pytest.mark.parametrize("fpr", [0.0, 0.1, 0.5, 1.0])
def test_thresholds_of_classes(fpr):
    found = class_thresholds(Z, LABELS, fpr)
    for c, threshold in zip(np.unique(LABELS), found):
        d = [np.linalg.norm(Z[i] - Z[j]) for i in range(40) for j in range(40) if LABELS[i] == c != LABELS[j]]
        allowed = [t for t in d if np.mean(np.array(d) <= t + 1e-9) <= fpr]
        assert threshold == (pytest.approx(max(allowed)) if allowed else -np.inf)
    with pytest.raises(ValueError, match="impostors need another one"):
        class_thresholds(Z, np.zeros(40))
