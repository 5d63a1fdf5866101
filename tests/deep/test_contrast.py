"""Proof tests of the contrastive losses E25 to E28, each beside its equation written with loops."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from isometry.deep import (
    CrossBatchMemory,
    DecoupledContrastive,
    HardNegativeContrastive,
    InfoNCE,
    NCALoss,
    SigLIP,
    SupCon,
    Triplet,
)
from isometry.deep.functional import unit
from tests.deep.batches import C, Y, batch, close, cosines, gradient, of_anchor, same

# -- InfoNCE -----------------------------------------------------------------------------------------------------------


def test_E25_toy_values():
    close(InfoNCE(0.1)(C, Y), 3.089933)
    close(InfoNCE(1.0)(C, Y), 0.948501)


@pytest.mark.parametrize("reduction", ["pairs", "anchors"])
@pytest.mark.parametrize("seed", [0, 1])
def test_E25_is_its_loop(seed, reduction):
    z, y = batch(seed)

    def slow(z, y):
        S, terms = cosines(z) / 0.3, []
        for i in range(len(y)):
            pos, neg = of_anchor(y, i)
            terms.append([-S[i, j] + torch.logsumexp(S[i, [j, *neg]], 0) for j in pos])
        if reduction == "pairs":
            return torch.stack([t for anchor in terms for t in anchor]).mean()
        return torch.stack([torch.stack(anchor).mean() for anchor in terms if anchor]).mean()

    same(InfoNCE(0.3, reduction), slow, z, y)


def test_E25_of_two_views_has_four_names():
    """SimCLR's cross-entropy, SupCon and the log-probability of NCA; of three views they part."""
    z1, z2, z3 = (batch(k, n=6)[0] for k in range(3))
    S = cosines(torch.cat([z1, z2])) / 0.5
    S.fill_diagonal_(-torch.inf)
    simclr = F.cross_entropy(S, torch.arange(12).roll(6))
    others = InfoNCE(0.5), SupCon(0.5), NCALoss(0.5, distance="inner", normalize=True)
    for loss in others:
        assert_close(loss.views(z1, z2), simclr, rtol=1e-12, atol=0)
    values = [float(loss.views(z1, z2, z3)) for loss in others]
    assert min(abs(a - b) for a, b in itertools.pairwise(values)) > 1e-3
    with pytest.raises(ValueError, match="views must be two or more, of equal length, got lengths 6, 5"):
        InfoNCE().views(z1, z2[:5])


def test_E25_is_the_hard_negative_loss_without_hardness():
    z, y = batch(0)
    assert_close(InfoNCE(0.3)(z, y), HardNegativeContrastive(0.3, 0, 0)(z, y), rtol=1e-12, atol=0)


def test_E25_tends_to_the_hinge_of_the_hardest_negative():
    z, y = unit(batch(0)[0]), torch.arange(12) % 4
    S, T = z @ z.T, 1e-5
    hinges = [(S[i, n].max() - S[i, j]).relu() for i in range(12) for p, n in [of_anchor(y, i)] for j in p]
    assert_close(T * InfoNCE(T)(z, y), torch.stack(hinges).mean(), rtol=0, atol=1e-5)


def test_E25_queue_of_past_embeddings():
    """A memory as in MoCo: the anchors against what the queue holds, themselves left out."""
    z, y = batch(0)
    memory = CrossBatchMemory(InfoNCE(0.3), 4, 64).double()
    expected = InfoNCE(0.3)(z, y) + InfoNCE(0.3)(z, y, z, y, torch.arange(12))
    assert_close(memory(z, y), expected, rtol=1e-6, atol=1e-8)


# -- supervised contrast -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["out", "in"])
@pytest.mark.parametrize("seed", [0, 1])
def test_E26_is_its_loop(seed, form):
    z, y = batch(seed)

    def slow(z, y):
        S, terms = cosines(z) / 0.3, []
        for i in range(len(y)):
            pos, neg = of_anchor(y, i)
            log_p = S[i] - torch.logsumexp(S[i, pos + neg], 0)
            if pos:
                terms.append(-log_p[pos].mean() if form == "out" else -log_p[pos].exp().mean().log())
        return torch.stack(terms).mean()

    same(SupCon(0.3, form), slow, z, y)


