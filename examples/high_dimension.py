"""Fewer samples than features: TraceRatioML works where the samples are, orthonormally, and needs no ridge. 1-NN.

Fisher's ratio needs the inverse of the scatter within classes, which few samples do not give: after PCA it falls far
below Euclidean where n − c comes near the number of components. TraceRatioML as it is does as well as FisherML with a
ridge, and nothing has to be chosen.

Run with: python -m examples.high_dimension
"""

from __future__ import annotations

import warnings

from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import contest, draw_curves, knn_score, panels, report, save, splits
from examples.data import load
from isometry import Euclidean, FisherML, TraceRatioML
from isometry.core.linalg import SingularMatrixWarning

LEARNERS = {
    "Euclidean": Euclidean,
    "PCA 99 %, FisherML": lambda: make_pipeline(PCA(0.99), FisherML()),
    "PCA 99 %, FisherML(reg=0.1)": lambda: make_pipeline(PCA(0.99), FisherML(reg=0.1)),
    "TraceRatioML": TraceRatioML,
}
SETS = {"orl_faces": [80, 120, 160, 200], "tissue_gene": [21, 28, 42, 63]}  # rows to learn from


def main() -> None:
    warnings.simplefilter("ignore", SingularMatrixWarning)  # what FisherML suffers from here, and says
    learners = {name: lambda make=make: make_pipeline(StandardScaler(), make()) for name, make in LEARNERS.items()}
    figure, *axes = panels(len(SETS), 3.8)
    for ax, (name, sizes) in zip(axes, SETS.items(), strict=True):
        X, y = load(name)
        curves = {learner: [] for learner in learners}
        for size in sizes:
            scores = contest(learners, splits(y, 5, size), lambda m, s, X=X, y=y: knn_score(m, X, y, s, k=1))
            report(f"{name}, {size} rows of {X.shape[1]} features: accuracy of 1-NN", scores, {"TraceRatioML"})
            for learner, values in scores.items():
                curves[learner].append(values)
        draw_curves(ax, sizes, curves, "TraceRatioML", f"{name}: {X.shape[1]} features")
        ax.set(xlabel="rows to learn from", ylabel="accuracy of 1-NN")
    save(figure, "high_dimension")


if __name__ == "__main__":
    main()
