"""Scorers: the value they wrap, pair sampling, and their use inside scikit-learn."""

import pickle
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry.eval import (
    SCORERS,
    get_scorer,
    knn_r2_scorer,
    knn_scorer,
    loo_hits,
    map_at_r_scorer,
    pair_auc,
    pair_auc_scorer,
    recall_scorer,
    retrieval,
)
from isometry.eval.scorers import _label_pairs
from isometry.supervision import Chunklets, Labels, Pairs


class Columns(TransformerMixin, BaseEstimator):
    """Keep the first columns."""

    def __init__(self, keep=2):
        self.keep = keep

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X[:, : self.keep]


def table(n=60):
    rng = np.random.default_rng(0)
    y = rng.choice(["a", "b", "c"], size=n, p=[0.5, 0.3, 0.2])
    X = np.column_stack(
        [np.searchsorted(["a", "b", "c"], y) + 0.4 * rng.standard_normal(n), 3 * rng.standard_normal((n, 3))]
    )
    return X, y


def numbered_table():
    """Classes called 0, 1, 2, which serve as targets, too."""
    X, y = table()
    return X, np.searchsorted(["a", "b", "c"], y)


def slow_label_auc(Z, y):
    pairs = list(combinations(range(len(Z)), 2))
    distance = np.array([np.linalg.norm(Z[i] - Z[j]) for i, j in pairs])
    return pair_auc(distance, np.array([y[i] == y[j] for i, j in pairs]))


def test_scores_are_those_of_the_transformed_rows():
    X, y = table()
    Z, learner = X[:, :2], Columns(2).fit(X)
    assert knn_scorer(3)(learner, X, y) == loo_hits(Z, y, 3).mean()
    assert recall_scorer(2)(learner, X, y) == retrieval(Z, y, ks=(2,)).recall_at[2].mean()
    assert map_at_r_scorer()(learner, X, y) == retrieval(Z, y).map_at_r.mean()
    assert pair_auc_scorer()(learner, X, y) == pytest.approx(slow_label_auc(Z, y), rel=1e-12)


@pytest.mark.parametrize("name", SCORERS)
def test_named_scorers_prefer_the_informative_column_and_survive_pickling(name):
    X, y = numbered_table()
    scorer = get_scorer(name)
    good, bad = scorer(Columns(1).fit(X), X, y), scorer(Columns(4).fit(X), X, y)
    assert good > bad + 0.1
    assert pickle.loads(pickle.dumps(scorer))(Columns(1).fit(X), X, y) == good


def test_names():
    X, y = numbered_table()
    learner = Columns(1).fit(X)
    expected = {
        "knn": knn_scorer(1),
        "knn_r2": knn_r2_scorer(5),
        "recall@1": recall_scorer(1),
        "map@r": map_at_r_scorer(),
        "pair_auc": pair_auc_scorer(),
    }
    assert {name: s(learner, X, y) for name, s in SCORERS.items()} == {n: s(learner, X, y) for n, s in expected.items()}
    assert get_scorer(len) is len
    with pytest.raises(ValueError, match="'auc' is unknown: choose from knn, knn_r2, recall@1, map@r, pair_auc"):
        get_scorer("auc")


@pytest.mark.parametrize("scoring", SCORERS.values(), ids=SCORERS)
def test_grid_search_finds_the_informative_column(scoring):
    X, y = numbered_table()
    search = GridSearchCV(
        make_pipeline(StandardScaler(), Columns()), {"columns__keep": [4, 1, 3]}, scoring=scoring, cv=3
    )
    assert search.fit(X, y).best_params_ == {"columns__keep": 1}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_grid_search_over_pairs():
    X, y = table()
    i, j = np.triu_indices(60, 1)
    pairs = Pairs(i, j, y[i] == y[j], n=60)
    search = GridSearchCV(Columns(), {"keep": [4, 1]}, scoring=pair_auc_scorer(), cv=3).fit(X, pairs)
    assert search.best_params_ == {"keep": 1}
    assert search.best_score_ == pytest.approx(
        cross_val_score(Columns(1), X, Labels(y), scoring=pair_auc_scorer(), cv=3).mean()
    )


