"""SCML against a conic solver, the peers' dual averaging typed in, and its special cases."""

import cvxpy as cp
import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry import SCML, Labels, NeighborTriplets, RelativeML, Triplets
from isometry.core.frame import Frame
from isometry.core.linalg import fix_signs
from isometry.sampling import comparisons
from isometry.spectral.scml import (
    WIDTHS,
    SharedBasis,
    _hinges,
    discriminants,
    local_discriminants,
    triplet_directions,
)
from tests.conftest import make_blobs, make_planted
from tests.differences import central_differences


def given(seed=0, n=30, d=3, K=8):
    X, y = make_blobs(n=n, d=d, seed=seed)
    X, rng = Frame.of(X, scaled=True).X, np.random.default_rng(seed)
    basis = rng.standard_normal((K, d))
    triplets = NeighborTriplets(2, misses=4).draw(X, Labels(y), None)
    return X, triplets, basis / np.linalg.norm(basis, axis=1, keepdims=True)


def table(X, t, basis):
    """(m, K): (b_kᵀz_ap)² − (b_kᵀz_an)²."""
    return ((X[t.a] - X[t.p]) @ basis.T) ** 2 - ((X[t.a] - X[t.n]) @ basis.T) ** 2


def sharp_value(w, T, beta):
    return np.maximum(1 + T @ w, 0).mean() + beta * w.sum()


@pytest.mark.parametrize("reg", [1e-2, 0.2])
def test_B06a_equals_the_conic_solver(reg):
    X, t, basis = given()
    solution = SCML(reg=reg, tol=1e-9, max_iter=2000, strength=1.0)._weights(
        [X], [comparisons(t, "auto", X, None)], basis
    )
    T, w, width = table(X, t, basis), cp.Variable(8, nonneg=True), WIDTHS[-1]
    rounded = cp.sum(cp.huber(cp.pos(1 + T @ w), width)) / (2 * width) / len(T)
    problem = cp.Problem(cp.Minimize(rounded + reg / 8 * cp.sum(w)))
    problem.solve(solver="CLARABEL")
    assert_allclose(solution.value, problem.value, rtol=1e-6)
    assert_allclose(sharp_value(solution.x[0], T, reg / 8), sharp_value(w.value, T, reg / 8), rtol=1e-3)


def test_B06b_the_features_as_directions_are_a_diagonal_metric():
    X, t, _ = given(1)
    compared = comparisons(t, "auto", X, None)
    w0 = 1 / compared.gap(X)
    ours = SCML(reg=0.05, tol=1e-9, max_iter=2000, strength=1.0)._weights([X], [compared], np.eye(3))
    other = RelativeML(structure="diagonal", reg=0.05 * w0, tol=1e-9, max_iter=2000, strength=1.0).fit(
        X, t
    )  # its penalty is tr W/(d w₀)
    assert_allclose(ours.value, other.objective_, rtol=1e-8)
    assert_allclose(np.diag(ours.x[0]), other.mahalanobis_, atol=1e-3 * ours.x.max())


def dual_averaging(T, beta, n_iter=20_000, gamma=5e-3, delta=1e-3, seed=0):
    """The stochastic solver of the peers: averaged subgradients, AdaGrad's scaling, soft threshold."""
    rng, K = np.random.default_rng(seed), T.shape[1]
    average, squares, w, best = np.zeros(K), np.zeros(K), np.zeros(K), np.inf
    for step in range(n_iter):
        rows = T[rng.integers(0, len(T), 10)]
        gradient = rows[1 + rows @ w > 0].sum(axis=0) / 10
        average, squares = (step * average + gradient) / (step + 1), np.sqrt(squares**2 + gradient**2)
        w = -np.sqrt(step + 1) / gamma * np.minimum(average + beta, 0) / (delta + squares) / 100
        if step % 200 == 0:
            best = min(best, sharp_value(w, T, beta))
    return best


