"""Held-out pairs, and what a threshold on their distance does: rates of errors with intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isometry.eval import Interval, Roc, pair_rate_interval, roc

__all__ = ["HeldOutPairs", "OperatingPoint"]


class OperatingPoint(NamedTuple):
    """A threshold, and how often it errs on pairs held out.

    Attributes
    ----------
    threshold : float
        Pairs at most this far apart are accepted as the same.
    probability : float
        Probability that a pair at this distance is the same.
    fpr : Interval
        False-match rate: share of different pairs that are accepted.
    fnr : Interval
        False-non-match rate: share of same pairs that are not.
    precision : Interval
        Share of same pairs among the accepted ones.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import PairVerifier
    >>> X, y = load_iris(return_X_y=True)
    >>> point = PairVerifier(protocol="closed", random_state=0).fit(X, y).operating_point(fpr=0.05)
    >>> bool(round(point.fpr.mean, 6) <= 0.05)
    True
    """

    threshold: float  # pairs at most this far apart are accepted as the same
    probability: float  # that a pair at this distance is the same
    fpr: Interval  # false-match rate: share of different pairs that are accepted
    fnr: Interval  # false-non-match rate: share of same pairs that are not
    precision: Interval  # share of same pairs among the accepted ones


class HeldOutPairs(NamedTuple):
    """Pairs measured by metrics that have not seen them."""

    u: np.ndarray  # (m,) squared distance, relative to that of two random training samples
    same: np.ndarray  # (m,) booleans
    weight: np.ndarray  # (m,) under which a share ``prior`` is the same
    a: np.ndarray  # (m,) the class, identity or sample that one end belongs to
    b: np.ndarray  # (m,) and the other
    probability: np.ndarray  # (m,) by a link that was fitted to other folds

    def curve(self, scale: float) -> Roc:
        """The ROC curve over distances √(u · scale)."""
        return roc(np.sqrt(scale * self.u), self.same, self.weight)

    def rates(self, limit: float, level: float) -> tuple[Interval, Interval, Interval]:
        """False-match rate, false-non-match rate and precision of accepting u ≤ limit, with intervals.

        The intervals are those of the rates among as many new classes, identities or samples as were held out.
        """
        accepted, same = self.u <= limit, self.same
        share = {kind: self.weight * (same == kind) / self.weight[same == kind].sum() for kind in (True, False)}
        tpr, fpr = (float(share[kind] @ accepted) for kind in (True, False))
        r_tpr, r_fpr = share[True] * (accepted - tpr), share[False] * (accepted - fpr)  # (m,) what each pair adds
        prior = float(self.weight[same].sum() / self.weight.sum())
        right, wrong = prior * tpr, (1 - prior) * fpr
        precision, r_precision = 1.0, np.zeros(len(accepted))
        if right + wrong > 0:
            precision = right / (right + wrong)
            r_precision = (prior * wrong * r_tpr - (1 - prior) * right * r_fpr) / (right + wrong) ** 2
        return (
            pair_rate_interval(fpr, r_fpr, self.a, self.b, ~same, level, new=True),
            pair_rate_interval(1 - tpr, -r_tpr, self.a, self.b, same, level, new=True),
            pair_rate_interval(precision, r_precision, self.a, self.b, accepted, level, new=True),
        )
