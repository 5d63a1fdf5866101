"""Metrics from relative comparisons against a conic solver, loops, and the laws they must obey."""

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import NeighborTriplets, OrdinalTriplets, Quadruplets, RandomComparisons, RelativeML, Triplets
from isometry.sampling import comparisons
from isometry.spectral.relative import WIDTHS
from isometry.supervision import Labels, Pairs
from tests.conftest import assert_refitted, make_blobs
from tests.differences import central_differences

LOSSES, PENALTIES = ("hinge", "squared_hinge", "logistic"), ("trace", "frobenius", "logdet")


def scaled(X):
    X = X - X.mean(axis=0)
    return X / np.sqrt(2 * np.var(X, axis=0).sum())


def given(seed=0, n=24, d=3):
    X, y = make_blobs(n=n, d=d, seed=seed)
    return X, RandomComparisons(60).draw(X, Labels(y), np.random.RandomState(seed))


def differences(X, t):
    return X[t.a] - X[t.p], X[t.a] - X[t.n]


def slow_value(W, X, triplets, loss, penalty, reg, weight=None, width=WIDTHS[-1]):
    """The objective written out; X scaled."""
    near, far = differences(X, triplets)
    d, m = X.shape[1], len(near)
    gaps = [a @ a - b @ b for a, b in zip(near, far, strict=True)]
    w0, total = 1 / np.median(np.abs(gaps)), 0.0
    for t in range(m):
        h = near[t] @ W @ near[t] - far[t] @ W @ far[t]
        if loss == "hinge":
            e = max(1 + h, 0)
            value = e * e / (2 * width) if e < width else e - width / 2
        else:
            value = max(1 + h, 0) ** 2 if loss == "squared_hinge" else np.log1p(np.exp(h))
        total += value * (1 / m if weight is None else weight[t])
    omega = {
        "trace": np.trace(W) / (d * w0),
        "frobenius": np.sum(W**2) / (2 * d * w0**2),
        "logdet": (np.trace(W) / w0 - np.linalg.slogdet(W / w0)[1]) / d - 1,
    }
    return total + reg * omega[penalty]


