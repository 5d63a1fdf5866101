"""Exams of `PairVerifier` on real data: are its probabilities true for fresh pairs, and do its intervals hold?"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from isometry import GMML, RCA, Euclidean, Normalized, PairVerifier
from isometry.core.distance import sqdist
from isometry.eval import reliability

DATA = Path(os.environ.get("ISOMETRY_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]


def load(name):
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"]


def some_rows(y, classes, each, rng):
    return np.concatenate([rng.permutation(np.flatnonzero(y == c))[:each] for c in classes])


def all_pairs(y):
    i, j = np.triu_indices(len(y), 1)
    return i, j, y[i] == y[j]


@pytest.mark.parametrize("name", ["banking77_minilm", "clinc150_minilm"])
@pytest.mark.parametrize("learner", [None, RCA(), GMML()], ids=["embeddings", "RCA", "GMML"])
def test_probabilities_of_fresh_classes_are_true(name, learner):
    """Learned and calibrated on half of the classes, asked about pairs of the others, same and different equally
    often. With a strength that each fold chose for itself, GMML's error on banking77 was 0.056.
    """
    X, y = load(name)
    rng = np.random.default_rng(0)
    known, fresh = np.array_split(rng.permutation(np.unique(y)), 2)
    rows, new = some_rows(y, known, 40, rng), some_rows(y, fresh, 40, rng)
    verifier = PairVerifier(learner, prior=0.5, random_state=0).fit(X[rows], y[rows])
    i, j, same = all_pairs(y[new])
    p = verifier.pair_probability(X[new], np.stack([i, j], axis=1))
    weight = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
    error = reliability(p, same, weight).error
    print(name, type(learner).__name__, "fresh", round(error, 4), "own", round(verifier.calibration_error_, 4))
    assert error < 0.03, error
    assert verifier.calibration_error_ < 0.03


@pytest.mark.parametrize("name", ["banking77_minilm", "clinc150_minilm"])
@pytest.mark.parametrize("learner", [Normalized(Euclidean()), Normalized(GMML())], ids=["embeddings", "GMML"])
def test_of_unit_length_they_are_true_over_many_splits(name, learner):
    """Eight halves of the classes. The error of a split is mostly how easy its fresh classes are beside the known ones:
    on banking77, embeddings as they are were off by 0.032 on average and by 0.068 at worst, and a link fitted to 19
    of the fresh classes themselves by 0.032 for the other 19. Unit length about the mean makes classes more alike.
    """
    X, y = load(name)
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        known, fresh = np.array_split(rng.permutation(np.unique(y)), 2)
        rows, new = some_rows(y, known, 40, rng), some_rows(y, fresh, 40, rng)
        verifier = PairVerifier(learner, prior=0.5, random_state=0).fit(X[rows], y[rows])
        i, j, same = all_pairs(y[new])
        u = sqdist(verifier.transform(X[new]))[i, j]
        weight = np.where(same, 0.5 / same.sum(), 0.5 / (~same).sum())
        errors.append(reliability(verifier.calibrator_.predict(u / verifier.scale_), same, weight).error)
    print(name, np.round(errors, 4))
    assert np.mean(errors) < 0.03, errors


def coverage(X, y, learner, n_known, each, fpr, seed=0, runs=100):
    """How often the interval of the false-match rate holds that of classes never seen; their rate, and its width."""
    rng = np.random.default_rng(seed)
    covered, rates, widths = 0, [], []
    for _ in range(runs):
        classes = rng.permutation(np.unique(y))
        rows, new = some_rows(y, classes[:n_known], each, rng), some_rows(y, classes[n_known:], 20, rng)
        verifier = PairVerifier(learner, prior=0.5, max_pairs=40_000, random_state=0).fit(X[rows], y[rows])
        point = verifier.operating_point(fpr=fpr)
        D = sqdist(verifier.transform(X[new]))
        truth = np.mean(D[y[new][:, None] != y[new]] <= point.threshold**2)
        covered += point.fpr.contains(truth)
        rates.append(truth)
        widths.append(point.fpr.high - point.fpr.low)
    return covered, float(np.mean(rates)), float(np.mean(widths))


@pytest.mark.parametrize("n_known", [20, 30, 40, 50])
@pytest.mark.parametrize("fpr", [0.01, 0.05])
@pytest.mark.parametrize("name", ["banking77_minilm", "clinc150_minilm"])
def test_the_interval_of_the_false_match_rate_covers_the_truth(name, fpr, n_known):
    """Some classes with 10 rows each, drawn 100 times; all others tell the truth.

    While the interval was one of the rate among all classes there could be, it held that among the others in 72 to 92
    of 100 draws: theirs varies as well.
    """
    X, y = load(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        covered, rate, width = coverage(X, y, Euclidean(), n_known, 10, fpr=fpr)
    print(name, n_known, fpr, "covered", covered, "of 100, mean rate", round(rate, 4), "mean width", round(width, 4))
    assert covered >= 90, (covered, rate, width)
    assert 0.6 * fpr < rate < 1.6 * fpr  # the threshold is about where it should be
    assert width < 6 * fpr  # an interval of all rates would cover them as well
