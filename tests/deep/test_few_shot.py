"""Episodic objectives against their equations written out: prototypes, two steps (D53), scales (D54), scores (D55)."""

from __future__ import annotations

import copy
import math
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset

from isometry.deep import (
    MLP,
    Angular,
    BatchHard,
    ContinuousScores,
    Contrastive,
    ConvNet,
    EasyPositiveNCA,
    Episode,
    EpisodeSampler,
    FeaturePyramid,
    Lifted,
    LinearMap,
    MultiScale,
    NCALoss,
    NPair,
    Prototypes,
    SoftTriple,
    TableDataset,
    Trainer,
    Triplet,
    TwoStep,
    episode_loader,
    episode_scorer,
)
from isometry.deep.functional import get_distance
from isometry.deep.objectives.prototypes import class_means
from isometry.eval import few_shot
from tests.deep.processes import results_of_two

torch.set_num_threads(1)
MODES = ("maml", "fomaml", "sequential")


def episode(seed=0, c=3, k=2, q=4, shape=(5,), dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    ys, yq = torch.arange(c).repeat_interleave(k), torch.arange(c).repeat_interleave(q)
    centre = torch.randn(c, *shape, generator=g, dtype=dtype)
    noise = [0.5 * torch.randn(len(y), *shape, generator=g, dtype=dtype) for y in (ys, yq)]
    return Episode(centre[ys] + noise[0], ys, centre[yq] + noise[1], yq, torch.arange(c))


def network(seed=0, d=5, p=3):
    torch.manual_seed(seed)
    return MLP(d, p, hidden=(6,)).double()


def states(model):
    return [p.detach().clone() for p in model.parameters()]


def gradients(objective, model, batch):
    model.zero_grad()
    value = objective(model, batch)
    value.backward()
    return value.detach(), [p.grad.clone() for p in model.parameters()]


# -- prototypes --------------------------------------------------------------------------------------------------------


def slow_prototypes(zs, ys, zq, yq, tau=1.0):
    """−mean log softmax of −‖z_q − μ_l‖²/τ, one query and one class at a time."""
    total = 0.0
    for z, label in zip(zq.detach(), yq):
        weights = []
        for c in sorted(set(ys.tolist())):
            members = [s for s, y in zip(zs.detach(), ys) if y == c]
            weights.append(math.exp(-float((z - sum(members) / len(members)).square().sum()) / tau))
        total -= math.log(weights[label] / sum(weights))
    return total / len(zq)


@pytest.mark.parametrize("tau", [1.0, 2.5])
def test_prototypes_against_loops(tau):
    e, model = episode(), network()
    expected = slow_prototypes(model(e.xs), e.ys, model(e.xq), e.yq, tau)
    assert float(Prototypes(tau)(model, e).detach()) == pytest.approx(expected, rel=1e-10)


def test_prototypes_of_several_episodes_are_their_mean():
    model, objective = network(), Prototypes()
    batch = [episode(seed) for seed in range(3)]
    assert_close(objective(model, batch), sum(objective(model, e) for e in batch) / 3)


def test_prototypes_depend_neither_on_order_nor_on_class_names():
    e, model, objective = episode(), network(), Prototypes()
    mix = torch.randperm(len(e.xs), generator=torch.Generator().manual_seed(0))
    rename = torch.tensor([2, 0, 1])
    other = Episode(e.xs[mix], rename[e.ys[mix]], e.xq, rename[e.yq], e.classes)
    assert_close(objective(model, other), objective(model, e))


def test_prototypes_gradcheck_twice():
    """Two-step training differentiates the loss of the support twice."""
    e = episode(c=2, k=2, q=2, shape=(3,))
    inputs = (e.xs.requires_grad_(), e.xq.requires_grad_())
    for objective in (Prototypes(0.7), Prototypes(normalize=True)):
        loss = lambda s, q, objective=objective: objective.loss(s, e.ys, q, e.yq)  # noqa: E731
        assert torch.autograd.gradcheck(loss, inputs)
        assert torch.autograd.gradgradcheck(loss, inputs)


def test_prototypes_on_the_sphere():
    e, model = episode(), network()
    zs, zq = (F.normalize(model(x), dim=1) for x in (e.xs, e.xq))
    expected = slow_prototypes(zs, e.ys, zq, e.yq, 0.1)
    assert float(Prototypes(0.1, normalize=True)(model, e).detach()) == pytest.approx(expected, rel=1e-10)


def test_half_precision_is_raised():
    e = episode(dtype=torch.float32)
    half = e._replace(xs=e.xs.bfloat16(), xq=e.xq.bfloat16())
    raised = e._replace(xs=half.xs.float(), xq=half.xq.float())
    value = Prototypes()(nn.Identity(), half)
    assert value.dtype == torch.float32
    assert torch.equal(value, Prototypes()(nn.Identity(), raised))


# -- D53: two steps ----------------------------------------------------------------------------------------------------


class Scalar(nn.Module):
    """θ for every sample."""

    def __init__(self, theta):
        super().__init__()
        self.theta = nn.Parameter(torch.tensor(theta, dtype=torch.float64))

    def forward(self, x):
        return self.theta.expand(len(x))


def quadratic(z, y):
    """½ a (θ − c)², with (a, c) in place of labels."""
    return y[0] * (z.mean() - y[1]) ** 2 / 2


QUADRATICS = Episode(torch.zeros(1), torch.tensor([2.0, 1.0]), torch.zeros(1), torch.tensor([3.0, -1.0]), None)


@pytest.mark.parametrize("mode, expected", [("maml", 3.84), ("fomaml", 4.8), ("sequential", 4.8)])
def test_d53_1_quadratics(mode, expected):
    """D53 (1): θ = .5 → θ′ = .6; dθ′/dθ = 1 − α a_s = .8, so that maml has 4.8 · .8."""
    model, step = Scalar(0.5), TwoStep(quadratic, mode, inner_lr=0.1, inner_steps=1)
    assert step.adapt(model, QUADRATICS.xs, QUADRATICS.ys).theta.item() == pytest.approx(0.6, abs=1e-12)
    value, (slope,) = gradients(step, model, QUADRATICS)
    assert float(value) == pytest.approx(1.5 * 1.6**2, rel=1e-12)
    assert float(slope) == pytest.approx(expected, rel=1e-12)
    assert model.theta.item() == pytest.approx(0.6 if mode == "sequential" else 0.5, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_d53_1_quadratics_after_more_steps(steps):
    """θ′ = c + (1 − α a)ᵏ (θ − c), and its slope is (1 − α a)ᵏ."""
    shrink = 0.8**steps
    theta = 1 - 0.5 * shrink
    for mode, factor in (("maml", shrink), ("fomaml", 1.0)):
        step = TwoStep(quadratic, mode, inner_lr=0.1, inner_steps=steps)
        _, (slope,) = gradients(step, Scalar(0.5), QUADRATICS)
        assert float(slope) == pytest.approx(3 * (theta + 1) * factor, rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_d53_2_no_step_is_the_query_loss(mode):
    """D53 (2): α = 0 → the gradient of the query loss at θ."""
    e, model = episode(), network()
    value, slopes = gradients(TwoStep(mode=mode, inner_lr=0.0), model, e)
    expected, wanted = gradients(Prototypes(), model, e)
    assert_close(value, expected)
    assert_close(slopes, wanted)


def test_d53_3_first_order_is_exact_for_a_linear_support_loss():
    """D53 (3): the step is then the same wherever θ is; for a curved loss the two differ."""
    e, model = episode(), LinearMap(5, 3).double()

    def linear_in_support(z, y):
        return z.sum() if len(y) == len(e.ys) else z.square().sum()

    for loss, equal in ((linear_in_support, True), (None, False)):
        _, full = gradients(TwoStep(loss, "maml", inner_lr=0.1, inner_steps=2), model, e)
        _, first = gradients(TwoStep(loss, "fomaml", inner_lr=0.1, inner_steps=2), model, e)
        assert torch.allclose(full[0], first[0], rtol=1e-10) is equal


@pytest.mark.parametrize("mode", ["maml", "fomaml"])
def test_d53_4_parameters_are_unchanged(mode):
    """D53 (4): the inner loop and adapting leave θ alone."""
    e, model = episode(), network()
    before, step = states(model), TwoStep(mode=mode, inner_lr=0.5)
    step(model, [e, episode(1)]).backward()
    twin = step.adapt(model, e.xs, e.ys)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert not all(torch.equal(a, b) for a, b in zip(before, twin.parameters()))


def slow_two_step(model, e, alpha, steps, exact):
    """The two-step update of a perceptron, by hand: weights as plain tensors, its passes written out."""
    theta = [p.detach().clone().requires_grad_() for p in model.parameters()]

    def embed(x, w):
        return (x @ w[0].T + w[1]).relu() @ w[2].T + w[3]

    def classify(z, zs, y):
        d = (z[:, None] - torch.stack([zs[e.ys == c].mean(0) for c in range(3)])).square().sum(2)
        return F.cross_entropy(-d, y)

    w = theta
    for _ in range(steps):
        z = embed(e.xs, w)
        loss = classify(z, z, e.ys)
        slopes = torch.autograd.grad(loss, w, create_graph=exact)
        w = [p - alpha * g for p, g in zip(w, slopes)]
    loss = classify(embed(e.xq, w), embed(e.xs, w), e.yq)
    return loss.detach(), torch.autograd.grad(loss, theta), [p.detach() for p in w]


@pytest.mark.parametrize("mode", ["maml", "fomaml"])
def test_d53_equals_the_update_written_by_hand(mode):
    batch, model = [episode(seed, k=3) for seed in range(2)], network()
    step = TwoStep(mode=mode, inner_lr=0.05, inner_steps=3)
    value, slopes = gradients(step, model, batch)
    by_hand = [slow_two_step(model, e, 0.05, 3, mode == "maml") for e in batch]
    assert_close(value, (by_hand[0][0] + by_hand[1][0]) / 2)
    for ours, a, b in zip(slopes, by_hand[0][1], by_hand[1][1]):
        assert_close(ours, (a + b) / 2, rtol=1e-7, atol=1e-9)
    assert_close(states(step.adapt(model, batch[0].xs, batch[0].ys)), by_hand[0][2])


def test_d53_sequential_is_two_plain_steps():
    """Weights end at θ − α ∇L_s(θ) − η ∇L_q(θ′), with the mean losses of the supports and of the queries of a batch."""
    batch, model = [episode(0), episode(1)], network()
    plain, objective = copy.deepcopy(model), Prototypes()
    for lr, part in ((0.1, "support"), (0.03, "query")):
        optimizer = torch.optim.SGD(plain.parameters(), lr=lr)
        optimizer.zero_grad()
        whole = [e if part == "query" else e._replace(xq=e.xs, yq=e.ys) for e in batch]
        objective(plain, whole).backward()
        optimizer.step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    TwoStep(mode="sequential", inner_lr=0.1, inner_steps=1)(model, batch).backward()
    optimizer.step()
    assert_close(states(model), states(plain))


def test_d53_with_a_classifier_and_with_frozen_layers():
    e, model = episode(c=3, k=4), network()
    model.layers[0].requires_grad_(False)
    step = TwoStep(F.cross_entropy, inner_lr=0.1, inner_steps=20)
    before = F.cross_entropy(model(e.xs), e.ys)
    twin = step.adapt(model, e.xs, e.ys)
    assert F.cross_entropy(twin(e.xs), e.ys) < before - 0.15
    assert torch.equal(twin.layers[0].weight, model.layers[0].weight)
    step(model, e).backward()
    assert model.layers[0].weight.grad is None
    assert model.layers[2].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("mode", ["fomaml", "sequential"])
def test_d53_takes_a_metric_loss(mode):
    e, model = episode(), network()
    loss = Contrastive(margin=2.0)
    value = TwoStep(loss, mode, inner_lr=0.0)(model, e)
    assert_close(value, loss(model(e.xq), e.yq))


class OneDerivative(torch.autograd.Function):
    """½‖z‖² whose gradient torch takes for a constant."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z.square().sum() / 2

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_d53_losses_of_one_derivative_say_so():
    e, model = episode(), network()
    loss = lambda z, y: OneDerivative.apply(z)  # noqa: E731
    gradients(TwoStep(loss, "fomaml"), model, e)
    with pytest.raises(ValueError, match="OneDerivative, which can be differentiated only once; take mode='fomaml'"):
        gradients(TwoStep(loss, "maml"), model, e)


def hinge(z, y):
    """A contrastive loss of the library's distances, which have a backward of their own."""
    D, same = get_distance("euclidean")(z, z), y[:, None] == y
    return torch.where(same, D, (2 - D).relu()).square().mean()


METRIC = {
    "Triplet": lambda: Triplet(2.0),
    "Triplet, batch-hard": lambda: Triplet(2.0, miner=BatchHard()),
    "Triplet, soft": lambda: Triplet("soft"),
    "Contrastive": lambda: Contrastive(2.0),
    "NCALoss": lambda: NCALoss(),
    "EasyPositiveNCA": lambda: EasyPositiveNCA(negatives="all"),
    "SoftTriple": lambda: SoftTriple(3, 3, 2, la=2.0),
    "Lifted": lambda: Lifted(),
    "NPair": lambda: NPair(),
    "Angular": lambda: Angular(),
}


@pytest.mark.parametrize("loss", [None, F.cross_entropy, hinge, *METRIC])
def test_d53_meta_gradient_is_the_slope_of_its_value(loss):
    """Finite differences through the inner steps."""
    torch.manual_seed(0)
    e, model = episode(), LinearMap(5, 3).double()
    loss = METRIC[loss]().double() if isinstance(loss, str) else loss
    step = TwoStep(loss, inner_lr=0.05, inner_steps=2)
    value, (slope,) = gradients(step, model, e)
    way = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    ends = []
    for sign in (1, -1):
        other = copy.deepcopy(model)
        other.weight.data += sign * 1e-6 * way
        ends.append(float(step(other, e).detach()))
    assert float(value) > 0
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((slope * way).sum()), rel=1e-5)


def test_d53_adapts_under_no_grad_and_improves_the_support():
    e, model, step = episode(k=5), network(), TwoStep(inner_lr=0.1)
    with torch.no_grad():
        twin = step.adapt(model, e.xs, e.ys)
    support = e._replace(xq=e.xs, yq=e.ys)
    assert Prototypes()(twin, support) < Prototypes()(model, support)


def test_d53_step_that_is_not_finite_moves_nothing():
    e, model = episode(), network()
    bad, before = e._replace(xs=torch.full_like(e.xs, math.nan)), states(model)
    value = TwoStep(mode="sequential")(model, bad)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert value.isnan()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TwoStep(mode="reptile"), "'maml', 'fomaml' or 'sequential'"),
        (lambda: TwoStep(inner_steps=0), "inner_steps"),
        (lambda: Prototypes(0.0), "temperature"),
        (lambda: TwoStep()(nn.Sequential(nn.BatchNorm1d(5)), episode()), "track_running_stats=False"),
    ],
)
def test_d53_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- D54: several scales -----------------------------------------------------------------------------------------------


