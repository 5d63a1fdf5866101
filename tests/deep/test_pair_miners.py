"""Miners by a rule, E46, beside loops over pairs and triplets, and the peer's lists of indices."""

import itertools
import math

import pytest
import torch
from scipy.stats import chisquare
from torch.testing import assert_close

from isometry.deep import (
    HDC,
    AngularMiner,
    AtMost,
    BatchHard,
    Contrastive,
    CrossBatchMemory,
    EasyPositive,
    InRange,
    NCALoss,
    Overlap,
    PairMargin,
    Ranked,
    Triplet,
    TripletMargin,
    UniformHistogram,
)
from isometry.deep.functional import masks, unit
from isometry.registry import all_methods
from tests.deep.batches import batch, gradient, of_anchor, triples

MINERS = {m.name: m.example for m in all_methods(family="deep", kind="miner") if m.key.startswith("E46")}


def compared(seed=0, n=12):
    z, y = unit(batch(seed, n=n)[0]), torch.arange(n) % 4
    D = (z[:, None] - z).square().sum(2).sqrt()
    return z, y, D, *masks(y, y, torch.arange(n))


def as_set(mask):
    return {(i, j) for i, j in mask.nonzero().tolist()}


def test_pairs_by_loops():
    _, y, D, pos, neg = compared()
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    P, N = [(i, j) for i, j in pairs if y[i] == y[j]], [(i, j) for i, j in pairs if y[i] != y[j]]
    found = [
        tuple(map(as_set, m.select(D, pos, neg))) for m in (PairMargin(0.9, 1.1), Overlap(), HDC(0.3), Ranked(1, 3))
    ]
    assert found[0] == ({t for t in P if D[t] > 0.9}, {t for t in N if D[t] < 1.1})
    near, far = min(D[t] for t in N), max(D[t] for t in P)
    assert found[1] == ({t for t in P if D[t] > near}, {t for t in N if D[t] < far})
    farthest = sorted(P, key=lambda t: -D[t])[: math.ceil(0.3 * len(P))]
    nearest = sorted(N, key=lambda t: D[t])[: math.ceil(0.3 * len(N))]
    assert {float(D[t]) for t in found[2][0]} == {float(D[t]) for t in farthest}
    assert {float(D[t]) for t in found[2][1]} == {float(D[t]) for t in nearest}
    ranked = [of_anchor(y, i) for i in range(12)]
    assert found[3][0] == {(i, max(p, key=lambda j: D[i, j])) for i, (p, _) in enumerate(ranked)}
    assert found[3][1] == {(i, j) for i, (_, n) in enumerate(ranked) for j in sorted(n, key=lambda j: D[i, j])[:3]}


RULES = {
    "all": lambda z, D, a, p, n: D[a, n] - D[a, p] <= 0.3,
    "hard": lambda z, D, a, p, n: D[a, n] - D[a, p] <= 0,
    "semihard": lambda z, D, a, p, n: 0 < D[a, n] - D[a, p] <= 0.3,
    "easy": lambda z, D, a, p, n: D[a, n] - D[a, p] > 0.3,
    "angle": lambda z, D, a, p, n: math.degrees(math.atan(D[a, p] / (2 * (z[n] - (z[a] + z[p]) / 2).norm()))) > 35,
}


@pytest.mark.parametrize("kind", RULES)
def test_triplets_by_loops(kind):
    z, y, D, pos, neg = compared()
    miner = AngularMiner(35) if kind == "angle" else TripletMargin(0.3, kind)
    expected = {t for t in triples(y) if RULES[kind](z, D, *t)}
    assert expected and set(zip(*(x.tolist() for x in miner.triples(D, pos, neg)))) == expected
    chosen = tuple(map(as_set, miner.select(D, pos, neg)))
    assert chosen == ({(a, p) for a, p, _ in expected}, {(a, n) for a, _, n in expected})


def test_evenly_over_distances():
    _, _, D, pos, neg = compared(n=40)
    kept = UniformHistogram(5, 3, random_state=0).select(D, pos, neg)
    for chosen, given in zip(kept, (pos, neg)):
        assert not (chosen & ~given).any()
        d, edges = D[given], torch.linspace(float(D[given].min()), float(D[given].max()), 6, dtype=torch.float64)
        for low, high in itertools.pairwise(edges):
            inside = given & (low + 1e-9 < D) & (high - 1e-9 > D)
            assert int((chosen & inside).sum()) <= 3 and (int(inside.sum()) < 3 or (chosen & inside).any())
        assert chosen.sum() <= 15 and len(d)


@pytest.mark.parametrize("inner", [None, "triplets"])
def test_at_most_so_many_uniformly(inner):
    _, _, D, pos, neg = compared()
    miner = AtMost(TripletMargin(9.0) if inner else None, 2, random_state=0)
    assert miner.gives_triples == bool(inner)
    seen = torch.zeros(12, 12)
    for _ in range(300):
        chosen = miner.select(D, pos, neg)
        assert all((x.sum(1) <= 2).all() and not (x & ~m).any() for x, m in zip(chosen, (pos, neg)))
        seen += chosen[1]
    counts = [seen[i, of_anchor(torch.arange(12) % 4, i)[1]].numpy() for i in range(12)]
    assert min(chisquare(c).pvalue for c in counts) > 1e-4  # 12 tests
    if inner:
        a, *_ = miner.triples(D, pos, neg)
        assert (a.bincount() == 2).all()


