"""The space that is searched: rows mapped, checked and, for the cosine, brought to unit length; and its thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from isometry.core.progress import report
from isometry.eval.neighbors import as_embeddings
from isometry.io.columns import listing
from isometry.io.model_card import outline

NAMES = ("euclidean", "cosine")
ROWS = 16_384  # that are mapped at a time
UNIT_ROUNDING = 4 * np.finfo(np.float32).eps  # two copies of a direction may lie so far apart after normalising


@dataclass
class Space:
    """Where the distance is Euclidean: after the map of a fitted metric, or of given embeddings.

    Scores are distances, where less is nearer, and thresholds the largest of them; of "cosine" they are cosines, where
    more is nearer, and thresholds the least of them.
    """

    metric: Any  # "euclidean" or "cosine" for embeddings as they are, or a fitted metric
    n_features: int | None = None  # columns of the rows, once known
    origin: np.ndarray | None = field(default=None)  # (p,) subtracted from embeddings: distances do not depend on it

    def __post_init__(self) -> None:
        if isinstance(self.metric, str):
            if self.metric not in NAMES:
                raise ValueError(
                    f"metric={self.metric!r} is unknown: expected 'euclidean' or 'cosine' for embeddings, or a fitted "
                    "metric, which maps rows itself"
                )
            return
        if not hasattr(self.metric, "transform"):
            raise TypeError(f"metric must be 'euclidean', 'cosine' or a fitted metric, got {self.metric!r:.80}")
        check_is_fitted(self.metric)
        self.n_features = getattr(self.metric, "n_features_in_", self.n_features)

    @property
    def is_cosine(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "cosine"

    def embed(self, X: Any, name: str = "X") -> np.ndarray:
        """Rows (n, d) as float32 embeddings (n, p) between which Euclidean distance is the one asked for.

        The first rows say where the origin is: float32 then has its digits where the embeddings differ.
        """
        self._check_width(X, name)
        Z = self._map(X, name)
        if self.n_features is None:
            self.n_features = int(Z.shape[1])
        if self.is_cosine:
            Z = Z.astype(np.float64, copy=False)
            length = np.linalg.norm(Z, axis=1)
            why = "which have no direction: leave them out, or search by metric='euclidean'"
            _refuse_rows(length == 0, name, "are zero vectors", why)
            return (Z / length[:, None]).astype(np.float32)
        if self.origin is None:
            self.origin = Z.mean(axis=0, dtype=np.float64)
        with np.errstate(over="ignore"):  # the check of sizes names the limit
            Z = (Z - self.origin).astype(np.float32)
        _refuse_rows(~np.isfinite(Z).all(axis=1), name, "are too large for 32 bits", "rescale them")
        return as_embeddings(Z, name)

    def _check_width(self, X: Any, name: str) -> None:
        shape = np.shape(X)
        if len(shape) == 2 and self.n_features is not None and shape[1] != self.n_features:
            what = "the embeddings here" if isinstance(self.metric, str) else f"rows for {outline(self.metric)}"
            raise ValueError(f"the rows of {name} have {shape[1]} features, but {what} have {self.n_features}")

    def _map(self, X: Any, name: str) -> np.ndarray:
        if isinstance(self.metric, str):
            return finite_rows(X, name)
        try:
            Z = self._transformed(X)
        except ValueError:
            if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f":
                finite_rows(X, name)  # names the rows, if gaps are the reason
            raise
        return finite_rows(Z, f"{name} after the map")

    def _transformed(self, X: Any) -> np.ndarray:
        """The map of the metric, in blocks where there are many rows."""
        parts = []
        for start in range(0, max(len(X), 1), ROWS):
            parts.append(np.asarray(self.metric.transform(X[start : start + ROWS])))
            report(min(start + ROWS, len(X)))
        return np.concatenate(parts)

    def radius(self, threshold: float) -> float:
        """The Euclidean distance after `embed` that a threshold stands for."""
        if not np.isfinite(threshold):
            raise ValueError(f"threshold={threshold} must be a finite number")
        if self.is_cosine:
            if not -1 <= threshold <= 1:
                raise ValueError(f"threshold={threshold} is the least cosine: choose it between −1 and 1")
            return float(np.sqrt(2 - 2 * threshold) + UNIT_ROUNDING)
        if threshold < 0:
            raise ValueError(f"threshold={threshold} is the largest distance: it must not be negative")
        return float(threshold)

    def scores(self, sqdist: np.ndarray) -> np.ndarray:
        """Squared distances after `embed` as distances, or cosines."""
        d = sqdist.astype(np.float64)
        return np.asarray(np.maximum(1 - d / 2, -1.0) if self.is_cosine else np.sqrt(d))


def finite_rows(Z: Any, name: str) -> np.ndarray:
    """Rows (n, d) of float32 or float64, all finite; an error names those that are not."""
    Z = np.asarray(check_array(Z, dtype=[np.float64, np.float32], ensure_all_finite=False, input_name=name))
    _refuse_rows(~np.isfinite(Z).all(axis=1), name, "hold NaN or infinity", "fill the gaps or leave these rows out")
    return Z


def _refuse_rows(wrong: np.ndarray, name: str, what: str, advice: str) -> None:
    """An error that counts and names the rows that are wrong, if there are any."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise ValueError(f"{len(rows)} of the {len(wrong)} rows of {name} {what} (rows {listing(rows)}): {advice}")
