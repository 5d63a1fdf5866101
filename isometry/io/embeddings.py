"""Embeddings and what names them or labels them: from npy, which stays in its file, npz, parquet and csv."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from isometry.io.columns import (
    BY_PANDAS,
    TableError,
    as_numbers,
    expand_vectors,
    label_array,
    listing,
    refuse_repeats,
)
from isometry.io.tables import (
    CLASSES,
    NAMES,
    NUMPY,
    column_names,
    feature_array,
    named_classes,
    read_arrays,
    read_cells,
    refuse_two_meanings,
    table_format,
    unknown_name,
    without_index,
)

__all__ = ["Embeddings", "read_embeddings", "read_values"]


@dataclass(frozen=True)
class Embeddings:
    """Rows of numbers, and columns that are none of them."""

    X: np.ndarray  # (n, d); of an npy file, mapped
    name: str
    columns: dict[str, np.ndarray] = field(default_factory=dict)  # (n,) each, as they were asked for


def read_embeddings(
    path: str | os.PathLike[str],
    columns: Sequence[str] = (),
    *,
    key: str | None = None,
    drop: Sequence[str] = (),
    delimiter: str | None = None,
    decimal: str | None = None,
) -> Embeddings:
    """Read embeddings; NaN is let through, so that whoever asks can name the rows.

    Parameters
    ----------
    path : str or path-like
        An npy file (mapped, not read), npz, parquet (one column of vectors, or a column for each number), csv or tsv.
    columns : sequence of str, optional
        What stands beside the numbers, such as ids and labels: columns of a table, arrays of an npz file.
    key : str or None, default=None
        The array of embeddings in an npz file; ``"X"`` by default, or the only two-dimensional one.
    drop : sequence of str, optional
        Columns of a table to leave out.
    delimiter : str or None, default=None
        Sign between the cells of a text table, as for `read_table`.
    decimal : str or None, default=None
        Sign before the fraction of numbers in a text table.

    Returns
    -------
    Embeddings
        The numbers and these columns.
    """
    path = Path(path)
    name, suffix = table_format(path)
    if suffix in NUMPY:
        arrays = read_arrays(path, mapped=suffix == ".npy")
        X = feature_array(path, arrays, key)
        if X.dtype.kind != "f":
            X = _as_floats(X, path)
        names = column_names(path, X, arrays.get(NAMES))
        found = {c: _array_beside(path, arrays, c, len(X), names) for c in columns}
        return Embeddings(_not_empty(X, path), name, found)
    frame = read_cells(path, delimiter=delimiter, decimal=decimal).rename(columns=str)
    known = list(frame.columns)
    refuse_repeats(name, known)
    if len(frame) == 0:
        raise TableError(f"{path} has columns {listing(known)} but no rows")
    for c in [*columns, *drop]:
        if c not in known:
            raise TableError(unknown_name(c, known, f"{path} has no column", "drop" if c in drop else "column"))
    found = {c: np.asarray(frame[c]) for c in columns}
    rest = without_index(frame, [c for c in known if c not in found and c not in set(drop)])
    if not rest:
        raise TableError(f"{path} has no column of numbers left: its columns are {listing(known)}")
    X = as_numbers(expand_vectors(frame[rest]), name, np.dtype(np.float32), finite=False)
    return Embeddings(_not_empty(X, path), name, found)


def read_values(path: str | os.PathLike[str]) -> np.ndarray:
    """(n,) or (n, 2) values of a file: one for each row, or in a second column beside ids in the first."""
    path = Path(path)
    if table_format(path)[1] in NUMPY:
        arrays = read_arrays(path)
        if len(arrays) != 1:
            raise TableError(f"{path} holds the arrays {listing(list(arrays))}: expected one, as in an npy file")
        values = next(iter(arrays.values()))
    else:
        values = np.asarray(read_cells(path))
        values = values[:, 0] if values.shape[1] == 1 else values
    if values.ndim != 1 and values.shape[1:] != (2,):
        raise TableError(f"{path} has shape {values.shape}: expected one value for each row, or ids and values")
    return np.asarray(values)


def as_labels(values: Any, what: str, way_out: str = BY_PANDAS) -> np.ndarray:
    """Values as class labels; ``way_out`` says what to do about gaps."""
    return label_array(values, what, way_out=way_out)


def _as_floats(X: np.ndarray, path: Path) -> np.ndarray:
    if X.dtype.kind not in "iub":
        raise TableError(f"{path} holds {X.dtype}: embeddings are numbers")
    return X.astype(np.float32)


def _not_empty(X: np.ndarray, path: Path) -> np.ndarray:
    if 0 in X.shape:
        raise TableError(f"{path} holds {X.shape[0]} rows of {X.shape[1]} numbers: there is nothing to learn from")
    return X


def _array_beside(path: Path, arrays: dict[str, np.ndarray], name: str, n: int, features: list[str]) -> np.ndarray:
    if name not in arrays:
        raise TableError(unknown_name(name, list(arrays), f"{path} has no array", "column"))
    refuse_two_meanings(path, name, arrays, features)
    values = arrays[name]
    if values.shape != (n,):
        raise TableError(f"{path}: there are {n} embeddings but {name} has shape {values.shape}")
    return named_classes(path, values, arrays.get(CLASSES)) if name == "y" else values
