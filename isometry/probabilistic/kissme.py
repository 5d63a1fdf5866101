"""Metrics from the likelihood ratio of two Gaussians of differences, in closed form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg as sla

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import definite, factor, fix_signs, joint_range, svd, symmetrize
from isometry.core.moments import CrossMoments
from isometry.core.warn import warn_user
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, parameters
from isometry.strength import Reg
from isometry.supervision import Labels, Pairs


@parameters
class KISSME(MomentsMetric):
    """Keep it simple and straightforward metric: the likelihood ratio of Gaussian differences of pairs.

    W = [M_S⁻¹ − M_D⁻¹]₊

    with M_S, M_D the mean scatters of similar and of dissimilar pairs (all of them, from class moments, if given
    labels). Differences of a pair are Gaussian with one covariance or the other, and zᵀWz is their log-likelihood ratio
    but for a constant; negative eigenvalues are cut off.

    ``fit(X, y, groups=g)`` looks only at pairs of different groups, such as pictures from different cameras.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions of W to keep; None: all.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on both scatters, as a number; "auto": the data choose it, and how much of the metric is mixed
        with the Euclidean one, see `AutomaticStrength`.

    Attributes
    ----------
    threshold_ : float
        Threshold ``log|M_D| − log|M_S|``: where d² is above it, the pair is more likely dissimilar; of the learned
        metric, before it is mixed with the Euclidean one.
    eigenvalues_ : ndarray
        Values λ of M_D v = λ M_S v, largest first.

    Notes
    -----
    For verification of pairs, faces or persons, in one pass: a likelihood ratio with a threshold of its own.
    Differences are taken for Gaussian; reduce many features by PCA first, or use `XQDA`, which does so by itself.

    A fit costs O(n d² + d³) from labels, O(m d² + d³) from m pairs.

    References
    ----------
    | M. Köstinger, M. Hirzer, P. Wohlhart, P. M. Roth, H. Bischof, "Large scale metric learning from equivalence
      constraints", CVPR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KISSME
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KISSME(reg=0.1).fit(X, y)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near**2 < metric.threshold_ < far**2)
    True
    """

    _sees = (Labels, Pairs)

    n_components: int | None = None
    _: KW_ONLY
    reg: Reg = "auto"

    def _fit(self, X: np.ndarray, side: Any, groups: np.ndarray | None = None) -> None:
        if groups is None:
            super()._fit(X, side)
            return
        frame = Frame.of(X.astype(np.float64))
        moments = CrossMoments(frame.X, side, groups)
        moments.frame, moments.dtype = frame, X.dtype.name
        self._fit_moments(moments)

    def _fit_moments(self, moments: Any) -> None:
        p = check_components(self.n_components, self.n_features_in_)
        M_S, M_D = moments.mean_pair_scatters()
        S, D, Q = _definite_pair(M_S, M_D, float(self.reg))
        lam, V = _ratios(S, D)
        separating = 1 - 1 / lam  # M_S⁻¹ − M_D⁻¹ = V(I − Λ⁻¹)Vᵀ
        L = factor((V * separating) @ V.T, p) if lam[0] > 1 else _one_direction(V)
        self.eigenvalues_, self.threshold_ = lam, float(np.log(lam).sum())
        self._store(moments.lift(L @ Q.T), moments.dtype)


@parameters
class XQDA(KISSME):
    """Cross-view quadratic discriminant analysis: the likelihood ratio of `KISSME` where dissimilar pairs spread more.

    W = Σ_{λ_l > 1} (1 − 1/λ_l) v_l v_lᵀ,  M_D v_l = λ_l M_S v_l,  VᵀM_SV = I

    Without the restriction to λ > 1 this is M_S⁻¹ − M_D⁻¹: KISSME cuts off negative eigenvalues of that matrix, XQDA
    directions in which similar pairs spread more. ``fit(X, y, groups=g)`` looks only at pairs of different groups, the
    two views of the name.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of directions to keep, those of the largest λ; None: all with λ > 1.
    subspace : {"eigen", "svd"}, default="eigen"
        "eigen", as above; or "svd", KISSME in the space of the singular vectors of M_S⁻¹M_D with singular values above
        1, as the authors' program has it.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on both scatters, as a number; "auto": the data choose it, and how much of the metric is mixed
        with the Euclidean one, see `AutomaticStrength`.

    Attributes
    ----------
    threshold_ : float
        Threshold Σ log λ over the kept directions: where d² is above it, the pair is more likely dissimilar; of the
        learned metric, before it is mixed with the Euclidean one.
    eigenvalues_ : ndarray
        Values λ of the kept directions.

    Notes
    -----
    For verification of persons between cameras, and of pairs across groups in general, in one pass: `KISSME` with
    its own choice of dimensions. Where similar pairs spread more than dissimilar ones in all directions, nothing is
    left.

    A fit costs O(n d² + d³) from labels, O(m d² + d³) from m pairs.

    References
    ----------
    | S. Liao, Y. Hu, X. Zhu, S. Z. Li, "Person re-identification by local maximal occurrence representation and metric
      learning", CVPR 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import XQDA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = XQDA(reg=0.1).fit(X, y)
    >>> bool((metric.eigenvalues_ > 1).all())
    True
    """

    subspace: Literal["eigen", "svd"] = "eigen"

    def _fit_moments(self, moments: Any) -> None:
        p = check_components(self.n_components, self.n_features_in_)
        M_S, M_D = moments.mean_pair_scatters()
        S, D, Q = _definite_pair(M_S, M_D, float(self.reg))
        if self.subspace == "svd":
            U, s, _ = svd(sla.solve(S, D, assume_a="pos"))
            U = U[:, : max(1, min(p or len(s), int(np.sum(s > 1))))]
            S, D, Q = symmetrize(U.T @ S @ U), symmetrize(U.T @ D @ U), Q @ U
        lam, V = _ratios(S, D)
        keep = slice(max(1, min(p or len(lam), int(np.sum(lam > 1)))))
        lam, V = lam[keep], V[:, keep]
        L = np.sqrt(1 - 1 / lam)[:, None] * fix_signs(V.T) if lam[0] > 1 else _one_direction(V)
        self.eigenvalues_, self.threshold_ = lam, float(np.log(lam).sum())
        self._store(moments.lift(L @ Q.T), moments.dtype)


def _definite_pair(M_S: np.ndarray, M_D: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Both scatters with their ridge, in coordinates Q (d, r) of the space where any pair differs; and Q."""
    Q = joint_range(M_S, M_D)
    S, D = symmetrize(Q.T @ M_S @ Q), symmetrize(Q.T @ M_D @ Q)
    return definite(S, reg, beside=D), definite(D, reg, beside=S), Q


def _ratios(S: np.ndarray, D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """λ (r,) largest first, and V (r, r) with D V = S V Λ, VᵀSV = I."""
    lam, V = sla.eigh(D, S)
    return lam[::-1], V[:, ::-1]


def _one_direction(V: np.ndarray) -> np.ndarray:
    warn_user(
        "dissimilar pairs spread no more than similar ones in any direction: y tells nothing that a metric could use. "
        "The direction of the largest ratio is kept"
    )
    return fix_signs(V[:, :1].T)
