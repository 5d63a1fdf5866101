"""Local distance metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from isometry.base import check_components
from isometry.core.basis import eigenbasis
from isometry.core.edges import DenseEdges, EdgeLoss, Edges, NeighborEdges
from isometry.core.graph import nearest_misses, pair_neighbors, target_neighbors
from isometry.core.probability import neighbor_softmax
from isometry.core.solve import Solution, alternate, lbfgs
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, check_choices, parameters
from isometry.probabilistic.nca import is_alone, log_loss, same_class
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs

MAX_ALL_PAIRS_SAMPLES = 2000  # with more samples, only neighbours are compared
DEFAULT_NEIGHBORS = 10  # of each kind, with more samples


@parameters
class LDM(SearchedMetric):
    """Local distance metric: directions weighted so that similar samples outweigh dissimilar ones around each anchor.

    max_{λ ≥ 0} (1/n) Σ_i log [Σ_{j∈S_i} exp(−λᵀw_ij) / Σ_{j∈S_i∪D_i} exp(−λᵀw_ij)] − reg Σ_l λ_l

    with w_ij = (Vᵀ(x_i − x_j))², V the principal directions of the data, and W = V diag(λ) Vᵀ.
    Anchors without similar or without dissimilar partners do not count. The exponential of a given pair is multiplied
    by its weight; a pair of soft similarity s is in S_i with weight s and in D_i with weight 1 − s.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of principal directions to weigh; None: min(d, 30). Those that get weight 0 are dropped.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    n_neighbors : int or None, default=None
        With labels, the nearest samples of the same class and of others that make up S_i and D_i. None: all samples, or
        10 of each kind above 2,000 samples.
    reg : float ≥ 0, default=0.0001
        Penalty on λ, in coordinates of mean squared distance 1; keeps the scale finite.
    solver : {"lbfgs", "mm"}, default="lbfgs"
        "lbfgs" on the likelihood itself; or "mm", the bounds of the paper: the similar partners' log-sum-exp gives way
        to its tangent, what is left is concave and is maximised, and so on.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels or pairs where a class has several clusters: of the similar partners those that are near decide, the
    far ones may stay. Only weights of principal directions are learned; `NCA` learns a whole map.

    An evaluation costs O(n k K) for k partners and K directions, O(n² K) if all are partners.

    The likelihood is maximised directly. The survey's bound has a sign lost between the two logarithms, the wrong sign
    of the Jensen term and weights that do not sum to 1; the constraint λ ≥ 0 is not stated.

    References
    ----------
    | L. Yang, R. Jin, R. Sukthankar, Y. Liu, "An efficient algorithm for local distance metric learning", AAAI 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LDM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LDM().fit(X, y)
    >>> metric.transform(X).shape[0]
    150
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    n_neighbors: Count | None = None
    reg: NotNegative = 1e-4
    solver: str = "lbfgs"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-6
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        check_choices(self, solver=("lbfgs", "mm"))
        basis = eigenbasis(X, check_components(self.n_components, X.shape[1]) or min(X.shape[1], 30))
        start, Y = np.ones(len(basis.map)), basis(X)
        options: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol}
        if self.solver == "lbfgs":
            solution = lbfgs(self._objective(Y, side), start, bounds=[(0.0, None)] * len(start), **options)
        else:
            solution = alternate(self._bound_step(Y, side), start, **options)
        self._store(basis.components(solution.x), X.dtype)
        return solution

    def _objective(self, Y: np.ndarray, side: Labels | Pairs):
        """λ → minus the mean log-likelihood plus penalty, and its gradient, on principal coordinates Y (n, K)."""
        edges, hit, alone, pair_weight = self._neighborhoods(Y, side)
        likelihood = of_weights(Y, edges, with_pair_weights(log_loss(hit, alone), pair_weight))

        def objective(lam):
            value, gradient = likelihood(lam)
            return value + self.reg * lam.sum(), gradient + self.reg

        return objective

    def _bound_step(self, Y: np.ndarray, side: Labels | Pairs):
        """λ → the minimiser of the convex bound that touches the objective at λ, and the objective there.

        −lse_S is concave in λ and lies below its tangent, whose slope is Σ_j φ_ij w_ij, φ the softmax over S.
        """
        edges, hit, alone, pair_weight = self._neighborhoods(Y, side)
        lse_similar, lse_all = (
            of_weights(Y, edges, with_pair_weights(lse_loss(mask, alone), pair_weight)) for mask in (hit, None)
        )
        objective = self._objective(Y, side)

        def step(at):
            value, slope = lse_similar(at)

            def bound(lam):
                f, g = lse_all(lam)
                return f - value - slope @ (lam - at) + self.reg * lam.sum(), g - slope + self.reg

            lam = lbfgs(bound, at, bounds=[(0.0, None)] * len(at), max_iter=self.max_iter, tol=self.tol).x
            return lam, objective(lam)[0]

        return step

    def _neighborhoods(self, Y, side) -> tuple[Edges, Callable[[slice], np.ndarray], np.ndarray, np.ndarray | None]:
        """The pairs in the likelihood, which partners of a block of anchors are similar, which anchors have none; and
        the weights of the pairs, None if all are 1.
        """
        if isinstance(side, Pairs):
            S, D = side.similar, side.dissimilar
            i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
            similar = np.repeat([True, False], [len(S.i), len(D.i)])
            anchors, index, is_similar, weights = pair_neighbors(i, j, similar, weight)
            if len(anchors) == 0:
                raise ValueError("LDM needs a sample that occurs in a similar and in a dissimilar pair; y holds none")
            alone = np.zeros(len(anchors), dtype=bool)
            return NeighborEdges(index, anchors), lambda rows: is_similar[rows], alone, weights
        codes, k = side.codes, self.n_neighbors
        if k is None and len(Y) <= MAX_ALL_PAIRS_SAMPLES:
            return DenseEdges(len(Y)), same_class(side), is_alone(side), None
        k = min(k or DEFAULT_NEIGHBORS, len(Y) - 1)
        hits = target_neighbors(Y, codes, k)
        is_hit = np.arange(hits.shape[1] + k) < hits.shape[1]
        return NeighborEdges(np.hstack([hits, nearest_misses(Y, codes, k)])), lambda rows: is_hit, is_alone(side), None


