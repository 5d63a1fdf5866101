"""Large margin nearest neighbours of several tasks at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isometry.core.frame import Frame
from isometry.core.graph import target_neighbors
from isometry.core.hinge import WIDTHS
from isometry.core.linalg import canonical
from isometry.core.solve import Solution
from isometry.core.solvers import Certified, in_rounds
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Share, parameters
from isometry.spectral.impostors import Impostors
from isometry.spectral.task_metric import TaskMetric
from isometry.supervision import Labels


@parameters
class MultiTaskLMNN(TaskMetric):
    """Multi-task large margin nearest neighbours: a metric that all tasks share, and one more for each.

    min_{W₀, W_t ⪰ 0} (γ₀/2)|W₀ − I|² + Σ_t [(γ/2)|W_t|² + LMNN_t(W₀ + W_t)]

    where LMNN_t is the objective of `LMNN` on the samples of task t, as a mean over them, with margin 1; samples are
    scaled to mean squared distance 2. Convex. Tasks need not have the same classes: ``fit(X, y, tasks=t)`` with a name
    for each sample. Without tasks there is one.

    The map of new tasks, and of ``transform``, is that of W₀, or of the only task; ``task_transform`` gives the others.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    gamma0 : float ≥ 0, default=0.1
        Weight γ₀ of the pull of the shared metric towards the Euclidean one.
    gamma : float ≥ 0, default=0.1
        Price γ of what a task has for itself.
    n_neighbors : int, default=3
        Number k of target neighbours; a smaller class uses all its members.
    mu : float in [0, 1], default=0.5
        Weight μ of the push term.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    tasks_ : ndarray of shape (T,)
        Names of the tasks, sorted.
    task_components_ : ndarray of shape (T, r, d)
        Maps of the tasks, LᵀL = W₀ + W_t.
    objective_ : float
        Value of the objective at the solution, the hinge rounded over a hundredth of the margin.

    Notes
    -----
    For several related tasks with few labels each, such as the same question for several hospitals or languages.
    With one task it is `LMNN` with a pull to Euclidean distance; tasks that have nothing in common are better
    learned one by one.

    An iteration costs O(T p + n d²) for T active triplets of all tasks.

    References
    ----------
    | S. Parameswaran, K. Q. Weinberger, "Large margin multi-task metric learning", NIPS 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MultiTaskLMNN
    >>> X, y = load_iris(return_X_y=True)
    >>> tasks = np.where(np.arange(150) % 2, "first", "second")
    >>> metric = MultiTaskLMNN(max_iter=20).fit(X, y, tasks=tasks)
    >>> metric.tasks_.tolist()
    ['first', 'second']
    >>> metric.task_transform(X[:5], "first").shape
    (5, 4)
    """

    _sees = (Labels,)

    _: KW_ONLY
    gamma0: NotNegative = 0.1
    gamma: NotNegative = 0.1
    n_neighbors: Count = 3
    mu: Share = 0.5
    max_iter: Iterations = 200
    tol: NotNegative = 1e-4
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels, tasks: np.ndarray | None = None) -> Solution:
        frame = Frame.of(X, scaled=True)
        frame = replace(frame, X=frame.X * X.dtype.type(np.sqrt(2)), unit=frame.unit / np.sqrt(2))
        self.tasks_, task = np.unique(np.zeros(len(X)) if tasks is None else tasks, return_inverse=True)
        parts = tuple(self._part(frame.X[task == t], side.codes[task == t]) for t in range(len(self.tasks_)))
        problems = (TaskProblem(parts, self.gamma0, self.gamma, self.mu, width) for width in WIDTHS)
        d = frame.X.shape[1]
        start = [np.eye(d), *(0.1 * np.eye(d) for _ in parts)]  # at 0 the slope of a factor is 0
        solution = in_rounds(
            lambda f, x, budget: Certified(budget, self.tol).minimize(f, x), problems, start, self.max_iter
        )
        self.objective_ = solution.value
        shared, *own = solution.x
        maps = [frame.lift(canonical(np.vstack([shared, L]))) for L in own]
        self.task_components_ = np.stack(maps).astype(X.dtype)
        self._store(maps[0] if tasks is None else frame.lift(canonical(shared)), X.dtype)
        return solution

    def _part(self, X: np.ndarray, codes: np.ndarray) -> Impostors:
        """The objective of one task."""
        codes = np.unique(codes, return_inverse=True)[1]
        return Impostors(X - X.mean(axis=0), codes, target_neighbors(X, codes, self.n_neighbors), 1.0, None)


@dataclass(frozen=True)
class TaskProblem:
    """The objective over factors [L₀, L_1, …, L_T] of W₀ and W_t; the map of a task is L₀ above L_t."""

    parts: tuple[Impostors, ...]
    gamma0: float
    gamma: float
    mu: float
    width: float

    def __call__(self, x: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        shared, *own = x
        away = shared.T @ shared - np.eye(shared.shape[1])
        value, gradients = self.gamma0 / 2 * float(np.vdot(away, away)), [2 * self.gamma0 * shared @ away]
        for part, L in zip(self.parts, own, strict=True):
            n, K = len(part.X), L @ L.T
            f, g, _ = part(np.vstack([shared, L]), self.mu, self.width)
            value += f / n + self.gamma / 2 * float(np.vdot(K, K))
            gradients[0] = gradients[0] + g[: len(shared)] / n
            gradients.append(g[len(shared) :] / n + 2 * self.gamma * K @ L)
        return value, gradients

    def metric_gradient(self, x: list[np.ndarray]) -> list[np.ndarray]:
        shared, *own = x
        W0 = shared.T @ shared
        slopes = [self.gamma0 * (W0 - np.eye(len(W0)))]
        for part, L in zip(self.parts, own, strict=True):
            push, _ = part.push_gradient(np.vstack([shared, L]), self.width)
            G = ((1 - self.mu) * part.target_scatter + self.mu * push) / len(part.X)
            slopes[0] = slopes[0] + G
            slopes.append(G + self.gamma * L.T @ L)
        return slopes
