"""Geometric mean metric learning of subspaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.core.solve import Solution
from isometry.core.spd import geodesic, shifted_mean_factor
from isometry.geometric.matrices import MatrixMetric, one_sided_scatters
from isometry.parameters import KW_ONLY, Count, NotNegative, Share, parameters


@parameters
class GrassmannGMML(MatrixMetric):
    """Geometric mean metric learning of subspaces: each sample is a subspace, given by a basis (d, k).

    d²(i, j) = tr(W (P_i − P_j)²),  P_i = X_i (X_iᵀVX_i)⁻¹X_iᵀ,  W = (S + λI)⁻¹ ♯_t (D + λI),

    with S, D the means of (P_i − P_j)² over similar and dissimilar pairs. V = I makes P_i the projector, and W = I then
    the projection distance; ``max_iter`` > 1 repeats with V = W until they agree.

    Parameters
    ----------
    t : float in [0, 1], default=0.5
        Position on the geodesic: 0 is the inverse of the similar scatter, 1 the dissimilar scatter.
    reg : float ≥ 0, default=0.01
        Weight λ of the identity, relative to tr(S)/d.
    max_iter : int, default=1
        Number of passes: 1 is the closed form; more go towards the fixed point V = W.
    tol : float ≥ 0, default=1e-5
        Relative change of W at which the passes end.

    Notes
    -----
    For samples that are subspaces: sets of pictures of one face, videos, sets of vectors. Vectors are for `GMML`,
    covariance matrices for `SPDGMML`.

    A pass costs O(n d³) for n bases (d, k), k ≤ d.

    X is an array (n, d, k) of bases, which need not be orthonormal; `descriptors.SubspaceDescriptor` makes one of raw
    data. V is left in ``inner_``. The survey leaves it free ("any matrix"); it is the factor of W, so that the closed
    form is one step of a fixed point iteration. That point does not minimise the objective as a function of W.

    References
    ----------
    | P. Zhu, H. Cheng, Q. Hu, Q. Wang, C. Zhang, "Towards generalized and efficient metric learning on Riemannian
      manifold", IJCAI 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import GrassmannGMML
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 5, 2))
    >>> X[:10, 0] += 3
    >>> metric = GrassmannGMML().fit(X, [0] * 10 + [1] * 10)
    >>> metric.mahalanobis_.shape
    (5, 5)
    """

    _columns = "d, k"

    _: KW_ONLY
    t: Share = 0.5
    reg: NotNegative = 1e-2
    max_iter: Count = 1
    tol: NotNegative = 1e-5

    def _image(self, X: np.ndarray) -> np.ndarray:
        if X.shape[2] > X.shape[1]:
            raise ValueError(f"GrassmannGMML takes bases (n_samples, d, k) with k ≤ d, got shape {X.shape}")
        Q, R = np.linalg.qr(X)  # (n, d, k), (n, k, k)
        size = np.abs(np.diagonal(R, axis1=1, axis2=2))
        flat = size.min(axis=1) <= 1e2 * np.finfo(X.dtype).eps * size.max(axis=1)
        if flat.any():
            raise ValueError(f"{flat.sum()} bases do not have full rank (first at row {int(np.argmax(flat))})")
        return oblique_projectors(Q.astype(np.float64), self.inner_)

    def _fit(self, X: np.ndarray, side: Any) -> Solution:
        V, history = np.eye(X.shape[1]), []
        for _ in range(self.max_iter):
            self.inner_ = V
            L = shifted_mean_factor(*one_sided_scatters(self._image(X), side), self.t, self.reg)
            W = L.T @ L
            history.append(float(np.linalg.norm(W - V) / np.linalg.norm(W)))
            if history[-1] <= self.tol:
                break
            V = geodesic(V, W) if len(history) > 1 and history[-1] > history[-2] else W
        self.components_, met = L, history[-1] <= self.tol
        reason = "relative change below tol" if met else f"max_iter={self.max_iter} reached"
        return Solution(L, history[-1], len(history), reason, met or self.max_iter == 1, history)


def oblique_projectors(X: np.ndarray, V: np.ndarray) -> np.ndarray:
    """X_i (X_iᵀVX_i)⁻¹X_iᵀ for a stack of bases (n, d, k): depends on the subspace only, not on its basis."""
    Xt = X.swapaxes(1, 2)
    return X @ np.linalg.solve(Xt @ V @ X, Xt)  # (n, d, d)
