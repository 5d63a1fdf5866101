"""Automatic strength on real data: never reliably worse than Euclidean distance, whatever the method."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler, normalize

from isometry import AutoMetric, Labels
from isometry.eval import knn_hits, paired_interval, retrieval
from isometry.registry import all_methods
from tests.test_strength import planted, seeded

DATA = Path(os.environ.get("ISOMETRY_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not DATA.is_dir(), reason=f"no data sets: {DATA.name} is absent; set ISOMETRY_DATA"),
]
EMBEDDED = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
LINEAR = [
    row
    for row in all_methods(kind="estimator")
    if row.published and row.family != "kernel" and "n_components" not in row.params  # few dimensions were asked for
]
MOST_ROWS = 1_500
MOST_FEATURES = 700
SHUFFLES = 10


@cache
def table(name):
    if name in EMBEDDED:
        X, y = EMBEDDED[name](return_X_y=True)
    else:
        with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
    rows = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
    X, y = X[rows], np.unique(y[rows], return_inverse=True)[1]
    several = np.bincount(y)[y] >= 3
    return X[several], y[several]


def names_of_tables():
    """All that are not too wide, the quickest to learn from first."""
    names = [*EMBEDDED, *(path.stem for path in DATA.glob("*.npz"))]
    shapes = {name: table(name)[0].shape for name in names}
    return sorted((n for n in names if shapes[n][1] <= MOST_FEATURES), key=lambda n: (np.prod(shapes[n]), n))


@cache
def folds(name, seed=0):
    """Three folds, standardised by the rows to learn from: those, their classes, the others, theirs, Euclidean hits."""
    X, y = table(name)
    made = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=seed).split(X, y):
        scaler = StandardScaler().fit(X[train])
        A, B = scaler.transform(X[train]), scaler.transform(X[test])
        made.append((A, y[train], B, y[test], knn_hits(A, y[train], B, y[test], 3).astype(float)))
    return made


def change(row, name, seed=0):
    """Of 3-NN accuracy against Euclidean distance, in points."""
    gains = []
    for A, a, B, b, plain in folds(name, seed):
        model = seeded(row.make()).fit(A, Labels(a))
        gains.append(knn_hits(model.transform(A), a, model.transform(B), b, 3) - plain)
    return 100 * np.concatenate(gains).mean()


@pytest.mark.parametrize("row", LINEAR, ids=lambda row: row.key)
def test_raw_tables_lose_nothing(row):
    """3-NN accuracy in points, three folds, standardised: the mean change is not negative, the worst above −2.

    The least of some thousand changes is low by chance as well: three rows of zoo are three points. Where a change is
    so low, what counts is the mean of ten shuffles of the table, that one among them.
    """
    found = {name: change(row, name) for name in names_of_tables()}
    assert np.mean(list(found.values())) >= 0, found
    for name in [name for name in found if found[name] <= -2]:
        found[name] = np.mean([found[name], *(change(row, name, seed) for seed in range(1, SHUFFLES))])
    assert min(found.values()) > -2, found


@pytest.mark.parametrize("labels", [5, 20, 100])
@pytest.mark.parametrize("name", ["banking77_minilm", "clinc150_minilm"])
def test_new_classes_of_embeddings_lose_nothing(name, labels):
    """MAP@R of classes never seen, by interval over classes."""
    with np.load(DATA / f"{name}.npz", allow_pickle=False) as arrays:
        X, y = normalize(arrays["X"].astype(np.float64)), arrays["y"]
    rng = np.random.default_rng(0)
    classes = rng.permutation(y.max() + 1)
    new, known = np.split(classes, [len(classes) // 3])
    test = rng.permutation(np.flatnonzero(np.isin(y, new)))[:2_000]
    train = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:labels] for c in known])
    plain = retrieval(X[test], y[test])
    for row in LINEAR:
        model = seeded(row.make()).fit(X[train], Labels(y[train]))
        learned = retrieval(model.transform(X[test]), y[test])
        gain = paired_interval(learned.map_at_r, plain.map_at_r, groups=y[test][plain.queries])
        assert gain.high >= 0, (row.name, gain)


def hits(X, y, Z, labels):
    """Mean share of the own class among the three nearest rows of X."""
    return retrieval(Z, labels, gallery=X, gallery_y=y, ks=(3,)).mean()["precision@3"]


def gain_is_covered(draw, n, seed, learners):
    """Whether what the chosen metric gains on 3,000 new samples lies in the interval of the verdict."""
    X, y = draw(seed, n)
    model = AutoMetric(learners, budget=None, random_state=seed).fit(X, y)
    Z, labels = draw(10_000 + seed, 3_000)
    scaled = StandardScaler().fit(X)
    plain = hits(scaled.transform(X), y, scaled.transform(Z), labels)
    learned = hits(model.transform(X), y, model.transform(Z), labels)
    _, low, high = model.difference_
    return low <= learned - plain <= high


def test_intervals_of_the_verdict_cover_the_truth():
    """Of 100 simulated data sets, the gain on new samples lies in at least 93 intervals of 95 %."""
    covered = 0
    for seed in range(100):
        noise = 2 + seed % 12  # from a great gain to hardly any
        covered += gain_is_covered(
            lambda s, n, noise=noise: planted(s, n=n, noise=noise), 200, seed, ["RCA", "FisherML", "GMML"]
        )
    assert covered >= 93


def correlated(seed, n, d=8, classes=4, wrong=0.0):
    """Classes with one covariance of their own, and a share of wrong labels."""
    world = np.random.default_rng(77 + classes + d)
    means, A = world.standard_normal((classes, d)), world.standard_normal((d, d))
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = means[y] + 1.5 * rng.standard_normal((n, d)) @ A.T / np.sqrt(d)
    return X, np.where(rng.random(n) < wrong, rng.integers(classes, size=n), y)


def long_tails(seed, n):
    """Two classes apart in one feature, with outliers in all of them."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    signal = np.where(y, 0.8, -0.8)[:, None] + 0.6 * rng.standard_t(4, size=(n, 1))
    return np.column_stack([signal, 2 * rng.standard_t(4, size=(n, 6))]), y


KINDS = {
    "few samples": (lambda s, n: planted(s, n=n, noise=6), 100),
    "six classes": (lambda s, n: planted(s, n=n, noise=6, classes=6), 240),
    "correlated": (correlated, 200),
    "ten classes": (lambda s, n: correlated(s, n, d=15, classes=10), 200),
    "wrong labels": (lambda s, n: correlated(s, n, wrong=0.3), 200),
    "long tails": (long_tails, 150),
}


def test_intervals_cover_in_data_of_other_kinds():
    """Of 120 data sets of six kinds, at least 93 % of the intervals of 95 % cover."""
    covered = {
        name: [gain_is_covered(draw, n, seed, ["FisherML", "GMML"]) for seed in range(500, 520)]
        for name, (draw, n) in KINDS.items()
    }
    assert np.mean(list(covered.values())) >= 0.93, covered
