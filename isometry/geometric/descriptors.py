"""Matrices that describe raw multichannel data: what `SPDGMML` and `GrassmannGMML` learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from isometry.core.linalg import svd
from isometry.geometric.matrices import validate_matrices
from isometry.parameters import KW_ONLY, parameters


class _Descriptor(TransformerMixin, BaseEstimator):
    """Abstract: one matrix per sample from its channels (n, channels, times). Nothing is learned."""

    def fit(self, X: Any, y: Any = None) -> _Descriptor:
        """Remember the shape of the samples."""
        validate_matrices(self, X, "channels, times", reset=True)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The matrix of each sample."""
        check_is_fitted(self, "sample_shape_")
        X = validate_matrices(self, X, "channels, times", reset=False)
        return self._describe(X.astype(np.float64)).astype(X.dtype, copy=False)

    def _describe(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags


@parameters
class CovarianceDescriptor(_Descriptor):
    """The covariance of the channels of each sample: (n, channels, times) → (n, channels, channels), SPD.

    C_i = (1/T) Σ_t (x_it − x̄_i)(x_it − x̄_i)ᵀ + reg · tr/c · I

    Parameters
    ----------
    reg : float > 0, default=1e-4
        Relative ridge, which makes C_i definite where channels depend on one another or T ≤ c.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.geometric.descriptors import CovarianceDescriptor
    >>> X = np.random.default_rng(0).normal(size=(4, 3, 50))
    >>> CovarianceDescriptor().fit_transform(X).shape
    (4, 3, 3)
    """

    _: KW_ONLY
    reg: float = 1e-4

    def _describe(self, X):
        if not self.reg > 0:
            raise ValueError(f"reg={self.reg} must be positive, so that every covariance is definite")
        X = X - X.mean(axis=2, keepdims=True)
        C = X @ X.swapaxes(1, 2) / X.shape[2]
        c = C.shape[1]
        size = np.trace(C, axis1=1, axis2=2)[:, None, None] / c
        return C + self.reg * np.where(size > 0, size, 1.0) * np.eye(c)  # a sample without variance becomes reg · I


@parameters
class SubspaceDescriptor(_Descriptor):
    """The leading subspace of the channels of each sample: (n, channels, times) → (n, channels, k), orthonormal.

    Parameters
    ----------
    n_components : int, default=2
        Dimension k of the subspace, at most the number of channels and of times; times may be any unordered set of
        views.
    center : bool, default=True
        Whether to subtract the mean of each channel first.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.geometric.descriptors import SubspaceDescriptor
    >>> X = np.random.default_rng(0).normal(size=(4, 5, 20))
    >>> SubspaceDescriptor(2).fit_transform(X).shape
    (4, 5, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    center: bool = True

    def _describe(self, X):
        if not 1 <= self.n_components <= min(X.shape[1:]):
            raise ValueError(f"n_components={self.n_components} must be between 1 and {min(X.shape[1:])}")
        X = X - X.mean(axis=2, keepdims=True) if self.center else X
        return svd(X)[0][:, :, : self.n_components]


def region_channels(images: Any) -> np.ndarray:
    """Channels of grey images (n, h, w) for region covariances: row, column, intensity, |∂row|, |∂column|: (n, 5, hw).

    Coordinates run from 0 to 1; derivatives are central differences.
    """
    I = np.asarray(images, dtype=np.float64)
    if I.ndim != 3:
        raise ValueError(f"images must have shape (n, height, width), got {I.shape}")
    n, h, w = I.shape
    rows, columns = np.meshgrid(np.linspace(0, 1, h), np.linspace(0, 1, w), indexing="ij")
    d_row, d_column = np.gradient(I, axis=(1, 2))
    parts = (np.broadcast_to(rows, I.shape), np.broadcast_to(columns, I.shape), I, np.abs(d_row), np.abs(d_column))
    return np.stack(parts, axis=1).reshape(n, 5, h * w)
