"""Two views of each sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isometry.supervision.base import Supervision


class Views(Supervision):
    """Two views of each sample: the first columns of X are one, the others the other.

    In a comparison the views look for each other: a metric is good if a sample's other view is near among those of all
    samples held out.

    Parameters
    ----------
    first : int
        Number of columns of the first view.
    second : int
        Number of columns of the second view.
    n_samples : int
        Number of samples.

    Notes
    -----
    For `compare` and `AutoMetric`, which choose among `CCA`, `Procrustes` and `KernelCCA`. ``Views.join`` makes X and
    its views of two tables.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Views
    >>> X, views = Views.join(np.ones((4, 2)), np.ones((4, 3)))
    >>> X.shape, views.widths
    ((4, 5), (2, 3))
    """

    kind = "views"
    widths: tuple[int, int]

    def __init__(self, first: int, second: int, *, n_samples: int):
        self.widths, self.n_samples = (int(first), int(second)), int(n_samples)
        if min(self.widths) < 1:
            raise ValueError(f"each view needs at least one column, got {first} and {second}")

    @classmethod
    def join(cls, first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, Views]:
        """Put two tables side by side.

        Parameters
        ----------
        first : array-like of shape (n_samples, d1)
            One view of the samples.
        second : array-like of shape (n_samples, d2)
            The other view of the same samples, in the same order.

        Returns
        -------
        tuple
            X (n_samples, d1 + d2), and its views.
        """
        X1, X2 = np.asarray(first), np.asarray(second)
        for k, X in enumerate((X1, X2)):
            if X.ndim != 2:
                raise ValueError(f"view {k} must be a table (n_samples, n_features), got shape {X.shape}")
        if len(X1) != len(X2):
            raise ValueError(
                f"the views have {len(X1)} and {len(X2)} rows: row i of both must be the same sample. Leave out the "
                "samples of which one view is missing"
            )
        return np.hstack([X1, X2]), cls(X1.shape[1], X2.shape[1], n_samples=len(X1))

    @property
    def columns(self) -> list[list[int]]:
        """Columns of either view, as `CCA` and others take them."""
        first, second = self.widths
        return [list(range(first)), list(range(first, first + second))]

    def side_by_side(self, X: np.ndarray) -> np.ndarray:
        """Take what Euclidean distance can compare: the first p columns of both views, p the smaller width.

        Parameters
        ----------
        X : ndarray of shape (n_samples, d1 + d2)
            Both views side by side.

        Returns
        -------
        ndarray of shape (n_samples, 2p)
            The columns of the first view, and those of the second.
        """
        first, p = self.widths[0], min(self.widths)
        return np.hstack([X[:, :p], X[:, first : first + p]])

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        """The views themselves: no classes or pairs of samples follow from them.

        Parameters
        ----------
        kind : type
            A class of supervision.

        Returns
        -------
        Supervision or None
            The same object; None for every other kind.
        """
        return self if isinstance(self, kind) else None

    def _take(self, rows: np.ndarray) -> Views:
        return Views(*self.widths, n_samples=len(rows))
