"""Proof tests of M00 (covariance), M03–M05 (Fisher), M06 (RCA) and M07 (DCA)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import pdist
from sklearn.datasets import load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from isometry import DCA, RCA, Chunklets, Covariance, Euclidean, FisherML, Labels, RankOneMMC, TraceSDP
from isometry.core.distance import sqdist
from isometry.core.linalg import SingularMatrixWarning
from isometry.moments import mean_pair_scatters
from tests.conftest import make_blobs


@pytest.fixture
def data():
    return make_blobs(n=60, d=4, seed=3)


def balanced(seed=0, n_classes=3, per_class=25, d=4):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    return rng.standard_normal((len(y), d)) @ rng.standard_normal((d, d)) + 2 * rng.standard_normal((n_classes, d))[
        y
    ], y


def cosines(A, B):
    return np.linalg.svd(np.linalg.qr(A.T)[0].T @ np.linalg.qr(B.T)[0], compute_uv=False)


# ---- M00 ----


def test_M00a_transformed_covariance_is_the_identity(data):
    X, _ = data
    assert_allclose(np.cov(Covariance(reg=0.0).fit_transform(X).T), np.eye(4), atol=1e-10)


def test_M00b_affine_invariant(data, rng):
    X, _ = data
    A = rng.standard_normal((4, 4))
    D = sqdist(Covariance(reg=0.0).fit_transform(X))
    assert_allclose(sqdist(Covariance(reg=0.0).fit_transform(X @ A.T + 7)), D, atol=1e-8 * D.max())


def test_M00c_full_shrinkage_is_euclidean_up_to_scale(data):
    X, _ = data
    W = Covariance(shrinkage=1.0, reg=0.0).fit(X).mahalanobis_
    assert_allclose(W, W[0, 0] * np.eye(4), atol=1e-12)
    assert_allclose(W[0, 0], 4 / np.trace(np.cov(X.T)))


def test_M00d_pooled_covariance_of_two_clouds(data):
    X, y = data
    y = np.minimum(y, 1)
    A, B = X[y == 0], X[y == 1]
    pooled = ((len(A) - 1) * np.cov(A.T) + (len(B) - 1) * np.cov(B.T)) / (len(X) - 2)
    assert_allclose(Covariance(covariance="within", reg=0.0).fit(X, y).mahalanobis_, np.linalg.inv(pooled), rtol=1e-9)


def test_M00d_rank_when_there_are_fewer_samples_than_features(rng):
    X = rng.standard_normal((5, 12))
    with pytest.warns(UserWarning, match="5 samples span 4 directions and get .* all their distances equal"):
        learner = Covariance(reg=0.0).fit(X)
    assert learner.components_.shape == (4, 12)
    assert_allclose(np.cov(learner.transform(X).T), np.eye(4), atol=1e-8)
    assert_allclose(pdist(learner.transform(X)), np.sqrt(8), rtol=1e-9)
    with pytest.warns(UserWarning, match="5 samples span 3 directions within classes"):
        Covariance(covariance="within", reg=0.0).fit(X, [0, 0, 1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Covariance(2, reg=0.0).fit(X)
        Covariance(shrinkage="ledoit_wolf", reg=0.0).fit(X)
        Covariance(reg=0.1).fit(X)
        Covariance(reg=0.0).fit(rng.standard_normal((14, 12)))


def test_M00_ledoit_wolf_is_scikit_learns(data):
    from sklearn.covariance import LedoitWolf

    X, _ = data
    ours = Covariance(shrinkage="ledoit_wolf", reg=0.0).fit(X).mahalanobis_
    theirs = LedoitWolf().fit(X)
    S = np.cov(X.T)
    s = theirs.shrinkage_
    assert_allclose(ours, np.linalg.inv((1 - s) * S + s * np.trace(S) / 4 * np.eye(4)), rtol=1e-8)


def test_M00_errors(data):
    X, _ = data
    with pytest.raises(ValueError, match="requires y"):
        Covariance(covariance="within", reg=0.0).fit(X)
    with pytest.raises(ValueError, match="'total' or 'within'"):
        Covariance(covariance="pooled", reg=0.0).fit(X)
    with pytest.raises(ValueError, match="all samples are equal"):
        Covariance(reg=0.0).fit(np.ones((5, 3)))
    with pytest.raises(ValueError, match="n_components=9"):
        Covariance(9, reg=0.0).fit(X)


# ---- M03, M04, M05 ----


def fantope_sdp(M, p):
    import cvxpy as cp

    d = len(M)
    W = cp.Variable((d, d), symmetric=True)
    constraints = [W >> 0, cp.trace(W) == 1] + ([np.eye(d) / p - W >> 0] if p > 1 else [])
    problem = cp.Problem(cp.Minimize(cp.trace(W @ M)), constraints)
    problem.solve(solver="CLARABEL")
    return problem.value


@pytest.mark.parametrize("p", [1, 2])
def test_M03a_M03c_value_is_the_mean_of_the_lowest_eigenvalues_and_the_sdp(data, p):
    X, y = data
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    W = TraceSDP(p, reg=1e-6).fit(X, y).mahalanobis_
    value = np.trace(W @ (M_S - M_D))
    assert_allclose(np.trace(W), 1)
    assert_allclose(value, np.linalg.eigvalsh(M_S - M_D)[:p].mean(), rtol=1e-9)
    assert_allclose(value, fantope_sdp(M_S - M_D, p), rtol=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_M03a_the_programme_itself_gives_the_same_metric(data, p):
    X, y = data
    closed, sdp = (TraceSDP(p, solver=solver, reg=1e-6).fit(X, y).mahalanobis_ for solver in ("eigen", "sdp"))
    assert_allclose(sdp, closed, atol=1e-5)
    with pytest.raises(ValueError, match="solver='sdp' is for constraint='trace', not 'scatter'"):
        FisherML(solver="sdp", reg=1e-6).fit(X, y)


def test_M05_a_small_wide_class_takes_no_direction():
    """Uneven classes: the leading eigenvector of (M_D, M_S) can be one in which only a small class is wide."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 60, 8])
    X = rng.standard_normal((128, 3))
    X[:, :2] += 3 * np.array([[0, 0], [1, 0], [0, 1]])[y]
    X[y == 2, 2] = 12 * (X[y == 2, 2] - X[y == 2, 2].mean())
    lead, auto = FisherML(2, reg=1e-6).fit(X, y), FisherML(reg=1e-6).fit(X, y)  # by eigenvalue, by difference of means
    assert auto.components_.shape == (2, 3) and np.all(np.diff(auto.eigenvalues_) < 0)
    noise, signal = ([np.diag(m.mahalanobis_)[axes].min() for m in (lead, auto)] for axes in ([2], [0, 1]))
    assert noise[0] > signal[0]
    assert noise[1] < 0.2 * signal[1]


