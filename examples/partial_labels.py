"""Ambiguous labels: each row has a set of candidates, one of them right. PartialLabelGMML learns from the sets.

False candidates are added at random to a real set. Prediction: the candidate named most often by the 10 nearest rows.
With one or two false candidates PartialLabelGMML keeps most of what GMML gains from the right labels, while GMML with
one candidate taken as the label gains next to nothing. Three false ones among seven classes (segment) are too many.

Run with: python -m examples.partial_labels
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from examples.contest import Split, draw_curves, panels, report, save, splits
from examples.data import load
from isometry import GMML, Candidates, Euclidean, PartialLabelGMML
from isometry.core.linalg import SingularMatrixWarning
from isometry.eval import nearest

SETS, SIZES = ("segment", "letter"), [0, 1, 2, 3]  # false candidates of each row, beside the right one
N_TRAIN, N_TEST, N_NEIGHBORS = 600, 600, 10


def candidates(y: np.ndarray, n_false: int, rng: np.random.Generator) -> np.ndarray:
    """(n, q) the right label and ``n_false`` others of each row, as truth values."""
    lots = rng.random((len(y), y.max() + 1))
    lots[np.arange(len(y)), y] = -1  # the right one is drawn first
    return lots.argsort(axis=1).argsort(axis=1) <= n_false


def guess(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n,) one candidate of each row, drawn at random: what a method that needs labels has to be given."""
    return np.where(mask, rng.random(mask.shape), -1).argmax(axis=1)


def score(learner: Any, side: Any, X: np.ndarray, y: np.ndarray, mask: np.ndarray, split: Split) -> float:
    train, test = split
    scale = StandardScaler().fit(X[train])
    learner.fit(scale.transform(X[train]), side)
    Z, Z_test = (learner.transform(scale.transform(X[rows])) for rows in split)
    index, _ = nearest(Z_test, N_NEIGHBORS, gallery=Z)  # (m, k)
    return float(np.mean(mask[index].sum(axis=1).argmax(axis=1) == y[test]))


def main() -> None:
    warnings.simplefilter("ignore", SingularMatrixWarning)  # segment has columns that depend on one another
    warnings.filterwarnings("ignore", message="no sample without a common candidate")  # four of seven are candidates
    figure, *axes = panels(len(SETS), 3.8)
    for ax, name in zip(axes, SETS, strict=True):
        X, y = load(name)
        names = ("Euclidean", "GMML, one candidate as label", "GMML, all right labels", "PartialLabelGMML")
        curves: dict[str, list[list[float]]] = {method: [] for method in names}
        for n_false in SIZES:
            for method in names:
                curves[method].append([])
            for seed, split in enumerate(splits(y, 6, N_TRAIN, N_TEST)):
                rng, labels = np.random.default_rng(seed), y[split[0]]
                mask = candidates(labels, n_false, rng)
                sides = (labels, guess(mask, rng), labels, Candidates(mask))
                learners = (Euclidean(), GMML(), GMML(), PartialLabelGMML())
                for method, learner, side in zip(names, learners, sides, strict=True):
                    curves[method][-1].append(score(learner, side, X, y, mask, split))
            scores = {method: columns[-1] for method, columns in curves.items()}
            title = f"{name}, {n_false} false candidates: accuracy of the vote"
            report(title, scores, {"PartialLabelGMML"}, frozenset({"GMML, all right labels"}))
        draw_curves(ax, SIZES, curves, "PartialLabelGMML", f"{name}: {y.max() + 1} classes")
        ax.set(xlabel="false candidates of each row", ylabel="accuracy")
    save(figure, "partial_labels")


if __name__ == "__main__":
    main()
