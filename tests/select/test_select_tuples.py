"""Pairs, triplets and quadruplets as metric-learn has them, through one object and any learner."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_score

from isometry import GMML, ITML, LSML, RCA, SCML, Euclidean, Labels, Pairs, PairVerifier, Quadruplets, Triplets
from isometry.sampling import RandomComparisons, RandomPairs
from isometry.select.tuples import read_tuples


def data(seed=0, n=90, classes=6, d=4):
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    return 2 * r.normal(size=(classes, d))[y] + r.normal(size=(n, d)), y


def some_pairs(seed=0, m=150, **more):
    X, y = data(seed, **more)
    pairs = RandomPairs(m).draw(X, Labels(y), np.random.RandomState(seed))
    return X, pairs, *pairs.tuples(X)


@pytest.mark.parametrize("learner", [ITML(), GMML(reg=0.1), RCA(reg=0.1)], ids=lambda e: type(e).__name__)
def test_points_and_row_numbers_give_the_same_metric(learner):
    X, pairs, T, signs = some_pairs()
    rows = np.stack([pairs.i, pairs.j], axis=1)
    by_points = PairVerifier(learner, calibration="train").fit(T, signs)
    by_names = PairVerifier(learner, calibration="train", preprocessor=X).fit(rows, signs)
    by_object = PairVerifier(learner, calibration="train").fit(X, pairs)
    d = by_object.pair_distance(X, rows)
    assert_allclose(by_points.pair_distance(T), d, rtol=1e-9)
    assert_allclose(by_names.pair_distance(rows), d, rtol=1e-12)
    assert_allclose(by_object.pair_distance(X, pairs), by_object.metric_.pair_distance(X, rows), rtol=1e-12)
    assert_allclose(by_points.decision_function(T), -d, rtol=1e-9)
    assert_allclose(by_object.pair_score(X, rows), -d)
    assert_allclose(by_object.metric_.pair_score(X, rows), -d)
    assert_allclose(by_points.score(T, signs), roc_auc_score(signs, -d))
    assert np.array_equal(by_points.classes_, [-1, 1]) and set(by_points.predict(T)) == {-1, 1}


def test_a_function_is_called_once_with_distinct_names():
    X, pairs, _, signs = some_pairs(1)
    names = np.array([f"file{k:03}" for k in range(len(X))])
    asked = []

    def read(these):
        asked.append(these)
        return X[[int(name[4:]) for name in these]]

    T = names[np.stack([pairs.i, pairs.j], axis=1)]
    verifier = PairVerifier(GMML(reg=0.1), preprocessor=read, random_state=0).fit(T, signs)
    assert len(asked) == 1 and np.array_equal(asked[0], np.unique(T))
    verifier.predict(T[:7])
    assert len(asked) == 2 and np.array_equal(asked[1], np.unique(T[:7]))
    plain = PairVerifier(GMML(reg=0.1), preprocessor=X, random_state=0).fit(np.stack([pairs.i, pairs.j], axis=1), signs)
    assert_allclose(verifier.pair_distance(T), plain.pair_distance(np.stack([pairs.i, pairs.j], axis=1)))


@pytest.mark.parametrize(("learner", "k"), [(SCML(random_state=0), 3), (LSML(), 4)])
def test_comparisons_are_scored_by_their_order(learner, k):
    X, y = data(2)
    draw = RandomComparisons(300, anchored=k == 3)
    side = draw.draw(X, Labels(y), np.random.RandomState(0))
    assert isinstance(side, Triplets if k == 3 else Quadruplets)
    T = side.tuples(X)
    verifier = PairVerifier(learner, calibration="train").fit(T)
    Z = verifier.transform(T.reshape(-1, X.shape[1])).reshape(len(T), k, -1)
    near = np.linalg.norm(Z[:, 0] - Z[:, 1], axis=1)
    far = np.linalg.norm(Z[:, 0] - Z[:, 2] if k == 3 else Z[:, 2] - Z[:, 3], axis=1)
    assert_allclose(verifier.decision_function(T), far - near, atol=1e-10)
    assert np.array_equal(verifier.predict(T), np.sign(far - near))
    assert_allclose(verifier.score(T), np.mean(far > near))
    assert verifier.score(T) > 0.8
    assert_allclose(verifier.decision_function(X, side), far - near, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_strategies_choose_what_a_search_over_all_thresholds_finds(seed):
    """1,000 random distances: every threshold is tried, one pair after the other."""
    r = np.random.default_rng(seed)
    same = r.random(1000) < 0.4
    d = np.round(r.normal(np.where(same, 2.0, 3.0), 1.0).clip(0), 2 if seed % 2 else 9)  # with ties, and without
    T = np.stack([np.zeros((1000, 1)), d[:, None]], axis=1)
    signs = np.where(same, 1, -1)
    verifier = PairVerifier(Euclidean(), calibration="train").fit(T, signs)
    measured = verifier.pair_distance(T)
    tries = np.concatenate([[-np.inf], np.unique(measured)])
    accepted = measured[None] <= tries[:, None]  # (t, m)
    tp, fp = accepted @ same.astype(int), accepted @ (~same).astype(int)
    tpr, tnr = tp / same.sum(), 1 - fp / (~same).sum()
    accuracy = (tp + (~same).sum() - fp) / 1000
    with np.errstate(invalid="ignore"):
        precision = tp / (tp + fp)
        f2 = np.nan_to_num(5 * precision * tpr / (4 * precision + tpr))
    assert verifier.calibrate_threshold(T, signs).threshold_ == tries[np.argmax(accuracy)]
    chosen = verifier.calibrate_threshold(T, signs, strategy="f_beta", beta=2.0).threshold_
    assert_allclose(f2[tries == chosen], f2.max())
    chosen = verifier.calibrate_threshold(T, signs, strategy="max_tpr", min_rate=0.8).threshold_
    assert tpr[tries == chosen] == tpr[tnr >= 0.8].max()
    assert tnr[tries == chosen] == tnr[tpr == tpr[tnr >= 0.8].max()].max()
    chosen = verifier.calibrate_threshold(T, signs, strategy="max_tnr", min_rate=0.8).threshold_
    assert tnr[tries == chosen] == tnr[tpr >= 0.8].max() and tpr[tries == chosen] >= 0.8
    assert np.array_equal(verifier.predict(T), np.where(measured <= chosen, 1, -1))


def test_strategies_at_their_ends():
    _, _, T, signs = some_pairs(3)
    verifier = PairVerifier(calibration="train").fit(T, signs)
    none = verifier.calibrate_threshold(T, signs, strategy="max_tpr", min_rate=1.0)
    assert np.all(signs[none.predict(T) == 1] == 1)  # no different pair is accepted
    every = verifier.calibrate_threshold(T, signs, strategy="max_tnr", min_rate=1.0)
    assert np.all(every.predict(T)[signs == 1] == 1)
    assert np.all(verifier.calibrate_threshold(T, signs, strategy="max_tpr", min_rate=0.0).predict(T)[signs == 1] == 1)
    assert verifier.calibrate_threshold(T, signs, strategy="max_tnr", min_rate=0.0).threshold_ == -np.inf
    for kind in (1, -1):
        with pytest.raises(ValueError, match="verification needs both kinds"):
            verifier.calibrate_threshold(T[signs == kind], signs[signs == kind])


def test_labels_and_tuples_calibrate_alike():
    X, y = data(4)
    verifier = PairVerifier(GMML(reg=0.1), random_state=0).fit(X, y)
    i, j = np.triu_indices(len(y), 1)
    T, signs = np.stack([X[i], X[j]], axis=1), np.where(y[i] == y[j], 1, -1)
    for strategy, more in (("accuracy", {}), ("f_beta", {}), ("max_tpr", {"min_rate": 0.9})):
        a = verifier.calibrate_threshold(X, y, strategy=strategy, **more).threshold_
        b = verifier.calibrate_threshold(T, signs, strategy=strategy, **more).threshold_
        assert_allclose(a, b, rtol=1e-12)
    inside = verifier.calibrate_threshold().threshold_  # by the pairs that were held out
    assert inside == verifier.roc_.best_threshold("accuracy")


def test_a_grid_is_searched_over_tuples():
    _, _, T, signs = some_pairs(5, m=300)
    search = GridSearchCV(
        PairVerifier(ITML(), calibration="train"), {"learner__gamma": [0.1, 1.0]}, cv=StratifiedKFold(3)
    )
    search.fit(T, signs)
    assert search.best_score_ > 0.7 and set(search.predict(T)) <= {-1, 1}


def test_components_keep_each_sample_on_one_side_of_a_split():
    X, _ = data(8, n=160, classes=40)
    base = 4 * np.arange(40)  # 40 islands of 4 samples
    i, j = np.concatenate([base, base, base + 1]), np.concatenate([base + 1, base + 2, base + 3])
    pairs = Pairs(i, j, np.arange(120) < 60, n=160)
    groups = pairs.components()[pairs.i]
    T, signs = pairs.tuples(X)
    verifier = PairVerifier(GMML(reg=0.1), calibration="train")
    scores = cross_val_score(verifier, T, signs, groups=groups, cv=GroupKFold(4))
    assert len(np.unique(groups)) == 40 and np.isfinite(scores).all()


def test_a_threshold_on_training_pairs_flatters_and_a_held_out_one_does_not():
    """30 features, labels at random: nothing can be learned; training pairs say otherwise."""
    r = np.random.default_rng(0)
    X, y = r.normal(size=(60, 30)), np.repeat(np.arange(20), 3)
    learner = RCA(reg=1e-6)
    flattered = PairVerifier(learner, calibration="train").fit(X, y)
    honest = PairVerifier(learner, random_state=0).fit(X, y)
    assert flattered.auc_ > 0.95
    assert abs(honest.auc_ - 0.5) < 0.15
    assert honest.operating_point(fpr=0.1).fnr.mean > 0.8 > 0.3 > flattered.operating_point(fpr=0.1).fnr.mean


@pytest.mark.parametrize(
    ("T", "y", "message"),
    [
        (np.zeros((4, 5, 2)), [1, 1, -1, -1], "tuples are pairs, triplets or quadruplets"),
        (np.zeros((4, 2, 2)), None, "pairs need"),
        (np.zeros((4, 2, 2)), [0, 1, 2, 3], "y holds 0, 1, 2, 3"),
        (np.zeros((4, 2, 2)), [1, -1], "there are 4 pairs but y has shape"),
        (np.full((4, 2, 2), np.nan), [1, 1, -1, -1], "NaN"),
    ],
)
def test_bad_tuples_are_named(T, y, message):
    with pytest.raises(ValueError, match=message):
        PairVerifier(GMML()).fit(T, y)


def test_bad_names_are_named():
    X, pairs, _, signs = some_pairs(6)
    rows = np.stack([pairs.i, pairs.j], axis=1)
    with pytest.raises(ValueError, match="rows 0 to 500, but X has rows 0 to 89"):
        PairVerifier(GMML(), preprocessor=X).fit(np.where(rows == rows.max(), 500, np.where(rows == 0, 0, rows)), signs)
    with pytest.raises(ValueError, match=r"returned an array of shape \(3, 4\)"):
        PairVerifier(GMML(), preprocessor=lambda names: X[:3]).fit(rows, signs)
    with pytest.raises(ValueError, match=r"Pairs\.from_tuples"):
        GMML().fit(np.zeros((4, 2, 3)), [1, 1, -1, -1])
    assert read_tuples(X, rows).rows is rows
