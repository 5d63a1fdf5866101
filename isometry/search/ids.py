"""Names of rows: whole numbers or text, each of them once."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.io.columns import listing


def check_ids(ids: Any, n: int, name: str = "ids") -> np.ndarray:
    """(n,) int64 or text; an error if there are more or fewer than rows, or one of them comes twice."""
    ids = as_ids(ids, name)
    if len(ids) != n:
        raise ValueError(f"there are {n} rows but {len(ids)} {name}: give one for each row")
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < n:
        twice = distinct[counts > 1]
        raise ValueError(f"{len(twice)} of the {name} come more than once: {listing(twice)}. Each row needs its own")
    return ids


def as_ids(ids: Any, name: str = "ids") -> np.ndarray:
    """(m,) int64 or text."""
    ids = np.asarray(ids)
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iuUO"):
        raise ValueError(f"{name} must be a list of whole numbers or of text, got {ids.dtype} of shape {ids.shape}")
    if ids.dtype.kind in "UO":
        return ids.astype(str)
    return ids.astype(np.int64)


def find_ids(known: np.ndarray, ids: Any, where: str) -> np.ndarray:
    """The positions of ids among the known ones; an error that counts and lists those that are not there."""
    ids = as_ids(ids)
    if ids.size and ids.dtype.kind != known.dtype.kind:
        kinds = {"U": "text", "i": "whole numbers"}
        raise ValueError(f"the ids of {where} are {kinds[known.dtype.kind]}, those given {kinds[ids.dtype.kind]}")
    order = np.argsort(known)
    place = np.searchsorted(known, ids, sorter=order)
    found = place < len(known)
    rows = order[np.where(found, place, 0)] if len(known) else np.zeros(len(ids), dtype=np.intp)
    missing = ids[~(found & (known[rows] == ids))] if len(known) else ids
    if len(missing):
        raise KeyError(f"{len(missing)} of {len(ids)} ids are not in {where}: {listing(missing)}")
    return np.asarray(rows)
