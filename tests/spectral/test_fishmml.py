"""FISH-MML: block ascent against the objective written with kernels, and its laws."""

import numpy as np
import pytest
import scipy.linalg as sla
from numpy.testing import assert_allclose

from isometry.spectral import FishMML

VIEWS = [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11]]


def problem(seed=0, n=40, d=12, classes=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 2 * rng.standard_normal((classes, d))[y], y


def slow_scatters(X, y):
    """S_b and S_t, each divided by n."""
    mu, n = X.mean(axis=0), len(X)
    S_b = sum(np.outer(X[y == c].mean(axis=0) - mu, X[y == c].mean(axis=0) - mu) * np.sum(y == c) for c in set(y))
    return S_b / n, sum(np.outer(x - mu, x - mu) for x in X) / n


def slow_objective(X, y, maps, views, lambda1, lambda2):
    """The equation, with HSIC from n × n kernels; every view at total variance 1."""
    n, value, kernels = len(X), 0.0, []
    H = np.eye(n) - 1 / n
    for U, v in zip(maps, views, strict=True):
        Xv = X[:, v] / np.sqrt(np.trace(slow_scatters(X[:, v], y)[1]))
        S_b, S_t = slow_scatters(Xv, y)
        value += np.trace(U.T @ (S_b + lambda1 * S_t) @ U)
        kernels.append(Xv @ U @ U.T @ Xv.T)
    for r in range(len(views)):
        for w in range(r):
            value += lambda2 * np.trace(kernels[r] @ H @ kernels[w] @ H) / (n - 1) ** 2
    return value


def view_maps(model, views):
    """U_r (d_r, p_r) of each view, without its scale."""
    rows = np.split(model.components_, np.cumsum(model.view_sizes_)[:-1])
    return [L[:, v].T / a for L, v, a in zip(rows, views, model.view_scales_, strict=True)]


def test_M10a_the_objective_rises_and_the_maps_are_orthonormal():
    X, y = problem()
    model = FishMML(2, views=VIEWS, lambda1=0.5, lambda2=3.0, tol=1e-12, max_iter=500, strength=1.0).fit(X, y)
    maps = view_maps(model, VIEWS)
    for U in maps:
        assert_allclose(U.T @ U, np.eye(2), atol=1e-12)
    assert np.all(np.diff(-model.history_) >= -1e-13) and -model.history_[-1] > -model.history_[0]
    value = slow_objective(X, y, maps, VIEWS, 0.5, 3.0)
    assert_allclose(-model.history_[-1], value, rtol=1e-10)
    rng = np.random.default_rng(1)
    for _ in range(50):  # a local maximum: any small turn of the maps lowers the value
        turned = [np.linalg.qr(U + 1e-3 * rng.standard_normal(U.shape))[0] for U in maps]
        assert slow_objective(X, y, turned, VIEWS, 0.5, 3.0) < value


def test_M10b_without_agreement_the_views_decouple():
    X, y = problem(2)
    model = FishMML(2, views=VIEWS, lambda2=0.0, strength=1.0).fit(X, y)
    assert_allclose(model.history_, model.history_[0], rtol=1e-13)  # the first sweep is the last word
    for U, v in zip(view_maps(model, VIEWS), VIEWS, strict=True):
        S_b, S_t = slow_scatters(X[:, v], y)
        V = sla.eigh(S_b + S_t)[1][:, -2:]
        assert sla.subspace_angles(U, V).max() < 1e-7


def test_M10c_the_order_of_the_views_does_not_matter():
    X, y = problem(3)
    options = {"lambda2": 2.0, "tol": 1e-13, "max_iter": 1000}
    forth, back = (FishMML(2, views=v, **options, strength=1.0).fit(X, y).mahalanobis_ for v in (VIEWS, VIEWS[::-1]))
    assert_allclose(forth, back, atol=1e-5 * np.abs(forth).max())


def test_M10d_units_of_a_view_do_not_matter():
    X, y = problem(4)
    Y = X.copy()
    Y[:, VIEWS[1]] *= 1000
    A, B = (FishMML(2, views=VIEWS, strength=1.0).fit(Z, y) for Z in (X, Y))
    for U, V in zip(view_maps(A, VIEWS), view_maps(B, VIEWS), strict=True):
        assert_allclose(U, V, atol=1e-8)
    assert_allclose(A.transform(X), B.transform(Y), rtol=1e-7, atol=1e-9)
    plain = [FishMML(2, views=VIEWS, scale_views=False, strength=1.0).fit(Z, y).components_[:2] for Z in (X, Y)]
    assert np.abs(plain[0] - plain[1]).max() > 0.1  # unscaled, the loud view drags the others


def test_agreement_draws_the_views_together():
    """Two views share a factor that neither the classes nor the variance favour."""
    rng = np.random.default_rng(5)
    y, shared = np.arange(80) % 2, rng.standard_normal(80)
    X = 1.5 * rng.standard_normal((80, 6))
    X[:, 0] = X[:, 3] = shared
    views = [[0, 1, 2], [3, 4, 5]]
    weight = [abs(FishMML(1, views=views, lambda2=l, strength=1.0).fit(X, y).components_[0, 0]) for l in (0.0, 100.0)]
    assert weight[1] > 2 * weight[0]


def test_default_views_are_two_halves():
    X, y = problem(6)
    halves = FishMML(2, views=[slice(0, 6), slice(6, 12)], strength=1.0).fit(X, y)
    assert_allclose(FishMML(2, strength=1.0).fit(X, y).components_, halves.components_)
    assert FishMML(strength=1.0).fit(X[:, :1], y).components_.shape == (1, 1)


def test_views_by_name():
    pd = pytest.importorskip("pandas")
    X, y = problem(7)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(12)])
    named = FishMML(2, views=[["f3", "f0", "f7"], ["f1", "f2", "f11", "f4"]], strength=1.0).fit(frame, y)
    assert_allclose(named.components_, FishMML(2, views=[[3, 0, 7], [1, 2, 11, 4]], strength=1.0).fit(X, y).components_)
    assert_allclose(named.components_[:, [5, 6, 8, 9, 10]], 0)


def test_sizes_may_differ_between_views_and_a_rotation_is_announced():
    X, y = problem(8)
    with pytest.warns(UserWarning, match=r"views \[0\]"):
        model = FishMML([9, 1, 2], views=VIEWS, strength=1.0).fit(X, y)
    assert model.view_sizes_.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    "params, word",
    [
        ({"views": [[0, 12]]}, "view 0 must hold"),
        ({"views": [[0], ["age"]]}, "view 1 names column 'age'"),
        ({"views": []}, "views is empty"),
        ({"n_components": [1, 2, 3]}, "each of the 2 views"),
    ],
)
def test_wrong_parameters_are_named(params, word):
    with pytest.raises(ValueError, match=word):
        FishMML(**params, strength=1.0).fit(*problem())
