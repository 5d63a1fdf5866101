"""Rare classes: IML weighs every class alike, DMBK balances the divergences between classes. Balanced accuracy, 1-NN.

On balance, where a rare class lies between two others, DMBK gains much over Euclidean, though not clearly more than
FisherML. On winequality_red_4 and page_blocks nothing is gained. Nor is it by other measures (F₁ of the rare class with
3-NN, the geometric mean of recalls, votes divided by the size of the class with up to 41 neighbours), nor by other
settings of IML (margins up to 100, reg from 0.01 to 1, less weight on similar pairs, another unit of distance).

Run with: python -m examples.imbalance
"""

from __future__ import annotations

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import contest, draw, knn_score, panels, report, save, splits
from examples.data import load
from isometry import DMBK, GMML, IML, LMNN, Euclidean, FisherML

RIVALS = {"Euclidean": Euclidean, "GMML": GMML, "FisherML": FisherML, "LMNN": LMNN}
BALANCED = {
    "IML": IML,
    "DMBK": lambda: DMBK(n_init=1, random_state=0),
    "DMBK(divergence='plain')": lambda: DMBK(divergence="plain", n_init=1, random_state=0),
}
SETS = {
    "balance": (300, 300),
    "winequality_red_4": (500, 900),
    "page_blocks": (400, 2000),
}  # rows to learn from, rows to test


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    methods = {**RIVALS, **BALANCED}
    learners = {name: lambda make=make: make_pipeline(StandardScaler(), make()) for name, make in methods.items()}
    figure, *axes = panels(len(SETS), 3.6)
    for ax, (name, (train, test)) in zip(axes, SETS.items(), strict=True):
        X, y = load(name)
        score = lambda m, s, X=X, y=y: knn_score(m, X, y, s, k=1, balanced=True)  # noqa: E731
        scores = contest(learners, splits(y, 5, train, test), score)
        report(f"{name}, {train} rows: balanced accuracy of 1-NN", scores, set(BALANCED))
        draw(ax, scores, set(BALANCED), f"{name}, {train} rows", "balanced accuracy of 1-NN")
    save(figure, "imbalance")


if __name__ == "__main__":
    main()
