"""The honest comparison: does any learned metric beat plain Euclidean distance on held-out data?"""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from isometry.eval import Interval, mean_interval, paired_interval
from isometry.select.candidates import Candidate, Learners, resolve, tuning_grids
from isometry.select.folds import Plan, Protocol, Split, make_plan
from isometry.select.heldout import HeldOut, choose_scoring
from isometry.select.inputs import check_gallery, check_options, check_side, check_table, make_scaler
from isometry.select.result import Comparison, MethodResult
from isometry.select.verdict import holm, p_value, write_verdict
from isometry.supervision import Labels, Supervision

INNER_SPLITS = 3
UNSCORED = "no held-out point could be scored"


def compare(
    X: Any,
    y: Any,
    learners: Learners = "all",
    *,
    scoring: str | None = None,
    n_neighbors: int = 3,
    protocol: Protocol = "closed",
    n_splits: int = 5,
    n_repeats: int = 1,
    scaler: Any = "standard",
    tune: Mapping[str, Mapping[str, Any]] | str | None = None,
    level: float = 0.95,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = 0,
    verbose: bool = False,
    name: str | None = None,
) -> Comparison:
    """Learn several metrics and say, with intervals, whether any is better than Euclidean on held-out data.

    Every candidate is fitted on the same folds, behind the same scaler, and scored on the same held-out points, so
    that differences are paired. Euclidean and Covariance always take part. With v_i and e_i the values of point i
    under a metric and under Euclidean, averaged over repeats, the difference is::

        mean_i (v_i − e_i), with its interval over points

    (over classes in the open protocol, over components of the graph for pairs). The intervals speak of new points
    under the metrics that were learned, not of new training sets.

    Parameters
    ----------
    X : (n_samples, n_features) array or DataFrame; float32 is kept
    y : class labels, or a supervision object such as `Pairs`
    learners : names from the method table, "all", "fast" (closed forms), a family, estimators, (name, estimator) pairs,
        a list that mixes these, or a dict of estimators by name
    scoring : "knn", "recall@k", "precision@k", "r_precision" or "map@r" for labels; "pair_auc" for any supervision;
        "ordering" for triplets and quadruplets. None: "knn", "pair_auc" or "ordering", by the kind of ``y``
    n_neighbors : k of "knn"
    protocol : "closed": held-out points look for neighbours in the training fold, whose classes are the same; "open":
        held-out classes were never seen in training, and held-out points look among themselves. For labels only
    n_splits, n_repeats : folds of a cross-validation, and how often it is repeated with other folds
    scaler : "standard", "minmax", "robust", "normalize", None, or a transformer; fitted inside each fold
    tune : None, "default", or a parameter grid for some of the names; searched inside each training fold
    level : of the intervals. Marks "better" and "worse" hold jointly at this level (Holm's correction)
    n_jobs : processes, as in scikit-learn; results do not depend on it. Each fit has one BLAS thread
    random_state : seed of the folds, and of learners whose own ``random_state`` is None
    verbose : show a progress bar
    name : of the data, for reports

    Returns
    -------
    Comparison : prints as a table with a verdict. After Ctrl-C it holds what had finished, and ``interrupted`` is true.
    """
    started = time.perf_counter()
    table, feature_names = check_table(X)
    side = check_side(y, table)
    check_options(protocol, side, n_splits, n_repeats, level, n_neighbors)
    scaler_ = make_scaler(scaler)
    rng = check_random_state(random_state)
    scoring = choose_scoring(scoring, side)
    plan = make_plan(side, protocol, n_splits, n_repeats, rng)
    judge = HeldOut(scoring, n_neighbors, protocol, grouped=not isinstance(side, Labels) and plan.groups is not None)
    if isinstance(side, Labels) and scoring == "knn":
        check_gallery(judge, plan, side)
    seed = int(rng.randint(2**31 - 1))
    candidates = resolve(learners, side, seed)
    grids = tuning_grids(tune, candidates, table.shape[1])
    study = _Study(table, _target(side), scaler_, judge, seed)

    outcomes, interrupted = _run(study, candidates, grids, plan, n_jobs, verbose)
    if interrupted and not outcomes:
        raise KeyboardInterrupt("interrupted before the first fit had finished")
    results, V = _collect(candidates, plan, outcomes, len(table))
    _measure(results, V, plan.groups, level)
    best = _rank(results)
    best_estimator, refit_notes, stopped = _refit(study, candidates, grids, results, best, X)
    interrupted |= stopped
    return Comparison(
        results=results,
        scoring=scoring,
        protocol=protocol,
        n_splits=plan.n_splits,
        n_repeats=n_repeats,
        level=level,
        verdict=write_verdict(results, best, judge.title, level, interrupted),
        data=_describe_data(name, table, side, feature_names),
        settings={
            "scaler": "none" if scaler is None else str(scaler),
            "tune": tune if tune is None or isinstance(tune, str) else grids,
            "n_neighbors": n_neighbors,
            "random_state": random_state if isinstance(random_state, (int, np.integer)) else None,
            "n_jobs": n_jobs,
            "versions": _versions(),
            "seconds": time.perf_counter() - started,
        },
        interrupted=interrupted,
        best=best,
        best_estimator=best_estimator,
        notes=[*plan.notes, *_failure_notes(results), *refit_notes],
    )


