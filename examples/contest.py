"""What the examples share: the same splits for every method, means with intervals, and a picture of them.

Intervals are those of the mean over random splits of one set. Splits share rows, so that they tell how much depends on
the split, not how another set would fare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from sklearn.model_selection import StratifiedShuffleSplit

from examples.data import IMAGES
from isometry.eval import Interval, balanced_accuracy, knn_hits, mean_interval, paired_interval

GREY, ORANGE = "#8a8f98", "#d9730d"
Split = tuple[np.ndarray, np.ndarray]  # rows to learn from, rows to test
Scores = dict[str, list[float]]  # one number for each split


def splits(
    y: np.ndarray, n_splits: int, train_size: float | int, test_size: float | int | None = None, seed: int = 1
) -> list[Split]:
    """Seeded stratified splits, the same at every call."""
    plan = StratifiedShuffleSplit(n_splits, train_size=train_size, test_size=test_size, random_state=seed)
    return list(plan.split(np.zeros(len(y)), y))


def knn_score(learner: Any, X: np.ndarray, y: np.ndarray, split: Split, *, k: int = 3, balanced: bool = False) -> float:
    """Accuracy of k-NN on the test rows in the space that ``learner``, or a pipeline, learns from the training rows."""
    train, test = split
    Z = learner.fit(X[train], y[train]).transform(X[train])
    hits = knn_hits(Z, y[train], learner.transform(X[test]), y[test], k)
    return balanced_accuracy(hits, y[test]) if balanced else float(hits.mean())


def contest(
    learners: Mapping[str, Callable[[], Any]], plan: list[Split], score: Callable[[Any, Split], float]
) -> Scores:
    """``score`` of a new learner of each kind on each split."""
    return {name: [score(make(), split) for split in plan] for name, make in learners.items()}


def report(title: str, scores: Scores, special: set[str], beyond: frozenset[str] = frozenset()) -> None:
    """Print each mean, its paired difference to the first method, and who wins; 95 % intervals over the splits.

    Methods of ``beyond`` know more than the others do, and are no rivals.
    """
    baseline, *others = scores
    print(f"\n{title}")
    for name, values in scores.items():
        m = mean_interval(np.array(values))
        line = f"  {name:33s} {m.mean:.3f} [{m.low:.3f}, {m.high:.3f}]"
        print(line + (f"   change {difference(scores, name, baseline)[0]}" if name in others else ""))
    first = max(special, key=lambda name: np.mean(scores[name]))
    rival = max(scores.keys() - special - beyond, key=lambda name: np.mean(scores[name]))
    text, d = difference(scores, first, rival)
    verdict = "wins" if d.low > 0 else "loses" if d.high < 0 else "no clear winner"
    print(f"  → {first} against {rival}: {text}: {verdict}")


def difference(scores: Scores, name: str, other: str) -> tuple[str, Interval]:
    """What ``name`` adds to ``other``, in words and as an interval."""
    d = paired_interval(np.array(scores[name]), np.array(scores[other]))
    return f"{100 * d.mean:+5.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}] points", d


def draw(ax: Axes, scores: Scores, special: set[str], title: str, xlabel: str) -> None:
    """Means as dots with their intervals, the special methods in colour; each thin dot is one split."""
    rows = list(scores)[::-1]
    for place, name in enumerate(rows):
        m, colour = mean_interval(np.array(scores[name])), ORANGE if name in special else GREY
        ax.plot(scores[name], np.full(len(scores[name]), place), ".", color=colour, alpha=0.35, markersize=4)
        ax.errorbar(m.mean, place, xerr=[[m.mean - m.low], [m.high - m.mean]], fmt="o", color=colour, capsize=3)
    ax.axvline(np.mean(scores[next(iter(scores))]), color=GREY, linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(rows)), rows)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(xlabel, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)


def draw_curves(ax: Axes, sizes: list[Any], curves: Mapping[str, list[list[float]]], special: str, title: str) -> None:
    """One line per method over ``sizes``, with the intervals of its means; ``curves[name][place]`` are the splits."""
    greys = iter((("#33383f", "s"), ("#71777f", "^"), ("#a9afb7", "D")))
    for shift, (name, columns) in zip(np.linspace(-0.09, 0.09, len(curves)), curves.items(), strict=True):
        means = [mean_interval(np.array(values)) for values in columns]
        colour, marker = (ORANGE, "o") if name == special else next(greys)
        error = np.array([[m.mean - m.low, m.high - m.mean] for m in means]).T
        middle, place = [m.mean for m in means], np.arange(len(sizes)) + shift
        ax.errorbar(place, middle, yerr=error, marker=marker, markersize=5, color=colour, label=name, capsize=2)
    ax.set_xticks(range(len(sizes)), sizes)
    ax.set_title(title, fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)


def save(figure: plt.Figure, name: str) -> None:
    """Write docs/images/NAME.png."""
    figure.tight_layout()
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"\nwritten: docs/images/{name}.png")


def panels(count: int, height: float = 3.2) -> Iterator[Any]:
    """The figure, then its axes side by side."""
    figure, axes = plt.subplots(1, count, figsize=(5.2 * count, height), squeeze=False)
    yield figure
    yield from axes[0]
