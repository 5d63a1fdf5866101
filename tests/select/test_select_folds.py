"""Folds: what is held out together, and that nothing leaks."""

import numpy as np
import pytest

from isometry.select.folds import make_plan
from isometry.supervision import Labels, Pairs, Triplets


def rng(seed=0):
    return np.random.RandomState(seed)


def assert_partition(plan, rows):
    """In every repeat each of the rows is held out once, and never trained on in that fold."""
    for repeat in {s.repeat for s in plan.splits}:
        splits = [s for s in plan.splits if s.repeat == repeat]
        assert np.array_equal(np.sort(np.concatenate([s.test for s in splits])), rows)
    assert not any(np.intersect1d(s.train, s.test).size for s in plan.splits)


def test_closed_folds_hold_out_every_sample_once_with_the_class_shares_of_the_whole():
    labels = Labels(np.repeat([0, 1, 2], [50, 30, 20]))
    plan = make_plan(labels, "closed", 5, 2, rng())
    assert_partition(plan, np.arange(100))
    assert plan.n_splits == 5 and len(plan.splits) == 10 and plan.groups is None and plan.notes == []
    for s in plan.splits:
        assert np.array_equal(np.bincount(labels.codes[s.test]), [10, 6, 4])
    assert not np.array_equal(plan.splits[0].test, plan.splits[5].test)  # repeats use other folds


def test_closed_folds_spread_small_classes_and_keep_single_samples_for_training():
    labels = Labels(np.repeat([0, 1, 2], [20, 2, 1]))
    plan = make_plan(labels, "closed", 5, 1, rng())
    assert_partition(plan, np.arange(22))
    for s in plan.splits:
        assert np.isin(labels.codes[s.test], labels.codes[s.train]).all()  # a held-out sample has a partner in training
        assert 22 in s.train
    assert any("1 classes have a single sample" in n for n in plan.notes)
    assert any("1 classes have fewer samples than the 5 folds" in n for n in plan.notes)


def test_many_whole_floats_may_be_numbers():
    told = "the 30 values of y are whole numbers and taken for classes; Targets(y) takes them for numbers to predict"
    y = np.arange(60) % 30
    assert told in make_plan(Labels(y.astype(float)), "closed", 2, 1, rng()).notes
    assert make_plan(Labels(y), "closed", 2, 1, rng()).notes == []  # whole numbers by type are names
    assert make_plan(Labels(y % 3.0), "closed", 2, 1, rng()).notes == []


def test_unlabelled_rows_are_always_trained_on():
    labels = Labels(np.array([0, 1] * 10 + [-1] * 5), unlabelled=-1)
    plan = make_plan(labels, "closed", 4, 1, rng())
    assert_partition(plan, np.arange(20))
    assert all(np.isin(np.arange(20, 25), s.train).all() for s in plan.splits)


def test_open_folds_share_no_class_and_are_balanced():
    sizes = rng(1).randint(8, 16, size=20)
    labels = Labels(np.repeat(np.arange(20), sizes))
    plan = make_plan(labels, "open", 5, 2, rng())
    assert_partition(plan, np.arange(sizes.sum()))
    assert np.array_equal(plan.groups, labels.codes)
    for s in plan.splits:
        assert np.intersect1d(labels.codes[s.train], labels.codes[s.test]).size == 0
        assert len(np.unique(labels.codes[s.test])) == 4
    held_out = [len(s.test) for s in plan.splits]
    assert max(held_out) - min(held_out) <= 15  # less than one class


def test_open_folds_never_hold_out_a_single_class_even_beside_a_giant():
    labels = Labels(np.repeat(np.arange(7), [500, 3, 3, 3, 3, 3, 3]))
    plan = make_plan(labels, "open", 5, 1, rng())
    assert plan.n_splits == 3
    assert all(len(np.unique(labels.codes[s.test])) >= 2 for s in plan.splits)
    assert plan.notes == ["7 classes allow 3 class-disjoint folds of at least 2 classes, not 5"]


@pytest.mark.parametrize(
    ("y", "protocol", "n_splits", "message"),
    [
        ([0, 0, 1, 1, 2, 2], "open", 2, "only 3 classes have 2 or more samples: use protocol='closed'"),
        ([0, 0, 1, 1], "closed", 5, "n_splits=5 folds need at least 5 samples to hold out, but there are 4"),
        ([0, 0, 0, 1], "closed", 2, "fewer than 2 classes with at least 2 samples"),
    ],
)
def test_folds_that_cannot_be_made_say_why(y, protocol, n_splits, message):
    with pytest.raises(ValueError, match=message):
        make_plan(Labels(y), protocol, n_splits, 1, rng())


def test_pairs_are_held_out_by_components():
    """Sixty separate groups of four samples, three pairs each: no component is cut, so that no pair is lost."""
    base = 4 * np.arange(60)
    i, j = np.concatenate([base, base, base + 2]), np.concatenate([base + 1, base + 2, base + 3])
    pairs = Pairs(i, j, np.repeat([True, False, True], 60), n=245)  # five samples in no pair
    plan = make_plan(pairs, "closed", 5, 1, rng())
    assert_partition(plan, np.arange(240))
    assert np.array_equal(plan.groups, pairs.components())
    assert sum(len(pairs[s.test].i) for s in plan.splits) == 180
    assert all(len(s.test) == 48 and np.isin(np.arange(240, 245), s.train).all() for s in plan.splits)


def test_a_graph_in_one_piece_is_cut_by_samples():
    i, j = np.triu_indices(40, 1)
    pairs = Pairs(i, j, (i % 2) == (j % 2), n=40)
    plan = make_plan(pairs, "closed", 4, 1, rng())
    assert_partition(plan, np.arange(40))
    assert plan.groups is None and "one connected graph" in plan.notes[0]
    assert [len(pairs[s.test].i) for s in plan.splits] == [45] * 4


def test_too_few_pairs_lower_the_number_of_folds_and_then_are_refused():
    base = 4 * np.arange(3)
    i, j = np.concatenate([base, base]), np.concatenate([base + 1, base + 2])
    pairs = Pairs(i, j, np.repeat([True, False], 3), n=12)
    plan = make_plan(pairs, "closed", 5, 1, rng())
    assert plan.n_splits == 3 and plan.notes == ["there are enough pairs for 3 folds, not 5"]
    with pytest.raises(ValueError, match="too few pairs to hold some out"):
        make_plan(Pairs([0, 0], [1, 2], [True, False], n=3), "closed", 5, 1, rng())


def test_every_fold_of_triplets_holds_whole_triplets():
    r = np.random.default_rng(0)
    a, p, n = np.array([r.permutation(30)[:3] for _ in range(400)]).T
    triplets = Triplets(a, p, n, n_samples=30)
    plan = make_plan(triplets, "closed", 3, 1, rng())
    assert_partition(plan, np.arange(30))
    assert all(len(triplets[s.test].a) > 0 for s in plan.splits)
