"""Batches without repeats, from several sources, and hard negatives of queries (E48)."""

from collections import Counter
from itertools import chain

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from torch.utils.data import DataLoader

from isometry.deep import MultiSource, NoDuplicates, mine_hard_negatives

RNG = np.random.default_rng(0)
KEYS = np.array([f"text {k}" for k in RNG.integers(0, 40, 200)], dtype=object)  # many repeats
TWO = np.stack([RNG.integers(0, 60, 300), RNG.integers(30, 90, 300)], 1)  # a key may stand in either column
MAKE = {
    "texts": lambda **k: NoDuplicates(KEYS, 16, **k),
    "two columns": lambda **k: NoDuplicates(TWO, 16, **k),
    "proportional": lambda **k: MultiSource((50, 23, 8), 8, **k),
    "in turn": lambda **k: MultiSource((50, 23, 17), 8, "round_robin", **k),
}


def joined(batches):
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize("key", MAKE)
def test_E48_an_epoch_is_a_function_of_seed_and_number(key):
    sampler = MAKE[key]()
    first = [list(sampler) for _ in range(2)]
    assert first[0] != first[1] and [list(MAKE[key]()) for _ in range(1)] == first[:1]
    assert list(MAKE[key](random_state=1)) != first[0]
    sampler.set_epoch(0)
    assert len(sampler) == len(first[0]) and list(sampler) == first[0]


@pytest.mark.parametrize("key", MAKE)
def test_E48_an_epoch_goes_on_in_the_middle(key):
    whole = list(MAKE[key]())
    walk = MAKE[key]()
    started = iter(walk)
    done = [next(started) for _ in range(2)]
    resumed = MAKE[key]()
    resumed.load_state_dict(walk.state_dict())
    assert done + list(resumed) == whole


