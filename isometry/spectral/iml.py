"""Imbalanced metric learning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.edges import NeighborEdges
from isometry.core.frame import Frame
from isometry.core.graph import nearest_allowed, target_neighbors
from isometry.core.hinge import SMOOTHING, rounded_hinge
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective
from isometry.core.solve import Solution
from isometry.core.solvers import Certified
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, Share, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels

CANDIDATES = 4  # samples of other classes that are searched through, for each one that counts
EARLY_TOL = 1e-4  # of the solves with a rounder hinge, which only lead to the last one


@parameters
class IML(SearchedMetric):
    """Imbalanced metric learning: neighbours of one class near, of different classes far, all classes of equal weight.

    min_{W ⪰ 0} Σ_c 1/(2C) (a mean_{Sim_c}[d² − 1]₊ + (1 − a) mean_{Dis_c}[1 + m − d²]₊) + γ|W − I|_F²,  d² = d_W²

    over C classes. Sim_c joins each member of c with its k nearest members in the input space, Dis_c with its k nearest
    samples of other classes under W itself. These have the k largest hinges, and a sum of the k largest of convex
    functions is convex: so is the whole problem in W = LᵀL, if p = d.

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
    n_neighbors : int, default=3
        Number k of neighbours of either kind.
    a : float in [0, 1], default=0.5
        Weight of the similar pairs against the dissimilar ones.
    margin : float > 0, default=1.0
        Margin m between similar and dissimilar squared distances; the unit of d² is 1, so standardise the features. For
        the F₁ of a rare class the paper chooses among 1, 10, …, 10⁴ by cross-validation.
    reg : float ≥ 0, default=0.01
        Weight γ of the pull towards the Euclidean metric.
    init : {"identity", "pca", "lda", "random"} or ndarray, default="identity"
        Where the search starts; an array is a map (p, d).
    n_refresh : int, default=10
        How often at most the candidates for Dis are sought among all samples, in each stage.
    max_iter : int, default=1000
        Largest number of iterations of each solve.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    objective_ : float
        Value of the objective at the solution, of the rounded hinge.

    Notes
    -----
    For labels of which some are rare: all classes weigh the same, whatever their size. Where classes are of like
    size, `LMNN` is the simpler problem.

    An iteration costs O(n k d), each search for the nearest of other classes O(n² d).

    References
    ----------
    | L. Gautheron, A. Habrard, E. Morvant, M. Sebban, "Metric learning from imbalanced data", ICTAI 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import IML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = IML(max_iter=50).fit(X[::3], y[::3])
    >>> metric.components_.shape
    (4, 4)
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_neighbors: Count = 3
    a: Share = 0.5
    margin: Positive = 1.0
    reg: NotNegative = 0.01
    init: str | np.ndarray = "identity"
    n_refresh: Count = 10
    max_iter: Iterations = 1000
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame(X - X.mean(axis=0))
        L = initial_map(frame, side, self.init, p, check_random_state(self.random_state))
        similar = target_neighbors(frame.X, side.codes, self.n_neighbors)  # (n, k)
        solution = self._descend(frame.X, side.codes, similar, L)
        self.objective_ = solution.value
        self._store(canonical(solution.x), X.dtype)
        return solution

    def _descend(self, X: np.ndarray, codes: np.ndarray, similar: np.ndarray, L: np.ndarray) -> Solution:
        """Solve with a hinge that gets sharper, over candidates for Dis that are sought anew until they suffice."""
        k, n_iter, pool = self.n_neighbors, 0, self._nearest_others(X, codes, L)
        history: list[float] = []
        for tau in SMOOTHING:
            last, value = tau == SMOOTHING[-1], 0.0
            tol = self.tol if last else max(self.tol, EARLY_TOL)
            restarts = 5 if last and len(L) == X.shape[1] else 0  # no certificate, else, just L-BFGS
            for _ in range(self.n_refresh):
                f = iml_objective(X, codes, similar, pool, k, self.a, self.margin, self.reg, tau * self.margin)
                solution = Certified(self.max_iter, tol, restarts).minimize(f, L)
                L, n_iter, history = solution.x, n_iter + solution.n_iter, history + solution.history
                near = self._nearest_others(X, codes, L)
                if abs(value - solution.value) <= tol * solution.value:  # a kink, where two candidates are equally near
                    solution = replace(solution, converged=True, reason="no further decrease after a restart")
                if _within(near[:, :k], pool) and (solution.converged or solution.n_iter >= self.max_iter):
                    break
                pool, value = _joined(pool, near), solution.value  # it only grows, else the search would go in circles
        return replace(solution, n_iter=n_iter, history=history)

    def _nearest_others(self, X: np.ndarray, codes: np.ndarray, L: np.ndarray) -> np.ndarray:
        """(n, CANDIDATES · k) the nearest samples of other classes under L, nearest first."""
        Z = X @ L.T.astype(X.dtype, copy=False)
        return nearest_allowed(Z, CANDIDATES * self.n_neighbors, lambda rows: codes[rows, None] != codes)[0]


