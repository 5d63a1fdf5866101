"""Samples that are matrices: validation, pair scatters of matrix rows, and the abstract learner over them."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import MetricLearner
from isometry.moments import mean_pair_scatters
from isometry.supervision import Labels, Pairs


def validate_matrices(estimator: Any, X: Any, columns: str, *, reset: bool, min_samples: int = 1) -> np.ndarray:
    """X as an array (n, d, ·) of floats, with the shape of the samples fixed at the first call."""
    X = validate_data(
        estimator,
        X,
        dtype=(np.float64, np.float32),
        allow_nd=True,
        ensure_2d=False,
        ensure_min_samples=min_samples,
        reset=reset,
    )
    name = type(estimator).__name__
    if X.ndim != 3:
        raise ValueError(f"{name} takes an array (n_samples, {columns}) of matrices, got shape {X.shape}")
    if reset:
        estimator.sample_shape_ = list(X.shape[1:])
    elif list(X.shape[1:]) != estimator.sample_shape_:
        raise ValueError(f"{name} was fitted on matrices of shape {estimator.sample_shape_}, got {list(X.shape[1:])}")
    return X


def one_sided_scatters(T: np.ndarray, side: Labels | Pairs) -> tuple[np.ndarray, np.ndarray]:
    """M_S, M_D: means of (T_i − T_j)² over similar and dissimilar pairs of symmetric matrices T (n, d, d).

    (T_i − T_j)² is the sum over rows of the outer products of their differences: one pair scatter a row.
    """
    by_row = [mean_pair_scatters(T[:, r], side) for r in range(T.shape[1])]
    S, D = (np.sum(part, axis=0) for part in zip(*by_row, strict=True))
    return S, D


class MatrixMetric(MetricLearner):
    """Abstract: samples are matrices, mapped to symmetric images T_i, and d²(i, j) = tr(W (T_i − T_j)²), W = LᵀL.

    A method supplies ``_fit`` and ``_image``. The map is x → vec(L T(x)).
    """

    _columns: ClassVar[str] = "d, d"
    _sees = (Labels, Pairs)

    components_: np.ndarray

    def _validate_samples(self, X: Any, *, reset: bool) -> np.ndarray:
        return validate_matrices(self, X, self._columns, reset=reset, min_samples=2 if reset else 1)

    def _image(self, X: np.ndarray) -> np.ndarray:
        """T (n, d, d), symmetric."""
        raise NotImplementedError

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return (self.components_ @ self._image(X)).reshape(len(X), -1).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return self.components_.size

    @property
    def mahalanobis_(self) -> np.ndarray:
        """W = LᵀL."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags
