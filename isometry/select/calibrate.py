"""From a distance to the probability that two samples are the same, and to a decision that can be defended."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import text_columns
from isometry.core.distance import pair_distances, pair_sqdist
from isometry.core.graph import components
from isometry.core.progress import report
from isometry.core.warn import warn_user
from isometry.eval import Reliability, Roc, pair_auc_scorer, reliability, roc
from isometry.fixed import FixedMetric
from isometry.normalized import Normalized
from isometry.sampling import RandomPairs, lacks_negatives, with_random_negatives
from isometry.select.folds import Protocol, Split, make_plan
from isometry.select.inputs import fit_target, take_rows
from isometry.select.link import SigmoidLink, StepLink
from isometry.select.operating import HeldOutPairs, OperatingPoint
from isometry.select.strengths import of_same_strength
from isometry.select.tuples import Tuples, read_tuples, supervision_of
from isometry.spectral.euclidean import Euclidean
from isometry.supervision import Candidates, EdgeList, Labels, Pairs, Supervision, Targets, as_supervision
from isometry.trial import MIN_OPEN_CLASSES

__all__ = ["OperatingPoint", "PairVerifier"]

LINKS: dict[str, Any] = {"sigmoid": SigmoidLink, "isotonic": StepLink}
LEAST_GAIN = 0.01  # of the Brier score, as a share of it, for which the sigmoid is given up
STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")


class PairVerifier(BaseEstimator):
    """Learn a metric, the probability that two samples are the same given their distance, and where to draw the line.

    The metric is learned on all data. The probability is learned by cross-fitting: for each fold the metric is learned
    on the rest, and the pairs *within* the fold are measured, so that no pair is calibrated by a metric that has seen
    it. Where the data choose the strength of a metric, folds have the strength that all data chose. A metric that
    learns nothing (None, `Euclidean`, a frozen one) has seen no pair: pairs between folds count as well. With
    u = d² / E d², the squared distance relative to that of two random training samples::

        P(same | d) = 1 / (1 + exp(a u − b))     ("sigmoid"),  or a falling function of u without a form ("isotonic")

    A pair is accepted when its distance is at most ``threshold_``. The same held-out pairs say how often that errs,
    with intervals for as many new classes as were held out (samples, where classes stay the same): they allow for pairs
    that have a class or a sample in common, and for new classes that are easier or harder.

    Samples are rows of a table with labels, `Pairs` or other supervision in ``y``; or tuples as metric-learn has them:
    arrays (m, 2, d) with ±1 in ``y``, (m, 3, d) triplets, (m, 4, d) quadruplets; or, with a ``preprocessor``, tuples
    (m, 2) of names of samples.

    Parameters
    ----------
    learner : metric learner, Pipeline or None, default=None
        A metric learner, or a pipeline that ends with one; None: distances of X as it is, e.g. embeddings. A metric
        that is fitted already stays as it is inside scikit-learn's ``FrozenEstimator``.
    method : {"auto", "sigmoid", "isotonic"}, default="auto"
        Form of the probability. "auto": the sigmoid, unless its Brier score of pairs of other folds is worse by more
        than a hundredth, as where a few directions make up most of the distance.
    n_splits : int, default=5
        Number of folds.
    protocol : {"closed", "open"} or None, default=None
        For labels: "open" holds out whole classes, as when new identities come; "closed" holds out samples of classes
        that are known. None: open from 20 classes on, as a fit assumes too, below of which too few whole ones could be
        held out. Pairs are held out by components of their graph.
    prior : float or None, default=None
        Share of "same" among the pairs that will be asked about. None: the share among all pairs in ``y``. The
        probabilities rest on it: from labels of c classes of one size it is about 1/c.
    max_pairs : int, default=200000
        Number of held-out pairs of labelled samples that are measured, at most.
    calibration : {"cross", "train"}, default="cross"
        "cross": as above; "train": by the pairs that the metric was learned from, which flatters it, for comparison
        with other libraries or where pairs are too few to hold some out.
    preprocessor : array-like, callable or None, default=None
        The table whose row numbers the tuples hold; or a function, called once with the distinct names in the tuples,
        that returns a row of numbers for each.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and of the choice of pairs.

    Attributes
    ----------
    metric_ : metric learner
        The fitted learner.
    threshold_ : float
        Distance up to which pairs are accepted; after ``fit``, where the probability is one half.
    reject_threshold_ : float
        Distance beyond which pairs are rejected; between the two ``predict`` gives 0.
    calibrator_ : object
        The fitted link from u to the probability.
    method_ : str
        Its form, "sigmoid" or "isotonic".
    auc_ : float
        Area under the ROC curve of the held-out pairs.
    calibration_error_ : float
        Expected calibration error of the held-out pairs, by links fitted to other folds.
    prior_ : float
        Share of "same" that the probabilities assume.
    n_pairs_ : int
        Number of held-out pairs.
    protocol_ : str
        "open" where whole classes were held out, "closed" otherwise.
    n_sampled_negatives_ : int
        Number of different pairs that were drawn at random, because ``y`` held none.
    classes_ : ndarray of shape (2,)
        The values −1 and 1.

    Notes
    -----
    For decisions about pairs: the same person, the same product, a duplicate or not, with an error rate that can be
    promised. To rank candidates a metric alone will do.

    Of classes that were never seen, probabilities are as true as these classes are like the known ones: with few
    classes they are off by a few hundredths however many pairs there are, and ``calibration_error_`` does not show it.
    Embeddings are more alike after unit length about their mean: take ``Normalized(Euclidean())`` or
    ``Normalized(GMML())`` rather than None.

    `AutoMetric` chooses anew in each fold, and for known classes unless told otherwise: where whole classes are held
    out, take ``AutoMetric(protocol="open")``.

    A fit costs ``n_splits`` + 1 fits of the learner and O(``max_pairs``) distances.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from isometry import RCA, PairVerifier
    >>> X, y = load_digits(return_X_y=True)
    >>> verifier = PairVerifier(RCA(), prior=0.5, random_state=0).fit(X[:600], y[:600])
    >>> point = verifier.operating_point(fpr=0.01)
    >>> verifier.set_threshold(point.threshold).predict(X, [[0, 10], [0, 1]])
    array([ 1, -1])
    """

    threshold_: float
    reject_threshold_: float

    def __init__(
        self,
        learner: Any = None,
        *,
        method: str = "auto",
        n_splits: int = 5,
        protocol: Protocol | None = None,
        prior: float | None = None,
        max_pairs: int = 200_000,
        calibration: Literal["cross", "train"] = "cross",
        preprocessor: Any = None,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.learner = learner
        self.method = method
        self.n_splits = n_splits
        self.protocol = protocol
        self.prior = prior
        self.max_pairs = max_pairs
        self.calibration = calibration
        self.preprocessor = preprocessor
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn metric, probability and threshold.

        Parameters
        ----------
        X : array-like
            Rows (n, d); or tuples (m, 2, d), (m, 3, d) or (m, 4, d); or, with a preprocessor, names (m, 2). A
            DataFrame may have gaps and categories if the learner is a pipeline that starts with scikit-learn's
            ``ColumnTransformer`` or ``SimpleImputer``.
        y : array-like, Supervision or None, default=None
            Class labels, `Pairs` or other supervision over the rows of X, or the signs ±1 of tuples.

        Returns
        -------
        self
            The fitted verifier.
        """
        self._check_parameters()
        if self.preprocessor is not None or np.ndim(X) == 3:
            X, y = supervision_of(X, y, self.preprocessor)
        X = self._checked(X, reset=True)
        side = as_supervision(y, len(X))
        if side is None or isinstance(side, (Candidates, Targets)):
            raise ValueError("PairVerifier needs labels, pairs or other supervision that tells pairs apart as y")
        rng = check_random_state(self.random_state)
        side, prior = self._complete(side, rng)
        self.classes_ = np.array([-1, 1])
        target = fit_target(side)
        self.metric_, self.scale_ = _fit_metric(self._learner(), X, target)
        report(len(X))
        self.protocol_ = self._protocol(side)
        held_out, fold = self._hold_out(X, side, target, rng)
        if held_out.same.all() or not held_out.same.any():
            raise ValueError(
                f"no pair held out is {'different' if held_out.same.any() else 'the same'}: a fold needs two rows of a "
                f"class, and rows of two. Lower n_splits={self.n_splits} (--folds), or take another protocol"
            )
        self.prior_ = prior if prior is not None else _similar_share(side)
        weight = _with_prior(held_out.weight, held_out.same, self.prior_)
        held_out = held_out._replace(weight=weight)
        self.method_, p = self._choose_link(held_out, fold)
        self.calibrator_ = LINKS[self.method_]().fit(held_out.u, held_out.same, weight)
        self.held_out_ = held_out._replace(probability=self.calibrator_.predict(held_out.u) if p is None else p)
        self.auc_, self.n_pairs_ = self.roc_.auc, len(held_out.u)
        self.calibration_error_ = self.reliability().error
        limit = self.calibrator_.farthest(0.5)
        return self.set_threshold(np.sqrt(limit * self.scale_) if limit >= 0 else -np.inf)

    def transform(self, X: Any) -> np.ndarray:
        """Map rows to the space where the learned distance is Euclidean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, p)
            The mapped samples.
        """
        check_is_fitted(self)
        return np.asarray(self.metric_.transform(self._checked(X, reset=False)))

    def pair_distance(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Learned distances of pairs.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or an array of pairs (m, 2, d); or, with a preprocessor, names
            (m, 2).
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            The distances.
        """
        T = self._tuples(X, pairs)
        if T.rows.shape[1] != 2:
            raise ValueError(f"a distance is one of two samples, but each tuple has {T.rows.shape[1]}")
        return self._distances(T, T.rows)[0]

    def pair_score(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Minus the distance: higher for pairs that are more alike.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or an array of pairs (m, 2, d); or, with a preprocessor, names
            (m, 2).
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            Minus the distances.
        """
        return -self.pair_distance(X, pairs)

    def pair_probability(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Probability that the two samples of each pair are the same.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or an array of pairs (m, 2, d); or, with a preprocessor, names
            (m, 2).
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            The probabilities.
        """
        return self._probability(self.pair_distance(X, pairs))

    def predict_proba(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Probabilities that the samples of each pair differ, and that they are the same.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or an array of pairs (m, 2, d); or, with a preprocessor, names
            (m, 2).
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m, 2)
            The probabilities.
        """
        p = self.pair_probability(X, pairs)
        return np.stack([1 - p, p], axis=1)

    def decision_function(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Minus the distance of pairs; of triplets and quadruplets, how much farther the far ones are.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or tuples (m, 2, d), (m, 3, d) or (m, 4, d); or, with a
            preprocessor, names.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            The scores.
        """
        T = self._tuples(X, pairs)
        if T.rows.shape[1] == 2:
            return -self._distances(T, T.rows)[0]
        near, far = self._distances(T, *T.compared)
        return far - near

    def predict(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Whether the samples of each pair are the same.

        Of triplets and quadruplets: +1 where the near ones are nearer, −1 where they are farther, 0 for a tie.

        Parameters
        ----------
        X : array-like
            Rows (n, d), of which ``pairs`` lists some; or tuples (m, 2, d), (m, 3, d) or (m, 4, d); or, with a
            preprocessor, names.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            Decisions: +1 for the same, −1 for different, 0 where the distance lies in the band between the thresholds.
        """
        T = self._tuples(X, pairs)
        if T.rows.shape[1] != 2:
            near, far = self._distances(T, *T.compared)
            return np.sign(far - near).astype(int)
        (d,) = self._distances(T, T.rows)
        return np.where(d <= self.threshold_, 1, np.where(d <= self.reject_threshold_, 0, -1))

    def score(self, X: Any, y: Any = None) -> float:
        """Area under the ROC curve over the pairs of ``y``, or of tuples X.

        Of triplets and quadruplets: the share whose order is right.

        Parameters
        ----------
        X : array-like
            Rows (n, d), or tuples.
        y : array-like, Supervision or None, default=None
            Labels or `Pairs` over the rows, or the signs ±1 of tuples.

        Returns
        -------
        float
            The area, or the share.
        """
        check_is_fitted(self)
        if np.ndim(X) != 3 and self.preprocessor is None:
            return pair_auc_scorer()(self.metric_, X, y)
        T = self._tuples(X, None)
        if T.rows.shape[1] != 2:
            return float(np.mean(self.decision_function(X) > 0))
        return self._curve(X, y).auc

    def set_threshold(self, threshold: float, reject: float | None = None) -> Self:
        """Accept pairs up to a distance.

        Parameters
        ----------
        threshold : float
            The largest distance of a pair that is accepted.
        reject : float or None, default=None
            Distance beyond which pairs are rejected; None: the same.

        Returns
        -------
        self
            The verifier.
        """
        check_is_fitted(self, "metric_")
        reject = threshold if reject is None else reject
        if not (isinstance(threshold, Real) and isinstance(reject, Real) and threshold <= reject):
            raise ValueError(
                f"threshold={threshold!r} must be a number, and at most reject={reject}: pairs up to the first are "
                "accepted, and beyond the second rejected"
            )
        self.threshold_, self.reject_threshold_ = float(threshold), float(reject)
        return self

    def set_band(self, *, fpr: float, fnr: float) -> Self:
        """Accept and reject with errors of at most given shares, and leave open what lies between.

        Between the two thresholds ``predict`` gives 0. It is one threshold, if that meets both.

        Parameters
        ----------
        fpr : float
            Largest share of the different pairs that is accepted.
        fnr : float
            Largest share of the same pairs that is rejected.

        Returns
        -------
        self
            The verifier.
        """
        check_is_fitted(self)
        accept, reject = self.roc_.threshold_at_fpr(fpr), self.roc_.threshold_at_tpr(1 - fnr)
        return self.set_threshold(accept, max(accept, reject))

    def calibrate_threshold(
        self,
        X: Any = None,
        y: Any = None,
        *,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Self:
        """Set the threshold by pairs.

        Parameters
        ----------
        X : array-like or None, default=None
            Tuples, or rows with labels or `Pairs` in y, best such that the metric has not seen; None: those that
            ``fit`` held out.
        y : array-like, Supervision or None, default=None
            Signs ±1 of tuples, or labels or `Pairs` over the rows.
        strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}, default="accuracy"
            "accuracy" or "f_beta" for the highest; "max_tpr": most same pairs accepted while at least a share
            ``min_rate`` of the different ones is rejected; "max_tnr": most different pairs rejected while at least a
            share ``min_rate`` of the same ones is accepted.
        min_rate : float or None, default=None
            Share that the two last strategies keep.
        beta : float, default=1.0
            How many times as much recall counts as precision, for "f_beta".

        Returns
        -------
        self
            The verifier.
        """
        check_is_fitted(self)
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy={strategy!r} is unknown: choose one of {', '.join(map(repr, STRATEGIES))}")
        if strategy.startswith("max") and not (isinstance(min_rate, Real) and 0 <= min_rate <= 1):
            raise ValueError(f"strategy={strategy!r} needs min_rate, a share between 0 and 1; got {min_rate}")
        if strategy == "f_beta" and not (isinstance(beta, Real) and 0 <= beta < np.inf):
            raise ValueError(f"beta={beta} must be a number of at least 0")
        curve = self.roc_ if X is None else self._curve(X, y)
        if strategy in ("accuracy", "f_beta"):
            return self.set_threshold(curve.best_threshold(strategy, beta=beta))
        assert min_rate is not None  # checked above
        if strategy == "max_tnr":
            return self.set_threshold(curve.threshold_at_tpr(min_rate))
        most = np.searchsorted(curve.fpr, 1 - min_rate + 1e-12, side="right") - 1
        return self.set_threshold(curve.threshold_at_tpr(curve.tpr[most]))  # no farther than that needs

    def operating_point(
        self,
        *,
        fpr: float | None = None,
        precision: float | None = None,
        cost: tuple[float, float] | None = None,
        threshold: float | None = None,
        level: float = 0.95,
    ) -> OperatingPoint:
        """A threshold that meets a target on the held-out pairs, and how often it errs, with intervals.

        Parameters
        ----------
        fpr : float or None, default=None
            False-match rate: at most this share of the different pairs is accepted, and as many same pairs as that
            allows.
        precision : float or None, default=None
            Least share of same pairs among those accepted, if a share ``prior_`` of all pairs is the same.
        cost : tuple of two floats or None, default=None
            Prices of a false match and of a false non-match: the threshold of least expected cost.
        threshold : float or None, default=None
            A distance, to see what it does. Without any target: that in use.
        level : float, default=0.95
            Confidence of the intervals.

        Returns
        -------
        OperatingPoint
            The threshold, the probability there, and rates of errors with their intervals.
        """
        check_is_fitted(self)
        if sum(goal is not None for goal in (fpr, precision, cost, threshold)) > 1:
            raise ValueError("give one target: fpr=0.01, precision=0.99, cost=(10, 1) or threshold=1.5")
        if fpr is not None:
            at = self.roc_.threshold_at_fpr(fpr)
        elif precision is not None:
            at = self.roc_.threshold_at_precision(precision)
        elif cost is not None:
            wrong, missed = cost
            if not (wrong >= 0 and missed >= 0 and wrong + missed > 0):
                raise ValueError(f"cost={cost} must be two numbers ≥ 0, of a false match and of a false non-match")
            at = self.roc_.cheapest_threshold(wrong * (1 - self.prior_), missed * self.prior_)
        else:
            at = self.threshold_ if threshold is None else float(threshold)
        # the threshold is a distance that occurs: its square must not fall below that of the pair by rounding
        limit = at * at / self.scale_ * (1 + 1e-12) if at >= 0 else -np.inf
        p = float(self._probability(np.array([max(at, 0.0)]))[0])
        return OperatingPoint(at, p, *self.held_out_.rates(limit, level))

    @property
    def roc_(self) -> Roc:
        """ROC curve of the held-out pairs over distances; ``fpr`` and ``1 - tpr`` are the DET curve."""
        check_is_fitted(self, "held_out_")
        return self.held_out_.curve(self.scale_)

    def reliability(self, bins: int = 15) -> Reliability:
        """Stated probabilities of the held-out pairs against how often they are the same.

        The probabilities are by links fitted to other folds.

        Parameters
        ----------
        bins : int, default=15
            Number of bins of equal width.

        Returns
        -------
        Reliability
            The bins.
        """
        check_is_fitted(self, "held_out_")
        pairs = self.held_out_
        known = ~np.isnan(pairs.probability)  # pairs between folds are as good for rates, but no link is without both
        weight = _with_prior(pairs.weight[known], pairs.same[known], self.prior_)
        return reliability(pairs.probability[known], pairs.same[known], weight, bins)

    def save(self, path: Any) -> None:
        """Write the fitted verifier to one file; `isometry.load` reads it back.

        Parameters
        ----------
        path : str or path-like
            The file to write; by custom it ends in ``.safetensors``.
        """
        from isometry.io.store import save

        save(self, path)

    def _check_parameters(self) -> None:
        if self.method not in ("auto", *LINKS):
            raise ValueError(f"method={self.method!r} must be 'auto', 'sigmoid' or 'isotonic'")
        if self.calibration not in ("cross", "train"):
            raise ValueError(f"calibration={self.calibration!r} must be 'cross' or 'train'")
        if self.protocol not in (None, "closed", "open"):
            raise ValueError(f"protocol={self.protocol!r} must be 'closed', 'open' or None")
        if self.prior is not None and not 0 < self.prior < 1:
            raise ValueError(f"prior={self.prior} is the share of pairs that are the same: choose it between 0 and 1")

    def _learner(self) -> Any:
        return Euclidean() if self.learner is None else self.learner

    def _complete(self, side: Supervision, rng: np.random.RandomState) -> tuple[Supervision, float | None]:
        """Supervision with different pairs, drawn at random if there are none, and the prior where it is known."""
        self.n_sampled_negatives_ = 0
        if not lacks_negatives(side):
            return side, self.prior
        assert isinstance(side, Pairs)
        # drawn within as many parts as there are folds, so that pairs can still be held out by components
        full = with_random_negatives(side, rng, parts=self.n_splits)
        self.n_sampled_negatives_ = len(full.i) - len(side.i)
        said = "" if self.prior is not None else "; how many pairs are the same is not known, and prior=0.5 is assumed"
        warn_user(
            f"y holds no different pairs: {self.n_sampled_negatives_} pairs of rows were drawn at random in their "
            f"place, a few of which may be the same{said}"
        )
        return full, 0.5 if self.prior is None else self.prior

    def _protocol(self, side: Supervision) -> Protocol:
        if self.protocol is not None:
            return self.protocol
        return usual_protocol(side)

    def _hold_out(
        self, X: np.ndarray, side: Supervision, target: Any, rng: np.random.RandomState
    ) -> tuple[HeldOutPairs, np.ndarray]:
        """Held-out pairs of all folds, and (m, 2) the folds of their ends: one and the same, if metrics are learned."""
        identity = _identities(side, self.protocol_)
        if self.calibration == "train":
            everything = np.arange(len(X))
            splits = [Split(everything, everything, 0)]
        else:
            try:
                splits = make_plan(side, self.protocol_, self.n_splits, 1, rng).splits
            except ValueError as error:
                raise ValueError(f"{error}. Or take calibration='train', which flatters the metric") from error
        fold_of = _fold_of_identities(identity, splits)
        if self.calibration == "cross" and _learns_nothing(self._learner()) and len(splits) > 2 and fold_of is not None:
            held = np.sort(np.concatenate([split.test for split in splits]))
            pairs = self._measure(X, target, side, Split(held, held, 0), identity, 1, rng)
            return pairs, np.stack([fold_of[pairs.a], fold_of[pairs.b]], axis=1)
        parts = [self._measure(X, target, side, split, identity, len(splits), rng) for split in splits]
        fold = np.repeat(np.arange(len(parts)), [len(part.u) for part in parts])
        return HeldOutPairs(*(np.concatenate(column) for column in zip(*parts, strict=True))), np.stack([fold, fold], 1)

    def _measure(
        self,
        X: np.ndarray,
        target: Any,
        side: Supervision,
        split: Split,
        identity: np.ndarray,
        n_folds: int,
        rng: np.random.RandomState,
    ) -> HeldOutPairs:
        """The pairs within a fold, by the metric learned on the rest."""
        metric, scale = self.metric_, self.scale_
        if self.calibration == "cross" and not _learns_nothing(self._learner()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # searches end where that of all data was ended
                metric, scale = _fit_metric(
                    of_same_strength(self.metric_), take_rows(X, split.train), target[split.train]
                )
            report(len(split.train))
        X_test = take_rows(X, split.test)
        S, D = _held_out_pairs(X_test, side[split.test], max(2, self.max_pairs // n_folds), rng)
        i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
        u = _tied(pair_sqdist(np.asarray(metric.transform(X_test), dtype=np.float64), i, j) / scale)
        same = np.repeat([True, False], [len(S.i), len(D.i)])
        groups = identity[split.test]
        return HeldOutPairs(u, same, weight, groups[i], groups[j], np.full(len(u), np.nan))

    def _choose_link(self, pairs: HeldOutPairs, fold: np.ndarray) -> tuple[str, np.ndarray | None]:
        """The form of the link, and (m,) probabilities by links fitted to other folds; None if there is one fold."""
        if fold.max() == 0:
            return ("sigmoid" if self.method == "auto" else self.method), None
        if self.method != "auto":
            return self.method, _cross_probability(self.method, pairs, fold)
        p = {name: _cross_probability(name, pairs, fold) for name in LINKS}
        within = (fold[:, 0] == fold[:, 1]).nonzero()[0]
        wrong = {name: (p[name] - pairs.same)[within] ** 2 for name in p}
        weight = _with_prior(pairs.weight[within], pairs.same[within], self.prior_)
        brier = {name: np.average(wrong[name], weights=weight) for name in p}
        best = "isotonic" if brier["isotonic"] < (1 - LEAST_GAIN) * brier["sigmoid"] else "sigmoid"
        return best, p[best]

    def _tuples(self, X: Any, pairs: Any) -> Tuples:
        check_is_fitted(self)
        T = read_tuples(X, pairs, self.preprocessor)
        return T._replace(X=self._checked(T.X, reset=False))

    def _checked(self, X: Any, reset: bool) -> Any:
        """X as finite numbers; as it is where it is a table, and the learner begins by making numbers of one."""
        from isometry.io.prepare import needs_cells

        least = 2 if reset else 1
        try:
            if hasattr(X, "iloc") and needs_cells(self.learner):
                return validate_data(self, X, reset=reset, skip_check_array=True)
            return validate_data(self, X, dtype=(np.float64, np.float32), reset=reset, ensure_min_samples=least)
        except ValueError as error:
            words = text_columns(X)
            if words and reset and "could not convert" in str(error):
                raise ValueError(
                    f"{error}. {words}, or encode them first: take a pipeline of a ColumnTransformer and the metric"
                ) from error
            if words and not reset:
                raise ValueError(
                    f"{str(error).strip()}\nIf the verifier was learned from a file, read this table as that one was: "
                    "isometry.io.read_table(table, model=verifier).X"
                ) from error
            raise

    def _distances(self, T: Tuples, *rows: np.ndarray) -> list[np.ndarray]:
        """Distances (m,) of several lists of pairs (m, 2) of rows."""
        Z = np.asarray(self.metric_.transform(T.X), dtype=np.float64)
        return [pair_distances(Z, *pairs.T) for pairs in rows]

    def _probability(self, d: np.ndarray) -> np.ndarray:
        return self.calibrator_.predict(d * d / self.scale_)

    def _curve(self, X: Any, y: Any) -> Roc:
        """ROC curve over distances of pairs that are given."""
        if np.ndim(X) == 3 or self.preprocessor is not None:
            d = self.pair_distance(X)
            return roc(d, _as_same(y, len(d)))
        X = self._checked(X, reset=False)
        side = as_supervision(y, len(X))
        if side is None or isinstance(side, (Candidates, Targets)):
            raise ValueError("y must hold labels, pairs or other supervision that tells pairs apart")
        S, D = _held_out_pairs(X, side, self.max_pairs, check_random_state(self.random_state))
        i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
        (d,) = self._distances(Tuples(X, np.empty((0, 2), dtype=int)), np.stack([i, j], axis=1))
        return roc(d, np.repeat([True, False], [len(S.i), len(D.i)]), weight)


def _cross_probability(method: str, pairs: HeldOutPairs, fold: np.ndarray) -> np.ndarray:
    """(m,) probability of each pair within a fold by a link fitted to pairs of the others; NaN between folds."""
    p = np.full(len(fold), np.nan)
    for k in range(fold.max() + 1):
        mine, rest = (fold == k).all(axis=1), (fold != k).all(axis=1)
        link = LINKS[method]().fit(pairs.u[rest], pairs.same[rest], pairs.weight[rest])
        p[mine] = link.predict(pairs.u[mine])
    return p


def _learns_nothing(learner: Any) -> bool:
    """Whether a metric is the same whatever it is fitted to, but for the mean of the samples."""
    metric = learner.learner if isinstance(learner, Normalized) else learner
    return metric is None or isinstance(metric, Euclidean | FixedMetric | FrozenEstimator)


def _as_same(y: Any, m: int) -> np.ndarray:
    """(m,) booleans from the signs of pairs."""
    signs = np.asarray(y)
    if signs.shape != (m,) or not np.isin(signs, (-1, 1)).all():
        raise ValueError(f"y must hold +1 or -1 for each of the {m} pairs")
    return np.asarray(signs > 0)


def _fit_metric(learner: Any, X: np.ndarray, y: Any) -> tuple[Any, float]:
    """The fitted metric, and the mean of d² over all pairs of its training samples: 2 tr Cov(Z)."""
    metric = clone(learner).fit(X, y)
    scale = 2 * float(np.var(metric.transform(X), axis=0, ddof=1, dtype=np.float64).sum())
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(
            f"{type(learner).__name__} maps all samples to one point, or to infinity: there is no distance"
        )
    return metric, scale


def _identities(side: Supervision, protocol: Protocol) -> np.ndarray:
    """(n,) what must be drawn anew for new pairs: classes where whole classes are held out, samples of known classes,
    or what pairs say are the same samples.
    """
    if isinstance(side, Labels):
        return side.codes if protocol == "open" else np.arange(len(side))
    return components(side.similar.i, side.similar.j, len(side))


def _fold_of_identities(identity: np.ndarray, splits: list[Split]) -> np.ndarray | None:
    """The fold that holds out each identity; None where the samples of one are held out in several."""
    fold_of = np.full(int(identity.max()) + 1, -1)
    for k, split in enumerate(splits):
        if np.any(fold_of[identity[split.test]] >= 0):
            return None
        fold_of[identity[split.test]] = k
    return fold_of


def _tied(u: np.ndarray) -> np.ndarray:
    """u to 36 binary digits: of pairs that are equally far but for rounding, a threshold accepts all or none."""
    fraction, exponent = np.frexp(u)
    return np.asarray(np.ldexp(np.round(np.ldexp(fraction, 36)), exponent - 36))


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


def usual_protocol(y: Any) -> Protocol:
    """What is held out for labels (or other supervision) where nobody says: whole classes if there are many."""
    side = as_supervision(y, len(y)) if not isinstance(y, Supervision) else y
    many = isinstance(side, Labels) and np.sum(side.counts > 1) >= MIN_OPEN_CLASSES
    return "open" if many else "closed"
