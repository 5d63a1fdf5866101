"""Metric learning by eigenvalue optimisation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.core.distance import pair_sqdist
from isometry.core.linalg import canonical, definite, joint_range
from isometry.core.solve import Solution
from isometry.core.solvers import Certified
from isometry.core.warn import warn_user
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import AllPairs, Sampler, SignedEdges, choose_pairs, signed_edges
from isometry.supervision import EdgeList, Labels, Pairs


@parameters
class DMLeig(MixedMetric):
    """Metric learning by eigenvalue optimisation: the smallest distance of a dissimilar pair, as large as it can be.

    max_{W ⪰ 0} min over dissimilar pairs of zᵀWz  subject to  tr(W M_S) = 1

    Solved where M_S = I, with a soft minimum: min_V μ log mean exp(−zᵀVz/μ) over V ⪰ 0, tr V = 1.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    mu : float > 0, default=0.05
        Softness μ of the minimum, in units of the mean distance at V = I/d: large values look at the mean, small ones
        at single pairs.
    reg : float ≥ 0, default=0.1
        Relative ridge on M_S.
    pairs : str or Sampler, default="auto"
        Which dissimilar pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative duality gap at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    duality_gap_ : float
        How far the soft minimum can be from its optimum at most.

    Notes
    -----
    For pairs where the hardest matter: the smallest distance of a dissimilar pair decides. Not for small samples of
    many classes, nor for noisy pairs, where the hardest pairs are mistakes; there `KISSME` or `ITML` are safer.

    An iteration costs O(m d + d³) for m dissimilar pairs.

    References
    ----------
    | Y. Ying, P. Li, "Distance metric learning with eigenvalue optimization", JMLR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DMLeig, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 0, 50, 50, 100], [1, 50, 51, 100, 0], [True, False, True, False, False], n=150)
    >>> metric = DMLeig().fit(X, side)
    >>> bool(metric.duality_gap_ < 0.01)
    True
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    mu: Positive = 0.05
    reg: NotNegative = 0.1
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        rng = check_random_state(self.random_state)
        S, D = mean_pair_scatters(X, side)
        Q = joint_range(S, D)
        R = sla.cholesky(definite(Q.T @ S @ Q, self.reg, beside=Q.T @ D @ Q), lower=True)
        Xc = (X - X.mean(axis=0)).astype(np.float64)
        whitened = sla.solve_triangular(R, Q.T @ Xc.T, lower=True).T  # (n, r), where M_S = I
        unit = float(np.trace(sla.cho_solve((R, True), Q.T @ D @ Q))) / len(R)
        problem = SoftMinimum(whitened, distinct_pairs(X, side, self.pairs, rng), self.mu * unit)
        solution, self.duality_gap_ = problem.minimize(np.eye(len(R)), self.max_iter, self.tol)
        L = solution.x / np.linalg.norm(solution.x)
        self._store(canonical(sla.solve_triangular(R, L.T, lower=True, trans="T").T @ Q.T, tol=1e-7), X.dtype)
        return solution


def distinct_pairs(
    X: np.ndarray, side: Labels | Pairs, sampler: str | Sampler, rng: np.random.RandomState
) -> SignedEdges:
    """The dissimilar pairs, without those of equal samples, which no metric can tell apart."""
    pairs = choose_pairs(side, sampler, X, rng) if isinstance(side, Labels) else side
    if isinstance(pairs, Labels):
        points, point = np.unique(X, axis=0, return_inverse=True)
        if len(points) == len(X) or len(np.unique(np.c_[point.ravel(), pairs.codes], axis=0)) == len(points):
            return signed_edges(pairs, AllPairs(), X, rng)  # equal samples are of one class
    D = pairs.dissimilar
    keep = pair_sqdist(X.astype(np.float64), D.i, D.j) > 0
    if not keep.all():
        warn_user(f"{np.sum(~keep)} dissimilar pairs join two equal samples, which no metric can tell apart: left out")
    if not keep.any():
        raise ValueError("every dissimilar pair joins two equal samples: no metric can tell them apart")
    apart = EdgeList(D.i[keep], D.j[keep], D.weight[keep])
    return signed_edges(Pairs.from_edges(EdgeList.make([], []), apart, len(X)), AllPairs(), X, rng)


@dataclass(frozen=True)
class SoftMinimum:
    """f(V) = μ log mean exp(−zᵀVz/μ) at V = LᵀL/|L|², which does not depend on the scale of L."""

    X: np.ndarray  # (n, r), where M_S = I
    signed: SignedEdges
    mu: float

    def slope(self, L: np.ndarray, *, in_metric: bool) -> tuple[float, np.ndarray]:
        """f and its pull on the points, or on the samples, at V = LᵀL."""
        Z, low = self.X @ L.T, np.inf

        def lowest(d: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            nonlocal low
            low = min(low, float(d[t < 0].min(initial=np.inf)))
            return np.zeros_like(d), np.zeros_like(d)

        def exponential(d: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            e = np.exp(np.minimum(low - d, 0) / self.mu)
            return e, -e / self.mu

        edges, share = self.signed.edges, 1 / self.signed.n_dissimilar
        edges.evaluate(Z, self.signed.loss(lowest), V=Z[:, :0])
        loss = self.signed.loss(exponential, similar=0.0, dissimilar=share)
        total, pull = edges.evaluate(Z, loss, V=self.X if in_metric else None)
        return self.mu * np.log(total) - low, pull * (self.mu / total)

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        size = float(np.linalg.norm(L))
        U = L / size
        value, pull = self.slope(U, in_metric=False)
        G = 2 * pull.T @ self.X
        return value, (G - np.vdot(G, U) * U) / size

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        """∂/∂W of f(W/tr W) at W = LᵀL; its smallest eigenvalue is −gap/tr W."""
        size = float(np.linalg.norm(L))
        U = L / size
        G = self.X.T @ self.slope(U, in_metric=True)[1]
        return (G - np.vdot(U @ G, U) * np.eye(len(G))) / size**2

    def gap(self, L: np.ndarray) -> float:
        """⟨G, V⟩ − λ_min(G) ≥ f(V) − min f, G = ∂f/∂V."""
        return -float(sla.eigvalsh(self.metric_gradient(L))[0]) * float(np.vdot(L, L))

    def minimize(self, L: np.ndarray, max_iter: int, tol: float) -> tuple[Solution, float]:
        """Ever longer searches, until the duality gap, which is returned too, is at most tol · |f|."""
        n_iter, history, narrow = 0, list[float](), tol
        while True:
            solution = Certified(max(max_iter - n_iter, 1), narrow).minimize(self, L)
            solution = solution.following(n_iter, max_iter, history)
            L, n_iter, history = solution.x, solution.n_iter, solution.history
            gap = self.gap(L)
            done = gap <= tol * abs(solution.value)
            if done or n_iter >= max_iter or narrow <= 1e-10:
                reason = f"duality gap {gap:.1e}" if done else solution.reason
                return replace(solution, n_iter=max(n_iter, 1), converged=done, reason=reason), gap
            narrow /= 100
