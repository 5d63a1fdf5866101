"""Proof tests of the scatters of near pairs (S3), and of B01 (LFDA), B07 (ANMM), B08 (MFA) and B09 (DMLMJ)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry import ANMM, DMLMJ, LFDA, MFA, Labels, Pairs
from isometry.core.distance import sqdist
from isometry.core.scatter import neighbor_scatters
from isometry.moments import mean_pair_scatters
from isometry.spectral import lfda
from isometry.spectral.mfa import shortest_of_each_class
from tests.conftest import make_blobs


@pytest.fixture
def data():
    return make_blobs(n=60, d=4, seed=3)


def cosines(A, B):
    """Cosines of the angles between two row spaces."""
    return np.linalg.svd(np.linalg.qr(A.T)[0].T @ np.linalg.qr(B.T)[0], compute_uv=False)


def equal_classes(seed=0, n_classes=3, per_class=20, d=4):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    mix = rng.standard_normal((d, d)) + np.eye(d)
    return rng.standard_normal((len(y), d)) @ mix + 2 * rng.standard_normal((n_classes, d))[y], y


# ---- S3 ----


def slow_neighbor_scatters(X, y, k_same, k_other):
    n, d = X.shape
    S = [np.zeros((d, d)), np.zeros((d, d))]
    for i in range(n):
        for kind, k in ((0, k_same), (1, k_other)):
            partners = [j for j in range(n) if j != i and (y[j] == y[i]) == (kind == 0)]
            partners = sorted(partners, key=lambda j: np.sum((X[i] - X[j]) ** 2))[:k]
            for j in partners:
                S[kind] += np.outer(X[i] - X[j], X[i] - X[j]) / (n * len(partners))
    return S


@pytest.mark.parametrize("k_same, k_other", [(1, 1), (3, 7), (100, 100)])
def test_S3_by_loops(data, k_same, k_other):
    X, y = data
    y = np.where(np.arange(60) == 0, 9, y)  # a class of one adds nothing to S_w
    for got, expected in zip(neighbor_scatters(X, y, k_same, k_other), slow_neighbor_scatters(X, y, k_same, k_other)):
        assert_allclose(got, expected, rtol=1e-9)


# ---- B01 ----


def slow_lfda(X, y, k):
    """S_lw and S_lb by their double sums."""
    n, d = X.shape
    D, sigma = sqdist(X), np.zeros(n)
    for i in range(n):
        mates = np.sort(np.sqrt(D[i, (y == y[i]) & (np.arange(n) != i)]))
        sigma[i] = mates[min(k, len(mates)) - 1] if len(mates) else 0
    S_w, S_b = np.zeros((d, d)), np.zeros((d, d))
    for i in range(n):
        for j in range(n):
            zz = np.outer(X[i] - X[j], X[i] - X[j]) / 2
            n_c = np.sum(y == y[i])
            if y[i] != y[j]:
                S_b += zz / n
            elif i != j:
                A = np.exp(-D[i, j] / (sigma[i] * sigma[j]))
                S_w, S_b = S_w + A / n_c * zz, S_b + A * (1 / n - 1 / n_c) * zz
    return S_w, S_b


@pytest.mark.parametrize("at_once", [0, 2_000])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_B01b_scatters_are_the_double_sums(k, at_once, monkeypatch):
    monkeypatch.setattr(lfda, "AT_ONCE", at_once)
    X, y = make_blobs(n=40)
    S_w, S_b = slow_lfda(X, y, k)
    S_lw, S_lm = lfda.local_scatters(X, y, k)
    assert_allclose(S_lw, S_w, rtol=1e-9, atol=1e-12)
    assert_allclose(S_lm - S_lw, S_b, rtol=0, atol=1e-9 * np.abs(S_b).max())
    assert np.linalg.eigvalsh(S_lm)[0] >= 0


def test_B01a_equal_affinities_give_the_scatters_of_lda(data, monkeypatch):
    X, y = data
    monkeypatch.setattr(lfda, "affinity", lambda d, product, duplicate: np.ones_like(d))
    S_lw, S_lm = lfda.local_scatters(X, y, 3)
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    R, M = X - means[y], means - X.mean(axis=0)
    assert_allclose(S_lw, R.T @ R, rtol=1e-9)
    assert_allclose(S_lm - S_lw, M.T @ (M * np.bincount(y)[:, None]), rtol=1e-8, atol=1e-9)


def test_B01c_affine_maps_do_not_matter_where_affinities_are_given(data, monkeypatch, rng):
    X, y = data
    monkeypatch.setattr(lfda, "affinity", lambda d, product, duplicate: np.ones_like(d))
    T = rng.standard_normal((4, 4)) + 2 * np.eye(4)
    D = sqdist(LFDA(2, reg=0).fit_transform(X, y))
    assert_allclose(sqdist(LFDA(2, reg=0).fit_transform(X @ T.T + 3, y)), D, atol=1e-8 * D.max())


def test_B01d_full_weight_of_all_samples_is_pca(data):
    X, y = data
    L = LFDA(2, beta=1, embedding="plain", reg=1e-3).fit(X, y).components_
    assert_allclose(cosines(L, np.linalg.eigh(np.cov(X.T))[1][:, -2:].T), 1, atol=1e-10)
    assert_allclose(L @ L.T, L[0] @ L[0] * np.eye(2), atol=1e-12)
    labels = Labels(np.where(np.arange(60) % 3, y, -1), unlabelled=-1)
    some = LFDA(2, beta=1, embedding="plain", reg=1e-3).fit(X, labels).components_
    assert_allclose(cosines(some, L), 1, atol=1e-10)  # rows without a label count


@pytest.mark.parametrize("p", [1, 2, 3])
def test_B01e_oracle_generalised_eigenvectors_of_the_two_scatters(p):
    """As the R package solves it: S_lb v = λ S_lw v, eigenvectors plain, weighted by √λ, or made orthonormal."""
    X, y = make_blobs(n=50, d=4, seed=1)
    S_w, S_b = slow_lfda(X, y, 7)
    lam, V = sla.eigh(S_b, S_w)
    lam, V = lam[::-1][:p], V[:, ::-1][:, :p]
    assert np.all(lam > 0)
    plain, weighted, flat = (LFDA(p, reg=0, embedding=e).fit(X, y) for e in ("plain", "weighted", "orthonormal"))
    assert_allclose(plain.mahalanobis_, V @ V.T, rtol=1e-7, atol=1e-9)
    assert_allclose(weighted.mahalanobis_, (V * lam) @ V.T, rtol=1e-7, atol=1e-9)
    assert_allclose(weighted.eigenvalues_, lam, rtol=1e-8)
    assert_allclose(cosines(flat.components_, V.T), 1, atol=1e-7)
    assert_allclose(flat.components_ @ flat.components_.T, np.eye(p), atol=1e-10)


def test_B01_only_positive_eigenvalues_are_kept():
    X, y = make_blobs(n=50, d=4, seed=1)
    S_w, S_b = slow_lfda(X, y, 7)
    lam = sla.eigvalsh(S_b, S_w)
    learner = LFDA(reg=0).fit(X, y)
    assert len(learner.components_) == np.sum(lam > 0) and np.all(learner.eigenvalues_ > 0)


def test_B01_duplicates_and_classes_of_one_member():
    X, y = make_blobs(n=40)
    X, y = np.r_[X, np.repeat(X[:1], 12, axis=0), X[-1:] + 1], np.r_[y, np.repeat(y[:1], 12), 9]
    S_lw, S_lm = lfda.local_scatters(X, y, 7)
    assert np.isfinite(S_lw).all() and np.linalg.eigvalsh(S_lm)[0] > -1e-9
    pull = lfda.affinity_pull(np.array([[0.0], [0.0], [2.0]]), 1)  # two duplicates and a third sample
    assert_allclose(pull, 0, atol=1e-15)


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("embedding", ["plain", "weighted"])
def test_B01_directions_in_which_no_samples_differ_are_not_learned(data, beta, embedding):
    """With a share of all samples, S_w is definite there as well, and λ is 0 but for rounding."""
    X, y = data
    wide = np.column_stack([X, X @ np.ones((4, 3)), X[:, 0] - X[:, 1]])
    components = LFDA(reg=1e-3, beta=beta, embedding=embedding).fit(wide, y).components_
    assert len(components) <= 4
    basis = np.linalg.svd(wide - wide.mean(axis=0))[2][:4]
    assert_allclose(components @ basis.T @ basis, components, rtol=0, atol=1e-7 * np.abs(components).max())


@pytest.mark.parametrize("reg", [0.0, 1e-3, "auto"])
@pytest.mark.parametrize(("n", "rank"), [(60, 4), (12, 11)])
def test_B01_more_dimensions_than_the_samples_span_are_those_they_span(n, rank, reg, rng):
    """Features that depend on one another, and fewer samples than features."""
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, 20))
    y = np.arange(n) % 3
    most = len(LFDA(rank, reg=reg).fit(X, y).components_)
    assert most <= rank and len(LFDA(18, reg=reg).fit(X, y).components_) == most


def test_B01_large_classes_use_near_samples_only(monkeypatch):
    X, y = make_blobs(n=60)
    whole = LFDA(reg=1e-3).fit(X, y).mahalanobis_
    monkeypatch.setattr(lfda, "DENSE_UP_TO", 10)
    monkeypatch.setattr(lfda, "NEAREST", int(np.bincount(y).min()) - 1)
    assert np.bincount(y).min() > 11
    near = LFDA(reg=1e-3).fit(X, y).mahalanobis_
    assert 0 < np.abs(near - whole).max() < 0.2 * np.abs(whole).max()
    X, y = X[y == 0], y[y == 0]
    near = lfda.affinity_pull(X, 7)
    monkeypatch.setattr(lfda, "DENSE_UP_TO", 1000)
    monkeypatch.undo()
    dense = lfda.affinity_pull(X, 7)
    assert_allclose(near, dense, rtol=1e-9, atol=1e-12 * np.abs(dense).max())  # all others are near


def test_B01_samples_without_a_label_help_self():
    """Two long clusters, one label in each quarter; the direction of the clusters is seen in all samples."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    X = np.c_[4.0 * y + 0.5 * rng.standard_normal(400), 0.5 * rng.standard_normal(400)]
    labels = np.where(np.arange(400) % 67 == 0, y, -1)
    labels[:3] = 0
    labels[-3:] = 1
    learner = LFDA(1, beta=0.5, reg=1e-3).fit(X, labels)
    direction = learner.components_[0] / np.linalg.norm(learner.components_[0])
    assert abs(direction[0]) > 0.99


