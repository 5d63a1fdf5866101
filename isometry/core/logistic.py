"""A loss of pair distances against a threshold, which is a number, the distance of a second metric, or their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla

from isometry.core.edges import Edges, Loss
from isometry.core.solve import Progress, Solution, lbfgs


@dataclass(frozen=True)
class ThresholdObjective:
    """f(L, M, b) = Σ over pairs of ℓ(|L(x_i − x_j)|² − |M(z_i − z_j)|² − b) + r₁|L|² + r₂|M|².

    ``loss`` is ℓ in the form that edges evaluate. Convex in (LᵀL, MᵀM, b) if ℓ is convex. One view leaves M out.
    """

    views: Sequence[np.ndarray]  # X (n, d), or X and Z
    edges: Edges
    loss: Loss
    reg: Sequence[float]

    def _evaluate(self, factors, b, features=None):
        """Value without penalties, the slopes' Laplacian times the features (default: the maps), the sum of slopes."""
        maps = [V @ L.T.astype(V.dtype) for V, L in zip(self.views, factors, strict=True)]  # (n, p), (n, q)
        total = 0.0

        def excess(d, where):
            nonlocal total
            for Z in maps[1:]:
                d = d - self.edges.sqdist(Z, where)
            f, c = self.loss(d - d.dtype.type(b), where)
            total += float(c.sum(dtype=np.float64))
            return f, c

        features = maps if features is None else features
        value, pull = self.edges.evaluate(maps[0], excess, np.hstack(features))
        widths = [F.shape[1] for F in features]
        return value, np.split(pull, np.cumsum(widths)[:-1], axis=1), total

    def __call__(self, factors: Sequence[np.ndarray], b: float) -> tuple[float, list[np.ndarray], float]:
        """Value, gradients in L and M, gradient in b."""
        value, pulls, total = self._evaluate(factors, b)
        signs, gradients = (1, -1), []
        for sign, L, V, pull, r in zip(signs, factors, self.views, pulls, self.reg):
            gradients.append(2 * sign * pull.T @ V + 2 * r * L)
            value += r * float(np.vdot(L, L))
        return value, gradients, -total

    def metric_gradients(self, factors: Sequence[np.ndarray], b: float) -> list[np.ndarray]:
        """∂f/∂(LᵀL) (d, d) and ∂f/∂(MᵀM)."""
        _, pulls, _ = self._evaluate(factors, b, self.views)
        return [
            sign * (V.T @ pull).astype(np.float64) + r * np.eye(V.shape[1])
            for sign, V, pull, r in zip((1, -1), self.views, pulls, self.reg)
        ]


def minimize_threshold(
    objective: ThresholdObjective,
    factors: Sequence[np.ndarray],
    b: float,
    *,
    bounds: tuple[float | None, float | None] = (None, None),
    max_iter: int = 200,
    tol: float = 1e-6,
    restarts: int = 5,
    progress: Progress | None = None,
) -> Solution:
    """Minimise over (L, M, b), b within its bounds; x of the solution is ([L, M], b).

    With square factors the minimum is certified: where ∂f/∂W has a negative eigenvalue, its eigenvector is a direction
    of descent that the factor could not see; it is added and the search goes on.
    """
    factors, n_iter = [np.array(L, dtype=np.float64) for L in factors], 0
    history: list[float] = []
    cuts = np.cumsum([L.size for L in factors])
    square = all(L.shape[0] == L.shape[1] for L in factors)

    def unpack(theta):
        *parts, last = np.split(theta, cuts)
        return [part.reshape(L.shape) for part, L in zip(parts, factors, strict=True)], float(last[0])

    def flat(theta):
        value, gradients, slope = objective(*unpack(theta))
        return value, np.concatenate([*(g.ravel() for g in gradients), [slope]])

    scale = max(1.0, *(np.abs(G).max() for G in objective.metric_gradients(factors, b)))
    options: dict[str, Any] = {"bounds": [(None, None)] * cuts[-1] + [bounds], "memory": 20, "progress": progress}
    for _ in range(restarts + 1):
        start = np.concatenate([*(L.ravel() for L in factors), [b]])
        solution = lbfgs(flat, start, max_iter=max(max_iter - n_iter, 1), tol=tol, **options)
        history, n_iter = history + solution.history, n_iter + solution.n_iter
        factors, b = unpack(solution.x)
        if not square or n_iter >= max_iter or not _escape(objective, factors, b, solution.value, tol * scale):
            break
    return Solution((factors, b), solution.value, n_iter, solution.reason, solution.converged, history)


def _escape(objective, factors, b, value, tol) -> bool:
    """Add to a factor, in place, a direction of descent that it cannot see, if there is one."""
    for k, G in enumerate(objective.metric_gradients(factors, b)):
        w, V = sla.eigh((G + G.T) / 2, subset_by_index=[0, 0])
        step = np.vdot(factors[k], factors[k]) / len(G) + 1e-12
        while w[0] < -tol and step > 1e-18:
            grown = list(factors)
            grown[k] = np.linalg.qr(np.vstack([factors[k], np.sqrt(step) * V.T]), mode="r")  # RᵀR = W + step v vᵀ
            if objective(grown, b)[0] < value:
                factors[k] = grown[k]
                return True
            step /= 4
    return False
