"""Input that makes no sense, for learners of numbers, comparisons, views and priors: each is named."""

import warnings

import numpy as np
import pytest

from isometry import (
    CCA,
    ITML,
    LSML,
    MLKR,
    SDML,
    SIR,
    KernelCCA,
    Labels,
    PrivilegedML,
    Quadruplets,
    RelativeML,
    Triplets,
)
from isometry.sampling import OrdinalTriplets


@pytest.fixture
def X(rng):
    return rng.normal(size=(40, 3))


@pytest.mark.parametrize("learner", [MLKR(), SIR()], ids=lambda e: type(e).__name__)
def test_targets_that_are_constant_or_missing(learner, X):
    with pytest.raises(ValueError, match=r"needs targets that vary; y is constant, \[2\.5\] in every row"):
        learner.fit(X, np.full(40, 2.5))
    for bad in (np.nan, np.inf):
        y = X[:, 0].copy()
        y[[7, 9]] = bad
        with pytest.raises(ValueError, match=r"2 missing or infinite targets.*first at row 7"):
            learner.fit(X, y)


@pytest.mark.parametrize("learner", [LSML(), RelativeML()], ids=lambda e: type(e).__name__)
def test_comparisons_that_contradict_one_another_are_counted(learner, X):
    """0-1 < 2-3 < 4-5 < 0-1 is a circle of three; the fourth stands outside."""
    circle = Quadruplets([0, 2, 4, 6], [1, 3, 5, 7], [2, 4, 0, 8], [3, 5, 1, 9], n_samples=40)
    with pytest.warns(UserWarning, match="3 of 4 comparisons contradict one another"):
        learner.fit(X, circle)
    assert np.isfinite(learner.components_).all()
    both = Triplets([0, 0, 3], [1, 2, 4], [2, 1, 5], n_samples=40)
    with pytest.warns(UserWarning, match="2 of 3 comparisons contradict one another"):
        learner.fit(X, both)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RelativeML(max_iter=500, tol=1e-3).fit(X, Quadruplets([0, 2], [1, 3], [2, 6], [3, 7], n_samples=40))


def test_views_of_different_length(X, rng):
    with pytest.raises(ValueError, match="X has 40 samples but privileged has 39"):
        PrivilegedML().fit(X, rng.integers(0, 2, 40), privileged=rng.normal(size=(39, 2)))
    for method in (CCA, KernelCCA):
        learner = method(views=[[0], [1, 2]]).fit(X)  # different widths are no fault
        with pytest.raises(ValueError, match="view 0 has 1 columns, but X has 2"):
            learner.transform_view(X[:, :2], 0)


def test_ranks_with_ties_have_no_order_among_themselves(X):
    y = np.repeat([1, 2, 2, 3], 10)
    drawn = OrdinalTriplets(k=3, misses=39).draw(X, Labels(y), np.random.RandomState(0))
    a, p, n = y[drawn.a], y[drawn.p], y[drawn.n]
    own = p == a
    assert np.all(n[own] != a[own])  # its own rank before others
    assert np.all(p[~own] != n[~own])  # two of one rank are not compared
    assert np.all(np.abs(p - a) < np.abs(n - a))
    tied = OrdinalTriplets().draw(X, Labels(np.ones(40, dtype=int)), np.random.RandomState(0))
    assert len(tied.a) == 0  # all on one rank: nothing to compare


@pytest.mark.parametrize("learner", [LSML, SDML, ITML], ids=lambda e: e.__name__)
def test_priors_that_are_not_positive_definite(learner, X, rng):
    y = rng.integers(0, 2, 40)
    for prior, message in (
        (np.diag([1.0, 1.0, -1.0]), "positive"),
        (np.diag([1.0, 1.0, 0.0]), "positive"),
        (np.array([[1.0, 2, 0], [0, 1, 0], [0, 0, 1]]), "symmetric"),
        (np.eye(2), "shape|3"),
        (np.full((3, 3), np.nan), "NaN|finite"),
    ):
        with pytest.raises(ValueError, match=message):
            learner(prior=prior).fit(X, y)
