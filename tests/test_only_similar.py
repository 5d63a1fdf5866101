"""Pairs that are known to be the same are enough for every learner of pairs; others are drawn, and said to be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import isometry
from isometry import GMML, RCA, Labels, Pairs, PairVerifier
from isometry.core.graph import components
from isometry.eval import pair_auc_scorer
from isometry.registry import all_methods
from isometry.sampling import with_random_negatives
from tests.conftest import assert_refitted

PAIR_METHODS = [
    m
    for m in all_methods(kind="estimator")
    if m.family not in ("deep",)
    and {"pairs", "chunklets"} & set(m.sees.replace(",", " ").split())
    and "matrix-samples" not in m.traits
    and "histograms" not in m.traits
    # multidimensional scaling reproduces distances of pairs, and takes pairs that are neither similar nor dissimilar
    and m.key not in ("M16", "M16r")
]


def only_similar(seed=0, n=60, classes=6, d=4):
    """Couples of samples of one class."""
    r = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), n // classes)
    X = 2 * r.normal(size=(classes, d))[y] + r.normal(size=(n, d))
    i = np.arange(0, n, 2)
    return X, y, Pairs(i, i + 1, np.ones(len(i)), n=n)


@pytest.mark.parametrize("method", PAIR_METHODS, ids=lambda m: m.key)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_learner_of_pairs_takes_similar_ones_alone(method):
    X, _, pairs = only_similar()
    learner = method.example(**method.published)
    if "dissimilar" not in learner._needs:
        learner.fit(X, pairs)
        assert not hasattr(learner, "n_sampled_negatives_")
        return
    with pytest.warns(UserWarning, match="were drawn at random in their place"):
        learner.fit(X, pairs)
    # all 1770 pairs of 60 samples but those of the 30 couples
    assert learner.n_sampled_negatives_ == 1770 - len(pairs.i)
    Z = np.asarray(learner.transform(X))
    assert np.isfinite(Z).all() and Z.std() > 0


def test_the_named_refusers_are_among_them():
    names = {m.name for m in PAIR_METHODS}
    assert {"GMML", "ITML", "PCCA", "LDML", "FisherML", "DCA", "MMC"} <= names | {
        "FisherML"  # learns from labels or chunklets
    }


def test_what_is_joined_is_never_drawn():
    """0–1–2 are one: 0 and 2 are joined through 1."""
    pairs = Pairs([0, 1, 4], [1, 2, 5], np.ones(3), n=8)
    full = with_random_negatives(pairs, np.random.RandomState(0))
    drawn = {tuple(sorted(e)) for e in zip(full.dissimilar.i.tolist(), full.dissimilar.j.tolist(), strict=True)}
    every = {(a, b) for a in range(8) for b in range(a + 1, 8)}
    assert drawn == every - {(0, 1), (0, 2), (1, 2), (4, 5)}
    assert np.array_equal(full.similar.i, pairs.i) and np.array_equal(full.similar.j, pairs.j)


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_parts_can_be_held_out_one_by_one(parts):
    X, _, pairs = only_similar(n=600, classes=60)
    full = with_random_negatives(pairs, np.random.RandomState(0), parts)
    groups = components(full.i, full.j, len(X))
    assert len(np.unique(groups)) == parts
    sizes = np.bincount(groups[full.similar.i], minlength=parts)
    assert sizes.max() - sizes.min() <= 1 + len(pairs.i) % parts  # the similar pairs are dealt evenly


def test_the_same_draw_every_time_and_weights_are_kept():
    X, _, pairs = only_similar()
    weighted = Pairs(pairs.i, pairs.j, np.ones(len(pairs.i)), n=len(X), weight=np.arange(1, len(pairs.i) + 1))
    with pytest.warns(UserWarning, match="drawn at random"):
        first, second = GMML(reg=0.1).fit(X, weighted), GMML(reg=0.1).fit(X, weighted)
    assert_refitted(first.components_, second.components_)
    full = with_random_negatives(weighted, np.random.RandomState(0))
    assert_allclose(full.similar.weight, weighted.weight)
    with pytest.raises(ValueError, match="all samples are known to be the same"):
        GMML().fit(X[:3], Pairs([0, 1], [1, 2], [1, 1], n=3))


def test_drawn_pairs_help_as_known_ones_do():
    """Noise in one feature: what is the same agrees in the others; both kinds of negatives find that out."""
    r = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 2)
    X = np.hstack([3 * r.normal(size=(100, 3))[y], 10 * r.normal(size=(200, 1))]) + r.normal(size=(200, 4))
    pairs = Pairs(np.arange(0, 200, 2), np.arange(1, 200, 2), np.ones(100), n=200)
    with pytest.warns(UserWarning, match="drawn at random"):
        alone = GMML(reg=0.01).fit(X, pairs)
    known = GMML(reg=0.01).fit(X, y)
    new = 3 * r.normal(size=(100, 3))[y]
    new = np.hstack([new, 10 * r.normal(size=(200, 1))]) + r.normal(size=(200, 4))
    a, b, plain = (pair_auc_scorer()(m, new, y) for m in (alone, known, isometry.Euclidean().fit(X)))
    assert a > plain + 0.1 and abs(a - b) < 0.03


def test_a_verifier_takes_similar_pairs_alone():
    r = np.random.default_rng(1)
    y = np.repeat(np.arange(200), 2)
    X = 2 * r.normal(size=(200, 4))[y] + r.normal(size=(400, 4))
    pairs = Pairs(np.arange(0, 400, 2), np.arange(1, 400, 2), np.ones(200), n=400)
    with pytest.warns(UserWarning, match=r"no different pairs: .*prior=0\.5 is assumed"):
        verifier = PairVerifier(RCA(), random_state=0).fit(X, pairs)
    assert verifier.n_sampled_negatives_ > 4000 and verifier.prior_ == 0.5
    known = PairVerifier(RCA(), prior=0.5, random_state=0).fit(X, Labels(y))
    assert abs(verifier.auc_ - known.auc_) < 0.04 and verifier.auc_ > 0.85
    assert verifier.held_out_.same.sum() == 200  # every similar pair was held out once
