"""Verification: accept a pair as "same" when its distance is at most a threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr
from sklearn.metrics import auc, roc_curve

from isometry.eval.labels import encode, labelled
from isometry.eval.neighbors import as_embeddings

ROUNDING = 1e-12  # of shares that are sums of weights


@dataclass(frozen=True)
class Roc:
    """The ROC curve over thresholds on distance, from "accept nothing" (threshold −inf) to "accept all".

    Attributes
    ----------
    fpr : ndarray of shape (t,)
        Share of dissimilar pairs accepted.
    tpr : ndarray of shape (t,)
        Share of similar pairs accepted.
    thresholds : ndarray of shape (t,)
        Increasing distances; each occurs, save the first.
    similar_share : float
        Share of similar pairs among all, by weight.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import roc
    >>> curve = roc(np.array([0.1, 0.4, 0.3, 0.9]), np.array([True, True, False, False]))
    >>> curve.auc, curve.threshold_at_fpr(0.0)
    (0.75, 0.1)
    """

    fpr: np.ndarray  # (t,) share of dissimilar pairs accepted
    tpr: np.ndarray  # (t,) share of similar pairs accepted
    thresholds: np.ndarray  # (t,) increasing; each is a distance that occurs, save the first
    similar_share: float  # of the (weighted) pairs

    @property
    def auc(self) -> float:
        """P(d_similar < d_dissimilar) + ½ P(d_similar = d_dissimilar)."""
        return float(auc(self.fpr, self.tpr))

    @property
    def eer(self) -> float:
        """Equal error rate: where the curve, with straight lines between its points, has fpr = 1 − tpr."""
        excess = self.fpr + self.tpr - 1  # (t,) from −1 to 1, increasing
        t = int(np.argmax(excess >= 0))
        share = -excess[t - 1] / (excess[t] - excess[t - 1])
        return float(self.fpr[t - 1] + share * (self.fpr[t] - self.fpr[t - 1]))

    def threshold_at_fpr(self, fpr: float) -> float:
        """The largest threshold that accepts at most this share of dissimilar pairs; −inf if it may accept none.

        Parameters
        ----------
        fpr : float
            Share of dissimilar pairs that may be accepted.

        Returns
        -------
        float
            The threshold.
        """
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr={fpr} is a share of the dissimilar pairs: choose it between 0 and 1.")
        return float(self.thresholds[np.searchsorted(self.fpr, fpr, side="right") - 1])

    def threshold_at_tpr(self, tpr: float) -> float:
        """The smallest threshold that accepts at least this share of similar pairs; −inf if it need accept none.

        Parameters
        ----------
        tpr : float
            Share of similar pairs that must be accepted.

        Returns
        -------
        float
            The threshold.
        """
        if not 0 <= tpr <= 1:
            raise ValueError(f"tpr={tpr} is a share of the similar pairs: choose it between 0 and 1.")
        return float(self.thresholds[np.searchsorted(self.tpr, tpr - ROUNDING, side="left")])

    def threshold_at_precision(self, precision: float) -> float:
        """The largest threshold at which this share of the accepted pairs is similar.

        Parameters
        ----------
        precision : float
            Share of similar pairs among those accepted.

        Returns
        -------
        float
            The threshold.
        """
        if not 0 < precision <= 1:
            raise ValueError(f"precision={precision} is a share of the accepted pairs: choose it above 0 and at most 1")
        reached = self.precision[1:]  # (t − 1,) without the point that accepts nothing
        meets = np.flatnonzero(reached >= precision)
        if len(meets) == 0:
            raise ValueError(
                f"no threshold reaches precision={precision} on the {len(reached)} distinct distances of these pairs; "
                f"the best is {reached.max():.4f}"
            )
        return float(self.thresholds[1:][meets[-1]])

    @property
    def precision(self) -> np.ndarray:
        """(t,) share of similar pairs among those accepted; 1 where none is."""
        right, wrong = self.similar_share * self.tpr, (1 - self.similar_share) * self.fpr
        return np.divide(right, right + wrong, out=np.ones_like(right), where=right + wrong > 0)

    def best_threshold(self, criterion: str = "accuracy", *, beta: float = 1.0) -> float:
        """The threshold that does best by a criterion.

        Parameters
        ----------
        criterion : {"accuracy", "balanced", "f_beta"}, default="accuracy"
            "accuracy", or "balanced" accuracy ½ (tpr + 1 − fpr): the smallest threshold of the highest; "f_beta": the
            largest threshold of the highest (1 + β²) P R / (β² P + R), of precision P and recall R = tpr.
        beta : float, default=1.0
            How many times as much recall counts as precision.

        Returns
        -------
        float
            The threshold.
        """
        shares = {"accuracy": self.similar_share, "balanced": 0.5}
        if criterion == "f_beta":
            below = beta**2 * self.precision + self.tpr
            f = np.divide((1 + beta**2) * self.precision * self.tpr, below, out=np.zeros_like(below), where=below > 0)
            return float(self.thresholds[len(f) - 1 - np.argmax(f[::-1])])
        if criterion not in shares:
            names = ", ".join(map(repr, (*shares, "f_beta")))
            raise ValueError(f"criterion={criterion!r} is unknown: choose one of {names}.")
        similar = shares[criterion]
        return self.cheapest_threshold(1 - similar, similar)

    def cheapest_threshold(self, false_match: float, false_non_match: float) -> float:
        """The smallest threshold of least ``false_match`` · fpr + ``false_non_match`` · (1 − tpr).

        Parameters
        ----------
        false_match : float
            Price of a dissimilar pair that is accepted.
        false_non_match : float
            Price of a similar pair that is not.

        Returns
        -------
        float
            The threshold.
        """
        return float(self.thresholds[np.argmax(false_non_match * self.tpr - false_match * self.fpr)])


@dataclass(frozen=True)
class Reliability:
    """How often pairs of a stated probability are similar, in bins of equal width.

    Attributes
    ----------
    probability : ndarray of shape (b,)
        Mean of what was stated, of each bin.
    frequency : ndarray of shape (b,)
        Share of similar pairs.
    share : ndarray of shape (b,)
        Share of all pairs, by weight.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import reliability
    >>> found = reliability(np.array([0.2, 0.2, 0.8, 0.8]), np.array([False, False, True, True]), bins=2)
    >>> found.frequency.tolist(), round(found.error, 6)
    ([0.0, 1.0], 0.2)
    """

    probability: np.ndarray  # (b,) mean of what was stated
    frequency: np.ndarray  # (b,) share of similar pairs
    share: np.ndarray  # (b,) of all pairs, by weight

    @property
    def error(self) -> float:
        """Expected calibration error: Σ_b share · ``|frequency − probability|``."""
        return float(self.share @ np.abs(self.frequency - self.probability))


def reliability(
    probability: np.ndarray, similar: np.ndarray, weight: np.ndarray | None = None, bins: int = 15
) -> Reliability:
    """Stated probabilities against what was true; empty bins are left out.

    Parameters
    ----------
    probability : ndarray of shape (m,)
        Stated probabilities that pairs are similar.
    similar : ndarray of shape (m,)
        Which of the pairs are similar.
    weight : ndarray or None, default=None
        Weights of the pairs; None: all alike.
    bins : int, default=15
        Number of bins of equal width.

    Returns
    -------
    Reliability
        The bins.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import reliability
    >>> reliability(np.array([0.2, 0.2, 0.8, 0.8]), np.array([False, False, True, True]), bins=2).frequency.tolist()
    [0.0, 1.0]
    """
    probability, similar, weight = _check_pairs(probability, similar, weight)
    if probability.min() < 0 or probability.max() > 1:
        raise ValueError(f"probabilities range from {probability.min():.3g} to {probability.max():.3g}, beyond 0 and 1")
    k = np.minimum((probability * bins).astype(np.intp), bins - 1)
    total = np.bincount(k, weights=weight, minlength=bins)
    there = total > 0
    stated, true = (np.bincount(k, weights=weight * v, minlength=bins)[there] for v in (probability, similar))
    return Reliability(stated / total[there], true / total[there], total[there] / total.sum())


def roc(distance: np.ndarray, similar: np.ndarray, weight: np.ndarray | None = None) -> Roc:
    """The ROC curve of "distance ≤ threshold" as the sign of a similar pair; equal distances are accepted together.

    Parameters
    ----------
    distance : ndarray of shape (m,)
        Distances of pairs.
    similar : ndarray of shape (m,)
        Which of the pairs are similar.
    weight : ndarray or None, default=None
        Weights of the pairs; None: all alike.

    Returns
    -------
    Roc
        The curve.

    Notes
    -----
    Sorting costs O(m log m).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import roc
    >>> curve = roc(np.array([0.1, 0.4, 0.3, 0.9]), np.array([True, True, False, False]))
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    distance, similar, weight = _check_pairs(distance, similar, weight)
    fpr, tpr, score = roc_curve(similar, -distance, sample_weight=weight, drop_intermediate=False)
    return Roc(fpr, tpr, -score, float(np.average(similar, weights=weight)))


