"""Squared Euclidean distances in blocks of rows, so that memory is O(block · n)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import get_config

BLOCK_MIB = 32  # size of a block; larger ones do not fit in the last-level cache and are slower


def row_blocks(n_rows: int, row_bytes: int, *, buffers: int = 4, limit_mib: float | None = None) -> Iterator[slice]:
    """Slices of rows so short that ``buffers`` arrays of ``row_bytes`` a row fit in scikit-learn's ``working_memory``.

    ``limit_mib`` is a lower ceiling for them together; by default what suits the cache.
    """
    if n_rows == 0:
        return iter(())
    mib = min(get_config()["working_memory"], BLOCK_MIB * buffers if limit_mib is None else limit_mib)
    rows = int(mib * 2**20 // max(1, row_bytes * buffers))
    return batches(n_rows, max(1, rows))


def batches(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of 0 … n − 1. Faster than scikit-learn's ``gen_batches``, which checks its arguments."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def sqdist(X: np.ndarray, Y: np.ndarray | None = None, *, out: np.ndarray | None = None) -> np.ndarray:
    """D_ij = |x_i − y_j|², by one matrix product, never negative. Centre the data first if they lie far from 0."""
    Y = X if Y is None else Y
    D = np.matmul(X, Y.T, out=out)  # (m, n)
    D *= -2
    D += np.einsum("ij,ij->i", X, X)[:, None]
    D += np.einsum("ij,ij->i", Y, Y)
    return np.maximum(D, 0, out=D)


def sqdist_factors(Z: np.ndarray, dtype: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """left, right (n, p + 2) with leftᵢᵀrightⱼ = |z_i − z_j|²: a tile of distances is one product, and nothing else."""
    sq, one = np.einsum("ij,ij->i", Z, Z, dtype=np.float64), np.ones(len(Z))
    left, right = np.column_stack([Z, sq, one]), np.column_stack([-2 * Z, one, sq])
    return left.astype(dtype or Z.dtype, copy=False), right.astype(dtype or Z.dtype, copy=False)


def pair_sqdist(X: np.ndarray, i: np.ndarray, j: np.ndarray, Y: np.ndarray | None = None) -> np.ndarray:
    """|x_i − y_j|² for listed pairs, in blocks; Y is X by default."""
    Y = X if Y is None else Y
    d = np.empty(len(i), dtype=X.dtype)
    for block in row_blocks(len(i), X.shape[1] * X.itemsize, buffers=3, limit_mib=2):  # fits in the cache
        delta = X[i[block]] - Y[j[block]]  # (b, d)
        d[block] = np.einsum("ij,ij->i", delta, delta)
    return d


def sqdist_blocks(Z: np.ndarray, *, buffers: int = 4) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of the distance matrix of Z, +inf on the diagonal. The block is a buffer: use it at once."""
    n = len(Z)
    buffer = None
    for rows in row_blocks(n, n * Z.itemsize, buffers=buffers):
        b = rows.stop - rows.start
        buffer = np.empty((b, n), dtype=Z.dtype) if buffer is None else buffer
        D = sqdist(Z[rows], Z, out=buffer[:b])
        D[np.arange(b), np.arange(rows.start, rows.stop)] = np.inf
        yield rows, D
