"""What the page of a comparison shows of fitted metrics: points in the plane, distances, weights, convergence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.report import views
from isometry.select.result import BASELINE, Comparison

if TYPE_CHECKING:
    from isometry.select.heldout import Refits

N_CURVES = 4  # metrics whose convergence is drawn


@dataclass
class Picture:
    """The held-out rows under one metric."""

    name: str
    points: np.ndarray  # (m, 2)
    distances: np.ndarray  # (pairs,)


@dataclass
class Scene:
    """The held-out rows under several metrics; without pictures if there are no data or they carry no labels."""

    held_out: str = ""  # which rows are drawn, in words
    pictures: list[Picture] = field(default_factory=list)
    codes: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # (m,)
    classes: list[str] = field(default_factory=list)
    similar: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))  # (pairs,)
    histories: dict[str, np.ndarray] = field(default_factory=dict)
    weights: tuple[str, np.ndarray] | None = None  # name and W of the best linear metric
    notes: list[str] = field(default_factory=list)

    def add_learner(self, name: str, learner: Any) -> None:
        history = getattr(learner, "history_", None)
        if history is not None and len(history) > 1 and len(self.histories) < N_CURVES:
            self.histories[name] = np.asarray(history, dtype=np.float64)
        if self.weights is None and name != BASELINE and hasattr(learner, "mahalanobis_"):
            self.weights = name, views.weight_matrix(learner)


def make_scene(comparison: Comparison, refits: Refits | None) -> Scene:
    """From metrics that were fitted on a part of the rows; without them, from the one that was fitted on all rows."""
    if refits is None:
        scene = Scene()
        if comparison.best_estimator is not None:
            learner = comparison.best_estimator[-1]
            ranked = sorted(comparison.results, key=lambda r: r.name != comparison.best)
            same = [r.name for r in ranked if r.score is not None and type(r.estimator) is type(learner)]
            scene.add_learner(same[0] if same else type(learner).__name__, learner)
        return scene
    scene = Scene(_describe(refits), codes=refits.codes, classes=refits.classes, notes=refits.notes)
    seed = comparison.settings.get("random_state") or 0
    for found in refits.best:
        distances, scene.similar = views.pair_sample(found.Z, refits.codes, random_state=seed)
        scene.pictures.append(Picture(found.name, views.planar(found.Z), distances))
    for found in refits.best + refits.iterative:
        scene.add_learner(found.name, found.model[-1])
    return scene


def _describe(refits: Refits) -> str:
    n = len(refits.codes)
    rows = f"{n} held-out rows" if n == refits.n_held_out else f"{n} of {refits.n_held_out} held-out rows"
    new = ", of classes that the metrics never saw" if refits.new_classes else ""
    return (
        f"The pictures show {rows}{new}. For them the metrics were fitted once more, on the other {refits.n_train} "
        "rows; the scores come from the cross-validation."
    )
