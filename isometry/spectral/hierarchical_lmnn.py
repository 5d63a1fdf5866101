"""Large margin nearest neighbours on samples from growing balls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from isometry.core.frame import Frame, resolved
from isometry.core.linalg import canonical, sym_fn
from isometry.core.order import column_order, row_order
from isometry.core.solve import Solution
from isometry.core.warn import warn_user
from isometry.mixed import MixedMetric
from isometry.parameters import (
    KW_ONLY,
    Count,
    Iterations,
    NotNegative,
    Positive,
    PositiveShare,
    Seed,
    Share,
    check_choices,
    parameters,
)
from isometry.spectral.impostors import ListedTriplets
from isometry.spectral.large_margin import descend
from isometry.spectral.mining import MINERS, mine
from isometry.supervision import Labels

RADIUS, RADIUS_GROWTH = 0.1, 0.3  # of the spread of the data; a round
FEWER_BALLS, SMALLER_SAMPLE, SMALLEST_SAMPLE = 0.8, 0.05, 0.2


@parameters
class HierarchicalLMNN(MixedMetric):
    """Large margin nearest neighbours by stratified sampling: many small problems, in balls that grow round by round.

    L ← (M + I)^{1/2} L,  M = argmin_{M ⪰ 0} (1 − μ) Σ d_M²(i, j) + μ Σ [margin + d_M²(i, j) − d_M²(i, l)]₊

    over the triplets of a stratified sample of the points, mapped so far, that lie in one ball. Balls are drawn in the
    box that holds the mapped points; they get larger and fewer, and the share of their points that is taken smaller.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    n_neighbors : int, default=3
        Number k of positives and of negatives of an anchor.
    mu : float in [0, 1], default=0.5
        Weight μ of the push term.
    margin : float > 0, default=1.0
        Margin, in the unit of squared distances: standardise the features.
    mining : str, default="semi_hard"
        How triplets are chosen in a ball, by the names of `LMNN`.
    n_rounds : int, default=10
        How often balls are drawn.
    sample_portion : float in (0, 1], default=1.0
        Share of a ball's points that is taken in the first round; it falls by 0.05 a round, to 0.2.
    max_iter : int, default=200
        Largest number of iterations of each small problem.
    tol : float ≥ 0, default=0.01
        Relative decrease at which each small problem stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    n_steps_ : int
        How many balls held a sample to learn from.

    Notes
    -----
    For labelled samples that are too many for all triplets of `LMNN`: each problem is small. The result depends on
    the balls that were drawn; `LMNN` with ``batch_size`` follows one objective instead, and where n is some
    thousands `LMNN` itself is exact.

    A ball of b points costs O(b² d + b k² d) in each iteration, whatever n; drawing balls costs O(n d).

    The survey leaves the scheme out. I is added because M alone would flatten what the next balls need. After each step
    the map is scaled so that the points keep their total variance, the unit of the margin. Radii are 0.1, 0.4, 0.7, …
    of the root of the total variance; of the mean deviation of a feature, balls would be empty in ten dimensions. A
    ball that is empty all the same, as most are where features have long tails, is moved to the sample nearest to its
    centre.

    References
    ----------
    | P. A. Poorheravi, B. Ghojogh, V. Gaudet, F. Karray, M. Crowley, "Acceleration of large margin metric learning for
      nearest neighbor classification using triplet mining and stratified sampling", Journal of Computational Vision and
      Imaging Systems 6(1), 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import HierarchicalLMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = HierarchicalLMNN(n_rounds=3, random_state=0).fit(X, y)
    >>> metric.n_steps_ > 0
    True
    >>> metric.components_.shape
    (4, 4)
    """

    _sees = (Labels,)

    _: KW_ONLY
    n_neighbors: Count = 3
    mu: Share = 0.5
    margin: Positive = 1.0
    mining: str = "semi_hard"
    n_rounds: Count = 10
    sample_portion: PositiveShare = 1.0
    max_iter: Iterations = 200
    tol: NotNegative = 1e-2
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        check_choices(self, mining=MINERS)
        # Neither what is drawn at random nor rounding errors, which flat minima magnify, shall depend on how the table
        # lists samples and features
        columns = column_order(X - X.mean(axis=0))
        X = X[:, columns]
        order = row_order(X)
        X, side = X[order], side[order]
        frame = Frame.of(X.astype(np.float64))
        L, solutions = np.eye(frame.X.shape[1]), []
        for step, solution in self._steps(frame.X, side.codes, check_random_state(self.random_state)):
            L = step @ L
            solutions.append(solution)
        self.n_steps_ = len(solutions)
        self._store(canonical(frame.lift(L)[:, np.argsort(columns)]), X.dtype)
        return self._summary(solutions)

    def _steps(self, X, codes, rng) -> Iterator[tuple[np.ndarray, Solution]]:
        """The maps (d, d) to apply one after another, each learned on what the former ones made of X."""
        spread, balls = np.sqrt(X.var(axis=0).sum()), np.clip(0.01 * len(X), 10, 20)
        for t in range(self.n_rounds):
            radius = (RADIUS + RADIUS_GROWTH * t) * spread
            portion = max(self.sample_portion - SMALLER_SAMPLE * t, min(SMALLEST_SAMPLE, self.sample_portion))
            for _ in range(max(1, round(balls * FEWER_BALLS**t))):
                low, high = X.min(axis=0), X.max(axis=0)
                near = ball(X, low + rng.uniform(size=X.shape[1]) * (high - low), radius)
                solution = self._solve(X, codes, stratified(near, codes, portion, rng), rng)
                if solution is None:
                    continue
                step = sym_fn(solution.x.T @ solution.x, lambda w: np.sqrt(np.maximum(w, 0) + 1))
                step *= spread / np.sqrt((X @ step).var(axis=0).sum())
                X = X @ step
                yield step, solution

    def _solve(self, X, codes, rows, rng) -> Solution | None:
        """The large-margin problem of these rows, or None if they have nothing to say."""
        if len(rows) <= max(self.n_neighbors, 2):
            return None
        # steps leave next to nothing of some directions
        X, codes = resolved(X[rows] - X[rows].mean(axis=0))[0], codes[rows]
        triplets = mine(X, codes, self.n_neighbors, self.mining, rng)
        if len(triplets.a) == 0:  # one class, or none with two members
            return None
        problem = ListedTriplets(X, triplets, self.margin)
        return descend(problem, np.eye(X.shape[1]), self.mu, max_iter=self.max_iter, tol=self.tol)[0]

    def _summary(self, solutions: list[Solution]) -> Solution:
        """One story of all small problems: their values in turn, and the first that did not converge."""
        if not solutions:
            warn_user(
                "no ball held points of two classes: the metric stayed Euclidean. Raise `n_rounds`, or standardise the "
                "features"
            )
            return Solution(None, 0.0, 0, "no ball held points of two classes", True, [0.0])
        failed = [s for s in solutions if not s.converged]
        reason = f"{len(failed)} of {len(solutions)} small problems stopped early: {failed[0].reason}" if failed else ""
        return replace(
            solutions[-1],
            n_iter=sum(s.n_iter for s in solutions),
            reason=reason or f"all {len(solutions)} small problems converged",
            converged=not failed,
            history=[s.value for s in solutions],
        )


def ball(X: np.ndarray, centre: np.ndarray, radius: float) -> np.ndarray:
    """Rows of X within the radius of the centre or, if there are none, of the row nearest to it."""
    sqdist = np.sum((X - centre) ** 2, axis=1)
    if sqdist.min() > radius**2:
        sqdist = np.sum((X - X[sqdist.argmin()]) ** 2, axis=1)
    return np.flatnonzero(sqdist <= radius**2)


def stratified(rows: np.ndarray, codes: np.ndarray, portion: float, rng: np.random.RandomState) -> np.ndarray:
    """A share of the rows of each class, at least one, at random, in order."""
    shuffled = rng.permutation(rows)
    shuffled = shuffled[np.argsort(codes[shuffled], kind="stable")]  # by class, random within it
    _, first, count = np.unique(codes[shuffled], return_index=True, return_counts=True)
    rank = np.arange(len(shuffled)) - np.repeat(first, count)
    return np.sort(shuffled[rank < np.repeat(np.ceil(portion * count), count)])
