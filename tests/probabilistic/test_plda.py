"""Proof tests of B14, probabilistic linear discriminant analysis."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose
from scipy.special import expit
from scipy.stats import multivariate_normal, spearmanr

from isometry import KISSME, PLDA, Labels, Pairs
from isometry.probabilistic.plda import between_covariance, maximise_likelihood
from tests.conftest import make_blobs

EXACT = {"reg": 0, "shrinkage": 0}


def draw(sizes, d=3, seed=0, between=6.0):
    """Samples of the model itself, and its B and E."""
    rng = np.random.default_rng(seed)
    A, C = rng.standard_normal((d, d)), rng.standard_normal((d, d))
    B, E = between * (A @ A.T + np.eye(d)), C @ C.T + np.eye(d)
    y = np.repeat(np.arange(len(sizes)), sizes)
    means = rng.multivariate_normal(np.zeros(d), B, len(sizes))
    return means[y] + rng.multivariate_normal(np.zeros(d), E, len(y)) + 5.0, y, B, E


def model(learner):
    """m, B and E of a fit without truncation: VᵀEV = I, VᵀBV = diag ψ."""
    V = (learner.components_ / np.sqrt(learner.psi_ / (1 + learner.psi_))[:, None]).T
    inverse = np.linalg.inv(V)
    return learner.mean_, inverse.T @ np.diag(learner.psi_) @ inverse, inverse.T @ inverse


def test_B14a_the_score_is_the_ratio_of_joint_gaussians():
    X, y, _, _ = draw([6] * 12)
    learner = PLDA(**EXACT).fit(X, y)
    m, B, E = model(learner)
    pairs = np.array([[0, 1], [0, 30], [5, 71]])
    T, m2 = B + E, np.r_[m, m]
    same, other = np.block([[T, B], [B, T]]), sla.block_diag(T, T)
    joint = [multivariate_normal(m2, S).logpdf(np.c_[X[pairs[:, 0]], X[pairs[:, 1]]]) for S in (same, other)]
    assert_allclose(learner.score_pairs(X, pairs), joint[0] - joint[1], rtol=1e-8)
    listed = Pairs(pairs[:, 0], pairs[:, 1], [True, False, False], n=len(X))
    assert_allclose(learner.score_pairs(X, listed), joint[0] - joint[1], rtol=1e-8)
    assert_allclose(learner.pair_probability(X, pairs), expit(joint[0] - joint[1]), rtol=1e-8)
    assert_allclose(learner.pair_probability(X, pairs, 0.1), expit(joint[0] - joint[1] - np.log(9)), rtol=1e-8)


def test_B14a_the_map_is_the_distance_part_of_the_score():
    """At a fixed sum of the two samples, the score falls by a quarter of the squared distance."""
    X, y, _, _ = draw([6] * 12)
    learner = PLDA(**EXACT).fit(X, y)
    rng = np.random.default_rng(3)
    centre, away = rng.standard_normal(3) + 5, rng.standard_normal((4, 3))
    P = np.stack([centre + away, centre - away], axis=1).reshape(-1, 3)
    pairs = np.arange(8).reshape(4, 2)
    gap = learner.score_pairs(P, pairs) + learner.pair_distance(P, pairs) ** 2 / 4
    assert_allclose(gap, gap[0], rtol=1e-9)


def marginal(X, y, m, B, E):
    """log-likelihood by the joint normal of all samples of a class."""
    total = 0.0
    for c in np.unique(y):
        rows = X[y == c]
        k = len(rows)
        S = np.kron(np.ones((k, k)), B) + np.kron(np.eye(k), E)
        total += multivariate_normal(np.tile(m, k), S).logpdf(rows.ravel())
    return total


def test_B14b_em_climbs_the_marginal_likelihood_for_classes_of_any_size():
    X, y, _, _ = draw([1, 2, 3, 4, 5, 6, 7] * 6, d=2)
    learner = PLDA(estimator="em", **EXACT, tol=1e-12, max_iter=2000).fit(X, y)
    assert np.all(np.diff(learner.history_) <= 1e-12)
    assert_allclose(-learner.history_[-1] * len(X), marginal(X, y, *model(learner)), rtol=1e-9)
    m, B, E = model(learner)
    best = marginal(X, y, m, B, E)
    assert best > marginal(X, y, *model(PLDA(**EXACT).fit(X, y)))
    for step in (0.99, 1.01):  # stationary: neither a smaller nor a larger variance is better
        assert marginal(X, y, m, step * B, E) < best and marginal(X, y, m, B, step * E) < best
        assert marginal(X, y, step * m, B, E) < best


def test_B14b_em_stays_finite_where_the_between_covariance_is_of_low_rank():
    M, n = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.array([10.0, 10.0])
    found = maximise_likelihood(M, n, np.eye(3), between_covariance(M, n, np.eye(3)), 50, 1e-9)
    assert all(np.isfinite(part).all() for part in found.x)


@pytest.mark.parametrize("estimator", ["moments", "em"])
def test_B14c_recovers_the_model(estimator):
    rng = np.random.default_rng(0)
    X, y, B, E = draw(rng.integers(1, 8, 5000), d=3)
    m, B_found, E_found = model(PLDA(estimator=estimator, **EXACT).fit(X, y))
    assert np.linalg.norm(B_found - B) < 0.05 * np.linalg.norm(B)
    assert np.linalg.norm(E_found - E) < 0.05 * np.linalg.norm(E)
    assert np.linalg.norm(m - 5) < 0.2


def test_B14d_equal_classes_give_ioffes_closed_form():
    """Up to c − 1 degrees of freedom of the class means, which he counts as c."""
    X, y, _, _ = draw([7] * 15)
    k, c = 7, 15
    means = np.array([X[y == g].mean(axis=0) for g in range(c)])
    R, M = X - means[y], means - X.mean(axis=0)
    S_w, S_b = R.T @ R / len(X), k * M.T @ M / len(X)
    lam = sla.eigvalsh(S_b, S_w)[::-1]
    psi = np.maximum((k - 1) / k * lam - 1 / k, 0)
    learner = PLDA(**EXACT).fit(X, y)
    assert_allclose(1 + k * learner.psi_, (1 + k * psi) * c / (c - 1), rtol=1e-9)
    assert_allclose(model(learner)[2], k / (k - 1) * S_w, rtol=1e-9)


def test_B14e_oracle_latent_space_and_ranking_of_pairs():
    """The scores of two samples as a common package writes them: three Gaussians in the latent space."""
    X, y, _, _ = draw([8] * 20, d=4)
    learner = PLDA(**EXACT).fit(X, y)
    k, c = 8, 20
    means = np.array([X[y == g].mean(axis=0) for g in range(c)])
    R, M = X - means[y], means - X.mean(axis=0)
    S_w, S_b = R.T @ R / len(X), k * M.T @ M / len(X)
    lam, W = sla.eigh(S_b, S_w)
    A = np.linalg.inv(W).T @ np.diag(np.sqrt(k / (k - 1) * np.ones(4)))
    psi = np.maximum((k - 1) / k * lam - 1 / k, 0)
    U = (X - X.mean(axis=0)) @ np.linalg.inv(A).T
    pairs = np.random.default_rng(0).integers(0, len(X), (300, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]

    def log_marginal(V):  # (m, k, d): samples of one class, its mean integrated out
        size = V.shape[1]
        S = np.eye(size)[None] + psi[:, None, None]
        return sum(multivariate_normal(np.zeros(size), S[g]).logpdf(V[:, :, g]) for g in range(4))

    a, b = U[pairs[:, 0]], U[pairs[:, 1]]
    oracle = log_marginal(np.stack([a, b], axis=1)) - log_marginal(a[:, None]) - log_marginal(b[:, None])
    assert spearmanr(oracle, learner.score_pairs(X, pairs)).statistic > 0.999
    ours = np.linalg.qr(learner.components_.T)[0]
    theirs = np.linalg.qr(np.linalg.inv(A)[psi > 0].T)[0]
    assert_allclose(np.linalg.svd(ours.T @ theirs)[1], 1, atol=1e-9)


def test_B13b_kissme_is_plda_for_equal_large_classes():
    """M_S = 2E and M_D = 2(E + B): 1 − 1/λ = ψ/(1 + ψ), up to the finite number of classes and samples."""
    X, y, _, _ = draw([200] * 400, d=3)
    W, P = KISSME(reg=0).fit(X, y).mahalanobis_, PLDA(**EXACT).fit(X, y).mahalanobis_
    assert_allclose(2 * W, P, rtol=0, atol=5e-3 * np.abs(P).max())


def test_B14_enrolled_classes_score_like_pairs_and_like_the_posterior():
    X, y, _, _ = draw([6] * 12)
    learner = PLDA(**EXACT).fit(X, y)
    new, names, _, _ = draw([3, 3], seed=9)
    enrolled = learner.enroll(new, np.array(["x", "y"])[names])
    assert enrolled.classes.tolist() == ["x", "y"]
    m, B, E = model(learner)
    probe = X[:5]
    for c in (0, 1):
        rows = np.r_[new[names == c]]
        S = np.kron(np.ones((4, 4)), B) + np.kron(np.eye(4), E)
        joint = multivariate_normal(np.tile(m, 4), S)
        three = multivariate_normal(np.tile(m, 3), S[:9, :9]).logpdf(rows.ravel())
        alone = multivariate_normal(m, B + E).logpdf(probe)
        expected = [joint.logpdf(np.r_[rows.ravel(), x]) - three for x in probe] - alone
        assert_allclose(enrolled.score(probe)[:, c], expected, rtol=1e-8)
    single = learner.enroll(X[:1], ["one"]).score(X[1:4]).ravel()
    assert_allclose(single, learner.score_pairs(X, [[0, 1], [0, 2], [0, 3]]), rtol=1e-9)


def test_B14_shrinkage_reaches_directions_in_which_no_class_of_the_fit_differs():
    X, y = make_blobs(n=60, d=4)
    plain, shrunk = PLDA(shrinkage=0, reg=0.1).fit(X, y), PLDA(reg=0.1).fit(X, y)
    assert len(plain.components_) <= 2 and len(shrunk.components_) == 4


def test_B14_classes_of_one_member_count_between_classes():
    X, y, _, _ = draw([5] * 6 + [1] * 10, between=60.0)
    learner = PLDA(**EXACT).fit(X, y)
    without = PLDA(**EXACT).fit(X[:30], y[:30])
    assert_allclose(learner.mean_, X.mean(axis=0))
    assert_allclose(model(learner)[2], model(without)[2], rtol=1e-9)  # E is of the others
    assert np.abs(model(learner)[1] - model(without)[1]).max() > 0.01


def test_B14_fewer_samples_than_features():
    rng = np.random.default_rng(0)
    y = np.arange(12) % 4
    X = rng.standard_normal((12, 30)) + rng.standard_normal((4, 30))[y]
    learner = PLDA(reg=0.1).fit(X, y)
    assert learner.components_.shape == (11, 30) and learner.mean_.shape == (30,)
    scores = learner.score_pairs(X, np.array([[0, 4], [0, 1]]))
    assert scores[0] > scores[1]


def test_B14_chunks_give_the_same_model():
    X, y, _, _ = draw([1, 2, 3, 4] * 8)
    for estimator in ("moments", "em"):
        whole, parts = PLDA(estimator=estimator, reg=0.1).fit(X, y), PLDA(estimator=estimator, reg=0.1)
        for rows in np.array_split(np.random.default_rng(0).permutation(len(X)), 5):
            parts.partial_fit(X[rows], y[rows])
        assert_allclose(parts.mahalanobis_, whole.mahalanobis_, rtol=1e-6)
        assert_allclose(parts.mean_, whole.mean_, rtol=1e-9)


def test_B14_means_that_differ_by_chance_only_give_a_warning():
    X = np.array([[0.0, 1.0], [0.0, -1.0], [0.01, 1.0], [0.01, -1.0]])
    with pytest.warns(UserWarning, match="no more than by chance"):
        learner = PLDA(reg=1.0).fit(X, [0, 0, 1, 1])
    assert np.ptp(learner.transform(X)) > 0


def test_B14_errors():
    X, y = make_blobs()
    learner = PLDA(reg=0.1).fit(X, y)
    with pytest.raises(ValueError, match="prior=1"):
        learner.pair_probability(X, [[0, 1]], prior=1)
    with pytest.raises(ValueError, match="y has 2 entries but X has 45 rows"):
        learner.enroll(X, [0, 1])
    with pytest.raises(ValueError, match="at least 2 classes"):
        PLDA(reg=0.1).fit(X, Labels(np.zeros(len(X), dtype=int)))
