"""Retrieval between two views: whether the other view of a sample is the nearest one."""

from __future__ import annotations

import numpy as np

from isometry.core.distance import row_blocks, sqdist

ROUNDING = 8  # units in the last place of the squared norms that a distance by a product may be off


def partner_ranks(Z1: np.ndarray, Z2: np.ndarray) -> np.ndarray:
    """Rank of each sample's other view among those of all samples, by distance.

    Parameters
    ----------
    Z1 : ndarray of shape (n, p)
        One view of the samples, mapped.
    Z2 : ndarray of shape (n, p)
        The other view, mapped to the same space; row i of both is the same sample.

    Returns
    -------
    ndarray of shape (2, n)
        The rank of row i of Z2 by its distance to row i of Z1, and the same the other way. 1 is the nearest; rows at
        equal distance, up to rounding, share the mean of their ranks.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import partner_ranks
    >>> Z = np.array([[0.0], [1.0], [3.0]])
    >>> partner_ranks(Z, Z)
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    Z1, Z2 = (np.asarray(Z, dtype=np.result_type(Z, np.float32)) for Z in (Z1, Z2))
    if Z1.shape != Z2.shape or Z1.ndim != 2:
        raise ValueError(
            f"mapped views must be tables of one shape, row i of both the same sample; got {Z1.shape} and {Z2.shape}"
        )
    mean = Z1.mean(axis=0)  # distances by products are exact near the origin
    return np.stack([_ranks(Z1 - mean, Z2 - mean), _ranks(Z2 - mean, Z1 - mean)])


def _ranks(queries: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    ranks, largest = np.empty(len(queries)), np.einsum("ij,ij->i", gallery, gallery).max(initial=0)
    for rows in row_blocks(len(queries), len(gallery) * gallery.itemsize):
        D = sqdist(queries[rows], gallery)  # (b, n)
        D -= D[np.arange(len(D)), np.arange(rows.start, rows.stop), None]  # beyond its own partner
        size = np.einsum("ij,ij->i", queries[rows], queries[rows]) + largest
        tie = ROUNDING * np.finfo(D.dtype).eps * size[:, None]
        ranks[rows] = (-tie > D).sum(axis=1) + ((np.abs(D) <= tie).sum(axis=1) + 1) / 2
    return ranks
