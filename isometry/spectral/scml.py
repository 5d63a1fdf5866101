"""Sparse compositional metric learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import LinearMetric
from isometry.core.basis import BasisProblem
from isometry.core.centroids import centroids
from isometry.core.distance import sqdist
from isometry.core.frame import Frame
from isometry.core.hinge import rounded_hinge
from isometry.core.linalg import RANK_TOL, factor, fix_signs, top_eigenvectors
from isometry.core.moments import ArrayMoments, between_scatter
from isometry.core.objective import DistanceObjective
from isometry.core.scatter import pair_scatter
from isometry.core.solve import Solution
from isometry.core.solvers import in_rounds
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Comparisons, Sampler, comparisons
from isometry.supervision import Labels, Triplets

WIDTHS = (0.1, 0.01)  # over which the hinge is rounded, one for each round of the search; the margin is 1
NEIGHBORS = (10, 20)  # rows of each class, around a centre, that a local discriminant analysis sees
RIDGE = 1e-2  # relative, of a local discriminant analysis


@parameters
class SCML(LinearMetric):
    """Sparse compositional metric learning: a sparse sum of rank-one metrics, from locally discriminative directions.

    min_{w ≥ 0} mean over triplets of [1 + d²(a, p) − d²(a, n)]₊ + (reg/K) Σ_k w_k,  d² that of W = Σ_k w_k b_k b_kᵀ

    The directions b_k are fixed: of labels, those of discriminant analyses of the 10 and of the 20 nearest rows of each
    class around every centre of k-means; of triplets, eigenvectors of Σ z_ap z_apᵀ − Σ z_an z_anᵀ over d triplets at a
    time. Samples are scaled to mean squared distance 1, so that ``reg`` has no unit.

    Parameters
    ----------
    n_basis : K, about how many directions; None: 20 for each feature, at most 400
    reg : weight of Σ w: larger means fewer directions
    comparisons : which to take if given labels: "auto" is `NeighborTriplets(3, misses=10)`; `RandomComparisons(n)` or
        another sampler
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar

    Attributes
    ----------
    basis_, weights_ : (K, d) unit vectors b_k, and w (K,) for samples in their own units
    objective_ : value at the solution, the hinge rounded over a hundredth of the margin

    References
    ----------
    Y. Shi, A. Bellet, F. Sha, "Sparse compositional metric learning", AAAI 2014.
    """

    _sees = (Labels, Triplets)

    n_basis: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 1e-2
    comparisons: str | Sampler = "auto"
    max_iter: Iterations = 500
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets) -> Solution:
        frame, rng = Frame.of(X, scaled=True), check_random_state(self.random_state)
        K = self.n_basis or min(20 * frame.X.shape[1], 400)
        compared = comparisons(side, self.comparisons, frame.X, rng)
        if isinstance(side, Labels):
            basis = local_discriminants(frame.X, side.codes, K, rng.randint(2**31))
        else:
            basis = triplet_directions(frame.X, side, K, rng)
        solution = self._weights(frame.X, compared, basis)
        self.objective_ = solution.value
        self.basis_ = frame.lift(basis) * frame.unit
        self.weights_ = np.maximum(solution.x, 0) / frame.unit**2
        B = np.sqrt(self.weights_)[:, None] * self.basis_
        self._store(factor(B.T @ B), X.dtype)
        return solution

    def _weights(self, X: np.ndarray, compared: Comparisons, basis: np.ndarray) -> Solution:
        """w (K,) ≥ 0 with the least objective; X scaled."""
        K, w0 = len(basis), 1 / compared.gap(X)
        start = np.full(K, w0 * X.shape[1] / K)  # of the trace of w₀ I
        problems = (BasisProblem(_hinge_objective(X, compared, self.reg / K, width), basis) for width in WIDTHS)
        solution = in_rounds(lambda f, w, budget: f.minimize(w, budget, self.tol), problems, start, self.max_iter)
        if solution.x.sum() <= 1e-6 * start.sum():
            warn_user(
                "no direction has a weight: the comparisons are all met, or contradict one another. Equal weights are "
                "kept; lower `reg` to let the comparisons count for more"
            )
            solution.x = start
        return solution


def _hinge_objective(X: np.ndarray, compared: Comparisons, beta: float, width: float) -> DistanceObjective:
    """Mean hinge with margin 1, rounded over ``width``, and β Σ w = β tr W, since the directions have length 1."""
    loss = compared.mean_loss(lambda h: rounded_hinge(1 + h, width))
    return DistanceObjective(X, compared.edges, loss, linear=beta * np.eye(X.shape[1]))


def local_discriminants(X: np.ndarray, codes: np.ndarray, n_basis: int, seed: int) -> np.ndarray:
    """(K, d) unit vectors: discriminant directions of the rows around each of K/(2(c − 1)) centres."""
    c = int(codes.max()) + 1
    centers = centroids(X, max(1, round(n_basis / (2 * (c - 1)))), seed, n_init=1)
    order = np.argsort(sqdist(centers, X.astype(np.float64)), axis=1, kind="stable")  # (regions, n)
    found = []
    for nearest in order:
        rank = np.empty(len(X), dtype=np.intp)  # of a row among its class, nearest first
        for k in range(c):
            rows = nearest[codes[nearest] == k]
            rank[rows] = np.arange(len(rows))
        found += [discriminants(X[rank < m], codes[rank < m]) for m in NEIGHBORS]
    if not any(map(len, found)):
        raise ValueError("the classes have equal means everywhere: no direction tells them apart")
    return np.concatenate(found)[:n_basis]


def discriminants(X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(≤ c − 1, d) unit vectors along which the means of the classes differ most, against the spread within them."""
    moments = ArrayMoments(X, codes)
    within, between = moments.within(np.ones(len(moments.counts)))[0], between_scatter(moments)
    scale = float(np.trace(within) or np.trace(between)) or 1.0  # classes of one row each have no spread
    within = within / scale + RIDGE / len(within) * np.eye(len(within))
    values, V = top_eigenvectors(between / scale, within, min(len(moments.counts) - 1, X.shape[1]))
    V = V[:, values > RANK_TOL * max(values[0], 0)]
    return fix_signs((V / np.linalg.norm(V, axis=0)).T)


def triplet_directions(X: np.ndarray, triplets: Triplets, n_basis: int, rng: Any) -> np.ndarray:
    """(K, d) unit vectors: eigenvectors of Σ z_ap z_apᵀ − Σ z_an z_anᵀ over d random triplets at a time."""
    d, found, there = X.shape[1], list[np.ndarray](), np.flatnonzero(triplets.weight > 0)
    while sum(map(len, found)) < n_basis:
        some = rng.choice(there, min(d, len(there)), replace=False)
        a, p, n = triplets.a[some], triplets.p[some], triplets.n[some]
        values, V = sla.eigh(pair_scatter(X, a, p) - pair_scatter(X, a, n))
        keep = np.abs(values) > RANK_TOL * np.abs(values).max()
        if not keep.any():
            raise ValueError("the triplets compare equal differences: they hold no direction to learn from")
        found.append(fix_signs(V[:, keep].T))
    return np.concatenate(found)[:n_basis]
