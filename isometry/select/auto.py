"""One estimator for those who do not want to choose a method."""

from __future__ import annotations

from typing import Any, Literal, Self, cast

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if

from isometry.base import MetricLearner, text_columns
from isometry.eval import Interval
from isometry.parameters import KW_ONLY, Count, Positive, Seed, check_parameters, parameters
from isometry.select.budget import Budget
from isometry.select.candidates import BASELINES, default_learners, maps_views
from isometry.select.comparison import OF_CHOICE, compare
from isometry.select.inputs import check_samples, check_side
from isometry.select.result import BASELINE, AutomaticChoice, Comparison
from isometry.supervision import Views

__all__ = ["AutoMetric"]


@parameters
class AutoMetric(MetricLearner):
    """The best metric for these data, or Euclidean distance where none is reliably better.

    Candidates that suit the supervision are compared with Euclidean distance on the same folds, each with the strength
    that the data ask for. What choosing is worth is measured apart: in each fold the metric is taken that did best in
    the others, so that the interval is not that of the luckiest. The metric with the highest score is learned from all
    samples if it, or choosing, is reliably better than Euclidean distance on the samples held out; else distance stays
    Euclidean.

    Parameters
    ----------
    learners : str or sequence, default="auto"
        "auto": closed forms, two kernel methods with 300 landmarks, and iterative methods, each drawn back to Euclidean
        distance as far as the data ask for (by itself or by `Shrunk`), those of them that can learn from ``y``; or
        candidates as for `compare`.
    scoring : str or None, default=None
        Score, as for `compare`; None: "precision@3" for labels, "map@r" for labels in the open protocol, "knn_r2" for
        targets of a regression, "pair_auc" or "ordering" for others.
    protocol : {"closed", "open"}, default="closed"
        "closed": new samples are of known classes; "open": of classes that were never seen.
    scaler : str, transformer or None, default="auto"
        Scaler before every metric, as for `compare`.
    n_splits : int, default=5
        Number of folds.
    level : float, default=0.95
        Confidence of the interval of the verdict.
    budget : float, Budget or None, default=60.0
        Seconds that fit may take, but for the last fit to all samples; a fifth of them is kept for what choosing is
        worth. Candidates there is no time for are left out, and named in ``comparison_``; if there is time for none,
        distance stays Euclidean. None: as long as it takes.
    n_jobs : int or None, default=None
        Number of processes, as in scikit-learn; None: one.
    random_state : int, RandomState instance or None, default=0
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    pipeline_ : Pipeline
        Scaler and metric, fitted to all samples.
    best_ : str
        Name of the metric, "Euclidean" if nothing was reliably better.
    verdict_ : str
        The outcome in words.
    difference_ : Interval
        What choosing gains over Euclidean distance on new samples, and the ends of its interval. Folds learn from fewer
        samples than the final metric, so that a cross-validation mostly shows too much: what half of them teach is
        measured as well, and tells how the gain goes on. Without time for that it is the gain in the folds.
    leaderboard_ : dict of list
        Of each candidate, best first, its name, score, difference to Euclidean with its interval, and seconds of a fit.
    comparison_ : Comparison
        The whole comparison; not saved.
    view_widths_ : tuple of int or None
        Numbers of columns of both views, if ``y`` was `Views`; then ``transform`` puts both mapped views side by side,
        and ``transform_view`` maps one.

    Notes
    -----
    For a user who wants a metric, not a study: it compares, chooses, and says what choosing is worth. Where one
    method is known to suit, fit that; where the comparison itself is of interest, `compare`.

    It takes about ``budget`` seconds, whatever the data; without one, ``n_splits`` fits of every candidate and
    O(n² d) for their neighbours.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import AutoMetric
    >>> X, y = load_iris(return_X_y=True)
    >>> auto = AutoMetric(["RCA"], n_splits=3, budget=None).fit(X, y)
    >>> auto.best_ in ("RCA", "Covariance", "Euclidean")
    True
    >>> auto.transform(X).shape
    (150, 4)
    """

    learners: Any = "auto"
    _: KW_ONLY
    scoring: str | None = None
    protocol: Literal["closed", "open"] = "closed"
    scaler: Any = "auto"
    n_splits: Count = 5
    level: float = 0.95
    budget: Positive | Budget | None = 60.0
    n_jobs: int | None = None
    random_state: Seed = 0
    verbose: bool | int = False

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Compare, choose, and learn from all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        y : array-like, Supervision or None, default=None
            Class labels or a supervision object.
        **more : dict
            Refused: candidates take X and y only.

        Returns
        -------
        self
            The fitted metric.
        """
        if more:
            raise TypeError(f"AutoMetric.fit takes X and y, and no {next(iter(more))!r}")
        check_parameters(self)
        if y is None:
            raise ValueError("AutoMetric requires y to be passed, but the target y is None")
        samples, names = check_samples(X, self.scaler)
        side = check_side(y, samples)
        comparison = compare(
            X,
            y,
            default_learners(side) if isinstance(self.learners, str) and self.learners == "auto" else self.learners,
            scoring=self.scoring or (OF_CHOICE if side.kind == "labels" and self.protocol == "closed" else None),
            protocol=self.protocol,
            scaler=self.scaler,
            n_splits=self.n_splits,
            level=self.level,
            budget=self.budget,
            n_jobs=self.n_jobs,
            random_state=self.random_state,
            verbose=bool(self.verbose),
            from_halves=True,
        )
        choice = comparison.automatic
        if comparison.interrupted and comparison.best_estimator is None:
            raise KeyboardInterrupt("interrupted before a metric was fitted to all samples")
        if choice is None or comparison.best_estimator is None:
            raise ValueError(f"nothing could be compared: {comparison.verdict}")
        self.comparison_ = comparison
        self.best_, self.pipeline_ = choice.picked, comparison.best_estimator
        self.difference_ = Interval(*map(float, choice.difference))
        self.verdict_ = _in_words(choice, comparison)
        self.leaderboard_ = {
            "name": [r.name for r in comparison.results],
            "score": [r.score.mean if r.score else np.nan for r in comparison.results],
            "difference": [r.difference.mean if r.difference else np.nan for r in comparison.results],
            "low": [r.difference.low if r.difference else np.nan for r in comparison.results],
            "high": [r.difference.high if r.difference else np.nan for r in comparison.results],
            "fit_seconds": [float(r.fit_seconds) for r in comparison.results],
        }
        self.view_widths_ = side.widths if isinstance(side, Views) else None
        self.n_features_in_ = samples.shape[1]
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Map X to the space where the chosen distance is Euclidean.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, p)
            The mapped samples.
        """
        self._check_fitted()
        return self._transform(X)

    def _transform(self, X: Any) -> np.ndarray:
        try:
            Z = np.asarray(self.pipeline_.transform(X))
        except (ValueError, TypeError) as error:
            if text_columns(X) and (isinstance(error, TypeError) or "could not convert" in str(error)):
                raise ValueError(
                    f"{error}. If the metric was learned from a file, read this table as that one was: "
                    "isometry.io.read_table(table, model=metric).X"
                ) from error
            raise
        if self.view_widths_ is None or maps_views(self.pipeline_[-1]):
            return Z
        return Views(*self.view_widths_, n_samples=len(Z)).side_by_side(Z)

    @available_if(lambda self: getattr(self, "view_widths_", None) is not None)
    def transform_view(self, X: Any, view: int = 0) -> np.ndarray:
        """Map samples of which only the columns of one view are known to the common space.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_columns)
            The columns of that view.
        view : int, default=0
            Which view, 0 or 1.

        Returns
        -------
        ndarray of shape (n_samples, p)
            The mapped samples.
        """
        if view not in (0, 1):
            raise ValueError(f"view={view!r} must be 0 or 1")
        X = check_array(X, dtype=(np.float64, np.float32))
        views = Views(*cast("tuple[int, int]", self.view_widths_), n_samples=len(X))
        columns = views.columns[view]
        if X.shape[1] != len(columns):
            raise ValueError(f"view {view} has {len(columns)} columns, but X has {X.shape[1]}")
        whole = np.zeros((len(X), sum(views.widths)), dtype=X.dtype)  # neither map looks at the other view
        whole[:, columns] = X
        return np.asarray(np.hsplit(self._transform(whole), 2)[view])