def test_E26_special_cases():
    z, y = batch(0)
    assert_close(SupCon(0.3, "apart")(z, y), InfoNCE(0.3, "anchors")(z, y), rtol=1e-12, atol=0)
    pairs = torch.arange(12) // 2
    assert_close(SupCon(0.3)(z, pairs), InfoNCE(0.3)(z, pairs), rtol=1e-12, atol=0)
    close(SupCon(0.3)(torch.ones(12, 4), torch.arange(12) % 4), math.log(11))
    assert_close(SupCon(0.3, "in")(z, y * 0), NCALoss(0.3, distance="inner", normalize=True)(z, y * 0) + math.log(11))


SETS = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]]).bool()


def slow_sets(z, sets, threshold):
    S, terms = cosines(z) / 0.3, []
    for i, a in enumerate(sets):
        others = {j: b for j, b in enumerate(sets) if j != i}
        w = {j: float((a & b).sum() / (a | b).sum()) if (a | b).any() else 1.0 for j, b in others.items()}
        kept = {j: v for j, v in w.items() if v >= threshold}
        lse = torch.logsumexp(S[i, list(w)], 0)
        if kept:
            terms.append(sum(v * (lse - S[i, j]) for j, v in kept.items()) / sum(kept.values()))
    return torch.stack(terms).mean()


@pytest.mark.parametrize("threshold", [0.5, 0.6])
def test_E26_sets_of_labels(threshold):
    z = batch(0, n=6)[0]
    loss = SupCon(0.3, labels="sets", threshold=threshold)
    same(loss, lambda z, y: slow_sets(z, y, threshold), z, SETS)
    against = loss(z, SETS, z.clone(), SETS, torch.arange(6))
    assert_close(against, loss(z, SETS), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"boolean matrix \(B, c\).*got torch.int64 of shape \(6, 4\)"):
        loss(z, SETS.long())
    with pytest.raises(ValueError, match="with refs; got none"):
        loss(z, SETS, z)


def test_E26_a_memory_keeps_sets():
    z, loss = batch(0, n=6)[0], SupCon(0.3, labels="sets")
    memory = CrossBatchMemory(loss, 4, 16, label_size=4).double()
    expected = loss(z, SETS) + loss(z, SETS, z, SETS, torch.arange(6))
    assert_close(memory(z, SETS), expected, rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match=r"the memory stores labels \(B, 4\), got \(6,\)"):
        memory(z, torch.arange(6))
    with pytest.raises(ValueError, match=r"the memory stores class labels \(B,\), got \(6, 4\)"):
        CrossBatchMemory(loss, 4, 16)(z, SETS)