def pyramid(seed=0, shape=(1, 8, 8), **params):
    torch.manual_seed(seed)
    return FeaturePyramid(shape, 8, **params).double()


def multi_scale(seed=1, depths=(1, 2, 3), **params):
    torch.manual_seed(seed)
    return MultiScale(8, depths, **params).double()


IMAGES = {"shape": (1, 8, 8)}


def test_d54_pyramid_shapes_and_way_down():
    """Fine maps see the coarse ones, which see nothing of the fine."""
    model, x = pyramid(), torch.randn(2, 1, 8, 8, dtype=torch.float64)
    maps = model(x)
    assert [tuple(m.shape) for m in maps] == [(2, 8, 4, 4), (2, 8, 2, 2), (2, 8, 1, 1)]
    assert_close(model(x.flatten(1)), maps)
    below = [x]
    for block in model.backbone:
        below.append(block(below[-1]))
    for level in range(3):  # p_l = Σ_{k ≥ l} lateral_k(c_k), each coarser one repeated to the size
        p = sum(
            model.lateral[k](below[k + 1]).repeat_interleave(2 ** (k - level), 2).repeat_interleave(2 ** (k - level), 3)
            for k in range(level, 3)
        )
        assert_close(maps[level], model.smooth[level](p))


def test_d54_pyramid_over_layers_of_a_network():
    torch.manual_seed(0)
    net = ConvNet((1, 12, 12), 4, width=8, blocks=2)  # a block is seven layers, and ends by halving
    model = FeaturePyramid((1, 12, 12), 16, backbone=net, layers=["layers.6", "layers.13"])
    maps = model(torch.randn(3, 1, 12, 12))
    assert [tuple(m.shape) for m in maps] == [(3, 16, 6, 6), (3, 16, 3, 3)]
    assert [m.in_channels for m in model.lateral] == [8, 16]
    assert not any(m._forward_hooks for m in net.modules())


