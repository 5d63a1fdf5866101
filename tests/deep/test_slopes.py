"""Accelerators of the losses, against autograd on their formulas: slopes, blocks, sums over triplets, lists of them."""

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    Angular,
    BatchHard,
    Circle,
    Contrastive,
    CrossBatchMemory,
    DecoupledContrastive,
    FisherTriplet,
    GeneralizedContrastive,
    InfoNCE,
    IntraPairVariance,
    MultiSimilarity,
    NCALoss,
    NPair,
    RandomTriplets,
    RankedList,
    RankNContrast,
    RatioTriplet,
    SoftTriple,
    SupCon,
    ThresholdConsistentMargin,
    Triplet,
    TripletGlobal,
    Tuplet,
)
from isometry.deep import slopes as module
from isometry.deep.functional import DISTANCES, masks
from isometry.deep.loss import Loss, TripletForm
from isometry.deep.losses.triplet import sum_over_triplets
from isometry.deep.slopes import blocks, in_blocks, of_triples, sparse
from isometry.registry import all_methods
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
    value = in_blocks(distance, z, refs, lambda rows, D: cubes(D))  # 12 rows are one block
    expected = cubes(DISTANCES[distance](z, refs))[0]
    assert_close(value, expected, rtol=1e-10, atol=1e-10)
    found, wanted = (torch.autograd.grad(v, inputs) for v in (value, expected))
    assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("own", [True, False])
def test_coincident_points_have_gradient_zero(own):
    z = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    refs = z if own else torch.ones(4, 2, dtype=torch.float64)
    in_blocks("euclidean", z, refs, lambda rows, D: (D.sum(), torch.ones_like(D))).backward()
    assert (z.grad == 0).all()


ACCELERATED = {
    "contrastive": lambda **o: Contrastive(**o),
    "contrastive, linear, balanced": lambda **o: Contrastive(2.0, 0.1, squared_hinge=False, balanced=True, **o),
    "contrastive, cosine": lambda **o: Contrastive(distance="cosine", **o),
    "generalised": lambda **o: GeneralizedContrastive(2.0, **o),
    "NCA": lambda **o: NCALoss(**o),
    "NCA, exp": lambda **o: NCALoss(form="exp", **o),
    "NCA, negatives": lambda **o: NCALoss(denominator="negatives", **o),
    "SoftTriple": lambda **o: SoftTriple(4, 4, 3, **o),
    "SoftTriple, sharp": lambda **o: SoftTriple(4, 4, 3, gamma=0.03, **o),
    "triplet": lambda **o: Triplet(0.7, **o),
    "triplet, sum": lambda **o: Triplet(0.7, distance="euclidean", normalize=False, reduction="sum", **o),
    "tuplet": lambda **o: Tuplet(0.7, **o),
}
ACCELERATED |= {
    "multi-similarity": lambda **o: MultiSimilarity(**{"eps": None, **o}),
    "multi-similarity, mined": lambda **o: MultiSimilarity(beta=5.0, **o),
    "circle": lambda **o: Circle(gamma=5.0, **o),
    "ranked list": lambda **o: RankedList(**o),
    "ranked list, through": lambda **o: RankedList(detach_weights=False, pos_temperature=2.0, **o),
    "variance": lambda **o: IntraPairVariance(0.05, **o),
    "threshold": lambda **o: ThresholdConsistentMargin(0.6, 0.1, **o),
    "InfoNCE": lambda **o: InfoNCE(0.3, **o),
    "InfoNCE, anchors": lambda **o: InfoNCE(0.3, "anchors", **o),
    "SupCon": lambda **o: SupCon(0.3, **o),
    "SupCon, in": lambda **o: SupCon(0.3, "in", **o),
    "SupCon, apart": lambda **o: SupCon(0.3, "apart", **o),
    "N-pair": lambda **o: NPair(**o),
    "N-pair, one, on the sphere, both ways": lambda **o: NPair("one", normalize=True, scale=3.0, symmetric=True, **o),
    "N-pair, all": lambda **o: NPair("all", **o),
    "decoupled": lambda **o: DecoupledContrastive(0.3, **o),
    "Rank-N-Contrast": lambda **o: RankNContrast(**o),
    "decoupled, weighted": lambda **o: DecoupledContrastive(0.3, weighted=True, **o),
}
MINABLE = [key for key in ACCELERATED if key.split(",")[0] not in ("generalised", "SoftTriple", "Rank-N-Contrast")]


def test_every_accelerated_loss_of_the_registry_is_compared_with_its_formula():
    kinds = {m.load() for m in all_methods(family="deep") if m.kind == "loss"}
    accelerated = {k for k in kinds if issubclass(k, Loss) and (k.accelerated or k.slopes is not Loss.slopes)}
    assert accelerated == {type(make()) for make in ACCELERATED.values()}
    assert all(make().accelerated for make in ACCELERATED.values())


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("key, mined", [*((k, False) for k in ACCELERATED), *((k, True) for k in MINABLE)])
def test_an_accelerator_gives_value_and_gradient_of_the_formula(key, mined, ties):
    """In embeddings and parameters; against labels, a matrix of similarities, and references, one an anchor itself."""
    (z, y), (refs, ref_y) = batch(3, ties=ties), batch(4, n=9)
    refs, ref_y, own = torch.cat([refs, z[:1]]), torch.cat([ref_y, y[:1]]), torch.full((12,), -1)
    own[0] = 9
    proxies = "SoftTriple" in key
    cases = [(z, y), (z, (y[:, None] == (torch.arange(4) if proxies else y)).double())]
    if not proxies:
        lonely = y.clone()
        lonely[4] = 17  # an anchor without a positive
        cases += [(z, lonely), (z, y, refs, ref_y, own)]
    for case in cases:
        found = []
        for accelerated in (True, False):
            torch.manual_seed(0)
            loss = ACCELERATED[key](**({"miner": RandomTriplets(2, random_state=0)} if mined else {})).double()
            loss.accelerated = accelerated
            u = case[0].clone().requires_grad_()
            value = loss(u, *case[1:])
            found.append((value.detach(), *torch.autograd.grad(value, [u, *loss.parameters()])))
        assert_close(found[0], found[1], rtol=1e-9, atol=1e-11)  # SoftTriple multiplies round-off by λ/γ, up to 700


