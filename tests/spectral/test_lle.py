"""LLE reconstruction weights, and the trace-ratio metric they regularise."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.manifold._locally_linear import barycenter_kneighbors_graph

from isometry.core.reconstruct import reconstruction_weights
from isometry.core.solve import trace_ratio
from isometry.spectral import LLERegularizedML, TraceRatioML
from isometry.supervision import Labels, Pairs


def problem(seed=0, n=50, d=5, classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 2 * rng.standard_normal((classes, d))[y], y


def slow_weights(X, k, reg):
    """s_i = G_i⁻¹1 / 1ᵀG_i⁻¹1, point by point."""
    n = len(X)
    S = np.zeros((n, n))
    for i in range(n):
        near = np.argsort([np.sum((X[i] - X[j]) ** 2) if j != i else np.inf for j in range(n)])[:k]
        delta = X[near] - X[i]
        G = delta @ delta.T
        w = np.linalg.solve(G + reg * np.trace(G) / k * np.eye(k), np.ones(k))
        S[i, near] = w / w.sum()
    return S


def slow_scatters(X, y):
    S, D = [], []
    for i in range(len(X)):
        for j in range(i):
            if y[i] >= 0 and y[j] >= 0:
                (S if y[i] == y[j] else D).append(np.outer(X[i] - X[j], X[i] - X[j]))
    return np.mean(S, axis=0), np.mean(D, axis=0)


@pytest.mark.parametrize("k", [3, 8])  # 8 > d: the Gram matrices are singular without their ridge
def test_M09a_weights_are_affine_and_optimal(k):
    X, _ = problem()
    S = reconstruction_weights(X, k, 1e-3)
    assert_allclose(S.toarray(), slow_weights(X, k, 1e-3), atol=1e-9)
    assert_allclose(S.sum(axis=1), 1, atol=1e-12)
    E = (np.eye(50) - S.toarray()).T @ (np.eye(50) - S.toarray())
    assert_allclose(E @ np.ones(50), 0, atol=1e-10)


def test_weights_agree_with_scikit_learn():
    X, _ = problem(1)
    # scikit-learn's ridge is reg · tr(G), ours reg · tr(G)/k
    assert_allclose(
        reconstruction_weights(X, 6, 6e-3).toarray(), barycenter_kneighbors_graph(X, 6, reg=1e-3).toarray(), atol=1e-9
    )


def test_copies_of_a_point_get_uniform_weights():
    X = np.r_[np.zeros((5, 2)), np.random.default_rng(0).standard_normal((6, 2)) + 9]
    S = reconstruction_weights(X, 4).toarray()
    assert_allclose(S[0], np.r_[0, np.full(4, 0.25), np.zeros(6)], atol=1e-15)
    assert reconstruction_weights(X[:3], 10).shape == (3, 3)  # fewer points than neighbours


@pytest.mark.parametrize("p", [1, 2, 4])
def test_M09b_without_geometry_it_is_the_trace_ratio(p):
    X, y = problem(2)
    assert_allclose(
        LLERegularizedML(p, reg=0.0).fit(X, y).mahalanobis_, TraceRatioML(p, reg=0.0).fit(X, y).mahalanobis_, atol=1e-8
    )


def test_M09c_with_geometry_alone_it_is_the_trace_ratio_of_the_reconstruction():
    X, y = problem(3)
    Xc = X - X.mean(axis=0)
    R = Xc - slow_weights(Xc, 3, 1e-3) @ Xc
    U = trace_ratio(slow_scatters(X, y)[1], R.T @ R / len(X), 2)[0].x
    fits = [LLERegularizedML(2, n_neighbors=3, reg=reg, weighting="mean").fit(X, y) for reg in (1e3, 1e5, 1e7)]
    gaps = [sla.subspace_angles(model.components_.T, U).max() for model in fits]
    assert gaps[2] < 1e-4 and gaps[0] > 10 * gaps[1] > 100 * gaps[2]  # the distance falls like 1/λ


@pytest.mark.parametrize("weighting", ["sum", "mean"])
def test_M09d_the_penalty_is_the_reconstruction_error_of_the_embedding(weighting):
    X, y = problem(4)
    model = LLERegularizedML(2, reg=0.7, weighting=weighting).fit(X, y)
    L, S = model.components_, slow_weights(X, 10, 1e-3)
    error = 0.0
    for i in range(len(X)):
        error += np.sum((L @ X[i] - sum(S[i, j] * (L @ X[j]) for j in range(len(X)))) ** 2)
    M_S, M_D = slow_scatters(X, y)
    m = len(X) if weighting == "mean" else sum(y[i] == y[j] for i in range(len(X)) for j in range(i))
    assert_allclose(model.ratio_, np.trace(L @ M_D @ L.T) / (np.trace(L @ M_S @ L.T) + 0.7 * error / m), rtol=1e-8)
    assert_allclose(L @ L.T, np.eye(2), atol=1e-12)


def test_gevp_whitens_the_denominator():
    X, y = problem(5)
    Xc = X - X.mean(axis=0)
    R = Xc - slow_weights(Xc, 10, 1e-3) @ Xc
    M_S, M_D = slow_scatters(X, y)
    C = M_S + 0.1 * R.T @ R / len(X)
    model = LLERegularizedML(2, reg=0.1, weighting="mean", algorithm="gevp").fit(X, y)
    assert_allclose(model.components_ @ C @ model.components_.T, np.eye(2), atol=1e-9)
    assert_allclose(model.ratio_, sla.eigvalsh(M_D, C)[-2:].sum(), rtol=1e-9)


def test_unlabelled_samples_count_in_the_geometry_only():
    X, y = problem(6)
    hidden = np.where(np.arange(len(y)) < 25, y, -1)
    model = LLERegularizedML(2, reg=0.5, weighting="mean").fit(X, hidden)
    Xc = X - X.mean(axis=0)
    R = Xc - slow_weights(Xc, 10, 1e-3) @ Xc
    M_S, M_D = slow_scatters(X, hidden)
    C = M_S + 0.5 * R.T @ R / len(X)
    L = model.components_
    assert_allclose(np.trace(L @ M_D @ L.T) / np.trace(L @ C @ L.T), model.ratio_, rtol=1e-8)
    assert abs(sla.eigvalsh(M_D - model.ratio_ * C)[-2:].sum()) < 1e-8 * np.linalg.norm(M_D, 2)


def test_one_sample_weighs_as_much_as_one_pair():
    """weighting="sum": as many samples as pairs is the weight of means; labels and the same pairs agree."""
    X, y = problem(7)
    side = Labels(y).to(Pairs)
    m = len(side.similar.i)
    by_sum = LLERegularizedML(2, reg=0.4).fit(X, y)
    by_mean = LLERegularizedML(2, reg=0.4 * len(X) / m, weighting="mean").fit(X, y)
    assert m != len(X)
    assert_allclose(by_sum.mahalanobis_, by_mean.mahalanobis_, atol=1e-10)
    assert_allclose(LLERegularizedML(2, reg=0.4).fit(X, side).mahalanobis_, by_sum.mahalanobis_, atol=1e-10)


@pytest.mark.parametrize(
    "params, word",
    [
        ({"algorithm": "qz"}, "algorithm='qz'"),
        ({"weighting": "max"}, "weighting='max' is unknown"),
        ({"reg": -1}, "reg=-1"),
        ({"n_neighbors": 0}, "at least"),
    ],
)
def test_wrong_parameters_are_named(params, word):
    with pytest.raises(ValueError, match=word):
        LLERegularizedML(**params).fit(*problem())
