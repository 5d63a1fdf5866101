"""`isometry train`: what it writes, how it goes on after any stop, what it refuses."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

pytest.importorskip("torch")

from isometry.cli import app
from isometry.deep import BatchSemiHard, DeepMetric, MarginLoss, Triplet
from isometry.deep.batches import hold_out
from isometry.eval import retrieval
from isometry.io import load, read_table
from tests.deep.processes import start_two, wait_for_all

COMMAND = "import torch; torch.set_num_threads(1); from isometry.cli import main; main()"
WAITING = """
import sys, torch
from isometry.cli import main, train

def print_and_wait(trainer, print_epoch=train._print_epoch):
    print_epoch(trainer)
    if trainer.run.epoch == EPOCH:
        sys.stdin.readline()

train._print_epoch = print_and_wait
torch.set_num_threads(1)
main()
"""
SMALL = ("--validation", 0.5, "--batch", "2x4", "--embedding", 3, "--epochs", 2, "--seed", 1, "--loss", "NCALoss")
LONG = ("--validation", 0.5, "--batch", "2x4", "--embedding", 3, "--epochs", 30, "--augment", "--loss", "ProxyNCA")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cow", "dog", "eel", "fox"], 10)
    X = rng.normal(size=(6, 5))[np.repeat(np.arange(6), 10)] + rng.normal(size=(60, 5))
    frame = pd.DataFrame(X, columns=list("pqrst")).assign(kind=y)
    frame.to_csv(folder / "t.csv", index=False)
    frame[:28].to_csv(folder / "three.csv", index=False)
    frame[:32].to_csv(folder / "uneven.csv", index=False)
    pixels = rng.normal(size=(4, 36))[np.repeat(np.arange(4), 15)] + 0.5 * rng.normal(size=(60, 36))
    pixels = np.clip(128 + 40 * pixels, 0, 255).astype(np.uint8)
    codes = np.repeat(np.arange(4, dtype=np.int32), 15)
    np.savez(folder / "i.npz", X=pixels, y=codes, classes=np.array(["ant", "bee", "cow", "dog"]), image_shape=[6, 6])
    return folder


def run(*args, code=0):
    """Stdout of a command in this process; on failure stderr."""
    done = CliRunner().invoke(app, ["train", *(str(a) for a in args)])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def start(*args, code=COMMAND, **options):
    command = [sys.executable, "-c", code, "train", *map(str, args)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, **pipes, **options)


def start_until(epoch, *args):
    """A process that has said that this epoch is over, and waits for a word from us before it goes on."""
    process = start(*args, code=WAITING.replace("EPOCH", str(epoch)))
    for line in process.stdout:
        if line.startswith(f"epoch {epoch} "):
            return process
    raise AssertionError(process.communicate()[1])


def contents(path):
    return {p.relative_to(path): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def weights(path):
    return load(path / "model.safetensors").weights_


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


# -- what it writes ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def done(folder, tmp_path_factory):
    """A finished run and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "new" / "run"
    return out, run(folder / "t.csv", "-y", "kind", "-o", out, *SMALL)


