"""Maps fitted on one part of the rows, and what they make of the other part, which is held out."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from isometry.select.fits import build_pipeline, describe_error
from isometry.select.inputs import take_rows
from isometry.select.result import BASELINE, Comparison, MethodResult
from isometry.supervision import Labels, Supervision
from isometry.trial import NEIGHBORS, aiming_at

HELD_OUT = 0.3  # share of the rows, or of the classes in the open protocol
N_BEST = 3  # learned metrics that are fitted beside Euclidean
N_ITERATIVE = 4  # iterative metrics that are fitted for their convergence


@dataclass(frozen=True)
class HeldOutMap:
    """A map fitted on the training part, and the held-out rows under it."""

    name: str
    model: Any  # fitted
    Z: np.ndarray  # (m, p)
    seconds: float  # that fitting and mapping took


def map_held_out(name: str, model: Any, X_held: Any, train: tuple[Any, np.ndarray] | None = None) -> HeldOutMap:
    """Fit ``model`` on the training part (X, y), unless it is fitted already, and map the held-out rows.

    Warnings are suppressed: the user has seen those of metrics of their own when they were first fitted.
    """
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = model if train is None else model.fit(*train)
        Z = np.asarray(fitted.transform(X_held))
    return HeldOutMap(name, fitted, Z, time.perf_counter() - started)


@dataclass
class Refits:
    """The best metrics of a comparison, fitted once more on a part of the rows."""

    codes: np.ndarray  # (m,) class of each row of the maps: index in ``classes``
    classes: list[str]
    n_train: int
    n_held_out: int  # m, or more if some were left out
    new_classes: bool  # whether a held-out row is of a class that the metrics never saw
    best: list[HeldOutMap] = field(default_factory=list)  # Euclidean and the best metrics, best first
    iterative: list[HeldOutMap] = field(default_factory=list)  # the best iterative ones that are not among these
    notes: list[str] = field(default_factory=list)  # on metrics that could not be fitted
    rows: np.ndarray = field(default_factory=lambda: np.arange(0))  # (m,) their numbers in the data
    same: dict[str, list[str]] = field(default_factory=dict)  # metric → others that agree with it on every point


def refit_best(comparison: Comparison, X: Any, y: Any, max_rows: int) -> Refits | None:
    """Fit the best metrics on 70 % of the rows and map at most ``max_rows`` of the others; None without labels."""
    if X is None or y is None or (isinstance(y, Supervision) and not isinstance(y, Labels)):
        return None
    if comparison.data.get("supervision") == "targets":  # numbers, which name no classes
        return None
    labels = y if isinstance(y, Labels) else Labels(y)
    if len(X) != len(labels):
        raise ValueError(f"y has {len(labels)} labels but X has {len(X)} rows: give one label per row")
    X = X if hasattr(X, "iloc") else np.asarray(X)
    codes = labels.codes
    seed = comparison.settings.get("random_state") or 0
    train, held = _split(codes, comparison.protocol, seed)
    rows = held
    if len(held) > max_rows:
        rows = np.sort(check_random_state(seed).choice(held, max_rows, replace=False))
    present, row_codes = np.unique(codes[rows], return_inverse=True)
    new_classes = not np.isin(codes[held], codes[train]).all()
    refits = Refits(row_codes, [str(c) for c in labels.classes[present]], len(train), len(held), new_classes)
    refits.rows = rows
    best, iterative = _choose(comparison.results)
    refits.same = _equals(comparison.results)
    for result in best + iterative:
        try:
            model = _pipeline(comparison, result)
            k = comparison.settings.get("n_neighbors", NEIGHBORS)
            with aiming_at(comparison.scoring, n_neighbors=k, protocol=comparison.protocol):
                found = map_held_out(result.name, model, take_rows(X, rows), (take_rows(X, train), codes[train]))
        except Exception as error:  # the other metrics can still be shown
            refits.notes.append(f"{result.name} could not be fitted for the pictures: {describe_error(error)}")
            continue
        (refits.best if result in best else refits.iterative).append(found)
    return refits


def _split(codes: np.ndarray, protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and held-out rows: of held-out classes in the open protocol, else a share of every class."""
    rows = np.flatnonzero(codes >= 0)
    classes, counts = np.unique(codes[rows], return_counts=True)
    if protocol == "open" and len(classes) >= 4:
        held_out = check_random_state(seed).permutation(classes)[: max(2, round(HELD_OUT * len(classes)))]
        new = np.isin(codes[rows], held_out)
        return rows[~new], rows[new]
    stratify = codes[rows] if counts.min() > 1 and HELD_OUT * len(rows) >= len(classes) else None
    train, held = train_test_split(rows, test_size=HELD_OUT, random_state=seed, stratify=stratify)
    return train, held


def _choose(results: list[MethodResult]) -> tuple[list[MethodResult], list[MethodResult]]:
    """Euclidean and the best learned metrics; and the best iterative ones that are not among these.

    A metric that agrees with a better one on every point is passed over: its picture would be the same.
    """
    scored = [r for r in results if r.score is not None]
    learned = [r for r in scored if r.name != BASELINE]
    first = {r.values.tobytes(): r for r in reversed(learned)}
    different = [r for r in learned if first[r.values.tobytes()] is r]
    best = [r for r in scored if r.name == BASELINE] + different[:N_BEST]
    iterative = [r for r in learned if "max_iter" in r.estimator.get_params()][:N_ITERATIVE]
    return best, [r for r in iterative if r not in best]


def _equals(results: list[MethodResult]) -> dict[str, list[str]]:
    """The first of metrics with the same value at every point → the others."""
    groups: dict[bytes, list[str]] = {}
    for r in results:
        if r.score is not None and r.name != BASELINE:
            groups.setdefault(r.values.tobytes(), []).append(r.name)
    return {names[0]: names[1:] for names in groups.values() if len(names) > 1}


def _pipeline(comparison: Comparison, result: MethodResult) -> Pipeline:
    """The candidate behind the scaler of the comparison, with the parameters that tuning chose most often."""
    best = comparison.best_estimator
    scaler = best[0] if best is not None and len(best) == 2 else StandardScaler()
    params: dict[str, Any] = {}
    if result.best_params:
        winner = Counter(map(repr, result.best_params)).most_common(1)[0][0]
        params = next(p for p in result.best_params if repr(p) == winner)
    return build_pipeline(scaler, result.estimator, params)
