"""Bayesian neighbourhood component analysis."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import scipy.linalg as sla
from scipy.special import ndtr
from sklearn.metrics import roc_curve
from sklearn.neighbors import NearestNeighbors

from isometry.base import LinearMetric
from isometry.core.basis import EigenBasis, eigenbasis
from isometry.core.distance import pair_sqdist, row_blocks
from isometry.core.graph import nearest_misses, target_neighbors
from isometry.core.probability import neighbor_softmax, softmax_curvature
from isometry.core.solve import Progress, alternate, lbfgs
from isometry.parameters import KW_ONLY, check_choices, parameters
from isometry.probabilistic.posterior import MetricPosterior
from isometry.supervision import Labels

CALIBRATION_ANCHORS = 500  # the threshold is read off the distances of this many samples to all others
CHOICES = {
    "candidates": ("knn", "hits_misses"),
    "likelihood": ("product", "sum"),
    "covariance": ("bohning", "laplace"),
    "solver": ("lbfgs", "bohning"),
}


@parameters
class BNCA(MetricPosterior, LinearMetric):
    """A posterior over metrics from the likelihood that neighbours are drawn from one's own class.

    P(y | λ) = Π_i Π_{j∈H_i} p_ij,  p_ij = softmax over the candidates C_i of −λᵀw_ij,  λ ~ N(m₀, I/δ)

    with w_ij = (Vᵀ(x_i − x_j))², V the principal directions and H_i the candidates of i's own class. q(λ) = N(m, V): m
    is the maximum of the posterior and V⁻¹ = δI + ½ Σ_i |H_i| Σ_{t∈C_i} (w_it − w̄_i)(w_it − w̄_i)ᵀ, Böhning's bound on
    its curvature.

    Parameters
    ----------
    n_components : K principal directions (default: min(d, 30))
    n_neighbors : size of C_i; with candidates="hits_misses", of each of its halves
    candidates : "knn" of any class; or "hits_misses", nearest of the own class and nearest of others
    likelihood : "product" of p_ij over hits (published), or "sum", as in NCA
    covariance : "bohning", or "laplace": the curvature itself, less sure of itself
    prior_mean, prior_precision : m₀ and δ, in coordinates of mean squared distance 1
    solver : "lbfgs", or "bohning": the published fixed-curvature Newton steps
    max_iter, tol, verbose : as everywhere

    Attributes
    ----------
    posterior_mean_ (K,), posterior_covariance_, basis_ (K, d) : m, V and the scaled directions
    bias_, threshold_ : the squared distance that best parts similar from dissimilar training pairs, and its root
    elbo_ : the evidence bound (likelihood="product", covariance="bohning")

    Notes
    -----
    The survey's H is Böhning's matrix, not the centring matrix; a neighbour itself is no competitor of its own;
    candidates are of all classes, since those of one class say nothing of labels. Anchors without a hit or without a
    miss say nothing either and are skipped; if too few are left, candidates="hits_misses" is used, with a warning.

    References
    ----------
    D. Wang, X. Tan, "Bayesian neighborhood component analysis", IEEE Trans. Neural Networks and Learning Systems 2017.
    """

    _sees = (Labels,)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: int = 10
    candidates: str = "knn"
    likelihood: str = "product"
    covariance: str = "bohning"
    prior_mean: float = 1.0
    prior_precision: float = 1.0
    solver: str = "lbfgs"
    max_iter: int = 500
    tol: float = 1e-7
    verbose: bool | int = False

    def _fit(self, X, side):
        check_choices(self, **CHOICES)
        if self.n_neighbors < 1 or not self.prior_precision > 0:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} must be at least 1 and prior_precision={self.prior_precision} positive"
            )
        basis = eigenbasis(X, self._check_n_components(X.shape[1]) or min(X.shape[1], 30))
        Y, K = basis(X), len(basis.map)
        problem = self._problem(Y, side.codes)
        with Progress(self.verbose, "BNCA", self.max_iter) as progress:
            options = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            if self.solver == "lbfgs":
                solution = lbfgs(problem, np.full(K, self.prior_mean, dtype=np.float64), **options)
            else:
                V = sla.inv(problem.precision(None))
                start = np.full(K, self.prior_mean, dtype=np.float64)
                solution = alternate(lambda m: newton_step(problem, V, m), start, **options)
        m = solution.x
        self.basis_, self.posterior_mean_ = basis.map, m
        self.posterior_covariance_ = sla.inv(problem.precision(None if self.covariance == "bohning" else m))
        self.elbo_ = problem.elbo(m, self.posterior_covariance_)
        self.bias_ = calibrated_threshold(Y, side.codes, m)
        self.threshold_ = float(np.sqrt(max(self.bias_, 0.0)))
        self._set_components(EigenBasis(np.zeros(X.shape[1]), basis.map).components(m), X.dtype)
        self._record(solution)

    def _problem(self, Y: np.ndarray, codes: np.ndarray) -> NeighborLikelihood:
        k, n = min(self.n_neighbors, len(Y) - 1), len(Y)
        table = neighbor_table(Y, codes, k, self.candidates)
        if self.candidates == "knn" and len(table[0]) < max(2 * Y.shape[1], 0.05 * n):
            warnings.warn(
                f"only {len(table[0])} of {n} samples have neighbours of both kinds among their {k} nearest; "
                "candidates='hits_misses' is used instead",
                stacklevel=4,
            )
            table = neighbor_table(Y, codes, k, "hits_misses")
        return NeighborLikelihood(Y, *table, self.likelihood == "product", self.prior_mean, self.prior_precision)

    def _excess(self, w):
        variance = np.einsum("ij,ij->i", w @ self.posterior_covariance_, w)
        return w, w @ self.posterior_mean_ - self.bias_, variance

    def _probability(self, mean, variance, *, exact=False):
        std = np.sqrt(np.maximum(variance, 1e-300))
        return ndtr(-mean / std)  # that the squared distance lies below the threshold

    def _noise_entropy(self, mean, variance):
        return np.zeros_like(mean)  # a known metric leaves no doubt

    def _information(self, mean, variance):
        return 0.0  # the likelihood is of neighbourhoods: the label of one pair has no precision of its own


@dataclass(frozen=True)
class NeighborLikelihood:
    """Minus the log posterior of λ (K,), up to a constant; call it for (value, gradient)."""

    Y: np.ndarray  # (n, K)
    anchors: np.ndarray  # (a,)
    index: np.ndarray  # (a, k), −1: none
    is_hit: np.ndarray  # (a, k)
    product: bool
    prior_mean: float
    prior_precision: float

    def blocks(self):
        """Slices of anchors and the features w (b, k, K) of their candidates."""
        for rows in row_blocks(len(self.anchors), self.index.shape[1] * self.Y.shape[1] * 8):
            w = self.Y[self.index[rows]] - self.Y[self.anchors[rows], None]
            yield rows, np.square(w, out=w)

    def softmax(self, d, rows):
        """p over candidates and its log-sum-exp; over hits alone φ and its log-sum-exp."""
        D = np.where(self.index[rows] < 0, np.inf, d)
        H = np.where(self.is_hit[rows], d, np.inf)
        return *neighbor_softmax(D), *neighbor_softmax(H)

    def __call__(self, lam: np.ndarray) -> tuple[float, np.ndarray]:
        value = self.prior_precision / 2 * np.sum((lam - self.prior_mean) ** 2)
        gradient = self.prior_precision * (lam - self.prior_mean)
        for rows, w in self.blocks():
            d, hit = w @ lam, self.is_hit[rows]  # (b, k)
            P, lse, H, lse_hits = self.softmax(d, rows)
            if self.product:
                n_hits = hit.sum(axis=1)
                value += np.sum(d[hit]) + n_hits @ lse
                slope = hit - n_hits[:, None] * P
            else:
                value += np.sum(lse - lse_hits)
                slope = H - P
            gradient = gradient + np.einsum("ik,ikl->l", slope, w)
        return float(value), gradient

    def precision(self, lam: np.ndarray | None) -> np.ndarray:
        """Curvature of the negative log posterior at λ (Laplace); without λ, Böhning's bound on it."""
        P = self.prior_precision * np.eye(self.Y.shape[1])
        for rows, w in self.blocks():
            weight = self.is_hit[rows].sum(axis=1).astype(np.float64) if self.product else np.ones(len(w))
            if lam is None:
                there = self.index[rows] >= 0
                k = there.sum(axis=1)
                P += softmax_curvature(w, there / k[:, None], weight * k / 2)
            else:
                p, _, phi, _ = self.softmax(w @ lam, rows)
                P += softmax_curvature(w, p, weight)
                if not self.product:
                    P -= softmax_curvature(w, phi, weight)
        return P

    def elbo(self, m: np.ndarray, V: np.ndarray) -> float:
        """E_q of the quadratic bound of the log-likelihood minus KL(q ‖ prior), at the expansion point m."""
        K, delta = len(m), self.prior_precision
        spread = np.trace(V @ self.precision(None)) - delta * np.trace(V)
        log_terms = np.linalg.slogdet(V)[1] + K * np.log(delta)
        return float(-self(m)[0] - spread / 2 - (delta * np.trace(V) - K - log_terms) / 2)


