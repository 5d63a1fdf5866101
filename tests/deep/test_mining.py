"""Proof tests of mining and sampling in a batch, D31 to D45, each beside its equation written with loops."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare, kstest
from torch.testing import assert_close

from isometry.deep import (
    BatchAll,
    BatchHard,
    BatchSemiHard,
    CenterTriplet,
    Contrastive,
    CrossBatchMemory,
    DistanceWeighted,
    EasyPositive,
    EasyPositiveNCA,
    Extreme,
    HardNegativeContrastive,
    Lifted,
    MarginLoss,
    RandomTriplets,
    ThresholdContrastive,
    Triplet,
)
from isometry.deep.functional import masks
from isometry.deep.losses.triplet import hinge_triplets
from tests.deep.batches import (
    PLAIN,
    A,
    C,
    Y,
    batch,
    circle,
    close,
    euc,
    gradient,
    mean,
    of_anchor,
    ordered_pairs,
    triples,
)

SEEDS = pytest.mark.parametrize(("seed", "ties"), [(0, False), (1, False), (2, True), (3, True)])


def compared(z, y):
    """Distances and masks of a batch with itself."""
    return (z[:, None] - z).square().sum(2).sqrt(), *masks(y, y, torch.arange(len(y)))


# -- batch-all ---------------------------------------------------------------------------------------------------------


def test_D31a_toy_values():
    close(Triplet(1.0, reduction="sum", **PLAIN)(A, Y), 9.186137)
    close(Triplet(1.0, reduction="mean", **PLAIN)(A, Y), 1.148267)
    close(Triplet(1.0, **PLAIN)(A, Y), 2.296534)
    close(Triplet(1.0, miner=BatchAll(), **PLAIN)(A, Y), 2.296534)


def slow_hinge(z, y, margin):
    terms = [(euc(z, a, p) - euc(z, a, n) + margin).relu() for a, p, n in triples(y)]
    return sum(terms), sum(float(t.detach()) > 0 for t in terms), len(terms)


@SEEDS
@pytest.mark.parametrize("margin", [0.0, 0.5, 3.0])
def test_D31b_D31c_sorting_equals_the_triple_loop_with_gradient_and_count(seed, ties, margin):
    z, y = batch(seed, ties=ties)
    z = z + 1e-3 * ties * torch.arange(4)  # ties of distances, margins that no tie meets
    slow, active, count = slow_hinge(z, y, margin + 1e-4)
    total, found, _ = hinge_triplets(*compared(z, y), margin + 1e-4)
    close(total, float(slow), 1e-10)
    assert found.sum() == active
    loss = Triplet(margin + 1e-4, reduction="sum", **PLAIN)
    close(loss(z, y), float(slow), 1e-10)
    close(Triplet(margin + 1e-4, reduction="mean", **PLAIN)(z, y), float(slow) / count, 1e-10)
    expected = gradient(lambda u: slow_hinge(u, y, margin + 1e-4)[0], z)
    assert_close(gradient(loss, z, y), expected, rtol=1e-9, atol=1e-9)


@SEEDS
def test_D31_soft_margin_equals_the_triple_loop(seed, ties):
    z, y = batch(seed, ties=ties)

    def slow(u):
        return sum(F.softplus(euc(u, a, p) - euc(u, a, n)) for a, p, n in triples(y)) / len(triples(y))

    close(Triplet("soft", **PLAIN)(z, y), float(slow(z)), 1e-9)
    assert_close(gradient(Triplet("soft", **PLAIN), z, y), gradient(slow, z), rtol=1e-8, atol=1e-9)


def test_D31d_satisfied_margins_cost_nothing():
    z = torch.tensor([[0.0, 0], [0.1, 0], [5, 0], [5.1, 0]])
    assert Triplet(1.0, **PLAIN)(z, Y) == 0 and (gradient(Triplet(1.0, **PLAIN), z, Y) == 0).all()


def test_D31_unequal_classes_and_large_batches_agree_with_a_cube():
    rng = np.random.default_rng(0)
    z, y = torch.tensor(rng.standard_normal((70, 5))), torch.tensor(rng.choice(3, 70, p=[0.7, 0.25, 0.05]))
    D, pos, neg = compared(z, y)
    cube = (D[:, :, None] - D[:, None] + 0.4).relu() * (pos[:, :, None] & neg[:, None])
    total, active, _ = hinge_triplets(D, pos, neg, 0.4)
    close(total, float(cube.sum()), 1e-7)
    assert torch.equal(active, (cube > 0).sum((1, 2)))


# -- batch-hard and semi-hard ------------------------------------------------------------------------------------------


def test_D32a_toy_values():
    close(Triplet(1.0, miner=BatchHard(), reduction="mean", **PLAIN)(A, Y), 1.302776)
    close(Triplet("soft", miner=BatchHard(), **PLAIN)(A, Y), 1.050892)


@SEEDS
def test_D32d_equals_the_loop_and_skips_lonely_anchors(seed, ties):
    z, y = batch(seed, ties=ties)
    y[-1] = 99
    terms = []
    for i in range(12):
        P, N = of_anchor(y, i)
        if P and N:
            terms.append(max(0, max(float(euc(z, i, j)) for j in P) - min(float(euc(z, i, k)) for k in N) + 0.3))
    assert len(terms) < 12
    close(Triplet(0.3, miner=BatchHard(), reduction="mean", **PLAIN)(z, y), mean(terms), 1e-10)


def test_D32b_collapsed_embeddings():
    z, y = torch.ones(8, 3), torch.arange(8) // 2
    close(Triplet(0.7, miner=BatchHard(), **PLAIN)(z, y), 0.7)
    close(Triplet("soft", miner=BatchHard(), **PLAIN)(z, y), math.log(2))


def test_D32c_not_below_the_mean_of_all_triplets():
    for seed in range(5):
        z, y = batch(seed)[0], torch.arange(12) // 3
        hard, everything = (Triplet(0.3, miner=m, reduction="mean", **PLAIN)(z, y) for m in (BatchHard(), None))
        assert hard >= everything


def test_D33a_toy_values():
    D, pos, neg = compared(A, Y)
    assert len(BatchSemiHard().triples(D, pos, neg)[0]) == 2
    assert len(BatchSemiHard("easiest").triples(D, pos, neg)[0]) == 4
    assert Triplet(1.0, miner=BatchSemiHard(), **PLAIN)(A, Y) == 0
    close(Triplet(1.0, miner=BatchSemiHard("easiest"), reduction="mean", **PLAIN)(A, Y), 0.993759)


@SEEDS
@pytest.mark.parametrize("fallback", ["skip", "easiest"])
def test_D33b_D33c_nearest_negative_beyond_the_positive_ties_excluded(seed, ties, fallback):
    D, pos, neg = compared(*batch(seed, ties=ties))
    expected = []
    for a, p in pos.nonzero().tolist():
        beyond = [D[a, n].item() for n in neg[a].nonzero().flatten() if D[a, n] > D[a, p]]
        if beyond or fallback == "easiest":
            expected.append((a, p, min(beyond) if beyond else max(D[a][neg[a]].tolist())))
    found = [
        (a, p, D[a, n].item()) for a, p, n in zip(*(t.tolist() for t in BatchSemiHard(fallback).triples(D, pos, neg)))
    ]
    assert sorted(found) == sorted(expected)
    a, _, n = BatchSemiHard(fallback).triples(D, pos, neg)
    assert neg[a, n].all()


def test_D33_the_farthest_negative_stands_in_only_where_there_is_one():
    D, y = torch.rand(3, 3), torch.zeros(3)
    assert len(BatchSemiHard("easiest").triples(D, *masks(y, y, torch.arange(3)))[0]) == 0


# -- easy positives and extremes ---------------------------------------------------------------------------------------


def test_D34a_two_samples_a_class_is_batch_all():
    close(Triplet(1.0, miner=EasyPositive(), reduction="sum", **PLAIN)(A, Y), 9.186137)


@SEEDS
@pytest.mark.parametrize("negatives", ["all", "hard", "semihard"])
def test_D34_equals_the_loop(seed, ties, negatives):
    z, y = batch(seed, ties=ties)
    terms = []
    for i in range(12):
        P, N = of_anchor(y, i)
        if not P:
            continue
        d_pos = min(float(euc(z, i, j)) for j in P)
        d_neg = sorted(float(euc(z, i, k)) for k in N)
        if negatives != "all":
            d_neg = [d for d in d_neg if negatives == "hard" or d > d_pos][:1]
        terms += [max(0, d_pos - d + 0.6) for d in d_neg]
    loss = Triplet(0.6, miner=EasyPositive(negatives), reduction="mean", **PLAIN)
    if not ties or negatives != "semihard":  # distances equal but for rounding: either may be the larger
        close(loss(z, y), mean(terms), 1e-10)
    D, pos, neg = compared(z, y)
    close(loss.loss(D, *loss.mine(D, pos, neg)), mean(terms), 1e-10)


def test_D34b_a_far_positive_changes_nothing():
    z, y = batch(0)
    far = torch.cat([z, 50 * torch.ones(1, 4)]), torch.cat([y, y[:1]])
    D, pos, neg = compared(*far)
    before = EasyPositive().select(*compared(z, y))
    after = EasyPositive().select(D, pos, neg)
    assert torch.equal(after[0][:12, :12], before[0]) and not after[0][:12, 12].any()


def test_D34_copies_of_the_anchor_can_be_passed_over():
    z, y = torch.tensor([[0.0], [0.0], [2.0], [9.0]]), torch.tensor([0, 0, 0, 1])
    assert EasyPositive().select(*compared(z, y))[0][0].tolist() == [False, True, False, False]
    assert EasyPositive(min_distance=0.0).select(*compared(z, y))[0][0].tolist() == [False, False, True, False]


def test_D35a_toy_values():
    close(EasyPositiveNCA(1.0, "all")(C, Y), 0.948501)
    close(EasyPositiveNCA(0.1, "hard")(C, Y), 3.089878)
    close(EasyPositiveNCA()(C, Y), 0.004492)


@SEEDS
@pytest.mark.parametrize("negatives", ["all", "hard", "semihard"])
def test_D35_equals_the_loop(seed, ties, negatives):
    z, y = batch(seed, ties=ties)
    u, terms = F.normalize(z), []
    for i in range(12):
        P, N = of_anchor(y, i)
        if not P:
            continue
        best = max(float(u[i] @ u[j]) for j in P)
        s = sorted((float(u[i] @ u[k]) for k in N), reverse=True)
        if negatives != "all":
            s = [t for t in s if negatives == "hard" or t < best - 1e-12][:1]
        if s:
            terms.append(math.log1p(sum(math.exp((t - best) / 0.3) for t in s)))
    if not ties or negatives != "semihard":  # which of two cosines equal but for rounding is larger is arbitrary
        close(EasyPositiveNCA(0.3, negatives)(z, y), mean(terms), 1e-8)


@pytest.mark.parametrize("negatives", ["all", "hard", "semihard"])
def test_D35_anchors_with_a_nonpositive_cosine_can_be_dropped(negatives):
    """Anchor by anchor: its best positive and the nearest of the negatives used must lie within a right angle."""
    z, y = batch(5, c=5)
    u, kept, i = F.normalize(z), [], torch.arange(12)
    plain, dropping = (EasyPositiveNCA(0.3, negatives, drop_nonpositive=drop) for drop in (False, True))
    pos, neg = plain.miner.select(plain.distances(z, z), *masks(y, y, i))
    for k in range(12):
        best = [max((float(u[k] @ u[j]) for j in range(12) if mask[k, j]), default=-1) for mask in (pos, neg)]
        if min(best) > 0:
            kept.append(k)
    assert 0 < len(kept) < int(pos.any(1).sum())
    close(dropping(z, y), plain(z[kept], y[kept], z, y, torch.tensor(kept)).item(), 1e-12)


def test_D35b_only_a_more_similar_positive_counts():
    z, y = circle(0, 40, 90, 200), torch.tensor([0, 0, 1, 1])
    loss = EasyPositiveNCA(0.5, "all")
    first = lambda z, y: loss(z[:1], y[:1], z, y, torch.tensor([0]))  # noqa: E731
    less, more = (torch.cat([z, circle(t)]) for t in (60, 20))
    y5 = torch.cat([y, y[:1]])
    close(first(less, y5), first(z, y).item(), 1e-12)
    assert first(more, y5) < first(z, y)


def test_D35c_one_negative_all_equals_hard():
    z, y = circle(0, 40, 100), torch.tensor([0, 0, 1])
    close(EasyPositiveNCA(0.5, "all")(z, y), EasyPositiveNCA(0.5, "hard")(z, y).item(), 1e-12)


def test_D35d_coincident_positives_far_from_negatives_cost_nothing():
    assert EasyPositiveNCA()(circle(0, 0, 180, 180), Y) < 1e-8


STRATEGIES = {"EPEN": (min, max), "EPHN": (min, min), "HPEN": (max, max), "HPHN": (max, min)}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_D40_extremes_equal_the_loop(strategy):
    z, y = batch(0)
    D, pos, neg = compared(z, y)
    choose_p, choose_n = STRATEGIES[strategy]
    expected = {}
    for i in range(12):
        P, N = of_anchor(y, i)
        if P:
            expected[i] = (choose_p(P, key=lambda j: D[i, j]), choose_n(N, key=lambda k: D[i, k]))
    a, p, n = (t.tolist() for t in Extreme(strategy).triples(D, pos, neg))
    assert dict(zip(a, zip(p, n))) == expected


def test_D40c_ephn_is_easy_positive_with_hard_negatives():
    D, pos, neg = compared(*batch(1))
    for ours, theirs in zip(Extreme("EPHN").select(D, pos, neg), EasyPositive("hard").select(D, pos, neg)):
        assert torch.equal(ours, theirs)


def test_D40d_toy_triplet():
    a, p, n = (t.tolist() for t in Extreme("HPHN").triples(*compared(A, Y)))
    assert (2, 3, 0) in set(zip(a, p, n))


def test_D40_assorted_draws_each_of_the_four_and_repeats_by_seed():
    D, pos, neg = compared(*batch(0))
    draw = lambda seed: [t.tolist() for t in Extreme("assorted", random_state=seed).triples(D, pos, neg)]  # noqa: E731
    assert draw(0) == draw(0)
    options = {s: list(zip(*(t.tolist() for t in Extreme(s).triples(D, pos, neg)))) for s in STRATEGIES}
    miner, seen = Extreme("assorted", random_state=0), set()
    for _ in range(20):
        for t in zip(*(t.tolist() for t in miner.triples(D, pos, neg))):
            fits = [s for s, o in options.items() if t in o]
            assert fits
            seen |= set(fits) if len(fits) == 1 else set()
    assert seen == set(STRATEGIES)


# -- lifted and centres ------------------------------------------------------------------------------------------------


def slow_lifted(z, y, margin, form):
    terms, y = [], y.tolist()
    for i in range(len(y)):
        for j in range(i):
            if y[i] == y[j]:
                push = [margin - euc(z, e, k) for e in (i, j) for k in range(len(y)) if y[k] != y[e]]
                J = torch.stack(push).max() if form == "max" else torch.stack(push).logsumexp(0)
                terms.append((J + euc(z, i, j)).relu().square())
    return sum(terms) / (2 * len(terms))


def test_D36a_D37a_toy_values():
    close(Lifted(form="max")(A, Y), 1.697224)
    close(Lifted()(A, Y), 3.856211)


@SEEDS
@pytest.mark.parametrize("form", ["max", "logsumexp"])
def test_D36_D37c_equal_the_loop(seed, ties, form):
    z, y = batch(seed, ties=ties)
    close(Lifted(margin=2.0, form=form)(z, y), float(slow_lifted(z, y, 2.0, form)), 1e-10)
    if not (ties and form == "max"):  # at a tie of the maximum any subgradient is right
        expected = gradient(lambda u: slow_lifted(u, y, 2.0, form), z)
        assert_close(gradient(Lifted(margin=2.0, form=form), z, y), expected, rtol=1e-9, atol=1e-10)


def test_D36b_D37b_the_forms_bound_each_other():
    for seed in range(5):
        z, y = batch(seed)[0], torch.arange(12) // 3
        low, high = Lifted(form="max")(z, y), Lifted()(z, y)
        assert low <= high <= Lifted(margin=1 + math.log(18), form="max")(z, y)


def test_D36d_zero_when_both_ends_are_far_from_negatives():
    z = torch.tensor([[0.0, 0], [1, 0], [3.01, 0], [4.01, 0]])
    assert Lifted(form="max")(z, Y) == 0
    assert Lifted(form="max", margin=1.1)(z, Y) > 0


def test_D37_generalised_form_equals_the_loop():
    z, y = batch(0)
    terms = []
    for i in range(12):
        P, N = of_anchor(y, i)
        if P:
            J = math.log(sum(math.exp(euc(z, i, j)) for j in P)) + math.log(sum(math.exp(2 - euc(z, i, k)) for k in N))
            terms.append(max(0, J))
    close(Lifted(margin=2.0, form="generalized")(z, y), mean(terms), 1e-10)
    close(Lifted(l2_reg=0.1)(z, y), Lifted()(z, y).item() + 0.1 * mean(v @ v for v in z), 1e-10)


def test_D38a_toy_value():
    close(CenterTriplet(margin=1.0)(A, Y), 0.842371)


@SEEDS
@pytest.mark.parametrize("negatives", ["samples", "centers"])
def test_D38_equals_the_loop(seed, ties, negatives):
    z, y = batch(seed, ties=ties)
    mu = {int(k): z[y == k].mean(0) for k in y.unique()}
    terms = []
    for k, centre in mu.items():
        own = max(float((v - centre).norm()) for v in z[y == k])
        others = z[y != k] if negatives == "samples" else [m for l, m in mu.items() if l != k]
        terms.append(max(0, own - min(float((v - centre).norm()) for v in others) + 0.7))
    close(CenterTriplet(margin=0.7, negatives=negatives)(z, y), mean(terms), 1e-10)


def test_D38b_D38d_order_and_separation():
    z, y = batch(0)
    order = torch.argsort(y, descending=True)
    close(CenterTriplet()(z[order], y[order]), CenterTriplet()(z, y).item(), 1e-12)
    assert CenterTriplet()(z + 100 * F.one_hot(y, 4), y) == 0
    with pytest.raises(ValueError, match="needs class labels"):
        CenterTriplet()(z, y[:, None] == y)


def test_D43_a_pair_that_is_neither_positive_nor_negative_takes_no_part():
    loss = MarginLoss(margin=0.5, beta=1.0).double()
    D = torch.tensor([[2.0, 3.0, 4.0, 1.2]], dtype=torch.float64) - 1.0  # d − β
    pos, neg = torch.tensor([[True, False, False, False]]), torch.tensor([[False, True, False, True]])
    close(loss.loss(D, pos, neg), ((0.5 + 1.0) + (0.5 - 0.2)) / 2, 1e-12)


def test_D38_options():
    z, y = batch(0, n=6)
    lonely = [k for k in y.unique().tolist() if (y == k).sum() == 1]
    assert lonely
    counted = CenterTriplet(margin=3.0, min_count=2)(z, y)
    centers = torch.stack([z[y == k].mean(0) for k in range(4)])  # a class without company is no anchor
    kept = [k for k in range(4) if k not in lonely]
    terms = [max((z[y == k] - centers[k]).norm(dim=1)) - min((z[y != k] - centers[k]).norm(dim=1)) + 3 for k in kept]
    close(counted, mean(max(t, 0) for t in terms), 1e-10)
    free, held = (gradient(CenterTriplet(margin=3.0, detach_centers=d), z, y) for d in (False, True))
    assert not torch.allclose(free, held)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_D39a_toy_values_and_D39b_memory_equal_to_the_batch():
    close(ThresholdContrastive()(C, Y), 1.183013)
    close(ThresholdContrastive(hinge=True)(C, Y), 0.933013)
    memory = CrossBatchMemory(None, 2, memory_size=4).double()
    close(memory(C, Y), 2 * 1.183013)
    weighted = CrossBatchMemory(Triplet(**PLAIN), 2, memory_size=4, weight=0.25).double()
    close(weighted(A, Y), 1.25 * Triplet(**PLAIN)(A, Y).item(), 1e-12)


def test_D39_threshold_loss_equals_the_loop():
    z, y = batch(0)
    u, total = F.normalize(z), 0.0
    for i, j, same in ordered_pairs(y):
        s = float(u[i] @ u[j])
        total += 1 - s if same else s * (s > 0.3)
    close(ThresholdContrastive(threshold=0.3)(z, y), total / 12, 1e-10)


def test_D39c_first_in_first_out():
    memory = CrossBatchMemory(Contrastive(), 4, memory_size=10).double()
    z, y = batch(0, n=27)
    for zb, yb in zip(z.split([4, 4, 12, 7]), y.split([4, 4, 12, 7])):
        slots = memory.enqueue(zb, yb)
        kept = slots >= 0
        assert kept.sum() == min(len(yb), 10)
        assert_close(memory.memory[slots[kept]], zb[kept])
    order = torch.arange(17, 27) % 10
    assert_close(memory.memory[order], z[17:])
    assert torch.equal(memory.labels[order], y[17:])
    assert len(memory) == 10
    memory.reset()
    assert len(memory) == 0


def test_D39d_memory_carries_no_gradient():
    loss, (z, y) = Contrastive(margin=3.0), batch(0)
    memory = CrossBatchMemory(loss, 4, memory_size=20).double()
    memory(batch(1)[0], batch(1)[1])
    old_z, old_y = memory.memory[:12].clone(), memory.labels[:12].clone()
    g = gradient(memory, z, y)
    refs, ref_y = torch.cat([z[8:], old_z[4:12], z[:8]]), torch.cat([y[8:], old_y[4:12], y[:8]])
    self_index = torch.cat([torch.arange(12, 20), torch.arange(4)])
    assert_close(memory.memory, refs)
    expected = gradient(lambda u: loss(u, y) + loss(u, y, refs, ref_y, self_index), z)
    assert_close(g, expected)
    two = [memory(*batch(s)) for s in (2, 3)]  # both forwards before any backward
    assert sum(two).isfinite()


def test_D39_the_memory_of_a_summing_loss_counts_as_much_as_the_batch():
    """Four copies of a batch: as many terms for each pair, one more than in the batch for a sample and its copies."""
    (z, y), loss = batch(0), ThresholdContrastive(threshold=0.3)
    refs, ref_y, own = z.repeat(4, 1), y.repeat(4), torch.arange(36, 48)
    against = loss(z, y, refs, ref_y, own)
    assert against > 3 * loss(z, y)  # a sum over references
    for weight, share in ((None, 12 / 48), (1.0, 1.0), (0.5, 0.5)):
        memory = CrossBatchMemory(loss, 4, memory_size=48, weight=weight).double()
        value = [memory(z, y) for _ in range(4)][-1]
        close(value, (loss(z, y) + share * against).item(), 1e-12)
    mean = Contrastive(margin=3.0)
    memory = CrossBatchMemory(mean, 4, memory_size=48).double()
    value = [memory(z, y) for _ in range(4)][-1]
    close(value, (mean(z, y) + mean(z, y, refs, ref_y, own)).item(), 1e-12)  # a mean is taken as it is


def test_D39_warm_up_and_evaluation():
    loss, (z, y) = Contrastive(margin=3.0), batch(0)
    memory = CrossBatchMemory(loss, 4, memory_size=20, planned_steps=25).double()
    assert memory.warmup_steps == 2
    values = [memory(z, y).item() for _ in range(3)]
    assert values[0] == values[1] == pytest.approx(loss(z, y).item()) and values[2] == pytest.approx(2 * values[0])
    steps = memory.steps.item()
    memory.eval()(z, y)
    assert memory.steps.item() == steps and len(memory) == 12
    with pytest.raises(ValueError, match="stores class labels"):
        memory(z, y[:, None] == y)


@pytest.mark.parametrize("miner", [BatchHard(), BatchSemiHard(), EasyPositive("semihard")])
def test_D39_miners_work_on_a_memory(miner):
    z, y = batch(0)
    memory = CrossBatchMemory(Triplet(0.5, miner=miner, **PLAIN), 4, memory_size=30).double()
    for seed in (1, 2):
        memory(*batch(seed))
    assert memory(z, y) > 0 and gradient(memory, z, y).isfinite().all()


# -- sampling ----------------------------------------------------------------------------------------------------------


def test_D41_random_triplets_are_valid_uniform_and_repeatable():
    D, pos, neg = compared(*batch(0))
    a, p, n = RandomTriplets(t_per_anchor=3000, random_state=0).triples(D, pos, neg)
    assert pos[a, p].all() and neg[a, n].all()
    anchors = (pos.any(1) & neg.any(1)).nonzero().flatten()
    assert torch.equal(a.unique(return_counts=True)[1], torch.full_like(anchors, 3000))
    for chosen, mask in ((p, pos), (n, neg)):
        counts = torch.bincount(chosen[a == anchors[0]], minlength=12)[mask[anchors[0]]]
        assert chisquare(counts.numpy()).pvalue > 1e-3
    again, other = (RandomTriplets(5, random_state=s).triples(D, pos, neg) for s in (0, 1))
    assert all(torch.equal(u, v) for u, v in zip(again, RandomTriplets(5, random_state=0).triples(D, pos, neg)))
    assert not torch.equal(again[2], other[2])


def test_D41_the_stream_of_draws_is_saved_with_the_loss():
    z, y = batch(0)
    loss = Triplet(0.5, miner=RandomTriplets(random_state=3), **PLAIN)
    loss(z, y)
    twin = Triplet(0.5, miner=RandomTriplets(random_state=3), **PLAIN)
    twin.load_state_dict(loss.state_dict())
    assert [loss(z, y).item() for _ in range(3)] == [twin(z, y).item() for _ in range(3)]


def test_D42a_log_weights():
    d = torch.tensor([0.5, 1.0, 1.4], dtype=torch.float64)
    assert_close(
        DistanceWeighted(3).log_weight(d), torch.tensor([0.693147, 0.0, -0.336472]).double(), rtol=0, atol=1e-6
    )
    assert_close(
        DistanceWeighted(8).log_weight(d), torch.tensor([4.320229, 0.719205, -0.335472]).double(), rtol=0, atol=1e-6
    )
    assert (DistanceWeighted(2).log_weight(d) == 0).all()
    assert_close(DistanceWeighted(8).log_weight(d[:1] / 5), DistanceWeighted(8).log_weight(d[:1]))


@pytest.mark.parametrize("p", [4, 16])
def test_D42_the_density_is_that_of_the_sphere(p):
    rng = np.random.default_rng(0)
    u, v = (rng.standard_normal((4000, p)) for _ in range(2))
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (u, v))
    grid = torch.linspace(1e-3, 2 - 1e-3, 4001, dtype=torch.float64)
    density = torch.exp(-DistanceWeighted(p, cutoff=1e-4).log_weight(grid))
    cdf = (density.cumsum(0) / density.sum()).numpy()
    assert kstest(np.linalg.norm(u - v, axis=1), lambda x: np.interp(x, grid.numpy(), cdf)).statistic < 0.03


def test_D42b_frequencies_follow_the_weights():
    D = torch.tensor([[0.0, 0.3, 0.6, 0.9, 1.2, 1.45]]).double().repeat(2000, 1)
    pos, neg = torch.zeros(2000, 6).bool(), torch.zeros(2000, 6).bool()
    pos[:, 1] = True
    neg[:, 2:] = True
    miner = DistanceWeighted(4, random_state=0)
    n = miner.triples(D, pos, neg)[2]
    expected = miner.log_weight(D[0, 2:5]).softmax(0) * 2000
    assert chisquare(torch.bincount(n, minlength=6)[2:5].numpy(), expected.numpy()).pvalue > 1e-3
    assert (n != 5).all(), "beyond the upper cutoff"


def test_D42c_D42d_no_anchor_is_lost_and_no_positive_taken_for_a_negative():
    """One very hard pair must not crowd out the other anchors: weights span hundreds of nats at p = 512."""
    rng = np.random.default_rng(0)
    z = F.normalize(torch.tensor(rng.standard_normal((32, 512))))
    y = torch.arange(32) // 2
    z[2] = F.normalize(z[0] + 0.01 * z[5], dim=0)
    D, pos, neg = compared(z, y)
    a, p, n = DistanceWeighted(512, nonzero_loss_cutoff=1.9, random_state=0).triples(D, pos, neg)
    assert torch.equal(a.unique(), torch.arange(32)) and pos[a, p].all() and neg[a, n].all()
    assert len(a) == pos.sum()


def test_D42_needs_unit_vectors_and_euclidean_distances():
    for params in ({"normalize": False}, {"distance": "cosine"}):
        with pytest.raises(ValueError, match=r"build it as Triplet\(distance='euclidean', normalize=True\)"):
            Triplet(miner=DistanceWeighted(4), **params)
    z, y = batch(0)
    loss = MarginLoss(miner=DistanceWeighted(4, random_state=0))
    assert loss(z, y) > 0
    far = DistanceWeighted(4, nonzero_loss_cutoff=1e-9).triples(*compared(F.normalize(z), y))
    assert all(len(t) == 0 for t in far)


def test_D43a_toy_value():
    z, nan = circle(0.0, math.degrees(2 * math.asin(0.65)), -math.degrees(2 * math.asin(0.55))), torch.nan
    y = torch.tensor([[nan, 1, 0], [nan, nan, nan], [nan, nan, nan]])
    close(MarginLoss()(z, y), (0.3 + 0.3) / 2)


@SEEDS
def test_D43_equals_the_loop(seed, ties):
    z, y = batch(seed, ties=ties)
    u, beta = F.normalize(z), [1.0, 1.1, 1.2, 1.3]
    terms = []
    for i, j, same in ordered_pairs(y):
        gap = float(euc(u, i, j)) - beta[y[i]]
        terms.append(max(0, 0.2 + gap if same else 0.2 - gap))
    loss = MarginLoss(num_classes=4, nu=0.5).double()
    loss.beta.data = torch.tensor(beta).double()
    close(loss(z, y), sum(terms) / sum(t > 1e-12 for t in terms) + 0.5 * 1.15, 1e-8)


def test_D43b_gradient_of_beta_counts_active_pairs():
    z, y = batch(0)
    loss = MarginLoss().double()
    loss(z, y).backward()
    D, pos, neg = compared(F.normalize(z), y)
    on_pos, on_neg = ((0.2 + D - 1.2 > 0) & pos).sum(), ((0.2 - D + 1.2 > 0) & neg).sum()
    close(loss.beta.grad[0], (int(on_neg) - int(on_pos)) / (int(on_neg) + int(on_pos)), 1e-12)


def test_D43c_separated_pairs_cost_nothing():
    loss, z = MarginLoss(), circle(0, 10, 170, 180)
    assert loss(z, Y) == 0
    assert loss.param_groups(1e-3)[0]["lr"] == 5e-4
    assert MarginLoss(learn_beta=False).param_groups(1e-3) == []


# -- hard negatives ----------------------------------------------------------------------------------------------------


def slow_hard_negative(u, pairs, negatives, t, tau, beta):
    terms = []
    for i, j in pairs:
        s_pos, s = math.exp(float(u[i] @ u[j]) / t), [float(u[i] @ u[k]) / t for k in negatives[i]]
        N = len(s)
        R = sum(math.exp((beta + 1) * v) for v in s) / (sum(math.exp(beta * v) for v in s) / N)
        Ng = max((R - tau * N * s_pos) / (1 - tau), N * math.exp(-1 / t)) if tau else R
        terms.append(-math.log(s_pos / (s_pos + Ng)))
    return mean(terms)


def test_D45a_toy_values():
    close(HardNegativeContrastive().views(C[[0, 2]], C[[1, 3]]), 1.222861)
    close(HardNegativeContrastive(tau_plus=0, beta=0).views(C[[0, 2]], C[[1, 3]]), 0.989836)


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.6])
def test_D45_equals_the_loop_on_views_and_on_labels(tau):
    z1, z2 = batch(0)[0], batch(1)[0]
    u = F.normalize(torch.cat([z1, z2]))
    pairs = [(i, (i + 12) % 24) for i in range(24)]
    negatives = [[k for k in range(24) if k % 12 != i % 12] for i in range(24)]
    loss = HardNegativeContrastive(tau_plus=tau, beta=0.7)
    close(loss.views(z1, z2), slow_hard_negative(u, pairs, negatives, 0.5, tau, 0.7), 1e-10)
    z, y = batch(2)
    pairs = [(i, j) for i, j, same in ordered_pairs(y) if same]
    negatives = [of_anchor(y, i)[1] for i in range(12)]
    close(loss(z, y), slow_hard_negative(F.normalize(z), pairs, negatives, 0.5, 0.0, 0.7), 1e-10)


def test_D45b_without_tilt_and_prior_it_is_ntxent():
    z1, z2 = batch(0)[0], batch(1)[0]
    u = F.normalize(torch.cat([z1, z2]))
    logits = (u @ u.T / 0.5).masked_fill(torch.eye(24).bool(), -torch.inf)
    ntxent = F.cross_entropy(logits, (torch.arange(24) + 12) % 24)
    close(HardNegativeContrastive(tau_plus=0, beta=0).views(z1, z2), ntxent.item(), 1e-12)


def test_D45c_a_strong_tilt_leaves_the_hardest_negative():
    z, y = batch(0)
    u, terms = F.normalize(z), []
    for i, j, same in ordered_pairs(y):
        if same:
            N = of_anchor(y, i)[1]
            hardest = max(float(u[i] @ u[k]) for k in N) / 0.5
            terms.append(math.log1p(len(N) * math.exp(hardest - float(u[i] @ u[j]) / 0.5)))
    close(HardNegativeContrastive(beta=1e5)(z, y), mean(terms), 1e-3)


def test_D45d_non_decreasing_in_the_tilt():
    z, y = batch(0)
    values = [HardNegativeContrastive(beta=b)(z, y).item() for b in (0, 0.5, 1, 2, 5)]
    assert values == sorted(values) and values[0] < values[-1]


def test_D45_clamped_terms_have_a_finite_gradient():
    z = torch.cat([circle(0, 90, 180), circle(0, 90, 180)])
    g = gradient(lambda u: HardNegativeContrastive(tau_plus=0.9).views(u[:3], u[3:]), z)
    assert g.isfinite().all()
    with pytest.raises(ValueError, match="in \\[0, 1\\), got 1"):
        HardNegativeContrastive(tau_plus=1)
