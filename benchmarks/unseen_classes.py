"""Losses with margins, proxies and pairs beside pytorch-metric-learning: retrieval in classes that were never seen.

`python -m benchmarks.unseen_classes` writes docs/results/deep_unseen.md. It needs pytorch-metric-learning 2.9.0, and in
the folder ISOMETRY_DATA the file clinc150_minilm.npz: sentences of 150 intents as embeddings of a frozen network.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.deep_losses import DirectRankNContrast as Direct
from benchmarks.tables import DATA
from isometry import deep
from isometry.deep.functional import unit
from isometry.eval import retrieval

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "deep_unseen.md"
WIDTH, CLASSES, STEPS, RATE, PROXY_RATE = 384, 75, 300, 1e-3, 1e-2
SIZES = (CLASSES, WIDTH)


Step = Callable[[Any, nn.Module, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Contest:
    """The same loss of ours and of the peer."""

    key: str
    title: str
    ours: Callable[[], nn.Module]
    theirs: Callable[[Any], Any] | None  # pytorch_metric_learning → loss, or a formula as printed; None: nothing beside
    step: Step | None = None  # (loss, network, sentences, labels) → value; by default of embeddings and labels
    rate: float = PROXY_RATE  # at which the parameters of the peer's loss learn, and those of ours beside it


class Mined(nn.Module):
    """The peer's loss on the pairs that its miner chooses."""

    def __init__(self, loss: Any, miner: Any):
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return self.loss(z, y, self.miner(z, y))


class Summed(nn.Module):
    """Two of the peer's losses."""

    def __init__(self, *losses: Any):
        super().__init__()
        self.losses = nn.ModuleList(losses)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([loss(z, y) for loss in self.losses]).sum()


class Sigmoid(nn.Module):
    """The sigmoid loss as it is printed, over all pairs of a batch."""

    def __init__(self, scale: float, bias: float):
        super().__init__()
        self.log_scale, self.bias = nn.Parameter(torch.tensor(scale).log()), nn.Parameter(torch.tensor(bias))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        z = nn.functional.normalize(z)
        sign = torch.where(y[:, None] == y, 1.0, -1.0)
        terms = -nn.functional.logsigmoid(sign * (self.log_scale.exp() * z @ z.T + self.bias))
        return terms[~torch.eye(len(y), dtype=torch.bool)].sum() / len(y)


def tuplet_margin(p: Any) -> Any:
    return p.losses.TupletMarginLoss()


# -- batches of columns: four sentences of each class, one after another -----------------------------------------------


