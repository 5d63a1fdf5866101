"""Kernels by name or callable, and coordinates in which every linear method becomes its kernel version.

K = V diag(l) Vᵀ, φ(x) = diag(l)^{-1/2} Vᵀ k(X, x): the inner products of φ are the kernel, so a linear method run on φ
*is* the method in feature space, and TᵀKT = I for T = V diag(l)^{-1/2} Q exactly when QᵀQ = I.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.metrics.pairwise import pairwise_kernels

from isometry.core.linalg import RANK_TOL, symmetrize

Kernel = str | Callable[[np.ndarray, np.ndarray], Any]


def default_gamma(X: np.ndarray) -> float:
    """1/(d · mean feature variance): 1/d on standardised data."""
    variance = float(np.mean(np.var(X, axis=0, dtype=np.float64)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def kernel_matrix(X: np.ndarray, Y: np.ndarray, kernel: Kernel, params: Mapping[str, Any]) -> np.ndarray:
    """k(x_i, y_j). A precomputed kernel comes as X itself."""
    if kernel == "precomputed":
        return np.asarray(X, dtype=np.float64)
    return np.asarray(pairwise_kernels(X, Y, metric=kernel, filter_params=True, **params), dtype=np.float64)


def hsic(K: np.ndarray, M: np.ndarray) -> float:
    """Hilbert–Schmidt independence criterion tr(K H M H)/(n − 1)²."""
    n = len(K)
    Kc = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean()
    return float(np.vdot(Kc, M)) / (n - 1) ** 2


@dataclass
class KernelMap:
    """φ(x) = basisᵀ k(landmarks, x), the kernel centred in feature space if ``means`` is given."""

    kernel: Kernel
    params: dict[str, Any]
    landmarks: np.ndarray | None  # (m, d); None for a precomputed kernel
    basis: np.ndarray  # (m, r) = V diag(l)^{-1/2}
    spectrum: np.ndarray  # (r,) = l
    means: np.ndarray | None = None  # (m,) column means of the training kernel

    def kernel_rows(self, X: np.ndarray) -> np.ndarray:
        """k(x, landmarks) (n, m), centred if the map is."""
        K = kernel_matrix(X, self.landmarks, self.kernel, self.params)
        if self.means is not None:
            K = K - self.means - K.mean(axis=1)[:, None] + self.means.mean()
        return K

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.kernel_rows(X) @ self.basis  # (n, r)


def fit_kernel_map(
    X: np.ndarray,
    kernel: Kernel = "rbf",
    params: Mapping[str, Any] | None = None,
    *,
    landmarks: int | None = None,
    center: bool = False,
    variance: float = 1.0,
    max_rank: int | None = None,
    rng: np.random.RandomState | None = None,
) -> KernelMap:
    """Kernel coordinates of X: exact with all rows as landmarks, Nyström with fewer.

    ``variance`` keeps the leading components that carry this share of the centred kernel's trace.
    """
    params = dict(params or {})
    n = len(X)
    if kernel in ("rbf", "laplacian", "chi2", "poly", "polynomial", "sigmoid") and params.get("gamma") is None:
        params["gamma"] = default_gamma(X)
    if kernel == "precomputed":
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel must be square, got shape {X.shape}")
        if landmarks is not None and landmarks < n:
            raise ValueError("landmarks need the samples themselves; they do not go with a precomputed kernel")
        marks = None
    elif landmarks is None or landmarks >= n:
        marks = np.array(X)
    else:
        rng = rng or np.random.RandomState(0)
        marks = np.array(X[np.sort(rng.choice(n, landmarks, replace=False))])
    K = symmetrize(kernel_matrix(X if marks is None else marks, marks, kernel, params))
    means = K.mean(axis=0) if center else None
    if center:
        K = K - means - means[:, None] + means.mean()
    l, V = sla.eigh(K)
    l, V = l[::-1], V[:, ::-1]
    if l[-1] < -1e-6 * max(l[0], 0) - 1e-12:
        raise ValueError(
            f"the kernel is not positive semi-definite: its smallest eigenvalue is {l[-1]:.3g}, its largest {l[0]:.3g}; "
            "use a PSD kernel such as 'rbf', 'linear' or 'polynomial' with coef0 ≥ 0"
        )
    keep = l > RANK_TOL * max(l[0], 0)
    if variance < 1.0:
        share = np.cumsum(np.maximum(l, 0)) / np.maximum(l, 0).sum()
        keep &= np.arange(len(l)) <= np.searchsorted(share, variance)
    if max_rank is not None:
        keep[max_rank:] = False
    l, V = l[keep], V[:, keep]
    return KernelMap(kernel, params, marks, V / np.sqrt(l), l, means)