@dataclass(frozen=True)
class _Study:
    """What all fits share; sent to the workers."""

    X: np.ndarray
    y: Any  # (n,) codes, or a supervision object
    scaler: Any
    judge: HeldOut
    seed: int

    def pipeline(self, candidate: Candidate, params: Mapping[str, Any]) -> Pipeline:
        scaler = self.scaler if isinstance(self.scaler, str) else clone(self.scaler)
        return Pipeline([("scaler", scaler), ("learner", clone(candidate.estimator).set_params(**params))])


@dataclass
class _Outcome:
    """One fit of one method: its values (m,) on the held-out rows, or why there are none."""

    values: np.ndarray | None = None
    seconds: float = np.nan
    failure: str = ""
    unconverged: bool = False
    warnings: list[str] = field(default_factory=list)
    params: dict[str, Any] | None = None


def _run(study, candidates, grids, plan: Plan, n_jobs, verbose) -> tuple[dict[tuple[int, int], _Outcome], bool]:
    """Outcomes by (candidate, split), and whether Ctrl-C cut the run short.

    All candidates do the first fold, then the second: what has finished when it is cut short covers all of them. Fits
    are handed out one by one: in a batch, what has finished would wait for what has not.
    """
    tasks = [(c, s) for s in range(len(plan.splits)) for c in range(len(candidates))]
    calls = (
        delayed(_attempt)((c, s), study, candidates[c], plan.splits[s], grids.get(candidates[c].name)) for c, s in tasks
    )
    outcomes: dict[tuple[int, int], _Outcome] = {}
    with tqdm(total=len(tasks), desc="compare", unit="fit", disable=not verbose) as bar:
        try:
            for key, outcome in Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")(calls):
                outcomes[key] = outcome
                bar.update()
        except KeyboardInterrupt:
            return outcomes, True
    return outcomes, False


def _attempt(key, study: _Study, candidate: Candidate, split: Split, grid) -> tuple[tuple[int, int], _Outcome]:
    """Tune, fit and score one candidate on one fold. Whatever goes wrong in a learner is an outcome, not an end."""
    outcome = _Outcome()
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            params = _search(study, candidate, split.train, grid) if grid else {}
            caught.clear()
            values, outcome.seconds = _fit_and_score(study, candidate, params, split)
            outcome.values, outcome.params = values, params if grid else None
        except Exception as error:
            outcome.failure = _reason(error)
    outcome.unconverged = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    others = (str(w.message) for w in caught if not issubclass(w.category, ConvergenceWarning))
    outcome.warnings = list(dict.fromkeys(others))
    return key, outcome


def _fit_and_score(study: _Study, candidate: Candidate, params, split: Split) -> tuple[np.ndarray, float]:
    """Values (m,) of the held-out rows, and the seconds that fitting took."""
    y_train, y_test = study.y[split.train], study.y[split.test]
    X_train = study.X[split.train]
    started = time.perf_counter()
    pipeline = study.pipeline(candidate, params).fit(X_train, y_train if candidate.uses_y else None)
    seconds = time.perf_counter() - started
    Z_train, Z_test = (_embed(pipeline, rows) for rows in (X_train, study.X[split.test]))
    return study.judge.values(Z_train, y_train, Z_test, y_test), seconds


def _embed(pipeline: Pipeline, X: np.ndarray) -> np.ndarray:
    Z = np.asarray(pipeline.transform(X))
    bad = int(np.sum(~np.isfinite(Z)))
    if bad:
        raise ValueError(f"the learned map gives {bad} of {Z.size} embedding entries that are not finite")
    return Z


def _search(study: _Study, candidate: Candidate, rows: np.ndarray, grid) -> dict[str, Any]:
    """The parameters with the best inner cross-validated score, from ``rows`` alone; the first of equals."""
    y = study.y[rows]
    side = y if isinstance(y, Supervision) else Labels(y)
    protocol = study.judge.protocol
    if isinstance(side, Labels) and np.sum(side.counts > 1) < 4:
        protocol = "closed"  # too few classes to hold some out again
    plan = make_plan(side, protocol, INNER_SPLITS, 1, check_random_state(study.seed))
    judge = HeldOut(study.judge.scoring, study.judge.n_neighbors, protocol, study.judge.grouped)
    inner = _Study(study.X[rows], y, study.scaler, judge, study.seed)
    best, best_score, failure = None, -np.inf, None
    for params in ParameterGrid(grid):
        try:
            values = [_fit_and_score(inner, candidate, params, split)[0] for split in plan.splits]
            score = _mean_score(np.concatenate(values))
        except Exception as error:
            failure = error
            continue
        if score > best_score:
            best, best_score = params, score
    if best is None:
        raise ValueError(f"every parameter setting failed while tuning, the last with: {_reason(failure)}")
    return best


