"""Proof tests of S8: kernel versions of LFDA, ANMM, MFA, DMLMJ, KISSME and LMNN."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_circles

from isometry import (
    ANMM,
    DMLMJ,
    KISSME,
    LFDA,
    LMNN,
    MFA,
    KernelANMM,
    KernelDMLMJ,
    KernelKISSME,
    KernelLFDA,
    KernelLMNN,
    KernelMFA,
)
from isometry.core.distance import sqdist
from tests.conftest import make_blobs

CLOSED = [(KernelLFDA, LFDA), (KernelANMM, ANMM), (KernelMFA, MFA), (KernelDMLMJ, DMLMJ), (KernelKISSME, KISSME)]
EVERY = [*CLOSED, (KernelLMNN, LMNN)]


def named(cases):
    return pytest.mark.parametrize("kernel, linear", cases, ids=[k.__name__ for k, _ in cases])


@named(CLOSED)
def test_S8_the_linear_kernel_gives_the_linear_method(kernel, linear):
    X, y = make_blobs(n=50)
    new = np.r_[X, X[:7] + 0.3]
    A = sqdist(linear().fit(X, y).transform(new))
    B = sqdist(kernel(kernel="linear", variance=1.0).fit(X, y).transform(new))
    assert_allclose(B, A, rtol=0, atol=1e-7 * A.max())


def test_S8_the_linear_kernel_gives_lmnn():
    """The minimum is unique up to tol."""
    X, y = make_blobs(n=40)
    a, b = (
        LMNN(tol=1e-4, strength=1.0).fit(X, y),
        KernelLMNN(kernel="linear", variance=1.0, tol=1e-4, strength=1.0).fit(X, y),
    )
    A, B = sqdist(a.transform(X)), sqdist(b.transform(X))
    assert_allclose(B, A, rtol=0, atol=5e-2 * A.max())
    assert_allclose(b.learner_.objective_, a.objective_, rtol=2e-4)


@named(EVERY)
def test_S8_rings_get_means_of_their_own(kernel, linear):
    """Two rings about one centre: under every linear map their means coincide, and nearest means tell nothing."""
    X, y = make_circles(120, factor=0.4, noise=0.1, random_state=0)
    learner = kernel(gamma=0.5).fit(X, y)
    assert learner.basis_.shape[1] < 120 and learner.center and learner.variance == "auto"

    def by_means(Z):
        means = np.array([Z[y == c].mean(axis=0) for c in (0, 1)])
        return np.mean(sqdist(Z, means).argmin(axis=1) == y)

    assert by_means(learner.transform(X)) > 0.9 > 0.7 > by_means(linear().fit(X, y).transform(X))


@named(EVERY)
def test_S8_options_reach_the_kernel_and_the_learner(kernel, linear):
    X, y = make_blobs(n=60)
    learner = kernel(2, kernel="poly", degree=2, landmarks=30, variance=0.9, random_state=0)
    assert isinstance(learner.learner, linear) and learner.learner.n_components == 2
    assert learner.fit(X, y).transform(X).shape == (60, 2) and learner.landmarks_.shape == (30, 4)
