"""Early layers (E35l) by hand, on stacks of layers and on a transformer, and networks that are cut."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    BUT,
    AdaFace,
    ArcFace,
    CenterLoss,
    Columns,
    CrossBatchMemory,
    CrossEntropy,
    CurricularFace,
    EarlyLayers,
    GradientCache,
    InfoNCE,
    LossObjective,
    Matryoshka,
    NCALoss,
    Network,
    ProxyNCA,
    Ranking,
    Regularized,
    SampledSoftmax,
    SphereFace,
    Spherical,
    SupCon,
    Trainer,
    VirtualSampleDA,
    WeightedSum,
    backbone,
    first_layers,
)
from isometry.deep.objective import as_objective
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


class Plain(LossObjective):
    """An objective that is as stateful as its loss, and has a counter and a generator that are no buffers."""

    def __init__(self, loss):
        super().__init__(loss)
        self.count, self.log, self.random = 0, [], torch.Generator().manual_seed(0)

    def forward(self, model, rows):
        self.count += 1
        self.log.append(torch.rand(1, generator=self.random).item())
        return super().forward(model, rows) + self.count * self.log[-1]


STATEFUL = {
    "memory": lambda: CrossBatchMemory(InfoNCE(), 4, memory_size=30, warmup_steps=1),
    "memory that is full": lambda: CrossBatchMemory(SupCon(), 4, memory_size=8),
    "lengths": lambda: AdaFace(4, 4),
    "annealed": lambda: SphereFace(4, 4),
    "curriculum": lambda: CurricularFace(4, 4),
    "Gaussians of classes": lambda: BUT(4, 4),
    "Gaussians and a generator": lambda: BUT(4, 4, random_state=0),
    "virtual samples": lambda: VirtualSampleDA(4, 2),
    "moving centres": lambda: WeightedSum(CrossEntropy(4, 4), CenterLoss(4, 4)),
    "class means": lambda: ProxyNCA(4, 4, proxies="class_mean"),
    "mean length": lambda: Regularized(InfoNCE(), Spherical(0.9)),
    "drawn classes": lambda: SampledSoftmax(ArcFace(12, 4), 0.5),
    "drawn widths": lambda: Matryoshka(SupCon(), sizes_per_step=1),
    "plain attributes": lambda: Plain(InfoNCE()),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_E35l_state_is_that_of_the_last_layer(name):
    """Without weights all steps are those of the loss: its buffers and counters, the network's, and random numbers."""
    found = []
    for around in (lambda o: EarlyLayers(o, layers_per_step=None, weight=0, teaching=0), as_objective):
        torch.manual_seed(0)
        model = nn.Sequential(nn.BatchNorm1d(4), stack(), nn.BatchNorm1d(4), nn.Dropout(0.2), nn.Linear(4, 4)).double()
        objective, steps = around(STATEFUL[name]().double()), []
        optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.01)
        for seed in range(4):
            optimizer.zero_grad()
            value = objective(model, batch(seed))
            value.backward()
            optimizer.step()
            steps += [value.detach(), *(p.grad.clone() for p in model.parameters())]
        inner = getattr(objective, "objective", objective)
        state = {**inner.state_dict(), **model.state_dict()}
        found.append([*steps, *state.values(), torch.rand(3), getattr(inner, "count", 0), getattr(inner, "log", [])])
    assert_close(*found, rtol=1e-12, atol=1e-14)


def test_E35l_early_layers_find_the_state_that_the_last_one_finds():
    """No anchor meets its own sample in the memory, and parameters of the loss learn from all layers."""
    model, (x, y) = stack(), batch(0)
    objective = EarlyLayers(CrossBatchMemory(InfoNCE(), 4, memory_size=40), layers_per_step=None, teaching=0).double()
    objective(model, batch(1))
    plain = CrossBatchMemory(InfoNCE(), 4, memory_size=40).double()
    plain(model(batch(1)[0]), batch(1)[1])
    values = [copy.deepcopy(plain)(z, y) for z in (model(x), model[:1](x), model[:2](x))]
    assert_close(objective(model, (x, y)), values[0] + (values[1] + values[2]) / 2, rtol=1e-10, atol=0)


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
    later = [first.chosen(names) for _ in range(9)]
    assert [resumed.chosen(names) for _ in range(9)] == later != drawn[:9]
    for seed in (4, 3 + 2**32):
        other = EarlyLayers(InfoNCE(), layers_per_step=2, random_state=seed)
        assert [other.chosen(names) for _ in range(9)] != drawn[:9]
    assert first.eval().chosen(names) == names


