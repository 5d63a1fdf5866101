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
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    margin : float > 0 or None, default=None
        Mean squared distance m to the chunklet centres; it only sets the scale. None: p, so that L C Lᵀ = I.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on C, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`.

    Notes
    -----
    `RCA` with a choice of the scale and, for p < d, the directions of most information instead of most variance.
    With p = d it is RCA but for the scale; as there, what varies within chunklets is taken for noise.

    A fit costs O(n d² + d³).

    The entropy is that of the whole projected sample, so Σ_x stands once in the objective, not the chunklet covariances
    that the survey sums; its constraint applies the metric twice.

    References
    ----------
    | A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning distance functions using equivalence relations", ICML
      2003.
    | A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from equivalence constraints",
      JMLR 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import ProbabilisticRCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = ProbabilisticRCA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
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
