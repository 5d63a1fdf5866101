"""The problem of ITML, D(W, I) + γ Σ h(r_c), and three ways towards its solution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg as sla

from isometry.core.objective import DistanceObjective, logdet_penalty
from isometry.core.parts import MeanObjective
from isometry.core.progress import report
from isometry.core.solve import Solution, lbfgs
from isometry.sampling import SignedEdges, over_pairs
from isometry.supervision import Pairs


@dataclass(frozen=True)
class LogDetProblem:
    """Pairs of rows X (n, d) with bounds (u, l) on their squared distances, and the weight γ of a violation."""

    X: np.ndarray
    signed: SignedEdges
    bounds: np.ndarray
    gamma: float

    @cached_property
    def objective(self) -> DistanceObjective | MeanObjective:
        """F(L) = |L|² − 2 log|det L| − d + γ Σ h(|Lv|²/bound)."""
        return replace(self._terms(dual=False), penalty=logdet_penalty)

    def _terms(self, *, dual: bool) -> DistanceObjective | MeanObjective:
        """γ Σ h(|Lv|²/bound) over the pairs, or the terms of the dual objective."""
        make = partial(bounded_pairs, bounds=self.bounds, gamma=self.gamma, dual=dual)
        return over_pairs(make, self.X, self.signed)

    def gap(self, L: np.ndarray) -> float:
        """Relative gap to the dual value log det P + γ Σ log(bound/distance), P = I + Σ c v vᵀ; inf: no bound."""
        value = self.objective(L)[0]
        P = np.eye(len(L)) + self._terms(dual=False).metric_gradient(L)
        sign, logdet = np.linalg.slogdet(P)
        if sign <= 0 or sla.eigvalsh((P + P.T) / 2)[0] <= 0:
            return np.inf
        dual = logdet + self._terms(dual=True)(L)[0]
        return max(value - dual, 0.0) / max(1.0, abs(value))

    def minimize(self, L: np.ndarray, max_iter: int, tol: float) -> tuple[Solution, float]:
        """L-BFGS with ever smaller tolerance, until the duality gap, which is returned too, is at most ``tol``."""
        reachable = max(tol, 1e-5 if self.X.dtype == np.float32 else 0)
        n_iter, lbfgs_tol = 0, 1e-5
        history: list[float] = []
        while True:
            solution = lbfgs(self.objective, L, max_iter=max(max_iter - n_iter, 1), tol=lbfgs_tol)
            solution = solution.following(n_iter, max_iter, history)
            L, n_iter, history = solution.x, solution.n_iter, solution.history
            gap = self.gap(L)
            if gap <= tol or n_iter >= max_iter or lbfgs_tol < 1e-13:
                done = gap <= reachable
                reason = f"duality gap {gap:.1e}" if done else solution.reason
                return replace(solution, converged=done, reason=reason), gap
            lbfgs_tol /= 100


def bounded_pairs(
    X: np.ndarray, signed: SignedEdges, *, bounds: np.ndarray, gamma: float, dual: bool
) -> DistanceObjective:
    """γ Σ h(d/bound) over pairs of rows; or the terms of the dual objective, γ Σ log(bound/d) over violated pairs."""
    u, l = bounds

    def link(t: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.where(sign > 0, t.dtype.type(1 / u), t.dtype.type(1 / l))
        r = t * scale
        violated = (r > 1) == (sign > 0)
        violated &= r > 0  # no metric can satisfy a dissimilar pair of equal points
        r[~violated] = 1
        log = np.log(r)
        return -log if dual else r - log - 1, (1 - 1 / r) * scale

    return DistanceObjective(X, signed.edges, signed.loss(link, similar=gamma, dissimilar=gamma))


def cyclic_projections(
    X: np.ndarray, pairs: Pairs, bounds: np.ndarray, gamma: float, *, max_iter: int, tol: float
) -> Solution:
    """W (d, d) by Bregman projections, one pair at a time, until the multipliers change by at most tol, relatively."""
    S, D = pairs.similar, pairs.dissimilar
    V = np.concatenate([X[S.i] - X[S.j], X[D.i] - X[D.j]]).astype(np.float64)
    penalty = gamma * np.concatenate([S.weight, D.weight])
    delta = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
    xi = np.repeat(bounds, [len(S.i), len(D.i)])
    keep = np.einsum("ij,ij->i", V, V) > 0
    V, delta, xi, penalty = (part[keep] for part in (V, delta, xi, penalty))
    W, lam = np.eye(X.shape[1]), np.zeros(len(V))
    step = 1 / (1 + 1 / penalty)
    history: list[float] = []
    for _ in range(max_iter):
        before = lam.copy()
        for c, v in enumerate(V):
            Wv = W @ v
            p = v @ Wv
            alpha = min(lam[c], delta[c] * step[c] * (1 / p - 1 / xi[c]))
            xi[c] = 1 / (1 / xi[c] + delta[c] * alpha / penalty[c])
            lam[c] -= alpha
            W += (delta[c] * alpha / (1 - delta[c] * alpha * p)) * np.outer(Wv, Wv)
        change = float(np.abs(lam - before).sum() / max(np.abs(lam).sum(), 1e-300))
        history.append(change)
        report(change)
        if change <= tol:
            return Solution(W, change, len(history), "the multipliers no longer change", True, history)
    return Solution(W, change, len(history), f"max_iter={max_iter} reached", False, history)


def stream(X: np.ndarray, pairs: Pairs, W: np.ndarray, bounds: np.ndarray, eta: float | None) -> np.ndarray:
    """One closed-form LogDet step a pair, in the order given; W stays positive definite for every step size.

    ``eta`` is the step of the loss rule; None: every pair is moved to its bound.
    """
    u, l = bounds
    s = pairs.similarity[:, None]
    weights = pairs.weight[:, None] * np.hstack([s, 1 - s])  # (m, 2) as a similar and as a dissimilar pair
    k, is_dissimilar = np.nonzero(weights > 0)  # in the order given
    V = (X[pairs.i[k]] - X[pairs.j[k]]).astype(np.float64)
    for v, similar, weight in zip(V, is_dissimilar == 0, weights[k, is_dissimilar], strict=True):
        Wv = W @ v
        p, bound = v @ Wv, u if similar else l
        if p <= 1e-12 * bound or (p <= bound) == similar:
            continue
        target = bound if eta is None else implicit_distance(p, bound, weight * eta / bound**2)
        W = W + ((target - p) / p**2) * np.outer(Wv, Wv)
    return (W + W.T) / 2


def implicit_distance(p: float, y: float, eta: float) -> float:
    """The pair's squared distance after argmin_W D(W, W_t) + η/2 (vᵀWv − y)², where it was p before."""
    a = eta * y * p - 1
    root = np.sqrt(a * a + 4 * eta * p * p)
    return float((a + root) / (2 * eta * p) if a > 0 else 2 * p / (root - a))