def test_model_history_and_scores(folder, done):
    out, text = done
    table = read_table(folder / "t.csv", "kind")
    kept, held = hold_out(table.y, 0.5, "open", 1)
    assert "t: 30 rows of 3 classes, 30 rows of 3 held out; starting" in text
    assert re.search(r"^epoch 1 of 2: loss \d\.\d+, active \d\.\d+, recall@1 \d\.\d+, map@r \d\.\d{4}$", text, re.M)
    assert "2 epochs: all epochs done" in text
    model = load(out / "model.safetensors")
    assert type(model) is DeepMetric and list(model.feature_names_in_) == list("pqrst")
    assert set(model.classes_) == set(table.y[kept]) and not set(model.classes_) & set(table.y[held])
    with (out / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [r["epoch"] for r in rows] == ["1", "2"]
    assert [float(r["loss"]) for r in rows] == model.history_["loss"]
    X = pd.DataFrame(table.X[held], columns=table.feature_names).astype(np.float32)
    found = retrieval(model.transform(X), table.y[held], ks=(1,)).mean()
    assert float(rows[-1]["map@r"]) == pytest.approx(found["map@r"], abs=1e-3)
    scores = {s["name"]: s for s in json.loads((out / "scores.json").read_text())}
    assert set(scores) == {"network", "standardised features", "RCA", "DCA", "GMML"}
    assert_allclose(scores["network"]["map_at_r"]["mean"], found["map@r"], rtol=1e-5)
    assert_allclose(scores["network"]["recall"]["mean"], found["recall@1"], rtol=1e-5)
    units = (table.X - table.X[kept].mean(0)) / table.X[kept].std(0)
    plain = retrieval(units[held], table.y[held], ks=(1,)).mean()
    raw = scores["standardised features"]
    assert_allclose(raw["map_at_r"]["mean"], plain["map@r"], rtol=1e-5)
    assert_allclose(raw["gain"]["mean"], found["map@r"] - plain["map@r"], atol=1e-6)
    assert scores["network"]["gain"] is None
    assert f"report: {out / 'report.html'}" in text and (out / "report.html").stat().st_size > 1e4


def test_the_same_command_again_changes_nothing(folder, done):
    out, first = done
    before = weights(out)
    text = run(folder / "t.csv", "-y", "kind", "-o", out, *SMALL)
    assert "going on" in text and "epoch 1 of 2" not in text
    assert same(weights(out), before)
    table = [line for line in first.splitlines() if "[" in line]
    assert table == [line for line in text.splitlines() if "[" in line]


def test_other_settings_are_refused_unless_fresh(folder, done, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(done[0], out)
    before = contents(out)
    args = (folder / "t.csv", "-y", "kind", "-o", out, *SMALL)
    assert "other settings (lr was 0.001, here it is 0.01)" in run(*args, "--lr", 0.01, code=2)
    assert "loss was NCALoss, here it is Lifted" in run(*args, "--loss", "Lifted", code=2)
    other = run(folder / "uneven.csv", "-y", "kind", "-o", out, *SMALL, "--protocol", "closed", code=2)
    assert "data was t, here it is uneven" in other and "fingerprint was" in other and "--fresh" in other
    assert contents(out) == before
    text = run(*args, "--loss", "Lifted", "--fresh")
    assert "starting" in text and "epoch 1 of 2" in text and load(out / "model.safetensors").loss == "Lifted"
    assert not same(weights(out), weights(done[0]))


def test_transform_reads_the_model(folder, done, tmp_path):
    args = ["transform", done[0] / "model.safetensors", folder / "t.csv", "-y", "kind", "-o", tmp_path / "z.npz"]
    assert CliRunner().invoke(app, list(map(str, args))).exit_code == 0
    table = read_table(folder / "t.csv", "kind")
    Z = load(done[0] / "model.safetensors").transform(pd.DataFrame(table.X, columns=table.feature_names))
    back = read_table(tmp_path / "z.npz")
    assert np.array_equal(back.X, Z) and np.array_equal(back.y, table.y)


def test_images(folder, tmp_path):
    out = tmp_path / "run"
    run(folder / "i.npz", "-o", out, *SMALL, "--loss", "Triplet", "--miner", "BatchHard")
    model = load(out / "model.safetensors")
    assert model.image_shape == (1, 6, 6) and type(model.network()).__name__ == "ConvNet"
    assert model.augment and model.loss_params == {"miner": "BatchHard"}
    assert model.n_features_in_ == 36 and set(model.classes_) <= {"ant", "bee", "cow", "dog"}
    assert (out / "report.html").read_text().count("<img") == 12 * 2 * 9
    names = {s["name"] for s in json.loads((out / "scores.json").read_text())}
    assert names == {"network", "raw pixels", "RCA", "DCA", "GMML"}
    args = ["transform", out / "model.safetensors", folder / "i.npz", "-o", tmp_path / "z.npz"]
    assert CliRunner().invoke(app, list(map(str, args))).exit_code == 0
    assert read_table(tmp_path / "z.npz").X.shape == (60, 3)


def test_options_reach_the_network(folder, tmp_path):
    """MLP on images, no augmentation, another loss with parameters, bf16, part of the rows, a given shape."""
    out = tmp_path / "run"
    text = run(
        *(folder / "i.npz", "-o", out, "--loss", "MarginLoss", "--backbone", "mlp", "--no-augment", "--lr", 0.02),
        *("--precision", "bf16", "--sample", 48, "--image-shape", "1x6x6", "--protocol", "closed", "--epochs", 1),
        *("--chunk", 30),
    )
    model = load(out / "model.safetensors")
    assert "48 of 60 rows" in text and model.lr == 0.02 and not model.augment and model.loss == MarginLoss.__name__
    assert model.chunk_size == 30
    assert type(model.network()).__name__ == "MLP" and model.trainer_params["precision"] == "bf16"
    assert set(model.classes_) == {"ant", "bee", "cow", "dog"}  # closed: all of them were learned from


def test_without_held_out_samples(folder, tmp_path):
    out = tmp_path / "run"
    text = run(folder / "t.csv", "-y", "kind", "-o", out, "--validation", 0, "--epochs", 1, "--batch", "2x4")
    assert "60 rows of 6 classes, 0 rows of 0 held out" in text and not (out / "scores.json").exists()
    assert "Nothing was held out" in (out / "report.html").read_text()
    assert "map@r" not in text


def test_patience_keeps_the_best_epoch_and_says_that_it_was_chosen(folder, tmp_path):
    out = tmp_path / "run"
    text = run(
        *(folder / "t.csv", "-y", "kind", "-o", out, "--validation", 0.5, "--batch", "2x4"),
        *("--epochs", 60, "--patience", 2, "--lr", 0.02, "--loss", "NCALoss"),
    )
    assert "map@r has not improved for 2 epochs" in text
    model = load(out / "model.safetensors")
    scores = {s["name"]: s["map_at_r"]["mean"] for s in json.loads((out / "scores.json").read_text())}
    assert model.n_iter_ < 60 and scores["network"] == pytest.approx(max(model.history_["map@r"]), abs=1e-3)
    assert "chosen by MAP@R on these very samples" in (out / "report.html").read_text()


def test_small_classes_are_told(folder, tmp_path):
    text = run(folder / "uneven.csv", "-y", "kind", "-o", tmp_path / "run", "--protocol", "closed", "--epochs", 1)
    assert "note: 1 classes have fewer than 8 samples" in text


# -- stops -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    return out


@pytest.fixture(scope="module")
def interrupted(folder, tmp_path_factory):
    """The folder of a run that Ctrl-C has stopped on its way, and its stderr."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    process = start_until(5, folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    process.send_signal(signal.SIGINT)
    error = process.communicate("\n")[1]
    assert process.returncode == 130, error
    return out, error


def test_ctrl_c_keeps_all_and_the_same_command_goes_on(folder, interrupted, uninterrupted, tmp_path):
    stopped, error = interrupted
    assert re.fullmatch(r"stopped after step \d+; nothing is lost: run the same command again to go on\n", error)
    assert not (stopped / "model.safetensors").exists()
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    text = run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    assert "going on" in text and "epoch 5 of" not in text and "epoch 30 of 30" in text
    assert same(weights(out), weights(uninterrupted))
    assert (out / "history.csv").read_text() == (uninterrupted / "history.csv").read_text()


def test_sigkill_and_resume_end_with_the_same_weights(folder, uninterrupted, tmp_path):
    out = tmp_path / "run"
    process = start_until(3, folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    assert same(weights(out), weights(uninterrupted))


def test_a_full_disk_leaves_the_last_good_checkpoint(folder, interrupted, uninterrupted, tmp_path):
    """No file may grow beyond half a checkpoint: the next one cannot be written."""
    out = tmp_path / "run"
    shutil.copytree(interrupted[0], out)
    before = contents(out / "checkpoints")
    most = min(map(len, before.values())) // 2

    # the process limits itself: to fork this one, with its threads, for a ``preexec_fn`` can leave a lock taken
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); {COMMAND}"
    process = start(folder / "t.csv", "-y", "kind", "-o", out, *LONG, code=limited)
    error = process.communicate()[1]
    assert process.returncode == 1 and "File too large" in error and "Traceback" not in error, error
    assert contents(out / "checkpoints") == before
    run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    assert same(weights(out), weights(uninterrupted))


def test_a_loss_that_is_not_finite_stops_with_the_step(folder, tmp_path):
    out = tmp_path / "run"
    error = run(folder / "t.csv", "-y", "kind", "-o", out, *SMALL, "--lr", 1e30, code=1)
    assert re.search(r"warning: training stopped: the loss or its gradient was NaN .* up to step \d+ in epoch 1", error)
    assert "error: no epoch was finished" in error and not (out / "model.safetensors").exists()
    run(folder / "t.csv", "-y", "kind", "-o", out, *SMALL)  # nothing was kept that would stand in the way


def test_not_finite_later_keeps_the_last_good_epoch(folder):
    """Exit 1 comes from ``converged_``; the weights are those of the epoch before."""
    import torch

    table = read_table(folder / "t.csv", "kind")
    seen = []

    def poison(trainer):
        seen.append({k: v.clone() for k, v in trainer.model.state_dict().items()})
        if trainer.run.epoch == 2:
            with torch.no_grad():
                next(trainer.model.parameters()).fill_(torch.nan)

    learner = DeepMetric(n_components=3, max_epochs=4, random_state=0, trainer_params={"monitor": "last"})
    with pytest.warns(UserWarning, match="NaN .* in epoch 3.* keeps the weights of epoch 2"):
        learner.fit(table.X, table.y, callbacks=[poison])
    assert not learner.converged_ and learner.n_iter_ == 2
    assert all(np.array_equal(learner.weights_[k], seen[1][k].numpy()) for k in seen[1])


# -- what it refuses ---------------------------------------------------------------------------------------------------


def test_a_damaged_or_foreign_checkpoint_is_refused_and_nothing_overwritten(folder, done, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(done[0], out)
    last = out / "checkpoints" / "last.safetensors"
    whole = last.read_bytes()
    args = (folder / "t.csv", "-y", "kind", "-o", out, *SMALL)
    previous = last.with_name("previous.safetensors")
    for path in (last, previous):
        path.write_bytes(path.read_bytes()[: len(whole) // 2])
    before = contents(out)
    assert "damaged or cut" in run(*args, code=2)
    assert contents(out) == before
    other = tmp_path / "other"
    run(folder / "t.csv", "-y", "kind", "-o", other, *SMALL, "--embedding", 4)
    last.write_bytes((other / "checkpoints" / "last.safetensors").read_bytes())
    before = contents(out)
    assert "belongs to another model" in run(*args, code=2)
    assert contents(out) == before
    for text in ("{", "[]", "3", "null", "[" * 5000):
        (out / "settings.json").write_text(text)
        assert "settings.json is damaged" in run(*args, code=2)


def test_folders_of_others_are_left_alone(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    args = (folder / "t.csv", "-y", "kind", *SMALL)
    for more in ((), ("--fresh",)):
        assert "not empty and holds no training run" in run(*args, "-o", tmp_path / "mine", *more, code=2)
    assert "is a file" in run(*args, "-o", folder / "t.csv", code=2)
    assert "Not a directory" in run(*args, "-o", folder / "t.csv" / "run", code=2)
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["[1, 2]", '{"editor.tabSize": 4}', "{", ""])
def test_settings_of_another_program_are_left_alone(text, folder, tmp_path):
    """Many programs call a file of theirs settings.json."""
    (tmp_path / "settings.json").write_text(text)
    (tmp_path / "report.html").write_text("precious")
    before = contents(tmp_path)
    for more in ((), ("--fresh",)):
        text = run(folder / "t.csv", "-y", "kind", *SMALL, "-o", tmp_path, *more, code=2)
        assert "not empty and holds no training run" in text
    assert contents(tmp_path) == before


def test_ways_out_are_ways_of_this_command(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv").assign(colour="red")
    frame.to_csv(tmp_path / "text.csv", index=False)
    error = run(tmp_path / "text.csv", "-y", "kind", "-o", tmp_path / "run", code=2)
    assert "--drop colour" in error and "`isometry compare` and `isometry fit` do it inside each fold" in error
    frame.drop(columns="colour").replace({"p": {frame.p[3]: np.nan}}).to_csv(tmp_path / "gap.csv", index=False)
    error = run(tmp_path / "gap.csv", "-y", "kind", "-o", tmp_path / "run", code=2)
    assert "--drop p" in error and "`isometry fit` do it inside each fold if given --impute" in error
    error = run(folder / "three.csv", "-y", "kind", "-o", tmp_path / "run", code=2)
    assert "use --protocol closed" in error


@pytest.mark.parametrize(
    "args, words",
    [
        (["t.csv"], "name their column in t.csv with --target"),
        (["none.csv", "-y", "kind"], "there is no file"),
        (["t.csv", "-y", "kind", "--loss", "Tripplet"], "no loss called 'Tripplet'; did you mean Triplet"),
        (["t.csv", "-y", "kind", "--loss", "LMNN"], "a loss is expected"),
        (["t.csv", "-y", "kind", "--miner", "Triplet"], "a miner is expected"),
        (["t.csv", "-y", "kind", "--backbone", "resnet"], "expected auto, linear, mlp, conv"),
        (["t.csv", "-y", "kind", "--backbone", "conv"], "give image_shape"),
        (["t.csv", "-y", "kind", "--image-shape", "2x3"], "have 6 pixels, but t.csv has 5 features"),
        (["t.csv", "-y", "kind", "--image-shape", "5"], "expected 2 or 3 numbers"),
        (["t.csv", "-y", "kind", "--batch", "8"], "expected 2 numbers, such as 8x8"),
        (["t.csv", "-y", "kind", "--batch", "0x8"], "expected 2 numbers"),
        (["t.csv", "-y", "kind", "--validation", "1.5"], "between 0 and 1"),
        (["t.csv", "-y", "kind", "--protocol", "ajar"], "expected 'open' or 'closed'"),
        (["t.csv", "-y", "kind", "--precision", "int4"], "expected 'no', 'bf16', 'fp16' or 'auto'"),
        (["three.csv", "-y", "kind"], "use --protocol closed"),
        (["t.csv", "-y", "kind", "--validation", "0", "--patience", "2"], "give --validation"),
        (["t.csv", "-y", "kind", "--epochs", "0"], "--epochs"),
    ],
)
def test_usage_errors(args, words, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    assert words in run(*args, "-o", tmp_path / "run", code=2)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize("shape", [36, [36], [6.0, 6.0], [[6, 6]], [1, 1, 6, 6], [0, 6], ["6", "6"], -6])
def test_image_shape_of_a_file_must_be_sizes(shape, folder, tmp_path):
    with np.load(folder / "i.npz") as arrays:
        np.savez(tmp_path / "i.npz", **{**arrays, "image_shape": shape})
    error = run(tmp_path / "i.npz", "-o", tmp_path / "run", code=2)
    assert f"image_shape in {tmp_path / 'i.npz'} is" in error and "two or three sizes, such as [28, 28]" in error


# -- parameters of losses, networks of one's own, longer runs ----------------------------------------------------------


QUICK = ("--validation", 0.5, "--batch", "2x4", "--embedding", 3, "--epochs", 1, "--seed", 1)


def test_parameters_of_a_loss_reach_it(folder, tmp_path):
    """The history is that of the loss with this margin, made in Python, and not that of another."""
    losses = {}
    for text in ("Triplet(margin=0.3)", "Triplet(margin=0.7)"):
        out = tmp_path / text
        run(
            folder / "t.csv",
            "-y",
            "kind",
            "-o",
            out,
            *QUICK,
            "--loss",
            text,
            "--miner",
            "BatchSemiHard(fallback=easiest)",
        )
        model = load(out / "model.safetensors")
        assert model.loss == text and model.loss_params == {"miner": "BatchSemiHard(fallback=easiest)"}
        losses[text] = model.history_["loss"]
    assert losses["Triplet(margin=0.3)"] != losses["Triplet(margin=0.7)"]
    made = load(tmp_path / "Triplet(margin=0.3)" / "model.safetensors")
    made.set_params(loss=Triplet(0.3, miner=BatchSemiHard("easiest")), loss_params=None)
    table = read_table(folder / "t.csv", "kind", dtype="float32")
    kept, held = hold_out(table.y, 0.5, "open", 1)
    made.fit(table.X[kept], table.y[kept], held_out=(table.X[held], table.y[held]))
    assert made.history_["loss"] == losses["Triplet(margin=0.3)"]


@pytest.mark.parametrize(
    "options",
    [
        ("--loss", "CrossBatchMemory"),
        ("--loss", "CrossBatchMemory(loss=Triplet(margin=0.3), memory_size=64)"),
        ("--miner", "DistanceWeighted"),
        ("--loss", "MarginLoss", "--miner", "DistanceWeighted(cutoff=0.4)"),
        ("--loss", "Lifted[max](margin=2)"),
    ],
)
def test_losses_and_miners_that_need_sizes_train(options, folder, tmp_path):
    assert "1 epochs: all epochs done" in run(folder / "t.csv", "-y", "kind", "-o", tmp_path / "run", *QUICK, *options)


@pytest.mark.parametrize(
    "options, words",
    [
        (["--loss", "Head"], "Head is what MSE"),
        (["--loss", "ArcFaec"], "no loss called 'ArcFaec'"),
        (["--loss", "Triplet(margins=0.3)"], "Triplet has no parameter 'margins'; it has margin"),
        (["--loss", "Huber(delta=wide)"], "delta must be a number"),
        (["--loss", "Triplet(margin=__import__('os'))"], "margin"),
        (["--loss", "CrossEntropy", "--miner", "BatchHard"], "CrossEntropy has no parameter 'miner'"),
        (["--miner", "BatchHart"], "no miner called 'BatchHart'; did you mean BatchHard"),
        (["--batch", "1x8"], "never holds two classes"),
        (["--batch", "999999x999999"], "but there are only"),
        (["--lr", "-1"], "--lr -1 is the learning rate: choose a positive number"),
        (["--lr", "nan"], "--lr nan"),
        (["--lr", "inf"], "--lr inf"),
        (["--seed", "-1"], "--seed"),
        (["--backbone", "no_such_module:make"], "there is no module no_such_module"),
        (["--backbone", "json:lodas"], "json has no lodas; did you mean loads?"),
        (["--backbone", "json:__name__"], "not a function"),
        (["--backbone", "json:"], "expected module:factory"),
    ],
)
def test_more_usage_errors(options, words, folder, tmp_path):
    assert words in run(folder / "t.csv", "-y", "kind", "-o", tmp_path / "run", *options, code=2)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_misspelt_loss_suggests_losses(folder, tmp_path):
    error = run(folder / "t.csv", "-y", "kind", "-o", tmp_path / "run", "--loss", "ArcFaec", code=2)
    assert "RCA" not in error and "isometry list --family deep" in error


NETS = """
import torch

def make(shape, embedding):
    assert shape == (5,), shape
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, embedding))
"""


def test_a_network_of_ones_own(folder, tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    text = run(folder / "t.csv", "-y", "kind", "-o", "run", *QUICK, "--backbone", "my_nets:make")
    assert "report: run/report.html" in text and sys.path == path
    model = load("run/model.safetensors")
    assert model.model == "my_nets:make" and model.weights_["0.weight"].shape == (7, 5)
    args = ["transform", "run/model.safetensors", folder / "t.csv", "-y", "kind", "-o", "z.npz"]
    done = CliRunner().invoke(app, list(map(str, args)))
    assert done.exit_code == 2 and "give --backbone my_nets:make" in done.stderr
    args += ["--backbone", "my_nets:make"]
    assert CliRunner().invoke(app, list(map(str, args))).exit_code == 0
    table = read_table(folder / "t.csv", "kind")
    model.set_params(model=sys.modules["my_nets"].make)
    Z = model.transform(pd.DataFrame(table.X, columns=table.feature_names))
    assert np.array_equal(read_table("z.npz").X, Z)
    assert "going on" in run(folder / "t.csv", "-y", "kind", "-o", "run", *QUICK, "--backbone", "my_nets:make")


def test_a_finished_run_can_be_made_longer(folder, tmp_path):
    out = tmp_path / "run"
    args = (folder / "t.csv", "-y", "kind", "-o", out, *QUICK, "--loss", "NCALoss")
    run(*args, "--epochs", 3)
    first = load(out / "model.safetensors").history_["loss"]
    text = run(*args, "--epochs", 5)
    assert "going on" in text and "epoch 3 of" not in text and "epoch 4 of 5" in text and "5 epochs" in text
    longer = load(out / "model.safetensors").history_["loss"]
    assert longer[:3] == first and len(longer) == 5
    assert "epoch" not in run(*args, "--epochs", 5).split("5 epochs")[0].partition("going on")[2]  # nothing left to do
    assert "epoch 6 of 6" in run(*args, "--epochs", 6)
    assert "epochs was 6, here it is 2" in run(*args, "--epochs", 2, code=2)


def test_a_run_that_was_stopped_can_be_made_longer(folder, interrupted, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(interrupted[0], out)
    text = run(folder / "t.csv", "-y", "kind", "-o", out, *LONG, "--epochs", 31)
    assert "going on" in text and "epoch 31 of 31" in text


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_damaged_checkpoint_is_named_and_the_run_goes_on(folder, interrupted, uninterrupted, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(interrupted[0], out)
    last = out / "checkpoints" / "last.safetensors"
    data = bytearray(last.read_bytes())
    data[-9] ^= 1
    last.write_bytes(bytes(data))
    done = CliRunner().invoke(app, ["train", *map(str, (folder / "t.csv", "-y", "kind", "-o", out, *LONG))])
    assert done.exit_code == 0 and same(weights(out), weights(uninterrupted))
    assert re.search(r"warning: .*last\.safetensors is .*damaged.*goes on from .*previous\.safetensors", done.stderr)


def test_two_runs_in_one_folder(folder, tmp_path):
    out = tmp_path / "run"
    process = start_until(2, folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    try:
        before = contents(out)
        for more in ((), ("--fresh",)):
            assert "is in use: another run" in run(folder / "t.csv", "-y", "kind", "-o", out, *LONG, *more, code=2)
        assert contents(out) == before
    finally:
        process.kill()
        process.communicate()
    assert "going on" in run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)  # a killed run has no lock
    assert not (out / ".lock").exists() and not (out / "checkpoints" / ".lock").exists()


def test_sigterm_loses_nothing(folder, uninterrupted, tmp_path):
    out = tmp_path / "run"
    process = start_until(3, folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    process.terminate()
    error = process.communicate("\n")[1]
    assert process.returncode == 143
    assert error == "terminated; nothing is lost: run the same command again to go on\n"
    assert not [p for p in out.rglob(".*") if p.is_file()]
    run(folder / "t.csv", "-y", "kind", "-o", out, *LONG)
    assert same(weights(out), weights(uninterrupted))


# -- several processes -------------------------------------------------------------------------------------------------


def test_one_of_two_processes_prints_and_writes(folder, tmp_path):
    """As torchrun starts them; the result is that of one process."""
    args = ["train", folder / "t.csv", "-y", "kind", "-o", tmp_path / "two", *QUICK]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    _meeting, both = start_two(sys.executable, "-c", COMMAND, *map(str, args), **pipes)
    said = wait_for_all(both)
    assert [process.returncode for process in both] == [0, 0], said
    assert "epoch 1 of 1" in said[0][0] and "report:" in said[0][0]
    assert said[1] == ("", "")
    run(folder / "t.csv", "-y", "kind", "-o", tmp_path / "one", *QUICK)
    A, B = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name in A:
        assert_allclose(A[name], B[name], rtol=1e-3, atol=1e-4)


def test_rows_that_are_all_equal_are_refused(folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv")
    frame[list("pqrst")] = 3.0
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert "all rows of t are equal" in run(tmp_path / "t.csv", "-y", "kind", "-o", tmp_path / "run", code=2)


def test_an_embedded_set_and_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--protocol", "closed", "--epochs", 1, "--batch", "3x4", "--backbone", "linear"]
    done = CliRunner().invoke(app, [str(a) for a in ["train", "iris", "-o", "run", *options, "--json"]])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {s["name"] for s in found["scores"]} == {"network", "standardised features", "RCA", "DCA", "GMML"}
    assert found["settings"]["loss"] == "Triplet" and (tmp_path / found["model"]).exists()
    card = json.loads(CliRunner().invoke(app, ["info", found["model"], "--json"]).stdout)
    assert card["method"] == "Triplet" and card["torch"] and card["data"]["rows"] == 150
    again = CliRunner().invoke(app, [str(a) for a in ["train", "iris", "-o", "run", *options, "--quiet"]])
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
