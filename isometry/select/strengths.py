"""The strength that the data chose, given to learners of parts of the data."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from isometry.normalized import Normalized
from isometry.searched import SearchedMetric
from isometry.shrunk import Shrunk
from isometry.strength import AutomaticStrength


def of_same_strength(fitted: Any) -> Any:
    """An unfitted learner that goes as far from Euclidean distance as this fitted one, where the data chose how far.

    Parts of the data would choose anew, and mostly otherwise: distances under their metrics then say little about those
    under this one. A learner to which nothing was left to choose is copied as it is.
    """
    if isinstance(fitted, Pipeline):
        *before, (name, last) = fitted.steps
        steps = [(step, part if isinstance(part, str) else clone(part)) for step, part in before]
        return Pipeline([*steps, (name, of_same_strength(last))])
    if isinstance(fitted, AutomaticStrength) and fitted.reg == "auto":
        ridge = fitted.reg_ if fitted.share_ else fitted.regs[0]  # of a metric that is not used
        return Shrunk(clone(fitted).set_params(reg=ridge), strength=fitted.share_)
    if isinstance(fitted, SearchedMetric) and fitted.strength == "auto":
        return clone(fitted).set_params(strength=fitted.strength_, max_iter=max(1, fitted.n_iter_))
    if isinstance(fitted, Shrunk) and fitted.strength == "auto":
        return clone(fitted).set_params(strength=fitted.strength_)
    if isinstance(fitted, Normalized):
        return clone(fitted).set_params(learner=of_same_strength(fitted.learner_))
    return clone(fitted)