def test_M03b_M04a_trace_and_orthonormal_agree_up_to_scale(data):
    X, y = data
    one = FisherML(1, constraint="orthonormal", reg=1e-6).fit(X, y)
    assert_allclose(TraceSDP(1, reg=1e-6).fit(X, y).mahalanobis_, one.mahalanobis_, atol=1e-10)
    two = FisherML(2, constraint="orthonormal", reg=1e-6).fit(X, y)
    assert_allclose(2 * TraceSDP(2, reg=1e-6).fit(X, y).mahalanobis_, two.mahalanobis_, atol=1e-10)


def test_M03d_rotation_turns_and_scale_leaves_the_metric(data, rng):
    X, y = data
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    W = TraceSDP(1, reg=1e-6).fit(X, y).mahalanobis_
    assert_allclose(TraceSDP(1, reg=1e-6).fit(X @ Q.T, y).mahalanobis_, Q @ W @ Q.T, atol=1e-9)
    assert_allclose(TraceSDP(1, reg=1e-6).fit(10 * X, y).mahalanobis_, W, atol=1e-9)


def test_M04b_below_every_feasible_map(data, rng):
    X, y = data
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    L = FisherML(2, constraint="orthonormal", reg=1e-6).fit(X, y).components_
    best = np.trace(L @ (M_S - M_D) @ L.T)
    for _ in range(1000):
        R = np.linalg.qr(rng.standard_normal((4, 2)))[0].T
        assert best <= np.trace(R @ (M_S - M_D) @ R.T) + 1e-10


