"""Embeddings that are distributions (E43), and passes under dropout."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from isometry.deep import MLP, GaussianNet, ProbabilisticPairs, Trainer, embed, embed_mc
from isometry.deep.objectives.probabilistic import mean_sqdist
from tests.deep.batches import C, Y, batch, close

BARE = {"pseudo_weight": 0.0, "kl_weight": 0.0}


def test_E43_toy_value():
    logvar = torch.full_like(C, math.log(0.1))
    close(ProbabilisticPairs(**BARE).double().of_labels(C, logvar, Y), 1.827173)


def slow(loss, m1, v1, m2, v2, match, used):
    a, b = F.softplus(loss.raw_scale), loss.shift
    d = [[((p - q) ** 2).sum() + s.exp().sum() + t.exp().sum() for q, t in zip(m2, v2)] for p, s in zip(m1, v1)]
    rows, columns = range(len(m1)), range(len(m2))

    def bce(hit):
        terms = [
            F.softplus(b - a * d[i][j]) - hit(i, j) * (b - a * d[i][j]) for i in rows for j in columns if used[i][j]
        ]
        return torch.stack(terms).mean()

    def by_row(i, j):
        own = [d[i][k] for k in columns if match[i][k]]
        return bool(match[i][j]) or (bool(own) and bool(d[i][j] <= min(own)))

    def by_column(i, j):
        own = [d[k][j] for k in rows if match[k][j]]
        return bool(match[i][j]) or (bool(own) and bool(d[i][j] <= min(own)))

    value = bce(lambda i, j: bool(match[i][j])) + loss.pseudo_weight * (bce(by_row) + bce(by_column)) / 2
    m, v = torch.cat([m1, m2]), torch.cat([v1, v2])
    return value + loss.kl_weight * (0.5 * (m * m + v.exp() - 1 - v)).mean()


@pytest.mark.parametrize("columns", [False, True])
def test_E43_is_its_loop(columns):
    loss = ProbabilisticPairs(scale=0.7, shift=2.0, pseudo_weight=0.3, kl_weight=0.2).double()
    (m1, y), (m2, _) = batch(0, n=7), batch(1, n=7)
    v1, v2 = (0.3 * batch(k, n=7)[0] - 1 for k in (2, 3))
    if not columns:
        m2, v2 = m1, v1
    match = torch.eye(7).bool() if columns else (y[:, None] == y) & ~torch.eye(7).bool()
    used = torch.ones(7, 7).bool() if columns else ~torch.eye(7).bool()
    inputs = [t.clone().requires_grad_() for t in (m1, v1, m2, v2)]

    def ours(m1, v1, m2, v2):
        return loss.of_columns(m1, v1, m2, v2) if columns else loss.of_labels(m1, v1, y)

    if columns:
        value, expected = ours(*inputs), slow(loss, *inputs, match, used)
    else:
        value, expected = ours(*inputs), slow(loss, *inputs[:2], *inputs[:2], match, used)
    assert_close(value, expected, rtol=1e-10, atol=1e-12)
    wanted = [*inputs[: 4 if columns else 2], *loss.parameters()]
    for g, h in zip(torch.autograd.grad(value, wanted), torch.autograd.grad(expected, wanted)):
        assert_close(g, h, rtol=1e-9, atol=1e-11)
    free = [t.detach().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(ours, free)


def test_E43_distance_is_that_of_samples():
    """1e5 draws, within five standard errors."""
    torch.manual_seed(0)
    m, v = batch(0, n=4)[0], 0.5 * batch(1, n=4)[0]
    u, w = (m[k] + (v[k] / 2).exp() * torch.randn(100_000, 4).double() for k in range(2))
    d = (u - w).square().sum(1)
    assert abs(d.mean() - mean_sqdist(m, v, m, v)[0, 1]) < 5 * d.std() / math.sqrt(100_000)


def test_E43_without_variance_it_is_the_squared_distance():
    loss = ProbabilisticPairs(**BARE).double()
    x = 5 - 5 * torch.cdist(C, C).square()
    off = ~torch.eye(4).bool()
    expected = F.binary_cross_entropy_with_logits(x[off], (Y[:, None] == Y).double()[off])
    assert_close(loss.of_labels(C, torch.full_like(C, -40.0), Y), expected, rtol=0, atol=1e-4)


def test_E43_trains():
    torch.manual_seed(0)
    x, y = batch(0, n=60, p=8)
    model = GaussianNet(MLP(8, 16), 16, 4)
    trainer = Trainer(model, ProbabilisticPairs())
    trainer.fit(x.float(), y)
    z = torch.as_tensor(trainer.embed(x.float()))
    assert_close(z.norm(dim=1), torch.ones(60), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        mean, logvar = model.posterior(x.float())
    assert_close(mean, z, rtol=1e-5, atol=1e-6)
    assert logvar.std(0).max() > 0  # it has learned something of its own for each sample


def test_E43_a_sample_among_others_than_its_own_becomes_less_sure():
    """Two samples of each of two classes where they belong, and one of the first class amid the second."""
    mean = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]]).double()
    logvar = torch.full_like(mean, -2.0).requires_grad_()
    ProbabilisticPairs(**BARE).double().of_labels(mean, logvar, torch.tensor([0, 0, 1, 1, 0])).backward()
    slope = logvar.grad.sum(1)
    # the stray one also meets its own class far away, which asks for less variance: the others at its place move most
    plain = torch.full_like(mean, -2.0).requires_grad_()
    ProbabilisticPairs(**BARE).double().of_labels(mean, plain, torch.tensor([0, 0, 1, 1, 1])).backward()
    assert (slope[2:4] < plain.grad.sum(1)[2:4]).all()


EDGES = {
    "aligned": lambda m, y: (torch.eye(4).double()[y], y),
    "duplicates": lambda m, y: (m[:4][torch.arange(12) // 3], y),
    "zero rows": lambda m, y: (m * (torch.arange(12) % 5 > 0)[:, None], y),
    "zero": lambda m, y: (0 * m, y),
    "one class": lambda m, y: (m, 0 * y),
    "all singletons": lambda m, y: (m, torch.arange(12)),
    "norms of 1e4": lambda m, y: (1e4 * F.normalize(m), y),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("size", [-1e3, -20.0, 0.0, 5.0, 1e3])
def test_E43_edges_are_finite(edge, size, dtype):
    """Also with embeddings of half precision, which count as the numbers that they are."""
    loss = ProbabilisticPairs()
    mean, y = EDGES[edge](*batch(0))
    inputs = [t.to(dtype, copy=True).requires_grad_() for t in (mean, torch.full_like(mean, size))]
    for way in (lambda m, v: loss.of_labels(m, v, y), lambda m, v: loss.of_columns(m, v, m.roll(1, 0), v)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            value = way(*inputs)
        value.backward()
        assert value.dtype == torch.float32 and value.isfinite()
        assert all(t.grad.isfinite().all() for t in inputs) and all(p.grad.isfinite().all() for p in loss.parameters())


def test_E43_the_scale_stays_positive():
    loss = ProbabilisticPairs()
    close(loss.scale, 5.0, 1e-5)
    loss.raw_scale.data -= 30
    assert loss.scale > 0
    with pytest.raises(ValueError, match="scale=0 must be positive"):
        ProbabilisticPairs(scale=0)
    with pytest.raises(TypeError, match=r"posterior\(x\), and Linear has none"):
        loss(nn.Linear(2, 2), (torch.ones(3, 2), torch.arange(3)))
    with pytest.raises(ValueError, match="batches of two columns of samples, got Tensor"):
        ProbabilisticPairs(columns=True)(GaussianNet(nn.Identity(), 4, 2), torch.ones(3, 4))


def test_variance_under_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2, bias=False)).eval()
    x = torch.cat([batch(0)[0].float(), torch.zeros(1, 4)])
    mean, variance = embed_mc(model, x, n=4000)
    expected = x.square() @ model[1].weight.detach().square().T  # inverted dropout of ½: each product has variance w²x²
    assert_close(variance, expected, rtol=0.15, atol=1e-6)
    assert (variance[-1] == 0).all() and not model.training and not model[0].training
    assert_close(mean, embed(model, x), rtol=0, atol=float(5 * (expected.max() / 4000).sqrt()))
    with pytest.raises(ValueError, match="MLP has no dropout: all 16 passes would be the same"):
        embed_mc(MLP(4, 2), x)