def slow_relation(objective, model, e):
    """Scores of one query and one class at a time, their maps stacked: the convolution over both."""
    r = torch.empty(len(e.xq), int(e.ys.max()) + 1, dtype=torch.float64)
    for q, x in enumerate(e.xq):
        for c in range(r.shape[1]):
            seen = []
            for level, net in enumerate(objective.relations):
                mu = torch.stack([model(s[None])[level][0] for s, y in zip(e.xs, e.ys) if y == c]).mean(0)
                stacked = torch.cat([model(x[None])[level][0], mu])[None]  # (1, 2C, h, w)
                kernel = torch.cat([net.of_query.weight, net.of_class.weight], 1)
                seen.append(net.layers(F.conv2d(stacked, kernel, padding=1)).mean((2, 3)))
            r[q, c] = objective.head(torch.cat(seen, 1)).squeeze()
    return r


def slow_relation_loss(r, y, margin, lam):
    entropy = sum(torch.logsumexp(row, 0) - row[label] for row, label in zip(r, y)) / len(r)
    hinge = [
        max(0.0, float(row[c] - row[label] + margin)) for row, label in zip(r, y) for c in range(len(row)) if c != label
    ]
    return float(entropy) + lam * sum(hinge) / len(hinge)


@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_d54_against_loops(lam):
    e, model, objective = episode(**IMAGES), pyramid(), multi_scale(lam=lam, margin=0.05, queries_at_once=5)
    r = slow_relation(objective, model, e)
    assert_close(objective.score(model, e.xs, e.ys, e.xq), r)
    assert r.std(1).mean() > 1e-3, "the scores of this test must differ"
    expected = slow_relation_loss(r.detach(), e.yq, 0.05, lam)
    assert float(objective(model, e).detach()) == pytest.approx(expected, rel=1e-10)


