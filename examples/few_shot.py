"""Few-shot classification of classes never seen in training: five ways, one or five shots.

Handwritten characters (omniglot_small): the last three alphabets are the test, the others are learned from. One drawing
of each class is enough for 86 to 88 % with prototypes or triplets, against 41 % from raw pixels; scores of several
scales come near, adapted weights (MAML) less so, and continuous scores gain least.

Sentences (clinc150_minilm, embedded by a language model): the last three domains of intents are the test. There raw
features leave little to learn from other domains: a linear map adds a third of a point with one shot, next to nothing
with five; continuous scores, which replace the distance altogether, do not beat raw features.

Settings were chosen on the last alphabet, or the last two domains, of the training part, by the accuracies that
`python -m examples.few_shot --choose` prints.

Run with: python -m examples.few_shot
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import nn
from torch.utils.data import DataLoader

from examples.contest import ORANGE, panels, save
from examples.data import ROOT, load_all
from isometry.deep import (
    BatchSemiHard,
    ContinuousScores,
    ConvNet,
    FeaturePyramid,
    LinearMap,
    MultiScale,
    PairDataset,
    PairSampler,
    Prototypes,
    Trainer,
    Triplet,
    TwoStep,
    episode_loader,
    episode_scorer,
)
from isometry.eval import FewShot, few_shot, paired_interval

RESULTS = ROOT / "docs" / "results" / "few_shot.md"
RAW, SHOTS, EPISODES = "raw features", (1, 5), 600
INTRODUCTION = """\
Five classes are drawn that no method was trained on, and one or five samples of each are shown; 15 others of each
class are to be told apart. Accuracy in percent, mean ± 95 % interval over 600 episodes, which are the same for all
methods; in brackets the paired change to raw features. The intervals are over episodes of these test classes, from
one training run each: they do not say how another run or other classes would fare.

