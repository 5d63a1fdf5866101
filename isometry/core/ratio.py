"""Orthonormal directions with a large ratio of two scatters."""

from __future__ import annotations

from typing import Literal

import numpy as np

from isometry.core.linalg import joint_range, top_eigenvectors
from isometry.core.solve import Solution, trace_ratio
from isometry.core.warn import warn_user


def ratio_directions(
    B: np.ndarray,
    C: np.ndarray,
    p: int | None,
    default: int,
    max_iter: int,
    tol: float,
    lam: float | Literal["auto"] = "auto",
) -> tuple[np.ndarray, float, Solution]:
    """U (d, p) with the largest tr(UᵀBU)/tr(UᵀCU), UᵀU = I, inside range(B + C); and the ratio.

    p=None is ``default``, but at least one dimension less than the range has. ``lam`` stands for the best ratio.
    Outside the range a direction costs nothing and gains nothing: U would degenerate to fewer effective dimensions.
    """
    Q = joint_range(B, C)  # (d, r)
    r = Q.shape[1]
    p = max(1, min(default, r - 1)) if p is None else min(p, r)
    if p == r > 1:
        warn_user(
            f"n_components={p} are all the dimensions the pairs span: the map is a rotation and the metric Euclidean. "
            "Choose fewer"
        )
    B, C = Q.T @ B @ Q, Q.T @ C @ Q
    if isinstance(lam, str):
        solution, ratio = trace_ratio(B, C, p, max_iter=max_iter, tol=tol)
        return Q @ solution.x, ratio, solution
    values, U = top_eigenvectors(B - lam * C, p=p)
    ratio = float(np.trace(U.T @ B @ U) / max(np.trace(U.T @ C @ U), 1e-300))
    return Q @ U, ratio, Solution(U, float(values.sum()), 1, "closed form for a given lam", True, [float(values.sum())])
