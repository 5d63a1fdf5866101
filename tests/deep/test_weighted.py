"""Weights of anchors, values of each anchor, and ranges of terms, for every loss that is one mean over its terms."""

import math

import pytest
import torch
from torch.testing import assert_close

from isometry.deep import (
    AdaFace,
    ArcFace,
    BatchHard,
    ClassWeighted,
    Contrastive,
    CosFace,
    DecoupledContrastive,
    HistogramLoss,
    InfoNCE,
    MagFace,
    NormalizedSoftmax,
    ProxyNCA,
    ProxyNCAPlusPlus,
    RandomTriplets,
    SampledSoftmax,
    SoftTriple,
    SphereFace,
    SupCon,
    Threshold,
    ThresholdConsistentMargin,
    Triplet,
    TupletMargin,
)
from isometry.deep.loss import LabelLoss, Loss
from isometry.registry import all_methods
from tests.deep.batches import batch, gradient

SPLIT = {  # those of the table that are one mean over terms of anchors, as their rows build them
    *("D14r", "D16", "D17", "D18", "D19", "D21", "D22", "D23", "D24", "D35", "D45"),
    *("E01", "E01n", "E02", "E03", "E03l", "E04", "E04d", "E05", "E06", "E07", "E07e", "E13", "E14", "E17"),
    *("E20", "E20p", "E21", "E22", "E23", "E24", "E25", "E26", "E27", "E28", "E39", "E40", "E44"),
}
ROWS = {m.key: m.example for m in all_methods(family="deep", kind="loss")}
VARIANTS = {
    "D18 soft": lambda: Triplet("soft"),
    "D18 mean": lambda: Triplet(0.6, reduction="mean"),
    "D18 hard": lambda: Triplet(0.6, miner=BatchHard()),
    "D18 listed": lambda: Triplet(0.6, miner=RandomTriplets(2, random_state=0)),
    "D21 negatives": lambda: ROWS["D21"](denominator="negatives"),
    "D27 plain": lambda: SoftTriple(4, 4, tau=0),
    "E01 weighted": lambda: CosFace(4, 4, class_weight=torch.tensor([1.0, 2.0, 3.0, 4.0])),
    "E02 categories": lambda: ArcFace(4, 4, scale=8.0, label_smoothing=0.2, categories=(0, 0, 1, 0)),
    "E15 alone": lambda: TupletMargin(variance_weight=0),
    "E25 anchors": lambda: InfoNCE(0.3, "anchors"),
    "E26 in": lambda: SupCon(form="in"),
    "E26 apart": lambda: SupCon(form="apart"),
}
ALL = {key: ROWS[key] for key in ROWS if key in SPLIT} | VARIANTS
OF_BATCH = {"E05", "E07"}  # their margins depend on lengths or cosines of the whole batch
DRAWN = {"D18 listed"}


def made(key):
    torch.manual_seed(0)
    return ALL[key]().double().eval()


def data(n=11):
    """A batch with classes of different sizes and a class of one sample."""
    z, _ = batch(7, n=n)
    return z, torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3][:n])


