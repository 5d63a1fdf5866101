"""Regressive virtual metric learning."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from isometry.core.frame import Frame
from isometry.core.linalg import canonical, scatter_range
from isometry.core.moments import ClassMoments
from isometry.core.solve import Solution
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, Seed, parameters
from isometry.strength import Reg
from isometry.supervision import Labels


@parameters
class RVML(MomentsMetric):
    """Regressive virtual metric learning: the map that brings samples nearest to virtual points, by ridge regression.

    min_L (1/n) |XLᵀ − V|² + reg s |L|²,  s = tr Cov(X)/d:  Lᵀ = (XᵀX/n + reg s I)⁻¹ XᵀV/n

    with X and V centred, V (n, ·) the virtual point of each sample.

    Parameters
    ----------
    points : {"class", "landmarks"}, default="class"
        Virtual points: "class", a unit vector for each class, so that L has rank c − 1 and without ridge the span of
        LDA; or "landmarks", the nearest of a few centres of the own class, which leaves the rank free.
    n_landmarks : int or None, default=None
        Number of centres for each class, by k-means; None: half the root of its size.
    reg : "auto" or float ≥ 0, default="auto"
        Weight of the ridge, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.
    random_state : int, RandomState instance or None, default=None
        Seed of k-means.

    Notes
    -----
    For labels and a regression that is solved at once: fast, with any ridge, and a start for other methods. Virtual
    points of classes are equally far from one another, whatever the classes mean; for classes of several clusters
    use points="landmarks".

    A fit costs O(n d² + d³).

    References
    ----------
    | M. Perrot, A. Habrard, "Regressive virtual metric learning", NIPS 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RVML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RVML().fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    """

    _sees = (Labels,)

    _: KW_ONLY
    points: Literal["class", "landmarks"] = "class"
    n_landmarks: Count | None = None
    reg: Reg = "auto"
    random_state: Seed = None

    @property
    def _pooled(self) -> bool | str:
        return True if self.points == "class" else "landmarks are centres of rows; points='class' can"

    def _fit(self, X: np.ndarray, side: Any) -> Solution | None:
        if self.points == "class":
            return super()._fit(X, side)
        frame = Frame.of(X.astype(np.float64))
        V = landmarks(frame.X, side.codes, self.n_landmarks, check_random_state(self.random_state))
        n = len(X)
        L = self._regress(frame.X.T @ frame.X / n, (V - V.mean(axis=0)).T @ frame.X / n)
        self._store(frame.lift(canonical(L, tol=1e-10)), X.dtype)
        return None

    def _fit_moments(self, moments: ClassMoments) -> None:
        n = moments.counts
        M = moments.offsets - n @ moments.offsets / n.sum()  # (c, d) class means about the mean
        L = self._regress(moments.covariance(), n[:, None] * M / n.sum())
        self._store(moments.lift(canonical(L, tol=1e-10)), moments.dtype)

    def _regress(self, T: np.ndarray, C: np.ndarray) -> np.ndarray:
        """L = C (T + reg s I)⁻¹ for the covariance T (d, d) and the cross-covariance C (·, d) of V and X."""
        Q = scatter_range(T)
        s = np.trace(T) / self.n_features_in_
        return sla.solve(Q.T @ T @ Q + float(self.reg) * s * np.eye(Q.shape[1]), Q.T @ C.T, assume_a="pos").T @ Q.T


def landmarks(X: np.ndarray, codes: np.ndarray, k: int | None, rng: np.random.RandomState) -> np.ndarray:
    """(n, d) the nearest of the k-means centres of its class, for each sample."""
    V, seed = np.empty_like(X), rng.randint(2**31 - 1)  # one for all classes, so that their order does not count
    for c in np.unique(codes):
        rows = np.flatnonzero(codes == c)
        size = max(1, int(np.sqrt(len(rows)) / 2)) if k is None else min(k, len(rows))
        size = min(size, len(np.unique(X[rows], axis=0)))
        found = KMeans(size, n_init=3, random_state=seed).fit(X[rows])
        V[rows] = found.cluster_centers_[found.labels_]
    return V
