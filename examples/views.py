"""Several views of the same objects: FishMML learns a projection for each view, and makes the views agree. 1-NN.

Six feature sets of handwritten numerals, of 6 to 240 columns. Joined, the widest view dominates the distance.
With up to 50 rows FishMML beats both Euclidean and Fisher's ratio of the joined columns; with 400 rows that ratio wins,
since it can also weigh columns of different views against one another. The agreement between views (λ₂) adds nothing
that could be measured here: the gain comes from one projection for each view.

Run with: python -m examples.views
"""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from examples.contest import contest, draw, draw_curves, knn_score, panels, report, save, splits
from examples.data import load_all
from isometry import Euclidean, FisherML, FishMML

SIZES = [20, 50, 100, 400]  # rows to learn from


def main() -> None:
    arrays = load_all("mfeat")
    X, y = arrays["X"].astype(np.float64), arrays["y"]
    views = {str(name): slice(*ends) for name, ends in zip(arrays["view_names"], arrays["view_slices"], strict=True)}
    sizes = [min(9, view.stop - view.start - 1) for view in views.values()]  # c − 1 directions, below the width
    learners = {
        "Euclidean": Euclidean,
        "PCA 99 %, FisherML(reg=0.1)": lambda: make_pipeline(PCA(0.99), FisherML(reg=0.1)),
        "FishMML, agreement off": lambda: FishMML(
            sizes, views=list(views.values()), lambda1=0.1, lambda2=0.0, strength=1.0
        ),
        "FishMML": lambda: FishMML(sizes, views=list(views.values()), lambda1=0.1, strength=1.0),
    }
    learners = {name: lambda make=make: make_pipeline(StandardScaler(), make()) for name, make in learners.items()}
    figure, left, right = panels(2, 3.8)
    plan = splits(y, 6, SIZES[1], 800)
    alone = {"all, Euclidean": learners["Euclidean"], "all, FishMML": learners["FishMML"]}
    scores = contest(alone, plan, lambda m, s: knn_score(m, X, y, s, k=1))
    for name, view in views.items():
        euclidean = {f"{name} alone, Euclidean": learners["Euclidean"]}
        scores |= contest(euclidean, plan, lambda m, s, view=view: knn_score(m, X[:, view], y, s, k=1))
    report(f"mfeat, {SIZES[1]} rows: accuracy of 1-NN", scores, {"all, FishMML"})
    draw(left, scores, {"all, FishMML"}, f"mfeat, {SIZES[1]} rows: each view alone", "accuracy of 1-NN")
    curves = {name: [] for name in learners}
    for size in SIZES:
        scores = contest(learners, splits(y, 6, size, 800), lambda m, s: knn_score(m, X, y, s, k=1))
        report(f"mfeat, all views, {size} rows: accuracy of 1-NN", scores, {"FishMML", "FishMML, agreement off"})
        for name, values in scores.items():
            curves[name].append(values)
    draw_curves(right, SIZES, curves, "FishMML", "mfeat, all views")
    right.set(xlabel="rows to learn from", ylabel="accuracy of 1-NN")
    save(figure, "views")


if __name__ == "__main__":
    main()
