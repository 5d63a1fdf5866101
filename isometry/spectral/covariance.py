"""The Mahalanobis distance of the sample."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg as sla
from sklearn.covariance import ledoit_wolf_shrinkage

from isometry.base import check_components
from isometry.core.linalg import fix_signs
from isometry.core.moments import ArrayMoments, ClassMoments
from isometry.core.warn import warn_user
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, NotNegative, Share, parameters
from isometry.strength import Reg
from isometry.supervision import Labels


@parameters
class Covariance(MomentsMetric):
    """Mahalanobis distance of the sample: the directions of the data, each at unit variance.

    W = Σ⁻¹

    Σ is the total covariance, or the covariance pooled within classes, Σ = Σ_c W_c / (n − c). Directions without
    variance are dropped, so that for n < d this is a pseudo-metric on the span of the data.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: all.
    covariance : {"total", "within"}, default="total"
        The covariance Σ: "total", or "within" classes, which needs y.
    shrinkage : float in [0, 1], "ledoit_wolf" or None, default=None
        None; a number in [0, 1] that moves Σ towards tr(Σ)/d · I; or "ledoit_wolf", for rows in memory.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on Σ, as a number (0: as published); "auto": the data choose it, see `AutomaticStrength`.
    tol : float ≥ 0, default=1e-10
        Eigenvalues below tol · the largest count as zero.

    Notes
    -----
    The baseline beside `Euclidean`: what scaling and decorrelation do without any learning from labels. It helps
    where features have different units or are redundant; it harms where directions of small variance are noise,
    since they are enlarged as much as those of signal. With labels `RCA` whitens what varies within classes
    instead.

    A fit costs O(n d² + d³).

    References
    ----------
    | P. C. Mahalanobis, "On the generalised distance in statistics", Proc. Nat. Inst. Sci. India, 1936.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import Covariance
    >>> X, y = load_iris(return_X_y=True)
    >>> import numpy as np
    >>> metric = Covariance(reg=0.0).fit(X)
    >>> bool(np.allclose(np.cov(metric.transform(X).T), np.eye(4)))
    True
    """

    _sees = (Labels, None)
    _pooled = True

    n_components: Count | None = None
    _: KW_ONLY
    covariance: Literal["total", "within"] = "total"
    shrinkage: Share | Literal["ledoit_wolf"] | None = None
    reg: Reg = "auto"
    tol: NotNegative = 1e-10

    @property
    def _needs(self) -> tuple[str, ...]:
        return ("similar",) if self.covariance == "within" else ()

    def _fit_moments(self, moments: ClassMoments) -> None:
        p = check_components(self.n_components, self.n_features_in_)
        reg = float(self.reg)
        if self.shrinkage is not None or reg:  # shrinks in all directions
            moments = moments.in_features()
        within = self.covariance == "within"
        n, c = moments.counts.sum(), moments.n_classes
        lam, V = moments.once((self.covariance, self.shrinkage), lambda: self._spectrum(moments))
        lam = lam + reg * lam.mean()
        keep = lam > max(self.tol * lam[0], 0)
        if not keep.any():
            raise ValueError("all samples are equal: the covariance is zero and no direction has variance")
        rank, samples = int(keep.sum()), int(n + moments.rest().n)
        if self.shrinkage is None and not reg and 1 < rank == samples - (c if within else 1) and rank <= (p or rank):
            warn_user(
                f"{samples} samples span {rank} directions{' within classes' * within} and get unit variance in all of "
                "them, which makes all their distances equal. Set reg='auto', shrinkage='ledoit_wolf', or n_components"
            )
        self._store(moments.lift(fix_signs(V[:, keep].T / np.sqrt(lam[keep])[:, None])[:p]), moments.dtype)

    def _spectrum(self, moments: ClassMoments) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of Σ, the largest first, and its eigenvectors (d, d)."""
        within = self.covariance == "within"
        S = moments.pooled() / (moments.counts.sum() - moments.n_classes) if within else moments.covariance(ddof=1)
        if self.shrinkage is not None:
            d = len(S)
            s = _ledoit_wolf(moments, within) if self.shrinkage == "ledoit_wolf" else float(self.shrinkage)
            S = (1 - s) * S + s * np.trace(S) / d * np.eye(d)
        lam, V = sla.eigh(S)
        return lam[::-1], V[:, ::-1]


def _ledoit_wolf(moments: ClassMoments, within: bool) -> float:
    if not isinstance(moments, ArrayMoments):
        raise ValueError(
            "shrinkage='ledoit_wolf' needs the rows themselves, and chunks leave second moments only: fit on an array, "
            "or set shrinkage to a number"
        )
    return float(ledoit_wolf_shrinkage(moments.residuals(within=within)))
