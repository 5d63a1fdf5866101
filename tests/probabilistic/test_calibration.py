"""Posterior intervals cover planted distances as often as they say, and probabilities are shares of held-out pairs.

Coverage is by simulation from the model itself: weights from the prior, labels from the likelihood. One replicate is
one fit and one new pair, so that the number of covered distances is binomial, and its bounds are exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import binom
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from isometry.core.basis import eigenbasis
from isometry.probabilistic import BNCA, BayesianML
from isometry.probabilistic.bnca import NeighborLikelihood, neighbor_table
from isometry.sampling import NeighborPairs, RandomPairs
from isometry.supervision import Pairs

REPLICATES = 400


def planted(n_pairs, seed, precision, d=4, n=60):
    """Rows, pairs labelled by weights and threshold from the prior, and the squared distance of one more pair."""
    rng = np.random.default_rng([seed, n_pairs])
    X = rng.standard_normal((n, d)) * np.linspace(1, 2, d)
    Y = eigenbasis(X, d)(X)
    theta = 1 + rng.standard_normal(d + 1) / np.sqrt(precision)
    i = rng.integers(0, n, n_pairs + 1)
    j = (i + rng.integers(1, n, len(i))) % n
    sqdist = (Y[i] - Y[j]) ** 2 @ theta[1:]
    similar = rng.random(n_pairs) < expit(theta[0] - sqdist[:-1])
    return X, Pairs(i[:-1], j[:-1], similar, n=n), [[i[-1], j[-1]]], sqdist[-1]


def covered(n_pairs, precision, **params):
    """Of 400 planted squared distances, the numbers that lie in intervals of 90 % and of 50 %."""
    z = np.empty(REPLICATES)
    for seed in range(REPLICATES):
        X, pairs, query, truth = planted(n_pairs, seed, precision)
        fit = BayesianML(prior_precision=precision, **params).fit(X, pairs)
        mean, std = fit.pair_sqdist_moments(X, query)
        z[seed] = (truth - mean[0]) / std[0]
    return np.count_nonzero(np.abs(z) <= 1.6448536), np.count_nonzero(np.abs(z) <= 0.6744898)


def agrees(count, level, slack=0.0):
    """Whether a count is one that levels within ``slack`` of ``level`` give, but for one time in a thousand."""
    low, high = binom.ppf([0.0005, 0.9995], REPLICATES, [level - slack, level + slack])
    return low <= count <= high


@pytest.mark.parametrize("precision", [1.0, 0.1])
@pytest.mark.parametrize("n_pairs", [100, 1000])
def test_P09_intervals_cover_at_their_level(n_pairs, precision):
    """Laplace's Gaussian is an approximation: its level may be off by 0.015, beside the binomial error."""
    wide, narrow = covered(n_pairs, precision)
    assert agrees(wide, 0.9, 0.015), wide / REPLICATES
    assert agrees(narrow, 0.5, 0.03), narrow / REPLICATES


def test_P09_the_published_covariance_is_too_sure():
    """The test above can tell: a deviation that is too small by a third fails it."""
    wide, narrow = covered(1000, 0.1, covariance="variational", max_iter=1000)
    assert wide < 0.8 * REPLICATES and narrow < 0.4 * REPLICATES


def test_P09_intervals_of_distances_are_those_of_their_squares():
    X, pairs, query, _ = planted(100, 0, 1.0)
    fit = BayesianML().fit(X, pairs)
    mean, std = fit.pair_sqdist_moments(X, query)
    low, high = fit.pair_distance_interval(X, query, level=0.5)
    assert np.allclose([low**2, high**2], np.maximum([mean - 0.6744898 * std, mean + 0.6744898 * std], 0), rtol=1e-6)


def picked(precision, seed, n=60, d=3, k=8):
    """The likelihood of neighbours that anchors draw under weights from the prior, one each; and these weights."""
    rng = np.random.default_rng([seed, 7])
    X = rng.standard_normal((n, d)) * np.linspace(1, 2, d)
    Y = eigenbasis(X, d)(X)
    lam = 1 + rng.standard_normal(d) / np.sqrt(precision)
    _, index, _ = neighbor_table(Y, rng.permutation(n), k, "knn") if False else (None, nearest(Y, k), None)
    w = (Y[index] - Y[:, None]) ** 2
    P = softmax(-w @ lam, axis=1)
    choice = (rng.random((n, 1)) > np.cumsum(P, axis=1)).sum(axis=1)
    is_hit = np.arange(k) == np.minimum(choice, k - 1)[:, None]
    return NeighborLikelihood(Y, np.arange(n), index, is_hit, True, 1.0, precision), lam, w[0, -1]
