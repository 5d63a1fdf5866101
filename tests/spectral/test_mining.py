"""Proof tests of M12 (triplet mining and hierarchical sampling for LMNN)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import sqrtm
from sklearn.exceptions import ConvergenceWarning

from isometry import LMNN, HierarchicalLMNN, Labels, NeighborTriplets
from isometry.core.graph import target_neighbors
from isometry.core.order import column_order, row_order
from isometry.spectral.hierarchical_lmnn import ball, stratified
from isometry.spectral.impostors import Impostors, ListedTriplets
from isometry.spectral.mining import EXTREMES, mine, sampling_logweight
from tests.conftest import assert_refitted, make_blobs


def grid_points(n=30, seed=0):
    """Integer coordinates, so that distances are exact and full of ties; the last class has one member."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    y[-1] = 3
    return rng.integers(0, 4, (n, 2)).astype(float), y


def scaled_blobs(seed=0, n=45):
    X, y = make_blobs(n=n, seed=seed)
    X = X / X.std(axis=0)
    return X - X.mean(axis=0), y


def as_set(triplets):
    listed = list(zip(triplets.a, triplets.p, triplets.n, strict=True))
    assert len(set(listed)) == len(listed)
    return set(listed)


def slow_first(i, candidates, d, k, farthest=False):
    return sorted(candidates, key=lambda j: (-d(i, j) if farthest else d(i, j), j))[:k]


def slow_mine(Z, y, k, miner):
    d = lambda i, j: float(np.sum((Z[i] - Z[j]) ** 2))  # noqa: E731
    found = set()
    for i in range(len(Z)):
        positives = [j for j in range(len(Z)) if y[j] == y[i] and j != i]
        negatives = [l for l in range(len(Z)) if y[l] != y[i]]
        for j in slow_first(i, positives, d, k, farthest=miner in ("batch_hard", "HPEN")):
            pool = [l for l in negatives if d(i, l) > d(i, j)] if miner == "semi_hard" else negatives
            chosen = pool if miner == "batch_all" else slow_first(i, pool, d, k, farthest=miner in ("HPEN", "EPEN"))
            found |= {(i, j, l) for l in chosen}
    return found


@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("miner", ["semi_hard", *EXTREMES])
def test_M12a_miners_by_their_definitions_with_ties(miner, k):
    for seed in range(3):
        Z, y = grid_points(seed=seed)
        assert as_set(mine(Z, y, k, miner, None)) == slow_mine(Z, y, k, miner)


def test_M12a_batch_all_by_its_definition():
    Z, y = scaled_blobs(n=30)
    problem = Impostors(Z, y, target_neighbors(Z, y, 3), 1.0, None)
    triplets = [problem.order[rows] for rows in problem.all_triplets()]
    assert set(zip(*triplets, strict=True)) == slow_mine(Z, y, 3, "batch_all")


@pytest.mark.parametrize("miner", ["semi_hard", "batch_hard", "negative_sampling"])
def test_blocks_do_not_change_what_is_mined(miner):
    Z, y = grid_points(n=60)
    whole = mine(Z, y, 3, miner, np.random.RandomState(0))
    with sklearn.config_context(working_memory=0.01):
        blocked = mine(Z, y, 3, miner, np.random.RandomState(0))
    assert as_set(whole) == as_set(blocked)


def test_M12a_sampling_weights_by_their_definition():
    """min(1.4, 1/q(d)); in three dimensions distances have density d/2 on (0, 2)."""
    for dim in (2, 3, 5, 40):
        for d in (0.05, 0.7, 1.0, np.sqrt(2), 1.9):
            q = d ** (dim - 2) * (1 - d**2 / 4) ** ((dim - 3) / 2)
            assert_allclose(np.exp(sampling_logweight(np.array(d**2), dim)), min(1.4, 1 / q), rtol=1e-9)
    assert np.isfinite(sampling_logweight(np.array([0.0, 4.0]), 500)).all()


def test_M12a_negatives_are_drawn_in_proportion_to_their_weights():
    """One draw for each of many equal anchors: frequencies against the weights, on rows scaled to length 1."""
    rng, n = np.random.default_rng(0), 1500
    negatives = rng.standard_normal((4, 3))
    Z = np.vstack([np.tile([[2.0, 0.0, 0.0]], (n, 1)), negatives])
    y = np.repeat([0, 1], [n, 4])
    t = mine(Z, y, 1, "negative_sampling", np.random.RandomState(0))
    drawn = np.bincount(t.n[t.a < n] - n, minlength=4) / n
    d = np.linalg.norm(negatives / np.linalg.norm(negatives, axis=1, keepdims=True) - [1, 0, 0], axis=1)
    weight = np.minimum(1.4, 1 / d)
    p = weight / weight.sum()
    assert np.all(np.abs(drawn - p) < 4 * np.sqrt(p * (1 - p) / n))
    assert np.abs(drawn - 0.25).max() > 0.08  # not uniform


