"""Small reference functions that several tests compare the library with."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla

from isometry.core.linalg import sym_fn


def psd_project(A: np.ndarray) -> np.ndarray:
    """The nearest positive semi-definite matrix in Frobenius norm."""
    return sym_fn(A, lambda w: np.maximum(w, 0))


def logdet_divergence(W: np.ndarray, W0: np.ndarray) -> float:
    """D(W, W₀) = tr(W W₀⁻¹) − log det(W W₀⁻¹) − d: twice the KL divergence of the Gaussians with these precisions."""
    M = sla.solve(W0, W, assume_a="pos")
    return float(np.trace(M) - np.linalg.slogdet(M)[1] - len(W))


def riemannian_distance(A: np.ndarray, B: np.ndarray) -> float:
    """|log(A^{-1/2} B A^{-1/2})|_F: the affine-invariant distance of two SPD matrices."""
    return float(np.sqrt(np.sum(np.log(sla.eigvalsh(B, A)) ** 2)))
