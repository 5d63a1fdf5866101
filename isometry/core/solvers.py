"""Solvers as values: an objective over maps L goes in, a Solution comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np

from isometry.core.linalg import extreme_eigenpairs, symmetrize
from isometry.core.progress import report
from isometry.core.solve import Adam, Solution, lbfgs

FIRST_STEP = 0.05  # first step length of Adam, in units of the root mean square of the start
LAST_STEP = 1 / 32  # the search ends below this step length, in units of the first
NOISE = 1e-3  # smallest tol: smaller relative changes of the mean value may be due to the random batches
BATCHES_PER_ITERATION = 100


@dataclass
class Lbfgs:
    """L-BFGS on the objective as a whole."""

    max_iter: int
    tol: float

    def minimize(self, objective: Any, L: np.ndarray) -> Solution:
        return lbfgs(objective, L, max_iter=self.max_iter, tol=self.tol)


class ConvexProblem(Protocol):
    """A function of factors L that is convex in W = LᵀL."""

    def __call__(self, x: Any, /) -> tuple[float, Any]:
        """Value and gradient; x is a factor, or a list of factors and further variables."""
        ...

    def metric_gradient(self, x: Any, /) -> Any:
        """∂f/∂W (d, d), or the list of these matrices."""
        ...


@dataclass
class Certified:
    """L-BFGS on square factors L of a problem that is convex in W = LᵀL, up to its global minimum.

    A stationary L has G W = 0 for G = ∂f/∂W; W is the global minimum if also G ⪰ 0. Where G has a negative eigenvalue,
    its eigenvector is a direction of descent in W along which the gradient in L is 0: it is added to L, and the
    search goes on. For a factor with fewer rows than columns there is no such proof.
    """

    max_iter: int
    tol: float
    restarts: int = 5
    bounds: list[tuple[float | None, float | None]] | None = None  # one pair for each number of x

    def minimize(self, problem: ConvexProblem, x: Any) -> Solution:
        slope = max(np.abs(g).max() for g in _listed(problem(x)[1]))
        history: list[float] = []
        n_iter = 0
        for restart in range(self.restarts + 1):
            budget = max(self.max_iter - n_iter, 1)
            solution = lbfgs(problem, x, bounds=self.bounds, max_iter=budget, tol=self.tol, memory=20)
            solution = solution.following(n_iter, self.max_iter, history)
            n_iter, history = solution.n_iter, solution.history
            x = None
            if n_iter < self.max_iter and restart < self.restarts:
                x = self._grown(problem, solution.x, solution.value, slope)
            if x is None:
                break
        return solution

    def _grown(self, problem: ConvexProblem, x: Any, value: float, slope: float) -> Any:
        """x with a direction of descent in W added to one of its factors; None if there is none."""
        square = [part.ndim == 2 and part.shape[0] == part.shape[1] for part in _listed(x)]
        for k, G in enumerate(_listed(problem.metric_gradient(x)) if any(square) else ()):
            L = _listed(x)[k]
            if not square[k]:
                continue
            w, V = extreme_eigenpairs(symmetrize(G), 1, smallest=True)
            if w[0] >= -max(self.tol, 1e-8) * max(1.0, np.abs(G).max(), slope):
                continue
            step = float(np.vdot(L, L)) / len(L) + 1e-12
            for _ in range(30):
                grown = np.linalg.qr(np.vstack([L, np.sqrt(step) * V.T]), mode="r")  # RᵀR = W + step v vᵀ
                candidate = [*x[:k], grown, *x[k + 1 :]] if isinstance(x, list) else grown
                if problem(candidate)[0] < value:
                    return candidate
                step /= 4
        return None


def _listed(x: Any) -> Sequence[np.ndarray]:
    return x if isinstance(x, list) else [x]


@dataclass
class Batches:
    """Adam on random parts of an objective; an iteration is a hundred of them.

    The step is halved whenever an iteration lowers the mean value of the parts by less than tol, relatively, and the
    search ends when it has become a small part of the first. The mean values are the history.
    """

    size: int
    rng: np.random.RandomState
    max_iter: int = 200
    tol: float = NOISE

    def minimize(self, objective: Any, L: np.ndarray) -> Solution:
        """Of a `DistanceObjective`, or of what else can be divided as it can."""
        if self.size < 1:
            raise ValueError(f"batch_size={self.size} must be at least 1, or None to use all samples at once")
        tol = max(self.tol, NOISE)
        L = np.array(L, dtype=np.float64)
        first = step = FIRST_STEP * float(np.sqrt(np.mean(L**2)) or 1.0)
        adam = Adam(L.shape)
        history: list[float] = []
        order = np.zeros(0, dtype=np.intp)
        for it in range(1, self.max_iter + 1):
            values = []
            for _ in range(BATCHES_PER_ITERATION):
                order = order if len(order) else self.rng.permutation(objective.n_parts)
                rows, order = order[: self.size], order[self.size :]
                value, gradient = objective.batch(rows)(L)
                values.append(value)
                L -= step * adam.direction(gradient)
            best = min(history, default=np.inf)
            history.append(float(np.mean(values)))
            report(history[-1])
            if history[-1] > best - tol * abs(best):
                step /= 2
            if step < LAST_STEP * first:
                reason = "the mean of the batches falls by less than tol, with ever smaller steps"
                return Solution(L, history[-1], it, reason, True, history)
        value = history[-1] if history else np.inf
        return Solution(L, value, self.max_iter, f"max_iter={self.max_iter} reached", False, history)


Solver = Lbfgs | Batches


def whole_or_batches(size: int | str | None, rng: np.random.RandomState, max_iter: int, tol: float) -> Solver:
    """Batches of this size; None, and "auto", which may divide the objective itself into parts: no batches."""
    return Batches(size, rng, max_iter, tol) if isinstance(size, Integral) else Lbfgs(max_iter, tol)


def in_rounds(
    minimize: Callable[[Any, Any, int], Solution], problems: Iterable[Any], x: Any, max_iter: int
) -> Solution:
    """The solution of the last of several problems, such as ever sharper hinges, each starting from the one before.

    ``minimize(problem, x, budget)`` is given the iterations that are left of ``max_iter``.
    """
    n_iter, history = 0, list[float]()
    for problem in problems:
        solution = minimize(problem, x, max(max_iter - n_iter, 1)).following(n_iter, max_iter, history)
        x, n_iter, history = solution.x, solution.n_iter, solution.history
    return solution
