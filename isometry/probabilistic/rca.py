"""Relevant component analysis from its information-theoretic principle."""

from __future__ import annotations

import numpy as np

from isometry.base import check_components
from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.core.moments import ClassMoments
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, Positive, parameters
from isometry.strength import Reg
from isometry.supervision import Chunklets


@parameters
class ProbabilisticRCA(MomentsMetric):
    """Relevant component analysis by maximal information: as much of x as can be kept while chunklets stay tight.

    max_L log det(L Σ_x Lᵀ)  subject to  (1/N) Σ_l Σ_{i∈l} |L(x_i − μ_l)|² ≤ m

    over maps L (p, d): for Gaussian x this is the mutual information of x and Lx. With p = d it is max log det W under
    the same constraint, and W = (m/d) C⁻¹ for C the covariance within chunklets; with p < d it is Fisher's discriminant
    followed by that whitening.

    Parameters
    ----------
    n_components : p (default: all features)
    margin : m, the mean squared distance to the chunklet centres; it only sets the scale. None: p, so that L C Lᵀ = I
    reg : relative ridge on C, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`

    Notes
    -----
    The entropy is that of the whole projected sample, so Σ_x stands once in the objective, not the chunklet covariances
    that the survey sums; its constraint applies the metric twice.

    References
    ----------
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning distance functions using equivalence relations", ICML
    2003.
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from equivalence constraints",
    JMLR 2005.
    """

    _sees = (Chunklets,)
    _needs = ("similar",)
    _pooled = True

    n_components: Count | None = None
    _: KW_ONLY
    margin: Positive | None = None
    reg: Reg = "auto"

    def _fit_moments(self, moments: ClassMoments) -> None:
        within = moments.pooled()
        p = check_components(self.n_components, self.n_features_in_)
        C = within / moments.counts.sum()
        T, features = moments.covariance(within), moments.frame is None
        _, A = top_eigenvectors(T, C, p, reg=float(self.reg), of_features=features)  # AᵀCA = I
        m = A.shape[1] if self.margin is None else self.margin
        self._store(moments.lift(np.sqrt(m / A.shape[1]) * fix_signs(A.T)), moments.dtype)
