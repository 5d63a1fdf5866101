"""Samplers: what a batch holds, what is covered, what processes share, and how an epoch is resumed."""

import warnings
from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.testing import assert_close
from torch.utils.data import DataLoader

from isometry.deep import (
    EpisodeSampler,
    NPair,
    PairDataset,
    PairSampler,
    PKBatchSampler,
    TripletDataset,
    TripletSampler,
    ViewsDataset,
)

SIZES = [3, 5, 8, 9, 20, 1, 6]
Y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))
MAKE = {
    "batches": lambda **k: PKBatchSampler(Y, 3, 4, **k),
    "pairs": lambda **k: PairSampler(Y, **k),
    "triplets": lambda **k: TripletSampler(Y, **k),
    "episodes": lambda **k: EpisodeSampler(Y[Y != 5], 3, 1, 2, episodes=7, **k),
}


def epochs(sampler, count):
    return [list(sampler) for _ in range(count)]


def joined(lists):
    return list(chain.from_iterable(lists))


# -- what all share ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", MAKE)
def test_an_epoch_is_a_function_of_seed_and_number(key):
    """D15 (4), D52 reproducible."""
    first = epochs(MAKE[key](), 3)
    assert first[0] != first[1] != first[2]
    assert epochs(MAKE[key](), 3) == first
    assert list(MAKE[key](random_state=1)) != first[0]
    jump = MAKE[key]()
    for epoch in (2, 0, 1):  # also back
        jump.set_epoch(epoch)
        assert list(jump) == first[epoch]
    assert [len(epoch) for epoch in first] == [len(jump)] * 3


@pytest.mark.parametrize("key", MAKE)
def test_an_epoch_can_be_resumed_in_the_middle(key):
    whole = epochs(MAKE[key](), 3)
    sampler = MAKE[key]()
    list(sampler)
    run = iter(sampler)
    begun = [next(run) for _ in range(2)]
    state = sampler.state_dict()
    assert state["epoch"] == 1 and state["position"] == 2
    fresh = MAKE[key]()
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state
    fresh.set_epoch(1)  # what a training loop does anyway
    assert begun + list(fresh) == whole[1]
    assert list(fresh) == whole[2]
    fresh.load_state_dict(MAKE[key]().state_dict(position=1))
    assert list(fresh) == whole[0][1:]
    assert list(fresh) == whole[1]


@pytest.mark.parametrize("key", MAKE)
def test_an_interrupted_epoch_begins_anew(key):
    sampler = MAKE[key]()
    next(iter(sampler))
    assert list(sampler) == list(MAKE[key]())


@pytest.mark.parametrize("key", MAKE)
def test_the_place_of_a_process_is_checked(key):
    with pytest.raises(ValueError, match="rank and world_size go together"):
        MAKE[key](rank=1)
    with pytest.raises(ValueError, match="rank must lie in 0 … world_size − 1 = 1, got 2"):
        MAKE[key](rank=2, world_size=2)


# -- classes × samples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("P", "K"), [(3, 4), (7, 2), (1, 8), (2, 1)])
def test_a_batch_has_p_classes_with_k_samples(P, K):
    for batch in joined(epochs(PKBatchSampler(Y, P, K), 5)):
        count = Counter(Y[batch].tolist())
        assert len(count) == P and set(count.values()) == {K}
        for c in count:
            rows = [i for i in batch if Y[i] == c]
            times = Counter(rows).values()
            assert len(times) == min(K, SIZES[c])
            assert max(times) - min(times) <= 1  # a small class repeats evenly


def test_no_class_and_no_sample_comes_again_before_all_others_have():
    sampler = PKBatchSampler(Y, 3, 4)
    classes, samples = [], {c: [] for c in range(7)}
    for batch in joined(epochs(sampler, 12)):
        for rows in np.reshape(batch, (3, 4)):
            classes.append(Y[rows[0]])
            samples[Y[rows[0]]] += rows.tolist()
    for stream, n in [(classes, 7), *((samples[c], SIZES[c]) for c in range(7))]:
        passes = [stream[k : k + n] for k in range(0, len(stream) - n + 1, n)]
        assert len(passes) >= 2
        assert all(len(set(p)) == n for p in passes)


