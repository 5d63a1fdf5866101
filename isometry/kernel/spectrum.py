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
    n_components : p, at most the rank of the kernel; None: as ``variance`` says
    reg : added to f_r, relative to the mean of f
    scale : "trace": c such that tr K̃ is the trace of the kernel's leading part; or the number c
    kernel, gamma, degree, coef0, landmarks, random_state : of `Kernelized`
    variance : keep the components with this share of the centred kernel's trace. The new eigenvalues do not know the
        old ones, so that components of almost no variance come in at full strength

    Attributes
    ----------
    beta_ : (p,) β
    pair_means_ : (p,) f with its ridge

    Notes
    -----
    The survey's text constrains Σβ_r²; its formula, rightly, Σβ_r: the former would keep a single component. A kernel
    that is not centred has a nearly constant eigenvector with f_r ≈ 0, which takes all the weight.

    References
    ----------
    D.-Y. Yeung, H. Chang, "A kernel approach for semisupervised metric learning", IEEE Trans. Neural Networks 2007.
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
        f = mean_pair_scatters(phi(X), side)[0].diagonal() / l  # (r,) coordinates are √l_r a_r
        f = f + self.reg * f.mean()
        if not f.min() > 0:
            raise ValueError("in a component of the kernel all similar pairs coincide: set `reg` above 0")
        w = 1 / f / np.sum(1 / f)  # Σ w = 1
        c = np.sqrt(l.sum() / (w @ w)) if self.scale == "trace" else float(self.scale)
        self.pair_means_, self.beta_ = f, c * w
        self._store(phi, np.diag(self.beta_ / np.sqrt(l)))
