"""Classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from isometry.supervision.base import EdgeList, Supervision
from isometry.supervision.entries import label_array, missing_entries, refuse_mixed, unique_with_codes


class Labels(Supervision):
    """A class label for each sample.

    Parameters
    ----------
    y : array-like of shape (n,)
        The labels, numbers or text.
    unlabelled : object, default=None
        The value that means "label unknown" (scikit-learn's semi-supervised convention is −1); it is off by default,
        because −1 is also half of the popular pair of labels {−1, +1}.

    Notes
    -----
    What ``fit(X, y)`` makes of an array ``y``; write it out to say which label means "unknown".

    Examples
    --------
    >>> from isometry import Labels
    >>> side = Labels(["cat", "dog", "cat", "?"], unlabelled="?")
    >>> side.classes.tolist(), side.codes.tolist()
    (['cat', 'dog'], [0, 1, 0, -1])
    """

    kind = "labels"
    repeatable = True
    classes: np.ndarray  # (c,) sorted
    codes: np.ndarray  # (n,) index of the label in classes, −1 if unlabelled

    def __init__(self, y: Any, *, unlabelled: Any = None):
        y = label_array(y.codes if isinstance(y, Labels) else y)
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.ravel()
        if y.ndim != 1:
            raise ValueError(f"labels must be one-dimensional, got shape {y.shape}")
        missing = missing_entries(y)
        if missing.any():
            raise ValueError(
                f"y has {missing.sum()} missing label{'' if missing.sum() == 1 else 's'} (first at row "
                f"{np.flatnonzero(missing)[0]}); drop such rows, or code them with a value of their own and pass "
                "Labels(y, unlabelled=that_value)"
            )
        if y.dtype.kind == "f" and type_of_target(y) == "continuous":
            raise ValueError(
                "Unknown label type: continuous. y must hold class labels; bin a continuous target first, "
                "or take a learner of targets, such as MLKR or AutoMetric"
            )
        self.n_samples = len(y)
        known = None if unlabelled is None else np.asarray(y != unlabelled)
        refuse_mixed(y if known is None else y[known])
        self.classes, self.codes = unique_with_codes(y, known)

    @classmethod
    def from_codes(cls, codes: np.ndarray, classes: np.ndarray | None = None) -> Labels:
        """Labels from integer codes.

        Parameters
        ----------
        codes : ndarray of shape (n,)
            Codes 0..c−1, with −1 for unlabelled rows; codes that do not occur are closed up.
        classes : ndarray of shape (c,) or None, default=None
            Names of the classes; None: their codes.

        Returns
        -------
        Labels
            The labels.
        """
        self = cls.__new__(cls)
        codes = np.asarray(codes)
        present, self.codes = unique_with_codes(codes, codes >= 0)
        self.classes = present if classes is None else np.asarray(classes)[present]
        self.n_samples = len(codes)
        return self

    @property
    def counts(self) -> np.ndarray:
        """Number of samples of each class."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.classes))

    @property
    def labelled(self) -> np.ndarray:
        """Which samples have a label."""
        return self.codes >= 0

    @property
    def pair_counts(self) -> tuple[float, float]:
        """How many pairs of labelled samples are similar, and how many dissimilar."""
        n_c, n = self.counts.astype(np.float64), float(self.counts.sum())
        similar = float(np.sum(n_c * (n_c - 1)) / 2)
        return similar, n * (n - 1) / 2 - similar

    def _pairs(self, same: bool) -> EdgeList:
        i, j = np.triu_indices(self.n_samples, 1)
        known = (self.codes[i] >= 0) & (self.codes[j] >= 0)
        keep = known & ((self.codes[i] == self.codes[j]) == same)
        return EdgeList.make(i[keep], j[keep])

    @property
    def similar(self) -> EdgeList:
        """All similar pairs i < j, listed: O(n²). The learners never list them."""
        return self._pairs(True)

    @property
    def dissimilar(self) -> EdgeList:
        """All dissimilar pairs i < j, listed: O(n²). The learners never list them."""
        return self._pairs(False)

    def components(self) -> np.ndarray:
        return np.arange(self.n_samples)

    def _take(self, rows: np.ndarray) -> Labels:
        return Labels.from_codes(self.codes[rows], self.classes)
