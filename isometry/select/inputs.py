"""What a comparison is given, checked before any work is done."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.utils import check_array
from sklearn.utils.multiclass import type_of_target

from isometry.select.folds import Plan
from isometry.select.scoring import FoldScorer
from isometry.supervision import Candidates, Labels, Supervision, Targets, as_supervision

SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler, "normalize": Normalizer}


def check_samples(X: Any) -> tuple[np.ndarray, list[str] | None]:
    """X as a matrix of finite floats, and its column names."""
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    try:
        samples = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X must be a table of numbers, one row per sample: {error}") from error
    bad = ~np.isfinite(samples)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"X has {bad.sum()} entries that are NaN or infinite (first at row {row}, column "
            f"{names[column] if names else column}): impute them, or drop those rows, before comparing metrics"
        )
    return samples, names


def check_side(y: Any, X: np.ndarray) -> Supervision:
    """``y`` as supervision by which metrics can be scored; an array of fractions holds targets of a regression."""
    side = as_supervision(y, len(X), numbers=_is_continuous(y))
    if side is None:
        raise ValueError("y is None: a comparison needs labels, pairs or other supervision to score the metrics by")
    if isinstance(side, Candidates):
        raise ValueError("candidate labels cannot score a metric: give the true labels, or pairs, as y")
    if isinstance(side, Labels) and len(side.classes) < 2:
        raise ValueError(f"y has {len(side.classes)} class: a comparison needs at least 2")
    if isinstance(side, Targets) and side.varying.shape[1] == 0:
        raise ValueError("y is constant: a comparison needs targets that vary")
    return side


def _is_continuous(y: Any) -> bool:
    """Whether y is an array of numbers that no classes have: fractions."""
    if y is None or isinstance(y, Supervision):
        return False
    y = np.asarray(y)
    return y.dtype.kind == "f" and bool(np.isfinite(y).all()) and type_of_target(y).startswith("continuous")


def fit_target(side: Supervision) -> Any:
    """What learners are given: an array of codes where every row has a label, since any transformer takes that."""
    return side.codes if isinstance(side, Labels) and side.labelled.all() else side


def check_options(
    protocol: str, side: Supervision, n_splits: int, n_repeats: int, level: float, n_neighbors: int
) -> None:
    """Refuse settings that make no sense."""
    if protocol not in ("closed", "open"):
        raise ValueError(f"protocol={protocol!r} must be 'closed' or 'open'")
    if protocol == "open" and not isinstance(side, Labels):
        raise ValueError(f"protocol='open' holds out classes, but y holds {side.kind}: use protocol='closed'")
    if n_splits < 2 or n_repeats < 1 or n_neighbors < 1:
        raise ValueError(
            f"n_splits={n_splits} must be at least 2, n_repeats={n_repeats} and n_neighbors={n_neighbors} at least 1"
        )
    if not 0 < level < 1:
        raise ValueError(f"level={level} is the confidence of the intervals: choose it between 0 and 1, e.g. 0.95")


def check_n_neighbors(scorer: FoldScorer, plan: Plan, labels: Labels) -> None:
    """Whether every held-out point has enough others to choose its neighbours from."""
    known = labels.labelled
    size = min(len(s.test) - 1 if scorer.protocol == "open" else known[s.train].sum() for s in plan.splits)
    if scorer.n_neighbors > size:
        raise ValueError(
            f"n_neighbors={scorer.n_neighbors}, but a fold has only {size} points to choose from: lower it"
        )


def make_scaler(scaler: Any) -> Any:
    """A transformer by its name, or as it is; "passthrough" for none."""
    if scaler is None or (isinstance(scaler, str) and scaler in ("none", "passthrough")):
        return "passthrough"
    if isinstance(scaler, str):
        if scaler not in SCALERS:
            raise ValueError(f"scaler={scaler!r} is unknown: choose {', '.join(SCALERS)}, none, or give a transformer")
        return SCALERS[scaler]()
    if not hasattr(scaler, "transform") or isinstance(scaler, type):
        raise ValueError(f"scaler={scaler!r} must be a name or a transformer such as StandardScaler()")
    return scaler
