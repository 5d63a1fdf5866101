"""LowRankGMML: a subspace and a geometric mean within it."""

import warnings

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from isometry.core.spd import definite_pair, geodesic
from isometry.geometric import GMML, LowRankGMML
from isometry.geometric.low_rank import cost, gradient, products
from isometry.moments import mean_pair_scatters
from isometry.supervision import Labels
from tests.conftest import make_blobs
from tests.oracles import riemannian_distance


def spd(d, seed):
    A = np.random.default_rng(seed).normal(size=(d, 2 * d))
    return A @ A.T / d


def orthonormal(d, p, seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0]


def slow_cost(U, S, D, objective, t=0.5):
    """Both objectives at their best B, found from B itself."""
    S, D = U.T @ S @ U, U.T @ D @ U
    if objective == "trace":
        B = geodesic(np.linalg.inv(S), D, 0.5)
        return np.trace(B @ S) + np.trace(np.linalg.inv(B) @ D)
    B = geodesic(np.linalg.inv(S), D, t)
    return (1 - t) * riemannian_distance(B, np.linalg.inv(S)) ** 2 + t * riemannian_distance(B, D) ** 2


def projector(L):
    V = sla.orth(L.T)
    return V @ V.T


@pytest.mark.parametrize("objective", ["geodesic", "trace"])
def test_M26_cost_is_the_objective_at_the_best_metric(objective):
    S, D, U = spd(5, 0), spd(5, 1), orthonormal(5, 2, 2)
    assert_allclose(cost(U, S, D, objective), slow_cost(U, S, D, objective), rtol=1e-10)
    B = geodesic(np.linalg.inv(U.T @ S @ U), U.T @ D @ U) @ sla.expm(0.01 * spd(2, 3))  # not the best B

    def with_metric(B):
        if objective == "trace":
            return np.trace(B @ U.T @ S @ U) + np.trace(np.linalg.inv(B) @ U.T @ D @ U)
        return (
            riemannian_distance(B, np.linalg.inv(U.T @ S @ U)) ** 2 / 2 + riemannian_distance(B, U.T @ D @ U) ** 2 / 2
        )

    assert with_metric((B + B.T) / 2) > cost(U, S, D, objective)


def test_M26_the_subspace_does_not_depend_on_t():
    S, D, U = spd(5, 0), spd(5, 1), orthonormal(5, 2, 2)
    for t in (0.2, 0.7):
        assert_allclose(slow_cost(U, S, D, "geodesic", t), 4 * t * (1 - t) * cost(U, S, D, "geodesic"), rtol=1e-10)


@pytest.mark.parametrize("objective", ["geodesic", "trace"])
def test_M26a_gradient_against_finite_differences(objective):
    S, D, U = spd(5, 0), spd(5, 1), orthonormal(5, 2, 2)
    G, h = gradient(U, S, D, objective), 1e-6
    for a in range(5):
        for b in range(2):
            E = np.zeros((5, 2))
            E[a, b] = h
            slope = (cost(U + E, S, D, objective) - cost(U - E, S, D, objective)) / (2 * h)
            assert_allclose(G[a, b], slope, atol=1e-7 * np.abs(G).max())
    assert_allclose(cost(U @ orthonormal(2, 2, 4), S, D, objective), cost(U, S, D, objective), rtol=1e-12)


def test_M26a_units_do_not_change_the_subspace():
    X, y = make_blobs(n=60, d=6)
    A, B = (LowRankGMML(2, tol=1e-10, strength=1.0).fit(s * X, y) for s in (1.0, 10.0))
    assert_allclose(projector(A.components_), projector(B.components_), atol=1e-6)


@pytest.mark.parametrize("t", [0.3, 0.5])
def test_M26b_full_rank_is_gmml(t):
    X, y = make_blobs()
    assert_allclose(
        LowRankGMML(4, t=t, reg=0, strength=1.0).fit(X, y).mahalanobis_,
        GMML(t=t, reg=0.0).fit(X, y).mahalanobis_,
        rtol=1e-8,
    )


def test_M26c_the_metric_divides_the_geodesic_in_the_subspace():
    X, y = make_blobs(d=5)
    model = LowRankGMML(2, t=0.3, reg=0, strength=1.0).fit(X, y)
    U = model.subspace_
    S, D = (U.T @ M @ U for M in mean_pair_scatters(X, Labels(y)))
    B = U.T @ model.mahalanobis_ @ U
    assert_allclose(U @ B @ U.T, model.mahalanobis_, atol=1e-12)
    length = riemannian_distance(np.linalg.inv(S), D)
    assert_allclose(riemannian_distance(B, np.linalg.inv(S)), 0.3 * length, rtol=1e-7)
    assert_allclose(riemannian_distance(B, D), 0.7 * length, rtol=1e-7)


