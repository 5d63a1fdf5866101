"""Geometric mean metric learning."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg as sla

from isometry.base import check_components
from isometry.core.linalg import RANK_TOL, canonical, definite, joint_range
from isometry.core.priors import inverse_covariance, prior_matrix
from isometry.core.spd import inverse_geodesic_factor
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, Share, parameters
from isometry.strength import Reg
from isometry.supervision import Labels, Pairs


@parameters
class GMML(MomentsMetric):
    """Geometric mean metric learning: a point on the geodesic from the inverse similar to the dissimilar scatter.

    W = (S + λW₀⁻¹)⁻¹ ♯_t (D + λW₀),  which for t = 1/2 minimises  tr(WS) + tr(W⁻¹D) + λ D_sym(W, W₀)

    over W ≻ 0, with S, D the mean scatters of similar and dissimilar pairs (all of them, from class moments, if given
    labels).

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions of W to keep; None: all.
    t : float in [0, 1], default=0.5
        Position on the geodesic: 0 is S⁻¹, 1 is D.
    reg : "auto" or float ≥ 0, default="auto"
        Weight λ ≥ 0 of the pull towards the prior, as a number (0: none); "auto": the data choose it, see
        `AutomaticStrength`.
    prior : {"identity", "covariance"} or ndarray, default="identity"
        Prior metric W₀: "identity", "covariance" (the inverse of the data's) or a positive definite array.

    Notes
    -----
    For pairs or labels in one pass: no search, and a prior to fall back on. It uses dissimilar pairs, which `RCA`
    does not, and its one setting ``t`` moves between the two scatters. It has no notion of neighbours: classes of
    several clusters need `LMNN`, `MFA` or `LFDA`.

    A fit costs O(n d² + d³) from labels, O(m d² + d³) from m pairs.

    With reg=0 the problem is solved where the pairs have variance. If S is singular even there (condition above 1e9) a
    relative ridge of 1e-4 is added to S, with a warning; to D only if D itself is not positive definite there.

    References
    ----------
    | P. Zadeh, R. Hosseini, S. Sra, "Geometric mean metric learning", ICML 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import GMML, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(GMML().fit(X, y).score(X, y) > 0.9)
    True
    >>> side = Pairs([0, 50, 100, 0, 50], [1, 51, 101, 60, 110], [True, True, True, False, False], n=150)
    >>> GMML(reg=0.1).fit(X, side).mahalanobis_.shape
    (4, 4)
    """

    _sees = (Labels, Pairs)
    reg_has_unit = True

    n_components: Count | None = None
    _: KW_ONLY
    t: Share = 0.5
    reg: Reg = "auto"
    prior: Literal["identity", "covariance"] | np.ndarray = "identity"

    def _fit_moments(self, moments: Any) -> None:
        p = check_components(self.n_components, self.n_features_in_)
        reg = float(self.reg)
        plain = isinstance(self.prior, str) and self.prior == "identity"
        if reg > 0 and plain and moments.frame is not None:  # beyond the row space S and D are 0, so that W is known
            S, D = (A + reg * np.eye(len(A)) for A in moments.mean_pair_scatters())
            beyond = reg ** (self.t - 0.5)
            L = beyond * moments.frame.extend(inverse_geodesic_factor(S, D, self.t) / beyond)
            self._store(L if p is None else canonical(L, p), moments.dtype)
            return
        if reg > 0:  # the prior acts in all directions
            moments = moments.in_features()
        S, D = moments.mean_pair_scatters()
        if reg > 0:
            W0 = self._prior(moments, len(S))
            L = inverse_geodesic_factor(S + reg * sla.inv(W0), D + reg * W0, self.t)
        else:
            if np.trace(S) <= RANK_TOL * np.trace(D):
                raise ValueError("all similar pairs are at distance 0: S⁻¹ has no meaning; set reg > 0, e.g. reg=0.1")
            Q = joint_range(S, D)
            Sr, Dr = Q.T @ S @ Q, Q.T @ D @ Q
            L = inverse_geodesic_factor(definite(Sr, 0.0, tol=1e-9), definite(Dr, 0.0, tol=0.0), self.t) @ Q.T
        self._store(moments.lift(L if p is None else canonical(L, p)), moments.dtype)

    def _prior(self, moments: Any, d: int) -> np.ndarray:
        if isinstance(self.prior, str) and self.prior == "covariance":  # of the moments: there may be no rows at hand
            return inverse_covariance(moments.covariance(ddof=1))
        return prior_matrix(self.prior, np.empty((0, d)))
