"""Early layers (E35l) by hand, on stacks of layers and on a transformer, and networks that are cut."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    ArcFace,
    Columns,
    EarlyLayers,
    GradientCache,
    InfoNCE,
    LossObjective,
    Matryoshka,
    NCALoss,
    Network,
    ProxyNCA,
    Ranking,
    SupCon,
    Trainer,
    backbone,
    first_layers,
)
from isometry.eval import retrieval
from tests.deep.batches import batch
from tests.deep.test_images_and_texts import TEXTS, make_bert

torch.set_num_threads(1)


def stack(n=3):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(n))).double()


def slow(loss, z, early, y, weight, teaching, temperature):
    """By loops over layers, samples and coordinates."""
    value = loss(z, y)
    for u in early:
        value = value + weight * loss(u, y) / len(early)
        for a, b in zip(z.detach(), u):
            p, q = ((x / temperature).exp() / (x / temperature).exp().sum() for x in (a, b))
            kl = sum(p[k] * (p[k].log() - q[k].log()) for k in range(len(p)))
            value = value + teaching * temperature * kl / len(z) / len(early)
    return value


@pytest.mark.parametrize("weight, teaching, temperature", [(1.0, 1.0, 0.3), (0.5, 0.0, 1.0), (2.0, 3.0, 0.7)])
def test_E35l_is_its_loop(weight, teaching, temperature):
    model, (x, y), found = stack(), batch(0), []
    objective = EarlyLayers(InfoNCE(), None, None, weight, teaching, temperature)
    for way in (
        lambda: objective(model, (x, y)),
        lambda: slow(InfoNCE(), model(x), [model[:1](x), model[:2](x)], y, weight, teaching, temperature),
    ):
        model.zero_grad()
        value = way()
        value.backward()
        found.append([value.detach(), *(p.grad.clone() for p in model.parameters())])
    assert_close(*found, rtol=1e-10, atol=1e-12)


def test_E35l_without_weights_it_is_the_loss():
    model, rows, found = stack(), batch(0), []
    for objective in (EarlyLayers(InfoNCE(), weight=0, teaching=0), LossObjective(InfoNCE())):
        model.zero_grad()
        value = objective(model, rows)
        value.backward()
        found.append([value.detach(), *(p.grad.clone() for p in model.parameters()), objective.active])
        assert objective.geometry() == LossObjective.geometry(getattr(objective, "objective", objective))
    assert_close(*found, rtol=1e-12, atol=1e-14)


def test_E35l_what_is_watched_is_the_last_layer():
    model, rows = stack(), batch(0)
    ours, plain = EarlyLayers(InfoNCE()), LossObjective(InfoNCE())
    for objective in (ours, plain):
        objective(model, rows).backward()
    assert ours.geometry() == plain.geometry() != {} and torch.equal(ours.active, plain.active)


def test_E35l_layers_are_drawn_alike_by_all_and_after_a_restart():
    names, drawn = [str(k) for k in range(6)], []
    first, second = (EarlyLayers(InfoNCE(), layers_per_step=2, random_state=3) for _ in range(2))
    for _ in range(40):
        drawn.append(first.chosen(names))
        assert second.chosen(names) == drawn[-1] == sorted(set(drawn[-1])) and len(drawn[-1]) == 2
    assert {name for some in drawn for name in some} == set(names)
    resumed = EarlyLayers(InfoNCE(), layers_per_step=2, random_state=3)
    resumed.load_state_dict(first.state_dict())
    assert [resumed.chosen(names) for _ in range(9)] == [first.chosen(names) for _ in range(9)]
    assert EarlyLayers(InfoNCE(), layers_per_step=2, random_state=4).chosen(names) is not None
    assert first.eval().chosen(names) == names


def test_E35l_proxies_are_shared_and_columns_pass_once():
    torch.manual_seed(0)
    loss = ProxyNCA(4, 4).double()
    objective = EarlyLayers(loss, layers_per_step=None)
    objective(stack(), batch(0)).backward()
    assert [g["params"] for g in objective.param_groups(1e-3)] == [[loss.proxies]] and loss.proxies.grad.abs().sum() > 0
    model, calls = stack(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    a, b = batch(0)[0], batch(1)[0]
    value = EarlyLayers(Columns(Ranking()), None, None, teaching=0)(model, (a, b))
    early = [Ranking()(model[:k](a), model[:k](b)) for k in (1, 2)]
    assert len(calls) == 1
    assert_close(value, Ranking()(model(a), model(b)) + sum(early) / 2, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", ["aligned", "zero rows", "duplicates", "one class", "all singletons", "norms of 1e4"])
def test_E35l_edges_are_finite(edge, dtype):
    x, y = batch(0)
    x = {"zero rows": 0 * x, "duplicates": x[:1].expand(12, 4), "norms of 1e4": 1e4 * x}.get(edge, x)
    y = {"one class": 0 * y, "all singletons": torch.arange(12)}.get(edge, y)
    model, loss = stack().float(), SupCon()
    if edge == "aligned":  # in every layer with the own direction
        x, loss = torch.eye(4)[y], ArcFace(4, 4)
        loss.proxies.data.copy_(torch.eye(4))
        for layer in model:
            layer.weight.data.copy_(torch.eye(4))
            layer.bias.data.zero_()
    half = torch.float16 if dtype == torch.float16 else torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        value = EarlyLayers(loss, layers_per_step=None)(model.to(half), (x.to(half), y))
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


# -- a transformer -----------------------------------------------------------------------------------------------------


def test_E35l_reads_a_transformer_as_its_last_layer_is_read(tmp_path):
    net = backbone(f"transformers:{make_bert(tmp_path / 'bert')}", n_components=4).eval()
    x, y = net.tokenize(TEXTS[:6]), torch.tensor([0, 0, 1, 1, 2, 2])
    mask = x["attention_mask"][..., None]
    states = net.backbone(**x, output_hidden_states=True).hidden_states  # embeddings, layer 1, layer 2
    early, last = (net.head((h * mask).sum(1) / mask.sum(1)) for h in states[1:])
    value = EarlyLayers(NCALoss(), layers_per_step=None)(net, (x, y))
    assert_close(value, slow(NCALoss(), last, [early], y, 1.0, 1.0, 0.3), rtol=1e-4, atol=1e-6)
    cut = first_layers(net, 1)
    assert_close(cut(x), early, rtol=1e-5, atol=1e-6)
    assert_close(first_layers(net, 2)(x), last, rtol=0, atol=0)
    assert len(net.backbone.encoder.layer) == 2 and sum(1 for _ in cut.parameters()) < sum(1 for _ in net.parameters())


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Sequential(nn.Linear(32, 32), nn.GELU())

    def forward(self, h):
        return h + self.step(h)


class Blocks(nn.Module):
    """Four blocks between a first layer and a head."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(64, 32), nn.Linear(32, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def test_E35l_trained_for_it_a_cut_network_finds_more():
    """Digits, MAP@R of samples not trained on: one block of four, and all, over three seeds."""
    X, y = load_digits(return_X_y=True)
    X = torch.tensor(X / 16 - 0.3).float()
    settings = {"classes_per_batch": 8, "samples_per_class": 8, "max_epochs": 3, "monitor": "loss"}
    found = {}
    for make in (lambda: EarlyLayers(SupCon()), SupCon):
        for seed in range(3):
            torch.manual_seed(seed)
            net = Blocks()
            Trainer(net, make(), random_state=seed, **settings).fit(X[:1000], y[:1000])
            for n in (1, 4):
                with torch.no_grad():
                    z = nn.functional.normalize(first_layers(net, n)(X[1000:])).numpy()
                found.setdefault((n, make is SupCon), []).append(retrieval(z, y[1000:]).mean()["map@r"])
    means = {key: np.mean(values) for key, values in found.items()}
    assert means[1, False] > means[1, True] + 0.01 and means[4, False] > means[4, True] - 0.02


