"""Tuples of samples: row numbers, weights, and metric-learn's arrays of points."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def row_numbers(values: ArrayLike, n: int, name: str) -> np.ndarray:
    index = np.asarray(values)
    if index.size == 0:
        return np.zeros(0, dtype=np.intp)
    if index.ndim != 1 or index.dtype.kind not in "iu":
        got = f"{index.dtype} of shape {index.shape}"
        raise ValueError(f"{name} must be a one-dimensional array of sample indices, got {got}")
    if index.min() < 0 or index.max() >= n:
        bad = int(index.min() if index.min() < 0 else index.max())
        raise ValueError(f"{name} holds index {bad}, but there are {n} samples (valid: 0 to {n - 1})")
    return index.astype(np.intp, copy=False)


def tuple_weights(weight: ArrayLike | None, m: int, what: str) -> np.ndarray:
    """(m,) weights of tuples, 1 if none are given."""
    w = np.ones(m) if weight is None else np.asarray(weight, dtype=np.float64)
    if w.shape != (m,) or not np.all(np.isfinite(w) & (w >= 0)):
        raise ValueError(f"weight must hold one finite number ≥ 0 for each {what}")
    return w


def wanted_distances(values: ArrayLike, m: int) -> np.ndarray:
    target = np.asarray(values, dtype=np.float64)
    if target.shape != (m,) or not np.all(np.isfinite(target) & (target >= 0)):
        raise ValueError(f"target must hold one finite distance ≥ 0 for each of the {m} pairs, got {target!r:.80}")
    return target


def renumber(rows: np.ndarray, n: int, *columns: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Index columns of tuples, renumbered to ``rows``, for the tuples that lie in them; and which these are (m,)."""
    new = np.full(n, -1, dtype=np.intp)
    new[rows] = np.arange(len(rows))
    renumbered = [new[column] for column in columns]
    keep = np.all([column >= 0 for column in renumbered], axis=0)
    return [column[keep] for column in renumbered], keep


def rows_of_tuples(tuples: ArrayLike, kind: str, *, apart: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct points X (n, d) of an array (m, k, d) of tuples, and their numbers (k, m).

    The members of a tuple that must stay ``apart`` get rows of their own where they are equal.
    """
    T, k = np.asarray(tuples), max(max(pair) for pair in apart) + 1
    if T.ndim != 3 or T.shape[1] != k:
        raise ValueError(f"expected {kind} as an array (m, {k}, d), got shape {T.shape}")
    X, inverse = np.unique(T.reshape(-1, T.shape[2]), axis=0, return_inverse=True)
    index = inverse.reshape(-1, k).T.copy()  # (k, m)
    for first, second in apart:
        equal = np.flatnonzero(index[first] == index[second])
        index[second, equal] = len(X) + np.arange(len(equal))
        X = np.concatenate([X, T[equal, second]])
    return X, index


def tuples_of_rows(X: ArrayLike, n: int, *columns: np.ndarray) -> np.ndarray:
    """(m, k, d) the rows of X that the k columns of indices name."""
    X = np.asarray(X)
    if X.ndim != 2 or len(X) != n:
        raise ValueError(f"X must be the table of the {n} samples, got shape {X.shape}")
    return X[np.stack(columns, axis=1)]
