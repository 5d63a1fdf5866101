"""PartialLabelGMML: candidate label sets."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import nnls

from isometry.core.linalg import SingularMatrixWarning
from isometry.core.nnls import nonnegative_minimum
from isometry.core.spd import geodesic
from isometry.geometric import GMML, PartialLabelGMML
from isometry.supervision import Candidates, Labels, Pairs
from tests.conftest import make_blobs


def candidates(y, seed=0, false=0.3):
    """One-hot labels with random false candidates."""
    Y = np.eye(y.max() + 1, dtype=bool)[y]
    return Y | (np.random.default_rng(seed).random(Y.shape) < false)


def slow_scatters(X, Y, k, lam1, lam):
    """S and D by loops and SciPy's NNLS, from the definitions."""
    X, Y, n, q = X - X.mean(axis=0), Y.astype(float), len(X), Y.shape[1]
    S, D, anchors, count = 0, 0, 0, 0
    for i in range(n):
        dist = ((X - X[i]) ** 2).sum(axis=1)
        share = Y @ Y[i] > 0
        near = [j for j in np.argsort(dist, kind="stable") if share[j] and j != i][:k]
        if not near:
            continue
        anchors += 1
        m = len(near)
        w = nnls(np.r_[Y[near].T / np.sqrt(q), np.sqrt(lam1 / m) * np.eye(m)], np.r_[Y[i] / np.sqrt(q), np.zeros(m)])[0]
        ridge = 1e-6 * (X[near] ** 2).sum() / len(near)
        v = nnls(np.r_[X[near].T, np.sqrt(ridge) * np.eye(m)], np.r_[X[i], np.zeros(m)])[0]
        w = w / w.sum() if w.sum() > 0 else np.full(m, 1 / m)
        r = X[i] - v @ X[near]
        S = S + sum(w[t] * np.outer(X[i] - X[j], X[i] - X[j]) for t, j in enumerate(near)) + lam * np.outer(r, r)
        for j in range(n):
            if not share[j] and dist[j] <= dist[near[-1]]:
                D, count = D + np.outer(X[i] - X[j], X[i] - X[j]), count + 1
    return S / anchors, D / count


@pytest.mark.parametrize("k", [1, 3, 8])
def test_M27a_batched_nnls_meets_the_kkt_conditions_and_scipy(k):
    rng = np.random.default_rng(k)
    A, c = rng.normal(size=(60, k + 2, k)), rng.normal(size=(60, k + 2))
    A[::4] *= 100
    H, b = A.transpose(0, 2, 1) @ A, np.einsum("mij,mi->mj", A, c)
    w = nonnegative_minimum(H, b)
    slope = np.einsum("mij,mj->mi", H, w) - b
    size = np.abs(b).max(axis=1, keepdims=True)
    assert w.min() >= 0 and (slope / size).min() > -1e-9 and np.abs(w * slope / size).max() < 1e-9
    assert_allclose(w, [nnls(a, v)[0] for a, v in zip(A, c, strict=True)], atol=1e-9)


def test_M27a_nnls_survives_near_singular_matrices():
    rng = np.random.default_rng(0)
    A = np.repeat(rng.normal(size=(50, 3, 1)), 6, axis=2) + 1e-3 * rng.normal(size=(50, 3, 6))
    H = A.transpose(0, 2, 1) @ A + 1e-6 * np.eye(6)
    b = np.einsum("mij,mi->mj", A, rng.normal(size=(50, 3)))
    w = nonnegative_minimum(H, b)
    slope = np.einsum("mij,mj->mi", H, w) - b
    assert w.min() >= 0 and slope.min() > -1e-9 and np.abs(w * slope).max() < 1e-6


@pytest.mark.parametrize("rare", [False, True])
def test_M27_equals_the_loops(rare):
    X, y = make_blobs()
    Y = candidates(y)
    if rare:  # classes of one and of two members, known for certain: fewer neighbours than k, or none
        Y = np.zeros((len(X), 5), dtype=bool)
        Y[:, :3] = candidates(y)
        Y[[3, 20, 30]] = np.eye(5, dtype=bool)[[3, 4, 4]]
    reg = 1e-3
    S, D = (C + reg * np.trace(C) / 4 * np.eye(4) for C in slow_scatters(X, Y, 5, 0.2, 0.3))
    W = (
        PartialLabelGMML(n_neighbors=5, weight_reg=0.2, reconstruction=0.3, t=0.4, reg=reg)
        .fit(X, Candidates(Y))
        .mahalanobis_
    )
    # with condition numbers of 1/reg at most, rounding of S and D moves W by less than 1e-16 / reg²
    assert_allclose(W, geodesic(np.linalg.inv(S), D, 0.4), rtol=0, atol=1e-9 * np.abs(W).max())


def test_M27_a_singular_scatter_gets_a_ridge_and_not_a_power_of_rounding_errors():
    """The unlike pairs span three of four dimensions: the fourth eigenvalue of D is 1e-17, its power 0.4 is 1e-7."""
    X, y = make_blobs()
    Y = candidates(y)
    D = slow_scatters(X, Y, 5, 0.2, 0.3)[1]
    assert np.linalg.matrix_rank(D, hermitian=True) < 4
    with pytest.warns(SingularMatrixWarning, match=r"a relative ridge of 0\.0001 was added"):
        bare = PartialLabelGMML(n_neighbors=5, t=1, reg=0).fit(X, Candidates(Y)).mahalanobis_
    assert_allclose(bare, D + 1e-4 * np.trace(D) / 4 * np.eye(4), rtol=0, atol=1e-12 * np.trace(D))


