import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.probabilistic import PCCA
from isometry.sampling import RandomPairs
from isometry.supervision import Labels, Pairs
from tests.conftest import assert_refitted


def slow_pcca(L, X, pairs, beta, b, reg):
    """mean (1/β) log(1 + exp(β t (|Lδ|² − b))) + reg |L|²."""
    total = 0.0
    for i, j, s in zip(pairs.i, pairs.j, pairs.similarity, strict=True):
        t = 1 if s > 0.5 else -1
        total += np.log1p(np.exp(beta * t * (np.sum((L @ (X[i] - X[j])) ** 2) - b))) / beta
    return total / len(pairs.i) + reg * np.sum(L**2)


def problem(X, side, **params):
    return PCCA(strength=1.0, **params)._objective(X - X.mean(axis=0), side, np.random.RandomState(0))


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(6, 5, 4), d=4, seed=2)
    return X, y, Labels(y).to(Pairs)


@pytest.mark.parametrize("beta", [1.0, 3.0])
@pytest.mark.parametrize("reg", [0.0, 0.1])
def test_P21a_value_and_gradient(data, numeric_gradient, beta, reg):
    X, y, pairs = data
    L = np.random.default_rng(0).standard_normal((2, 4)) / 2
    oracle = lambda M: slow_pcca(M, X, pairs, beta, 1.3, reg)  # noqa: E731
    for side in (pairs, Labels(y)):  # listed, and in dense blocks
        value, gradient = problem(X, side, beta=beta, reg=reg, margin=1.3)(L)
        assert_allclose(value, oracle(L), rtol=1e-12)
        assert_allclose(gradient, numeric_gradient(oracle, L), rtol=1e-6, atol=1e-8)


def test_P21b_full_rank_is_the_convex_logistic_problem_with_fixed_threshold(data):
    X, _, pairs = data
    fit = PCCA(4, beta=1.0, tol=1e-9, max_iter=2000, strength=1.0).fit(X, pairs)
    W = cp.Variable((4, 4), PSD=True)
    delta = X[pairs.i] - X[pairs.j]
    t = np.where(pairs.similarity > 0.5, 1, -1)
    d = cp.sum(cp.multiply(delta @ W, delta), axis=1)
    programme = cp.Problem(cp.Minimize(cp.sum(cp.logistic(cp.multiply(t, d - 1))) / len(t)))
    programme.solve(solver="CLARABEL")
    assert_allclose(slow_pcca(fit.components_, X, pairs, 1.0, 1.0, 0.0), programme.value, rtol=1e-6)
    assert_allclose(fit.mahalanobis_, W.value, atol=1e-3 * np.abs(W.value).max())


def test_P21c_huge_and_zero_distances_stay_finite():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1e2, 0.0], [0.0, 1.0]])
    pairs = Pairs([0, 0, 0, 1], [1, 2, 3, 2], [0, 1, 1, 0], n=4)  # a dissimilar pair at 0, a similar one at 10⁴
    value, gradient = problem(X, pairs)(np.eye(2))
    assert_allclose(value, (np.log1p(np.exp(3)) / 3 + 9999 + np.log(2) / 3 + 0) / 4, rtol=1e-12)
    assert np.all(np.isfinite(gradient))
    assert_allclose(gradient, [[2 * 1e4 / 4, 0], [0, 2 * 0.5 / 4]], rtol=1e-12, atol=1e-12)


def test_P21d_rotations_of_the_map_and_empty_columns_do_not_matter(data):
    X, _, pairs = data
    rng = np.random.default_rng(1)
    L, O = rng.standard_normal((3, 4)), np.linalg.qr(rng.standard_normal((3, 3)))[0]
    objective = problem(X, pairs)
    assert_allclose(objective(O @ L)[0], objective(L)[0], rtol=1e-12)
    wide = np.column_stack([X, np.zeros((len(X), 2))])
    plain, padded = (PCCA(2, tol=1e-9, max_iter=2000, strength=1.0).fit(A, pairs) for A in (X, wide))
    assert_allclose(padded.mahalanobis_[:4, :4], plain.mahalanobis_, rtol=1e-4, atol=1e-4)
    assert_allclose(padded.mahalanobis_[4:], 0, atol=1e-12)


def test_more_features_than_samples_is_solved_in_the_span_of_the_data(data):
    X, _, pairs = data
    wide = X @ np.linalg.qr(np.random.default_rng(3).standard_normal((30, 4)))[0].T  # 15 rows, 30 columns, rank 4
    plain, embedded = (PCCA(4, reg=1e-2, tol=1e-9, max_iter=2000, strength=1.0).fit(A, pairs) for A in (X, wide))
    assert_allclose(embedded.pair_distance(wide, pairs), plain.pair_distance(X, pairs), rtol=1e-4, atol=1e-5)


def test_sampled_pairs_are_reproducible_and_threshold_is_the_margin(data):
    X, y, _ = data
    a, b = (
        PCCA(2, pairs=RandomPairs(20), random_state=1, reg=1e-2, margin=4.0, strength=1.0).fit(X, y) for _ in range(2)
    )
    assert_refitted(a.components_, b.components_)
    assert a.threshold_ == 2.0


def test_wrong_parameters_are_named(data):
    with pytest.raises(ValueError, match="beta=0 must be positive"):
        PCCA(beta=0, strength=1.0).fit(data[0], data[1])
    with pytest.raises(ValueError, match="pairs=500 is unknown; expected a name or a Sampler"):
        PCCA(pairs=500, strength=1.0).fit(data[0], data[1])


def test_only_sharpness_times_margin_shapes_the_metric(overlapping):
    """f(√b L; β, b) = b f(L; βb, 1), penalty included; with the same β another margin gives another metric."""
    X, y = overlapping(sizes=(20, 20), d=3, seed=0)
    L = np.random.default_rng(0).standard_normal((2, 3)) / 2
    wide, unit = (problem(X, Labels(y), beta=b, margin=m, reg=0.1) for b, m in ((1.5, 4.0), (6.0, 1.0)))
    assert_allclose(wide(2 * L)[0], 4 * unit(L)[0], rtol=1e-12)
    options = {"reg": 0.01, "tol": 1e-9, "max_iter": 2000}
    A, B, C = (
        PCCA(3, beta=beta, margin=margin, strength=1.0, **options).fit(X, y).mahalanobis_
        for beta, margin in ((1.5, 4.0), (6.0, 1.0), (1.5, 1.0))
    )
    assert_allclose(A, 4 * B, atol=1e-4 * np.abs(A).max())
    assert np.abs(A / np.linalg.norm(A) - C / np.linalg.norm(C)).max() > 1e-2
