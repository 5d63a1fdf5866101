"""The distance every learned metric has to beat."""

from __future__ import annotations

import numpy as np

from isometry.base import LinearMetric


class Euclidean(LinearMetric):
    """Euclidean distance, the baseline: nothing is learned, and every learned metric has to beat it.

    W = I
    """

    _sees = ()

    def _fit(self, X, side):
        self._set_components(np.eye(X.shape[1]), X.dtype)
