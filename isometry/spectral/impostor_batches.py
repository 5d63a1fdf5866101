"""LMNN's objective anchor by anchor, for mini-batches."""

from __future__ import annotations

import numpy as np

from isometry.core.edges import DenseEdges, EdgeLoss
from isometry.core.objective import DistanceObjective


def lmnn_by_anchors(
    X: np.ndarray, codes: np.ndarray, targets: np.ndarray, mu: float, margin: float
) -> DistanceObjective:
    """The objective of `LMNN` as a loss on rows of distances: of each anchor to its targets and to other classes.

    ``targets`` (n, k) has −1 where a class is too small.
    """
    return DistanceObjective(X, DenseEdges(len(X)), neighbor_hinge(codes, targets, mu, margin))


def neighbor_hinge(codes: np.ndarray, targets: np.ndarray, mu: float, margin: float) -> EdgeLoss:
    """(1 − μ) Σ_j d_ij + μ Σ_j Σ_l [margin + d_ij − d_il]₊ over rows i of distances, and its slopes."""

    def loss(D, rows):
        T = targets[rows]  # (b, k)
        i, j = np.nonzero(T >= 0)
        to_target = D[i, T[i, j]]
        t = np.full(T.shape, -np.inf, dtype=D.dtype)  # −inf where there is no target
        t[i, j] = to_target
        D[codes[rows, None] == codes] = np.inf
        a, l = np.nonzero(t.max(axis=1, keepdims=True) + margin > D)  # anchor, impostor
        h = margin + t[a] - D[a, l][:, None]  # (m, k)
        active = h > 0
        n_impostors = np.stack([np.bincount(a, column, len(D)) for column in active.T], axis=1)  # (b, k) of each target
        C = np.zeros_like(D)
        C[a, l] = -mu * active.sum(axis=1)
        C[i, T[i, j]] = (1 - mu) + mu * n_impostors[i, j]
        return (1 - mu) * float(to_target.sum()) + mu * float(h[active].sum()), C

    return loss
