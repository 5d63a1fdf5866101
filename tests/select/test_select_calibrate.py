"""Probabilities that two samples are the same: do they mean what they say?"""

from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import beta, binomtest, norm, t
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from isometry import GMML, RCA, Euclidean, FixedMetric, Labels, Normalized, Pairs, load, save
from isometry.eval import pair_rate_interval
from isometry.eval.intervals import _sum_over_meeting
from isometry.select import PairVerifier

D = 3


def identities(seed, n_classes=60, n_each=6):
    """Class means N(0, 4 I), members N(mean, I): for Euclidean distance the log odds are linear in d²."""
    r = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n_each)
    return 2 * r.normal(size=(n_classes, D))[y] + r.normal(size=(len(y), D)), y


def true_probability(d2, prior):
    """Bayes: differences are N(0, 2 I) within a class and N(0, 10 I) between classes."""
    ratio = 5 ** (-D / 2) * np.exp(d2 / 4 - d2 / 20)  # density of different over same
    return prior / (prior + (1 - prior) * ratio)


def all_pairs(n):
    return np.stack(np.triu_indices(n, 1), axis=1)


@pytest.mark.parametrize(("method", "atol"), [("sigmoid", 0.03), ("isotonic", 0.05)])
@pytest.mark.parametrize("prior", [None, 0.5])
def test_probabilities_are_those_of_bayes(method, atol, prior):
    X, y = identities(0)
    X_new, y_new = identities(1)
    verifier = PairVerifier(Euclidean(), method=method, prior=prior, random_state=0).fit(X, y)
    assert_allclose(verifier.prior_, 5 / 359 if prior is None else 0.5)
    pairs = all_pairs(len(y_new))
    p = verifier.pair_probability(X_new, pairs)
    d2 = ((X_new[pairs[:, 0]] - X_new[pairs[:, 1]]) ** 2).sum(axis=1)
    truth = true_probability(d2, verifier.prior_)
    assert np.mean(np.abs(p - truth)) < atol * max(verifier.prior_, 0.2)
    same = y_new[pairs[:, 0]] == y_new[pairs[:, 1]]
    if prior is None:
        assert np.mean((p - same) ** 2) < 1.1 * np.mean((truth - same) ** 2)  # Brier score close to the best possible


def test_held_out_classes_keep_an_overfitted_metric_honest():
    """Memorising maps each training class to a point; calibration on training pairs would call all others different."""
    X, y = identities(2, n_classes=24)
    verifier = PairVerifier(Memory(), random_state=0).fit(X, y)
    X_new, y_new = identities(3, n_classes=24)
    pairs = all_pairs(len(y_new))
    p = verifier.pair_probability(X_new, pairs)
    same = y_new[pairs[:, 0]] == y_new[pairs[:, 1]]
    assert_allclose(p[same].mean(), p[~same].mean(), atol=0.02)  # it has learned nothing that holds for new classes
    assert_allclose(p.mean(), same.mean(), atol=0.02)


class Memory(TransformerMixin, BaseEstimator):
    """Training samples go to a point of their class, other samples to noise."""

    def fit(self, X, y):
        self.seen_ = {x.tobytes(): c for x, c in zip(X, y, strict=True)}
        return self

    def transform(self, X):
        noise = np.random.default_rng(0).normal(size=len(X))
        return np.array([[100.0 * self.seen_.get(x.tobytes(), e)] for x, e in zip(X, noise, strict=True)])


def test_the_scale_of_the_metric_does_not_matter():
    """Folds may scale their maps as they like: u = d² / mean d² takes that out."""
    X, y = identities(4, n_classes=20)
    pairs = all_pairs(len(y))[::7]
    plain, wild = (PairVerifier(Scaled(by), random_state=0).fit(X, y) for by in (0, 100))
    assert_allclose(wild.predict_proba(X, pairs), plain.predict_proba(X, pairs), rtol=1e-6)


