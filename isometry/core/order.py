"""An order of samples and features that does not depend on the one they came in.

What a search draws at random it draws by number. If numbers follow this order, a seed gives the same metric for the
same samples, however a table lists them.
"""

from __future__ import annotations

import numpy as np

MAX_RANKS = 64  # values of a column, from the least to the greatest, by which columns are compared
DIGITS = 9  # of what samples are compared by; the others are rounding errors


def column_order(X: np.ndarray) -> np.ndarray:
    """(d,) the columns of X (n, d), sorted by their least values, then by the next."""
    ranked = np.sort(X, axis=0)
    return np.lexsort(ranked[:: max(1, len(X) // MAX_RANKS)][::-1])


def row_order(X: np.ndarray) -> np.ndarray:
    """(n,) the rows of X (n, d), sorted by |x|², then by xᵀCx and xᵀC²x, about their mean and with C their covariance.

    Neither rotations nor shifts nor the unit of the features change it. Samples that are mirror images of one another
    in the axes of C are in the order they came in.
    """
    X = X.astype(np.float64)
    X = X - X[:1]  # first, so that little is lost to rounding where X is far from 0
    X -= X.mean(axis=0)
    C = X.T @ X / max(np.vdot(X, X), 1e-300)
    keys = np.stack([np.einsum("ij,ij->i", X, Y) for Y in (X, X @ C, X @ C @ C)])  # (3, n)
    keys = np.round(keys / np.maximum(keys.max(axis=1, keepdims=True), 1e-300), DIGITS)
    return np.lexsort(keys[::-1])