def of_weights(Y: np.ndarray, edges: Edges, loss: EdgeLoss):
    """λ → the loss of the distances λᵀ(y_i − y_j)², and its gradient (K,)."""

    def evaluate(lam):
        value, pull = edges.evaluate(Y * np.sqrt(np.maximum(lam, 0)), loss, V=Y)
        return value, np.einsum("il,il->l", Y, pull)

    return evaluate


def with_pair_weights(loss: EdgeLoss, weight: np.ndarray | None) -> EdgeLoss:
    """The loss with w_ij exp(−d_ij) in place of exp(−d_ij): the distance becomes d_ij − log w_ij."""
    if weight is None or np.all(weight == 1):
        return loss
    shift = np.log(weight)  # (a, k)
    return lambda D, rows: loss(D - shift[rows].astype(D.dtype, copy=False), rows)


def lse_loss(mask: Callable[[slice], np.ndarray] | None, alone: np.ndarray) -> EdgeLoss:
    """(1/n) Σ_i log Σ_j exp(−d_ij) over anchors that are not ``alone`` and partners in the mask; and its slopes."""
    n = int((~alone).sum())

    def loss(D, rows):
        if mask is not None:
            D[~np.broadcast_to(mask(rows), D.shape)] = np.inf
        D[alone[rows]] = 0  # any finite number: these rows get weight 0 below
        P, lse = neighbor_softmax(D)
        use = ~alone[rows]
        P *= -(use / n)[:, None]
        return float(lse[use].sum()) / n, P

    return loss
