"""Bayesian metric learning with a sigmoid likelihood, and active querying."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg as sla
from scipy.special import expit
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from isometry.base import LinearMetric
from isometry.core.basis import EigenBasis, eigenbasis, pair_features
from isometry.core.distance import row_blocks
from isometry.core.probability import binary_entropy, jaakkola_jordan, jaakkola_jordan_constant
from isometry.core.solve import Progress, alternate
from isometry.parameters import KW_ONLY, Seed, parameters
from isometry.probabilistic.posterior import MetricPosterior
from isometry.sampling import AllPairs, RandomPairs, Sampler, choose_pairs
from isometry.supervision import Labels, Pairs

ALL_PAIRS_UP_TO = 200_000
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(20)  # ∫ f(z) N(z; 0, 1) dz = Σ weight f(node)/√(2π)


@parameters
class BayesianML(MetricPosterior, LinearMetric):
    """A posterior over metrics: weights of principal directions and a threshold, from a logistic likelihood of pairs.

    P(t | θ) = σ(−t (γᵀw_ij − μ)),  θ = (μ, γ) ~ N(θ₀, I/δ),  w_ij = (Vᵀ(x_i − x_j))²,  t = +1 similar, −1 dissimilar

    and q(θ) = N(m, V) by variational Bayes with the Jaakkola–Jordan bound, for u = (−1, w):
    V⁻¹ = δI + 2 Σ λ(ξ) u uᵀ, m = V(δθ₀ − Σ t u/2), ξ² = (uᵀm)² + uᵀVu, until the evidence bound stands still.

    Parameters
    ----------
    n_components : K principal directions (default: min(d, 30))
    prior_mean, prior_threshold : θ₀, in coordinates of mean squared distance 1: by default the Euclidean metric with
        the threshold at the mean squared distance
    prior_precision : δ
    pairs : which pairs to take if given labels: "auto" (all up to 200,000, else 100,000 of each kind), `AllPairs()` or
        `RandomPairs(n)`
    max_iter, tol, random_state, verbose : as everywhere

    Attributes
    ----------
    posterior_mean_ (K + 1,), posterior_covariance_ : m and V; threshold first
    basis_ (K, d) : w = (basis_ (x_i − x_j))²
    bias_, threshold_ : posterior mean of the threshold on squared distances, and its root
    elbo_ : the evidence bound

    Notes
    -----
    The survey prints tanh(ξ) for tanh(ξ/2) in λ(ξ), which is no bound, and loses the threshold from the updates. The
    mean metric cuts negative weights at 0. ``partial_fit`` takes the posterior so far as the prior of new pairs, in the
    coordinates of the first call; earlier pairs keep their ξ.

    References
    ----------
    L. Yang, R. Jin, R. Sukthankar, "Bayesian active distance metric learning", UAI 2007.
    """

    _sees = (Labels, Pairs)

    n_components: int | None = None
    _: KW_ONLY
    prior_mean: float = 1.0
    prior_threshold: float = 1.0
    prior_precision: float = 1.0
    pairs: str | Sampler = "auto"
    max_iter: int = 100
    tol: float = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X, side):
        if not self.prior_precision > 0:
            raise ValueError(f"prior_precision={self.prior_precision} must be positive")
        self.basis_ = eigenbasis(X, self._check_n_components(X.shape[1]) or min(X.shape[1], 30)).map
        K = len(self.basis_)
        mean = np.append(self.prior_threshold, np.full(K, self.prior_mean))
        self._update(X, side, mean, self.prior_precision * np.eye(K + 1))

    def partial_fit(self, X: Any, y: Any = None) -> BayesianML:
        """Learn from further pairs, `Pairs` over the rows of X, or from labels of these rows."""
        if not hasattr(self, "posterior_mean_"):
            return self.fit(X, y)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        side = self._supervise(y, len(X))
        self._update(X, side, self.posterior_mean_, sla.inv(self.posterior_covariance_))
        return self

    def _update(self, X, side, mean, precision):
        """The posterior of these pairs under the prior N(mean, precision⁻¹)."""
        if isinstance(side, Labels):
            sampler, n = self.pairs, len(X)
            if isinstance(sampler, str) and sampler == "auto":
                sampler = AllPairs() if n * (n - 1) / 2 <= ALL_PAIRS_UP_TO else RandomPairs()
            side = choose_pairs(side, sampler, X, check_random_state(self.random_state)).to(Pairs)
        problem = SigmoidLikelihood((X - X.mean(axis=0)) @ self.basis_.T, side, mean, precision)
        with Progress(self.verbose, "BayesianML", self.max_iter) as progress:
            solution = alternate(
                problem.step,
                (np.ones(len(problem.sign)), mean, precision),
                max_iter=self.max_iter,
                tol=self.tol,
                progress=progress,
            )
        _, m, V = solution.x
        self.posterior_mean_, self.posterior_covariance_, self.elbo_ = m, V, -solution.value
        self.bias_, self.threshold_ = float(m[0]), float(np.sqrt(max(m[0], 0.0)))
        self._set_components(EigenBasis(np.zeros(X.shape[1]), self.basis_).components(m[1:]), X.dtype)
        self._record(solution)

    def _excess(self, w):
        u = np.hstack([-np.ones((len(w), 1)), w])  # (m, K + 1)
        return u, u @ self.posterior_mean_, np.einsum("ij,ij->i", u @ self.posterior_covariance_, u)

    def _probability(self, mean, variance, *, exact=False):
        if exact:
            return _expectation(lambda excess: expit(-excess), mean, variance)
        return expit(-mean / np.sqrt(1 + np.pi * variance / 8))  # E σ(−excess), by MacKay's approximation

    def _noise_entropy(self, mean, variance):
        return _expectation(lambda excess: binary_entropy(expit(-excess)), mean, variance)

    def _information(self, mean, variance):
        return 2 * jaakkola_jordan(np.sqrt(mean**2 + variance))


def _expectation(f, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E f(z) for each of z ~ N(mean, variance), by 20-point Gauss–Hermite quadrature."""
    z = mean[:, None] + np.sqrt(variance)[:, None] * NODES  # (m, 20)
    return f(z) @ WEIGHTS / np.sqrt(2 * np.pi)


