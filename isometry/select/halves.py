"""What half of the samples teach: it tells how much more all of them will than those of a fold did."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from isometry.core.progress import OutOfTime, time_limit
from isometry.select.budget import Budget
from isometry.select.candidates import Candidate
from isometry.select.fits import Study, fit_and_score
from isometry.select.folds import Plan, Split
from isometry.supervision import Targets, Views

MIN_CLASSES = 4  # to learn from, where classes are halved


def gains_of_halves(
    study: Study,
    candidates: Sequence[Candidate],
    plan: Plan,
    chosen: Sequence[int],
    n_jobs: int | None,
    budget: Budget | None,
    started: float,
) -> np.ndarray | None:
    """Gains (repeats, n) over Euclidean of what was ``chosen`` in each fold, learned from half of its samples.

    None where there is no time for it, or half of the samples are too few.
    """
    clock = time.monotonic if budget is None else budget.clock
    until = np.inf if budget is None else started + budget.seconds
    parts = [halved(split, study) for split in plan.splits]
    if any(part is None for part in parts):
        return None
    calls = (
        delayed(_gain)(study, candidates[0], candidates[k], part, clock, until)
        for part, k in zip(parts, chosen, strict=True)
        if k > 0
    )
    found = iter(Parallel(n_jobs=n_jobs, batch_size=1)(calls))
    gains = np.full((plan.splits[-1].repeat + 1, len(study.y)), np.nan)
    for split, k in zip(plan.splits, chosen, strict=True):
        gain = 0.0 if k == 0 else next(found)
        if gain is None:
            return None
        gains[split.repeat, split.test] = gain
    return gains


def halved(split: Split, study: Study) -> Split | None:
    """The split with half of the samples to learn from: of each class, or of classes if whole ones are held out."""
    y: Any = study.y
    rng = np.random.default_rng(study.seed)
    if isinstance(y, Targets | Views):
        return split._replace(train=np.sort(rng.permutation(split.train)[::2]))
    if not isinstance(y, np.ndarray):
        return None  # half of the samples would keep a quarter of the pairs
    order = rng.permutation(split.train)
    if study.scorer.protocol == "open":
        classes = rng.permutation(np.unique(y[order]))
        if len(classes) < MIN_CLASSES:
            return None
        return split._replace(train=np.sort(order[np.isin(y[order], classes[::2])]))
    return split._replace(train=np.sort(order[np.argsort(y[order], kind="stable")][::2]))


def _gain(
    study: Study, plain: Candidate, candidate: Candidate, part: Split, clock: Any, until: float
) -> np.ndarray | None:
    if clock() > until:
        return None
    with threadpool_limits(limits=1), warnings.catch_warnings(), time_limit(lambda: clock() > until):
        warnings.simplefilter("ignore")  # of half of the data; warnings of the whole were collected in the folds
        try:
            values = [fit_and_score(study, c, {}, part)[0] for c in (candidate, plain)]
        except (OutOfTime, ValueError, np.linalg.LinAlgError):  # half of the samples may be too few for the learner
            return None
    return values[0] - values[1]
