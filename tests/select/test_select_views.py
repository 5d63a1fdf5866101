"""Two views of the same samples: metrics between them are compared by how well the views find each other."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from isometry import CCA, AutoMetric, Labels, Procrustes, Views
from isometry.eval import partner_ranks
from isometry.io import load, save
from isometry.registry import all_methods
from isometry.select import compare
from isometry.select.candidates import BETWEEN_VIEWS
from isometry.select.scoring import FoldScorer


def turned(n=120, d=6, noise=0.2, seed=0):
    """A view, and the same turned and blurred: Euclidean distance between the two means nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.linalg.qr(rng.normal(size=(d, d)))[0] + noise * rng.normal(size=(n, d))


def ranks_by_loops(A, B):
    ranks = np.empty(len(A))
    for i in range(len(A)):
        d = ((B - A[i]) ** 2).sum(axis=1).round(12)
        ranks[i] = np.sum(d < d[i]) + (np.sum(d == d[i]) + 1) / 2
    return ranks


def test_ranks_of_partners_by_loops():
    A, B = np.random.default_rng(0).integers(0, 4, size=(2, 30, 2)).astype(float)  # with many ties
    assert_array_equal(partner_ranks(A, B), [ranks_by_loops(A, B), ranks_by_loops(B, A)])
    C, D = turned()
    assert_array_equal(partner_ranks(C + 1e6, D + 1e6), [ranks_by_loops(C, D), ranks_by_loops(D, C)])
    with pytest.raises(ValueError, match=r"of one shape, .* got \(30, 2\) and \(120, 6\)"):
        partner_ranks(A, C)


def test_values_of_a_fold_are_reciprocal_ranks_and_hits():
    A, B = turned(40, noise=2.0)
    both, ranks = np.hstack([A, B]), np.stack([ranks_by_loops(A, B), ranks_by_loops(B, A)])
    for scoring, expected in (("view_mrr", 1 / ranks), ("view_recall@3", ranks <= 3)):
        values = FoldScorer(scoring).values(None, None, both, None)
        assert_allclose(values, expected.mean(axis=0), rtol=1e-12)
        assert 0 < values.mean() < 1


def test_views_are_joined_cut_and_named():
    A, B = turned(10)
    X, views = Views.join(A, B[:, :4])
    assert X.shape == (10, 10) and views.widths == (6, 4) and len(views[[1, 5, 6]]) == 3
    assert views.columns == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]] and views.to(Labels) is None
    assert_array_equal(views.side_by_side(X), np.hstack([A[:, :4], B[:, :4]]))


@pytest.mark.parametrize(
    "first, second, words",
    [
        (np.ones((5, 2)), np.ones((6, 2)), "the views have 5 and 6 rows: row i of both must be the same sample"),
        (np.ones(5), np.ones((5, 2)), r"view 0 must be a table .* got shape \(5,\)"),
        (np.ones((5, 2)), np.ones((5, 0)), "each view needs at least one column, got 2 and 0"),
    ],
)
def test_views_that_do_not_fit_are_named(first, second, words):
    with pytest.raises(ValueError, match=words):
        Views.join(first, second)


def test_every_metric_between_views_of_the_table_takes_part():
    rows = all_methods(kind="estimator")
    between = {row.name for row in rows if row.family != "deep" and hasattr(row.load(), "transform_view")}
    assert {name.partition("[")[0] for name in between} == set(BETWEEN_VIEWS)


def test_metrics_between_views_beat_euclidean_where_one_is_turned():
    found = compare(*Views.join(*turned()), n_splits=3)
    assert found.scoring == "view_mrr" and {r.name for r in found.results} == {"Euclidean", *BETWEEN_VIEWS}
    scores = {r.name: r.score.mean for r in found.results}
    chance = np.mean(1 / np.arange(1, 41))
    assert scores["Euclidean"] < 3 * chance and min(scores["CCA"], scores["Procrustes"]) > 0.8
    assert found.best in ("CCA", "Procrustes")
    A, B = turned(7, seed=1)
    fitted = found.best_estimator
    assert fitted.transform(np.hstack([A, B])).shape[0] == 7 and fitted[-1].views == [
        list(range(6)),
        list(range(6, 12)),
    ]


def test_views_of_other_widths_and_estimators_of_ones_own():
    A, B = turned()
    X, views = Views.join(A, B[:, :4])
    own = [("by name", CCA(2)), Procrustes(views=[range(6), range(6, 10)])]
    found = compare(X, views, own, n_splits=3, scoring="view_recall@2")
    assert [r.name for r in found.results if r.name.startswith(("by name", "Procrustes"))] != []
    assert any("have 6 and 4 columns: Euclidean compares the first 4 of both" in note for note in found.notes)
    assert all(r.score is not None for r in found.results)


def test_views_without_anything_in_common_keep_euclidean():
    rng = np.random.default_rng(3)
    X, views = Views.join(rng.normal(size=(90, 4)), rng.normal(size=(90, 4)))
    metric = AutoMetric(n_splits=3, budget=None).fit(X, views)
    assert metric.best_ == "Euclidean" and metric.verdict_.startswith("Keep Euclidean")
    assert metric.transform(X).shape == (90, 8)


def test_the_automatic_metric_maps_one_view_alone(tmp_path):
    A, B = turned()
    X, views = Views.join(A, B)
    metric = AutoMetric(n_splits=3, budget=None).fit(X, views)
    assert metric.best_ in ("CCA", "Procrustes", "KernelCCA")
    save(metric, tmp_path / "m")
    for fitted in (metric, load(tmp_path / "m")):
        first, second = np.hsplit(fitted.transform(X), 2)
        assert_allclose(fitted.transform_view(A, 0), first, rtol=1e-10, atol=1e-10)
        assert_allclose(fitted.transform_view(B, 1), second, rtol=1e-10, atol=1e-10)
    assert np.mean(partner_ranks(first, second) == 1) > 0.8
    with pytest.raises(ValueError, match="view 1 has 6 columns, but X has 5"):
        metric.transform_view(B[:, :5], 1)
    assert not hasattr(AutoMetric(), "transform_view")


@pytest.mark.parametrize(
    "options, words",
    [
        ({"learners": "RCA"}, "RCA is no metric between two views: choose among CCA, Procrustes, KernelCCA"),
        ({"scoring": "knn"}, "does not suit views: choose 'view_mrr'"),
        ({"scaler": "normalize"}, "would divide both views by one length"),
        ({"unit": True}, "scale each view to unit length before joining"),
        ({"protocol": "open"}, "y holds views: use protocol='closed'"),
        ({"n_splits": 80}, "need at least 160 samples"),
    ],
)
def test_what_does_not_go_with_views_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        compare(*Views.join(*turned()), **options)


def test_views_of_another_table_are_refused():
    A, B = turned()
    X, views = Views.join(A, B)
    with pytest.raises(ValueError, match="the views have 6 and 6 columns, but X has 11"):
        compare(X[:, 1:], views)
    with pytest.raises(ValueError, match="120 entries but X has 100 rows"):
        compare(X[:100], views)