def test_E35l_proxies_are_shared_and_columns_pass_once():
    torch.manual_seed(0)
    loss = ProxyNCA(4, 4).double()
    objective = EarlyLayers(loss, layers_per_step=None)
    objective(stack(), batch(0)).backward()
    assert [g["params"] for g in objective.param_groups(1e-3)] == [[loss.proxies]] and loss.proxies.grad.abs().sum() > 0
    model, calls = stack(), []
    for layer in model:
        layer.register_forward_hook(lambda *_: calls.append(1))
    a, b = batch(0)[0], batch(1)[0]
    value = EarlyLayers(Columns(Ranking()), None, None, teaching=0)(model, (a, b))
    assert len(calls) == 3  # each layer once, for both columns
    early = [Ranking()(model[:k](a), model[:k](b)) for k in (1, 2)]
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


def embeddings(objective, model, rows, monkeypatch):
    """Embeddings of the early layers of a step, from the first layer on."""
    found, read = [], EarlyLayers.embedding

    def kept(*arguments):
        found.append(read(*arguments))
        return found[-1]

    monkeypatch.setattr(EarlyLayers, "embedding", kept)
    objective(model, rows).backward()
    return found


class Mean(nn.Module):
    """The mean token of a transformer."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(**x).last_hidden_state.mean(1)


SIZES = {
    "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24,
    "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
KINDS = {
    "Bert": {},  # norms after the parts of a layer
    "ModernBert": {"cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 2},  # before, and one at the end
    "Qwen2": {"num_key_value_heads": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_E35l_what_is_trained_is_what_a_cut_transformer_gives(kind, monkeypatch):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **KINDS[kind])
    model = Mean(getattr(transformers, f"{kind}Model")(config)).eval()
    ids = torch.randint(3, 50, (6, 7))
    x = {"input_ids": ids, "attention_mask": (torch.arange(7) < torch.tensor([7, 7, 4, 7, 5, 7])[:, None]).long()}
    early = embeddings(EarlyLayers(InfoNCE()).eval(), model, (x, torch.arange(6) % 2), monkeypatch)
    for n, z in enumerate(early, 1):
        assert_close(z, first_layers(model, n)(x), rtol=1e-5, atol=1e-6)
    assert len(early) == 2 and not torch.allclose(early[0], early[1], atol=1e-3)


class InPlace(nn.Module):
    """Blocks that change what they are given, and what the one before has given by it."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        h = x
        for block in self.blocks:
            h = block(h + 0)
            h += x
        return h


class Twice(nn.Module):
    """A stack that is run on what it gives."""

    def __init__(self):
        super().__init__()
        self.stack = stack()

    def forward(self, x):
        return self.stack(self.stack(x))


def test_E35l_what_is_trained_is_what_a_cut_network_gives(monkeypatch):
    """Also of layers with names, outputs that are changed in place, and a stack that is run twice."""
    torch.manual_seed(0)
    named = nn.Sequential(OrderedDict(first=nn.Linear(4, 4), second=nn.Linear(4, 4), third=nn.Linear(4, 4)))
    for model in (
        nn.Sequential(stack(), nn.LayerNorm(4), nn.Linear(4, 2)).double(),
        nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.BatchNorm1d(4), named, nn.BatchNorm1d(4)).double(),
        nn.Sequential(stack(), nn.ReLU(inplace=True), nn.Linear(4, 4)).double(),
        InPlace().double(),
        Twice(),
    ):
        rows, before = batch(0), list(model.modules())
        early = embeddings(EarlyLayers(InfoNCE(), layers_per_step=None), model, rows, monkeypatch)
        assert list(model.modules()) == before and len(early) == 2
        for n, z in enumerate(early, 1):
            cut = first_layers(model, n)
            assert_close(z, cut(rows[0]), rtol=1e-10, atol=1e-12)
        monkeypatch.undo()
    chosen = EarlyLayers(InfoNCE(), layers=["3.second", "3.second"])
    assert chosen.names(nn.Sequential(*[nn.Identity()] * 3, named)) == ["3.second"]


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
    with pytest.raises(ValueError, match=r"'step' is in no stack of layers, .*: say by read"):
        EarlyLayers(InfoNCE(), layers=["step"])(Block().double(), rows)
    with pytest.raises(TypeError, match=r"layers='01' is one string: .* such as \['01'\]"):
        EarlyLayers(InfoNCE(), layers="01")
    with pytest.raises(ValueError, match=r"layers=\[\] leaves the loss as it is"):
        EarlyLayers(InfoNCE(), layers=[])
    for n, words in ((4, "must lie in 1 … 3"), (2.5, "must be a whole number"), (0, "must be at least 1")):
        with pytest.raises(ValueError, match=f"n={n} {words}"):
            first_layers(stack(), n)


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