def test_E26_weights_survive_a_miner():
    from isometry.deep import BatchAll

    z, w = batch(0, n=6)[0], torch.rand(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_close(SupCon(miner=BatchAll())(z, w), SupCon()(z, w), rtol=1e-12, atol=0)
    assert_close(SupCon(threshold=1e-9)(z, (w > 0.5).double()), SupCon()(z, w > 0.5), rtol=1e-12, atol=0)


# -- decoupled ---------------------------------------------------------------------------------------------------------


def test_E27_toy_value_and_sum_of_weights():
    close(DecoupledContrastive(1.0)(C, Y), 0.399428)
    loss, z, y = DecoupledContrastive(weighted=True), *batch(0)
    D = -cosines(z)
    pos = (y[:, None] == y).fill_diagonal_(False)
    share, pull = loss.pairs(D, pos, ~(y[:, None] == y), None)
    assert_close(share.sum(), torch.tensor(1.0).double())
    assert_close((pull / share).nansum(), pos.sum().double())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_E27_is_its_loop(seed, weighted):
    z, y = batch(seed)

    def slow(z, y):
        S = cosines(z)
        pairs = [(i, j) for i in range(len(y)) for j in of_anchor(y, i)[0]]
        s = torch.stack([S[i, j] for i, j in pairs])
        w = 2 - len(pairs) * (s / 0.5).softmax(0).detach() if weighted else torch.ones(len(pairs))
        terms = [torch.logsumexp(S[i, of_anchor(y, i)[1]] / 0.3, 0) - v * S[i, j] / 0.3 for (i, j), v in zip(pairs, w)]
        return torch.stack(terms).mean()

    same(DecoupledContrastive(0.3, weighted), slow, z, y)


def test_E27_softplus_of_a_term_is_that_of_E25():
    z, y = batch(0, n=4)[0][:3], torch.tensor([0, 0, 1])
    refs = z[1:], y[1:]
    term = DecoupledContrastive(0.3)(z[:1], y[:1], *refs)
    assert_close(F.softplus(term), InfoNCE(0.3)(z[:1], y[:1], *refs), rtol=1e-12, atol=0)


def test_E27_of_two_views_is_the_mean_of_two_halves():
    """As other libraries have it: from the first view to the second, and back."""
    z1, z2 = (unit(batch(k, n=6)[0]) for k in (0, 1))

    def half(a, b):
        own, other = a @ a.T / 0.1, a @ b.T / 0.1
        rest = torch.cat([own, other], 1).masked_fill(torch.eye(6).bool().repeat(1, 2), -torch.inf)
        return (torch.logsumexp(rest, 1) - other.diagonal()).mean()

    assert_close(DecoupledContrastive(0.1).views(z1, z2), (half(z1, z2) + half(z2, z1)) / 2, rtol=1e-12, atol=0)


# -- sigmoid -----------------------------------------------------------------------------------------------------------


def test_E28_toy_value_of_two_columns():
    i = torch.arange(2)
    close(SigLIP(bias=-10.0).double()(C[[0, 2]], i, C[[1, 3]], i), 7.619694)


def test_E28_is_a_sum_of_cross_entropies():
    z, y = batch(0)
    loss = SigLIP(scale=math.e, bias=-1.0).double()
    x, off = math.e * cosines(z) - 1, ~torch.eye(12).bool()
    target = (y[:, None] == y).double()
    total = F.binary_cross_entropy_with_logits(x[off], target[off], reduction="sum") / 12
    assert_close(loss(z, y), total, rtol=1e-12, atol=0)
    loss(z, y).backward()
    assert_close(loss.bias.grad, (x.sigmoid() - target)[off].sum() / 12, rtol=1e-10, atol=0)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [InfoNCE, SupCon, DecoupledContrastive])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
def test_a_temperature_is_above_zero(kind, value):
    with pytest.raises(ValueError, match=r"temperature=.* must be (positive|finite)"):
        kind(value)


def test_other_numbers_have_ranges():
    with pytest.raises(ValueError, match="scale=-1 must be positive"):
        SigLIP(-1)
    with pytest.raises(ValueError, match=r"threshold=0 must lie in \(0, 1\]"):
        SupCon(threshold=0)
    with pytest.raises(ValueError, match="reduction"):
        InfoNCE(reduction="sum")


# -- against pytorch-metric-learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NTXent", "SupCon"])
@pytest.mark.parametrize("seed", [0, 1])
def test_same_as_the_peer(name, seed):
    losses = pytest.importorskip("pytorch_metric_learning.losses", reason="the oracle is not installed")
    theirs, ours = {
        "NTXent": (lambda: losses.NTXentLoss(0.2), lambda: InfoNCE(0.2)),
        "SupCon": (lambda: losses.SupConLoss(0.2), lambda: SupCon(0.2)),
    }[name]
    z, y = batch(seed)[0], torch.arange(12) % 4
    assert_close(ours()(z, y), theirs()(z, y), rtol=1e-10, atol=1e-12)
    assert_close(gradient(ours(), z, y), gradient(theirs(), z, y), rtol=1e-9, atol=1e-11)


def test_views_of_other_losses_are_still_two_or_more():
    z1, z2, z3 = (batch(k, n=6)[0] for k in range(3))
    y = torch.arange(6).repeat(3)
    assert_close(Triplet().views(z1, z2, z3), Triplet()(torch.cat([z1, z2, z3]), y), rtol=0, atol=0)
