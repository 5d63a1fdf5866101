"""Fewer samples than features: TraceRatioML works where the samples are, orthonormally, and needs no ridge. 1-NN.

Fisher's ratio needs the inverse of the scatter within classes, which is singular. The textbook's remedy, PCA to n − c
components first, discards the directions in which the samples of a class do not differ at all, and keeps a matrix that
is all but singular: it falls far below Euclidean. TraceRatioML lives on those directions, and beats Euclidean, PCA and
the textbook. A ridge saves FisherML as well, be it the one it adds by itself (1e-4, with a warning) or a larger one:
then the two are level.

Run with: python -m examples.high_dimension
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import contest, difference, draw_curves, knn_score, panels, report, save, splits
from examples.data import load
from isometry import Euclidean, FisherML, TraceRatioML
from isometry.core.linalg import SingularMatrixWarning

SPECIAL, WITH_RIDGE = "TraceRatioML", ("FisherML, ridge by itself", "FisherML(reg=0.1)")
DRAWN = ("Euclidean", "PCA to c − 1", WITH_RIDGE[0], SPECIAL)  # the textbook lies far below
SETS = {"orl_faces": ([80, 120, 160, 200], 40), "tissue_gene": ([21, 28, 42, 63], 7)}  # rows to learn from; classes
N_SPLITS = 10


def methods(n: int, c: int) -> Mapping[str, Callable[[], Any]]:
    """For n rows of c classes. PCA() loses nothing: it turns the n − 1 dimensions of the samples to the front."""
    return {
        "Euclidean": Euclidean,
        "PCA to c − 1": lambda: PCA(c - 1, random_state=0),
        "PCA to n − c, FisherML": lambda: make_pipeline(PCA(n - c, random_state=0), FisherML()),
        WITH_RIDGE[0]: lambda: make_pipeline(PCA(random_state=0), FisherML()),
        WITH_RIDGE[1]: lambda: make_pipeline(PCA(random_state=0), FisherML(reg=0.1)),
        SPECIAL: TraceRatioML,
    }


def main() -> None:
    warnings.simplefilter("ignore", SingularMatrixWarning)  # what FisherML suffers from here, and says
    figure, *axes = panels(len(SETS), 3.8)
    for ax, (name, (sizes, c)) in zip(axes, SETS.items(), strict=True):
        X, y = load(name)
        curves: dict[str, list[list[float]]] = {learner: [] for learner in DRAWN}
        for size in sizes:
            learners = {
                learner: lambda make=make: make_pipeline(StandardScaler(), make())
                for learner, make in methods(size, c).items()
            }
            score = lambda m, s, X=X, y=y: knn_score(m, X, y, s, k=1)  # noqa: E731
            scores = contest(learners, splits(y, N_SPLITS, size), score)
            title = f"{name}, {size} rows of {X.shape[1]} features: accuracy of 1-NN"
            report(title, scores, {SPECIAL}, frozenset(WITH_RIDGE))
            for learner in WITH_RIDGE:
                print(f"  → {SPECIAL} against {learner}: {difference(scores, SPECIAL, learner)[0]}")
            for learner in DRAWN:
                curves[learner].append(scores[learner])
        draw_curves(ax, sizes, curves, SPECIAL, f"{name}: {X.shape[1]} features")
        ax.set(xlabel="rows to learn from", ylabel="accuracy of 1-NN")
    save(figure, "high_dimension")


if __name__ == "__main__":
    main()
