"""The digits exam: what every deep loss, with its defaults, makes of a small network.

`python -m benchmarks.deep_quality` writes docs/results/deep.md: Recall@1 and MAP@R on held-out digits, over seeds.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from isometry import deep
from isometry.deep.functional import unit
from isometry.eval import retrieval

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "deep.md"
STEPS, CLASSES, WIDTH, PER_CLASS = 300, 10, 32, 8
RECALL, MAP_AT_R = 0.95, 0.543  # the gate; the second figure is that of raw pixels
SIZES = (CLASSES, WIDTH)


class Digits(NamedTuple):
    """One split; pixels in [0, 1], centred on the training part."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: np.ndarray


@cache
def digits(seed: int) -> Digits:
    X, y = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(X / 16, y, test_size=0.3, stratify=y, random_state=seed)
    x, x_test = (torch.tensor(part - x.mean(0), dtype=torch.float32) for part in (x, x_test))
    return Digits(x, torch.tensor(y), x_test, y_test)


@dataclass(frozen=True)
class Exam:
    """A loss with its defaults, by the id of its row in the method table."""

    key: str
    title: str
    make: Callable[[int], nn.Module]  # seed → loss
    width: int = WIDTH  # of the embedding
    exempt: str = ""  # why it may miss the gate
    mined: bool = False  # trained on triplets mined offline


def counts(seed: int) -> list[int]:
    return torch.bincount(digits(seed).y).tolist()


def beside_cross_entropy(loss: nn.Module) -> nn.Module:
    return deep.WeightedSum(deep.CrossEntropy(*SIZES), loss)


def mined(miner: deep.Miner) -> nn.Module:
    return deep.Triplet(miner=miner)


def weighted(seed: int) -> nn.Module:
    return deep.MarginLoss(miner=deep.DistanceWeighted(WIDTH, random_state=seed))


