"""pytorch-metric-learning as an oracle: where it computes the same quantity, the same value and gradient.

Where it does not, the last tests say so: they fail if the two ever agree, and the remark has to go.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    Angular,
    ArcFace,
    BatchHard,
    Circle,
    Contrastive,
    CosFace,
    EasyPositive,
    IntraPairVariance,
    LargeMarginSoftmax,
    Lifted,
    MarginLoss,
    MultiSimilarity,
    MultiSimilarityMiner,
    NCALoss,
    NormalizedSoftmax,
    NPair,
    P2SGrad,
    ProxyAnchor,
    ProxyNCA,
    ProxyNCAPlusPlus,
    RankedList,
    SoftTriple,
    SphereFace,
    SubCenterArcFace,
    ThresholdConsistentMargin,
    Triplet,
    TupletMargin,
)
from isometry.deep.functional import masks, unit
from tests.deep.batches import batch, gradient

pml = pytest.importorskip("pytorch_metric_learning", reason="the oracle is not installed")
from pytorch_metric_learning import distances, losses, miners, reducers  # noqa: E402

MEAN, SUM = reducers.MeanReducer(), reducers.SumReducer()
RAW = distances.LpDistance(normalize_embeddings=False)
RAW_SQUARED = distances.LpDistance(normalize_embeddings=False, power=2)
DOT = distances.DotProductSimilarity(normalize_embeddings=False)
PLAIN = {"distance": "euclidean", "normalize": False}


def seeded(make):
    torch.manual_seed(0)
    return make().double()


PAIRS = {
    # theirs is linear and adds the means of the two kinds of pairs
    "Contrastive": (
        lambda: losses.ContrastiveLoss(reducer=MEAN),
        lambda: Contrastive(squared_hinge=False, balanced=True, normalize=True),
    ),
    "Triplet": (
        lambda: losses.TripletMarginLoss(margin=0.2, distance=RAW),
        lambda: Triplet(0.2, **PLAIN),
    ),
    "Triplet, sum": (
        lambda: losses.TripletMarginLoss(margin=0.2, distance=RAW_SQUARED, reducer=SUM),
        lambda: Triplet(0.2, distance="sqeuclidean", normalize=False, reduction="sum"),
    ),
    "Triplet, soft": (
        lambda: losses.TripletMarginLoss(margin=0.0, smooth_loss=True, reducer=MEAN),
        lambda: Triplet("soft", distance="euclidean"),
    ),
    "Triplet, swap": (
        lambda: losses.TripletMarginLoss(margin=0.2, distance=RAW, swap=True),
        lambda: Triplet(0.2, swap=True, **PLAIN),
    ),
    "NCA": (lambda: losses.NCALoss(distance=RAW_SQUARED), lambda: NCALoss()),
    "NCA, scaled": (lambda: losses.NCALoss(softmax_scale=5), lambda: NCALoss(temperature=0.2, normalize=True)),
    "Lifted": (lambda: losses.LiftedStructureLoss(distance=RAW), lambda: Lifted()),
    "Lifted, generalised": (
        lambda: losses.GeneralizedLiftedStructureLoss(distance=RAW),
        lambda: Lifted(form="generalized"),
    ),
}


COSINE_PAIRS = {
    "multi-similarity": (lambda: losses.MultiSimilarityLoss(2, 50, 0.5), lambda: MultiSimilarity(eps=None)),
    "circle": (lambda: losses.CircleLoss(0.4, 20), lambda: Circle(0.4, 20.0)),
    "circle, faces": (lambda: losses.CircleLoss(0.25, 256), lambda: Circle(0.25, 256.0)),
    "tuplet margin": (
        lambda: losses.TupletMarginLoss(margin=math.degrees(0.1), scale=8),
        lambda: TupletMargin(scale=8.0, variance_weight=0),
    ),
    "noise to signal": (
        lambda: losses.SignalToNoiseRatioContrastiveLoss(neg_margin=2, reducer=MEAN),
        lambda: Contrastive(2.0, squared_hinge=False, balanced=True, distance="snr", normalize=True),
    ),
    "intra-pair variance": (lambda: losses.IntraPairVarianceLoss(), lambda: IntraPairVariance()),
    "threshold-consistent margin": (
        lambda: losses.ThresholdConsistentMarginLoss(2.0, 0.5, 0.8, 0.2),
        lambda: ThresholdConsistentMargin(0.8, 0.2, 2.0, 0.5),
    ),
}


@pytest.mark.parametrize("name", COSINE_PAIRS)
@pytest.mark.parametrize("seed", [0, 1])
def test_same_value_and_gradient_of_cosines(name, seed):
    theirs, ours = (make() for make in COSINE_PAIRS[name])
    z, y = batch(seed, n=14)[0], torch.arange(14) % 4
    assert_close(ours(z, y), theirs(z, y), rtol=1e-10, atol=1e-10)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-8, atol=1e-10)


@pytest.mark.filterwarnings("ignore:Values of Tp or Tn")
@pytest.mark.parametrize("seed", [0, 1])
def test_ranked_list(seed):
    """Theirs adds 1e-5 for each column to the sum of the weights."""
    theirs = losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2)
    ours = RankedList(detach_weights=False)
    z, y = batch(seed, n=14)[0], torch.arange(14) % 4
    assert_close(ours(z, y), theirs(z, y), rtol=1e-4, atol=0)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_multi_similarity_miner(seed):
    """The same pairs, for the anchors that keep both kinds; theirs also lists one kind of the others."""
    z, y = batch(seed, n=14, p=3)[0], torch.arange(14) % 4
    a1, p, a2, n = miners.MultiSimilarityMiner(epsilon=0.1)(z, y)
    both = set(a1.tolist()) & set(a2.tolist())
    pos, neg = MultiSimilarityMiner(0.1).select(-unit(z) @ unit(z).T, *masks(y, y, torch.arange(14)))
    for found, (a, b) in ((pos, (a1, p)), (neg, (a2, n))):
        assert {(i, j) for i, j in zip(a.tolist(), b.tolist()) if i in both} == set(
            map(tuple, found.nonzero().tolist())
        )
    mined = [losses.MultiSimilarityLoss(2, 50, 0.5)(z, y, (a1, p, a2, n)), MultiSimilarity()(z, y)]
    assert len(both) == 14
    assert_close(*mined, rtol=1e-10, atol=0)


@pytest.mark.parametrize("seed", [0, 1])
def test_proxy_anchor(seed):
    """A class that is not in the batch has a proxy that only pushes. Theirs adds 1e-12 to the weights of a miner."""
    z, y = batch(seed)
    y[y == 3] = 0
    theirs, ours = losses.ProxyAnchorLoss(4, 4).double(), seeded(lambda: ProxyAnchor(4, 4))
    theirs.proxies.data = ours.proxies.data.clone()
    assert_close(ours(z, y), theirs(z, y), rtol=1e-9, atol=0)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-8, atol=1e-9)
    assert_close(ours.proxies.grad, theirs.proxies.grad, rtol=1e-8, atol=1e-9)


def test_theirs_is_not_finite_where_ours_is():
    """Points on the axes: parallel to their own weights, and positive pairs that coincide; cosines are exactly 1."""
    y = torch.arange(12) % 4
    z, theirs, ours = torch.eye(4)[y], losses.ArcFaceLoss(4, 4), ArcFace(4, 4)
    ours.proxies.data = theirs.W.data = torch.eye(4)
    for pair in ((theirs, ours), (losses.TupletMarginLoss(), TupletMargin())):
        not_finite, finite = (gradient(loss, z, y) for loss in pair)
        assert finite.isfinite().all() and not not_finite.isfinite().all()


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("seed", [0, 1])
def test_same_value_and_gradient(name, seed):
    theirs, ours = (make() for make in PAIRS[name])
    z, y = batch(seed, n=14)
    y = torch.arange(14) % 4  # two or more of each class: theirs averages over lonely anchors too
    assert_close(ours(z, y), theirs(z, y), rtol=1e-6, atol=1e-8)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-5, atol=1e-7)


def test_generalised_lifted_leaves_lone_anchors_out_of_the_mean():
    """Of four classes two have one member: theirs counts those two anchors, with 0 in place of the empty sum."""
    z, y = unit(batch(0, n=8)[0]), torch.tensor([0, 0, 0, 1, 1, 1, 2, 3])
    D, ours = torch.cdist(z, z), Lifted(form="generalized")(z, y)
    terms = []
    for i in range(8):
        pos, neg = [j for j in range(8) if y[j] == y[i] and j != i], [j for j in range(8) if y[j] != y[i]]
        pull = torch.logsumexp(D[i, pos], 0) if pos else torch.zeros((), dtype=D.dtype)
        terms.append((pull + torch.logsumexp(1 - D[i, neg], 0)).relu())
    assert_close(ours, torch.stack(terms[:6]).mean(), rtol=1e-6, atol=1e-8)
    theirs = losses.GeneralizedLiftedStructureLoss(distance=RAW)(z, y)
    assert_close(theirs, torch.stack(terms).mean(), rtol=1e-6, atol=1e-8)


def test_n_pair_without_normalisation():
    z, y = batch(0)[0], torch.arange(12) % 6
    theirs, ours = losses.NPairsLoss(distance=DOT), NPair(pairs="one", l2_reg=0)
    assert_close(ours(z, y), theirs(z, y), rtol=1e-6, atol=1e-8)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-5, atol=1e-7)


def test_angular_on_unit_vectors():
    z, y = unit(batch(0)[0]), torch.arange(12) % 4
    assert_close(Angular(alpha=40)(z, y), losses.AngularLoss(alpha=40)(z, y), rtol=1e-6, atol=1e-8)


def test_proxy_nca_plus_plus():
    z, y = batch(0)
    theirs, ours = losses.ProxyNCALoss(4, 4, softmax_scale=9).double(), seeded(lambda: ProxyNCAPlusPlus(4, 4))
    theirs.proxies.data = ours.proxies.data.clone()
    assert_close(ours(z, y), theirs(z, y), rtol=1e-6, atol=1e-8)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-5, atol=1e-7)
    assert_close(ours.proxies.grad, theirs.proxies.grad, rtol=1e-5, atol=1e-7)


MARGINS = {
    "CosFace": (lambda: losses.CosFaceLoss(4, 4), lambda: CosFace(4, 4)),
    "normalised softmax": (lambda: losses.NormalizedSoftmaxLoss(4, 4), lambda: NormalizedSoftmax(4, 4)),
    "ArcFace": (lambda: losses.ArcFaceLoss(4, 4, margin=math.degrees(0.5)), lambda: ArcFace(4, 4)),
    "SphereFace": (lambda: losses.SphereFaceLoss(4, 4), lambda: SphereFace(4, 4)),
    "large margin": (lambda: losses.LargeMarginSoftmaxLoss(4, 4, margin=3), lambda: LargeMarginSoftmax(4, 4, margin=3)),
    "sub-centres": (
        lambda: losses.SubCenterArcFaceLoss(num_classes=4, embedding_size=4, margin=math.degrees(0.5)),
        lambda: SubCenterArcFace(4, 4),
    ),
}


def test_p2sgrad():
    """Theirs is a mean over batch and classes, without the ½; its weights have unit length to 1e-7."""
    z, y = batch(0)
    theirs, ours = losses.P2SGradLoss(4, 4).double(), seeded(lambda: P2SGrad(4, 4))
    theirs.weight.data = ours.proxies.data.T.clone()
    assert_close(ours(z, y), 2.0 * theirs(z, y), rtol=1e-6, atol=0)
    assert_close(gradient(ours, z, y), 2.0 * gradient(theirs, z, y), rtol=1e-5, atol=1e-6)


def test_outliers_of_sub_centres():
    z, y = batch(0, n=40)
    theirs = losses.SubCenterArcFaceLoss(num_classes=4, embedding_size=4).double()
    ours = seeded(lambda: SubCenterArcFace(4, 4))
    theirs.W.data = ours.proxies.detach().flatten(0, 1).T.clone()
    found, expected = ours.outliers(z, y), theirs.get_outliers(z, y)[0]
    assert 0 < len(found) < 40 and found.tolist() == sorted(expected.tolist())


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("seed", [0, 1])
def test_margin_softmax(name, seed):
    (z, y), (theirs, ours) = batch(seed), map(seeded, MARGINS[name])
    theirs.W.data = ours.proxies.detach().flatten(0, -2).T.clone()
    assert_close(ours(z, y), theirs(z, y), rtol=1e-10, atol=1e-10)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-8, atol=1e-10)
    assert_close(ours.proxies.grad.flatten(0, -2), theirs.W.grad.T, rtol=1e-8, atol=1e-10)


def test_soft_triple_without_the_regulariser_of_centres():
    z, y = batch(0)
    theirs, ours = losses.SoftTripleLoss(4, 4, centers_per_class=3).double(), seeded(lambda: SoftTriple(4, 4, 3, tau=0))
    theirs.fc.data = ours.centers.detach().flatten(0, 1).T.clone()
    assert_close(ours(z, y), theirs(z, y), rtol=1e-6, atol=1e-8)
    assert_close(gradient(ours, z, y), gradient(theirs, z, y), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda: miners.BatchHardMiner(distance=RAW), lambda: BatchHard()),
        (lambda: miners.BatchEasyHardMiner("easy", "hard", distance=RAW), lambda: EasyPositive("hard")),
        (lambda: miners.BatchEasyHardMiner("easy", "semihard", distance=RAW), lambda: EasyPositive("semihard")),
    ],
)
def test_same_triplets_mined(theirs, ours):
    z, y = batch(3)[0], torch.arange(12) % 4
    found = theirs()(z, y)
    a, p, n = found if len(found) == 3 else (found[0], found[1], found[3])
    D = (z[:, None] - z).square().sum(2).sqrt()
    pos, neg = ours().select(D, *masks(y, y, torch.arange(12)))
    expected = {(i, j, k) for i, j in pos.nonzero().tolist() for k in neg[i].nonzero().flatten().tolist()}
    assert set(zip(a.tolist(), p.tolist(), n.tolist())) == expected


def test_margin_loss_on_the_same_triplets():
    z, y = batch(0)[0], torch.arange(12) % 4
    mined = miners.BatchHardMiner()(z, y)
    theirs = losses.MarginLoss(margin=0.2, beta=1.2, learn_beta=True).double()
    ours = MarginLoss(miner=BatchHard()).double()
    assert_close(ours(z, y), theirs(z, y, mined), rtol=1e-6, atol=1e-8)
    theirs(z, y, mined).backward()
    ours(z, y).backward()
    assert_close(ours.beta.grad.squeeze(), theirs.beta.grad.squeeze(), rtol=1e-5, atol=1e-8)


def differs(ours, theirs):
    return abs(float(ours.detach()) - float(theirs.detach())) > 1e-3


def test_where_and_why_the_two_differ():
    z, y = batch(0)[0], torch.arange(12) % 4
    # Their N-pair loss normalises by default; the paper does not.
    assert differs(NPair(pairs="one", l2_reg=0)(z, y), losses.NPairsLoss()(z, y))
    # Their angular loss normalises anchors and positives but not negatives, so it depends on the scale of z.
    assert differs(losses.AngularLoss()(2 * z, y), losses.AngularLoss()(z, y))
    # Their Proxy-NCA has the positive proxy in the denominator: it is the ++ form.
    theirs, ours = losses.ProxyNCALoss(4, 4).double(), seeded(lambda: ProxyNCA(4, 4))
    theirs.proxies.data = ours.proxies.data.clone()
    assert differs(ours(z, y), theirs(z, y))
    assert_close(torch.nn.functional.softplus(ours(z[:1], y[:1])), theirs(z[:1], y[:1]), rtol=1e-6, atol=1e-8)
    # Their contrastive loss is linear in the distance and averages over non-zero terms.
    assert differs(Contrastive()(z, y), losses.ContrastiveLoss()(z, y))
