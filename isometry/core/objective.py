"""f(L) = Σ over edges of a loss on |L(x_i − x_j)|², plus a penalty on L: value, gradient, and gradient in W = LᵀL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sla

from isometry.core.edges import AnchorEdges, DenseEdges, Edges, ListedEdges, Loss, NeighborEdges, TriangleEdges
from isometry.core.linalg import factor
from isometry.core.solve import Adam, Progress, Solution, lbfgs

STEP, SMALLEST = 0.05, 1 / 32  # of Adam, in units of the entries of the start; the last step, in units of the first
NOISE = 1e-3  # of the mean value of an iteration: no smaller change is looked for
ROUND = 100  # batches, after which their mean value is looked at

Penalty = Callable[[np.ndarray], tuple[float, np.ndarray]]  # L (p, d) → value, gradient (p, d)


@dataclass(frozen=True)
class Objective:
    """An objective to minimise over linear maps L (p, d). Call it for (value, gradient)."""

    X: np.ndarray  # (n, d), centred
    edges: Edges
    loss: Loss
    penalty: Penalty | None = None
    penalty_slope: Callable[[np.ndarray], np.ndarray] | None = None  # W → ∂penalty/∂W; needed for certificates
    linear: np.ndarray | None = None  # A (d, d): adds tr(W A), for terms whose slopes do not depend on W

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        X = self.X
        Z = X @ L.T.astype(X.dtype, copy=False)  # (n, p)
        value, pull = self.edges.evaluate(Z, self.loss)
        gradient = 2 * (pull.T.astype(X.dtype, copy=False) @ X).astype(np.float64, copy=False)  # (p, d)
        if self.linear is not None:
            LA = L @ self.linear
            value += float(np.vdot(LA, L))
            gradient += 2 * LA
        if self.penalty is not None:
            f, g = self.penalty(L)
            value, gradient = value + f, gradient + g
        return value, gradient

    @property
    def _divisible(self) -> DenseEdges | ListedEdges | NeighborEdges:
        if isinstance(self.edges, AnchorEdges | TriangleEdges):
            raise TypeError(f"{type(self.edges).__name__} cannot be divided into batches")
        return self.edges

    @property
    def n_parts(self) -> int:
        """Number of anchors, or of listed pairs."""
        return self._divisible.size

    def batch(self, rows: np.ndarray) -> Objective:
        """The part of the anchors, or of the listed pairs, at ``rows``, scaled up to stand for all of them.

        Where rows are drawn at random, its value and gradient are unbiased estimates of those of the whole.
        """
        points, edges = self._divisible.part(rows)
        share = self.n_parts / len(rows)

        def loss(d, where):
            value, slopes = self.loss(d, rows[where])
            return share * value, share * slopes

        return replace(self, X=self.X[points], edges=edges, loss=loss)

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        """∂f/∂W (d, d) at W = LᵀL."""
        Z = self.X @ L.T.astype(self.X.dtype, copy=False)
        _, pull = self.edges.evaluate(Z, self.loss, V=self.X)
        G = (self.X.T @ pull.astype(self.X.dtype, copy=False)).astype(np.float64, copy=False)
        if self.linear is not None:
            G = G + self.linear
        if self.penalty_slope is not None:
            G = G + self.penalty_slope(L.T @ L)
        return G


def ridge_penalty(reg: float) -> Penalty | None:
    """reg |L|² and its gradient; None if there is nothing to add."""
    return None if reg == 0 else lambda L: (reg * float(np.vdot(L, L)), 2 * reg * L)


def minimize_psd(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]],
    metric_gradient: Callable[[np.ndarray], np.ndarray],
    L0: np.ndarray,
    *,
    max_iter: int = 200,
    tol: float = 1e-5,
    restarts: int = 5,
    progress: Progress | None = None,
) -> Solution:
    """Minimise a function that is convex in W ⪰ 0 over a square factor W = LᵀL, with a certificate.

    A stationary L has G W = 0 for G = ∂f/∂W; W is the global minimum if also G ⪰ 0. Where G has a negative eigenvalue,
    its eigenvector is a direction of descent that L could not see: it is added and the search goes on.
    """
    L, history, n_iter = np.array(L0, dtype=np.float64), [], 0
    for _ in range(restarts + 1):
        solution = lbfgs(objective, L, max_iter=max(max_iter - n_iter, 1), tol=tol, memory=20, progress=progress)
        history += solution.history
        n_iter += solution.n_iter
        L = solution.x
        G = metric_gradient(L)
        w, V = sla.eigh((G + G.T) / 2, subset_by_index=[0, 0])
        scale = max(1.0, np.abs(G).max(), np.abs(objective(L0)[1]).max())
        if w[0] >= -max(tol, 1e-8) * scale or n_iter >= max_iter:
            break
        step, v = np.trace(L @ L.T) / len(L) + 1e-12, V[:, 0]
        W = L.T @ L
        for _ in range(30):
            candidate = _square(factor(W + step * np.outer(v, v)), L.shape)
            if objective(candidate)[0] < solution.value:
                L = candidate
                break
            step /= 4
        else:
            break
    return Solution(L, solution.value, n_iter, solution.reason, solution.converged, history)


def minimize_batches(
    objective: Objective,
    L0: np.ndarray,
    batch_size: int,
    rng: np.random.RandomState,
    *,
    max_iter: int = 200,
    tol: float = 1e-3,
    progress: Progress | None = None,
) -> Solution:
    """Adam on random parts of an objective; an iteration is a hundred of them.

    The step is halved whenever an iteration lowers the mean value of the parts by less than tol, relatively, and the
    search ends when it has become a small part of the first. The mean values are the history.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} must be at least 1, or None to use all samples at once")
    n, b, tol = objective.n_parts, batch_size, max(tol, NOISE)
    L, progress = np.array(L0, dtype=np.float64), progress or Progress()
    first = step = STEP * float(np.sqrt(np.mean(L**2)) or 1.0)
    adam = Adam(L.shape)
    history: list[float] = []
    order = np.zeros(0, dtype=np.intp)
    for it in range(1, max_iter + 1):
        values = []
        for _ in range(ROUND):
            order = order if len(order) else rng.permutation(n)
            rows, order = order[:b], order[b:]
            value, gradient = objective.batch(rows)(L)
            values.append(value)
            L -= step * adam.direction(gradient)
        best = min(history, default=np.inf)
        history.append(float(np.mean(values)))
        progress.step(history[-1])
        if history[-1] > best - tol * abs(best):
            step /= 2
        if step < SMALLEST * first:
            reason = "the mean of the batches falls by less than tol, with ever smaller steps"
            return Solution(L, history[-1], it, reason, True, history)
    return Solution(L, history[-1] if history else np.inf, max_iter, f"max_iter={max_iter} reached", False, history)


def _square(L: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Pad a factor with zero rows."""
    out = np.zeros(shape)
    out[: len(L)] = L
    return out
