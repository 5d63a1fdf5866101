"""LayeredGMML: a network fitted layer by layer."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.core.spd import shifted_mean_factor
from isometry.geometric import GMML, LayeredGMML
from isometry.moments import mean_pair_scatters
from isometry.supervision import Labels
from tests.conftest import make_blobs


def slow_scatters(X, y):
    similar, dissimilar = [], []
    for i in range(len(X)):
        for j in range(i):
            z = X[i] - X[j]
            (similar if y[i] == y[j] else dissimilar).append(np.outer(z, z))
    return np.mean(similar, axis=0), np.mean(dissimilar, axis=0)


def power(A, p):
    w, V = np.linalg.eigh(A)
    return (V * w**p) @ V.T


def slow_gmml(S, D, reg=0.0):
    shift = reg * np.trace(S) / len(S) * np.eye(len(S))
    S, D = S + shift, D + shift
    R = power(S, 0.5)
    return np.linalg.inv(R) @ power(R @ D @ R, 0.5) @ np.linalg.inv(R)


def metric(model, d):
    """W of a linear stack: the map is known from its value at the unit vectors."""
    U = model.transform(np.eye(d)) - model.transform(np.zeros((1, d)))
    return U @ U.T


def test_D50a_two_by_two():
    L = shifted_mean_factor(np.eye(2), np.diag([4.0, 9.0]), 0.5, 0.0)
    assert_allclose(L.T @ L, np.diag([2.0, 3.0]), atol=1e-12)


def test_D50b_riccati():
    X, y = make_blobs()
    S, D = slow_scatters(X, y)
    W = metric(LayeredGMML(n_layers=1, reg=0).fit(X, y), 4)
    assert_allclose(W @ S @ W, D, atol=1e-10 * np.abs(D).max())


@pytest.mark.filterwarnings("ignore:without activation")
@pytest.mark.parametrize("n_layers", [2, 3, 4])
def test_D50c_a_linear_stack_is_a_power_of_one_layer(n_layers):
    X, y = make_blobs()
    W = slow_gmml(*slow_scatters(X, y))
    stack = {"n_layers": n_layers, "activation": None, "reg": 0}
    assert_allclose(metric(LayeredGMML(**stack).fit(X, y), 4), W, rtol=1e-10, atol=1e-11)
    full = metric(LayeredGMML(**stack, damping=1.0).fit(X, y), 4)
    assert_allclose(full, power(W, n_layers), rtol=1e-9, atol=1e-11 * np.abs(full).max())


@pytest.mark.parametrize("t", [0.3, 0.5])
def test_D50d_one_layer_is_gmml(t):
    X, y = make_blobs()
    S, _ = slow_scatters(X, y)
    one = metric(LayeredGMML(n_layers=1, t=t).fit(X, y), 4)
    assert_allclose(one, GMML(t=t, reg=1e-3 * np.trace(S) / 4).fit(X, y).mahalanobis_, rtol=1e-9)


def test_D50e_closed_form_scatters_are_those_of_listed_pairs():
    X, y = make_blobs()
    for fast, slow in zip(mean_pair_scatters(X, Labels(y)), slow_scatters(X, y), strict=True):
        assert_allclose(fast, slow, rtol=1e-10)


def test_two_layers_step_by_step():
    X, y = make_blobs()
    model = LayeredGMML(activation_scale=2.0).fit(X, y)
    H = X @ power(slow_gmml(*slow_scatters(X, y), reg=1e-3), 0.25)
    center, s = H.mean(axis=0), 2.0 * np.sqrt(np.mean((H - H.mean(axis=0)) ** 2))
    H = s * np.tanh((H - center) / s)
    H = H @ power(slow_gmml(*slow_scatters(H, y), reg=1e-3), 0.25)
    assert_allclose(model.transform(X), H, rtol=1e-8, atol=1e-9)
    assert len(model.centers_) == len(model.scales_) == 1


def test_truncated_layers_keep_the_leading_eigenvectors():
    X, y = make_blobs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LayeredGMML(dims=(3, 2), activation=None, reg=0, damping=1.0).fit(X, y)
    w, V = np.linalg.eigh(slow_gmml(*slow_scatters(X, y)))
    H = X @ (V[:, 1:] * np.sqrt(w[1:]))
    w, V = np.linalg.eigh(slow_gmml(*slow_scatters(H, y)))
    H = H @ (V[:, 1:] * np.sqrt(w[1:]))
    assert model.transform(X).shape == (45, 2)
    assert_allclose(metric(model, 4), metric_of(X, H), rtol=1e-7, atol=1e-9)


def metric_of(X, H):
    U = np.linalg.lstsq(X, H, rcond=None)[0]
    return U @ U.T


def test_a_linear_full_rank_stack_warns():
    with pytest.warns(UserWarning, match="collapse to one"):
        LayeredGMML(activation=None).fit(*make_blobs())


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_layers": 0}, "n_layers=0 must be at least 1"),
        ({"t": -1}, r"t=-1 must lie in \[0, 1\]"),
        ({"activation": "relu"}, "'tanh' or None"),
        ({"dims": (4,)}, "must name 2 widths"),
        ({"dims": (2, 3)}, "never grow"),
        ({"dims": (5, 3)}, "never grow"),
    ],
)
def test_wrong_parameters_are_named(params, message):
    with pytest.raises(ValueError, match=message):
        LayeredGMML(**params).fit(*make_blobs())
