"""Siamese and triplet networks (D14): one network for all branches, losses of given pairs and triplets."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from isometry.deep import (
    MLP,
    BatchHard,
    CenterTriplet,
    EasyPositiveNCA,
    FisherContrastive,
    FisherTriplet,
    HardNegativeContrastive,
    Lifted,
    NCALoss,
    NPair,
    PairDataset,
    PairSampler,
    ProbabilisticDA,
    Siamese,
    SimilarityHead,
    SoftmaxTriplet,
    Trainer,
    Triplet,
    TripletDataset,
    TripletGlobal,
    TripletSampler,
    Tuplet,
)
from isometry.deep.losses.angular import Angular
from isometry.deep.losses.contrastive import Contrastive, GeneralizedContrastive, ThresholdContrastive
from isometry.deep.losses.margin import MarginLoss
from isometry.deep.objectives.siamese import RatioTriplet, loss_of_triplets
from tests.deep.batches import PLAIN, A, batch, euc, mean, sq, triples

torch.set_num_threads(1)


def network(seed=0, **params):
    torch.manual_seed(seed)
    return MLP(4, 3, hidden=(6,), **params).double()


def samples(branches, n=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(branches, n, 4, generator=generator, dtype=torch.float64).unbind()


SIMILAR = torch.tensor([1, 0, 0, 1, 1, 0, 0, 1, 0])


def gradients(net, value):
    net.zero_grad()
    value.backward()
    return [p.grad.clone() for p in net.parameters()]


# -- branches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("branches", [2, 3])
def test_gradient_is_that_of_separate_forwards_and_of_all_branches(branches):
    """D14 (1): without batch normalisation; what one branch alone contributes is something else."""
    net, xs = network(), samples(branches)
    batch_ = xs if branches == 3 else (*xs, SIMILAR)
    loss = Triplet(1.0, **PLAIN) if branches == 3 else Contrastive(2.0)
    together = gradients(net, Siamese(loss)(net, batch_))
    apart = gradients(net, Siamese(loss, separate_forward=True)(net, batch_))
    parts = []
    for live in range(branches):  # the other branches as copies that are not trained
        zs = [net(x) if k == live else net(x).detach() for k, x in enumerate(xs)]
        value = loss_of_triplets(loss, *zs) if branches == 3 else slow_contrastive(*zs, 2.0)
        parts.append(gradients(net, value))
    for joined, separate, *single in zip(together, apart, *parts):
        assert_close(joined, separate, rtol=1e-10, atol=1e-12)
        assert_close(joined, sum(single), rtol=1e-10, atol=1e-12)
        assert (joined - single[0]).abs().max() > 1e-3 * joined.abs().max()


def test_an_embedding_does_not_depend_on_the_slot():
    """D14 (2): in eval mode, also with batch normalisation."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()
    x, other, third = samples(3)
    objective = Siamese(Triplet())
    with torch.no_grad():
        objective.embed(net.train(), (x, other, third))  # some running statistics
        net.eval()
        first = objective.embed(net, (x, other, third))[0]
        assert_close(objective.embed(net, (other, x, third))[1], first, rtol=1e-12, atol=1e-14)
        assert_close(objective.embed(net, (other, third, x))[2], first, rtol=1e-12, atol=1e-14)
        assert_close(net(x), first, rtol=1e-12, atol=1e-14)


def test_batch_normalisation_sees_all_branches_or_each():
    torch.manual_seed(0)
    net, (x, y) = nn.BatchNorm1d(4).double(), samples(2)
    y = y + 5
    with torch.no_grad():
        joined = torch.cat(Siamese().embed(net, (x, y)))
        apart = Siamese(separate_forward=True).embed(net, (x, y))
    assert_close(joined.mean(0), torch.zeros(4).double(), atol=1e-10, rtol=0)
    assert joined[:9].mean() < -0.5
    for z in apart:
        assert_close(z.mean(0), torch.zeros(4).double(), atol=1e-10, rtol=0)


def test_every_weight_is_there_once():
    """D14 (3)."""
    net, objective = network(), Siamese(SimilarityHead(3))
    trainer = Trainer(net, objective, max_epochs=1)
    X, y = batch(0, n=24)
    trainer.fit(DataLoader(PairDataset(X), 8, sampler=PairSampler(y)))
    assert set(objective.state_dict()) == {"loss.alpha", "loss.bias"}
    assert len(net.state_dict()) == 4


