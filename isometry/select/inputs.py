"""What a comparison is given, checked before any work is done."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.utils import check_array
from sklearn.utils.multiclass import type_of_target

from isometry.base import text_columns
from isometry.core.scale import check_can_be_scaled, check_varied
from isometry.select.folds import Plan
from isometry.select.scoring import FoldScorer
from isometry.supervision import Candidates, Labels, Supervision, Targets, Views, as_array, as_supervision

COSINE = (
    "rows look like embeddings: they are compared by the angle between the raw vectors (scaler='normalize'), so that "
    "Euclidean ranks as cosine similarity does; scaler='standard' (--scaler standard) scales features instead"
)
FEW_FEATURES = 8  # with fewer, rows of unit length are hardly embeddings
MANY_FEATURES = 64
UNIT_TOLERANCE = 5e-3  # embeddings are often stored in 16 bits
SAME_LENGTH = 0.25  # of the norms of embeddings: their deviation, as a share of their mean
SAME_SCALE = 5.0  # of their features: the ratio of large to small deviations
SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler, "robust": RobustScaler, "normalize": Normalizer}


def take_rows(X: Any, rows: np.ndarray) -> Any:
    """Rows of an array or of a DataFrame, by number."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def check_samples(X: Any, scaler: Any) -> tuple[Any, list[str] | None]:
    """X as a matrix of finite floats, and its names; as it is for a ``scaler`` that is a transformer."""
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    if hasattr(scaler, "transform"):
        X = X if names is not None else np.asarray(X)
        if X.ndim != 2 or len(X) < 2:
            raise ValueError(f"X must be a table of at least 2 rows, one per sample; its shape is {X.shape}")
        return X, names
    try:
        samples = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite=False, ensure_min_samples=2)
    except (TypeError, ValueError) as error:
        words = text_columns(X)
        hint = f". {words}, or give scaler= a ColumnTransformer that encodes them" if words else ""
        raise ValueError(f"X must be a table of numbers, one row per sample: {error}{hint}") from error
    bad = ~np.isfinite(samples)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"X has {bad.sum()} entries that are NaN or infinite (first at row {row}, column "
            f"{names[column] if names else column}): impute them, drop those rows, or "
            "give scaler= a pipeline that starts with scikit-learn's SimpleImputer"
        )
    check_can_be_scaled(samples, names)
    check_varied(samples)
    return samples, names


def check_side(y: Any, X: Any) -> Supervision:
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
    if isinstance(side, Views) and sum(side.widths) != X.shape[1]:
        raise ValueError(
            f"the views have {side.widths[0]} and {side.widths[1]} columns, but X has {X.shape[1]}: make both by "
            "X, views = Views.join(X1, X2)"
        )
    return side


def _is_continuous(y: Any) -> bool:
    """Whether y is an array of numbers that no classes have: fractions."""
    if y is None or isinstance(y, Supervision):
        return False
    y = as_array(y)
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


def choose_scaler(scaler: Any, X: Any, protocol: str, side: Supervision | None = None) -> tuple[Any, bool]:
    """What "auto" stands for, and whether rows look like embeddings; any other scaler as it is."""
    if isinstance(side, Views):
        if scaler == "normalize" or isinstance(scaler, Normalizer):
            raise ValueError("scaler='normalize' would divide both views by one length: scale each before joining them")
        return ("standard" if isinstance(scaler, str) and scaler == "auto" else scaler), False
    if not (isinstance(scaler, str) and scaler == "auto"):
        return scaler, False
    embeddings = looks_like_embeddings(X, unit_only=protocol == "closed")
    return ("normalize" if embeddings else "standard"), embeddings


def looks_like_embeddings(X: np.ndarray, unit_only: bool = False) -> bool:
    """Whether rows are vectors of one length, or at least many features of about one scale and both signs.

    Of such vectors it is the angle that counts, and standardising their features would undo what made them comparable.
    """
    if X.shape[1] < FEW_FEATURES:
        return False
    norms = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    if np.abs(norms - 1).max() < UNIT_TOLERANCE:
        return True
    if unit_only or X.shape[1] < MANY_FEATURES or norms.std() > SAME_LENGTH * norms.mean():
        return False
    spread = X.std(axis=0)
    low, high = np.quantile(spread[spread > 0], [0.1, 0.9]) if spread.any() else (1, 0)
    both_signs = np.mean((X.min(axis=0) < 0) & (X.max(axis=0) > 0))
    return bool(high <= SAME_SCALE * low and both_signs > 0.9)


def describe_scaler(scaler: Any) -> str:
    """In a few words."""
    if scaler is None or isinstance(scaler, str):
        return scaler or "none"
    return " ".join(str(scaler).split())


def make_scaler(scaler: Any) -> Any:
    """A transformer by its name, or as it is; "passthrough" for none."""
    if scaler is None or (isinstance(scaler, str) and scaler in ("none", "passthrough")):
        return "passthrough"
    if isinstance(scaler, str):
        if scaler not in SCALERS:
            raise ValueError(
                f"scaler={scaler!r} is unknown: choose auto, {', '.join(SCALERS)}, none, or give a transformer"
            )
        return SCALERS[scaler]()
    if not hasattr(scaler, "transform") or isinstance(scaler, type):
        raise ValueError(f"scaler={scaler!r} must be a name or a transformer such as StandardScaler()")
    return scaler
