"""Neighbour softmax and logistic links, stable at both ends."""

from __future__ import annotations

import numpy as np
from scipy.special import expit


def neighbor_softmax(D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p_ij = exp(−d_ij)/Σ_k exp(−d_ik) row by row, in place; and lse_i = log Σ_k exp(−d_ik).

    A +inf in D gives probability 0. Every row needs one finite entry.
    """
    low = D.min(axis=1, keepdims=True)  # (b, 1)
    np.subtract(low, D, out=D)
    np.exp(D, out=D)
    total = D.sum(axis=1, keepdims=True)
    D /= total
    return D, (np.log(total) - low).ravel()


def softplus(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + e^z) and its derivative σ(z), without overflow."""
    return np.logaddexp(0, z), expit(z)


def pair_logistic(excess: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + exp(t e)) of a distance's excess e over the threshold, t = +1 similar, −1 dissimilar; and its slope."""
    value, slope = softplus(t * excess)
    return value, t * slope
