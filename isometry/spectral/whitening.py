"""Whitening of the sample, in full or in part."""

from __future__ import annotations

from numbers import Integral
from typing import Literal

import numpy as np

from isometry.base import check_components
from isometry.core.linalg import column_range, definite, fix_signs, symmetrize, top_eigenvectors
from isometry.core.moments import ClassMoments
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Iterations, NotNegative, parameters
from isometry.strength import Reg
from isometry.supervision import Labels


@parameters
class Whitening(MomentsMetric):
    """Whitening of the sample: variances made equal or more nearly so, and the loudest directions removed if asked.

    L = R Λ^{−power/2} Vᵀ,  Σ + reg tr(Σ)/d I = V Λ Vᵀ

    Σ is the covariance of all samples or, with ``within``, of the samples about their class means. Directions in which
    no two samples differ are dropped, and d counts the others.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of directions to keep, those of largest variance after ``remove``; a share below 1 keeps as many as carry
        this share of the variance; None: all.
    power : float ≥ 0, default=0.5
        How far variances are evened out: 0 only rotates (PCA), 1 brings every direction to variance 1, 0.5 stops
        half-way.
    within : bool, default=False
        Whether to whiten what varies within classes (needs y): within-class covariance normalisation.
    remove : int, default=0
        Number of leading directions to drop: all-but-the-top or, with ``within``, nuisance attribute projection.
    rotate : {"pca", "zca"}, default="pca"
        "pca": the features of the output are the directions V (R = I); "zca": they are as near as possible to the
        features of the input (R = V). Distances are the same.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on Σ, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.

    Notes
    -----
    For embeddings: variances are evened out, and with ``remove`` the loudest common directions go, which often
    spoil cosines. It needs no labels; with them and ``within`` it is what speaker recognition uses. Full whitening
    (power=1) enlarges noise.

    A fit costs O(n d² + d³).

    References
    ----------
    | A. Kessy, A. Lewin, K. Strimmer, "Optimal whitening and decorrelation", The American Statistician 2018.
    | J. Mu, P. Viswanath, "All-but-the-top: simple and effective postprocessing for word representations", ICLR 2018.
    | A. Solomonoff, W. M. Campbell, I. Boardman, "Advances in channel compensation for SVM speaker recognition", ICASSP
      2005.
    | A. O. Hatch, S. Kajarekar, A. Stolcke, "Within-class covariance normalization for SVM-based speaker recognition",
      Interspeech 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import Whitening
    >>> X, y = load_iris(return_X_y=True)
    >>> import numpy as np
    >>> metric = Whitening(power=1, reg=0.0).fit(X)
    >>> bool(np.allclose(np.cov(metric.transform(X).T), np.eye(4)))
    True
    """

    _sees = (Labels, None)
    _pooled = True

    n_components: int | float | None = None
    _: KW_ONLY
    power: NotNegative = 0.5
    within: bool = False
    remove: Iterations = 0
    rotate: Literal["pca", "zca"] = "pca"
    reg: Reg = "auto"

    @property
    def _needs(self) -> tuple[str, ...]:
        return ("similar",) if self.within else ()

    def _fit_moments(self, moments: ClassMoments) -> None:
        n, c = moments.counts.sum(), moments.n_classes
        W = moments.pooled()
        T = moments.covariance(W, ddof=1)
        Q = column_range(T)  # (d, r)
        if Q.shape[1] == 0:
            raise ValueError("all samples are equal: the covariance is zero and no direction has variance")
        S = symmetrize(Q.T @ (W / (n - c) if self.within else T) @ Q)
        lam, V = top_eigenvectors(definite(S, float(self.reg), beside=Q.T @ T @ Q) if self.power > 0 else S)
        keep = slice(self.remove, self.remove + self._kept(lam[self.remove :]))
        U = fix_signs((Q @ V[:, keep]).T)  # (p, d) orthonormal
        L = moments.lift(np.maximum(lam[keep], 0)[:, None] ** (-self.power / 2) * U)
        if self.rotate == "zca":
            L = (L / np.linalg.norm(L, axis=1, keepdims=True)).T @ L  # (d, d), the same distances
        self._store(L, moments.dtype)

    def _kept(self, lam: np.ndarray) -> int:
        """How many of the directions with these variances are kept."""
        if len(lam) == 0:
            raise ValueError(f"remove={self.remove} leaves no direction with variance; lower it")
        p = self.n_components
        if p is None or isinstance(p, Integral):
            return min(check_components(p, self.n_features_in_) or len(lam), len(lam))
        if not 0 < p < 1:
            raise ValueError(f"n_components={p} must be a whole number, or a share of the variance between 0 and 1")
        share = np.cumsum(lam) / lam.sum()
        return min(int(np.searchsorted(share, p)) + 1, len(lam))
