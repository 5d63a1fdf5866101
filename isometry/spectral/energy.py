"""Energy-based classification: the label under which a new point would add least to the large-margin loss."""

from __future__ import annotations

import numpy as np

from isometry.core.distance import pair_sqdist, row_blocks, sqdist
from isometry.core.graph import k_smallest, target_neighbors


def energies(Z: np.ndarray, Z_train: np.ndarray, codes: np.ndarray, k: int, mu: float, margin: float) -> np.ndarray:
    """(m, c) what each row t of Z would add to the loss of the training points if its class were c.

    E_tc = (1 − μ) Σ_{j→t} d²(t, j) + μ Σ_{j→t} Σ_{l: y_l ≠ c} [margin + d²(t, j) − d²(t, l)]₊
         + μ Σ_{i: y_i ≠ c} Σ_{j→i} [margin + d²(i, j) − d²(i, t)]₊

    Targets j → t are the k nearest members of c, and d² is Euclidean. A class with m < k members counts them k/m-fold,
    or a small class would seem cheap.
    """
    n, c = len(Z_train), int(codes.max()) + 1
    centre = Z_train.mean(axis=0)
    Z, Z_train = Z - centre, Z_train - centre
    targets = target_neighbors(Z_train, codes, k)  # (n, k)
    reach = np.full(targets.shape, -np.inf)  # (n, k) squared distance below which a point is an impostor for a target
    i, j = np.nonzero(targets >= 0)
    reach[i, j] = margin + pair_sqdist(Z_train, i, targets[i, j])
    members = [np.flatnonzero(codes == label) for label in range(c)]
    one_hot = np.eye(c)[codes]  # (n, c)
    E = np.empty((len(Z), c))
    for rows in row_blocks(len(Z), n * Z.itemsize, buffers=8):
        D = sqdist(Z[rows], Z_train)  # (b, n)
        T = [k_smallest(D[:, m], min(k, len(m)))[1] for m in members]  # c arrays (b, k)
        hinges = np.split(hinge_sums(D, margin + np.hstack(T)), np.cumsum([t.shape[1] for t in T])[:-1], axis=1)
        for label, (t, all_classes, m) in enumerate(zip(T, hinges, members, strict=True)):
            other_classes = all_classes - hinge_sums(D[:, m], margin + t)
            E[rows, label] = k * ((1 - mu) * t + mu * other_classes).mean(axis=1)
        as_impostor = sum(np.maximum(r - D, 0) for r in reach.T)  # (b, n) loss that a row adds to a training point
        E[rows] += mu * (as_impostor.sum(axis=1, keepdims=True) - as_impostor @ one_hot)
    return E


def hinge_sums(D: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Σ_l [T_j − D_l]₊ for every row of D (b, n) and T (b, m): where D is sorted, count · T − prefix sum."""
    n, both = D.shape[1], np.hstack([D, T])
    order = np.argsort(both, axis=1, kind="stable")
    value, from_D = np.take_along_axis(both, order, axis=1), order < n
    total = np.cumsum(from_D, axis=1) * value - np.cumsum(np.where(from_D, value, 0), axis=1)
    sums = np.empty_like(both)
    np.put_along_axis(sums, order, total, axis=1)
    return sums[:, n:]
