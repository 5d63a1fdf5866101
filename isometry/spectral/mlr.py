"""Metric learning to rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from isometry.core.edges import DenseEdges, EdgeLoss, Edges, NeighborEdges
from isometry.core.frame import Frame
from isometry.core.graph import pair_neighbors
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective
from isometry.core.solve import Solution
from isometry.core.solvers import Batches, Certified
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs

EXACT_UP_TO = 5_000  # queries; more are taken in batches
QUERIES = 32  # in a batch


@parameters
class MLR(SearchedMetric):
    """Metric learning to rank: for each sample as a query, those of its class should come first.

    min_{W ⪰ 0} mean over q of max_y [Δ(y*, y) − ⟨W, ψ(q, y*) − ψ(q, y)⟩] + (reg/d) tr W

    over rankings y of the other samples, ``y*`` a right one, ψ the partial-order feature with scores −d². Samples
    have mean squared distance 1. For "auc" the maximum is the mean of [1 + 2(d²(q, p) − d²(q, n))]₊ over relevant p
    and irrelevant n, and the problem convex. Of `Pairs`, the similar partners of a sample are relevant, the
    dissimilar not.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    loss : {"auc", "map"}, default="auc"
        Loss Δ: "auc", the share of pairs in wrong order; or "map", 1 − average precision, whose worst ranking is found
        by dynamic programming, ten times slower.
    reg : float ≥ 0, default=0.01
        Weight of the trace.
    batch_size : int or None, default=None
        Size of mini-batches: so many queries at a time, by Adam; an iteration is 100 batches. None: all at once for
        "auc" and up to 5,000 samples, else 32.
    max_iter : int, default=60
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    objective_ : float
        Value of the objective at the solution; with batches their last mean.

    Notes
    -----
    For retrieval, where the order of all results counts: each sample asks, and those of its class should come
    first. Not for classes of several clusters, which it draws together; there `LMNN` or `NCA` look at neighbours
    only.

    An evaluation costs O(n² log n + n² d), with batches of b queries O(b n (log n + d)).

    References
    ----------
    | B. McFee, G. Lanckriet, "Metric learning to rank", ICML 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MLR
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = MLR(max_iter=20).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 4)
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    loss: Literal["auc", "map"] = "auc"
    reg: NotNegative = 0.01
    batch_size: Count | None = None
    max_iter: Iterations = 60
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        frame, rng = Frame.of(X, scaled=True), check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        S, D = (float(np.trace(M)) for M in mean_pair_scatters(frame.X, side))
        L = np.eye(frame.X.shape[1]) / np.sqrt(D - S if D - S > 1e-3 * D else D)
        size = self.batch_size or (None if self.loss == "auc" and objective.n_parts <= EXACT_UP_TO else QUERIES)
        if size is None:
            solution = at_a_kink(Certified(self.max_iter, self.tol).minimize(objective, L), self.max_iter)
        else:
            solution = Batches(size, rng, self.max_iter, self.tol).minimize(objective, L)
        self.objective_ = solution.value
        self._store(frame.lift(canonical(solution.x, tol=1e-7)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels | Pairs, rng: Any) -> DistanceObjective:
        d = X.shape[1]
        ranking = area_loss if self.loss == "auc" else precision_loss
        edges: Edges
        if isinstance(side, Labels):
            codes = side.codes
            n_own = side.counts[codes]
            valid = (n_own > 1) & (n_own < len(codes))
            edges, relevant = DenseEdges(len(codes)), lambda rows: codes[rows, None] == codes
        else:
            side.refuse_weights("MLR ranks the partners of a sample")
            near, far = side.similar, side.dissimilar
            i, j = np.concatenate([near.i, far.i]), np.concatenate([near.j, far.j])
            hit = np.repeat([True, False], [len(near.i), len(far.i)])
            anchors, index, is_hit, _ = pair_neighbors(i, j, hit, np.ones(len(i)))
            valid = np.ones(len(anchors), dtype=bool)
            edges, relevant = NeighborEdges(index, anchors), lambda rows: is_hit[rows]
        if not valid.any():
            raise ValueError("no sample has both a similar and a dissimilar one: there is nothing to rank")
        return DistanceObjective(X, edges, ranking(relevant, valid), linear=self.reg / d * np.eye(d))


def at_a_kink(solution: Solution, max_iter: int) -> Solution:
    """A search of a hinge may end at a kink, where its gradient is not 0 and no step lowers the value."""
    if solution.converged or solution.n_iter >= max_iter:
        return solution
    return replace(solution, converged=True, reason="no further decrease at a kink")


def area_loss(relevant: Callable[[Any], np.ndarray], valid: np.ndarray) -> EdgeLoss:
    """Mean over queries, and over relevant p and irrelevant n, of [1 + 2(d_p − d_n)]₊ and its slopes, by sorting.

    A pair counts where d_n < d_p + ½. With keys d_p + ½ and d_n in order, n counts for every p behind it.
    """
    total = int(valid.sum())

    def loss(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        there = np.isfinite(D) & valid[rows][:, None]
        positive, negative = relevant(rows) & there, ~relevant(rows) & there  # (b, k)
        keys = np.where(positive, D + 0.5, np.where(negative, D, np.inf))
        order = np.argsort(keys, axis=1, kind="stable")
        p, n = (np.take_along_axis(mask, order, axis=1) for mask in (positive, negative))
        before = np.cumsum(n, axis=1)  # irrelevant ones in front of a relevant one
        behind = p.sum(axis=1, keepdims=True) - np.cumsum(p, axis=1)  # relevant ones behind an irrelevant one
        weight = 2.0 / np.maximum(positive.sum(axis=1) * negative.sum(axis=1), 1)[:, None] / total
        C = np.empty_like(D)
        np.put_along_axis(C, order, weight * (p * before - n * behind), axis=1)
        return float(np.sum(C * np.where(there, keys, 0), dtype=np.float64)), C

    return loss


def precision_loss(relevant: Callable[[Any], np.ndarray], valid: np.ndarray) -> EdgeLoss:
    """Mean over queries of max_y [1 − AP(y) − ⟨W, ψ(y*) − ψ(y)⟩] and its slopes.

    The worst ranking keeps relevant and irrelevant samples each in their order. With b_a irrelevant ones in front of
    the a-th of P relevant ones it is worth Σ_a [b_a/(a + b_a)/P + (2/PN) Σ_{n ≤ b_a} (d_a − d_n)], to be maximised over
    b_1 ≤ b_2 ≤ …, one a after another.
    """
    total = int(valid.sum())

    def loss(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        hits, C, value = relevant(rows), np.zeros_like(D), 0.0
        for k in np.flatnonzero(valid[rows]):
            there = np.isfinite(D[k])
            p, n = (np.flatnonzero(mask & there) for mask in (hits[k], ~hits[k]))
            p, n = p[np.argsort(D[k, p], kind="stable")], n[np.argsort(D[k, n], kind="stable")]
            worth, b = worst_ranking(D[k, p].astype(np.float64), D[k, n].astype(np.float64))
            value += worth / total
            weight = 2 / (len(p) * len(n)) / total
            C[k, p] = weight * b
            C[k, n] = -weight * (len(p) - np.searchsorted(b, np.arange(1, len(n) + 1)))  # how many b_a ≥ its place
        return value, C

    return loss


def worst_ranking(near: np.ndarray, far: np.ndarray) -> tuple[float, np.ndarray]:
    """What the worst ranking is worth, and b (P,), from sorted distances of relevant (P,) and irrelevant (N,) ones."""
    P, N = len(near), len(far)
    b, prefix = np.arange(N + 1), np.concatenate([[0.0], np.cumsum(far)])
    best, choice = np.zeros(N + 1), np.empty((P, N + 1), dtype=np.intp)  # best up to here with b_a ≤ b; its last b_a
    for a, d in enumerate(near, start=1):
        worth = best + b / (a + b) / P + 2 / (P * N) * (b * d - prefix)
        best = np.maximum.accumulate(worth)
        choice[a - 1] = np.maximum.accumulate(np.where(worth == best, b, 0))
    path = np.empty(P, dtype=np.intp)
    last = N
    for a in range(P - 1, -1, -1):
        last = path[a] = choice[a, last]
    return float(best[N]), path
