"""Sliced inverse regression."""

from __future__ import annotations

import numpy as np

from isometry.base import check_components
from isometry.core.linalg import RANK_TOL, fix_signs, top_eigenvectors
from isometry.core.moments import ClassMoments, between_scatter
from isometry.core.warn import warn_user
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, NotNegative, parameters
from isometry.supervision import Targets


@parameters
class SIR(MomentsMetric):
    """Sliced inverse regression: the directions in which the mean of x changes with the target.

    max_V tr(VᵀS_bV)  subject to  VᵀS_tV = I

    with S_t the covariance of the samples and S_b that of the means of h slices of samples with near targets: Fisher's
    discriminant for slices. What the target depends on through directions alone is found without knowing how, if the
    samples are elliptic; but a target that is an even function of x moves no mean, and is not.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: all with λ > 0, at most h − 1.
    n_slices : int, default=10
        Number h of slices, at quantiles of one target or clusters of several; at most a fifth of the samples. Equal
        targets share a slice, and a few distinct values are slices of their own.
    weighted : bool, default=True
        Whether rows are √λ v, so that directions count by how much they tell, instead of v.
    reg : float ≥ 0, default=0.001
        Relative ridge on S_t.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Values λ of S_b v = λ S_t v, in [0, 1], for the rows of the map.

    Notes
    -----
    For targets that are numbers: the few directions that a regression depends on, in closed form, before any model
    is chosen. Not for a target that is symmetric about the mean of a direction; `MLKR` finds these, by a search.

    A fit costs O(n d² + d³).

    ``partial_fit`` takes the edges of the slices from the first chunk.

    References
    ----------
    | K.-C. Li, "Sliced inverse regression for dimension reduction", Journal of the American Statistical Association
      1991.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import SIR
    >>> X = np.random.default_rng(0).normal(size=(400, 5))
    >>> y = np.exp(X[:, 0] - X[:, 1])
    >>> metric = SIR(1).fit(X, y)
    >>> direction = metric.components_[0] / np.linalg.norm(metric.components_[0])
    >>> bool(abs(direction @ [1, -1, 0, 0, 0]) > 1.3)
    True
    """

    _sees = (Targets,)
    _needs = ()
    _pooled = True

    n_components: int | None = None
    _: KW_ONLY
    n_slices: Count = 10
    weighted: bool = True
    reg: NotNegative = 1e-3

    def _fit_moments(self, moments: ClassMoments) -> None:
        p = check_components(self.n_components, self.n_features_in_)
        n, h = moments.counts.sum(), int(np.sum(moments.counts > 0))
        lam, V = top_eigenvectors(between_scatter(moments) / n, moments.covariance(), reg=self.reg)
        if lam[0] < 2 * (h - 1) / n:
            warn_user(
                f"the mean of X changes with y no more than by chance (λ = {lam[0]:.2g}): y may be an even function of "
                "the features, which MLKR can find, or independent of them"
            )
        keep = max(1, min(p or h - 1, h - 1, int(np.sum(lam > RANK_TOL * lam[0]))))
        lam, V = np.maximum(lam[:keep], 0), V[:, :keep]
        self.eigenvalues_ = lam
        scale = np.sqrt(lam) if self.weighted and lam[0] > 0 else np.ones(keep)
        self._store(moments.lift(scale[:, None] * fix_signs(V.T)), moments.dtype)
