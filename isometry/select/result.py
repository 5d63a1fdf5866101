"""What a comparison of metrics found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isometry.eval.intervals import Interval
from isometry.select.folds import Protocol

if TYPE_CHECKING:
    import pandas as pd


BASELINE = "Euclidean"  # what every other metric is compared with


@dataclass
class MethodResult:
    """One candidate: how it scored on held-out data, and how that differs from Euclidean on the same points.

    Attributes
    ----------
    name : str
        Display name, unique in a comparison: "LMNN", or "NCA(n_components=2)".
    estimator : metric learner
        The learner, not fitted.
    score : Interval or None
        Mean over held-out points, with its interval; None if every fit failed.
    difference : Interval or None
        Paired difference to Euclidean; None for Euclidean itself and for failures.
    reliable : str
        "better", "worse" or "unclear" against Euclidean, corrected for the number of candidates; "" if that cannot be
        said.
    fit_seconds : float
        Seconds of a fit, the mean over folds.
    values : ndarray of shape (n,)
        Value of each held-out sample, averaged over repeats; their mean is the score; NaN: none.
    failures : list of str
        Reasons, one for each failed fit.
    n_fits : int
        Number of fits.
    unconverged : int
        Number of fits that ended with a ConvergenceWarning.
    warnings : list of str
        Other distinct warnings.
    best_params : list of dict
        Parameters of each outer fold, when tuned.
    n_planned : int
        Number of fits that were to be made; n_fits is less only after an interruption or at the end of a budget.
    left_out : str
        Why there was no time for it.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> result = next(r for r in compare(X, y, ["RCA"], n_splits=3).results if r.name == "RCA")
    >>> result.n_fits, bool(result.score.low <= result.score.mean <= result.score.high)
    (3, True)
    """

    name: str  # display name, unique in a comparison: "LMNN", or "NCA(n_components=2)"
    estimator: Any  # the unfitted learner
    score: Interval | None  # mean over held-out points, with its interval; None if every fit failed
    difference: Interval | None  # paired difference to Euclidean; None for Euclidean itself and for failures
    reliable: str  # "better", "worse" or "unclear" against Euclidean, corrected for the number of candidates; "" if n/a
    fit_seconds: float  # mean over folds
    values: np.ndarray  # (n,) value of each held-out sample, averaged over repeats; their mean is the score; NaN: none
    failures: list[str] = field(default_factory=list)  # reasons, one for each failed fit
    n_fits: int = 0
    unconverged: int = 0  # fits that ended with a ConvergenceWarning
    warnings: list[str] = field(default_factory=list)  # other distinct warnings
    best_params: list[dict[str, Any]] = field(default_factory=list)  # per outer fold, when tuned
    n_planned: int = 0  # fits that were to be made; n_fits is less only after an interruption or at the end of a budget
    left_out: str = ""  # why there was no time for it

    @property
    def complete(self) -> bool:
        """Whether all fits that were to be made were made."""
        return self.n_fits >= self.n_planned

    @property
    def only_alone(self) -> bool:
        """Whether its own interval leaves out zero, and yet too many metrics were tried to rely on that."""
        d = self.difference
        return self.reliable == "unclear" and d is not None and (d.low > 0 or d.high < 0)

    @property
    def why_unscored(self) -> str:
        """Why there is no score."""
        if self.left_out:
            return f"left out: {self.left_out}"
        return f"failed: {self.failures[0]}" if self.failures else "not run: interrupted"


@dataclass
class AutomaticChoice:
    """What choosing the best metric is worth: in each fold the one that did best in the others."""

    picked: str  # the leader if it, or choosing, is reliably better on samples held out; else "Euclidean"
    leader: str  # the metric that did best in all folds
    difference: Interval  # paired difference of the choices to Euclidean
    by_fold: list[str]  # what was chosen in each fold
    measured: float  # its mean on the samples held out, which `difference` may go beyond
    p: float  # two-sided, of "choosing gains nothing", on the samples held out
    sure: bool = False  # whether the comparison finds what was picked reliably better, of as many as were tried
    of_all: bool = False  # whether the difference allows for learning from all samples, of which folds lack some

    @property
    def chance(self) -> str:
        """The p-value in words."""
        return f"p = {self.p:.2g}" if self.p >= 1e-4 else "p < 0.0001"

    @property
    def why_wide(self) -> str:
        """Words for an interval that holds 0 though a metric was picked."""
        if self.picked == BASELINE or self.difference.low > 0:
            return ""
        if self.sure:
            return f"{self.picked} by itself is reliably better, allowing for how many were tried"
        return "p is about the samples held out, the interval allows for other samples to learn from as well"

    def __str__(self) -> str:
        d = self.difference
        gap = f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
        outcome = f"take {self.picked}" if self.picked != BASELINE else "keep Euclidean"
        why = f" ({self.why_wide})" if self.why_wide else ""
        what = "AutoMetric, which takes in each fold what was best in the others"
        return f"{what}: {gap} against Euclidean, {self.chance}{why}; {outcome}"


@dataclass
class Comparison:
    """The outcome of `compare`. Printing it shows the table and the verdict.

    Attributes
    ----------
    results : list of MethodResult
        Candidates, best first, failures last.
    scoring : str
        Name of the score: "knn", "map@r", "recall@1", "pair_auc", ….
    protocol : {"closed", "open"}
        Whether held-out samples were of known classes.
    n_splits : int
        Number of folds.
    n_repeats : int
        How often the cross-validation was repeated.
    level : float
        Confidence of the intervals.
    verdict : str
        The outcome in one or two sentences.
    data : dict
        What was compared: name, n_samples, n_features, n_classes, supervision, feature_names, class_names.
    settings : dict
        How: scaler, tune, random_state, n_jobs, versions, seconds.
    interrupted : bool
        Whether it was ended before its time.
    best : str or None
        Name of the reliably best metric; None if none is.
    best_estimator : Pipeline or None
        Scaler and learner of ``best_name``, fitted on all data.
    best_name : str or None
        The name in ``best``, or what `AutoMetric` takes, which may be Euclidean; the next best if that could not be
        fitted.
    automatic : AutomaticChoice or None
        What choosing the best is worth; None if nothing was scored.
    notes : list of str
        What the reader should know about folds, failures and data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare(X, y, ["RCA"], n_splits=3)
    >>> list(found.to_frame().columns)[:3]
    ['method', 'score', 'low']
    >>> found.best_name in ("RCA", "Covariance", "Euclidean")
    True
    """

    results: list[MethodResult]  # best first, failures last
    scoring: str  # "knn", "map@r", "recall@1", "pair_auc", ...
    protocol: Protocol  # "closed" or "open"
    n_splits: int
    n_repeats: int
    level: float  # of the intervals
    verdict: str  # one or two sentences
    data: dict[str, Any]  # name, n_samples, n_features, n_classes, supervision, feature_names, class_names
    settings: dict[str, Any]  # scaler, tune, random_state, n_jobs, versions, seconds
    interrupted: bool = False
    best: str | None = None  # name of the reliably best metric, None if none is
    best_estimator: Any = None  # pipeline (scaler, learner) of `best_name`, fitted on all data
    best_name: str | None = None  # `best`, or what AutoMetric takes; the next best if that could not be fitted
    automatic: AutomaticChoice | None = None  # what choosing the best is worth; None if nothing was scored
    notes: list[str] = field(default_factory=list)  # what the reader should know about folds, failures and data

    def __getitem__(self, name: str) -> MethodResult:
        for r in self.results:
            if r.name == name:
                return r
        raise KeyError(f"no metric called {name!r} was compared; there are {', '.join(r.name for r in self.results)}")

    def to_frame(self) -> pd.DataFrame:
        """The table as a pandas DataFrame.

        Returns
        -------
        DataFrame
            One row for each candidate.
        """
        import pandas

        nothing = Interval(np.nan, np.nan, np.nan)
        columns = ["method", "score", "low", "high", "difference", "difference_low", "difference_high"]
        columns += ["against_euclidean", "fit_seconds", "failed_fits", "unconverged_fits", "failure"]
        rows = []
        for r in self.results:
            numbers = [*(r.score or nothing), *(r.difference or nothing), r.reliable, r.fit_seconds]
            rows.append([r.name, *numbers, len(r.failures), r.unconverged, "".join(r.failures[:1])])
        return pandas.DataFrame(rows, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """What was found, for programs, without estimators and values.

        Returns
        -------
        dict
            The rows of the table, verdict and settings.
        """
        facts = ("name", "reliable", "fit_seconds", "n_fits", "n_planned", "unconverged", "left_out", "failures")
        rows = []
        for r in self.results:
            intervals = {"score": r.score, "difference": r.difference}
            rows.append(
                {k: None if v is None else v._asdict() for k, v in intervals.items()}
                | {k: getattr(r, k) for k in facts}
            )
        about = ("scoring", "protocol", "n_splits", "n_repeats", "level", "verdict", "best", "best_name", "interrupted")
        choice = self.automatic
        automatic = None if choice is None else {**vars(choice), "difference": choice.difference._asdict()}
        more = {"automatic": automatic, "data": self.data, "settings": self.settings, "notes": self.notes}
        return {**{k: getattr(self, k) for k in about}, "results": rows, **more}

    def __str__(self) -> str:
        width = max(len(r.name) for r in self.results)
        percent = round(100 * self.level)
        wide = max(7, len(self.scoring))
        heads = f"{self.scoring:>{wide}}  {f'{percent} % interval':>16}  {'− Euclidean':>26}  {'fit':>9}"
        lines = [f"{'metric':<{width}}  {heads}"]
        for r in self.results:
            if r.score is None:
                lines.append(f"{r.name:<{width}}  {r.why_unscored}")
                continue
            s, d = r.score, r.difference
            gap = f"{d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]" if d else ""
            mark = {"better": " *", "worse": " †"}.get(r.reliable, " ‡" if r.only_alone else "")
            mark += "" if r.complete else f" ({r.n_fits} of {r.n_planned} fits)"
            score = f"{s.mean:{wide}.4f}  [{s.low:.4f}, {s.high:.4f}]"
            lines.append(f"{r.name:<{width}}  {score}  {gap:>26}  {r.fit_seconds:7.3f} s{mark}")
        lines.append("* reliably better than Euclidean, † reliably worse (corrected for the number of candidates)")
        lines += [str(self.automatic)] * (self.automatic is not None)
        lines += [f"‡ {self.about_marks}"] if any(r.only_alone for r in self.results) else []
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join([*lines, "", self.verdict])

    def transformed_names(self) -> list[str] | None:
        """Names of the features that metrics see, after the scaler.

        Returns
        -------
        list of str or None
            The names; None where the scaler does not tell them.
        """
        names = self.data.get("feature_names")
        scaler: Any = None if self.best_estimator is None or len(self.best_estimator) < 2 else self.best_estimator[0]
        if names is None or not hasattr(scaler, "get_feature_names_out"):
            return names
        try:
            return [str(c) for c in scaler.get_feature_names_out(names)]
        except (AttributeError, ValueError):  # a step of a pipeline of one's own may have none, or others
            return names

    @property
    def why_saved(self) -> str:
        """Why `best_estimator` is the metric that it is."""
        if self.best_name == self.best:
            return "reliably better than Euclidean"
        if self.best is not None:
            return f"{self.best} could not be fitted on all rows"
        if self.best_name == BASELINE:
            return "no metric is reliably better: this is the preparation of the features alone"
        return "no metric alone is reliably better than Euclidean, but choosing one by the other folds is"

    @property
    def about_marks(self) -> str:
        """Why a mark may say "unclear" beside an interval without zero."""
        tried = sum(r.difference is not None for r in self.results)
        return (
            "unclear though the interval leaves out zero: the interval is about this metric alone, the mark allows for "
            f"the {tried} that were tried, of which one may seem better or worse by chance (Holm)"
        )

    def report(self, path: str | Path, X: Any = None, y: Any = None) -> Path:
        """Write the report page.

        Parameters
        ----------
        path : str or path-like
            An ``.html`` file, or a folder, which gets an ``index.html``.
        X : array-like of shape (n, d) or None, default=None
            The data that were compared, for the pictures.
        y : array-like, Supervision or None, default=None
            Their labels or other supervision.

        Returns
        -------
        Path
            Where the page is.
        """
        from isometry.report import write_report

        return write_report(self, path, X=X, y=y)