def test_branches_of_different_length():
    """Texts of unequal length: padded apart, embedded by the same module."""
    torch.manual_seed(0)
    net = nn.EmbeddingBag(20, 3, mode="mean").double()
    short, long = torch.randint(20, (5, 4)), torch.randint(20, (5, 9))
    similar = torch.tensor([1, 0, 1, 0, 1])
    value = Siamese(Contrastive(2.0))(net, (short, long, similar))
    assert_close(value, slow_contrastive(net(short), net(long), 2.0, similar), rtol=1e-10, atol=0)


def test_active_share_is_that_of_the_samples_with_a_gradient():
    net = nn.Identity()
    a = torch.tensor([[0.5], [0.0]], dtype=torch.float64, requires_grad=True)
    p, n = torch.ones(2, 1, dtype=torch.float64), torch.tensor([[-0.5], [9.0]], dtype=torch.float64)
    objective = Siamese(Triplet(1.0, **PLAIN))
    objective(net, (a, p, n)).backward()
    assert objective.active == 0.5  # of the first triplet all three, of the second none


# -- losses of pairs ---------------------------------------------------------------------------------------------------


def slow_contrastive(z1, z2, margin, similar=SIMILAR):
    terms = []
    for a, b, s in zip(z1, z2, similar, strict=True):
        d = (a - b).square().sum().sqrt()
        terms.append(d**2 / 2 if s else max(d * 0, margin - d) ** 2 / 2)
    return sum(terms) / len(terms)


def test_contrastive_loss_of_given_pairs():
    net, xs = network(), samples(2)
    value = Siamese(Contrastive(2.0))(net, (*xs, SIMILAR))
    assert_close(value, slow_contrastive(*map(net, xs), 2.0), rtol=1e-10, atol=0)


def test_soft_similarities():
    net, xs = network(), samples(2)
    s = torch.linspace(0, 1, 9, dtype=torch.float64)
    d = [float(euc(torch.stack([a, b]), 0, 1).detach()) for a, b in zip(*map(net, xs))]
    expected = mean(w * u**2 / 2 + (1 - w) * max(0.0, 1.5 - u) ** 2 / 2 for w, u in zip(s, d))
    value = Siamese(GeneralizedContrastive(1.5))(net, (*xs, s))
    assert value.item() == pytest.approx(expected, rel=1e-10)


def test_other_losses_of_pairs():
    """MarginLoss: [m ± (d − β)]_+ over the terms above zero; ThresholdContrastive: cosines."""
    net, xs = network(), samples(2)
    zs = [nn.functional.normalize(net(x)) for x in xs]
    d = [euc(torch.stack([a, b]), 0, 1).detach() for a, b in zip(*zs)]
    terms = [max(0.0, 0.2 + float((u - 1.2) if s else (1.2 - u))) for u, s in zip(d, SIMILAR)]
    value = Siamese(MarginLoss())(net, (*xs, SIMILAR))
    assert value.item() == pytest.approx(sum(terms) / sum(t > 0 for t in terms), rel=1e-6)
    cos = [float((a @ b).detach()) for a, b in zip(*zs)]
    expected = mean(1 - c if s else c * (c > 0.1) for c, s in zip(cos, SIMILAR))
    assert Siamese(ThresholdContrastive(0.1))(net, (*xs, SIMILAR)).item() == pytest.approx(expected, rel=1e-9)


def test_similarity_head_by_hand():
    """σ(Σ α_j |z¹_j − z²_j| + b) and its cross-entropy."""
    head = SimilarityHead(2).double()
    head.alpha.data, head.bias.data = torch.tensor([-1.0, 0.5]).double(), torch.tensor(0.25).double()
    z1, z2 = torch.tensor([[1.0, 2.0], [0.0, 0.0]]).double(), torch.tensor([[3.0, 1.0], [0.0, 0.0]]).double()
    logits = [-1 * 2 + 0.5 * 1 + 0.25, 0.25]
    p = [1 / (1 + math.exp(-t)) for t in logits]
    assert head.probability(z1, z2).tolist() == pytest.approx(p, rel=1e-12)
    expected = -(math.log(p[0]) + math.log(1 - p[1])) / 2
    assert head(z1, z2, torch.tensor([1, 0])).item() == pytest.approx(expected, rel=1e-12)
    assert head(z1, z2, torch.tensor([0.3, 0], dtype=torch.float64)).item() == pytest.approx(
        -(0.3 * math.log(p[0]) + 0.7 * math.log(1 - p[0]) + math.log(1 - p[1])) / 2, rel=1e-12
    )
    assert_close(head.logits(z1, z2), head.logits(z2, z1), rtol=0, atol=0)
    args = [t.requires_grad_() for t in (z1 + 0.1, z2, head.alpha, head.bias)]
    assert torch.autograd.gradcheck(lambda u, v, *_: head(u, v, torch.tensor([1, 0])), args)


