"""Prior metrics by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla

from isometry.core.linalg import SingularMatrixWarning, is_singular, ridge, symmetrize
from isometry.core.warn import warn_user


def inverse_covariance(C: np.ndarray) -> np.ndarray:
    """C⁻¹; of a singular covariance with a small ridge, and a warning."""
    if is_singular(C):
        warn_user(
            "prior='covariance': the covariance of X is singular (too few samples, or features that depend on one "
            "another), and a relative ridge of 1e-06 was added before it was inverted. Directions without variance get "
            "the largest weight; reduce the features first, or use prior='identity'",
            SingularMatrixWarning,
        )
        C = ridge(C, 1e-6)
    return symmetrize(sla.inv(C))


def prior_matrix(prior: Any, X: np.ndarray) -> np.ndarray:
    """W₀ (d, d) ≻ 0: "identity", "covariance" (the inverse covariance of X) or an array, which is checked."""
    d = X.shape[1]
    if isinstance(prior, str):
        if prior == "identity":
            return np.eye(d)
        if prior == "covariance":
            return inverse_covariance(np.cov(X, rowvar=False).reshape(d, d))
        raise ValueError(f"prior={prior!r} is unknown; expected 'identity', 'covariance' or an array")
    W0 = np.asarray(prior, dtype=np.float64)
    if W0.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)}, got {W0.shape}")
    if not np.allclose(W0, W0.T, rtol=1e-8, atol=1e-10 * np.abs(W0).max()):
        raise ValueError("prior must be symmetric")
    w = sla.eigvalsh(W0)
    if w[0] <= d * np.finfo(np.float64).eps * w[-1]:
        raise ValueError(
            f"prior must be positive definite, but it is singular up to rounding: its eigenvalues go from {w[0]:.2g} "
            f"to {w[-1]:.2g}. Add a small multiple of the identity"
        )
    return W0