def newton_step(problem: NeighborLikelihood, V: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, float]:
    """m + V ∇ log posterior, V the inverse of Böhning's curvature: the published update of m, b and ψ in one."""
    m = m - V @ problem(m)[1]
    return m, problem(m)[0]


def neighbor_table(Y, codes, k: int, candidates: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Anchors (a,) with a hit and a miss, their candidates (a, ·) with −1 for none, and which of them are hits."""
    if candidates == "knn":
        index = NearestNeighbors(n_neighbors=k).fit(Y).kneighbors(return_distance=False)
    else:
        index = np.hstack([target_neighbors(Y, codes, k), nearest_misses(Y, codes, k)])
    there = index >= 0
    is_hit = there & (codes[index] == codes[:, None])
    anchors = np.flatnonzero(is_hit.any(axis=1) & (there & ~is_hit).any(axis=1))
    return anchors, index[anchors], is_hit[anchors]


def calibrated_threshold(Y: np.ndarray, codes: np.ndarray, lam: np.ndarray) -> float:
    """The value of λᵀw that best parts similar from dissimilar pairs: most balanced accuracy."""
    i = np.linspace(0, len(Y) - 1, min(len(Y), CALIBRATION_ANCHORS)).astype(np.intp)
    i, j = (v.ravel() for v in np.broadcast_arrays(i[:, None], np.arange(len(Y))))
    i, j = i[i != j], j[i != j]
    up, down = (Y * np.sqrt(np.maximum(s * lam, 0)) for s in (1, -1))
    d = pair_sqdist(up, i, j) - pair_sqdist(down, i, j)
    false, true, levels = roc_curve(codes[i] == codes[j], -d)
    return float(-levels[1 + np.argmax((true - false)[1:])])  # the first level, infinite, accepts no pair