@pytest.mark.parametrize("key", ALL)
def test_weights_of_one_change_nothing(key):
    (z, y), weight = data(), torch.full((11,), 3.0, dtype=torch.float64)
    assert_close(made(key)(z, y, weight=weight), made(key)(z, y), rtol=1e-12, atol=1e-14)
    slope, plain = gradient(lambda u: made(key)(u, y, weight=weight), z), gradient(lambda u: made(key)(u, y), z)
    assert_close(slope, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("key", [k for k in ALL if k not in OF_BATCH | DRAWN])
def test_a_whole_weight_repeats_the_anchor(key):
    """Against the same references: an anchor of weight 3 is there three times, one of weight 0 is not."""
    (z, y), loss = data(), made(key)
    times = torch.tensor([1, 0, 3, 1, 2, 0, 1, 4, 1, 1, 2])
    rows = torch.arange(len(z)).repeat_interleave(times)
    if isinstance(loss, LabelLoss) or hasattr(loss, "proxies") or key.startswith("D27"):
        repeated = loss(z[rows], y[rows])
    else:
        repeated = loss(z[rows], y[rows], z, y, rows)
    assert_close(loss(z, y, weight=times), repeated, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("key", [k for k in ALL if k not in OF_BATCH | DRAWN])
def test_each_anchor_by_itself(key):
    (z, y), loss = data(), made(key)
    values = loss.per_anchor(z, y)
    assert values.shape == (11,)
    for i in range(len(z)):
        one = slice(i, i + 1)
        if isinstance(loss, LabelLoss) or hasattr(loss, "proxies") or key.startswith("D27"):
            alone = loss(z[one], y[one])
        else:
            alone = loss(z[one], y[one], z, y, torch.tensor([i]))
        assert_close(values[i], alone, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("key", [k for k in ALL if k not in OF_BATCH | DRAWN | {"E14", "E17", "E24"}])
def test_gradients_of_weighted_losses(key):
    (z, y), weight = data(), torch.linspace(0, 2, 11, dtype=torch.float64)
    loss = made(key)
    assert torch.autograd.gradcheck(lambda u: loss(u, y, weight=weight), z.requires_grad_(), eps=1e-7, atol=1e-5)


def test_values_by_hand():
    """Contrastive loss of points 0, 1, 3 on a line with margin 4: ½d² for the similar pair, ½(4 − d)² for others."""
    z, y = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64), torch.tensor([0, 0, 1])
    loss = Contrastive(4.0)
    similar, (far, near) = 0.5, (0.5 * 1, 0.5 * 4)
    assert_close(loss.per_anchor(z, y).tolist(), [(similar + far) / 2, (similar + near) / 2, (far + near) / 2])
    sums, w = (similar + far, similar + near, far + near), (1.0, 2.0, 5.0)
    wanted = sum(a * b for a, b in zip(w, sums)) / sum(2 * a for a in w)
    assert_close(loss(z, y, weight=torch.tensor(w)).item(), wanted)
    by_class = ClassWeighted(loss, (1.0, 5.0))
    assert_close(by_class(z, y).item(), (sums[0] + sums[1] + 5 * sums[2]) / 14)
    undivided = ClassWeighted(loss, (1.0, 5.0), normalize_weights=False)
    assert_close(undivided(z, y).item(), (sums[0] + sums[1] + 5 * sums[2]) / 6)
    assert_close(Threshold(loss, 0.6)(z, y).item(), near)
    assert_close(Threshold(loss, 0.0, 0.6)(z, y).item(), (4 * similar) / 4)
    assert Threshold(loss, 7.0)(z, y).item() == 0


def test_names_of_classes_do_not_matter_if_weights_go_with_them():
    (z, y), w = data(), torch.tensor([0.5, 2.0, 1.0, 3.0])
    renamed = torch.tensor([5, 0, 3, 1])  # class c is called renamed[c] now
    moved = torch.full((6,), 7.0).index_copy(0, renamed, w)
    assert_close(ClassWeighted(weights=moved)(z, renamed[y]), ClassWeighted(weights=w)(z, y), rtol=1e-12, atol=0)


def test_class_weights_as_the_peer_has_them():
    """pytorch-metric-learning multiplies each term by the weight of its anchor's class, and divides by their number."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    reducers = pytest.importorskip("pytorch_metric_learning.reducers")
    (z, y), w = data(), torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64)
    theirs = losses.NTXentLoss(0.2, reducer=reducers.ClassWeightedReducer(w))
    assert_close(ClassWeighted(InfoNCE(0.2), w, normalize_weights=False)(z, y), theirs(z, y), rtol=1e-6, atol=0)
    soft = losses.CosFaceLoss(4, 4, reducer=reducers.ClassWeightedReducer(w)).double()
    ours = CosFace(4, 4).double()
    ours.proxies.data = soft.W.data.T.clone()
    assert_close(ClassWeighted(ours, w, normalize_weights=False)(z, y), soft(z, y), rtol=1e-6, atol=0)
    kept = losses.NTXentLoss(0.2, reducer=reducers.ThresholdReducer(low=2.0, high=6.0))
    each = InfoNCE(0.2).terms(*InfoNCE(0.2).inputs(z, y, None, None, None))
    values = each[0][each[1] > 0]
    assert 0 < int(((values > 2) & (values < 6)).sum()) < len(values), "the range must leave some out"
    assert_close(Threshold(InfoNCE(0.2), 2.0, 6.0)(z, y), kept(z, y), rtol=1e-6, atol=0)


def test_balanced_weights_make_classes_alike():
    loss = ClassWeighted(NormalizedSoftmax(3, 4), class_counts=[10, 5, 1])
    assert_close(loss.weights, torch.tensor([16 / 30, 16 / 15, 16 / 3]))
    z, y = data(8)
    inside = loss.loss
    means = [inside(z[y == k], y[y == k]) for k in range(3)]
    counts = torch.bincount(y)
    balanced = ClassWeighted(inside, class_counts=counts)
    assert_close(balanced(z, y), torch.stack(means).mean(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "loss",
    [
        HistogramLoss(),
        ThresholdConsistentMargin(),
        TupletMargin(),
        DecoupledContrastive(weighted=True),
        Contrastive(balanced=True),
        Triplet(swap=True),
        Triplet(reduction="sum"),
        ProxyNCA(4, 4, assignment="nearest"),
        SoftTriple(4, 4),
        SampledSoftmax(ArcFace(4, 4)),
        MagFace(4, 4, class_weight=torch.ones(4)),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_of_the_whole_batch_refuse(loss):
    z, y = data()
    z = z.float()
    for call in (
        lambda: loss(z, y, weight=torch.ones(11)),
        lambda: loss.per_anchor(z, y),
        lambda: ClassWeighted(loss, (1.0,) * 4)(z, y),
        lambda: Threshold(loss)(z, y),
    ):
        with pytest.raises(TypeError, match=f"{type(loss).__name__}.*not one mean over terms of anchors"):
            call()


def test_every_loss_splits_or_refuses():
    """A row that is not listed above refuses with a TypeError: there is no third kind."""
    z, y = data()
    for key, make in ROWS.items():
        loss = make().double().eval()
        if not isinstance(loss, Loss | LabelLoss) or key in SPLIT:
            continue
        with pytest.raises(TypeError, match="not one mean over terms"):
            loss(z, y, weight=torch.ones(11))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.ones(3), r"11 embeddings need weights \(11,\)"),
        (torch.tensor([1.0] * 10 + [-1.0]), "not negative, got -1.0 for row 10"),
        (torch.tensor([math.nan] + [1.0] * 10), "finite and not negative, got nan for row 0"),
    ],
)
@pytest.mark.parametrize("loss", [InfoNCE(), ProxyNCAPlusPlus(4, 4), ArcFace(4, 4)], ids=lambda x: type(x).__name__)
def test_bad_weights(loss, weight, words):
    z, y = data()
    with pytest.raises(ValueError, match=words):
        loss(z.float(), y, weight=weight)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weights": (1.0, -1.0)}, "not negative"),
        ({"weights": "even"}, "'balanced' or one number for each class, got 'even'"),
        ({}, "needs class_counts"),
        ({"class_counts": [3, 0]}, "a positive number for each class"),
        ({"weights": ((1.0,),)}, r"one for each class, \(C,\)"),
    ],
)
def test_bad_class_weights(arguments, words):
    with pytest.raises(ValueError, match=words):
        ClassWeighted(InfoNCE(), **arguments)


def test_bad_wrappers():
    with pytest.raises(TypeError, match="Threshold needs a loss of embeddings and labels"):
        Threshold(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="low must be below high, got 2 and 1"):
        Threshold(InfoNCE(), 2, 1)
    z, y = data()
    with pytest.raises(ValueError, match="labels must lie in 0 … 1"):
        ClassWeighted(InfoNCE(), (1.0, 2.0))(z, y)


def test_weights_of_zero_leave_nothing():
    z, y = data()
    value = InfoNCE()(z.requires_grad_(), y, weight=torch.zeros(11))
    value.backward()
    assert value.item() == 0 and not z.grad.any()


def test_batches_are_taken_in_once():
    """Running values of a loss move by one batch, with weights or without, and inside a sampled softmax too."""
    z, y = data()
    z, weight = z.float(), torch.ones(11)
    for make, state in ((lambda: AdaFace(4, 4), "mean"), (lambda: SphereFace(4, 4, anneal=(10.0, 1.0, 0.1)), "steps")):
        plain, weighted = make().train(), make().train()
        plain(z, y)
        weighted(z, y, weight=weight)
        assert_close(getattr(plain, state), getattr(weighted, state))
    sampled = SampledSoftmax(AdaFace(4, 4), 0.9).train()
    sampled(z, y)
    assert_close(sampled.loss.mean, z.norm(dim=1).mean())