def pairs(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The first two sentences of each class belong together."""
    z = model(x).view(-1, 4, WIDTH)
    return loss(z[:, 0], z[:, 1])


def scored(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Pairs of a class, 1, and of two classes, 0."""
    z = model(x).view(-1, 4, WIDTH)
    first, second = torch.cat([z[:, 0], z[:, 2]]), torch.cat([z[:, 1], z[:, 3].roll(1, 0)])
    return loss(first, second, target=torch.arange(2).flip(0).repeat_interleave(len(z)).float())


def taught(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Two of a class and one of another, which a teacher scores 1 and 0."""
    z = model(x).view(-1, 4, WIDTH)
    return loss(z[:, 0], z[:, 1], z[:, 2].roll(1, 0), target=torch.tensor([1.0, 0.0]).expand(len(z), 2))


def centred_by(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The teacher of a sentence is the mean of those of its class in the batch, as they were."""
    return loss(model(x), target=x.view(-1, 4, WIDTH).mean(1).repeat_interleave(4, 0))


def numbered(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Numbers of classes as targets: no order of intents is meant, only that both sides see the same."""
    return loss(model(x), y.float())


def guided(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The first two sentences of each class belong together; the guide is the frozen network itself."""
    z, guide = model(x).view(-1, 4, WIDTH), x.view(-1, 4, WIDTH)
    return loss(z[:, 0], z[:, 1], guide=(guide[:, 0], guide[:, 1]))


def in_groups(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Classes of five groups as two levels."""
    return loss(model(x), torch.stack([y // 15, y], 1))


def as_sets(loss: Any, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The set of a sentence: its class, and which of five groups of classes it is of."""
    kinds = torch.cat([nn.functional.one_hot(y, CLASSES), nn.functional.one_hot(y // 15, 5)], 1)
    return loss(model(x), kinds.bool())


# -- formulas as printed, for losses that the peer lacks or has wrong --------------------------------------------------


class Formula(nn.Module):
    """A function of unit embeddings (B, p) and labels, or of unit columns."""

    def __init__(self, f: Callable[..., Tensor], unit: bool = True):
        super().__init__()
        self.f, self.unit = f, unit

    def forward(self, *zs: Tensor, **given: Any) -> Tensor:
        return self.f(
            *(
                nn.functional.normalize(z)
                if self.unit and z.ndim == 2 and z.is_floating_point() and z.shape[1] == WIDTH
                else z
                for z in zs
            ),
            **given,
        )


def similar(y: Tensor) -> tuple[Tensor, Tensor]:
    same = y[:, None] == y
    return same & ~torch.eye(len(y), dtype=torch.bool), ~same


def ranks(z: Tensor, y: Tensor, step: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Positives and negatives before each positive by a step of the difference, and which pairs are positive."""
    pos, neg = similar(y)
    s = z @ z.T
    H = step(s[:, None, :] - s[:, :, None])  # of reference k before positive j of anchor i, at (i, j, k)
    other = ~torch.eye(len(y), dtype=torch.bool)
    return (H * (pos[:, None] & other)).sum(2), (H * neg[:, None]).sum(2), pos


def smooth_ap(z: Tensor, y: Tensor) -> Tensor:
    P, N, pos = ranks(z, y, lambda t: (t / 0.01).sigmoid())
    precision = (1 + P) / (1 + P + N)
    return 1 - ((precision * pos).sum(1) / pos.sum(1)).mean()


def roadmap(z: Tensor, y: Tensor) -> Tensor:
    def over(t: Tensor) -> Tensor:
        high = torch.sigmoid(torch.tensor(5.0)) + 0.5 + 100 * (t - 0.05)
        return torch.where(t <= 0, (t / 0.01).sigmoid(), torch.where(t <= 0.05, (t / 0.01).sigmoid() + 0.5, high))

    P, _, pos = ranks(z, y, lambda t: (t >= 0).float())
    _, N, _ = ranks(z, y, over)
    bound = 1 - (((1 + P) / (1 + P + N) * pos).sum(1) / pos.sum(1)).mean()
    s, (pos, neg) = z @ z.T, similar(y)
    pull, push = 0.9 - s[pos & (s <= 0.9)], s[neg & (s >= 0.6)] - 0.6
    return 0.5 * bound + 0.5 * sum((x.sum() / max(len(x), 1) for x in (pull, push)), s.sum() * 0)


def recall_at_k(z: Tensor, y: Tensor) -> Tensor:
    P, N, pos = ranks(z, y, lambda t: (t / 0.01).sigmoid())
    R, n = 1 + P + N, pos.sum(1).float()
    recall = [(((k - R).sigmoid() * pos).sum(1) / n.clamp_max(k)).mean() for k in (1, 2, 4, 8, 16)]
    return 1 - torch.stack(recall).mean()


def decoupled(z: Tensor, y: Tensor) -> Tensor:
    s, (pos, neg) = z @ z.T / 0.1, similar(y)
    return (s.masked_fill(~neg, -torch.inf).logsumexp(1)[:, None] - s)[pos].mean()


def decoupled_weighted(z: Tensor, y: Tensor) -> Tensor:
    s, (pos, neg) = z @ z.T, similar(y)
    w = 2 - pos.sum() * (s[pos] / 0.5).softmax(0).detach()
    return ((s / 0.1).masked_fill(~neg, -torch.inf).logsumexp(1)[:, None].expand_as(s)[pos] - w * s[pos] / 0.1).mean()


def each_apart(z: Tensor, y: Tensor) -> Tensor:
    """Each positive against the negatives only, the mean of an anchor first."""
    s, (pos, neg) = z @ z.T / 0.1, similar(y)
    cost = torch.logaddexp(s, s.masked_fill(~neg, -torch.inf).logsumexp(1, keepdim=True)) - s
    return ((cost * pos).sum(1) / pos.sum(1)).mean()


def overlapping_sets(z: Tensor, sets: Tensor) -> Tensor:
    """Positives weigh as much as their sets have in common, of all that either has."""
    both = (sets[:, None] & sets).sum(2)
    weight = both / (sets[:, None] | sets).sum(2)
    other = ~torch.eye(len(z), dtype=torch.bool)
    weight, s = torch.where((weight >= 0.3) & other, weight, 0.0), z @ z.T / 0.1
    cost = s.masked_fill(~other, -torch.inf).logsumexp(1, keepdim=True) - s
    return ((weight * cost).sum(1) / weight.sum(1)).mean()


def barlow(a: Tensor, b: Tensor) -> Tensor:
    a, b = ((z - z.mean(0)) / z.std(0, correction=0) for z in (a, b))
    c = a.T @ b / len(a)
    own = c.diagonal()
    return (1 - own).square().sum() + 0.005 * (c.square().sum() - own.square().sum())


def in_batch(a: Tensor, b: Tensor) -> Tensor:
    return nn.functional.cross_entropy(20 * a @ b.T, torch.arange(len(a)))


def both_ways(a: Tensor, b: Tensor) -> Tensor:
    return (in_batch(a, b) + in_batch(b, a)) / 2


def without_similar(a: Tensor, b: Tensor, guide: tuple[Tensor, Tensor]) -> Tensor:
    """One softmax over the other column and both own ones, without what the guide finds nearer than the positive."""
    ga, gb = map(nn.functional.normalize, guide)
    limit, own, blocks = (ga * gb).sum(1, keepdim=True), torch.eye(len(a), dtype=torch.bool), []
    for u, v, gu, gv in ((a, b, ga, gb), (a, a, ga, ga), (b, b, gb, gb)):
        out = gu @ gv.T > limit
        blocks.append((100 * u @ v.T).masked_fill(out & ~own if v is not u else out | own, -torch.inf))
    return nn.functional.cross_entropy(torch.cat(blocks, 1), torch.arange(len(a)))


def order_of_cosines(a: Tensor, b: Tensor, target: Tensor) -> Tensor:
    return order_of(20 * (a * b).sum(1), target)


def order_of(s: Tensor, target: Tensor) -> Tensor:
    wrong = (s[:, None] - s)[target[:, None] < target]
    return torch.cat([wrong.new_zeros(1), wrong]).logsumexp(0)


def angle(a: Tensor, b: Tensor, target: Tensor) -> Tensor:
    (ar, ai), (br, bi) = a.chunk(2, 1), b.chunk(2, 1)
    real, imaginary = (ar * br + ai * bi).sum(1), (ai * br - ar * bi).sum(1)
    return order_of(20 * (real + imaginary).abs(), target)


def cosine_error(a: Tensor, b: Tensor, target: Tensor) -> Tensor:
    return ((a * b).sum(1) - target).square().mean()


def margin_error(a: Tensor, p: Tensor, n: Tensor, target: Tensor) -> Tensor:
    return ((a * p).sum(1) - (a * n).sum(1) - (target[:, 0] - target[:, 1])).square().mean()


def score_kl(a: Tensor, p: Tensor, n: Tensor, target: Tensor) -> Tensor:
    s = torch.stack([(a * p).sum(1), (a * n).sum(1)], 1)
    return nn.functional.kl_div(s.log_softmax(1), target.softmax(1), reduction="batchmean")


def to_teacher(z: Tensor, target: Tensor) -> Tensor:
    return (1 - (z * nn.functional.normalize(target)).sum(1)).mean()


def log_ratio(z: Tensor, y: Tensor) -> Tensor:
    """Over all anchors and pairs of references with other labels, one by one."""
    d, g = (z[:, None] - z).square().sum(2) + 1e-6, (y[:, None] - y).abs()
    values = []
    for a in range(len(z)):
        other = g[a] > 0
        u = d[a][other].log() - g[a][other].log()
        i, j = torch.triu_indices(len(u), len(u), 1)
        values.append((u[i] - u[j]).square().mean())
    return torch.stack(values).mean()


def hierarchy(z: Tensor, y: Tensor, constraint: bool = False) -> Tensor:
    """From the finest level on; with the constraint, a pair costs at least what the dearest of the finer level does."""
    values, largest = [], -torch.inf
    for depth in (2, 1):
        _, code = y[:, :depth].unique(dim=0, return_inverse=True)
        pos, s = similar(code)[0], z @ z.T / 0.1
        cost = s.masked_fill(torch.eye(len(z), dtype=torch.bool), -torch.inf).logsumexp(1, keepdim=True) - s
        values.append(((cost.clamp_min(largest) * pos).sum(1) / pos.sum(1)).mean() * 2 ** (1 / (3 - depth)))
        largest = cost[pos].max() if constraint else largest
    return (values[0] + values[1]) / 3


class AdaFaceFormula(nn.Module):
    """AdaFace with running statistics that start at the first batch, and a guard of the arc cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.proxies = nn.Parameter(nn.functional.normalize(torch.randn(CLASSES, WIDTH)))
        self.statistics: tuple[Tensor, Tensor] | None = None

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        length = z.detach().norm(dim=1).clamp(1e-3, 100)
        new = length.mean(), length.std()
        old = new if self.statistics is None else self.statistics
        self.statistics = tuple(0.01 * n + 0.99 * o for n, o in zip(new, old))  # type: ignore[assignment]
        mean, std = self.statistics  # type: ignore[misc]
        q = (0.333 * (length - mean) / (std + 1e-3)).clamp(-1, 1)
        cos = nn.functional.normalize(z) @ nn.functional.normalize(self.proxies).T
        own = cos.gather(1, y[:, None]).squeeze(1).clamp(-1 + 1e-7, 1 - 1e-7)
        angle = (own.acos() - 0.4 * q).clamp(1e-7, math.pi - 1e-7)
        return nn.functional.cross_entropy(64 * cos.scatter(1, y[:, None], (angle.cos() - 0.4 - 0.4 * q)[:, None]), y)


class CenterFormula(nn.Module):
    """Cross-entropy of a linear layer and half the squared distance to centres, which move by the printed rule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("centers", torch.zeros(CLASSES, WIDTH))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        near = (z - self.centers[y]).square().sum() / (2 * len(z))
        with torch.no_grad():
            for k in y.unique():
                members = z[y == k]
                self.centers[k] -= 0.5 * (self.centers[k] - members).sum(0) / (1 + len(members))
        return nn.functional.cross_entropy(self.layer(z), y) + 0.003 * near


class Prefixes(nn.Module):
    """The mean of a loss over the first 384, 192, 96 and 48 coordinates."""

    def __init__(self, loss: Any):
        super().__init__()
        self.loss = loss

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.stack([self.loss(z[:, : WIDTH >> k], y) for k in range(4)]).mean()


class RefEmbeddings(nn.Module):
    """The peer's loss of two views."""

    def __init__(self, loss: Any):
        super().__init__()
        self.loss = loss

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.loss(a, ref_emb=b)


def center_loss(lr_mult: float = 1) -> nn.Module:
    classifier = deep.CrossEntropy(*SIZES)
    classifier.lr_mult = lr_mult
    return deep.WeightedSum(classifier, deep.CenterLoss(*SIZES), weights=(1, 0.003))


AS_PEER: dict[str, Any] = {"squared_hinge": False, "balanced": True, "normalize": True}
CONTESTS = [
    Contest("E02", "ArcFace", lambda: deep.ArcFace(*SIZES), lambda p: p.losses.ArcFaceLoss(*SIZES)),
    Contest("E01", "CosFace", lambda: deep.CosFace(*SIZES), lambda p: p.losses.CosFaceLoss(*SIZES)),
    Contest(
        "E01",
        "CosFace(scale=16)",
        lambda: deep.CosFace(*SIZES, scale=16.0),
        lambda p: p.losses.CosFaceLoss(*SIZES, scale=16),
    ),
    Contest(
        "E13",
        "MultiSimilarity",
        lambda: deep.MultiSimilarity(),
        lambda p: Mined(p.losses.MultiSimilarityLoss(), p.miners.MultiSimilarityMiner()),
    ),
    Contest("E14", "Circle", lambda: deep.Circle(), lambda p: p.losses.CircleLoss()),
    Contest("E10", "ProxyAnchor", lambda: deep.ProxyAnchor(*SIZES), lambda p: p.losses.ProxyAnchorLoss(*SIZES)),
    Contest(
        "E18",
        "ArcFace + ThresholdConsistentMargin",
        lambda: deep.WeightedSum(deep.ArcFace(*SIZES), deep.ThresholdConsistentMargin()),
        lambda p: Summed(p.losses.ArcFaceLoss(*SIZES), p.losses.ThresholdConsistentMarginLoss()),
    ),
    Contest(
        "E17",
        "RankedList",
        lambda: deep.RankedList(),
        lambda p: p.losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2),
    ),
    Contest(
        "E17",
        "RankedList(detach_weights=False)",
        lambda: deep.RankedList(detach_weights=False),
        lambda p: p.losses.RankedListLoss(margin=0.4, Tn=10, alpha=1.2),
    ),
    Contest("E20", "SmoothAP", lambda: deep.SmoothAP(), lambda p: Formula(smooth_ap)),
    Contest("E21", "ROADMAP", lambda: deep.ROADMAP(), lambda p: Formula(roadmap)),
    Contest("E22", "RecallAtK", lambda: deep.RecallAtK(), lambda p: Formula(recall_at_k)),
    Contest("E27", "DecoupledContrastive", lambda: deep.DecoupledContrastive(), lambda p: Formula(decoupled)),
    Contest("E28", "SigLIP(bias=-10)", lambda: deep.SigLIP(bias=-10.0), None),
    Contest("E35", "Matryoshka", lambda: deep.Matryoshka(), lambda p: Prefixes(p.losses.SupConLoss(0.1))),
    Contest("E36", "EmbeddingExpansion", lambda: deep.EmbeddingExpansion(), None),
    Contest(
        "E36", "EmbeddingExpansion(MultiSimilarity)", lambda: deep.EmbeddingExpansion(deep.MultiSimilarity()), None
    ),
    Contest("E36m", "MixedPairs", lambda: deep.MixedPairs(random_state=0), None),
    Contest(
        "E36m",
        "MixedPairs(GeneralizedContrastive)",
        lambda: deep.MixedPairs(deep.GeneralizedContrastive(normalize=True), random_state=0),
        None,
    ),
    Contest("D17", "GeneralizedContrastive", lambda: deep.GeneralizedContrastive(normalize=True), None),
    Contest("E38", "NonIsotropy", lambda: deep.NonIsotropy(*SIZES), None),
    Contest("E44", "OrthoHash", lambda: deep.OrthoHash(*SIZES), None),
    Contest("E44q", "QuantizationAware(binary)", lambda: deep.QuantizationAware(kind="binary"), None),
    Contest("E44q", "QuantizationAware(int8)", lambda: deep.QuantizationAware(), None),
    Contest("E28", "SigLIP", lambda: deep.SigLIP(), lambda p: Sigmoid(10.0, -5.0)),
    Contest("E23", "FastAP", lambda: deep.FastAP(), lambda p: p.losses.FastAPLoss(10)),
    Contest("E25", "InfoNCE", lambda: deep.InfoNCE(), lambda p: p.losses.NTXentLoss(0.07)),
    Contest("E26", "SupCon", lambda: deep.SupCon(), lambda p: p.losses.SupConLoss(0.1)),
    Contest(
        "E01",
        "NormalizedSoftmax",
        lambda: deep.NormalizedSoftmax(*SIZES),
        lambda p: p.losses.NormalizedSoftmaxLoss(*SIZES, temperature=0.05),
    ),
    Contest(
        "E04",
        "SubCenterArcFace",
        lambda: deep.SubCenterArcFace(*SIZES),
        lambda p: p.losses.SubCenterArcFaceLoss(num_classes=CLASSES, embedding_size=WIDTH),
    ),
    Contest("E15", "TupletMargin(variance_weight=0)", lambda: deep.TupletMargin(variance_weight=0), tuplet_margin),
    Contest("E05", "AdaFace", lambda: deep.AdaFace(*SIZES), lambda p: AdaFaceFormula()),
    Contest("E09", "CenterLoss + CrossEntropy", center_loss, lambda p: CenterFormula(), rate=RATE),
    Contest(
        "E09",
        f"CenterLoss + CrossEntropy, which learns at {PROXY_RATE:g}",
        lambda: center_loss(PROXY_RATE / RATE),
        lambda p: CenterFormula(),
    ),
    Contest("E29", "VICReg", lambda: deep.VICReg(), lambda p: RefEmbeddings(p.losses.VICRegLoss()), pairs),
    Contest("E29b", "BarlowTwins", lambda: deep.BarlowTwins(), lambda p: Formula(barlow, unit=False), pairs),
    Contest("E31", "Ranking", lambda: deep.Ranking(), lambda p: Formula(in_batch), pairs),
    Contest("E33", "CoSENT", lambda: deep.CoSENT(), lambda p: Formula(order_of_cosines), scored),
    Contest("E33a", "AnglE", lambda: deep.AnglE(), lambda p: Formula(angle), scored),
    Contest("E33c", "CosineRegression", lambda: deep.CosineRegression(), lambda p: Formula(cosine_error), scored),
    Contest("E34", "MarginMSE(cosine)", lambda: deep.MarginMSE("cosine"), lambda p: Formula(margin_error), taught),
    Contest("E34k", "ScoreKL", lambda: deep.ScoreKL(), lambda p: Formula(score_kl, unit=False), taught),
    Contest(
        "E34e", "EmbeddingDistillation", lambda: deep.EmbeddingDistillation(), lambda p: Formula(to_teacher), centred_by
    ),
    Contest("E39", "LogRatio", lambda: deep.LogRatio(), lambda p: Formula(log_ratio, unit=False), numbered),
    Contest("E40", "RankNContrast", lambda: deep.RankNContrast(), lambda p: Formula(Direct(2.0), unit=False), numbered),
    Contest(
        "E41",
        "HierarchicalContrast(constraint='none')",
        lambda: deep.HierarchicalContrast(constraint="none"),
        lambda p: Formula(hierarchy),
        in_groups,
    ),
    Contest(
        "E41",
        "HierarchicalContrast",
        lambda: deep.HierarchicalContrast(),
        lambda p: Formula(partial(hierarchy, constraint=True)),
        in_groups,
    ),
    Contest("E26", "SupCon(form='apart')", lambda: deep.SupCon(form="apart"), lambda p: Formula(each_apart)),
    Contest(
        "E26",
        "SupCon(labels='sets', threshold=0.3)",
        lambda: deep.SupCon(labels="sets", threshold=0.3),
        lambda p: Formula(overlapping_sets),
        as_sets,
    ),
    Contest(
        "E27",
        "DecoupledContrastive(weighted=True)",
        lambda: deep.DecoupledContrastive(weighted=True),
        lambda p: Formula(decoupled_weighted),
    ),
    Contest(
        "E31",
        "Ranking, both directions",
        lambda: deep.Ranking(directions=("query_to_doc", "doc_to_query"), partition="each"),
        lambda p: Formula(both_ways),
        pairs,
    ),
    Contest("E32", "GuidedRanking", lambda: deep.GuidedRanking(), lambda p: Formula(without_similar), guided),
    Contest(
        "E46p",
        "Contrastive(PairMargin)",
        lambda: deep.Contrastive(**AS_PEER, miner=deep.PairMargin()),
        lambda p: Mined(p.losses.ContrastiveLoss(), p.miners.PairMarginMiner()),
    ),
    Contest(
        "E46t",
        "Triplet(TripletMargin)",
        lambda: deep.Triplet(0.2, distance="euclidean", miner=deep.TripletMargin()),
        lambda p: Mined(p.losses.TripletMarginLoss(0.2), p.miners.TripletMarginMiner(0.2)),
    ),
]


def load(seed: int) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """Sentences and labels 0 … 74 of half of the classes, and those of the other half."""
    with np.load(DATA / "clinc150_minilm.npz", allow_pickle=False) as arrays:
        X, y = arrays["X"].astype(np.float32), arrays["y"]
    order = np.random.default_rng(seed).permutation(2 * CLASSES)
    code = np.argsort(order)[y]
    seen = code < CLASSES
    return torch.tensor(X[seen]), torch.tensor(code[seen]), X[~seen], code[~seen]


def same_start(ours: nn.Module, theirs: nn.Module) -> None:
    """Proxies of ours at those of the peer, which differ in shape only."""
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        mine.data = (other.data if mine.shape == other.shape else other.data.T).reshape(mine.shape).clone()


def train(loss: nn.Module, groups: list[dict[str, Any]], seed: int, step: Step | None = None) -> float:
    """MAP@R in the unseen classes after 300 steps of a linear map that begins as the identity."""
    x, y, X, labels = load(seed)
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.eye_(model.weight)
    optimizer = torch.optim.AdamW([{"params": model.parameters()}, *groups], lr=RATE, weight_decay=1e-4)
    for rows in deep.PKBatchSampler(y, 32, 4, n_batches=STEPS, random_state=seed):
        optimizer.zero_grad()
        value = loss(model(x[rows]), y[rows]) if step is None else step(loss, model, x[rows], y[rows])
        value.backward()
        optimizer.step()
    return map_at_r(model, X, labels)


@torch.no_grad()
def map_at_r(model: nn.Module, X: np.ndarray, labels: np.ndarray) -> float:
    z = unit(model(torch.tensor(X)))
    return retrieval(z.numpy(), labels, ks=(1,)).mean()["map@r"] if z.isfinite().all() else -math.inf


def examine(contest: Contest, seed: int, peer: Any) -> tuple[float, float, float]:
    """Ours with its own start and rates, ours as the peer's, the peer's."""
    values = []
    if contest.theirs is None:
        torch.manual_seed(seed)
        loss = contest.ours()
        return train(loss, loss.param_groups(RATE), seed, contest.step), math.nan, math.nan
    for own, side in ((True, "ours"), (False, "ours"), (False, "theirs")):
        torch.manual_seed(seed)
        theirs = contest.theirs(peer)
        loss = contest.ours() if side == "ours" else theirs
        if not list(theirs.parameters()) and side == "ours" and not own:
            values.append(values[0])  # nothing to start or to learn at another rate
            continue
        if side == "ours" and not own:
            same_start(loss, theirs)
        parameters = [p for p in loss.parameters() if p.requires_grad]
        same = [{"params": parameters, "lr": contest.rate, "weight_decay": 0.0}] if parameters else []
        values.append(train(loss, loss.param_groups(RATE) if own else same, seed, contest.step))
    return values[0], values[1], values[2]


def cell(values: list[float]) -> str:
    if math.isnan(values[0]):
        return ""
    good = [value for value in values if value > -math.inf]
    failed = (
        f"weights not finite in {len(values) - len(good)} of {len(values)} seeds" if len(good) < len(values) else ""
    )
    found = f"{np.mean(good):.4f} [{min(good):.4f}, {max(good):.4f}]" if good else ""
    return "; ".join(part for part in (found, failed) if part)


def page(seeds: range, rows: list[str]) -> str:
    setting = (
        "MAP@R in 75 classes of clinc150 that were not seen in training, on embeddings of a frozen MiniLM (384 "
        "dimensions): a linear map 384 → 384 that begins as the identity, learned from the other 75 classes in "
        f"{STEPS} steps of 32 classes × 4 sentences by AdamW with learning rate {RATE:g}. Mean [smallest, largest] "
        f"over {len(seeds)} seeds, each with its own halves of the classes. Defaults of the losses, none tuned. "
        "pytorch-metric-learning 2.9.0 has its own start of the proxies and, for them, a learning rate of "
        f"{PROXY_RATE:g}; “same” is ours with that start and that rate, “ours” with its own. The column is empty "
        "where there is nothing to compare with. The peer has no SigLIP, AdaFace, CenterLoss, DecoupledContrastive, "
        "Matryoshka, ROADMAP, RecallAtK, SupCon of positives apart and of sets, losses of columns, of numbers and of "
        "levels, and its SmoothAP mixes up groups: there the column is the formula, written out in "
        "benchmarks/unseen_classes.py."
    )
    differences = (
        "Where the mean differs from the peer's at the same settings: the weights of RankedList are constants in its "
        "gradient, as in the authors' code, and the peer differentiates them; the row below does so too. FastAP is the "
        "peer's to rounding, and so is its mean in float64 (0.6661 both). CenterLoss stands beside a new linear "
        "classifier, which decides: it learns at the rate of the network in one row, ours and formula, "
        f"and at {PROXY_RATE:g} in the other."
    )
    return "\n".join(
        [
            "# Deep losses: classes that were never seen",
            "",
            "<!-- written by benchmarks/unseen_classes.py -->",
            "",
            "`python -m benchmarks.unseen_classes` writes this page.",
            "",
            *textwrap.wrap(setting, 120),
            "",
            *textwrap.wrap(differences, 120),
            "",
            "| id | loss | ours | same | pytorch-metric-learning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default 3)")
    parser.add_argument("--only", nargs="*", default=[], help="ids of rows to run; the page is then not written")
    parser.add_argument("--add", action="store_true", help="run what the page lacks, and keep the rows that it has")
    arguments = parser.parse_args()
    import pytorch_metric_learning as peer
    from pytorch_metric_learning import losses, miners  # noqa: F401

    torch.set_num_threads(1)
    seeds = range(arguments.seeds)
    old = [line for line in RESULTS.read_text().splitlines() if line.startswith("|")] if arguments.add else []
    rows = {line.split("|")[2].strip(" `"): line for line in old[2:]}
    if "raw embeddings" not in rows:
        raw = cell([map_at_r(nn.Identity(), *load(seed)[2:]) for seed in seeds])
        rows["raw embeddings"] = f"|  | raw embeddings | {raw} | | |"
        print(rows["raw embeddings"], flush=True)
    for contest in CONTESTS:
        lacks = contest.title not in rows or (
            contest.theirs is not None and rows[contest.title].rstrip(" |").count("|") < 5
        )
        if not lacks or (arguments.only and contest.key not in arguments.only):
            continue
        cells = (cell(list(values)) for values in zip(*(examine(contest, seed, peer) for seed in seeds)))
        rows[contest.title] = f"| {contest.key} | `{contest.title}` | " + " | ".join(cells) + " |"
        print(rows[contest.title], flush=True)
        if not arguments.only:
            order = ["raw embeddings", *(other.title for other in CONTESTS)]
            RESULTS.write_text(page(seeds, [rows[title] for title in order if title in rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
