"""Distances that pairs should have, and the map whose distances fit them best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as sla

from isometry.base import check_side
from isometry.core.edges import DenseEdges, Edges, ListedEdges
from isometry.core.linalg import RANK_TOL, symmetrize
from isometry.core.objective import DistanceObjective
from isometry.core.solve import Solution, lbfgs
from isometry.core.solvers import Certified
from isometry.core.start import mean_sqdist
from isometry.parameters import Iterations, NotNegative
from isometry.sampling import choose_pairs
from isometry.supervision import Labels, Pairs

MAX_STORED_ROWS = 4096  # with more samples the matrix δ (128 MiB at this size) is computed again in each evaluation


@dataclass(frozen=True)
class Targets:
    """Pairs, the distance δ each should have, and its weight w: a number, or one for each listed pair; Σw = 1."""

    edges: Edges
    delta: Callable[[slice], np.ndarray]
    weight: Callable[[slice], Any]

    def stress(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w(√d − δ)² and its slopes w(√d − δ)/√d in d, 0 where d = 0."""
        q = np.sqrt(_finite(d, where), out=d)
        r = q - self.delta(where)
        wr = self.weight(where) * r
        value = float(np.vdot(wr, r))
        q[q == 0] = np.inf
        return value, np.divide(wr, q, out=wr)

    def sstress(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w(d − δ²)² and its slopes."""
        r = _finite(d, where) - self.delta(where) ** 2
        wr = self.weight(where) * r
        return float(np.vdot(wr, r)), 2 * wr

    def overlap(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w δ√d, with w itself as slopes."""
        w = self.weight(where)
        return float(np.sum(w * self.delta(where) * np.sqrt(_finite(d, where)))), np.broadcast_to(w, d.shape)


def _finite(d: np.ndarray, where: slice) -> np.ndarray:
    """d with 0 for the distance of a point to itself, whose slope cancels out whatever it is."""
    if d.ndim == 2:
        d[np.arange(len(d)), np.arange(where.start, where.stop)] = 0
    return d


def label_targets(
    X: np.ndarray, side: Labels | Pairs, sampler: Any, beta: float, rng: np.random.RandomState
) -> Targets:
    """δ² = 2 − exp(−|z|²/β) − [similar] for all pairs of labelled rows, for sampled ones, or for given pairs.

    Pairs with a target of their own keep it.
    """
    n = len(X)
    n_c = side.counts.astype(float) if isinstance(side, Labels) else None
    if isinstance(side, Pairs) and side.target is not None:
        if not side.weight.any():
            raise ValueError("parametric multidimensional scaling needs pairs with a target; y holds none")
        given, w = side.target, side.weight / side.weight.sum()
        return Targets(ListedEdges(side.i, side.j, n), lambda block: given[block], lambda block: w[block])
    check_side(side, ("similar", "dissimilar"), "parametric multidimensional scaling")
    drawn = choose_pairs(side, sampler, X, rng) if isinstance(side, Labels) else side
    if isinstance(drawn, Labels):
        edges, codes = DenseEdges(n), drawn.codes

        def delta_block(rows):
            return _delta(edges.sqdist(X, rows), codes[rows, None] == codes, beta)  # (b, n)

        if n <= MAX_STORED_ROWS:
            stored = delta_block(slice(0, n))
            return Targets(edges, lambda rows: stored[rows], lambda rows: 1 / (n * (n - 1)))
        return Targets(edges, delta_block, lambda rows: 1 / (n * (n - 1)))
    S, D = drawn.similar, drawn.dissimilar
    listed = ListedEdges(np.concatenate([S.i, D.i]), np.concatenate([S.j, D.j]), n)
    delta = _delta(listed.sqdist(X), np.repeat([True, False], [len(S.i), len(D.i)]), beta)
    weights = [S.weight, D.weight]
    if n_c is not None:  # weigh the drawn pairs so that each kind counts as much as all its pairs
        n_similar = n_c @ (n_c - 1) / 2
        weights = [w * total / max(w.sum(), 1) for w, total in zip(weights, (n_similar, n * (n - 1) / 2 - n_similar))]
    w = np.concatenate(weights)
    w /= w.sum()
    return Targets(listed, lambda block: delta[block], lambda block: w[block])


def _delta(d: np.ndarray, similar: np.ndarray, beta: float) -> np.ndarray:
    return np.sqrt(np.maximum(2 - np.exp(-d / beta) - similar, 0))


def scale_of(beta: float | None, X: np.ndarray) -> float:
    return float(mean_sqdist(X) if beta is None else beta)


def fit_map(
    Psi: np.ndarray,
    targets: Targets,
    L0: np.ndarray,
    loss: str = "stress",
    reg: float = 0.0,
    *,
    max_iter: Iterations = 200,
    tol: NotNegative = 1e-6,
) -> Solution:
    """L (p, k) of least loss + ε|L|² for Z = ΨLᵀ, from L₀ at its best scale; ε = ``reg`` · tr(G)/k.

    The stress has the majorising quadratic tr(LGLᵀ) + linear, G = ΨᵀLap(w)Ψ. In coordinates with G + ε = I, half a
    gradient is the Guttman step of iterative majorisation, and L-BFGS comes to the same point in far fewer steps.
    """
    overlap, spread = targets.edges.evaluate(Psi @ L0.T, targets.overlap, V=Psi)
    G = symmetrize(Psi.T @ spread)  # (k, k)
    w, V = sla.eigh(G)
    eps = reg * np.trace(G) / len(G)
    keep = w > RANK_TOL * w[-1]  # in other directions no pair differs
    V, root = V[:, keep], np.sqrt(w[keep] + eps)
    L = L0 @ V * root * (overlap / max(np.vdot(L0 @ G, L0), 1e-300))
    f = DistanceObjective(Psi @ V / root, targets.edges, getattr(targets, loss), linear=np.diag(eps / root**2))
    convex = loss == "sstress" and len(L) == L.shape[1]  # then the minimum is certified as global
    solution = Certified(max_iter, tol).minimize(f, L) if convex else lbfgs(f, L, max_iter=max_iter, tol=tol)
    return replace(solution, x=solution.x / root @ V.T)
