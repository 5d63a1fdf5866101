"""Regularisers E30: values by loops, gradients, edges, and what they add to a loss."""

import copy
import math

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    CenterInvariant,
    KoLeo,
    LpNorm,
    ProxyNCA,
    RegularFace,
    Regularized,
    SIGReg,
    SoftTriple,
    Spherical,
    SpreadOut,
    Triplet,
    Uniformity,
    ZeroMean,
)
from isometry.registry import all_methods
from tests.deep.batches import C, batch, close, cosines, euc, gradient, mean, same

ROWS = {m.name: m.example for m in all_methods(family="deep", kind="regularizer")}


def test_E30_toy_values():
    close(KoLeo()(C), 0.242596)
    close(Uniformity()(C), -2.066296)


def pairs(z):
    return [(i, j) for i in range(len(z)) for j in range(len(z)) if i != j]


LOOPS = {
    "LpNorm": lambda z: torch.stack([x.square().sum().sqrt() for x in z]).mean(),
    "ZeroMean": lambda z: torch.stack([x.sum().abs() for x in z]).mean(),
    "CenterInvariant": lambda z: (z.square().sum(1) - z.square().sum(1).mean()).square().mean() / 4,
    "RegularFace": lambda z: torch.stack([max(c[:i] + c[i + 1 :]) for i, c in enumerate(map(list, cosines(z)))]).mean(),
    "Spherical": lambda z: (z.norm(dim=1) - z.norm(dim=1).mean().detach()).square().mean(),
    "KoLeo": lambda z: (
        -torch.stack(
            [min(euc(z / z.norm(dim=1, keepdim=True), i, j) for j in range(12) if j != i).log() for i in range(12)]
        ).mean()
    ),
    "Uniformity": lambda z: torch.stack([(-2 * (2 - 2 * cosines(z)[i, j])).exp() for i, j in pairs(z)]).mean().log(),
    "SpreadOut": lambda z: (
        torch.stack([cosines(z)[i, j] for i, j in pairs(z)]).mean() ** 2
        + (torch.stack([cosines(z)[i, j] ** 2 for i, j in pairs(z)]).mean() - 0.25).relu()
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_E30_is_its_loop(name):
    z = batch(0)[0] + 0.3
    same(ROWS[name](), LOOPS[name], z)
    assert gradient(ROWS[name](), z).abs().sum() > 1e-6


def test_E30_sigreg_is_its_loop():
    z = batch(0)[0]
    a = torch.randn(4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    total, knots = 0.0, [3 * k / 16 for k in range(-16, 17)]
    for direction in a.T / a.norm(dim=0)[:, None]:
        x = z @ direction
        for k, t in enumerate(knots):
            phi = complex(mean((t * x).cos()), mean((t * x).sin()))
            end = 0.5 if k in (0, 32) else 1.0
            total += end * 3 / 16 * 12 * abs(phi - math.exp(-t * t / 2)) ** 2 * math.exp(-t * t / 2) / 8
    close(ROWS["SIGReg"]()(z), total, 1e-10)


def test_E30_sigreg_tells_a_normal_sample_from_others():
    draw = torch.Generator().manual_seed(0)
    small, large = (torch.randn(n, 8, generator=draw, dtype=torch.float64) for n in (50, 2000))
    loss = SIGReg(64, random_state=0)
    per_sample = [float(loss(z)) / len(z) for z in (small, large, 2 * small, 2 * large)]
    assert per_sample[1] < per_sample[0] / 10
    assert per_sample[3] > per_sample[2] / 2 > 10 * per_sample[1]


def drawn_anew(module):
    return lambda z: copy.deepcopy(module)(z)


@pytest.mark.parametrize("name", ROWS)
def test_E30_gradients_of_both_orders(name):
    f = drawn_anew(ROWS[name]().double())
    z = (batch(0, n=6)[0] + 0.3).requires_grad_()
    if name != "Spherical":  # its mean norm is held constant, so that its gradient is not the slope of its value
        assert torch.autograd.gradcheck(f, z)
        assert torch.autograd.gradgradcheck(f, z)


EDGES = {
    "one point": torch.full((6, 4), 0.1),
    "zero": torch.zeros(6, 4),
    "zero rows": batch(0, n=6)[0].float() * (torch.arange(6) % 2)[:, None],
    "duplicates": torch.eye(4).repeat(2, 1),
    "1e4": 1e4 * batch(0, n=6)[0].float(),
    "single": torch.ones(1, 4),
    "empty": torch.zeros(0, 4),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", ROWS)
def test_E30_edges_are_finite(name, edge, dtype):
    z = EDGES[edge].detach().clone().to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = ROWS[name]()(z)
    value.backward()
    assert value.dtype == torch.float32 and value.isfinite()
    if name == "CenterInvariant" and edge == "1e4" and dtype == torch.float16:
        full = z.detach().float().requires_grad_()
        ROWS[name]()(full).backward()  # its gradient grows as ‖z‖³, more than float16 can hold
        assert (z.grad.isfinite() | (full.grad.abs() > torch.finfo(dtype).max)).all()
    else:
        assert z.grad.isfinite().all()
    assert len(z) > 1 or value == 0


def test_E30_beside_a_loss():
    z, y = batch(0)
    assert_close(Regularized(Triplet(), LpNorm())(z, y), Triplet()(z, y) + 0.005 * LpNorm()(z), rtol=1e-12, atol=0)
    torch.manual_seed(0)
    for loss in (ProxyNCA(4, 4).double(), SoftTriple(4, 4, 2).double()):
        both = Regularized(loss, RegularFace(), 0.3, on="proxies")
        rows = loss.references.detach().reshape(-1, 4)
        assert_close(both(z, y), loss(z, y) + 0.3 * RegularFace()(rows), rtol=1e-12, atol=0)
        assert both.param_groups(1e-3) == loss.param_groups(1e-3)
    with pytest.raises(ValueError, match="Triplet has no proxies; take on='embeddings'"):
        Regularized(Triplet(), RegularFace(), on="proxies")


def test_E30_spherical_remembers_in_training_only():
    z = batch(0)[0]
    reg = Spherical(0.5).double()
    reg(z)
    assert_close(reg.mean, z.norm(dim=1).mean())
    reg.eval()(3 * z)
    assert_close(reg.mean, z.norm(dim=1).mean())
    reg.train()(3 * z)
    assert_close(reg.mean, 2 * z.norm(dim=1).mean())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LpNorm(0.5), "p=0.5 must be at least 1"),
        (lambda: Uniformity(0), "t=0 must be positive"),
        (lambda: Spherical(2), r"momentum=2 must lie in \[0, 1\]"),
        (lambda: SIGReg(0), "slices=0 must be at least 1"),
        (lambda: SIGReg(knots=1), "knots=1 must be at least 2"),
        (lambda: KoLeo()(torch.full((3, 2), torch.nan)), "z has NaN or infinite values in 3 of 3 rows"),
    ],
)
def test_E30_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["LpNorm", "ZeroMean", "CenterInvariant", "RegularFace"])
def test_E30_same_as_the_peer(name):
    theirs = pytest.importorskip("pytorch_metric_learning.regularizers", reason="the oracle is not installed")
    names = {"LpNorm": "LpRegularizer", "ZeroMean": "ZeroMeanRegularizer"}
    reg = getattr(theirs, names.get(name, f"{name}Regularizer"))()
    z = batch(0)[0]
    assert_close(ROWS[name]()(z), reg(z), rtol=1e-10, atol=1e-12)
    assert_close(gradient(ROWS[name](), z), gradient(reg, z), rtol=1e-9, atol=1e-11)


def test_every_regulariser_has_a_loop():
    assert set(ROWS) == {*LOOPS, "SIGReg"}
    assert {CenterInvariant, SpreadOut, ZeroMean} <= {type(make()) for make in ROWS.values()}