def pair_auc(distance: np.ndarray, similar: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Area under the ROC curve of distance as the sign of a similar pair.

    P(d_similar < d_dissimilar) + ½ P(d_similar = d_dissimilar): 1 is perfect, ½ is chance.

    Parameters
    ----------
    distance : ndarray of shape (m,)
        Distances of pairs.
    similar : ndarray of shape (m,)
        Which of the pairs are similar.
    weight : ndarray or None, default=None
        Weights of the pairs; None: all alike.

    Returns
    -------
    float
        The area.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import pair_auc
    >>> pair_auc(np.array([0.1, 0.4, 0.3, 0.9]), np.array([True, True, False, False]))
    0.75
    """
    distance, similar, weight = _check_pairs(distance, similar, weight)
    return auc_and_residuals(distance, weight * np.stack([similar, ~similar]))[0]


def pair_spearman(distance: np.ndarray, score: np.ndarray) -> float:
    """Spearman's rank correlation of nearness and the similarity scores of pairs.

    Parameters
    ----------
    distance : ndarray of shape (m,)
        Distances of pairs.
    score : ndarray of shape (m,)
        How similar they are said to be.

    Returns
    -------
    float
        1 if both order the pairs alike.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import pair_spearman
    >>> round(pair_spearman(np.array([0.1, 0.5, 2.0]), np.array([5.0, 3.0, 1.0])), 6)
    1.0
    """
    distance, score = np.asarray(distance, dtype=np.float64), np.asarray(score, dtype=np.float64)
    if distance.ndim != 1 or distance.shape != score.shape or len(distance) < 2:
        raise ValueError(f"distance {distance.shape} and score {score.shape} must be two vectors of one length ≥ 2.")
    if not (np.isfinite(distance).all() and np.isfinite(score).all()):
        raise ValueError("distances or scores are not finite: leave those pairs out.")
    if np.ptp(distance) == 0 or np.ptp(score) == 0:
        raise ValueError("all distances or all scores are equal: there is no order to compare.")
    return float(spearmanr(-distance, score).statistic)


def class_thresholds(Z: np.ndarray, y: Any, fpr: float = 0.01) -> np.ndarray:
    """For each class, the largest distance that accepts at most a given share of its impostors.

    Impostors of a class are pairs of a member and a row of another class. One threshold serves all classes where these
    agree: their spread is what a single threshold costs.

    Parameters
    ----------
    Z : ndarray of shape (n, p)
        Embeddings.
    y : array-like of shape (n,)
        Labels; rows without one are left out.
    fpr : float, default=0.01
        Share of impostors that may be accepted.

    Returns
    -------
    ndarray of shape (C,)
        Thresholds of the classes, in sorted order; −inf for a class that may accept none.

    Notes
    -----
    Distances cost O(n² p).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry.eval import class_thresholds
    >>> class_thresholds(np.array([[0.0], [1.0], [4.0], [6.0]]), [0, 0, 1, 1], fpr=0.5).round(6).tolist()
    [4.0, 4.0]
    """
    if not 0 <= fpr <= 1:
        raise ValueError(f"fpr={fpr} is a share of the dissimilar pairs: choose it between 0 and 1.")
    Z, codes, _ = labelled(as_embeddings(Z, "Z"), encode(y)[0])
    classes = np.unique(codes)
    if len(classes) < 2:
        raise ValueError("there is one class only: impostors need another one.")
    found = []
    for c in classes:
        d = np.sort(cdist(Z[codes == c], Z[codes != c]), axis=None)  # by difference: equal distances are equal numbers
        most = int(np.floor(fpr * d.size + 1e-9))  # pairs that may be accepted
        # equal distances are accepted together: go back to the last one that is below the first that must not be
        below = most if most == d.size else int(np.searchsorted(d, d[most]))
        found.append(d[below - 1] if below else -np.inf)
    return np.array(found)


def auc_and_residuals(distance: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """The pair AUC A, and what each pair adds to it (m,): residuals r that sum to 0 and whose spread is that of A.

    ``weight`` (2, m) holds the weights of the pairs as similar and as dissimilar ones. With s, t running over similar
    and dissimilar pairs, and [·] counting ties as one half (DeLong et al. 1988)::

        A = mean_{s,t} [d_s < d_t],    r_s = (mean_t [d_s < d_t] − A) / n_s,    r_t = (mean_s [d_s < d_t] − A) / n_t
    """
    level = np.unique(distance, return_inverse=True)[1]  # (m,) rank of the distance
    total = weight.sum(axis=1, keepdims=True)  # (2, 1) divided by last: sums of whole weights are exact
    mass = np.stack([np.bincount(level, weights=row) for row in weight])  # (2, levels)
    nearer = (np.cumsum(mass, axis=1) - mass / 2)[:, level]  # (2, m) weight of each kind that is nearer than the pair
    A = float(weight[1] @ nearer[0] / total.prod())
    w, nearer = weight / total, nearer / total
    return A, w[0] * (1 - nearer[1] - A) + w[1] * (nearer[0] - A)


def _check_pairs(
    distance: np.ndarray, similar: np.ndarray, weight: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    distance, similar = np.asarray(distance), np.asarray(similar)
    if distance.ndim != 1 or distance.shape != similar.shape:
        raise ValueError(f"distance {distance.shape} and similar {similar.shape} must be two vectors of one length.")
    if not np.isfinite(distance).all():
        raise ValueError(f"{np.sum(~np.isfinite(distance))} distances are not finite: leave those pairs out.")
    if not np.isin(similar, (0, 1)).all():
        raise ValueError("similar must be boolean: true for pairs of the same kind, false for the others.")
    similar = similar.astype(bool)
    weight = np.ones(len(similar)) if weight is None else np.asarray(weight, dtype=np.float64)
    if weight.shape != similar.shape or not (np.isfinite(weight) & (weight >= 0)).all():
        raise ValueError(f"weight {weight.shape} must hold one finite number ≥ 0 for each of the {len(similar)} pairs.")
    for kind, mask in (("similar", similar), ("dissimilar", ~similar)):
        if not weight[mask].sum() > 0:
            raise ValueError(f"there is no {kind} pair among the {len(similar)} given: verification needs both kinds.")
    return distance, similar, weight
