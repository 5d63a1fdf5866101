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
    n_components : int or None, default=None
        Number of pairs of functions; None: as many as the smaller feature space has dimensions.
    views : sequence or None, default=None
        Two sets of columns, each a list of indices, of names (if X has them), or a slice; None: two halves of X.
    kernel : str or callable, default="rbf"
        Kernel of both views: a name that scikit-learn knows, such as "rbf", "linear" or "poly", or a function k(x, y)
        of two samples.
    gamma : float > 0 or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance), for each view.
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and of the sigmoid kernel.
    landmarks : int or None, default=None
        Number of samples, drawn at random, that span the feature space; None: all.
    variance : float in (0, 1], default=0.95
        Share of the variance of each feature space that its leading coordinates keep.
    power : float ≥ 0, default=1.0
        Power of the correlations as weights: 0 counts all functions alike; 1 lets those count that the other view
        knows.
    reg : float ≥ 0, default=0.1
        Relative ridge on the covariances of the views; without one rich kernels correlate perfectly, whatever the data.
    random_state : int, RandomState instance or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    correlations_ : ndarray of shape (p,)
        Correlations ρ, largest first.
    views_ : list
        The columns of both views.
    kernel_maps_ : list
        The coordinates of both feature spaces, fitted.
    cca_ : CCA
        `CCA` of the coordinates.

    Notes
    -----
    For two descriptions of the same objects whose relation is not linear. It looks at no labels. Rich kernels
    correlate by chance: keep ``reg``, and compare with `CCA` on rows held out.

    A fit costs O(n³), with m landmarks O(n m²).

    References
    ----------
    | D. R. Hardoon, S. Szedmak, J. Shawe-Taylor, "Canonical correlation analysis: an overview with application to
      learning methods", Neural Computation 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import KernelCCA
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, size=80)
    >>> X = np.column_stack([np.cos(angle), np.sin(angle), np.cos(3 * angle)])
    >>> metric = KernelCCA(1, views=[[0, 1], [2]]).fit(X)
    >>> bool(metric.correlations_[0] > 0.9)
    False
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
        X = check_array(X, dtype=(np.float64, np.float32))
        if X.shape[1] != len(self.views_[view]):
            raise ValueError(f"view {view} has {len(self.views_[view])} columns, but X has {X.shape[1]}")
        return self._mapped(X, view)
