"""The kernel version of any linear learner, and what it shares with methods that exist in feature space only."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags, check_random_state

from isometry.base import LinearMetric, MetaLearner, MetricLearner
from isometry.core.kernels import KernelMap, fit_kernel_map
from isometry.parameters import KW_ONLY, Count, Positive, PositiveShare, Seed, parameters

__all__ = ["KernelMetric", "Kernelized", "kernel_coordinates"]


class KernelMetric(MetricLearner):
    """Abstract: a metric in the feature space of a kernel, transform(x) = dual_coef_ (k(landmarks, x) − kernel_means_).

    Kernels whose distances do not depend on the origin ("rbf", "laplacian", "linear") are taken about the mean of the
    samples, ``origin_``, which changes rounding errors alone. For all others, such as "poly" and "cosine", another
    origin would be another kernel: they see X as it is, and warn where it is so far from 0 that digits are lost.
    Subclasses store ``kernel``, ``gamma``, ``degree``, ``coef0``, ``landmarks`` and ``random_state``, and ``center`` if
    it can be chosen.
    """

    _unlabelled = "minus one"  # every row spans the feature space, labelled or not
    center: bool = True
    dual_coef_: Any
    origin_: np.ndarray | None = None  # absent from model files of version 0.1, and from kernels that see X as it is

    def _store(self, phi: KernelMap, L: np.ndarray | None) -> None:
        """Store the coordinates, and a linear map L (p, r) of them folded into coefficients of the kernel."""
        self.landmarks_, self.origin_, self.kernel_means_ = phi.landmarks, phi.origin, phi.means
        self.basis_, self.spectrum_, self.kernel_params_ = phi.basis, phi.spectrum, phi.params
        self.dual_coef_ = None if L is None else L.astype(np.float64) @ phi.basis.T  # (p, m)

    @property
    def _phi(self) -> KernelMap:
        basis, spectrum = getattr(self, "basis_", None), getattr(self, "spectrum_", None)  # a file may lack them
        return KernelMap(
            self.kernel,
            self.kernel_params_,
            self.landmarks_,
            basis,
            spectrum,
            self.kernel_means_,
            origin=self.origin_,
        )

    def _only_of_fit(self) -> tuple[str, ...]:
        """Fitted attributes that `transform` does not need, and a file does not hold."""
        return () if getattr(self, "dual_coef_", None) is None else ("basis_", "spectrum_", "learner_")

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return self._phi.project(X, self.dual_coef_.T).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.dual_coef_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags


def kernel_coordinates(learner: Any, X: np.ndarray, *, variance: float, max_rank: float | None) -> KernelMap:
    """Coordinates of the feature space that the rows of X span, as many as the kernel's spectrum suggests."""
    named = isinstance(learner.kernel, str)
    return fit_kernel_map(
        X,
        learner.kernel,
        {name: getattr(learner, name) for name in ("gamma", "degree", "coef0")} if named else {},
        landmarks=learner.landmarks,
        center=learner.center,
        variance=variance,
        max_rank=max_rank,
        rng=check_random_state(learner.random_state),
    )


@parameters
class Kernelized(MetaLearner, KernelMetric):
    """Run a learner in the feature space of a kernel: φ(x) = K^{-1/2} k(X, x), then the linear method.

    Exact for every method whose solution lies in the span of the training images. With ``kernel="linear"`` it is the
    device for d ≫ n; with ``landmarks=m`` it is the Nyström approximation, O(n m²). Samples without a label help to
    span the feature space.

    Parameters
    ----------
    learner : any metric learner. Its ``n_components`` is lowered to the rank of the kernel, which nobody knows before
    kernel : a name scikit-learn knows ("rbf", "linear", "poly", "laplacian", "cosine", …), a function k(x, y) of two
        samples, or "precomputed": X is then k(samples, training samples)
    gamma, degree, coef0 : kernel parameters; gamma=None is 1/(d · mean feature variance)
    landmarks : number of samples, drawn at random, that span the feature space; None: all
    center : centre the kernel in feature space: its coordinates then span the differences of images and nothing else,
        as they always do if it is "linear"
    variance : keep the leading components with this share of the kernel's trace; centre the kernel for this
    max_rank : keep at most this many components, or this share of the landmarks if below 1

    Attributes
    ----------
    learner_ : the learner, fitted to the coordinates φ(X); like basis_ and spectrum_ not in a saved file if linear
    dual_coef_ : (p, m) Tᵀ with transform(x) = Tᵀ(k(landmarks, x) − kernel_means_); None if the learner is not linear
    basis_, spectrum_ : (m, r), (r,) V diag(l)^{-1/2} and l: eigenvectors and eigenvalues of the landmarks' kernel
    landmarks_, kernel_means_ : (m, d), (m,); None for a precomputed kernel, or one that is not centred
    origin_ : (d,) the mean of the samples, which is subtracted first if the kernel is "rbf", "laplacian" or "linear":
        their distances do not depend on it, and fewer digits are lost. None for all other kernels, such as "poly" or
        "cosine", to which another origin would be another kernel: subtract the mean yourself if X lies far from 0
    """

    learner: Any
    kernel: str | Callable[..., Any] = "rbf"
    _: KW_ONLY
    gamma: Positive | None = None
    degree: Count = 3
    coef0: float = 1.0
    landmarks: Count | None = None
    center: bool = False
    variance: PositiveShare = 1.0
    max_rank: Positive | None = None
    random_state: Seed = None

    _unlabelled = "minus one"  # every row spans the feature space, labelled or not

    def _fit(self, X: np.ndarray, side: Any) -> None:
        phi, learner = kernel_coordinates(self, X, variance=self.variance, max_rank=self.max_rank), clone(self.learner)
        r = phi.basis.shape[1]
        if isinstance(p := getattr(learner, "n_components", None), Integral) and p > r:
            learner.set_params(n_components=r)
        if "spectrum" in learner.get_params(deep=False):  # a penalty on the coefficients of the kernel
            learner.set_params(spectrum=phi.spectrum)
        self.learner_ = learner.fit(phi(X).astype(X.dtype, copy=False), side)
        self._store(phi, learner.components_ if isinstance(learner, LinearMetric) else None)
        self._take_report(learner)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        if self.dual_coef_ is None:
            return self.learner_._transform(self._phi(X).astype(X.dtype, copy=False))
        return super()._transform(X)

    @property
    def _n_features_out(self) -> int:
        return self.learner_._n_features_out if self.dual_coef_ is None else len(self.dual_coef_)
