"""Neighbour softmax, logistic links and the quadratic bounds of both, stable at both ends."""

from __future__ import annotations

import numpy as np
from scipy.special import entr, exprel, log_expit
from sklearn.isotonic import isotonic_regression

LOWEST = {np.dtype(np.float64): -600.0, np.dtype(np.float32): -72.0}  # for smaller x, e^x is set to 0


def exp_(x: np.ndarray) -> np.ndarray:
    """e^x, overwriting x ≤ 0; exactly 0 where it is negligible.

    Subnormal numbers make exponentials and matrix products ten times slower. The result holds none, and a product of it
    with a number that is not small itself is none.
    """
    lowest = LOWEST[x.dtype]
    np.clip(x, lowest, 0, out=x)
    np.exp(x, out=x)
    x -= np.exp(x.dtype.type(lowest))
    return x


def neighbor_softmax(D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p_ij = exp(−d_ij)/Σ_k exp(−d_ik) row by row, in place; and lse_i = log Σ_k exp(−d_ik).

    A +inf in D gives probability 0. Every row needs one finite entry.
    """
    low = D.min(axis=1, keepdims=True)  # (b, 1)
    exp_(np.subtract(low, D, out=D))
    total = D.sum(axis=1, keepdims=True)
    D /= total
    return D, (np.log(total) - low).ravel()


def softplus(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + e^z) and its derivative σ(z), without overflow."""
    slope = exp_(-np.abs(np.asarray(z)))  # in [0, 1]
    value = slope + 1
    np.copyto(slope, 1, where=z >= 0)
    slope /= value
    np.log(value, out=value)
    value += np.maximum(z, 0)
    return value, slope


def pair_logistic(excess: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + exp(t e)) of a distance's excess e over the threshold, t = +1 similar, −1 dissimilar; and its slope."""
    value, slope = softplus(t * excess)
    slope *= t
    return value, slope


def jaakkola_jordan(xi: np.ndarray) -> np.ndarray:
    """λ(ξ) = tanh(ξ/2)/(4ξ), 1/8 at 0: log σ(z) ≥ log σ(ξ) + (z − ξ)/2 − λ(ξ)(z² − ξ²), with equality at z = ±ξ."""
    xi = np.abs(xi)
    return 0.25 * exprel(-xi) / (1 + np.exp(-xi))


def jaakkola_jordan_constant(xi: np.ndarray) -> np.ndarray:
    """The constant term of the bound, besides z/2 − λ(ξ) z²: log σ(ξ) − ξ/2 + λ(ξ) ξ²."""
    return log_expit(xi) - xi / 2 + jaakkola_jordan(xi) * xi**2


def softmax_curvature(w: np.ndarray, P: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Σ_i weight_i Σ_t p_it (w_it − w̄_i)(w_it − w̄_i)ᵀ (K, K), w̄_i = Σ_t p_it w_it, for w (b, k, K) and P (b, k).

    With P the softmax it is the curvature of weight_i · log Σ_t exp(−λᵀw_it) in λ. With P uniform over k candidates and
    k/2 in the weight it is Böhning's bound of that curvature, whatever λ.
    """
    centred = w - np.einsum("ik,ikl->il", P, w)[:, None]
    A = (centred * (weight[:, None] * P)[..., None]).reshape(-1, w.shape[2])
    return A.T @ centred.reshape(-1, w.shape[2])


def binary_entropy(p: np.ndarray) -> np.ndarray:
    """−p log p − (1 − p) log(1 − p)."""
    return entr(p) + entr(1 - p)


def isotonic_link(excess: np.ndarray, similar: np.ndarray, weight: np.ndarray, n_bins: int) -> np.ndarray:
    """Knots (2, b ≤ n_bins) of the share of similar pairs as a falling function of the excess; `np.interp` reads it.

    Bins of equally many pairs, by least squares under the order. Four pairs of the base rate are added to each bin:
    pairs of a bin share rows, so that they carry less information than independent ones, and no bin may give 0 or 1.
    """
    order = np.argsort(excess, kind="stable")
    start = np.unique(np.linspace(0, len(order), min(n_bins, len(order)) + 1).astype(np.intp))[:-1]
    x, w, s = (np.add.reduceat(v[order], start) for v in (excess * weight, weight, similar * weight))
    base, added = s.sum() / w.sum(), 4 * w.sum() / len(order)
    p = isotonic_regression((s + base * added) / (w + added), sample_weight=w, increasing=False)
    return np.stack([x / w, p])
