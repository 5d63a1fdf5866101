"""Local distance metric."""

from __future__ import annotations

import numpy as np

from isometry.base import LinearMetric
from isometry.core.basis import eigenbasis
from isometry.core.edges import DenseEdges, Edges, Loss, NeighborEdges
from isometry.core.graph import nearest_misses, pair_neighbors, target_neighbors
from isometry.core.solve import Progress, lbfgs
from isometry.probabilistic.nca import is_alone, log_loss, same_class
from isometry.supervision import Labels, Pairs

ALL_PAIRS_UP_TO, NEIGHBORS_BEYOND = 2000, 10  # samples; neighbours of each kind


class LDM(LinearMetric):
    """Weigh the principal directions so that a similar sample outweighs the dissimilar ones around each anchor.

    max_{λ ≥ 0} (1/n) Σ_i log [Σ_{j∈S_i} exp(−λᵀw_ij) / Σ_{j∈S_i∪D_i} exp(−λᵀw_ij)] − reg Σ_l λ_l

    with w_ij = (Vᵀ(x_i − x_j))², V the principal directions of the data, and W = V diag(λ) Vᵀ.
    Anchors without similar or without dissimilar partners do not count.

    Parameters
    ----------
    n_components : principal directions to weigh (default: min(d, 30)); those that get weight 0 are dropped
    n_neighbors : with labels, the nearest samples of the same class and of others that make up S_i and D_i. None: all
        samples, or 10 of each kind above 2,000 samples
    reg : penalty on λ, in coordinates of mean squared distance 1; keeps the scale finite
    max_iter, tol, verbose : as everywhere

    Notes
    -----
    The likelihood is maximised directly. The survey's bound has a sign lost between the two logarithms, the wrong sign
    of the Jensen term and weights that do not sum to 1; the constraint λ ≥ 0 is not stated. A soft pair counts as
    similar from similarity 1/2 on.

    References
    ----------
    L. Yang, R. Jin, R. Sukthankar, Y. Liu, "An efficient algorithm for local distance metric learning", AAAI 2006.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    def __init__(self, n_components=None, *, n_neighbors=None, reg=1e-4, max_iter=200, tol=1e-6, verbose=False):
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.reg = reg
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    def _fit(self, X, side):
        if self.reg < 0:
            raise ValueError(f"reg={self.reg} must not be negative")
        basis = eigenbasis(X, self._check_n_components(X.shape[1]) or min(X.shape[1], 30))
        objective = self._objective(basis(X), side)
        K = len(basis.map)
        with Progress(self.verbose, "LDM", self.max_iter) as progress:
            options = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            solution = lbfgs(objective, np.ones(K), bounds=[(0.0, None)] * K, **options)
        self._set_components(basis.components(solution.x), X.dtype)
        self._record(solution)

    def _objective(self, Y: np.ndarray, side: Labels | Pairs):
        """λ → minus the mean log-likelihood plus penalty, and its gradient, on principal coordinates Y (n, K)."""
        edges, loss = self._neighborhoods(Y, side)

        def objective(lam):
            value, pull = edges.evaluate(Y * np.sqrt(np.maximum(lam, 0)), loss, V=Y)
            return value + self.reg * lam.sum(), np.einsum("il,il->l", Y, pull) + self.reg

        return objective

    def _neighborhoods(self, Y, side) -> tuple[Edges, Loss]:
        if isinstance(side, Pairs):
            anchors, index, is_hit = pair_neighbors(side.i, side.j, side.similarity >= 0.5)
            if len(anchors) == 0:
                raise ValueError("LDM needs a sample that occurs in a similar and in a dissimilar pair; y holds none")
            return NeighborEdges(index, anchors), log_loss(
                lambda rows: is_hit[rows], np.zeros(len(anchors), dtype=bool)
            )
        codes, k = side.codes, self.n_neighbors
        alone = is_alone(side)
        if k is None and len(Y) <= ALL_PAIRS_UP_TO:
            return DenseEdges(len(Y)), log_loss(same_class(side), alone)
        k = min(k or NEIGHBORS_BEYOND, len(Y) - 1)
        hits = target_neighbors(Y, codes, k)
        is_hit = np.arange(hits.shape[1] + k) < hits.shape[1]
        return NeighborEdges(np.hstack([hits, nearest_misses(Y, codes, k)])), log_loss(lambda rows: is_hit, alone)