def test_E35l_two_dimensional_matryoshka_trains():
    x, y = batch(0, n=48)
    model = stack(4).float()
    trainer = Trainer(model, EarlyLayers(Matryoshka(SupCon(), sizes=(4, 2))), max_epochs=2, classes_per_batch=4)
    trainer.fit(x.float(), y)
    assert np.isfinite(trainer.history["loss"]).all() and first_layers(model, 2)(x.float()).shape == (48, 4)


def test_E35l_bad_input_is_named():
    rows = batch(0)
    with pytest.raises(ValueError, match="EarlyLayers needs a stack of layers of one kind"):
        EarlyLayers(InfoNCE())(nn.Linear(4, 4).double(), rows)
    with pytest.raises(ValueError, match="no module 'layer'; it has 0, 1, 2"):
        EarlyLayers(InfoNCE(), layers=["layer"])(stack(), rows)
    with pytest.raises(TypeError, match=r"give EarlyLayers\(Columns\(Ranking\(\)\)\)"):
        EarlyLayers(Ranking())
    with pytest.raises(TypeError, match="which a GradientCache does not keep"):
        GradientCache(EarlyLayers(InfoNCE()), 2)(stack(), rows)
    wide = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 3)).double()
    with pytest.raises(ValueError, match=r"of shape \(12, 7\), the last one of \(12, 3\): say by read"):
        EarlyLayers(InfoNCE())(wide, rows)
    read = EarlyLayers(InfoNCE(), read=lambda model, h, x: h[:, :3])
    assert read(wide, rows).isfinite()
    for params, message in (
        ({"temperature": 0}, "temperature=0"),
        ({"weight": -1}, "weight=-1"),
        ({"layers_per_step": 0}, "layers_per_step=0"),
    ):
        with pytest.raises(ValueError, match=message):
            EarlyLayers(InfoNCE(), **params)
    with pytest.raises(ValueError, match="n=4 must lie in 1 … 3"):
        first_layers(stack(), 4)


def test_first_layers_of_images_keep_what_comes_after():
    """Tokens (B, T, q) of a network that is no transformer of texts, and a head."""

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            h = x[:, None].expand(-1, 2, -1)
            for block in self.blocks:
                h = block(h)
            return h.mean(1)

    torch.manual_seed(0)
    net, (x, y) = Network(Tokens(), 4, 2).double(), batch(0)
    value = EarlyLayers(InfoNCE(), layers_per_step=None, teaching=0)(net, (x, y))
    early = [InfoNCE()(first_layers(net, k)(x), y) for k in (1, 2)]
    assert_close(value, InfoNCE()(net(x), y) + sum(early) / 2, rtol=1e-10, atol=0)
    assert copy.deepcopy(net)(x).shape == (12, 2)
