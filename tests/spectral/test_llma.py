"""LLMA: the majorisation against its objective in loops, and the laws of the map."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.sampling import AllPairs, RandomPairs
from isometry.spectral import LLMA
from isometry.spectral.llma import adapt, neighbor_edges
from isometry.supervision import EdgeList, Pairs


def problem(seed=0, n=24, d=2, classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.standard_normal((n, d)) + 2 * rng.standard_normal((classes, d))[y], y


def links(n, m, seed=0):
    i, j = np.random.default_rng(seed).permutation(n)[: 2 * m].reshape(2, m)
    return i, j


def slow_objective(B, X, centers, width, S, reg, sigma, k, ridge):
    """mean_S |y_i − y_j|² + λ mean_ω (q − d)² + ε|B|², over ordered neighbour pairs; B is (d, number of centres)."""
    n = len(X)
    Pi = np.array([[np.exp(-np.sum((x - c) ** 2) / (2 * width**2)) for c in centers] for x in X])
    Y = X + Pi @ B.T
    similar = np.mean([np.sum((Y[i] - Y[j]) ** 2) for i, j in zip(*S, strict=True)])
    D = np.array([[np.linalg.norm(a - b) for b in X] for a in X])
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D, axis=1)[:, :k]
    neighbour = np.array([[j in near[i] or i in near[j] for j in range(n)] for i in range(n)])
    omega = {(i, j): np.exp(-((D[i, j] / sigma) ** 2)) for i in range(n) for j in range(n) if neighbour[i, j]}
    local = sum(w * (np.linalg.norm(Y[i] - Y[j]) - D[i, j]) ** 2 for (i, j), w in omega.items()) / sum(omega.values())
    L = np.zeros((n, n))
    for weights in (
        {(i, j): reg * w / sum(omega.values()) for (i, j), w in omega.items()},
        {(i, j): 1 / len(S[0]) for i, j in zip(*S, strict=True)},
    ):
        for (i, j), w in weights.items():
            e = np.eye(n)[i] - np.eye(n)[j]
            L += w * np.outer(e, e)
    eps = max(ridge, 1e-10) * np.trace(Pi.T @ L @ Pi) / len(centers)
    return similar + reg * local + eps * np.sum(B**2)


def test_M14a_objective_falls_to_a_stationary_point():
    X, _ = problem(n=16)
    S = links(16, 4)
    model = LLMA(width=0.8, sigma=1.5, n_neighbors=4, tol=1e-15, max_iter=20_000)
    model.fit(X, Pairs(*S, np.ones(4), n=16))
    assert np.all(np.diff(model.history_) <= 1e-14)
    centers, B = model.centers_ + model.mean_, model.shifts_.T

    def f(B):
        return slow_objective(B, X, centers, 0.8, S, 1.0, 1.5, 4, 0.01)

    assert_allclose(model.history_[-1], f(B), rtol=1e-10)
    gradient = np.zeros_like(B)
    for index in np.ndindex(B.shape):
        e = np.zeros_like(B)
        e[index] = 1e-5
        gradient[index] = (f(B + e) - f(B - e)) / 2e-5
    assert np.abs(gradient).max() < 1e-6
    assert f(B) < 0.8 * f(0 * B)  # not where it began


def test_M14b_without_links_nothing_moves():
    X, _ = problem(1)
    local, _ = neighbor_edges(X, 5)
    d = np.linalg.norm(X[local.i] - X[local.j], axis=1)
    Pi = np.exp(-(((X[:, None] - X[None, :6]) ** 2).sum(axis=2)))
    for ridge in (0.0, 0.01):
        solution = adapt(X, Pi, EdgeList.make([], []), local, d, ridge, max_iter=50, tol=1e-12)
        assert_allclose(solution.x, 0, atol=1e-8)


def test_M14c_without_local_distances_the_links_collapse():
    X, _ = problem(2, n=20)
    i, j = links(20, 6)
    model = LLMA(reg=0.0, ridge=0.0, width=0.3).fit(X, Pairs(i, j, np.ones(6), n=20))
    Z = model.transform(X)
    assert np.linalg.norm(Z[i] - Z[j], axis=1).max() < 1e-4 * np.linalg.norm(X[i] - X[j], axis=1).min()
    assert model.n_iter_ == 2  # one step, and one that sees no decrease


def test_M14d_a_far_point_is_not_moved():
    X, y = problem(3)
    model = LLMA().fit(X, y)
    far = X.mean(axis=0) + np.array([[1e3, 0.0], [0.0, -40.0]]) * model.width_
    assert_allclose(model.transform(far), far, rtol=0, atol=1e-12)
    assert np.abs(model.transform(X) - X).max() > 1e-2


def test_neighbor_edges_are_the_symmetric_graph():
    X, _ = problem(4)
    edges, reach = neighbor_edges(X, 3)
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    near = np.argsort(D, axis=1)[:, 1:4]
    expected = {(min(i, j), max(i, j)) for i in range(len(X)) for j in near[i]}
    assert list(zip(edges.i, edges.j, strict=True)) == sorted(expected)
    assert_allclose(reach, np.median(np.sort(D, axis=1)[:, 3]))


def test_transform_is_the_formula():
    X, y = problem(5)
    model = LLMA().fit(X, y)
    new = np.random.default_rng(6).standard_normal((5, 2))
    for x, z in zip(new, model.transform(new), strict=True):
        c = model.centers_ + model.mean_
        pi = [np.exp(-np.sum((x - c_l) ** 2) / (2 * model.width_**2)) for c_l in c]
        assert_allclose(z, x + sum(p * b for p, b in zip(pi, model.shifts_, strict=True)), rtol=1e-9)


def test_similar_samples_come_closer():
    X, y = problem(7, n=60)
    model = LLMA().fit(X, y)
    Z = model.transform(X)
    for c in (0, 1):
        spread = [np.mean(np.linalg.norm(V[y == c] - V[y == c].mean(axis=0), axis=1)) for V in (X, Z)]
        assert spread[1] < spread[0]


def test_unlabelled_samples_keep_their_distances_but_are_no_centres():
    X, y = problem(8, n=40)
    hidden = np.where(np.arange(40) < 20, y, -1)
    model = LLMA().fit(X, hidden)
    known = LLMA().fit(X[:20], y[:20])
    assert len(model.centers_) == len(known.centers_) == 20
    assert np.abs(model.shifts_ - known.shifts_).max() > 1e-6  # the others do count


@pytest.mark.parametrize("sampler", [RandomPairs(30), AllPairs()])
def test_other_links_and_few_centres(sampler):
    X, y = problem(9, n=40)
    model = LLMA(pairs=sampler, max_centers=7, random_state=0).fit(X, y)
    assert model.centers_.shape == (7, 2)
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize(
    "params, word", [({"reg": -1}, "reg"), ({"width": 0}, "width=0"), ({"max_centers": 0}, "max_c")]
)
def test_wrong_parameters_are_named(params, word):
    with pytest.raises(ValueError, match=word):
        LLMA(**params).fit(*problem())


def test_wrong_sampler_is_named():
    with pytest.raises(ValueError, match="pairs=5 is unknown; expected a name or a Sampler"):
        LLMA(pairs=5).fit(*problem())