SNR = {"squared_hinge": False, "balanced": True, "distance": "snr", "normalize": True}
ALONE = "meant to stand beside cross-entropy; the next row has both"
EPEN = "no triplet violates the margin, even in the first 30 steps (of EPHN, the default, a third): nothing is learned"
HPEN = "2 % of the triplets violate the margin in the first 30 steps, then none: farthest negatives hardly constrain"
EXAMS = [
    Exam("D08", "MSE head", lambda s: deep.MSE(*SIZES)),
    Exam("D09", "MAE head", lambda s: deep.MAE(*SIZES)),
    Exam("D10", "Huber head", lambda s: deep.Huber(*SIZES)),
    Exam("D11", "KL head", lambda s: deep.KL(*SIZES)),
    Exam("D12", "Hinge head", lambda s: deep.Hinge(*SIZES)),
    Exam("D13", "CrossEntropy head", lambda s: deep.CrossEntropy(*SIZES)),
    Exam("D16", "Contrastive", lambda s: deep.Contrastive()),
    Exam("D17", "GeneralizedContrastive", lambda s: deep.GeneralizedContrastive()),
    Exam("D19", "Tuplet", lambda s: deep.Tuplet()),
    Exam("D20", "NPair", lambda s: deep.NPair()),
    Exam("D20", "NPair(pairs='all')", lambda s: deep.NPair(pairs="all")),
    Exam("D21", "NCALoss", lambda s: deep.NCALoss()),
    Exam("D22", "ProxyNCA", lambda s: deep.ProxyNCA(*SIZES)),
    Exam("D22", "ProxyNCA(proxies='class_mean')", lambda s: deep.ProxyNCA(*SIZES, proxies="class_mean")),
    Exam("D23", "ProxyNCAPlusPlus", lambda s: deep.ProxyNCAPlusPlus(*SIZES)),
    Exam("D24", "SoftmaxTriplet", lambda s: deep.SoftmaxTriplet()),
    Exam("D25", "TripletGlobal", lambda s: deep.TripletGlobal()),
    Exam("D26", "Angular", lambda s: deep.Angular()),
    Exam("D26", "Angular(form='triplet')", lambda s: deep.Angular(form="triplet")),
    Exam("D27", "SoftTriple", lambda s: deep.SoftTriple(*SIZES)),
    Exam("D28", "FisherTriplet", lambda s: deep.FisherTriplet(), exempt=ALONE),
    Exam("D28", "FisherTriplet + CrossEntropy", lambda s: beside_cross_entropy(deep.FisherTriplet())),
    Exam("D29", "FisherContrastive", lambda s: deep.FisherContrastive(), exempt=ALONE),
    Exam("D29", "FisherContrastive + CrossEntropy", lambda s: beside_cross_entropy(deep.FisherContrastive())),
    Exam("D31", "Triplet (all triplets)", lambda s: deep.Triplet()),
    Exam("D32", "Triplet('soft', BatchHard)", lambda s: deep.Triplet("soft", miner=deep.BatchHard())),
    Exam("D33", "Triplet(BatchSemiHard)", lambda s: mined(deep.BatchSemiHard())),
    Exam("D34", "Triplet(EasyPositive)", lambda s: mined(deep.EasyPositive())),
    Exam("D35", "EasyPositiveNCA", lambda s: deep.EasyPositiveNCA()),
    Exam("D36", "Lifted(form='max')", lambda s: deep.Lifted(form="max")),
    Exam("D37", "Lifted", lambda s: deep.Lifted()),
    Exam("D38", "CenterTriplet", lambda s: deep.CenterTriplet()),
    Exam("D39", "CrossBatchMemory", lambda s: deep.CrossBatchMemory(None, WIDTH, memory_size=1024)),
    Exam("D40", "Triplet(Extreme('EPHN'))", lambda s: mined(deep.Extreme())),
    Exam("D40", "Triplet(Extreme('EPEN'))", lambda s: mined(deep.Extreme("EPEN")), exempt=EPEN),
    Exam("D40", "Triplet(Extreme('HPEN'))", lambda s: mined(deep.Extreme("HPEN")), exempt=HPEN),
    Exam("D40o", "Triplet, mined offline (HPHN)", lambda s: deep.Triplet(), mined=True),
    Exam("D41", "Triplet(RandomTriplets)", lambda s: mined(deep.RandomTriplets(random_state=s))),
    Exam("D43", "MarginLoss (all pairs)", lambda s: deep.MarginLoss()),
    Exam("D42", "MarginLoss(DistanceWeighted)", weighted),
    Exam("D44", "BUT", lambda s: deep.BUT(*SIZES, random_state=s)),
    Exam("D44n", "BUNCA", lambda s: deep.BUNCA(*SIZES, random_state=s)),
    Exam("D45", "HardNegativeContrastive", lambda s: deep.HardNegativeContrastive()),
    Exam("D46", "ProbabilisticDA", lambda s: deep.ProbabilisticDA(), exempt=ALONE),
    Exam("D46", "ProbabilisticDA + CrossEntropy", lambda s: beside_cross_entropy(deep.ProbabilisticDA())),
    Exam("D46", "ProbabilisticDA(form='logdet')", lambda s: deep.ProbabilisticDA("logdet")),
    Exam("D47", "VirtualSampleDA", lambda s: deep.VirtualSampleDA(64, random_state=s), width=64),
    Exam("D48", "DeepFisherDA", lambda s: deep.DeepFisherDA(counts(s)), width=CLASSES),
    Exam("E01", "CosFace", lambda s: deep.CosFace(*SIZES)),
    Exam("E01n", "NormalizedSoftmax", lambda s: deep.NormalizedSoftmax(*SIZES)),
    Exam("E02", "ArcFace", lambda s: deep.ArcFace(*SIZES)),
    Exam("E03", "SphereFace", lambda s: deep.SphereFace(*SIZES)),
    Exam("E03l", "LargeMarginSoftmax", lambda s: deep.LargeMarginSoftmax(*SIZES)),
    Exam("E04", "SubCenterArcFace", lambda s: deep.SubCenterArcFace(*SIZES)),
    Exam("E04d", "DynamicArcFace", lambda s: deep.DynamicArcFace(*SIZES, counts(s))),
    Exam("E05", "AdaFace", lambda s: deep.AdaFace(*SIZES)),
    Exam("E06", "MagFace(length_bounds=(0.1, 10))", lambda s: deep.MagFace(*SIZES, (0.1, 10.0))),
    Exam("E07", "CurricularFace", lambda s: deep.CurricularFace(*SIZES)),
    Exam("E07e", "ElasticFace", lambda s: deep.ElasticFace(*SIZES, random_state=s)),
    Exam("E08", "SampledSoftmax(sample_rate=0.9)", lambda s: deep.SampledSoftmax(deep.ArcFace(*SIZES), 0.9)),
    Exam("E09", "CenterLoss", lambda s: deep.CenterLoss(*SIZES), exempt=ALONE),
    Exam("E09", "CenterLoss + CrossEntropy", lambda s: beside_cross_entropy(deep.CenterLoss(*SIZES))),
    Exam("E09p", "P2SGrad", lambda s: deep.P2SGrad(*SIZES)),
    Exam("E10", "ProxyAnchor", lambda s: deep.ProxyAnchor(*SIZES)),
    Exam("E11", "ProxyGML", lambda s: deep.ProxyGML(*SIZES)),
    Exam("E12", "HIST", lambda s: deep.HIST(*SIZES)),
    Exam("E13", "MultiSimilarity", lambda s: deep.MultiSimilarity()),
    Exam("E14", "Circle", lambda s: deep.Circle()),
    Exam("E15", "TupletMargin", lambda s: deep.TupletMargin()),
    Exam("E15v", "IntraPairVariance", lambda s: deep.IntraPairVariance(), exempt=ALONE),
    Exam("E15v", "IntraPairVariance + CrossEntropy", lambda s: beside_cross_entropy(deep.IntraPairVariance())),
    Exam("E16", "Contrastive(distance='snr')", lambda s: deep.Contrastive(**SNR)),
    Exam("E17", "RankedList", lambda s: deep.RankedList()),
    Exam("E18", "ThresholdConsistentMargin", lambda s: deep.ThresholdConsistentMargin()),
    Exam("E19", "SelectiveTriplet", lambda s: deep.SelectiveTriplet()),
]


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, width))


