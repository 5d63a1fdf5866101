"""Numbers to predict, and their slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.core.distance import sqdist
from isometry.supervision.base import Supervision
from isometry.supervision.entries import as_array
from isometry.supervision.labels import Labels

MAX_SLICES = 10  # of targets that are cut into classes
MIN_SLICE = 5  # samples in a slice, on average


class Targets(Supervision):
    """A number for each sample, or several: what a regression predicts.

    An array of integers holds numbers here, not names of classes.

    Parameters
    ----------
    y : array-like of shape (n,) or (n, q)
        The targets; ``values`` is (n, q).

    Notes
    -----
    For `MLKR` and `SIR`, and for `compare` with scoring="knn_r2". An array of fractions becomes this by itself; an
    array of integers does not.

    Examples
    --------
    >>> from isometry import Targets
    >>> Targets([1, 3, 5]).values.shape
    (3, 1)
    """

    kind = "targets"
    repeatable = True
    values: np.ndarray  # (n, q) float64

    def __init__(self, y: Any):
        y = as_array(y.values if isinstance(y, Targets) else y)
        if y.ndim not in (1, 2) or (y.ndim == 2 and y.shape[1] == 0):
            raise ValueError(f"targets are one number for each sample, or a table (n_samples, q); got shape {y.shape}")
        try:
            values = y.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"targets must be numbers, and y holds {y.ravel()[:1].tolist()[0]!r}; for names of classes take a "
                "method that learns from labels"
            ) from error
        bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if bad.any():
            raise ValueError(
                f"y has {bad.sum()} missing or infinite targets, NaN among numbers (first at row "
                f"{np.flatnonzero(bad)[0]}); drop those rows"
            )
        self.n_samples = len(values)
        self.values = values.reshape(len(values), -1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that scikit-learn sees: (n,), or (n, q) of several targets."""
        return (self.n_samples,) if self.values.shape[1] == 1 else self.values.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions that scikit-learn sees."""
        return len(self.shape)

    @property
    def varying(self) -> np.ndarray:
        """(n, q') the columns that are not constant."""
        return self.values[:, np.ptp(self.values, axis=0) > 0] if self.n_samples else self.values[:, :0]

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def to(self, kind: type[Supervision]) -> Supervision | None:
        """The targets as another kind: of a single number for each sample, `Labels` of slices at quantiles.

        Parameters
        ----------
        kind : type
            A class of supervision.

        Returns
        -------
        Supervision or None
            The same information; None if that is impossible.
        """
        if isinstance(self, kind):
            return self
        if not issubclass(kind, Labels) or self.values.shape[1] > 1:
            return None
        slices = Slices.of(self, max(2, min(MAX_SLICES, self.n_samples // MIN_SLICE)))
        return Labels.from_codes(slices.codes(self))

    def _take(self, rows: np.ndarray) -> Targets:
        return Targets(self.values[rows])


class Slices:
    """Where targets are cut into classes of near values: one target at quantiles, several by k-means.

    Values that are equal fall into one slice; where there are no more of them than slices, each has its own.
    """

    edges: np.ndarray | None  # (h − 1,) of a single target: slice k holds edges[k − 1] < y ≤ edges[k]
    centres: np.ndarray | None  # (h, q) of several, in units of scale
    scale: np.ndarray | None  # (q,)

    @classmethod
    def of(cls, targets: Targets, n_slices: int) -> Slices:
        """At most ``n_slices`` slices of about equally many samples."""
        self, Y = cls(), targets.values
        self.edges, self.centres, self.scale = None, None, None
        if Y.shape[1] == 1:
            self.edges = _quantile_edges(Y[:, 0], n_slices)
            return self
        from sklearn.cluster import KMeans

        spread = Y.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        n_slices = min(n_slices, len(np.unique(Y, axis=0)))
        self.centres = KMeans(n_slices, n_init=3, random_state=0).fit(Y / self.scale).cluster_centers_
        return self

    def codes(self, targets: Targets) -> np.ndarray:
        """(n,) the slice of each sample."""
        if self.edges is not None:
            return np.searchsorted(self.edges, targets.values[:, 0], side="left")
        assert self.centres is not None and self.scale is not None  # of several targets
        return np.asarray(sqdist(targets.values / self.scale, self.centres).argmin(axis=1))


def _quantile_edges(y: np.ndarray, n_slices: int) -> np.ndarray:
    """(h − 1,) edges of at most ``n_slices`` slices, none of them empty."""
    distinct = np.unique(y)
    if len(distinct) <= n_slices:
        return distinct[:-1]
    edges = np.unique(np.quantile(y, np.arange(1, n_slices) / n_slices))
    edges = edges[edges < distinct[-1]]  # many samples may share the largest value
    return edges if len(edges) else distinct[-2:-1]


def looks_like_codes(y: Any) -> bool:
    """Whether an array of whole numbers may be codes of three or more classes: all from 0 on, each more than once."""
    y = np.asarray([] if isinstance(y, Supervision) else y)
    if y.ndim != 1 or y.dtype.kind not in "iu" or not len(y) or y.min() != 0:
        return False
    counts = np.bincount(y.astype(np.intp)) if y.max() < len(y) else np.zeros(1)
    return len(counts) > 2 and int(counts.min()) > 1
