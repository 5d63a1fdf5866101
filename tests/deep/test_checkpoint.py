"""A run that is stopped, killed or interrupted ends with the very weights of one that is not; bad files are refused."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from isometry.deep import (
    MLP,
    CheckpointError,
    CrossBatchMemory,
    DistanceWeighted,
    MarginLoss,
    ProxyNCA,
    RandomTriplets,
    Trainer,
    Triplet,
    TripletDataset,
    TripletSampler,
    load_checkpoint,
    save_checkpoint,
)
from isometry.deep import checkpoint as module
from isometry.deep.checkpoint import isolated_rng

torch.set_num_threads(1)


def data(seed=0, n=60, d=5, n_classes=5):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    return 1.5 * rng.standard_normal((n_classes, d))[y] + rng.standard_normal((n, d)), y


OBJECTIVES = {
    "triplet": lambda: Triplet(),
    "proxies": lambda: ProxyNCA(5, 3),
    "memory": lambda: CrossBatchMemory(Triplet(), 3, memory_size=40, warmup_steps=2),
    "seeded miner": lambda: Triplet(miner=RandomTriplets(random_state=3)),
    "global miner": lambda: Triplet(miner=RandomTriplets()),
    "margins": lambda: MarginLoss(num_classes=5, miner=DistanceWeighted(3, random_state=1)),
}


def make(folder, objective="triplet", **params):
    """A small run with dropout, five steps an epoch."""
    torch.manual_seed(0)
    net = MLP(5, 3, hidden=(8,), dropout=0.3)
    options = {"max_epochs": 4, "batches_per_epoch": 5, "classes_per_batch": 4, "samples_per_class": 3} | params
    return Trainer(net, OBJECTIVES[objective](), folder=folder, **options)


def fit(trainer, resume=True):
    X, y = data()
    return trainer.fit(X, y, validation=data(1), resume=resume)


def all_weights(trainer):
    return {**trainer.model.state_dict(), **{f"loss.{k}": v for k, v in trainer.objective.state_dict().items()}}


def assert_same_run(a, b):
    A, B = all_weights(a), all_weights(b)
    assert A.keys() == B.keys()
    for k in A:
        assert torch.equal(A[k], B[k]), k
    assert {k: np.asarray(v).tobytes() for k, v in a.history.items()} == {
        k: np.asarray(v).tobytes() for k, v in b.history.items()
    }
    assert (a.stop_reason, a.run.step, a.run.best_epoch) == (b.stop_reason, b.run.step, b.run.best_epoch)


class Crash(Exception):
    pass


def crash_after(epoch):
    def callback(trainer):
        if trainer.run.epoch == epoch:
            raise Crash

    return callback


def press_ctrl_c(objective, call):
    """Ctrl-C in the middle of the n-th step."""
    calls = iter(range(1, 100))
    objective.register_forward_pre_hook(lambda *_: signal.raise_signal(signal.SIGINT) if next(calls) == call else None)


# -- resume ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_crashed_run_resumes_bit_for_bit(tmp_path, objective):
    straight = fit(make(None, objective))
    with pytest.raises(Crash):
        fit(make(tmp_path, objective, callbacks=[crash_after(3)]))  # the epochs before it are on disk
    assert load_checkpoint(tmp_path / "last.safetensors")["run"]["epoch"] == 2
    resumed = fit(make(tmp_path, objective))
    assert resumed.run.epoch == 4 and len(resumed.history["loss"]) == 4
    assert_same_run(resumed, straight)


@pytest.mark.parametrize("call", [1, 7, 10])  # first of all, in the middle of an epoch, the last of an epoch
def test_ctrl_c_saves_in_the_middle_of_an_epoch(tmp_path, call):
    straight = fit(make(None, "memory"))
    first = make(tmp_path, "memory")
    press_ctrl_c(first.objective, call)
    with pytest.raises(KeyboardInterrupt, match=f"after step {call}; .*resume=True"):
        fit(first)
    saved = load_checkpoint(tmp_path / "last.safetensors")["run"]
    assert (saved["epoch"], saved["batch"], saved["step"]) == ((call - 1) // 5, (call - 1) % 5 + 1, call)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_same_run(fit(make(tmp_path, "memory")), straight)


def test_accumulated_steps_and_optimiser_state_resume(tmp_path):
    params = {"accumulate": 2, "optimizer": "sgd", "lr": 0.05, "warmup": 0.3, "clip_norm": 0.5}
    straight = fit(make(None, **params))
    with pytest.raises(Crash):
        fit(make(tmp_path, callbacks=[crash_after(2)], **params))
    assert_same_run(fit(make(tmp_path, **params)), straight)


def test_a_loader_of_ones_own_resumes(tmp_path):
    """Triplets from a sampler by items, and a plain shuffling loader, which torch's generator drives."""
    X, y = (torch.as_tensor(a) for a in data())
    X = X.float()

    def run(folder, loader, callbacks=()):
        trainer = make(folder, callbacks=callbacks, batches_per_epoch=None)
        trainer.objective = lambda model, batch: (model(batch[0]) - model(batch[1])).square().mean()
        return trainer.fit(loader(), validation=data(1), resume=True)

    loaders = (
        lambda: torch.utils.data.DataLoader(TripletDataset(X), 16, sampler=TripletSampler(y)),
        lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X.flip(0)), 16, shuffle=True),
    )
    for k, loader in enumerate(loaders):
        straight = run(None, loader)
        with pytest.raises(Crash):
            run(tmp_path / str(k), loader, [crash_after(2)])
        resumed = run(tmp_path / str(k), loader)
        assert all(torch.equal(a, b) for a, b in zip(resumed.model.parameters(), straight.model.parameters()))


