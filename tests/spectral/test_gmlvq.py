"""GMLVQ against its equation in loops, and the laws it must obey."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import GMLVQ
from isometry.core.centroids import class_centroids
from isometry.core.frame import Frame
from isometry.core.solve import lbfgs
from isometry.spectral.gmlvq import PrototypeProblem, rank_penalty
from tests.conftest import make_blobs, make_planted
from tests.differences import central_differences


def slow_value(L, mu, X, y, classes, beta, reg):
    total = 0.0
    for x, label in zip(X, y, strict=True):
        d = np.sum(((mu - x) @ L.T) ** 2, axis=1)
        plus, minus = d[classes == label].min(), d[classes != label].min()
        total += 1 / (1 + np.exp(-beta * (plus - minus) / (plus + minus)))
    p = len(L)
    return total / len(X) - reg / 2 * (np.linalg.slogdet(L @ L.T)[1] / p - np.log(np.trace(L @ L.T) / p))


def problem(seed=0, beta=2.0, reg=0.1, k=2):
    X, y = make_blobs(seed=seed)
    X = Frame.of(X, scaled=True).X
    mu, classes = class_centroids(X, y, k, 0)
    return PrototypeProblem(X, y, classes, beta, reg), mu


@pytest.mark.parametrize("rows", [2, 4])
def test_B11a_value_and_finite_differences(rng, rows):
    f, mu = problem()
    L, mu = rng.standard_normal((rows, 4)), mu + 0.01 * rng.standard_normal(mu.shape)
    value, (in_map, in_prototypes) = f([L, mu])
    slow = lambda L, mu: slow_value(L, mu, f.X, f.codes, f.classes, 2.0, 0.1)  # noqa: E731
    assert_allclose(value, slow(L, mu), rtol=1e-9)
    assert_allclose(in_map, central_differences(lambda L: slow(L, mu), L), rtol=1e-5, atol=1e-7)
    assert_allclose(in_prototypes, central_differences(lambda m: slow(L, m), mu), rtol=1e-5, atol=1e-7)


def test_B11b_prototypes_alone_lower_the_value():
    """L = I: generalised learning vector quantisation."""
    f, mu = problem(reg=0.0)
    start = f([np.eye(4), mu])[0]
    solution = lbfgs(lambda m: (lambda v: (v[0], v[1][1]))(f([np.eye(4), m])), mu, max_iter=100)
    assert solution.value < start - 1e-3
    both = lbfgs(f, [np.eye(4) / 2, mu], max_iter=200)
    assert both.value < solution.value


def test_B11c_the_scale_of_the_map_does_not_matter(rng):
    f, mu = problem()
    L = rng.standard_normal((3, 4))
    assert_allclose(f([7 * L, mu])[0], f([L, mu])[0], rtol=1e-9)
    assert_allclose(rank_penalty(7 * L)[0], rank_penalty(L)[0], rtol=1e-9)
    assert_allclose(rank_penalty(3 * np.eye(4))[0], 0, atol=1e-12)
    model = GMLVQ(random_state=0, strength=1.0).fit(*make_blobs())
    assert_allclose(np.trace(model.mahalanobis_), 1, rtol=1e-9)


def test_B11d_no_higher_than_gradient_descent_from_the_same_start():
    """Steps along the gradient with halving, as the peer's steepest descent, do not end below by more than 1e-3."""
    f, mu = problem(beta=1.0)
    x = [np.eye(4) / 2, mu]
    ours = lbfgs(f, [part.copy() for part in x], max_iter=300, tol=1e-6).value
    value, step = f(x)[0], 1.0
    for _ in range(400):
        g = f(x)[1]
        while step > 1e-12 and f([a - step * b for a, b in zip(x, g, strict=True)])[0] >= value:
            step /= 2
        x = [a - step * b for a, b in zip(x, g, strict=True)]
        value, step = f(x)[0], 2 * step
    assert ours <= value + 1e-3


def test_prediction_and_prototypes():
    X, y = make_planted(n=150, d=6, noise=1.0)
    names = np.array(["a", "b", "c"])[y]
    model = GMLVQ(n_prototypes=2, random_state=0, strength=1.0).fit(X, names)
    assert model.prototypes_.shape == (6, 6) and list(model.prototype_classes_) == list("aabbcc")
    assert np.mean(model.predict(X) == names) > 0.97


def test_the_penalty_keeps_the_rank():
    X, y = make_planted(n=150, d=6, noise=3.0)
    with_, without = (GMLVQ(reg=reg, random_state=0, max_iter=500, strength=1.0).fit(X, y) for reg in (0.1, 0.0))
    share = [np.linalg.eigvalsh(m.mahalanobis_)[-2:].sum() for m in (with_, without)]
    assert share[0] < share[1] and share[1] > 0.9