@pytest.mark.parametrize("objective", ["geodesic", "trace"])
def test_M26d_descends_to_a_minimum_that_rotates_with_x(objective):
    X, y = make_blobs(n=60, d=5)
    model = LowRankGMML(2, objective=objective, reg=0, tol=1e-9, n_init=3, random_state=0, strength=1.0).fit(X, y)
    assert np.all(np.diff(model.history_) <= 0) and model.converged_
    S, D = mean_pair_scatters(X, Labels(y))
    a = 1 / np.sqrt(sla.eigvalsh(S)[-1] * sla.eigvalsh(D)[-1])

    def slow(v):  # any basis of the subspace will do: orthonormalise it
        return slow_cost(np.linalg.qr(v.reshape(5, 2))[0], a * S, a * D, objective)

    starts = [orthonormal(5, 2, seed).ravel() for seed in range(4)]
    best = min(minimize(slow, v, method="BFGS").fun for v in starts)
    assert_allclose(slow(model.subspace_.ravel()), best, rtol=1e-6)
    Q = orthonormal(5, 5, 9)
    turned = LowRankGMML(2, objective=objective, reg=0, tol=1e-9, n_init=3, random_state=0, strength=1.0).fit(
        X @ Q.T, y
    )
    assert_allclose(turned.mahalanobis_, Q @ model.mahalanobis_ @ Q.T, atol=1e-5 * np.abs(model.mahalanobis_).max())


def test_starts_agree_under_the_automatic_scale():
    X, y = make_blobs(n=60, d=6)
    projectors = [
        projector(LowRankGMML(3, init=init, tol=1e-9, random_state=1, strength=1.0).fit(X, y).components_)
        for init in ("gmml", "discriminant", "random")
    ]
    for P in projectors[1:]:
        assert_allclose(P, projectors[0], atol=1e-5)


def test_discriminant_subspace():
    X, y = make_blobs(n=60, d=6)
    S, D = mean_pair_scatters(X, Labels(y))
    V = sla.eigh(D, S)[1][:, ::-1][:, :2]
    model = LowRankGMML(2, subspace="discriminant", reg=0, strength=1.0).fit(X, y)
    assert_allclose(projector(model.components_), projector(V.T), atol=1e-8)
    assert_allclose(model.subspace_.T @ model.subspace_, np.eye(2), atol=1e-12)


def test_auto_size():
    X, y = make_blobs(n=60, d=7)
    assert LowRankGMML(strength=1.0).fit(X, y).components_.shape == (4, 7)
    assert LowRankGMML(strength=1.0).fit(X[:, :4], y).components_.shape == (3, 4)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"t": 2}, r"t=2 must lie in \[0, 1\]"),
        ({"objective": "logdet"}, "objective='logdet' is unknown"),
        ({"subspace": "pca"}, "subspace='pca' is unknown"),
        ({"init": "zeros"}, "init='zeros' is unknown"),
        ({"scale": 0}, "scale=0 must be"),
        ({"n_init": 0}, "n_init=0"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        LowRankGMML(**params, strength=1.0).fit(*make_blobs())


def test_similar_pairs_that_coincide_are_named():
    X, _ = make_blobs(n=20)
    with pytest.raises(ValueError, match="similar pairs must differ"):
        LowRankGMML(strength=1.0).fit(np.repeat(X, 2, axis=0), np.repeat(np.arange(20), 2))


def smooth_data(n=490, d=256, classes=10, seed=0):
    """Gaussian classes whose deviations fall as 1/k² along random directions."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    Z = rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y]
    return Z / np.arange(1, d + 1) ** 2 @ orthonormal(d, d, seed).T, y


@pytest.mark.parametrize("objective", ["geodesic", "trace"])
def test_products_far_below_rounding_are_still_right(objective):
    """m from 1 to 1e-20, of scatters with condition 1e10, of which any rotation knows the smallest to six digits."""
    s, U = 10.0 ** -np.arange(11), orthonormal(11, 11, 0)
    S, D = np.diag(s), np.diag(s)
    phi = np.log(s**2) ** 2 / 4 if objective == "geodesic" else 2 * s
    assert_allclose(cost(U, S, D, objective), phi.sum(), rtol=1e-5)
    assert_allclose(products(U, S, D)[0], s**2, rtol=1e-4)


def test_smooth_spectra_are_fitted_to_a_stationary_point():
    X, y = smooth_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = LowRankGMML(100, strength=1.0).fit(X, y)
    assert model.converged_ and np.isfinite(model.components_).all()
    Q, S, D = definite_pair(*mean_pair_scatters(X, Labels(y)), reg=1e-6)
    U, value = Q.T @ model.subspace_, model.history_[-1]
    a = 1 / np.sqrt(sla.eigvalsh(S)[-1] * sla.eigvalsh(D)[-1])
    assert_allclose(cost(U, a * S, a * D, "geodesic"), value, rtol=1e-6)
    G = gradient(U, a * S, a * D, "geodesic")
    assert np.linalg.norm(G - U @ (U.T @ G)) <= 1e-3 * value


def test_a_start_given_as_an_array_is_used():
    X, y = make_blobs(n=60, d=6)
    best = LowRankGMML(2, strength=1.0).fit(X, y)
    warm = LowRankGMML(2, init=3.0 * best.components_, tol=1e-4, strength=1.0).fit(X, y)
    assert warm.n_iter_ <= 2 < best.n_iter_
    assert_allclose(projector(warm.components_), projector(best.components_), atol=1e-4)
    with pytest.raises(ValueError, match=r"init has shape \(3, 6\); expected .* = \(2, 6\)"):
        LowRankGMML(2, init=np.eye(6)[:3], strength=1.0).fit(X, y)
    with pytest.raises(ValueError, match="span fewer than 2 dimensions"):
        LowRankGMML(2, init=np.ones((2, 6)), strength=1.0).fit(X, y)


def test_a_search_cut_short_says_so():
    X, y = make_blobs(n=60, d=6)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 reached"):
        model = LowRankGMML(2, init="random", random_state=0, max_iter=3, strength=1.0).fit(X, y)
    assert not model.converged_ and model.n_iter_ == 3
