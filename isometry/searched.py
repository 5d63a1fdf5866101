"""Metrics that are searched for: how long, and how far from Euclidean distance, is chosen by samples held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from isometry.chunks import gathered, is_dask, mapped
from isometry.core.parts import rows_elsewhere
from isometry.core.solve import Solution
from isometry.core.threads import own_threads
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

    in_chunks: ClassVar[tuple[type, ...]] = ()  # kinds of supervision that make its objective a sum over Dask chunks

    _: KW_ONLY
    early_stopping: bool = True

    def fit(self, X: Any, y: Any = None, **more: Any) -> Self:
        """Learn the metric.

        Parameters
        ----------
        X : array-like or Dask array of shape (n_samples, n_features)
            Samples; a Dask array is chunked by rows.
        y : array-like, Supervision or None, default=None
            Class labels, or a supervision object over the rows of X. With a Dask array, labels, whose rows are compared
            within their chunk, or `Pairs`; a sample of its rows tells where the search starts, and how long it goes on.
        **more : dict
            What else a method takes, by name.

        Returns
        -------
        Self
            The learner itself.
        """
        if not is_dask(X):
            with own_threads():
                return super().fit(X, y, **more)
        if not self.in_chunks:
            raise TypeError(
                f"{type(self).__name__} needs its rows in memory: call X.compute(), or take a method that learns from "
                "chunks, such as FastNCA for labels and PCCA for pairs"
            )
        size = self.get_params(deep=False).get("batch_size")
        if size not in (None, "auto"):
            raise ValueError(f"batch_size={size} is for rows in memory; the chunks of a Dask array take its place")
        sample, side, source = gathered(X, y, type(self).__name__, self.in_chunks)
        with rows_elsewhere(source):
            return super().fit(sample, side, **more)

    def transform(self, X: Any) -> Any:
        """Map X to the space where the learned distance is Euclidean.

        Parameters
        ----------
        X : array-like or Dask array of shape (n_samples, n_features)
            Samples; a Dask array is mapped chunk by chunk, lazily.

        Returns
        -------
        ndarray or Dask array of shape (n_samples, p)
            The mapped samples.
        """
        if not is_dask(X):
            return super().transform(X)
        self._check_fitted()
        return mapped(self, X)

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