TERMS = {
    "hinge": lambda d_ap, d_an: (d_ap - d_an + 0.7).relu(),
    "cubes": lambda d_ap, d_an: d_ap**3 * d_an,
    "three": lambda d_ap, d_an, d_pn: (d_ap * d_pn - d_an**2).relu(),
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("key", TERMS)
def test_the_sum_over_triplets_is_that_of_their_list(key, own):
    """Value, count, first and second derivatives; one row has no positive, and one no negative."""
    term, (z, y), (refs, ref_y) = TERMS[key], batch(3), batch(4, n=9)
    D, D_refs = DISTANCES["euclidean"](z, z if own else refs), DISTANCES["euclidean"](*[z if own else refs] * 2)
    pos, neg = masks(y, y if own else ref_y, torch.arange(12) if own else None)
    pos[2], neg[5] = False, False
    a, p, n = (pos[:, :, None] & neg[:, None]).nonzero(as_tuple=True)
    matrices = [D.requires_grad_(), D_refs.requires_grad_()][: 2 if key == "three" else 1]
    listed = term(*(D[a, p], D[a, n], D_refs[p, n])[: len(matrices) + 1])
    total, above_zero = sum_over_triplets(term, D, pos, neg, *matrices[1:])
    assert_close(total, listed.sum(), rtol=1e-12, atol=0)
    assert above_zero == (listed > 0).sum()
    slopes = [torch.autograd.grad(value, matrices, create_graph=True) for value in (total, listed.sum())]
    assert_close(slopes[0], slopes[1], rtol=1e-10, atol=1e-12)
    second = [torch.autograd.grad(sum(s.sin().sum() for s in first), matrices, allow_unused=True) for first in slopes]
    assert_close(*([torch.zeros(()) if s is None else s for s in order] for order in second), rtol=1e-9, atol=1e-10)


OF_TRIPLETS = {
    "triplet": lambda: Triplet(0.7),
    "triplet, soft": lambda: Triplet("soft"),
    "triplet, swap": lambda: Triplet(0.7, swap=True),
    "tuplet": lambda: Tuplet(0.7),
    "ratio": lambda: RatioTriplet(),
    "angular": lambda: Angular(36, "triplet"),
    "global": lambda: TripletGlobal(),
    "Fisher": lambda: FisherTriplet(),
}


@pytest.mark.parametrize("key", OF_TRIPLETS)
def test_a_batch_of_triplets_is_the_list_of_them(key):
    """The formula of a triplet loss stands in ``triplet_loss``; what sums up a batch in another way gives the same."""
    z, y = batch(3)
    loss = OF_TRIPLETS[key]()
    i = torch.arange(12)
    pos, neg = masks(y, y, i)
    a, p, n = (pos[:, :, None] & neg[:, None]).nonzero(as_tuple=True)
    assert_close(loss(z, y), loss.triplets(z, (a, p, n)), rtol=1e-10, atol=0)
    assert_close(loss.triplets(z[a], z[p], z[n]), loss.triplets(z, (a, p, n)), rtol=1e-12, atol=0)
    assert_close(gradient(loss, z, y), gradient(lambda u: loss.triplets(u, (a, p, n)), z), rtol=1e-9, atol=1e-11)
    D = loss.distances(z, z)
    listed = TripletForm.loss(loss, D, pos, neg, D if loss.uses_pn else None)
    assert_close(listed, loss.triplets(z, (a, p, n)), rtol=1e-10, atol=0)


@pytest.mark.parametrize("key", OF_TRIPLETS)
def test_triplets_of_a_miner_are_the_loss_of_their_list(key):
    (z, y), (refs, ref_y) = batch(3), batch(4, n=9)
    loss = OF_TRIPLETS[key]()
    loss.miner = RandomTriplets(2, random_state=0)
    chosen = RandomTriplets(2, random_state=0).triples(loss.distances(z, refs), *masks(y, ref_y))
    assert_close(loss(z, y, refs, ref_y), loss.triplets(z, chosen, refs), rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="the negatives are missing"):
        loss.triplets(z, z)


LOSSES = {
    "contrastive": lambda: Contrastive(),
    "contrastive, linear, balanced": lambda: Contrastive(2.0, 0.1, squared_hinge=False, balanced=True),
    "generalised": lambda: GeneralizedContrastive(2.0),
    "NCA": lambda: NCALoss(),
    "NCA, exp": lambda: NCALoss(form="exp"),
    "NCA, negatives": lambda: NCALoss(denominator="negatives"),
    "SoftTriple": lambda: SoftTriple(4, 4, 3),
    "circle": lambda: Circle(gamma=5.0),
    "multi-similarity": lambda: MultiSimilarity(eps=None),
    "ranked list": lambda: RankedList(),
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
