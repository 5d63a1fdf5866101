"""Probabilities that two samples are the same: do they mean what they say?"""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isometry import GMML, Euclidean, Labels, Pairs
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
    p = verifier.predict_proba(X_new, pairs)
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
    p = verifier.predict_proba(X_new, pairs)
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
    plain, wild = (PairVerifier(m, random_state=0).fit(X, y) for m in (Euclidean(), Wild()))
    assert_allclose(wild.predict_proba(X, pairs), plain.predict_proba(X, pairs), rtol=1e-6)


class Wild(TransformerMixin, BaseEstimator):
    def fit(self, X, y):
        self.factor_ = 1 + 100 * abs(X[0, 0])
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
    accepted = verifier.predict(X_new, pairs, threshold=verifier.threshold_for(fpr=0.05))
    assert 0.025 < accepted[~same].mean() < 0.06  # steps of the isotonic link stop short of 5 %
    assert accepted[same].mean() > 0.25  # the best possible at 5 % is P(χ²₃ < 1.76) = 0.376
    strict = verifier.threshold_for(precision=0.15)
    curve = verifier.roc_
    t = np.searchsorted(curve.thresholds, -strict)
    right, wrong = curve.similar_share * curve.tpr, (1 - curve.similar_share) * curve.fpr
    assert right[t] / (right[t] + wrong[t]) >= 0.15
    assert not np.any(right[t + 1 :] / (right[t + 1 :] + wrong[t + 1 :]) >= 0.15)  # none accepts more


def test_fits_from_pairs_held_out_by_components():
    X, y = identities(7, n_classes=80, n_each=4)
    base = 8 * np.arange(40)  # two identities a component
    i, j = np.concatenate([base, base + 4, base, base + 1]), np.concatenate([base + 1, base + 5, base + 4, base + 6])
    pairs = Pairs(i, j, y[i] == y[j], n=len(y))
    verifier = PairVerifier(GMML(), random_state=0).fit(X, pairs)
    assert verifier.n_pairs_ == 160 and verifier.prior_ == 0.5
    assert verifier.auc_ > 0.7
    assert_allclose(verifier.predict_proba(X, pairs), verifier.predict_proba(X, np.stack([i, j], axis=1)))
    assert verifier.score(X, pairs) > 0.7


def test_triples_of_rows_and_pair_arrays_agree():
    X, y = identities(8, n_classes=10)
    verifier = PairVerifier(GMML(), random_state=0).fit(X, y)
    pairs = all_pairs(12)
    assert_allclose(verifier.predict_proba(X[pairs]), verifier.predict_proba(X, pairs))


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
    assert_allclose(again.predict_proba(X, all_pairs(9)), verifier.predict_proba(X, all_pairs(9)), rtol=0)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"method": "platt"}, "method='platt' must be"), ({"prior": 1.0}, "prior=1.0 is the share")],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        PairVerifier(GMML(), **params).fit(*identities(0, n_classes=6))


def test_bad_questions_are_answered():
    X, y = identities(11, n_classes=10)
    verifier = PairVerifier(Euclidean(), random_state=0).fit(X, y)
    for question, message in (
        (lambda: verifier.predict_proba(X), r"X must have shape \(m, 2, d\)"),
        (lambda: verifier.predict_proba(X, [[0, 600]]), "pairs name rows 0 to 600, but X has rows 0 to 59"),
        (lambda: verifier.predict_proba(X, [[0.5, 1]]), "integer array"),
        (lambda: verifier.threshold_for(), "give one target"),
        (lambda: verifier.threshold_for(fpr=0.1, precision=0.9), "give one target"),
        (lambda: verifier.threshold_for(precision=1.5), "precision=1.5"),
        (lambda: PairVerifier(GMML()).fit(X, None), "needs labels, pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            question()