class Scaled(TransformerMixin, BaseEstimator):
    def __init__(self, by):
        self.by = by

    def fit(self, X, y):
        self.factor_ = 1 + self.by * abs(X[0, 0])
        return self

    def transform(self, X):
        return self.factor_ * X


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_thresholds_meet_their_targets_on_new_identities(method):
    X, y = identities(5)
    X_new, y_new = identities(6, n_classes=100)
    verifier = PairVerifier(make_pipeline(StandardScaler(), GMML()), method=method, random_state=0).fit(X, y)
    pairs = all_pairs(len(y_new))
    same = y_new[pairs[:, 0]] == y_new[pairs[:, 1]]
    point = verifier.operating_point(fpr=0.05)
    accepted = verifier.set_threshold(point.threshold).predict(X_new, pairs) == 1
    assert 0.04 < accepted[~same].mean() < 0.06
    assert accepted[same].mean() > 0.25  # the best possible at 5 % is P(χ²₃ < 1.76) = 0.376
    assert point.fpr.low < accepted[~same].mean() < point.fpr.high
    assert point.fnr.low < 1 - accepted[same].mean() < point.fnr.high
    assert point.precision.low < same[accepted].mean() < point.precision.high
    strict = verifier.operating_point(precision=0.15)
    curve = verifier.roc_
    t = np.searchsorted(curve.thresholds, strict.threshold)
    right, wrong = curve.similar_share * curve.tpr, (1 - curve.similar_share) * curve.fpr
    assert right[t] / (right[t] + wrong[t]) >= 0.15
    assert not np.any(right[t + 1 :] / (right[t + 1 :] + wrong[t + 1 :]) >= 0.15)  # none accepts more


