"""OASIS against its step written out, and the laws it must obey."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import OASIS, Labels, RandomComparisons, Triplets
from isometry.core.linalg import sym_fn
from tests.conftest import make_blobs


def given(m=60, seed=0):
    X, y = make_blobs(seed=seed)
    return X, RandomComparisons(m).draw(X, Labels(y), np.random.RandomState(seed))


def cut(t, rows, n):
    return Triplets(t.a[rows], t.p[rows], t.n[rows], n_samples=n)


def peer(X, triplets, C, W=None):
    """The passive-aggressive step as the branch of metric-learn writes it."""
    W = np.eye(X.shape[1]) if W is None else W
    for a, p, n in zip(triplets.a, triplets.p, triplets.n, strict=True):
        loss = max(0.0, 1 - X[a] @ W @ X[p] + X[a] @ W @ X[n])
        V = np.outer(X[a], X[p] - X[n])
        norm = np.linalg.norm(V, "fro") ** 2
        if loss > 0 and norm > 0:
            W = W + min(C, loss / norm) * V
    return W


def unit_rows(X):
    X = X - X.mean(axis=0)
    return X / np.sqrt(np.mean(np.sum(X**2, axis=1)))


def test_B20a_a_long_step_leaves_no_loss():
    X, t = given(1)
    model = OASIS(C=1e9).fit(X, t)
    s = model.score_pairs(X, np.array([[t.a[0], t.p[0]], [t.a[0], t.n[0]]]))
    assert_allclose(s[0] - s[1], 1, rtol=1e-10)


def test_B20b_chunks_are_one_pass():
    X, t = given()
    whole = OASIS().fit(X, t)
    parts = OASIS()
    for rows in np.array_split(np.arange(60), 4):
        parts.partial_fit(X, cut(t, rows, len(X)))
    assert_allclose(parts.bilinear_, whole.bilinear_, rtol=1e-12)
    assert_allclose(parts.components_, whole.components_, rtol=1e-9)
    other = OASIS().fit(X, cut(t, np.arange(60)[::-1], len(X)))
    assert np.abs(other.bilinear_ - whole.bilinear_).max() > 1e-3  # the order counts


def test_B20c_equals_the_step_of_the_peer():
    X, t = given(200)
    model = OASIS(C=0.1).fit(X, t)
    assert_allclose(model.bilinear_, peer(unit_rows(X), t, 0.1), atol=1e-12)
    pairs = np.array([[0, 5], [7, 3]])
    U = unit_rows(X)
    assert_allclose(model.score_pairs(X, pairs), [U[i] @ model.bilinear_ @ U[j] for i, j in pairs], rtol=1e-10)


def test_B20d_increments_of_rank_one_add_up():
    X, t = given(30)
    W, total = np.eye(4), np.eye(4)
    for r in range(30):
        step = peer(unit_rows(X), cut(t, [r], len(X)), 0.1, W) - W
        assert np.linalg.matrix_rank(step, tol=1e-12) <= 1
        W, total = W + step, total + step
    assert_allclose(OASIS(C=0.1).fit(X, t).bilinear_, total, atol=1e-12)


def test_the_map_is_that_of_the_positive_part():
    X, y = make_blobs()
    model = OASIS(C=1.0, random_state=0, n_iter=500).fit(X, y)
    W = (model.bilinear_ + model.bilinear_.T) / 2
    positive = sym_fn(W, lambda w: np.maximum(w, 0))
    assert np.linalg.eigvalsh(W)[0] < 0
    assert_allclose(model.mahalanobis_ * model.unit_**2, positive, atol=1e-9)
    projected = OASIS(C=1.0, random_state=0, n_iter=2000, project=True).fit(X, y)
    assert_allclose(projected.bilinear_, projected.bilinear_.T, atol=1e-12)
    assert np.linalg.eigvalsh(projected.bilinear_)[0] > -1e-12


def test_what_cannot_be_learned_from_is_skipped():
    X = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [-1.0, -1.0]])  # row 0 is the mean
    t = Triplets([0, 1], [1, 3], [3, 4], n_samples=5)
    assert_allclose(OASIS().fit(X, t).bilinear_, np.eye(2))
    with pytest.raises(ValueError, match="nothing to compare"):
        OASIS().fit(X, Triplets([], [], [], n_samples=5))


def test_a_weight_is_a_repetition():
    X, t = given(20)
    rows = np.repeat(np.arange(20), 2)
    twice = Triplets(t.a, t.p, t.n, n_samples=len(X), weight=np.full(20, 2.0))
    assert_allclose(OASIS().fit(X, twice).bilinear_, OASIS().fit(X, cut(t, rows, len(X))).bilinear_, atol=1e-12)
    none = Triplets(t.a, t.p, t.n, n_samples=len(X), weight=np.zeros(20))
    assert_allclose(OASIS().fit(X, none).bilinear_, np.eye(4))


def test_units_do_not_matter():
    X, t = given()
    A, B = OASIS().fit(X, t), OASIS().fit(1e5 * X + 7, t)
    assert_allclose(A.bilinear_, B.bilinear_, atol=1e-9)
