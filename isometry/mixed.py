"""Metrics that are mixed with the Euclidean one: how much of them is used is chosen by samples held out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from isometry.base import check_side
from isometry.core.linalg import SingularMatrixWarning
from isometry.core.memory import remembering
from isometry.core.parts import rows_elsewhere
from isometry.core.progress import progress
from isometry.core.solve import Solution
from isometry.parameters import KW_ONLY, Share, parameters
from isometry.strength import (
    MOST_ROWS,
    SHARES,
    Choice,
    HoldsOut,
    Mixtures,
    fewer_dimensions,
    mixed_map,
    name_of_plain,
    paired,
    some_rows,
    weakest_of_the_best,
)
from isometry.trial import (
    MAX_WHOLE,
    Aim,
    NeighborTrial,
    TargetTrial,
    Trial,
    as_new,
    is_told_of_new_classes,
    scarcity,
    thin,
    trial_of,
)

FOLDS = 3
FEW_ROWS, FEW_ROWS_FOLDS = 500, 20  # where two thirds of the rows of a class are too few to tell what all of them do
MAX_LEARNED = 3_000  # rows of a trial, since what an iteration costs mostly grows with their square


@parameters
class MixedMetric(HoldsOut):
    """Abstract: a metric of which the data choose how much is mixed with the Euclidean one.

    With ``strength="auto"`` it is learned from some rows, and mixtures W = (1 − share) c I + share W_learned, where c
    makes both equally large on the samples, are tried on others. Of the shares that are better than Euclidean distance
    by two and a half standard errors, the smallest is taken that does as well as the best, within one; 0, which is
    Euclidean distance itself, if the best is not so much better. Where fewer dimensions than features are asked for,
    every mixture is brought to the directions in which the samples vary most under it, and the share 0 is that of their
    principal components. A number for ``strength`` is the share: 1 is the method as published.

    With 20 classes or more, of which nobody said what the metric is for (`aiming_at`), the share is chosen for new
    classes, and then made so small that the vote of three neighbours among known ones loses nothing.

    It leaves ``strength_``, the share; ``strength_path_``, how each metric on trial did; and ``strength_reason_``, why
    this one was chosen. Of a mixture, thresholds on distances that the method learns are those of the learned metric,
    whose mean squared distance it has, too.
    """

    _: KW_ONLY
    strength: Share | Literal["auto"] = "auto"

    def _is_mixed(self) -> bool:
        return self.strength != 1

    def _learn(self, X: np.ndarray, side: Any, **more: Any) -> Solution | None:
        if self.strength == 1:
            self.strength_, self.strength_path_, self.strength_reason_ = 1.0, {}, "given"
            return self._fit(X, side, **more)
        if self.strength == "auto":
            choice = self._choice(X, side, more)
        else:
            choice = Choice(float(self.strength), self._all_steps, {}, "given")
        if choice.share:
            learner = self._with(choice.reg)
            solution = learner._fit(self._seen(X), side, **more)
        else:
            learner = self._in_short(choice.reg)
            solution = _fit_unused(learner, self._seen(X), side, more)
        self._take(learner)
        if choice.share < 1 or self._beyond:
            L = self._in_all_features(learner.components_.astype(np.float64))
            rows = X[:: 1 + len(X) // MOST_ROWS]
            p = None if fewer_dimensions(self, X.shape[1]) is None else len(L)  # samples may span even fewer
            self._store(mixed_map(L, choice.share, rows, p), X.dtype)
        self.strength_, self.strength_path_, self.strength_reason_ = choice.share, choice.path, choice.reason
        return self._ended(solution, choice)

    @property
    def _all_steps(self) -> float:
        """What stands for the whole method among `_lengths`."""
        return 0.0

    def _lengths(self) -> Sequence[float]:
        """Numbers of iterations to try, the fewest first; here there is the whole method alone."""
        return (self._all_steps,)

    def _with(self, length: float) -> Any:
        """The method as published, of this length."""
        return self._copy(strength=1.0)

    def _in_short(self, length: float) -> Any:
        """The same for trials, and where Euclidean distance is kept: from one start, as rows held out cannot tell."""
        learner = self._with(length)
        return learner.set_params(n_init=1) if "n_init" in learner.get_params(deep=False) else learner

    def _ended(self, solution: Solution | None, choice: Choice) -> Solution | None:
        """What is to be said of how the search for the chosen metric ended: nothing, if it is not used."""
        return solution if solution is None or choice.share else replace(solution, on_purpose=True)

    def _choice(self, X: np.ndarray, side: Any, more: dict[str, Any]) -> Choice:
        plain = name_of_plain(fewer_dimensions(self, X.shape[1]))
        if getattr(side, "target", None) is not None:
            return Choice(1.0, self._all_steps, {}, "given: y says what the distances should be")
        X, side, more = some_rows(X, side, more)
        trial = _small_trial(X, side)
        if trial is None:
            return self._untried(f"{plain}: too little can be held out to try it")
        with warnings.catch_warnings(), progress(False), remembering(), rows_elsewhere(None):
            warnings.simplefilter("ignore")  # of parts of the data; what holds for all of it is said by the last fit
            try:
                choice = self._try(trial, X, side, more)
                if choice.share and getattr(trial, "open", False) and not is_told_of_new_classes():
                    choice = self._sparing(choice, X, side, more)
                return choice.noting(scarcity(trial, FOLDS))
            except np.linalg.LinAlgError:
                raise  # not a matter of too few rows
            except (ValueError, FloatingPointError) as error:
                return self._untried(f"{plain}: a part of the data is not enough to learn from ({error})")

    def _untried(self, why: str) -> Choice:
        return Choice(0.0, self._lengths()[0], {}, why)

    def _try(self, trial: Trial, X: np.ndarray, side: Any, more: dict[str, Any]) -> Choice:
        """Ever longer searches, until one does no better than those before."""
        mixtures = self._mixtures(trial, X)
        values: dict[tuple[float, float], np.ndarray] = {}
        values[0.0, 0.0] = np.concatenate([m.euclidean() for m in mixtures])
        best = -np.inf
        for length in self._lengths():
            found, ended = self._values(mixtures, length, X, side, more)
            values |= {(share, float(length)): found[share] for share in SHARES}
            score = max(np.mean(worth) for worth in found.values())
            if ended or score <= best:
                break
            best = score
        plain = name_of_plain(fewer_dimensions(self, X.shape[1]))
        choice = weakest_of_the_best(list(values), np.stack(list(values.values())), plain)
        path = {("n_iter" if name == "reg" else name): column for name, column in choice.path.items()}
        return replace(choice, reg=choice.reg or self._lengths()[0], path=path)

    def _mixtures(self, trial: Trial, X: np.ndarray) -> list[Mixtures]:
        p = fewer_dimensions(self, X.shape[1])
        return [Mixtures(trial, as_new(X, split, self._outside), split, p) for split in trial.splits]

    def _values(
        self, mixtures: list[Mixtures], length: float, X: np.ndarray, side: Any, more: dict[str, Any]
    ) -> tuple[dict[float, np.ndarray], bool]:
        """What each share of a metric of this length is worth on each item held out; and whether all searches ended."""
        found: dict[float, list[np.ndarray]] = {share: [] for share in SHARES}
        ended = True  # by itself
        for mixture_of in mixtures:
            rows = mixture_of.split.learn
            learner = self._in_short(length)
            part = None if side is None else side[rows]
            if part is not None:
                check_side(part, self._needs, type(self).__name__)
            rest = {name: value[rows] for name, value in more.items()}
            solution = learner._fit(self._seen(X)[rows], part, **rest)
            ended &= solution is None or solution.converged
            for share, worth in mixture_of.with_map(self._as_map(learner), SHARES):
                found[share].append(worth)
        return {share: np.concatenate(worth) for share, worth in found.items()}, ended

    def _sparing(self, choice: Choice, X: np.ndarray, side: Any, more: dict[str, Any]) -> Choice:
        """A choice made for new classes, with the largest share up to its own by which known ones lose nothing."""
        trial = _small_trial(X, side, "closed", FEW_ROWS_FOLDS if len(X) <= FEW_ROWS else FOLDS)
        mixtures = self._mixtures(replace(trial, aim=Aim("vote")), X)
        plain = np.concatenate([m.euclidean() for m in mixtures])
        found, _ = self._values(mixtures, choice.reg, X, side, more)
        lost = {share: paired(plain, worth) for share, worth in found.items()}
        spared = [share for share, (loss, error) in lost.items() if share <= choice.share and loss <= error]
        if choice.share in spared:
            return choice
        why = "where known classes lose {:.3f} (standard error {:.3f})".format(*lost[choice.share])
        if spared:
            return replace(choice, share=max(spared)).noting(
                f"a share of {choice.share:g} is best for new classes, {why}"
            )
        plain_name = name_of_plain(fewer_dimensions(self, X.shape[1]))
        reason = f"{plain_name}: a share of {choice.share:g} {choice.reason} for new classes, {why}"
        return replace(choice, share=0.0, reg=self._lengths()[0], reason=reason)


def _fit_unused(learner: Any, X: np.ndarray, side: Any, more: dict[str, Any]) -> Solution | None:
    """A fit to a few rows, for what it says of the search and of y, while distance stays Euclidean."""
    few, part, rest = _few_rows(X, side, more)
    silent = (ConvergenceWarning, RuntimeWarning, SingularMatrixWarning) if len(few) == len(X) else (Warning,)
    with warnings.catch_warnings(), rows_elsewhere(None):
        for category in silent:  # how a metric was found that is not used is of no interest; what y holds is
            warnings.simplefilter("ignore", category)
        solution: Solution | None = learner._fit(few, part, **rest)
    return solution


def _few_rows(X: np.ndarray, side: Any, more: dict[str, Any]) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """At most as many rows as a trial learns from, of all classes; pairs and comparisons keep theirs."""
    if not hasattr(side, "codes") or len(X) <= MAX_LEARNED:
        return X, side, more
    rows = np.sort(thin(np.argsort(side.codes, kind="stable"), MAX_LEARNED))
    return X[rows], side[rows], {name: value[rows] for name, value in more.items()}


def _small_trial(X: np.ndarray, side: Any, protocol: str = "auto", folds: int = FOLDS) -> Any:
    """A trial of few rows to learn from, where pairs do not say which, and of one split for large tables."""
    trial: Any = trial_of(X, side, protocol=protocol, folds=folds)
    if trial is None:
        return None
    splits = trial.splits if len(X) <= MAX_WHOLE else trial.splits[:1]
    if isinstance(trial, NeighborTrial | TargetTrial):
        splits = [split._replace(learn=thin(split.learn, MAX_LEARNED)) for split in splits]
    return replace(trial, splits=splits)