def conic(X, triplets, loss, penalty, reg, diagonal):
    """The minimum over W, by cvxpy."""
    near, far = differences(X, triplets)
    d = X.shape[1]
    w0 = 1 / np.median(np.abs(np.sum(near**2, axis=1) - np.sum(far**2, axis=1)))
    V = cp.diag(cp.Variable(d, nonneg=True)) if diagonal else cp.Variable((d, d), PSD=True)  # W/w₀
    h = w0 * (cp.sum(cp.multiply(near @ V, near), axis=1) - cp.sum(cp.multiply(far @ V, far), axis=1))
    width = WIDTHS[-1]
    ell = {
        "hinge": lambda: cp.huber(cp.pos(1 + h), width) / (2 * width),
        "squared_hinge": lambda: cp.square(cp.pos(1 + h)),
        "logistic": lambda: cp.logistic(h),
    }[loss]()
    omega = {
        "trace": lambda: cp.trace(V) / d,
        "frobenius": lambda: cp.sum_squares(V) / (2 * d),
        "logdet": lambda: (cp.trace(V) - cp.log_det(V)) / d - 1,
    }[penalty]()
    problem = cp.Problem(cp.Minimize(cp.sum(ell) / len(near) + reg * omega))
    problem.solve(solver="CLARABEL", use_quad_obj=False)  # old versions hand over a wrong quadratic term
    return problem.value


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of the conic solver
@pytest.mark.parametrize("structure", ["full", "diagonal"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_B17a_equals_the_conic_solver(loss, penalty, structure):
    X, triplets = given()
    model = RelativeML(loss=loss, penalty=penalty, structure=structure, reg=0.1, tol=1e-8, max_iter=3000, strength=1.0)
    model.fit(X, triplets)
    unit = np.sqrt(2 * np.var(X, axis=0).sum())
    W = model.mahalanobis_ * unit**2  # in scaled coordinates
    value = slow_value(W, scaled(X), triplets, loss, penalty, 0.1)
    assert_allclose(value, conic(scaled(X), triplets, loss, penalty, 0.1, structure == "diagonal"), rtol=2e-5)
    assert_allclose(model.objective_, value, rtol=1e-8)
    if structure == "diagonal":
        assert_allclose(W, np.diag(np.diag(W)), atol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_B17a_gradients(loss, penalty, rng):
    X, triplets = given(1)
    X, L = scaled(X), rng.standard_normal((3, 3))
    objective = RelativeML(loss=loss, penalty=penalty, strength=1.0)._objective(X, triplets, None)
    value, gradient = objective(L)
    assert_allclose(value, slow_value(L.T @ L, X, triplets, loss, penalty, 0.1, width=WIDTHS[0]), rtol=1e-10)
    assert_allclose(gradient, central_differences(lambda L: objective(L)[0], L), rtol=1e-5, atol=1e-7)
    assert_allclose(2 * L @ objective.metric_gradient(L), gradient, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "learner", [RelativeML(tol=1e-8, strength=1.0), RelativeML(structure="diagonal", tol=1e-8, strength=1.0)]
)
def test_B17b_a_weight_is_a_repetition(learner):
    """Also in the median gap; and a weight of 0 is an absence, also of contradictions."""
    X, t = given(2)
    often = np.where(np.arange(60) % 3, 1, 2)
    rows = np.repeat(np.arange(60), often)
    listed = learner.fit(X, Triplets(t.a[rows], t.p[rows], t.n[rows], n_samples=len(X))).mahalanobis_
    weighed = learner.fit(X, Triplets(t.a, t.p, t.n, n_samples=len(X), weight=0.7 * often)).mahalanobis_
    assert_allclose(weighed, listed, atol=1e-5 * np.abs(listed).max())
    plain = learner.fit(X, t).mahalanobis_
    assert np.abs(plain - listed).max() > 1e-3 * np.abs(listed).max()
    both = Triplets(np.r_[t.a, t.a], np.r_[t.p, t.n], np.r_[t.n, t.p], n_samples=len(X), weight=np.repeat([1, 0], 60))
    assert_allclose(learner.fit(X, both).mahalanobis_, plain, rtol=1e-9)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_B17c_a_full_matrix_reaches_no_higher_value_than_a_diagonal_one(penalty):
    X, triplets = given(3)
    full, diagonal = (
        RelativeML(penalty=penalty, structure=s, tol=1e-7, max_iter=2000, strength=1.0).fit(X, triplets)
        for s in ("full", "diagonal")
    )
    assert full.objective_ < diagonal.objective_ - 1e-4


def test_B17d_only_the_order_of_ordinal_labels_matters():
    X, y = make_blobs(n=40, n_classes=4)
    names = np.array([-7.0, 0.0, 2.0, 100.0])[y]
    a, b = (OrdinalTriplets().draw(X, Labels(v), None) for v in (y, names))
    assert np.array_equal(a.a, b.a) and np.array_equal(a.p, b.p) and np.array_equal(a.n, b.n)
    A, B = (RelativeML(comparisons=c, strength=1.0).fit(X, v) for c, v in (("ordinal", y), (OrdinalTriplets(), names)))
    assert_refitted(A.mahalanobis_, B.mahalanobis_)
    C = RelativeML(comparisons="ordinal", strength=1.0).fit(X, (y + 1) % 4)  # another order
    assert np.abs(A.mahalanobis_ - C.mahalanobis_).max() > 1e-2 * np.abs(A.mahalanobis_).max()


def test_B17e_comparisons_the_wrong_way_round_leave_nothing():
    X, y = make_blobs(n=60, seed=4)
    X[:, :2] += 6 * np.eye(3)[y][:, :2]  # own class nearer in every direction that counts
    t = NeighborTriplets(3, misses=10).draw(X[:, :2], Labels(y), None)
    right = RelativeML(tol=1e-6, strength=1.0).fit(X[:, :2], t)
    keep = np.flatnonzero(comparisons(t, "auto", X[:, :2], None).edges.gaps(X[:, :2] @ right.components_.T) < 0)
    wrong = Triplets(t.a[keep], t.n[keep], t.p[keep], n_samples=60)
    model = RelativeML(tol=1e-8, max_iter=1000, structure="diagonal", reg=3.0, strength=1.0)
    with pytest.warns(UserWarning, match="all 60 samples are at distance 0"):
        model.fit(X[:, :2], wrong)
    assert_allclose(model.mahalanobis_, 0, atol=1e-6 * np.abs(right.mahalanobis_).max())


def test_units_do_not_matter_and_triplets_are_quadruplets():
    X, t = given(5)
    A, B = RelativeML(tol=1e-8, strength=1.0).fit(X, t), RelativeML(tol=1e-8, strength=1.0).fit(1e4 * X + 3, t)
    assert_allclose(A.mahalanobis_, 1e8 * B.mahalanobis_, atol=1e-5 * np.abs(A.mahalanobis_).max())
    C = RelativeML(tol=1e-8, strength=1.0).fit(X, Quadruplets(t.a, t.p, t.a, t.n, n_samples=len(X)))
    assert_allclose(A.mahalanobis_, C.mahalanobis_, rtol=1e-9, atol=1e-9)


def test_a_fixed_map_before_is_a_transformation_of_the_features(rng):
    X, t = given(6)
    A = rng.standard_normal((3, 5))
    model, plain = (
        RelativeML(A=A, structure="diagonal", strength=1.0).fit(X, t),
        RelativeML(structure="diagonal", strength=1.0).fit(X @ A, t),
    )
    assert_allclose(model.mahalanobis_, A @ plain.mahalanobis_ @ A.T, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="A must be a finite matrix with 3 rows"):
        RelativeML(A=np.eye(2), strength=1.0).fit(X, t)


def test_contradicting_and_missing_comparisons_are_said():
    X, t = given(7)
    both = Triplets(np.r_[t.a, t.a], np.r_[t.p, t.n], np.r_[t.n, t.p], n_samples=len(X))
    with pytest.warns(UserWarning, match="120 of 120 comparisons contradict"):
        RelativeML(strength=1.0).fit(X, both)
    with pytest.raises(ValueError, match="nothing to compare"):
        RelativeML(strength=1.0).fit(X, Triplets([], [], [], n_samples=len(X)))
    with pytest.raises(TypeError, match="comparisons must be 'auto'"):
        RelativeML(comparisons="all", strength=1.0).fit(*make_blobs())
    with pytest.raises(TypeError, match="cannot use pairs"):
        RelativeML(strength=1.0).fit(X, Labels(np.arange(len(X)) % 2).to(Pairs))
