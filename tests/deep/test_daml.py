"""Deep adversarial metric learning (D30): two players, one scalar."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    DAML,
    MLP,
    BatchHard,
    DeepMetric,
    EasyPositive,
    LinearMap,
    NCALoss,
    NPair,
    ProxyNCA,
    Trainer,
    Triplet,
)
from isometry.deep.objectives.daml import Frozen
from isometry.eval import retrieval
from tests.deep.batches import batch

torch.set_num_threads(1)


class Constant(nn.Module):
    """A generator that returns a part of the triplet: 0 the anchor, 1 the positive, 2 the negative; plus a shift."""

    def __init__(self, part, shift=0.0):
        super().__init__()
        self.part, self.shift = part, nn.Parameter(torch.tensor(float(shift), dtype=torch.float64))

    def forward(self, triplets):
        return triplets.chunk(3, 1)[self.part] + self.shift


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def objective(seed=0, **params):
    torch.manual_seed(seed)
    return DAML(**{"generator": 5, "pretrain_steps": 0, **params}).double()


def gradients(value, *modules):
    for module in modules:
        module.zero_grad()
    value.backward()
    return [[None if p.grad is None else p.grad.clone() for p in module.parameters()] for module in modules]


def total(parts):
    return sum(0.0 if g is None else float(g.abs().sum()) for g in parts)


def slow_losses(daml, net, x, triples):
    """The two losses by loops over the triplets, as functions of everything: nothing is detached."""
    f, alpha = net[-1], daml.margin
    hard, metric = [], []
    for a, p, n in zip(*triples):
        h, hp, hn = (net[:-1](x[k][None])[0] for k in (a, p, n))
        made = daml.generator(torch.cat([h, hp, hn])[None])[0]
        d_fake, d_pos = (f(made) - f(h)).square().sum(), (f(hp) - f(h)).square().sum()
        adversarial = torch.relu(d_fake - d_pos - alpha)
        hard.append((made - h).square().sum() + daml.lam1 * (made - hn).square().sum() + daml.lam2 * adversarial)
        metric.append(torch.relu(d_pos - d_fake + alpha))
    return sum(hard) / len(hard), sum(metric) / len(metric)


def drawn(daml, net, x, y):
    """The triplets that the next call will draw."""
    with torch.no_grad():
        return copy.deepcopy(daml).triples(net(x), y)


# -- the equations -----------------------------------------------------------------------------------------------------


def test_value_and_both_gradients_by_loops():
    """The generator gets exactly ∇L_gen, the model exactly λ∇L_metric, and nothing else."""
    net, daml, (x, y) = model(), objective(lam1=0.7, lam2=3.0, lam=0.4, margin=0.05), batch(3)
    gen, metric = slow_losses(daml, net, x, drawn(daml, net, x, y))
    value = daml(net, (x, y))
    assert_close(value, gen + 0.4 * metric, rtol=1e-10, atol=0)
    ours = gradients(value, daml.generator, net)
    gen, metric = slow_losses(daml, net, x, drawn(objective(), net, x, y))
    theirs = torch.autograd.grad(gen, list(daml.generator.parameters()), retain_graph=True)
    for a, b in zip(ours[0], theirs, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-12)
    frozen = copy.deepcopy(daml.generator)

    def live_metric(daml_triples):  # x̃ as a constant
        f, terms = net[-1], []
        for a, p, n in zip(*daml_triples):
            h, hp, hn = (net[:-1](x[k][None])[0] for k in (a, p, n))
            made = frozen(torch.cat([h, hp, hn])[None])[0].detach()
            terms.append(torch.relu((f(hp) - f(h)).square().sum() - (f(made) - f(h)).square().sum() + 0.05))
        return 0.4 * sum(terms) / len(terms)

    theirs = torch.autograd.grad(live_metric(drawn(objective(), net, x, y)), list(net.parameters()))
    for a, b in zip(ours[1], theirs, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert total(ours[0]) > 1e-3 and total(ours[1]) > 1e-3


def test_joint_descends_the_sum():
    net, daml, (x, y) = model(), objective(joint=True, lam2=3.0, lam=0.4, margin=0.05), batch(3)
    gen, metric = slow_losses(daml, net, x, drawn(daml, net, x, y))
    expected = torch.autograd.grad(gen + 0.4 * metric, [*daml.generator.parameters(), *net.parameters()])
    ours = gradients(daml(net, (x, y)), daml.generator, net)
    for a, b in zip([*ours[0], *ours[1]], expected, strict=True):
        assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_terms_vanish_where_they_should():
    """D30 (1): G = x⁻ has no λ₁ term, G = x no first term."""
    net, (x, y) = model(), batch(3)
    triples = drawn(objective(), net, x, y)
    a, _, n = triples
    with torch.no_grad():
        h, z = net[:-1](x), net(x)
        apart = (h[a] - h[n]).square().sum(1).mean()
        for lam1 in (0.0, 5.0):
            daml = objective(generator=Constant(2), lam1=lam1, lam2=0.0)
            assert_close(daml.generator_loss(h[n], h, z[n], z, triples), apart, rtol=1e-12, atol=0)
            daml = objective(generator=Constant(0), lam1=lam1, lam2=0.0)
            assert_close(daml.generator_loss(h[a], h, z[a], z, triples), lam1 * apart, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("d_fake", "expected"), [(3.0, 1.0), (2.0, 0.0), (1.0, 0.0), (3.5, 1.5)])
def test_hinge_by_hand(d_fake, expected):
    """D30 (2): D̃² = 3, D₊² = 1, α = 1 → 1; D̃² = 2 → 0. With + α it would be 3 and 2."""
    z = torch.tensor([[0.0], [1.0], [9.0]], dtype=torch.float64)
    triples = tuple(torch.tensor([k]) for k in range(3))
    fooled = torch.tensor([[d_fake**0.5]], dtype=torch.float64)
    daml = objective(generator=Constant(0), lam1=0.0, lam2=2.0, margin=1.0)
    value = daml.generator_loss(z[:1], z, fooled, z, triples)
    assert float(value) == pytest.approx(2 * expected, abs=1e-12)


def test_no_player_moves_the_other():
    """D30 (3)."""
    net, daml, (x, y) = model(), objective(margin=0.05), batch(3)
    silent = objective(margin=0.05, lam=0.0)
    generator, weights = gradients(silent(net, (x, y)), silent.generator, net)
    assert total(generator) > 1e-3 and total(weights) == 0
    with torch.no_grad():  # with L_gen constant, what is left moves the model only
        daml.generator.requires_grad_(False)
    generator, weights = gradients(daml(net, (x, y)), daml.generator, net)
    assert total(generator) == 0 and total(weights) > 1e-3


def test_players_pull_the_synthetic_negative_in_opposite_directions():
    """D30 (4): nearer to the anchor, L_gen falls and L_metric rises."""
    z = torch.tensor([[0.0], [1.0], [9.0]], dtype=torch.float64)
    triples = tuple(torch.tensor([k]) for k in range(3))
    daml = objective(generator=Constant(0), lam1=0.0, lam2=1.0, margin=1.0)
    fake = torch.tensor([[1.42]], dtype=torch.float64, requires_grad=True)  # D̃² = 2.0164: both hinges near, one open
    near = torch.tensor([[1.40]], dtype=torch.float64, requires_grad=True)
    (up,) = torch.autograd.grad(daml.generator_loss(z[:1], z, fake, z, triples), fake)
    (down,) = torch.autograd.grad(daml.metric_loss(z, torch.tensor([0, 0, 1]), triples, near, True), near)
    assert float(up) == pytest.approx(2 * 1.42, rel=1e-12) and float(down) == pytest.approx(-2 * 1.40, rel=1e-12)


def test_unit_length_follows_the_loss_and_the_option():
    net, (x, y) = model(), batch(3)
    daml = objective(loss=Triplet(0.3, reduction="mean"), lam1=0.0, lam2=1.0, margin=0.3, unit_features=True)
    a, p, n = triples = drawn(daml, net, x, y)
    with torch.no_grad():
        h, z = net[:-1](x), net(x)
        value = daml.generator_loss(h[n], h, z[n], z, triples)
    u, w = nn.functional.normalize(h), nn.functional.normalize(z)
    hard, d_fake, d_pos = ((s[i] - s[j]).square().sum(1) for s, i, j in ((u, n, a), (w, n, a), (w, p, a)))
    assert_close(value, (hard + (d_fake - d_pos - 0.3).relu()).mean().detach(), rtol=1e-10, atol=0)


def test_frozen_head_passes_the_gradient_and_keeps_its_statistics():
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).double().train()
    before = head[1].running_mean.clone()
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    Frozen(head)(x)[:, 0].square().sum().backward()
    assert x.grad.abs().sum() > 0 and all(p.grad is None for p in head.parameters())
    assert torch.equal(head[1].running_mean, before)
    live = copy.deepcopy(head)
    assert_close(Frozen(head)(x), live(x), rtol=1e-12, atol=0)


# -- losses, miners, schedule ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [NPair(pairs="all", l2_reg=0.0), NCALoss()])
def test_other_losses_see_synthetic_negatives_with_the_label_of_the_real_ones(loss):
    net, (x, y) = model(), batch(3)
    daml = objective(loss=loss, lam1=0.0, lam2=0.0)
    a, p, n = drawn(daml, net, x, y)
    with torch.no_grad():
        h, z = net[:-1](x), net(x)
        made = daml.generator(torch.cat([h[a], h[p], h[n]], 1))
        expected = loss(torch.cat([z, net[-1](made)]), torch.cat([y, y[n]])) + (made - h[a]).square().sum(1).mean()
        assert_close(daml(net, (x, y)), expected, rtol=1e-10, atol=0)
        pretrained = objective(loss=loss, lam1=0.0, lam2=0.0, pretrain_steps=9)
        assert_close(pretrained(net, (x, y)), loss(z, y) + (made - h[a]).square().sum(1).mean(), rtol=1e-10, atol=0)


def test_miner_of_the_loss_chooses_the_triplets():
    net, (x, y) = model(), batch(3)
    daml = objective(loss=Triplet(1.0, normalize=False, miner=BatchHard()))
    a, p, n = drawn(daml, net, x, y)
    z = net(x).detach()
    D = torch.cdist(z, z)
    for i, j, k in zip(a, p, n):
        assert j == max((t for t in range(len(y)) if t != i and y[t] == y[i]), key=lambda t: D[i, t])
        assert k == min((t for t in range(len(y)) if y[t] != y[i]), key=lambda t: D[i, t])


def test_pretraining_is_plain_training_and_the_generator_learns_meanwhile():
    """The model after the first batches is that of the real triplets alone; then it is not."""
    X, y = batch(1, n=48)
    plain, player = model(), model()
    daml = objective(pretrain_steps=6, margin=0.5)
    start = copy.deepcopy(daml.generator)

    class Real(nn.Module):
        """The metric loss of the same triplets, with their real negatives."""

        def __init__(self):
            super().__init__()
            self.twin = objective()

        def forward(self, net, batch_):
            z = net(batch_[0])
            a, p, n = self.twin.triples(z, batch_[1])
            d = ((z[a] - z[p]).square() - (z[a] - z[n]).square()).sum(1)
            return (d + 0.5).relu().mean()

    seen = []
    settings = {"max_epochs": 3, "batches_per_epoch": 3, "classes_per_batch": 4, "samples_per_class": 3, "lr": 0.01}
    for net, rule in ((plain, Real()), (player, daml)):
        states = []
        watch = [lambda t, net=net, states=states: states.append([p.detach().clone() for p in net.parameters()])]
        Trainer(net, rule, monitor="last", callbacks=watch, **settings).fit(X, y)
        seen.append(states)
    for epoch in (0, 1):
        for a, b in zip(seen[0][epoch], seen[1][epoch], strict=True):
            assert_close(a, b, rtol=1e-9, atol=1e-9)  # Adam enlarges the round-off of the last bias
    assert max(float((a - b).abs().max()) for a, b in zip(seen[0][2], seen[1][2])) > 1e-4
    assert max((a - b).abs().max().item() for a, b in zip(start.parameters(), daml.generator.parameters())) > 1e-3
    assert int(daml.steps) == 9


def test_half_of_the_run_is_pretraining_also_after_a_resume(tmp_path):
    X, y = batch(1, n=48)
    settings = {"batches_per_epoch": 3, "classes_per_batch": 4, "samples_per_class": 3, "schedule": "constant"}

    def run(epochs, folder=None, **params):
        daml = DAML(5, **params).double()
        trainer = Trainer(model(), daml, max_epochs=epochs, folder=folder, **settings)
        trainer.fit(X, y, resume=True)
        return daml

    assert DAML(5).pretrain_steps == 100  # nobody has said how long the run is
    assert run(4).pretrain_steps == 6
    assert run(4, pretrain_steps=1).pretrain_steps == 1
    assert run(2, tmp_path).pretrain_steps == 3
    longer = run(10, tmp_path)
    assert longer.pretrain_steps == 3 and int(longer.steps) == 30  # it does not begin again


def test_groups_of_the_optimizer():
    daml = objective(loss=ProxyNCA(4, 3))
    generator, proxies = daml.param_groups(1e-3)
    assert generator["lr"] == pytest.approx(1e-3) and generator["weight_decay"] == 0
    assert len(generator["params"]) == 4 and proxies["params"][0] is daml.loss.proxies


def test_resumed_training_is_bit_for_bit_that_without_a_stop(tmp_path):
    """The counter of pretraining and the draws of triplets are part of the checkpoint."""
    X, y = batch(1, n=48)
    settings = {"batches_per_epoch": 3, "classes_per_batch": 4, "samples_per_class": 3, "schedule": "constant"}

    def run(epochs, folder):
        net, daml = model(), objective(pretrain_steps=4)
        Trainer(net, daml, max_epochs=epochs, folder=folder, monitor="last", **settings).fit(X, y, resume=True)
        return [*net.state_dict().values(), *daml.state_dict().values()]

    whole = run(4, tmp_path / "whole")
    run(1, tmp_path / "parts")
    run(2, tmp_path / "parts")
    assert all(torch.equal(a, b) for a, b in zip(whole, run(4, tmp_path / "parts"), strict=True))


# -- models, errors ----------------------------------------------------------------------------------------------------


def test_a_model_with_named_parts():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            parts = model()
            self.features, self.head = parts[:-1], parts[-1]

        def forward(self, x):
            return self.head(self.features(x))

    x, y = batch(3)
    assert_close(objective()(Net(), (x, y)), objective()(model(), (x, y)), rtol=1e-12, atol=0)


def test_bad_input_is_named():
    x, y = batch(3)
    with pytest.raises(TypeError, match=r"LinearMap does not say which these are: give nn.Sequential\(…, head\)"):
        objective()(LinearMap(4, 3), (x, y))
    with pytest.raises(TypeError, match="a loss of this library"):
        DAML(5, nn.MSELoss())


@pytest.mark.parametrize("loss", [None, NPair()])
def test_edges(loss):
    net, (x, y) = model(), batch(3)
    daml = objective(loss=loss)
    value = daml(net, (x, y * 0))  # one class: no triplet
    gradients(value, net, daml)
    assert value == 0 or loss is not None
    assert value.isfinite() and all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())
    x = x.clone()
    x[2] = torch.nan
    assert not daml(net, (x, y)).isfinite()


def test_bfloat16_model():
    net, (x, y) = model().float(), batch(3)
    daml = objective().float()
    plain = copy.deepcopy(daml)(net, (x.float(), y))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = daml(net, (x.float(), y))
    assert value.dtype == torch.float32 and value != plain
    assert_close(value, plain, rtol=0.05, atol=0)


def test_under_the_scikit_learn_contract():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = 3 * rng.standard_normal((3, 5))[y] + rng.standard_normal((60, 5))
    torch.manual_seed(0)
    net = nn.Sequential(MLP(5, 16, (16,)), nn.ReLU(), nn.Linear(16, 4))
    metric = DeepMetric(net, DAML(16, pretrain_steps=20), max_epochs=4, min_steps=80, random_state=0).fit(X, y)
    assert metric.transform(X).shape == (60, 4) and metric.score(X, y) > 0.9


@pytest.mark.slow
def test_digits_keep_their_order_under_attack():
    """Spec of training quality: recall@1 ≥ 0.95 and MAP@R above raw pixels (0.543), 300 steps."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    scores = []
    for seed in range(3):
        train, test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
        trainer = Trainer(net, DAML(128), max_epochs=10, batches_per_epoch=30, random_state=seed)
        trainer.fit(train - train.mean(0), y_train)
        scores.append(retrieval(trainer.embed(test - train.mean(0)).numpy(), y_test, ks=(1,)).mean())
    assert np.mean([s["recall@1"] for s in scores]) >= 0.95
    assert np.mean([s["map@r"] for s in scores]) > 0.6


def test_a_miner_that_gives_no_triplets_leaves_the_choice_to_chance():
    objective = DAML(6, Triplet(1.0, miner=EasyPositive("all"), distance="sqeuclidean", normalize=False))
    torch.manual_seed(0)
    z, y = torch.randn(12, 3), torch.arange(12) % 3
    plain = DAML(6)
    for mine, random in zip(objective.triples(z, y), plain.triples(z, y), strict=True):
        assert torch.equal(mine, random)
