"""Geometric mean metric learning of SPD matrices."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from isometry.core.priors import prior_matrix
from isometry.core.spd import shifted_mean_factor, spd_log
from isometry.geometric.matrices import MatrixMetric, one_sided_scatters
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, NotNegative, Positive, Share, parameters


@parameters
class SPDGMML(MatrixMetric):
    """Geometric mean metric learning of SPD matrices: samples such as covariances, compared by their logarithms.

    d²(i, j) = tr(W (T_i − T_j)²),  T_i = log X_i,  W = (S + λW₀⁻¹)⁻¹ ♯_t (D + λW₀),

    with S, D the means of (T_i − T_j)² over similar and dissimilar pairs. W = I is the log-Euclidean distance.

    Parameters
    ----------
    t : float in [0, 1], default=0.5
        Position on the geodesic: 0 is the inverse of the similar scatter, 1 the dissimilar scatter.
    reg : float ≥ 0, default=0.01
        Weight λ of the pull towards the prior, relative to tr(S)/d.
    prior : {"identity", "covariance"} or ndarray, default="identity"
        Prior metric W₀: "identity", "covariance" (the inverse of that of the rows of T) or a positive definite array.
    eps : float > 0, default=1e-10
        Floor of the eigenvalues of a sample, relative to its largest.
    form : {"sided", "flat"}, default="sided"
        "sided", W (d, d) acts on one side of T; or "flat": GMML on the d(d + 1)/2 distinct entries of T, the
        off-diagonal ones times √2.

    Notes
    -----
    For samples that are covariance matrices or other symmetric positive definite ones, as in brain–computer
    interfaces and texture. Vectors are for `GMML`, subspaces for `GrassmannGMML`.

    A fit costs O(n d³), for the logarithms and for the scatters over all pairs.

    X is an array (n, d, d); `descriptors.CovarianceDescriptor` makes one of raw channels. The survey calls d² a
    distance.

    References
    ----------
    | P. Zhu, H. Cheng, Q. Hu, Q. Wang, C. Zhang, "Towards generalized and efficient metric learning on Riemannian
      manifold", IJCAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import SPDGMML
    >>> A = np.random.default_rng(0).normal(size=(20, 3, 6))
    >>> A[:10, 0] *= 3
    >>> metric = SPDGMML().fit(A @ A.swapaxes(1, 2), [0] * 10 + [1] * 10)
    >>> metric.mahalanobis_.shape
    (3, 3)
    """

    _: KW_ONLY
    t: Share = 0.5
    reg: NotNegative = 1e-2
    prior: str | np.ndarray = "identity"
    eps: Positive = 1e-10
    form: Literal["sided", "flat"] = "sided"

    def _image(self, X: np.ndarray) -> np.ndarray:
        if X.shape[1] != X.shape[2]:
            raise ValueError(f"SPDGMML takes square matrices (n_samples, d, d), got shape {X.shape}")
        skew = np.abs(X - X.swapaxes(1, 2)).max(axis=(1, 2)) > 1e-4 * np.abs(X).max(axis=(1, 2))
        if skew.any():
            raise ValueError(f"{skew.sum()} matrices are not symmetric (first at row {int(np.argmax(skew))})")
        T = spd_log(X.astype(np.float64), self.eps)  # (n, d, d)
        if self.form == "sided":
            return T
        i, j = np.triu_indices(T.shape[1])
        return T[:, i, j] * np.where(i == j, 1.0, np.sqrt(2.0))  # (n, d(d+1)/2)

    def _fit(self, X: np.ndarray, side: Any) -> None:
        T = self._image(X)
        S, D = (mean_pair_scatters if self.form == "flat" else one_sided_scatters)(T, side)
        W0 = prior_matrix(self.prior, T.reshape(-1, T.shape[-1]))
        self.components_ = shifted_mean_factor(S, D, self.t, self.reg, W0)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        if self.form == "sided":
            return super()._transform(X)
        return (self._image(X) @ self.components_.T).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self):
        return len(self.components_) if self.form == "flat" else super()._n_features_out
