"""SCML against a conic solver, the peers' dual averaging typed in, and its special cases."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import SCML, Labels, NeighborTriplets, RelativeML, Triplets
from isometry.core.frame import Frame
from isometry.sampling import comparisons
from isometry.spectral.scml import WIDTHS, discriminants, local_discriminants, triplet_directions
from tests.conftest import make_blobs, make_planted


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
    solution = SCML(reg=reg, tol=1e-9, max_iter=2000)._weights(X, comparisons(t, "auto", X, None), basis)
    T, w, width = table(X, t, basis), cp.Variable(8, nonneg=True), WIDTHS[-1]
    rounded = cp.sum(cp.huber(cp.pos(1 + T @ w), width)) / (2 * width) / len(T)
    problem = cp.Problem(cp.Minimize(rounded + reg / 8 * cp.sum(w)))
    problem.solve(solver="CLARABEL")
    assert_allclose(solution.value, problem.value, rtol=1e-6)
    assert_allclose(sharp_value(solution.x, T, reg / 8), sharp_value(w.value, T, reg / 8), rtol=1e-3)


def test_B06b_the_features_as_directions_are_a_diagonal_metric():
    X, t, _ = given(1)
    compared = comparisons(t, "auto", X, None)
    w0 = 1 / compared.gap(X)
    ours = SCML(reg=0.05, tol=1e-9, max_iter=2000)._weights(X, compared, np.eye(3))
    other = RelativeML(structure="diagonal", reg=0.05 * w0, tol=1e-9, max_iter=2000).fit(
        X, t
    )  # its penalty is tr W/(d w₀)
    assert_allclose(ours.value, other.objective_, rtol=1e-8)
    assert_allclose(np.diag(ours.x), other.mahalanobis_, atol=1e-3 * ours.x.max())


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
    solution = SCML(reg=1e-2 * 30)._weights(X, comparisons(t, "auto", X, None), basis)
    assert sharp_value(solution.x, T, 1e-2) <= dual_averaging(T, 1e-2) + 1e-4
    assert sharp_value(solution.x, T, 1e-2) < 0.98  # 1 is the value of w = 0


def test_directions_of_labels_have_length_1_and_find_the_plane_of_the_classes():
    X, y = make_planted(n=150, d=6, noise=2.0)
    basis = local_discriminants(X, y, 40, 0)
    assert len(basis) == 40
    assert_allclose(np.linalg.norm(basis, axis=1), 1, rtol=1e-12)
    assert np.median(np.linalg.norm(basis[:, :2], axis=1)) > 0.9
    lonely = discriminants(np.eye(3), np.arange(3))  # no spread within classes
    assert lonely.shape == (2, 3) and np.isfinite(lonely).all()


def test_directions_of_triplets_are_eigenvectors():
    X, y = make_blobs(n=20, d=3)
    t = Triplets([0], [1], [2], n_samples=20)
    A = np.outer(X[0] - X[1], X[0] - X[1]) - np.outer(X[0] - X[2], X[0] - X[2])
    basis = triplet_directions(X, t, 2, np.random.RandomState(0))
    for b in basis:
        assert_allclose(A @ b, (b @ A @ b) * b, atol=1e-9 * np.abs(A).max())
    many = NeighborTriplets(2).draw(X, Labels(y), None)
    model = SCML(30, random_state=0).fit(X, many)
    assert model.basis_.shape == (30, 3)
    B = np.sqrt(model.weights_)[:, None] * model.basis_
    assert_allclose(model.mahalanobis_, B.T @ B, atol=1e-9 * np.abs(model.mahalanobis_).max())


def test_the_penalty_makes_weights_vanish():
    X, y = make_blobs(n=45)
    few, many = (SCML(reg=reg, random_state=0).fit(X, y).weights_ for reg in (0.5, 1e-3))
    assert np.count_nonzero(few) < np.count_nonzero(many) and np.count_nonzero(few) < len(few) / 2


def test_where_nothing_helps_the_start_is_kept_and_said():
    X, y = make_blobs(n=30)
    t = NeighborTriplets(2).draw(X, Labels(y), None)
    with pytest.warns(UserWarning, match="no direction has a weight"):
        model = SCML(10, reg=1e3, random_state=0).fit(X, t)
    assert np.all(model.weights_ > 0)
