"""Neighbourhood component analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, ridge_penalty
from isometry.core.probability import neighbor_softmax
from isometry.core.softmax import Slopes, SoftmaxEdges, SoftmaxLoss
from isometry.core.solve import Solution
from isometry.core.solvers import Solver, whole_or_batches
from isometry.core.start import initial_map, neighbor_sqdist
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels

SHRINK = (0.17, 0.1, 0.055, 0.03)  # multiples of a solution from which the search starts again


@parameters
class NCA(SearchedMetric):
    """Neighbourhood component analysis: the expected leave-one-out accuracy of a stochastic neighbour is maximised.

    max_L (1/n) Σ_i p_i − reg |L|²,  p_i = Σ_{j: y_j = y_i} p_ij,  p_ij ∝ exp(−|L(x_i − x_j)|²) for j ≠ i

    or, with objective="log", the same with log p_i. All candidates count for every anchor; they are visited in blocks.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    objective : {"sum", "log"}, default="sum"
        "sum" of p_i, or "log": sum of log p_i (anchors without a partner are left out).
    reg : float ≥ 0 or "auto", default=0.0
        Penalty on ``|L|²``; the MAP estimate under a Gaussian prior of variance 1/(2 n reg). "auto": a thousandth of
        the value above which L = 0 becomes a local optimum.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray, default="auto"
        Where the search starts: "auto" is LDA if p ≤ c − 1, else PCA; named starts are scaled so that neighbours are at
        distance about 1, an array is a map (p, d).
    batch_size : int or None, default=None
        Size of mini-batches, for n beyond 10⁵: so many anchors at a time, against all candidates. Adam
        takes the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it;
        ``history_`` has the means of the batches. None: no batches.
    max_iter : int, default=100
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels and k-nearest neighbours, and for pictures in two dimensions: the accuracy of a soft neighbour is
    maximised itself, so that classes may have any shape. The objective is not convex; it costs n², so that from
    some ten thousand samples on `FastNCA` or ``batch_size`` are for you. Few samples and many features overfit:
    give ``reg`` or fewer components.

    An evaluation costs O(n² p + n d p), memory O(block · n); with batches of b anchors O(b n p).

    References
    ----------
    | J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.
    | Z. Yang, J. Laaksonen, "Regularized neighborhood component analysis", SCIA 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import NCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = NCA(2, strength=1, max_iter=30, random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    objective: Literal["sum", "log"] = "sum"
    reg: NotNegative | Literal["auto"] = 0.0
    init: str | np.ndarray = "auto"
    batch_size: Count | None = None
    max_iter: Iterations = 100
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, side, self.init, p, rng, unit=lambda Z: neighbor_sqdist(Z, rng))
        solver = whole_or_batches(self.batch_size, rng, self.max_iter, self.tol)
        n_iter = 0
        if self.objective == "sum":  # flat where p_i is near 0: its logarithm is not, and leads to better optima
            likelihood = DistanceObjective(frame.X, objective.edges, log_loss(same_class(side), is_alone(side)))
            first = replace(solver, max_iter=self.max_iter // 3, tol=1e-3).minimize(likelihood, L)
            L, n_iter = first.x, first.n_iter
        solver = replace(solver, max_iter=self.max_iter - n_iter)
        solution = solver.minimize(objective, L)
        if self.objective == "sum" and not self.reg_ and self.batch_size is None and solution.converged:
            solution = restart_from_smaller(solver, objective, solution)
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution.following(n_iter, self.max_iter)

    def _objective(self, X: np.ndarray, side: Labels, rng: np.random.RandomState) -> DistanceObjective:
        edges, accuracy = SoftmaxEdges(side.codes), sum_loss(same_class(side), len(X))
        self.reg_ = penalty_weight(self.reg, DistanceObjective(X, edges, accuracy))
        loss = accuracy if self.objective == "sum" else log_loss(same_class(side), is_alone(side))
        return DistanceObjective(X, edges, loss, ridge_penalty(self.reg_))


def restart_from_smaller(solver: Solver, objective: DistanceObjective, best: Solution) -> Solution:
    """The best solution of searches that start from multiples of the best one so far, while iterations are left.

    A map that grows drives every p_i to 0 or 1, and the wrong ones have no slope left. Where it is so small that many
    neighbours count, they have one again.
    """
    spent, multiples = best.n_iter, list(SHRINK)
    while multiples and best.value > -1 + 1e-6 and spent <= 0.75 * solver.max_iter:
        found = replace(solver, max_iter=solver.max_iter - spent).minimize(objective, multiples.pop(0) * best.x)
        spent += max(found.n_iter, 1)
        if found.value < best.value - 1e-6:
            best = replace(found, history=best.history + [f for f in found.history if f < best.value])
            multiples = list(SHRINK)
    return replace(best, n_iter=spent)


def same_class(labels: Labels) -> Callable[[Any], np.ndarray]:
    """rows → (b, n) mask of the samples of their class."""
    codes = labels.codes
    return lambda rows: codes[rows, None] == codes


def is_alone(labels: Labels) -> np.ndarray:
    """(n,) samples without a partner of their class."""
    return labels.counts[labels.codes] < 2


def penalty_weight(reg: Any, accuracy: DistanceObjective) -> float:
    """reg as a number; "auto" is a thousandth of the value above which L = 0 is a local optimum.

    That value is λ_max of the scatter of the slopes at the uniform softmax.
    """
    if not isinstance(reg, str):
        return float(reg)
    if reg != "auto":
        raise ValueError(f"reg={reg!r} must be a number or 'auto'")
    critical = -sla.eigvalsh(accuracy.metric_gradient(np.zeros((1, accuracy.X.shape[1]))))[0]
    if critical <= 0:
        warn_user("the labels do not show in any direction of X: reg='auto' becomes 0")
    return 1e-3 * max(critical, 0.0)


def sum_loss(hit: Callable[[Any], np.ndarray], n: int) -> SoftmaxLoss:
    """−(1/n) Σ p_i over a block of anchors, and its slopes (M∘P − p P)/n; ``hit(rows)`` marks their own class."""

    def by_rows(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        P, _ = neighbor_softmax(D)  # (b, n)
        hits = np.where(hit(rows), P, 0)
        p = hits.sum(axis=1, keepdims=True)
        P *= p
        np.subtract(hits, P, out=hits)
        hits /= n
        return -float(p.sum(dtype=np.float64)) / n, hits

    def by_sums(s: np.ndarray, h: np.ndarray) -> Slopes:
        p = h / s
        return Slopes(-p / n, 1 / s / n, p / s / n, s)

    return SoftmaxLoss(by_rows, by_sums)


def log_loss(hit: Callable[[Any], np.ndarray], alone: np.ndarray) -> SoftmaxLoss:
    """−(1/n) Σ log p_i, as a difference of two log-sum-exps, so that it stays finite when p_i underflows.

    Anchors that are ``alone`` (n,), without any hit, are left out.
    """
    n = int((~alone).sum())

    def by_rows(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        hits = np.where(hit(rows), D, np.inf)
        hits[alone[rows]] = D[alone[rows]]  # both terms cancel
        H, lse_hits = neighbor_softmax(hits)
        P, lse_all = neighbor_softmax(D)
        H -= P
        H /= n
        return float((lse_all - lse_hits).sum(dtype=np.float64)) / n, H

    def by_sums(s: np.ndarray, h: np.ndarray) -> Slopes:
        value, u, v = (np.where(alone, 0, x) / n for x in (np.log(s / h), 1 / h, 1 / s))
        return Slopes(value, u, v, np.where(alone, 1, h))

    return SoftmaxLoss(by_rows, by_sums)
