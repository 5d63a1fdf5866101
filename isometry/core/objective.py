"""f(L) = Σ over edges of a loss on |L(x_i − x_j)|², plus a penalty on L: value, gradient, and gradient in W = LᵀL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from isometry.core.edges import DivisibleEdges, EdgeLoss, Edges
from isometry.core.threads import product

Penalty = Callable[[np.ndarray], tuple[float, np.ndarray]]  # L (p, d) → value, gradient (p, d)


@dataclass(frozen=True)
class DistanceObjective:
    """An objective to minimise over linear maps L (p, d). Call it for (value, gradient)."""

    X: np.ndarray  # (n, d), centred
    edges: Edges
    loss: EdgeLoss
    penalty: Penalty | None = None
    penalty_slope: Callable[[np.ndarray], np.ndarray] | None = None  # W → ∂penalty/∂W; needed for certificates
    linear: np.ndarray | None = None  # A (d, d): adds tr(W A), for terms whose slopes do not depend on W

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        X = self.X
        Z = product(X, L.T.astype(X.dtype, copy=False))  # (n, p)
        value, pull = self.edges.evaluate(Z, self.loss)
        gradient = 2 * product(pull.T.astype(X.dtype, copy=False), X).astype(np.float64, copy=False)  # (p, d)
        if self.linear is not None:
            LA = L @ self.linear
            value += float(np.vdot(LA, L))
            gradient += 2 * LA
        if self.penalty is not None:
            f, g = self.penalty(L)
            value, gradient = value + f, gradient + g
        return value, gradient

    @property
    def n_parts(self) -> int:
        """Number of anchors, or of listed pairs."""
        return self._divisible().size

    def _divisible(self) -> DivisibleEdges:
        if not isinstance(self.edges, DivisibleEdges):
            raise TypeError(f"{type(self.edges).__name__} cannot be divided into batches")
        return self.edges

    def batch(self, rows: np.ndarray) -> DistanceObjective:
        """The part of the anchors, or of the listed pairs, at ``rows``, scaled to the size of the whole.

        Where rows are drawn at random, its value and gradient are unbiased estimates of those of the whole.
        """
        points, edges = self._divisible().part(rows)
        share = self.n_parts / len(rows)

        def loss(d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
            value, slopes = self.loss(d, rows[where])
            return share * value, share * slopes

        return replace(self, X=self.X[points], edges=edges, loss=loss)

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        """∂f/∂W (d, d) at W = LᵀL."""
        return self.in_metric(L)[1]

    def in_metric(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and ∂f/∂W (d, d) at W = LᵀL."""
        Z = product(self.X, L.T.astype(self.X.dtype, copy=False))
        value, pull = self.edges.evaluate(Z, self.loss, V=self.X)
        G = product(self.X.T, pull.astype(self.X.dtype, copy=False)).astype(np.float64, copy=False)
        if self.linear is not None:
            value, G = value + float(np.vdot(L @ self.linear, L)), G + self.linear
        if self.penalty is not None:
            value += self.penalty(L)[0]
        if self.penalty_slope is not None:
            G = G + self.penalty_slope(L.T @ L)
        return value, G


def ridge_penalty(reg: float) -> Penalty | None:
    """reg |L|² and its gradient; None if there is nothing to add."""
    return None if reg == 0 else lambda L: (reg * float(np.vdot(L, L)), 2 * reg * L)


def logdet_penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
    """LogDet divergence of W = LᵀL (d, d) from the identity, tr W − log det W − d, and its gradient in L."""
    sign, logdet = np.linalg.slogdet(L)
    if sign == 0:
        return np.inf, np.zeros_like(L)
    return float(np.vdot(L, L)) - 2 * logdet - len(L), 2 * L - 2 * np.linalg.inv(L).T