def test_passes_are_shuffled():
    sampler = PKBatchSampler(np.arange(12).repeat(2), 4, 2)
    orders = {tuple(rows[0] // 2 for rows in np.reshape(joined(epoch), (-1, 2))) for epoch in epochs(sampler, 20)}
    assert len(orders) == 20


def test_the_default_epoch_has_room_for_all_samples():
    assert len(PKBatchSampler(Y, 3, 4)) == 5  # 52 samples, 12 at a time: the last four are not dropped
    assert len(PKBatchSampler(Y, 3, 4, rank=0, world_size=2)) == 3
    assert len(PKBatchSampler(Y, 3, 4, n_batches=9)) == len(list(PKBatchSampler(Y, 3, 4, n_batches=9))) == 9
    balanced = PKBatchSampler(np.arange(6).repeat(4), 3, 4)
    assert sorted(joined(balanced)) == list(range(24))


@pytest.mark.parametrize("world", [2, 3])
def test_processes_have_different_classes(world):
    ranks = [joined(epochs(PKBatchSampler(Y, 2, 4, rank=r, world_size=world), 4)) for r in range(world)]
    for step in zip(*ranks):
        assert len(set(Y[joined(step)])) == 2 * world
    assert len({len(r) for r in ranks}) == 1


def test_processes_that_must_share_classes_have_different_samples():
    y = np.arange(3).repeat(40)
    ranks = [joined(epochs(PKBatchSampler(y, 2, 4, rank=r, world_size=3), 6)) for r in range(3)]
    for step in zip(*ranks):
        assert all(len(set(y[batch])) == 2 for batch in step)
        assert len(set(joined(step))) == 24


# -- frequency and categories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2])
def test_classes_can_come_by_the_square_root_of_their_size(world):
    """56.2: a chance in proportion to √n of being in a step, none above 1; samples still come in passes."""
    make = [PKBatchSampler(Y, 2, 3, frequency="sqrt", n_batches=1000, rank=r, world_size=world) for r in range(world)]
    steps = [[set(Y[part].tolist()) for part in parts] for parts in zip(*map(list, make))]
    assert all(len(set.union(*step)) == 2 * world for step in steps)  # all different, in every process
    seen = Counter(c for step in steps for c in set.union(*step))
    chance = slow_chances(np.sqrt(SIZES), 2 * world)
    assert_close(torch.tensor([seen[c] / 1000 for c in range(7)]), torch.tensor(chance).float(), rtol=0, atol=0.05)
    drawn = [row for batch in PKBatchSampler(Y, 2, 3, frequency="sqrt", n_batches=200) for row in batch]
    for c in range(7):
        rows = [row for row in drawn if Y[row] == c]
        passes = [rows[i : i + SIZES[c]] for i in range(0, len(rows) - SIZES[c] + 1, SIZES[c])]
        assert all(len(set(p)) == SIZES[c] for p in passes)


def slow_chances(weight, count):
    """Proportional to the weights, the excess over 1 handed to the others, by loop."""
    certain = set()
    while True:
        rest = sum(w for c, w in enumerate(weight) if c not in certain)
        chance = [1.0 if c in certain else w * (count - len(certain)) / rest for c, w in enumerate(weight)]
        over = {c for c, x in enumerate(chance) if x > 1}
        if not over:
            return chance
        certain |= over


def test_draws_by_size_jump_and_are_refused_for_more_classes_than_there_are():
    make = lambda: PKBatchSampler(Y, 3, 2, frequency="sqrt")  # noqa: E731
    first, jump = epochs(make(), 3), make()
    for epoch in (2, 0, 1):
        jump.set_epoch(epoch)
        assert list(jump) == first[epoch]
    with pytest.raises(ValueError, match="takes 8 different classes a step, all processes together, and there are 7"):
        list(PKBatchSampler(Y, 4, 2, frequency="sqrt", rank=0, world_size=2))


CATEGORY = np.array([0, 0, 1, 1, 1, 2, 0])  # of the seven classes; category 2 has one


@pytest.mark.parametrize(("P", "G", "world"), [(2, 1, 1), (4, 2, 1), (2, 1, 2), (3, 1, 2)])
def test_a_batch_can_come_from_few_categories(P, G, world):
    """56.2: P classes of G categories, as many of each; each category, class and sample once a pass."""
    with pytest.warns(UserWarning, match=r"1 of 3 categories have fewer than classes of a batch in each = \d classes"):
        make = [
            PKBatchSampler(
                Y, P, 2, categories=CATEGORY[Y], categories_per_batch=G, n_batches=60, rank=r, world_size=world
            )
            for r in range(world)
        ]
    visits, classes = Counter(), Counter()
    for parts in zip(*map(list, make)):
        for part in parts:
            held = set(Y[part].tolist())
            kinds = Counter(CATEGORY[list(held)].tolist())
            assert len(part) == 2 * P and set(kinds.values()) == {P // G} and len(kinds) == G
            visits.update(kinds.keys())
            classes.update(held)
        if 2 * P // G * world <= 6:
            rows = joined(parts)
            assert len(set(rows)) == len(rows)  # processes share no sample
    assert visits[0] == visits[1] and visits[2] == 0
    for kind in (0, 1):
        count = [classes[c] for c in np.flatnonzero(kind == CATEGORY)]
        assert max(count) - min(count) <= 1


def test_processes_that_share_categories_and_classes_have_different_samples():
    """Three processes, two categories of two classes: a class comes twice in a step, a sample does not."""
    y = np.repeat(np.arange(4), 12)
    make = [PKBatchSampler(y, 2, 3, categories=y // 2, n_batches=40, rank=r, world_size=3) for r in range(3)]
    for parts in zip(*map(list, make)):
        assert len(set(joined(parts))) == 18 and all(len(set(y[part] // 2)) == 1 for part in parts)


def test_bad_categories_are_explained():
    with pytest.raises(ValueError, match="needs categories, one value a sample"):
        PKBatchSampler(Y, 2, 2, categories_per_batch=2)
    with pytest.raises(ValueError, match="does not go with categories"):
        PKBatchSampler(Y, 2, 2, categories=CATEGORY[Y], frequency="sqrt")
    with pytest.raises(ValueError, match="classes_per_batch=3 cannot be shared evenly by categories_per_batch=2"):
        PKBatchSampler(Y, 3, 2, categories=CATEGORY[Y], categories_per_batch=2)
    with pytest.raises(ValueError, match="a class has samples of the categories 0 and 1; it must lie in one"):
        PKBatchSampler(Y, 2, 2, categories=np.arange(len(Y)) % 2)
    with (
        pytest.warns(UserWarning, match="3 of 3 categories"),
        pytest.raises(ValueError, match="there are 0 categories with 4 classes"),
    ):
        PKBatchSampler(Y, 4, 2, categories=CATEGORY[Y])
    with pytest.raises(ValueError, match="one value a sample"):
        PKBatchSampler(Y, 2, 2, categories=CATEGORY)


def test_small_classes_can_be_skipped_but_not_silently():
    with pytest.warns(UserWarning, match="2 of 7 classes have fewer than samples_per_class = 4 samples .* 4 samples"):
        sampler = PKBatchSampler(Y, 3, 4, small="skip")
    assert set(Y[joined(joined(epochs(sampler, 6)))]) == {1, 2, 3, 4, 6}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PKBatchSampler(Y, 3, 4)


def test_labels_of_any_kind():
    expected = list(PKBatchSampler(Y, 3, 4))
    for labels in (Y.astype(str), Y.tolist(), Y / 2.0, torch.tensor(Y)):
        assert list(PKBatchSampler(labels, 3, 4)) == expected
    assert list(PKBatchSampler(np.eye(7, dtype=bool)[Y], 3, 4)) == expected


def test_a_sample_of_several_classes_stands_for_each():
    both = np.array([[True, False], [True, True], [False, True]])
    for batch in joined(epochs(PKBatchSampler(both, 2, 2), 4)):
        assert {frozenset(batch[:2]), frozenset(batch[2:])} == {frozenset({0, 1}), frozenset({1, 2})}


def test_bad_requests_are_explained():
    with pytest.raises(ValueError, match="classes_per_batch=8, but there are 7 classes"):
        PKBatchSampler(Y)
    with pytest.raises(ValueError, match="samples_per_class must be at least 1, got 0"):
        PKBatchSampler(Y, 2, 0)
    with pytest.raises(ValueError, match=r"labels must be \(n,\) or a boolean matrix .* got shape \(0,\)"):
        PKBatchSampler([])
    with pytest.raises(ValueError, match="1 samples belong to no class"):
        PKBatchSampler(np.array([[True, False], [False, False]]), 1, 1)
    with pytest.raises(ValueError, match="small='drop' is unknown"):
        PKBatchSampler(Y, 2, 2, small="drop")


def test_batches_reach_a_loader():
    loader = DataLoader(torch.utils.data.TensorDataset(torch.tensor(Y)), batch_sampler=PKBatchSampler(Y, 3, 4))
    assert len(loader) == 5
    assert [sorted(Counter(y.tolist()).values()) for (y,) in loader] == [[4, 4, 4]] * 5


# -- pairs and triplets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("negative", ["points", "classes"])
def test_triplets_are_valid(negative):
    """D15 (1), (2)."""
    sampler = TripletSampler(Y, 3, negative)
    a, p, n = np.array(list(sampler)).T
    assert (Y[a] == Y[p]).all() and (a != p).all() and (Y[a] != Y[n]).all()
    assert Counter(a.tolist()) == {i: 3 for i in range(len(Y)) if Y[i] != 5}  # class 5 has a single sample
    assert len(sampler) == 3 * 51 == len(a)


def frequencies(sampler, anchor, column, count):
    drawn = [t[column] for epoch in epochs(sampler, count) for t in epoch if t[0] == anchor]
    return Counter(drawn)


def test_positives_and_negatives_are_uniform():
    """D15 (3)."""
    anchor = int(np.flatnonzero(Y == 2)[3])
    sampler = TripletSampler(Y, 20)
    positive = frequencies(sampler, anchor, 1, 60)
    assert set(positive) == set(np.flatnonzero(Y == 2)) - {anchor}
    assert chisquare(list(positive.values())).pvalue > 1e-3
    negative = frequencies(sampler, anchor, 2, 60)
    assert set(negative) == set(np.flatnonzero(Y != 2))
    assert chisquare(list(negative.values())).pvalue > 1e-3


def test_negatives_can_be_uniform_over_classes():
    anchor = int(np.flatnonzero(Y == 2)[3])
    negative = frequencies(TripletSampler(Y, 20, "classes"), anchor, 2, 60)
    by_class = Counter()
    for i, times in negative.items():
        by_class[Y[i]] += times
    assert set(by_class) == {0, 1, 3, 4, 5, 6}
    assert chisquare(list(by_class.values())).pvalue > 1e-3
    assert set(negative) == set(np.flatnonzero(Y != 2))


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_pairs_have_the_share_of_similar_ones(fraction):
    i, j, similar = np.array(list(PairSampler(Y, fraction, 200))).T
    assert similar.sum() == 200 * fraction
    assert (similar == (Y[i] == Y[j])).all() and (i != j).all()
    assert len(PairSampler(Y)) == len(Y)


@pytest.mark.parametrize("make", [MAKE["triplets"], MAKE["pairs"]])
def test_processes_share_tuples_without_dropping_any(make):
    alone = Counter(list(make()))
    shares = [list(make(rank=r, world_size=4)) for r in range(4)]
    assert {len(s) for s in shares} == {13}  # 51 triplets or 52 pairs, in four
    together = Counter(joined(shares))
    assert set(together) == set(alone)
    assert (together - alone).total() == 52 - alone.total()


def test_labels_that_give_no_triplets():
    with pytest.raises(ValueError, match="all samples have the same label"):
        TripletSampler([1, 1, 1])
    with pytest.raises(ValueError, match="every sample has a label of its own"):
        TripletSampler([1, 2, 3])
    with pytest.raises(ValueError, match=r"share between 0 and 1, got 1\.5"):
        PairSampler(Y, 1.5)
    with pytest.raises(ValueError, match=r"labels must be \(n,\), not empty"):
        PairSampler(np.eye(3, dtype=bool))


def test_data_sets_of_tuples():
    x = torch.arange(len(Y)) * 10
    loader = DataLoader(TripletDataset(x), 51, sampler=TripletSampler(Y))
    ((a, p, n),) = loader
    assert list(zip(a.tolist(), p.tolist(), n.tolist())) == [tuple(10 * i for i in t) for t in TripletSampler(Y)]
    ((i, j, similar),) = DataLoader(PairDataset(x), 52, sampler=PairSampler(Y))
    assert list(zip(i.tolist(), j.tolist(), similar.tolist())) == [(10 * i, 10 * j, s) for i, j, s in PairSampler(Y)]


def test_views_share_the_index_of_their_source():
    """D15 (5)."""
    rng = np.random.default_rng(0)
    samples = torch.arange(6.0)[:, None].expand(6, 3)
    data = ViewsDataset(samples, lambda x: x + 0.1 * torch.tensor(rng.random(3), dtype=torch.float32))
    ((x1, x2, i),) = DataLoader(data, 6, shuffle=True, generator=torch.Generator().manual_seed(0))
    assert sorted(i.tolist()) == list(range(6)) == sorted(x1[:, 0].int().tolist())
    assert_close(x1.floor(), samples[i]), assert_close(x2.floor(), samples[i])
    assert (x1 != x2).all()
    loss = NPair(pairs="all")
    assert_close(loss.views(x1, x2), loss(torch.cat([x1, x2]), torch.cat([i, i])))
    assert len(ViewsDataset(samples, float, 3)) == 6
    assert len(ViewsDataset(samples, lambda x: x, 3)[2]) == 4


# -- episodes ----------------------------------------------------------------------------------------------------------


def test_episodes_have_exact_counts():
    """D52 counts, disjoint, distinct."""
    y = np.arange(9).repeat(6)
    for episode in EpisodeSampler(y, 4, 2, 3, episodes=20):
        support, query = np.reshape(episode[:8], (4, 2)), np.reshape(episode[8:], (4, 3))
        assert len(set(episode)) == 20
        assert (y[support] == y[support][:, :1]).all() and (y[query] == y[support][:, :1]).all()
        assert len(set(y[support][:, 0])) == 4


def test_classes_of_episodes_are_uniform():
    """D52 χ²."""
    y = np.arange(9).repeat(6)
    count = Counter(y[i] for episode in EpisodeSampler(y, 3, 1, 1, episodes=600) for i in episode[:3])
    assert len(count) == 9
    assert chisquare(list(count.values())).pvalue > 1e-3


def test_processes_get_different_episodes():
    """D52 ranks."""
    y = np.arange(9).repeat(6)
    ranks = [[tuple(e) for e in EpisodeSampler(y, 3, 1, 1, rank=r, world_size=2)] for r in range(2)]
    assert len(ranks[0]) == len(ranks[1]) == 100
    assert not set(ranks[0]) & set(ranks[1])


def test_an_episode_is_collated():
    y = np.array(["c", "a", "b"]).repeat(5)
    x = torch.arange(15.0)[:, None]
    sampler = EpisodeSampler(y, 2, 2, 3, episodes=1)
    (episode,) = DataLoader(list(zip(x, y)), batch_sampler=sampler, collate_fn=sampler.collate)
    assert episode.ys.tolist() == [0, 0, 1, 1] and episode.yq.tolist() == [0, 0, 0, 1, 1, 1]
    for part, code in ((episode.xs, episode.ys), (episode.xq, episode.yq)):
        assert [y[int(v)] for v in part] == [episode.classes[k] for k in code]


def test_classes_too_small_for_an_episode():
    with pytest.warns(UserWarning, match=r"1 of 7 classes have fewer than k_shot \+ k_query = 3 samples"):
        sampler = EpisodeSampler(Y, 3, 1, 2)
    assert 5 not in {Y[i] for episode in sampler for i in episode}
    with (
        pytest.warns(UserWarning),
        pytest.raises(ValueError, match=r"n_way=5, but only 1 classes have .* = 16"),
    ):
        EpisodeSampler(Y)
