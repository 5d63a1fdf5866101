"""The loop does what a plain loop does; it stops, with a reason, where it should; two processes do what one does."""

from __future__ import annotations

import contextlib
import copy
import math
import os
import signal
from dataclasses import fields, replace
from itertools import chain

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from isometry.deep import (
    MLP,
    Augmented,
    Batches,
    BatchHard,
    BatchSemiHard,
    Contrastive,
    ConvNet,
    CrossBatchMemory,
    DeepMetric,
    Hardware,
    LinearMap,
    LossObjective,
    MarginLoss,
    NCALoss,
    NPair,
    Optimization,
    PKBatchSampler,
    ProxyNCA,
    RandomTriplets,
    Saving,
    ShuffledBatches,
    Stopping,
    TableDataset,
    Trainer,
    Triplet,
    effective_rank,
)
from isometry.deep.batches import batches_of, hold_out, make_loader
from isometry.deep.objective import contrast, on_sphere
from isometry.deep.run import Run
from isometry.eval import retrieval
from tests.deep.processes import results_of_two

torch.set_num_threads(1)
SMALL = {"classes_per_batch": 4, "samples_per_class": 3}


def data(seed=0, n=60, d=5, n_classes=5, spread=1.5):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return spread * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((n, d)), y


def network(seed=0, **params):
    torch.manual_seed(seed)
    return MLP(5, 3, hidden=(8,), **params)


def states_equal(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


# -- the loop against a plain one --------------------------------------------------------------------------------------


def plain_loop(net, loss, groups, *, epochs, batches, factor, accumulate=1, clip=None, optimizer=torch.optim.AdamW):
    """What the trainer should do, written out; batches of rows from the sampler of its own test."""
    X, y = data()
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y)
    optim = optimizer(groups)
    lrs = [group["lr"] for group in groups]
    sampler = PKBatchSampler(y, 4, 3, n_batches=batches, random_state=7)
    steps, step, history = epochs * math.ceil(batches / accumulate), 0, []
    for _ in range(epochs):
        rows, values = list(sampler), []
        for k in range(0, batches, accumulate):
            for group, lr in zip(optim.param_groups, lrs):
                group["lr"] = lr * factor(step / steps)
            losses = [loss(net(X[r]), y[r]) for r in rows[k : k + accumulate]]
            mean = sum(losses) / len(losses)
            optim.zero_grad()
            mean.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_([p for group in groups for p in group["params"]], clip)
            optim.step()
            values.append(float(mean.detach()))
            step += 1
        history.append(sum(values) / len(values))
    return history


CASES = {
    "plain": {},
    "linear schedule": {"schedule": "linear", "factor": lambda t: 1 - t},
    "constant, warm-up": {"schedule": "constant", "warmup": 0.5, "factor": lambda t: min(1.0, 2 * t)},
    "own schedule": {"schedule": lambda t: 0.5**t, "factor": lambda t: 0.5**t},
    "accumulation": {"accumulate": 2},
    "clipping": {"clip": 0.05},
}


@pytest.mark.parametrize("case", CASES)
def test_equals_a_plain_loop(case):
    settings = {"factor": lambda t: (1 + math.cos(math.pi * t)) / 2, **CASES[case]}
    factor, clip = settings.pop("factor"), settings.pop("clip", None)
    ours, loss = network(), ProxyNCA(5, 3)
    trainer = Trainer(
        ours,
        loss,
        lr=0.01,
        weight_decay=0.1,
        max_epochs=3,
        batches_per_epoch=5,
        clip_norm=clip,
        random_state=7,
        **SMALL,
        **settings,
    )
    theirs, their_loss = network(), ProxyNCA(5, 3)
    their_loss.load_state_dict(loss.state_dict())
    groups = [
        {"params": list(theirs.parameters()), "lr": 0.01, "weight_decay": 0.1},
        {"params": [their_loss.proxies], "lr": min(0.01 * their_loss.lr_mult, their_loss.lr_cap), "weight_decay": 0.0},
    ]
    start = loss.proxies.detach().clone()
    trainer.fit(*data())
    history = plain_loop(
        theirs,
        their_loss,
        groups,
        epochs=3,
        batches=5,
        factor=factor,
        clip=clip,
        accumulate=settings.get("accumulate", 1),
    )
    assert_allclose(trainer.history["loss"], history, rtol=1e-6)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert_close(loss.proxies, their_loss.proxies, rtol=1e-5, atol=1e-6)
    assert (loss.proxies - start).abs().max() > 1e-3  # the proxies take part
    assert trainer.stop_reason == "all epochs done" and trainer.run.epoch == 3


def test_sgd_step_is_the_gradient():
    """One step of SGD without momentum in play: θ − lr (∇ + decay θ)."""
    net, twin = network(), network()
    X, y = data()
    Trainer(
        net,
        NCALoss(),
        optimizer="sgd",
        lr=0.1,
        weight_decay=0.5,
        max_epochs=1,
        batches_per_epoch=1,
        schedule="constant",
    ).fit(X, y)
    rows = next(iter(PKBatchSampler(y, 5, 12)))
    NCALoss()(twin(torch.tensor(X[rows], dtype=torch.float32)), torch.tensor(y[rows])).backward()
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        gradient = b.grad + 0.5 * b
        assert_close(a, b - 0.1 * (gradient + 0.9 * gradient), rtol=1e-5, atol=1e-6)  # Nesterov looks ahead


