"""Rare classes in few dimensions: DMBK balances the divergences between classes, IML weighs every class alike.

A projection on one or two components has to choose which classes to keep apart, and an average over samples chooses the
large ones. Balanced accuracy there, of a vote of 15 neighbours in which each counts in proportion to how rare its class
is, on winequality_red_4 (3 % of the rare class) and page_blocks (five classes, 90 % in one): in one component DMBK wins
on both, by three and by five points; in two, after 400 rows of page_blocks, IML with a margin of 100 wins by three. In
two components after 800 rows DMBK is first, but not clearly.

With all features nothing is gained on these sets, by no measure that was tried: F₁ of the rare class with 3-NN, the
geometric mean of recalls, votes divided by the size of the class with up to 41 neighbours. IML was tried there with
every margin and reg of its paper's grid, optimised as here and as by its authors: after 1,641 rows its F₁ for the rare
classes 3 to 5 of page_blocks is 0.719 and 0.728 at best, GMML's 0.733. Few components were looked at after that. IML's
setting, two components, 400 rows and a margin of 100, was picked out of more than a hundred; it is shown on 80 splits
that were drawn once, when all of this was fixed. On 80 earlier ones, 40 of them not clear yet, it won by 2.8 points.

Run with: python -m examples.imbalance
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import Split, contest, draw, panels, report, save, splits
from examples.data import load
from isometry import DMBK, GMML, IML, LMNN, NCA, FisherML

RIVALS = {"PCA": PCA, "GMML": GMML, "FisherML": FisherML, "LMNN": LMNN, "NCA": partial(NCA, random_state=0)}
CASES = [  # set, components, rows to learn from, rows to test, margin of IML, splits, their seed
    ("winequality_red_4", 1, 800, 799, 1, 20, 1),
    ("winequality_red_4", 2, 800, 799, 1, 20, 1),
    ("page_blocks", 1, 800, 3000, 1, 20, 1),
    ("page_blocks", 2, 800, 3000, 1, 20, 1),
    ("page_blocks", 2, 400, 3000, 100, 80, 2026),
]


def balanced_vote(learner: Any, X: np.ndarray, y: np.ndarray, split: Split, k: int = 15) -> float:
    """Mean recall of the classes on the test rows; votes count 1/distance, over the size of the class."""
    train, test = split
    Z = learner.fit(X[train], y[train]).transform(X[train])
    voters = KNeighborsClassifier(k, weights="distance").fit(Z, y[train])
    share = np.bincount(np.searchsorted(voters.classes_, y[train])) / len(train)
    votes = voters.predict_proba(learner.transform(X[test])) / share  # (m, c)
    return float(balanced_accuracy_score(y[test], voters.classes_[votes.argmax(axis=1)]))


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    figure, *axes = panels(len(CASES), 3.6)
    for ax, (name, p, train, test, margin, n_splits, seed) in zip(axes, CASES, strict=True):
        X, y = load(name)
        balanced = {
            f"IML(margin={margin})": partial(IML, margin=margin, strength=1.0),
            "DMBK": partial(DMBK, n_init=1, random_state=0),
        }
        learners = {
            method: lambda make=make, p=p: make_pipeline(StandardScaler(), make(n_components=p))
            for method, make in {**RIVALS, **balanced}.items()
        }
        score = lambda m, s, X=X, y=y: balanced_vote(m, X, y, s)  # noqa: E731
        scores = contest(learners, splits(y, n_splits, train, test, seed), score)
        title = f"{name}, {p} component{'s' if p > 1 else ''}, {train} rows"
        report(f"{title}: balanced accuracy", scores, set(balanced))
        draw(ax, scores, set(balanced), title, "balanced accuracy")
    save(figure, "imbalance")


if __name__ == "__main__":
    main()
