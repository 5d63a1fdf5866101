"""scikit-learn's own checks over every estimator of the registry."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from isometry.kernel import KDCA
from isometry.kernelized import Kernelized
from isometry.normalized import Normalized
from isometry.probabilistic import KISSME
from isometry.registry import all_methods
from isometry.spectral import DCA, Covariance

_METHODS = all_methods(kind="estimator", family=None)
_CLASSICAL = [m for m in _METHODS if m.family != "deep"]
_NORMALIZED = [Normalized(Covariance()), Normalized(KISSME()), Normalized(KDCA(random_state=0))]
_REASONS = {repr(m.example()): dict(m.xfails) for m in _CLASSICAL}


def _instances():
    """One of each distinct configuration."""
    return list({repr(m.example()): m.example() for m in _CLASSICAL}.values())


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [*_instances(), Kernelized(Covariance()), Kernelized(DCA(), kernel="linear"), *_NORMALIZED],
    expected_failed_checks=lambda estimator: _REASONS.get(repr(estimator), {}),
)
def test_scikit_learn_check(estimator, check):
    check(estimator)