def test_same_seed_same_run_and_another_seed_another():
    def run(seed):
        net = network(dropout=0.2)
        return Trainer(net, Triplet(), max_epochs=2, random_state=seed, **SMALL).fit(*data(), validation=0.4)

    a, b, c = run(0), run(0), run(1)
    assert states_equal(a.model, b.model) and a.history == b.history
    assert not states_equal(a.model, c.model)


def test_any_objective_and_unlabelled_samples():
    """A linear autoencoder on shuffled batches comes near the error of principal components."""
    X, _ = data(n=64)

    class Decode(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 5)

        def forward(self, model, x):
            return (self.layer(model(x)) - x).square().mean()

    torch.manual_seed(0)
    decoder = Decode()
    before = decoder.layer.weight.detach().clone()
    trainer = Trainer(LinearMap(5, 3), decoder, lr=0.05, max_epochs=150, monitor="loss", classes_per_batch=4)
    trainer.fit(X)
    s = np.linalg.svd(X - X.mean(0), compute_uv=False)
    pca = (s[3:] ** 2).sum() / X.size
    assert pca < trainer.history["loss"][-1] < 1.15 * pca
    assert (decoder.layer.weight - before).abs().max() > 0.05
    assert np.isnan(trainer.history["active"]).all() and np.isnan(trainer.history["rank"]).all()


def test_labels_do_not_make_any_output_an_embedding():
    """An objective of one's own may have a model that gives anything."""
    net = network()
    pair = nn.Module()
    pair.net, pair.forward = net, lambda x: (net(x), x)
    Trainer(pair, lambda model, batch: model(batch[0])[0].square().mean(), max_epochs=1, **SMALL).fit(*data())


def test_a_data_set_and_a_loader_are_taken():
    X, y = data()
    data_set = TensorDataset(torch.tensor(X, dtype=torch.float32), torch.tensor(y))
    a, b, c, d = network(), network(), network(), network()
    Trainer(a, NCALoss(), max_epochs=2, **SMALL).fit(X, y)
    Trainer(b, NCALoss(), max_epochs=2, **SMALL).fit(data_set, y)
    Trainer(c, NCALoss(), max_epochs=2).fit(DataLoader(data_set, batch_sampler=PKBatchSampler(y, 4, 3)))
    Trainer(d, NCALoss(), max_epochs=2, workers=1, **SMALL).fit(X, y)
    assert states_equal(a, b) and states_equal(a, c) and states_equal(a, d)


def test_labels_of_any_type_and_lists_of_samples():
    X, y = data()
    a, b = network(), network()
    Trainer(a, NCALoss(), max_epochs=1, **SMALL).fit(X, y)
    Trainer(b, NCALoss(), max_epochs=1, **SMALL).fit(X.tolist(), np.array(list("abcde"))[y])
    assert states_equal(a, b)


# -- validation --------------------------------------------------------------------------------------------------------


def test_history_holds_the_retrieval_of_held_out_classes_and_the_best_epoch_is_kept():
    X, y = data(n=90, n_classes=9)
    seen = []

    def look(trainer):
        z = trainer.embed(X[held])
        seen.append((retrieval(z.numpy(), y[held]).mean(), [p.clone() for p in trainer.model.parameters()]))
        assert_allclose(z.norm(dim=1), 1, rtol=1e-5)  # as in the loss

    _, held = hold_out(y, 0.4, "open", 3)
    trainer = Trainer(network(), Triplet(), lr=0.03, max_epochs=6, random_state=3, callbacks=[look], **SMALL)
    trainer.fit(X, y, validation=0.4)
    assert_allclose(trainer.history["map@r"], [m["map@r"] for m, _ in seen], rtol=1e-12)
    assert_allclose(trainer.history["recall@1"], [m["recall@1"] for m, _ in seen], rtol=1e-12)
    best = int(np.argmax(trainer.history["map@r"]))
    assert best < 5 and trainer.run.best_epoch == best + 1
    assert all(torch.equal(a, b) for a, b in zip(seen[best][1], trainer.model.parameters()))


@pytest.mark.parametrize("protocol", ["open", "closed"])
def test_held_out_rows(protocol):
    y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c", "d", "e", "f"], [1, 3, 10, 10, 20, 20]))
    kept, held = hold_out(y, 0.3, protocol, 0)
    assert sorted([*kept, *held]) == list(range(64))
    n_held = {c: int((y[held] == c).sum()) for c in "abcdef"}
    if protocol == "open":
        assert not set(y[kept]) & set(y[held])
        assert len(set(y[held])) == 2 and "a" not in y[held]
    else:
        assert n_held == {"a": 0, "b": 0, "c": 3, "d": 3, "e": 6, "f": 6}
    assert not np.array_equal(held, hold_out(y, 0.3, protocol, 1)[1])


def test_patience():
    torch.manual_seed(0)
    trainer = Trainer(network(), Triplet(), lr=0.0, max_epochs=20, patience=3, **SMALL)
    trainer.fit(*data(), validation=0.4)  # nothing changes: the first epoch is the best
    assert trainer.run.epoch == 4 and trainer.run.best_epoch == 1
    assert trainer.stop_reason == "map@r has not improved for 3 epochs"


def test_a_callback_can_stop():
    trainer = Trainer(network(), NCALoss(), callbacks=[lambda t: "enough" if t.run.epoch == 2 else None], **SMALL)
    assert trainer.fit(*data()).stop_reason == "enough" and trainer.run.epoch == 2


# -- guards ------------------------------------------------------------------------------------------------------------


class Poisoned(nn.Module):
    """A loss that is NaN in some steps."""

    def __init__(self, bad):
        super().__init__()
        self.bad, self.calls, self.inner = bad, 0, LossObjective(NCALoss())

    def forward(self, model, batch):
        self.calls += 1
        value = self.inner(model, batch)
        return value * math.nan if self.bad(self.calls) else value


def test_nan_stops_and_keeps_the_best():
    kept = []
    trainer = Trainer(
        network(),
        Poisoned(lambda call: call > 8),
        max_epochs=9,
        batches_per_epoch=5,
        callbacks=[lambda t: kept.append([p.clone() for p in t.model.parameters()])],
        **SMALL,
    )
    with pytest.warns(ConvergenceWarning, match=r"3 steps in a row, up to step 11 in epoch 3; .* weights of epoch 1"):
        trainer.fit(*data(), validation=data(1))
    assert trainer.run.epoch == 2 and trainer.history["skipped"] == [0, 2]
    assert trainer.history["map@r"][0] > trainer.history["map@r"][1]  # hence the best
    assert all(torch.equal(a, b) for a, b in zip(kept[0], trainer.model.parameters()))


def test_a_single_bad_step_changes_nothing_and_is_counted():
    net = network()
    start = [p.clone() for p in net.parameters()]
    trainer = Trainer(
        net, Poisoned(lambda call: call != 4), max_epochs=1, batches_per_epoch=4, max_bad_steps=9, **SMALL
    )
    trainer.fit(*data())
    assert trainer.history["skipped"] == [3] and np.isfinite(trainer.history["loss"]).all()
    moved = [float((a - b).detach().abs().max()) for a, b in zip(start, net.parameters())]
    assert 0 < max(moved) < 1e-3  # one step of AdamW, at the end of the cosine


def test_bad_samples_are_reported_by_the_trainer():
    X, y = data()
    X[3] = np.inf
    with pytest.warns(ConvergenceWarning, match="NaN or infinite"):
        trainer = Trainer(network(), Triplet(), max_bad_steps=1, **SMALL).fit(X, y)
    assert all(p.isfinite().all() for p in trainer.model.parameters())


def test_bad_held_out_samples_are_reported():
    X, y = data(1)
    X[3] = np.inf
    with pytest.warns(ConvergenceWarning, match=r"embeddings are NaN or infinite after epoch 1.* the last weights"):
        trainer = Trainer(network(), NCALoss(), **SMALL).fit(*data(), validation=(X, y))
    assert trainer.run.epoch == 1 and np.isnan(trainer.history["map@r"]).all()


def test_progress_is_shown(capsys):
    Trainer(network(), Triplet(), max_epochs=2, verbose=True, **SMALL).fit(*data(), validation=0.4)
    said = capsys.readouterr().err
    assert "6/6" in said and all(name in said for name in ("loss", "active", "recall@1", "map@r"))
    Trainer(network(), Triplet(), max_epochs=1, **SMALL).fit(*data())
    assert capsys.readouterr().err == ""


def test_collapse_to_a_point_stops():
    net = LinearMap(5, 3)
    net.weight.data.zero_()
    with pytest.warns(ConvergenceWarning, match=r"effective rank 0 < min_rank = 1"):
        trainer = Trainer(net, NCALoss(), lr=0.0, **SMALL).fit(*data())
    assert trainer.run.epoch == 1 and trainer.history["rank"] == [0.0]


def test_collapse_to_a_line_stops_if_wanted():
    net = LinearMap(5, 3)
    net.weight.data[1:] = 0
    assert Trainer(net, NCALoss(), lr=0.0, max_epochs=2, **SMALL).fit(*data()).stop_reason == "all epochs done"
    with pytest.warns(ConvergenceWarning, match=r"effective rank 1 < min_rank = 1.5"):
        Trainer(net, NCALoss(), lr=0.0, min_rank=1.5, **SMALL).fit(*data())


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return (X[:600] / 16).astype(np.float32), y[:600]


LONG = {"max_epochs": 6, "batches_per_epoch": 12, "schedule": "constant", "monitor": "last"}


