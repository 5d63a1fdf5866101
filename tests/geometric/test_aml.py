"""AML: metrics that hold on adversarial pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq, check_grad, minimize

from isometry.geometric import AML, GMML
from isometry.supervision import Labels, Pairs
from tests.conftest import make_blobs


def spd(d, seed):
    A = np.random.default_rng(seed).normal(size=(d, 2 * d))
    return A @ A.T / d


def all_pairs(X, y):
    side = Labels(y)
    return Pairs.from_edges(side.similar, side.dissimilar, len(X))


def slow_loss(W, T, similar):
    """ℓ(W; P, t): mean of δᵀWδ over similar and of δᵀW⁻¹δ over dissimilar pairs, one by one."""
    near, far = [], []
    for (x, x_), s in zip(T, similar, strict=True):
        (near if s else far).append((x - x_) @ (W if s else np.linalg.inv(W)) @ (x - x_))
    return np.mean(near) + np.mean(far)


def unit_blobs():
    """Blobs of mean squared distance 1, the unit of ``history_``."""
    X, y = make_blobs(n=20, d=3)
    X = X - X.mean(axis=0)
    return X / np.sqrt(2 * X.var(axis=0).sum()), y


def test_M33a_without_adversary_it_is_gmml():
    X, y = make_blobs()
    assert_allclose(
        AML(alpha=0, reg=0, strength=1.0).fit(X, y).mahalanobis_, GMML(reg=0.0).fit(X, y).mahalanobis_, rtol=1e-9
    )


def test_units_of_x_do_not_matter():
    X, y = make_blobs()
    assert_allclose(AML(strength=1.0).fit(1e3 * X, y).mahalanobis_, AML(strength=1.0).fit(X, y).mahalanobis_, rtol=1e-5)


@pytest.mark.parametrize("similar", [True, False])
def test_M33b_closed_form_pair_is_the_numerical_argmin(similar):
    X, y = unit_blobs()
    beta = 0.7
    model = AML(beta=beta, strength=1.0).fit(X, y)
    W = model.mahalanobis_
    confuse = np.linalg.inv(W) if similar else W  # the loss with flipped label
    x, x_ = X[0], X[7]

    def cost(v):
        a, b = v[:3], v[3:]
        return (a - b) @ confuse @ (a - b) + beta * ((x - a) @ W @ (x - a) + (x_ - b) @ W @ (x_ - b))

    best = minimize(cost, np.r_[x, x_], method="BFGS", options={"gtol": 1e-10}).x
    moved = model.adversarial_pairs(X, Pairs([0], [7], [similar], n=len(X)))[0]
    assert_allclose(moved.ravel(), best, atol=1e-6)
    assert np.abs(moved - [x, x_]).max() > 1e-2


def test_M33c_spectral_cost_is_the_loss_over_explicit_pairs():
    X, y = unit_blobs()
    model = AML(alpha=0.6, beta=1.7, reg=0, strength=1.0).fit(X, y)
    pairs = all_pairs(X, y)
    T, similar = np.stack([X[pairs.i], X[pairs.j]], axis=1), pairs.similarity > 0
    W = model.mahalanobis_
    explicit = slow_loss(W, T, similar) + 0.6 * slow_loss(W, model.adversarial_pairs(X, pairs), similar)
    assert_allclose(model.history_[-1], explicit, rtol=1e-10)


@pytest.mark.parametrize("start", ["random", "identity"])
def test_M33c_gradient_also_at_repeated_eigenvalues(start):
    A, B, model = spd(4, 0), spd(4, 1), AML(alpha=0.8, beta=1.3, strength=1.0)
    L = np.eye(4) if start == "identity" else np.random.default_rng(2).normal(size=(4, 4))
    gradient = model._cost(L, A, B)[1]
    error = check_grad(
        lambda v: model._cost(v.reshape(4, 4), A, B)[0],
        lambda v: model._cost(v.reshape(4, 4), A, B)[1].ravel(),
        L.ravel(),
    )
    assert error < 1e-6 * np.linalg.norm(gradient)


def test_M33d_diagonal_scatters_give_scalar_equations():
    alpha, beta = 1.5, 0.8
    a, b = np.array([0.3, 1.0, 2.0]), np.array([2.0, 0.5, 1.0])
    L = AML(alpha=alpha, beta=beta, tol=1e-12, strength=1.0)._descend(np.diag(a), np.diag(b)).x

    def stationary(l, k):
        phi_slope = 1 + alpha * beta**2 * l**4 * (10 + beta * l**2) / (2 + beta * l**2) ** 3
        return l**2 * phi_slope - (1 + alpha * (beta / (2 + beta)) ** 2) * b[k] / a[k]

    expected = [brentq(stationary, 1e-6, 1e3, args=(k,), xtol=1e-14) for k in range(3)]
    assert_allclose(L.T @ L, np.diag(expected), atol=1e-6)


def test_M33e_an_infinite_price_leaves_the_pairs_alone():
    X, y = unit_blobs()
    model = AML(beta=np.inf, reg=0, strength=1.0).fit(X, y)
    pairs = all_pairs(X, y)
    assert_allclose(model.adversarial_pairs(X, pairs), np.stack([X[pairs.i], X[pairs.j]], axis=1), atol=1e-12)
    assert_allclose(model.mahalanobis_, GMML(reg=0.0).fit(X, y).mahalanobis_, rtol=1e-7)


def test_one_minimum_from_any_start():
    A, B, model = spd(3, 3), spd(3, 4), AML(alpha=2.0, beta=0.5, strength=1.0)
    best = model._descend(A, B).value
    for seed in range(3):
        L0 = np.random.default_rng(seed).normal(size=(3, 3))
        found = minimize(lambda v: tuple(map(np.ravel, model._cost(v.reshape(3, 3), A, B))), L0.ravel(), jac=True)
        assert_allclose(found.fun, best, rtol=1e-9)


def test_alternating_has_another_fixed_point_and_a_higher_value():
    X, y = unit_blobs()
    bilevel, alternating = (
        AML(alpha=2.0, strength=1.0).fit(X, y),
        AML(alpha=2.0, solver="alternating", strength=1.0).fit(X, y),
    )
    assert alternating.converged_
    assert bilevel.history_[-1] < alternating.history_[-1] * (1 - 1e-4)
    R = alternating._confusion(alternating.components_)
    D = [[], []]
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            D[int(y[i] != y[j])].append(
                np.outer(z, z) + 2.0 * (np.outer(R @ z, R @ z) if y[i] == y[j] else np.outer(z, z) / 9)
            )
    S, D = (np.mean(part, axis=0) for part in D)
    W = alternating.mahalanobis_
    assert_allclose(W @ S @ W, D, atol=1e-4 * np.abs(D).max())  # GMML of the pairs it moved itself


@pytest.mark.parametrize(
    ("params", "message"),
    [({"alpha": -1}, "alpha=-1"), ({"beta": 0}, "beta=0"), ({"solver": "sgd"}, "'bilevel' or 'alternating'")],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        AML(**params, strength=1.0).fit(*make_blobs())


def test_similar_pairs_that_coincide_are_named():
    X, _ = make_blobs(n=20)
    with pytest.raises(ValueError, match="similar pairs must differ"):
        AML(strength=1.0).fit(np.repeat(X, 2, axis=0), np.repeat(np.arange(20), 2))
