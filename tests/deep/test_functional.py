"""Distances, masks and masked reductions against loops."""

import math
from statistics import variance

import pytest
import torch
from torch.testing import assert_close

from isometry.deep.functional import (
    DISTANCES,
    Lp,
    get_distance,
    log1mexp,
    masked_logsumexp,
    masked_max,
    masked_mean,
    masked_min,
    masks,
    packed,
    paired,
    safe_sqrt,
    soft_masks,
    unit,
)
from tests.deep.batches import batch


def poincare(v, w, c=0.1, r=2.3):
    """By the inverse hyperbolic cosine, of points of the ball."""
    x, y = ([u * min(1, r / math.hypot(*a)) for u in a] for a in (v, w))
    x, y = ([u * math.tanh(math.sqrt(c) * math.hypot(*a)) / (math.sqrt(c) * math.hypot(*a)) for u in a] for a in (x, y))
    inside = (1 - c * math.hypot(*x) ** 2) * (1 - c * math.hypot(*y) ** 2)
    return math.acosh(1 + 2 * c * math.dist(x, y) ** 2 / inside) / math.sqrt(c)


SLOW = {
    "poincare": poincare,
    "euclidean": lambda a, b: math.dist(a, b),
    "sqeuclidean": lambda a, b: math.dist(a, b) ** 2,
    "cosine": lambda a, b: 1 - sum(u * v for u, v in zip(a, b)) / (math.hypot(*a) * math.hypot(*b)),
    "inner": lambda a, b: -sum(u * v for u, v in zip(a, b)),
    "manhattan": lambda a, b: sum(abs(u - v) for u, v in zip(a, b)),
    "snr": lambda a, b: variance([u - v for u, v in zip(a, b)]) / variance(a),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_equal_the_loop(name):
    z, refs = batch(0)[0], batch(1, n=7)[0]
    slow = torch.tensor([[SLOW[name](a, b) for b in refs.tolist()] for a in z.tolist()])
    assert_close(DISTANCES[name](z, refs), slow.double(), rtol=1e-6, atol=1e-6)
    assert_close(paired(name, z[:7], refs), DISTANCES[name](z[:7], refs).diagonal(), rtol=1e-12, atol=1e-12)


def test_a_callable_is_a_distance_too():
    def l1(z, refs):
        return (z[:, None] - refs).abs().sum(2)

    z, refs = batch(0)[0], batch(1)[0]
    assert get_distance(l1) is l1
    assert_close(paired(l1, z, refs), (z - refs).abs().sum(1))
    with pytest.raises(ValueError, match="unknown distance 'chebyshev'; expected one of euclidean"):
        get_distance("chebyshev")


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
def test_lp_distances(p):
    z, refs = batch(0, n=9)[0], batch(1, n=9)[0]
    slow = [[sum(abs(u - v) ** p for u, v in zip(a, b)) ** (1 / p) for b in refs.tolist()] for a in z.tolist()]
    if p == math.inf:
        slow = [[max(abs(u - v) for u, v in zip(a, b)) for b in refs.tolist()] for a in z.tolist()]
    D = Lp(p)(z, refs)
    assert_close(D, torch.tensor(slow, dtype=torch.float64), rtol=1e-12, atol=0)
    assert_close(paired(Lp(p), z, refs), D.diagonal(), rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(Lp(p), (z.requires_grad_(), refs.requires_grad_()))
    z = z.detach().requires_grad_()
    Lp(p)(z, z).diagonal().sum().backward()
    paired(Lp(p), z, z.detach()).sum().backward()
    assert (z.grad == 0).all()  # a point and itself
    with pytest.raises(ValueError, match=r"p=0.5 must be at least 1"):
        Lp(0.5)


def test_noise_to_signal():
    """A constant added to a row changes nothing; from a row without variance the distance is the noise itself."""
    z, refs = batch(0)[0], batch(1)[0]
    D = DISTANCES["snr"](z, refs)
    assert_close(DISTANCES["snr"](z + 3.0, refs - torch.arange(12.0)[:, None]), D, rtol=1e-9, atol=1e-12)
    assert (DISTANCES["snr"](z, z).diagonal() == 0).all()
    flat = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    noise = DISTANCES["snr"](flat, refs)
    assert_close(noise[0].detach(), 3 * refs.var(1), rtol=1e-12, atol=0)
    noise.sum().backward()
    assert flat.grad.isfinite().all()
    with pytest.raises(ValueError, match="have only one"):
        DISTANCES["snr"](z[:, :1], z[:, :1])


@pytest.mark.parametrize("name", DISTANCES)
def test_gradients_of_distances(name):
    z, refs = batch(0, n=5)[0].requires_grad_(), batch(1, n=6)[0].requires_grad_()
    assert torch.autograd.gradcheck(DISTANCES[name], (z, refs))
    assert torch.autograd.gradcheck(lambda u: DISTANCES[name](u, u) * (1 - torch.eye(5)), (z,))
    if name == "manhattan":
        with pytest.raises(RuntimeError, match="_cdist_backward"):  # torch has no second derivative of it
            torch.autograd.gradgradcheck(DISTANCES[name], (z, refs))
    else:
        assert torch.autograd.gradgradcheck(DISTANCES[name], (z, refs))


def test_coincident_points_have_distance_and_gradient_zero():
    z = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    D = DISTANCES["euclidean"](z, z)
    D.sum().backward()
    assert (D == 0).all() and (z.grad == 0).all()
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    safe_sqrt(x).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_distances_survive_an_offset_and_tight_clusters_in_float32(spread):
    """A Gram matrix alone is wrong by orders of magnitude here."""
    rng = torch.Generator().manual_seed(0)
    centres = 5 * torch.randn(4, 8, generator=rng)
    z = (centres.repeat_interleave(10, 0) + spread * torch.randn(40, 8, generator=rng) + 100).float()
    exact = (z.double()[:, None] - z.double()).square().sum(2).sqrt()
    assert_close(DISTANCES["euclidean"](z, z).double(), exact, rtol=2e-4, atol=1e-12)
    assert_close(DISTANCES["euclidean"](z, z.clone()).double(), exact, rtol=2e-4, atol=1e-12)


def test_unit_leaves_zero_at_zero_with_a_finite_gradient():
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    u = unit(z)
    u.sum().backward()
    assert_close(u, torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    assert z.grad.isfinite().all()


def test_masks_from_labels_exclude_the_anchor_by_index_only():
    y, ref_y = torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1, 1])
    pos, neg = masks(y, ref_y, torch.tensor([1, -1, 0]))
    assert pos.int().tolist() == [[1, 0, 0, 0], [0, 0, 1, 1], [0, 1, 0, 0]]
    assert neg.int().tolist() == [[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]]


def test_masks_from_similarities():
    S = torch.tensor([[0.9, 0.1, 0.5, math.nan]])
    pos, neg = masks(S, None)
    assert pos.int().tolist() == [[1, 0, 0, 0]] and neg.int().tolist() == [[0, 1, 0, 0]]
    given = torch.tensor([[True, False]])
    pos, neg = masks(given, None, torch.tensor([0]))
    assert pos.int().tolist() == [[0, 0]] and neg.int().tolist() == [[0, 1]] and given[0, 0]
    s, d = soft_masks(S, None, torch.tensor([0]), torch.float64)
    assert_close(s, torch.tensor([[0, 0.1, 0.5, 0]]).double(), rtol=1e-6, atol=0)
    assert_close(d, torch.tensor([[0, 0.9, 0.5, 0]]).double(), rtol=1e-6, atol=0)


def test_packed_lists_the_true_columns_of_each_row():
    mask = torch.tensor([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    columns, filled = packed(mask)
    assert [row[ok].tolist() for row, ok in zip(columns, filled)] == [[1, 3], [], [0, 1, 2]]
    assert packed(mask[:0])[0].shape == (0, 0)


@pytest.mark.parametrize("dim", [0, 1])
def test_masked_reductions_equal_the_loop(dim):
    x, mask = batch(3, n=6, p=6)[0], batch(4, n=6, p=6)[0] > 0.4
    mask[2] = mask[:, 3] = False
    rows = [(v[m].tolist()) for v, m in zip(*(t if dim == 1 else t.T for t in (x, mask)))]
    assert_close(masked_max(x, mask, dim), torch.tensor([max(r, default=-math.inf) for r in rows]).double())
    assert_close(masked_min(x, mask, dim), torch.tensor([min(r, default=math.inf) for r in rows]).double())
    lse = [math.log(sum(map(math.exp, r))) if r else -math.inf for r in rows]
    assert_close(masked_logsumexp(x, mask, dim), torch.tensor(lse, dtype=torch.float64))
    assert_close(masked_mean(x, mask).item(), sum(map(sum, rows)) / sum(map(len, rows)))


def test_masked_logsumexp_has_a_gradient_everywhere():
    x = (100 * batch(3, n=5, p=5)[0]).requires_grad_()
    mask = batch(4, n=5, p=5)[0] > 0
    mask[1] = False
    assert torch.autograd.gradcheck(lambda t: masked_logsumexp(t, mask).masked_fill(~mask.any(1), 0), (x,))
    masked_logsumexp(x, mask).exp().sum().clamp_max(1e9).backward()
    assert x.grad[1].tolist() == [0.0] * 5


def test_masked_mean_of_nothing_is_zero_and_part_of_the_graph():
    x = torch.full((2, 2), math.inf, requires_grad=True)
    value = masked_mean(x, torch.zeros(2, 2, dtype=torch.bool))
    value.backward()
    assert value == 0 and (x.grad == 0).all()


def test_log1mexp_is_accurate_at_both_ends():
    x = torch.tensor([-1e-6, -0.5, -1.0, -40.0], dtype=torch.float64)
    exact = [math.log(-math.expm1(v)) if v > -1 else math.log1p(-math.exp(v)) for v in x.tolist()]
    assert_close(log1mexp(x), torch.tensor(exact, dtype=torch.float64), rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(log1mexp, (x.requires_grad_(),), eps=1e-9, atol=1e-4, rtol=1e-3)