omniglot_small: 28 × 28 drawings; the alphabets Latin, Sanskrit and Tagalog are the test, the other five are learned
from, turned by quarters as further classes. A small convolutional network with 64 outputs. clinc150_minilm: sentences
embedded by a language model; the domains travel, utility and work are the test, the other seven are learned from. A
linear map that begins as the identity. Settings were chosen on the last alphabet, or the last two domains, of the
training part."""
Measure = Callable[[np.ndarray, np.ndarray, int, int], FewShot]  # samples, labels, shots, episodes


@dataclass(frozen=True)
class Task:
    """Classes to learn from and classes to test on."""

    x: np.ndarray
    y: np.ndarray
    new_x: np.ndarray
    new_y: np.ndarray
    network: Callable[[], nn.Module]
    temperature: float  # of the prototypes, about the scale of squared distances between features
    turns: bool = False  # images turned by quarters are further classes to learn from

    def training_set(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.turns:
            return self.x, self.y
        quarters = range(4)
        x = np.concatenate([np.rot90(self.x, k, axes=(2, 3)) for k in quarters])
        return x, np.concatenate([self.y + k * (self.y.max() + 1) for k in quarters])


def characters(choose: bool) -> Task:
    arrays = load_all("omniglot_small")
    images = arrays["X"].reshape(-1, 1, 28, 28).astype(np.float32) / 255
    parts = by_group(images, arrays["y"], arrays["alphabet"], 1 if choose else 3, 3 if choose else 0)
    return Task(*parts, network=lambda: ConvNet((1, 28, 28), 64, width=8, blocks=3), temperature=1.0, turns=True)


def sentences(choose: bool) -> Task:
    arrays = load_all("clinc150_minilm")
    x, y = arrays["X"].astype(np.float32), arrays["y"]
    x *= np.sqrt(x.shape[1])  # from unit length to unit variance
    parts = by_group(x, y, arrays["class_domain"][y], 2 if choose else 3, 3 if choose else 0)
    return Task(*parts, network=linear, temperature=40.0)


def by_group(x: np.ndarray, y: np.ndarray, group: np.ndarray, n_new: int, n_unused: int) -> tuple[np.ndarray, ...]:
    """The last groups as new classes, those before them to learn from; the very last are left out altogether."""
    names = np.unique(group)
    names = names[: len(names) - n_unused]
    known, new = (np.isin(group, part) for part in (names[:-n_new], names[-n_new:]))
    return x[known], y[known], x[new], y[new]


def linear() -> nn.Module:
    """The features as they are, to begin with."""
    model = LinearMap(384, 384)
    nn.init.eye_(model.weight)
    return model


# -- methods: learn from a task, with some setting, and give a way to measure ------------------------------------------


def raw(task: Task) -> Measure:
    return lambda x, y, k, n: few_shot(x.reshape(len(x), -1), y, k_shot=k, episodes=n)


def prototypes(task: Task, lr: float, episodes: int = 250) -> Measure:
    model, objective = task.network(), Prototypes(task.temperature)
    by_episodes(task, model, objective, lr, episodes, n_way=20)
    return lambda x, y, k, n: few_shot(embedded(model, x), y, k_shot=k, episodes=n)


def triplet(task: Task, lr: float, batches: int = 300) -> Measure:
    batch = {"classes_per_batch": 16, "samples_per_class": 4, "batches_per_epoch": batches}
    trainer = Trainer(task.network(), Triplet(miner=BatchSemiHard()), lr=lr, max_epochs=1, **batch)
    trainer.fit(*task.training_set())
    return lambda x, y, k, n: few_shot(trainer.embed(x).numpy(), y, k_shot=k, episodes=n)


def two_step(task: Task, lr: float, inner_lr: float, mode: str = "maml", episodes: int = 800) -> Measure:
    model, loss = task.network(), Prototypes(task.temperature)
    objective = TwoStep(loss, mode, inner_lr=inner_lr, inner_steps=1)
    by_episodes(task, model, objective, lr, episodes, n_way=5, accumulate=2)
    return lambda x, y, k, n: few_shot(x, y, k_shot=k, episodes=n, score=episode_scorer(objective, model))


def continuous(task: Task, lr: float, batches: int = 400) -> Measure:
    model, (x, y) = task.network(), task.training_set()
    objective = ContinuousScores(model(torch.from_numpy(x[:1])).shape[1])
    pairs = PairSampler(y, n_pairs=32 * batches)  # half of them similar
    fit(model, objective, lr, DataLoader(PairDataset(torch.from_numpy(x)), 32, sampler=pairs))
    score = episode_scorer(objective, nn.Identity())
    return lambda x, y, k, n: few_shot(embedded(model, x), y, k_shot=k, episodes=n, score=score)


def multi_scale(task: Task, lr: float, episodes: int = 400) -> Measure:
    model, objective = FeaturePyramid((1, 28, 28), 16), MultiScale(16)
    by_episodes(task, model, objective, lr, episodes, n_way=10)
    return lambda x, y, k, n: few_shot(x, y, k_shot=k, episodes=n, score=episode_scorer(objective, model))


def by_episodes(
    task: Task, model: nn.Module, objective: nn.Module, lr: float, episodes: int, n_way: int, accumulate: int = 1
) -> None:
    fit(model, objective, lr, episode_loader(*task.training_set(), n_way, 1, 3, episodes), accumulate)


def fit(model: nn.Module, objective: nn.Module, lr: float, loader: DataLoader, accumulate: int = 1) -> None:
    Trainer(model, objective, lr=lr, max_epochs=1, accumulate=accumulate, device="cpu").fit(loader)


@torch.no_grad()
def embedded(model: nn.Module, x: np.ndarray) -> np.ndarray:
    return torch.cat([model(part) for part in torch.from_numpy(x).split(500)]).numpy()


METHODS: dict[str, Callable[..., Measure]] = {
    RAW: raw,
    "Prototypes": prototypes,
    "Triplet, semi-hard": triplet,
    "TwoStep, MAML": two_step,
    "TwoStep, first order": partial(two_step, mode="fomaml"),
    "ContinuousScores": continuous,
    "MultiScale": multi_scale,
}
# the candidates, of which the first was chosen on classes that are no part of the test
SETTINGS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "omniglot_small": {
        RAW: [{}],
        "Prototypes": [{"lr": 3e-3}, {"lr": 1e-2}],
        "Triplet, semi-hard": [{"lr": 3e-3}, {"lr": 1e-3}],
        "TwoStep, MAML": [{"lr": 3e-3, "inner_lr": 0.02}, {"lr": 3e-3, "inner_lr": 0.1}],
        "ContinuousScores": [{"lr": 1e-3}, {"lr": 3e-3}],
        "MultiScale": [{"lr": 3e-3}, {"lr": 1e-3}],
    },
    "clinc150_minilm": {
        RAW: [{}],
        "Prototypes": [{"lr": 1e-4}, {"lr": 1e-3}],
        "Triplet, semi-hard": [{"lr": 1e-4}, {"lr": 1e-3}],
        "TwoStep, MAML": [{"lr": 1e-4, "inner_lr": 0.5}, {"lr": 1e-4, "inner_lr": 0.02}],
        "TwoStep, first order": [{"lr": 1e-4, "inner_lr": 0.5}, {"lr": 1e-4, "inner_lr": 0.02}],
        "ContinuousScores": [{"lr": 3e-4}, {"lr": 1e-3}],
    },
}
TASKS = {"omniglot_small": characters, "clinc150_minilm": sentences}


def learned(task: Task, method: str, setting: dict[str, Any]) -> Measure:
    torch.manual_seed(0)
    return METHODS[method](task, **setting)


def choose() -> None:
    """Print the accuracy of each candidate on the validation classes."""
    for name, candidates in SETTINGS.items():
        task = TASKS[name](True)
        for method, settings in candidates.items():
            for setting in settings:
                measure = learned(task, method, setting)
                one, five = (measure(task.new_x, task.new_y, k, 100).mean for k in SHOTS)
                print(f"{name}, validation: {method:22s} {words(setting):24s} {one:.3f} {five:.3f}", flush=True)


def contest(name: str) -> dict[str, list[FewShot]]:
    """Each method, with its chosen setting, on the same episodes of the test classes: one shot, then five."""
    task, results = TASKS[name](False), {}
    known, new = (len(np.unique(y)) for y in (task.training_set()[1], task.new_y))
    print(
        f"\n{name}: {known} classes to learn from, {new} others to test on; five ways, {EPISODES} episodes", flush=True
    )
    for method, settings in SETTINGS[name].items():
        start = time.process_time()
        measure = learned(task, method, settings[0])
        results[method] = [measure(task.new_x, task.new_y, k, EPISODES) for k in SHOTS]
        cells = [cell(r, raw) for r, raw in zip(results[method], results[RAW])]
        print(f"  {method:22s} {'   '.join(cells)}   ({time.process_time() - start:.0f} s)", flush=True)
    return results


def cell(result: FewShot, raw: FewShot) -> str:
    """Mean ± half of the interval, and the change to raw features on the same episodes."""
    i = result.interval()
    text = f"{100 * i.mean:.1f} ± {100 * (i.high - i.mean):.1f}"
    if result is raw:
        return f"{text:42s}"
    d = paired_interval(result.accuracy, raw.accuracy)
    verdict = "better" if d.low > 0 else "worse" if d.high < 0 else "no difference"
    digits = 1 if abs(d.mean) > 0.01 else 2
    mean, low, high = (f"{100 * value:+.{digits}f}" for value in d)
    return f"{text} ({mean} [{low}, {high}] {verdict})"


def words(setting: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value:g}" for key, value in setting.items())


def table(results: dict[str, dict[str, list[FewShot]]]) -> str:
    lines = [
        "# Few-shot classification of unseen classes",
        "",
        "<!-- written by examples/few_shot.py -->",
        "",
        "`python -m examples.few_shot` writes this page.",
        "",
        INTRODUCTION,
    ]
    for name, methods in results.items():
        lines += ["", f"## {name}", "", "| method | setting | 1 shot | 5 shots |", "|---|---|---|---|"]
        for method, values in methods.items():
            cells = " | ".join(cell(r, raw).strip() for r, raw in zip(values, methods[RAW]))
            lines.append(f"| {method} | {words(SETTINGS[name][method][0])} | {cells} |")
    return "\n".join([*lines, ""])


def picture(ax: Axes, name: str, methods: dict[str, list[FewShot]]) -> None:
    """One row a method, a dot for each number of shots with its interval; dotted: raw features."""
    rows = list(methods)[::-1]
    for k, marker, colour, column in zip(SHOTS, "os", (ORANGE, "#2f6f9f"), range(2)):
        intervals = [methods[method][column].interval() for method in rows]
        means = np.array([i.mean for i in intervals])
        error = [i.high - i.mean for i in intervals]
        label = f"{k} shot{'s' * (k > 1)}"
        ax.errorbar(means, range(len(rows)), xerr=error, fmt=marker, color=colour, capsize=3, label=label)
        ax.axvline(methods[RAW][column].mean, color=colour, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(rows)), rows)
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_title(f"{name}: five ways, unseen classes", fontsize=10)
    ax.set_xlabel("accuracy, mean and 95 % interval over episodes", fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False, loc="best")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choose", action="store_true", help="compare settings on validation classes instead")
    torch.set_num_threads(1)
    if parser.parse_args().choose:
        return choose()
    results = {name: contest(name) for name in SETTINGS}
    figure, *axes = panels(len(results), 3.6)
    for ax, (name, methods) in zip(axes, results.items(), strict=True):
        picture(ax, name, methods)
    save(figure, "few_shot")
    RESULTS.write_text(table(results))
    print(f"written: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
