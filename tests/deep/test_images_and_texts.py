"""Images in folders, tables of texts, and networks by name: what goes in, what is refused, and in which words."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn

from isometry.deep import (
    BucketedBatches,
    BucketedClasses,
    Columns,
    ColumnTable,
    ConvNet,
    ImageFolder,
    ImageTransform,
    InfoNCE,
    NCALoss,
    Network,
    PKBatchSampler,
    Ranking,
    ShuffledBatches,
    Trainer,
    backbone,
)
from isometry.deep.backbones import pool, read_weights
from isometry.deep.batches import DistinctBatches, by_length, text_codes
from isometry.deep.images import ENDINGS, problem
from isometry.deep.row_samplers import apart

torch.set_num_threads(1)
Image = pytest.importorskip("PIL.Image")
SHADES = {"ant": 30, "bee": 120, "cow": 200}


def draw(path, shade, size=(9, 7), rng=None):
    noise = 0 if rng is None else rng.integers(0, 20, (size[1], size[0], 3))
    Image.fromarray(np.full((size[1], size[0], 3), shade, np.uint8) + np.asarray(noise, np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, shade in SHADES.items():
        (tmp_path / name).mkdir()
        for k in range(4):
            draw(tmp_path / name / f"{k}.png", shade, rng=rng)
    return tmp_path


# -- images ------------------------------------------------------------------------------------------------------------


def test_a_picture_becomes_its_pixels():
    transform = ImageTransform(4, mean=(0.5,), std=(0.25,), crop=1.0)
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4) * 10
    assert_allclose(transform(Image.fromarray(grey)), ((grey / 255 - 0.5) / 0.25)[None], rtol=1e-5)
    wide = np.zeros((4, 10), np.uint8)
    wide[:, 3:7] = 255  # the middle
    assert_allclose(transform(Image.fromarray(wide))[0], np.full((4, 4), 2.0), atol=1e-6)
    colour = np.zeros((8, 8, 3), np.uint8)
    colour[..., 1] = 255
    found = ImageTransform(4, (0, 0, 0), (1, 1, 1))(Image.fromarray(colour))
    assert found.shape == (3, 4, 4)
    assert_allclose(found.mean((1, 2)), [0, 1, 0], atol=1e-6)
    with pytest.raises(ValueError, match="crop=0"):
        ImageTransform(4, crop=0)


def test_classes_are_sub_folders(folder):
    (folder / "ant" / "notes.txt").write_text("no image")
    (folder / "bee" / "more").mkdir()
    draw(folder / "bee" / "more" / "deep.jpg", 120)
    images = ImageFolder(folder, ImageTransform(8))
    assert images.classes == ["ant", "bee", "cow"] and len(images) == 13 and images.skipped == []
    assert [int((images.labels == c).sum()) for c in images.classes] == [4, 5, 4]
    x, code = images[12]
    assert x.shape == (3, 8, 8) and code == 2
    part = images.subset(np.array([12, 0]))
    assert [part[k][1] for k in range(2)] == [1, 0] and part.labels.tolist() == ["cow", "ant"]
    assert part.classes == ["ant", "cow"]  # so that a loss with a proxy for each class needs no more of them


def test_files_that_cannot_be_read_are_named_counted_and_left_out(folder):
    whole = folder / "ant" / "big.jpg"
    draw(whole, 30, (64, 64), np.random.default_rng(0))
    (folder / "ant" / "cut.jpg").write_bytes(whole.read_bytes()[:-900])
    (folder / "bee" / "text.png").write_text("hello")
    (folder / "cow" / "empty.png").touch()
    (folder / "cow" / "gone.png").symlink_to(folder / "nowhere.png")
    (folder / "cow" / "folder.png").mkdir()  # no file
    names = ["cut.jpg", "text.png", "empty.png", "gone.png"]
    with pytest.warns(UserWarning, match=r"4 of 17 files are no readable images .*" + ".*".join(map(re.escape, names))):
        images = ImageFolder(folder, ImageTransform(8))
    assert len(images) == 13 and [f.rsplit("/", 1)[1] for f, _ in images.skipped] == names
    assert "truncated" in images.skipped[0][1].lower() and all(images[k][0].isfinite().all() for k in range(13))
    images.files[0].unlink()
    with pytest.raises(OSError, match="could be read when training began"):
        images[0]


@pytest.mark.filterwarnings("ignore")  # of Pillow, about what is odd in a file
@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_files_are_skipped_or_read_and_raise_nothing(ending, tmp_path, monkeypatch):
    """Bytes changed or cut off at random: a file is left out at the beginning, or it can be trained on."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)  # some claim to be huge
    rng, file = np.random.default_rng(0), tmp_path / f"a{ending}"
    draw(file, 30, (24, 20), rng)
    whole, kinds = file.read_bytes(), set()
    for _ in range(100):
        cut = bytearray(whole[: rng.integers(1, len(whole))] if rng.random() < 0.3 else whole)
        for place in rng.integers(0, min(len(cut), 80 if rng.random() < 0.5 else len(cut)), rng.integers(1, 8)):
            cut[place] = rng.integers(256)
        file.write_bytes(cut)
        why = problem(file)
        kinds.add(why is None)
        if why is None:
            with Image.open(file) as image:
                assert ImageTransform(8)(image).isfinite().all()
    assert False in kinds


