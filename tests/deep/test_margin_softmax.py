"""Proof tests of margin softmax losses, each beside its equation written with loops."""

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import ArcFace, CosFace, NormalizedSoftmax, ProxyNCAPlusPlus
from isometry.deep.functional import inside, turned
from isometry.registry import all_methods
from tests.deep.batches import C, Y, batch, circle, gradient

PROXIES = circle(30, 135)  # of the toy batch, one for each class
FAMILY = {m.key: m.example for m in all_methods(kind="loss") if ".margin_softmax:" in m.target}


def toy(loss):
    """The value on the four points of the circle."""
    loss = loss.double().eval()
    loss.proxies.data = PROXIES.clone().reshape(loss.proxies.shape)
    return float(loss(C, Y).detach())


def seeded(make, **options):
    torch.manual_seed(0)
    return make(**options).double()


def slow(loss, z, y, target, scale=None):
    """−mean log softmax of s cos θ, by loops, for the function ``target`` of the own cosine."""
    s, total = loss.scale if scale is None else scale, 0.0
    for i in range(len(z)):
        cos = [(z[i] @ w) / (z[i].norm() * w.norm()) for w in loss.proxies]
        logits = torch.stack([s * (target(c) if l == y[i] else c) for l, c in enumerate(cos)])
        total = total - (logits[y[i]] - logits.logsumexp(0))
    return total / len(z)


def same_as_slow(loss, target, seed=0, rtol=1e-10):
    """Value and gradients, in embeddings and proxies."""
    z, y = batch(seed)
    found, expected = [], []
    for value, out in ((loss, found), (lambda u, y: slow(loss, u, y, target), expected)):
        loss.zero_grad()
        u = z.clone().requires_grad_()
        result = value(u, y)
        result.backward()
        out += [result.detach(), u.grad, loss.proxies.grad.clone()]
    assert_close(found, expected, rtol=rtol, atol=1e-10)


def arc(m):
    """cos(θ + m) by way of the angle."""
    return lambda c: torch.cos(c.acos() + m) if c.acos() <= math.pi - m else c - m * math.sin(m)


# -- E01 ---------------------------------------------------------------------------------------------------------------


def test_E01_toy_values():
    assert toy(NormalizedSoftmax(2, 2, temperature=1.0)) == pytest.approx(0.351704, abs=1e-6)
    assert toy(CosFace(2, 2, scale=1.0)) == pytest.approx(0.463971, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 1])
def test_E01_equals_the_loop(seed):
    same_as_slow(seeded(FAMILY["E01"], scale=10.0), lambda c: c - 0.35, seed)
    same_as_slow(seeded(FAMILY["E01n"]), lambda c: c, seed)


def test_E01_without_margin_is_the_normalised_softmax_and_proxy_nca_plus_plus():
    z, y = batch(0)
    others = NormalizedSoftmax(4, 4, temperature=1 / 64), ProxyNCAPlusPlus(4, 4, temperature=2 / 64)
    loss = seeded(FAMILY["E01"], margin=0.0)
    for other in others:
        other.load_state_dict(loss.state_dict())
        assert_close(other.double()(z, y), loss(z, y), rtol=1e-12, atol=0)


def test_E01_grows_with_the_margin_and_scales_with_the_number_of_classes():
    z, y = batch(0)
    values = [float(seeded(FAMILY["E01"], margin=m, scale=5.0)(z, y).detach()) for m in (0.0, 0.2, 0.4, 1.0)]
    assert all(low < high for low, high in pairwise(values))
    assert CosFace(1001, 2, scale="auto").scale == pytest.approx(math.sqrt(2) * math.log(1000))
    assert CosFace(10, 2, scale="auto").scale == CosFace(1, 2, scale="auto").scale == 8


