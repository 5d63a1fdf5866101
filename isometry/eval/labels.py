"""Labels of samples as integer codes that agree between data sets."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.supervision import Labels, Supervision


def as_labels(y: Any) -> Labels:
    """``y`` as a Labels object; side information of another kind does not name the class of a sample and is refused."""
    if isinstance(y, Supervision) and not isinstance(y, Labels):
        raise TypeError(
            f"this quantity compares class labels, but y holds {y.kind}: give labels, or measure pairs with pair_auc."
        )
    return y if isinstance(y, Labels) else Labels(y)


def encode(*ys: Any) -> list[np.ndarray]:
    """Integer codes of the labels in each of ``ys``, equal where the labels are equal; −1 for unlabelled rows."""
    code_of: dict[Any, int] = {}
    codes = []
    for labels in map(as_labels, ys):
        joint = [code_of.setdefault(c, len(code_of)) for c in labels.classes.tolist()]
        codes.append(np.array(joint + [-1])[labels.codes])  # code −1 reads the last entry and stays −1
    return codes


def labelled(Z: np.ndarray, codes: np.ndarray, name: str = "Z") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of Z that have a label, their codes, and their positions in Z."""
    Z = np.asarray(Z)
    if len(Z) != len(codes):
        raise ValueError(f"{name} has {len(Z)} rows but there are {len(codes)} labels: give one label per row.")
    rows = np.flatnonzero(codes >= 0)
    if len(rows) == 0:
        raise ValueError(f"no row of {name} has a label: evaluation needs labelled rows.")
    return (Z, codes, rows) if len(rows) == len(Z) else (Z[rows], codes[rows], rows)
