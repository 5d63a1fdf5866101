"""Posterior intervals of distances cover planted distances as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from isometry.core.basis import eigenbasis
from isometry.probabilistic import BayesianML
from isometry.supervision import Pairs


def coverage(n_pairs, seed, level=0.9, d=5, n=80, precision=4.0):
    """Draw weights and threshold from the prior and labels from the model; the share of new pairs that are covered."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.linspace(1, 2, d)
    Y = eigenbasis(X, d)(X)
    theta = 1 + rng.standard_normal(d + 1) / np.sqrt(precision)
    i = rng.integers(0, n, n_pairs + 200)
    j = (i + rng.integers(1, n, len(i))) % n
    sqdist = (Y[i] - Y[j]) ** 2 @ theta[1:]
    similar = rng.random(len(i)) < expit(theta[0] - sqdist)
    pairs = Pairs(i[:n_pairs], j[:n_pairs], similar[:n_pairs], n=n)
    low, high = (
        BayesianML(prior_precision=precision)
        .fit(X, pairs)
        .pair_distance_interval(X, np.stack([i, j], axis=1)[n_pairs:], level=level)
    )
    truth = np.sqrt(np.maximum(sqdist[n_pairs:], 0))
    return np.mean((low <= truth) & (truth <= high))


@pytest.mark.parametrize("n_pairs", [30, 300])
def test_P09_nominal_90_percent_intervals_cover_85_to_95(n_pairs):
    """Over 150 planted metrics the mean has a standard error of about 0.015: 0.9 lies in the range with room."""
    mean = np.mean([coverage(n_pairs, seed) for seed in range(150)])
    assert 0.85 <= mean <= 0.95, mean


def test_P09_lower_levels_cover_less():
    half = np.mean([coverage(100, seed, level=0.5) for seed in range(100)])
    assert 0.42 <= half <= 0.58, half