def test_M27b_certain_labels_are_gmml_on_the_neighbour_pairs():
    X, y = make_blobs()
    k, i, j, similar = 3, [], [], []
    for a in range(len(X)):
        dist = ((X - X[a]) ** 2).sum(axis=1)
        near = [b for b in np.argsort(dist) if y[b] == y[a] and b != a][:k]
        far = [b for b in range(len(X)) if y[b] != y[a] and dist[b] <= dist[near[-1]]]
        i, j, similar = i + [a] * (k + len(far)), j + near + far, similar + [True] * k + [False] * len(far)
    listed = GMML(reg=0.0).fit(X, Pairs(i, j, similar, n=len(X)))
    for side in (Labels(y), Candidates(np.eye(3)[y])):
        model = PartialLabelGMML(n_neighbors=k, reconstruction=0, reg=0).fit(X, side)
        assert_allclose(model.mahalanobis_, listed.mahalanobis_, rtol=1e-7)


def test_M27c_riccati():
    X, y = make_blobs()
    Y = candidates(y)
    S, D = slow_scatters(X, Y, 10, 0.1, 0.1)
    W = PartialLabelGMML(reg=0).fit(X, Candidates(Y)).mahalanobis_
    assert_allclose(W @ S @ W, D, atol=1e-6 * np.abs(D).max())


def test_M27d_a_label_that_all_share_leaves_all_pairs():
    X, y = make_blobs()
    Y = np.c_[np.eye(3, dtype=bool)[y], np.ones(len(X), dtype=bool)]
    with pytest.warns(UserWarning, match="all pairs stand in"):
        W = PartialLabelGMML(reg=0, t=1).fit(X, Candidates(Y)).mahalanobis_  # t = 1: W is D
    D = [np.outer(X[i] - X[j], X[i] - X[j]) for i in range(len(X)) for j in range(i)]
    assert_allclose(W, np.mean(D, axis=0), rtol=1e-9)


def test_M27d_far_classes_fall_back_on_the_nearest_unlike_samples():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 2)) + 100 * y[:, None]
    with pytest.warns(UserWarning, match="nearest samples without a common candidate"):
        W = PartialLabelGMML(n_neighbors=4, reg=0, t=1).fit(X, y).mahalanobis_  # t = 1: W is D
    D = []
    for a in range(40):
        dist = ((X - X[a]) ** 2).sum(axis=1)
        D += [np.outer(X[a] - X[b], X[a] - X[b]) for b in [b for b in np.argsort(dist) if y[b] != y[a]][:4]]
    assert_allclose(W, np.mean(D, axis=0), rtol=1e-9)


def test_M27_neighbours_vote_for_their_candidates():
    X, y = make_blobs(n=70)
    order = np.random.default_rng(0).permutation(70)
    X, y = X[order], y[order]
    mask, k = candidates(y), 6
    model = PartialLabelGMML(n_neighbors=k).fit(X[:50], Candidates(mask[:50]))
    Z, votes = model.transform(X), np.zeros((20, 3))
    for row in range(20):
        d = np.linalg.norm(Z[50 + row] - Z[:50], axis=1)
        near = np.argsort(d)[:k]
        for j in near:
            votes[row] += (1 - d[j] / d[near].sum()) * mask[j]
    found = model.vote_predict(X[50:], X[:50], mask[:50])
    assert np.array_equal(found, votes.argmax(axis=1))
    assert np.array_equal(found, model.vote_predict(X[50:], X[:50], Candidates(mask[:50])))
    assert np.mean(found == y[50:]) > 0.5  # of three overlapping classes
    one = PartialLabelGMML(n_neighbors=1).fit(X[:50], y[:50])
    assert np.array_equal(one.vote_predict(X[:50], X[:50], np.eye(3)[y[:50]]), y[:50])  # each its own neighbour
    with pytest.raises(ValueError, match="X_train has 50 rows but candidates has 70"):
        model.vote_predict(X[50:], X[:50], mask)


def test_false_candidates_do_little_harm():
    X, y = make_blobs(n=90)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean, noisy = (PartialLabelGMML().fit(X, Candidates(candidates(y, false=f))).mahalanobis_ for f in (0.0, 0.2))
    cosine = np.vdot(clean, noisy) / np.linalg.norm(clean) / np.linalg.norm(noisy)
    assert 0.9 < cosine < 1 - 1e-6


def test_nothing_to_learn_from_is_named():
    X, y = make_blobs()
    with pytest.raises(ValueError, match="no two samples share"):
        PartialLabelGMML().fit(X, np.arange(len(X)))
    with pytest.raises(ValueError, match="at least 2 classes"):
        PartialLabelGMML().fit(X, np.zeros(len(X)))
    with pytest.raises(TypeError, match="learns from candidates; it cannot use pairs"):
        PartialLabelGMML().fit(X, Pairs([0], [1], [True], n=len(X)))
    with pytest.raises(ValueError, match=r"t=3 must lie in \[0, 1\]"):
        PartialLabelGMML(t=3).fit(X, y)
    with pytest.raises(ValueError, match="weight_reg=0 must be positive"):
        PartialLabelGMML(weight_reg=0).fit(X, y)
