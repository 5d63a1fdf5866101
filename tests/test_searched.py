"""Searches that end where held-out neighbours no longer improve, and their mixtures with Euclidean distance."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

import isometry
from isometry import ITML, LDML, LMNN, MCML, NCA, PCCA, FastNCA, Labels, Pairs, Shrunk, Triplets
from isometry.core.distance import sqdist
from isometry.mixed import MAX_LEARNED, MixedMetric, _small_trial
from isometry.registry import all_methods
from isometry.searched import FIRST, SearchedMetric
from isometry.strength import SHARES
from tests.conftest import assert_refitted
from tests.test_strength import planted

LEARNERS = [NCA, FastNCA, LMNN, ITML, MCML, LDML, PCCA]
MIXED = [row for row in all_methods(kind="estimator") if row.published == {"strength": 1.0} and row.family != "kernel"]
every = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.__name__)


def test_every_mixed_metric_has_a_row_with_its_published_setting():
    found = {row.load() for row in MIXED}
    assert all(issubclass(learner, MixedMetric) for learner in found)
    assert set(LEARNERS) < {learner for learner in found if issubclass(learner, SearchedMetric)}
    rows = [row for row in all_methods(kind="estimator") if row.family not in ("deep", "kernel")]
    assert {row.load() for row in rows if _is_mixed(row)} == found


def _is_mixed(row):
    learner = row.load()
    return isinstance(learner, type) and issubclass(learner, MixedMetric)


def test_what_learns_from_classes_adapts_to_the_data_or_says_why_not():
    for row in all_methods(kind="estimator"):
        if row.family != "deep" and {"labels", "pairs", "triplets", "candidates"} & set(row.sees.split(", ")):
            assert bool(row.published) != bool(row.as_it_is), row.name


@pytest.mark.parametrize("row", MIXED, ids=lambda row: row.key)
def test_strength_one_is_the_published_method_to_the_last_bit(row):
    X, y = planted(n=60)
    model = row.example(**row.published)
    quick = {"max_iter": 30, "random_state": 0}
    model.set_params(**{name: value for name, value in quick.items() if name in model.get_params()})
    bare = clone(model)
    bare.n_features_in_ = X.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
        solution = bare._fit(X, bare._supervise(y, len(X)))
    assert_refitted(model.components_, bare.components_)
    if solution is not None:
        assert model.n_iter_ == solution.n_iter and model.stop_reason_ == solution.reason
    assert model.strength_ == 1 and model.strength_reason_ == "given"


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_tasks_of_their_own_leave_the_maps_as_they_are():
    X, y = planted(n=60)
    tasks = np.repeat(["a", "b"], 30)
    for name in ("SCML", "MultiTaskLMNN"):
        learner = {row.name: row for row in MIXED}[name].make(max_iter=20)
        learner.set_params(**{k: 0 for k in learner.get_params() if k == "random_state"})
        given = clone(learner).set_params(strength=1.0).fit(X, y, tasks=tasks)
        several = clone(learner).fit(X, y, tasks=tasks)
        assert_refitted(several.task_components_, given.task_components_)
        assert several.strength_ == 1 and "task" in several.strength_reason_
        one = learner.fit(X, y)
        if one.strength_ < 1:
            assert_array_equal(one.task_components_[0], one.components_)


def test_distances_that_are_given_are_met():
    X, _ = planted(n=30)
    i, j = np.triu_indices(30, 1)
    side = Pairs(i, j, target=np.linalg.norm(X[i, :2] - X[j, :2], axis=1), n=30)
    model = isometry.ParametricMDS().fit(X, side)
    assert model.strength_ == 1
    assert_refitted(model.components_, isometry.ParametricMDS(strength=1.0).fit(X, side).components_)


@every
def test_the_metric_is_the_mixture_of_a_shorter_search_and_euclidean_distance(learner):
    X, y = planted()
    chosen = learner(random_state=0).fit(X, y)
    assert chosen.strength_ > 0 and chosen.strength_reason_.startswith("gained")
    k = int(np.flatnonzero(chosen.strength_path_["share"] == chosen.strength_)[0])
    assert chosen.strength_path_["score"][k] > chosen.strength_path_["score"][0]
    for n_iter in np.unique(chosen.strength_path_["n_iter"])[1:]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            W = learner(random_state=0, strength=1.0, max_iter=int(n_iter)).fit(X, y).mahalanobis_
        T = np.cov(X.T, ddof=0)
        size = np.trace(W @ T) / np.trace(T)  # both parts have the same mean squared distance
        expected = (1 - chosen.strength_) * size * np.eye(len(W)) + chosen.strength_ * W
        if np.allclose(chosen.mahalanobis_, expected, rtol=1e-8, atol=1e-8 * np.abs(W).max()):
            return
    raise AssertionError("the metric is that of none of the searches that were tried")


@every
def test_ever_longer_searches_until_one_is_no_better(learner):
    X, y = planted()
    path = learner(random_state=0).fit(X, y).strength_path_
    lengths = np.unique(path["n_iter"])[1:]
    longest = learner().max_iter
    assert_allclose(lengths, [min(FIRST * 2**k, longest) for k in range(len(lengths))])
    best = [path["score"][path["n_iter"] == length].max() for length in lengths]
    assert np.all(np.diff(best[:-1]) > 0)
    assert_allclose(path["share"][path["n_iter"] == lengths[0]], SHARES)
    assert path["share"][0] == path["n_iter"][0] == 0


def test_a_search_that_was_stopped_says_so_and_does_not_warn():
    X, y = planted()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = NCA(random_state=0).fit(X, y)
    assert model.n_iter_ < model.max_iter and not model.converged_
    stopped = f"stopped early after {model.n_iter_} iterations"
    assert model.stop_reason_ == f"{stopped}: held-out neighbours no longer improve"
    assert len(model.history_) >= 2 and np.isfinite(model.history_).all()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 reached"):  # what the user allowed was not enough
        NCA(max_iter=2, random_state=0, strength=1.0).fit(X, y)


def test_without_early_stopping_only_the_share_is_chosen():
    X, y = planted()
    model = MCML(early_stopping=False, random_state=0, max_iter=40, tol=1e-3).fit(X, y)
    assert_allclose(np.unique(model.strength_path_["n_iter"]), [0, 40])
    assert model.converged_ and "early" not in model.stop_reason_


def test_a_number_is_the_share_at_the_end_of_the_search():
    X, y = planted(n=60)
    whole, half = (LMNN(strength=s, random_state=0).fit(X, y) for s in (1.0, 0.5))
    W, T = whole.mahalanobis_, np.cov(X.T, ddof=0)
    size = np.trace(W @ T) / np.trace(T)
    assert_allclose(half.mahalanobis_, 0.5 * size * np.eye(len(W)) + 0.5 * W, atol=1e-9 * np.abs(W).max())


def test_pairs_and_triplets():
    X, y = planted(n=90)
    side = Labels(y)
    pairs = Pairs.from_edges(side.similar, side.dissimilar, 90)
    for learner in (ITML(), LDML(), PCCA()):
        model = learner.fit(X, pairs)
        assert model.strength_ > 0 and len(model.strength_path_["score"]) > 1
    a = np.arange(90)
    triplets = Triplets(
        np.tile(a, 3), np.concatenate([(a + k) % 90 for k in (3, 6, 9)]), np.tile((a + 1) % 90, 3), n_samples=90
    )
    model = LMNN().fit(X, triplets)
    assert 0 <= model.strength_ <= 1 and len(model.strength_path_["score"]) > 1


@pytest.mark.parametrize("learner", [NCA, LMNN, LDML])
def test_mixtures_of_fewer_dimensions_are_the_widest_part_of_the_mixture(learner):
    """By the singular values of the samples under the mixture, instead of a rotation of their covariance."""
    X, y = planted(n=90)
    X = X - X.mean(axis=0)
    whole = learner(2, random_state=0, strength=1.0).fit(X, y)
    for share in (0.0, 0.3):
        model = learner(2, random_state=0, strength=share).fit(X, y)
        W, T = whole.mahalanobis_, np.cov(X.T, ddof=0)
        w, V = np.linalg.eigh((1 - share) * np.trace(W @ T) / np.trace(T) * np.eye(14) + share * W)
        U, s, _ = np.linalg.svd(X @ (V * np.sqrt(np.maximum(w, 0))), full_matrices=False)
        expected = U[:, :2] * s[:2]
        assert model.components_.shape == (2, 14)
        assert_allclose(sqdist(model.transform(X)), sqdist(expected), atol=1e-8 * s[0] ** 2)


def test_fewer_dimensions_than_features_begin_at_principal_components():
    X, y = planted()
    model = NCA(2, random_state=0).fit(X, y)
    assert model.components_.shape == (2, 14) and model.strength_ > 0
    assert_allclose(np.unique(model.strength_path_["share"]), [0, *SHARES])
    nothing = NCA(2, random_state=0).fit(X, np.random.default_rng(1).permutation(y))
    assert nothing.strength_ == 0
    assert nothing.strength_reason_.startswith("Euclidean distance in the first 2 principal components: ")
    expected = sqdist(PCA(2).fit_transform(X))
    got = sqdist(nothing.transform(X))
    assert_allclose(got / got.mean(), expected / expected.mean(), atol=1e-8)


@pytest.mark.parametrize("learner", [NCA(random_state=0), LMNN(), ITML()], ids=repr)
def test_shuffled_labels_leave_euclidean_distance(learner):
    kept = 0
    for seed in range(20):
        X, y = planted(seed, n=90, noise=4)
        model = clone(learner).fit(X, np.random.default_rng(seed).permutation(y))
        kept += model.strength_ == 0
        if model.strength_ == 0:
            W = model.mahalanobis_
            assert_allclose(W, W[0, 0] * np.eye(6), atol=1e-12 * W[0, 0])
            assert model.strength_reason_.startswith("Euclidean distance: ")
    assert kept >= 19


def test_too_little_data_keeps_euclidean_distance_and_says_so():
    X, _ = planted(n=6)
    model = NCA(random_state=0).fit(X[:3], [0, 0, 1])
    assert model.strength_ == 0 and model.strength_reason_.startswith("Euclidean distance: ")
    few = Pairs([0, 1], [1, 2], [True, False], n=3)
    model = ITML().fit(X[:3], few)
    assert model.strength_ == 0 and "too little can be held out" in model.strength_reason_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LDML(2).fit(X[:3], few)
    assert model.components_.shape == (2, 14) and model.strength_ == 0
    assert "principal components: too little can be held out" in model.strength_reason_


@pytest.mark.parametrize("row", MIXED, ids=lambda row: row.key)
@pytest.mark.filterwarnings("ignore")
def test_parts_that_lack_a_kind_of_pair_are_not_learned_from(row):
    """Of three or four rows, what is left when one is held out may hold no two of one class, or one class only."""
    X, _ = planted(n=6)
    for y in ([0, 0, 1], [0, 0, 1, 1]):
        model = row.make().fit(X[: len(y)], y)
        assert np.isfinite(model.components_).all() and model.components_.any()
        assert model.strength_ == 0 and model.strength_reason_.startswith("Euclidean distance")


def test_large_tables_are_tried_once_with_few_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9_000, 2)), np.arange(9_000) % 3
    (split,) = _small_trial(X, Labels(y)).splits
    assert len(split.learn) == MAX_LEARNED
    assert_array_equal(np.unique(y[split.learn], return_counts=True)[1], MAX_LEARNED // 3)
    assert not set(split.learn) & set(split.held)


def test_shrunk_makes_the_choice_for_the_learner():
    X, y = planted(n=90)
    learner = NCA(random_state=0)
    assert Shrunk(learner, strength=0.5).fit(X, y).learner_.strength == 1.0
    assert learner.strength == "auto"


def test_it_goes_on_online_and_through_files(tmp_path):
    X, y = planted()
    model = ITML(random_state=0).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    again = isometry.load(tmp_path / "m.safetensors")
    assert_array_equal(again.transform(X), model.transform(X))
    assert again.strength_ == model.strength_ and again.strength_reason_ == model.strength_reason_
    before = model.components_.copy()
    model.partial_fit(X[:20], y[:20])
    assert not np.allclose(model.components_, before)


def test_searches_share_one_base():
    assert all(issubclass(learner, SearchedMetric) for learner in LEARNERS)
