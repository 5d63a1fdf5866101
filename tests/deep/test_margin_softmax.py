"""Proof tests of margin softmax losses, each beside its equation written with loops."""

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    AdaFace,
    ArcFace,
    CenterLoss,
    CosFace,
    CrossEntropy,
    CurricularFace,
    DynamicArcFace,
    ElasticFace,
    LargeMarginSoftmax,
    LossObjective,
    MagFace,
    NormalizedSoftmax,
    P2SGrad,
    ProxyNCAPlusPlus,
    SampledSoftmax,
    SphereFace,
    SubCenterArcFace,
    WeightedSum,
)
from isometry.deep.functional import inside, turned, unit
from isometry.deep.objective import as_objective
from isometry.registry import all_methods
from tests.deep.batches import C, Y, batch, circle, gradient

PROXIES = circle(30, 135)  # of the toy batch, one for each class
FILES = ("margin_softmax", "adaptive_margin", "arcface", "sphereface")
FAMILY = {m.key: m.example for m in all_methods(kind="loss") if m.target.split(":")[0].split(".")[-1] in FILES}


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


@pytest.mark.parametrize("key", FAMILY)
def test_large_batches_are_written_in_place_with_the_same_value_and_gradients(key, monkeypatch):
    z, y = batch(0)
    found = []
    for large in (0, 1 << 17):
        monkeypatch.setattr("isometry.deep.losses.margin_softmax.LARGE", large)
        loss, u = seeded(FAMILY[key]).eval(), z.clone().requires_grad_()
        value = loss(u, y)
        value.backward()
        found.append([value.detach(), u.grad, *(p.grad for p in loss.parameters())])
    assert_close(*found, rtol=1e-12, atol=1e-14)


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


# -- E03 ---------------------------------------------------------------------------------------------------------------


def test_E03_toy_value_and_one_is_no_margin():
    assert toy(SphereFace(2, 2)) == pytest.approx(1.050401, abs=1e-6)
    loss, (z, y) = seeded(FAMILY["E03"], margin=1), batch(0)
    logits = z @ unit(loss.proxies).T
    assert_close(loss.logits(z), logits, rtol=1e-12, atol=1e-12)
    assert_close(loss(z, y), torch.nn.functional.cross_entropy(logits, y), rtol=1e-12, atol=0)
    large = seeded(FAMILY["E03l"], margin=1)
    large.proxies.data *= torch.tensor([1.0, 2.0, 3.0, 4.0])[:, None]
    assert_close(large(z, y), torch.nn.functional.cross_entropy(z @ large.proxies.T, y), rtol=1e-12, atol=0)


@pytest.mark.parametrize("m", range(1, 9))
def test_E03_psi_is_continuous_and_falls(m):
    angles = torch.linspace(0, math.pi, 4001, dtype=torch.float64)
    psi = SphereFace(2, 2, margin=m).psi(angles.cos())
    k = (angles * m / math.pi).floor().clamp_max(m - 1)
    assert_close(psi, (-1) ** k * (m * angles).cos() - 2 * k, rtol=0, atol=1e-9)
    assert (psi.diff() <= 1e-12).all() and psi.diff().abs().max() < 2 * m * math.pi / 4000
    assert float(psi[-1]) == pytest.approx(1 - 2 * m)


def test_E03_annealed_target_counts_the_steps_of_training():
    loss, (z, y) = seeded(FAMILY["E03"], anneal=(1000, 5, 0.12)), batch(0)
    c = torch.linspace(-0.9, 0.9, 7, dtype=torch.float64)
    for step in range(3):
        la = 1000 / (1 + 0.12 * step)
        assert_close(loss.target(c, z, y), (la * c + loss.psi(c)) / (1 + la), rtol=1e-12, atol=1e-12)
        loss.eval()(z, y)
        loss.train()(z, y)
    assert loss.state_dict()["steps"] == 3
    loss.steps += 10**6
    assert_close(loss.target(c, z, y), (5 * c + loss.psi(c)) / 6, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"margin=2.5 must be a whole number"):
        SphereFace(4, 4, margin=2.5)
    with pytest.raises(ValueError, match="margin=9 must lie in 1 … 8"):
        LargeMarginSoftmax(4, 4, margin=9)


# -- E04 ---------------------------------------------------------------------------------------------------------------


