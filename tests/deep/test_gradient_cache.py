"""56.6: a batch in chunks has the loss and the gradient of the batch as a whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    MLP,
    BatchHard,
    CrossBatchMemory,
    DeepMetric,
    GradientCache,
    LossObjective,
    NCALoss,
    ProxyNCA,
    Trainer,
    Triplet,
)

torch.set_num_threads(1)

LOSSES = {
    "triplet": lambda: Triplet(miner=BatchHard()),
    "nca": NCALoss,
    "proxies": lambda: ProxyNCA(4, 3),
    "memory": lambda: CrossBatchMemory(NCALoss(), 3, 16),
}


def batch(n=22, seed=0):
    x = torch.randn(n, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x, torch.arange(n) % 4


def network(dropout=0.0, seed=0):
    torch.manual_seed(seed)
    return MLP(5, 3, hidden=(16, 8), dropout=dropout).double().train()


def value_and_gradients(objective, net, data):
    parameters = [*net.parameters(), *(p for p in objective.parameters() if p.requires_grad)]
    for p in parameters:
        p.grad = None
    value = objective(net, data)
    value.backward()
    return value.detach(), [p.grad for p in parameters]


@pytest.mark.parametrize("size", [1, 5, 11, 22, 100])
@pytest.mark.parametrize("name", LOSSES)
def test_equals_the_monolithic_gradient(name, size):
    """56.6: any loss, chunks of any size; also those that do not divide the batch."""
    net = network()
    torch.manual_seed(1)
    loss = LOSSES[name]()
    state = {k: v.clone() for k, v in loss.state_dict().items()}
    expected, gradients = value_and_gradients(LossObjective(loss), net, batch())
    loss.load_state_dict(state)  # a memory has taken the batch in
    value, found = value_and_gradients(GradientCache(loss, size), net, batch())
    assert_close(value, expected, rtol=1e-12, atol=1e-12)
    assert len(found) == len(gradients) and all(g.abs().max() > 0 for g in gradients)
    for a, b in zip(found, gradients):
        assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_dropout_is_replayed():
    """56.6: the second pass drops the units that the first has dropped, and the generator goes on as after one pass."""
    net, data, size = network(dropout=0.5), batch(), 6
    torch.manual_seed(7)
    z = torch.cat([net(chunk) for chunk in data[0].split(size)])  # the chunks of the first pass, with a graph
    expected = NCALoss()(z, data[1])
    after = torch.get_rng_state()
    gradients = torch.autograd.grad(expected, list(net.parameters()))
    torch.manual_seed(7)
    value, found = value_and_gradients(GradientCache(NCALoss(), size), net, data)
    assert_close(value, expected.detach(), rtol=1e-12, atol=1e-12)
    for a, b in zip(found, gradients):
        assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert torch.equal(torch.get_rng_state(), after)


class Counting(nn.Module):
    """Remembers how many samples each pass had, and how many activations were alive for backward."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = nn.Linear(5, 3).double(), []

    def forward(self, x):
        self.calls.append(len(x))
        return self.layer(x).tanh()


def test_two_passes_in_chunks():
    net, objective = Counting(), GradientCache(NCALoss(), 8)
    value = objective(net, batch())
    assert net.calls == [8, 8, 6]
    value.backward()
    assert sorted(net.calls[3:]) == [6, 8, 8] and objective.active == 1.0


def test_activations_of_one_chunk_at_a_time():
    """What autograd keeps between forward and backward does not grow with the network."""
    kept = {}
    for name, objective in (("whole", LossObjective(NCALoss())), ("chunks", GradientCache(NCALoss(), 4))):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):  # noqa: B023
            objective(network(), batch(64))
        kept[name] = sum(sizes)
    wide = 64 * (16 + 8) * 2  # activations of the two hidden layers, before and after
    assert kept["whole"] - kept["chunks"] > wide / 2, kept


def test_in_the_trainer():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 5
    X = rng.standard_normal((5, 5))[y] + rng.standard_normal((60, 5))

    def fit(objective):
        torch.manual_seed(0)
        settings = {"max_epochs": 3, "classes_per_batch": 5, "samples_per_class": 4, "lr": 0.01}
        return Trainer(MLP(5, 3), objective, **settings).fit(X, y, validation=(X, y))

    torch.manual_seed(2)
    whole, chunks = ProxyNCA(5, 3), ProxyNCA(5, 3)
    chunks.load_state_dict(whole.state_dict())
    a, b = fit(whole), fit(GradientCache(chunks, 7))
    assert np.allclose(a.history["loss"], b.history["loss"], rtol=1e-5)
    assert a.history["active"] == b.history["active"]
    for p, q in zip((*a.model.parameters(), whole.proxies), (*b.model.parameters(), chunks.proxies), strict=True):
        assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_in_the_estimator():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((3, 5))[y] + rng.standard_normal((60, 5))
    settings = {"n_components": 3, "max_epochs": 2, "min_steps": 10, "random_state": 0}
    whole, chunks = (DeepMetric(chunk_size=size, **settings).fit(X, y) for size in (None, 10))
    assert np.allclose(whole.transform(X), chunks.transform(X), atol=1e-4)


def test_bad_size():
    with pytest.raises(ValueError, match="chunk_size"):
        GradientCache(NCALoss(), 0)
