"""A kernel with new eigenvalues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from isometry.kernelized import KernelMetric, kernel_coordinates
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, NotNegative, Positive, PositiveShare, Seed, parameters
from isometry.supervision import Labels, Pairs


@parameters
class KernelSpectrum(KernelMetric):
    """Kernel spectrum adaptation: eigenvectors of a kernel are kept, eigenvalues chosen to bring similar samples near.

    K̃ = Σ_r β_r² a_r a_rᵀ,  min_β Σ_r f_r β_r²  subject to  Σ_r β_r = c,  f_r = mean_S (a_ri − a_rj)²

    over similar pairs S, with a_r the leading eigenvectors of the centred kernel and l_r its eigenvalues. In closed
    form β_r = c f_r⁻¹ / Σ_s f_s⁻¹; a new sample is placed by the eigenfunctions, z_r(x) = β_r l_r⁻¹ a_rᵀk(X, x).

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of components, at most the rank of the kernel; None: as ``variance`` says.
    reg : float ≥ 0, default=0.001
        Ridge added to f_r, relative to the mean of f.
    scale : float > 0 or "trace", default="trace"
        Constant c, or "trace": such that tr K̃ is the trace of the kernel's leading part.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float > 0 or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and of the sigmoid kernel.
    landmarks : int or None, default=None
        Number of samples, drawn at random, that span the feature space; None: all.
    variance : float in (0, 1], default=0.95
        Share of the centred kernel's trace that is kept. The new eigenvalues do not know the old ones, so that
        components of almost no variance come in at full strength.
    random_state : int, RandomState instance or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    beta_ : ndarray of shape (p,)
        Weights β.
    pair_means_ : ndarray of shape (p,)
        Means f with their ridge.

    Notes
    -----
    For similar pairs alone and a kernel that is already good: its components are weighed, nothing more. It cannot
    turn them: where labels or dissimilar pairs are known, `KDCA` and `KernelFisherML` can.

    A fit costs O(n³), with m landmarks O(n m²).

    The survey's text constrains Σβ_r²; its formula, rightly, Σβ_r: the former would keep a single component. A kernel
    that is not centred has a nearly constant eigenvector with f_r ≈ 0, which takes all the weight.

    References
    ----------
    | D.-Y. Yeung, H. Chang, "A kernel approach for semisupervised metric learning", IEEE Trans. Neural Networks 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelSpectrum, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 50, 100], [1, 51, 101], [True, True, True], n=150)
    >>> metric = KernelSpectrum(3).fit(X, side)
    >>> metric.transform(X).shape
    (150, 3)
    """

    _sees = (Labels, Pairs)
    _needs = ("similar",)
    _unlabelled = "kept"  # −1 is a class like any other

    n_components: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 1e-3
    scale: Positive | Literal["trace"] = "trace"
    kernel: str | Callable[..., Any] = "rbf"
    gamma: Positive | None = None
    degree: Count = 3
    coef0: float = 1.0
    landmarks: Count | None = None
    variance: PositiveShare = 0.95
    random_state: Seed = None

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> None:
        p = self.n_components
        phi = kernel_coordinates(self, X, variance=self.variance if p is None else 1.0, max_rank=p)
        l = phi.spectrum
        f = mean_pair_scatters(phi.fitted(X), side)[0].diagonal() / l  # (r,) coordinates are √l_r a_r
        f = f + self.reg * f.mean()
        if not f.min() > 0:
            raise ValueError("in a component of the kernel all similar pairs coincide: set `reg` above 0")
        w = 1 / f / np.sum(1 / f)  # Σ w = 1
        c = np.sqrt(l.sum() / (w @ w)) if self.scale == "trace" else float(self.scale)
        self.pair_means_, self.beta_ = f, c * w
        self._store(phi, np.diag(self.beta_ / np.sqrt(l)))