def test_d54_1_equal_support_images_are_their_prototype():
    """D54 (1)."""
    e, model, objective = episode(k=1, **IMAGES), pyramid(), multi_scale()
    thrice = objective.score(model, e.xs.repeat_interleave(3, 0), e.ys.repeat_interleave(3), e.xq)
    assert_close(thrice, objective.score(model, e.xs, e.ys, e.xq))
    maps = model(e.xs)
    for m in maps:
        assert_close(class_means(m.repeat_interleave(3, 0), e.ys.repeat_interleave(3)), m)


def test_d54_2_permuting_classes_permutes_columns():
    """D54 (2)."""
    e, model, objective = episode(**IMAGES), pyramid(), multi_scale()
    rename = torch.tensor([2, 0, 1])
    r, renamed = objective.score(model, e.xs, e.ys, e.xq), objective.score(model, e.xs, rename[e.ys], e.xq)
    assert_close(renamed[:, rename], r)
    assert_close(objective.loss(renamed, rename[e.yq]), objective.loss(r, e.yq))


def test_d54_3_equal_scores():
    """D54 (3): CE = log c and the hinge is m."""
    r, y = torch.full((4, 3), 1.7), torch.tensor([0, 2, 1, 1])
    assert float(MultiScale(8, lam=0.0).loss(r, y)) == pytest.approx(math.log(3), rel=1e-6)
    assert float(MultiScale(8, lam=2.0, margin=0.3).loss(r, y)) == pytest.approx(math.log(3) + 2 * 0.3, rel=1e-6)


