"""Non-negative least squares, many small problems at once."""

from __future__ import annotations

import numpy as np

MAX_FULL_SWAPS = 3  # rounds without progress after which a problem swaps one index a round, which cannot cycle


def nonnegative_minimum(H: np.ndarray, b: np.ndarray) -> np.ndarray:
    """argmin_{w ≥ 0} ½wᵀHw − bᵀw for a stack of positive definite H (m, k, k) and b (m, k).

    Block principal pivoting: an index is free or at 0; solve for the free ones, swap every index whose weight or slope
    has the wrong sign, until none has (J. Kim, H. Park, SIAM J. Sci. Comput. 33, 2011).
    """
    m, k = b.shape
    w = np.zeros((m, k))
    free = np.zeros((m, k), dtype=bool)
    fewest_wrong = np.full(m, k + 1)
    full_swaps_left = np.full(m, MAX_FULL_SWAPS)
    for _ in range(100 * (k + 1)):
        slope = np.einsum("mij,mj->mi", H, w) - b
        eps = 1e-12 * np.abs(b).max(axis=1, initial=0, keepdims=True)
        wrong = np.where(free, w < 0, slope < -eps)  # (m, k)
        todo = np.flatnonzero(wrong.any(axis=1))
        if len(todo) == 0:
            return w
        wrong, count = wrong[todo], wrong[todo].sum(axis=1)
        better = count < fewest_wrong[todo]
        full_swaps_left[todo] = np.where(better, MAX_FULL_SWAPS, full_swaps_left[todo] - 1)
        fewest_wrong[todo] = np.minimum(count, fewest_wrong[todo])
        last = np.arange(k) == (k - 1 - wrong[:, ::-1].argmax(axis=1))[:, None]
        free[todo] ^= wrong & (last | (full_swaps_left[todo] >= 0)[:, None])
        w[todo] = _solve_free(H[todo], b[todo], free[todo])
    raise RuntimeError("non-negative least squares did not settle: the matrices must be positive definite")


def _solve_free(H: np.ndarray, b: np.ndarray, free: np.ndarray) -> np.ndarray:
    """H w = b on the free indices of each problem, w = 0 on the others."""
    both = free[:, :, None] & free[:, None, :]
    masked = np.where(both, H, np.eye(H.shape[1]))
    return np.linalg.solve(masked, np.where(free, b, 0)[..., None])[..., 0]