def iml_objective(
    X: np.ndarray,
    codes: np.ndarray,
    similar: np.ndarray,
    pool: np.ndarray,
    k: int,
    a: float,
    margin: float,
    reg: float,
    tau: float,
) -> DistanceObjective:
    """The objective with Sim from a table of indices (n, s) and Dis the k nearest of a pool (n, K); −1: none.

    The hinge is rounded over τ.
    """
    s, index = similar.shape[1], np.hstack([similar, pool])
    valid = index >= 0

    def share(weight, per_sample):  # (n, 1) weight of a pair: that of its class over the number of its pairs
        pairs = np.bincount(codes, per_sample)
        return (weight / (2 * len(pairs) * np.maximum(pairs, 1)))[codes, None]

    w_sim = share(a, valid[:, :s].sum(axis=1))
    w_dis = share(1 - a, np.minimum(valid[:, s:].sum(axis=1), k))

    def loss(d, rows):
        d = np.where(valid[rows], d, np.r_[np.zeros(s), np.full(index.shape[1] - s, np.inf)])
        chosen = _smallest(d[:, s:], k)
        near, pull = rounded_hinge(d[:, :s] - 1, tau)
        far, push = rounded_hinge(1 + margin - np.minimum(d[:, s:], 1 + margin), tau)
        value = np.sum(w_sim[rows] * near) + np.sum(w_dis[rows] * chosen * far)
        return float(value), np.hstack([w_sim[rows] * pull, -w_dis[rows] * chosen * push])

    def penalty(L):  # γ|LᵀL − I|², through the smaller LLᵀ
        K = L @ L.T
        return reg * float(np.vdot(K, K) - 2 * np.trace(K) + L.shape[1]), 4 * reg * (K @ L - L)

    return DistanceObjective(X, NeighborEdges(index), loss, penalty, lambda W: 2 * reg * (W - np.eye(len(W))))


def _within(index: np.ndarray, pool: np.ndarray) -> bool:
    """Whether every row of ``index`` (n, k) is contained in the same row of ``pool`` (n, K)."""
    return bool(np.all((index[:, :, None] == pool[:, None]).any(axis=2)))


def _joined(pool: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Both tables (n, K), (n, K') side by side, without what is there already; −1 stands for no entry."""
    known = (more[:, :, None] == pool[:, None]).any(axis=2)
    more = np.where(known, -1, more)
    more = np.take_along_axis(more, np.argsort(known, axis=1, kind="stable"), axis=1)  # new ones first
    return np.hstack([pool, more[:, : int((~known).sum(axis=1).max())]])


def _smallest(d: np.ndarray, k: int) -> np.ndarray:
    """(b, K) 1 for the k smallest entries of each row, 0 for others; equal ones at the edge share what is left."""
    if d.shape[1] <= k:
        return np.ones_like(d)
    edge = np.partition(d, k - 1, axis=1)[:, k - 1 : k]
    below, at = edge > d, edge == d
    return below + at * ((k - below.sum(axis=1, keepdims=True)) / at.sum(axis=1, keepdims=True))
