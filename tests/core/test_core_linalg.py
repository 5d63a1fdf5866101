"""Linear algebra, SPD geometry, solvers and kernels: identities and optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose, assert_array_equal

from isometry.core import linalg, spd
from isometry.core.edges import ListedEdges
from isometry.core.hinge import rounded_hinge
from isometry.core.kernels import default_gamma, fit_kernel_map, kernel_matrix
from isometry.core.objective import DistanceObjective
from isometry.core.priors import prior_matrix
from isometry.core.probability import neighbor_softmax, softplus
from isometry.core.solve import alternate, fista, lbfgs, riemannian, trace_ratio
from isometry.core.solvers import Certified
from tests.oracles import logdet_divergence, psd_project, riemannian_distance


def random_spd(rng, d, scale=1.0):
    A = rng.standard_normal((d, d))
    return scale * (A @ A.T + 0.1 * np.eye(d))


def test_simplex_projection(rng):
    v = rng.standard_normal(6)
    x = linalg.simplex_project(v)
    assert x.min() >= 0 and abs(x.sum() - 1) < 1e-12
    for _ in range(200):  # no feasible point is nearer
        other = rng.dirichlet(np.ones(6))
        assert np.sum((v - x) ** 2) <= np.sum((v - other) ** 2) + 1e-12


@pytest.mark.parametrize("d", [1, 95, 96, 97, 200])
def test_half_of_a_symmetric_product_is_all_of_it(d, rng):
    A = rng.standard_normal((30, d))
    weight = rng.uniform(0.5, 2, size=(30, 1))
    S = linalg.symmetric_product(A, weight * A)
    assert_allclose(S, A.T @ (weight * A), rtol=0, atol=1e-12)
    assert_array_equal(S, S.T)


@pytest.mark.parametrize("rank", [0, 1, 3, 6])
def test_triangular_factor_has_as_many_rows_as_the_rank(rank, rng):
    B = rng.standard_normal((rank, 6))
    L = linalg.triangular_factor(B.T @ B)
    assert L.shape == (max(rank, 1), 6)
    assert_allclose(L.T @ L, B.T @ B, atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_spectrum_gives_all_eigenvalues_and_the_vectors_asked_for(n, rng):
    A = rng.standard_normal((n, n))
    A = A + A.T
    w, vectors = linalg.spectrum(A.copy())
    assert_allclose(w, np.linalg.eigvalsh(A)[::-1], atol=1e-12)
    for k in range(n, 0, -1):
        V = vectors(k)
        assert_allclose(A @ V, V * w[:k], atol=1e-12)
        assert_allclose(V.T @ V, np.eye(k), atol=1e-12)


def test_spectrum_of_clustered_eigenvalues(rng, monkeypatch):
    B = rng.standard_normal((40, 3))
    A = B @ B.T + 5 * np.eye(40)  # 37 eigenvalues are equal
    projector = B @ np.linalg.inv(B.T @ B) @ B.T
    plain = sla.eigh_tridiagonal

    def give_up(*args, lapack_driver):
        if lapack_driver != "stev":
            raise np.linalg.LinAlgError
        return plain(*args, lapack_driver=lapack_driver)

    for driver in (plain, give_up):
        monkeypatch.setattr(sla, "eigh_tridiagonal", driver)
        w, vectors = linalg.spectrum(A.copy())
        assert_allclose(w[3:], 5, rtol=1e-12)
        assert_allclose(vectors(3) @ vectors(3).T, projector, atol=1e-12)
        every = vectors(40)
        assert_allclose(every.T @ every, np.eye(40), atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_leading_eigenpairs_solve_the_problem_of_two_matrices(n, rng):
    A, B = (M + M.T for M in rng.standard_normal((2, n, n)))
    B = B @ B + np.eye(n)
    before = A.copy(), B.copy()
    values = sla.eigvals(A, B).real
    for p in range(1, n + 3):
        w, V = linalg.leading_eigenpairs(A, B, p)
        assert_allclose(w, np.sort(values)[::-1][:p], atol=1e-10)
        assert_allclose(A @ V, B @ V * w, atol=1e-10)
        assert_allclose(V.T @ B @ V, np.eye(min(p, n)), atol=1e-10)
    assert_array_equal([A, B], before)


def test_cholesky_proves_only_what_holds(rng):
    Q = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    for least in (1.0, 1e-3, 1e-8, 3e-11, 0.0, -1e-3):
        C = linalg.symmetrize((Q * np.r_[np.ones(7), least]) @ Q.T)
        assert linalg.clearly_definite(C) == (least >= 1e-8)
        assert linalg.is_singular(C) == (least <= 1e-10)
    assert not linalg.clearly_definite(np.zeros((3, 3))) and linalg.is_singular(np.zeros((3, 3)))


def test_factor_rebuilds_and_fixes_signs(rng):
    W = random_spd(rng, 4)
    L = linalg.factor(W)
    assert_allclose(L.T @ L, W, rtol=1e-10)
    assert np.all(np.diff((L**2).sum(axis=1)) <= 1e-12)
    assert all(row[np.abs(row).argmax()] > 0 for row in L)
    low = linalg.factor(W, 2)
    w, V = np.linalg.eigh(W)
    assert_allclose(low.T @ low, (V[:, 2:] * w[2:]) @ V[:, 2:].T, rtol=1e-9)
    assert linalg.factor(np.zeros((3, 3))).tolist() == [[0, 0, 0]]
    singular = np.outer([1.0, 2.0], [1.0, 2.0])
    assert linalg.factor(singular).shape == (1, 2)


def test_generalised_eigenvectors_of_regular_matrices(rng):
    A, B = random_spd(rng, 5), random_spd(rng, 5)
    w, V = linalg.top_eigenvectors(A, B, 3)
    assert_allclose(V.T @ B @ V, np.eye(3), atol=1e-9)
    assert_allclose(A @ V, B @ V * w, rtol=1e-7, atol=1e-9)
    assert_allclose(w, sla.eigh(A, B, eigvals_only=True)[::-1][:3], rtol=1e-10)


@pytest.mark.filterwarnings("ignore::isometry.core.linalg.SingularMatrixWarning")
def test_generalised_eigenvectors_of_singular_matrices(rng):
    """Both matrices vanish on the last two coordinates: the solution is that of the others, padded with zeros."""
    A, B = random_spd(rng, 3), random_spd(rng, 3)
    pad = lambda M: np.pad(M, ((0, 2), (0, 2)))  # noqa: E731
    w, V = linalg.top_eigenvectors(pad(A), pad(B))
    assert V.shape == (5, 3) and np.abs(V[3:]).max() < 1e-9
    assert_allclose(w, sla.eigh(A, B, eigvals_only=True)[::-1], rtol=1e-8)


def test_a_singular_denominator_gets_a_ridge_and_a_warning(rng):
    B = np.diag([1.0, 1.0, 0.0])
    with pytest.warns(linalg.SingularMatrixWarning, match="ridge"):
        w, V = linalg.top_eigenvectors(np.eye(3), B, 1)
    assert np.isfinite(w).all() and abs(V[2, 0]) > abs(V[:2, 0]).max()


def test_row_range_spans_the_differences(rng):
    X = rng.standard_normal((4, 9))
    Q = linalg.row_range(X)
    assert Q.shape == (9, 3)
    delta = X[1:] - X[0]
    assert_allclose(delta @ Q @ Q.T, delta, atol=1e-12)
    assert linalg.row_range(X.astype(np.float32)).shape == (9, 3)


def test_row_range_does_not_take_a_large_offset_for_a_direction(rng):
    X = np.round(64 * rng.standard_normal((7, 3))) @ np.round(4 * rng.standard_normal((3, 12)))  # whole numbers: exact
    near = linalg.row_range(X)
    for offset in (1e4, 1.7e9, 1e12):
        far = linalg.row_range(X + offset)
        assert far.shape == near.shape == (12, 3)
        assert_allclose(far @ far.T, near @ near.T, atol=1e-10)


def test_logdet_divergence_is_twice_a_kl(rng):
    W, W0 = random_spd(rng, 3), random_spd(rng, 3)
    C0, C = np.linalg.inv(W0), np.linalg.inv(W)
    kl = 0.5 * (np.trace(W @ C0) - 3 + np.linalg.slogdet(C)[1] - np.linalg.slogdet(C0)[1])
    assert_allclose(logdet_divergence(W, W0), 2 * kl, rtol=1e-10)
    assert abs(logdet_divergence(W, W)) < 1e-10


def test_geodesic_laws(rng):
    A, B, G = random_spd(rng, 4), random_spd(rng, 4, 5.0), rng.standard_normal((4, 4))
    assert_allclose(spd.geodesic(A, B, 0.3), spd.geodesic(B, A, 0.7), rtol=1e-8)
    assert_allclose(spd.geodesic(A, B, 0), A, rtol=1e-9)
    assert_allclose(spd.geodesic(A, B, 1), B, rtol=1e-9)
    assert_allclose(G @ spd.geodesic(A, B, 0.4) @ G.T, spd.geodesic(G @ A @ G.T, G @ B @ G.T, 0.4), rtol=1e-7)
    mid = spd.geodesic(A, B)
    assert_allclose(mid @ np.linalg.inv(A) @ mid, B, rtol=1e-8)  # Riccati
    assert_allclose(riemannian_distance(A, mid), riemannian_distance(A, B) / 2, rtol=1e-8)


@pytest.mark.parametrize("t", [0.0, 0.25, 0.5, 1.0])
def test_inverse_geodesic_factor(rng, t):
    S, D = random_spd(rng, 4), random_spd(rng, 4)
    L = spd.inverse_geodesic_factor(S, D, t)
    assert_allclose(L.T @ L, spd.geodesic(np.linalg.inv(S), D, t), rtol=1e-8)


def test_spd_log(rng):
    stack = np.stack([random_spd(rng, 3) for _ in range(4)])
    assert_allclose([sla.expm(T) for T in spd.spd_log(stack)], stack, rtol=1e-9)


def test_lbfgs_rosenbrock_and_its_story():
    f = lambda x: (  # noqa: E731
        float(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2),
        np.array([-400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)]),
    )
    solution = lbfgs(f, np.array([-1.2, 1.0]), tol=1e-10, max_iter=500)
    assert_allclose(solution.x, 1, atol=1e-5)
    assert solution.converged and np.all(np.diff(solution.history) <= 1e-12)
    short = lbfgs(f, np.array([-1.2, 1.0]), max_iter=2)
    assert not short.converged and short.n_iter == 2 and "max_iter=2" in short.reason


def test_lbfgs_units_do_not_matter():
    """The same problem in other units takes the same steps."""
    f = lambda x, s: (float(np.sum((x / s - 3) ** 4)), 4 * (x / s - 3) ** 3 / s)  # noqa: E731
    runs = [lbfgs(lambda x, s=s: f(x, s), np.full(3, s), tol=1e-8) for s in (1.0, 1e6, 1e-6)]
    assert len({r.n_iter for r in runs}) == 1
    assert_allclose(runs[1].x, runs[0].x * 1e6, rtol=1e-6)
    with pytest.raises(FloatingPointError, match="not finite"):
        lbfgs(lambda x: (np.nan, x), np.ones(2))


def test_lbfgs_respects_bounds():
    solution = lbfgs(lambda x: (float(np.sum((x + 1) ** 2)), 2 * (x + 1)), np.ones(3), bounds=[(0, None)] * 3)
    assert_allclose(solution.x, 0, atol=1e-12)


def test_fista_equals_a_closed_form_projection(rng):
    """min ½|W − A|² over the PSD cone is the projection of A; with curvature, KKT."""
    A = linalg.symmetrize(rng.standard_normal((4, 4)))
    solution = fista(lambda W: (0.5 * float(np.sum((W - A) ** 2)), W - A), psd_project, np.eye(4), tol=1e-10)
    assert solution.converged
    assert_allclose(solution.x, psd_project(A), atol=1e-7)
    H = random_spd(rng, 6)
    b = rng.standard_normal(6)
    s = fista(
        lambda x: (0.5 * x @ H @ x - b @ x, H @ x - b), lambda x: np.maximum(x, 0), np.ones(6), tol=1e-12, max_iter=5000
    )
    g = H @ s.x - b
    assert np.abs(np.minimum(s.x, g)).max() < 1e-6  # x ≥ 0, g ≥ 0, x·g = 0
    assert np.all(np.diff(s.history) <= 0)


def test_trace_ratio_optimality_and_null_space(rng):
    B, C = random_spd(rng, 6), random_spd(rng, 6)
    solution, lam = trace_ratio(B, C, 2)
    U = solution.x
    assert_allclose(U.T @ U, np.eye(2), atol=1e-10)
    assert abs(np.linalg.eigvalsh(B - lam * C)[-2:].sum()) < 1e-8 * np.abs(B).max() * 6
    for _ in range(300):
        R = np.linalg.qr(rng.standard_normal((6, 2)))[0]
        assert np.trace(R.T @ B @ R) / np.trace(R.T @ C @ R) <= lam + 1e-10
    flat = np.diag([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    solution, lam = trace_ratio(B, flat, 2)
    assert np.isinf(lam) and np.abs(solution.x[:4]).max() < 1e-10


def test_alternate_stops_and_reports():
    halve = lambda x: (x / 2, (x / 2) ** 2 + 1)  # noqa: E731
    solution = alternate(halve, 8.0, tol=1e-6)
    assert solution.converged and abs(solution.value - 1) < 1e-4
    assert not alternate(halve, 8.0, max_iter=2).converged


def test_riemannian_finds_the_leading_subspace(rng):
    from pymanopt.manifolds import Grassmann

    A = random_spd(rng, 5)
    start = np.linalg.qr(rng.standard_normal((5, 2)))[0]
    solution = riemannian(Grassmann(5, 2), lambda U: -np.trace(U.T @ A @ U), lambda U: -2 * A @ U, start)
    assert_allclose(-solution.value, np.linalg.eigvalsh(A)[-2:].sum(), rtol=1e-8)
    assert solution.converged


def test_a_certified_search_leaves_a_wrong_subspace(rng):
    """Started at a rank-one L, stationary there, the certificate finds the missing direction."""
    X = rng.standard_normal((30, 3))
    i, j = np.triu_indices(30, 1)
    target = np.diag([2.0, 1.0, 0.5])
    goal = np.einsum("ij,jk,ik->i", X[i] - X[j], target, X[i] - X[j])
    objective = DistanceObjective(
        X, ListedEdges(i, j, 30), lambda d, w: (0.5 * float(np.sum((d - goal[w]) ** 2)), d - goal[w])
    )
    start = np.zeros((3, 3))
    start[0, 0] = 1.0  # gradient never leaves the first coordinate
    solution = Certified(500, 1e-10).minimize(objective, start)
    assert_allclose(solution.x.T @ solution.x, target, atol=1e-4)


def test_rounded_hinge():
    h = np.array([-1.0, 0.0, 0.05, 0.1, 3.0])
    value, slope = rounded_hinge(h, 0.1)
    assert_allclose(slope, [0, 0, 0.5, 1, 1])
    assert_allclose(value, [0, 0, 0.0125, 0.05, 2.95])


def test_neighbor_softmax_and_softplus_at_the_ends(rng):
    D = rng.random((4, 6)) * 3
    D[0, 2] = np.inf
    P, lse = neighbor_softmax(D.copy())
    assert_allclose(P, np.exp(-D) / np.exp(-D).sum(axis=1, keepdims=True), rtol=1e-12)
    assert_allclose(lse, np.log(np.exp(-D).sum(axis=1)), rtol=1e-12)
    P, lse = neighbor_softmax(np.array([[1e6, 1e6 + 1, np.inf]]))
    assert_allclose(P, [[1 / (1 + np.exp(-1)), 1 / (1 + np.e), 0]])
    value, slope = softplus(np.array([-1e4, 0.0, 1e4]))
    assert_allclose(value, [0, np.log(2), 1e4])
    assert_allclose(slope, [0, 0.5, 1])


@pytest.mark.parametrize("center", [True, False])
def test_kernel_coordinates_reproduce_the_kernel(rng, center):
    X, new = rng.standard_normal((12, 3)), rng.standard_normal((4, 3))
    phi = fit_kernel_map(X, "rbf", {"gamma": 0.3}, center=center)
    K = kernel_matrix(np.r_[X, new], np.r_[X, new], "rbf", {"gamma": 0.3})
    F = phi(np.r_[X, new])
    D_kernel = np.diag(K)[:, None] + np.diag(K) - 2 * K
    D = ((F[:, None] - F[None]) ** 2).sum(axis=2)
    assert_allclose(D[:12, :12], D_kernel[:12, :12], atol=1e-8)
    assert np.all(D[12:, :12] <= D_kernel[12:, :12] + 1e-8)  # a new point is seen through its projection
    if center:
        assert_allclose(F[:12].mean(axis=0), 0, atol=1e-9)


def test_kernel_map_refuses_what_is_no_kernel(rng):
    X = rng.standard_normal((10, 2))
    with pytest.raises(ValueError, match="not positive semi-definite"):
        fit_kernel_map(-(X @ X.T), "precomputed")
    with pytest.raises(ValueError, match="square"):
        fit_kernel_map(X, "precomputed")
    assert fit_kernel_map(X, "linear").basis.shape[1] == 2
    assert fit_kernel_map(X, landmarks=4, rng=np.random.RandomState(0))(X).shape == (10, 4)
    assert fit_kernel_map(X, "rbf", variance=0.5).basis.shape[1] < 10
    assert default_gamma(np.ones((3, 2))) == 1.0


def test_priors(rng):
    X = rng.standard_normal((50, 3))
    assert_allclose(prior_matrix("covariance", X), np.linalg.inv(np.cov(X.T)), rtol=1e-9)
    W = random_spd(rng, 3)
    assert_allclose(prior_matrix(W, X), W)
    for bad, message in (
        (np.eye(2), "shape"),
        (np.triu(np.ones((3, 3))), "symmetric"),
        (-np.eye(3), "positive definite"),
    ):
        with pytest.raises(ValueError, match=message):
            prior_matrix(bad, X)
    with pytest.raises(ValueError, match="unknown"):
        prior_matrix("identiy", X)


@pytest.mark.parametrize("smallest", [False, True])
@pytest.mark.parametrize("spectrum", ["spread", "clustered", "equal", "rank one"])
def test_extreme_eigenpairs_are_those_of_the_whole_spectrum(spectrum, smallest):
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((30, 30)))[0]
    w = {
        "spread": np.geomspace(1e-8, 1e8, 30),
        "clustered": np.repeat([1.0, 1.0 + 1e-14, 5.0], 10),
        "equal": np.ones(30),
        "rank one": np.eye(30)[-1],
    }[spectrum]
    A = (Q * w) @ Q.T
    A = (A + A.T) / 2
    values, V = linalg.extreme_eigenpairs(A, 4, smallest=smallest)
    atol = 1e-13 * np.abs(w).max() * 30
    assert_allclose(values, np.linalg.eigvalsh(A)[:4] if smallest else np.linalg.eigvalsh(A)[-4:], atol=atol)
    assert_allclose(V.T @ V, np.eye(4), atol=1e-12)
    assert_allclose(A @ V, V * values, atol=atol)


def test_a_prior_that_is_singular_up_to_rounding_is_refused(rng):
    X = rng.standard_normal((20, 4))
    A = rng.standard_normal((4, 2))
    for prior in (A @ A.T, A @ A.T + 1e-17 * np.eye(4), np.diag([1.0, 1, 1, 1e-16])):
        with pytest.raises(ValueError, match="prior must be positive definite, but it is singular up to rounding"):
            prior_matrix(prior, X)
    assert_allclose(prior_matrix(np.diag([1.0, 1, 1, 1e-12]), X)[3, 3], 1e-12)


def test_a_singular_covariance_as_prior_says_what_was_done(rng):
    X = rng.standard_normal((20, 3))
    X = np.c_[X, X[:, 0] - X[:, 1]]
    with pytest.warns(linalg.SingularMatrixWarning, match="prior='covariance': the covariance of X is singular"):
        W = prior_matrix("covariance", X)
    C = np.cov(X.T)
    assert_allclose(W @ (C + 1e-6 * np.trace(C) / 4 * np.eye(4)), np.eye(4), atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (3, 6, 5)])
@pytest.mark.parametrize("full", [False, True])
def test_where_divide_and_conquer_fails_singular_values_are_found_by_qr(rng, monkeypatch, shape, full):
    """LAPACK's dgesdd gives up on a few finite matrices, other ones with each kernel: here it does so on all."""
    A = rng.standard_normal((*shape[:-1], 2)) @ rng.standard_normal((*shape[:-2], 2, shape[-1]))  # of rank 2
    expected = np.linalg.svd(A, full_matrices=full)

    def fails(*args, **kwargs):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(np.linalg, "svd", fails)
    U, s, Vt = linalg.svd(A, full_matrices=full)
    assert [M.shape for M in (U, s, Vt)] == [M.shape for M in expected]
    k = s.shape[-1]
    assert_allclose(s, expected[1], atol=1e-12 * s.max())
    assert_allclose((U[..., :k] * s[..., None, :]) @ Vt[..., :k, :], A, atol=1e-12 * s.max())
    assert_allclose(
        np.swapaxes(U, -1, -2) @ U, np.broadcast_to(np.eye(U.shape[-1]), (*shape[:-2], *[U.shape[-1]] * 2)), atol=1e-12
    )
    with pytest.raises(ValueError, match="infs or NaNs"):
        linalg.svd(np.full((3, 2), np.nan))