def test_B06d_no_higher_than_dual_averaging():
    X, t, basis = given(2, n=40, d=4, K=30)
    T = table(X, t, basis)
    solution = SCML(reg=1e-2 * 30, strength=1.0)._weights([X], [comparisons(t, "auto", X, None)], basis)
    assert sharp_value(solution.x[0], T, 1e-2) <= dual_averaging(T, 1e-2) + 1e-4
    assert sharp_value(solution.x[0], T, 1e-2) < 0.98  # 1 is the value of w = 0


def test_B06c_one_task_is_no_task():
    X, y = make_blobs(n=40)
    plain, named = (
        SCML(random_state=0, strength=1.0).fit(X, y),
        SCML(random_state=0, strength=1.0).fit(X, y, tasks=np.full(40, "only")),
    )
    assert_allclose(plain.mahalanobis_, named.mahalanobis_, rtol=1e-9, atol=1e-12)
    assert_allclose(
        named.task_transform(X, "only") @ named.task_transform(X, "only").T, X @ plain.mahalanobis_ @ X.T, atol=1e-8
    )


def test_B06c_equal_tasks_share_their_weights():
    """T times the same task: Σ_t f + β √T Σ w, which is one task with the penalty β/√T."""
    X, t, basis = given(3)
    compared = comparisons(t, "auto", X, None)
    options = {"tol": 1e-9, "max_iter": 3000}
    two = SCML(reg=0.1, **options, strength=1.0)._weights([X, X], [compared, compared], basis)
    one = SCML(reg=0.1 / np.sqrt(2), **options, strength=1.0)._weights([X], [compared], basis)
    assert_allclose(two.value, 2 * one.value, rtol=1e-5)
    assert_allclose(two.x[0], two.x[1], atol=1e-3 * two.x.max())


def test_B06c_gradient_of_the_shared_penalty(rng):
    X, t, basis = given(4)
    compared = comparisons(t, "auto", X, None)
    f = SharedBasis([_hinges(X, compared, basis, 0.1), _hinges(2 * X, compared, basis, 0.1)], 0.3)
    w = rng.random((2, 8))
    norms = np.sum(np.sqrt(np.sum(w**2, axis=0)))
    assert_allclose(f(w)[0], f.tasks[0](w[0])[0] + f.tasks[1](w[1])[0] + 0.3 * norms, rtol=1e-9)
    assert_allclose(f(w)[1], central_differences(lambda w: f(w)[0], w), rtol=1e-5, atol=1e-7)


def test_B06c_tasks_with_their_own_classes():
    X, y = make_blobs(n=80, d=3)
    task = np.array(["a", "b"])[np.arange(80) % 2]
    y = np.where(task == "a", y, y + 10)
    model = SCML(40, random_state=0, strength=1.0).fit(X, y, tasks=task)
    assert model.task_weights_.shape == (2, len(model.basis_)) and model.task_components_.shape == (2, 3, 3)
    L = model.task_components_[1]
    B = np.sqrt(model.task_weights_[1])[:, None] * model.basis_
    assert_allclose(L.T @ L, B.T @ B, atol=1e-8 * np.abs(L).max() ** 2)
    with pytest.raises(ValueError, match="the tasks of the fit are a, b"):
        model.task_transform(X, "c")


def test_directions_of_labels_have_length_1_and_find_the_plane_of_the_classes():
    X, y = make_planted(n=150, d=6, noise=2.0)
    basis = local_discriminants(X, y, 40, 0)
    assert len(basis) == 40
    assert_allclose(np.linalg.norm(basis, axis=1), 1, rtol=1e-12)
    assert np.median(np.linalg.norm(basis[:, :2], axis=1)) > 0.9


