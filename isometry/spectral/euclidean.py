"""The distance every learned metric has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.base import LinearMetric


class Euclidean(LinearMetric):
    """Euclidean distance, the baseline: nothing is learned, and every learned metric has to beat it.

    W = I
    """

    _sees = ()

    def _fit(self, X: np.ndarray, side: Any) -> None:
        self._store(np.eye(X.shape[1]), X.dtype)