@pytest.mark.parametrize("margin", [1.0, "soft"])
def test_collapse_to_the_margin_stops_and_is_named(digits, margin):
    """Batch-hard triplets with too large steps: the loss is the margin (or log 2), whatever the effective rank."""
    torch.manual_seed(0)
    net, level = MLP(64, 64, (128,)), math.log(2) if margin == "soft" else margin
    trainer = Trainer(net, Triplet(margin, miner=BatchHard()), lr=0.3, optimizer="sgd", **LONG)
    said = r"collapse: the loss, .*, is that of embeddings in one point \(contrast .* < min_contrast = 0.05\); pairs"
    with pytest.warns(ConvergenceWarning, match=said):
        trainer.fit(*digits, validation=0.3, protocol="closed")
    history = trainer.history
    assert trainer.run.failed and 3 <= trainer.run.epoch < 6
    assert history["loss"][-1] == pytest.approx(level, rel=0.02)
    assert history["rank"][-1] > 1.5 and history["active"][-1] > 0.9  # the other guards have nothing to say
    assert max(history["contrast"]) < 0.05 and history["d_ap"][-1] < history["d_an"][-1] < 0.2 < history["norm"][-1]
    torch.manual_seed(0)
    again = Trainer(MLP(64, 64, (128,)), Triplet(margin, miner=BatchHard()), lr=0.3, optimizer="sgd", min_contrast=0)
    again.max_epochs, again.batches_per_epoch = 4, 12
    assert again.fit(*digits).stop_reason == "all epochs done"


HEALTHY = {
    "Triplet": lambda: Triplet(),
    "Triplet, semi-hard": lambda: Triplet(miner=BatchSemiHard()),
    "Triplet, batch-hard, plain": lambda: Triplet(miner=BatchHard(), distance="euclidean", normalize=False),
    "NCALoss": lambda: NCALoss(),
    "Contrastive": lambda: Contrastive(),
    "ProxyNCA": lambda: ProxyNCA(10, 64),
    "NPair": lambda: NPair(),
    "memory": lambda: CrossBatchMemory(MarginLoss(), 64, 256),
}


@pytest.mark.parametrize("key", HEALTHY)
def test_healthy_runs_are_no_collapse(digits, key):
    torch.manual_seed(0)
    trainer = Trainer(MLP(64, 64, (128,)), HEALTHY[key](), **LONG).fit(*digits, validation=0.3, protocol="closed")
    assert trainer.stop_reason == "all epochs done"
    assert trainer.history["map@r"][-1] > 1.05 * trainer.history["map@r"][0]
    assert np.isfinite([trainer.history[name] for name in ("contrast", "d_ap", "d_an", "norm")]).all()
    assert trainer.history["contrast"][-1] > 0.05


def test_labels_that_mean_nothing_are_no_collapse(digits):
    """The loss stays that of one point, but the embeddings are far apart."""
    X, y = digits
    torch.manual_seed(0)
    trainer = Trainer(MLP(64, 64, (128,)), NCALoss(), lr=1e-4, **LONG)
    trainer.fit(X, np.random.default_rng(0).permutation(y))
    assert trainer.stop_reason == "all epochs done" and min(trainer.history["contrast"]) < 0.05


def test_what_is_seen_of_the_last_batch():
    """Distances between unit vectors if the loss compares those, and the norm as it comes from the network."""
    X, y = data()
    net = network()
    rows = next(iter(PKBatchSampler(y, 4, 3, n_batches=1)))
    z = net(torch.tensor(X[rows], dtype=torch.float32)).detach().double()
    u, same = nn.functional.normalize(z), torch.tensor(y[rows][:, None] == y[rows])
    D = (u[:, None] - u).norm(dim=2)
    history = Trainer(net, Triplet(), max_epochs=1, batches_per_epoch=1, **SMALL).fit(X, y).history
    assert history["norm"] == pytest.approx([float(z.norm(dim=1).mean())], rel=1e-6)
    assert history["d_ap"] == pytest.approx([float(D[same & ~torch.eye(12).bool()].mean())], rel=1e-6)
    assert history["d_an"] == pytest.approx([float(D[~same].mean())], rel=1e-6)


def test_contrast_by_hand_leaves_the_loss_as_it_is():
    """Hinges that are all active: L(s) = m + s² (mean d²_ap − mean d²_an)."""
    z, y = torch.tensor([[0.0, 0], [1, 0], [0, 2], [3, 0]], dtype=torch.float64) / 10, torch.tensor([0, 0, 1, 1])
    D = torch.cdist(z, z).square()
    triples = [(a, p, n) for a, p in ((0, 1), (1, 0), (2, 3), (3, 2)) for n in range(4) if y[n] != y[a]]
    gap = float(sum(D[a, p] - D[a, n] for a, p, n in triples)) / 8
    assert contrast(Triplet(1.0, normalize=False), z, y) == pytest.approx(4 * abs(gap), rel=1e-5)
    memory = CrossBatchMemory(Triplet(miner=RandomTriplets(random_state=0)), 2, 8).double()
    memory(z, y)
    before, drawn = copy.deepcopy(memory.state_dict()), torch.get_rng_state()
    assert contrast(memory, z, y) > 0 and memory.training
    after = memory.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before) and torch.equal(drawn, torch.get_rng_state())


def run_of(contrast, d_an, norm):
    return Run(epoch=len(norm), history={"contrast": contrast, "d_an": d_an, "norm": norm})


