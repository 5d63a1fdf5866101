"""`isometry train` on images in folders and texts in tables, with settings from a file; killed, it ends the same."""

from __future__ import annotations

import csv
import json
import signal

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch")

import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from isometry.cli import app
from isometry.deep import ConvNet, Encoder, ImageFolder, ImageTransform, backbone
from tests.cli.test_train import run, same, start, weights
from tests.deep.test_images_and_texts import draw, make_bert

WORDS = {
    "ants": ["who am i", "where am i", "who are you", "where are you now"],
    "bees": ["no bees", "bees and cows", "cows and bees", "no cows and no bees"],
    "cows": ["a long text", "a long long text", "about ants", "a text about ants"],
    "text": ["you and i", "i and you", "now", "you now and i"],
}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for k, name in enumerate(("ant", "bee", "cow", "dog", "eel")):
        (folder / name).mkdir()
        for j in range(6):
            draw(folder / name / f"{j}.png", 20 + 45 * k, (12, 10), rng)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    rows = [(t, kind) for kind, lines in WORDS.items() for t in lines]
    frame = pd.DataFrame(rows, columns=["question", "topic"])
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    pairs = pd.DataFrame(
        {"q": [t for t, _ in rows], "d": [t for t, _ in rows[::-1]], "s": np.linspace(0, 1, len(rows))}
    )
    pairs.to_csv(folder / "pairs.csv", index=False)
    return folder


FOLDER = ("--validation", 0.4, "--batch", "2x3", "--embedding", 4, "--epochs", 2, "--image-shape", "3x8x8")


def same_weights(a, b):
    """Whether two files hold the same tensors to the bit; their order in the file may differ."""
    A, B = load_file(a), load_file(b)
    return A.keys() == B.keys() and all(torch.equal(A[k], B[k]) for k in A)


def test_a_folder_of_images(images, tmp_path):
    out = tmp_path / "run"
    (images / "ant" / "broken.png").write_text("x")
    try:
        done = CliRunner().invoke(app, ["train", *map(str, (images, "-o", out, *FOLDER, "--loss", "ProxyNCA"))])
    finally:
        (images / "ant" / "broken.png").unlink()
    said = done.stdout
    assert done.exit_code == 0 and "1 of 31 files are no readable images" in done.stderr and "broken.png" in done.stderr
    assert "18 samples of 3 classes, 12 of 2 held out; starting" in said and "epoch 2 of 2: loss" in said
    card = json.loads((out / "network.json").read_text())
    assert card["network"] == "ConvNet" and card["embedding_size"] == 4
    data = ImageFolder(images, ImageTransform(8, (0.5,) * 3, (0.5,) * 3, 1.0))
    z = Encoder.load(out / "network.safetensors", ConvNet((3, 8, 8), 4)).encode(data)
    assert z.shape == (30, 4) and np.isfinite(z).all()
    scores = json.loads((out / "scores.json").read_text())
    assert {"network", "RCA"} <= {s["name"] for s in scores} and "<html" in (out / "report.html").read_text()
    again = run(images, "-o", out, *FOLDER, "--loss", "ProxyNCA")
    assert "going on" in again and "epoch 1 of 2" not in again


def test_what_is_wrong_with_images_is_said(images, tmp_path):
    one = tmp_path / "one" / "only"
    one.mkdir(parents=True)
    draw(one / "a.png", 9)
    assert "are of one class, 'only'" in run(one.parent, "-o", tmp_path / "o", code=2)
    assert "no images in sub-folders" in run(one, "-o", tmp_path / "o", code=2)
    assert "takes a table" in run(images, "-o", tmp_path / "o", "--backbone", "mlp", code=2)
    assert "Nothing is downloaded" in run(images, "-o", tmp_path / "o", "--backbone", "timm:resnet18", code=2)
    assert not (tmp_path / "o").exists()


def test_a_table_of_texts_with_a_model_of_transformers(texts, tmp_path):
    bert = make_bert(tmp_path / "bert")
    common = (
        "--text",
        "question",
        "-y",
        "topic",
        "--backbone",
        f"transformers:{bert}",
        "--validation",
        0.5,
        "--batch",
        "2x2",
    )
    common = (*common, "--embedding", 4, "--epochs", 2, "--loss", "ArcFace(scale=8)")
    said = run(texts / "t.csv", "-o", tmp_path / "run", *common)
    assert "8 samples of 2 classes, 8 of 2 held out" in said and "epoch 2 of 2" in said
    run(texts / "t.parquet", "-o", tmp_path / "parquet", *common)
    assert same_weights(tmp_path / "run" / "network.safetensors", tmp_path / "parquet" / "network.safetensors")
    net = backbone(f"transformers:{bert}", n_components=4)
    before = net.head.weight.detach().clone()
    z = Encoder.load(tmp_path / "run" / "network.safetensors", net).encode(["who am i", "no bees"])
    assert z.shape == (2, 4) and not torch.equal(before, net.head.weight)


