"""Relevant component analysis."""

from __future__ import annotations

from isometry.base import check_components
from isometry.core.linalg import canonical, top_eigenvectors
from isometry.core.moments import ClassMoments
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, check_choices, parameters
from isometry.strength import Reg
from isometry.supervision import Chunklets

REDUCTIONS = ("pca", "fisher")


@parameters
class RCA(MomentsMetric):
    """Relevant component analysis: whiten the variation within chunklets, which is irrelevant by definition.

    W = C_w⁻¹,  C_w = (1/m) Σ_l Σ_{i∈l} (x_i − μ_l)(x_i − μ_l)ᵀ

    over the m samples that belong to a chunklet. W minimises the mean squared distance to the chunklet centres under
    det W ≥ const.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map: with p < d it reduces first, see ``reduction``; None: all features.
    reduction : {"pca", "fisher"}, default="pca"
        "pca" of all samples (2002 paper, survey) or "fisher", the leading eigenvectors of (S_t, C_w) (2005).
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on C_w, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`.

    Notes
    -----
    The first thing to try: labels, chunklets or similar pairs, one pass over the rows, no setting. It needs no
    dissimilar pairs. What varies within a chunklet is taken for noise, so that classes of several clusters, or
    chunklets that mix classes, mislead it; where classes are known to differ, `DCA` and `FisherML` use that as
    well.

    A fit costs O(n d² + d³).

    References
    ----------
    | N. Shental, T. Hertz, D. Weinshall, M. Pavel, "Adjustment learning and relevant component analysis", ECCV 2002.
    | A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from equivalence constraints",
      JMLR 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, Chunklets
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RCA().fit(X, y)
    >>> bool(metric.score(X, y) > 0.9)
    True
    >>> groups = [0] * 5 + [-1] * 45 + [1] * 5 + [-1] * 45 + [2] * 5 + [-1] * 45
    >>> RCA().fit(X, Chunklets(groups)).transform(X).shape
    (150, 4)
    """

    _sees = (Chunklets,)
    _needs = ("similar",)
    _pooled = True

    n_components: Count | None = None
    _: KW_ONLY
    reduction: str = "pca"
    reg: Reg = "auto"

    def _fit_moments(self, moments: ClassMoments) -> None:
        check_choices(self, reduction=REDUCTIONS)
        within = moments.pooled()
        p = check_components(self.n_components, self.n_features_in_)
        C, T = within / moments.counts.sum(), moments.covariance(within)
        if p is not None and self.reduction == "pca":
            Q = top_eigenvectors(T, p=p)[1]  # (d, p)
            V = Q @ top_eigenvectors(Q.T @ T @ Q, Q.T @ C @ Q, reg=float(self.reg))[1]
        else:
            V = top_eigenvectors(T, C, p, reg=float(self.reg), of_features=moments.frame is None)[1]
        # VᵀC_wV = I, so VVᵀ = C_w⁻¹ where the data live
        self._store(moments.lift(canonical(V.T)), moments.dtype)