@pytest.mark.parametrize(("key", "keys"), [("texts", KEYS[:, None]), ("two columns", TWO)])
def test_E48_no_key_twice_and_every_row_once(key, keys):
    batches = list(MAKE[key]())
    assert sorted(joined(batches)) == list(range(len(keys)))
    for batch in batches:
        seen = Counter(chain.from_iterable(set(keys[row].tolist()) for row in batch))
        assert len(batch) <= 16 and max(seen.values()) == 1
    most = max(Counter(chain.from_iterable(set(k.tolist()) for k in keys)).values())
    assert len(batches) <= max(most, -(-len(keys) // 16)) + most  # rows are put off, not lost at the end


def test_E48_rows_without_repeats_fill_their_batches():
    batches = list(NoDuplicates(np.arange(100), 16))
    assert [len(b) for b in batches] == [16] * 6 + [4]


def test_E48_a_frequent_key_costs_no_more():
    """Half of the rows share a key: each is looked at a few times, not once for every batch."""
    looks = Counter()

    class Counted(tuple):
        def __iter__(self):
            looks["rows"] += 1
            return super().__iter__()

    from isometry.deep import row_samplers

    codes = np.where(np.arange(4000) % 2 == 0, 0, np.arange(4000))[:, None]
    order, plain = np.random.default_rng(0).permutation(4000), tuple
    row_samplers.tuple = Counted
    try:
        batches = row_samplers.apart(codes, order, 16)
    finally:
        row_samplers.tuple = plain
    assert len(batches) == 2000 and looks["rows"] <= 8 * 4000


def test_E48_two_processes_share_the_batches():
    parts = [list(NoDuplicates(KEYS, 16, rank=r, world_size=2)) for r in range(2)]
    assert len(parts[0]) == len(parts[1])
    whole = list(NoDuplicates(KEYS, 16))
    dealt = [b for pair in zip(*parts) for b in pair]
    assert dealt[: len(whole)] == whole and dealt[len(whole) :] == whole[: len(dealt) - len(whole)]
    both = [list(MultiSource((50, 23), 8, rank=r, world_size=2)) for r in range(2)]
    for a, b in zip(*both):
        assert len(a) == len(b) and len({row < 50 for row in a + b}) == 1
    assert set(joined(both[0]) + joined(both[1])) == set(range(73))


def test_E48_bad_keys_are_named():
    with pytest.raises(ValueError, match="all rows have a key in common: every batch would hold a single row"):
        NoDuplicates(["a"] * 10, 4)
    with pytest.raises(ValueError, match=r"keys must be \(n,\) or \(n, c\), not empty"):
        NoDuplicates([], 4)
    loader = DataLoader(torch.arange(200), batch_sampler=NoDuplicates(KEYS, 16))
    assert sorted(joined(b.tolist() for b in loader)) == list(range(200))


def test_E48_sources():
    sampler = MultiSource((50, 23, 8), 8)
    batches = list(sampler)
    assert sorted(joined(batches)) == list(range(81)) and len(sampler) == len(batches) == 7 + 3 + 1
    ends = np.array([50, 73, 81])
    assert all(len(set(np.searchsorted(ends, b, side="right"))) == 1 for b in batches)
    in_turn = list(MultiSource((50, 23, 17), 8, "round_robin"))
    sources = [int(np.searchsorted([50, 73], b[0], side="right")) for b in in_turn]
    assert sources == [0, 1, 2] * 3
    with pytest.raises(ValueError, match="the size of a source must be at least 1, got 0"):
        MultiSource((3, 0))


# -- hard negatives ----------------------------------------------------------------------------------------------------

Q, D = RNG.standard_normal((20, 6)), RNG.standard_normal((90, 6))
POSITIVES = [[i, 20 + i] if i % 3 else [i] for i in range(20)]


def slow(k, skip=0, depth=None, max_score=np.inf, margin=None, relative_margin=None):
    """Documents that pass, best first, for each query, by loops."""
    depth = skip + 10 * k if depth is None else depth
    found = []
    for q, own in zip(Q, POSITIVES):
        score = [float(q @ d / np.linalg.norm(q) / np.linalg.norm(d)) for d in D]
        least = min(score[p] for p in own)
        others = [j for j in sorted(range(len(D)), key=lambda j: -score[j]) if j not in own][skip:depth]
        bound = min(
            max_score,
            np.inf if margin is None else least - margin,
            np.inf if relative_margin is None else least - relative_margin * abs(least),
        )
        found.append([j for j in others if score[j] < bound])
    return found


@pytest.mark.parametrize(
    "options",
    [{}, {"skip": 4}, {"max_score": 0.4}, {"margin": 0.1}, {"relative_margin": 0.05}, {"depth": 7, "skip": 2}],
)
def test_E48_hard_negatives_obey_every_filter(options):
    expected = slow(3, **options)
    mined = mine_hard_negatives(Q, D, POSITIVES, 3, **options)
    for row, count, good in zip(mined.documents, mined.found, expected):
        assert row[row >= 0].tolist() == good[:3] and count == min(3, len(good)) and (row[count:] == -1).all()
    some = mine_hard_negatives(torch.tensor(Q), D, POSITIVES, 3, sample="random", **options)
    assert (some.found == mined.found).all()
    for row, good in zip(some.documents, expected):
        chosen = row[row >= 0].tolist()
        assert set(chosen) <= set(good) and chosen == [j for j in good if j in chosen]
    again = mine_hard_negatives(Q, D, POSITIVES, 3, sample="random", random_state=0, **options)
    assert_close(again.documents, some.documents)


def test_E48_few_documents_give_few_negatives():
    mined = mine_hard_negatives(Q[:2], D[:3], [0, 1], k=5)
    assert mined.documents.shape == (2, 5) and mined.found.tolist() == [2, 2]
    assert mine_hard_negatives(Q[:1], D[:1], [0]).found.tolist() == [0]
    with pytest.raises(ValueError, match=r"positives of query 1 must be one or more of 0 … 2, got \[7\]"):
        mine_hard_negatives(Q[:2], D[:3], [0, 7])
    with pytest.raises(ValueError, match="2 queries need as many entries of positives, got 1"):
        mine_hard_negatives(Q[:2], D, [0])
