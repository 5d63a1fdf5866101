"""Codes of bits and bytes (E44)."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from isometry.deep import BinaryCodes, NormalizedSoftmax, OrthoHash, QuantizationAware, SupCon, Triplet
from isometry.deep.losses.hashing import class_codes, straight_through
from tests.deep.batches import C, Y, batch, close, gradient, same


def test_E44_toy_value():
    """Two bits, codes (1, 1) and (1, −1): cosines of C with 45° and −45°."""
    cos = [[math.cos(math.radians(t - s)) for s in (45, -45)] for t in (0, 60, 90, 180)]
    terms = []
    for (a, b), label in zip(cos, Y.tolist()):
        own, other = (a, b) if label == 0 else (b, a)
        own = 8 * (own - 0.2)
        terms.append(math.log(math.exp(own) + math.exp(8 * other)) - own)
    close(OrthoHash(2, 2)(C, Y), sum(terms) / 4)


def test_E44_is_its_loop():
    loss, (z, y) = OrthoHash(4, 6, random_state=1).double(), batch(0, p=6)

    def slow(z, y):
        terms = []
        for i in range(len(z)):
            s = torch.stack([8 * ((z[i] @ c) / (z[i].norm() * math.sqrt(6))) for c in loss.proxies])
            s = s - 8 * 0.2 * F.one_hot(y[i], 4).double()
            terms.append(torch.logsumexp(s, 0) - s[y[i]])
        return torch.stack(terms).mean()

    same(loss, slow, z, y)


def test_E44_without_margin_is_the_normalised_softmax_with_fixed_proxies():
    z, y = batch(0)
    ours, plain = OrthoHash(4, 4, margin=0).double(), NormalizedSoftmax(4, 4, temperature=1 / 8).double()
    plain.proxies.data.copy_(ours.proxies)
    assert_close(ours(z, y), plain(z, y), rtol=1e-12, atol=0)
    assert not list(ours.parameters()) and "proxies" in ours.state_dict()


@pytest.mark.parametrize(("count", "bits"), [(4, 4), (16, 16), (5, 4), (100, 64), (20, 12), (2, 1), (1, 3), (256, 8)])
def test_E44_class_codes_are_different_signs(count, bits):
    codes = class_codes(count, bits)
    assert codes.shape == (count, bits) and set(codes.unique().tolist()) <= {-1.0, 1.0}
    assert len(codes.unique(dim=0)) == count
    if count <= bits and bits & (bits - 1) == 0:
        assert_close(codes @ codes.T, bits * torch.eye(count))


def test_E44_drawn_codes_are_the_farthest_of_many():
    generator = torch.Generator().manual_seed(0)

    def least(c):
        return min(int((a != b).sum()) for k, a in enumerate(c) for b in c[:k])

    draws = [torch.randint(0, 2, (20, 24), generator=generator) * 2.0 - 1 for _ in range(10)]
    assert least(class_codes(20, 24)) >= max(map(least, draws))
    with pytest.raises(ValueError, match="9 classes need as many different codes, and 3 bits make fewer"):
        OrthoHash(9, 3)


@pytest.mark.parametrize("bits", [8, 64, 11])
@pytest.mark.filterwarnings("ignore:11 bits do not fill bytes")
def test_E44_codes_pack_and_compare(bits):
    z, w = batch(0, p=bits)[0], batch(1, n=7, p=bits)[0]
    a, b = BinaryCodes.of(z), BinaryCodes.of(w)
    assert a.packed.dtype == torch.uint8 and a.packed.shape == (12, -(-bits // 8)) and len(a) == 12
    assert_close(a.signs(), torch.where(z >= 0, 1.0, -1.0).float())
    expected = torch.tensor([[sum(int((u >= 0) != (v >= 0)) for u, v in zip(p, q)) for q in w] for p in z])
    assert_close(a.hamming(b), expected)
    popcount = torch.tensor(
        [[sum(int(u ^ v).bit_count() for u, v in zip(p, q)) for q in b.packed.tolist()] for p in a.packed.tolist()]
    )
    assert_close(a.hamming(b), popcount)
    assert (OrthoHash.codes(z).packed == a.packed).all()


def test_E44_padding_is_said():
    with pytest.warns(UserWarning, match="11 bits do not fill bytes: the last one is padded with 5 zeros"):
        BinaryCodes.of(torch.ones(1, 11))
    with pytest.raises(ValueError, match="codes of 8 and of 16 bits"):
        BinaryCodes.of(torch.ones(1, 8)).hamming(BinaryCodes.of(torch.ones(1, 16)))


def test_E44_quantised_values():
    z = torch.tensor([[1.0, 0.0, -0.3], [-0.5, 0.0, 0.1], [0.2, 0.0, 2.0]], dtype=torch.float64)
    q = straight_through(z, "int8")
    step = torch.tensor([1.0, 1.0, 2.0]).double() / 127
    assert (q - z).abs().max() <= step.max() / 2
    assert_close(q[:, 0] * 127, (z[:, 0] * 127).round())
    assert_close(straight_through(z, "binary"), torch.where(z >= 0, 1.0, -1.0).double())


@pytest.mark.parametrize("kind", ["int8", "binary"])
def test_E44_gradients_go_straight_through(kind):
    """The gradient of the loss at q(z); of signs only where |z| ≤ 1."""
    z, y = batch(0)
    loss = SupCon(0.3)
    expected = gradient(loss, straight_through(z, kind).detach(), y)
    if kind == "binary":
        assert (z.abs() > 1).any()
        expected = expected * (z.abs() <= 1)
    ours = QuantizationAware(loss, kind)
    assert_close(ours(z, y), loss(straight_through(z, kind), y), rtol=0, atol=0)
    assert_close(gradient(ours, z, y), expected, rtol=1e-12, atol=1e-14)


def test_E44_codes_tell_classes_apart():
    """A small network on four classes: codes of one class agree in nearly all bits, those of two do not."""
    torch.manual_seed(0)
    y = torch.arange(80) % 4
    x = batch(0, n=4)[0].float()[y] + 0.2 * torch.randn(80, 4)
    net, loss = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16)), OrthoHash(4, 16)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    H = loss.codes(net(x)).hamming(loss.codes(net(x))).float()
    same = y[:, None] == y
    assert H[same].mean() < 2 < 5 < H[~same].mean()


def test_E44_bytes_hardly_change_a_loss():
    z, y = batch(0, n=64, p=32)
    assert_close(QuantizationAware(Triplet())(z, y), Triplet()(z, y), rtol=2e-2, atol=0)
    with pytest.raises(ValueError, match="kind='int4'"):
        QuantizationAware(kind="int4")