def test_d54_4_one_scale_is_a_relation_network():
    """D54 (4): one level and λ = 0: convolutions of the stacked maps, mean, perceptron, cross-entropy."""
    e, model, objective = episode(**IMAGES), pyramid(levels=1), multi_scale(depths=(2,), lam=0.0)
    r = slow_relation(objective, model, e)
    assert_close(objective(model, e), F.cross_entropy(r, e.yq))


def test_d54_pairs_are_classes_of_one():
    e, model, objective = episode(k=1, q=1, **IMAGES), pyramid(), multi_scale()
    pairs = objective.score_pairs(model, e.xq, e.xs)
    assert_close(pairs, objective.score(model, e.xs, e.ys, e.xq).diagonal())


def test_d54_loss_gradcheck():
    r = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    y = torch.tensor([0, 1, 2, 0, 1])
    assert torch.autograd.gradcheck(lambda r: MultiScale(8).loss(r, y), (r,))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: multi_scale()(network(), episode()), "3 maps"),
        (lambda: multi_scale(depths=(1,))(pyramid(), episode(**IMAGES)), "it gave 3 maps"),
        (lambda: MultiScale(12), "eights"),
        (lambda: FeaturePyramid((1, 6, 6), 8), "cannot be halved 3 times"),
        (lambda: FeaturePyramid((1, 6, 6), 8, layers=["a"]), "go together"),
        (lambda: FeaturePyramid((1, 6, 6), 8, backbone=nn.Identity(), layers=["a"]), "no layer a"),
        (lambda: FeaturePyramid((6, 6), 8), "height"),
        (lambda: FeaturePyramid((1, 8, 8), 12), "multiple of 8"),
    ],
)
def test_d54_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# -- D55: continuous scores --------------------------------------------------------------------------------------------


def scores_of(seed=0, **params):
    torch.manual_seed(seed)
    return ContinuousScores(3, 4, **params).double()


def slow_scores(objective, z, other):
    """The convolution with kernels over both vectors, one relation and one coordinate at a time."""
    conv, s = objective.relation[0], []
    for u, v in zip(z, other):

        def relations(a, b):
            return torch.stack([w[0, 0] * a + w[1, 0] * b + c for w, c in zip(conv.weight, conv.bias)]).relu().flatten()

        r = (relations(u, v) + relations(v, u)) / 2 if objective.symmetric else relations(u, v)
        s.append(objective.scorer(r[None]).sigmoid().squeeze())
    return torch.stack(s)


def slow_loss(objective, z, other, similar):
    """First labels, a step of them, and the regression of the scores, one pair at a time."""
    a, b = objective.alpha, objective.beta
    largest = max(float((u - v).square().sum()) for u, v in zip(z, other))
    total = 0.0
    for u, v, same, s in zip(z, other, similar.tolist(), slow_scores(objective, z, other).tolist()):
        d = float((u - v).square().sum()) / largest
        y = (b - 1) * d + 1 if same else -a * d + a
        y -= objective.eta * objective.lam * 2 * (y - s)
        y = min(max(y, b), 1.0) if same else min(max(y, 0.0), a)
        total += (s - y) ** 2 + objective.mu * max(0.0, b - s if same else s - a) ** 2
    return total / len(z)


