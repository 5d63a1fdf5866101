import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.core.probability import pair_logistic
from isometry.core.solve import fista
from isometry.core.threshold import ThresholdObjective, minimize_threshold
from isometry.probabilistic import LDML, PrivilegedML
from isometry.sampling import signed_edges
from isometry.supervision import Labels, Pairs
from tests.oracles import psd_project

TIGHT = {"tol": 1e-10, "max_iter": 5000}


def slow_risk(W1, W2, b, X, Z, pairs, reg=0.0, reg_privileged=0.0):
    """mean log(1 + exp(t (d²_x − d²_z − b))) + penalties."""
    total = 0.0
    for i, j, s in zip(pairs.i, pairs.j, pairs.similarity, strict=True):
        t = 1 if s > 0.5 else -1
        excess = (X[i] - X[j]) @ W1 @ (X[i] - X[j]) - (Z[i] - Z[j]) @ W2 @ (Z[i] - Z[j]) - b
        total += np.log1p(np.exp(t * excess))
    return total / len(pairs.i) + reg * np.trace(W1) + reg_privileged * np.trace(W2)


def problem(views, side, regs):
    signed = signed_edges(side, "auto", views[0], None)
    average = 1 / (signed.n_similar + signed.n_dissimilar)
    loss = signed.loss(pair_logistic, similar=average, dissimilar=average)
    return ThresholdObjective([V - V.mean(axis=0) for V in views], signed.edges, loss, regs)


@pytest.fixture
def data(overlapping):
    X, y = overlapping(sizes=(8, 6, 4), d=3)
    Z = np.random.default_rng(7).standard_normal((len(y), 2)) + 0.8 * y[:, None]
    return X, (Z - Z.mean(axis=0)) / Z.std(axis=0), y, Labels(y).to(Pairs)


def metrics(fit):
    M = fit.privileged_components_
    return fit.mahalanobis_, M.T @ M


def test_P23a_gradients_in_both_metrics(data, numeric_gradient):
    X, Z, y, pairs = data
    rng = np.random.default_rng(0)
    L, M, b = rng.standard_normal((3, 3)) / 2, rng.standard_normal((2, 2)) / 2, 0.4
    oracle = lambda A, B, c: slow_risk(A.T @ A, B.T @ B, c, X, Z, pairs, 0.1, 0.2)  # noqa: E731
    W1, W2 = L.T @ L, M.T @ M
    slow1 = numeric_gradient(lambda W: slow_risk((W + W.T) / 2, W2, b, X, Z, pairs, 0.1, 0.2), W1)
    slow2 = numeric_gradient(lambda W: slow_risk(W1, (W + W.T) / 2, b, X, Z, pairs, 0.1, 0.2), W2)
    for side in (pairs, Labels(y)):
        f = problem([X, Z], side, [0.1, 0.2])
        value, (gL, gM, gb) = f([L, M, np.array([b])])
        assert_allclose(value, oracle(L, M, b), rtol=1e-12)
        assert_allclose(gL, numeric_gradient(lambda A: oracle(A, M, b), L), rtol=1e-6, atol=1e-8)
        assert_allclose(gM, numeric_gradient(lambda B: oracle(L, B, b), M), rtol=1e-6, atol=1e-8)
        assert_allclose(gb, numeric_gradient(lambda c: oracle(L, M, c[0]), [b])[0], rtol=1e-6)
        G1, G2 = f.metric_gradient([L, M, np.array([b])])
        assert_allclose(G1, slow1, rtol=1e-6, atol=1e-8)
        assert_allclose(G2, slow2, rtol=1e-6, atol=1e-8)


def test_P23b_a_privileged_feature_that_only_tells_the_ends_apart_is_a_constant_threshold(data):
    X, _, y, _ = data
    n = len(X) // 2
    rng = np.random.default_rng(3)
    for _ in range(50):  # disjoint pairs, of both kinds
        order = rng.permutation(len(X))
        i, j = order[:n], order[n : 2 * n]
        if 2 < np.sum(y[i] == y[j]) < n - 2:
            break
    pairs, Z = Pairs(i, j, y[i] == y[j], n=len(X)), np.zeros((len(X), 1))
    Z[j] = 1.0
    reg = 2e-2  # so few pairs can be separated
    fit = PrivilegedML(reg=reg, reg_privileged=0.0, fit_bias=False, **TIGHT, strength=1.0).fit(X, pairs, privileged=Z)
    ldml = LDML(reg=reg, strength=1.0, **TIGHT).fit(X, pairs)
    assert ldml.bias_ > 0.05
    assert_allclose(fit.mahalanobis_, ldml.mahalanobis_, atol=1e-4)
    assert_allclose(fit.threshold_**2, ldml.bias_, rtol=1e-4)