def test_M04c_orthonormal_rows_and_p_equal_d_is_euclidean(data):
    X, y = data
    L = FisherML(2, constraint="orthonormal", reg=1e-6).fit(X, y).components_
    assert_allclose(L @ L.T, np.eye(2), atol=1e-10)
    with pytest.warns(UserWarning, match="rotation"):
        Z = FisherML(4, constraint="orthonormal", reg=1e-6).fit(X, y).transform(X)
    assert_allclose(sqdist(Z), sqdist(X), atol=1e-8)


def test_M05a_similar_scatter_becomes_the_identity(data):
    X, y = data
    M_S, M_D = mean_pair_scatters(X, Labels(y))
    learner = FisherML(3, reg=0).fit(X, y)
    L = learner.components_
    assert_allclose(L @ M_S @ L.T, np.eye(3), atol=1e-9)
    # M05d: minimising tr(U'(M_S − M_D)U) has eigenvalues 1 − μ
    assert_allclose(np.diag(L @ (M_S - M_D) @ L.T), 1 - learner.eigenvalues_, rtol=1e-8)


def test_M05b_balanced_classes_give_lda():
    X, y = balanced()
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    assert (
        np.arccos(np.clip(cosines(FisherML(reg=0).fit(X, y).components_, lda.scalings_[:, :2].T), -1, 1)).max() < 1e-6
    )


def test_M05c_all_directions_give_the_inverse_similar_scatter(data):
    X, y = data
    M_S, _ = mean_pair_scatters(X, Labels(y))
    with pytest.warns(UserWarning, match="whatever the dissimilar pairs"):
        W = FisherML(4, reg=0).fit(X, y).mahalanobis_
    assert_allclose(W, np.linalg.inv(M_S), rtol=1e-8, atol=1e-12)


def test_fisher_default_sizes(data):
    X, y = data
    pairs = Labels(y)
    assert FisherML(reg=1e-6).fit(X, y).components_.shape[0] == 2
    from isometry import Pairs

    assert 1 <= FisherML(reg=1e-6).fit(X, pairs.to(Pairs)).components_.shape[0] <= 4
    with pytest.raises(ValueError, match="expected 'trace', 'orthonormal' or 'scatter'"):
        FisherML(constraint="none", reg=1e-6).fit(X, y)


# ---- M06 ----


def within(X, codes):
    parts = [X[codes == c] - X[codes == c].mean(axis=0) for c in np.unique(codes[codes >= 0])]
    return sum(Z.T @ Z for Z in parts) / (codes >= 0).sum()


def test_M06a_within_chunklet_covariance_becomes_the_identity(data, rng):
    X, y = data
    codes = np.where(rng.random(60) < 0.3, -1, y)
    Z = RCA(reg=0.0).fit(X, Chunklets(codes)).transform(X)
    assert_allclose(within(Z, codes), np.eye(4), atol=1e-9)


def test_M06b_affine_invariant(data, rng):
    X, y = data
    A = rng.standard_normal((4, 4))
    D = sqdist(RCA(reg=0.0).fit(X, y).transform(X))
    assert_allclose(sqdist(RCA(reg=0.0).fit(X @ A.T - 3, y).transform(X @ A.T - 3)), D, atol=1e-7 * D.max())