def train(exam: Exam, seed: int) -> tuple[nn.Module, nn.Module]:
    """The network after 300 steps, and the loss."""
    torch.manual_seed(seed)
    data, model, loss = digits(seed), network(exam.width), exam.make(seed)
    groups = [{"params": model.parameters()}, *loss.param_groups(1e-3)]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, weight_decay=1e-4)
    steps = mined_steps if exam.mined else batch_steps
    for value in steps(model, loss, data, seed):
        if not value.isfinite():
            raise RuntimeError(f"{exam.title}: the loss is {value.item()} (seed {seed})")
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model, loss


def batch_steps(model: nn.Module, loss: nn.Module, data: Digits, seed: int) -> Iterator[Tensor]:
    sampler = deep.PKBatchSampler(data.y, PER_CLASS, PER_CLASS, n_batches=STEPS, random_state=seed)
    for rows in sampler:
        yield loss(model(data.x[rows]), data.y[rows])


def mined_steps(model: nn.Module, loss: nn.Module, data: Digits, seed: int) -> Iterator[Tensor]:
    """Triplets of the whole training set, mined anew each epoch; 64 of them a step."""
    sampler = deep.OfflineTripletSampler(
        data.y, lambda: deep.embed(model, data.x), deep.Extreme("HPHN"), random_state=seed
    )
    loader = torch.utils.data.DataLoader(deep.TripletDataset(data.x), 64, sampler=sampler, drop_last=True)
    done = 0
    while done < STEPS:
        for triplet in loader:
            z, i = model(torch.cat(triplet)), torch.arange(64)
            yield loss.triplets(z, (i, i + 64, i + 128))
            done += 1
            if done == STEPS:
                return


