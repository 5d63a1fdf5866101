"""Special case = special case."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.preprocessing import StandardScaler

from isometry import DCA, GMML, NCA, RCA, Chunklets, Covariance, Euclidean, FisherML, Kernelized, Labels, Pairs
from isometry.core.distance import sqdist
from isometry.moments import mean_pair_scatters
from tests.conftest import make_blobs


def balanced(seed=0, n_classes=3, per_class=20, d=5):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), per_class)
    return rng.standard_normal((len(y), d)) + 2 * rng.standard_normal((n_classes, d))[y], y


def angles(A, B):
    """Cosines of the principal angles between the row spaces."""
    return np.linalg.svd(np.linalg.qr(A.T)[0].T @ np.linalg.qr(B.T)[0], compute_uv=False)


def test_gmml_at_zero_is_the_inverse_similar_scatter(blobs):
    X, y = blobs
    M_S, _ = mean_pair_scatters(X, Labels(y))
    assert_allclose(GMML(t=0.0, reg=0.0).fit(X, y).mahalanobis_, np.linalg.inv(M_S), rtol=1e-8, atol=1e-12)


def test_gmml_at_one_is_the_dissimilar_scatter(blobs):
    X, y = blobs
    _, M_D = mean_pair_scatters(X, Labels(y))
    assert_allclose(GMML(t=1.0, reg=0.0).fit(X, y).mahalanobis_, M_D, rtol=1e-8)


@pytest.mark.parametrize(
    "learner", [DCA(n_components=2, reg=1e-8), FisherML(n_components=2, reg=1e-6), RCA(2, reduction="fisher", reg=0.0)]
)
def test_spans_the_lda_subspace_on_balanced_classes(learner):
    X, y = balanced()
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, y)
    assert_allclose(angles(learner.fit(X, y).components_, lda.scalings_[:, :2].T), 1, atol=1e-8)


def test_M06c_rca_of_one_chunklet_is_the_covariance(blobs):
    X, _ = blobs
    n = len(X)
    rca = RCA(reg=0.0).fit(X, Chunklets(np.zeros(n, dtype=int)))
    assert_allclose(rca.mahalanobis_, Covariance(reg=0.0).fit(X).mahalanobis_ * n / (n - 1), rtol=1e-9)


def test_fisher_with_all_directions_is_gmml_at_zero(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match="inverse of the similar scatter"):
        fisher = FisherML(n_components=X.shape[1], reg=0).fit(X, y)
    assert_allclose(fisher.mahalanobis_, GMML(t=0.0, reg=0.0).fit(X, y).mahalanobis_, rtol=1e-7, atol=1e-10)


def test_orthonormal_fisher_with_all_directions_is_euclidean(blobs):
    X, y = blobs
    with pytest.warns(UserWarning, match="rotation"):
        fisher = FisherML(n_components=X.shape[1], constraint="orthonormal", reg=1e-6).fit(X, y)
    assert_allclose(sqdist(fisher.transform(X)), sqdist(Euclidean().fit_transform(X)), atol=1e-9)


@pytest.mark.parametrize(
    "learner",
    [RCA(reg=0.0), DCA(reg=1e-3), GMML(reg=0.1), FisherML(reg=1e-3), NCA(n_components=2, reg=0.01, strength=1.0)],
)
def test_kernelized_linear_is_linear(learner, blobs):
    X, y = blobs
    linear, kernel = learner.fit(X, y), Kernelized(learner, kernel="linear", center=True).fit(X, y)
    new = X[:7] + 0.3
    A, B = (sqdist(m.transform(np.r_[X, new])) for m in (linear, kernel))
    assert_allclose(A, B, atol=(1e-3 if isinstance(learner, NCA) else 1e-7) * A.max())


def test_kernelized_with_all_landmarks_is_exact_and_duals_are_the_map(blobs):
    X, y = blobs
    A = Kernelized(DCA(reg=1e-3), kernel="rbf", gamma=0.1).fit(X, y)
    B = Kernelized(DCA(reg=1e-3), kernel="rbf", gamma=0.1, landmarks=len(X)).fit(X, y)
    assert_allclose(A.transform(X), B.transform(X), atol=1e-9)
    K = np.exp(-0.1 * sqdist(X))
    assert_allclose(A.transform(X), K @ A.dual_coef_.T, atol=1e-9)
    C = Kernelized(DCA(reg=1e-3), kernel="precomputed").fit(K, y)
    assert_allclose(sqdist(C.transform(K)), sqdist(A.transform(X)), atol=1e-8)


def test_nca_objective_and_gradient_are_scikit_learns():
    """P03: same value and gradient on the same map."""
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    L = np.random.default_rng(0).standard_normal((2, 4))
    theirs = NeighborhoodComponentsAnalysis(n_components=2)
    theirs.n_iter_ = 0
    same = y[:, None] == y
    f_theirs, g_theirs = theirs._loss_grad_lbfgs(L.ravel(), X, same, -1.0)
    f, g = NCA(2, strength=1.0)._objective(X - X.mean(axis=0), Labels(y), np.random.RandomState(0))(L)
    assert_allclose(f * len(X), f_theirs, rtol=1e-10)
    assert_allclose(g.ravel() * len(X), g_theirs, rtol=1e-7, atol=1e-9)


def nca_gain(X, y, start):
    """Samples by which our NCA ends above scikit-learn's, from the same start or, for None, each from its own."""
    p = X.shape[1] if start is None else len(start)
    theirs = NeighborhoodComponentsAnalysis(p, init="auto" if start is None else start, max_iter=100, random_state=0)
    ours = NCA(p, init="auto" if start is None else start, max_iter=100, strength=1.0)
    accuracy = NCA(strength=1.0)._objective(X - X.mean(axis=0), Labels(y), np.random.RandomState(0))
    return len(X) * (accuracy(theirs.fit(X, y).components_)[0] - accuracy(ours.fit(X, y).components_)[0])


def random_start(d, seed):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, 2)))[0].T


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
def test_nca_reaches_scikit_learns_objective(load):
    """P03c: a value no worse, from the same start and from the defaults."""
    X, y = load(return_X_y=True)
    step = max(1, len(X) // 300)
    X, y = StandardScaler().fit_transform(X[::step]), y[::step]
    for start in (None, np.eye(X.shape[1]), random_start(X.shape[1], 1)):
        assert nca_gain(X, y, start) >= -1e-3 * len(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nca_is_above_scikit_learns_over_many_starts():
    """P03c: the objective is not convex, so a single start can be lucky; of many, nearly all end as high or higher."""
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    gains = np.array([nca_gain(X, y, random_start(4, seed)) for seed in range(20)])
    assert gains.mean() > 0.5  # samples of 150
    assert (gains < -0.1).sum() <= 1


def test_labels_and_their_chunklets_and_pairs_agree_for_rca(blobs):
    X, y = make_blobs()
    W = RCA(reg=0.0).fit(X, y).mahalanobis_
    assert_allclose(RCA(reg=0.0).fit(X, Chunklets(y)).mahalanobis_, W)
    assert_allclose(RCA(reg=0.0).fit(X, Labels(y).to(Pairs)).mahalanobis_, W)
