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
    n_components : p < d reduces first, see ``reduction``
    reduction : "pca" of all samples (2002 paper, survey) or "fisher", the leading eigenvectors of (S_t, C_w) (2005)
    reg : relative ridge on C_w, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`

    References
    ----------
    N. Shental, T. Hertz, D. Weinshall, M. Pavel, "Adjustment learning and relevant component analysis", ECCV 2002.
    A. Bar-Hillel, T. Hertz, N. Shental, D. Weinshall, "Learning a Mahalanobis metric from equivalence constraints",
    JMLR 2005.
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
