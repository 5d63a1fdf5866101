"""Samples of a size or a spread that no metric can be learned from, for every learner of the registry."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isometry import LMNN, NCA, RCA, AutoMetric, Covariance, Euclidean, PrivilegedML, ProbabilisticRCA, compare
from isometry.core.scale import LARGEST, SMALLEST, check_can_be_scaled, check_scale
from isometry.registry import all_methods
from tests.conftest import make_blobs

METHODS = [
    m
    for m in all_methods(kind="estimator")
    if m.family != "deep" and not {"matrix-samples", "histograms"} & set(m.traits) and m.sees
]
LEARNERS = pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)


@pytest.mark.parametrize("scaler", ["standard", "minmax", "robust", "normalize"])
def test_a_comparison_names_numbers_too_large_to_be_scaled(scaler):
    """A scaler would make NaN of them, of which nobody who looks at the table finds any."""
    X, y = make_blobs()
    for size in (1e200, 1e305):
        with pytest.raises(ValueError, match=r"X holds numbers as large as .*column 0\): their squares do not fit"):
            compare(X * size, y, ["RCA"], scaler=scaler)
        with pytest.raises(ValueError, match="X holds numbers as large as"):
            AutoMetric([RCA()], scaler=scaler).fit(X * size, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        check_can_be_scaled(np.float32(1e30 * X))  # a limit that 32 bits cannot hold
    assert np.isfinite(AutoMetric([RCA()], scaler="standard", n_splits=2).fit(X * 1e140, y).transform(X * 1e140)).all()


@LEARNERS
def test_samples_too_large_too_small_or_all_equal_are_named(method):
    X, y = make_blobs()
    learner = method.example()
    wrong = {
        r"as large as 1.4e\+201 \(in column 0\).*do not fit in float64. Take a larger unit, say divide by 1e\+201$": (
            X * 1e200
        ),
        r"do not fit in float32. Take a larger unit, say divide by 1e\+21, or pass it as float64": (
            (X * 1e20).astype(np.float32)
        ),
    }
    if method.key != "EUC":  # which learns nothing: the identity suits any samples
        wrong |= {
            "all samples are equal: X holds 45 times the same one": np.full_like(X, 1e9 / 3),
            "differ by 1.9e-99 at most: .* vanish in float64. Take a smaller unit, say divide by 2e-99": X * 1e-100,
            "vanish in float32": (X * 1e-30).astype(np.float32),
        }
    for message, samples in wrong.items():
        with pytest.raises(ValueError, match=message):
            learner.fit(samples, y)


@LEARNERS
@pytest.mark.parametrize("unit", [1e45, 1e-45])
@pytest.mark.filterwarnings("ignore::UserWarning")  # convergence; RuntimeWarning is an error
def test_within_the_limits_every_unit_gives_a_metric(method, unit):
    X, y = make_blobs()
    learner = method.example()
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    Z = np.asarray(learner.fit(X * unit, y).transform(X * unit))
    assert np.isfinite(Z).all() and np.ptp(Z, axis=0).max() > 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_limits_themselves(dtype):
    X = np.zeros((200, 3), dtype=dtype)
    X[199, 1] = LARGEST[dtype]  # a row that a glance at some rows does not see
    check_scale(X)
    X[199, 1] = SMALLEST[dtype] * 1.01
    check_scale(X)
    for wrong in (SMALLEST[dtype] / 2, 0.0, -LARGEST[dtype] * 1.01):
        X[199, 1] = wrong
        with pytest.raises(ValueError, match=r"in column 1|all samples are equal|differ by"):
            check_scale(X)
    X[:] = 0
    check_scale(X, varied=False)
    check_scale(X[:0])


def test_further_features_are_checked_under_their_name():
    X, y = make_blobs()
    with pytest.raises(ValueError, match="privileged holds numbers as large as"):
        PrivilegedML().fit(X, y, privileged=X * 1e200)


def test_chunks_are_checked_for_their_size_but_may_be_constant():
    X, y = make_blobs()
    learner = Covariance(reg=0.0)
    with pytest.raises(ValueError, match="do not fit in float64"):
        learner.partial_fit(X * 1e200, y)
    learner.partial_fit(np.tile(X[:1], (5, 1)))
    with pytest.raises(ValueError, match="all rows so far are equal"):
        learner.transform(X)
    learner.partial_fit(X[1:])
    assert_allclose(learner.mahalanobis_, Covariance(reg=0.0).fit(np.r_[np.tile(X[:1], (5, 1)), X[1:]]).mahalanobis_)


@pytest.mark.parametrize(
    "learner",
    [RCA(reg=0.0), RCA(2, reduction="fisher", reg=0.0), ProbabilisticRCA(reg=0.0), ProbabilisticRCA(2, reg=1e-6)],
)
def test_columns_of_any_unit_count_in_relevant_components(learner):
    """Units from 1e-6 to 1e6 give the metric of columns without units."""
    X, y = make_blobs()
    unit = np.logspace(-6, 6, 4)
    L = learner.fit(X, y).components_
    with pytest.warns(UserWarning, match=r"column 0 has the standard deviation 5.1e-06, column 3 4e\+06"):
        scaled = learner.fit(X * unit, y).components_ * unit
    W = L.T @ L
    assert_allclose(scaled.T @ scaled, W, atol=1e-5 * np.abs(W).max())


def test_columns_that_vary_little_beside_others_are_named():
    X, y = make_blobs()
    unit = np.array([1.0, 1e7, 1.0, 1.0])
    for learner in (NCA(max_iter=2, strength=1.0), LMNN(max_iter=2, strength=1.0), Covariance()):
        with pytest.warns(UserWarning, match="The metric may not see the small ones: divide each by its deviation"):
            learner.fit(X * unit, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Covariance().fit(np.c_[X * [1e-2, 1e2, 1.0, 1.0], np.full(len(X), 1e9)], y)  # a constant has no unit
        Euclidean().fit(X * unit)