def _mean_score(values: np.ndarray) -> float:
    known = np.isfinite(values)
    if not known.any():
        raise ValueError(UNSCORED)
    return float(values[known].mean())


def _reason(error: BaseException | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _collect(candidates, plan: Plan, outcomes, n: int) -> tuple[list[MethodResult], list[np.ndarray]]:
    """A result for each candidate, not yet measured, and its values (repeats, n)."""
    n_repeats = plan.splits[-1].repeat + 1
    results, tables = [], []
    for c, candidate in enumerate(candidates):
        mine = {s: o for (c_, s), o in sorted(outcomes.items()) if c_ == c}
        V = np.full((n_repeats, n), np.nan)
        for s, outcome in mine.items():
            if outcome.values is not None:
                V[plan.splits[s].repeat, plan.splits[s].test] = outcome.values
        done = [o for o in mine.values() if o.values is not None]
        failures = [o.failure for o in mine.values() if o.failure]
        if done and not np.isfinite(V).any():
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
            )
        )
        tables.append(V)
    return results, tables


def _over_repeats(V: np.ndarray) -> np.ndarray:
    """Mean over the repeats (r, n) → (n,), of those that have a value."""
    known = np.isfinite(V)
    count = known.sum(axis=0)
    total = np.where(known, V, 0).sum(axis=0)
    return np.divide(total, count, out=np.full(V.shape[1], np.nan), where=count > 0)


def _measure(results: list[MethodResult], V: list[np.ndarray], groups: np.ndarray | None, level: float) -> None:
    """Scores, paired differences to Euclidean (the first result), and which of them can be relied on."""
    p, signs = [], []
    for result, values in zip(results, V, strict=True):
        known = np.isfinite(result.values)
        if not known.any():
            continue
        score = mean_interval(result.values[known], level, _at(groups, known))
        result.score = Interval(score.mean, max(score.low, 0.0), min(score.high, 1.0))
        both = np.isfinite(values) & np.isfinite(V[0])  # a failed fold takes no part, nor does Euclidean there
        a, b = (_over_repeats(np.where(both, v, np.nan)) for v in (values, V[0]))
        shared = np.isfinite(a)
        if result is results[0] or not shared.any():
            continue
        result.difference = paired_interval(a[shared], b[shared], level, _at(groups, shared))
        p.append(p_value((a - b)[shared], _at(groups, shared)))
        signs.append((result, "better" if result.difference.mean > 0 else "worse"))
    for (result, sign), sure in zip(signs, holm(p, 1 - level), strict=True):
        result.reliable = sign if sure else "unclear"


def _at(groups: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if groups is None else groups[rows]


def _rank(results: list[MethodResult]) -> str | None:
    """Sort, best first and failures last, equals as they came; return the best of the reliably better.

    Where all have been scored on the same points, the order by difference to Euclidean is that by score. A metric that
    lacks some folds must not gain rank because these were the hard ones.
    """
    results.sort(key=lambda r: np.inf if r.score is None else -round(r.difference.mean, 12) if r.difference else 0.0)
    return next((r.name for r in results if r.reliable == "better"), None)


def _refit(study: _Study, candidates, grids, results, best, X) -> tuple[Pipeline | None, list[str], bool]:
    """The best pipeline that can be fitted on all data, notes on those that cannot, and whether Ctrl-C stopped it."""
    by_name = {c.name: c for c in candidates}
    ranked = [r.name for r in results if r.score is not None]
    notes: list[str] = []
    for name in [best, *(n for n in ranked if n != best)] if best else ranked:
        candidate = by_name[name]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a fit has to say was collected in the folds
                grid = grids.get(name)
                params = _search(study, candidate, np.arange(len(study.X)), grid) if grid else {}
                table = X if hasattr(X, "columns") else study.X
                return study.pipeline(candidate, params).fit(table, study.y if candidate.uses_y else None), notes, False
        except KeyboardInterrupt:
            return None, [*notes, f"interrupted while fitting {name} on all data"], True
        except Exception as error:
            notes.append(f"{name} could not be fitted on all data ({_reason(error)}); the next best takes its place")
    return None, notes, False


def _target(side: Supervision) -> Any:
    """What learners are given: an array of codes where every row has a label, since any transformer takes that."""
    return side.codes if isinstance(side, Labels) and side.labelled.all() else side


def _describe_data(name, X, side, feature_names) -> dict[str, Any]:
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


def _failure_notes(results: list[MethodResult]) -> list[str]:
    return [
        f"{r.name} failed in {len(r.failures)} of {r.n_fits} fits and is compared on the rest: {r.failures[0]}"
        for r in results
        if r.failures and r.score is not None
    ]


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {m: version(m) for m in ("numpy", "scipy", "scikit-learn")}