# ---- B07 ----


def test_B07a_oracle_eigenvectors_of_the_slow_scatters(data):
    X, y = data
    S_w, S_b = slow_neighbor_scatters(X, y, 5, 5)
    lam, U = np.linalg.eigh(S_b - S_w)
    learner = ANMM(reg=0.0).fit(X, y)
    n_positive = np.sum(lam > 0)
    assert 0 < n_positive < 4
    assert_allclose(learner.mahalanobis_, U[:, lam > 0] @ U[:, lam > 0].T, atol=1e-9)
    assert_allclose(learner.eigenvalues_, lam[::-1][:n_positive], rtol=1e-8)


def test_B07b_with_all_neighbours_it_follows_from_class_moments(data):
    """Weights 1/(n_c − 1) of pairs inside a class and 1/(n − n_c) of those to others, for each of the two samples."""
    X, y = data
    n, sizes = len(X), np.bincount(y)
    S_w = S_b = 0
    for c in range(3):
        inside, outside = X[y == c], X[y != c]
        S_w = S_w + 2 * sizes[c] * np.cov(inside.T, ddof=0) * sizes[c] / (n * (sizes[c] - 1))
        gap = inside.mean(axis=0) - outside.mean(axis=0)
        spread = np.cov(inside.T, ddof=0) + np.cov(outside.T, ddof=0) + np.outer(gap, gap)
        S_b = S_b + sizes[c] * spread / n
    got = neighbor_scatters(X, y, n, n)
    assert_allclose(got[0], S_w, rtol=1e-9)
    assert_allclose(got[1], S_b, rtol=1e-9)
    lam, U = np.linalg.eigh(S_b - S_w)
    assert_allclose(cosines(ANMM(2, n_neighbors=n, reg=0.0).fit(X, y).components_, U[:, -2:].T), 1, atol=1e-9)
    assert lam[-1] > lam[-3]


