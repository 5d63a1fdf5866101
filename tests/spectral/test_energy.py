"""The energy rule of LMNN against the loss it stands for."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose

from isometry import LMNN
from isometry.spectral.energy import energies, hinge_sums
from tests.conftest import make_blobs, make_planted


def slow_energy(z, label, Z, y, k, mu, margin):
    """What (z, label) adds to the loss, targets being nearest in Z; sums over its own targets as if there were k."""
    d = lambda a, b: float(np.sum((a - b) ** 2))  # noqa: E731
    own = sorted(d(z, Z[j]) for j in range(len(Z)) if y[j] == label)[:k]
    total = 0.0
    for t in own:
        push = sum(max(0.0, margin + t - d(z, Z[l])) for l in range(len(Z)) if y[l] != label)
        total += k / len(own) * ((1 - mu) * t + mu * push)
    for i in range(len(Z)):
        if y[i] != label:
            targets = sorted(d(Z[i], Z[j]) for j in range(len(Z)) if y[j] == y[i] and j != i)[:k]
            total += mu * sum(max(0.0, margin + t - d(Z[i], z)) for t in targets)
    return total


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_M11_energies_by_their_definition(mu):
    Z, y = make_blobs(n=30, d=3)
    Z, y[-1] = Z / Z.std(axis=0), 3  # a class with one member
    new = Z[:7] + 0.3 * np.random.default_rng(0).standard_normal((7, 3))
    slow = [[slow_energy(z, c, Z, y, 3, mu, 1.5) for c in range(4)] for z in new]
    assert_allclose(energies(new, Z, y, 3, mu, 1.5), slow, rtol=1e-10)
    with sklearn.config_context(working_memory=0.005):
        assert_allclose(energies(new, Z, y, 3, mu, 1.5), slow, rtol=1e-10)


def test_M11_energy_is_what_the_loss_gains():
    """With all members as targets, the loss of the data with the new point minus that without, less what others gain.

    A point that joins class c becomes a target of c's members; the rule leaves that out, as it leaves their targets.
    """
    Z, y = make_blobs(n=12, d=2, n_classes=2)
    Z = Z / Z.std(axis=0)
    mu, margin, z, label = 0.4, 1.0, np.array([0.3, -0.2]), 1

    def loss(Z, y, skip=()):
        total = 0.0
        for i in range(len(Z)):
            for j in range(len(Z)):
                if y[i] == y[j] and i != j and (i, j) not in skip:
                    near = np.sum((Z[i] - Z[j]) ** 2)
                    far = (np.sum((Z[i] - Z[l]) ** 2) for l in range(len(Z)) if y[l] != y[i])
                    total += (1 - mu) * near + mu * sum(max(0.0, margin + near - f) for f in far)
        return total

    skip = {(i, 12) for i in range(12)}  # the new point is no target of others
    gain = loss(np.vstack([Z, z]), np.append(y, label), skip) - loss(Z, y)
    k = int(np.sum(y == label))
    other = int(np.sum(y != label))
    assert k >= other - 1  # so that k targets are all targets in both classes
    assert_allclose(energies(z[None], Z, y, k, mu, margin)[0, label], gain, rtol=1e-10)


def test_hinge_sums_with_ties():
    rng = np.random.default_rng(0)
    D, T = rng.integers(0, 5, (4, 9)).astype(float), rng.integers(0, 6, (4, 3)).astype(float)
    slow = [[sum(max(0.0, t - d) for d in D[r]) for t in T[r]] for r in range(4)]
    assert_allclose(hinge_sums(D, T), slow)


def test_M11_energy_rule_finds_the_planted_classes():
    X, y = make_planted(n=240, d=12, noise=2.0)
    names = np.array(["left", "mid", "right"])[y]
    learner = LMNN(strength=1.0).fit(X[:160], names[:160])
    predicted = learner.energy_predict(X[160:], X[:160], names[:160])
    assert predicted.dtype == names.dtype
    assert np.mean(predicted == names[160:]) > 0.95
    E = energies(learner.transform(X[160:]), learner.transform(X[:160]), y[:160], 3, 0.5, 1.0)
    assert np.all(predicted == names[[0, 1, 2]][E.argmin(axis=1)])