def test_M12b_batch_all_is_the_problem_of_M11():
    X, y = scaled_blobs()
    L = np.random.default_rng(1).standard_normal((3, 4))
    Z, value = X @ L.T, 0.0
    for i, j, l in slow_mine(X, y, 3, "batch_all"):
        value += 0.7 * max(0.0, 1 + np.sum((Z[i] - Z[j]) ** 2) - np.sum((Z[i] - Z[l]) ** 2))
    targets = {(i, j) for i, j, _ in slow_mine(X, y, 3, "batch_all")}
    value += 0.3 * sum(np.sum((Z[i] - Z[j]) ** 2) for i, j in targets)
    assert_allclose(Impostors(X, y, target_neighbors(X, y, 3), 1.0, None).value(L, 0.7), value, rtol=1e-10)
    every = LMNN(mining="EPHN", n_neighbors=44, tol=1e-7, strength=1.0).fit(
        X, y
    )  # k so large that all negatives are among them
    assert_allclose(every.objective_, LMNN(n_neighbors=44, tol=1e-7, strength=1.0).fit(X, y).objective_, rtol=1e-4)


def test_M12_pulling_once_for_each_triplet_is_another_mu():
    X, y = scaled_blobs()
    k, mu = 3, 0.4
    triplets = mine(X, y, k, "EPHN", None)
    L = np.random.default_rng(1).standard_normal((2, 4))
    Z, per_triplet = X @ L.T, 0.0
    for i, j, l in as_set(triplets):
        near, far = np.sum((Z[i] - Z[j]) ** 2), np.sum((Z[i] - Z[l]) ** 2)
        per_triplet += (1 - mu) * near + mu * max(0.0, 1 + near - far)
    other = mu / (k * (1 - mu) + mu)  # (1 − μ')/μ' = k (1 − μ)/μ
    assert_allclose(ListedTriplets(X, triplets, 1.0).value(L, other) * mu / other, per_triplet, rtol=1e-9)


def test_M12c_semi_hard_negatives_are_farther_than_their_positive():
    X, y = scaled_blobs(n=80)
    t = mine(X, y, 3, "semi_hard", None)
    assert len(t.a) > 500
    near, far = np.linalg.norm(X[t.a] - X[t.p], axis=1), np.linalg.norm(X[t.a] - X[t.n], axis=1)
    assert np.all(far >= near)
    assert np.all(y[t.a] == y[t.p]) and np.all(y[t.a] != y[t.n])


def test_nearest_positives_and_negatives_are_the_triplets_of_the_sampler():
    X, y = scaled_blobs()
    assert as_set(mine(X, y, 2, "EPHN", None)) == as_set(NeighborTriplets(2).draw(X, Labels(y), None))


def test_mining_twice_is_mining_in_the_metric_of_the_first_solution():
    X, y = scaled_blobs()
    options = {"tol": 1e-7, "max_iter": 500}
    once = LMNN(mining="batch_hard", init="identity", strength=1.0, **options).fit(X, y)
    again = mine(once.transform(X), y, 3, "batch_hard", None)
    assert as_set(again) != as_set(mine(X, y, 3, "batch_hard", None))
    by_hand = LMNN(strength=1.0, **options).fit(X, again)
    twice = LMNN(mining="batch_hard", init="identity", n_mining=2, strength=1.0, **options).fit(X, y)
    assert_allclose(twice.objective_, by_hand.objective_, rtol=1e-4)
    assert_allclose(twice.mahalanobis_, by_hand.mahalanobis_, atol=2e-2 * np.abs(by_hand.mahalanobis_).max())
    assert twice.n_iter_ > once.n_iter_
    targets = target_neighbors(LMNN(strength=1.0, **options).fit(X, y).transform(X), y, 3)
    problem, twice = Impostors(X, y, targets, 1.0, None), LMNN(n_mining=2, strength=1.0, **options).fit(X, y)
    assert_allclose(twice.objective_, problem.value(twice.components_, 0.5), rtol=1e-9)


def test_mined_problem_reaches_the_semidefinite_optimum():
    X, y = scaled_blobs(n=24)
    ours = LMNN(mining="semi_hard", tol=1e-7, max_iter=500, strength=1.0).fit(X, y)
    assert_allclose(
        ours.objective_, LMNN(mining="semi_hard", solver="sdp", strength=1.0).fit(X, y).objective_, rtol=1e-4
    )


