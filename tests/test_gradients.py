"""Finite differences for every objective of the registry, in L and in W."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry.registry import all_methods
from isometry.supervision import Labels, Pairs, as_supervision
from tests.conftest import make_blobs

pytestmark = pytest.mark.filterwarnings("ignore")

METHODS = [m for m in all_methods(kind="estimator") if "objective" in m.traits]
SIDES = {"labels": lambda y: Labels(y), "pairs": lambda y: Labels(y).to(Pairs)}
CASES = [
    pytest.param(m, side, id=f"{m.key}-{side}")
    for m in METHODS
    for side in SIDES
    if side in m.sees.replace(",", " ").split()
]


def central_differences(f, x, h=1e-6):
    g = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        e = np.zeros_like(x)
        e[index] = h
        g[index] = (f(x + e) - f(x - e)) / (2 * h)
    return g


def problem(method, side):
    X, y = make_blobs(n=25, d=3)
    X = X - X.mean(axis=0)
    learner = method.example()
    information = as_supervision(SIDES[side](y), len(X))
    objective = learner._objective(X, information, np.random.RandomState(0))
    scale = 1 / np.sqrt(np.var(X, axis=0).sum())
    rows = min(learner.get_params().get("n_components") or 3, 3)
    return objective, scale * np.random.default_rng(3).standard_normal((rows, 3))


@pytest.mark.parametrize("method, side", CASES)
def test_gradient_in_the_map(method, side):
    objective, L = problem(method, side)
    numeric = central_differences(lambda M: objective(M)[0], L)
    assert_allclose(objective(L)[1], numeric, rtol=1e-5, atol=1e-7 * np.abs(numeric).max())
    assert np.abs(numeric).max() > 1e-8


@pytest.mark.parametrize("method, side", CASES)
def test_gradient_in_the_metric_agrees(method, side):
    """∂f/∂L = 2 L ∂f/∂W."""
    objective, L = problem(method, side)
    if objective.penalty is not None and objective.penalty_slope is None:
        pytest.skip("its penalty is stated on L only")
    assert_allclose(2 * L @ objective.metric_gradient(L), objective(L)[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method, side", CASES)
def test_blocks_do_not_change_the_objective(method, side):
    import sklearn

    objective, L = problem(method, side)
    f, g = objective(L)
    with sklearn.config_context(working_memory=0.002):  # a few rows at a time
        f_small, g_small = objective(L)
    assert_allclose(f_small, f, rtol=1e-12)
    assert_allclose(g_small, g, rtol=1e-9, atol=1e-12)