CHILD = """
import threading
from tests.deep.test_checkpoint import fit, make

def stop(trainer):
    if trainer.run.epoch == 3:
        print("stuck", flush=True)
        threading.Event().wait()

fit(make({folder!r}, "memory", callbacks=[stop]))
"""


def test_killed_with_sigkill_and_resumed(tmp_path):
    command = [sys.executable, "-c", CHILD.format(folder=str(tmp_path))]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert child.stdout.readline() == "stuck\n"  # in the third epoch; the second is on disk
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert load_checkpoint(tmp_path / "last.safetensors")["run"]["epoch"] == 2
    assert_same_run(fit(make(tmp_path, "memory")), fit(make(None, "memory")))


def test_a_finished_run_stays_finished_and_can_be_prolonged(tmp_path):
    done = fit(make(tmp_path, schedule="constant"))
    again = fit(make(tmp_path, schedule="constant"))
    assert_same_run(done, again)
    longer = fit(make(tmp_path, schedule="constant", max_epochs=6))
    assert longer.run.epoch == 6
    assert_same_run(longer, fit(make(None, schedule="constant", max_epochs=6)))


# -- refusals ----------------------------------------------------------------------------------------------------------


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_refused(trainer, error, match, folder, resume=True):
    before, weights = contents(folder), [p.clone() for p in trainer.model.parameters()]
    with pytest.raises(error, match=match):
        fit(trainer, resume)
    assert contents(folder) == before
    assert all(torch.equal(a, b) for a, b in zip(weights, trainer.model.parameters()))


def test_truncated_checkpoint_is_refused_and_nothing_overwritten(tmp_path):
    fit(make(tmp_path, max_epochs=1))
    path = tmp_path / "last.safetensors"
    whole = path.read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert_refused(make(tmp_path), CheckpointError, "last.*damaged or cut", tmp_path)


def test_checkpoint_of_another_run_is_refused(tmp_path):
    fit(make(tmp_path, max_epochs=1))
    assert_refused(
        make(tmp_path, "proxies"), CheckpointError, r"another model.*loss\.count is absent in the file", tmp_path
    )
    other = make(tmp_path)
    other.model = MLP(5, 3, hidden=(9,), dropout=0.3)
    assert_refused(other, CheckpointError, r"is \(8, 5\) in the file and \(9, 5\) here", tmp_path)
    assert_refused(make(tmp_path, random_state=1), CheckpointError, "random_state was 0, here it is 1", tmp_path)
    assert_refused(make(tmp_path, batches_per_epoch=6), CheckpointError, "batches_per_epoch was 5", tmp_path)
    assert_refused(make(tmp_path), FileExistsError, "resume=True", tmp_path, resume=False)


