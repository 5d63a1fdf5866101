"""The Mahalanobis distance of the sample."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla
from sklearn.covariance import ledoit_wolf_shrinkage

from isometry.core.linalg import fix_signs
from isometry.core.moments import ArrayMoments
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, check_choices, parameters
from isometry.supervision import Labels


@parameters
class Covariance(MomentsMetric):
    """Mahalanobis distance of the sample: the directions of the data, each at unit variance.

    W = Σ⁻¹

    Σ is the total covariance, or the covariance pooled within classes, Σ = Σ_c W_c / (n − c). Directions without
    variance are dropped, so that for n < d this is a pseudo-metric on the span of the data.

    Parameters
    ----------
    covariance : "total" or "within" (needs y)
    shrinkage : None; a number in [0, 1] that moves Σ towards tr(Σ)/d · I; or "ledoit_wolf", for rows in memory
    tol : eigenvalues below tol · the largest count as zero
    n_components : keep only this many leading directions

    References
    ----------
    P. C. Mahalanobis, "On the generalised distance in statistics", Proc. Nat. Inst. Sci. India, 1936.
    """

    _sees = (Labels,)
    _needs_y = False
    _pooled = True

    n_components: int | None = None
    _: KW_ONLY
    covariance: str = "total"
    shrinkage: float | str | None = None
    tol: float = 1e-10

    @property
    def _in_row_space(self):
        return self.shrinkage is None

    def _groups(self, side, n):
        check_choices(self, covariance=("total", "within"))
        if self.covariance == "total":
            return np.zeros(n, dtype=np.intp), np.zeros(1, dtype=np.intp)
        if side is None:
            raise ValueError("Covariance(covariance='within') requires y to be passed, but the target y is None")
        return super()._groups(side, n)

    def _lack(self, moments):
        if moments.counts.max(initial=0) < 2:
            what = "2 samples" if self.covariance == "total" else "a class with at least 2 samples"
            return f"Covariance(covariance={self.covariance!r}) needs {what}"
        return ""

    def _fit_moments(self, moments):
        S = moments.pooled() / (moments.counts.sum() - moments.n_classes)
        d = len(S)
        p = self._room_for_components(d)
        if self.shrinkage is not None:
            s = _ledoit_wolf(moments) if self.shrinkage == "ledoit_wolf" else self.shrinkage
            S = (1 - s) * S + s * np.trace(S) / d * np.eye(d)
        lam, V = sla.eigh(S)
        lam, V = lam[::-1], V[:, ::-1]
        keep = lam > max(self.tol * lam[0], 0)
        if not keep.any():
            raise ValueError("all samples are equal: the covariance is zero and no direction has variance")
        self._set_components(fix_signs(V[:, keep].T / np.sqrt(lam[keep])[:, None])[:p], moments.dtype)


def _ledoit_wolf(moments) -> float:
    if not isinstance(moments, ArrayMoments):
        raise ValueError(
            "shrinkage='ledoit_wolf' needs the rows themselves, and chunks leave second moments only: fit on an array, "
            "or set shrinkage to a number"
        )
    return ledoit_wolf_shrinkage(moments.residuals())