def test_a_range_narrows_what_another_miner_sees():
    z, y, D, pos, neg = compared()
    chosen = InRange(None, (0.8, 1.6), (0.9, 1.5)).select(D, pos, neg)
    assert_close(chosen[0], pos & (D >= 0.8) & (D <= 1.6))
    assert_close(chosen[1], neg & (D >= 0.9) & (D <= 1.5))
    a, p, n = InRange(BatchHard(), (0.8, 1.6), (0.9, 1.5)).triples(D, pos, neg)
    assert len(a) and chosen[0][a, p].all() and chosen[1][a, n].all()
    assert Triplet(miner=InRange(BatchHard(), neg=(0.5, 3)))(z, y).isfinite()


def test_a_resumed_draw_is_the_same():
    z, y, *_ = compared()
    for make in (lambda: AtMost(t=1, random_state=5), lambda: UniformHistogram(3, 1, random_state=5)):
        loss = NCALoss(miner=make())
        loss(z, y)
        state = loss.state_dict()
        expected = loss(z, y)
        resumed = NCALoss(miner=make())
        resumed.load_state_dict(state)
        assert_close(resumed(z, y), expected, rtol=0, atol=0)


def test_a_triplet_loss_takes_the_listed_triplets():
    z, y, D, pos, neg = compared()
    miner = TripletMargin(0.3, "semihard")
    loss = Triplet(0.3, distance="euclidean", miner=miner)
    listed = Triplet(0.3, distance="euclidean").triplets(z, miner.triples(D, pos, neg))
    assert_close(loss(z, y), listed, rtol=1e-10, atol=0)
    everything = Triplet(0.3, distance="euclidean", miner=TripletMargin(0.3))
    assert_close(everything(z, y), Triplet(0.3, distance="euclidean")(z, y), rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", MINERS)
def test_nothing_to_choose_from(name):
    z, y = unit(batch(0)[0]), torch.arange(12) % 4
    for labels in (y * 0, torch.arange(12), y[:1], y[:0]):
        loss = Contrastive(miner=MINERS[name](), normalize=True)
        assert gradient(loss, z[: len(labels)], labels).isfinite().all()
    loss = Contrastive(miner=MINERS[name](), normalize=True)
    assert loss(z, y).isfinite() and (name == "AngularMiner" or CrossBatchMemory(loss, 4, 20).double()(z, y).isfinite())


def test_the_angle_needs_one_batch():
    z, y, *_ = compared()
    loss = Contrastive(miner=AngularMiner(), normalize=True)
    with pytest.raises(ValueError, match="the references must be the batch itself"):
        loss(z, y, z.flip(0), y.flip(0))
    with pytest.raises(ValueError, match="AngularMiner works on Euclidean distances between unit vectors"):
        Contrastive(miner=AngularMiner())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HDC(0), r"share=0 must lie in \(0, 1\]"),
        (lambda: HDC(1.5), r"share=1.5 must lie in \(0, 1\]"),
        (lambda: AngularMiner(90), r"angle must lie in \(0, 90\) degrees, got 90"),
        (lambda: TripletMargin(kind="x"), "kind"),
        (lambda: Ranked(0), "n_pos must be at least 1, got 0"),
        (lambda: InRange(pos=(1, 1)), r"pos must be \(low, high\) with low < high, got \(1, 1\)"),
        (lambda: AtMost(t=0), "t must be at least 1, got 0"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


PEERS = {
    "PairMargin": (lambda m: m.PairMarginMiner(0.9, 1.1), lambda: PairMargin(0.9, 1.1)),
    "HDC": (lambda m: m.HDCMiner(0.3), lambda: HDC(0.3)),
    "Angular": (lambda m: m.AngularMiner(35), lambda: AngularMiner(35)),
    "InRange": (
        lambda m: m.BatchEasyHardMiner("easy", "hard", allowed_pos_range=(0.8, 1.6), allowed_neg_range=(0.9, 1.5)),
        lambda: InRange(EasyPositive("hard"), (0.8, 1.6), (0.9, 1.5)),
    ),
    "AtMost": (lambda m: m.BatchHardMiner(), lambda: AtMost(BatchHard(), 5)),
    **{
        kind: (lambda m, k=kind: m.TripletMarginMiner(0.3, k), lambda k=kind: TripletMargin(0.3, k))
        for kind in ("all", "hard", "semihard", "easy")
    },
}


@pytest.mark.parametrize("name", PEERS)
def test_same_pairs_as_the_peer(name):
    miners = pytest.importorskip("pytorch_metric_learning.miners", reason="the oracle is not installed")
    theirs, ours = PEERS[name][0](miners), PEERS[name][1]()
    z, y, D, pos, neg = compared(3)
    found = [x.tolist() for x in theirs(z, y)]
    a1, p, a2, n = found if len(found) == 4 else (found[0], found[1], found[0], found[2])
    chosen = [as_set(m) for m in ours.select(D, pos, neg)]
    if name == "HDC":  # of two equal pairs either may be the last
        for c, pair in zip(chosen, ((a1, p), (a2, n))):
            assert sorted(float(D[t]) for t in c) == pytest.approx(sorted(float(D[t]) for t in zip(*pair)))
    else:
        assert chosen == [set(zip(a1, p)), set(zip(a2, n))]