def test_pair_auc_of_weighted_and_bare_edges():
    X, _ = table(8)
    learner = Columns(4).fit(X)
    i, j, s = np.array([0, 1, 2, 3]), np.array([4, 5, 6, 7]), np.array([1.0, 0.25, 0.0, 0.5])
    d = np.linalg.norm(X[i] - X[j], axis=1)
    expected = pair_auc(
        np.append(d[s > 0], d[s < 1]), np.repeat([True, False], [3, 3]), np.append(s[s > 0], 1 - s[s < 1])
    )
    assert pair_auc_scorer()(learner, X, Pairs(i, j, s, n=8)) == pytest.approx(expected, rel=1e-12)
    edges = SimpleNamespace(similar=SimpleNamespace(i=i[:2], j=j[:2]), dissimilar=SimpleNamespace(i=i[2:], j=j[2:]))
    assert pair_auc_scorer()(learner, X, edges) == pair_auc(d, np.array([True, True, False, False]))


def test_pair_auc_of_chunklets_uses_only_the_links_that_are_known():
    X, _ = table(6)
    learner, codes = Columns(4).fit(X), np.array([0, 0, 1, 1, 2, -1])
    links = np.zeros((3, 3), dtype=bool)
    links[0, 1] = True
    pairs = Pairs([0, 2, 0, 0, 1, 1], [1, 3, 2, 3, 2, 3], [1, 1, 0, 0, 0, 0], n=6)
    scorer = pair_auc_scorer()
    assert scorer(learner, X, Chunklets(codes, negative_links=links)) == scorer(learner, X, pairs)


def test_unlabelled_rows_make_no_pairs():
    X, y = table(30)
    known = np.arange(30) % 3 > 0
    labels = Labels(np.where(known, y, "?"), unlabelled="?")
    learner = Columns(1).fit(X)
    assert pair_auc_scorer()(learner, X, labels) == pytest.approx(slow_label_auc(X[known, :1], y[known]), rel=1e-12)


def test_sampled_pairs_are_right_and_equally_likely():
    codes = np.array([2, 0, 0, 1, 1, 1, 1, 0, 3])
    n_draws = 40_000
    i, j, similar = _label_pairs(codes, 35, random_state=0)
    assert len(i) == len(j) == 35
    assert similar.sum() == 18
    i, j, similar = _label_pairs(np.tile(codes, 40), n_draws, random_state=0)
    i, j = i % 9, j % 9  # 40 copies make it a sample; fold them back
    assert np.array_equal(codes[i] == codes[j], similar)
    same = codes[:, None] == codes
    for kind in (True, False):
        counts = np.zeros((9, 9))
        np.add.at(counts, (i[similar == kind], j[similar == kind]), 1)
        possible = np.where(same == kind, 1600.0, 0.0)
        if kind:
            np.fill_diagonal(possible, 40.0 * 39.0)
        expected = n_draws / 2 * possible / possible.sum()
        assert np.all(counts[possible == 0] == 0)
        assert np.abs((counts - expected)[possible > 0] / np.sqrt(expected[possible > 0])).max() < 4.5


def test_no_sampled_pair_joins_a_row_with_itself():
    i, j, _ = _label_pairs(np.repeat([0, 1], [3, 2]), 9, random_state=3)
    assert len(i) == 9
    assert np.all(i != j)


def test_sampled_auc_is_close_to_that_of_all_pairs_and_seeded():
    X, y = table(200)
    learner = Columns(1).fit(X)
    sampled = pair_auc_scorer(max_pairs=6000, random_state=1)(learner, X, y)
    assert sampled == pytest.approx(pair_auc_scorer()(learner, X, y), abs=0.02)
    assert sampled == pair_auc_scorer(max_pairs=6000, random_state=1)(learner, X, Labels(y))
    assert sampled != pair_auc_scorer(max_pairs=6000, random_state=2)(learner, X, y)


@pytest.mark.parametrize("labels, word", [(np.arange(9), "different"), (np.zeros(9, dtype=int), "equal")])
def test_labels_without_both_kinds_of_pairs(labels, word):
    learner = Columns(1).fit(np.eye(9))
    with pytest.raises(ValueError, match=f"the 9 labels are all {word}"):
        pair_auc_scorer(max_pairs=10)(learner, np.eye(9), labels)
    with pytest.raises(ValueError, match=r"there is no (dis)?similar pair"):
        pair_auc_scorer()(learner, np.eye(9), labels)


def test_an_estimator_without_transform():
    with pytest.raises(TypeError, match="LinearRegression has no transform"):
        knn_scorer()(LinearRegression(), np.eye(3), [0, 0, 1])