@pytest.mark.parametrize(
    ("contrast", "d_an", "norm", "unit_length", "found"),
    [
        ([0.01] * 3, [0.05, 0.05, 0.04], [9.0] * 3, True, True),
        ([0.01] * 2, [0.05, 0.04], [9.0] * 2, True, False),  # too early
        ([0.01, 0.06, 0.01], [0.05, 0.05, 0.04], [9.0] * 3, True, False),  # the loss saw them in between
        ([0.01] * 3, [0.05, 0.04, 0.06], [9.0] * 3, True, False),  # they part
        ([0.01] * 3, [0.6, 0.6, 0.5], [9.0] * 3, True, False),  # far apart on the sphere
        ([0.01] * 3, [0.6, 0.6, 0.5], [9.0] * 3, False, True),  # close by the size of embeddings
        ([0.5] + [0.01] * 3, [1.0, 0.05, 0.04, 0.03], [1.0, 0.09, 0.06, 0.05], False, True),  # shrunk, about the origin
        ([0.5] + [0.01] * 3, [1.0, 0.05, 0.04, 0.03], [1.0, 0.11, 0.06, 0.05], False, False),
        ([math.nan] * 3, [0.05, 0.05, 0.04], [9.0] * 3, True, False),  # a foreign loss
        ([0.01] * 3, [math.nan] * 3, [9.0] * 3, True, False),  # no classes
    ],
)
def test_when_embeddings_are_indistinct(contrast, d_an, norm, unit_length, found):
    assert run_of(contrast, d_an, norm).indistinct(0.05, unit_length) is found
    assert not run_of(contrast, d_an, norm).indistinct(0.0, unit_length)


def test_met_margins_end_training():
    X, y = data(spread=500)
    trainer = Trainer(LinearMap(5, 5), Triplet(normalize=False), **SMALL).fit(X, y)
    assert trainer.stop_reason == "all margins were met in epoch 1: no sample got a gradient"
    assert trainer.history["active"] == [0.0] and trainer.history["loss"] == [0.0]


def test_no_gradient_with_a_loss_left_is_a_collapse():
    class Dead(LossObjective):
        def forward(self, model, batch):
            return super().forward(model, batch) * 0 + 1

    with pytest.warns(ConvergenceWarning, match="0% of the samples got a gradient in epoch 1"):
        Trainer(network(), Dead(NCALoss()), **SMALL).fit(*data())


def test_active_fraction_by_loops():
    """The share of rows that occur in an active batch-hard triplet."""
    X, y = data()
    net = network()
    sampler = PKBatchSampler(y, 4, 3, n_batches=1)
    rows = next(iter(sampler))
    z = nn.functional.normalize(net(torch.tensor(X[rows], dtype=torch.float32))).detach().double()
    label, moved = y[rows], set()
    D = torch.cdist(z, z).square()
    for a in range(12):
        p = max((j for j in range(12) if j != a and label[j] == label[a]), key=lambda j: D[a, j])
        n = min((j for j in range(12) if label[j] != label[a]), key=lambda j: D[a, j])
        if D[a, p] - D[a, n] + 0.05 > 0:
            moved |= {a, p, n}
    trainer = Trainer(net, Triplet(0.05, miner=BatchHard()), max_epochs=1, batches_per_epoch=1, **SMALL).fit(X, y)
    assert 0 < len(moved) < 12
    assert trainer.history["active"] == pytest.approx([len(moved) / 12])


