"""One entry for each sample, as users write them: labels and numbers, with what may be wrong about them."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_array(y: Any) -> np.ndarray:
    """y as an array, or an error if its entries have different lengths."""
    try:
        return np.asarray(y)
    except ValueError as error:  # numpy speaks of an inhomogeneous shape
        raise ValueError(
            "y must hold one label or number for each sample, but some of its entries are lists or tuples of another "
            "length than others"
        ) from error


def label_array(y: Any) -> np.ndarray:
    """y as an array; a list of text and numbers keeps them apart, where numpy would write the numbers out."""
    array = as_array(y)
    if array.dtype.kind == "U" and array.ndim == 1 and isinstance(y, list | tuple):
        return array if all(isinstance(label, str) for label in y) else np.array(y, dtype=object)
    return array


def refuse_mixed(y: np.ndarray) -> None:
    """An error if some labels are text and others are not: they have no order, and 1 is not the class "1"."""
    if y.dtype.kind != "O":
        return
    text = [isinstance(label, str) for label in y]
    if any(text) and not all(text):
        word, other = y[text.index(True)], y[text.index(False)]
        raise TypeError(
            f"labels must be of one kind, but y holds the text {word!r} and {other!r}, of type {type(other).__name__}: "
            "turn all into text, as in [str(label) for label in y]"
        )
    try:
        distinct = set(y.tolist())
        sorted(distinct)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in y}))
        raise TypeError(
            "labels must be numbers, text, or values of one kind that can be sorted, but y holds values of type "
            f"{kinds}: turn all into text, as in [str(label) for label in y]"
        ) from error


def missing_entries(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind == "f":
        return np.asarray(np.isnan(y))
    if y.dtype.kind == "O":
        return np.array([v is None or type(v).__name__ == "NAType" or v != v for v in y], dtype=bool)
    return np.zeros(len(y), dtype=bool)


def unique_with_codes(y: np.ndarray, known: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """As ``np.unique(y, return_inverse=True)``; of the entries that are ``known`` alone if given, −1 for the others.

    Integers that span a range shorter than y are counted, not sorted.
    """
    if known is not None:
        codes = np.full(len(y), -1, dtype=np.intp)
        classes, codes[known] = unique_with_codes(y[known])
        return classes, codes
    low = int(y.min()) if y.dtype.kind in "iu" and len(y) else 0
    if y.dtype.kind not in "iu" or not len(y) or int(y.max()) - low >= len(y):
        classes, codes = np.unique(y, return_inverse=True)
        return classes, codes.astype(np.intp, copy=False)
    wide = y.astype(np.int64, copy=False) if y.dtype.kind == "i" else y  # int8 cannot hold the difference of two int8
    above_low = (wide - wide.dtype.type(low)).astype(np.intp, copy=False)  # in 0 … n − 1
    present = np.flatnonzero(np.bincount(above_low))
    classes = (present.astype(wide.dtype) + wide.dtype.type(low)).astype(y.dtype)
    if len(present) == present[-1] + 1:
        return classes, above_low
    return classes, (np.cumsum(np.bincount(present)) - 1)[above_low]


def holds_two_signs(y: np.ndarray) -> bool:
    """Whether all entries are −1 or +1, and both occur."""
    plus, minus = (np.asarray(y == sign) for sign in (1, -1))
    return bool(plus.any() and minus.any() and np.all(plus | minus))
