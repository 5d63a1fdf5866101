"""The kernel version of any linear learner, and what it shares with methods that exist in feature space only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags, check_random_state

from isometry.base import LinearMetric, MetaLearner, MetricLearner
from isometry.core.kernels import KernelMap, fit_kernel_map
from isometry.parameters import KW_ONLY, Count, Positive, PositiveShare, Seed, parameters
from isometry.strength import HoldsOut
from isometry.supervision import Labels

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


def kernel_coordinates(
    learner: Any, X: np.ndarray, *, variance: float | str, max_rank: float | None, beyond: bool = False
) -> KernelMap:
    """Coordinates of the feature space that the rows of X span, as many as the kernel's spectrum suggests.

    With ``beyond`` the others stand behind them.
    """
    named = isinstance(learner.kernel, str)
    return fit_kernel_map(
        X,
        learner.kernel,
        {name: getattr(learner, name) for name in ("gamma", "degree", "coef0")} if named else {},
        landmarks=learner.landmarks,
        center=learner.center,
        variance=variance,
        max_rank=max_rank,
        beyond=beyond,
        rng=check_random_state(learner.random_state),
    )


@dataclass(frozen=True)
class HeldOut:
    """Kernel coordinates of rows that were held out, as if they had not been there when the coordinates were made.

    A row takes part in the span of the images of all rows, a new one does not: what it has beyond that span, its map
    does not see. So the image of a row held out is brought to the span of the images of the others, by the kernel map
    of these, before its coordinates are taken. That changes none of its distances to the others by more than a constant
    of its own, so that Euclidean distance in the feature space finds it the same neighbours as without.
    """

    phi: KernelMap
    X: np.ndarray  # (n, d)
    Z: np.ndarray  # (n, r) = phi(X)
    center: bool
    kept: np.ndarray  # numbers of the rows that the learner sees: not those without a label, perhaps

    def __len__(self) -> int:
        return len(self.kept)

    def __call__(self, learn: np.ndarray, held: np.ndarray) -> np.ndarray:
        named = self.phi.kernel if isinstance(self.phi.kernel, str) else ""
        affine = self.center or named == "linear"  # which is taken about the mean in any case
        assert self.phi.rows is not None
        unseen = np.setdiff1d(np.arange(len(self.X)), self.kept)  # no trial holds them out
        marks = np.intersect1d(self.phi.rows, np.append(self.kept[learn], unseen))
        rows = self.kept[held]
        if len(marks) < 2:
            return self.Z[rows]
        X, A = self.X[rows], self.X[marks]
        if named == "precomputed":
            X, A = X[:, marks], A[:, marks]
        inner = fit_kernel_map(A, self.phi.kernel, self.phi.params, center=affine)
        Z = self.Z[marks]
        centre = Z.mean(axis=0) if affine else np.zeros(Z.shape[1])
        back = inner(A).T @ (Z - centre) / inner.spectrum[:, None]  # (q, r): inner(A)ᵀ inner(A) is the spectrum
        return np.asarray(centre + inner(X) @ back)


def _kept(learner: MetricLearner, side: Any, n: int) -> np.ndarray:
    """Numbers of the rows that the learner does not drop."""
    if isinstance(side, Labels) and learner._unlabelled == "dropped":
        return np.flatnonzero(side.labelled)
    return np.arange(n)


@parameters
class Kernelized(MetaLearner, KernelMetric):
    """Run a learner in the feature space of a kernel: φ(x) = K^{-1/2} k(X, x), then the linear method.

    Exact for every method whose solution lies in the span of the training images. With ``kernel="linear"`` it is the
    device for d ≫ n; with ``landmarks=m`` it is the Nyström approximation, O(n m²). Samples without a label help to
    span the feature space.

    Parameters
    ----------
    learner : metric learner
        Any metric learner. Its ``n_components`` is lowered to the rank of the kernel, which nobody knows before.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows ("rbf", "linear", "poly", "laplacian", "cosine", …), a function k(x, y)
        of two samples, or "precomputed": X then holds k(samples, training samples).
    gamma : float > 0 or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and of the sigmoid kernel.
    landmarks : int or None, default=None
        Number of samples, drawn at random, that span the feature space; None: all.
    center : bool, default=False
        Whether to centre the kernel in feature space: its coordinates then span the differences of images and nothing
        else, as they always do if it is "linear".
    variance : float in (0, 1] or "auto", default=1.0
        Share of the kernel's trace that the leading components keep; centre the kernel for this. "auto": 0.95, if
        four fifths of the components carry as much, else all are kept, since the last ones of a flat spectrum tell near
        samples apart. A learner that the data draw back to Euclidean distance learns from the leading components, too,
        but that distance is the one in all of them, unless it was asked for few dimensions.
    max_rank : float > 0 or None, default=None
        Largest number of components to keep, or a share of the landmarks if below 1; None: no limit.
    random_state : int, RandomState instance or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    learner_ : metric learner
        The learner, fitted to the coordinates φ(X); like ``basis_`` and ``spectrum_`` not in a saved file if linear.
    dual_coef_ : ndarray of shape (p, m) or None
        Coefficients Tᵀ with ``transform(x) = Tᵀ(k(landmarks, x) − kernel_means_)``; None if the learner is not linear.
    basis_ : ndarray of shape (m, r)
        V diag(l)^{-1/2}, with V the eigenvectors and l the eigenvalues of the landmarks' kernel.
    spectrum_ : ndarray of shape (r,)
        Eigenvalues l of the landmarks' kernel, the largest first.
    landmarks_ : ndarray of shape (m, d) or None
        The samples that span the feature space; None for a precomputed kernel.
    kernel_means_ : ndarray of shape (m,) or None
        Means of the kernel; None for one that is not centred.
    origin_ : ndarray of shape (d,) or None
        The mean of the samples, which is subtracted first if the kernel is "rbf", "laplacian" or "linear": their
        distances do not depend on it, and fewer digits are lost. None for all other kernels, such as "poly" or
        "cosine", to which another origin would be another kernel: subtract the mean yourself if X lies far from 0.

    Notes
    -----
    For any linear learner and data that no linear map separates, for d ≫ n (``kernel="linear"``), and for
    precomputed kernels of texts, graphs or sequences. With thousands of samples give ``landmarks``. A rich kernel
    overfits: centre it and leave its last components out, ``variance="auto"``, as `KernelLMNN`, `KernelLFDA` and others
    do.

    A fit costs O(n² d + n³) for the kernel and its eigenvectors, with m landmarks O(n m (d + m)), and what the
    learner costs on as many coordinates; a new sample costs O(m d).

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from isometry import DCA, Kernelized
    >>> X, y = make_circles(100, factor=0.3, noise=0.05, random_state=0)
    >>> metric = Kernelized(DCA(1), "rbf", landmarks=50, center=True, variance=0.95, random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (100, 1)
    >>> metric.score(X, y)
    1.0
    """

    learner: Any
    kernel: str | Callable[..., Any] = "rbf"
    _: KW_ONLY
    gamma: Positive | None = None
    degree: Count = 3
    coef0: float = 1.0
    landmarks: Count | None = None
    center: bool = False
    variance: PositiveShare | Literal["auto"] = 1.0
    max_rank: Positive | None = None
    random_state: Seed = None

    _unlabelled = "minus one"  # every row spans the feature space, labelled or not

    def _fit(self, X: np.ndarray, side: Any) -> None:
        learner = clone(self.learner)
        p = getattr(learner, "n_components", None)
        # Euclidean distance, if that is what the learner stays near to, is the one in all of the feature space
        beyond = isinstance(learner, HoldsOut) and learner._is_mixed() and p is None
        phi = kernel_coordinates(self, X, variance=self.variance, max_rank=self.max_rank, beyond=beyond)
        r = phi.basis.shape[1] - phi.n_beyond
        if isinstance(p, Integral) and p > r:
            learner.set_params(n_components=r)
        if "spectrum" in learner.get_params(deep=False):  # a penalty on the coefficients of the kernel
            learner.set_params(spectrum=phi.spectrum[:r])
        Z = phi.fitted(X).astype(X.dtype, copy=False)
        if isinstance(learner, HoldsOut):  # what they hold out must not span the feature space
            learner._outside = HeldOut(phi, X, Z, self.center, _kept(learner, side, len(X)))
            learner._beyond = phi.n_beyond
        self.learner_ = learner.fit(Z, side)
        for name in ("_outside", "_beyond"):
            vars(learner).pop(name, None)
        self._store(phi, learner.components_ if isinstance(learner, LinearMetric) else None)
        self._take_report(learner)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        if self.dual_coef_ is None:
            return self.learner_._transform(self._phi(X).astype(X.dtype, copy=False))
        return super()._transform(X)

    @property
    def _n_features_out(self) -> int:
        return self.learner_._n_features_out if self.dual_coef_ is None else len(self.dual_coef_)
