"""Metrics that are searched for: how long, and how far from Euclidean distance, is chosen by samples held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from isometry.core.solve import Solution
from isometry.mixed import MixedMetric
from isometry.parameters import KW_ONLY, parameters
from isometry.strength import Choice

FIRST = 5  # iterations of the first metric on trial; each further one may take twice as many


@parameters
class SearchedMetric(MixedMetric):
    """Abstract: a metric found by a search of ``max_iter`` iterations, of which the data choose how many.

    Held-out neighbours mostly stop improving long before the objective does, and get worse in the end. With
    ``strength="auto"`` the search runs on some rows for 5, 10, 20, … iterations, and each metric, mixed with the
    Euclidean one as in `MixedMetric`, is tried on others. It ends with the first number of iterations that does no
    better than fewer. The weakest metric that does as well as the best is then learned from all rows. A number for
    ``strength`` is the share of the metric at the end of the search: 1 is the method as published.
    """

    _: KW_ONLY
    early_stopping: bool = True

    @property
    def _all_steps(self) -> float:
        return int(self.get_params(deep=False)["max_iter"])

    def _lengths(self) -> Sequence[float]:
        """Numbers of iterations to try: 5, 10, 20, … up to all of them."""
        longest = self._all_steps
        if not self.early_stopping or longest <= FIRST:
            return (longest,)
        doubled = [FIRST * 2**k for k in range(32) if FIRST * 2**k < longest]
        return (*doubled, longest)

    def _with(self, length: float) -> Any:
        return super()._with(length).set_params(max_iter=int(length))

    def _ended(self, solution: Solution | None, choice: Choice) -> Solution | None:
        """The same solution, if the search was stopped on purpose with words that say so."""
        if solution is None or solution.converged or choice.reg >= self._all_steps:
            return super()._ended(solution, choice)
        why = "Euclidean distance was kept" if choice.share == 0 else "held-out neighbours no longer improve"
        return replace(solution, reason=f"stopped early after {solution.n_iter} iterations: {why}", on_purpose=True)