@pytest.mark.parametrize("symmetric", [True, False])
def test_d55_against_loops(symmetric):
    model, objective = network(), scores_of(symmetric=symmetric, eta=0.4, mu=0.3)
    e = episode(q=3)
    x, y = e.xq, e.yq
    i, j = torch.triu_indices(len(x), len(x), 1)
    z = model(x).detach()
    expected = slow_loss(objective, z[i], z[j], y[i] == y[j])
    for batch in ((x, y), (x[i], x[j], y[i] == y[j]), (x[i], x[j], (y[i] == y[j]).long())):
        assert float(objective(model, batch).detach()) == pytest.approx(expected, rel=1e-10)
    assert_close(objective.score_pairs(model, x[i], x[j]), slow_scores(objective, model(x)[i], model(x)[j]))


def test_d55_episodes_pair_support_and_query():
    e, model, objective = episode(), network(), scores_of()
    zs, zq = model(e.xs), model(e.xq)
    pairs = [(q, s) for q in range(len(zq)) for s in range(len(zs))]
    q, s = torch.tensor(pairs).T
    expected = slow_loss(objective, zq[q].detach(), zs[s].detach(), e.yq[q] == e.ys[s])
    assert float(objective(model, e).detach()) == pytest.approx(expected, rel=1e-10)
    table = objective.score(model, e.xs, e.ys, e.xq)
    by_hand = slow_scores(objective, zq[q], zs[s]).view(len(zq), len(zs))
    for c in range(3):
        assert_close(table[:, c], by_hand[:, e.ys == c].mean(1))


def test_d55_symmetric_scores():
    z, other = torch.randn(2, 6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(scores_of().scores(z, other), scores_of().scores(other, z))
    one_sided = scores_of(symmetric=False)
    assert not torch.allclose(one_sided.scores(z, other), one_sided.scores(other, z))


def test_d55_1_ends_of_the_first_labels():
    """D55 (1): d = 0 → 1 or α, d = 1 → β or 0; ¼ of the way in between; a pair alone begins at the extreme."""
    objective = ContinuousScores(1, alpha=0.2, beta=0.7)
    z, other = torch.zeros(6, 1), torch.tensor([[0.0], [0.0], [2.0], [2.0], [1.0], [1.0]])
    similar = torch.tensor([True, False] * 3)
    expected = torch.tensor([1.0, 0.2, 0.7, 0.0, 0.925, 0.15])
    assert_close(objective.labels(z, other, similar), expected)
    assert_close(objective.labels(z[2:3], other[2:3], similar[:1]), torch.tensor([1.0]))
    assert_close(objective.labels(z[:2], other[:2], similar[:2]), torch.tensor([1.0, 0.2]))


def test_d55_2_labels_stay_in_their_interval():
    """D55 (2): after any number of label steps towards any scores; and they get to the scores that are inside."""
    objective = ContinuousScores(1, eta=0.5, lam=0.9)
    g = torch.Generator().manual_seed(0)
    similar = torch.arange(20) % 2 == 0
    y = torch.where(similar, torch.tensor(1.0), torch.tensor(0.0))
    for _ in range(30):
        y = objective.label_step(y, torch.rand(20, generator=g), similar)
        assert (y[similar] >= 0.8).all() and (y <= 1).all()
        assert (y[~similar] <= 0.2).all() and (y >= 0).all()
    s = torch.where(similar, torch.tensor(0.93), torch.tensor(0.5))
    for _ in range(30):
        y = objective.label_step(y, s, similar)
    assert_close(y, torch.where(similar, torch.tensor(0.93), torch.tensor(0.2)))


def test_d55_3_nothing_to_do():
    """D55 (3): s = y′ inside its interval → loss, gradient and label step are 0."""
    objective, similar = ContinuousScores(1), torch.tensor([True, False])
    s = torch.tensor([0.9, 0.1], requires_grad=True)
    y = s.detach().clone()
    loss = objective.loss(s, y, similar)
    loss.backward()
    assert loss.item() == 0 and torch.equal(s.grad, torch.zeros(2))
    assert torch.equal(objective.label_step(y, s, similar), y)


@pytest.mark.parametrize("off", [{"lam": 0.0}, {"eta": 0.0}])
def test_d55_4_plain_regression(off):
    """D55 (4): λ = 0 → regression on labels that stay as they begin."""
    model, objective = network(), scores_of(mu=0.0, n_pairs=6, **off)
    e = episode(k=2, q=2)
    ids, similar = torch.arange(6), torch.tensor([True, False] * 3)
    first = objective.labels(model(e.xs), model(e.xq), similar)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.5)
    for _ in range(4):
        s = objective.score_pairs(model, e.xs, e.xq)
        loss = objective(model, (e.xs, e.xq, similar, ids))
        assert_close(loss, (s - first).square().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_close(objective.soft, first)


def test_d55_labels_are_kept_by_pair():
    """A pair moves on from where it was left, in whatever batch it comes; in eval mode nothing is kept."""
    model, objective = network(), scores_of(n_pairs=5, eta=0.3)
    e = episode(k=1, q=1, c=3)
    similar, ids = torch.tensor([True, False, True]), torch.tensor([4, 0, 2])
    y = objective.labels(model(e.xs), model(e.xq), similar)
    s = objective.score_pairs(model, e.xs, e.xq).detach()
    objective.eval()(model, (e.xs, e.xq, similar, ids))
    assert objective.soft.isnan().all()
    objective.train()
    for _ in range(3):
        objective(model, (e.xs, e.xq, similar, ids))
        y = objective.label_step(y, s, similar)
        assert_close(objective.soft[ids], y)
    assert objective.soft[[1, 3]].isnan().all()
    objective(model, (e.xs[:1], e.xq[:1], similar[:1], ids[:1]))
    assert_close(objective.soft[4], objective.label_step(y, s, similar)[0])


def test_d55_labels_have_no_gradient():
    """The network moves on (s − y′)² with y′ held, although first labels come from its embeddings."""
    e, model, objective = episode(q=3), network(), scores_of()
    value, slopes = gradients(objective, model, (e.xq, e.yq))
    i, j = torch.triu_indices(len(e.xq), len(e.xq), 1)
    z = model(e.xq)
    similar = e.yq[i] == e.yq[j]
    s = objective.scores(z[i], z[j])
    y = objective.label_step(objective.labels(z[i], z[j], similar), s, similar).clone()
    expected = ((s - y) ** 2 + torch.where(similar, 0.8 - s, s - 0.2).clamp_min(0) ** 2).mean()
    assert_close(value, expected.detach())
    assert_close(slopes, list(torch.autograd.grad(expected, list(model.parameters()))))


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: ContinuousScores(3, alpha=0.8, beta=0.2), "alpha < beta"),
        (lambda: ContinuousScores(3, eta=2.0), "eta"),
        (lambda: scores_of()(network(), (*2 * [torch.zeros(2, 5).double()], *2 * [torch.ones(2).long()])), "n_pairs"),
        (lambda: scores_of(n_pairs=2)(network(), (*2 * [torch.zeros(2, 5).double()], torch.ones(2))), "n_pairs"),
    ],
)
def test_d55_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_d55_batch_of_one_has_no_pairs():
    value, _ = gradients(scores_of(), network(), (torch.ones(1, 5).double(), torch.tensor([0])))
    assert float(value) == 0


