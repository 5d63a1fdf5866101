"""Metrics between two views of the same samples: canonical correlations and rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from isometry.base import LinearMetric, check_components
from isometry.core.linalg import RANK_TOL, column_range, fix_signs, ridge, svd, symmetrize
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, NotNegative, parameters
from isometry.spectral.fishmml import view_columns

MIN_REG = 1e-2  # of a covariance from no more samples than features


class CrossView(LinearMetric):
    """Abstract: maps A and B of two sets of columns into one space, where d(x₁, x₂) = |A(x₁ − m₁) − B(x₂ − m₂)|.

    ``transform`` puts both mapped views side by side; ``transform_view`` maps samples of which one view is known.
    """

    _sees = ()

    views: Any

    def _fit(self, X: np.ndarray, side: Any) -> None:
        n, d = X.shape
        views = view_columns(self.views, d, getattr(self, "feature_names_in_", None))
        if len(views) != 2:
            raise ValueError(
                f"{type(self).__name__} needs two views, and got {len(views)} of n_features={d}; give views=[columns, "
                "columns]"
            )
        p = check_components(self.n_components, min(map(len, views)))
        mean = X.mean(axis=0, dtype=np.float64)
        Z = X - mean
        X1, X2 = Z[:, views[0]], Z[:, views[1]]
        C = [[U.T @ V / n for V in (X1, X2)] for U in (X1, X2)]
        for r in (0, 1):
            if np.trace(C[r][r]) <= 0:
                raise ValueError(f"view {r} is constant: it tells nothing of the other")
        A, B = self._maps(C[0][0], C[0][1], C[1][1], n)
        both = fix_signs(np.hstack([A, B])[:p])  # a direction turns in both views, or in none
        widths = [len(v) for v in views]
        self.views_, self.mean_ = views, mean
        L = np.zeros((2 * len(both), d))
        L[: len(both), views[0]] = both[:, : widths[0]]
        L[len(both) :, views[1]] = both[:, widths[0] :]
        self._store(L, X.dtype)

    def _maps(self, C1: np.ndarray, C12: np.ndarray, C2: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """A (p, d₁) and B (p, d₂) from the covariances of the views and between them, best direction first."""
        raise NotImplementedError

    def transform_view(self, X: Any, view: int = 0) -> np.ndarray:
        """Map samples of which only the columns of one view are known to the common space.

        Parameters
        ----------
        X : array-like of shape (n, d_view)
            Columns of one view.
        view : {0, 1}, default=0
            Which view.

        Returns
        -------
        ndarray of shape (n, p)
            The mapped samples.
        """
        check_is_fitted(self)
        if view not in (0, 1):
            raise ValueError(f"view={view!r} must be 0 or 1")
        X, columns = check_array(X, dtype=(np.float64, np.float32)), self.views_[view]
        if X.shape[1] != len(columns):
            raise ValueError(f"view {view} has {len(columns)} columns, but X has {X.shape[1]}")
        p = len(self.components_) // 2
        L = self.components_[view * p : (view + 1) * p, columns]
        return np.asarray((X - self.mean_[columns].astype(X.dtype)) @ L.T.astype(X.dtype, copy=False))


@parameters
class CCA(CrossView):
    """Canonical correlation analysis: directions of two views that correlate most, weighted by how much.

    max_{A, B} tr(A C₁₂ Bᵀ)  subject to  A C₁ Aᵀ = I,  B C₂ Bᵀ = I;  rows times ρ^power

    with ρ the correlations. Rows of X are samples whose two views are columns of X; y is not used. Learned is a metric
    between the views: ``transform_view(X1, view=0)`` and ``transform_view(X2, view=1)`` lie in one space.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of pairs of directions; None: as many as the narrower view has.
    views : sequence or None, default=None
        Two sets of columns, each a list of indices, of names (if X has them), or a slice; None: two halves of X.
    power : float ≥ 0, default=1.0
        Power of the correlations as weights: 0 counts all directions alike; 1 lets those count that the other view
        knows.
    reg : float ≥ 0, default=0.01
        Relative ridge on the covariances of the views; at least 0.01, with a warning, if a view has as many columns as
        there are samples.

    Attributes
    ----------
    correlations_ : ndarray of shape (p,)
        Correlations ρ, largest first.
    views_ : list
        The columns of both views.
    mean_ : ndarray of shape (d,)
        Mean of X.

    Notes
    -----
    For two descriptions of the same objects, such as pictures and their captions, that are to be searched by one
    another. It looks at no labels: to tell classes apart use `FishMML`, which has views and labels. For relations
    that are not linear there is `KernelCCA`.

    A fit costs O(n d² + d³).

    References
    ----------
    | H. Hotelling, "Relations between two sets of variates", Biometrika 1936.
    | Y. Gong, Q. Ke, M. Isard, S. Lazebnik, "A multi-view embedding space for modeling internet images, tags, and their
      semantics", International Journal of Computer Vision 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import CCA
    >>> rng = np.random.default_rng(0)
    >>> common = rng.normal(size=(200, 1))
    >>> X = np.hstack([common + 0.1 * rng.normal(size=(200, 3)), common + 0.1 * rng.normal(size=(200, 2))])
    >>> metric = CCA(1, views=[[0, 1, 2], [3, 4]]).fit(X)
    >>> bool(metric.correlations_[0] > 0.95)
    True
    >>> metric.transform_view(X[:5, 3:], view=1).shape
    (5, 1)
    """

    n_components: int | None = None
    _: KW_ONLY
    views: Sequence[Any] | None = None
    power: NotNegative = 1.0
    reg: NotNegative = 1e-2

    def _maps(self, C1: np.ndarray, C12: np.ndarray, C2: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        reg = self.reg
        if max(len(C1), len(C2)) >= n and reg < MIN_REG:
            warn_user(f"a view has as many columns as there are samples: correlations mean nothing below reg={MIN_REG}")
            reg = MIN_REG
        (R1, Q1), (R2, Q2) = _root(C1, reg), _root(C2, reg)
        M = sla.solve_triangular(R1, Q1.T @ C12 @ Q2, lower=True)
        U, rho, Vt = svd(sla.solve_triangular(R2, M.T, lower=True).T)
        self.correlations_ = rho[: self.n_components]
        weight = np.maximum(rho, 0)[:, None] ** self.power
        A = sla.solve_triangular(R1, U, lower=True, trans="T")  # (r₁, p) with AᵀC₁A = I
        B = sla.solve_triangular(R2, Vt.T, lower=True, trans="T")
        return weight * (Q1 @ A).T, weight * (Q2 @ B).T


@parameters
class Procrustes(CrossView):
    """Orthogonal Procrustes analysis: rotations of two views that lay one upon the other.

    min_{A, B} Σ_i |A x_i − B x'_i|²  over matrices of orthonormal rows

    of centred views x, x', A = Uᵀ and B = Vᵀ from the singular value decomposition Σ_i x_i x'_iᵀ = U S Vᵀ. Distances
    within a view stay as they are (for p = d); only the views are brought together. y is not used.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of pairs of directions, those of largest covariance; None: as many as the narrower view has.
    views : sequence or None, default=None
        Two sets of columns, each a list of indices, of names (if X has them), or a slice; None: two halves of X.
    scale : bool, default=True
        Whether to bring both views to total variance 1 first.

    Attributes
    ----------
    views_ : list
        The columns of both views.
    mean_ : ndarray of shape (d,)
        Mean of X.

    Notes
    -----
    For two spaces that should be one but for a rotation, such as embeddings of two models, or of two languages.
    Where views also differ in what they stretch, `CCA` finds what they have in common.

    A fit costs O(n d² + d³).

    References
    ----------
    | P. H. Schönemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 1966.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Procrustes
    >>> rng = np.random.default_rng(0)
    >>> A = rng.normal(size=(50, 3))
    >>> turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    >>> metric = Procrustes().fit(np.hstack([A, A @ turn]))
    >>> bool(np.allclose(metric.transform_view(A, view=0), metric.transform_view(A @ turn, view=1)))
    True
    """

    n_components: int | None = None
    _: KW_ONLY
    views: Sequence[Any] | None = None
    scale: bool = True

    def _maps(self, C1: np.ndarray, C12: np.ndarray, C2: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        U, _, Vt = svd(C12)
        sizes = [np.sqrt(np.trace(C)) if self.scale else 1.0 for C in (C1, C2)]
        return U.T / sizes[0], Vt / sizes[1]


def _root(C: np.ndarray, reg: float) -> tuple[np.ndarray, np.ndarray]:
    """R, lower triangular, with RRᵀ = QᵀCQ + ridge, and Q (d, r), the directions in which there is variance."""
    Q = column_range(C, RANK_TOL)
    return sla.cholesky(ridge(symmetrize(Q.T @ C @ Q), reg), lower=True), Q