def test_similarity_head_learns_who_is_similar():
    rng = np.random.default_rng(0)
    y = np.arange(120) % 4
    X = torch.tensor(2 * rng.standard_normal((4, 5))[y] + rng.standard_normal((120, 5)), dtype=torch.float32)
    torch.manual_seed(0)
    net, head = MLP(5, 4, (16,)), SimilarityHead(4)
    start = head.alpha.detach().clone()
    loader = DataLoader(PairDataset(X[:80]), 32, sampler=PairSampler(y[:80], n_pairs=960))
    trainer = Trainer(net, Siamese(head), lr=0.02, max_epochs=4, monitor="loss").fit(
        loader, validation=(X[80:], y[80:])
    )
    assert trainer.history["loss"][-1] < 0.7 * trainer.history["loss"][0] < 0.69
    assert (head.alpha - start).abs().max() > 1e-2
    with torch.no_grad():
        z = net(X[80:])
        i, j = torch.triu_indices(40, 40, 1)
        probability, same = head.probability(z[i], z[j]), torch.tensor(y[80:][i] == y[80:][j])
    assert probability[same].mean() > 0.55 and probability[~same].mean() < 0.2
    assert roc_auc_score(same, probability) > 0.9


# -- losses of triplets ------------------------------------------------------------------------------------------------


def test_triplet_loss_of_given_triplets():
    net, (a, p, n) = network(), samples(3)
    z = [net(x).detach() for x in (a, p, n)]
    terms = [(u - v).square().sum() - (u - w).square().sum() + 1.0 for u, v, w in zip(*z)]
    value = Siamese(Triplet(1.0, distance="sqeuclidean", normalize=False, reduction="mean"))(net, (a, p, n))
    assert value.item() == pytest.approx(mean(max(0.0, float(t)) for t in terms), rel=1e-10)
    angular = Angular(form="triplet", alpha=30.0, reduction="mean", normalize=False)
    t = math.tan(math.radians(30)) ** 2
    terms = [(u - v).square().sum() - 4 * t * (w - (u + v) / 2).square().sum() for u, v, w in zip(*z)]
    expected = mean(max(0.0, float(t)) for t in terms)
    assert Siamese(angular)(net, (a, p, n)).item() == pytest.approx(expected, rel=1e-9)


def slow_ratio(z, y):
    return mean((euc(z, a, p).exp() / (euc(z, a, p).exp() + euc(z, a, n).exp())) ** 2 for a, p, n in triples(y))


def test_ratio_triplet_by_loops():
    """D14: (e^{d₊} / (e^{d₊} + e^{d₋}))², over a batch and over a list."""
    z, y = batch(3)
    assert float(RatioTriplet()(z, y)) == pytest.approx(slow_ratio(z, y), rel=1e-10)
    listed = RatioTriplet().triplets(z, tuple(torch.tensor(triples(y)).T))
    assert float(listed) == pytest.approx(slow_ratio(z, y), rel=1e-10)
    d_ap, d_an = math.sqrt(13), 2.0  # triplet (2, 3, 0) of A
    expected = (math.exp(d_ap) / (math.exp(d_ap) + math.exp(d_an))) ** 2
    value = Siamese(RatioTriplet())(nn.Identity(), (A[2:3], A[3:4], A[:1]))
    assert value.item() == pytest.approx(expected, rel=1e-12)
    squared = RatioTriplet(distance="sqeuclidean").triplets(
        A, (torch.tensor([2]), torch.tensor([3]), torch.tensor([0]))
    )
    assert float(squared) == pytest.approx(1 / (1 + math.exp(float(sq(A, 2, 0) - sq(A, 2, 3)))) ** 2, rel=1e-12)


