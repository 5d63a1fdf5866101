"""VICReg, Barlow twins and MMCR, E29, beside their equations written with loops."""

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import MMCR, BarlowTwins, VICReg
from isometry.deep.losses.redundancy import squares_off_the_diagonal
from tests.deep.batches import A, batch, close, gradient


def test_E29_toy_values():
    close(VICReg()(A, A[[1, 0, 3, 2]]), 88.388889)
    close(BarlowTwins()(A, A[[1, 0, 3, 2]]), 4.564444)


def slow_vicreg(a, b):
    n, p = a.shape
    value = 25 * (a - b).square().sum() / (n * p)
    for z in (a, b):
        cov = sum(torch.outer(x - z.mean(0), x - z.mean(0)) for x in z) / (n - 1)
        value = value + 12.5 * sum((1 - (cov[k, k] + 1e-4).sqrt()).relu() for k in range(p)) / p
        value = value + sum(cov[k, m] ** 2 for k in range(p) for m in range(p) if k != m) / p
    return value


def slow_barlow(a, b):
    (n, p), units = a.shape, []
    for z in (a, b):
        units.append((z - z.mean(0)) / (z - z.mean(0)).square().mean(0).sqrt())
    c = sum(torch.outer(x, y) for x, y in zip(*units)) / n
    return sum((1 - c[k, k]) ** 2 if k == m else 0.005 * c[k, m] ** 2 for k in range(p) for m in range(p))


@pytest.mark.parametrize(("ours", "slow"), [(VICReg, slow_vicreg), (BarlowTwins, slow_barlow)])
@pytest.mark.parametrize("p", [3, 20])  # by the matrix of coordinates, and by that of samples
def test_E29_is_its_loop(ours, slow, p):
    a, b = batch(0, p=p)[0] / 2, batch(1, p=p)[0]
    assert_close(ours()(a, b), slow(a, b), rtol=1e-10, atol=1e-12)
    assert_close(gradient(ours(), a, b), gradient(slow, a, b), rtol=1e-9, atol=1e-11)
    assert_close(gradient(lambda b: ours()(a, b), b), gradient(lambda b: slow(a, b), b), rtol=1e-9, atol=1e-11)
    order = torch.randperm(p, generator=torch.Generator().manual_seed(0))
    assert_close(ours()(a[:, order], b[:, order]), ours()(a, b), rtol=1e-10, atol=0)


def test_E29_whitened_equal_views_cost_nothing():
    z = torch.linalg.qr(batch(0)[0] - batch(0)[0].mean(0)).Q
    z = (z - z.mean(0)) * 12**0.5
    close(VICReg()(z, z), 0.0, 1e-9)
    close(BarlowTwins()(z, z), 0.0, 1e-9)


def test_E29_a_constant_coordinate_has_correlation_zero():
    a, b = batch(0)[0], batch(1)[0]
    a[:, 1] = 1 / 3
    rest = [0, 2, 3]
    assert_close(
        BarlowTwins()(a, b), 1 + BarlowTwins()(a[:, rest], b[:, rest]) + 0.005 * cross(a, b), rtol=1e-9, atol=0
    )
    assert gradient(BarlowTwins(), a, b).isfinite().all()


def cross(a, b):
    """Squared correlations of the other coordinates of a with coordinate 1 of b."""
    u, v = ((z - z.mean(0)) / (z - z.mean(0)).square().mean(0).sqrt().clamp_min(1e-9) for z in (a, b))
    return sum(((u[:, k] * v[:, 1]).mean()) ** 2 for k in (0, 2, 3))


@pytest.mark.parametrize("p", [3, 9])
def test_squares_off_the_diagonal(p):
    a, b = batch(0, n=6, p=p)[0], batch(1, n=6, p=p)[0]
    M = (a.T @ b).fill_diagonal_(0)
    assert_close(squares_off_the_diagonal(a, b), M.square().sum(), rtol=1e-10, atol=0)


def test_E29_same_as_the_peer():
    losses = pytest.importorskip("pytorch_metric_learning.losses", reason="the oracle is not installed")
    reducers = pytest.importorskip("pytorch_metric_learning.reducers")
    theirs = losses.VICRegLoss(reducer=reducers.MeanReducer())
    a, b = batch(0)[0] / 2, batch(1)[0] / 2
    assert_close(VICReg()(a, b), theirs(a, ref_emb=b), rtol=1e-10, atol=0)
    peer = gradient(lambda a: theirs(a, ref_emb=b), a)
    assert_close(gradient(VICReg(), a, b), peer, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("size", [1e-30, 1e-20, 1e15, 1e30, 1e38])
def test_E29b_correlations_do_not_depend_on_the_size_of_the_embeddings(size):
    """Squares of such numbers are 0 or infinite in float32."""
    a, b = (batch(k, n=8)[0].float() for k in range(2))
    a, b = a / a.abs().max(), b / b.abs().max()
    far = [(size * z).requires_grad_() for z in (a, b)]
    value = BarlowTwins()(*far)
    assert_close(value, BarlowTwins()(a, b), rtol=1e-5, atol=0)
    value.backward()
    near = [z.clone().requires_grad_() for z in (a, b)]
    BarlowTwins()(*near).backward()
    for z, w in zip(far, near, strict=True):
        assert z.grad.isfinite().all()
        assert_close(z.grad.double() * size, w.grad.double(), rtol=1e-4, atol=1e-6)


def slow_mmcr(*views, weight=0.005):
    """Singular values as roots of the eigenvalues of Gram matrices, sample by sample."""
    views = [torch.stack([x / x.square().sum().sqrt() for x in z]) for z in views]

    def size(M):
        G = M @ M.T if len(M) <= M.shape[1] else M.T @ M
        return torch.linalg.eigvalsh(G).clamp_min(0).sqrt().sum()

    means = torch.stack([sum(z[i] for z in views) / len(views) for i in range(len(views[0]))])
    each = [size(torch.stack([z[i] for z in views])) for i in range(len(views[0]))]
    return weight * sum(each) / len(each) - size(means)


@pytest.mark.parametrize(("n", "p", "k"), [(12, 3, 2), (5, 20, 2), (6, 6, 3)])
@pytest.mark.parametrize("weight", [0, 0.005, 1.0])
def test_E29m_is_its_loop(n, p, k, weight):
    views = [batch(j, n=n, p=p)[0] + 0.3 for j in range(k)]
    ours, slow = MMCR(weight), lambda *zs: slow_mmcr(*zs, weight=weight)
    assert_close(ours(*views), slow(*views), rtol=1e-9, atol=1e-10)
    assert_close(gradient(ours, *views), gradient(slow, *views), rtol=1e-7, atol=1e-9)


def test_E29m_is_least_for_equal_views_that_are_orthogonal():
    """n unit vectors have a nuclear norm of n at most, which they have if they are orthogonal: C = Z, σ = 1."""
    z = torch.eye(4).double()
    close(MMCR(0)(z, 3 * z), -4.0, 1e-12)
    close(MMCR(0.5)(z, z), 0.5 * 2**0.5 - 4.0, 1e-12)  # two equal unit rows have the singular values √2 and 0
    for seed in range(5):
        a, b = (batch(seed + j, n=4)[0] for j in (0, 10))
        assert MMCR(0)(a, b) > -4
    assert_close(MMCR()(a, b), MMCR()(2 * a, 5 * b), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="weight=-1 must"):
        MMCR(-1)
