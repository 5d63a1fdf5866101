"""Partial labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isometry.supervision.base import Supervision
from isometry.supervision.labels import Labels


class Candidates(Supervision):
    """Partial labels: a set of candidate classes for each sample, one of which is right.

    Parameters
    ----------
    mask : array-like of bool, shape (n, q)
        Which of the q classes are candidates of each sample.

    Notes
    -----
    For `PartialLabelGMML`: names under a picture, or annotators who disagree.

    Examples
    --------
    >>> from isometry import Candidates
    >>> side = Candidates([[True, False, True], [False, True, False]])
    >>> side.mask.sum(axis=1).tolist()
    [2, 1]
    """

    kind = "candidates"
    repeatable = True

    def __init__(self, mask: ArrayLike):
        mask = np.asarray(mask)
        if mask.ndim != 2 or not np.all((mask == 0) | (mask == 1)):
            raise ValueError("candidates are given as a 0/1 matrix (n_samples, n_classes)")
        self.mask = mask.astype(bool)
        self.n_samples = len(mask)
        empty = ~self.mask.any(axis=1)
        if empty.any():
            raise ValueError(f"{empty.sum()} samples have no candidate class (first at row {int(np.argmax(empty))})")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (n, q) of the mask."""
        return self.mask.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions of the mask."""
        return 2

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    @classmethod
    def _made_of(cls, side: Supervision) -> Candidates | None:
        if isinstance(side, Labels) and side.labelled.all():
            return cls(np.eye(len(side.classes), dtype=bool)[side.codes])
        return None

    def to(self, kind: type[Supervision]) -> Supervision | None:
        return self if isinstance(self, kind) else None

    def _take(self, rows: np.ndarray) -> Candidates:
        return Candidates(self.mask[rows])