def test_what_is_no_folder_of_classes_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no images in sub-folders"):
        ImageFolder(tmp_path)
    (tmp_path / "only").mkdir()
    draw(tmp_path / "only" / "a.png", 10)
    with pytest.raises(ValueError, match=r"all 1 images .* are of one class, 'only'"):
        ImageFolder(tmp_path)
    (tmp_path / "only" / "a.png").write_text("x")
    with pytest.raises(ValueError, match="none of the 1 images"):
        ImageFolder(tmp_path)


def test_a_table_of_images_with_its_split_and_a_folder_of_splits(folder, tmp_path):
    paths = [f"{name}/{k}.png" for name in SHADES for k in range(4)]
    labels = [p.partition("/")[0] for p in paths]
    table = {"path": paths, "label": labels, "split": (["train", "train", "test", "val"] * 3), "category": [1] * 12}
    images = ImageFolder.from_table(table, folder, ImageTransform(8))
    assert images.splits.tolist() == ["train", "train", "val", "val"] * 3 and images.categories.tolist() == [1] * 12
    with pytest.raises(ValueError, match="no column 'label'"):
        ImageFolder.from_table({"path": paths}, folder)
    with pytest.raises(ValueError, match="split 'later' is unknown"):
        ImageFolder.from_table(table | {"split": ["later"] * 12}, folder)
    root = tmp_path / "parted"
    for split in ("train", "val"):
        for name in SHADES:
            (root / split / name).mkdir(parents=True)
            for k in range(3):
                draw(root / split / name / f"{k}.png", SHADES[name], rng=np.random.default_rng(k))
    parted = ImageFolder(root, ImageTransform(8))
    assert parted.classes == list(SHADES) and (parted.splits == "val").sum() == 9
    batches = {"classes_per_batch": 3, "samples_per_class": 2}
    trainer = Trainer(ConvNet((3, 8, 8), 4), NCALoss(), max_epochs=1, **batches).fit(parted)
    assert np.isfinite(trainer.history["map@r"]).all()  # measured on what the split holds out
    held = parted.subset(np.flatnonzero(parted.splits == "val"))
    from isometry.eval import retrieval

    found = retrieval(trainer.embed(held).numpy(), held.labels).mean()
    assert_allclose(trainer.history["map@r"][0], found["map@r"], rtol=1e-6)


def test_training_on_a_folder_with_workers_is_that_without(folder):
    images = ImageFolder(folder, ImageTransform(8))
    nets = []
    for workers in (0, 2):
        torch.manual_seed(0)
        nets.append(net := ConvNet((3, 8, 8), 4))
        Trainer(net, NCALoss(), max_epochs=2, workers=workers, classes_per_batch=3, samples_per_class=2).fit(images)
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters()))


