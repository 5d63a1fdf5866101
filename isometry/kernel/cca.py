"""Canonical correlations in the feature spaces of two kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from isometry.base import MetricLearner
from isometry.kernelized import Kernelized
from isometry.parameters import KW_ONLY, Count, NotNegative, Positive, PositiveShare, Seed, parameters
from isometry.spectral import CCA, Euclidean
from isometry.spectral.fishmml import view_columns


@parameters
class KernelCCA(MetricLearner):
    """Kernel canonical correlation analysis: functions of two views that correlate most.

    max_{α, β} αᵀK₁K₂β  subject to  αᵀ(K₁² + κ₁K₁)α = n,  βᵀ(K₂² + κ₂K₂)β = n;  functions times ρ^power

    with K₁, K₂ the centred kernels of the views: `CCA` of their coordinates, with its ridge. Rows of X are samples
    whose two views are columns of X; y is not used. ``transform_view(X1, view=0)`` and ``transform_view(X2, view=1)``
    lie in one space.

    Parameters
    ----------
    n_components : number of pairs of functions; None: as many as the smaller feature space has dimensions
    views : two sets of columns, each a list of indices, of names (if X has them), or a slice; None: two halves of X
    kernel, gamma, degree, coef0, landmarks, random_state : of `Kernelized`, the same for both views; gamma=None is
        chosen for each view
    variance : the leading coordinates of each feature space with this share of its variance are kept
    power, reg : of `CCA`; without a ridge rich kernels correlate perfectly, whatever the data

    Attributes
    ----------
    correlations_ : ρ (p,), largest first
    views_ : the columns of both views
    kernel_maps_ : the coordinates of both feature spaces, fitted
    cca_ : `CCA` of the coordinates

    References
    ----------
    D. R. Hardoon, S. Szedmak, J. Shawe-Taylor, "Canonical correlation analysis: an overview with application to
    learning methods", Neural Computation 2004.
    """

    _sees = ()

    n_components: Count | None = None
    _: KW_ONLY
    views: Sequence[Any] | None = None
    kernel: str | Callable[..., Any] = "rbf"
    gamma: Positive | None = None
    degree: Count = 3
    coef0: float = 1.0
    landmarks: Count | None = None
    variance: PositiveShare = 0.95
    power: NotNegative = 1.0
    reg: NotNegative = 0.1
    random_state: Seed = None

    def _fit(self, X: np.ndarray, side: Any) -> None:
        views = view_columns(self.views, X.shape[1], getattr(self, "feature_names_in_", None))
        if len(views) != 2:
            raise ValueError(
                f"KernelCCA needs two views, and got {len(views)} of n_features={X.shape[1]}; give views=[columns, "
                "columns]"
            )
        for r, v in enumerate(views):
            if not np.ptp(X[:, v], axis=0).any():
                raise ValueError(f"view {r} is constant: it tells nothing of the other")
        self.views_ = views
        self.kernel_maps_ = [self._kernel_map().fit(X[:, v]) for v in views]
        Z = [np.asarray(phi.transform(X[:, v]), dtype=np.float64) for phi, v in zip(self.kernel_maps_, views)]  # (n, r)
        widths = [z.shape[1] for z in Z]
        p = None if self.n_components is None else min(self.n_components, *widths)
        columns = [range(widths[0]), range(widths[0], sum(widths))]
        self.cca_ = CCA(p, views=columns, power=self.power, reg=self.reg).fit(np.hstack(Z))
        self.correlations_ = self.cca_.correlations_

    def _kernel_map(self) -> Kernelized:
        return Kernelized(
            Euclidean(),
            self.kernel,
            gamma=self.gamma,
            degree=self.degree,
            coef0=self.coef0,
            landmarks=self.landmarks,
            center=True,
            variance=self.variance,
            random_state=self.random_state,
        )

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return np.hstack([self._mapped(X[:, v], r) for r, v in enumerate(self.views_)])

    def _mapped(self, X: np.ndarray, view: int) -> np.ndarray:
        Z = np.asarray(self.kernel_maps_[view].transform(X), dtype=np.float64)
        return self.cca_.transform_view(Z, view).astype(X.dtype, copy=False)

    def transform_view(self, X: Any, view: int = 0) -> np.ndarray:
        """Map samples of which only the columns of one view are known (n, d_view), 0 or 1, to the common space."""
        check_is_fitted(self)
        if view not in (0, 1):
            raise ValueError(f"view={view!r} must be 0 or 1")
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.views_[view]):
            raise ValueError(f"view {view} has {len(self.views_[view])} columns, but X has {X.shape[1]}")
        return self._mapped(X, view)
