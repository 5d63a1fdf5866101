"""How a budget is shared among the folds of an adaptation: what the first fold has time for, the others try as well."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np

from isometry.core.progress import OutOfTime, time_limit
from isometry.select.budget import Budget, duration

RESERVE = 0.2  # of the budget: for later folds that take longer, for judging what was chosen, for learning from all
LEAST_FOLDS = 2  # that a choice rests on
HEADS = "linear heads"


class Allotment:
    """Gives each fold its time, and remembers what there was no time for.

    The first fold gets one part in ``n_folds`` of the budget without its reserve. Later folds try what the first one
    tried, and are cut short where the whole budget is over.

    Parameters
    ----------
    budget : Budget or None
        Seconds of everything, by a clock; None: no end.
    n_folds : int
        Folds that are planned.
    started : float
        When the budget began, by its clock.
    """

    def __init__(self, budget: Budget | None, n_folds: int, started: float):
        self.budget, self.n_folds = budget, n_folds
        self.end = np.inf if budget is None else started + budget.seconds
        self.fold = -1
        self.turn = np.inf  # when the turn of the fold is over
        self.first: set[tuple[str, float]] = set()  # methods and ridges that the first fold tried
        self.missing: list[str] = []  # methods for which, or for some ridges of which, there was no time
        self.no_heads = False  # whether there was no time for them
        self.cut = False  # whether the last fold ended early

    def begin(self) -> bool:
        """Whether there is time for one more fold."""
        if self.over(self.end) or (self.missing and not self.first):
            return False
        self.fold += 1
        self.turn = self.end
        if self.fold == 0 and self.budget is not None:
            now = self.budget.clock()
            self.turn = now + max(self.end - RESERVE * self.budget.seconds - now, 0.0) / self.n_folds
        return True

    def over(self, moment: float) -> bool:
        return self.budget is not None and self.budget.clock() >= moment

    def maps(
        self,
        planned: list[tuple[str, float]],
        found: Iterator[tuple[str, float, np.ndarray]],
        failed: Collection[str] = (),
    ) -> Iterator[tuple[str, float, np.ndarray]]:
        """Those of the maps ``found``, each with method and ridge, that the fold has time for.

        ``planned`` are all of them. Methods that cannot learn join ``failed`` as the maps are found.
        """
        due = dict.fromkeys(planned if self.fold == 0 else [key for key in planned if key in self.first])
        while due:
            if self.over(self.turn):
                self.cut = self.fold > 0
                if self.fold == 0:
                    self.missing = list(dict.fromkeys(method for method, _ in due if method not in failed))
                return
            one = next(found, None)
            if one is None:  # what is still due cannot be learned
                return
            if one[:2] in due:
                del due[one[:2]]
                if self.fold == 0:
                    self.first.add(one[:2])
                yield one

    def head(self, train: Callable[[], np.ndarray | None]) -> np.ndarray | None:
        """What ``train`` gives; None where there is no time for it in every fold."""
        if self.no_heads:
            return None
        try:
            with time_limit(lambda: self.over(self.turn)):
                trained = None if self.over(self.turn) else train()
        except OutOfTime:
            trained = None
        if not self.over(self.turn):
            return trained
        if self.fold == 0:
            self.no_heads = True
        else:
            self.cut = True
        return None

    def folds(self) -> int:
        """Folds that a choice can rest on: those that were not cut short, but two if there are."""
        begun = self.fold + 1
        return begun - (self.cut and begun > LEAST_FOLDS)

    def note(self, compared: bool) -> list[str]:
        """What was left out, in one line; all maps, if none could be ``compared`` in two folds."""
        what = [self._in_words(method) for method in self.missing] + [HEADS] * self.no_heads
        if self.folds() < self.n_folds:
            what.append(f"{self.n_folds - self.folds()} of {self.n_folds} folds")
        if not what or self.budget is None:
            return []
        what = what if compared else ["all maps"]
        seconds = duration(self.budget.seconds, about=False)
        listed = ", ".join(what)
        return [f"left out, since the budget of {seconds} ends before: {listed}. A larger budget (--budget) adds them"]

    def _in_words(self, method: str) -> str:
        tried = [reg for name, reg in self.first if name == method]
        return f"{method} with ridges below {min(tried):g}" if tried else method
