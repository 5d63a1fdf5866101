"""Relevant component analysis."""

from __future__ import annotations

import numpy as np

from isometry.base import LinearMetric
from isometry.core.linalg import factor, top_eigenvectors
from isometry.core.moments import ArrayMoments
from isometry.supervision import Chunklets

REDUCTIONS = ("pca", "fisher")


class RCA(LinearMetric):
    """Whiten the variation within chunklets, which is irrelevant by definition: W = C_w⁻¹.

    C_w = (1/m) Σ_l Σ_{i∈l} (x_i − μ_l)(x_i − μ_l)ᵀ over the m samples that belong to a chunklet. W minimises the mean
    squared distance to the chunklet centres under det W ≥ const.

    Parameters
    ----------
    n_components : p < d reduces first, see ``reduction``
    reduction : "pca" of all samples (2002 paper, survey) or "fisher", the leading eigenvectors of (S_t, C_w) (2005)
    reg : relative ridge on C_w

    References
    ----------
    N. Shental, T. Hertz, D. Weinshall, M. Pavel, "Adjustment learning and relevant component analysis", ECCV 2002.
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from equivalence constraints",
    JMLR 2005.
    """

    _sees = (Chunklets,)

    def __init__(self, n_components=None, *, reduction="pca", reg=0.0):
        self.n_components = n_components
        self.reduction = reduction
        self.reg = reg

    def _fit(self, X, side):
        if self.reduction not in REDUCTIONS:
            raise ValueError(f"reduction={self.reduction!r} is unknown; expected 'pca' or 'fisher'")
        p = self._check_n_components(X.shape[1])
        C = within_chunklets(X, side)
        T = total_covariance(X)
        if p is not None and self.reduction == "pca":
            Q = top_eigenvectors(T, p=p)[1]  # (d, p)
            V = Q @ top_eigenvectors(Q.T @ T @ Q, Q.T @ C @ Q, reg=self.reg)[1]
        else:
            V = top_eigenvectors(T, C, p, reg=self.reg)[1]  # VᵀC_wV = I, so VVᵀ = C_w⁻¹ where the data live
        self._set_components(factor(V @ V.T, V.shape[1]), X.dtype)


def within_chunklets(X: np.ndarray, side: Chunklets) -> np.ndarray:
    """C_w, pooled over the samples that belong to a chunklet."""
    moments = ArrayMoments(X, side.codes)
    if not np.any(moments.counts >= 2):
        raise ValueError("no chunklet has 2 samples: there is no variation within chunklets to learn from")
    (S,) = moments.within(np.ones(len(moments.counts)))
    return S / moments.counts.sum()


def total_covariance(X: np.ndarray) -> np.ndarray:
    (T,) = ArrayMoments(X, np.zeros(len(X), dtype=int)).within(np.ones(1))
    return T / len(X)
