"""A metric by the margin of a support vector machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.edges import ListedEdges
from isometry.core.linalg import factor, symmetrize
from isometry.core.solve import Solution, fista
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, PositiveShare, Seed, parameters
from isometry.sampling import AllPairs, RandomPairs, Sampler, choose_pairs
from isometry.supervision import Labels, Pairs

ALL_PAIRS = 200_000  # up to this many dissimilar pairs "auto" lists them all


@parameters
class MarginSVM(MixedMetric):
    """Metric by the margin of a support vector machine: dissimilar pairs farther apart than they were, by a margin.

    min ½|W|_F² + C_S mean_S zᵀWz + C_D (−νg + mean_D ξ)  s.t.  zᵀWz − zᵀz ≥ g − ξ on dissimilar pairs; W ⪰ 0, g, ξ ≥ 0

    over W, g and ξ, with z = x_i − x_j and X scaled so that dissimilar pairs have mean zᵀz = 1. Solved in the dual:
    one multiplier 0 ≤ a ≤ ``C_D/|D|`` for each dissimilar pair, Σa ≥ C_D ν, and W = [Σ_D a zzᵀ − C_S M_S]₊.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions of W to keep; None: all.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    C_S : float ≥ 0, default=1.0
        Weight of the similar pairs.
    C_D : float > 0, default=10.0
        Weight of the dissimilar pairs.
    nu : float in (0, 1], default=0.5
        Share ν: at most so many of the dissimilar pairs lie within a positive margin.
    psd : bool, default=True
        Whether W ⪰ 0 is asked for; False solves without it, as the survey's dual does, and drops the negative part of W
        afterwards.
    pairs : str or Sampler, default="auto"
        Which dissimilar pairs to take if given labels: "auto" (all up to 200,000, else half of that at random),
        `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=2000
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative duality gap at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    margin_ : float
        The margin g at the solution.
    gap_ : float
        Duality gap over the value at the solution.
    dual_coef_ : ndarray
        The multiplier a of each dissimilar pair.

    Notes
    -----
    For pairs, when the theory of support vector machines is wanted: sparse multipliers and a bound on the share of
    pairs within the margin. Few directions carry the metric, which is too little for many classes; there `LMNN`, or
    for pairs `ITML`, keep more.

    An iteration costs O(m d² + d³) for m dissimilar pairs.

    References
    ----------
    | I. W. Tsang, J. T. Kwok, "Distance metric learning with kernels", ICANN 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MarginSVM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = MarginSVM().fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool((metric.dual_coef_ >= 0).all())
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    C_S: NotNegative = 1.0
    C_D: Positive = 10.0
    nu: PositiveShare = 0.5
    psd: bool = True
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 2000
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p, dtype = check_components(self.n_components, X.shape[1]), X.dtype
        X = X.astype(np.float64) - X.mean(axis=0)
        far, weight = self._dissimilar(X, side)
        scale = np.sqrt(weight @ far.sqdist(X)) or 1.0
        M_S, _ = mean_pair_scatters(X / scale, side)
        dual = Dual(X / scale, far, weight, self.C_S * M_S, self.C_D, self.nu, self.psd)
        solution = fista(
            dual,
            dual.project,
            np.full(len(weight), self.nu),
            step=dual.first_step(),
            max_iter=self.max_iter,
            tol=self.tol,
            gap=lambda b: dual.gap(b)[0],
        )
        self.gap_, self.margin_ = dual.gap(solution.x)
        self.dual_coef_ = dual.bound * solution.x
        self._store(factor(dual.metric(solution.x), p) / scale, dtype)
        return solution

    def _dissimilar(self, X, side) -> tuple[ListedEdges, np.ndarray]:
        """Listed dissimilar pairs, and their weights, which sum to 1."""
        if isinstance(side, Labels):
            sampler, n_c = self.pairs, side.counts.astype(float)
            if isinstance(sampler, str) and sampler == "auto":
                sampler = AllPairs() if n_c.sum() ** 2 - n_c @ n_c <= 2 * ALL_PAIRS else RandomPairs(ALL_PAIRS // 2)
            side = choose_pairs(side, sampler, X, check_random_state(self.random_state))
        i, j, weight = side.dissimilar
        return ListedEdges(i, j, len(X)), weight / weight.sum()


@dataclass(frozen=True)
class Dual:
    """½|[N(a)]₊|² − Σ a zᵀz with N(a) = Σ a zzᵀ − C_S M_S, in b = a/bound between 0 and 1, bound = C_D · weight."""

    X: np.ndarray  # (n, d)
    far: ListedEdges
    weight: np.ndarray  # (m,)
    pull: np.ndarray  # (d, d) = C_S M_S
    C_D: float
    nu: float
    psd: bool

    @cached_property
    def bound(self) -> np.ndarray:
        return self.C_D * self.weight  # (m,)

    @cached_property
    def original(self) -> np.ndarray:
        return self.far.sqdist(self.X)  # (m,) zᵀz

    def scatter(self, a: np.ndarray) -> np.ndarray:
        """Σ a zzᵀ = Xᵀ Laplacian(a) X, in O(|D| d + n d²)."""
        return symmetrize(self.X.T @ self.far.pull(a, self.X))

    def metric(self, b: np.ndarray) -> np.ndarray:
        """W (d, d) that belongs to the multipliers."""
        w, V = self._spectrum(b)
        return (V * w) @ V.T

    def _spectrum(self, b):
        w, V = sla.eigh(self.scatter(self.bound * b) - self.pull)
        return (np.maximum(w, 0) if self.psd else w), V

    def _gain(self, w, V) -> np.ndarray:
        """h = zᵀWz − zᵀz (m,) for W = V diag(w) Vᵀ."""
        h = -self.original
        for sign in (1, -1):
            part = sign * w > 0
            if part.any():
                h = h + sign * self.far.sqdist(self.X @ (V[:, part] * np.sqrt(np.abs(w[part]))))
        return h

    def __call__(self, b: np.ndarray) -> tuple[float, np.ndarray]:
        w, V = self._spectrum(b)
        return float(w @ w / 2 - (self.bound * b) @ self.original), self.bound * self._gain(w, V)

    def gap(self, b: np.ndarray) -> tuple[float, float]:
        """(primal − dual)/max(1, |primal|), and the best margin g ≥ 0 for this W: the ν-quantile of h."""
        w, V = self._spectrum(b)
        h, weight = self._gain(w, V), self.weight
        order = np.argsort(h)
        quantile = min(int(np.searchsorted(np.cumsum(weight[order]), self.nu - 1e-12)), len(h) - 1)
        g = max(0.0, float(h[order[quantile]]))
        slack = -self.nu * g + weight @ np.maximum(g - h, 0)
        primal = w @ w / 2 + np.einsum("ji,jk,ki->i", V, self.pull, V) @ w + self.C_D * slack
        dual = (self.bound * b) @ self.original - w @ w / 2
        return float((primal - dual) / max(1.0, abs(primal))), g

    def project(self, v: np.ndarray) -> np.ndarray:
        """The nearest b in [0, 1] with Σ weight · b ≥ ν."""
        b, weight = np.clip(v, 0, 1), self.weight
        if weight @ b >= self.nu:
            return b
        low, high = 0.0, float(np.max((1 - v)[weight > 0] / weight[weight > 0]))  # at `high` every b is 1
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if weight @ np.clip(v + middle * weight, 0, 1) < self.nu else (low, middle)
        return np.clip(v + high * weight, 0, 1)

    def first_step(self) -> float:
        """1 over the largest curvature, by power iteration."""
        v, norm = np.sqrt(self.bound / self.C_D), 1.0
        for _ in range(10):
            w, V = sla.eigh(self.scatter(self.bound * v))
            v = self.bound * (self._gain(w, V) + self.original)
            norm = float(np.linalg.norm(v)) or 1.0
            v = v / norm
        return 1 / norm