class SigmoidLikelihood:
    """Pairs under the Jaakkola–Jordan bound; their features are made in blocks, never all at once."""

    def __init__(self, Y: np.ndarray, pairs: Pairs, mean: np.ndarray, precision: np.ndarray):
        S, D = pairs.similar, pairs.dissimilar
        self.Y, self.mean, self.precision = Y.astype(np.float64), mean, precision
        self.i, self.j, self.weight = (np.concatenate(part) for part in zip(S, D, strict=True))
        self.sign = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
        self.linear = precision @ mean - sum(
            ((self.weight * self.sign)[rows] @ u / 2 for rows, u in self.blocks()), np.zeros(len(mean))
        )

    def blocks(self):
        """Slices of pairs and their vectors u = (−1, w)."""
        for rows in row_blocks(len(self.sign), (self.Y.shape[1] + 1) * 8):
            w = pair_features(self.Y, self.i[rows], self.j[rows])
            yield rows, np.hstack([-np.ones((len(w), 1)), w])

    def step(self, state):
        """(ξ, m, V) → the optimal (m, V) for ξ, then the ξ that is tight for them; and minus the evidence bound."""
        xi, _, _ = state
        curvature, P = self.weight * jaakkola_jordan(xi), self.precision.copy()
        for rows, u in self.blocks():
            P += 2 * (u * curvature[rows, None]).T @ u
        R = sla.cho_factor(P, lower=True)
        m, V = sla.cho_solve(R, self.linear), sla.cho_solve(R, np.eye(len(P)))
        logdet = 2 * np.log(np.diag(R[0])).sum()
        prior = self.mean @ self.precision @ self.mean - np.linalg.slogdet(self.precision)[1]
        elbo = self.weight @ jaakkola_jordan_constant(xi) + (m @ self.linear - logdet - prior) / 2
        xi = np.empty_like(xi)
        for rows, u in self.blocks():
            xi[rows] = np.sqrt((u @ m) ** 2 + np.einsum("ij,ij->i", u @ V, u))
        return (xi, m, V), -elbo