# -- texts -------------------------------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyz ?:"


def tokenize(texts):
    """Letters as numbers, padded by 0."""
    longest = max(map(len, texts))
    ids = torch.tensor([[LETTERS.index(c) + 1 for c in t] + [0] * (longest - len(t)) for t in texts])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


class Reader(nn.Module):
    """The mean of letters' vectors."""

    def __init__(self, p=4):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.tokenize = nn.Embedding(len(LETTERS) + 1, p), tokenize

    def forward(self, x):
        return pool(self.table(x["input_ids"]), x["attention_mask"], "mean")


TEXTS = ["who am i", "where are you now", "no", "a long long text about ants", "bees", "cows and bees"] * 4


def test_columns_become_batches():
    table = ColumnTable(
        {"query": ["a", "bcd"], "document": ["ab", "c"], "score": [0.5, 1.0]}, tokenize, prompts={"query": "q: "}
    )
    batch = table.collate([table[0], table[1]])
    assert list(batch) == ["query", "document", "score"]
    assert batch["query"]["input_ids"].tolist() == [
        [LETTERS.index(c) + 1 for c in "q: a"] + [0, 0],
        [LETTERS.index(c) + 1 for c in "q: bcd"],
    ]
    assert batch["score"].tolist() == [0.5, 1.0] and table.lengths.tolist() == [2, 3]
    labelled = ColumnTable({"text": ["a", "b"], "label": ["x", "y"]}, tokenize)
    x, y = labelled.collate([labelled[1], labelled[0]])
    assert y.tolist() == [1, 0] and x["input_ids"].tolist() == [[2], [1]]
    assert labelled.subset([1])[0] == {"text": "b", "label": "y", "$code": 0}


def test_a_data_set_of_hugging_face_is_taken_as_it_is():
    class LikeTheirs:
        """What their data sets offer: names of columns, and columns and rows by index."""

        column_names = ["anchor", "positive"]

        def __len__(self):
            return len(TEXTS)

        def __getitem__(self, key):
            return TEXTS if isinstance(key, str) else {"anchor": TEXTS[key], "positive": TEXTS[key]}

    net = Reader()
    trainer = Trainer(net, Columns(Ranking()), max_epochs=2, monitor="loss", classes_per_batch=2, samples_per_class=4)
    trainer.fit(LikeTheirs())
    frame = Reader()
    table = {"anchor": TEXTS, "positive": TEXTS}
    Trainer(frame, Columns(Ranking()), max_epochs=2, monitor="loss", classes_per_batch=2, samples_per_class=4).fit(
        table
    )
    assert torch.equal(net.table.weight, frame.table.weight)
    assert len(trainer.history["loss"]) == 2 and trainer.embed(TEXTS).shape == (24, 4)


def test_the_data_set_of_hugging_face_itself():
    datasets = pytest.importorskip("datasets", reason="the library of data sets of Hugging Face is not installed")
    data = datasets.Dataset.from_dict({"anchor": TEXTS, "positive": TEXTS})
    Trainer(Reader(), Columns(InfoNCE()), max_epochs=1, monitor="loss", samples_per_class=2).fit(data)


def test_texts_that_come_in_several_rows_have_codes():
    def codes(table):
        return text_codes(ColumnTable(table, tokenize))

    assert codes({"query": ["a", "b"], "document": ["c", "d"]}) is None
    assert codes({"query": ["a", "b"], "document": ["a", "b"]}) is None  # twice, but in one row
    assert codes({"query": ["a", "a"], "document": ["c", "d"]}).tolist() == [[0, 1], [0, 2]]
    assert codes({"query": ["a", "b"], "document": ["c", "a"]}).tolist() == [[0, 2], [1, 0]]
    assert codes({"query": ["a", "a"], "document": ["c", "d"], "score": [0.0, 1.0]}) is None  # no negatives there
    assert codes({"text": ["a", "a"]}) is None


