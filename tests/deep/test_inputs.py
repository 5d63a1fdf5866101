"""What a trainer and a loss may be given: samples and labels of any number type, data sets, foreign losses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset, TensorDataset

from isometry.deep import (
    MLP,
    ArcFace,
    ClassGaussians,
    CrossBatchMemory,
    DeepMetric,
    LossObjective,
    ProxyNCA,
    Trainer,
    Triplet,
)
from isometry.registry import all_methods
from tests.deep.batches import batch

torch.set_num_threads(1)
QUICK = {"max_epochs": 1, "batches_per_epoch": 2, "classes_per_batch": 4, "samples_per_class": 3}
LOSSES = {m.key: m.example for m in all_methods(family="deep") if m.kind in ("loss", "head")}
WHOLE = ("uint8", "int8", "uint16", "int16", "uint32", "int32")


def counts(n=60, d=5, n_classes=5):
    """Whole numbers that every type holds."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % n_classes
    return np.clip(60 + 20 * rng.normal(size=(n_classes, d))[y] + 5 * rng.normal(size=(n, d)), 0, 120).round(), y


def network():
    torch.manual_seed(0)
    return MLP(5, 3, hidden=(8,))


def losses_of(samples, labels=None, loss=None, net=None, **params):
    trainer = Trainer(network() if net is None else net, Triplet() if loss is None else loss, **QUICK | params)
    return trainer.fit(samples, labels).history["loss"]


# -- samples -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*WHOLE, "int64", "float16", "float64"])
def test_samples_of_any_number_type_are_the_numbers_they_are(dtype):
    X, y = counts()
    expected = losses_of(X, y)
    assert losses_of(X.astype(dtype), y) == expected
    assert losses_of(torch.as_tensor(X.astype(dtype)), y) == expected
    trainer = Trainer(network(), Triplet(), **QUICK).fit(X, y, validation=(X.astype(dtype), y))
    assert_close(trainer.embed(X.astype(dtype)), trainer.embed(X), rtol=0, atol=0)


def test_a_network_that_looks_numbers_up_keeps_them():
    words = np.random.default_rng(0).integers(0, 9, size=(60, 4))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 3))
    assert np.isfinite(losses_of(words, np.arange(60) % 5, net=net)).all()


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        (lambda X: X.astype("complex64"), "real numbers, got torch.complex64"),
        (lambda X: X.astype("U8"), "array of numbers"),
        (lambda X: [[1.0, 2.0], [3.0]] * 30, "array of numbers"),
    ],
)
def test_samples_that_are_no_numbers_are_named(samples, words):
    X, y = counts()
    with pytest.raises(ValueError, match=words):
        losses_of(samples(X), y)


class Bare(Dataset):
    """Samples without labels."""

    def __init__(self, X):
        self.X = torch.as_tensor(X, dtype=torch.float32)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, row):
        return self.X[row]


def test_a_data_set_of_samples_alone_takes_the_labels_beside_it():
    X, y = counts()
    names = np.array(["ant", "bee", "cow", "dog", "eel"])[y]
    expected = losses_of(X, y)
    assert losses_of(Bare(X), names) == expected
    assert losses_of(TensorDataset(Bare(X).X), names) == expected
    assert losses_of(TensorDataset(Bare(X).X, torch.as_tensor(y)), names) == expected  # has its own
    trainer = Trainer(network(), Triplet(), **QUICK)
    trainer.fit(Bare(X), y, validation=0.4)
    assert np.isfinite(trainer.history["map@r"]).all()


def test_samples_without_labels_are_told_what_a_loss_needs():
    X, _ = counts()
    for samples in (X, Bare(X), TensorDataset(Bare(X).X)):
        with pytest.raises(ValueError, match=r"needs batches \(samples, labels\).*give labels to fit"):
            losses_of(samples)


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("key", LOSSES)
def test_labels_of_any_whole_type_mean_the_same(key, dtype):
    torch.manual_seed(0)
    loss, (z, y) = LOSSES[key]().double().eval(), batch(7)
    torch.manual_seed(1)
    expected = loss(z, y)
    torch.manual_seed(1)
    assert_close(loss(z, y.to(getattr(torch, dtype))), expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [*WHOLE, "bool"])
def test_two_classes_of_any_type_train(dtype):
    X, y = counts(n_classes=2)
    labels = torch.as_tensor(y).to(getattr(torch, dtype))
    for loss in (Triplet, lambda: ProxyNCA(2, 3), lambda: CrossBatchMemory(None, 3)):
        torch.manual_seed(2)
        expected = losses_of(DataLoader(TensorDataset(Bare(X).X, torch.as_tensor(y)), 20), loss=loss())
        torch.manual_seed(2)
        assert losses_of(DataLoader(TensorDataset(Bare(X).X, labels), 20), loss=loss()) == expected


def test_class_gaussians_take_labels_of_any_type():
    z, y = batch(7)
    made = [ClassGaussians(4, 4) for _ in range(3)]
    for gaussians, labels in zip(made, (y, y.int(), y.to(torch.uint8))):
        gaussians.update(z, labels)
    assert torch.equal(made[0].mean, made[1].mean) and torch.equal(made[0].mean, made[2].mean)


