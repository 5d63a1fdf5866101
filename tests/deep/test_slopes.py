"""Losses with slopes of their own: blocks, products and lists of triplets against autograd on the whole matrix."""

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    BatchHard,
    Contrastive,
    CrossBatchMemory,
    GeneralizedContrastive,
    NCALoss,
    SoftTriple,
    Triplet,
)
from isometry.deep import slopes as module
from isometry.deep.functional import DISTANCES, masks
from isometry.deep.slopes import blocks, of_distances, of_triples, sparse
from tests.deep.batches import batch, gradient


def cubes(D):
    """A function whose slopes differ from pair to pair: Σ w D³."""
    w = torch.arange(D.numel(), dtype=D.dtype).view_as(D).sin()
    return (w * D**3).sum(), 3 * w * D**2


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("distance", DISTANCES)
def test_value_and_gradient_are_those_of_autograd(distance, own):
    z, refs = batch(0)[0].requires_grad_(), batch(1, n=7)[0].requires_grad_()
    refs = z if own else refs
    inputs = (z,) if own else (z, refs)
    value = of_distances(distance, z, refs, lambda rows, D: cubes(D), whole=True)
    expected = cubes(DISTANCES[distance](z, refs))[0]
    assert_close(value, expected, rtol=1e-10, atol=1e-10)
    found, wanted = (torch.autograd.grad(v, inputs) for v in (value, expected))
    assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("own", [True, False])
def test_coincident_points_have_gradient_zero(own):
    z = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    refs = z if own else torch.ones(4, 2, dtype=torch.float64)
    of_distances("euclidean", z, refs, lambda rows, D: (D.sum(), torch.ones_like(D))).backward()
    assert (z.grad == 0).all()


LOSSES = {
    "contrastive": lambda: Contrastive(),
    "contrastive, linear, balanced": lambda: Contrastive(2.0, 0.1, squared_hinge=False, balanced=True),
    "generalised": lambda: GeneralizedContrastive(2.0),
    "NCA": lambda: NCALoss(),
    "NCA, exp": lambda: NCALoss(form="exp"),
    "NCA, negatives": lambda: NCALoss(denominator="negatives"),
    "SoftTriple": lambda: SoftTriple(4, 4, 3),
}


@pytest.mark.parametrize("key", LOSSES)
def test_blocks_of_anchors_change_nothing(key, monkeypatch):
    """At most 5 rows of 12 at a time, the anchor itself in another column in each block."""
    torch.manual_seed(0)
    loss, (z, y) = LOSSES[key]().double(), batch(3)
    y[4] = 17 if key != "SoftTriple" else y[4]  # an anchor without a positive
    whole = loss(z, y), gradient(loss, z, y)
    monkeypatch.setattr(module, "BLOCK", 1)
    monkeypatch.setattr(module, "MIN_ROWS", 5)
    assert [(b.start, b.stop) for b in blocks(12, 12)] == [(0, 4), (4, 8), (8, 12)]
    assert [(b.start, b.stop) for b in blocks(11, 12)] == [(0, 4), (4, 8), (8, 11)] and list(blocks(0, 12)) == []
    assert_close((loss(z, y), gradient(loss, z, y)), whole, rtol=1e-12, atol=1e-14)


def test_blocks_of_coincident_points(monkeypatch):
    """Distances that a product cannot resolve are recomputed in the rows they belong to."""
    z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)) + 50
    z[7] = z[2] + 1e-4
    y = torch.tensor([0, 1, 2] * 3)
    expected = Contrastive()(z.double(), y)
    monkeypatch.setattr(module, "BLOCK", 1)
    monkeypatch.setattr(module, "MIN_ROWS", 4)
    assert_close(Contrastive()(z, y).double(), expected, rtol=1e-5, atol=0)
    assert_close(gradient(Contrastive(), z, y).double(), gradient(Contrastive(), z.double(), y), rtol=1e-3, atol=1e-5)


def test_references_without_gradient_get_none():
    """A queue of past embeddings is constant; the anchors' gradient does not change by that."""
    (z, y), (refs, ref_y) = batch(0), batch(1)
    loss = Contrastive()
    with_graph = refs.clone().requires_grad_()
    both = z.clone().requires_grad_()
    loss(both, y, with_graph, ref_y).backward()
    assert_close(both.grad, gradient(loss, z, y, refs, ref_y), rtol=1e-12, atol=0)
    assert_close(with_graph.grad, gradient(lambda r: loss(z, y, r, ref_y), refs), rtol=1e-12, atol=0)
    memory = CrossBatchMemory(Contrastive(), 4, 64).double()
    memory(z, y)
    assert_close(
        gradient(memory.eval(), z, y), gradient(loss, z, y) + gradient(loss, z, y, z, y, None), rtol=1e-9, atol=1e-12
    )


def test_nothing_is_kept_when_no_gradient_is_asked_for():
    z, y = batch(0)
    with torch.no_grad():
        assert not Contrastive()(z, y).requires_grad
    assert Contrastive()(z.requires_grad_(), y).requires_grad


@pytest.mark.parametrize("distance", DISTANCES)
def test_chosen_triplets_equal_entries_of_the_matrix(distance):
    z, y = batch(0)
    pos, neg = masks(y, y, torch.arange(12))

    def chosen(u):
        d_ap, d_an, *_ = of_triples(distance, u, u, lambda D: BatchHard().triples(D, pos, neg))
        return (d_ap**2 - d_ap * d_an).sum()

    def indexed(u):
        D = DISTANCES[distance](u, u)
        a, p, n = BatchHard().triples(D.detach(), pos, neg)
        return (D[a, p] ** 2 - D[a, p] * D[a, n]).sum()

    assert_close(chosen(z), indexed(z), rtol=1e-12, atol=0)
    assert_close(gradient(chosen, z), gradient(indexed, z), rtol=1e-10, atol=1e-10)


def test_values_at_the_same_place_of_a_sparse_matrix_add_up():
    i, j, v = torch.tensor([0, 1, 0]), torch.tensor([2, 0, 2]), torch.tensor([1.0, 2.0, 3.0])
    assert sparse(i, j, v, 2, 3).to_dense().tolist() == [[0, 0, 4], [2, 0, 0]]


def test_memory_of_a_pair_loss_is_that_of_a_block():
    """Beside masks of one byte an entry, nothing as large as (B, R) is built."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.is_floating_point():
                Largest.size = max(Largest.size, out.numel())
            return out

    z, y = torch.randn(2048, 2, generator=torch.Generator().manual_seed(0)), torch.arange(2048) % 512
    with Largest():
        Contrastive()(z.requires_grad_(), y).backward()
    assert Largest.size == module.BLOCK == 2048 * 2048 / 8


def test_triplets_without_any_candidate_are_a_zero_that_backpropagates():
    z, y = batch(0)
    assert (gradient(Triplet(miner=BatchHard()), z, y * 0) == 0).all()
