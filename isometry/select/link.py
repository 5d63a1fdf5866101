"""From a distance to a probability that falls with it."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

__all__ = ["SigmoidLink", "StepLink"]

# of the logistic regression: a penalty so weak that it changes no digit that matters, yet keeps the coefficients finite
# where distances separate similar from dissimilar pairs
WEAK_C = 1e3


class SigmoidLink(BaseEstimator):
    """P(same | u) = 1 / (1 + exp(slope · u − offset)), slope ≥ 0.

    Where nearer pairs are less often the same, no slope ≥ 0 fits better than none: the probability is the same for all.
    """

    def fit(self, u: np.ndarray, same: np.ndarray, weight: np.ndarray) -> Self:
        fitted = LogisticRegression(C=WEAK_C).fit(u[:, None], same, sample_weight=weight)
        self.slope_, self.offset_ = max(0.0, -float(fitted.coef_[0, 0])), float(fitted.intercept_[0])
        if self.slope_ == 0:
            self.offset_ = float(logit(np.average(same, weights=weight)))
        return self

    def predict(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(expit(self.offset_ - self.slope_ * u))

    def farthest(self, p: float) -> float:
        """The largest u with at least this probability; −inf if there is none."""
        room = self.offset_ - float(logit(p))
        if self.slope_ == 0:
            return np.inf if room >= 0 else -np.inf
        return room / self.slope_ if room >= 0 else -np.inf


class StepLink(BaseEstimator):
    """P(same | u) as a function that falls, without a form: isotonic regression, straight between its knots."""

    def fit(self, u: np.ndarray, same: np.ndarray, weight: np.ndarray) -> Self:
        fitted = IsotonicRegression(increasing=False, y_min=0, y_max=1).fit(u, same, sample_weight=weight)
        self.knots_, self.values_ = np.asarray(fitted.X_thresholds_), np.asarray(fitted.y_thresholds_)
        return self

    def predict(self, u: np.ndarray) -> np.ndarray:
        return np.interp(u, self.knots_, self.values_)

    def farthest(self, p: float) -> float:
        """The largest u with at least this probability; −inf if there is none."""
        if self.values_[0] < p:
            return -np.inf
        if self.values_[-1] >= p:
            return np.inf
        return float(np.interp(-p, -self.values_, self.knots_))
