"""Information-theoretic metric learning, offline and online."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import OnlineMetric
from isometry.core.distance import pair_sqdist
from isometry.core.frame import Frame
from isometry.core.linalg import factor
from isometry.core.priors import prior_matrix
from isometry.core.solve import Solution
from isometry.core.solvers import Batches
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.probabilistic.logdet import LogDetProblem, cyclic_projections, stream
from isometry.sampling import Sampler, choose_pairs, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs, Supervision

BOUNDS_FROM = 200_000  # pairs whose distances give the bounds


@parameters
class ITML(SearchedMetric, OnlineMetric):
    """Information-theoretic metric learning: the metric nearest to a prior that keeps similar pairs near, others far.

    min_{W ≻ 0} D(W, W₀) + γ Σ_c h(r_c),  h(r) = r − log r − 1 if the pair violates its bound, else 0,

    with the LogDet divergence D(W, W₀) = tr(WW₀⁻¹) − log det(WW₀⁻¹) − d and r_c = d_W²(pair)/bound: at most u for
    similar pairs, at least l for dissimilar ones. This is the published problem with its slacks eliminated. γ = ∞ makes
    the bounds hard. A pair of weight w has the price γw; hard bounds cannot weigh pairs.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    gamma : float > 0, default=1.0
        Price γ of a violated pair.
    bounds : tuple of two floats or None, default=None
        Bounds (u, l) on squared distances; None: 5th and 95th percentile under the prior.
    prior : {"identity", "covariance"} or ndarray, default="identity"
        Prior metric W₀: "identity", "covariance" or a positive definite array.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    solver : {"lbfgs", "bregman"}, default="lbfgs"
        "lbfgs" (with the duality gap as certificate, ``duality_gap_``) or "bregman" (cyclic projections, the algorithm
        of the paper; slow; the only one for gamma=inf).
    online : {"loss", "projection", "slack"}, default="loss"
        Rule of ``partial_fit``: "loss" (one closed-form step a pair), "projection" (meet the bound exactly) or "slack"
        (the offline problem on the new pairs with the current metric as prior).
    eta : float > 0, default=0.1
        Step of the "loss" rule, relative to the squared bound, so that it has no unit; times the weight of the pair.
    batch_size : int or None, default=None
        Size of mini-batches, for n beyond 10⁵: so many pairs at a time; of labels, random pairs. Adam takes the place
        of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it; ``history_`` has the
        means of the batches. None: no batches.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-8
        Relative duality gap at which the search stops. Batches do not look at it; ``duality_gap_`` says what it was in
        the end, inf if the dual gives no bound there.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For pairs marked similar or dissimilar, with a prior metric to stay near, and for streams of pairs. It learns a
    whole matrix in the input's dimension: with more than some hundred features use `PCCA` or `DRML`, which reduce
    it. From labels it asks that all pairs of a class be near, which classes of several clusters cannot meet.

    An evaluation costs O(m d + n d² + d³) for m pairs, a step of ``partial_fit`` O(d²).

    ``partial_fit`` takes a stream. "loss" and "projection" treat one pair at a time, in the order given (labels:
    similar pairs of the batch first), so that cutting the same pairs into other batches does not change the result.
    Bounds and prior are settled by the first batch.

    References
    ----------
    | J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, "Information-theoretic metric learning", ICML 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import ITML, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 50, 100, 0, 50], [1, 51, 101, 60, 110], [True, True, True, False, False], n=150)
    >>> metric = ITML(strength=1).fit(X, side)
    >>> bool(metric.duality_gap_ < 1e-4)
    True
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < far)
    True
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    gamma: Positive = 1.0
    bounds: tuple[float, float] | None = None
    prior: str | np.ndarray = "identity"
    pairs: str | Sampler = "auto"
    solver: Literal["lbfgs", "bregman"] = "lbfgs"
    online: Literal["loss", "projection", "slack"] = "loss"
    eta: Positive = 0.1
    batch_size: Count | None = None
    max_iter: Iterations = 200
    tol: NotNegative = 1e-8
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs, update: bool = False) -> Solution | None:
        self._check_parameters()
        rng = check_random_state(self.random_state)
        if update:
            return self._update(X, side, rng)
        B = sla.cholesky(prior_matrix(self.prior, X))  # W₀ = BᵀB
        Y = (X - X.mean(axis=0)) @ B.T.astype(X.dtype)  # distances under W₀ are Euclidean here, and the prior is I
        self.bounds_ = self._find_bounds(Y, rng)
        self.threshold_ = float(np.sqrt(np.mean(self.bounds_)))
        if self.solver == "lbfgs":
            L, solution = self._solve(Y, side, self.pairs, rng)
        else:
            pairs = as_pairs(choose_pairs(side, self.pairs, Y, rng) if isinstance(side, Labels) else side)
            if np.isinf(self.gamma):
                pairs.refuse_weights("ITML(gamma=inf) keeps every pair within its bound")
            solution = cyclic_projections(Y, pairs, self.bounds_, self.gamma, max_iter=self.max_iter, tol=self.tol)
            L = factor(solution.x)
        self._store(L @ B, X.dtype)
        return solution

    def _update(self, X: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState) -> Solution | None:
        """Go on with the pairs of a new batch: `Pairs` over its rows, or labels (all its pairs)."""
        if self.online == "projection" and isinstance(side, Pairs):
            side.refuse_weights("ITML(online='projection') moves every pair to its bound")
        if not hasattr(self, "components_"):
            B = sla.cholesky(prior_matrix(self.prior, X))
            self.bounds_ = self._find_bounds(X @ B.T.astype(X.dtype), rng)
            self.threshold_ = float(np.sqrt(np.mean(self.bounds_)))
            self._store(B, X.dtype)
        L, solution = self.components_.astype(np.float64), None
        if self.online == "slack":
            step, solution = self._solve(X @ L.T.astype(X.dtype), side, "auto", check_random_state(self.random_state))
            L = step @ L
        else:
            eta = None if self.online == "projection" else self.eta
            L = sla.cholesky(stream(X, as_pairs(side), L.T @ L, self.bounds_, eta))
        self._store(L, X.dtype)
        return solution

    def _check_parameters(self) -> None:
        if self.batch_size is not None and self.solver != "lbfgs":
            raise ValueError("batch_size is for solver='lbfgs'; cyclic projections take one pair at a time anyway")
        if np.isinf(self.gamma) and self.solver != "bregman":
            raise ValueError("gamma=inf (hard bounds) needs solver='bregman'")

    def _find_bounds(self, Y: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        if self.bounds is not None:
            u, l = self.bounds
            if not 0 < u < l:
                raise ValueError(f"bounds={self.bounds} must satisfy 0 < u < l")
            return np.array([u, l], dtype=np.float64)
        n = len(Y)
        if n * (n - 1) / 2 <= BOUNDS_FROM:
            i, j = np.triu_indices(n, 1)
        else:
            i, j = rng.randint(0, n, size=(2, BOUNDS_FROM))
            i, j = i[i != j], j[i != j]
        d = pair_sqdist(Y, i, j)
        d = d[d > 0]
        if len(d) == 0:
            raise ValueError("all samples are equal: no distance to take bounds from")
        u, l = np.percentile(d.astype(np.float64), [5, 95])
        return np.array([u, max(l, 1.1 * u)])

    def _solve(
        self, Y: np.ndarray, side: Labels | Pairs, sampler: str | Sampler, rng: np.random.RandomState
    ) -> tuple[np.ndarray, Solution]:
        """L (d, d) with the least objective where the prior is I; directions that no pair sees keep the prior."""
        signed = signed_edges(side, sampler, Y, rng, listed=self.batch_size is not None)
        frame = Frame.of(Y)
        problem, L = LogDetProblem(frame.X, signed, self.bounds_, self.gamma), np.eye(frame.X.shape[1])
        if self.batch_size is None:
            solution, self.duality_gap_ = problem.minimize(L, self.max_iter, self.tol)
        else:
            solution = Batches(self.batch_size, rng, self.max_iter).minimize(problem.objective, L)
            self.duality_gap_ = problem.gap(solution.x)
        return frame.extend(solution.x), solution


def as_pairs(side: Supervision) -> Pairs:
    """All pairs of labels, listed; or pairs as they are."""
    pairs = side.to(Pairs)
    assert isinstance(pairs, Pairs)
    return pairs