def test_effective_rank():
    basis = torch.linalg.qr(torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    cross = torch.cat([torch.eye(4), -torch.eye(4)]).double() @ basis.T + 5  # four axes, equal variance, off-centre
    assert effective_rank(cross) == pytest.approx(4, rel=1e-9)
    assert effective_rank(cross[[0, 4]]) == pytest.approx(1, abs=1e-6)
    assert effective_rank(torch.ones(9, 3) + 1e-5 * torch.rand(9, 3)) == 0
    w = np.array([0.9, 0.1])
    uneven = torch.diag(torch.tensor([3.0, 1.0]))
    assert effective_rank(torch.cat([uneven, -uneven])) == pytest.approx(np.exp(-(w * np.log(w)).sum()), rel=1e-6)


# -- precision, errors -------------------------------------------------------------------------------------------------


def test_bfloat16_model_with_a_float32_loss():
    a = Trainer(network(), NCALoss(), max_epochs=2, **SMALL).fit(*data())
    b = Trainer(network(), NCALoss(), max_epochs=2, precision="bf16", **SMALL).fit(*data())
    assert a.history["loss"] != b.history["loss"]
    assert_allclose(b.history["loss"], a.history["loss"], rtol=0.02)
    assert all(p.dtype == torch.float32 for p in b.model.parameters())
    again = Trainer(network(), NCALoss(), max_epochs=2, **SMALL).fit(*data())  # the precision does not stick
    assert again.history["loss"] == a.history["loss"]


@pytest.mark.slow
def test_compiled_model():
    a = Trainer(network(), NCALoss(), max_epochs=2, **SMALL).fit(*data())
    b = Trainer(network(), NCALoss(), max_epochs=2, compile=True, **SMALL).fit(*data())
    assert_allclose(b.history["loss"], a.history["loss"], rtol=1e-4)


def test_overflow_is_a_step_that_the_trainer_counts_and_names():
    X, y = data()
    net = LinearMap(5, 3)
    net.weight.data.mul_(1e20)
    said = pytest.warns(RuntimeWarning, match="rows of norm up to .*e\\+20, whose squared distances exceed")
    with said, pytest.warns(ConvergenceWarning, match="NaN or infinite in 3 steps in a row"):
        trainer = Trainer(net, NCALoss(), **SMALL).fit(X, y)
    assert trainer.run.step == 3 and net.weight.isfinite().all()


@pytest.mark.parametrize("unit_length", [True, False])
def test_what_a_foreign_distance_says_of_unit_length_is_believed(unit_length):
    """Its class has a method ``normalize``, which says nothing."""

    class Distances(nn.Module):
        normalize_embeddings = unit_length

        def normalize(self, z):
            return nn.functional.normalize(z)

    foreign = nn.Module()
    foreign.distance = Distances()
    assert on_sphere(LossObjective(foreign)) is unit_length


@pytest.mark.parametrize("unit_length", [True, False])
def test_losses_of_pytorch_metric_learning_are_on_the_sphere_if_they_say_so(unit_length):
    pml = pytest.importorskip("pytorch_metric_learning")
    from pytorch_metric_learning import distances, losses  # noqa: F401

    loss = losses.ContrastiveLoss(distance=pml.distances.LpDistance(normalize_embeddings=unit_length))
    assert on_sphere(LossObjective(loss)) is unit_length


def test_embedding_is_on_the_sphere_if_the_loss_is():
    assert on_sphere(LossObjective(Triplet())) and on_sphere(CrossBatchMemory(Triplet(), 3))
    assert not on_sphere(NCALoss()) and not on_sphere(lambda model, batch: 0)
    X, y = data()
    trainer = Trainer(network(), Triplet(), normalize=False, max_epochs=1, **SMALL).fit(X, y)
    with torch.no_grad():
        assert_close(trainer.embed(X), trainer.model.eval()(torch.tensor(X, dtype=torch.float32)))


@pytest.mark.parametrize(
    ("params", "fit", "message"),
    [
        ({"precision": "fp8"}, {}, "precision='fp8'"),
        ({"optimizer": "lion"}, {}, "'adamw' or 'sgd'"),
        ({"schedule": "stairs"}, {}, "'cosine'"),
        ({"monitor": "accuracy"}, {}, "'map@r'"),
        ({"patience": 3}, {}, "patience waits for map@r: give validation"),
        ({}, {"validation": 1.5}, "between 0 and 1"),
        ({}, {"validation": 0.2, "protocol": "half"}, "'open' or 'closed'"),
        ({}, {"validation": 0.2, "labels": None}, "labelled samples only"),
        ({}, {"labels": np.zeros(7)}, "60 samples need as many labels, got 7"),
        ({}, {"labels": np.arange(70) % 7, "validation": 0.3}, "60 samples need as many labels, got 70"),
        ({}, {"labels": np.arange(60) % 3, "validation": 0.5}, "cannot be split"),
        ({}, {"labels": np.arange(60) // 2, "validation": 0.5, "protocol": "closed"}, "4 samples or more"),
    ],
)
def test_bad_input_is_named(params, fit, message):
    X, y = data()
    with pytest.raises(ValueError, match=message):
        Trainer(network(), NCALoss(), **params).fit(X, **{"labels": y, **fit})


# -- settings ----------------------------------------------------------------------------------------------------------

GROUPED = {
    "optimization": Optimization(lr=0.02, optimizer="sgd", schedule="linear", warmup=0.2, clip_norm=1.0, accumulate=2),
    "batches": Batches(classes_per_batch=4, samples_per_class=3, batches_per_epoch=4),
    "stopping": Stopping(max_epochs=3, monitor="last", min_contrast=0.0),
    "hardware": Hardware(device="cpu"),
}


def test_settings_in_groups_and_flat_are_the_same_run():
    flat = {field: value for group in GROUPED.values() for field, value in vars(group).items()}
    runs = [Trainer(network(), NCALoss(), **settings).fit(*data()) for settings in (GROUPED, flat)]
    assert states_equal(runs[0].model, runs[1].model) and runs[0].history["loss"] == runs[1].history["loss"]
    assert len(runs[0].history["loss"]) == 3
    both = Trainer(network(), NCALoss(), **GROUPED, lr=0.5, max_epochs=7)
    assert both.optimization == replace(GROUPED["optimization"], lr=0.5) and both.stopping.max_epochs == 7
    assert GROUPED["stopping"].max_epochs == 3


def test_every_setting_is_in_one_group_and_can_be_read_and_set_by_its_name():
    names = [field.name for kind in (Optimization, Batches, Stopping, Hardware, Saving) for field in fields(kind)]
    assert len(names) == len(set(names)) == 33
    trainer = Trainer(network(), NCALoss())
    assert all(getattr(trainer, f.name) == f.default for kind in (Optimization, Batches) for f in fields(kind))
    trainer.max_epochs = 2
    assert trainer.stopping == Stopping(max_epochs=2) and trainer.max_epochs == 2
    with pytest.raises(AttributeError, match="no attribute 'max_epoch'"):
        trainer.max_epoch  # noqa: B018
    with pytest.raises(ValueError, match="precision='fp8'"):
        trainer.precision = "fp8"
    twin = copy.deepcopy(trainer)
    assert twin.stopping == trainer.stopping and twin.lr == trainer.lr


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("max_epoch", "max_epochs"), ("min_contrst", "min_contrast"), ("foldr", "folder"), ("batch", "batches")],
)
def test_an_unknown_setting_names_the_closest(wrong, meant):
    with pytest.raises(TypeError, match=f"Trainer has no parameter '{wrong}'; the closest is '{meant}'"):
        Trainer(network(), NCALoss(), **{wrong: 1})


def test_nothing_to_train_is_refused():
    net = network()
    net.requires_grad_(False)
    with pytest.raises(ValueError, match="nothing to train"):
        Trainer(net, NCALoss()).fit(*data())


# -- data and networks -------------------------------------------------------------------------------------------------


def test_shuffled_batches_visit_all_once():
    sampler = ShuffledBatches(12, 4, random_state=1)
    first, second = list(sampler), list(sampler)
    assert len(sampler) == 3 and all(len(b) == 4 for b in first)
    assert sorted(chain(*first)) == sorted(chain(*second)) == list(range(12)) and first != second
    assert len(ShuffledBatches(11, 4)) == 2 and len(ShuffledBatches(3, 64)) == 1


def test_table_cuts_batches():
    table = TableDataset(np.arange(6.0).reshape(3, 2), ["b", "a", "b"])
    x, y = table[[2, 0]]
    assert x.tolist() == [[4, 5], [0, 1]] and x.dtype == torch.float32 and y.tolist() == [1, 1]
    assert TableDataset(np.arange(3))[1].dtype == torch.int64


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 7, 9), (1, 1, 5), (2, 28, 28)])
def test_conv_net_takes_any_size_and_treats_images_alone(shape):
    torch.manual_seed(0)
    net = ConvNet(shape, 4, width=8, blocks=3)
    x = torch.randn(3, *shape)
    z = net(x)
    assert z.shape == (3, 4)
    assert_close(net(x[1:2]), z[1:2], rtol=1e-4, atol=1e-5)
    assert_close(net(x.flatten(1)), z)


