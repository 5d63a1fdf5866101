"""Metrics that are searched for: how long, and how far from Euclidean distance, is chosen by samples held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import clone

from isometry.base import LinearMetric, check_components
from isometry.chunks import gathered, is_dask, mapped
from isometry.core.memory import remembering
from isometry.core.parts import rows_elsewhere
from isometry.core.progress import progress
from isometry.core.solve import Solution
from isometry.core.start import mean_sqdist
from isometry.parameters import KW_ONLY, Share, parameters
from isometry.strength import MOST_ROWS, SHARES, Choice, Mixtures, mixture, some_rows, weakest_of_the_best
from isometry.trial import MAX_WHOLE, NeighborTrial, Trial, scarcity, thin, trial_of

FOLDS = 3
MAX_LEARNED = 3_000  # rows of a trial, since what an iteration costs mostly grows with their square
FIRST = 5  # iterations of the first metric on trial; each further one may take twice as many


@parameters
class SearchedMetric(LinearMetric):
    """Abstract: a metric found by a search of ``max_iter`` iterations, of which the data choose how many.

    Held-out neighbours mostly stop improving long before the objective does, and get worse in the end. With
    ``strength="auto"`` the search runs on some rows for 5, 10, 20, … iterations, and each metric, mixed with the
    Euclidean one, W = (1 − share) c I + share W_k, where c makes both equally large on the samples, is tried on others.
    It ends with the first number of iterations that does no better than fewer. The weakest metric that does as well as
    the best, within a standard error, is then learned from all rows; it is Euclidean distance itself, if the best is
    not better by two and a half. A number for ``strength`` is the share, of the metric at the end of the search: 1 is
    the method as published.

    It leaves ``strength_``, the share; ``strength_path_``, how each metric on trial did; and ``strength_reason_``, why
    this one was chosen. Of a mixture, thresholds on distances that the method learns are those of the learned metric,
    whose mean squared distance it has, too.
    """

    _: KW_ONLY
    strength: Share | Literal["auto"] = "auto"
    early_stopping: bool = True

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : (n_samples, n_features) table in memory, or a Dask array chunked by rows
        y : class labels, or a supervision object over the rows of X. With a Dask array, labels, whose rows are compared
            within their chunk, or `Pairs`; a sample of its rows tells where the search starts, and how long it goes on
        more : what else a method takes, by name
        """
        if not is_dask(X):
            return super().fit(X, y, **more)
        size = self.get_params(deep=False).get("batch_size")
        if size not in (None, "auto"):
            raise ValueError(f"batch_size={size} is for rows in memory; the chunks of a Dask array take its place")
        sample, side, self._source = gathered(X, y, type(self).__name__)
        try:
            return super().fit(sample, side, **more)
        finally:
            del self._source

    def transform(self, X: Any) -> Any:
        """Map X to the space where the learned distance is Euclidean; a Dask array is mapped chunk by chunk, lazily."""
        if not is_dask(X):
            return super().transform(X)
        self._check_fitted()
        return mapped(self, X)

    def _learn(self, X: np.ndarray, side: Any, **more: Any) -> Solution | None:
        if self.strength == "auto":
            choice = self._choose(X, side, more)
        else:
            choice = Choice(float(self.strength), self._longest, {}, "given")
        learner = self._with(int(choice.reg))
        with warnings.catch_warnings():
            if choice.share == 0:  # a metric that is not used: a few rows will do, and nothing is worth a warning
                warnings.simplefilter("ignore")
                few, part, rest = _few_rows(X, side, more)
                solution = learner._fit(few, part, **rest)
            else:
                with rows_elsewhere(getattr(self, "_source", None)):
                    solution = learner._fit(X, side, **more)
        for name in [name for name in vars(learner) if name.endswith("_")]:
            setattr(self, name, getattr(learner, name))
        if choice.share < 1:
            L, rows = learner.components_.astype(np.float64), X[:: 1 + len(X) // MOST_ROWS]
            size = mean_sqdist(rows @ L.T.astype(X.dtype)) / mean_sqdist(rows)
            self._store(mixture(L, choice.share, 1 / size) if size else np.eye(X.shape[1]), X.dtype)
        self.strength_, self.strength_path_, self.strength_reason_ = choice.share, choice.path, choice.reason
        return self._ended(solution, choice)

    @property
    def _longest(self) -> int:
        return int(self.get_params(deep=False)["max_iter"])

    def _with(self, max_iter: int) -> Any:
        learner = clone(self).set_params(strength=1.0, max_iter=max_iter)
        learner.n_features_in_ = self.n_features_in_
        return learner

    def _ended(self, solution: Solution | None, choice: Choice) -> Solution | None:
        """The same solution, if the search was stopped on purpose with words that say so."""
        if solution is None or solution.converged or choice.reg >= self._longest:
            return solution
        why = "Euclidean distance was kept" if choice.share == 0 else "held-out neighbours no longer improve"
        return replace(solution, reason=f"stopped early after {solution.n_iter} iterations: {why}", on_purpose=True)

    def _choose(self, X: np.ndarray, side: Any, more: dict[str, Any]) -> Choice:
        d = X.shape[1]
        p = check_components(self.get_params(deep=False).get("n_components"), d)
        mixed = p is None or p == d  # fewer rows of a map leave no room for a mixture
        X, side, more = some_rows(X, side, more)
        trial = _small_trial(X, side)
        if trial is None:
            return self._untried("too little can be held out to try it", mixed)
        with warnings.catch_warnings(), progress(False), remembering():
            warnings.simplefilter("ignore")  # of parts of the data; what holds for all of it is said by the last fit
            try:
                return self._try(trial, X, side, more, mixed).noting(scarcity(trial, FOLDS))
            except np.linalg.LinAlgError:
                raise  # not a matter of too few rows
            except (ValueError, FloatingPointError) as error:
                return self._untried(f"a part of the data is not enough to learn from ({error})", mixed)

    def _untried(self, why: str, mixed: bool) -> Choice:
        if mixed:
            return Choice(0.0, min(FIRST, self._longest), {}, f"Euclidean distance: {why}")
        return Choice(1.0, self._longest, {}, f"the whole search: {why}")

    def _try(self, trial: Trial, X: np.ndarray, side: Any, more: dict[str, Any], mixed: bool) -> Choice:
        """Ever longer searches, until one does no better than those before."""
        shares = SHARES if mixed else (1.0,)
        mixtures = [Mixtures(trial, X, split) for split in trial.splits]
        values: dict[tuple[float, float], np.ndarray] = {}
        if mixed:
            values[0.0, 0.0] = np.concatenate([m.euclidean() for m in mixtures])
        best = -np.inf
        for max_iter in self._lengths():
            found: dict[float, list[np.ndarray]] = {share: [] for share in shares}
            ended = True  # by itself
            for split, mixture_of in zip(trial.splits, mixtures, strict=True):
                learner = self._with(max_iter)
                part = None if side is None else side[split.learn]
                rest = {name: value[split.learn] for name, value in more.items()}
                solution = learner._fit(X[split.learn], part, **rest)
                ended &= solution is None or solution.converged
                for share, worth in mixture_of.with_map(learner._transform, shares):
                    found[share].append(worth)
            values |= {(share, float(max_iter)): np.concatenate(found[share]) for share in shares}
            score = max(np.mean(values[share, max_iter]) for share in shares)
            if ended or score <= best:
                break
            best = score
        choice = weakest_of_the_best(list(values), np.stack(list(values.values())))
        path = {("n_iter" if name == "reg" else name): column for name, column in choice.path.items()}
        return replace(choice, reg=choice.reg or min(FIRST, self._longest), path=path)

    def _lengths(self) -> Sequence[int]:
        """Numbers of iterations to try: 5, 10, 20, … up to all of them."""
        if not self.early_stopping or self._longest <= FIRST:
            return (self._longest,)
        doubled = [FIRST * 2**k for k in range(32) if FIRST * 2**k < self._longest]
        return (*doubled, self._longest)


def _few_rows(X: np.ndarray, side: Any, more: dict[str, Any]) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """At most as many rows as a trial learns from, of all classes; pairs and comparisons keep theirs."""
    if not hasattr(side, "codes") or len(X) <= MAX_LEARNED:
        return X, side, more
    rows = np.sort(thin(np.argsort(side.codes, kind="stable"), MAX_LEARNED))
    return X[rows], side[rows], {name: value[rows] for name, value in more.items()}


def _small_trial(X: np.ndarray, side: Any) -> Any:
    """A trial of few rows to learn from, where pairs do not say which, and of one split for large tables."""
    trial: Any = trial_of(X, side, folds=FOLDS)
    if trial is None:
        return None
    splits = trial.splits if len(X) <= MAX_WHOLE else trial.splits[:1]
    if isinstance(trial, NeighborTrial):
        splits = [split._replace(learn=thin(split.learn, MAX_LEARNED)) for split in splits]
    return replace(trial, splits=splits)