def test_B07c_turns_with_the_features(data, rng):
    X, y = data
    R = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    a, b = ANMM(2, reg=0.0).fit(X, y).mahalanobis_, ANMM(2, reg=0.0).fit(X @ R.T, y).mahalanobis_
    assert_allclose(R @ a @ R.T, b, atol=1e-9)


def test_B07d_all_directions_are_a_rotation_and_that_is_said(data):
    X, y = data
    with pytest.warns(UserWarning, match="the map is a rotation and the metric Euclidean"):
        learner = ANMM(4, reg=0.0).fit(X, y)
    assert_allclose(learner.mahalanobis_, np.eye(4), atol=1e-10)


def test_B07_no_positive_margin_keeps_one_direction_and_says_so():
    X = np.array([[0.0], [10.0], [0.1], [10.1]])
    with pytest.warns(UserWarning, match="separate locally in no direction"):
        assert ANMM(reg=0.0).fit(X, [0, 0, 1, 1]).components_.shape == (1, 1)


# ---- B08 ----


@pytest.mark.parametrize("margin", ["sample", "class"])
def test_B08a_with_all_neighbours_it_is_lda_for_equal_classes(margin):
    X, y = equal_classes()
    learner = MFA(n_neighbors=60, n_misses=10_000, margin=margin, reg=0).fit(X, y)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, :2].T
    assert learner.components_.shape == (2, 4)  # the rule λ > 1 finds c − 1
    assert_allclose(cosines(learner.components_, lda), 1, atol=1e-9)