def test_E04_one_sub_centre_is_arcface_and_more_take_the_nearest():
    z, y = batch(0)
    one, arc_face = seeded(FAMILY["E04"], sub_centers=1), seeded(FAMILY["E02"])
    one.proxies.data = arc_face.proxies.data[:, None]
    assert_close(one(z, y), arc_face(z, y), rtol=1e-12, atol=0)
    three = seeded(FAMILY["E04"])
    slow_cosines = [
        [max(float(u @ w / (u.norm() * w.norm())) for w in of_class) for of_class in three.proxies.detach()] for u in z
    ]
    assert_close(three.cosines(z), torch.tensor(slow_cosines, dtype=torch.float64), rtol=1e-10, atol=1e-10)
    three(z, y).backward()
    used = three.proxies.grad.abs().sum(2) > 0  # (C, K)
    nearest = (unit(z) @ unit(three.proxies).flatten(0, 1).T).unflatten(1, (4, 3)).argmax(2)  # (B, C)
    assert used.tolist() == [[k in nearest[:, l].tolist() for k in range(3)] for l in range(4)]


def test_E04_a_planted_outlier_is_found():
    loss = SubCenterArcFace(2, 3, sub_centers=2)
    axes = torch.eye(3)
    loss.proxies.data = torch.stack([axes[:2], axes[[2, 0]]])
    z, y = torch.stack([axes[0], axes[0] + 0.1, axes[1], axes[2], -axes[2], axes[2]]), torch.tensor([0, 0, 0, 1, 1, 1])
    assert loss.outliers(z, y).tolist() == [2, 4]  # the third uses the other sub-centre of its class, at 90°
    assert loss.outliers(z, y, degrees=100.0).tolist() == [4]
    assert loss.outliers(z[:0], y[:0]).tolist() == []


def test_E04_margins_shrink_with_the_size_of_a_class():
    counts = (10, 10_000, 500, 20)
    loss = DynamicArcFace(4, 4, counts, margin_bounds=(0.1, 0.6))
    a = 0.5 / (10**-0.25 - 10_000**-0.25)
    expected = [a * n**-0.25 + 0.6 - a * 10**-0.25 for n in counts]
    assert loss.margins.tolist() == pytest.approx(expected, rel=1e-6)
    assert loss.margins[0] == pytest.approx(0.6) and loss.margins[1] == pytest.approx(0.1)
    assert DynamicArcFace(3, 4, (7, 7, 7)).margins.tolist() == [0.5] * 3
    for bad, message in (((1, 2, 0, 4), "class_counts must be positive"), ((1, 2), "one number for each of 4 classes")):
        with pytest.raises(ValueError, match=message):
            DynamicArcFace(4, 4, bad)
    with pytest.raises(ValueError, match=r"must be \(smallest, largest\)"):
        DynamicArcFace(4, 4, counts, margin_bounds=(0.5, 0.1))


def test_E04_each_class_has_its_own_margin():
    loss, (z, y) = seeded(FAMILY["E04d"], scale=6.0), batch(0)
    cos = loss.cosines(z)
    logits = cos.clone()
    for i, l in enumerate(y.tolist()):
        logits[i, l] = arc(float(loss.margins[l]))(cos[i, l])
    assert_close(loss(z, y), torch.nn.functional.cross_entropy(6 * logits, y), rtol=1e-10, atol=0)
    equal = seeded(FAMILY["E04d"], class_counts=(5, 5, 5, 5))
    plain = seeded(FAMILY["E04"], sub_centers=1)
    assert_close(equal(z, y), plain(z, y), rtol=1e-10, atol=0)


# -- E05 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "value"), [(-1, 0.446377), (0, 0.482068), (1, 0.570153)])
def test_E05_toy_values(q, value, monkeypatch):
    loss = AdaFace(2, 2, scale=1.0)
    monkeypatch.setattr(loss, "quality", lambda z: z.new_full((len(z), 1), q))
    assert toy(loss) == pytest.approx(value, abs=1e-6)
    same = {-1: ArcFace(2, 2, margin=0.4, scale=1.0), 0: CosFace(2, 2, margin=0.4, scale=1.0)}
    if q < 1:
        assert toy(same[q]) == pytest.approx(value, abs=1e-6)


