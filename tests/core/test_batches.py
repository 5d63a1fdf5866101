"""Parts of an objective, and the descent by parts."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from isometry import ITML, LMNN, NCA, PCCA, AllPairs, FastNCA, Labels, RandomPairs, Triplets
from isometry.core.edges import DenseEdges, NeighborEdges, TriangleEdges
from isometry.core.graph import target_neighbors
from isometry.core.objective import DistanceObjective
from isometry.core.solvers import Batches
from isometry.spectral.impostor_batches import lmnn_by_anchors
from isometry.spectral.impostors import Impostors
from tests.conftest import assert_refitted
from tests.differences import central_differences


def table(step=1):
    X, y = load_wine(return_X_y=True)
    X = scale(X)[::step]
    return X - X.mean(axis=0), y[::step]


def some_objectives():
    X, y = table(3)
    y = np.where(np.arange(len(y)) == 7, 9, y)  # a class of one: it has no targets and no hits
    labels, rng = Labels(y), np.random.RandomState(0)
    return {
        "softmax": NCA(strength=1.0)._objective(X, labels, rng),
        "log softmax, penalty": NCA(objective="log", reg=0.1, strength=1.0)._objective(X, labels, rng),
        "neighbours": FastNCA(n_neighbors=4, strength=1.0)._objective(X, labels, rng),
        "listed": PCCA(pairs=RandomPairs(52), reg=0.1, strength=1.0)._objective(X, labels, rng),
        "hinge": lmnn_by_anchors(X, labels.codes, target_neighbors(X, labels.codes, 3), 0.4, 1.0),
    }


@pytest.mark.parametrize("name", list(some_objectives()))
def test_the_mean_over_parts_is_the_whole(name):
    objective = some_objectives()[name]
    L = np.random.default_rng(1).standard_normal((4, objective.X.shape[1])) / 3
    n = objective.n_parts
    parts = np.array_split(np.random.default_rng(2).permutation(n), 5)
    found = [(len(rows) / n, *objective.batch(rows)(L)) for rows in parts]
    value, gradient = objective(L)
    assert_allclose(sum(w * f for w, f, _ in found), value, rtol=1e-10)
    assert_allclose(sum(w * g for w, _, g in found), gradient, atol=1e-10 * np.abs(gradient).max())
    assert abs(found[0][1] - value) > 1e-6 * abs(value)  # one part is not the whole


def test_missing_neighbours_stay_missing():
    X, _ = table(6)
    index = np.array([[1, -1], [0, 2], [-1, 5], [4, 3]])
    loss = lambda d, where: (float(np.sum(np.where(np.isinf(d), 0, d))), np.isfinite(d).astype(float))  # noqa: E731
    objective = DistanceObjective(X, NeighborEdges(index, np.arange(4)), loss)
    L, rows = np.eye(X.shape[1]), np.array([2, 0])
    pairs = [(2, 5), (0, 1)]
    assert_allclose(objective.batch(rows)(L)[0], 2 * sum(np.sum((X[i] - X[j]) ** 2) for i, j in pairs))


def test_edges_without_parts_say_so():
    X, _ = table(6)
    with pytest.raises(TypeError, match="TriangleEdges cannot be divided"):
        DistanceObjective(X, TriangleEdges(len(X)), lambda d, where: (0.0, d)).batch(np.arange(3))


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0])
def test_lmnn_by_anchors_is_the_objective_of_lmnn(mu):
    X, y = table(2)
    codes = Labels(y).codes
    targets = target_neighbors(X, codes, 3)
    L = np.random.default_rng(0).standard_normal((3, X.shape[1])) / 2
    by_anchors, listed = lmnn_by_anchors(X, codes, targets, mu, 1.0), Impostors(X, codes, targets, 1.0, None)
    listed.restart(L)
    assert_allclose(by_anchors(L)[0], listed.value(L, mu), rtol=1e-10)
    assert_allclose(by_anchors(L)[1], listed(L, mu, 1e-9)[1], atol=1e-8 * np.abs(by_anchors(L)[1]).max())
    assert_allclose(by_anchors(L)[1], central_differences(lambda M: by_anchors(M)[0], L), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "learner, slack",
    [
        (LMNN(n_components=5, strength=1.0), 0.1),
        (NCA(2, strength=1.0), 0.01),
        (FastNCA(2, strength=1.0), 0.01),
        (PCCA(5, pairs=RandomPairs(2000), strength=1.0), 0.05),
    ],
)
def test_batches_come_near_the_optimum(learner, slack):
    X, y = table()
    whole = learner.set_params(random_state=0).fit(X, y).history_[-1]
    fitted = learner.set_params(batch_size=64).fit(X, y)
    scale = abs(whole)
    assert fitted.history_[-1] < whole + slack * scale + (5 if isinstance(learner, LMNN) else 0)
    assert fitted.history_[-1] < fitted.history_[0] - 0.05 * scale or isinstance(learner, (NCA, FastNCA))
    assert fitted.converged_ and "batches" in fitted.stop_reason_
    assert fitted.score(X, y) > 0.97
    again = learner.fit(X, y)
    assert_refitted(again.components_, fitted.components_, rtol=1e-6)  # random_state=0 settles the batches too


def test_itml_in_batches():
    X, y = table()
    whole = ITML(pairs=RandomPairs(2000), random_state=0, strength=1.0).fit(X, y)
    parts = ITML(pairs=RandomPairs(2000), random_state=0, batch_size=128, strength=1.0).fit(X, y)
    W, V = whole.mahalanobis_, parts.mahalanobis_
    assert np.linalg.norm(W - V) < 0.1 * np.linalg.norm(W)
    assert parts.duality_gap_ > 1e-6 and parts.converged_


def test_a_short_search_says_that_it_was_short():
    X, y = table()
    with pytest.warns(UserWarning, match="max_iter=6 reached"):
        model = NCA(2, batch_size=32, max_iter=6, random_state=0, strength=1.0).fit(X, y)
    assert not model.converged_ and model.n_iter_ == 6


def test_bad_batches_are_refused():
    X, y = table()
    triplets = Triplets([0], [1], [100], n_samples=len(X))
    for learner, target, message in (
        (NCA(batch_size=0, strength=1.0), y, "batch_size=0 must be at least 1"),
        (PCCA(batch_size=64, pairs=AllPairs(), strength=1.0), y, "use RandomPairs"),
        (LMNN(batch_size=64, mining="semi_hard", strength=1.0), y, "mining='batch_all'"),
        (LMNN(batch_size=64, strength=1.0), triplets, "batch_size needs labels"),
        (ITML(batch_size=64, solver="bregman", strength=1.0), y, "one pair at a time"),
    ):
        with pytest.raises(ValueError, match=message):
            learner.fit(X, target)


def test_the_search_ends_with_small_steps():
    X = np.random.default_rng(0).standard_normal((40, 2))

    def unit_distances(d, where):
        r = np.where(np.isinf(d), 1, d) - 1
        return float(np.sum(r**2)) / 1560, 2 * r / 1560

    spread = DistanceObjective(X, DenseEdges(40), unit_distances)
    solution = Batches(10, np.random.RandomState(0)).minimize(spread, np.eye(2))
    assert solution.converged and solution.history[-1] < 0.8 * solution.history[0]
    assert len(solution.history) == solution.n_iter < 200
