"""The kernel version of any linear learner."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.kernels import KernelMap, fit_kernel_map

__all__ = ["Kernelized"]


class Kernelized(MetricLearner):
    """Run a learner in the feature space of a kernel: φ(x) = K^{-1/2} k(X, x), then the linear method.

    Exact for every method whose solution lies in the span of the training images. With ``kernel="linear"`` it is the
    device for d ≫ n; with ``landmarks=m`` it is the Nyström approximation, O(n m²).

    Parameters
    ----------
    learner : any linear metric learner
    kernel : a name scikit-learn knows ("rbf", "linear", "poly", "laplacian", "cosine", …), a function k(x, y), or
        "precomputed": X is then the kernel matrix
    gamma, degree, coef0 : kernel parameters; gamma=None is 1/(d · mean feature variance)
    landmarks : number of samples that span the feature space; None: all
    center : centre the kernel in feature space (distances do not depend on it)
    variance : keep the leading components with this share of the kernel's trace
    max_rank : keep at most this many components

    Attributes
    ----------
    learner_ : the fitted linear learner
    dual_coef_ : (p, m) coefficients T with transform(x) = Tᵀ k(landmarks, x), when the learner is linear
    """

    def __init__(
        self,
        learner: Any,
        kernel: Any = "rbf",
        *,
        gamma=None,
        degree=3,
        coef0=1.0,
        landmarks=None,
        center=False,
        variance=1.0,
        max_rank=None,
        random_state=None,
    ):
        self.learner = learner
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.landmarks = landmarks
        self.center = center
        self.variance = variance
        self.max_rank = max_rank
        self.random_state = random_state

    def _supervise(self, y, n):
        return self.learner._supervise(y, n)

    @property
    def _uses_unlabelled(self):  # type: ignore[override]
        return self.learner._uses_unlabelled

    def _fit(self, X, side):
        params = (
            {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0} if isinstance(self.kernel, str) else {}
        )
        phi = fit_kernel_map(
            X,
            self.kernel,
            params,
            landmarks=self.landmarks,
            center=self.center,
            variance=self.variance,
            max_rank=self.max_rank,
            rng=check_random_state(self.random_state),
        )
        self.learner_ = clone(self.learner).fit(phi(X).astype(X.dtype), side)
        self.landmarks_, self.kernel_means_ = phi.landmarks, phi.means
        self.basis_, self.spectrum_, self.kernel_params_ = phi.basis, phi.spectrum, phi.params
        self.dual_coef_ = None
        if hasattr(self.learner_, "components_"):
            self.dual_coef_ = self.learner_.components_.astype(np.float64) @ phi.basis.T  # (p, m)

    @property
    def _phi(self) -> KernelMap:
        return KernelMap(
            self.kernel, self.kernel_params_, self.landmarks_, self.basis_, self.spectrum_, self.kernel_means_
        )

    def _transform(self, X):
        if self.dual_coef_ is None:
            return self.learner_.transform(self._phi(X).astype(X.dtype))
        return (self._phi.kernel_rows(X) @ self.dual_coef_.T).astype(X.dtype)

    @property
    def _n_features_out(self) -> int:
        return self.learner_._n_features_out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.learner.__sklearn_tags__().target_tags.required
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags
