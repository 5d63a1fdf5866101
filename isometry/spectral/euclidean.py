"""The distance every learned metric has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.base import LinearMetric


class Euclidean(LinearMetric):
    """Euclidean distance, the baseline: nothing is learned, and every learned metric has to beat it.

    W = I

    Notes
    -----
    The yardstick of every comparison, and a metric learner like any other where one is asked for: in pipelines, in
    `compare`, in files. Standardise the features first, else the largest unit decides.

    Nothing is computed; a distance costs O(d).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import Euclidean
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = Euclidean().fit(X)
    >>> bool((metric.transform(X) == X).all())
    True
    """

    _sees = ()

    def _fit(self, X: np.ndarray, side: Any) -> None:
        self._store(np.eye(X.shape[1]), X.dtype)
