"""Averages, schedules, groups, freezing, restoring, logs and checkpoints by step, each by hand."""

from __future__ import annotations

import copy
import csv
import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from isometry.deep import (
    MLP,
    CheckpointError,
    CSVLog,
    NCALoss,
    Plateau,
    ProxyNCA,
    TensorBoard,
    Trainer,
    Triplet,
    load_checkpoint,
)
from isometry.deep.averages import WeightAverage
from isometry.deep.objective import LossObjective, Step
from isometry.deep.parts import Freezing, depths, model_groups
from isometry.deep.run import Run
from isometry.deep.schedules import SCHEDULES
from isometry.deep.settings import adamw
from tests.deep.processes import results_of_two
from tests.deep.test_checkpoint import Crash, assert_same_run, crash_after, data, fit, make

torch.set_num_threads(1)
SMALL = {"classes_per_batch": 4, "samples_per_class": 3, "batches_per_epoch": 5}


class Parted(nn.Module):
    """A backbone with batch normalisation, and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2))
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.backbone(x))


LAYOUTS = {
    "rows": (True, lambda W: W.clone()),
    "a column": (True, lambda W: W[:, :1].contiguous()),
    "a slice": (False, lambda W: W[:, :3]),
    "every other row": (False, lambda W: W[::2]),
    "transposed": (False, lambda W: W.T),
    "images, channels last": (False, lambda W: W.reshape(2, 3, 2, 2).contiguous(memory_format=torch.channels_last)),
    "complex": (False, lambda W: W + 1j * W.flip(0)),
    "elsewhere": (False, lambda W: W.to("meta")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adamw_is_fused_where_that_is_right(layout):
    """A slice leaves what is around it alone; and moments that lie row by row, as those of a file, are read as such."""
    torch.manual_seed(0)
    fused, of = LAYOUTS[layout]
    base, found = torch.randn(4, 6), []
    for kind in (adamw, torch.optim.AdamW):
        memory = base.clone()
        p, beside = nn.Parameter(of(memory)), nn.Parameter(torch.ones(2, 2))
        optimizer = kind([{"params": [beside], "lr": 0.1}, {"params": [p], "lr": 0.1}])
        if kind is adamw:
            assert optimizer.defaults["fused"] == (True if fused else None)
        if layout == "elsewhere":
            return
        target = torch.arange(p.numel()).reshape(p.shape)
        for _ in range(2):
            for _ in range(2):
                optimizer.zero_grad()
                ((p - target).abs() ** 2 * (1 + target)).sum().backward()
                beside.square().sum().backward()
                optimizer.step()
            state = copy.deepcopy(optimizer.state_dict())
            state["state"] = {k: {n: v.contiguous() for n, v in s.items()} for k, s in state["state"].items()}
            optimizer.load_state_dict(state)
        found.append([p.detach(), beside.detach(), memory])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def weights_by_step(trainer):
    """Weights after every update, noted where the next batch comes in, and those of the end."""
    seen = []
    trainer.objective.register_forward_pre_hook(
        lambda *_: seen.append([p.detach().clone() for p in trainer.model.parameters()])
    )
    return seen


# -- average of weights ------------------------------------------------------------------------------------------------


def test_the_average_by_hand_is_what_is_kept():
    net = MLP(5, 3, (8,))
    plain = Trainer(copy.deepcopy(net), NCALoss(), max_epochs=2, restore="last", lr=0.05, **SMALL)
    seen = weights_by_step(plain)
    plain.fit(*data())
    seen.append([p.detach().clone() for p in plain.model.parameters()])
    assert len(seen) == 11  # the start, and ten updates
    mean = seen[0]
    for t, now in enumerate(seen[1:], start=1):
        d = min(0.7, (1 + t) / (10 + t))
        mean = [d * m + (1 - d) * w for m, w in zip(mean, now)]
    shown = []
    watch = [lambda t: shown.append([p.detach().clone() for p in t.model.parameters()])]
    trainer = Trainer(net, NCALoss(), ema=0.7, max_epochs=2, restore="ema", lr=0.05, callbacks=watch, **SMALL)
    trainer.fit(*data())  # an average changes nothing of the training itself
    for kept, m, seen_last, end in zip(trainer.model.parameters(), mean, shown[-1], seen[-1]):
        torch.testing.assert_close(kept.detach(), m, rtol=1e-5, atol=1e-6)
        assert torch.equal(kept, seen_last)  # callbacks see the averaged network
        assert (kept - end).abs().max() > 1e-4


def test_update_and_exchange_of_the_average():
    net = Parted()
    average = WeightAverage(Step(net, LossObjective(ProxyNCA(5, 3))), 0.5)
    start, running = net.head.weight.detach().clone(), net.backbone[1].running_mean.clone()
    with torch.no_grad():
        net.head.weight.add_(1.0)
        net.backbone[1].running_mean.add_(2.0)
        net.backbone[1].num_batches_tracked.add_(3)
    average.update()  # d = min(1/2, 2/11)
    now = net.head.weight.detach().clone()
    with average.in_place():
        assert_allclose(net.head.weight.detach(), start + 9 / 11, rtol=1e-6)
        assert_allclose(net.backbone[1].running_mean, running + 18 / 11, rtol=1e-6)
        assert net.backbone[1].num_batches_tracked == 3  # a count is no mean
    assert torch.equal(net.head.weight, now)


def test_the_averaged_network_is_measured_and_the_raw_one_is_trained():
    X, y = data()
    plain = Trainer(MLP(5, 3, (8,)), Triplet(), max_epochs=3, monitor="last", **SMALL)
    plain.model.load_state_dict(state := {k: v.clone() for k, v in plain.model.state_dict().items()})
    plain.fit(X, y, validation=data(1))
    averaged = Trainer(MLP(5, 3, (8,)), Triplet(), max_epochs=3, ema=0.9, restore="last", **SMALL)
    averaged.model.load_state_dict(state)
    averaged.fit(X, y, validation=data(1))
    assert averaged.history["loss"] == plain.history["loss"]  # training knows nothing of the average
    assert averaged.history["rank"] != plain.history["rank"]
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), averaged.model.parameters()))
    kept = Trainer(MLP(5, 3, (8,)), Triplet(), max_epochs=3, ema=0.9, **SMALL)
    kept.model.load_state_dict(state)
    z = []
    kept.callbacks = [lambda t: z.append(t.embed(X))]
    kept.fit(X, y, validation=data(1))
    assert torch.equal(kept.embed(X), z[kept.run.best_epoch - 1])


# -- learning rates ----------------------------------------------------------------------------------------------------


def test_onecycle_is_that_of_torch():
    p = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([p], lr=1.0)
    n = 50
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=n + 1, cycle_momentum=False)
    for step in range(n + 1):
        at = step / n  # torch puts the peak at 0.3 · total − 1: compared by its own clock
        peak, end = 0.3 * (n + 1) - 1, n
        t = 0.3 * step / peak if step <= peak else 0.3 + 0.7 * (step - peak) / (end - peak)
        assert_allclose(SCHEDULES["onecycle"](t), optimizer.param_groups[0]["lr"], rtol=1e-9)
        assert 0 <= at <= 1
        optimizer.step()
        if step < n:
            theirs.step()


def test_schedules_by_their_values():
    wsd, step = SCHEDULES["wsd"], SCHEDULES["step"]
    assert [wsd(t) for t in (0, 0.5, 0.8)] == [1, 1, 1]
    assert_allclose([wsd(0.85), wsd(0.95), wsd(1.0)], [0.5, 1 - math.sqrt(0.75), 0], atol=1e-12)
    assert_allclose([step(t) for t in (0, 0.49, 0.5, 0.74, 0.75, 1)], [1, 1, 0.1, 0.1, 0.01, 0.01])


def test_a_plateau_by_hand():
    plateau = Plateau(factor=0.1, patience=1, min_delta=0.05)
    scores = [0.5, 0.52, 0.54, 0.54, 0.9, math.nan, 0.9, 0.9]
    #         best  wait  fall  wait  best wait      fall  wait
    found = [plateau.after(scores[:k]) for k in range(len(scores) + 1)]
    assert_allclose(found, [1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.01, 0.01])


def test_a_plateau_lowers_the_learning_rate_of_all_groups():
    never = Plateau(0.5, patience=1, min_delta=9.0)  # no score is so much better than the first
    rates = []
    trainer = Trainer(Parted(), ProxyNCA(5, 3), lr=0.1, schedule=never, monitor="loss", max_epochs=6, **SMALL)
    trainer.optimizer = lambda groups: torch.optim.SGD(groups)
    trainer.lr_groups = {"head": 0.1}
    original = trainer.optimization.make_optimizer
    object.__setattr__(trainer.optimization, "make_optimizer", lambda g: rates.append(found := original(g)) or found)
    trainer.fit(*data())
    assert_allclose(trainer.history["lr"], [0.1, 0.1, 0.1, 0.05, 0.05, 0.025])
    proxies = ProxyNCA(5, 3)
    last = [0.1, 0.01, min(0.1 * proxies.lr_mult, proxies.lr_cap)]
    assert_allclose([g["lr"] for g in rates[0].param_groups], [0.25 * lr for lr in last])


def test_a_plateau_of_what_is_not_measured_is_refused():
    with pytest.raises(ValueError, match="schedule='plateau' waits for map@r: give validation"):
        Trainer(Parted(), NCALoss(), schedule="plateau", **SMALL).fit(*data())


def test_groups_by_name_and_depth():
    net = nn.Sequential()
    net.embed, net.blocks, net.head = nn.Linear(2, 2), nn.ModuleList(nn.Linear(2, 2) for _ in range(3)), nn.Linear(2, 1)
    assert depths(net) == {
        **dict.fromkeys(("embed.weight", "embed.bias"), 0),
        **{f"blocks.{k}.{w}": k + 1 for k in range(3) for w in ("weight", "bias")},
        **dict.fromkeys(("head.weight", "head.bias"), 4),
    }
    groups = model_groups(net, 0.1, 0.01, {"blocks": 2.0, "blocks.1.bias": 0.0}, 0.5)
    rate = {id(p): g["lr"] for g in groups for p in g["params"]}
    found = {name: rate[id(p)] for name, p in net.named_parameters()}
    assert_allclose(found["embed.weight"], 0.1 / 16)
    assert_allclose(found["blocks.0.weight"], 0.2 / 8)
    assert_allclose(found["blocks.1.weight"], 0.2 / 4)
    assert found["blocks.1.bias"] == 0 and found["head.bias"] == 0.1
    assert sum(len(g["params"]) for g in groups) == 10 and {g["weight_decay"] for g in groups} == {0.01}


def test_a_part_with_its_own_learning_rate_moves_by_it():
    X, y = data()
    start, nets = Parted().state_dict(), {}
    for factor in (1.0, 0.1, 0.0):
        nets[factor] = net = Parted()
        params = {"optimizer": lambda g: torch.optim.SGD(g), "schedule": "constant", "weight_decay": 0.0}
        settings = {**SMALL, "batches_per_epoch": 1}
        Trainer(net, NCALoss(), lr=0.1, lr_groups={"backbone": factor}, max_epochs=1, **params, **settings).fit(X, y)
    moved = {f: net.backbone[0].weight.detach() - start["backbone.0.weight"] for f, net in nets.items()}
    assert moved[1.0].abs().max() > 1e-4 and not moved[0.0].any()
    assert_allclose(moved[0.1], 0.1 * moved[1.0], atol=1e-7)
    assert torch.equal(nets[1.0].head.weight, nets[0.0].head.weight)


@pytest.mark.parametrize(
    "params, message",
    [
        ({"lr_groups": {"bakbone": 0.1}}, "no part 'bakbone'; its parts are backbone, head.*'backbone'"),
        ({"freeze": "heads"}, "no part 'heads'.*'head'"),
        ({"lr_groups": {"head": -1.0}}, "must not be negative: head: -1.0"),
        ({"unfreeze_at": 2}, "name them in freeze"),
        ({"freeze": ("backbone", "head"), "unfreeze_at": (1,)}, "1 epochs for 2 frozen parts"),
        ({"layer_decay": 0.9}, "stack of layers of one kind"),
        ({"ema": 1.0}, "below 1"),
        ({"ema": 1.5}, "must lie in"),
        ({"restore": "ema"}, "set ema"),
        ({"restore": "first"}, "'best'"),
        ({"min_delta": -1.0}, "must not be negative"),
        ({"keep": -1}, "must not be negative"),
        ({"schedule": Plateau, "monitor": "accuracy"}, "'map@r'"),
    ],
)
def test_what_is_wrong_is_named(params, message):
    with pytest.raises(ValueError, match=message):
        Trainer(Parted(), NCALoss(), **params, **SMALL).fit(*data())


# -- freezing ----------------------------------------------------------------------------------------------------------


def test_frozen_parts_do_not_change_until_their_epoch():
    net, seen = Parted(), []
    trainer = Trainer(net, NCALoss(), lr=0.05, freeze="backbone", unfreeze_at=2, max_epochs=4, **SMALL)
    trainer.callbacks = [lambda t: seen.append({k: v.clone() for k, v in t.model.state_dict().items()})]
    start = {k: v.clone() for k, v in net.state_dict().items()}
    trainer.fit(*data())
    frozen = [k for k in start if k.startswith("backbone")]
    assert any("running_mean" in k for k in frozen)
    for k in frozen:
        assert torch.equal(seen[1][k], start[k]), k
        assert not torch.equal(seen[3][k], start[k]), k
    assert not torch.equal(seen[0]["head.weight"], start["head.weight"])
    assert all(p.requires_grad for p in net.parameters())


def test_parts_thaw_one_after_another_and_for_several_processes_lose_their_gradients():
    net = Parted()
    freezing = Freezing(net, ("backbone.0", "head"), (3, 1), shared=True)
    for epoch, frozen in ((0, ["backbone.0", "head"]), (1, ["backbone.0"]), (3, [])):
        net.train()
        freezing.begin(epoch)
        assert freezing.frozen == frozen and net.backbone[0].training == ("backbone.0" not in frozen)
        net(torch.randn(4, 5)).sum().backward()
        freezing.drop_gradients()
        for name, p in net.named_parameters():
            assert p.requires_grad and (p.grad is None) == any(name.startswith(part) for part in frozen), name
        net.zero_grad()
    alone = Freezing(net, ("head",), None)
    alone.begin(0)
    assert not net.head.weight.requires_grad and net.backbone[0].weight.requires_grad
    alone.end()
    assert net.head.weight.requires_grad


def frozen_and_averaged():
    torch.manual_seed(0)
    net = MLP(5, 3, (8,))
    settings = {"freeze": "layers.0", "unfreeze_at": 1, "ema": 0.9, "restore": "ema", "lr": 0.05, "max_epochs": 3}
    settings |= {
        "optimizer": "sgd"
    }  # Adam would magnify the rounding of gradients that are 0, such as that of the last bias
    Trainer(net, NCALoss(), **settings, **SMALL).fit(*data())
    return net.state_dict()


def distributed_main(folder):
    found = frozen_and_averaged()
    torch.save(found, f"{folder}/rank{torch.distributed.get_rank()}.pt")


def test_two_processes_freeze_and_average_as_one_does(tmp_path):
    alone = frozen_and_averaged()
    for found in results_of_two("tests.deep.test_training_options", tmp_path):
        for name, value in alone.items():
            assert_allclose(found[name], value, atol=1e-5, err_msg=name)


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_an_improvement_must_exceed_min_delta():
    run = Run()
    found = []
    for value in (0.5, 0.55, 0.61, 0.70):
        run.close_epoch({"map@r": value})
        found.append(run.improved("map@r", 0.1))
    assert found == [True, False, True, False] and run.best_epoch == 3


def test_any_column_can_be_watched():
    run = Run()
    for loss, rank in ((1.0, 2.0), (0.5, 1.5), (0.7, 2.5)):
        run.close_epoch({"loss": loss, "rank": rank, "d_ap": loss})
    assert run.scores("loss") == [-1.0, -0.5, -0.7] == run.scores("d_ap") and run.scores("rank") == [2.0, 1.5, 2.5]
    trainer = Trainer(Parted(), NCALoss(), monitor="d_an", max_epochs=3, **SMALL).fit(*data())
    assert trainer.run.best_epoch == 1 + int(np.argmax(trainer.history["d_an"]))


# -- logs --------------------------------------------------------------------------------------------------------------


def test_a_csv_log_holds_every_epoch_also_of_a_resumed_run(tmp_path):
    log = tmp_path / "logs" / "history.csv"
    with pytest.raises(Crash):
        fit(make(tmp_path / "run", callbacks=[CSVLog(log), crash_after(3)]))
    done = fit(make(tmp_path / "run", callbacks=[CSVLog(log)], patience=1, monitor="rank"))
    with log.open() as file:
        rows = list(csv.DictReader(file))
    assert [r["epoch"] for r in rows] == [str(k + 1) for k in range(done.run.epoch)]
    assert [float(r["loss"]) for r in rows] == done.history["loss"]
    assert [float(r["grad_norm"]) for r in rows] == done.history["grad_norm"] and min(done.history["grad_norm"]) > 0


def test_the_norm_of_the_gradient_by_hand():
    net = Parted()
    params = {"classes_per_batch": 5, "samples_per_class": 12, "batches_per_epoch": 1}
    trainer = Trainer(net, NCALoss(), max_epochs=1, lr=0.0, **params).fit(*data())
    twin = Parted().train()
    twin.backbone[3].p = 0.0  # cannot draw the same, so neither does the other
    net.backbone[3].p = 0.0
    again = Trainer(net, NCALoss(), max_epochs=1, lr=0.0, **params).fit(*data())
    X, y = data()
    NCALoss()(twin(torch.tensor(X, dtype=torch.float32)), torch.tensor(y)).backward()
    norm = math.sqrt(sum(float(p.grad.double().square().sum()) for p in twin.parameters()))
    assert_allclose(again.history["grad_norm"], [norm], rtol=1e-4)
    assert trainer.history["grad_norm"][0] != again.history["grad_norm"][0]


def test_tensorboard_gets_scalars_and_histograms(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = TensorBoard(tmp_path, histograms_every=2)
    done = Trainer(Parted(), NCALoss(), max_epochs=3, callbacks=[log], **SMALL).fit(*data(), validation=data(1))
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    assert {"train/loss", "train/active", "val/map@r", "lr", "grad_norm"} <= found.keys()
    assert [e.step for e in found["train/loss"]] == [1, 2, 3]
    assert_allclose([e.value for e in found["val/map@r"]], done.history["map@r"], rtol=1e-6)
    assert [e.step for e in events.Histograms("train/s_pos")] == [2]
    values = events.Histograms("train/s_neg")[0].histogram_value
    assert values.num > 0 and values.min >= -1.001 and values.max <= 1.001


def test_an_average_cannot_be_taken_up_in_the_middle(tmp_path):
    fit(make(tmp_path, max_epochs=1))
    with pytest.raises(CheckpointError, match="without ema"):
        fit(make(tmp_path, ema=0.9))


def test_a_run_that_is_stopped_leaves_nothing_frozen():
    net = Parted()
    trainer = Trainer(net, NCALoss(), freeze="backbone", callbacks=[crash_after(1)], **SMALL)
    with pytest.raises(Crash):
        trainer.fit(*data())
    assert all(p.requires_grad for p in net.parameters())


# -- checkpoints by step -----------------------------------------------------------------------------------------------


def test_checkpoints_by_step_are_kept_and_resumed_from(tmp_path):
    params = {"save_every": 3, "keep": 2, "ema": 0.9, "schedule": "plateau", "monitor": "loss"}
    straight = fit(make(None, **params))
    saved = []
    first = make(tmp_path, **params)
    calls = iter(range(1, 100))

    def crash(*_):
        if next(calls) == 9:  # the checkpoint after step 6 is in the middle of the second epoch
            saved.extend(sorted(p.name for p in tmp_path.glob("*.safetensors")))
            raise Crash

    first.objective.register_forward_pre_hook(crash)
    with pytest.raises(Crash):
        fit(first)
    assert saved == ["best.safetensors", *(f"{name}.safetensors" for name in ("last", "previous", "step-5", "step-6"))]
    run = load_checkpoint(tmp_path / "last.safetensors")["run"]
    assert (run["epoch"], run["batch"], run["step"]) == (1, 1, 6)
    assert_same_run(fit(make(tmp_path, **params)), straight)
    assert sorted(p.name for p in tmp_path.glob("step-*")) == ["step-18.safetensors", "step-20.safetensors"]


def test_a_loader_without_a_plan_cannot_be_saved_by_step():
    X, y = (torch.as_tensor(a) for a in data())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X.float(), y), 10)
    with pytest.raises(ValueError, match=r"save_every .* sampler"):
        Trainer(Parted(), NCALoss(), save_every=2).fit(loader)
