"""NCM against its equation in loops, NCA, discriminant analysis, and the laws it must obey."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry import NCM, Labels
from isometry.core.centroids import centroids, class_centroids
from isometry.core.edges import DenseEdges
from isometry.probabilistic.nca import log_loss, same_class
from isometry.probabilistic.ncm import centroid_likelihood, class_loss


def slow_value(L, X, y, mu, classes, reg):
    total = 0.0
    for x, label in zip(X, y, strict=True):
        e = np.array([np.exp(-np.sum((L @ (x - m)) ** 2) / 2) for m in mu])
        total -= np.log(e[classes == label].sum() / e.sum())
    return total / len(X) + reg * np.mean(np.var(X, axis=0)) * np.sum(L**2)


@pytest.mark.parametrize("k, reg", [(1, 0.0), (3, 0.1)])
def test_B10a_value_and_finite_differences(overlapping, numeric_gradient, k, reg):
    X, y = overlapping()
    X = X - X.mean(axis=0)
    mu, classes = class_centroids(X, y, k, 0)
    L = np.random.default_rng(0).standard_normal((2, 4))
    objective = centroid_likelihood(X, y, mu, classes, reg)
    value, gradient = objective(L)
    assert_allclose(value, slow_value(L, X, y, mu, classes, reg), rtol=1e-12)
    assert_allclose(
        gradient, numeric_gradient(lambda L: slow_value(L, X, y, mu, classes, reg), L), rtol=1e-6, atol=1e-8
    )


def test_B10b_every_point_a_centroid_is_NCA(overlapping):
    """Its own centroid excluded by hand, and distances halved."""
    y = overlapping(sizes=(6, 5, 4))[1]
    Z = np.random.default_rng(0).standard_normal((15, 3))
    reference, _ = DenseEdges(15).evaluate(Z, log_loss(same_class(Labels(y)), np.zeros(15, dtype=bool)))
    D = 2 * np.sum((Z[:, None] - Z[None]) ** 2, axis=2)  # the likelihood takes half of it
    total = sum(
        class_loss(y[i : i + 1], np.delete(y, i))(np.delete(D[i : i + 1], i, axis=1), slice(None))[0] for i in range(15)
    )
    assert_allclose(total / 15, reference, rtol=1e-10)


def test_B10c_gaussian_classes_give_the_metric_of_discriminant_analysis():
    rng = np.random.default_rng(0)
    A, means = rng.standard_normal((3, 3)), 0.7 * rng.standard_normal((3, 3))
    y = np.repeat(np.arange(3), 7000)
    X = rng.standard_normal((21_000, 3)) @ A.T + means[y]
    model = NCM(n_centroids=1, reg=0.0, tol=1e-7, max_iter=500, strength=1.0).fit(X, y)
    M = np.array([X[y == c].mean(axis=0) for c in range(3)])
    S = np.mean([np.cov(X[y == c], rowvar=False) for c in range(3)], axis=0)
    for a, b in ((0, 1), (1, 2)):
        delta = M[a] - M[b]
        expected = sla.solve(S, delta)
        assert np.linalg.norm(model.mahalanobis_ @ delta - expected) < 0.06 * np.linalg.norm(expected)


def test_B10d_names_of_labels_do_not_matter(overlapping):
    X, y = overlapping()
    A, B = (NCM(random_state=0, tol=1e-7, max_iter=500, strength=1.0).fit(X, v) for v in (y, np.array([5, -1, 2])[y]))
    assert_allclose(A.mahalanobis_, B.mahalanobis_, atol=1e-4 * np.abs(A.mahalanobis_).max())


def test_B10e_discriminant_analysis_reaches_no_lower_value(overlapping):
    X, y = overlapping(sizes=(40, 30, 20))
    X = X - X.mean(axis=0)
    model = NCM(2, n_centroids=1, tol=1e-7, max_iter=500, strength=1.0).fit(X, y)
    objective = centroid_likelihood(X, y, *class_centroids(X, y, 1, 0), 1e-2)
    L = LinearDiscriminantAnalysis().fit(X, y).scalings_.T[:2]
    others = [objective(scale * L)[0] for scale in (0.3, 0.6, 1.0, 1.5)]
    assert objective(model.components_)[0] < min(others)


def test_predictions_are_of_the_nearest_centroid(overlapping):
    X, y = overlapping(sizes=(30, 20, 10), spread=4.0)
    names = np.array(["oak", "ash", "elm"])[y]
    model = NCM(random_state=0, strength=1.0).fit(X, names)
    assert np.mean(model.predict(X) == names) > 0.95
    P = model.predict_proba(X)
    assert_allclose(P.sum(axis=1), 1, rtol=1e-12)
    assert np.mean(np.unique(names)[P.argmax(axis=1)] == names) > 0.95
    Z, M = model.transform(X[:1]), model.transform(model.centroids_)
    e = np.exp(-np.sum((Z - M) ** 2, axis=1) / 2)
    assert_allclose(P[0], [e[model.centroid_classes_ == c].sum() / e.sum() for c in ("ash", "elm", "oak")], rtol=1e-9)
    assert len(model.centroids_) == 15


def test_batches_come_near(overlapping):
    X, y = overlapping(sizes=(60, 50, 40))
    whole, parts = (NCM(random_state=0, batch_size=b, strength=1.0).fit(X, y) for b in (None, 30))
    W, V = whole.mahalanobis_, parts.mahalanobis_
    assert np.vdot(W, V) / np.linalg.norm(W) / np.linalg.norm(V) > 0.9


def test_centroids_do_not_depend_on_order_or_rotation(rng):
    X = rng.standard_normal((40, 3))
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    A, B = centroids(X, 4, 0), centroids(X[rng.permutation(40)] @ Q, 4, 0) @ Q.T
    assert_allclose(A[np.argsort(A[:, 0])], B[np.argsort(B[:, 0])], atol=1e-8)
    assert len(centroids(np.zeros((5, 2)), 3, 0)) == 1
    assert len(centroids(X[:3], 5, 0)) == 3
