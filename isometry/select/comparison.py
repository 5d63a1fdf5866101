"""The honest comparison: whether any learned metric beats plain Euclidean distance on held-out data."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from platform import python_version
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isometry.eval import Interval, mean_interval, paired_interval
from isometry.select.budget import Budget
from isometry.select.candidates import (
    BASELINES,
    Candidate,
    Learners,
    left_out_note,
    resolve,
    tuning_grids,
    with_unit_length,
)
from isometry.select.crossfit import automatic_choice, learned_from_all
from isometry.select.fits import UNSCORED, Fits, Study, fit_best, run_fits
from isometry.select.folds import Plan, Protocol, make_plan
from isometry.select.halves import gains_of_halves
from isometry.select.inputs import (
    COSINE,
    check_n_neighbors,
    check_options,
    check_samples,
    check_side,
    choose_scaler,
    describe_scaler,
    fit_target,
    make_scaler,
)
from isometry.select.progress import Progress
from isometry.select.result import BASELINE, Comparison, MethodResult
from isometry.select.scoring import BALANCED, FoldScorer, choose_scoring
from isometry.select.verdict import holm, p_value, write_verdict
from isometry.supervision import Labels, Supervision, Views

RESERVE = 0.2  # of a budget, where a metric is to be chosen: for what choosing is worth, and the fit to all rows
OF_CHOICE = "precision@3"  # the score that AutoMetric chooses by, of labels in the closed protocol
MAJORITY = 0.8  # of a class, from where on accuracy says little about the others


def compare(
    X: Any,
    y: Any,
    learners: Learners = "default",
    *,
    scoring: str | None = None,
    n_neighbors: int = 3,
    protocol: Protocol = "closed",
    n_splits: int = 5,
    n_repeats: int = 1,
    scaler: Any = "auto",
    tune: Mapping[str, Mapping[str, Any]] | str | None = None,
    unit: bool = False,
    level: float = 0.95,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = 0,
    budget: float | Budget | None = None,
    from_halves: bool = False,
    verbose: bool = False,
    name: str | None = None,
) -> Comparison:
    """Learn several metrics and say, with intervals, whether any is better than Euclidean on held-out data.

    Every candidate is fitted on the same folds, behind the same scaler, and scored on the same held-out points, so
    that differences are paired. Euclidean and Covariance always take part. With v_i and e_i the values of point i
    under a metric and under Euclidean, averaged over repeats, the difference is::

        mean_i (v_i − e_i), with its interval over points

    (over classes in the open protocol, over components of the graph for pairs). The intervals are about new
    points under the metrics that were learned, not about new training sets.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Array or DataFrame of numbers; float32 is kept. With a transformer as ``scaler`` its cells may be anything that
        this transformer takes.
    y : array-like or Supervision
        Class labels; targets of a regression, as `Targets` or an array of fractions, from which methods of labels learn
        by slices at quantiles; `Views`, two sets of columns that are to find each other; or another supervision object
        such as `Pairs`.
    learners : str, sequence or dict, default="default"
        Names from the method table, "default" (those that `AutoMetric` chooses among), "all", "fast" (closed forms), a
        family, estimators, (name, estimator) pairs, a list that mixes these, or a dict of estimators by name.
    scoring : str or None, default=None
        Score: "knn", "balanced_accuracy" (the same, but every class counts alike), "recall@k", "precision@k",
        "r_precision" or "map@r" for labels; "pair_auc" for any supervision; "ordering" for triplets and quadruplets;
        "knn_r2", the R² of k-NN regression, for targets; for views "view_recall@k", whether a sample's other view is
        among the k nearest of those held out, and "view_mrr", the mean of 1 / its rank, both averaged over the two
        directions. None: "knn", "pair_auc", "ordering", "knn_r2" or "view_mrr", by the kind of ``y``, and "map@r" in
        the open protocol.
    n_neighbors : int, default=3
        Number k of neighbours of "knn", "balanced_accuracy" and "knn_r2".
    protocol : {"closed", "open"}, default="closed"
        "closed": held-out points look for neighbours in the training fold, whose classes are the same; "open": held-out
        classes were never seen in training, and held-out points look among themselves. For labels only.
    n_splits : int, default=5
        Number of folds of the cross-validation.
    n_repeats : int, default=1
        How often it is repeated with other folds.
    scaler : str, transformer or None, default="auto"
        Scaler before every metric: "standard", "minmax", "robust", "normalize", None, or a transformer or pipeline,
        which sees the rows as they were given, gaps and text included; fitted inside each fold. "auto": "normalize" for
        embeddings, that is rows of unit length or, in the open protocol, many features of one scale, so that Euclidean
        ranks as the cosine of the raw vectors does; else "standard".
    tune : mapping, "default" or None, default=None
        Parameter grid for some of the names, searched inside each training fold; "default": grids of ours; None: none.
    unit : bool, default=False
        Whether to put unit length after every map (`Normalized`), so that directions are compared; Euclidean distance
        takes part both ways.
    level : float, default=0.95
        Confidence of the intervals. Marks "better" and "worse" hold jointly at this level (Holm's correction).
    n_jobs : int or None, default=None
        Number of processes, as in scikit-learn; results do not depend on it. Each fit has one BLAS thread.
    random_state : int, RandomState instance or None, default=0
        Seed of the folds, and of learners whose own ``random_state`` is None.
    budget : float, Budget or None, default=None
        Seconds that fits and scores may take; None: as long as they need. The cost of each candidate is estimated from
        fits on a few rows; those there is no time for are left out and named, as is what was stopped.
    from_halves : bool, default=False
        Whether to measure what half of the samples teach as well, so that ``automatic`` tells what choosing gains when
        learned from all samples, and not from those outside a fold.
    verbose : bool, default=False
        Whether to show a progress bar on a terminal, elsewhere a line for each fold.
    name : str or None, default=None
        Name of the data, for reports.

    Returns
    -------
    Comparison
        Prints as a table with a verdict. After Ctrl-C it holds what had finished, and ``interrupted`` is true. Metrics
        are then compared on the folds that all of them finished.

    Notes
    -----
    It costs ``n_splits`` · ``n_repeats`` fits of every candidate, and O(n² d) for the neighbours of each;
    ``budget`` ends it in time. To have a metric rather than a table, use `AutoMetric`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import compare
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare(X, y, ["RCA", "DCA"], n_splits=3)
    >>> sorted(result.name for result in found.results)
    ['Covariance', 'DCA', 'Euclidean', 'RCA']
    >>> found.scoring, found.protocol
    ('knn', 'closed')
    """
    started = time.perf_counter()
    if budget is not None and not isinstance(budget, Budget):
        budget = Budget(budget)
    samples, feature_names = check_samples(X, scaler)
    side = check_side(y, samples)
    check_options(protocol, side, n_splits, n_repeats, level, n_neighbors)
    rng = check_random_state(random_state)
    scoring = choose_scoring(scoring, side, protocol)
    scaler, embeddings = choose_scaler(scaler, samples, protocol, side)
    plan = make_plan(side, protocol, n_splits, n_repeats, rng)
    grouped = not isinstance(side, Labels) and plan.groups is not None
    scorer = FoldScorer(scoring, n_neighbors, protocol, grouped)
    if isinstance(side, Labels) and scoring in ("knn", BALANCED):
        check_n_neighbors(scorer, plan, side)
    seed = int(rng.randint(2**31 - 1))
    candidates = resolve(learners, side, seed, protocol, samples.shape[1])
    grids = tuning_grids(tune, candidates, samples.shape[1])
    if unit and isinstance(side, Views):
        raise ValueError("unit=True is not known for views: scale each view to unit length before joining them")
    if unit:
        candidates, grids = with_unit_length(candidates, grids)
    study = Study(samples, fit_target(side), make_scaler(scaler), scorer, seed)

    progress = Progress(verbose, time.monotonic if budget is None else budget.clock)
    if budget is not None and from_halves:
        budget = replace(budget, reserve=RESERVE)
    fits = run_fits(study, candidates, grids, plan, n_jobs, progress, budget)
    interrupted, shared = fits.interrupted, fits.shared()
    if interrupted and not fits.outcomes:
        raise KeyboardInterrupt("interrupted before the first fit had finished")
    results, V = _collect(candidates, plan, fits, shared, len(samples))
    _measure(results, V, plan.groups, level)
    names = [r.name for r in results]
    best = _rank(results)
    automatic = automatic_choice(names, V, plan, level, best)
    untried = all(c in fits.left_out for c, candidate in enumerate(candidates) if candidate.name not in BASELINES)
    if automatic is not None and fits.left_out and untried:  # the budget was over: no metric that learns took part
        automatic = replace(automatic, picked=BASELINE, leader=BASELINE, sure=False)
    if from_halves and automatic is not None and not (interrupted or fits.out_of_time):
        try:
            chosen = [names.index(name) for name in automatic.by_fold]
            halves = gains_of_halves(study, candidates, plan, chosen, n_jobs, budget, progress.started)
            automatic = learned_from_all(automatic, V, halves, plan, level)
        except KeyboardInterrupt:
            interrupted = True
    picked = best if automatic is None else automatic.picked  # which is the best, if there is one
    ranked = sorted((r.name for r in results if r.score is not None), key=lambda name: name != picked)
    best_estimator, best_name, fit_notes, stopped = fit_best(study, candidates, grids, ranked, X)
    interrupted |= stopped
    return Comparison(
        results=results,
        scoring=scoring,
        protocol=protocol,
        n_splits=plan.n_splits,
        n_repeats=n_repeats,
        level=level,
        verdict=_cut_short(fits, results, shared, plan) + write_verdict(results, best, scorer.title, level, automatic),
        data=_describe_data(name, samples, side, feature_names),
        settings={
            "scaler": describe_scaler(scaler),
            "tune": tune if tune is None or isinstance(tune, str) else grids,
            "n_neighbors": n_neighbors,
            "random_state": random_state if isinstance(random_state, (int, np.integer)) else None,
            "n_jobs": n_jobs,
            "versions": {"python": python_version(), **{m: version(m) for m in ("numpy", "scipy", "scikit-learn")}},
            "seconds": time.perf_counter() - started,
        },
        interrupted=interrupted,
        best=best,
        best_estimator=best_estimator,
        automatic=automatic,
        best_name=best_name,
        notes=[
            *([COSINE] if embeddings else []),
            *_view_notes(side),
            *plan.notes,
            *_majority_notes(side, scoring),
            *_failure_notes(results),
            *fits.notes,
            *left_out_note(learners, side),
            *_finer_note(side, scoring, protocol),
            *fit_notes,
        ],
    )


def _collect(
    candidates: list[Candidate], plan: Plan, fits: Fits, shared: set[int] | None, n: int
) -> tuple[list[MethodResult], list[np.ndarray]]:
    """A result for each candidate, not yet measured, and its values (repeats, n) in the ``shared`` splits."""
    n_repeats = plan.splits[-1].repeat + 1
    results, all_values = [], []
    for c, candidate in enumerate(candidates):
        mine = {s: o for (c_, s), o in sorted(fits.outcomes.items()) if c_ == c and not o.stopped}
        V = np.full((n_repeats, n), np.nan)
        for s, outcome in mine.items():
            counts = c not in fits.left_out and (shared is None or s in shared)
            if counts and outcome.values is not None:
                V[plan.splits[s].repeat, plan.splits[s].test] = outcome.values
        done = [o for o in mine.values() if o.values is not None]
        failures = [o.failure for o in mine.values() if o.failure]
        left_out = fits.left_out.get(c, "")
        if done and not left_out and not np.isfinite(V).any():
            failures.append(UNSCORED)
        results.append(
            MethodResult(
                name=candidate.name,
                estimator=candidate.estimator,
                score=None,
                difference=None,
                reliable="",
                fit_seconds=float(np.mean([o.seconds for o in done])) if done else np.nan,
                values=_over_repeats(V),
                failures=failures,
                n_fits=len(mine),
                unconverged=sum(o.unconverged for o in mine.values()),
                warnings=list(dict.fromkeys(w for o in mine.values() for w in o.warnings)),
                best_params=[o.params for o in done if o.params is not None],
                n_planned=len(plan.splits),
                left_out=left_out,
            )
        )
        all_values.append(V)
    return results, all_values


def _cut_short(fits: Fits, results: list[MethodResult], shared: set[int] | None, plan: Plan) -> str:
    """A sentence if the run did not come to its end."""
    if not (fits.interrupted or fits.out_of_time):
        return ""
    done, planned = sum(r.n_fits for r in results), sum(r.n_planned for r in results)
    what = f"Interrupted after {done} of {planned} fits" if fits.interrupted else "The budget is used up"
    folds = f"the {len(shared)} of {len(plan.splits)} folds that all metrics finished" if shared else "these"
    return f"{what}; what follows rests on {folds}. "


def _over_repeats(V: np.ndarray) -> np.ndarray:
    """Mean over the repeats (r, n) → (n,), of those that have a value."""
    known = np.isfinite(V)
    count = known.sum(axis=0)
    total = np.where(known, V, 0).sum(axis=0)
    return np.asarray(np.divide(total, count, out=np.full(V.shape[1], np.nan), where=count > 0))


def _measure(results: list[MethodResult], V: list[np.ndarray], groups: np.ndarray | None, level: float) -> None:
    """Scores, paired differences to Euclidean (the first result), and which of them can be relied on."""
    p, signs = [], []
    for result, values in zip(results, V, strict=True):
        known = np.isfinite(result.values)
        if not known.any():
            continue
        score = mean_interval(result.values[known], level, _of_rows(groups, known))
        low = score.low if score.mean < 0 else max(score.low, 0.0)  # R² has no lower bound
        result.score = Interval(score.mean, low, min(score.high, 1.0))
        both = np.isfinite(values) & np.isfinite(V[0])  # a failed fold takes no part, nor does Euclidean there
        a, b = (_over_repeats(np.where(both, v, np.nan)) for v in (values, V[0]))
        shared = np.isfinite(a)
        if result is results[0] or not shared.any():
            continue
        result.difference = paired_interval(a[shared], b[shared], level, _of_rows(groups, shared))
        p.append(p_value((a - b)[shared], _of_rows(groups, shared)))
        signs.append((result, "better" if result.difference.mean > 0 else "worse"))
    for (result, sign), sure in zip(signs, holm(p, 1 - level), strict=True):
        result.reliable = sign if sure else "unclear"


def _of_rows(groups: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if groups is None else groups[rows]


def _rank(results: list[MethodResult]) -> str | None:
    """Sort, best first and failures last, equals as they came; return the best of the reliably better.

    Where all have been scored on the same points, the order by difference to Euclidean is that by score. A metric that
    lacks some folds must not gain rank because these were the hard ones.
    """
    results.sort(key=lambda r: np.inf if r.score is None else -round(r.difference.mean, 12) if r.difference else 0.0)
    return next((r.name for r in results if r.reliable == "better"), None)


def _describe_data(name: str | None, X: Any, side: Supervision, feature_names: list[str] | None) -> dict[str, Any]:
    classes = side.classes if isinstance(side, Labels) else None
    return {
        "name": name,
        "n_samples": X.shape[0],
        "n_features": X.shape[1],
        "n_classes": None if classes is None else len(classes),
        "supervision": side.kind,
        "feature_names": feature_names,
        "class_names": None if classes is None else [str(c) for c in classes],
    }


def _view_notes(side: Supervision) -> list[str]:
    if not isinstance(side, Views) or side.widths[0] == side.widths[1]:
        return []
    return [
        f"the views have {side.widths[0]} and {side.widths[1]} columns: Euclidean compares the first "
        f"{min(side.widths)} of both, column by column, which is chance unless these mean the same"
    ]


def _majority_notes(side: Supervision, scoring: str) -> list[str]:
    """That one class has nearly all samples, so that accuracy hardly sees the others."""
    if not isinstance(side, Labels) or scoring != "knn":
        return []
    counts = np.bincount(side.codes[side.codes >= 0])
    share = counts.max() / counts.sum()
    if share < MAJORITY:
        return []
    return [
        f"{100 * share:.0f} % of the samples are of class {side.classes[counts.argmax()]}: always answering it is "
        f"right in {share:.4f} of all cases, and the accuracy of neighbours hardly tells how rare classes fare. "
        f"scoring='{BALANCED}' (--scoring {BALANCED}) lets every class count alike; a report shows each class"
    ]


def _finer_note(side: Supervision, scoring: str, protocol: Protocol) -> list[str]:
    """That `AutoMetric` by itself asks for another score, and may find a gain that this one does not show."""
    if not isinstance(side, Labels) or protocol == "open" or scoring != "knn":
        return []
    return [
        f"AutoMetric (isometry fit auto) by itself decides by {OF_CHOICE}, which counts each neighbour where a vote "
        f"shows less, and may find a gain where this found none: scoring='{OF_CHOICE}' (--scoring {OF_CHOICE}) shows "
        "its table"
    ]


def _failure_notes(results: list[MethodResult]) -> list[str]:
    return [
        f"{r.name} failed in {len(r.failures)} of {r.n_fits} fits and is compared on the rest: {r.failures[0]}"
        for r in results
        if r.failures and r.score is not None
    ]
