"""The way from Euclidean distance to any learned metric."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from sklearn.base import clone

from isometry.base import LinearMetric, MetaLearner
from isometry.core.start import mean_sqdist
from isometry.parameters import KW_ONLY, Share, parameters
from isometry.strength import Choice, Map, choose, mixture
from isometry.trial import Trial, scarcity, trial_of

__all__ = ["Shrunk"]

FOLDS = 3


@parameters
class Shrunk(MetaLearner):
    """A learned metric, drawn back to Euclidean distance as far as samples held out ask for.

    The squared distance is a mixture::

        d²(x, y) = (1 − s) |x − y|² / c₀ + s |f(x) − f(y)|² / c₁

    with f the map of the learner and c₀, c₁ the mean squared distances of the training samples before and after it. The
    strength s is the smallest of 1/4, 1/2, 3/4 and 1 that is better on samples held out than Euclidean distance by two
    and a half standard errors, and as good as the best of them within one; it is 0, and the metric Euclidean, if the
    best is not so much better.

    Parameters
    ----------
    learner : metric learner
        Any metric learner: linear, of a kernel, or deep.
    strength : float in [0, 1] or "auto", default="auto"
        Share s of the learned metric; or "auto", which takes three further fits of the learner, or one beyond 2,000
        samples.
    protocol : {"auto", "closed", "open"}, default="auto"
        For classes, which samples the strength is chosen by: "closed", samples of known classes; "open", samples of
        classes that were held out whole; "auto": open from 20 classes on.

    Attributes
    ----------
    learner_ : metric learner
        The learner, fitted to all samples.
    strength_ : float
        The share s.
    path_ : list
        Of each strength that was tried its score, its gain over Euclidean distance and the standard error of that.
    reason_ : str
        Why this strength was chosen.
    components_ : ndarray of shape (d, d)
        The map, if that of the learner is linear.

    Notes
    -----
    For any learner, when the question is whether it helps at all: where it does not, distance stays Euclidean.
    Closed forms with reg="auto" and searches with strength="auto" do the same, and better, by themselves.

    A fit costs four fits of the learner, two beyond 2,000 samples, and O(n² d) for the neighbours of samples held
    out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MMC, Shrunk
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = Shrunk(MMC(max_iter=20)).fit(X, y)
    >>> 0 <= metric.strength_ <= 1
    True
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    learner: Any
    _: KW_ONLY
    strength: Share | Literal["auto"] = "auto"
    protocol: Literal["auto", "closed", "open"] = "auto"

    def _fit(self, X: np.ndarray, side: Any) -> None:
        choice = self._choose(X, side)
        self.strength_, self.path_, self.reason_ = choice.share, choice.path, choice.reason
        self.learner_ = self._own().fit(X, side)
        self.units_ = np.array([mean_sqdist(X), mean_sqdist(self.learner_._transform(X))])  # c₀, c₁
        self.components_ = None
        if isinstance(self.learner_, LinearMetric):
            L = self.learner_.components_.astype(np.float64)
            c0, c1 = self.units_
            self.components_ = mixture(L / np.sqrt(c1), self.strength_, c0).astype(X.dtype)
        self._take_report(self.learner_)

    def _choose(self, X: np.ndarray, side: Any) -> Choice:
        if self.strength != "auto":
            return Choice(float(self.strength), 0.0, {}, "given")
        trial = trial_of(X, side, protocol=self.protocol, folds=FOLDS)
        if trial is None:
            return Choice(0.0, 0.0, {}, "Euclidean distance: too little can be held out to try the learned metric")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of the data; what holds for all of it is said by the last fit
            try:
                choice = choose(trial, [X] * len(trial.splits), self._maps(X, side, trial), regs=(0.0,))
                return choice.noting(scarcity(trial, FOLDS))
            except np.linalg.LinAlgError:
                raise  # not a matter of too few rows
            except ValueError as error:
                reason = f"Euclidean distance: a part of the data is not enough to learn from ({error})"
                return Choice(0.0, 0.0, {}, reason)

    def _own(self) -> Any:
        """The learner without a choice of strength of its own: this one makes it."""
        learner = clone(self.learner)
        return learner.set_params(strength=1.0) if getattr(learner, "strength", None) == "auto" else learner

    def _maps(self, X: np.ndarray, side: Any, trial: Trial) -> Iterator[list[Map]]:
        for split in trial.splits:
            part = None if side is None else side[split.learn]
            yield [self._own().fit(X[split.learn], part)._transform]

    def _transform(self, X: np.ndarray) -> np.ndarray:
        if self.components_ is not None:
            return X @ self.components_.T
        (c0, c1), s = self.units_, self.strength_
        return np.hstack([np.sqrt((1 - s) / c0) * X, np.sqrt(s / c1) * self.learner_._transform(X)]).astype(X.dtype)