@pytest.mark.parametrize("fit_bias", [False, True])
def test_P23c_privileged_features_without_variance_leave_the_constant(data, fit_bias):
    X, Z, y, pairs = data
    fit = PrivilegedML(reg=1e-2, fit_bias=fit_bias, **TIGHT, strength=1.0).fit(X, y, privileged=0 * Z)
    bounds = (0.0, None) if fit_bias else (0.0, 0.0)
    oracle = minimize_threshold(problem([X], pairs, [1e-2]), [np.eye(3) / 3, np.full(1, bounds[0])], bounds, **TIGHT)
    L, b = oracle.x[0], oracle.x[1].item()
    assert_allclose(fit.bias_, b, atol=1e-5)
    assert_allclose(fit.mahalanobis_, L.T @ L, atol=1e-5)
    assert b > 0.1 if fit_bias else b == 0


def test_P23d_certificates_and_equal_value_from_three_starts_and_projected_gradient(data):
    X, Z, y, pairs = data
    regs = [1e-2, 2e-2]
    fit = PrivilegedML(reg=regs[0], reg_privileged=regs[1], fit_bias=False, **TIGHT, strength=1.0).fit(
        X, y, privileged=Z
    )
    f, (W1, W2) = problem([X, Z], pairs, regs), metrics(fit)
    value = slow_risk(W1, W2, 0.0, X, Z, pairs, *regs)
    for G, W in zip(
        f.metric_gradient([fit.components_, fit.privileged_components_, np.zeros(1)]), (W1, W2), strict=True
    ):
        assert np.linalg.eigvalsh(G)[0] > -1e-6
        assert np.abs(G @ W).max() < 1e-6
    rng = np.random.default_rng(5)
    for _ in range(3):
        start = [rng.standard_normal((3, 3)), rng.standard_normal((2, 2))]
        assert_allclose(minimize_threshold(f, [*start, np.zeros(1)], (0.0, 0.0), **TIGHT).value, value, rtol=1e-8)
    dx, dz = X[pairs.i] - X[pairs.j], Z[pairs.i] - Z[pairs.j]
    t = np.where(pairs.similarity > 0.5, 1.0, -1.0)

    def convex(W):  # both metrics in one block-diagonal matrix
        u = t * (np.sum(dx @ W[:3, :3] * dx, axis=1) - np.sum(dz @ W[3:, 3:] * dz, axis=1))
        c = t / (1 + np.exp(-u)) / len(t)
        G = np.zeros((5, 5))
        G[:3, :3], G[3:, 3:] = dx.T @ (dx * c[:, None]), -dz.T @ (dz * c[:, None])
        G += np.diag([regs[0]] * 3 + [regs[1]] * 2)
        return np.logaddexp(0, u).mean() + regs[0] * np.trace(W[:3, :3]) + regs[1] * np.trace(W[3:, 3:]), G

    def project(W):
        P = np.zeros((5, 5))
        P[:3, :3], P[3:, 3:] = psd_project(W[:3, :3]), psd_project(W[3:, 3:])
        return P

    assert_allclose(fista(convex, project, np.eye(5) / 5, max_iter=5000, tol=1e-10).value, value, rtol=1e-7)


def test_threshold_is_the_mean_over_the_training_pairs(data):
    X, Z, y, pairs = data
    fit = PrivilegedML(strength=1.0).fit(X, y, privileged=Z)
    _, W2 = metrics(fit)
    d = [(Z[i] - Z[j]) @ W2 @ (Z[i] - Z[j]) for i, j in zip(pairs.i, pairs.j, strict=True)]
    assert_allclose(fit.threshold_**2, np.mean(d) + fit.bias_, rtol=1e-9)


def test_units_of_the_privileged_features_do_not_matter(data):
    X, Z, y, _ = data
    a, b = (PrivilegedML(**TIGHT, strength=1.0).fit(X, y, privileged=P) for P in (Z, Z * [10.0, 0.1] + 5))
    assert_allclose(a.mahalanobis_, b.mahalanobis_, atol=1e-6)


def test_without_privileged_features_the_threshold_is_constant(data):
    X, _, y, _ = data
    fit, ldml = PrivilegedML(reg=1e-2, **TIGHT, strength=1.0).fit(X, y), LDML(reg=1e-2, strength=1.0, **TIGHT).fit(X, y)
    assert ldml.bias_ > 0
    assert_allclose(fit.mahalanobis_, ldml.mahalanobis_, atol=1e-5)
    assert_allclose(fit.threshold_, ldml.threshold_, rtol=1e-4)
    assert fit.privileged_components_ is None
    with pytest.raises(ValueError, match="needs privileged features"):
        PrivilegedML(fit_bias=False, strength=1.0).fit(X, y)


def test_wrong_input_is_named(data):
    X, Z, y, _ = data
    with pytest.raises(ValueError, match="X has 18 samples but privileged has 17"):
        PrivilegedML(strength=1.0).fit(X, y, privileged=Z[:-1])
    with pytest.raises(ValueError, match="privileged contains NaN"):
        PrivilegedML(strength=1.0).fit(X, y, privileged=np.where(np.arange(len(Z))[:, None] == 3, np.nan, Z))
    with pytest.raises(ValueError, match="must not be negative"):
        PrivilegedML(reg=-1, strength=1.0).fit(X, y, privileged=Z)
