"""Fast neighbourhood component analysis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.edges import NeighborEdges
from isometry.core.frame import Frame
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, Penalty, ridge_penalty
from isometry.core.solve import Solution
from isometry.core.solvers import Solver, whole_or_batches
from isometry.core.start import initial_map, neighbor_sqdist
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.probabilistic.nca import penalty_weight, sum_loss
from isometry.searched import SearchedMetric
from isometry.supervision import Labels


@parameters
class FastNCA(SearchedMetric):
    """Fast neighbourhood component analysis: the stochastic neighbour is drawn from k hits and k misses.

    max_L (1/n) Σ_i p_i − reg |L|²,  p_i = Σ_{j∈H_i} p_ij,  p_ij ∝ exp(−|L(x_i − x_j)|²) on H_i ∪ M_i

    with H_i the k nearest samples of the same class and M_i the k nearest of other classes, in the input space.

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
    n_neighbors : int, default=10
        Number k of hits and of misses; a smaller class gives all its members.
    n_updates : int, default=0
        How often at most hits and misses are sought anew, in the learned space, after the search has ended; it goes on
        from there while the graph still changes and the objective on the new one can be improved.
    reg : float ≥ 0 or "auto", default="auto"
        Penalty on ``|L|²``; "auto": a thousandth of the value above which L = 0 becomes a local optimum.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray, default="auto"
        Where the search starts: "auto" is LDA if p ≤ c − 1, else PCA; an array is a map (p, d).
    batch_size : int or None, default=None
        Size of mini-batches, for n beyond 10⁵: so many anchors at a time, each with its 2k neighbours. Adam takes the
        place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it; ``history_`` has
        the means of the batches. None: no batches.
    max_iter : int, default=500
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    `NCA` for larger samples: each sample looks at k neighbours of its class and k others instead of all. Neighbours
    are those of the input space; where these mislead, ``n_updates`` seeks them anew, or `NCA` sees all.

    One evaluation costs O(n k p + n p d), memory O(n k); the neighbours cost O(n² d) once.

    The survey defines hits and misses and then swaps them: as printed it would seek neighbours of the wrong class. Its
    exponent lacks the square and its gradient a factor 2.

    References
    ----------
    | W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import FastNCA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = FastNCA(2, strength=1, max_iter=30, random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_neighbors: Count = 10
    n_updates: Iterations = 0
    reg: NotNegative | Literal["auto"] = "auto"
    init: str | np.ndarray = "auto"
    batch_size: Count | None = None
    max_iter: Iterations = 500
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        solver = whole_or_batches(self.batch_size, rng, self.max_iter, self.tol)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, side, self.init, p, rng, unit=lambda Z: neighbor_sqdist(Z, rng))
        solution = self._follow_graph(solver, objective, solver.minimize(objective, L), side)
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels, rng: Any) -> DistanceObjective:
        graph = self._graph(X, side.codes)
        is_hit = np.arange(graph.shape[1]) < graph.shape[1] - min(self.n_neighbors, len(X) - 1)  # (2k,)
        accuracy = DistanceObjective(X, NeighborEdges(graph), sum_loss(lambda rows: is_hit, len(X)))  # −(1/n) Σ p_i
        return replace(accuracy, penalty=self._penalty(accuracy))

    def _penalty(self, accuracy: DistanceObjective) -> Penalty | None:
        self.reg_ = penalty_weight(self.reg, accuracy)
        return ridge_penalty(self.reg_)

    def _graph(self, Z: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """(n, 2k) the hits, −1 where a class is too small, and the misses that are nearest in Z (n, p)."""
        k = min(self.n_neighbors, len(Z) - 1)
        return np.hstack([target_neighbors(Z, codes, k), nearest_misses(Z, codes, k)])

    def _follow_graph(self, solver: Solver, objective: DistanceObjective, solution: Solution, side: Labels) -> Solution:
        """Go on with the neighbours of the learned space, up to ``n_updates`` times."""
        X, edges = objective.X, objective.edges
        for _ in range(self.n_updates):
            before, edges = edges, NeighborEdges(self._graph(X @ solution.x.T.astype(X.dtype), side.codes))
            assert isinstance(before, NeighborEdges)
            if np.array_equal(np.sort(before.index), np.sort(edges.index)):
                break
            objective = replace(objective, edges=edges)
            start = objective(solution.x)[0]
            step = solver.minimize(objective, solution.x)
            if step.value >= start - self.tol * abs(start):
                break
            solution = step.following(solution.n_iter, self.max_iter, solution.history)
        return solution