def test_E05_equals_the_loop_with_lengths_held_constant():
    loss, (z, y) = seeded(FAMILY["E05"], scale=6.0).train(), batch(0)
    n = z.norm(dim=1).clamp(1e-3, 100)
    q = (0.333 * (n - n.mean()) / (n.std() + 1e-3)).clamp(-1, 1)  # the first batch is all that is known
    assert q.min() < 0 < q.max()

    def slow_loss(u, y):
        cos = unit(u) @ unit(loss.proxies).T
        angles = cos.gather(1, y[:, None]).squeeze(1).acos()
        target = torch.cos((angles - 0.4 * q).clamp(0, math.pi)) - (0.4 + 0.4 * q)
        return torch.nn.functional.cross_entropy(6 * cos.scatter(1, y[:, None], target[:, None]), y)

    assert_close(loss(z, y), slow_loss(z, y), rtol=1e-5, atol=0)  # μ and σ are kept in float32
    loss.mean, loss.std = n.mean(), n.std()
    assert_close(loss.eval()(z, y), slow_loss(z, y), rtol=1e-10, atol=0)
    assert_close(gradient(loss, z, y), gradient(slow_loss, z, y), rtol=1e-8, atol=1e-10)


def test_E05_remembers_lengths_in_training_only():
    loss, (z, y) = seeded(FAMILY["E05"], alpha=0.25), batch(0)
    n = z.norm(dim=1)
    loss.eval()(z, y)
    loss.train()(z[:1], y[:1])
    assert loss.batches == 0 and loss.quality(z[:1]) == 0
    loss.train()(z, y)
    assert_close(torch.stack([loss.mean, loss.std]), torch.stack([n.mean(), n.std()]), rtol=1e-6, atol=0)
    loss(3 * z, y)
    assert_close(loss.mean, 1.5 * n.mean(), rtol=1e-6, atol=0)  # ¾ · 1 + ¼ · 3
    assert_close(loss.std, 1.5 * n.std(), rtol=1e-6, atol=0)
    loss(z[:1], y[:1])
    loss.eval()(9 * z, y)
    assert loss.batches == 2
    loss = seeded(FAMILY["E05"]).train()
    with pytest.warns(UserWarning, match="do not normalise the output"):
        value = loss(unit(z), y)
    assert_close(value, seeded(FAMILY["E01"], margin=0.4)(z, y), rtol=1e-5, atol=0)  # q = 0


# -- E06 ---------------------------------------------------------------------------------------------------------------


def test_E06_equals_the_loop():
    loss, (z, y) = seeded(FAMILY["E06"], scale=6.0), batch(0)

    def slow_loss(u, y):
        total = 0.0
        for i, l in enumerate(y.tolist()):
            a = u[i].norm().clamp(0.5, 4.0)
            m = 0.45 + (0.8 - 0.45) * (a - 0.5) / 3.5
            cos = torch.stack([u[i] @ w / (u[i].norm() * w.norm()) for w in loss.proxies])
            own = torch.cos(cos[l].acos() + m) if cos[l] > 0 else cos[l]
            logits = 6 * torch.stack([own if k == l else c for k, c in enumerate(cos)])
            total = total - logits[l] + logits.logsumexp(0) + 6 * (1 / a + a / 16)
        return total / len(y)

    assert_close(loss(z, y), slow_loss(z, y), rtol=1e-10, atol=0)
    assert_close(gradient(loss, z, y), gradient(slow_loss, z, y), rtol=1e-8, atol=1e-10)


def test_E06_one_margin_and_no_weight_is_arcface():
    (z, y), options = batch(0), {"margin_bounds": (0.5, 0.5), "weight": 0.0}
    assert_close(seeded(FAMILY["E06"], easy=False, **options)(z, y), seeded(FAMILY["E02"])(z, y), rtol=1e-12, atol=0)
    easy = seeded(FAMILY["E06"], **options)
    own = easy.cosines(z).gather(1, y[:, None]).squeeze(1) > 0
    assert 0 < own.sum() < len(y)
    assert_close(easy(z[own], y[own]), seeded(FAMILY["E02"])(z[own], y[own]), rtol=1e-12, atol=0)
    assert_close(easy(z[~own], y[~own]), seeded(FAMILY["E01"], margin=0.0)(z[~own], y[~own]), rtol=1e-12, atol=0)


