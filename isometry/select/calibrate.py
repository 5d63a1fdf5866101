"""From a distance to the probability that two samples are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.core.distance import pair_sqdist
from isometry.eval import Roc, pair_auc_scorer, roc
from isometry.sampling import RandomPairs
from isometry.select.folds import Protocol, Split, can_hold_out_classes, make_plan
from isometry.select.inputs import fit_target
from isometry.supervision import Candidates, EdgeList, Labels, Pairs, Supervision, Targets, as_supervision

# of the logistic regression: a penalty so weak that it changes no digit that matters, yet keeps the coefficients finite
# where distances separate similar from dissimilar pairs
WEAK_C = 1e3


class PairVerifier(BaseEstimator):
    """Learn a metric, and the probability that two samples are the same given their distance.

    The metric is learned on all data. The probability is learned by cross-fitting: for each fold the metric is learned
    on the rest, and the pairs *within* the fold are measured, so that no pair is calibrated by a metric that has seen
    it. With u = d² / E d², the squared distance relative to that of two random training samples::

        P(same | d) = 1 / (1 + exp(a u − b))     ("sigmoid"),  or a decreasing step function of u ("isotonic")

    Parameters
    ----------
    learner : a metric learner, or a pipeline that ends with one
    method : "sigmoid" or "isotonic" (which needs thousands of pairs)
    n_splits : folds
    protocol : for labels: "open" holds out whole classes, as when new identities come; "closed" holds out samples of
        classes that are known. None: open where there are at least 4 classes. Pairs are held out by components
    prior : share of "same" among the pairs that will be asked about. None: the share among all pairs in ``y``. The
        probabilities rest on it: from labels of c classes of one size it is about 1/c
    max_pairs : of labelled samples at most this many held-out pairs are measured
    random_state : seed of folds and of the choice of pairs

    Attributes
    ----------
    metric_ : the fitted learner
    calibrator_ : the fitted link from u to the probability
    roc_ : ROC curve of the held-out pairs, over minus the probability
    auc_ : area under it
    prior_ : share of "same" that the probabilities assume
    n_pairs_ : number of held-out pairs
    """

    def __init__(
        self,
        learner: Any,
        *,
        method: str = "sigmoid",
        n_splits: int = 5,
        protocol: Protocol | None = None,
        prior: float | None = None,
        max_pairs: int = 200_000,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.learner = learner
        self.method = method
        self.n_splits = n_splits
        self.protocol = protocol
        self.prior = prior
        self.max_pairs = max_pairs
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PairVerifier:
        """Learn metric and probability from class labels, or from `Pairs` or other supervision over the rows of X."""
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2)
        side = self._check(as_supervision(y, len(X)))
        rng = check_random_state(self.random_state)
        plan = make_plan(side, self._protocol(side), self.n_splits, 1, rng)
        target = fit_target(side)
        parts = [self._measure(X, target, side, split, rng) for split in plan.splits]
        u, same, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
        self.prior_ = _similar_share(side) if self.prior is None else self.prior
        weight = _with_prior(weight, same, self.prior_)
        self.calibrator_ = self._calibrator().fit(u[:, None], same, sample_weight=weight)
        self.roc_ = roc(-self._probability(u), same, weight)
        self.auc_, self.n_pairs_ = self.roc_.auc, len(u)
        self.metric_, self.scale_ = _fit_metric(self.learner, X, target)
        return self

    def predict_proba(self, X: Any, pairs: Any = None) -> np.ndarray:
        """(m,) probability that the two samples of each pair are the same.

        Either rows X (n, d) with ``pairs`` as (m, 2) row numbers or a `Pairs` object, or X as an array (m, 2, d).
        """
        check_is_fitted(self)
        if pairs is None:
            T = np.asarray(X)
            if T.ndim != 3 or T.shape[1] != 2:
                raise ValueError(f"without `pairs`, X must have shape (m, 2, d), got {T.shape}")
            X, pairs = T.reshape(-1, T.shape[2]), np.arange(2 * len(T)).reshape(-1, 2)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        i, j = (pairs.i, pairs.j) if isinstance(pairs, Pairs) else _pair_columns(pairs, len(X))
        return self._probability(_relative_sqdist(self.metric_, self.scale_, X, i, j))

    def predict(self, X: Any, pairs: Any = None, threshold: float = 0.5) -> np.ndarray:
        """(m,) whether each pair is the same: its probability is at least ``threshold``."""
        return self.predict_proba(X, pairs) >= threshold

    def threshold_for(self, *, fpr: float | None = None, precision: float | None = None) -> float:
        """The probability from which to accept, so that the held-out pairs meet a target while most are accepted.

        ``fpr``: at most this share of the different pairs is accepted. ``precision``: at least this share of the
        accepted pairs is the same, if a share ``prior_`` of all pairs is.
        """
        check_is_fitted(self)
        if fpr is not None and precision is None:
            return -self.roc_.threshold_at_fpr(fpr)
        if precision is not None and fpr is None:
            return _threshold_at_precision(self.roc_, precision)
        raise ValueError("give one target: threshold_for(fpr=0.01) or threshold_for(precision=0.99)")

    def score(self, X: Any, y: Any) -> float:
        """Area under the ROC curve over the pairs of ``y``."""
        check_is_fitted(self)
        return pair_auc_scorer()(self.metric_, X, y)

    def _check(self, side: Supervision | None) -> Supervision:
        if side is None or isinstance(side, (Candidates, Targets)):
            raise ValueError("PairVerifier needs labels, pairs or other supervision that tells pairs apart as y")
        if self.method not in ("sigmoid", "isotonic"):
            raise ValueError(f"method={self.method!r} must be 'sigmoid' or 'isotonic'")
        if self.prior is not None and not 0 < self.prior < 1:
            raise ValueError(f"prior={self.prior} is the share of pairs that are the same: choose it between 0 and 1")
        return side

    def _protocol(self, side: Supervision) -> Protocol:
        if self.protocol is not None:
            return self.protocol
        return "open" if isinstance(side, Labels) and can_hold_out_classes(side) else "closed"

    def _calibrator(self) -> LogisticRegression | IsotonicRegression:
        if self.method == "sigmoid":
            return LogisticRegression(C=WEAK_C)
        return IsotonicRegression(increasing=False, y_min=0, y_max=1, out_of_bounds="clip")

    def _probability(self, u: np.ndarray) -> np.ndarray:
        if self.method == "sigmoid":
            return np.asarray(self.calibrator_.predict_proba(u[:, None])[:, 1])
        return np.asarray(self.calibrator_.predict(u))

    def _measure(
        self, X: np.ndarray, target: Any, side: Supervision, split: Split, rng: np.random.RandomState
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """u, same and weight of the pairs within a fold, by the metric learned on the rest."""
        metric, scale = _fit_metric(self.learner, X[split.train], target[split.train])
        X_test = X[split.test]
        S, D = _held_out_pairs(X_test, side[split.test], max(2, self.max_pairs // self.n_splits), rng)
        i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
        u = _relative_sqdist(metric, scale, X_test, i, j)
        return u, np.repeat([True, False], [len(S.i), len(D.i)]), weight


def _fit_metric(learner: Any, X: np.ndarray, y: Any) -> tuple[Any, float]:
    """The fitted metric, and the mean of d² over all pairs of its training samples: 2 tr Cov(Z)."""
    metric = clone(learner).fit(X, y)
    scale = 2 * float(np.var(metric.transform(X), axis=0, ddof=1, dtype=np.float64).sum())
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(
            f"{type(learner).__name__} maps all samples to one point, or to infinity: there is no distance"
        )
    return metric, scale


def _relative_sqdist(metric: Any, scale: float, X: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return pair_sqdist(np.asarray(metric.transform(X)), i, j) / scale


def _held_out_pairs(
    X: np.ndarray, side: Supervision, max_pairs: int, rng: np.random.RandomState
) -> tuple[EdgeList, EdgeList]:
    """Similar and dissimilar pairs; of labels a sample, weighted so that it stands for all of them."""
    if not isinstance(side, Labels) or side.labelled.sum() ** 2 <= 2 * max_pairs:
        return side.similar, side.dissimilar
    drawn = RandomPairs(max_pairs // 2).draw(X, side, rng)
    n_similar, n_dissimilar = side.pair_counts
    S, D = drawn.similar, drawn.dissimilar
    return S._replace(weight=S.weight * n_similar / len(S.i)), D._replace(weight=D.weight * n_dissimilar / len(D.i))


def _similar_share(side: Supervision) -> float:
    if isinstance(side, Labels):
        similar, dissimilar = side.pair_counts
    else:
        similar, dissimilar = side.similar.weight.sum(), side.dissimilar.weight.sum()
    return float(similar / (similar + dissimilar))


def _with_prior(weight: np.ndarray, same: np.ndarray, prior: float) -> np.ndarray:
    """Weights with mean 1 under which a share ``prior`` of the pairs is the same."""
    share = np.where(same, prior / weight[same].sum(), (1 - prior) / weight[~same].sum())
    return np.asarray(len(weight) * share * weight)


def _threshold_at_precision(curve: Roc, precision: float) -> float:
    if not 0 < precision <= 1:
        raise ValueError(f"precision={precision} is a share of the accepted pairs: choose it above 0 and at most 1")
    right, wrong = curve.similar_share * curve.tpr[1:], (1 - curve.similar_share) * curve.fpr[1:]
    reached = right / (right + wrong)  # (t − 1,) without the point that accepts nothing
    meets = np.flatnonzero(reached >= precision)
    if len(meets) == 0:
        raise ValueError(
            f"no threshold reaches precision={precision} on the {len(reached)} distinct probabilities of held-out "
            f"pairs; the best is {reached.max():.4f}"
        )
    return -float(curve.thresholds[1:][meets[-1]])


def _pair_columns(pairs: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    pairs = np.asarray(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"pairs must be an integer array (m, 2) of row numbers, got {pairs.dtype} of {pairs.shape}")
    if pairs.size and not (pairs.min() >= 0 and pairs.max() < n):
        raise ValueError(f"pairs name rows {pairs.min()} to {pairs.max()}, but X has rows 0 to {n - 1}")
    return pairs[:, 0], pairs[:, 1]