def test_M06d_no_direction_of_equal_determinant_lowers_the_within_distance(data, rng):
    X, y = data
    W, C = RCA(reg=0.0).fit(X, y).mahalanobis_, within(X, y)
    base = np.trace(W @ C)
    root = np.linalg.cholesky(W)
    for _ in range(200):
        E = rng.standard_normal((4, 4))
        E = E + E.T
        E -= np.trace(E) / 4 * np.eye(4)
        w, V = np.linalg.eigh(0.1 * E)
        moved = root @ ((V * np.exp(w)) @ V.T) @ root.T  # same determinant
        assert_allclose(np.linalg.slogdet(moved)[1], np.linalg.slogdet(W)[1], atol=1e-9)
        assert np.trace(moved @ C) >= base - 1e-10


@pytest.mark.parametrize("reduction", ["pca", "fisher"])
def test_M06_reductions_whiten_their_subspace(data, reduction):
    X, y = data
    learner = RCA(2, reduction=reduction, reg=0.0).fit(X, y)
    assert_allclose(within(learner.transform(X), y), np.eye(2), atol=1e-9)
    if reduction == "pca":
        top = np.linalg.eigh(np.cov(X.T))[1][:, -2:].T
        assert_allclose(cosines(learner.components_, top), 1, atol=1e-9)


def test_M06_singular_chunklets_warn_and_stay_finite(rng):
    X = rng.standard_normal((20, 6))
    with pytest.warns(UserWarning, match="ridge"):
        Z = RCA(reg=0.0).fit(X, Chunklets(np.r_[0, 0, 1, 1, np.full(16, -1)])).transform(X)
    assert np.isfinite(Z).all()
    with pytest.raises(ValueError, match="no chunklet has 2"):
        RCA(reg=0.0).fit(X, Chunklets(np.arange(20)))


# ---- M07 ----


def dca_scatters(X, y, pooled=False):
    classes = np.unique(y)
    M = np.array([X[y == c].mean(axis=0) for c in classes])
    C_b = np.mean([np.outer(a - b, a - b) for i, a in enumerate(M) for j, b in enumerate(M) if i != j], axis=0)
    C_w = within(X, y) if pooled else np.mean([np.cov(X[y == c].T, bias=True) for c in classes], axis=0)
    return C_b, C_w


@pytest.mark.parametrize("algorithm", ["gevp", "hoi"])
@pytest.mark.parametrize("pooled", [False, True])
def test_M07a_whitens_within_and_diagonalises_between(data, algorithm, pooled):
    X, y = data
    C_b, C_w = dca_scatters(X, y, pooled)
    L = DCA(algorithm=algorithm, within="pooled" if pooled else "chunklet_mean", reg=0).fit(X, y).components_
    assert_allclose(L @ C_w @ L.T, np.eye(2), atol=1e-9)
    B = L @ C_b @ L.T
    assert_allclose(B, np.diag(np.diag(B)), atol=1e-8 * B.max())
    assert B[0, 0] >= B[1, 1]


def test_M07b_M07e_full_rank_between_scatter(rng):
    """More classes than features: both algorithms agree, and with p = d the metric is RCA's."""
    y = np.repeat(np.arange(6), 12)
    X = rng.standard_normal((72, 3)) + 2 * rng.standard_normal((6, 3))[y]
    A, B = DCA(reg=0).fit(X, y).mahalanobis_, DCA(algorithm="hoi", reg=0).fit(X, y).mahalanobis_
    assert_allclose(A, B, rtol=1e-8, atol=1e-10)
    assert_allclose(A, RCA(reg=0.0).fit(X, y).mahalanobis_, rtol=1e-8, atol=1e-10)


def test_M07c_hoi_stays_among_the_mean_differences(data):
    X, y = data
    L = DCA(algorithm="hoi", reg=1e-8).fit(X, y).components_
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    span = np.linalg.qr((means[1:] - means[0]).T)[0]
    assert_allclose(L @ span @ span.T, L, atol=1e-9)


