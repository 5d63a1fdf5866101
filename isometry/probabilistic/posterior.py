"""What a Gaussian posterior over the weights of a metric offers: spread of distances, probabilities, queries."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_ndtr, ndtri, ndtri_exp
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import pair_rows
from isometry.core.distance import row_blocks
from isometry.core.probability import binary_entropy
from isometry.parameters import one_of

STRATEGIES = ("entropy", "bald", "point", "random")
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / np.sqrt(2 * np.pi)  # ∫ f(z) N(z; 0, 1) dz = Σ weight f(node)


class MetricPosterior:
    """Abstract mixin: W = V diag(λ) Vᵀ with λ Gaussian, so that the squared distance λᵀw of a pair is Gaussian too.

    A subclass fits ``basis_`` (K, d), with w = (basis_ (x_i − x_j))², ``posterior_mean_`` (q,) and
    ``posterior_covariance_`` (q, q), whose last K entries belong to λ; and ``link_``, which says how likely a pair is
    similar given its excess, squared distance minus threshold: knots (2, b) of a falling function, or None for the
    subclass's own.
    """

    basis_: np.ndarray
    posterior_mean_: np.ndarray
    posterior_covariance_: np.ndarray
    link_: np.ndarray | None = None  # model files of version 0.1 hold none

    def _excess(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Vectors u (m, q), mean and variance of the excess uᵀθ (minus a constant) of pairs with features w (m, K)."""
        raise NotImplementedError

    def _similar(self, excess: np.ndarray) -> np.ndarray:
        """Probability of being similar if the excess were known."""
        return expit(-excess) if self.link_ is None else np.interp(excess, *self.link_)

    def _average(self, mean: np.ndarray, variance: np.ndarray, *, exact: bool = False) -> np.ndarray:
        """E of ``_similar`` over the posterior; ``exact``: by quadrature where the default is an approximation."""
        if self.link_ is None and not exact:
            return expit(-mean / np.sqrt(1 + np.pi * variance / 8))  # MacKay's approximation
        return expectation(self._similar, mean, variance)

    def _noise_entropy(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Expected entropy of a pair's label if the metric were known."""
        return expectation(lambda excess: binary_entropy(self._similar(excess)), mean, variance)

    def _variance_reduction(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Share by which the label of the pair reduces the variance of its excess e, on average over the two labels.

        The label t is binary, so E[e | t] is linear in t, and the variance falls by exactly Cov(e, t)²/Var t.
        """
        P = np.clip(self._average(mean, variance, exact=True), 1e-300, 1 - 1e-16)
        covariance = expectation(self._similar, mean, variance, times_node=True)  # in units of the excess's deviation
        return covariance**2 / (P * (1 - P))

    def pair_sqdist_moments(self, X: Any, pairs: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and standard deviation of squared distances.

        Not cut at 0: a Gaussian gives some weight to negative λ.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        mean : ndarray of shape (m,)
            Posterior means.
        deviation : ndarray of shape (m,)
            Posterior standard deviations.
        """
        w, K = self._pair_features(X, pairs), len(self.basis_)
        mean, V = self.posterior_mean_[-K:], self.posterior_covariance_[-K:, -K:]
        return w @ mean, np.sqrt(np.einsum("ij,ij->i", w @ V, w))

    def pair_distance_interval(self, X: Any, pairs: Any = None, *, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of central posterior intervals of the distances.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.
        level : float, default=0.9
            Probability that the interval should hold.

        Returns
        -------
        low : ndarray of shape (m,)
            Lower ends.
        high : ndarray of shape (m,)
            Upper ends.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level} must lie between 0 and 1")
        mean, std = self.pair_sqdist_moments(X, pairs)
        half_width = ndtri((1 + level) / 2) * std
        return np.sqrt(np.maximum(mean - half_width, 0)), np.sqrt(np.maximum(mean + half_width, 0))

    def sample_metric(self, n_samples: int = 1, *, psd: str = "clip", random_state: Any = None) -> np.ndarray:
        """Maps drawn from the posterior.

        Parameters
        ----------
        n_samples : int, default=1
            Number of maps.
        psd : {"clip", "truncate"}, default="clip"
            What to do with negative λ, to which a Gaussian gives some weight: "clip" cuts what falls there at 0;
            "truncate" draws from the posterior given λ ≥ 0, by Gibbs sampling, one chain for each draw.
        random_state : int, RandomState instance or None, default=None
            Seed of what is random; an int gives the same result again.

        Returns
        -------
        ndarray of shape (n_samples, K, d)
            The maps L.
        """
        check_is_fitted(self)
        one_of("psd", psd, ("clip", "truncate"))
        rng, K = check_random_state(random_state), len(self.basis_)
        mean, V = self.posterior_mean_[-K:], self.posterior_covariance_[-K:, -K:]
        lam = np.maximum(rng.multivariate_normal(mean, V, size=n_samples), 0)  # (n_samples, K)
        if psd == "truncate":
            lam = positive_gaussian(lam, mean, np.linalg.inv(V), rng)
        return np.sqrt(lam)[:, :, None] * self.basis_

    def pair_probability(self, X: Any, pairs: Any = None, *, exact: bool = False) -> np.ndarray:
        """Probability that each pair is similar.

        With an isotonic link, the share of similar pairs among training pairs at the same mean squared distance: it
        is for pairs drawn at random from new rows, with classes as frequent as in training. Without, the average of
        the likelihood over the posterior, for pairs drawn as those learned from.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.
        exact : bool, default=False
            Whether to take the average by quadrature, where the default is an approximation, off by 0.011 at most.

        Returns
        -------
        ndarray of shape (m,)
            The probabilities.
        """
        _, mean, variance = self._excess(self._pair_features(X, pairs))
        return self._average(mean, variance, exact=exact) if self.link_ is None else self._similar(mean)

    def query_score(self, X: Any, pairs: Any = None, *, strategy: str = "entropy") -> np.ndarray:
        """How much each pair is worth asking about.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.
        strategy : {"entropy", "bald", "point"}, default="entropy"
            "entropy" of the probability of being similar, averaged over the posterior; "bald", the part of it that is
            due to not knowing the metric; "point", the entropy at the posterior mean.

        Returns
        -------
        ndarray of shape (m,)
            The scores, higher for pairs worth more.
        """
        _, mean, variance = self._excess(self._pair_features(X, pairs))
        return self._score(mean, variance, strategy)

    def select_queries(
        self,
        X: Any,
        n_queries: int = 1,
        *,
        pairs: Any = None,
        strategy: str = "entropy",
        pool_size: int = 100_000,
        random_state: Any = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of rows of X to ask about next.

        One at a time: each counts as answered when the next is chosen, so that a batch does not ask the same thing
        twice; as the answer is not known, the mean stays and the covariance shrinks by what an answer takes away on
        average. That matters for "bald"; "entropy" depends on the odds, which change little. Ties go to the pair that
        comes first.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        n_queries : int, default=1
            Number of pairs to choose.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Pairs to choose from, by row numbers; None: ``pool_size`` random pairs.
        strategy : {"entropy", "bald", "point"}, default="entropy"
            Score of a pair, as for `query_score`.
        pool_size : int, default=100000
            Number of random pairs to choose from.
        random_state : int, RandomState instance or None, default=None
            Seed of what is random; an int gives the same result again.

        Returns
        -------
        pairs : ndarray of shape (n_queries, 2)
            The pairs.
        scores : ndarray of shape (n_queries,)
            Their scores when they were chosen.
        """
        rng = check_random_state(random_state)
        pool = _random_pairs(len(X), pool_size, rng) if pairs is None else np.stack(pair_rows(pairs, len(X)), axis=1)
        if not 1 <= n_queries <= len(pool):
            raise ValueError(f"n_queries={n_queries} must be between 1 and the number of pairs at hand, {len(pool)}")
        w = self._pair_features(X, pool)
        if strategy == "random":
            chosen = rng.permutation(len(pool))[:n_queries]
            return pool[chosen], np.zeros(n_queries)
        u, mean, variance = self._excess(w)
        V = self.posterior_covariance_
        chosen, scores = [], []
        for _ in range(n_queries):
            score = self._score(mean, variance, strategy)
            score[chosen] = -np.inf
            best = int(np.argmax(score))
            chosen.append(best)
            scores.append(score[best])
            # the covariance once this pair is labelled, V − ρ V u uᵀ V/(uᵀVu): the variance of uᵀθ falls by a share ρ
            rho = self._variance_reduction(mean[best : best + 1], variance[best : best + 1])[0]
            Vu = V @ u[best]
            shrink = rho / max(variance[best], 1e-300)
            V = V - shrink * np.outer(Vu, Vu)
            variance = np.maximum(variance - shrink * (u @ Vu) ** 2, 0)
        return pool[chosen], np.array(scores)

    def _score(self, mean, variance, strategy) -> np.ndarray:
        one_of("strategy", strategy, STRATEGIES)
        if strategy == "bald":
            return binary_entropy(self._average(mean, variance, exact=True)) - self._noise_entropy(mean, variance)
        return binary_entropy(self._average(mean, np.zeros_like(variance) if strategy == "point" else variance))

    def _pair_features(self, X, pairs) -> np.ndarray:
        """w (m, K) of the pairs."""
        check_is_fitted(self)
        if pairs is None:
            T = np.asarray(X)
            if T.ndim != 3 or T.shape[1] != 2:
                raise ValueError(f"without `pairs`, X must have shape (m, 2, d), got {T.shape}")
            X, pairs = T.reshape(-1, T.shape[2]), np.arange(2 * len(T)).reshape(-1, 2)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        Y, (i, j) = (X - X.mean(axis=0)) @ self.basis_.T, pair_rows(pairs, len(X))
        return (Y[i] - Y[j]) ** 2


def expectation(f, mean: np.ndarray, variance: np.ndarray, *, times_node: bool = False) -> np.ndarray:
    """E f(e) for each of e ~ N(mean, variance), or E f(e)(e − mean)/deviation; by 32-point Gauss–Hermite quadrature."""
    weights = WEIGHTS * NODES if times_node else WEIGHTS
    out = np.empty(len(mean))
    for rows in row_blocks(len(mean), 8 * len(NODES)):
        e = mean[rows, None] + np.sqrt(variance[rows])[:, None] * NODES  # (b, 32)
        out[rows] = f(e) @ weights
    return out


def positive_gaussian(
    start: np.ndarray, mean: np.ndarray, precision: np.ndarray, rng: np.random.RandomState, sweeps: int = 100
) -> np.ndarray:
    """Draws (m, K) from N(mean, precision⁻¹) given all entries ≥ 0: a Gibbs chain from each row of ``start`` ≥ 0.

    Given the others, entry k is N(μ, σ²) with σ⁻² = P_kk, cut at 0: x = μ − σ Φ⁻¹(u Φ(μ/σ)), u uniform.
    """
    x, P = start.copy(), precision
    for _ in range(sweeps):
        for k, sigma in enumerate(1 / np.sqrt(np.diag(P))):
            mu = x[:, k] - sigma**2 * (x - mean) @ P[k]
            tail = np.log(rng.uniform(size=len(x))) + log_ndtr(mu / sigma)  # in logarithms: Φ underflows
            x[:, k] = np.maximum(mu - sigma * ndtri_exp(tail), 0)
    return x


def _random_pairs(n: int, size: int, rng: np.random.RandomState) -> np.ndarray:
    """Distinct pairs i > j of n rows, all of them if there are no more than ``size``; (m, 2)."""
    total = n * (n - 1) // 2
    code = np.arange(total) if total <= size else np.sort(sample_without_replacement(total, size, random_state=rng))
    i = ((1 + np.sqrt(1 + 8 * code.astype(np.float64))) / 2).astype(np.int64)
    i += (i * (i + 1) // 2 <= code).astype(np.int64) - (i * (i - 1) // 2 > code)  # corrects rounding errors of the root
    return np.stack([i, code - i * (i - 1) // 2], axis=1)