def test_E06_length_is_rewarded_up_to_its_bound():
    """The penalty 1/a + a/u² is least at a = u. The bound on its weight: 22.587 for the defaults."""
    z = torch.tensor([[1.0, 0.0]]) * torch.tensor([20.0, 60.0, 100.0, 109.0])[:, None]
    loss, y = MagFace(2, 2, margin_bounds=(0.5, 0.5)), torch.zeros(4, dtype=torch.long)
    assert (gradient(loss, z, y)[:, 0] < 0).all()
    assert_close(loss.quality(z), torch.tensor([20.0, 60.0, 100.0, 109.0]))
    with pytest.warns(UserWarning, match=r"weight=22.5 is below 22.59"):
        MagFace(2, 2, weight=22.5)
    with pytest.warns(UserWarning, match=r"outside of length_bounds=\(10.0, 110.0\)"):
        MagFace(2, 2).train()(z / 100, y)
    scaled = MagFace(2, 2, norm_scale=100.0)
    assert_close(scaled.quality(z / 100), loss.quality(z))
    with pytest.raises(ValueError, match=r"length_bounds=\(5, 2\) must be \(shortest, longest\)"):
        MagFace(2, 2, length_bounds=(5, 2))


# -- E07 ---------------------------------------------------------------------------------------------------------------


def test_E07_toy_value():
    loss = CurricularFace(2, 2, scale=1.0)
    loss.t.fill_(0.3)
    assert toy(loss) == pytest.approx(0.464433, abs=1e-6)


def test_E07_equals_the_loop_and_arcface_where_nothing_wins():
    loss, (z, y) = seeded(FAMILY["E07"], scale=6.0).eval(), batch(0)
    loss.t.fill_(0.25)

    def slow_loss(u, y):
        total, eased = 0.0, 0
        for i, l in enumerate(y.tolist()):
            cos = torch.stack([u[i] @ w / (u[i].norm() * w.norm()) for w in loss.proxies])
            limit = torch.cos(cos[l].acos() + 0.5)
            others = [c * (0.25 + c) if c > limit else c for c in cos]
            eased += sum(c > limit for k, c in enumerate(cos) if k != l)
            logits = 6 * torch.stack([arc(0.5)(cos[l]) if k == l else c for k, c in enumerate(others)])
            total = total - logits[l] + logits.logsumexp(0)
        assert 0 < eased < 3 * len(y)
        return total / len(y)

    assert_close(loss(z, y), slow_loss(z, y), rtol=1e-10, atol=0)
    assert_close(gradient(loss, z, y), gradient(slow_loss, z, y), rtol=1e-8, atol=1e-10)
    aligned = loss.proxies.detach()
    plain = seeded(FAMILY["E02"], scale=6.0)
    assert (aligned @ aligned.T - 2 * torch.eye(4)).max() < math.cos(0.5)
    assert_close(loss(aligned, torch.arange(4)), plain(aligned, torch.arange(4)), rtol=1e-12, atol=0)


