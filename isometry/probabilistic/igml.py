"""Information geometry metric learning."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla

from isometry.base import check_components
from isometry.core.linalg import definite, fix_signs, scatter_range, symmetrize
from isometry.core.moments import ClassMoments, between_scatter
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, Positive, parameters
from isometry.strength import Reg
from isometry.supervision import Labels


@parameters
class IGML(MomentsMetric):
    """Information geometry metric learning: the metric whose kernel X W Xᵀ is nearest to the kernel of the labels.

    min_{W ≻ 0} tr(K_L⁻¹ X W Xᵀ) − log det W,  K_L = Y Yᵀ + λI, Y the one-hot labels

    W = (Xᵀ K_L⁻¹ X)⁻¹ = λ [S_w + Σ_k λn_k/(n_k + λ) μ_k μ_kᵀ]⁻¹, with S_w the scatter within classes and μ_k the class
    means of centred X: class moments suffice, no n × n matrix appears. The two kernels are compared as covariances
    of Gaussians.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading eigenvectors of W to keep; None: all.
    label_reg : float > 0, default=0.01
        Ridge λ of the kernel of the labels; towards 0 the scatter within classes is whitened, towards ∞ the total
        scatter.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on the matrix that is inverted, as a number (0: as published); "auto": the data choose it, see
        `AutomaticStrength`.

    Notes
    -----
    For labels, in closed form: between whitening what varies within classes (as `RCA` does) and whitening
    everything, by one setting. Kernels of labels take all classes for equally far apart; where classes have several
    clusters use `LFDA` or `LMNN`.

    A fit costs O(n d² + d³).

    K_W has rank d < n and no determinant; its pseudo-determinant gives the problem above. X must be centred, since the
    linear kernel, unlike distances, depends on the origin.

    References
    ----------
    | S. Wang, R. Jin, "An information geometry approach for distance metric learning", AISTATS 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import IGML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = IGML().fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels,)
    _needs = ()
    _pooled = True

    n_components: Count | None = None
    _: KW_ONLY
    label_reg: Positive = 1e-2
    reg: Reg = "auto"

    def _fit_moments(self, moments: ClassMoments) -> None:
        lam = self.label_reg
        n_k, within = moments.counts, moments.pooled()
        p = check_components(self.n_components, self.n_features_in_)
        mu = moments.offsets - n_k @ moments.offsets / n_k.sum()  # (c, d)
        M = within + mu.T @ (mu * (lam * n_k / (n_k + lam))[:, None])  # λ Xᵀ K_L⁻¹ X
        Q = scatter_range(within + between_scatter(moments))  # where the data have variance
        w, V = sla.eigh(definite(symmetrize(Q.T @ M @ Q), float(self.reg)))
        L = fix_signs(np.sqrt(lam / w)[:, None] * (Q @ V).T)  # the smallest eigenvalue of M weighs most
        self._store(moments.lift(L[:p]), moments.dtype)
