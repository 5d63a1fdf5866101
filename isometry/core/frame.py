"""The coordinates in which a search takes place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla

from isometry.core.distance import row_blocks
from isometry.core.linalg import clearly_definite, row_range

RESOLVED = 1e-6  # share of the largest deviation below which a direction is lost in the rounding errors of a scatter


@dataclass(frozen=True)
class Frame:
    """Centred samples: distances do not change, rounding errors do.

    With fewer samples than features all their differences lie in a space of n − 1 dimensions, and ``X`` holds their
    coordinates there.
    """

    X: np.ndarray  # (n, r)
    basis: np.ndarray | None = None  # (d, r), orthonormal; None: the features themselves, r = d
    unit: float = 1.0  # of a coordinate, in those of the features

    @classmethod
    def of(cls, X: np.ndarray, *, reduced: bool = False, scaled: bool = False) -> Frame:
        """The frame of samples X (n, d); ``reduced``: in their row space even where n ≥ d.

        ``scaled``: in the unit in which the mean squared distance of two samples is 1.
        """
        X = X - X.mean(axis=0)
        basis = row_range(X) if reduced or X.shape[1] > len(X) else None
        X = X if basis is None else X @ basis.astype(X.dtype)
        unit = float(np.sqrt(2 * np.var(X, axis=0, dtype=np.float64).sum())) or 1.0 if scaled else 1.0
        return cls(X / X.dtype.type(unit) if scaled else X, basis, unit)

    @property
    def n_features(self) -> int:
        """d, the number of features outside."""
        return self.X.shape[1] if self.basis is None else len(self.basis)

    def lower(self, L: np.ndarray) -> np.ndarray:
        """A map of the features (p, d) as a map of the coordinates (p, r)."""
        return (L if self.basis is None else L @ self.basis) * self.unit

    def lift(self, L: np.ndarray) -> np.ndarray:
        """A map of the coordinates (p, r) as a map of the features (p, d)."""
        return (L if self.basis is None else L @ self.basis.T) / self.unit

    def extend(self, L: np.ndarray) -> np.ndarray:
        """A square map of the coordinates (r, r) as one of the features (d, d): the identity in other directions."""
        Q = self.basis
        return (L if Q is None else Q @ L @ Q.T + np.eye(len(Q)) - Q @ Q.T) / self.unit


def resolved(X: np.ndarray) -> tuple[np.ndarray, float]:
    """Centred samples X (n, d) without directions that a scatter, a sum of squares, cannot tell from rounding errors.

    Features are compared in units of their deviations: such directions lie between features that determine one another.
    X itself, if there are none. And the largest deviation that was left out, as a share of the largest of all.
    """
    deviation = X.std(axis=0, dtype=np.float64)
    varying = deviation > 0
    unit = deviation[varying]
    C = np.zeros((len(unit), len(unit)))
    for rows in row_blocks(len(X), 8 * X.shape[1]):  # in float64 also of float32: squares have twice the digits
        Z = X[rows, varying] / unit
        C += Z.T @ Z
    if clearly_definite(C, RESOLVED**2):
        return X, 0.0
    w, V = sla.eigh(C)
    kept = w > RESOLVED**2 * w[-1]
    if kept.all():
        return X, 0.0
    lost = float((X[:, varying] @ (V[:, ~kept] / unit[:, None])).std(axis=0).max() / np.sqrt(w[-1] / len(X)))
    P = (V[:, kept] / unit[:, None]) @ (V[:, kept].T * unit)  # the projection, in units of the features
    X = X.copy()
    X[:, varying] = X[:, varying] @ P.astype(X.dtype)
    return X, lost