def test_rates_of_an_operating_point_are_those_of_its_pairs():
    """Counted by hand on the held-out pairs, with the weights of the prior."""
    X, y = identities(12, n_classes=30)
    verifier = PairVerifier(GMML(), prior=0.3, random_state=0).fit(X, y)
    held = verifier.held_out_
    for goal in ({"fpr": 0.1}, {"precision": 0.7}, {"cost": (3, 1)}, {"threshold": 1.7}, {}):
        point = verifier.operating_point(**goal)
        accepted = np.sqrt(held.u * verifier.scale_) <= point.threshold * (1 + 1e-12)
        assert_allclose(point.fpr.mean, accepted[~held.same].mean())
        assert_allclose(point.fnr.mean, 1 - accepted[held.same].mean())
        right, wrong = 0.3 * accepted[held.same].mean(), 0.7 * accepted[~held.same].mean()
        assert_allclose(point.precision.mean, right / (right + wrong))
    d = np.sort(np.sqrt(held.u * verifier.scale_))
    costs = [
        3 * 0.7 * np.mean(np.sqrt(held.u * verifier.scale_)[~held.same] <= t)
        + 0.3 * np.mean(np.sqrt(held.u * verifier.scale_)[held.same] > t)
        for t in d[:: len(d) // 300]
    ]
    cheapest = verifier.operating_point(cost=(3, 1))
    assert 3 * 0.7 * cheapest.fpr.mean + 0.3 * cheapest.fnr.mean <= min(costs) + 1e-12


def test_the_threshold_after_fit_is_where_the_probability_is_one_half():
    X, y = identities(13, n_classes=20)
    for method in ("sigmoid", "isotonic"):
        verifier = PairVerifier(method=method, prior=0.5, random_state=0).fit(X, y)
        pairs = all_pairs(len(y))
        assert_allclose(verifier.operating_point().probability, 0.5, atol=1e-9)
        p, d = verifier.pair_probability(X, pairs), verifier.pair_distance(X, pairs)
        clear = np.abs(p - 0.5) > 1e-9
        assert np.array_equal((verifier.predict(X, pairs) == 1)[clear], (p > 0.5)[clear])
        assert np.all(np.diff(p[np.argsort(d)]) <= 1e-15)
        assert_allclose(verifier.predict_proba(X, pairs), np.stack([1 - p, p], axis=1))


def test_a_band_leaves_pairs_undecided_and_keeps_both_rates():
    X, y = identities(14)
    verifier = PairVerifier(prior=0.5, random_state=0).fit(X, y).set_band(fpr=0.02, fnr=0.05)
    held = np.sqrt(verifier.held_out_.u * verifier.scale_)
    same = verifier.held_out_.same
    assert np.mean(held[~same] <= verifier.threshold_) <= 0.02 < np.mean(held[~same] <= 1.02 * verifier.threshold_)
    assert np.mean(held[same] > verifier.reject_threshold_) <= 0.05
    assert set(verifier.predict(X, all_pairs(60))) == {-1, 0, 1}
    verifier.set_band(fpr=0.5, fnr=0.5)  # one threshold meets both
    assert verifier.threshold_ == verifier.reject_threshold_
    assert set(verifier.predict(X, all_pairs(60))) == {-1, 1}


def test_reliability_is_measured_by_links_of_other_folds():
    X, y = identities(15)
    verifier = PairVerifier(prior=0.5, random_state=0).fit(X, y)
    curve = verifier.reliability(10)
    within = ~np.isnan(verifier.held_out_.probability)
    p, same, w = (
        column[within]
        for column in (verifier.held_out_.probability, verifier.held_out_.same, verifier.held_out_.weight)
    )
    w = w * np.where(same, 0.5 / w[same].sum(), 0.5 / w[~same].sum())  # of pairs between folds none is the same
    k = np.minimum((10 * p).astype(int), 9)
    by_hand = sum(abs(np.sum((w * (p - same))[k == b])) for b in range(10)) / w.sum()
    assert_allclose(curve.error, by_hand)
    assert_allclose(verifier.calibration_error_, verifier.reliability().error)
    assert verifier.calibration_error_ < 0.03
    in_sample = verifier.calibrator_.predict(verifier.held_out_.u[within])
    assert 1e-4 < np.abs(p - in_sample).max() < 0.1


def test_a_threshold_does_not_divide_pairs_that_are_equally_far():
    """Iris has a resolution of 0.1, so that many distances are equal but for rounding."""
    X, y = load_iris(return_X_y=True)
    verifier = PairVerifier(protocol="closed", random_state=0).fit(X, y)
    for fpr in (0.01, 0.02, 0.05, 0.1, 0.2):
        assert verifier.operating_point(fpr=fpr).fpr.mean <= fpr * (1 + 1e-9)


def test_a_metric_that_learns_nothing_is_judged_by_all_pairs():
    """20 classes make 190 pairs of classes, of which folds of four hold 30; learned metrics have those alone."""
    X, y = identities(15, n_classes=20)
    n = len(y)
    for learner in (None, Euclidean(), Normalized(Euclidean()), FixedMetric(np.eye(X.shape[1]))):
        pairs = PairVerifier(learner, random_state=0).fit(X, y).held_out_
        assert len(pairs.u) == n * (n - 1) // 2
        assert len(np.unique(np.sort(np.stack([pairs.a, pairs.b], axis=1)[~pairs.same], axis=1), axis=0)) == 190
    learned = PairVerifier(GMML(), random_state=0).fit(X, y).held_out_
    assert len(np.unique(np.sort(np.stack([learned.a, learned.b], axis=1)[~learned.same], axis=1), axis=0)) == 30
    assert not np.isnan(learned.probability).any()


def test_the_form_of_the_link_follows_the_pairs():
    """Of Gaussian classes the sigmoid of u is the true link. A direction of heavy tails that says nothing of the class
    makes it wrong, and then a link without a form is truer for fresh classes.
    """
    X, y = identities(21)
    gaussian = PairVerifier(prior=0.5, random_state=0).fit(X, y)
    assert gaussian.method_ == "sigmoid"
    assert np.array_equal(
        gaussian.held_out_.probability,
        PairVerifier(prior=0.5, method="sigmoid", random_state=0).fit(X, y).held_out_.probability,
        equal_nan=True,
    )

    def heavy(seed):
        X, y = identities(seed)
        tail = np.abs(np.random.default_rng(seed).standard_t(1.5, size=len(y))) ** 1.5
        return np.hstack([X, tail[:, None]]), y

    X, y = heavy(22)
    X_new, y_new = heavy(23)
    pairs = all_pairs(len(y_new))
    same = y_new[pairs[:, 0]] == y_new[pairs[:, 1]]
    weight = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    brier = {}
    for method in ("auto", "sigmoid", "isotonic"):
        verifier = PairVerifier(prior=0.5, method=method, random_state=0).fit(X, y)
        brier[method] = weight @ (verifier.pair_probability(X_new, pairs) - same) ** 2
        assert verifier.method_ == ("isotonic" if method == "auto" else method)
    assert brier["auto"] == brier["isotonic"] < 0.9 * brier["sigmoid"]
    assert PairVerifier(calibration="train", random_state=0).fit(X, y).method_ == "sigmoid"


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_a_verifier_comes_back_from_its_file(tmp_path, method):
    X, y = identities(16, n_classes=12)
    verifier = PairVerifier(make_pipeline(StandardScaler(), GMML()), method=method, random_state=0).fit(X, y)
    verifier.set_band(fpr=0.02, fnr=0.05).save(tmp_path / "verifier.safetensors")
    again = load(tmp_path / "verifier.safetensors")
    pairs = all_pairs(len(y))
    assert np.array_equal(again.pair_probability(X, pairs), verifier.pair_probability(X, pairs))
    assert np.array_equal(again.predict(X, pairs), verifier.predict(X, pairs))
    assert again.operating_point(fpr=0.1) == verifier.operating_point(fpr=0.1)
    assert again.reliability().error == verifier.reliability().error


@pytest.mark.parametrize(("n_classes", "protocol"), [(4, "closed"), (19, "closed"), (20, "open")])
def test_whole_classes_are_held_out_where_there_are_many(n_classes, protocol):
    X, y = identities(19, n_classes=n_classes)
    assert PairVerifier(random_state=0).fit(X, y).protocol_ == protocol
    assert PairVerifier(random_state=0, protocol="open").fit(X, y).protocol_ == "open"


@pytest.mark.filterwarnings("error")
def test_a_table_of_numbers_is_mapped_as_its_array_is():
    """No warning of names that its scaler has not seen: the columns are those of the fit."""
    table, y = load_iris(return_X_y=True, as_frame=True)
    verifier = PairVerifier(make_pipeline(StandardScaler(), GMML()), random_state=0).fit(table, y)
    plain = PairVerifier(make_pipeline(StandardScaler(), GMML()), random_state=0).fit(table.to_numpy(), y)
    assert np.array_equal(verifier.transform(table), plain.transform(table.to_numpy()))
    with pytest.raises(ValueError, match="feature names"):
        verifier.transform(table.rename(columns={"sepal length (cm)": "other"}))


def test_a_fitted_metric_is_calibrated_as_it_is(tmp_path):
    X, y = identities(17, n_classes=12)
    metric = GMML().fit(*identities(18, n_classes=12))
    verifier = PairVerifier(FrozenEstimator(metric), random_state=0).fit(X, y)
    pairs = all_pairs(len(y))
    assert_allclose(verifier.pair_distance(X, pairs), metric.pair_distance(X, pairs))
    save(verifier, tmp_path / "v.safetensors")
    assert_allclose(load(tmp_path / "v.safetensors").pair_distance(X, pairs), metric.pair_distance(X, pairs))


def test_pairs_that_share_a_class_widen_the_interval():
    """1,000 pairs over 40 classes, each of which is accepted as a whole or not: about 40 independent values."""
    r = np.random.default_rng(0)
    a, b = r.integers(0, 40, size=(2, 1000))
    hit = (r.random(40) < 0.2)[a] | (r.random(1000) < 0.02)
    rate = float(hit.mean())
    every = np.ones(1000, dtype=bool)
    dependent = pair_rate_interval(rate, (hit - rate) / 1000, a, b, every)
    alone = pair_rate_interval(rate, (hit - rate) / 1000, np.arange(1000), np.arange(1000, 2000), every)
    assert dependent.high - dependent.low > 3 * (alone.high - alone.low)
    residual = (hit - rate) / 1000
    meet = (a[:, None] == a) | (a[:, None] == b) | (b[:, None] == a) | (b[:, None] == b)
    variance = np.sum(np.outer(residual, residual)[meet]) / (1 - meet.mean())
    n = rate * (1 - rate) / variance * (norm.ppf(0.975) / t.ppf(0.975, 39)) ** 2
    assert_allclose(dependent.low, beta.ppf(0.025, n * rate, n * (1 - rate) + 1))
    assert_allclose(dependent.high, beta.ppf(0.975, n * rate + 1, n * (1 - rate)))
    exact = binomtest(int(hit.sum()), 1000).proportion_ci()  # two groups a pair: the pairs are independent
    assert_allclose([alone.low, alone.high], [exact.low, exact.high], atol=2e-3)


def test_the_variance_of_a_share_of_pairs_is_right_on_average():
    """Folds of four classes, as 20 known ones make: a seventh was missing of it with G/(G−1) for a divisor."""
    r = np.random.default_rng(0)
    i, j = np.triu_indices(4, 1)
    a, b = (np.concatenate([e + 4 * f for f in range(5)]) for e in (i, j))
    every, shares, variances = np.ones(30, dtype=bool), [], []
    for _ in range(4000):
        ease = r.standard_normal(20)
        hit = ease[a] + ease[b] + r.standard_normal(30) > 0
        shares.append(hit.mean())
        variances.append(_sum_over_meeting((hit - hit.mean()) / 30, a, b) / (1 - _sum_over_meeting(every / 30, a, b)))
    # a variance that is estimated 4,000 times is known to 2.2 %, the mean of the estimates better
    assert_allclose(np.mean(variances), np.var(shares), rtol=0.09)


def test_a_share_among_new_groups_varies_twice_as_much():
    r = np.random.default_rng(0)
    a, b = r.integers(0, 40, size=(2, 1000))
    hit = (r.random(40) < 0.2)[a] | (r.random(1000) < 0.02)
    rate = float(hit.mean())
    given = rate, (hit - rate) / 1000, a, b, np.ones(1000, dtype=bool)
    meet = (a[:, None] == a) | (a[:, None] == b) | (b[:, None] == a) | (b[:, None] == b)
    variance = 2 * np.sum(np.outer(given[1], given[1])[meet]) / (1 - meet.mean())
    n = rate * (1 - rate) / variance * (norm.ppf(0.975) / t.ppf(0.975, 39)) ** 2
    new = pair_rate_interval(*given, new=True)
    assert_allclose(
        [new.low, new.high], beta.ppf([0.025, 0.975], [n * rate, n * rate + 1], [n - n * rate + 1, n - n * rate])
    )
    known = pair_rate_interval(*given)
    assert new.low < known.low < known.high < new.high


def test_one_group_in_all_pairs_says_nothing_about_others():
    hit = np.array([1.0, 0, 0, 0])
    found = pair_rate_interval(0.25, (hit - 0.25) / 4, np.zeros(4, int), np.arange(1, 5), np.ones(4, bool))
    assert (found.low, found.high) == (0, 1)


def test_no_false_match_leaves_a_rate_above_zero_possible():
    every = np.ones(50, dtype=bool)
    none = pair_rate_interval(0.0, np.zeros(50), np.arange(50), np.arange(50, 100), every)
    assert none.low == 0
    assert_allclose(none.high, 1 - 0.025 ** (1 / 50))


def test_fits_from_pairs_held_out_by_components():
    X, y = identities(7, n_classes=80, n_each=4)
    base = 8 * np.arange(40)  # two identities a component
    i, j = np.concatenate([base, base + 4, base, base + 1]), np.concatenate([base + 1, base + 5, base + 4, base + 6])
    pairs = Pairs(i, j, y[i] == y[j], n=len(y))
    verifier = PairVerifier(GMML(), random_state=0).fit(X, pairs)
    assert verifier.n_pairs_ == 160 and verifier.prior_ == 0.5
    assert verifier.auc_ > 0.7
    assert_allclose(verifier.pair_probability(X, pairs), verifier.pair_probability(X, np.stack([i, j], axis=1)))
    assert verifier.score(X, pairs) > 0.7


def test_triples_of_rows_and_pair_arrays_agree():
    X, y = identities(8, n_classes=10)
    verifier = PairVerifier(GMML(), random_state=0).fit(X, y)
    pairs = all_pairs(12)
    assert_allclose(verifier.pair_probability(X[pairs]), verifier.pair_probability(X, pairs))


def test_sampled_pairs_stand_for_all_of_them():
    X, y = identities(9, n_classes=30)
    few, every = (PairVerifier(Euclidean(), max_pairs=m, random_state=0).fit(X, y) for m in (2000, 10**6))
    assert few.n_pairs_ < 2001 < every.n_pairs_
    assert few.prior_ == every.prior_
    pairs = all_pairs(len(y))
    assert_allclose(few.predict_proba(X, pairs), every.predict_proba(X, pairs), atol=0.08)


def test_clones_and_repeats():
    X, y = identities(10, n_classes=10)
    verifier = PairVerifier(GMML(), random_state=0).fit(X, y)
    again = clone(verifier).fit(X, Labels(y))
    assert_allclose(again.pair_probability(X, all_pairs(9)), verifier.pair_probability(X, all_pairs(9)), rtol=0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "platt"}, "method='platt' must be"),
        ({"calibration": "none"}, "calibration='none' must be"),
        ({"prior": 1.0}, "prior=1.0 is the share"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        PairVerifier(GMML(), **params).fit(*identities(0, n_classes=6))


def test_bad_questions_are_answered():
    X, y = identities(11, n_classes=10)
    verifier = PairVerifier(Euclidean(), random_state=0).fit(X, y)
    for question, message in (
        (lambda: verifier.pair_probability(X), r"X must have shape \(m, 2, d\)"),
        (lambda: verifier.pair_distance(X[:9].reshape(3, 3, 3)), "each tuple has 3"),
        (lambda: verifier.set_threshold(2.0, reject=1.0), "at most reject=1.0"),
        (lambda: verifier.set_threshold(np.nan), "must be a number"),
        (lambda: verifier.set_threshold("near"), "threshold='near' must be a number"),
        (lambda: verifier.calibrate_threshold(strategy="max_tpr", min_rate=1j), "needs min_rate"),
        (lambda: verifier.calibrate_threshold(strategy="f_beta", beta=None), "beta=None must be a number"),
        (lambda: verifier.operating_point(cost=(-1, 1)), "two numbers ≥ 0"),
        (lambda: verifier.calibrate_threshold(strategy="best"), "strategy='best' is unknown"),
        (lambda: verifier.calibrate_threshold(strategy="max_tpr"), "needs min_rate"),
        (lambda: verifier.calibrate_threshold(X, None), "must hold labels"),
        (lambda: verifier.pair_probability(X, [[0, 600]]), "pairs name rows 0 to 600, but X has rows 0 to 59"),
        (lambda: verifier.pair_probability(X, [[0.5, 1]]), "integer array"),
        (lambda: verifier.operating_point(fpr=0.1, precision=0.9), "give one target"),
        (lambda: verifier.operating_point(precision=1.5), "precision=1.5"),
        (lambda: PairVerifier(GMML()).fit(X, None), "needs labels, pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            question()


class Recorded(SimpleImputer):
    """Says how many rows it was fitted on."""

    seen: ClassVar[list[int]] = []

    def fit(self, X, y=None):
        self.seen.append(len(X))
        return super().fit(X, y)


def test_gaps_are_filled_inside_each_fold():
    """A table with gaps and a category goes to the pipeline as it is, and every fold fills by its own rows."""
    pd = pytest.importorskip("pandas")
    rng = np.random.RandomState(0)
    y = np.repeat(np.arange(20), 6)
    X = rng.randn(20, 3)[y] + 0.3 * rng.randn(120, 3)
    frame = pd.DataFrame(X, columns=list("abc")).assign(kind=np.where(y % 2, "odd", "even"))
    frame.loc[::7, "b"] = np.nan
    parts = [("numbers", Recorded(strategy="median"), list("abc")), ("kind", OneHotEncoder(drop="first"), ["kind"])]
    Recorded.seen.clear()
    verifier = PairVerifier(make_pipeline(ColumnTransformer(parts), RCA()), n_splits=5, random_state=0).fit(frame, y)
    assert Recorded.seen[0] == 120 and len(Recorded.seen) == 6
    assert all(84 <= rows < 120 for rows in Recorded.seen[1:]) and sum(120 - rows for rows in Recorded.seen) == 120
    filled = frame.assign(b=frame["b"].fillna(frame["b"].median()), kind=(frame["kind"] == "odd").astype(float))
    Z = verifier.metric_[-1].transform(filled.to_numpy())
    rows = np.array([[0, 1], [0, 7], [14, 119]])
    expected = np.linalg.norm(Z[rows[:, 0]] - Z[rows[:, 1]], axis=1)
    np.testing.assert_allclose(verifier.pair_distance(frame, rows), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="NaN"):
        PairVerifier(RCA()).fit(frame[["a", "b", "c"]], y)