def test_pairs_of_texts_with_and_without_scores(texts, tmp_path):
    bert = make_bert(tmp_path / "bert")
    common = ("--backbone", f"transformers:{bert}", "--batch", "2x2", "--embedding", 4, "--epochs", 2, "--text", "q,d")
    said = run(texts / "pairs.csv", "-o", tmp_path / "a", *common, "--loss", "Ranking")
    assert "pairs: 16 samples; starting" in said and "2 epochs: all epochs done" in said
    run(texts / "pairs.csv", "-o", tmp_path / "b", *common, "--loss", "CoSENT", "-y", "s")
    assert "InfoNCE" not in run(texts / "pairs.csv", "-o", tmp_path / "c", *common, "--loss", "InfoNCE")


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ("--text", "q,d", "--loss", "CoSENT"),
            "CoSENT needs the score of each row (n,), larger for more similar pairs",
        ),
        (("--text", "q,d", "--loss", "Ranking", "-y", "s"), "Ranking takes no target: leave --target out"),
        (("--text", "q,d,q2", "--loss", "CoSENT", "-y", "s"), "compares 2 columns of texts, and --text names 3: q, d"),
        *(
            (("--text", "q,d", "--loss", name), f"{name} is no loss of columns by itself; take Ranking, InfoNCE or")
            for name in ("ArcFace", "MixedPairs", "QuantizationAware", "CrossBatchMemory")
        ),
        (("--text", "q,d", "--loss", "ProxyNCA(num_classes=4)"), "ProxyNCA has no form for columns; take Ranking"),
    ],
)
def test_columns_that_do_not_fit_the_loss_are_named_before_anything_is_written(texts, tmp_path, options, message):
    bert = make_bert(tmp_path / "bert")
    frame = pd.read_csv(texts / "pairs.csv")
    frame.assign(q2=frame["q"]).to_csv(tmp_path / "p.csv", index=False)
    said = run(tmp_path / "p.csv", *options, "--backbone", f"transformers:{bert}", "-o", tmp_path / "o", code=2)
    assert message in said and not (tmp_path / "o").exists()


def test_what_is_wrong_with_texts_is_said(texts, tmp_path):
    bert = make_bert(tmp_path / "bert")
    with (texts / "t.csv").open() as file:
        rows = list(csv.reader(file))
    rows[3][0] = "  "
    (tmp_path / "gap.csv").write_text("\n".join(",".join(r) for r in rows))
    net = ("--backbone", f"transformers:{bert}", "-o", tmp_path / "o")
    assert "column 'question' has 1 empty texts, in rows 2" in run(
        tmp_path / "gap.csv", "--text", "question", "-y", "topic", *net, code=2
    )
    rows[3], rows[5][1] = ["now", "ants"], ""
    (tmp_path / "gap.csv").write_text("\n".join(",".join(r) for r in rows))
    said = run(tmp_path / "gap.csv", "--text", "question", "-y", "topic", *net, code=2)
    assert "--target topic is empty in 1 of 16 rows" in said and "rows 4 (the first row is 0)" in said
    (tmp_path / "one.csv").write_text("\n".join(["question,topic", "who am i,ants", "now,ants"]))
    assert "are of one class, 'ants' (--target topic)" in run(
        tmp_path / "one.csv", "--text", "question", "-y", "topic", "--validation", 0, *net, code=2
    )
    assert "no column 'questions' (text); did you mean 'question'?" in run(
        texts / "t.csv", "--text", "questions", "-y", "topic", *net, code=2
    )
    assert "needs labels" in run(texts / "t.csv", "--text", "question", *net, code=2)
    assert "transformers:FOLDER" in run(
        texts / "t.csv", "--text", "question", "-y", "topic", "-o", tmp_path / "o", code=2
    )
    said = run(
        texts / "t.csv",
        "--text",
        "question",
        "-y",
        "topic",
        "-o",
        tmp_path / "o",
        "--backbone",
        "transformers:bert-base",
        code=2,
    )
    assert "Names of a hub are not looked up" in said
    assert "takes images or texts" in run(texts / "t.csv", "-y", "topic", *net, code=2)
    other = make_bert(tmp_path / "other", hidden=8) / "model.safetensors"
    said = run(texts / "t.csv", "--text", "question", "-y", "topic", *net, "--weights", other, code=2)
    assert "another architecture" in said and "8) there and" in said
    assert not (tmp_path / "o").exists()


# -- a file of settings ------------------------------------------------------------------------------------------------

CONFIG = """
epochs = 3
batch = "2x3"
embedding = 4
image-shape = "3x8x8"
validation = 0.4
ema = 0.9

[loss]
name = "Triplet"
margin = 0.3

[stopping]
monitor = "loss"
restore = "ema"

[optimization]
schedule = "plateau"
lr_groups = { layers = 0.5 }
"""