def test_batches_hold_no_text_twice_and_texts_of_similar_length():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 150, 400), rng.integers(150, 500, 400)], 1)
    lengths = rng.integers(1, 200, 400)
    plan = DistinctBatches(codes, lengths, 16, 5, random_state=3)
    rows = list(plan)
    assert len(rows) == len(plan) == 25 and plan.fills
    seen = [r for batch in rows for r in batch]
    assert len(seen) == len(set(seen)) > 350  # what waits in small batches comes in another epoch
    for batch in rows:
        assert len(np.unique(codes[batch])) == 2 * len(batch)
    wide = ShuffledBatches(400, 16, random_state=3)
    padding = [sum(int((lengths[b].max() - lengths[b]).sum()) for b in batches) for batches in (rows, list(wide))]
    assert padding[0] < 0.6 * padding[1]
    assert list(plan) != rows  # the next epoch
    plan.load_state_dict({"epoch": 0, "position": 7})
    assert list(plan) == rows[7:]
    parts = []
    for rank in range(2):
        part = DistinctBatches(codes, lengths, 16, 5, random_state=3)
        part._rank_and_size = rank, 2
        parts.append(list(part))
    assert [sorted(a + b) for a, b in zip(*parts)] == [sorted(batch) for batch in rows]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_batches_of_every_epoch_hold_something_to_compare(world):
    """Of random tables with texts that come often, and of one where some texts go with few others."""
    rng, plans = np.random.default_rng(0), 0
    for trial in range(150):
        n, size = int(rng.integers(5, 40)), int(rng.integers(max(2, world), 9))
        queries = rng.integers(0, max(2, n // 2), n) if trial % 2 else np.where(rng.random(n) < 0.8, 0, np.arange(n))
        codes = np.stack([queries, 1000 + np.arange(n)], 1)
        parts = [DistinctBatches(codes, rng.integers(1, 9, n), size, 5, random_state=trial)]
        parts += [copy.deepcopy(parts[0]) for _ in range(world - 1)]
        for rank, part in enumerate(parts):
            part._rank_and_size = rank, world
        if not parts[0].fills:
            continue
        plans += 1
        for epoch in range(12):
            batches = [list(part) for part in parts]
            assert all(len(rows) == len(parts[0]) for rows in batches) and parts[0].epoch == epoch + 1
            for shares in zip(*batches):
                rows = [row for share in shares for row in share]
                assert min(map(len, shares)) >= 1 and len(rows) >= max(2, world)
                assert len(np.unique(codes[rows])) == 2 * len(rows)
    assert plans > 60


def test_small_batches_borrow_rows_and_the_others_stay():
    """One query in half of the rows, each of which is in a batch of its own; and the same after a restart."""
    codes = np.stack([np.where(np.arange(200) < 100, 0, np.arange(200)), 1000 + np.arange(200)], 1)
    plan = DistinctBatches(codes, np.ones(200), 10, 5, random_state=1)
    rows = list(plan)
    lone = sorted(apart(codes, np.random.default_rng([1, 0]).permutation(200), 10), key=len)[-20:]
    assert plan.fills and sum(len(batch) == 1 for batch in lone) > 5
    assert sorted(map(len, rows)) == sorted(len(batch) if len(batch) > 1 else 10 for batch in lone)
    assert len({row for batch in rows for row in batch}) == sum(map(len, lone))
    again = DistinctBatches(codes, np.ones(200), 10, 5, random_state=1)
    again.load_state_dict({"epoch": 0, "position": 6})
    assert list(again) == rows[6:]


def test_a_trainer_puts_no_text_into_a_batch_twice_unless_told_to():
    """The loss warns of rows that it cannot take for negatives; one query for all rows leaves no choice."""
    texts = list(dict.fromkeys(TEXTS))
    many = {"query": texts * 4, "document": [f"{t} {k}" for k, t in zip("abcd" * 6, texts * 4)]}
    one = {"query": ["who am i"] * 24, "document": many["document"]}
    settings = {"max_epochs": 2, "monitor": "loss", "classes_per_batch": 2, "samples_per_class": 2}
    for table, more, warned in ((many, {}, False), (many, {"no_duplicates": False}, True), (one, {}, True)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Trainer(Reader(), Columns(Ranking()), **settings, **more).fit(table)
        assert any("not taken for negatives" in str(w.message) for w in said) == warned, (list(table), more)
        told = [w for w in said if "no_duplicates cannot be kept: texts repeat so often" in str(w.message)]
        assert len(told) == (table is one)


def test_texts_with_labels_are_trained_and_embedded():
    y = np.array([t.split()[0] for t in TEXTS])
    trainer = Trainer(Reader(), NCALoss(), max_epochs=2, classes_per_batch=4, samples_per_class=2)
    trainer.fit(TEXTS, y, validation=(TEXTS, y))
    assert np.isfinite(trainer.history["map@r"]).all()
    z = trainer.embed(TEXTS)
    assert_allclose(z[0], trainer.embed(TEXTS[:1])[0], atol=1e-6)  # padding does not count


def test_empty_texts_are_named():
    with pytest.raises(ValueError, match="column 'text' has 3 empty texts, in rows 1, 2, 4"):
        ColumnTable({"text": ["a", "", "  ", "b", None]}, tokenize)
    with pytest.raises(ValueError, match="'text' holds texts: give tokenize"):
        ColumnTable({"text": ["a"]})
    with pytest.raises(ValueError, match="one length"):
        ColumnTable({"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match="no 'query'"):
        ColumnTable({"text": ["a"]}, tokenize, prompts={"query": "q"})


def test_buckets_visit_all_once_and_need_little_padding():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 200, 203)
    bucketed, plain = BucketedBatches(lengths, 10, 5, random_state=1), ShuffledBatches(203, 10, random_state=1)
    rows = list(bucketed)
    assert len(rows) == 20 and len({r for batch in rows for r in batch}) == 200

    def padding(batches):
        return sum(int((lengths[b].max() - lengths[b]).sum()) for b in batches)

    assert padding(rows) < 0.35 * padding(list(plain))
    again = list(bucketed)  # the next epoch
    assert again != rows
    bucketed.load_state_dict({"epoch": 0, "position": 7})
    assert list(bucketed) == rows[7:]
    spans = [lengths[b].mean() for b in rows]
    assert abs(np.corrcoef(spans, np.arange(20))[0, 1]) < 0.6  # batches come in random order


@pytest.mark.parametrize("n_classes, size, K", [(7, 20, 3), (5, 4, 4), (12, 9, 2), (4, 3, 5)])
def test_buckets_of_classes_keep_the_plan_and_deal_out_by_length(n_classes, size, K):
    """The classes of every batch, and the samples of each class in a bucket, are those of the plain sampler."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(n_classes), size))
    lengths = rng.integers(1, 200, len(y))
    bucketed = BucketedClasses(y, lengths, 4, K, 6, n_batches=17, random_state=3)
    plain = PKBatchSampler(y, 4, K, n_batches=17, random_state=3)
    for _ in range(3):  # epochs, through which the passes run on
        rows, planned = list(bucketed), list(plain)
        assert [y[b].tolist() for b in rows] == [y[b].tolist() for b in planned]
        for first in range(0, 17, 6):
            both = [np.concatenate(x[first : first + 6]) for x in (rows, planned)]
            assert sorted(both[0].tolist()) == sorted(both[1].tolist())
        if size >= K:
            assert all(len(set(batch)) == len(batch) for batch in rows)
    again = BucketedClasses(y, lengths, 4, K, 6, n_batches=17, random_state=3)
    again.load_state_dict({"epoch": 2, "position": 8})
    assert list(again) == rows[8:]


def test_classes_dealt_out_by_length_need_little_padding():
    rng = np.random.default_rng(0)
    y, lengths = np.repeat(np.arange(6), 40), rng.integers(1, 200, 240)
    samplers = BucketedClasses(y, lengths, 4, 3, 20, random_state=3), PKBatchSampler(y, 4, 3, random_state=3)
    padding = [sum(int((lengths[b].max() - lengths[b]).sum()) for b in sampler) for sampler in samplers]
    assert padding[0] < 0.5 * padding[1]


def test_two_processes_deal_out_what_each_has():
    y, lengths = np.repeat(np.arange(4), 48), np.random.default_rng(0).integers(1, 99, 192)
    parts = []
    for rank in range(2):
        sampler = BucketedClasses(y, lengths, 2, 3, 8, n_batches=16, random_state=0)
        sampler._rank_and_size = rank, 2
        parts.append(list(sampler))
    for a, b in zip(*parts):
        assert not set(a) & set(b)
    longest = np.array([[lengths[rows].max() for rows in part] for part in parts])
    assert np.corrcoef(longest)[0, 1] > 0.5  # processes have their long batches at the same time


def test_parts_dealt_out_by_length_hold_different_rows():
    """Two rows that come in every part, and rows that come once."""
    parts = [np.array([0, 9, 4]), np.array([9, 0, 2]), np.array([3, 9, 0])]
    lengths = np.arange(10)[::-1]
    assert [part.tolist() for part in by_length(parts, lengths)] == [[9, 4, 0], [9, 3, 0], [9, 2, 0]]
    same = [np.array([1, 1]), np.array([2, 1])]  # a class of one sample repeats it
    assert by_length(same, lengths) is same
    with pytest.raises(ValueError, match=r"4 samples need as many lengths, got shape \(3,\)"):
        BucketedClasses([0, 0, 1, 1], [1, 2, 3], 2, 2)


# -- networks by name --------------------------------------------------------------------------------------------------


def test_pooling_by_hand():
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]], [[1.0, 0.0], [2.0, 5.0], [6.0, 1.0]]])
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    assert pool(tokens, mask, "mean").tolist() == [[2.0, 3.0], [3.0, 2.0]]
    assert pool(tokens, mask, "cls").tolist() == [[1.0, 2.0], [1.0, 0.0]]
    assert pool(tokens, mask, "last").tolist() == [[3.0, 4.0], [6.0, 1.0]]
    gem = [[14 ** (1 / 3), 36 ** (1 / 3)], [75 ** (1 / 3), 42 ** (1 / 3)]]
    assert_allclose(pool(tokens, mask, "gem"), gem, rtol=1e-5)
    assert_allclose(pool(tokens, None, "mean")[0], [13 / 3, 5.0], rtol=1e-6)
    with pytest.raises(ValueError, match="pooling='max'"):
        Network(nn.Identity(), 2, pooling="max")


def test_weights_of_another_architecture_are_refused_with_the_first_names(tmp_path):
    from safetensors.torch import save_file

    net = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    state = {k: torch.full_like(v, 0.5) for k, v in net.state_dict().items()}
    file = tmp_path / "w.safetensors"
    save_file({f"model.{k}": v for k, v in state.items()} | {"fc.weight": torch.zeros(9, 2)}, file)
    read_weights(net, file, "net", ("fc",))  # the classifier and the first part of the names do not matter
    assert all((p == 0.5).all() for p in net.parameters())
    save_file({"0.weight": torch.zeros(3, 2), "0.bias": torch.zeros(2), "4.bias": torch.zeros(1)}, file)
    lacks, other = r"it lacks 2\.weight, 2\.bias \(2 in all\)", r"0\.weight is \(3, 2\) there and \(2, 3\) here"
    with pytest.raises(ValueError, match=rf"another architecture than net: {lacks}; it has besides 4\.bias .*{other}"):
        read_weights(net, file, "net", ())
    assert all((p == 0.5).all() for p in net.parameters())
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged"):
        read_weights(net, file, "net", ())
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        read_weights(net, tmp_path / "none.safetensors", "net", ())
    with pytest.raises(ValueError, match="safetensors files alone"):
        read_weights(net, tmp_path / "w.pt", "net", ())


def test_names_that_would_need_the_net_are_refused_in_words():
    with pytest.raises(ValueError, match="Nothing is downloaded: give weights"):
        backbone("timm:resnet18")
    with pytest.raises(ValueError, match="expected library:model"):
        backbone("resnet18", "random")
    pytest.importorskip("transformers")
    with pytest.raises(FileNotFoundError, match=r"Names of a hub are not looked up.*hf download bert-base-uncased"):
        backbone("transformers:bert-base-uncased")


def test_a_missing_library_is_named_with_its_extra():
    code = (
        "import sys\n"
        "for m in ('timm', 'torchvision', 'transformers', 'tensorboard'): sys.modules[m] = None\n"
        "from isometry.deep import backbone, TensorBoard\n"
        "tries = [lambda n=n: backbone(n + ':x', 'random') for n in ('timm', 'torchvision', 'transformers')]\n"
        "for make in [*tries, lambda: TensorBoard('x')]:\n"
        "    try: make()\n"
        "    except ModuleNotFoundError as error: print(error)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [
        'a backbone of timm needs timm: pip install "isometry[vision]"',
        'a backbone of torchvision needs torchvision: pip install "isometry[vision]"',
        'a backbone of transformers needs transformers: pip install "isometry[text]"',
        'TensorBoard needs tensorboard: pip install "isometry[logs]"',
    ]


def test_nothing_is_imported_unless_used():
    code = (
        "import sys, isometry.deep as d; [getattr(d, n) for n in d.__all__]\n"
        "optional = ('PIL', 'timm', 'torchvision', 'transformers', 'tensorboard', 'datasets')\n"
        "print([m for m in optional if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"


def make_bert(folder, hidden=16):
    """A tiny model of BERT's kind with random weights and a vocabulary of words, written as a folder."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({w for t in TEXTS for w in t.split()})]
    (folder / "vocab.txt").write_text("\n".join(words))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_a_model_of_transformers_from_a_folder(tmp_path):
    bert = make_bert(tmp_path / "bert")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        net = backbone(f"transformers:{bert}", n_components=4)
    assert net.num_features == 16
    from transformers import AutoModel

    theirs = AutoModel.from_pretrained(bert, local_files_only=True).eval()
    x = net.tokenize(TEXTS[:3])
    with torch.no_grad():
        tokens = theirs(**x).last_hidden_state
        m = x["attention_mask"][..., None]
        assert_allclose(net.eval()(x), net.head((tokens * m).sum(1) / m.sum(1)), atol=1e-6)
        one = net(net.tokenize(TEXTS[2:3]))
    assert_allclose(one[0], net(x)[2].detach(), atol=1e-5)
    other = make_bert(tmp_path / "other", hidden=8)
    with pytest.raises(ValueError, match=r"another architecture .* is \(\d+, 8\) there and \(\d+, 16\) here"):
        backbone(f"transformers:{bert}", other / "model.safetensors")
    random = backbone(f"transformers:{bert}", "random")
    assert not torch.equal(random.backbone.embeddings.word_embeddings.weight, theirs.embeddings.word_embeddings.weight)
    (bert / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no weights as safetensors"):
        backbone(f"transformers:{bert}")


def test_layers_of_a_transformer_have_learning_rates_by_depth(tmp_path):
    from isometry.deep.parts import model_groups

    net = backbone(f"transformers:{make_bert(tmp_path / 'bert')}", n_components=4)
    groups = model_groups(net, 1.0, 0.0, {"head": 10.0}, 0.5)
    rate = {id(p): g["lr"] for g in groups for p in g["params"]}
    found = {name: rate[id(p)] for name, p in net.named_parameters()}
    assert found["backbone.embeddings.word_embeddings.weight"] == 0.125
    assert {v for k, v in found.items() if ".layer.0." in k} == {0.25}
    assert {v for k, v in found.items() if ".layer.1." in k} == {0.5}
    assert found["head.weight"] == 10.0 and math.isclose(max(found.values()), 10.0)