def test_B08b_affine_maps_given_the_graph():
    """With all neighbours there is one graph, whatever the distances."""
    X, y = make_blobs(n=50)
    T = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    options = {"n_neighbors": 50, "n_misses": 50, "reg": 0}
    D = sqdist(MFA(2, **options).fit_transform(X, y))
    assert_allclose(sqdist(MFA(2, **options).fit_transform(X @ T.T + 1, y)), D, atol=1e-8 * D.max())


def slow_mfa(X, y, k, misses):
    D, n = sqdist(X), len(X)
    edges = [set(), set()]
    for i in range(n):
        for kind, m in ((0, k), (1, misses)):
            partners = [j for j in range(n) if j != i and (y[j] == y[i]) == (kind == 0)]
            edges[kind] |= {(min(i, j), max(i, j)) for j in sorted(partners, key=lambda j: D[i, j])[:m]}
    return [sum(np.outer(X[i] - X[j], X[i] - X[j]) for i, j in e) / len(e) for e in edges]


def test_B08c_eigenvalues_by_loops_and_swapped_scatters_invert_them(data):
    X, y = data
    S_w, S_b = slow_mfa(X, y, 5, 20)
    lam, V = sla.eigh(S_b, S_w)
    above = lam > 1
    learner = MFA(reg=0).fit(X, y)
    assert_allclose(learner.eigenvalues_, lam[above][::-1], rtol=1e-9)
    assert_allclose(learner.mahalanobis_, V[:, above] @ V[:, above].T, rtol=1e-7, atol=1e-10)
    assert_allclose(sla.eigvalsh(S_w, S_b), 1 / lam[::-1], rtol=1e-8)


def test_B08_shortest_pairs_of_each_class(data):
    X, y = data
    i, j = np.nonzero(np.triu(y[:, None] != y))
    got = set(zip(*(part.tolist() for part in shortest_of_each_class(X, y, i, j, 4)), strict=True))
    D = sqdist(X)
    expected = set()
    for c in range(3):
        of_class = [(a, b) for a, b in zip(i.tolist(), j.tolist()) if c in (y[a], y[b])]
        expected |= set(sorted(of_class, key=lambda e: D[e])[:4])
    assert got == expected


