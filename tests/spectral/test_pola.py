"""POLA: its projections, and the laws of an online method."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import POLA, AllPairs, Labels, Pairs, RandomPairs
from isometry.spectral.pola import project
from tests.conftest import make_blobs


def stream(m=80, seed=0):
    X, y = make_blobs(seed=seed)
    side, rng = Labels(y).to(Pairs), np.random.default_rng(seed)
    rows = rng.choice(len(side.i), m, replace=False)
    return X, Pairs(side.i[rows], side.j[rows], side.similarity[rows], n=len(X))


def part(pairs, rows):
    return Pairs(pairs.i[rows], pairs.j[rows], pairs.similarity[rows], n=len(pairs))


def test_B21a_the_pair_is_met_after_its_projection(rng):
    for t in (1.0, -1.0):
        A, v = rng.standard_normal((3, 3)), rng.standard_normal(3)
        W, b = A @ A.T + 5 * np.eye(3), 1.5  # so far from the cone that nothing else is projected
        if t < 0:
            b = float(v @ W @ v) + 2
        new, c, loss = project(W, b, v, t)
        assert loss > 0
        assert_allclose(t * (v @ new @ v - c) + 1, 0, atol=1e-10)
        normal = np.append(-t * np.outer(v, v).ravel(), t)  # the step is along the normal of the half-space
        step = np.append((new - W).ravel(), c - b)
        assert_allclose(step @ normal, np.linalg.norm(step) * np.linalg.norm(normal), rtol=1e-10)
    assert project(np.zeros((3, 3)), 3.0, v, 1.0)[2] == 0.0


def test_B21b_always_a_metric():
    X, pairs = stream(200)
    model = POLA()
    for k in range(0, 200, 10):
        model.partial_fit(X, part(pairs, slice(k, k + 10)))
        W = model.last_[:-1].reshape(4, 4)
        assert np.linalg.eigvalsh(W)[0] > -1e-10 and model.last_[-1] >= 1
        assert_allclose(W, W.T, atol=1e-12)


def test_B21c_chunks_are_one_pass():
    X, pairs = stream()
    whole, chunks = POLA().fit(X, pairs), POLA()
    for rows in np.array_split(np.arange(80), 5):
        chunks.partial_fit(X, part(pairs, rows))
    assert_allclose(chunks.mahalanobis_, whole.mahalanobis_, rtol=1e-8, atol=1e-12)
    assert_allclose(chunks.threshold_, whole.threshold_, rtol=1e-10)


def test_B21d_separable_pairs_end_without_updates():
    y = np.arange(30) % 2
    X = np.c_[4.0 * y, np.zeros(30)] + 0.1 * np.random.default_rng(0).standard_normal((30, 2))
    model = POLA(pairs=AllPairs(), n_epochs=60, average=False, random_state=0).fit(X, y)
    assert model.history_[0] > 1e-3 and model.history_[-1] < 1e-14  # but for rounding
    side = Labels(y)
    near, far = (model.pair_distance(X, np.c_[e.i, e.j]) for e in (side.similar, side.dissimilar))
    assert near.max() < model.threshold_ < far.min()


def test_the_average_is_the_mean_of_the_steps():
    X, pairs = stream(30)
    states, model = [], POLA(average=False)
    for k in range(30):
        model.partial_fit(X, part(pairs, slice(k, k + 1)))
        states.append(model.last_)
    averaged = POLA().fit(X, pairs)
    expected = np.mean(states, axis=0)
    assert_allclose(averaged.mahalanobis_ * averaged.unit_**2, expected[:-1].reshape(4, 4), atol=1e-10)
    assert_allclose(averaged.threshold_**2, expected[-1], rtol=1e-12)


def test_units_do_not_matter_and_samplers_are_checked():
    X, pairs = stream()
    A, B = POLA().fit(X, pairs), POLA().fit(1e4 * X, pairs)
    assert_allclose(A.mahalanobis_, 1e8 * B.mahalanobis_, rtol=1e-6, atol=1e-9)
    with pytest.raises(TypeError, match="must be 'auto' or a sampler"):
        POLA(pairs="all").fit(*make_blobs())
    assert POLA(pairs=RandomPairs(50), random_state=0).fit(*make_blobs()).n_steps_ == 100
