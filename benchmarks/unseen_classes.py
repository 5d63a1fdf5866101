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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.tables import DATA
from isometry import deep
from isometry.deep.functional import unit
from isometry.eval import retrieval

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results" / "deep_unseen.md"
WIDTH, CLASSES, STEPS, RATE, PROXY_RATE = 384, 75, 300, 1e-3, 1e-2
SIZES = (CLASSES, WIDTH)


@dataclass(frozen=True)
class Contest:
    """The same loss of ours and of the peer."""

    key: str
    title: str
    ours: Callable[[], nn.Module]
    theirs: Callable[[Any], Any] | None  # pytorch_metric_learning → loss; None: there is no such loss, or a wrong one


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
    Contest("E20", "SmoothAP", lambda: deep.SmoothAP(), None),
    Contest("E21", "ROADMAP", lambda: deep.ROADMAP(), None),
    Contest("E22", "RecallAtK", lambda: deep.RecallAtK(), None),
    Contest("E27", "DecoupledContrastive", lambda: deep.DecoupledContrastive(), None),
    Contest("E28", "SigLIP(bias=-10)", lambda: deep.SigLIP(bias=-10.0), None),
    Contest("E35", "Matryoshka", lambda: deep.Matryoshka(), None),
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
        mine.data = (other.data if mine.shape == other.shape else other.data.T).clone()


def train(loss: nn.Module, groups: list[dict[str, Any]], seed: int) -> float:
    """MAP@R in the unseen classes after 300 steps of a linear map that begins as the identity."""
    x, y, X, labels = load(seed)
    model = nn.Linear(WIDTH, WIDTH, bias=False)
    nn.init.eye_(model.weight)
    optimizer = torch.optim.AdamW([{"params": model.parameters()}, *groups], lr=RATE, weight_decay=1e-4)
    for rows in deep.PKBatchSampler(y, 32, 4, n_batches=STEPS, random_state=seed):
        optimizer.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return map_at_r(model, X, labels)


@torch.no_grad()
def map_at_r(model: nn.Module, X: np.ndarray, labels: np.ndarray) -> float:
    return retrieval(unit(model(torch.tensor(X))).numpy(), labels, ks=(1,)).mean()["map@r"]


def examine(contest: Contest, seed: int, peer: Any) -> tuple[float, float, float]:
    """Ours with its own start and rates, ours as the peer's, the peer's."""
    values = []
    if contest.theirs is None:
        torch.manual_seed(seed)
        loss = contest.ours()
        return train(loss, loss.param_groups(RATE), seed), math.nan, math.nan
    for own, side in ((True, "ours"), (False, "ours"), (False, "theirs")):
        torch.manual_seed(seed)
        theirs = contest.theirs(peer)
        loss = contest.ours() if side == "ours" else theirs
        if side == "ours" and not own:
            same_start(loss, theirs)
        parameters = list(loss.parameters())
        same = [{"params": parameters, "lr": PROXY_RATE, "weight_decay": 0.0}] if parameters else []
        values.append(train(loss, loss.param_groups(RATE) if own else same, seed))
    return values[0], values[1], values[2]


def cell(values: list[float]) -> str:
    return "" if math.isnan(values[0]) else f"{np.mean(values):.4f} [{min(values):.4f}, {max(values):.4f}]"


def page(seeds: range, rows: list[str]) -> str:
    setting = (
        "MAP@R in 75 classes of clinc150 that were not seen in training, on embeddings of a frozen MiniLM (384 "
        "dimensions): a linear map 384 → 384 that begins as the identity, learned from the other 75 classes in "
        f"{STEPS} steps of 32 classes × 4 sentences by AdamW with learning rate {RATE:g}. Mean [smallest, largest] "
        f"over {len(seeds)} seeds, each with its own halves of the classes. Defaults of the losses, none tuned. "
        "pytorch-metric-learning 2.9.0 has its own start of the proxies and, for them, a learning rate of "
        f"{PROXY_RATE:g}; “same” is ours with that start and that rate, “ours” with its own. The column is empty "
        "where the peer has no such loss; for SigLIP it is the printed formula."
    )
    return "\n".join(
        [
            "# Deep losses: classes that were never seen",
            "",
            "<!-- written by benchmarks/unseen_classes.py -->",
            "",
            *textwrap.wrap(setting, 120),
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
        if contest.title in rows or (arguments.only and contest.key not in arguments.only):
            continue
        cells = (cell(list(values)) for values in zip(*(examine(contest, seed, peer) for seed in seeds)))
        rows[contest.title] = f"| {contest.key} | `{contest.title}` | " + " | ".join(cells) + " |"
        print(rows[contest.title], flush=True)
        if not arguments.only:
            RESULTS.write_text(page(seeds, list(rows.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