def on_the_sphere(loss: nn.Module) -> bool:
    """Whether the loss compares directions."""
    inner = loss.loss if isinstance(loss, deep.CrossBatchMemory) else loss
    return getattr(inner, "normalize", False) or getattr(inner, "distance", None) == "cosine"


Embed = Callable[[Tensor], Tensor]


def score(embed: Embed, data: Digits) -> tuple[float, float]:
    """Recall@1 of the test points among the training points, and MAP@R among the test points."""
    with torch.no_grad():
        z, z_test = embed(data.x).numpy(), embed(data.x_test).numpy()
    first = retrieval(z_test, data.y_test, gallery=z, gallery_y=data.y.numpy(), ks=(1,)).mean()
    return first["recall@1"], retrieval(z_test, data.y_test, ks=(1,)).mean()["map@r"]


def examine(exam: Exam, seed: int) -> tuple[float, float]:
    model, loss = train(exam, seed)
    return score((lambda x: unit(model(x))) if on_the_sphere(loss) else model, digits(seed))


def untrained(seed: int) -> Embed:
    torch.manual_seed(seed)
    return network(WIDTH)


def principal_components(seed: int) -> Embed:
    pca = PCA(WIDTH).fit(digits(seed).x.numpy())
    return lambda x: torch.tensor(pca.transform(x.numpy()))


REFERENCES: dict[str, Callable[[int], Embed]] = {
    "raw pixels": lambda seed: nn.Identity(),
    "PCA, 32 components": principal_components,
    "untrained network": untrained,
}


def cell(values: list[float]) -> str:
    return f"{np.median(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def row(key: str, title: str, scores: list[tuple[float, float]], remark: str) -> str:
    recall, map_at_r = zip(*scores)
    return f"| {key} | {title} | {cell(list(recall))} | {cell(list(map_at_r))} | {remark} |"


def verdict(exam: Exam, scores: list[tuple[float, float]]) -> str:
    recall, map_at_r = np.median(scores, axis=0)
    if recall >= RECALL and map_at_r > MAP_AT_R:
        return "passes"
    return f"below: {exam.exempt}" if exam.exempt else "**below**"


def page(seeds: range, rows: list[str]) -> str:
    setting = (
        f"scikit-learn's digits, 70/30 stratified split, network 64-128-{WIDTH} (ReLU), AdamW with learning rate 1e-3, "
        f"batches of {PER_CLASS} classes × {PER_CLASS} samples, {STEPS} steps, every loss with its defaults. Recall@1 "
        "of test points among the training points, MAP@R among the test points: median [smallest, largest] over "
        f"{len(seeds)} seeds, each with its own split, network and batches."
    )
    gate = (
        f"A loss passes with a median Recall@1 of at least {RECALL} and a median MAP@R above {MAP_AT_R}, which raw "
        "pixels have on average. Recall@1 alone says little: an untrained network has nearly as much."
    )
    return "\n".join(
        [
            "# Deep losses: the digits exam",
            "",
            "<!-- written by benchmarks/deep_quality.py -->",
            "",
            *textwrap.wrap(setting, 120),
            "",
            *textwrap.wrap(gate, 120),
            "",
            "| id | loss | Recall@1 | MAP@R | |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many seeds (default 5)")
    parser.add_argument("--only", nargs="*", default=[], help="ids of rows to run; the page is then not written")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(arguments.seeds)
    exams = [e for e in EXAMS if not arguments.only or e.key in arguments.only]
    rows = [
        row("", title, [score(make(s), digits(s)) for s in seeds], "reference") for title, make in REFERENCES.items()
    ]
    print("\n".join(rows), flush=True)
    for exam in exams:
        start = time.perf_counter()
        scores = [examine(exam, seed) for seed in seeds]
        rows.append(row(exam.key, f"`{exam.title}`", scores, verdict(exam, scores)))
        print(f"{rows[-1]} {time.perf_counter() - start:.1f} s", flush=True)
    if not arguments.only:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(page(seeds, rows))
        print(f"written: {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
