"""The first spectral method: similar pairs near, the dissimilar ones apart on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.edges import EdgeLoss, Edges
from isometry.core.frame import Frame
from isometry.core.linalg import column_range, definite, factor, ridge
from isometry.core.solve import Solution, lbfgs
from isometry.core.solvers import Certified
from isometry.core.start import given_map, initial_map, mean_sqdist, within_rank
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import AllPairs, Sampler, choose_pairs, signed_edges
from isometry.supervision import EdgeList, Labels, Pairs


@parameters
class MMC(MixedMetric):
    """The first spectral method: similar pairs as near as possible while dissimilar pairs keep their mean distance.

    min_{W ⪰ 0} tr(W M_S)  subject to  mean over dissimilar pairs of √(zᵀWz) ≥ α,  z = x_i − x_j

    Solved where M_S = I as max_V g(V), g the mean distance, over V ⪰ 0, tr V = 1: in a factor of V and free of scale,
    −log g(V) + ½ log tr V, until the duality gap λ_max(∂g/∂V) − g/2 closes.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features, and only then is the optimum global.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    diagonal : bool, default=False
        Whether to learn a weight for each feature instead of a full matrix.
    alpha : float > 0, default=1.0
        Mean distance α of dissimilar pairs afterwards: it only sets the scale.
    reg : float ≥ 0, default=1e-6
        Relative ridge on M_S. Without it the problem has no solution if similar pairs leave a direction unused.
    init : {"auto", "identity", "pca", "lda", "random"} or ndarray, default="identity"
        Where the search starts; an array is a map (p, d). A diagonal metric needs none.
    pairs : str or Sampler, default="auto"
        Which dissimilar pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    gap_ : float
        Duality gap over g at the solution; 0 proves that it is the global optimum.

    Notes
    -----
    The method that began the field, for pairs or labels and clustering. Its optimum often has rank one, which is
    too little for several classes: for classification `FisherML`, `ITML` or `LMNN` are better. With ``diagonal`` it
    chooses among features.

    An iteration costs O(m d + d³) for m dissimilar pairs.

    The unsquared constraint does not rule out rank one: with all pairs of labels the exact optimum often has it.

    References
    ----------
    | E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell, "Distance metric learning with application to clustering with
      side-information", NIPS 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MMC, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 0, 50, 50, 100], [1, 50, 51, 100, 0], [True, False, True, False, False], n=150)
    >>> metric = MMC().fit(X, side)
    >>> bool(metric.gap_ < 1e-3)
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    diagonal: bool = False
    alpha: Positive = 1.0
    reg: NotNegative = 1e-6
    init: Literal["auto", "identity", "pca", "lda", "random"] | np.ndarray = "identity"
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p, rng = check_components(self.n_components, X.shape[1]), check_random_state(self.random_state)
        Q, R = _whitener(*mean_pair_scatters(X, side), self.reg, self.diagonal)
        Xw = sla.solve_triangular(R, Q.T @ (X - X.mean(axis=0)).T, lower=True).T  # (n, r), where M_S = I
        problem, r = MeanDistance.of(Xw, side, self.pairs, rng), Xw.shape[1]
        init = self.init
        if not isinstance(init, str):
            init = within_rank(given_map(init, p, r, X.shape[1]) @ Q @ R)
        if self.diagonal:
            bounds: list[tuple[float | None, float | None]] = [(0.0, None)] * r
            solution = lbfgs(problem.diagonal, np.full(r, 0.5 / r), bounds=bounds, max_iter=self.max_iter, tol=self.tol)
            L = np.diag(np.sqrt(solution.x))
        else:
            L = initial_map(Frame(Xw), side, init, p, rng)
            solution = Certified(self.max_iter, self.tol).minimize(problem, L / np.linalg.norm(L))
            L = solution.x
        L = L / np.linalg.norm(L)
        g, G = problem.slope(L)
        G = np.diag(np.diag(G)) if self.diagonal else G
        self.gap_ = float((sla.eigvalsh(G)[-1] - g / 2) / g)
        L = sla.solve_triangular(R, L.T, lower=True, trans="T").T @ Q.T  # L R⁻¹ Qᵀ
        self._store(self.alpha / g * factor(L.T @ L, p), X.dtype)
        return solution


def _whitener(S: np.ndarray, D: np.ndarray, reg: float, diagonal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Q (d, r), R (r, r) with QᵀSQ = RRᵀ on the directions where any pair varies; diagonal: of the diagonals alone."""
    if np.trace(S) <= 1e-14 * np.trace(D):  # zero but for rounding
        raise ValueError("every similar pair joins two equal samples: there is no variation to make small")
    if diagonal:
        S, D = np.diag(np.diag(S)), np.diag(np.diag(D))
    Q = column_range(S / np.trace(S) + D / max(np.trace(D), 1e-300))
    return Q, sla.cholesky(ridge(definite(Q.T @ S @ Q, 0.0), reg), lower=True)


@dataclass(frozen=True)
class MeanDistance:
    """−log g(V) + ½ log tr V, to minimise over factors V = LᵀL; g is the mean distance of the dissimilar pairs."""

    X: np.ndarray  # (n, r), where M_S = I
    edges: Edges
    loss: EdgeLoss  # g as a loss on squared distances

    @classmethod
    def of(cls, X: np.ndarray, side: Labels | Pairs, sampler: Any, rng: np.random.RandomState) -> MeanDistance:
        pairs = choose_pairs(side, sampler, X, rng) if isinstance(side, Labels) else side
        if isinstance(pairs, Pairs):
            pairs = Pairs.from_edges(EdgeList.make([], []), pairs.dissimilar, len(X))
        signed = signed_edges(pairs, AllPairs(), X, rng)
        eps = 1e-15 * mean_sqdist(X)  # keeps the slope finite where d = 0

        def distance(d: np.ndarray, _: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            q = np.sqrt(d + eps)
            return q, 0.5 / q

        return cls(X, signed.edges, signed.loss(distance, similar=0.0, dissimilar=1 / signed.n_dissimilar))

    def slope(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        """g and ∂g/∂V (r, r) at V = LᵀL."""
        g, pull = self.edges.evaluate(self.X @ L.T, self.loss, V=self.X)
        return g, self.X.T @ pull

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        g, pull = self.edges.evaluate(self.X @ L.T, self.loss)
        t = float(np.vdot(L, L))
        return -np.log(g) + np.log(t) / 2, L / t - 2 / g * pull.T @ self.X

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        g, G = self.slope(L)
        return np.eye(L.shape[1]) / (2 * np.vdot(L, L)) - G / g

    def diagonal(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        """Σv − log g(diag v), whose minimum over v ≥ 0 has Σv = ½; and its gradient."""
        g, pull = self.edges.evaluate(self.X * np.sqrt(v), self.loss, V=self.X)
        return v.sum() - np.log(g), 1 - np.einsum("ij,ij->j", self.X, pull) / g
