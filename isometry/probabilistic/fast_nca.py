"""Fast neighbourhood component analysis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isometry.base import ObjectiveMetric
from isometry.core.edges import NeighborEdges
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.core.objective import Objective, Penalty, ridge_penalty
from isometry.core.start import neighbor_sqdist
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.probabilistic.nca import penalty_weight, sum_loss
from isometry.supervision import Labels


@parameters
class FastNCA(ObjectiveMetric):
    """Fast neighbourhood component analysis: the stochastic neighbour is drawn from k hits and k misses.

    max_L (1/n) Σ_i p_i − reg |L|²,  p_i = Σ_{j∈H_i} p_ij,  p_ij ∝ exp(−|L(x_i − x_j)|²) on H_i ∪ M_i

    with H_i the k nearest samples of the same class and M_i the k nearest of other classes, in the input space. One
    evaluation costs O(nkp + npd) and memory is O(nk).

    Parameters
    ----------
    n_components : p (default: all features)
    n_neighbors : k; a smaller class gives all its members
    n_updates : how often at most hits and misses are sought anew, in the learned space, after the search has ended; it
        goes on from there while the graph still changes and the objective on the new one can be improved
    reg : penalty on |L|²; "auto": a thousandth of the value above which L = 0 becomes a local optimum
    init : "auto" (LDA if p ≤ c − 1, else PCA), "pca", "lda", "identity", "random" or an array (p, d)
    batch_size : mini-batches, for n beyond 10⁵: so many anchors at a time, each with its 2k neighbours.
        Adam takes the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it;
        ``history_`` has the means of the batches. None: no batches
    max_iter, tol, random_state, verbose : as everywhere

    Notes
    -----
    The survey defines hits and misses and then swaps them: as printed it would seek neighbours of the wrong class. Its
    exponent lacks the square and its gradient a factor 2.

    References
    ----------
    W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.
    """

    _sees = (Labels,)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: int = 10
    n_updates: int = 0
    reg: float | str = "auto"
    init: str | np.ndarray = "auto"
    batch_size: int | None = None
    max_iter: int = 500
    tol: float = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _start_sqdist(self, Z, rng):
        return neighbor_sqdist(Z, rng)  # a saturated softmax has no gradient

    def _objective(self, X, side, rng):
        if self.n_neighbors < 1 or self.n_updates < 0:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} must be at least 1 and n_updates={self.n_updates} not negative"
            )
        self._codes = side.codes
        accuracy = self._accuracy(X, X)
        return replace(accuracy, penalty=self._penalty(accuracy))

    def _penalty(self, accuracy: Objective) -> Penalty | None:
        self.reg_ = penalty_weight(self.reg, accuracy)
        return ridge_penalty(self.reg_)

    def _accuracy(self, X: np.ndarray, Z: np.ndarray) -> Objective:
        """−(1/n) Σ p_i on the graph of hits and misses that are nearest in Z (n, p)."""
        codes, k = self._codes, min(self.n_neighbors, len(X) - 1)
        hits, misses = target_neighbors(Z, codes, k), nearest_misses(Z, codes, k)  # (n, k)
        is_hit = np.arange(hits.shape[1] + k) < hits.shape[1]  # (2k,)
        return Objective(X, NeighborEdges(np.hstack([hits, misses])), sum_loss(lambda rows: is_hit, len(X)))

    def _improve(self, objective, solution, rng, options):
        for _ in range(self.n_updates):
            Z, before = objective.X @ solution.x.T.astype(objective.X.dtype), objective.edges.index
            objective = replace(self._accuracy(objective.X, Z), penalty=objective.penalty)
            start = objective(solution.x)[0]
            if np.array_equal(np.sort(before), np.sort(objective.edges.index)):
                break
            step = self._minimize(objective, solution.x, rng, **options)
            if step.value >= start - self.tol * abs(start):
                break
            solution = replace(step, n_iter=solution.n_iter + step.n_iter, history=solution.history + step.history)
        del self._codes
        return solution
