"""χ²-LMNN: its distance, objective and map against loops, and its refusals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.neighbors import KNeighborsClassifier

import isometry
from isometry import ChiSquareLMNN
from isometry.core.distance import sqdist
from isometry.spectral.chi_square import (
    HistogramProblem,
    TripletLists,
    column_softmax,
    histograms,
    nearest,
    overlap,
    pair_chi_square,
    start,
)
from tests.differences import central_differences


def counts(n=60, d=6, seed=0):
    """Histograms of two classes that differ in how the first three bins relate; the others are noise."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    shape = np.where(y[:, None] == 0, [6.0, 2.0, 2.0], [2.0, 6.0, 2.0])
    X = np.c_[rng.gamma(shape), rng.gamma(4.0, size=(n, d - 3))]
    return X, y


def slow_chi_square(a, b):
    return 0.5 * sum((u - v) ** 2 / (u + v) for u, v in zip(a, b, strict=True) if u + v > 0)


def slow_value(L, H, y, targets, strangers, mu, margin, width):
    A, total = H @ L.T, 0.0
    for i in range(len(H)):
        for j in targets[i][targets[i] >= 0]:
            near = slow_chi_square(A[i], A[j])
            total += (1 - mu) * near
            for l in strangers[i][strangers[i] >= 0]:
                h = max(0.0, margin + near - slow_chi_square(A[i], A[l]))
                total += mu * (h * h / (2 * width) if h < width else h - width / 2)
    return total / len(H)


def test_B23a_value_and_gradient(rng):
    X, y = counts(14, 4)
    H = histograms(X)
    targets = nearest(H, y, 2, same=True)
    lists = TripletLists.of(H, y, targets)
    f, theta = HistogramProblem(H, lists, 0.4, 0.3, 0.05), rng.standard_normal((3, 4))
    value, gradient = f(theta)
    strangers = nearest(H, y, 50, same=False)
    slow = lambda theta: slow_value(column_softmax(theta), H, y, targets, strangers, 0.4, 0.3, 0.05)  # noqa: E731
    assert_allclose(value, slow(theta), rtol=1e-10)
    assert_allclose(gradient, central_differences(slow, theta), rtol=1e-5, atol=1e-8)


def test_B23b_columns_sum_to_1():
    model = ChiSquareLMNN(4, random_state=0).fit(*counts())
    assert model.components_.shape == (4, 6) and np.all(model.components_ >= 0)
    assert_allclose(model.components_.sum(axis=0), 1, rtol=1e-12)
    assert_allclose(start(4, 6).sum(axis=0), 1)
    assert np.all(start(4, 6).sum(axis=1) >= 1)


def test_B23c_the_map_makes_the_distance_euclidean():
    X, y = counts()
    model = ChiSquareLMNN(random_state=0).fit(X, y)
    A = histograms(X) @ model.components_.T
    pairs = np.array([[0, 1], [3, 9], [5, 40]])
    exact = [slow_chi_square(A[i], A[j]) for i, j in pairs]
    assert_allclose(model.chi_square(X, pairs), exact, rtol=1e-10)
    assert_allclose(model.pair_distance(X, pairs) ** 2, exact, rtol=1e-6)
    assert_allclose(1 - overlap(A[:5], A[5:9])[2, 1], slow_chi_square(A[2], A[6]), rtol=1e-10)
    assert_allclose(pair_chi_square(np.eye(3), np.array([0]), np.array([1])), 1.0)


def test_B23d_without_learning_it_is_chi_square_of_the_histograms():
    X, y = counts()
    with pytest.warns(UserWarning, match="did not converge"):
        model = ChiSquareLMNN(max_iter=0, random_state=0).fit(X, y)
    H = histograms(X) @ (0.9 * np.eye(6) + 0.1 / 6)
    train, test = np.arange(60) < 40, np.arange(60) >= 40
    D = np.array([[slow_chi_square(a, b) for b in H[train]] for a in H[test]])
    reference = KNeighborsClassifier(3, metric="precomputed").fit(np.zeros((40, 40)), y[train]).predict(D)
    Z = model.transform(X)
    assert np.array_equal(KNeighborsClassifier(3).fit(Z[train], y[train]).predict(Z[test]), reference)


def test_learning_lowers_the_objective_and_keeps_what_counts():
    X, y = counts(120, 8)
    model = ChiSquareLMNN(random_state=0).fit(X, y)
    assert model.history_[-1] < model.history_[0]
    train, test = np.arange(120) < 80, np.arange(120) >= 80
    Z, H = model.fit(X[train], y[train]).transform(X), histograms(X)
    learned = KNeighborsClassifier(3).fit(Z[train], y[train]).score(Z[test], y[test])
    assert learned >= KNeighborsClassifier(3).fit(H[train], y[train]).score(H[test], y[test])


def test_what_is_no_histogram_is_refused(tmp_path):
    X, y = counts()
    with pytest.raises(ValueError, match="Negative values in data"):
        ChiSquareLMNN().fit(X - 1, y)
    with pytest.raises(ValueError, match="row 3 of X is 0 everywhere"):
        ChiSquareLMNN().fit(np.where(np.arange(60)[:, None] == 3, 0, X), y)
    with pytest.raises(ValueError, match="n_bins=1 must be at least 2"):
        ChiSquareLMNN(1).fit(X, y)
    model = ChiSquareLMNN(random_state=0).fit(X, y)
    scaled = ChiSquareLMNN(random_state=0).fit(7 * X, y)
    assert_allclose(sqdist(model.transform(X)), sqdist(scaled.transform(7 * X)), atol=1e-7)  # signs are rounding's
    isometry.save(model, tmp_path / "chi")
    assert_allclose(isometry.load(tmp_path / "chi").transform(X), model.transform(X), rtol=0, atol=0)
    assert model.fit(X.astype(np.float32), y).transform(X.astype(np.float32)).dtype == np.float32


def test_a_map_that_collapses_is_not_kept():
    X = np.random.default_rng(0).gamma(4.0, size=(40, 5))
    with pytest.warns(UserWarning, match="the start is kept instead"):
        model = ChiSquareLMNN(mu=0.0, max_iter=3000, tol=1e-9, random_state=0).fit(X, np.arange(40) % 2)  # no hinge
    assert_allclose(model.components_, 0.9 * np.eye(5) + 0.02, atol=1e-12)