def test_two_point_classes_train_to_order():
    X, y = batch(0, n=32, c=4)
    X = X + 3 * torch.eye(4, dtype=torch.float64)[y]
    loader = DataLoader(TripletDataset(X), 16, sampler=TripletSampler(y, triplets_per_anchor=10))
    trainer = Trainer(network(), Siamese(RatioTriplet()), lr=0.02, max_epochs=3).fit(loader, validation=(X, y))
    assert trainer.history["loss"][-1] < 0.6 * trainer.history["loss"][0] < 0.25
    assert trainer.history["map@r"][-1] > trainer.history["map@r"][0]


# -- errors and edges --------------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="ProbabilisticDA has no form for pairs or triplets"):
        Siamese(ProbabilisticDA())
    with pytest.raises(ValueError, match=r"\(x1, x2, similar\) .* got 2 parts"):
        Siamese()(network(), samples(2))


OF_PAIRS = [Contrastive, GeneralizedContrastive, ThresholdContrastive, MarginLoss, FisherContrastive]
OF_TRIPLETS = [Angular, lambda: Angular(form="triplet"), Triplet, Tuplet, TripletGlobal, FisherTriplet, RatioTriplet]
NEITHER = [NCALoss, EasyPositiveNCA, Lifted, NPair, SoftmaxTriplet, HardNegativeContrastive, CenterTriplet]


@pytest.mark.parametrize("make", NEITHER)
def test_losses_that_pairs_cannot_train_are_refused_by_name(make):
    with pytest.raises(ValueError, match=rf"{make.__name__} compares .* Contrastive or MarginLoss"):
        Siamese(make())


def test_a_miner_of_given_pairs_is_refused():
    with pytest.raises(ValueError, match="the pairs are given and BatchHard has nothing to choose"):
        Siamese(Contrastive(miner=BatchHard()))


@pytest.mark.parametrize("make", OF_PAIRS)
def test_losses_of_pairs_move_similar_and_dissimilar_ones(make):
    net, xs = network(), samples(2)
    if make is GeneralizedContrastive:
        make = partial(make, 2.0)
    elif make is FisherContrastive:
        make = partial(make, margin=20.0)
    elif make is ThresholdContrastive:
        make = partial(make, -2.0)
    for kind in (0, 1):
        assert any(g.abs().max() > 1e-3 for g in gradients(net, Siamese(make())(net, (*xs, torch.full((9,), kind)))))


@pytest.mark.parametrize("make", OF_TRIPLETS)
def test_losses_of_triplets_move_the_network(make):
    net, xs = network(), samples(3)
    assert any(g.abs().max() > 1e-3 for g in gradients(net, Siamese(make())(net, xs)))


def test_angular_trains_on_triplets():
    """Its default is the smooth form: the hinge at 45° would be met by almost all triplets from the start."""
    X, y = batch(0, n=32, c=4)
    X = X + 2 * torch.eye(4, dtype=torch.float64)[y]
    loader = DataLoader(TripletDataset(X), 16, sampler=TripletSampler(y, triplets_per_anchor=10))
    trainer = Trainer(network(), Siamese(Angular()), lr=0.02, max_epochs=3).fit(loader, validation=(X, y))
    assert trainer.stop_reason == "all epochs done" and min(trainer.history["active"]) > 0.9
    assert trainer.history["loss"][-1] < 0.7 * trainer.history["loss"][0]


@pytest.mark.parametrize("loss", [Contrastive(), SimilarityHead(3).double(), Triplet(), RatioTriplet()])
def test_not_finite_is_left_to_the_trainer_and_an_empty_batch_is_zero(loss):
    net, xs = network(), list(samples(3))
    xs[2] = xs[2] if not isinstance(loss, (Contrastive, SimilarityHead)) else SIMILAR
    assert Siamese(loss)(net, [x[:0] for x in xs]) == 0
    xs[0] = xs[0].clone()
    xs[0][4, 1] = math.nan
    assert not Siamese(loss)(net, xs).isfinite()


def test_bfloat16_embeddings_are_compared_in_float32():
    net, xs = network().float(), [x.float() for x in samples(2)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = Siamese(SimilarityHead(3))(net, (*xs, SIMILAR))
        z1, z2 = net(torch.cat(xs)).float().chunk(2)
    assert value.dtype == torch.float32
    assert_close(value, SimilarityHead(3)(z1, z2, SIMILAR), rtol=1e-6, atol=0)
