"""Geometry of symmetric positive definite matrices."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla

from isometry.core.linalg import RANK_TOL, definite, fix_signs, is_zero, joint_range, sym_fn, symmetrize


def geodesic(A: np.ndarray, B: np.ndarray, t: float = 0.5) -> np.ndarray:
    """A ♯_t B = A^{1/2} (A^{-1/2} B A^{-1/2})^t A^{1/2}: the point at fraction t from A to B."""
    R = sla.cholesky(A, lower=True)
    C = sla.solve_triangular(R, sla.solve_triangular(R, B, lower=True).T, lower=True)  # R⁻¹ B R⁻ᵀ
    return symmetrize(R @ sym_fn(C, lambda m: np.maximum(m, 0) ** t) @ R.T)


def inverse_geodesic_factor(S: np.ndarray, D: np.ndarray, t: float = 0.5) -> np.ndarray:
    """L with LᵀL = S⁻¹ ♯_t D, from one Cholesky and one eigenproblem; neither matrix is inverted.

    S = R Rᵀ, Rᵀ D R = Q diag(m) Qᵀ, L = diag(m^{t/2}) Qᵀ R⁻¹.
    """
    R = sla.cholesky(S, lower=True)
    m, Q = sla.eigh(symmetrize(R.T @ D @ R))
    L = np.maximum(m, 0)[:, None] ** (t / 2) * sla.solve_triangular(R.T, Q, lower=False).T
    order = np.argsort(-np.einsum("ij,ij->i", L, L), kind="stable")
    return fix_signs(L[order])


def spd_log(X: np.ndarray, eps: float = 1e-10) -> np.ndarray:
    """Matrix logarithms of a stack (..., d, d) of SPD matrices; eigenvalues are floored at eps · largest."""
    w, V = np.linalg.eigh(X)
    if np.any(w[..., -1] <= 0) or np.any(w[..., 0] < -np.sqrt(np.finfo(w.dtype).eps) * w[..., -1]):
        raise ValueError(
            "a matrix has a negative eigenvalue, or is 0: it has no logarithm. Covariances with a ridge do"
        )
    w = np.log(np.maximum(w, eps * w[..., -1:]))
    return (V * w[..., None, :]) @ np.swapaxes(V, -1, -2)


def shifted_mean_factor(S: np.ndarray, D: np.ndarray, t: float, reg: float, W0: np.ndarray | None = None) -> np.ndarray:
    """L with LᵀL = (S + λW₀⁻¹)⁻¹ ♯_t (D + λW₀), where λ = reg · tr(S)/d has the unit of the scatters; W₀ = I if None.

    With reg = 0 a singular scatter gets a small ridge, with a warning.
    """
    d = len(S)
    S, D = (np.zeros_like(S) if is_zero(S, beside=D) else S), (np.zeros_like(D) if is_zero(D, beside=S) else D)
    size = np.trace(S) or np.trace(D)
    if reg == 0:
        return inverse_geodesic_factor(definite(S, 0.0, beside=D), definite(D, 0.0, tol=0.0, beside=S), t)
    shift = reg * size / d
    W0 = np.eye(d) if W0 is None else W0
    return inverse_geodesic_factor(S + shift * sla.inv(W0), D + shift * W0, t)


def definite_pair(S: np.ndarray, D: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q (d, r), QᵀSQ, QᵀDQ: both scatters where either has variance, made positive definite by a relative ridge."""
    if np.trace(S) <= RANK_TOL * np.trace(D):
        raise ValueError("similar pairs must differ somewhere: all of them are at distance 0")
    Q = joint_range(S, D)
    return Q, definite(Q.T @ S @ Q, reg), definite(Q.T @ D @ Q, reg)
