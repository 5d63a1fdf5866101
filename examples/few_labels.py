"""Few labels, many samples: LLERegularizedML also keeps the geometry of the unlabelled ones. 1-NN to labelled rows.

It and TraceRatioML beat Euclidean on isolet by ten points and more. What the unlabelled rows add
over TraceRatioML, which does not see them, is small: nothing on isolet, one to three points on usps, inside the
intervals. With ten labels of a class FisherML, which may stretch directions too, is better on isolet.

Run with: python -m examples.few_labels
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import Split, contest, draw_curves, panels, report, save, splits
from examples.data import load
from isometry import Euclidean, FisherML, LLERegularizedML, TraceRatioML
from isometry.core.linalg import SingularMatrixWarning
from isometry.eval import knn_hits

N_DIMS, N_COMPONENTS = 50, 30  # of PCA; of the trace ratios, where c − 1 directions are too few with so few labels
LEARNERS = {  # and whether it takes unlabelled rows
    "Euclidean": (Euclidean, False),
    "FisherML, labelled rows only": (FisherML, False),
    "TraceRatioML, labelled rows only": (lambda: TraceRatioML(N_COMPONENTS), False),
    "LLERegularizedML, all rows": (lambda: LLERegularizedML(N_COMPONENTS, reg=1.0), True),
}
SETS = {"isolet": 26, "usps": 10}  # classes
N_TRAIN, N_TEST = 800, 600


def score(learner: Any, X: np.ndarray, y: np.ndarray, split: Split, per_class: int, semi: bool) -> float:
    """Learn from ``per_class`` labels of each class; the other training rows have the label −1, or are left out."""
    train, test = split
    order = np.random.default_rng(0).permutation(train)
    labelled = np.concatenate([order[y[order] == c][:per_class] for c in np.unique(y)])
    prepare = make_pipeline(StandardScaler(), PCA(N_DIMS, random_state=0)).fit(X[train])
    Z, known = prepare.transform(X), np.full(len(y), -1)
    known[labelled] = y[labelled]
    rows = train if semi else labelled
    learner.fit(Z[rows], known[rows])
    return float(knn_hits(learner.transform(Z[labelled]), y[labelled], learner.transform(Z[test]), y[test]).mean())


def main() -> None:
    warnings.filterwarnings("ignore", message="n_components=")  # usps: fewer labelled rows than components
    warnings.simplefilter("ignore", SingularMatrixWarning)
    figure, *axes = panels(len(SETS), 3.8)
    for ax, (name, n_classes) in zip(axes, SETS.items(), strict=True):
        X, y = load(name)
        plan, sizes = splits(y, 6, N_TRAIN, N_TEST), [2, 3, 5, 10]
        curves = {learner: [] for learner in LEARNERS}
        for size in sizes:
            scores = {}
            for learner, (make, semi) in LEARNERS.items():
                task = lambda m, s, semi=semi, size=size, X=X, y=y: score(m, X, y, s, size, semi)  # noqa: E731
                scores |= contest({learner: make}, plan, task)
                curves[learner].append(scores[learner])
            report(
                f"{name}, {n_classes} classes, {size} labels of each: accuracy of 1-NN",
                scores,
                {"LLERegularizedML, all rows"},
            )
        title = f"{name}: {N_TRAIN} rows, few of them labelled"
        draw_curves(ax, sizes, curves, "LLERegularizedML, all rows", title)
        ax.set(xlabel="labels of each class", ylabel="accuracy of 1-NN")
    save(figure, "few_labels")


if __name__ == "__main__":
    main()
