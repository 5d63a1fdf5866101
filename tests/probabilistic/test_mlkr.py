"""MLKR against metric-learn's formula, finite differences, and planted regressions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import MLKR, Labels, Targets
from isometry.core.edges import DenseEdges
from isometry.core.solve import lbfgs
from isometry.probabilistic.mlkr import regression_loss


def peer_loss(A, X, y):
    """metric-learn's ``_loss`` typed in: Σ_i |y_i − ŷ_i|² and its gradient, for one target."""
    Z = X @ A.T
    D = np.sum((Z[:, None] - Z[None]) ** 2, axis=2)
    np.fill_diagonal(D, np.inf)
    softmax = np.exp(-D - np.max(-D, axis=1, keepdims=True))
    softmax /= softmax.sum(axis=1, keepdims=True)
    yhat = softmax @ y
    ydiff = yhat - y
    W = softmax * ydiff[:, None] * (y - yhat[:, None])
    S = W + W.T
    np.fill_diagonal(S, -S.sum(axis=0))
    return np.sum(ydiff**2), 4 * (Z.T @ S @ X)


def regression(n=60, d=4, seed=0, q=1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    Y = np.column_stack([np.sin(2 * X[:, k]) + 0.1 * rng.standard_normal(n) for k in range(q)])
    return X, Y


def standard(y):
    return (y - y.mean(axis=0)) / y.std(axis=0)


def test_B02a_value_and_gradient_are_those_of_metric_learn():
    X, Y = regression()
    X, y = X - X.mean(axis=0), standard(Y[:, 0])
    L = np.random.default_rng(1).standard_normal((2, 4))
    objective = MLKR(reg=0.0, strength=1.0)._objective(X, Targets(Y), None)
    value, gradient = objective(L)
    expected, slope = peer_loss(L, X, y)
    assert_allclose(value, expected / 60, rtol=1e-12)
    assert_allclose(gradient, slope / 60, rtol=1e-9, atol=1e-12)


def test_B02a_no_higher_than_the_peer():
    X, Y = regression(seed=3)
    X, y = X - X.mean(axis=0), standard(Y[:, 0])
    theirs = lbfgs(lambda A: peer_loss(A, X, y), np.eye(4), max_iter=1000, tol=1e-4).x  # as it does, from PCA unscaled
    ours = MLKR(reg=0.0, max_iter=1000, strength=1.0).fit(X, y).components_
    assert peer_loss(ours, X, y)[0] / 60 <= peer_loss(theirs, X, y)[0] / 60 + 1e-3


@pytest.mark.parametrize("q", [1, 3])
def test_B02b_finite_differences(numeric_gradient, q):
    X, Y = regression(n=20, q=q)
    objective = MLKR(reg=0.1, strength=1.0)._objective(X - X.mean(axis=0), Targets(Y), None)
    L = np.random.default_rng(0).standard_normal((3, 4))
    assert_allclose(objective(L)[1], numeric_gradient(lambda L: objective(L)[0], L), rtol=1e-6, atol=1e-8)


def test_B02c_shift_and_unit_of_the_targets_do_not_matter():
    X, Y = regression(q=2)
    A, B = MLKR(tol=1e-6, strength=1.0).fit(X, Y), MLKR(tol=1e-6, strength=1.0).fit(X, Y * [1e3, 1e-3] + [5, -7])
    assert_allclose(A.mahalanobis_, B.mahalanobis_, atol=1e-5 * np.abs(A.mahalanobis_).max())
    with_constant = MLKR(tol=1e-6, strength=1.0).fit(X, np.c_[Y, np.full(60, 3.0)])
    assert_allclose(A.mahalanobis_, with_constant.mahalanobis_, atol=1e-5 * np.abs(A.mahalanobis_).max())
    units = MLKR(tol=1e-6, strength=1.0).fit(100 * X, Y)
    assert_allclose(A.mahalanobis_, 1e4 * units.mahalanobis_, atol=1e-4 * np.abs(A.mahalanobis_).max())


def test_B02d_finds_the_one_feature_that_counts():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 10))
    model = MLKR(random_state=0, strength=1.0).fit(X, np.sin(2 * X[:, 0]))
    row = model.components_[0]
    assert abs(row[0]) / np.linalg.norm(row) > 0.95
    new = rng.standard_normal((100, 10))
    predicted = model.kernel_predict(new, X, np.sin(2 * X[:, 0]))
    assert np.corrcoef(predicted, np.sin(2 * new[:, 0]))[0, 1] > 0.9


def test_prediction_is_kernel_regression():
    X, Y = regression(n=30, q=2)
    model = MLKR(strength=1.0).fit(X, Y)
    Z, z = model.transform(X), model.transform(X[:1] + 0.3)
    p = np.exp(-np.sum((Z - z) ** 2, axis=1))
    assert_allclose(model.kernel_predict(X[:1] + 0.3, X, Y), [p @ Y / p.sum()], rtol=1e-9)
    assert model.kernel_predict(X[:3], X, Y[:, 0]).shape == (3,)
    with pytest.raises(ValueError, match="X_train has 30 rows but y_train has 29"):
        model.kernel_predict(X, X, Y[:29])


def test_labels_become_columns_and_far_points_stay_finite(overlapping):
    X, y = overlapping()
    model = MLKR(tol=1e-6, strength=1.0).fit(X, Labels(y))
    other = MLKR(tol=1e-6, strength=1.0).fit(X, np.eye(3)[y])
    assert_allclose(model.mahalanobis_, other.mahalanobis_, rtol=1e-6, atol=1e-9)
    value, pull = DenseEdges(4).evaluate(1e3 * np.arange(4.0)[:, None], regression_loss(np.arange(4.0)[:, None]))
    assert np.isfinite(value) and np.isfinite(pull).all()
    with pytest.raises(ValueError, match="constant"):
        MLKR(strength=1.0).fit(X, np.full(len(X), 2.0))
    with pytest.raises(ValueError, match="missing or infinite"):
        MLKR(strength=1.0).fit(X, np.where(np.arange(len(X)) == 1, np.nan, 1.0 * y))


def test_batches_come_near():
    X, Y = regression(n=150)
    whole, parts = (MLKR(2, random_state=0, batch_size=b, strength=1.0).fit(X, Y) for b in (None, 30))
    W, V = whole.mahalanobis_, parts.mahalanobis_
    assert np.vdot(W, V) / np.linalg.norm(W) / np.linalg.norm(V) > 0.9