def _in_words(choice: AutomaticChoice, comparison: Comparison) -> str:
    mean, low, high = choice.difference
    interval = f"{100 * comparison.level:g} % interval {low:+.4f} to {high:+.4f}"
    left_out = [r.name for r in comparison.results if r.left_out]
    tried = [r.name for r in comparison.results if r.score is not None and r.name not in BASELINES]
    missing = ""
    if left_out:
        count = f"{len(left_out)} candidate{'s' if len(left_out) > 1 else ''}"
        missing = f" There was no time for {count}: give a larger budget= (isometry fit auto --set budget=…)."
    if comparison.interrupted:
        missing += " The comparison was interrupted: this rests on what had finished."
    changes = f"changes {comparison.scoring} by {choice.measured:+.4f} on samples held out"
    if choice.of_all:
        by = f"{changes} ({choice.chance}); learned from all samples, by {mean:+.4f} on new ones ({interval})"
    else:
        by = f"{changes} ({choice.chance}, {interval})"
    if choice.picked != BASELINE:
        why = f" Here {choice.why_wide}." if choice.why_wide else ""
        taken = f"Take {choice.picked}: against Euclidean distance, choosing a metric by the other folds {by}."
        return f"{taken}{why}{missing}"
    if left_out and not tried:
        return f"Keep Euclidean distance: the budget was over before a learned metric could be compared.{missing}"
    if choice.leader == BASELINE:
        why = "no metric led by more than a standard error on samples held out"
        return f"Keep Euclidean distance: none is reliably better, and {why}.{missing}"
    return f"Keep Euclidean distance: none is reliably better. Choosing one, mostly {choice.leader}, {by}.{missing}"