@pytest.mark.parametrize("key", FAMILY)
def test_similarities_to_the_classes_stand_for_labels(key):
    """One-hot rows are labels; a row of two classes is the sum of both terms, each with the margin in both columns."""
    loss, (z, y) = seeded(FAMILY[key]).eval(), batch(0)
    one_hot = torch.eye(4)[y]
    assert_close(loss(z, one_hot), loss(z, y), rtol=1e-12, atol=0)
    assert_close(gradient(loss, z, one_hot), gradient(loss, z, y), rtol=1e-10, atol=1e-12)
    assert_close(loss(z, one_hot.bool()), loss(z, y), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"similarities to the classes must lie in \[0, 1\], got 0.0 … 2.0"):
        loss(z, 2 * one_hot)
    with pytest.raises(ValueError, match=r"similarity matrix must be \(B, R\) = \(12, 4\), got \(12, 3\)"):
        loss(z, one_hot[:, :3])
    with pytest.raises(ValueError, match="refs have 4 dimensions and z has 3"):
        loss(z[:, :3], y)


def test_two_classes_of_one_sample():
    loss, (z, _) = seeded(FAMILY["E01"], scale=4.0), batch(0, n=5)
    y = torch.tensor([[1.0, 0.7, 0.3, 0.0]]).expand(5, 4).double()
    logits = 4 * (loss.cosines(z) - 0.35 * (y > 0.5).double())
    assert_close(loss(z, y), -(y * logits.log_softmax(1)).sum(1).mean(), rtol=1e-12, atol=0)


def test_weights_of_classes_and_smoothing_are_those_of_cross_entropy():
    weight, (z, y) = torch.tensor([1.0, 2.0, 3.0, 4.0]).double(), batch(0)
    loss = seeded(FAMILY["E01"], class_weight=weight, label_smoothing=0.2, margin=0.0)
    expected = torch.nn.functional.cross_entropy(loss.logits(z), y, weight, label_smoothing=0.2)
    assert_close(loss(z, y), expected, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"class_weight must have one number for each of 4 classes, got \(3,\)"):
        CosFace(4, 2, class_weight=torch.ones(3))


# -- E02 ---------------------------------------------------------------------------------------------------------------