# ---- B09 ----


def jeffrey(S, D):
    """KL(P ‖ Q) + KL(Q ‖ P) of zero-mean Gaussians."""
    return (np.trace(np.linalg.solve(D, S)) + np.trace(np.linalg.solve(S, D))) / 2 - len(S)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_B09a_the_divergence_is_the_sum_over_eigenvalues(data, p):
    X, y = data
    S, D = slow_neighbor_scatters(X, y, 5, 5)
    learner = DMLMJ(p, reg=0).fit(X, y)
    V = learner.components_.T
    lam = learner.eigenvalues_
    assert_allclose(jeffrey(V.T @ S @ V, V.T @ D @ V), np.sum(lam + 1 / lam) / 2 - p, rtol=1e-10)
    assert_allclose(V.T @ S @ V, np.eye(p), atol=1e-10)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_B09b_no_other_directions_have_a_larger_divergence(data, p, rng):
    X, y = data
    S, D = slow_neighbor_scatters(X, y, 5, 5)
    V = DMLMJ(p, reg=0).fit(X, y).components_.T
    best = jeffrey(V.T @ S @ V, V.T @ D @ V)
    lam = sla.eigvalsh(D, S)
    gains = np.sort((lam + 1 / lam) / 2 - 1)
    assert_allclose(best, gains[-p:].sum(), rtol=1e-9)  # over all subsets of eigenvectors
    for _ in range(50):
        U = rng.standard_normal((4, p))
        assert jeffrey(U.T @ S @ U, U.T @ D @ U) <= best + 1e-9


def test_B09c_oracle_eigenvectors_sorted_as_published(data):
    X, y = data
    S, D = slow_neighbor_scatters(X, y, 5, 5)
    lam, V = sla.eigh(D, S)
    order = np.argsort(-(lam + 1 / lam))[:2]
    assert_allclose(cosines(DMLMJ(2, reg=0).fit(X, y).components_, V[:, order].T), 1, atol=1e-8)
    ours = DMLMJ(reg=0).fit(X, y)
    assert_allclose(ours.mahalanobis_, V[:, lam > 1] @ V[:, lam > 1].T, rtol=1e-7, atol=1e-10)


def test_B09d_affine_maps_given_the_neighbours():
    X, y = make_blobs(n=50)
    T = np.random.default_rng(1).standard_normal((4, 4)) + 2 * np.eye(4)
    D = sqdist(DMLMJ(2, n_neighbors=50, reg=0).fit_transform(X, y))
    assert_allclose(sqdist(DMLMJ(2, n_neighbors=50, reg=0).fit_transform(X @ T.T + 1, y)), D, atol=1e-8 * D.max())


def test_B09_pairs_are_their_scatters(data):
    X, y = data
    pairs = Labels(y).to(Pairs)
    S, D = mean_pair_scatters(X, pairs)
    lam, V = sla.eigh(D, S)
    assert_allclose(DMLMJ(reg=0).fit(X, pairs).mahalanobis_, V[:, lam > 1] @ V[:, lam > 1].T, rtol=1e-7, atol=1e-10)


def test_B08_B09_classes_that_do_not_separate_keep_one_direction():
    X = np.array([[0.0], [10.0], [0.1], [10.1]])
    for method in (MFA, DMLMJ):
        with pytest.warns(UserWarning, match="the best of them is kept"):
            assert method(reg=1e-3).fit(X, [0, 0, 1, 1]).components_.shape == (1, 1)


@pytest.mark.parametrize("method", [LFDA, MFA, DMLMJ])
def test_scatters_are_no_argument_of_fit(method):
    X = np.random.default_rng(0).standard_normal((12, 3))
    with pytest.raises(TypeError, match="no 'scatters'"):
        method().fit(X, np.arange(12) % 2, scatters=(X, X, X))