def test_M07d_two_classes_give_the_lda_direction():
    X, y = balanced(n_classes=2)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    assert_allclose(cosines(DCA(reg=1e-8).fit(X, y).components_, lda.scalings_[:, :1].T), 1, atol=1e-8)


def test_M07f_gevp_has_the_largest_determinant_ratio(data, rng):
    X, y = data
    C_b, C_w = dca_scatters(X, y)
    ratio = lambda L: np.linalg.slogdet(L @ C_b @ L.T)[1] - np.linalg.slogdet(L @ C_w @ L.T)[1]  # noqa: E731
    best = ratio(DCA(reg=0).fit(X, y).components_)
    assert best > ratio(DCA(algorithm="hoi", reg=0).fit(X, y).components_)
    root = np.linalg.inv(np.linalg.cholesky(C_w))
    for _ in range(1000):
        R = np.linalg.qr(rng.standard_normal((4, 2)))[0].T @ root
        assert ratio(R) <= best + 1e-10


@pytest.mark.parametrize("offset", [1e4, 1.7e9])
@pytest.mark.parametrize("algorithm", ["gevp", "hoi"])
def test_dca_of_three_classes_has_two_components_wherever_the_data_are(algorithm, offset):
    """Three means span two dimensions. The unscaled features of wine have cond(C_w) near 1e8, hence 1e-6."""
    X, y = load_wine(return_X_y=True)
    X = np.round(64 * X) / 64  # so that adding the offset is exact
    near, far = DCA(algorithm=algorithm, reg=1e-8).fit(X, y), DCA(algorithm=algorithm, reg=1e-8).fit(X + offset, y)
    assert len(far.components_) == len(near.components_) == 2
    assert_allclose(pdist(X @ far.components_.T), pdist(X @ near.components_.T), rtol=1e-6)


def test_dca_has_no_more_components_than_its_links_allow(blobs):
    """One link: one direction, also where two features nearly agree and rounding is divided by their difference."""
    X, y = blobs
    links = np.zeros((3, 3), dtype=bool)
    links[0, 1] = True
    for seed in range(5):
        twin = X[:, :1] + 1e-3 * np.random.default_rng(seed).standard_normal((len(X), 1))
        learner = DCA(reg=0).fit(np.c_[X, twin], Chunklets(y, negative_links=links))
        assert len(learner.components_) == 1


def test_M07_negative_links_choose_the_pairs(data):
    """Only chunklets 0 and 1 are known to differ: C_b has rank one and the direction separates them."""
    X, y = data
    links = np.zeros((3, 3), dtype=bool)
    links[0, 1] = True
    learner = DCA(reg=1e-8).fit(X, Chunklets(y, negative_links=links))
    assert learner.components_.shape == (1, 4)
    _, C_w = dca_scatters(X, y)
    m = X[y == 0].mean(axis=0) - X[y == 1].mean(axis=0)
    assert_allclose(cosines(learner.components_, np.linalg.solve(C_w, m)[None]), 1, atol=1e-6)
    with pytest.raises(ValueError, match="negative links"):
        DCA(reg=1e-8).fit(X, Chunklets(y))


def test_euclidean_is_the_identity(data):
    X, _ = data
    assert_allclose(Euclidean().fit(X).transform(X), X)


# ---- classes without any variation ----


@pytest.mark.parametrize(
    "learner", [RCA(reg=0.0), FisherML(reg=1e-6), RankOneMMC(strength=1.0), DCA(reg=1e-8)], ids=repr
)
def test_equal_samples_in_every_class_keep_the_classes_apart(learner):
    """The scatter within classes is 0 up to rounding: a share of the whole stands in for it, and a warning says so."""
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], 5)
    X = 10 * rng.standard_normal((3, 4))[y] + 1e3
    with pytest.warns(SingularMatrixWarning, match="nothing varies within classes, chunklets or similar pairs"):
        Z = learner.fit(X, y).transform(X)
    same = y[:, None] == y
    D = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    assert 1e3 * D[same].max() < D[~same].min() < 1e4