def test_labels_that_are_no_numbers_are_named():
    z, y = batch(7)
    for loss in (Triplet(), ProxyNCA(4, 4), CrossBatchMemory(None, 4)):
        with pytest.raises(ValueError, match=r"labels must be numbers.*return_inverse"):
            loss(z, np.array(list("abcd"))[y])
    with pytest.raises(ValueError, match=r"whole numbers; got torch\.float32"):
        CrossBatchMemory(None, 4)(z, y.float())


# -- losses of others --------------------------------------------------------------------------------------------------


class Spread(nn.Module):
    def forward(self, embeddings, labels):
        return (embeddings - embeddings[labels.argsort()]).square().mean()


class Shrink(nn.Module):
    def forward(self, model, batch):
        return model(batch[0]).square().mean()


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss, Spread(), Spread, Shrink()])
def test_modules_of_others_train_an_estimator(loss):
    X, y = counts()
    found = DeepMetric(loss=loss, n_components=5, max_epochs=1, min_steps=3, random_state=0).fit(X, y)
    assert np.isfinite(found.history_["loss"]).all() and found.transform(X).shape == (60, 5)


def test_a_foreign_loss_is_the_one_in_a_loss_objective():
    X, y = counts()
    assert losses_of(X, y, Spread()) == losses_of(X, y, LossObjective(Spread()))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (nn.TripletMarginLoss(), r"TripletMarginLoss takes \(anchor, positive, negative\); expected is a loss"),
        (nn.Identity(), r"Identity takes \(input\)"),
        (nn.CrossEntropyLoss(reduction="none"), r"one number to minimise, it gave a tensor of shape \(60,\)"),
        (lambda: lambda model, batch: 3, "one number to minimise, it gave 3"),
    ],
)
def test_modules_that_are_no_losses_are_named(loss, words):
    X, y = counts()
    with pytest.raises(ValueError, match=words):
        DeepMetric(loss=loss, n_components=5, max_epochs=1, min_steps=3).fit(X, y)


# -- batches and settings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"classes_per_batch": 1}, "never holds two classes.*classes_per_batch to 2"),
        ({"classes_per_batch": 5, "samples_per_class": 1}, "never holds two samples of a class.*samples_per_class"),
        ({"classes_per_batch": 999_999, "samples_per_class": 999_999}, "but there are only 60: lower"),
        ({"classes_per_batch": 0}, "classes_per_batch=0 must be at least 1"),
        ({"samples_per_class": 2.5}, "samples_per_class=2.5 must be a whole number"),
        ({"lr": -1}, "lr=-1 must not be negative"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"lr": float("inf")}, "lr=inf must not be negative or infinite"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"warmup": 2}, "warmup"),
        ({"clip_norm": 0}, "clip_norm"),
        ({"accumulate": 0}, "accumulate"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"patience": 0}, "patience"),
        ({"max_bad_steps": 0}, "max_bad_steps"),
        ({"workers": -1}, "workers"),
        ({"batches_per_epoch": 0}, "batches_per_epoch"),
    ],
)
def test_settings_that_cannot_train_are_refused(params, words):
    X, y = counts()
    with pytest.raises(ValueError, match=words):
        losses_of(X, y, **params)


def test_one_sample_of_a_class_is_enough_for_proxies_and_memories():
    X, y = counts()
    torch.manual_seed(0)
    assert losses_of(X, y, ProxyNCA(5, 3), classes_per_batch=5, samples_per_class=1)
    assert losses_of(X, y, ProxyNCA(5, 3), classes_per_batch=1)
    memory = CrossBatchMemory(Triplet(), 3, warmup_steps=0)
    found = losses_of(X, y, memory, classes_per_batch=5, samples_per_class=1, batches_per_epoch=4)
    assert found[0] > 0


def test_labels_of_another_shape_or_kind_are_named():
    """A column of labels once made a wrong loss by broadcasting."""
    z, y = batch(7)
    for key in ("D08", "D10", "D13"):
        with pytest.raises(ValueError, match=r"one for each sample, \(B,\), got shape \(12, 1\)"):
            LOSSES[key]().double()(z, y[:, None])
    for key in ("D08", "D13", "D18", "D22"):
        with pytest.raises(ValueError, match=r"whole numbers, or similarities.*complex64"):
            LOSSES[key]().double()(z, y.to(torch.complex64))


@pytest.mark.parametrize("loss", [Triplet(), ArcFace(3, 4)], ids=lambda loss: type(loss).__name__)
def test_embeddings_that_are_no_tensor_are_named(loss):
    z, y = torch.randn(6, 4), torch.arange(6) % 3
    with pytest.raises(
        TypeError, match=r"z must be a tensor of embeddings \(n, p\), got ndarray: torch.as_tensor makes"
    ):
        loss(z.numpy(), y)


def test_tuples_of_another_library_are_no_references():
    z, y = torch.randn(6, 4), torch.arange(6) % 3
    with pytest.raises(TypeError, match=r"refs must be a tensor of embeddings .*, got tuple: .* a loss takes a miner"):
        Triplet()(z, y, (torch.tensor([0]), torch.tensor([3]), torch.tensor([1])))