def slow_discriminants(X, y, ridge=1e-2):
    """One place: eigenvectors of S_b v = λ (S_w/tr S_w + ridge/d I) v with λ > 0, best first, of length 1."""
    d, c = X.shape[1], len(np.unique(y))
    S_w, S_b = np.zeros((d, d)), np.zeros((d, d))
    for k in np.unique(y):
        Z, gap = X[y == k] - X[y == k].mean(axis=0), X[y == k].mean(axis=0) - X.mean(axis=0)
        S_w, S_b = S_w + Z.T @ Z, S_b + len(Z) * np.outer(gap, gap)
    V = sla.eigh(S_b, S_w / np.trace(S_w) + ridge / d * np.eye(d))[1][:, ::-1][:, : min(c - 1, d)]
    return fix_signs((V / np.linalg.norm(V, axis=0)).T)


@pytest.mark.parametrize(("d", "c"), [(5, 2), (5, 3), (2, 4)])
def test_discriminants_of_several_places_are_the_generalised_eigenvectors_of_each(d, c, rng):
    X = rng.standard_normal((90, d)) * np.arange(1, d + 1)
    X[:, 0] += 3 * (np.arange(90) % c)
    classes = [np.stack([rng.permutation(np.arange(k, 90, c))[: 8 + k] for _ in range(4)]) for k in range(c)]
    V, there = discriminants(X, classes)
    assert V.shape == (4, min(c - 1, d), d) and there.all()
    for place, found in enumerate(V):
        y = np.repeat(np.arange(c), [rows.shape[1] for rows in classes])
        rows = np.concatenate([rows[place] for rows in classes])
        assert_allclose(fix_signs(found), slow_discriminants(X[rows], y), rtol=1e-7, atol=1e-9)


def test_discriminants_where_nothing_varies_or_nothing_differs():
    lonely, there = discriminants(np.eye(3), [np.array([[k]]) for k in range(3)])  # no spread within classes
    assert lonely.shape == (1, 2, 3) and np.isfinite(lonely).all() and there.all()
    X = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1], [5, 5]])
    equal = [np.array([[0, 1], [4, 4]]), np.array([[2, 3], [4, 4]])]  # equal means; all samples in one place
    V, there = discriminants(X, equal)
    assert np.isfinite(V).all() and not there.any()
    with pytest.raises(ValueError, match="equal means everywhere"):
        local_discriminants(np.r_[X[:4], X[:4]], np.repeat([0, 1], 4), 4, 0)


def test_directions_of_triplets_are_eigenvectors():
    X, y = make_blobs(n=20, d=3)
    t = Triplets([0], [1], [2], n_samples=20)
    A = np.outer(X[0] - X[1], X[0] - X[1]) - np.outer(X[0] - X[2], X[0] - X[2])
    basis = triplet_directions(X, t, 2, np.random.RandomState(0))
    for b in basis:
        assert_allclose(A @ b, (b @ A @ b) * b, atol=1e-9 * np.abs(A).max())
    many = NeighborTriplets(2).draw(X, Labels(y), None)
    model = SCML(30, random_state=0, strength=1.0).fit(X, many)
    assert model.basis_.shape == (30, 3)
    B = np.sqrt(model.weights_)[:, None] * model.basis_
    assert_allclose(model.mahalanobis_, B.T @ B, atol=1e-9 * np.abs(model.mahalanobis_).max())


def test_the_penalty_makes_weights_vanish():
    X, y = make_blobs(n=45)
    few, many = (SCML(reg=reg, random_state=0, strength=1.0).fit(X, y).weights_ for reg in (0.5, 1e-3))
    assert np.count_nonzero(few) < np.count_nonzero(many) and np.count_nonzero(few) < len(few) / 2


def test_where_nothing_helps_the_start_is_kept_and_said():
    X, y = make_blobs(n=30)
    t = NeighborTriplets(2).draw(X, Labels(y), None)
    with pytest.warns(UserWarning, match="no direction has a weight"):
        model = SCML(10, reg=1e3, random_state=0, strength=1.0).fit(X, t)
    assert np.all(model.weights_ > 0)
