"""Tuples of samples in the forms that users have them: arrays of points, or names of samples with a way to get them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from isometry.base import row_numbers
from isometry.supervision import Pairs, Quadruplets, Supervision, Triplets

__all__ = ["Tuples", "read_tuples", "supervision_of"]

KINDS = {2: "pairs", 3: "triplets", 4: "quadruplets"}


class Tuples(NamedTuple):
    """Samples, and which of them stand together."""

    X: Any  # (n, d) table
    rows: np.ndarray  # (m, k) row numbers; k = 2: pairs, 3: triplets, 4: quadruplets

    @property
    def compared(self) -> tuple[np.ndarray, np.ndarray]:
        """(m, 2) the rows that should be near, and the rows that should be far, of triplets or quadruplets."""
        return self.rows[:, :2], self.rows[:, [0, 2]] if self.rows.shape[1] == 3 else self.rows[:, 2:]


def read_tuples(X: Any, members: Any = None, preprocessor: Any = None) -> Tuples:
    """Tuples from a table with ``members``, from an array (m, k, d), or from names (m, k) and a ``preprocessor``.

    ``members`` are row numbers (m, k), or a `Pairs`, `Triplets` or `Quadruplets` object. A preprocessor is the table
    itself, whose row numbers are the names, or a function that is called once, with the distinct names.
    """
    if members is not None:
        return Tuples(X, _row_numbers(members, len(X)))
    T = X if hasattr(X, "shape") else np.asarray(X)
    if preprocessor is not None and T.ndim == 2:
        _check_size(T.shape[1], T.shape)
        names, at = np.unique(np.asarray(T), return_inverse=True)
        if callable(preprocessor):
            return Tuples(_called(preprocessor, names), at.reshape(T.shape))
        _row_numbers(np.asarray(T), len(preprocessor))
        return Tuples(np.asarray(preprocessor)[names], at.reshape(T.shape))
    if T.ndim != 3:
        hint = " with row numbers as `pairs`" if T.ndim == 2 else ""
        raise ValueError(f"X must have shape (m, 2, d), one pair of points a row, or (n, d){hint}; got {T.shape}")
    _check_size(T.shape[1], T.shape)
    T = np.asarray(T)
    return Tuples(T.reshape(-1, T.shape[2]), np.arange(T.shape[0] * T.shape[1]).reshape(T.shape[:2]))


def supervision_of(T: Any, y: Any = None, preprocessor: Any = None) -> tuple[Any, Supervision]:
    """Samples X and what tuples say about them; pairs need ``y``, +1 for the same and −1 for different ones."""
    shape = np.shape(T)
    if preprocessor is not None and not callable(preprocessor):
        rows = _row_numbers(np.asarray(T), len(preprocessor))
        return preprocessor, _as_side(rows, _signs(y, rows), len(preprocessor))
    if preprocessor is not None:
        X, rows = read_tuples(T, None, preprocessor)
        return X, _as_side(rows, _signs(y, rows), len(X))
    _check_size(shape[1], shape)
    T = check_array(T, allow_nd=True, dtype=[np.float64, np.float32], input_name="tuples")
    signs = _signs(y, T)
    if signs is not None:
        return Pairs.from_tuples(T, signs)
    return Triplets.from_tuples(T) if shape[1] == 3 else Quadruplets.from_tuples(T)


def _as_side(rows: np.ndarray, y: np.ndarray | None, n: int) -> Supervision:
    if y is not None:
        return Pairs(rows[:, 0], rows[:, 1], y, n=n)
    return Triplets(*rows.T, n_samples=n) if rows.shape[1] == 3 else Quadruplets(*rows.T, n_samples=n)


def _signs(y: Any, tuples: np.ndarray) -> np.ndarray | None:
    """±1 of pairs, or booleans; other tuples need none."""
    if tuples.shape[1] != 2:
        return None
    if y is None:
        raise ValueError("y is None: pairs need +1 for the same and -1 for different ones; triplets need no y")
    signs = np.asarray(y)
    if signs.shape != (len(tuples),):
        raise ValueError(f"there are {len(tuples)} pairs but y has shape {signs.shape}: give one sign for each pair")
    if signs.dtype.kind == "b":
        signs = np.where(signs, 1, -1)
    if signs.dtype.kind not in "iuf" or not np.isin(signs, (-1, 1)).all():
        found = ", ".join(map(repr, np.unique(signs)[:4].tolist()))
        raise ValueError(f"y holds {found}: the labels of pairs are +1 for the same and -1 for different ones")
    return signs


def _called(preprocessor: Any, names: np.ndarray) -> np.ndarray:
    X = np.asarray(preprocessor(names))
    if X.ndim != 2 or len(X) != len(names):
        raise ValueError(
            f"the preprocessor was given {len(names)} names and returned an array of shape {X.shape}: it must return "
            "one row of numbers for each"
        )
    return X


def _row_numbers(members: Any, n: int) -> np.ndarray:
    """(m, k) row numbers of tuples, checked."""
    if isinstance(members, Pairs):
        return np.stack([members.i, members.j], axis=1)
    if isinstance(members, Triplets):
        return np.stack([members.a, members.p, members.n], axis=1)
    if isinstance(members, Quadruplets):
        return np.stack([members.a, members.b, members.c, members.d], axis=1)
    rows = row_numbers(members, n)
    _check_size(rows.shape[1], rows.shape)
    return rows


def _check_size(k: int, shape: tuple[int, ...]) -> None:
    if k not in KINDS:
        raise ValueError(f"tuples are pairs, triplets or quadruplets, (m, 2), (m, 3) or (m, 4); got shape {shape}")
