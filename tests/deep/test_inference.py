"""An encoder gives what the network gives, in the order of the samples, whatever is in a batch, and after a stop."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import nn
from torch.utils.data import TensorDataset

from isometry.deep import MLP, CheckpointError, Encoder, NCALoss, Trainer
from isometry.deep import inference as module
from tests.deep.processes import results_of_two
from tests.deep.test_images_and_texts import TEXTS, Reader

torch.set_num_threads(1)


def network():
    torch.manual_seed(0)
    return nn.Sequential(MLP(5, 6, (8,)), nn.BatchNorm1d(6), nn.Dropout(0.5))


def samples(n=37):
    return np.random.default_rng(0).standard_normal((n, 5)).astype(np.float32)


class Counting(nn.Module):
    """Notes the sizes of batches, and can run out of memory."""

    def __init__(self, inner, most=10**9, stop_after=10**9):
        super().__init__()
        self.inner, self.most, self.stop_after, self.sizes = inner, most, stop_after, []

    def forward(self, x):
        n = len(next(iter(x.values())) if isinstance(x, dict) else x)
        if n > self.most:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")
        if len(self.sizes) == self.stop_after:
            raise KeyboardInterrupt
        self.sizes.append(n)
        return self.inner(x)


def test_it_is_the_network_in_eval_mode_and_leaves_it_as_it_was():
    net, X = network().train(), samples()
    net[0].eval()
    z = Encoder(net, batch_size=10).encode(X)
    assert [m.training for m in net] == [False, True, True]
    with torch.no_grad():
        assert_allclose(z, net.eval()(torch.tensor(X)), atol=1e-6)
    assert z.dtype == np.float32 and z.shape == (37, 6)


def test_sizes_kinds_and_generators_agree():
    net, X = network(), samples()
    whole = Encoder(net).encode(X)
    for got in (
        Encoder(net, batch_size=4).encode(X),
        Encoder(net).encode(torch.tensor(X)),
        Encoder(net).encode(TensorDataset(torch.tensor(X))),
        Encoder(net, batch_size=2).encode(row for row in X),
        Encoder(net).encode(X.astype(np.float64)),
    ):
        assert_allclose(got, whole, atol=1e-6)
    assert np.array_equal(Encoder(net, batch_size=16).encode(X), Encoder(net, batch_size=16).encode(X))
    with pytest.raises(ValueError, match="gave no samples"):
        Encoder(net).encode(iter([]))


def test_it_equals_the_trainer_with_unit_length_and_truncation():
    X, y = samples(40), np.arange(40) % 4
    trainer = Trainer(MLP(5, 6, (8,)), NCALoss(), max_epochs=1, normalize=True).fit(X, y)
    assert np.array_equal(Encoder(trainer.model, normalize=True).encode(X), trainer.embed(X).numpy())
    cut = Encoder(trainer.model, normalize=True, truncate=3).encode(X)
    raw = Encoder(trainer.model).encode(X)[:, :3]
    assert_allclose(cut, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-5)


def test_texts_pass_by_length_and_come_back_in_order():
    counted = Counting(Reader())
    encoder = Encoder(counted, counted.inner.tokenize, batch_size=5, prompts={"query": "q: "})
    z = encoder.encode(TEXTS)
    assert counted.sizes == [5, 5, 5, 5, 4]
    for k, text in enumerate(TEXTS[:6]):
        assert_allclose(z[k], encoder.encode([text])[0], atol=1e-6)
    assert_allclose(
        encoder.encode(TEXTS[:2], prompt="query"), encoder.encode(["q: " + t for t in TEXTS[:2]]), atol=1e-6
    )
    lengths = []
    spied = Encoder(
        counted, lambda texts: lengths.append([*map(len, texts)]) or counted.inner.tokenize(texts), batch_size=5
    )
    spied.encode(TEXTS)
    assert [n for batch in lengths for n in batch] == sorted(map(len, TEXTS), reverse=True)
    with pytest.raises(ValueError, match="1 empty texts, in rows 1"):
        encoder.encode(["a", " "])
    with pytest.raises(ValueError, match="texts need a transform"):
        Encoder(network()).encode(["a"])
    with pytest.raises(ValueError, match="these samples are none"):
        Encoder(network()).encode(samples(), prompt="query")


def test_batches_are_halved_where_memory_ends():
    counted = Counting(network(), most=10)
    z = Encoder(counted, batch_size=32).encode(samples())
    assert counted.sizes == [8, 8, 8, 8, 5]
    assert_allclose(z, Encoder(counted.inner).encode(samples()), atol=1e-6)
    with pytest.raises(RuntimeError, match="can't allocate"):
        Encoder(Counting(network(), most=0)).encode(samples())
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        Encoder(network()).encode(samples()[:, :4])


def test_a_file_is_filled_and_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SAVE_EVERY", 2)
    out, X, net = tmp_path / "z.npy", samples(), network()
    stopped = Counting(net, stop_after=5)
    with pytest.raises(KeyboardInterrupt):
        Encoder(stopped, batch_size=4).encode(X, out=out)
    again = Counting(net)
    z = Encoder(again, batch_size=4).encode(X, out=out)
    assert isinstance(z, np.memmap) and again.sizes == [4, 4, 4, 4, 4, 1]  # four batches were noted down
    assert_allclose(np.load(out), Encoder(net).encode(X), atol=1e-6)
    assert Counting(net).sizes == [] and np.array_equal(Encoder(again, batch_size=4).encode(X, out=out), z)
    assert len(again.sizes) == 6  # all is there
    with pytest.raises(FileExistsError, match="other weights or samples"):
        Encoder(again).encode(X + 1, out=out)
    np.save(tmp_path / "mine.npy", X)
    with pytest.raises(FileExistsError, match="holds something else"):
        Encoder(net).encode(X, out=tmp_path / "mine.npy")
    assert np.array_equal(np.load(tmp_path / "mine.npy"), X)


def test_a_cache_reads_what_it_knows(tmp_path):
    net, X = network(), samples()
    first, second = Counting(net), Counting(net)
    z = Encoder(first, batch_size=8, cache=tmp_path).encode(X[:20])
    with open(next(tmp_path.glob("*/rows.bin")), "ab") as file:
        file.write(b"cut")  # a stop in the middle of a write
    both = Encoder(second, batch_size=8, cache=tmp_path).encode(X[::-1])
    assert second.sizes == [8, 8, 1] and np.array_equal(both[::-1][:20], z)  # the 17 new ones
    assert_allclose(both, Encoder(net).encode(X[::-1]), atol=1e-6)
    with torch.no_grad():
        net[0].layers[0].weight.add_(1.0)
    third = Counting(net)
    Encoder(third, cache=tmp_path).encode(X)
    assert third.sizes == [37]  # other weights


def test_a_quantiser_comes_last():
    class Signs:
        def encode(self, Z):
            return Z > 0

    net = network()
    assert np.array_equal(Encoder(net, quantizer=Signs()).encode(samples()), Encoder(net).encode(samples()) > 0)


def test_half_precision_is_rounded_and_comes_back_as_float32():
    net = network()
    z, half = Encoder(net, precision="no").encode(samples()), Encoder(net, precision="bf16").encode(samples())
    assert half.dtype == np.float32 and 0 < np.abs(z - half).max() < 0.05 * np.abs(z).max()


def test_the_bare_network_is_exported_and_read_back(tmp_path):
    X, y = samples(40), np.arange(40) % 4
    trainer = Trainer(MLP(5, 6, (8,)), NCALoss(normalize=True), max_epochs=1, prompts={"query": "q: "}).fit(X, y)
    trainer.export(tmp_path / "net.safetensors")
    card = json.loads((tmp_path / "net.json").read_text())
    assert (card["network"], card["embedding_size"], card["normalize"]) == ("MLP", 6, True)
    assert card["parameters"] == 5 * 8 + 8 + 8 * 6 + 6 and card["prompts"] == {"query": "q: "}
    encoder = Encoder.load(tmp_path / "net.safetensors", MLP(5, 6, (8,)))
    assert np.array_equal(encoder.encode(X), trainer.embed(X).numpy()) and encoder.prompts == {"query": "q: "}
    with pytest.raises(CheckpointError, match=r"another model: .*weight is \(8, 5\) in the file and \(7, 5\)"):
        Encoder.load(tmp_path / "net.safetensors", MLP(5, 6, (7,)))
    encoder.save(tmp_path / "again.safetensors")
    assert np.array_equal(Encoder.load(tmp_path / "again.safetensors", MLP(5, 6, (8,))).encode(X), encoder.encode(X))


def distributed_main(folder):
    from accelerate import Accelerator

    rank = Accelerator(cpu=True).process_index
    z = Encoder(Reader(), batch_size=3).encode(TEXTS[:11])
    torch.save({"z": torch.as_tensor(z)}, f"{folder}/rank{rank}.pt")


def test_two_processes_give_what_one_gives(tmp_path):
    alone = Encoder(Reader(), batch_size=3).encode(TEXTS[:11])
    for found in results_of_two("tests.deep.test_inference", tmp_path):
        assert_allclose(found["z"], alone, atol=1e-6)
