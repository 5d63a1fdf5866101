"""Fits of all candidates on all folds, with their scores on the held-out rows; and the fit of the best on all rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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

from isometry.select.candidates import Candidate, Grid
from isometry.select.folds import Plan, Split, can_hold_out_classes, make_plan
from isometry.select.scoring import FoldScorer
from isometry.supervision import Labels, Supervision

INNER_SPLITS = 3
UNSCORED = "no held-out point could be scored"
Key = tuple[int, int]  # candidate, split


@dataclass(frozen=True)
class Study:
    """What all fits share; sent to the workers."""

    X: np.ndarray
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
    seconds: float = np.nan
    failure: str = ""
    unconverged: bool = False
    warnings: list[str] = field(default_factory=list)
    params: dict[str, Any] | None = None


def run_fits(
    study: Study, candidates: list[Candidate], grids: Mapping[str, Grid], plan: Plan, n_jobs: int | None, verbose: bool
) -> tuple[dict[Key, Outcome], bool]:
    """Outcomes by (candidate, split), and whether Ctrl-C cut the run short.

    All candidates do the first fold, then the second: what has finished when it is cut short covers all of them. Fits
    are handed out one by one: in a batch, what has finished would wait for what has not.
    """
    tasks = [(c, s) for s in range(len(plan.splits)) for c in range(len(candidates))]
    calls = (
        delayed(_attempt)((c, s), study, candidates[c], plan.splits[s], grids.get(candidates[c].name)) for c, s in tasks
    )
    outcomes: dict[Key, Outcome] = {}
    with tqdm(total=len(tasks), desc="compare", unit="fit", disable=not verbose) as bar:
        try:
            for key, outcome in Parallel(n_jobs=n_jobs, batch_size=1, return_as="generator_unordered")(calls):
                outcomes[key] = outcome
                bar.update()
        except KeyboardInterrupt:
            return outcomes, True
    return outcomes, False


def _attempt(key: Key, study: Study, candidate: Candidate, split: Split, grid: Grid | None) -> tuple[Key, Outcome]:
    """Tune, fit and score one candidate on one fold. An error in a learner is recorded and does not end the run."""
    outcome = Outcome()
    with threadpool_limits(limits=1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            params = _search(study, candidate, split.train, grid) if grid else {}
            caught.clear()
            outcome.values, outcome.seconds = _fit_and_score(study, candidate, params, split)
            outcome.params = params if grid else None
        except Exception as error:
            outcome.failure = describe_error(error)
    outcome.unconverged = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    others = (str(w.message) for w in caught if not issubclass(w.category, ConvergenceWarning))
    outcome.warnings = list(dict.fromkeys(others))
    return key, outcome


def _fit_and_score(
    study: Study, candidate: Candidate, params: Mapping[str, Any], split: Split
) -> tuple[np.ndarray, float]:
    """Values (m,) of the held-out rows, and the seconds that fitting took."""
    y_train, y_test = study.y[split.train], study.y[split.test]
    X_train = study.X[split.train]
    started = time.perf_counter()
    pipeline = build_pipeline(study.scaler, candidate.estimator, params)
    pipeline.fit(X_train, y_train if candidate.uses_y else None)
    seconds = time.perf_counter() - started
    Z_train, Z_test = (_embed(pipeline, rows) for rows in (X_train, study.X[split.test]))
    return study.scorer.values(Z_train, y_train, Z_test, y_test), seconds


def _embed(pipeline: Pipeline, X: np.ndarray) -> np.ndarray:
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
    inner = replace(study, X=study.X[rows], y=y, scorer=replace(study.scorer, protocol=protocol))
    best: dict[str, Any] | None = None
    best_score, failure = -np.inf, ""
    for params in ParameterGrid(grid):
        try:
            values = [_fit_and_score(inner, candidate, params, split)[0] for split in plan.splits]
            score = _mean_of_known(np.concatenate(values))
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
) -> tuple[Pipeline | None, list[str], bool]:
    """The first of ``names`` that can be fitted on all data, notes on those that cannot, and whether Ctrl-C came.

    ``X`` is the data as they were given: a DataFrame tells the pipeline the names of its columns.
    """
    by_name = {c.name: c for c in candidates}
    notes: list[str] = []
    for name in names:
        candidate, grid = by_name[name], grids.get(name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of this learner were collected in the folds
                params = _search(study, candidate, np.arange(len(study.X)), grid) if grid else {}
                rows = X if hasattr(X, "columns") else study.X
                pipeline = build_pipeline(study.scaler, candidate.estimator, params)
                return pipeline.fit(rows, study.y if candidate.uses_y else None), notes, False
        except KeyboardInterrupt:
            return None, [*notes, f"interrupted while fitting {name} on all data"], True
        except Exception as error:
            reason = describe_error(error)
            notes.append(f"{name} could not be fitted on all data ({reason}); the next best takes its place")
    return None, notes, False
