"""Information-theoretic metric learning, offline and online."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from isometry.base import LinearMetric
from isometry.core.distance import pair_sqdist
from isometry.core.linalg import factor, row_range
from isometry.core.objective import Objective, minimize_batches
from isometry.core.priors import prior_matrix
from isometry.core.solve import Progress, Solution, lbfgs
from isometry.parameters import KW_ONLY, Seed, check_choices, parameters
from isometry.sampling import Sampler, SignedEdges, choose_pairs, signed_edges
from isometry.supervision import Labels, Pairs


@parameters
class ITML(LinearMetric):
    """Information-theoretic metric learning: the metric nearest to a prior that keeps similar pairs near, others far.

    min_{W ≻ 0} D(W, W₀) + γ Σ_c h(r_c),  h(r) = r − log r − 1 if the pair violates its bound, else 0,

    with the LogDet divergence D(W, W₀) = tr(WW₀⁻¹) − log det(WW₀⁻¹) − d and r_c = d_W²(pair)/bound: at most u for
    similar pairs, at least l for dissimilar ones. This is the published problem with its slacks eliminated. γ = ∞ makes
    the bounds hard. A pair of weight w has the price γw; hard bounds cannot weigh pairs.

    Parameters
    ----------
    gamma : γ, price of a violated pair
    bounds : (u, l) on squared distances; None: 5th and 95th percentile under the prior
    prior : W₀: "identity", "covariance" or a positive definite array
    pairs : which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`
    solver : "lbfgs" (with the duality gap as certificate, ``duality_gap_``) or "bregman" (cyclic projections, the
        algorithm of the paper; slow; the only one for gamma=inf)
    online : rule of ``partial_fit``: "loss" (one closed-form step a pair), "projection" (meet the bound exactly) or
        "slack" (the offline problem on the new pairs with the current metric as prior)
    eta : step of the "loss" rule, relative to the squared bound, so that it has no unit; times the weight of the pair
    batch_size : mini-batches, for n beyond 10⁵: so many pairs at a time; of labels, random pairs.
        Adam takes the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it;
        ``history_`` has the means of the batches. None: no batches
    tol : relative duality gap to reach. Batches do not look at it; ``duality_gap_`` says what it was in the end, inf if
        the dual gives no bound there

    Notes
    -----
    ``partial_fit`` takes a stream. "loss" and "projection" treat one pair at a time, in the order given (labels:
    similar pairs of the batch first), so that cutting the same pairs into other batches does not change the result.
    Bounds and prior are settled by the first batch.

    References
    ----------
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, "Information-theoretic metric learning", ICML 2007.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    _: KW_ONLY
    gamma: float = 1.0
    bounds: tuple[float, float] | None = None
    prior: str | np.ndarray = "identity"
    pairs: str | Sampler = "auto"
    solver: str = "lbfgs"
    online: str = "loss"
    eta: float = 0.1
    batch_size: int | None = None
    max_iter: int = 200
    tol: float = 1e-8
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X, side):
        if not self.gamma > 0:
            raise ValueError(f"gamma={self.gamma} must be positive")
        check_choices(self, solver=("lbfgs", "bregman"))
        if self.batch_size is not None and self.solver != "lbfgs":
            raise ValueError("batch_size is for solver='lbfgs'; cyclic projections take one pair at a time anyway")
        if np.isinf(self.gamma) and self.solver != "bregman":
            raise ValueError("gamma=inf (hard bounds) needs solver='bregman'")
        rng = check_random_state(self.random_state)
        W0 = prior_matrix(self.prior, X)
        B = sla.cholesky(W0)  # W₀ = BᵀB
        Y = (X - X.mean(axis=0)) @ B.T.astype(X.dtype)  # distances under W₀ are Euclidean here, and the prior is I
        self.bounds_ = self._find_bounds(Y, rng)
        if self.solver == "lbfgs":
            L = self._solve(Y, signed_edges(side, self.pairs, Y, rng, listed=self.batch_size is not None), rng) @ B
        else:
            if isinstance(side, Labels):
                side = choose_pairs(side, self.pairs, Y, rng)
                side = side.to(Pairs)
            L = factor(self._bregman(Y, side)) @ B
        self.threshold_ = float(np.sqrt(np.mean(self.bounds_)))
        self._set_components(L, X.dtype)

    def _find_bounds(self, Y, rng) -> np.ndarray:
        if self.bounds is not None:
            u, l = self.bounds
            if not 0 < u < l:
                raise ValueError(f"bounds={self.bounds} must satisfy 0 < u < l")
            return np.array([u, l], dtype=np.float64)
        n = len(Y)
        if n * (n - 1) / 2 <= 200_000:
            i, j = np.triu_indices(n, 1)
        else:
            i, j = rng.randint(0, n, size=(2, 200_000))
            i, j = i[i != j], j[i != j]
        d = pair_sqdist(Y, i, j)
        d = d[d > 0]
        if len(d) == 0:
            raise ValueError("all samples are equal: no distance to take bounds from")
        u, l = np.percentile(d.astype(np.float64), [5, 95])
        return np.array([u, max(l, 1.1 * u)])

    def _problem(self, Y, signed: SignedEdges) -> Objective:
        """F(L) = |L|² − 2 log|det L| − d + γ Σ h(|Lv|²/bound), prior I."""
        d = Y.shape[1]

        def penalty(L):
            sign, logdet = np.linalg.slogdet(L)
            if sign == 0:
                return np.inf, np.zeros_like(L)
            return float(np.vdot(L, L)) - 2 * logdet - d, 2 * L - 2 * np.linalg.inv(L).T

        return Objective(
            Y, signed.edges, signed.loss(self._link("value"), similar=self.gamma, dissimilar=self.gamma), penalty
        )

    def _link(self, part: str):
        """Elementwise h and its slope; or the term of the dual objective, log(bound/distance) on violated pairs."""
        u, l = self.bounds_

        def link(t, sign):
            scale = np.where(sign > 0, t.dtype.type(1 / u), t.dtype.type(1 / l))
            r = t * scale
            violated = (r > 1) == (sign > 0)
            violated &= r > 0  # a dissimilar pair of equal points can never be told apart
            r[~violated] = 1
            log = np.log(r)
            value = r - log - 1 if part == "value" else -log
            return value, (1 - 1 / r) * scale

        return link

    def _solve(self, Y, signed: SignedEdges, rng) -> np.ndarray:
        Q = row_range(Y) if Y.shape[1] > len(Y) else None  # n < d: no pair sees the complement, the prior stays there
        Yr = Y if Q is None else Y @ Q.astype(Y.dtype)
        objective = self._problem(Yr, signed)
        dual_loss = signed.loss(self._link("dual"), similar=self.gamma, dissimilar=self.gamma)
        L = np.eye(Yr.shape[1])
        with Progress(self.verbose, "ITML", self.max_iter) as progress:
            if self.batch_size is None:
                solution, gap = self._close_gap(objective, signed, dual_loss, L, progress)
            else:
                solution = minimize_batches(
                    objective, L, self.batch_size, rng, max_iter=self.max_iter, progress=progress
                )
                gap = self._gap(objective, signed, dual_loss, solution.x, objective(solution.x)[0])
        self.duality_gap_, L = gap, solution.x
        if self.batch_size is None:
            done = gap <= max(self.tol, 1e-5 if Y.dtype == np.float32 else 0)
            solution = replace(solution, converged=done, reason=f"duality gap {gap:.1e}" if done else solution.reason)
        self._record(solution)
        return L if Q is None else Q @ L @ Q.T + np.eye(len(Q)) - Q @ Q.T

    def _close_gap(self, objective, signed, dual_loss, L, progress) -> tuple[Solution, float]:
        """L-BFGS with ever smaller tolerance, until the duality gap is below ``tol``."""
        history, n_iter, tol = [], 0, 1e-5
        while True:
            solution = lbfgs(objective, L, max_iter=max(self.max_iter - n_iter, 1), tol=tol, progress=progress)
            L, n_iter = solution.x, n_iter + solution.n_iter
            history += solution.history
            gap = self._gap(objective, signed, dual_loss, L, solution.value)
            if gap <= self.tol or n_iter >= self.max_iter or tol < 1e-13:
                return replace(solution, n_iter=n_iter, history=history), gap
            tol /= 100

    def _gap(self, objective, signed, dual_loss, L, value) -> float:
        """Relative gap to the dual value log det P + γ Σ log(bound/distance), P = I + Σ c v vᵀ."""
        P = np.eye(len(L)) + Objective(objective.X, signed.edges, objective.loss).metric_gradient(L)
        sign, logdet = np.linalg.slogdet(P)
        if sign <= 0 or sla.eigvalsh((P + P.T) / 2)[0] <= 0:
            return np.inf
        Z = objective.X @ L.T.astype(objective.X.dtype)
        dual = logdet + signed.edges.evaluate(Z, dual_loss)[0]
        return max(value - dual, 0.0) / max(1.0, abs(value))

    def _bregman(self, Y, pairs: Pairs) -> np.ndarray:
        """Cyclic Bregman projections: one pair at a time, until the multipliers stand still."""
        if np.isinf(self.gamma):
            pairs.refuse_weights("ITML(gamma=inf) keeps every pair within its bound")
        S, D = pairs.similar, pairs.dissimilar
        V = np.concatenate([Y[S.i] - Y[S.j], Y[D.i] - Y[D.j]]).astype(np.float64)
        gamma = self.gamma * np.concatenate([S.weight, D.weight])
        delta = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
        xi = np.repeat(self.bounds_, [len(S.i), len(D.i)])
        keep = np.einsum("ij,ij->i", V, V) > 0
        V, delta, xi, gamma = V[keep], delta[keep], xi[keep], gamma[keep]
        W, lam, step = np.eye(Y.shape[1]), np.zeros(len(V)), 1 / (1 + 1 / gamma)
        history: list[float] = []
        with Progress(self.verbose, "ITML", self.max_iter) as progress:
            for _ in range(self.max_iter):
                before = lam.copy()
                for c, v in enumerate(V):
                    Wv = W @ v
                    p = v @ Wv
                    alpha = min(lam[c], delta[c] * step[c] * (1 / p - 1 / xi[c]))
                    xi[c] = 1 / (1 / xi[c] + delta[c] * alpha / gamma[c])
                    lam[c] -= alpha
                    W += (delta[c] * alpha / (1 - delta[c] * alpha * p)) * np.outer(Wv, Wv)
                change = np.abs(lam - before).sum() / max(np.abs(lam).sum(), 1e-300)
                history.append(float(change))
                progress.step(change)
                if change <= self.tol:
                    break
        reason = "multipliers stand still" if change <= self.tol else f"max_iter={self.max_iter} reached"
        self._record(Solution(W, change, len(history), reason, change <= self.tol, history))
        return W

    def partial_fit(self, X, y=None) -> ITML:
        """Update the metric with the pairs of a new batch: `Pairs` over its rows, or labels (all its pairs)."""
        first = not hasattr(self, "components_")
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=2, reset=first)
        check_choices(self, online=("loss", "projection", "slack"))
        side = self._stream_side(y, len(X))
        if first:
            B = sla.cholesky(prior_matrix(self.prior, X))
            self.bounds_ = self._find_bounds(X @ B.T.astype(X.dtype), check_random_state(self.random_state))
            self.threshold_ = float(np.sqrt(np.mean(self.bounds_)))
            self._set_components(B, X.dtype)
        L = self.components_.astype(np.float64)
        if self.online == "slack":
            Y, rng = X @ L.T.astype(X.dtype), check_random_state(self.random_state)
            L = self._solve(Y, signed_edges(side, "auto", Y, rng, listed=self.batch_size is not None), rng) @ L
        else:
            L = sla.cholesky(self._stream(X, side.to(Pairs), L.T @ L))
        self._set_components(L, X.dtype)
        return self

    def _stream_side(self, y, n):
        """As ``_supervise``, but a batch may hold pairs of one kind only."""
        from isometry.supervision import as_supervision

        side = as_supervision(y, n)
        if side is None:
            raise ValueError("ITML requires y to be passed, but the target y is None")
        if not isinstance(side, (Labels, Pairs)):
            side = side.to(Pairs)
        if side is None:
            raise TypeError("ITML learns from labels or pairs")
        if self.online == "projection" and isinstance(side, Pairs):
            side.refuse_weights("ITML(online='projection') moves every pair to its bound")
        return side

    def _stream(self, X, pairs: Pairs, W: np.ndarray) -> np.ndarray:
        """One closed-form LogDet step a pair, in the order given; W stays positive definite for every step size."""
        u, l = self.bounds_
        s = pairs.similarity[:, None]
        weights = pairs.weight[:, None] * np.hstack([s, 1 - s])  # (m, 2) as a similar and as a dissimilar pair
        k, is_far = np.nonzero(weights > 0)  # in the order given
        V = (X[pairs.i[k]] - X[pairs.j[k]]).astype(np.float64)
        for v, similar, weight in zip(V, is_far == 0, weights[k, is_far], strict=True):
            Wv = W @ v
            p, bound = v @ Wv, u if similar else l
            if p <= 1e-12 * bound or (p <= bound) == similar:
                continue
            target = bound if self.online == "projection" else implicit_distance(p, bound, weight * self.eta / bound**2)
            W += ((target - p) / p**2) * np.outer(Wv, Wv)
        return (W + W.T) / 2


def implicit_distance(p: float, y: float, eta: float) -> float:
    """The pair's squared distance after argmin_W D(W, W_t) + η/2 (vᵀWv − y)², where it was p before."""
    a = eta * y * p - 1
    root = np.sqrt(a * a + 4 * eta * p * p)
    return (a + root) / (2 * eta * p) if a > 0 else 2 * p / (root - a)
