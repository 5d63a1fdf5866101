"""Locally linear metric adaptation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg as sla
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.distance import pair_sqdist, sqdist
from isometry.core.edges import ListedEdges
from isometry.core.solve import Solution, lbfgs
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import NeighborPairs, Sampler
from isometry.supervision import EdgeList, Labels, Pairs


@parameters
class LLMA(MetricLearner):
    """Locally linear metric adaptation: move samples a little so that similar ones meet and local distances stay.

    y = x + Bπ(x),  π_l(x) = exp(−|x − c_l|²/2w²);  min_B mean_S |y_i − y_j|² + λ mean_ω (|y_i − y_j| − |x_i − x_j|)²

    where the second mean runs over neighbours with weights ω_ij = ``exp(−|x_i − x_j|²/σ²)``, and the centres c_l
    are the samples that occur in S; plus a small penalty on ``|B|²``. Nothing pushes dissimilar samples apart. The
    map is curved. Semi-supervised: samples with the label −1, or in no pair, count among the neighbours.

    Parameters
    ----------
    reg : float ≥ 0, default=1.0
        Weight λ ≥ 0 of the local distances.
    width : float > 0 or None, default=None
        Width w of the basis; None: half the median distance h to the ``n_neighbors``-th neighbour. A wide basis merges
        classes.
    sigma : float > 0 or None, default=None
        Reach σ of the weights ω; None: h.
    ridge : float ≥ 0, default=0.01
        Relative penalty on ``|B|²``. Near 0 the shifts of close centres cancel on the samples and throw any other
        point.
    n_neighbors : int, default=10
        Number of neighbours whose distances should stay.
    pairs : str or Sampler, default="auto"
        Which similar pairs to take if given labels: "auto" is `NeighborPairs(5)`; or another sampler.
    max_centers : int, default=500
        Largest number of centres: above it, they are those of k-means.
    max_iter : int, default=300
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    centers_ : ndarray of shape (k, d)
        The centres c_l about the mean of X.
    shifts_ : ndarray of shape (k, d)
        The columns of B.

    Notes
    -----
    For clustering with a few similar pairs: samples move a little, and what is near stays near. Nothing pushes
    dissimilar samples apart, and a point far from all centres does not move; for classification use `LMNN` or
    `NCA`.

    An iteration costs O(n c d) for c centres, the neighbours O(n² d).

    References
    ----------
    | H. Chang, D.-Y. Yeung, "Locally linear metric adaptation for semi-supervised clustering", ICML 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LLMA, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 50, 100], [40, 90, 140], [True, True, True], n=150)
    >>> metric = LLMA(max_iter=20).fit(X, side)
    >>> metric.transform(X).shape
    (150, 4)
    >>> metric.centers_.shape
    (6, 4)
    """

    _sees = (Labels, Pairs)
    _needs = ("similar",)
    _unlabelled = "minus one"

    _: KW_ONLY
    reg: NotNegative = 1.0
    width: Positive | None = None
    sigma: Positive | None = None
    ridge: NotNegative = 0.01
    n_neighbors: Count = 10
    pairs: str | Sampler = "auto"
    max_centers: Count = 500
    max_iter: Iterations = 300
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        rng = check_random_state(self.random_state)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        X = X - self.mean_
        links = self._links(X, side, rng)
        local, reach = neighbor_edges(X, self.n_neighbors)
        self.width_, sigma = float(self.width or reach / 2), self.sigma or reach
        d = np.sqrt(pair_sqdist(X, local.i, local.j))  # (m,)
        omega = np.exp(-((d / sigma) ** 2))
        self.centers_ = self._choose_centers(X, links, rng)
        solution = adapt(
            X,
            self._basis(X),
            links,
            EdgeList(local.i, local.j, self.reg * omega / omega.sum()),
            d,
            self.ridge,
            max_iter=self.max_iter,
            tol=self.tol,
        )
        self.shifts_ = solution.x
        return solution

    def _links(self, X, side, rng) -> EdgeList:
        """Similar pairs, with weights that sum to 1."""
        if isinstance(side, Labels):
            sampler = NeighborPairs(5) if isinstance(self.pairs, str) and self.pairs == "auto" else self.pairs
            if not isinstance(sampler, Sampler):
                raise TypeError(f"pairs must be 'auto' or a sampler such as NeighborPairs(5), got {self.pairs!r}")
            side = sampler.draw(X, side, rng)
        S = side.similar
        return EdgeList(S.i, S.j, S.weight / S.weight.sum())

    def _choose_centers(self, X, links, rng) -> np.ndarray:
        points = np.unique(X[np.unique(np.concatenate([links.i, links.j]))], axis=0)
        if len(points) <= self.max_centers:
            return points
        return KMeans(self.max_centers, n_init=1, random_state=rng).fit(points).cluster_centers_

    def _basis(self, X) -> np.ndarray:
        """π (n, k)."""
        return np.exp(sqdist(X, self.centers_) / (-2 * self.width_**2))

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return (X + self._basis(X - self.mean_) @ self.shifts_).astype(X.dtype, copy=False)


def neighbor_edges(X: np.ndarray, k: int) -> tuple[EdgeList, float]:
    """Every pair with one among the k nearest of the other, once; and the median distance to the k-th neighbour."""
    n, k = len(X), min(k, len(X) - 1)
    d, j = NearestNeighbors(n_neighbors=k).fit(X).kneighbors()  # (n, k)
    i = np.arange(n)[:, None]
    code = np.unique(np.minimum(i, j) * n + np.maximum(i, j))
    reach = float(np.median(d[:, -1])) or float(d.max()) or 1.0  # zero if most samples have k copies
    return EdgeList.make(code // n, code % n), reach


def adapt(
    X: np.ndarray, Pi: np.ndarray, links: EdgeList, local: EdgeList, d: np.ndarray, ridge: float, **options
) -> Solution:
    """Bᵀ (k, d) that minimises Σ_links u|y_i − y_j|² + Σ_local v(|y_i − y_j| − d_ij)² + ε|B|² for Y = X + ΠBᵀ.

    −|y_i − y_j| lies below its tangent plane, which leaves a quadratic with the matrix A = Πᵀ(L_S + L_V)Π + εI for all
    Y; ε = ``ridge`` · tr(A)/k. In coordinates with A = RᵀR = I, half a gradient is the step of iterative majorisation,
    and L-BFGS comes to the same point in far fewer steps.
    """
    near, keep = (ListedEdges(e.i, e.j, len(X)).incidence for e in (links, local))  # (m, n) each
    u, v = links.weight[:, None], local.weight[:, None]
    A, k = Pi.T @ (near.T @ (u * (near @ Pi)) + keep.T @ (v * (keep @ Pi))), Pi.shape[1]  # (k, k)
    eps = max(ridge, 1e-10) * np.trace(A) / k or 1.0
    R = sla.cholesky(A + eps * np.eye(k))

    def objective(C):
        B = sla.solve_triangular(R, C)
        Y = X + Pi @ B
        together, gap = near @ Y, keep @ Y  # (m, d) each
        q = np.linalg.norm(gap, axis=1)
        slack = 1 - np.divide(d, q, out=np.zeros_like(q), where=q > 0)
        value = links.weight @ _sq(together) + local.weight @ (q - d) ** 2 + eps * np.vdot(B, B)
        pull = near.T @ (u * together) + keep.T @ (v * slack[:, None] * gap)  # (n, d)
        return value, 2 * sla.solve_triangular(R, Pi.T @ pull + eps * B, trans=1)

    solution = lbfgs(objective, np.zeros((k, X.shape[1])), **options)
    return replace(solution, x=sla.solve_triangular(R, solution.x))


def _sq(V: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", V, V)
