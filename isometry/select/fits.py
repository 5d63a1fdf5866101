"""Fits of all candidates on all folds, with their scores on the held-out rows; and the fit of the best on all rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from isometry.base import MetricLearner
from isometry.core.progress import OutOfTime, time_limit
from isometry.kernelized import KernelMetric
from isometry.moments import MomentsMetric
from isometry.select.budget import DEFAULT_BUDGET, Budget, Costs, Schedule, extrapolate
from isometry.select.candidates import BASELINES, Candidate, Grid, maps_views
from isometry.select.folds import Plan, Split, can_hold_out_classes, make_plan
from isometry.select.inputs import take_rows
from isometry.select.progress import Progress
from isometry.select.scoring import FoldScorer
from isometry.supervision import Labels, Supervision, Views

INNER_SPLITS = 3
UNSCORED = "no held-out point could be scored"
MANY_POINTS = 1000  # held out at a time: where time is short, two such folds are enough for a verdict
ENOUGH_FOLDS = 2
PILOT_STEPS = 20  # batches of a network
PILOT_ROWS = 200  # of the smallest fit that tells what a candidate will cost
PILOT_SECONDS = 0.1  # a fit that took less is followed by one on twice as many rows
PILOT_SHARE = 0.1  # of the budget
PILOT_LIMIT = 1.0  # seconds after which such a fit is stopped
KERNEL_EXPONENT = (
    3.0  # their eigenvectors take O(n³), which small fits do not show yet, and no iteration ends them early
)
LANDMARKS_EXPONENT = 1.0  # of kernels that see all rows through a fixed number of them
FEW_STEPS = {"max_epochs": 1, "min_steps": PILOT_STEPS}
Key = tuple[int, int]  # candidate, split
Clock = Callable[[], float]
Limit = tuple[Clock, float]  # seconds that a fit may take by this clock


@dataclass(frozen=True)
class Study:
    """What all fits share; sent to the workers."""

    X: Any  # (n, d) array, or a DataFrame if the scaler is to see one
    y: Any  # (n,) codes, or a supervision object
    scaler: Any
    scorer: FoldScorer
    seed: int


def build_pipeline(scaler: Any, learner: Any, params: Mapping[str, Any]) -> Pipeline:
    """Copies of a scaler ("passthrough" for none) and of a learner with these parameters."""
    scaler = scaler if isinstance(scaler, str) else clone(scaler)
    return Pipeline([("scaler", scaler), ("learner", clone(learner).set_params(**params))])


@dataclass
class Outcome:
    """One fit of one method: its values (m,) on the held-out rows, or why there are none."""

    values: np.ndarray | None = None
    seconds: float = np.nan  # of fitting
    failure: str = ""
    unconverged: bool = False
    warnings: list[str] = field(default_factory=list)
    params: dict[str, Any] | None = None
    cost: float = 0.0  # seconds of fitting, tuning and scoring
    stopped: bool = False  # it took longer than it was allowed


@dataclass
class Fits:
    """What came of all fits."""

    outcomes: dict[Key, Outcome] = field(default_factory=dict)
    interrupted: bool = False  # by Ctrl-C
    left_out: dict[int, str] = field(default_factory=dict)  # candidates that there was no time for, and why
    out_of_time: bool = False  # the budget ended before the last fold did
    notes: list[str] = field(default_factory=list)

    def shared(self) -> set[int] | None:
        """After an interruption: the splits that all candidates finished that finished any; None if it ran to the end.

        Scores of different folds cannot be compared: one of them may be the easiest.
        """
        if not (self.interrupted or self.out_of_time):
            return None
        finished: dict[int, set[int]] = {}
        for c, s in self.outcomes:
            if c not in self.left_out:
                finished.setdefault(c, set()).add(s)
        return set.intersection(*finished.values()) or None if finished else None


def run_fits(
    study: Study,
    candidates: list[Candidate],
    grids: Mapping[str, Grid],
    plan: Plan,
    n_jobs: int | None,
    progress: Progress,
    budget: Budget | None = None,
) -> Fits:
    """Fit all candidates on all folds, the cheapest first, or as many as the budget has time for.

    All candidates do the first fold, then the second: what has finished when the run is cut short covers all of them.
    Fits are handed out one by one: in a batch, what has finished would wait for what has not.
    """
    fits = Fits()
    costs = Costs(len(candidates), effective_n_jobs(n_jobs))
    try:
        if budget is not None or progress.verbose:
            costs.expected = _expected_costs(study, candidates, grids, plan.splits[0], budget, progress)
        if budget is None:
            tasks = [(c, s) for s in range(len(plan.splits)) for c in costs.order()]
            progress.begin(candidates, len(plan.splits), costs, tasks)
            calls = (_call(study, candidates, grids, plan, key, None) for key in tasks)
            for key, _ in _run(calls, n_jobs, fits, costs):
                progress.done(key)
        else:
            _run_within(budget, study, candidates, grids, plan, n_jobs, fits, costs, progress)
    except KeyboardInterrupt:
        fits.interrupted = True
    finally:
        progress.end()
    return fits


def _run_within(
    budget: Budget,
    study: Study,
    candidates: list[Candidate],
    grids: Mapping[str, Grid],
    plan: Plan,
    n_jobs: int | None,
    fits: Fits,
    costs: Costs,
    progress: Progress,
) -> None:
    """Fold by fold, so that before each one candidates can be given up."""
    names = [c.name for c in candidates]
    n_splits = len(plan.splits)
    always = frozenset(c for c, name in enumerate(names) if name in BASELINES)
    unstoppable = frozenset(c for c, candidate in enumerate(candidates) if not _reports_iterations(candidate)) - always
    many = min(len(split.test) for split in plan.splits) >= MANY_POINTS
    needed = min(ENOUGH_FOLDS, n_splits) if many else n_splits
    networks = frozenset(c for c, candidate in enumerate(candidates) if _steps(candidate))
    schedule = Schedule(budget, costs, needed, always, unstoppable, fits.left_out, progress.started, networks)
    for s in range(n_splits):
        if s >= needed and not schedule.has_time_for_a_fold():
            fits.out_of_time = True
            break
        schedule.trim(s)
        for c in fits.left_out:
            progress.give_up(c)
        batch = schedule.kept()
        if s == 0:
            tasks = [(c, f) for f in range(n_splits) for c in batch]
            progress.begin(candidates, n_splits, costs, tasks, budget.seconds)

        def calls(s: int = s, batch: list[int] = batch) -> Iterator[Any]:
            for c in batch:
                allowed = schedule.allowance(c, s)
                if allowed > 0:
                    yield _call(study, candidates, grids, plan, (c, s), (budget.clock, allowed))

        for (c, _), outcome in _run(calls(), n_jobs, fits, costs):
            if outcome.stopped:
                schedule.give_up(c, outcome.cost)
                progress.give_up(c)
            progress.done((c, s))
        progress.end_fold(s)
        missing = [c for c in batch if (c, s) not in fits.outcomes]
        if s == 0:
            fits.left_out.update({c: "no time was left" for c in missing if c not in fits.left_out})
        else:
            fits.out_of_time = bool(missing)
        if fits.out_of_time:
            break
    fits.notes += schedule.note(names)


def _call(
    study: Study, candidates: list[Candidate], grids: Mapping[str, Grid], plan: Plan, key: Key, limit: Limit | None
) -> Any:
    candidate = candidates[key[0]]
    return delayed(_attempt)(key, study, candidate, plan.splits[key[1]], grids.get(candidate.name), limit)


def _run(calls: Iterator[Any], n_jobs: int | None, fits: Fits, costs: Costs) -> Iterator[tuple[Key, Outcome]]:
    for key, outcome in Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")(calls):
        fits.outcomes[key] = outcome
        costs.add(key[0], outcome.cost)
        yield key, outcome


def _expected_costs(
    study: Study,
    candidates: list[Candidate],
    grids: Mapping[str, Grid],
    split: Split,
    budget: Budget | None,
    progress: Progress,
) -> dict[int, float]:
    """Seconds of one fit of each candidate, from fits on a few of the rows; none where all rows are few."""
    if len(split.train) <= PILOT_ROWS or not isinstance(study.y, np.ndarray):
        return {}  # parts of pairs and triplets may hold none of them
    clock = time.monotonic if budget is None else budget.clock
    until = clock() + PILOT_SHARE * (DEFAULT_BUDGET if budget is None else budget.seconds)
    expected: dict[int, float] = {}
    for c, candidate in enumerate(candidates):
        if candidate.name in BASELINES or isinstance(candidate.estimator, MomentsMetric):
            continue  # one pass over the rows and a little algebra: the first of all in any case
        if clock() > until and _reports_iterations(candidate):
            continue
        progress.say_now(f"estimating the cost of {candidate.name}")
        steps = _steps(candidate)
        if steps:  # the first of them takes much longer, and is not counted
            candidate = candidate._replace(estimator=clone(candidate.estimator).set_params(**FEW_STEPS))
            sizes, seconds = [_pilot(study, candidate, split, clock) for _ in range(2)][-1]
        else:
            sizes, seconds = _pilot(study, candidate, split, clock)
        if sizes:
            n_fits = 1 + INNER_SPLITS * len(ParameterGrid(grids[candidate.name])) if candidate.name in grids else 1
            n = len(split.train)
            one = seconds[-1] * steps(n) / PILOT_STEPS if steps else None
            expected[c] = n_fits * (one or extrapolate(sizes, seconds, n, _exponent(candidate)))
    return expected


def _is_kernel_method(candidate: Candidate) -> bool:
    return isinstance(candidate.estimator, KernelMetric)


def _exponent(candidate: Candidate) -> float | None:
    """Of the number of rows in the cost of a fit, where it is known and few rows do not show it."""
    if _is_kernel_method(candidate):
        return LANDMARKS_EXPONENT if candidate.estimator.landmarks else KERNEL_EXPONENT
    return None


def _steps(candidate: Candidate) -> Callable[[int], float] | None:
    """Batches that training on n rows takes, if the candidate is a network: few rows are gone through many times."""
    params = candidate.estimator.get_params(deep=False)
    if not {"max_epochs", "min_steps", "classes_per_batch", "samples_per_class"} <= params.keys():
        return None
    size = params["classes_per_batch"] * params["samples_per_class"]
    return lambda n: max(params["max_epochs"] * n / size, params["min_steps"])


def _reports_iterations(candidate: Candidate) -> bool:
    """Whether a fit can be stopped: learners of this package report each iteration, or take no time."""
    return isinstance(candidate.estimator, MetricLearner) and not _is_kernel_method(candidate)


def _pilot(study: Study, candidate: Candidate, split: Split, clock: Clock) -> tuple[list[int], list[float]]:
    """Numbers of rows, and the seconds that fitting and scoring took: twice as many rows as long as that is quick."""
    rng = check_random_state(study.seed)
    train, test = rng.permutation(split.train), rng.permutation(split.test)
    sizes: list[int] = []
    seconds: list[float] = []
    m = PILOT_ROWS
    while m <= len(train) and (not sizes or seconds[-1] <= PILOT_SECONDS):
        part = Split(np.sort(train[:m]), np.sort(test[: max(2, m * len(test) // len(train))]))
        started = clock()
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with time_limit(lambda: clock() - started > PILOT_LIMIT):  # noqa: B023 it is called inside the loop only
                    fit_and_score(study, candidate, {}, part)
            except OutOfTime:
                return [*sizes, m], [*seconds, max(clock() - started, PILOT_LIMIT)]
            except Exception:  # few rows may lack what a learner needs: the fit on all of them will tell
                break
        sizes.append(m)
        seconds.append(clock() - started)
        m *= 2
    return sizes, seconds


def _attempt(
    key: Key, study: Study, candidate: Candidate, split: Split, grid: Grid | None, limit: Limit | None
) -> tuple[Key, Outcome]:
    """Tune, fit and score one candidate on one fold. An error in a learner is recorded and does not end the run."""
    outcome = Outcome()
    clock, allowed = limit or (time.monotonic, np.inf)
    started = clock()
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with time_limit(lambda: clock() - started > allowed):
                params = _search(study, candidate, split.train, grid) if grid else {}
                caught.clear()
                outcome.values, outcome.seconds = fit_and_score(study, candidate, params, split)
                outcome.params = params if grid else None
        except OutOfTime:
            outcome.stopped = True
        except Exception as error:
            outcome.failure = describe_error(error)
    outcome.cost = clock() - started
    outcome.unconverged = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    others = (str(w.message) for w in caught if not issubclass(w.category, ConvergenceWarning))
    outcome.warnings = list(dict.fromkeys(others))
    return key, outcome


def fit_and_score(
    study: Study, candidate: Candidate, params: Mapping[str, Any], split: Split
) -> tuple[np.ndarray, float]:
    """Values (m,) of the held-out rows, and the seconds that fitting took."""
    y_train, y_test = study.y[split.train], study.y[split.test]
    X_train = take_rows(study.X, split.train)
    started = time.perf_counter()
    pipeline = build_pipeline(study.scaler, candidate.estimator, params)
    with study.scorer.aimed_at():
        pipeline.fit(X_train, y_train if candidate.uses_y else None)
    seconds = time.perf_counter() - started
    Z_train, Z_test = (_embed(pipeline, rows) for rows in (X_train, take_rows(study.X, split.test)))
    if isinstance(y_test, Views) and not maps_views(candidate.estimator):
        Z_train, Z_test = y_train.side_by_side(Z_train), y_test.side_by_side(Z_test)
    return study.scorer.values(Z_train, y_train, Z_test, y_test), seconds


def _embed(pipeline: Pipeline, X: Any) -> np.ndarray:
    Z = np.asarray(pipeline.transform(X))
    bad = int(np.sum(~np.isfinite(Z)))
    if bad:
        raise ValueError(f"the learned map gives {bad} of {Z.size} embedding entries that are not finite")
    return Z


def _search(study: Study, candidate: Candidate, rows: np.ndarray, grid: Grid) -> dict[str, Any]:
    """The parameters with the best inner cross-validated score, from ``rows`` alone; the first of equals."""
    y = study.y[rows]
    side = y if isinstance(y, Supervision) else Labels(y)
    protocol = study.scorer.protocol
    if isinstance(side, Labels) and not can_hold_out_classes(side):
        protocol = "closed"
    plan = make_plan(side, protocol, INNER_SPLITS, 1, check_random_state(study.seed))
    inner = replace(study, X=take_rows(study.X, rows), y=y, scorer=replace(study.scorer, protocol=protocol))
    best: dict[str, Any] | None = None
    best_score, failure = -np.inf, ""
    for params in ParameterGrid(grid):
        try:
            values = [fit_and_score(inner, candidate, params, split)[0] for split in plan.splits]
            score = _mean_of_known(np.concatenate(values))
        except OutOfTime:
            raise
        except Exception as error:
            failure = describe_error(error)
            continue
        if score > best_score:
            best, best_score = params, score
    if best is None:
        raise ValueError(f"every parameter setting failed while tuning, the last with: {failure}")
    return best


def _mean_of_known(values: np.ndarray) -> float:
    known = np.isfinite(values)
    if not known.any():
        raise ValueError(UNSCORED)
    return float(values[known].mean())


def describe_error(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def fit_best(
    study: Study, candidates: list[Candidate], grids: Mapping[str, Grid], names: list[str], X: Any
) -> tuple[Pipeline | None, str | None, list[str], bool]:
    """The first of ``names`` that can be fitted on all data, its name, notes on the others, and whether Ctrl-C came.

    ``X`` is the data as they were given: a DataFrame tells the pipeline the names of its columns.
    """
    by_name = {c.name: c for c in candidates}
    notes: list[str] = []
    for name in names:
        candidate, grid = by_name[name], grids.get(name)
        try:
            with warnings.catch_warnings(), study.scorer.aimed_at():
                warnings.simplefilter("ignore")  # warnings of this learner were collected in the folds
                params = _search(study, candidate, np.arange(len(study.X)), grid) if grid else {}
                rows = X if hasattr(X, "columns") else study.X
                pipeline = build_pipeline(study.scaler, candidate.estimator, params)
                return pipeline.fit(rows, study.y if candidate.uses_y else None), name, notes, False
        except KeyboardInterrupt:
            return None, None, [*notes, f"interrupted while fitting {name} on all data"], True
        except Exception as error:
            reason = describe_error(error)
            notes.append(f"{name} could not be fitted on all data ({reason}); the next best takes its place")
    return None, None, notes, False