# -- with the trainer, and measured ------------------------------------------------------------------------------------


def labelled_samples(seed=0, n_classes=8, per_class=12, d=6):
    """Classes differ in the first three features, and three more are noise of large variance."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_classes * per_class) % n_classes
    signal = 2 * rng.standard_normal((n_classes, 3))[y] + 0.4 * rng.standard_normal((len(y), 3))
    return np.concatenate([signal, 3 * rng.standard_normal((len(y), d - 3))], 1).astype(np.float32), y


OBJECTIVES = {
    "Prototypes": lambda: Prototypes(),
    "maml": lambda: TwoStep(inner_lr=0.05, inner_steps=2),
    "fomaml": lambda: TwoStep(mode="fomaml", inner_lr=0.05, inner_steps=2),
    "sequential": lambda: TwoStep(mode="sequential", inner_lr=0.01, inner_steps=1),
    "ContinuousScores": lambda: ContinuousScores(4),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_trained_on_some_classes_it_classifies_others_better(name):
    X, y = labelled_samples()
    held_X, held_y = labelled_samples(seed=5)
    torch.manual_seed(0)
    model, objective = LinearMap(6, 4), OBJECTIVES[name]()
    loader = episode_loader(X, y, n_way=4, k_shot=2, k_query=5, episodes=40)
    trainer = Trainer(model, objective, lr=0.02, max_epochs=3, accumulate=2)
    trainer.fit(loader)
    assert trainer.history["loss"][-1] < 0.8 * trainer.history["loss"][0]
    sizes = {"n_way": 4, "k_shot": 2, "n_query": 5, "episodes": 60}
    raw = few_shot(held_X, held_y, **sizes).mean
    learned = few_shot(held_X, held_y, **sizes, score=episode_scorer(objective, model)).mean
    assert learned > raw + 0.08


def test_multi_scale_trains():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 6
    X = (rng.standard_normal((6, 8, 8))[y] + 0.5 * rng.standard_normal((60, 8, 8))).astype(np.float32)
    torch.manual_seed(0)
    model, objective = FeaturePyramid((1, 8, 8), 8, 2), MultiScale(8, (1, 2))
    loader = episode_loader(X, y, n_way=3, k_shot=2, k_query=4, episodes=20)
    trainer = Trainer(model, objective, lr=5e-3, max_epochs=3).fit(loader)
    assert trainer.history["loss"][-1] < 0.6 * trainer.history["loss"][0]
    result = few_shot(X, y, 3, 2, 4, 20, score=episode_scorer(objective, model))
    assert result.mean > 0.8


def test_a_meta_batch_is_accumulated():
    """Trainer(accumulate=3) takes the mean gradient of three episodes: one step with a list of them."""
    X, y = labelled_samples()
    torch.manual_seed(0)
    model = LinearMap(6, 4)
    twin = copy.deepcopy(model)
    step = TwoStep(inner_lr=0.05, inner_steps=2)
    loader = episode_loader(X, y, n_way=3, k_shot=1, k_query=2, episodes=3, random_state=4)
    trainer = Trainer(
        model, step, optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="constant", max_epochs=1, accumulate=3
    )
    trainer.fit(loader)
    sampler = EpisodeSampler(y, 3, 1, 2, 3, random_state=4)
    table = TableDataset(X, y)
    batch = [sampler.collate([table[row] for row in rows]) for rows in sampler]
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    step(twin, batch).backward()
    optimizer.step()
    assert_close(model.weight, twin.weight)


def test_scorer_is_in_eval_mode_and_restores_it():
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5))
    X, y = labelled_samples()
    score = episode_scorer(Prototypes(), model)
    args = (X[:3], np.arange(3), X[3:9].astype(np.float64))
    assert np.array_equal(score(*args), score(*args))
    assert model.training
    few = few_shot(X, y, 4, 2, 5, 30, score=score)
    z = model.eval()(torch.from_numpy(X)).detach().numpy()
    assert few.mean == pytest.approx(few_shot(z, y, 4, 2, 5, 30).mean, abs=0.005)


class FixedPairs(Dataset):
    """Pairs with an id each."""

    def __init__(self, X, y, pairs):
        self.X, self.y, self.pairs = torch.as_tensor(X), y, pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        i, j = self.pairs[k]
        return self.X[i], self.X[j], int(self.y[i] == self.y[j]), k


def test_kept_labels_are_saved_and_resumed(tmp_path):
    X, y = labelled_samples()
    pairs = np.random.default_rng(0).integers(len(X), size=(40, 2))

    def trainer(epochs, folder):
        torch.manual_seed(0)
        objective = ContinuousScores(4, n_pairs=40)
        return Trainer(LinearMap(6, 4), objective, max_epochs=epochs, schedule="constant", folder=folder)

    def loader():
        generator = torch.Generator()
        return DataLoader(FixedPairs(X, y, pairs), batch_size=8, shuffle=True, generator=generator)

    whole = trainer(4, tmp_path / "whole").fit(loader())
    trainer(2, tmp_path / "parts").fit(loader())
    resumed = trainer(4, tmp_path / "parts").fit(loader(), resume=True)
    assert not whole.objective.soft.isnan().any()
    assert torch.equal(whole.objective.soft, resumed.objective.soft)
    assert torch.equal(whole.model.weight, resumed.model.weight)


def two_step_weights(mode):
    torch.manual_seed(0)
    model, loader = LinearMap(6, 4), episode_loader(*labelled_samples(), n_way=3, k_shot=1, k_query=2, episodes=3)
    step = TwoStep(mode=mode, inner_lr=0.05, inner_steps=2)
    Trainer(model, step, lr=0.05, max_epochs=1, device="cpu").fit(loader)
    return model.weight.detach()


def distributed_main(folder):
    """What each of the processes runs."""
    torch.save({mode: two_step_weights(mode) for mode in MODES}, f"{folder}/rank{os.environ['RANK']}.pt")


def test_two_processes_share_the_tasks(tmp_path):
    """Each process has episodes of its own; a step takes the mean gradient over them all, and weights stay equal."""
    ranks = results_of_two("tests.deep.test_few_shot", tmp_path)
    X, y = labelled_samples()
    table = TableDataset(X, y)
    plans = [EpisodeSampler(y, 3, 1, 2, 3, rank=rank, world_size=2) for rank in (0, 1)]
    episodes = [[plan.collate([table[row] for row in rows]) for rows in plan] for plan in plans]
    for mode in MODES:
        torch.manual_seed(0)
        model = LinearMap(6, 4)
        step = TwoStep(mode=mode, inner_lr=0.05, inner_steps=2)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=1e-4)
        for t, batch in enumerate(zip(*episodes)):
            optimizer.param_groups[0]["lr"] = 0.05 * (1 + math.cos(math.pi * t / 3)) / 2
            optimizer.zero_grad()
            step(model, batch).backward()
            optimizer.step()
        for rank in ranks:
            assert_close(rank[mode], model.weight.detach(), rtol=1e-4, atol=1e-6)
