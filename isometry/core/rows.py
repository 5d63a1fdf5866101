"""Rows of unit length, as they are read: an array in memory stays there, a mapped file is read block by block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from isometry.core.distance import row_blocks

IN_MEMORY_MIB = 256  # rows up to this size are brought to unit length once, and kept
UNIT_TOLERANCE = 5e-3  # embeddings are often stored in 16 bits
BLOCK_MIB = 16


class RowFacts(NamedTuple):
    """What one pass over rows tells."""

    bad: np.ndarray  # (·,) numbers of the rows that hold something that is no number, or an infinite one
    zero: np.ndarray  # (·,) numbers of the rows that are 0 and have no direction
    unit: bool  # whether all others have length 1 already
    keys: np.ndarray  # (n,) 64-bit keys: equal rows have equal ones, others hardly ever


class UnitRows:
    """Rows of a table, each divided by its length when it is asked for: memory is that of what is asked for.

    Parameters
    ----------
    X : array of shape (n, d)
        Mapped from a file or in memory, of 16, 32 or 64 bits; 16 bits become 32.
    rows : array or None, default=None
        Which of its rows these are; None: all.
    """

    def __init__(self, X: np.ndarray, rows: np.ndarray | None = None):
        self._X, self._rows = X, rows
        self.dtype = np.dtype(np.float64 if X.dtype == np.float64 else np.float32)
        self.itemsize = self.dtype.itemsize
        self.shape = (len(X) if rows is None else len(rows), X.shape[1])
        self.size = self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Some rows, by a slice or by their numbers."""
        return unit_length(np.asarray(self._X[index if self._rows is None else self._rows[index]], dtype=self.dtype))

    def take(self, rows: np.ndarray) -> UnitRows:
        """Some of these rows; nothing is read yet."""
        return UnitRows(self._X, rows if self._rows is None else self._rows[rows])

    def astype(self, dtype: Any, copy: bool = True) -> np.ndarray:
        """All rows at once."""
        return self[:].astype(dtype, copy=False)


def unit_rows(X: np.ndarray) -> Any:
    """(n, d) rows of unit length: an array if they are few, else read as they are asked for."""
    lazy = UnitRows(X)
    return lazy[:] if lazy.size * lazy.itemsize <= IN_MEMORY_MIB * 2**20 else lazy


def part_of(X: Any, rows: np.ndarray) -> Any:
    """Some rows of what `unit_rows` gave."""
    return X.take(rows) if isinstance(X, UnitRows) else X[rows]


def unit_length(X: np.ndarray) -> np.ndarray:
    """Every row divided by its length; rows of length 0 stay."""
    length = np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    return np.asarray(X / np.where(length > 0, length, 1))


def look_at_rows(X: np.ndarray) -> RowFacts:
    """What can be said of rows by one pass, block by block."""
    n, d = X.shape
    weight = np.random.default_rng(0).integers(1, 2**63, size=d, dtype=np.uint64) | np.uint64(1)
    bad, zero, keys, unit = [], [], np.empty(n, dtype=np.uint64), True
    for rows in row_blocks(n, 8 * d, buffers=1, limit_mib=BLOCK_MIB):
        Z = np.asarray(X[rows], dtype=np.float32)
        finite = np.isfinite(Z).all(axis=1)
        length = np.sqrt(np.einsum("ij,ij->i", Z, Z, dtype=np.float64))
        empty = finite & (length == 0)
        bad.append(rows.start + np.flatnonzero(~finite))
        zero.append(rows.start + np.flatnonzero(empty))
        unit &= not np.any(np.abs(length[finite & ~empty] - 1) > UNIT_TOLERANCE)
        bits = np.ascontiguousarray(Z + np.float32(0)).view(np.uint32)  # 0 added: −0 and 0 are one number
        keys[rows] = (bits * weight).sum(axis=1, dtype=np.uint64)
    return RowFacts(np.concatenate(bad), np.concatenate(zero), unit, keys)
