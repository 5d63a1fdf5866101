"""What calls itself converged is as low as a much longer search gets; what stops before says so."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from isometry.geometric import AML, CDML, DRML, SPDGMML, GrassmannGMML, LayeredGMML, LowRankGMML
from isometry.geometric.descriptors import CovarianceDescriptor, SubspaceDescriptor


def wine():
    X, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def digits(descriptor):
    digits = load_digits()
    return descriptor.fit_transform(digits.images[:200]), digits.target[:200]


def fit(model, X, y):
    """The fitted model, and whether it warned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, any(issubclass(w.category, ConvergenceWarning) for w in caught)


SEARCHES = {
    "AML": AML(strength=1.0),
    "DRML": DRML(strength=1.0),
    "DRML of two components": DRML(2, strength=1.0),
    "LowRankGMML": LowRankGMML(strength=1.0),
    "LowRankGMML, trace": LowRankGMML(3, objective="trace", strength=1.0),
    "CDML of lines": CDML(degree=1, random_state=0),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_converged_means_within_a_thousandth_of_a_longer_search(name):
    X, y = wine()
    model, warned = fit(SEARCHES[name], X, y)
    limit = "n_epochs" if hasattr(model, "n_epochs") else "max_iter"
    longer = type(model)(**{**model.get_params(), limit: 10 * getattr(model, limit), "tol": model.tol / 1e3})
    longer, _ = fit(longer, X, y)
    assert warned != model.converged_
    if model.converged_:
        assert model.history_[-1] <= longer.history_[-1] + 1e-3 * abs(longer.history_[-1])


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_cut_short_says_so(name):
    X, y = wine()
    limit = "n_epochs" if hasattr(SEARCHES[name], "n_epochs") else "max_iter"
    model, warned = fit(type(SEARCHES[name])(**{**SEARCHES[name].get_params(), limit: 2}), X, y)
    assert warned and not model.converged_ and model.stop_reason_ == f"{limit}=2 reached"


def test_fixed_points_are_where_longer_searches_end():
    X, y = digits(SubspaceDescriptor(2))
    model, warned = fit(GrassmannGMML(max_iter=100), X, y)
    longer, _ = fit(GrassmannGMML(max_iter=1000, tol=1e-10), X, y)
    assert model.converged_ and not warned
    gap = np.linalg.norm(model.mahalanobis_ - longer.mahalanobis_)
    assert gap <= 1e-3 * np.linalg.norm(longer.mahalanobis_)
    model, warned = fit(GrassmannGMML(max_iter=2), X, y)
    assert warned and not model.converged_


def test_alternating_adversary_ends_at_its_fixed_point():
    X, y = wine()
    model, warned = fit(AML(solver="alternating", strength=1.0), X, y)
    longer, _ = fit(AML(solver="alternating", max_iter=2000, tol=1e-14, strength=1.0), X, y)
    assert model.converged_ and not warned
    gap = np.linalg.norm(model.mahalanobis_ - longer.mahalanobis_)
    assert gap <= 1e-3 * np.linalg.norm(longer.mahalanobis_)


@pytest.mark.parametrize("model", [LayeredGMML(), SPDGMML()], ids=lambda model: type(model).__name__)
def test_closed_forms_claim_nothing(model):
    model, warned = fit(model, *(wine() if isinstance(model, LayeredGMML) else digits(CovarianceDescriptor())))
    assert not warned and not hasattr(model, "converged_")