def test_networks_say_what_is_wrong():
    with pytest.raises(ValueError, match="multiple of 8"):
        ConvNet((1, 8, 8), 4, width=12)
    with pytest.raises(ValueError, match="channels, height, width"):
        ConvNet((8, 8), 4)
    net = MLP(5, 3, hidden=(7, 6), dropout=0.5)
    assert [tuple(p.shape) for p in net.parameters()] == [(7, 5), (7,), (6, 7), (6,), (3, 6), (3,)]
    assert sum(isinstance(m, nn.Dropout) for m in net.modules()) == 2


# -- several processes -------------------------------------------------------------------------------------------------

DISTRIBUTED = {
    "memory": lambda: CrossBatchMemory(Triplet(), 3, memory_size=30, warmup_steps=1),
    "proxies": lambda: ProxyNCA(5, 3),
}


def trained(key):
    torch.manual_seed(0)
    loss = DISTRIBUTED[key]()
    trainer = Trainer(network(), loss, max_epochs=2, batches_per_epoch=3, **SMALL)
    trainer.fit(*data(), validation=data(1))
    return trainer.history, [*trainer.model.state_dict().values(), *loss.state_dict().values()]


def distributed_main(folder):
    """What each of the processes runs."""
    torch.save({key: trained(key) for key in DISTRIBUTED}, f"{folder}/rank{os.environ['RANK']}.pt")


@pytest.mark.parametrize("launcher", ["by hand", pytest.param("torchrun", marks=pytest.mark.slow)])
def test_two_processes_equal_one(tmp_path, launcher):
    ranks = results_of_two("tests.deep.test_trainer", tmp_path, launcher)
    for key in DISTRIBUTED:
        history, weights = trained(key)
        assert history["loss"][0] != history["loss"][1]
        for found, parts in (rank[key] for rank in ranks):
            for a, b in zip(parts, weights, strict=True):
                assert_close(a, b, rtol=1e-4, atol=1e-5)
            for name in history:
                assert_allclose(found[name], history[name], rtol=1e-4, err_msg=name)


