"""What the report draws: the best metrics, fitted on a part of the rows, and what they make of the others."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from isometry.report import views
from isometry.supervision import Labels, Supervision

if TYPE_CHECKING:
    from isometry.select.result import Comparison, MethodResult

PICTURED = 3  # learned metrics drawn beside Euclidean
TRACED = 4  # iterative metrics whose convergence is drawn
HELD_OUT = 0.3
BASELINE = "Euclidean"


@dataclass
class View:
    """One metric, fitted on the training part, and what it makes of the held-out part."""

    name: str
    points: np.ndarray  # (m, 2)
    distances: np.ndarray  # (pairs,)


@dataclass
class Scene:
    """The held-out part under several metrics; empty if there are no data or they carry no labels."""

    held_out: str = ""  # which rows are drawn, in words
    views: list[View] = field(default_factory=list)
    codes: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))  # (m,)
    classes: list[str] = field(default_factory=list)
    similar: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))  # (pairs,)
    histories: dict[str, np.ndarray] = field(default_factory=dict)
    weights: tuple[str, np.ndarray] | None = None  # name and W of the best linear metric
    notes: list[str] = field(default_factory=list)


def make_scene(comparison: Comparison, X: Any, y: Any, max_points: int) -> Scene:
    """Fit what the report draws; without data or labels, only the metric that the comparison itself fitted."""
    scene = Scene()
    labels = _as_labels(X, y)
    if labels is None:
        _add_fitted(scene, comparison)
        return scene
    table = np.asarray(X)
    seed = comparison.settings.get("random_state") or 0
    train, test = _split(labels.codes, comparison.protocol, seed)
    drawn = _thin(test, max_points, seed)
    scene.held_out = _describe_split(labels.codes, train, test, drawn)
    _fit_views(scene, comparison, table, labels.codes, train, drawn, seed)
    shown, scene.codes = np.unique(scene.codes, return_inverse=True)
    scene.classes = [str(c) for c in labels.classes[shown]]
    return scene


def _as_labels(X: Any, y: Any) -> Labels | None:
    if X is None or y is None or (isinstance(y, Supervision) and not isinstance(y, Labels)):
        return None
    labels = y if isinstance(y, Labels) else Labels(y)
    if len(X) != len(labels):
        raise ValueError(f"X has {len(X)} rows but y has {len(labels)} labels")
    return labels


def _add_fitted(scene: Scene, comparison: Comparison) -> None:
    """Without data, the metric that the comparison fitted on all rows is all there is to draw."""
    if comparison.best_estimator is not None:
        learner = comparison.best_estimator[-1]
        ranked = sorted(comparison.results, key=lambda r: r.name != comparison.best)
        same = [r.name for r in ranked if r.score is not None and type(r.estimator) is type(learner)]
        _add_learner(scene, same[0] if same else type(learner).__name__, learner)


def _add_learner(scene: Scene, name: str, learner: Any) -> None:
    history = getattr(learner, "history_", None)
    if history is not None and len(history) > 1 and len(scene.histories) < TRACED:
        scene.histories[name] = np.asarray(history, dtype=np.float64)
    if scene.weights is None and name != BASELINE and hasattr(learner, "mahalanobis_"):
        scene.weights = name, views.weight_matrix(learner)


def _split(codes: np.ndarray, protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out rows: of held-out classes in the open protocol, else a share of every class."""
    rows, rng = np.flatnonzero(codes >= 0), check_random_state(seed)
    classes, counts = np.unique(codes[rows], return_counts=True)
    if protocol == "open" and len(classes) >= 4:
        hidden = rng.permutation(classes)[: max(2, round(HELD_OUT * len(classes)))]
        new = np.isin(codes[rows], hidden)
        return rows[~new], rows[new]
    stratify = codes[rows] if counts.min() > 1 and HELD_OUT * len(rows) >= len(classes) else None
    train, test = train_test_split(rows, test_size=HELD_OUT, random_state=seed, stratify=stratify)
    return train, test


def _describe_split(codes: np.ndarray, train: np.ndarray, test: np.ndarray, drawn: np.ndarray) -> str:
    rows = f"{len(drawn)} held-out rows" if len(drawn) == len(test) else f"{len(drawn)} of {len(test)} held-out rows"
    new = "" if np.isin(codes[test], codes[train]).all() else ", of classes that the metrics never saw"
    return (
        f"The pictures show {rows}{new}. For them the metrics were fitted once more, on the other {len(train)} rows; "
        "the scores come from the cross-validation."
    )


def _thin(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    return rows if len(rows) <= most else np.sort(check_random_state(seed).choice(rows, most, replace=False))


def _fit_views(scene: Scene, comparison, X, codes, train, test, seed) -> None:
    """Fit Euclidean, the best metrics and the best iterative ones; draw the first, trace the last."""
    scored = [r for r in comparison.results if r.score is not None]
    learned = [r for r in scored if r.name != BASELINE]
    drawn = [r for r in scored if r.name == BASELINE] + _different(learned)[:PICTURED]
    iterative = [r for r in learned if "max_iter" in r.estimator.get_params()][:TRACED]
    scene.codes = codes[test]
    for r in drawn + [r for r in iterative if r not in drawn]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the comparison has told them
                model = _pipeline(comparison, r).fit(X[train], codes[train])
                Z = np.asarray(model.transform(X[test]))
        except Exception as error:  # a metric that fails on this split must not cost the reader the page
            scene.notes.append(f"{r.name} could not be fitted for the pictures: {type(error).__name__}: {error}")
            continue
        _add_learner(scene, r.name, model[-1])
        if r in drawn:
            distances, scene.similar = views.pair_sample(Z, scene.codes, random_state=seed)
            scene.views.append(View(r.name, views.planar(Z), distances))


def _different(results: list[MethodResult]) -> list[MethodResult]:
    """Without those that agree with a better one on every point: their pictures would say nothing new."""
    first = {r.values.tobytes(): r for r in reversed(results)}
    return [r for r in results if first[r.values.tobytes()] is r]


def _pipeline(comparison: Comparison, result: MethodResult) -> Pipeline:
    """The candidate behind the scaler of the comparison, with the parameters that tuning chose most often."""
    best = comparison.best_estimator
    scaler = best[0] if best is not None and len(best) == 2 else StandardScaler()
    learner = clone(result.estimator)
    if result.best_params:
        winner = Counter(map(repr, result.best_params)).most_common(1)[0][0]
        learner.set_params(**next(p for p in result.best_params if repr(p) == winner))
    return Pipeline([("scaler", scaler if isinstance(scaler, str) else clone(scaler)), ("learner", learner)])