def test_settings_come_from_a_file_and_the_command_line_wins(images, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(CONFIG.replace("layers", next(iter(dict(ConvNet((3, 8, 8), 4).named_children())))))
    said = run(images, "-o", tmp_path / "run", "--config", file, "--epochs", 2)
    assert "epoch 2 of 2" in said
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["epochs"] == 2 and settings["batch"] == [2, 3] and settings["loss"] == "Triplet(margin=0.3)"
    assert settings["trainer"]["ema"] == 0.9 and settings["trainer"]["schedule"] == "plateau"


@pytest.mark.parametrize(
    "text, message",
    [
        ("epoch = 3", "epoch is unknown; the nearest that is known is epochs"),
        ("emma = 3", "emma is unknown; the nearest that is known is ema"),
        ("[stopping]\npatient = 3", "stopping.patient is unknown; the nearest that is known is stopping.patience"),
        ("epochs = ", "is no TOML"),
        ("[loss]\nmargin = 3", "needs a name"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(images, tmp_path, text, message):
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert message in run(images, "-o", tmp_path / "o", "--config", file, code=2)


@pytest.mark.parametrize(
    "setting, message",
    [("emaa=0.9", "the nearest is ema"), ("lr=0.1", "an option of its own, --lr"), ("ema", "expected name=value")],
)
def test_what_is_wrong_with_a_setting_is_said(images, tmp_path, setting, message):
    assert message in run(images, "-o", tmp_path / "o", "--set", setting, code=2)


def test_tables_of_numbers_take_the_settings_too(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 4)) + np.repeat(3 * rng.normal(size=(4, 4)), 10, 0)
    pd.DataFrame(X).assign(kind=np.repeat(list("abcd"), 10)).to_csv(tmp_path / "t.csv", index=False)
    common = ("-y", "kind", "--epochs", 2, "--batch", "2x4", "--validation", 0.5, "--embedding", 2)
    run(tmp_path / "t.csv", "-o", tmp_path / "a", *common)
    run(tmp_path / "t.csv", "-o", tmp_path / "b", *common, "--set", "ema=0.99", "--set", "weight_decay=0.01")
    run(tmp_path / "t.csv", "-o", tmp_path / "c", *common, "--set", "restore=last")  # which changes nothing here
    assert same(weights(tmp_path / "a"), weights(tmp_path / "c"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "b"))


# -- killed ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["pairs", "classes"])
def test_killed_with_average_plateau_and_bucketed_texts_it_ends_the_same_to_the_bit(texts, tmp_path, table):
    """SIGKILL in the middle of an epoch, after a checkpoint by step; nothing can be tidied up then.

    All of the loss is active in every epoch, so that the plateau comes after the fourth, before the run is killed.
    """
    bert = make_bert(tmp_path / "bert")
    frame = pd.read_csv(texts / ("pairs.csv" if table == "pairs" else "t.csv"))
    pd.concat([frame] * 4).to_csv(tmp_path / "table.csv", index=False)
    columns = ("--text", "q,d") if table == "pairs" else ("--text", "question", "-y", "topic")
    command = [
        *(tmp_path / "table.csv", *columns, "--loss", "InfoNCE", "--backbone", f"transformers:{bert}"),
        *("--batch", "2x2", "--embedding", 4, "--epochs", 7, "--set", "ema=0.9", "--set", "save_every=3"),
        *("--set", "schedule=plateau", "--set", "bucket=2", "--set", "monitor=active", "--set", "restore=ema"),
    ]  # fmt: skip
    run(*command, "-o", tmp_path / "straight")
    killed = tmp_path / "killed"
    process = start(*command, "-o", killed, code=KILLED.format(call=88 if table == "pairs" else 46))
    _, said = process.communicate()
    assert process.returncode == -signal.SIGKILL, said
    assert (killed / "checkpoints" / "last.safetensors").exists() and not (killed / "network.safetensors").exists()
    assert "going on" in run(*command, "-o", killed)
    assert same_weights(killed / "network.safetensors", tmp_path / "straight" / "network.safetensors")
    assert (killed / "history.csv").read_bytes() == (tmp_path / "straight" / "history.csv").read_bytes()
    assert pd.read_csv(killed / "history.csv")["lr"].tolist() == [0.001] * 4 + [0.0005] * 3


KILLED = """
import os, signal, torch
from isometry.cli import main
from isometry.deep.engine import Engine

backward, calls = Engine.backward, iter(range(1, 1000))

def count_and_die(self, group):
    if next(calls) == {call}:  # in the sixth epoch of 16 or 8 steps; the last checkpoint is that after the step before
        os.kill(os.getpid(), signal.SIGKILL)
    return backward(self, group)

Engine.backward = count_and_die
torch.set_num_threads(1)
main()
"""