def test_a_foreign_file_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "last.safetensors")
    assert_refused(make(tmp_path), CheckpointError, "format None", tmp_path)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_checkpoint(tmp_path / "absent.safetensors")


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    fit(make(tmp_path, max_epochs=1, schedule="constant"))
    before = contents(tmp_path)

    def full(tensors, path, metadata):
        path.write_bytes(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        fit(make(tmp_path, schedule="constant"))
    assert contents(tmp_path) == before
    monkeypatch.undo()
    assert fit(make(tmp_path, schedule="constant")).run.epoch == 4


# -- the file ----------------------------------------------------------------------------------------------------------


def test_state_survives_the_file_bit_for_bit(tmp_path):
    shared = torch.arange(6.0).view(2, 3)
    state = {
        "tensors": [shared, shared.T, torch.empty(0, dtype=torch.uint8), torch.tensor(3), shared.half(), shared > 2],
        "keys": {0: 1, "0": 2, (1, "a"): 3},
        "numbers": (1, 0.1, float("inf"), True, None, "ü", [2.0]),
    }
    save_checkpoint(tmp_path / "state", state)
    again = load_checkpoint(tmp_path / "state")
    for a, b in zip(again["tensors"], state["tensors"], strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)
    assert (again["keys"], again["numbers"]) == (state["keys"], state["numbers"])
    assert np.isnan(load_checkpoint_of(tmp_path, float("nan")))
    assert b"pickle" not in (tmp_path / "state").read_bytes()


def load_checkpoint_of(folder, value):
    save_checkpoint(folder / "value", value)
    return load_checkpoint(folder / "value")


def test_what_is_not_data_is_not_written(tmp_path):
    with pytest.raises(CheckpointError, match=r"state\.a\.1 is a function"):
        save_checkpoint(tmp_path / "state", {"a": [1, make]})
    assert not list(tmp_path.iterdir())


def test_the_generators_outside_are_left_alone():
    def draw():
        return random.random(), np.random.random(), float(torch.rand(()))  # noqa: NPY002

    with isolated_rng(5):
        expected = draw()
        inside = draw()
    assert inside != expected
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    with isolated_rng(5):
        assert draw() == expected
    fit(make(None))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    torch.manual_seed(0)
    make(None)
    state = torch.get_rng_state()
    fit(make(None))
    torch.manual_seed(0)
    MLP(5, 3, hidden=(8,), dropout=0.3)
    assert torch.equal(torch.get_rng_state(), state)


# -- damage, two runs at once, termination -----------------------------------------------------------------------------


def middle_of_tensors(path):
    """Where a changed byte spoils a number and nothing else."""
    data = path.read_bytes()
    return 8 + int.from_bytes(data[:8], "little") + 40


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "cut":
        del data[len(data) // 2 :]
    else:
        data[middle_of_tensors(path)] ^= 1
    path.write_bytes(bytes(data))


def test_a_single_changed_bit_is_found(tmp_path):
    save_checkpoint(tmp_path / "state", {"w": torch.arange(100.0), "n": 3})
    assert load_checkpoint(tmp_path / "state")["n"] == 3
    damage(tmp_path / "state", "bit")
    with pytest.raises(CheckpointError, match=r"state is .*damaged.*checksum"):
        load_checkpoint(tmp_path / "state")


def test_checkpoints_without_a_checksum_are_still_read(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", module.WITHOUT_CHECKSUM)
    monkeypatch.setattr(module, "_digest", lambda *_: "")
    fit(make(tmp_path, max_epochs=2, schedule="constant"))
    monkeypatch.undo()
    assert_same_run(fit(make(tmp_path, schedule="constant")), fit(make(None, schedule="constant")))


@pytest.mark.parametrize("how", ["cut", "bit", "gone"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_goes_on(tmp_path, how):
    with pytest.raises(Crash):
        fit(make(tmp_path, callbacks=[crash_after(4)]))
    last, previous = tmp_path / "last.safetensors", tmp_path / "previous.safetensors"
    assert [load_checkpoint(path)["run"]["epoch"] for path in (last, previous)] == [3, 2]
    before = previous.read_bytes()
    if how == "gone":  # as between the two renamings of a save
        last.unlink()
        with pytest.raises(Crash):
            fit(make(tmp_path, callbacks=[crash_after(4)]))
    else:
        damage(last, how)
        with (
            pytest.raises(Crash),
            pytest.warns(UserWarning, match=r"last\.safetensors is .*damaged.*goes on from .*previous\.safetensors"),
        ):
            fit(make(tmp_path, callbacks=[crash_after(4)]))
    assert load_checkpoint(last)["run"]["epoch"] == 3
    assert previous.read_bytes() == before  # still the good one
    assert_same_run(fit(make(tmp_path)), fit(make(None)))


def test_from_the_checkpoint_before_a_run_ends_with_the_same_weights(tmp_path):
    straight = fit(make(None, "memory"))
    with pytest.raises(Crash):
        fit(make(tmp_path, "memory", callbacks=[crash_after(4)]))
    damage(tmp_path / "last.safetensors", "bit")
    with pytest.warns(UserWarning, match="damaged"):
        resumed = fit(make(tmp_path, "memory"))
    assert_same_run(resumed, straight)


def test_two_damaged_checkpoints_are_refused_and_nothing_overwritten(tmp_path):
    fit(make(tmp_path, max_epochs=2))
    damage(tmp_path / "last.safetensors", "cut")
    damage(tmp_path / "previous.safetensors", "bit")
    assert_refused(make(tmp_path), CheckpointError, r"last\.safetensors.*damaged or cut", tmp_path)


@pytest.mark.parametrize("how", ["gone", "cut", "bit"])
@pytest.mark.parametrize("finished", [True, False])
def test_lost_best_weights_are_not_fatal(tmp_path, how, finished):
    first = make(tmp_path, max_epochs=4 if finished else 2, schedule="constant")
    fit(first)
    best = tmp_path / "best.safetensors"
    if how == "gone":
        best.unlink()
    else:
        damage(best, how)
    with pytest.warns(UserWarning, match=r"best weights so far are lost"):
        resumed = fit(make(tmp_path, schedule="constant"))
    assert resumed.run.epoch == 4 and resumed.history["loss"] == fit(make(None, schedule="constant")).history["loss"]
    last = load_checkpoint(tmp_path / "last.safetensors")["engine"]["weights"]
    if finished and first.run.best_epoch < 4:
        assert all(torch.equal(v, last[f"model.{k}"]) for k, v in resumed.model.state_dict().items())
    if finished and first.run.best_epoch == 4:
        assert all(map(torch.equal, resumed.model.state_dict().values(), first.model.state_dict().values()))


HOLDER = """
import sys
from tests.deep.test_checkpoint import fit, make

def stop(trainer):
    print("inside", flush=True)
    sys.stdin.readline()

fit(make({folder!r}, callbacks=[stop], max_epochs=1))
"""


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-c", HOLDER.format(folder=str(folder))]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert child.stdout.readline() == "inside\n"
        assert_refused(make(folder), CheckpointError, "is in use: another run", folder)
        child.communicate("\n")
    finally:
        child.kill()
    assert child.returncode == 0
    assert sorted(contents(folder)) == ["best.safetensors", "last.safetensors"]  # the lock is gone
    assert fit(make(folder, schedule="constant")).run.epoch == 4


def test_a_killed_run_leaves_no_lock(tmp_path):
    command = [sys.executable, "-c", HOLDER.format(folder=str(tmp_path))]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert child.stdout.readline() == "inside\n"
    finally:
        child.kill()
        child.communicate()
    assert fit(make(tmp_path)).run.epoch == 4


def test_a_run_within_the_run_is_refused_too(tmp_path):
    refused = []

    def again(trainer):
        with pytest.raises(CheckpointError, match="in use"):
            fit(make(tmp_path))
        refused.append(True)

    assert fit(make(tmp_path, callbacks=[again])).run.epoch == 4 and refused == [True] * 4


def test_a_run_that_fails_at_once_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="two classes"):
        fit(make(tmp_path / "run", classes_per_batch=1))
    assert not (tmp_path / "run").exists()


TERMINATED = """
import sys
from tests.deep import test_checkpoint as t
from isometry.deep import checkpoint as module

save = module.save_file

def slowly(tensors, path, metadata):
    save(tensors, path, metadata)
    if "last" in path.name and calls.pop():
        print(*sorted(p.name for p in path.parent.iterdir()), flush=True)
        sys.stdin.readline()

calls = [False] * 9 + [True, False]
module.save_file = slowly
t.fit(t.make({folder!r}))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_sigterm_saves_and_leaves_no_temporary_file(tmp_path):
    command = [sys.executable, "-c", TERMINATED.format(folder=str(tmp_path))]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        assert ".last.safetensors.part" in child.stdout.readline()  # it is writing
        child.terminate()
        child.communicate("\n")
    finally:
        child.kill()
    assert child.returncode == 143
    assert sorted(contents(tmp_path)) == ["best.safetensors", "last.safetensors", "previous.safetensors"]
    assert_same_run(fit(make(tmp_path)), fit(make(None)))


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_handler_of_the_program_keeps_sigterm():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(True))
    try:
        trainer = make(None, callbacks=[lambda t: signal.raise_signal(signal.SIGTERM)])
        assert fit(trainer).run.epoch == 4 and seen == [True] * 4
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("world", ["1", "2"])
def test_of_several_processes_each_ends_by_sigterm_at_once(world, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", world)
    before = signal.getsignal(signal.SIGTERM)
    with module.StopSignals():
        assert (signal.getsignal(signal.SIGTERM) is before) == (world == "2")
    assert signal.getsignal(signal.SIGTERM) is before
