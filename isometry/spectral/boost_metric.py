"""Boosting of rank-one metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from scipy.optimize import brentq
from scipy.special import logsumexp
from sklearn.utils import check_random_state

from isometry.core.basis import BasisProblem
from isometry.core.frame import Frame
from isometry.core.linalg import canonical, factor, fix_signs, symmetrize
from isometry.core.objective import DistanceObjective
from isometry.core.progress import report
from isometry.core.solve import Solution
from isometry.core.solvers import Certified
from isometry.parameters import KW_ONLY, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Comparisons, Sampler, comparisons
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Triplets

LARGE = 10  # trace above which it costs more and more, in units of that of w₀ I


@parameters
class BoostMetric(SearchedMetric):
    """Boosted metric: an exponential loss on triplets, by a sum of rank-one metrics.

    min_{W ⪰ 0} log mean over triplets of exp(d²(a, p) − d²(a, n)) + ν tr W,  ν = reg/(d w₀)

    where w₀ I is the metric with median gap ``|d²(a, p) − d²(a, n)|`` = 1. Samples are scaled to mean squared
    distance 1. Triplets that can all be met with a margin above ν for each unit of the trace leave no minimum; a
    trace above ten times that of w₀ I therefore costs more and more.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    reg : float ≥ 0, default=0.1
        Weight of the trace, without a unit.
    solver : {"psd", "boost"}, default="psd"
        "psd", on a factor of W, with a certificate of the minimum; or "boost": one rank-one metric after another,
        slower, and the weights of all so far are adapted each time.
    comparisons : str or Sampler, default="auto"
        Which triplets to take if given labels: "auto" is `NeighborTriplets(3, misses=10)`; `RandomComparisons(n)` or
        another sampler.
    max_iter : int, default=500
        Largest number of iterations, or of rank-one metrics.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    objective_ : float
        Value of the objective at the solution.
    path_ : ndarray of shape (T, d)
        With solver="boost": rows √w v of the metrics w v vᵀ, in the order in which they were found; a row of 0 is one
        that later ones replaced.

    Notes
    -----
    For triplets, or labels of which triplets are made, and a metric of low rank: the trace keeps few directions.
    Losses are exponential, so that a few wrong triplets weigh heavily; with noisy ones `RelativeML` with
    loss="logistic" is safer.

    One evaluation costs O(m d + n d²) for m triplets.

    References
    ----------
    | C. Shen, J. Kim, L. Wang, A. van den Hengel, "Positive semidefinite metric learning using boosting-like
      algorithms", JMLR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import BoostMetric, Triplets
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Triplets([0, 50, 100], [1, 51, 101], [60, 110, 20], n_samples=150)
    >>> metric = BoostMetric().fit(X, side)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < far)
    True
    """

    _sees = (Labels, Triplets)

    _: KW_ONLY
    reg: NotNegative = 0.1
    solver: Literal["psd", "boost"] = "psd"
    comparisons: str | Sampler = "auto"
    max_iter: Iterations = 500
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets) -> Solution:
        frame = Frame.of(X, scaled=True)
        compared = comparisons(side, self.comparisons, frame.X, check_random_state(self.random_state))
        d, gap = frame.X.shape[1], compared.gap(frame.X)
        problem = ExponentialLoss(frame.X, compared, self.reg * gap / d, LARGE * d / gap)
        if self.solver == "psd":
            solution = Certified(self.max_iter, self.tol).minimize(problem, np.eye(d) / np.sqrt(gap))
            L = canonical(solution.x, tol=1e-7)
        else:
            solution = problem.boost(self.max_iter, self.tol)
            self.path_ = frame.lift(solution.x)
            L = factor(solution.x.T @ solution.x)
        self.objective_ = solution.value
        self._store(frame.lift(L), X.dtype)
        return solution


@dataclass(frozen=True)
class ExponentialLoss:
    """log Σ_r w_r exp(h_r) + price(tr W) over W = LᵀL, h = d²(near) − d²(far)."""

    X: np.ndarray  # (n, d)
    compared: Comparisons
    nu: float
    large: float = np.inf

    def price(self, trace: float) -> tuple[float, float]:
        """ν t and its slope; above ``large`` it rises by the square of what is above, so that there is a minimum."""
        above = max(trace - self.large, 0.0)
        return self.nu * trace + above**2 / (2 * self.large), self.nu + above / self.large

    def _at(self, h: np.ndarray) -> tuple[float, DistanceObjective]:
        """log Σ w exp(h), and the objective whose slopes are those of the loss where the gaps are h."""
        total, w = float(logsumexp(h, b=self.compared.weight)), self.compared.weight

        def loss(d: np.ndarray, where: Any) -> tuple[float, np.ndarray]:
            u = w[where] * np.exp(d[0] - d[1] - total)
            return 0.0, np.stack([u, -u])

        def penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = self.price(float(np.vdot(L, L)))
            return value, 2 * slope * L

        def penalty_slope(W: np.ndarray) -> np.ndarray:
            return self.price(float(np.trace(W)))[1] * np.eye(len(W))

        return total, DistanceObjective(self.X, self.compared.edges, loss, penalty, penalty_slope)

    def gaps(self, L: np.ndarray) -> np.ndarray:
        return self.compared.edges.gaps(self.X @ L.T.astype(self.X.dtype)).astype(np.float64)

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        total, objective = self._at(self.gaps(L))
        value, gradient = objective(L)
        return total + value, gradient

    def in_metric(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        total, objective = self._at(self.gaps(L))
        value, G = objective.in_metric(L)
        return total + value, G

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        return self.in_metric(L)[1]

    def boost(self, max_iter: int, tol: float) -> Solution:
        """Rows √w v, one metric w v vᵀ at a time: v the direction of steepest descent, w by a line search.

        Then the weights of all are adapted, without which the sum would end above the minimum. Ends where no
        direction lowers the value: the largest eigenvalue of Σ u_r A_r is at most the slope of the price, but for tol.
        """
        d, h = self.X.shape[1], np.zeros(self.compared.edges.size)
        V, w, history, value = np.zeros((0, d)), np.zeros(0), list[float](), 0.0
        for it in range(1, max_iter + 1):
            weights = self.compared.weight * np.exp(h - logsumexp(h, b=self.compared.weight))
            slope, v = self._steepest(weights)
            if slope <= self.price(float(w.sum()))[1] * (1 + tol) + 1e-15:
                return Solution(_as_map(V, w), value, it, "no direction lowers the value", True, history or [value])
            V, w = np.vstack([V, v]), np.append(w, self._step(h, self.gaps(v[None]), float(w.sum())))
            if len(V) > 1:
                w = BasisProblem(self, V).minimize(w, 50, tol).x
            before, (value, _) = value, self.in_metric(_as_map(V, w))
            h = self.gaps(_as_map(V, w))
            history.append(value)
            report(value)
            if before - value <= 1e-2 * tol * max(abs(value), 1e-3):
                return Solution(_as_map(V, w), value, it, "relative decrease below tol", True, history)
        return Solution(_as_map(V, w), value, max_iter, f"max_iter={max_iter} reached", False, history)

    def _steepest(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """The largest eigenvalue of Σ u_r A_r, and its eigenvector."""

        def loss(d: np.ndarray, where: Any) -> tuple[float, np.ndarray]:
            return 0.0, np.stack([-weights[where], weights[where]])

        X = self.X.astype(np.float64, copy=False)
        _, pull = self.compared.edges.evaluate(X, loss)
        values, V = sla.eigh(symmetrize(X.T @ pull), subset_by_index=[X.shape[1] - 1, X.shape[1] - 1])
        return float(values[0]), fix_signs(V.T)[0]

    def _step(self, h: np.ndarray, g: np.ndarray, trace: float) -> float:
        """w > 0 where the slope of log Σ exp(h + w g) + price(trace + w) is 0; the slope rises with w."""

        def slope(w: float) -> float:
            u = self.compared.weight * np.exp(h + w * g - logsumexp(h + w * g, b=self.compared.weight))
            return float(u @ g) + self.price(trace + w)[1]

        high = 1.0 / max(float(np.abs(g).max()), 1e-300)
        while slope(high) < 0:
            high *= 2
        return float(brentq(slope, 0.0, high))


def _as_map(V: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Rows √w v; one row of 0 if there are none."""
    return np.sqrt(np.maximum(w, 0))[:, None] * V if len(V) else np.zeros((1, V.shape[1]))
