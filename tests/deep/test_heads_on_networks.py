"""Heads, low-rank updates and pooling (E45); the Poincaré ball (E42)."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from isometry.deep import (
    MLP,
    GatedHead,
    GeM,
    InfoNCE,
    LowRankHead,
    Poincare,
    ToPoincare,
    Triplet,
    add_lora,
    lora_state,
    merge_lora,
)
from isometry.deep.functional import DISTANCES, paired
from tests.deep.batches import A, batch, close, gradient

# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [LowRankHead(4, 2), LowRankHead(4), GatedHead(4), GatedHead(4, MLP(4, 4))])
def test_E45_heads_start_as_the_identity(head):
    z = batch(0)[0].float()
    assert torch.equal(head(z), z)
    torch.manual_seed(0)
    for p in head.parameters():
        p.data += 0.1 * torch.randn_like(p)
    assert not torch.equal(head(z), z)


def test_E45_heads_are_their_formulas():
    torch.manual_seed(0)
    z = batch(0)[0]
    low = LowRankHead(4, 2, alpha=3.0).double()
    low.update.B.data.normal_()
    M = torch.eye(4).double() + 1.5 * low.update.B @ low.update.A
    assert_close(low(z), z @ M.T)
    gated = GatedHead(4).double()
    gated.gate.data.normal_()
    assert_close(gated(z), z + torch.tanh(gated.gate) * (z @ gated.net.weight.T + gated.net.bias))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return self.v(x) * self.q(x).sigmoid() + self.k(x)


def trained():
    torch.manual_seed(0)
    model = nn.Sequential(Attention(), nn.Linear(4, 3)).double()
    before = copy.deepcopy(model.state_dict())
    add_lora(model, rank=2)
    x, y = batch(0)
    start = model(x).detach()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.5)
    for _ in range(20):
        optimizer.zero_grad()
        Triplet()(model(x), y).backward()
        optimizer.step()
    return model, before, start, x


def test_E45_lora_starts_as_the_network_and_leaves_its_weights():
    model, before, start, x = trained()
    plain = nn.Sequential(Attention(), nn.Linear(4, 3)).double()
    plain.load_state_dict(before)
    assert torch.equal(start, plain(x))
    assert (model(x) - start).abs().max() > 1e-3
    after = {k.replace(".base", ""): v for k, v in model.state_dict().items() if ".update." not in k}
    assert all(torch.equal(after[k], before[k]) for k in before)
    assert sum(p.requires_grad for p in model.parameters()) == 4


def test_E45_merged_is_the_same_function():
    model, _, _, x = trained()
    expected, state = model(x).detach(), lora_state(model)
    assert sorted(state) == ["0.q.update.A", "0.q.update.B", "0.v.update.A", "0.v.update.B"]
    fresh = nn.Sequential(Attention(), nn.Linear(4, 3)).double()
    merged = merge_lora(copy.deepcopy(model))
    assert_close(merged(x), expected, rtol=1e-6, atol=1e-8)
    assert isinstance(merged[0].q, nn.Linear) and not lora_state(merged)
    fresh.load_state_dict(merged.state_dict())  # the shapes of a network without updates
    assert_close(fresh(x), expected, rtol=1e-6, atol=1e-8)


def test_E45_a_name_that_no_layer_has():
    with pytest.raises(ValueError, match=r"no linear layer is called query; there are: 0\.q, 0\.k, 0\.v, 1"):
        add_lora(nn.Sequential(Attention(), nn.Linear(4, 3)), names=("query",))
    with pytest.raises(ValueError, match="rank=0 must be at least 1"):
        LowRankHead(4, 0)


def test_E45_generalised_mean():
    x = batch(0, n=12, p=6)[0].abs().reshape(2, 6, 6) + 0.1
    assert_close(GeM(1.0).double()(x), x.mean(2))
    assert_close(GeM(500.0).double()(x), x.amax(2), rtol=1e-2, atol=0)
    assert_close(GeM(3.0).double()(x.view(2, 6, 2, 3)), (x**3).mean(2) ** (1 / 3))
    gem = GeM().double()
    assert torch.autograd.gradcheck(
        lambda v, p: torch.func.functional_call(gem, {"p": p}, v), (x.requires_grad_(), gem.p)
    )
    assert GeM()(torch.zeros(1, 2, 3).half().requires_grad_()).isfinite().all()
    with pytest.raises(ValueError, match=r"GeM pools over positions: \(B, c, …\), got shape \(2, 3\)"):
        GeM()(torch.ones(2, 3))


# -- the Poincaré ball -------------------------------------------------------------------------------------------------


def moebius(x, y, c):
    """(2/√c) artanh(√c ‖(−x) ⊕ y‖) with the Möbius addition, for single points."""
    x = -x
    xy, x2, y2 = x @ y, x @ x, y @ y
    total = ((1 + 2 * c * xy + c * y2) * x + (1 - c * x2) * y) / (1 + 2 * c * xy + c * c * x2 * y2)
    return 2 / math.sqrt(c) * torch.atanh(math.sqrt(c) * total.norm())


@pytest.mark.parametrize("c", [0.1, 1.0])
def test_E42_distance_is_the_moebius_form(c):
    v, w = 0.5 * batch(0)[0], 0.5 * batch(1, n=5)[0]
    ball, d = ToPoincare(c), Poincare(c)
    x, y = ball(v), ball(w)
    expected = torch.stack([torch.stack([moebius(a, b, c) for b in y]) for a in x])
    assert_close(d(v, w), expected, rtol=1e-12, atol=1e-13)
    assert_close(d.paired(v[:5], w), expected[:5].diagonal(), rtol=1e-12, atol=1e-13)
    assert_close(paired(d, v[:5], w), d.paired(v[:5], w))
    if c == 0.1:
        assert_close(DISTANCES["poincare"](v, w), d(v, w))
        assert_close(paired("poincare", v[:5], w), d.paired(v[:5], w))


def test_E42_known_values():
    """Of a point x = A/10 to the origin it is (2/√c) artanh(√c‖x‖); v is what the map takes there."""
    x = A / 10
    v = torch.atanh(x.norm(dim=1, keepdim=True)) * x / x.norm(dim=1, keepdim=True).clamp_min(1e-30)
    assert_close(ToPoincare(1.0)(v), x)
    close(Poincare(1.0)(v, v)[0, 3], 0.619039)
    far = torch.tensor([[0.0], [7.0]]).double()  # opposite ways from the centre add up
    close(Poincare(1.0, r=10)(far, -far)[1, 1], 28.0, 1e-9)


def test_E42_little_curvature_is_twice_the_euclidean_distance():
    v = batch(0)[0]
    assert_close(Poincare(1e-10, r=100)(v, v), 2 * torch.cdist(v, v), rtol=1e-6, atol=1e-6)
    Q = torch.linalg.qr(batch(1, n=4)[0]).Q
    assert_close(Poincare()(v @ Q, v @ Q), Poincare()(v, v), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("riemannian", [False, True])
def test_E42_gradients(riemannian):
    v, y = 0.7 * batch(0)[0], batch(0)[1]
    loss = InfoNCE(0.2, distance=Poincare(0.5, riemannian=riemannian), normalize=False)
    if not riemannian:
        assert torch.autograd.gradcheck(lambda u: loss(u, y), v.requires_grad_(), eps=1e-7, atol=1e-5)
        return
    ball = ToPoincare(0.5, riemannian=True)
    x = ball(v)
    plain, scaled = (gradient(lambda u, b=b: b(u).square().sum() / 2, v) for b in (ToPoincare(0.5), ball))
    assert_close(scaled, plain * ((1 - 0.5 * x.square().sum(1, keepdim=True)) / 2) ** 2, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_E42_edges_are_finite(dtype):
    loss = InfoNCE(0.2, distance=Poincare(), normalize=False)
    z, y = batch(0)
    for edge in (z, 0 * z, 1e4 * z, z[:1].expand_as(z)):
        u = edge.to(dtype).requires_grad_()
        loss(u, y).backward()
        assert u.grad.isfinite().all()


def test_E42_bad_values():
    with pytest.raises(ValueError, match="c=0 must be positive"):
        Poincare(0)
    with pytest.raises(ValueError, match="√c r = 20 is beyond 15"):
        ToPoincare(4.0, r=10.0)
