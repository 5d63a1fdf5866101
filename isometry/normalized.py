"""Unit length after a learned map: the cosine of the learned space."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from isometry.base import MetaLearner
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, check_parameters, parameters

__all__ = ["Normalized"]


@parameters
class Normalized(MetaLearner):
    """Unit length after the map of a learner, where Euclidean distance is that of the cosine.

    With m the mean of the samples, a sample is mapped to::

        z(x) = L(x − m) / |L(x − m)|

    For embeddings whose length says little. If the map is not linear, the mean of the mapped samples takes the place of
    Lm. A sample at the centre is mapped to 0.

    Parameters
    ----------
    learner : metric learner
        Any metric learner; y is what it learns from.
    center : bool, default=True
        Whether to subtract the mean first.

    Attributes
    ----------
    learner_ : metric learner
        The learner, fitted.
    center_ : ndarray of shape (p,)
        The centre in the learned space.

    Notes
    -----
    For embeddings that are compared by cosines: learn a map, then compare directions. Not for tables whose rows
    mean something by their length. It adds O(n p) to what the learner costs.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, Normalized
    >>> X, y = load_iris(return_X_y=True)
    >>> Z = Normalized(RCA()).fit(X, y).transform(X)
    >>> bool(np.allclose((Z**2).sum(axis=1), 1))
    True
    """

    learner: Any
    _: KW_ONLY
    center: bool = True

    def _fit(self, X: np.ndarray, side: Any) -> None:
        self.learner_ = clone(self.learner).fit(X, side)
        Z = self.learner_._transform(X)
        self.mean_, self.n_samples_seen_ = X.mean(axis=0, dtype=np.float64), len(X)
        self.center_ = Z.mean(axis=0, dtype=np.float64) if self.center else np.zeros(Z.shape[1])
        self._take_report(self.learner_)

    @available_if(lambda self: hasattr(self.learner, "partial_fit"))
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn from a further chunk of rows, as the learner's ``partial_fit`` does; the mean is that of all chunks."""
        check_parameters(self)
        first = not hasattr(self, "learner_")
        if first:
            self.learner_ = clone(self.learner)
        if first or (isinstance(self.learner_, MomentsMetric) and not hasattr(self.learner_, "moments_")):
            self.mean_, self.n_samples_seen_ = np.zeros(np.shape(X)[1:]), 0  # nothing is left of what fit saw
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=first)
        self.learner_.partial_fit(X, y)
        self.n_samples_seen_ += len(X)
        self.mean_ = self.mean_ + (X - self.mean_).sum(axis=0) / self.n_samples_seen_
        if hasattr(self.learner_, "components_"):  # chunks may not be enough to learn from yet
            centre = self.learner_._transform(self.mean_[None])[0]
            self.center_ = centre if self.center else np.zeros_like(centre)
        return self

    def _check_fitted(self) -> None:
        super()._check_fitted()
        self.learner_._check_fitted()

    def _transform(self, X: np.ndarray) -> np.ndarray:
        Z, centre = self.learner_._transform(X), self.center_
        size = np.linalg.norm(Z, axis=1) + np.linalg.norm(centre)  # (n,)
        Z = Z - centre.astype(Z.dtype, copy=False)
        length = np.linalg.norm(Z, axis=1)
        at_centre = length <= 8 * np.finfo(Z.dtype).eps * size  # what is left there is rounding
        return np.where(at_centre[:, None], 0, Z / np.where(at_centre, 1, length)[:, None])

    @property
    def _n_features_out(self) -> int:
        return self.learner_._n_features_out
