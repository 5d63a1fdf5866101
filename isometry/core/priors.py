"""Prior metrics by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla

from isometry.core.linalg import definite, symmetrize


def prior_matrix(prior: Any, X: np.ndarray) -> np.ndarray:
    """W₀ (d, d) ≻ 0: "identity", "covariance" (the inverse covariance of X) or an array, which is checked."""
    d = X.shape[1]
    if isinstance(prior, str):
        if prior == "identity":
            return np.eye(d)
        if prior == "covariance":
            return symmetrize(sla.inv(definite(np.cov(X, rowvar=False).reshape(d, d), 0.0, least=1e-6)))
        raise ValueError(f"prior={prior!r} is unknown; expected 'identity', 'covariance' or an array")
    W0 = np.asarray(prior, dtype=np.float64)
    if W0.shape != (d, d):
        raise ValueError(f"prior must have shape {(d, d)}, got {W0.shape}")
    if not np.allclose(W0, W0.T, rtol=1e-8, atol=1e-10 * np.abs(W0).max()):
        raise ValueError("prior must be symmetric")
    if sla.eigvalsh(W0)[0] <= 0:
        raise ValueError("prior must be positive definite; its smallest eigenvalue is not positive")
    return W0