class Spy(nn.Module):
    """A network that keeps what its dropout lets pass, and an augmentation that keeps the noise it adds."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = LinearMap(5, 3), nn.Dropout(0.5)
        self.seen = {"dropout": [], "noise": []}

    def forward(self, x):
        if self.training:
            self.seen["dropout"].append(self.dropout(torch.ones(len(x), 5)))
            x = x * self.seen["dropout"][-1]
        return self.linear(x)

    def augment(self):
        return Vary(self.seen["noise"])


class Vary(nn.Module):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def forward(self, x, y=None):
        noise = torch.randn_like(x)
        self.kept.append(noise)
        return x + 0.1 * noise


def watched(folder=None, stop=None, ctrl_c=None, seed=0):
    """Trained for two epochs of three steps; ``stop`` raises after so many epochs, Ctrl-C comes in a step."""
    torch.manual_seed(0)
    spy = Spy()
    objective = Augmented(Triplet(), spy.augment())
    calls = iter(range(1, 100))
    if ctrl_c is not None:
        objective.register_forward_pre_hook(
            lambda *_: signal.raise_signal(signal.SIGINT) if next(calls) == ctrl_c else None
        )
    trainer = Trainer(
        spy, objective, max_epochs=stop or 2, batches_per_epoch=3, schedule="constant", monitor="last", folder=folder,
        random_state=seed, **SMALL,
    )  # fmt: skip
    interrupted = pytest.raises(KeyboardInterrupt) if ctrl_c is not None else contextlib.nullcontext()
    with interrupted:
        trainer.fit(*data(), resume=True)
    drawn = {name: torch.cat(parts) for name, parts in spy.seen.items()} if spy.seen["noise"] else {}
    history = {k: v for k, v in trainer.history.items() if k in ("loss", "active")}
    return {"drawn": drawn, "weights": list(spy.state_dict().values()), "history": history}


def random_main(folder):
    """What each of two processes runs to show its random numbers."""
    rank = int(os.environ["RANK"])
    found = {"straight": watched(), "again": watched(), "other seed": watched(seed=1)}
    watched(f"{folder}/epoch", stop=1)
    found["epoch"] = watched(f"{folder}/epoch")
    watched(f"{folder}/step", ctrl_c=2 if rank == 0 else 99)
    found["step"] = watched(f"{folder}/step")
    torch.save(found, f"{folder}/rank{rank}.pt")


def test_each_process_draws_its_own_augmentation_and_dropout_and_resumes_with_it(tmp_path):
    ranks = results_of_two("tests.deep.test_trainer", tmp_path, main="random_main")
    rows = len(ranks[0]["straight"]["drawn"]["noise"])
    for name in ("noise", "dropout"):
        a, b = (rank["straight"]["drawn"][name] for rank in ranks)  # (6 steps · 6 samples, 5) each
        assert len(a) == len(b) == rows and not torch.equal(a, b)
        if name == "noise":  # independent: the mean of n products has standard deviation 1/√n
            assert abs((a * b).mean()) < 5 / math.sqrt(a.numel())
            assert not (a[:, None] == b[None]).all(-1).any()  # no row of one is one of the other
    for k, rank in enumerate(ranks):
        for name in ("noise", "dropout"):
            drawn = rank["straight"]["drawn"][name]
            assert torch.equal(rank["again"]["drawn"][name], drawn)
            assert not torch.equal(rank["other seed"]["drawn"][name], drawn)
            for way, done in (("epoch", 3), ("step", 2)):
                assert torch.equal(rank[way]["drawn"][name], drawn[done * rows // 6 :]), (k, name, way)
        for way in ("again", "epoch", "step"):
            assert all(map(torch.equal, rank[way]["weights"], rank["straight"]["weights"])), (k, way)
            assert rank[way]["history"] == rank["straight"]["history"], (k, way)
    assert all(map(torch.equal, ranks[0]["straight"]["weights"], ranks[1]["straight"]["weights"]))


# -- what knows the length of the run ----------------------------------------------------------------------------------


def remembered(folder=None, epochs=10, **params):
    """How much the memory held after each epoch of six batches of twelve."""
    torch.manual_seed(0)
    memory, held = CrossBatchMemory(Triplet(), 3, memory_size=1000, **params), []
    trainer = Trainer(
        network(), memory, max_epochs=epochs, batches_per_epoch=6, folder=folder,
        callbacks=[lambda _: held.append(len(memory))], **SMALL,
    )  # fmt: skip
    trainer.fit(*data(), validation=data(1), resume=True)
    return memory, held


def test_the_memory_begins_after_the_warm_up():
    memory, held = remembered()
    assert memory.warmup_steps == 60 // 10
    assert held == [12 * max(0, steps - 6) for steps in range(6, 61, 6)]
    assert remembered(warmup_steps=20)[1] == [12 * max(0, steps - 20) for steps in range(6, 61, 6)]
    assert remembered(warmup_steps=0)[1][0] == 72
    assert remembered(planned_steps=100)[0].warmup_steps == 10  # who says it is believed


def test_the_warm_up_is_kept_by_a_resumed_and_by_a_longer_run(tmp_path):
    _, straight = remembered()
    _, first = remembered(tmp_path, epochs=2, planned_steps=60)
    memory, second = remembered(tmp_path)
    assert first + second == straight and memory.warmup_steps == 6
    longer, third = remembered(tmp_path, epochs=40)
    assert longer.warmup_steps == 6 and third[0] == 12 * 60


def test_the_estimator_warms_up_too():
    X, y = data(n=120)
    made = []

    def loss(embedding_size):
        made.append(CrossBatchMemory(None, embedding_size))
        return made[-1]

    DeepMetric(loss=loss, max_epochs=2, min_steps=40, classes_per_batch=4, samples_per_class=3).fit(X, y)
    assert made[0].warmup_steps == 4 and len(made[0]) == 12 * 36


def test_batches_of_a_table_are_those_of_its_loader():
    X, y = np.arange(60.0).reshape(20, 3), np.repeat(np.arange(5), 4)
    table = TableDataset(X, y)
    loader = make_loader(table, PKBatchSampler(y, 2, 2, n_batches=4, random_state=0))
    direct = list(batches_of(loader))
    loader.sampler.set_epoch(0)
    loaded = list(loader)
    assert batches_of(loader) is not loader and len(direct) == 4
    for one, other in zip(direct, loaded, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    foreign = DataLoader(table, batch_size=5)
    assert batches_of(foreign) is foreign
