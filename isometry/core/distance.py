"""Squared Euclidean distances in blocks of rows, so that memory is O(block · n)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import get_config

from isometry.core.threads import in_slices, product

MIN_THREADED_PAIRS = 2000  # with fewer, starting threads takes longer than they save
PAIR_BYTES = 1 << 22  # of one end of the listed pairs of a block; both fit in the cache
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
    D = product(X, Y.T, out=out)  # (m, n)
    D *= -2
    D += np.einsum("ij,ij->i", X, X)[:, None]
    D += np.einsum("ij,ij->i", Y, Y)
    return np.maximum(D, 0, out=D)


def sqdist_factors(Z: np.ndarray, dtype: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """left, right (n, p + 2) with leftᵢᵀrightⱼ = |z_i − z_j|²: a tile of distances is one product, and nothing else."""
    n, p = Z.shape
    left, right = (np.empty((n, p + 2), dtype=dtype or Z.dtype) for _ in range(2))
    left[:, :p] = Z
    np.multiply(Z, -2, out=right[:, :p], casting="same_kind")
    left[:, p] = right[:, p + 1] = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
    left[:, p + 1] = right[:, p] = 1
    return left, right


def pair_sqdist(X: np.ndarray, i: np.ndarray, j: np.ndarray, Y: np.ndarray | None = None) -> np.ndarray:
    """|x_i − y_j|² for listed pairs, in blocks; Y is X by default."""
    Y = X if Y is None else Y.astype(X.dtype, copy=False)
    d = np.empty(len(i), dtype=X.dtype)

    def work(mine: slice) -> None:
        size = max(1, min(mine.stop - mine.start, PAIR_BYTES // (max(1, X.shape[1]) * X.itemsize)))
        ends = np.empty((2, size, X.shape[1]), dtype=X.dtype)  # filled anew for each block
        for start in range(mine.start, mine.stop, size):
            pairs = slice(start, min(start + size, mine.stop))
            a, b = ends[:, : pairs.stop - start]
            np.take(X, i[pairs], axis=0, out=a, mode="clip")  # "raise" would copy what it takes
            np.take(Y, j[pairs], axis=0, out=b, mode="clip")
            a -= b
            np.einsum("ij,ij->i", a, a, out=d[pairs])

    in_slices(work, len(i), MIN_THREADED_PAIRS)
    return d


def pair_distances(Z: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """|z_i − z_j| for listed pairs; an error where its square overflows, which would make far pairs infinitely far."""
    d = np.sqrt(pair_sqdist(Z, i, j))
    if not np.isfinite(d).all():
        k = int(np.argmin(np.isfinite(d)))
        raise ValueError(
            f"the distance of rows {i[k]} and {j[k]} is too large: its square overflows {Z.dtype}. Rescale the "
            "samples, or leave such rows out"
        )
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