def test_M12d_map_is_the_product_of_its_steps():
    X, y = scaled_blobs(n=60)
    learner = HierarchicalLMNN(n_rounds=7, random_state=3, strength=1.0)
    X = X - X.mean(axis=0)  # round-off decides which points a ball holds
    X = X[:, column_order(X)]
    order = row_order(X)
    X, y = X[order], y[order]
    steps = list(learner._steps(X - X.mean(axis=0), y, np.random.RandomState(3)))
    spread, L = X.var(axis=0).sum(), np.eye(4)
    lost = 1.0  # digits that a product of nearly singular maps loses against one map after another
    for step, solution in steps:
        root = np.real(sqrtm(solution.x.T @ solution.x + np.eye(4)))
        ratio = step / root
        assert_allclose(ratio, ratio[0, 0], rtol=1e-6)  # (M + I)^{1/2} up to its scale
        lost = max(lost, np.linalg.cond(step) * np.linalg.cond(L))
        L = step @ L
        assert_allclose((X @ L.T).var(axis=0).sum(), spread, rtol=10 * np.finfo(float).eps * lost)
    fitted = learner.fit(X, y)
    assert fitted.n_steps_ == len(steps) > 5
    assert_allclose(fitted.mahalanobis_, L.T @ L, rtol=1e-8, atol=1e-10)
    Z = fitted.transform(X)
    assert_allclose(np.linalg.norm(Z[0] - Z[9]), np.linalg.norm(L @ (X[0] - X[9])), rtol=1e-8)


def test_balls_reach_data_with_long_tails():
    """The box that holds such data is nearly empty: balls drawn in it would miss every sample."""
    rng, y = np.random.default_rng(0), np.arange(150) % 3
    X = rng.standard_normal((150, 20)) + np.eye(3, 20)[y]
    X[:6] *= 50
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # no ball held points of two classes
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner = HierarchicalLMNN(random_state=0, strength=1.0).fit(X, y)
    assert learner.n_steps_ > 0 and np.ptp(np.linalg.svd(learner.components_)[1]) > 1e-3
    assert_array_equal(ball(np.arange(4.0)[:, None], np.array([9.0]), 1.5), [2, 3])
    assert_array_equal(ball(np.arange(4.0)[:, None], np.array([1.2]), 1.0), [1, 2])


def test_balls_of_which_steps_have_left_a_plane():
    """Steps stretch what separates classes; what is left of other directions are rounding errors in the end."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = np.c_[rng.standard_normal((120, 2)), 1e-13 * (y[:, None] + rng.standard_normal((120, 8)))]
    X = X @ np.linalg.qr(rng.standard_normal((10, 10)))[0]
    learner = HierarchicalLMNN(random_state=0, strength=1.0).fit(X, y)
    assert learner.n_steps_ > 0
    assert np.abs(learner.components_).max() < 1e3


def test_M12d_reproducible_for_a_seed():
    X, y = scaled_blobs(n=60)
    A, B, C = (HierarchicalLMNN(n_rounds=7, random_state=s, strength=1.0).fit(X, y).components_ for s in (0, 0, 1))
    assert_refitted(A, B)
    assert np.abs(A - C).max() > 1e-3


def test_stratified_sample_keeps_the_shares_of_the_classes():
    codes = np.repeat([0, 1, 2, 3], [40, 10, 1, 9])
    rows = np.flatnonzero(codes < 3)
    chosen = stratified(rows, codes, 0.25, np.random.RandomState(0))
    assert np.bincount(codes[chosen]).tolist() == [10, 3, 1]
    assert np.all(np.diff(chosen) > 0) and np.isin(chosen, rows).all()
    assert_allclose(stratified(rows, codes, 1.0, np.random.RandomState(0)), rows)
    drawn = {tuple(stratified(rows, codes, 0.25, np.random.RandomState(s))) for s in range(5)}
    assert len(drawn) == 5


def test_errors_say_what_to_do():
    X, y = scaled_blobs()
    for params, message in (({"mining": "hard"}, "expected 'batch_all', 'semi_hard'"), ({"n_mining": 0}, "n_mining=0")):
        with pytest.raises(ValueError, match=message):
            LMNN(strength=1.0, **params).fit(X, y)
    line = np.array([[0.0], [10.0], [5.0]])  # the stranger is nearer than the only friend
    with pytest.raises(ValueError, match="found no triplet"):
        LMNN(mining="semi_hard", strength=1.0).fit(line, [0, 0, 1])
    for params, message in (
        ({"mining": "batch_all"}, "unknown"),
        ({"mu": 2}, "mu=2"),
        ({"sample_portion": 0}, "sample_portion=0"),
        ({"n_rounds": 0}, "n_rounds"),
    ):
        with pytest.raises(ValueError, match=message):
            HierarchicalLMNN(**params, strength=1.0).fit(X, y)
    with pytest.warns(UserWarning, match="stayed Euclidean"):
        HierarchicalLMNN(n_rounds=1, random_state=0, strength=1.0).fit(X[::9], y[::9])