def test_E07_t_follows_the_own_cosines_in_training():
    loss, (z, y) = seeded(FAMILY["E07"]), batch(0)
    own = loss.cosines(z).gather(1, y[:, None]).mean()
    loss.eval()(z, y)
    assert loss.t == 0
    loss.train()(z, y)
    loss(z, y)
    assert_close(loss.t, (0.01 + 0.99 * 0.01) * own.detach(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("form", ["arc", "cos"])
def test_E07_elastic_without_spread_is_the_plain_margin(form):
    z, y = batch(0)
    plain = seeded(FAMILY["E02"]) if form == "arc" else seeded(FAMILY["E01"], margin=0.5)
    for loss in (seeded(FAMILY["E07e"], form=form, sigma=0.0).train(), seeded(FAMILY["E07e"], form=form).eval()):
        assert_close(loss(z, y), plain(z, y), rtol=1e-12, atol=0)


def test_E07_elastic_margins():
    cos = torch.rand(4000, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    drawn, dealt = (ElasticFace(2, 2, plus=plus, random_state=3).margins(cos) for plus in (False, True))
    assert_close(drawn.sort(0).values, dealt.sort(0).values, rtol=0, atol=0)  # the same margins
    assert_close(drawn.mean(), torch.tensor(0.5), rtol=0, atol=4 * 0.05 / math.sqrt(4000))
    assert abs(float(drawn.std()) / 0.05 - 1) < 4 / math.sqrt(2 * 4000)
    order = cos.squeeze(1).argsort()
    assert (dealt.squeeze(1)[order].diff() <= 0).all()  # low cosines have the large ones
    assert abs(torch.corrcoef(torch.stack([cos, drawn]).squeeze(2))[0, 1]) < 4 / math.sqrt(4000)
    with pytest.raises(ValueError, match=r"sigma=0.6 must be below margin=0.5"):
        ElasticFace(2, 2, sigma=0.6)


def test_E07_elastic_draws_go_on_after_a_restart():
    (z, y), make = batch(0), lambda: seeded(FAMILY["E07e"], random_state=5).train()
    loss = make()
    loss(z, y)
    state, expected = loss.state_dict(), loss(z, y)
    again = make()
    again.load_state_dict(state)
    assert again(z, y) != make()(z, y)
    again.load_state_dict(state)
    assert_close(again(z, y), expected, rtol=0, atol=0)


# -- E08 ---------------------------------------------------------------------------------------------------------------


def many_classes(**options):
    torch.manual_seed(0)
    loss = SampledSoftmax(ArcFace(40, 4, scale=8.0), random_state=0, **options).double().train()
    return loss, batch(0)[0], torch.arange(12) * 3 % 20


def test_E08_all_classes_are_the_loss_itself():
    loss, z, y = many_classes(sample_rate=1.0)
    assert_close(loss(z, y), loss.loss(z, y), rtol=1e-12, atol=0)
    loss, z, y = many_classes(sample_rate=0.4)
    assert_close(loss.eval()(z, y), loss.loss(z, y), rtol=0, atol=0)
    assert_close(loss.train()(z, torch.eye(40)[y]), loss.loss(z, y), rtol=1e-12, atol=0)


def test_E08_the_batch_is_always_drawn_and_the_softmax_is_over_what_is_drawn():
    loss, z, y = many_classes(sample_rate=0.4)
    for _ in range(20):
        classes = loss.draw(y)
        assert len(classes) == 16 and set(y.tolist()) <= set(classes.tolist()) and (classes.diff() > 0).all()
    loss, z, y = many_classes(sample_rate=0.4)
    classes = many_classes(sample_rate=0.4)[0].draw(y)  # the same seed
    part = ArcFace(16, 4, scale=8.0).double()
    part.proxies.data = loss.loss.proxies.data[classes]
    assert_close(loss(z, y), part(z, torch.searchsorted(classes, y)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("sparse", [False, True])
def test_E08_rows_that_are_not_drawn_do_not_move(sparse):
    loss, z, y = many_classes(sample_rate=0.4, sparse=sparse)
    before, drawn = loss.loss.proxies.detach().clone(), set()
    kind = torch.optim.SparseAdam if sparse else torch.optim.SGD
    optimizer = kind(loss.loss.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        state = loss.get_extra_state()
        drawn |= set(loss.draw(y).tolist())
        loss.set_extra_state(state)
        loss(z, y).backward()
        optimizer.step()
    moved = (loss.loss.proxies.detach() != before).any(1)
    assert set(moved.nonzero().squeeze(1).tolist()) == drawn and 0 < len(drawn) < 40


def test_E08_the_pull_to_the_own_class_grows_with_the_classes_drawn_up_to_that_of_all():
    """It is s (1 − p) dt/dw, and each rival that is left out makes p larger; its direction never changes."""
    shares = []
    for rate in (0.1, 0.5, 0.9, 1.0):
        loss, z, y = many_classes(sample_rate=rate)
        z, y = z[:1], y[:1]
        full = torch.autograd.grad(loss.loss(z, y), loss.loss.proxies)[0][y[0]]
        draws = torch.stack([torch.autograd.grad(loss(z, y), loss.loss.proxies)[0][y[0]] for _ in range(50)])
        share = draws @ full / full.square().sum()
        assert_close(draws, share[:, None] * full, rtol=1e-9, atol=1e-12)
        assert (share > 0).all() and (share <= 1 + 1e-12).all()
        shares.append(float(share.mean()))
    assert all(low < high for low, high in pairwise(shares)) and shares[-1] == pytest.approx(1, abs=1e-12)


def test_E08_filter_and_bad_input():
    loss, z, y = many_classes(sample_rate=1.0, filter=0.2)
    cos = loss.loss.cosines(z)
    own = torch.nn.functional.one_hot(y, 40).bool()
    logits = torch.where(own, turned(cos, 0.5), cos.masked_fill(cos > 0.2, 0))
    assert_close(loss(z, y), torch.nn.functional.cross_entropy(8 * logits, y), rtol=1e-12, atol=0)
    loss, z, y = many_classes(sample_rate=0.05)
    with pytest.warns(UserWarning, match=r"the batch has 12 classes, more than sample_rate=0.05 of 40"):
        assert len(loss.draw(y)) == 12
    with pytest.raises(ValueError, match="give a loss, such as ArcFace"):
        SampledSoftmax()
    with pytest.raises(TypeError, match="a softmax with a margin is expected"):
        SampledSoftmax(CrossEntropy(4, 4))
    with pytest.raises(ValueError, match="several directions for each class"):
        SampledSoftmax(SubCenterArcFace(4, 4), sparse=True)


# -- E09 ---------------------------------------------------------------------------------------------------------------


def test_E09_one_update_by_hand():
    loss, z, y = CenterLoss(3, 2, alpha=0.5).double(), torch.tensor([[1.0, 0], [3.0, 0], [0, 4.0]]).double(), [0, 0, 2]
    y = torch.tensor(y)
    loss.centers[:] = torch.tensor([[1.0, 1.0], [5.0, 5.0], [0.0, 0.0]])
    assert float(loss(z, y)) == pytest.approx((1 + 5 + 16) / 6)
    moved = [[1 - 0.5 * (0 - 2) / 3, 1 - 0.5 * (1 + 1) / 3], [5.0, 5.0], [0.0, 0.5 * 4 / 2]]
    assert_close(loss.centers, torch.tensor(moved).double(), rtol=1e-6, atol=1e-7)
    assert_close(loss.eval()(z, y), loss(z, y), rtol=0, atol=0)


def test_E09_pulls_of_a_class_cancel_at_its_mean():
    loss, (z, y) = CenterLoss(4, 4).double().eval(), batch(0)
    for l in range(4):
        loss.centers[l] = z[y == l].mean(0)
    g = gradient(loss, z, y)
    assert_close(g, (z - loss.centers[y]) / len(y), rtol=1e-12, atol=1e-14)
    assert all(g[y == l].sum(0).abs().max() < 1e-14 for l in range(4)) and g.abs().max() > 0.01


def test_E09_alone_it_is_warned_of():
    with pytest.warns(UserWarning, match="CenterLoss alone draws all to one point; take WeightedSum"):
        as_objective(CenterLoss(4, 4))
    both = as_objective(WeightedSum(CrossEntropy(4, 4), CenterLoss(4, 4), weights=(1, 0.003)))
    assert isinstance(both, LossObjective)
    with pytest.raises(ValueError, match=r"alpha=1.5 must lie in \(0, 1\]"):
        CenterLoss(4, 4, alpha=1.5)


def test_E09_p2sgrad():
    assert toy(P2SGrad(2, 2)) == pytest.approx(0.443615 / 2, abs=1e-6)
    loss, (z, y) = seeded(lambda: P2SGrad(4, 4)), batch(0)
    cos = loss.cosines(z)
    residual = (cos - torch.eye(4)[y]).detach()
    closed = torch.autograd.grad((residual * loss.cosines(z.requires_grad_())).sum() / len(z), z)[0]
    assert_close(gradient(loss, z.detach(), y), closed, rtol=1e-10, atol=1e-12)
    loss.proxies.data = torch.eye(4).double()
    assert float(loss(torch.eye(4).double(), torch.arange(4)).detach()) == 0


def test_E08_a_divided_softmax_says_what_it_cannot_divide():
    with pytest.raises(ValueError, match="CurricularFace cannot be divided among processes"):
        SampledSoftmax(CurricularFace(4, 3), shard=True)
    with pytest.raises(ValueError, match="ArcFace cannot be divided among processes"):
        SampledSoftmax(ArcFace(4, 3, label_smoothing=0.1), shard=True)
    z, y = batch(0)
    torch.manual_seed(0)
    plain = ArcFace(4, 4).double()
    ours = SampledSoftmax(plain, 1.0, shard=True).double()  # one process: nothing to divide
    assert_close(ours(z, y), plain(z, y), rtol=1e-12, atol=0)