def test_E02_toy_values():
    assert toy(ArcFace(2, 2, scale=1.0)) == pytest.approx(0.477984, abs=1e-6)
    assert toy(ArcFace(2, 2)) == pytest.approx(3.495368, abs=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("margin", [0.1, 0.5, 1.5])
def test_E02_equals_the_loop(seed, margin):
    loss = seeded(FAMILY["E02"], margin=margin, scale=10.0)
    same_as_slow(loss, arc(margin), seed, rtol=1e-9)


def test_E02_combined_margin_equals_the_loop():
    def target(c):
        angle = 1.5 * c.acos() + 0.3
        drop = 1 + math.cos((math.pi - 0.3) / 1.5)
        return (torch.cos(angle) if angle <= math.pi else c - drop) - 0.2

    loss = seeded(FAMILY["E02"], multiplier=1.5, margin=0.3, cosine_margin=0.2, scale=10.0)
    for seed in range(3):
        same_as_slow(loss, target, seed, rtol=1e-9)


def test_E02_without_margin_is_the_normalised_softmax():
    z, y = batch(0)
    loss, plain = seeded(FAMILY["E02"], margin=0.0), NormalizedSoftmax(4, 4, 1 / 64)
    plain.load_state_dict(loss.state_dict())
    assert_close(loss(z, y), plain.double()(z, y), rtol=1e-12, atol=0)
    cosine = seeded(FAMILY["E02"], margin=0.0, cosine_margin=0.35)
    assert_close(cosine(z, y), seeded(FAMILY["E01"])(z, y), rtol=1e-12, atol=0)


def test_E02_straight_gradient_has_slope_s_in_the_own_cosine():
    """The value is that of the margin; the gradient that of a margin which is a constant."""
    z, y = batch(0)
    true, straight = (seeded(FAMILY["E02"], scale=8.0, gradient=g) for g in ("true", "straight"))
    assert_close(straight(z, y), true(z, y), rtol=1e-12, atol=0)
    drop = (turned(true.cosines(z), 0.5) - true.cosines(z)).detach() * torch.eye(4)[y]
    constant = gradient(lambda u: torch.nn.functional.cross_entropy(8 * (true.cosines(u) + drop), y), z)
    assert_close(gradient(straight, z, y), constant, rtol=1e-10, atol=1e-12)
    assert (gradient(true, z, y) - constant).abs().max() > 1e-2


@pytest.mark.parametrize("margin", [0.1, 0.5, 1.5])
def test_E02_target_falls_with_the_angle(margin):
    angles = torch.linspace(0, math.pi, 10_001, dtype=torch.float64)
    values = turned(angles.cos(), margin)
    assert (values.diff() < 0).all()
    before, after = (
        turned(torch.tensor(math.pi - margin + e, dtype=torch.float64).cos(), margin) for e in (-1e-9, 1e-9)
    )
    jump = 1 - math.cos(margin) - margin * math.sin(margin)
    assert float(after - before) == pytest.approx(jump, abs=1e-7)
    combined = ArcFace(2, 2, margin=margin, multiplier=1.7).multiplied(angles.cos())
    assert (combined.diff() < 0).all()


def test_turned_back_stays_at_one():
    """A negative angle is taken off θ; below θ = 0 nothing is left to take."""
    angles = torch.linspace(0, math.pi, 101, dtype=torch.float64)
    expected = (angles - 0.4).clamp_min(0).cos()
    assert_close(turned(angles.cos(), -0.4), expected, rtol=0, atol=1e-6)
    m = torch.full((101,), -0.4, dtype=torch.float64, requires_grad=True)
    turned(angles.cos(), m).sum().backward()
    assert_close(m.grad, torch.where(angles > 0.4, (0.4 - angles).sin(), 0.0), rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cosines_are_kept_from_one_with_slope_zero_there(dtype):
    c = torch.tensor([-1.1, -1.0, 0.3, 1.0, 1.1], dtype=dtype, requires_grad=True)
    inside(c).acos().sum().backward()
    assert (inside(c).abs() < 1).all()
    assert_close(c.grad, torch.tensor([0, 0, -1 / math.sqrt(1 - 0.09), 0, 0], dtype=dtype))


def test_E02_smoothing_stays_within_the_category():
    z, y = batch(0)
    loss = seeded(FAMILY["E02"], label_smoothing=0.3, categories=(0, 0, 1, 0), scale=5.0)
    cos = loss.cosines(z)
    own = torch.eye(4)[y].bool()
    log_p = torch.where(own, 5 * turned(cos, 0.5), 5 * cos).log_softmax(1)
    total = 0.0
    for i, l in enumerate(y.tolist()):
        others = [k for k in range(4) if k != l and (0, 0, 1, 0)[k] == (0, 0, 1, 0)[l]]
        share = 0.3 if others else 0.0  # class 2 is alone in its category
        total = total - (1 - share) * log_p[i, l] - sum(share / len(others) * log_p[i, k] for k in others)
    assert_close(loss(z, y), total / len(y), rtol=1e-10, atol=0)


def test_E02_bad_parameters_are_named():
    with pytest.raises(ValueError, match=r"margin=28.6 must lie in \[0, π/2\]: it is an angle in radians"):
        ArcFace(4, 4, margin=28.6)
    with pytest.raises(ValueError, match=r"multiplier=0.5 must be at least 1"):
        ArcFace(4, 4, multiplier=0.5)
    with pytest.raises(ValueError, match="scale=0 must be positive"):
        ArcFace(4, 4, scale=0)
    with pytest.raises(ValueError, match=r"categories must have one number for each of 4 classes, got \(3,\)"):
        ArcFace(4, 4, categories=(0, 0, 1))
    with pytest.raises(ValueError, match="gradient='wrong'"):
        ArcFace(4, 4, gradient="wrong")
    with pytest.raises(ValueError, match="temperature=0 must be positive"):
        NormalizedSoftmax(4, 4, temperature=0)
