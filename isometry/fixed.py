"""A metric that is known already."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array

from isometry.base import LinearMetric
from isometry.core.linalg import factor
from isometry.parameters import KW_ONLY, parameters

__all__ = ["FixedMetric"]


@parameters
class FixedMetric(LinearMetric):
    """A known matrix as a metric: nothing is learned; ``fit`` checks that it suits X.

    Parameters
    ----------
    components : array-like of shape (p, d) or None, default=None
        The map L; one of the two matrices is given.
    mahalanobis : array-like of shape (d, d) or None, default=None
        The matrix W = LᵀL, symmetric and positive semi-definite.

    Notes
    -----
    For `compare`, `PairVerifier`, pipelines and files, where a metric from elsewhere stands beside learned ones. A
    map costs O(n d p).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import FixedMetric
    >>> metric = FixedMetric(mahalanobis=[[4.0, 0.0], [0.0, 1.0]]).fit([[0.0, 0.0], [1.0, 1.0]])
    >>> metric.pair_distance(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), [[0, 1], [0, 2]]).round(6).tolist()
    [2.0, 1.0]
    """

    _sees = ()

    components: Any = None
    _: KW_ONLY
    mahalanobis: Any = None

    def _fit(self, X: np.ndarray, side: Any) -> None:
        if (self.components is None) == (self.mahalanobis is None):
            raise ValueError("give the metric as components=L (p, d) or as mahalanobis=W (d, d), one of the two")
        name = "mahalanobis" if self.components is None else "components"
        M = check_array(getattr(self, name), dtype=np.float64, input_name=name)
        d = X.shape[1]
        if M.shape[1] != d or (name == "mahalanobis" and len(M) != d):
            raise ValueError(f"{name} has shape {M.shape}, but X has {d} features")
        self._store(M if name == "components" else factor(_checked(M)), X.dtype)


def _checked(W: np.ndarray) -> np.ndarray:
    """W if it is symmetric and positive semi-definite but for rounding."""
    size = np.abs(W).max()
    if np.abs(W - W.T).max() > 1e-8 * size:
        raise ValueError("mahalanobis is not symmetric: d² = (x − x')ᵀW(x − x') sees (W + Wᵀ)/2 alone; pass that")
    least = np.linalg.eigvalsh(W)[0]
    if least < -1e-8 * size:
        raise ValueError(
            f"mahalanobis is not positive semi-definite: its smallest eigenvalue is {least:.3g}, and squared distances "
            "would be negative; cut negative eigenvalues off first"
        )
    return W
