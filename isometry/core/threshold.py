"""A loss of pair distances against a threshold, which is a number, the distance of a second metric, or their sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isometry.core.edges import EdgeLoss, MeasuredEdges
from isometry.core.linalg import factor
from isometry.core.parts import Parts
from isometry.core.solve import Solution
from isometry.core.solvers import Certified


@dataclass(frozen=True)
class ThresholdObjective:
    """f(L, M, b) = Σ over pairs of ℓ(|L(x_i − x_j)|² − |M(z_i − z_j)|² − b) + r₁|L|² + r₂|M|².

    ``loss`` is ℓ in the form that edges evaluate. Convex in (LᵀL, MᵀM, b) if ℓ is convex. One view leaves M out. The
    variables are a list [L, M, b], b an array of one number.
    """

    views: Sequence[np.ndarray]  # X (n, d), or X and Z
    edges: MeasuredEdges
    loss: EdgeLoss
    reg: Sequence[float]

    def _evaluate(
        self, x: list[np.ndarray], features: Sequence[np.ndarray] | None = None
    ) -> tuple[float, list[np.ndarray], float]:
        """Value without penalties, the slopes' Laplacian times the features (default: the maps), the sum of slopes."""
        *factors, b = x
        maps = [V @ L.T.astype(V.dtype) for V, L in zip(self.views, factors, strict=True)]  # (n, p), (n, q)
        slope_sum = 0.0

        def excess(d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
            nonlocal slope_sum
            for Z in maps[1:]:
                d = d - self.edges.sqdist(Z, where)
            f, c = self.loss(d - d.dtype.type(b.item()), where)
            slope_sum += float(c.sum(dtype=np.float64))
            return f, c

        features = maps if features is None else features
        value, pull = self.edges.evaluate(maps[0], excess, np.hstack(features))
        widths = [F.shape[1] for F in features]
        return value, np.split(pull, np.cumsum(widths)[:-1], axis=1), slope_sum

    def __call__(self, x: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        """Value, and gradients in L, M and b."""
        value, pulls, slope_sum = self._evaluate(x)
        gradients = []
        for sign, L, V, pull, r in zip((1, -1), x[:-1], self.views, pulls, self.reg, strict=False):
            gradients.append(2 * sign * pull.T @ V + 2 * r * L)
            value += r * float(np.vdot(L, L))
        return value, [*gradients, np.array([-slope_sum])]

    def metric_gradient(self, x: list[np.ndarray]) -> list[np.ndarray]:
        """∂f/∂(LᵀL) (d, d) and ∂f/∂(MᵀM)."""
        _, pulls, _ = self._evaluate(x, self.views)
        return [
            sign * (V.T @ pull).astype(np.float64) + r * np.eye(V.shape[1])
            for sign, V, pull, r in zip((1, -1), self.views, pulls, self.reg, strict=False)
        ]


@dataclass(frozen=True)
class SpreadThreshold:
    """The sum of `ThresholdObjective`s of one view over chunks of pairs, which have no penalty, plus reg |L|²."""

    parts: Parts  # of (share, objective)
    reg: float

    def __call__(self, x: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        value, of_map, of_bias = self.parts.total(_value_and_gradients, x)
        return value + self.reg * float(np.vdot(x[0], x[0])), [of_map + 2 * self.reg * x[0], of_bias]

    def metric_gradient(self, x: list[np.ndarray]) -> list[np.ndarray]:
        (G,) = self.parts.total(_metric_gradient, x)
        return [G + self.reg * np.eye(len(G))]


def _value_and_gradients(
    part: tuple[float, ThresholdObjective], x: list[np.ndarray]
) -> tuple[float, np.ndarray, np.ndarray]:
    value, (of_map, of_bias) = part[1](x)
    return value, of_map, of_bias


def _metric_gradient(part: tuple[float, ThresholdObjective], x: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(part[1].metric_gradient(x))


def minimize_threshold(
    objective: ThresholdObjective | SpreadThreshold,
    x: list[np.ndarray],
    bounds: tuple[float | None, float | None] = (None, None),
    n_components: int | None = None,
    *,
    max_iter: int = 200,
    tol: float = 1e-6,
    restarts: int = 5,
) -> Solution:
    """Minimise over [L, M, b], with b within its bounds; square L and M reach the global minimum.

    With ``n_components`` < d the search then goes on from that many leading eigenvectors of LᵀL.
    """

    def solve(x: list[np.ndarray]) -> Solution:
        free = [(None, None)] * sum(L.size for L in x[:-1])
        return Certified(max_iter, tol, restarts, [*free, bounds]).minimize(objective, x)

    solution = solve(x)
    L, *others = solution.x
    if n_components is None or n_components >= len(L):
        return solution
    return solve([factor(L.T @ L, n_components), *others])
