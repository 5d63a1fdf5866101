"""Kernels by name or callable, and coordinates in which every linear method becomes its kernel version.

K = V diag(l) Vᵀ, φ(x) = diag(l)^{-1/2} Vᵀ k(X, x): the inner products of φ are the kernel, so a linear method run on φ
*is* the method in feature space, and TᵀKT = I for T = V diag(l)^{-1/2} Q exactly when QᵀQ = I.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from isometry.core.distance import row_blocks
from isometry.core.linalg import RANK_TOL, spectrum, symmetrize
from isometry.core.warn import warn_user

Kernel = str | Callable[[np.ndarray, np.ndarray], Any]

SHIFT_INVARIANT = ("rbf", "laplacian", "linear")  # distances in feature space do not know where the origin is
MIN_SPREAD = 1e-9  # a smaller share of the kernel's trace in differences of images loses digits to rounding
AUTO_VARIANCE = 0.95  # share of the trace that the leading components keep with "auto"
FLAT = (
    0.8  # share of the components beyond which that is not worth it: neighbours of new samples are worse from there on
)
WITH_GAMMA = ("rbf", "laplacian", "chi2", "poly", "polynomial", "sigmoid")


def default_gamma(X: np.ndarray) -> float:
    """1/(d · mean feature variance): 1/d on standardised data."""
    variance = float(np.mean(np.var(X, axis=0, dtype=np.float64)))
    return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0


def kernel_matrix(X: np.ndarray, Y: np.ndarray | None, kernel: Kernel, params: Mapping[str, Any]) -> np.ndarray:
    """k(x_i, y_j) in float64. A precomputed kernel is passed as X itself; Y is then ignored."""
    X = np.asarray(X, dtype=np.float64)  # errors of float32 would look like small eigenvalues
    if isinstance(kernel, str) and kernel == "precomputed":
        return X
    Y = np.asarray(Y, dtype=np.float64)
    return np.asarray(pairwise_kernels(X, Y, metric=kernel, filter_params=True, **params), dtype=np.float64)


@dataclass
class KernelMap:
    """φ(x) = basisᵀ (k(landmarks − origin, x − origin) − means).

    ``means`` is given if the kernel is centred in feature space. ``origin`` is the mean of the samples where distances
    in feature space do not depend on it, else None.
    """

    kernel: Kernel
    params: dict[str, Any]
    landmarks: np.ndarray | None  # (m, d); None for a precomputed kernel
    basis: Any  # (m, r) = V diag(l)^{-1/2}; its columns sum to 0 if the kernel is centred
    spectrum: Any  # (r,) = l
    means: np.ndarray | None = None  # (m,) column means of the landmarks' kernel
    rows: np.ndarray | None = None  # (m,) numbers of the landmarks among the rows it was fitted to
    origin: np.ndarray | None = None  # (d,) float64
    n_beyond: int = 0  # of the columns of the basis, the last ones, which ``variance`` and ``max_rank`` leave out

    def project(self, X: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """(k(x, landmarks) − means) @ coef (n, q), in blocks of rows; ``coef`` (m, q) is in the span of the basis."""
        Z, marks = np.empty((len(X), coef.shape[1])), _about(self.landmarks, self.origin)
        for rows in row_blocks(len(X), 8 * len(coef), buffers=2):
            K = kernel_matrix(_about(X[rows], self.origin), marks, self.kernel, self.params)  # (b, m)
            Z[rows] = (K if self.means is None else K - self.means) @ coef
        return Z

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.project(X, self.basis)  # (n, r)

    def fitted(self, X: np.ndarray) -> np.ndarray:
        """φ of the rows X it was fitted to: V diag(l)^{1/2} where all are landmarks, which needs no kernel again."""
        if self.rows is not None and len(self.rows) == len(X):
            return self.basis * self.spectrum
        return self(X)


def fit_kernel_map(
    X: np.ndarray,
    kernel: Kernel = "rbf",
    params: Mapping[str, Any] | None = None,
    *,
    landmarks: int | None = None,
    center: bool = False,
    variance: float | str = 1.0,
    max_rank: float | None = None,
    beyond: bool = False,
    rng: np.random.RandomState | None = None,
) -> KernelMap:
    """Kernel coordinates of X: exact with all rows as landmarks, Nyström with fewer.

    ``variance`` keeps the leading components that carry this share of the kernel's trace. "auto" is 95 %, if four
    fifths of the components carry as much, else all: the last ones of a flat spectrum are differences of near samples,
    which without them come together nearer to the mean than all others, and are then the neighbours of every new
    sample. ``max_rank`` keeps as many as it says, or a share of the landmarks if it is below 1. With ``beyond`` those
    that both leave out stand behind the others, and are counted.
    """
    if isinstance(variance, str) and variance != "auto":
        raise ValueError(f"variance={variance!r} must be 'auto' or a number in (0, 1]")
    if not isinstance(variance, str) and not 0 < variance <= 1:
        raise ValueError(f"variance={variance} must lie in (0, 1]: it is the share of the kernel's trace to keep")
    if max_rank is not None and max_rank <= 0:
        raise ValueError(f"max_rank={max_rank} must be None, a number ≥ 1, or a share of the samples between 0 and 1")
    if landmarks is not None and landmarks < 1:
        raise ValueError(f"landmarks={landmarks} must be None or at least 1")
    params = _with_gamma(X, kernel, params)
    rows = _choose_landmarks(X, kernel, landmarks, rng)
    marks = None if isinstance(kernel, str) and kernel == "precomputed" else np.array(X[rows])
    invariant = isinstance(kernel, str) and kernel in SHIFT_INVARIANT
    origin = X.mean(axis=0, dtype=np.float64) if invariant else None  # else a kernel of the place of X, not of X alone
    about = _about(marks, origin)
    K = kernel_matrix(X if marks is None else about, about, kernel, params)
    if marks is None or callable(kernel):  # what is named is symmetric to rounding, and only one half of it is read
        K = symmetrize(K)
    eps = np.finfo(X.dtype if marks is None else np.float64).eps  # a precomputed kernel is as exact as its type
    means = K.mean(axis=0)
    spread = float(np.trace(K) - means.sum())  # trace of the centred kernel: a large common part is no variance
    trace = float(np.trace(K))
    if center:
        K -= means
        K -= means[:, None]
        K += means.mean()
    l, vectors = spectrum(K)
    if l[-1] < -max(1e-6, eps * len(l)) * max(l[0], 0) - 1e-12:
        raise ValueError(
            f"the kernel is not positive semi-definite: its eigenvalues go from {l[-1]:.3g} to {l[0]:.3g}; "
            "use a PSD kernel such as 'rbf', 'linear' or 'polynomial' with coef0 ≥ 0"
        )
    _check_spread(spread, trace, kernel, eps * len(l))
    keep = l > max(RANK_TOL * min(l[0], spread), eps * len(l) * l[0])
    rank = int(np.sum(keep))
    if variance != 1.0:
        share = np.cumsum(np.maximum(l, 0)) / np.maximum(l, 0).sum()
        leading = np.arange(len(l)) <= np.searchsorted(share, AUTO_VARIANCE if variance == "auto" else variance)
        if variance != "auto" or np.sum(keep & leading) <= FLAT * np.sum(keep):
            keep &= leading
    if max_rank is not None:
        keep[int(max_rank) if max_rank >= 1 else max(1, int(max_rank * len(l))) :] = False
    n_beyond = rank - int(np.sum(keep)) if beyond else 0
    keep[: int(np.sum(keep)) + n_beyond] = True
    l, basis = l[keep], vectors(int(np.sum(keep)))
    basis /= np.sqrt(l)
    if center:  # as exact eigenvectors are: rounding would leave parts of the means of a row, the more the smaller l
        basis -= basis.mean(axis=0)
    return KernelMap(kernel, params, marks, basis, l, means if center else None, rows, origin, n_beyond)


def _about(X: Any, origin: np.ndarray | None) -> Any:
    """X − origin in float64; X as it is without an origin."""
    return X if origin is None else np.asarray(X, dtype=np.float64) - origin


def _check_spread(spread: float, trace: float, kernel: Kernel, rounding: float) -> None:
    """An error if the images of all samples are one point, to rounding, and a warning if they nearly are."""
    if spread > MIN_SPREAD * abs(trace):
        return
    far = ""
    if not (isinstance(kernel, str) and kernel in (*SHIFT_INVARIANT, "precomputed")):
        far = f". kernel={kernel!r} depends on where 0 is: subtract the mean from X if it lies far from 0"
    if spread <= rounding * abs(trace):
        raise ValueError(f"all samples are one point of the kernel's feature space: nothing can be learned{far}")
    warn_user(
        f"distances in the kernel's feature space are {spread / trace:.1g} of what all images have in common, so that "
        f"digits are lost to rounding{far or '. Raise gamma, or take another kernel'}"
    )


def _with_gamma(X: np.ndarray, kernel: Kernel, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Parameters of the kernel, with the default gamma; an unknown name is an error."""
    params = dict(params or {})
    if callable(kernel):
        return params
    if kernel != "precomputed" and kernel not in PAIRWISE_KERNEL_FUNCTIONS:
        names = ", ".join(sorted(PAIRWISE_KERNEL_FUNCTIONS))
        raise ValueError(f"kernel={kernel!r} is unknown; expected a function k(x, y), 'precomputed', or one of {names}")
    if kernel in ("chi2", "additive_chi2") and X.min() < 0:
        raise ValueError(
            f"kernel={kernel!r} is for counts and shares, but X holds negative numbers, such as {X.min():.3g}"
        )
    if kernel in WITH_GAMMA and params.get("gamma") is None:
        params["gamma"] = default_gamma(X)
    return params


def _choose_landmarks(
    X: np.ndarray, kernel: Kernel, landmarks: int | None, rng: np.random.RandomState | None
) -> np.ndarray:
    """Which rows of X span the feature space: all, or some drawn at random."""
    n = len(X)
    if isinstance(kernel, str) and kernel == "precomputed":
        if X.shape[0] != X.shape[1]:
            raise ValueError(f"a precomputed kernel must be square, got shape {X.shape}")
        if np.abs(X - X.T).max() > 1e-5 * np.abs(X).max():
            raise ValueError("a precomputed kernel must be symmetric: entry (i, j) is k(x_i, x_j)")
        if landmarks is not None and landmarks < n:
            raise ValueError("landmarks need the samples themselves; they do not go with a precomputed kernel")
    if landmarks is None or landmarks >= n:
        return np.arange(n)
    rng = rng or np.random.RandomState(0)
    return np.sort(rng.choice(n, landmarks, replace=False))
