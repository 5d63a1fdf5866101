"""Discriminative component analysis."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg as sla

from isometry.base import check_components
from isometry.core.graph import components
from isometry.core.linalg import RANK_TOL, fix_signs, symmetrize, top_eigenvectors
from isometry.core.moments import ClassMoments
from isometry.core.scatter import scatter
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, parameters
from isometry.strength import Reg
from isometry.supervision import Chunklets


@parameters
class DCA(MomentsMetric):
    """Discriminative component analysis: chunklets known to differ far apart, variation within chunklets small.

    max_A det(AᵀC_bA) / det(AᵀC_wA)

    C_b = (1/n_b) Σ_j Σ_{i∈D_j} (m_j − m_i)(m_j − m_i)ᵀ over chunklets j and those known to differ from it, D_j.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of directions, at most rank(C_b), which is the default.
    algorithm : {"gevp", "hoi"}, default="gevp"
        "gevp", the maximiser: generalised eigenvectors of (C_b, C_w); or "hoi", the two steps of the paper, which stay
        in range(C_b).
    within : {"chunklet_mean", "pooled"}, default="chunklet_mean"
        C_w as the mean of the chunklets' covariances ("chunklet_mean") or "pooled" over samples.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on C_w, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`.

    Notes
    -----
    For labels, chunklets or pairs where it is also known which groups differ: like `RCA`, but directions in which
    the groups are apart count more. A good first choice on tables with labels. With chunklets of which nothing is
    known but that each is of one class, use `RCA`.

    A fit costs O(n d² + d³).

    References
    ----------
    | S. C. H. Hoi, W. Liu, M. R. Lyu, W.-Y. Ma, "Learning distance metrics with contextual constraints for image
      retrieval", CVPR 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DCA().fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Chunklets,)

    n_components: Count | None = None
    _: KW_ONLY
    algorithm: Literal["gevp", "hoi"] = "gevp"
    within: Literal["chunklet_mean", "pooled"] = "chunklet_mean"
    reg: Reg = "auto"

    @property
    def _pooled(self) -> bool:
        return self.within == "pooled"

    def _fit_moments(self, moments: ClassMoments) -> None:
        n = moments.counts
        several = n >= 2
        weights = several / (n * several.sum()) if self.within == "chunklet_mean" else np.full(len(n), 1 / n.sum())
        (C_w,) = moments.within(weights)
        M, differ = moments.offsets - moments.offsets.mean(axis=0), moments.differ  # (c, d), (c, c)
        C_b = scatter(M, differ.astype(float)) / differ.sum()
        i, j = np.nonzero(differ)
        rank = len(M) - components(i, j, len(M)).max() - 1  # of the Laplacian of these links, so C_b has no more
        p = min(check_components(self.n_components, self.n_features_in_) or rank, rank)
        V = (_gevp if self.algorithm == "gevp" else _hoi)(C_b, C_w, float(self.reg))
        self._store(moments.lift(fix_signs(V[:, :p].T)), moments.dtype)


def _gevp(C_b: np.ndarray, C_w: np.ndarray, reg: float) -> np.ndarray:
    values, V = top_eigenvectors(C_b, C_w, reg=reg)
    return V[:, values > RANK_TOL * values[0]]


def _hoi(C_b: np.ndarray, C_w: np.ndarray, reg: float) -> np.ndarray:
    """Whiten C_b on its range, then take the directions of least within-variation there, and whiten those."""
    lb, U = sla.eigh(symmetrize(C_b))
    keep = lb > RANK_TOL * lb[-1]
    Z = U[:, keep] / np.sqrt(lb[keep])
    lw, V = sla.eigh(symmetrize(Z.T @ C_w @ Z))  # smallest first
    return Z @ V / np.sqrt(np.maximum(lw, max(reg, 1e-12) * lw[-1]))
