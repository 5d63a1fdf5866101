"""The first spectral method: similar pairs near, the dissimilar ones apart on average."""

from __future__ import annotations

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import LinearMetric
from isometry.core.edges import Edges, Loss
from isometry.core.linalg import column_range, definite, factor, ridge
from isometry.core.objective import minimize_psd
from isometry.core.solve import Progress, Solution, lbfgs
from isometry.core.start import initial_map, mean_sqdist
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.sampling import AllPairs, Sampler, choose_pairs, signed_edges
from isometry.supervision import EdgeList, Labels, Pairs


@parameters
class MMC(LinearMetric):
    """The first spectral method: similar pairs as near as possible while dissimilar pairs keep their mean distance.

    min_{W ⪰ 0} tr(W M_S)  subject to  mean over dissimilar pairs of √(zᵀWz) ≥ α,  z = x_i − x_j

    Solved where M_S = I as max_V g(V), g the mean distance, over V ⪰ 0, tr V = 1: in a factor of V and free of scale,
    −log g(V) + ½ log tr V, until the duality gap λ_max(∂g/∂V) − g/2 closes.

    Parameters
    ----------
    n_components : rows of L (default: all features; only then is the optimum global)
    diagonal : learn a weight for each feature instead of a full matrix
    alpha : α, the mean distance of dissimilar pairs afterwards: it only sets the scale
    reg : relative ridge on M_S. Without it the problem has no solution if similar pairs leave a direction unused
    init : "identity", "pca", "lda", "random" or an array (p, d); a diagonal metric needs none
    pairs : which dissimilar pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`
    max_iter, tol, random_state, verbose : as everywhere

    Attributes
    ----------
    gap_ : duality gap over g at the solution; 0 proves that it is the global optimum

    Notes
    -----
    The unsquared constraint does not rule out rank one: with all pairs of labels the exact optimum often has it.

    References
    ----------
    E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell, "Distance metric learning with application to clustering with
    side-information", NIPS 2002.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    diagonal: bool = False
    alpha: float = 1.0
    reg: float = 1e-6
    init: str | np.ndarray = "identity"
    pairs: str | Sampler = "auto"
    max_iter: int = 200
    tol: float = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X, side):
        if self.alpha <= 0 or self.reg < 0:
            raise ValueError(f"alpha={self.alpha} must be positive and reg={self.reg} not negative")
        p, rng = self._check_n_components(X.shape[1]), check_random_state(self.random_state)
        Q, R = _whitener(*mean_pair_scatters(X, side), self.reg, self.diagonal)
        Xw = sla.solve_triangular(R, Q.T @ (X - X.mean(axis=0)).T, lower=True).T  # (n, r), where M_S = I
        edges, loss = _mean_distance(Xw, side, self.pairs, rng)
        r = Xw.shape[1]
        with Progress(self.verbose, "MMC", self.max_iter) as progress:
            options = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            if self.diagonal:
                solution, L = _solve_diagonal(Xw, edges, loss, options)
            else:
                init = self.init if isinstance(self.init, str) else np.asarray(self.init, dtype=np.float64) @ Q @ R
                solution, L = _solve_full(Xw, edges, loss, initial_map(Xw, side, init, min(p or r, r), rng), options)
        L /= np.linalg.norm(L)
        g, G = _slope(Xw, edges, loss, L)
        G = np.diag(np.diag(G)) if self.diagonal else G
        self.gap_ = float((sla.eigvalsh(G)[-1] - g / 2) / g)
        L = sla.solve_triangular(R, L.T, lower=True, trans="T").T @ Q.T  # L R⁻¹ Qᵀ
        self._set_components(self.alpha / g * factor(L.T @ L, p), X.dtype)
        self._record(solution)


def _whitener(S: np.ndarray, D: np.ndarray, reg: float, diagonal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Q (d, r), R (r, r) with QᵀSQ = RRᵀ on the directions where any pair varies; diagonal: of the diagonals alone."""
    if np.trace(S) <= 1e-14 * np.trace(D):  # zero but for rounding
        raise ValueError("every similar pair joins two equal samples: there is no variation to make small")
    if diagonal:
        S, D = np.diag(np.diag(S)), np.diag(np.diag(D))
    Q = column_range(S / np.trace(S) + D / max(np.trace(D), 1e-300))
    return Q, sla.cholesky(ridge(definite(Q.T @ S @ Q, 0.0), reg), lower=True)


def _mean_distance(X: np.ndarray, side: Labels | Pairs, sampler, rng) -> tuple[Edges, Loss]:
    """The dissimilar pairs, and g as a loss on their squared distances, with a rounding that keeps its slope finite."""
    pairs = choose_pairs(side, sampler, X, rng) if isinstance(side, Labels) else side
    if isinstance(pairs, Pairs):
        pairs = Pairs.from_edges(EdgeList.make([], []), pairs.dissimilar, len(X))
    signed = signed_edges(pairs, AllPairs(), X, rng)
    eps = 1e-15 * mean_sqdist(X)

    def distance(d, _):
        q = np.sqrt(d + eps)
        return q, 0.5 / q

    return signed.edges, signed.loss(distance, similar=0.0, dissimilar=1 / signed.n_dissimilar)


def _slope(X: np.ndarray, edges: Edges, loss: Loss, L: np.ndarray) -> tuple[float, np.ndarray]:
    """g and ∂g/∂V (r, r) at V = LᵀL."""
    g, pull = edges.evaluate(X @ L.T, loss, V=X)
    return g, X.T @ pull


def _solve_full(X, edges, loss, L0: np.ndarray, options) -> tuple[Solution, np.ndarray]:
    def objective(L):
        g, pull = edges.evaluate(X @ L.T, loss)
        t = float(np.vdot(L, L))
        return -np.log(g) + np.log(t) / 2, L / t - 2 / g * pull.T @ X

    def metric_gradient(L):
        g, G = _slope(X, edges, loss, L)
        return np.eye(L.shape[1]) / (2 * np.vdot(L, L)) - G / g

    L0 = L0 / np.linalg.norm(L0)
    square = len(L0) == X.shape[1]
    solution = minimize_psd(objective, metric_gradient, L0, **options) if square else lbfgs(objective, L0, **options)
    return solution, solution.x


def _solve_diagonal(X, edges, loss, options) -> tuple[Solution, np.ndarray]:
    """min_{v ≥ 0} Σv − log g(diag v), whose solution has Σv = ½."""

    def objective(v):
        g, pull = edges.evaluate(X * np.sqrt(v), loss, V=X)
        return v.sum() - np.log(g), 1 - np.einsum("ij,ij->j", X, pull) / g

    r = X.shape[1]
    solution = lbfgs(objective, np.full(r, 0.5 / r), bounds=[(0, None)] * r, **options)
    return solution, np.diag(np.sqrt(solution.x))
