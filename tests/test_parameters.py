"""What annotations of parameters promise, for every learner of the registry."""

from __future__ import annotations

import typing

import numpy as np
import pytest
from sklearn.base import clone

from isometry import GMML, NCA
from isometry.parameters import Count, Iterations, NotNegative, Positive, Share, _annotations, check_parameters
from isometry.registry import all_methods
from tests.conftest import make_blobs

WRONG = {
    Positive: (0, -1.0, np.nan, "text", [1.0]),
    NotNegative: (-1e-9, np.nan, "text"),
    Share: (-0.1, 1.1, np.nan),
    Count: (0, 1.5, -3, np.nan, "text"),
    Iterations: (-1, 2.5, "text"),
}
RIGHT = {
    Positive: (1e-9, 3, np.inf, np.float32(2)),
    NotNegative: (0, 1.0),
    Share: (0, 1),
    Count: (1, np.int64(5)),
    Iterations: (0, 7),
}
CASES = [
    pytest.param(method, name, kinds, id=f"{method.key}-{name}")
    for method in all_methods(kind="estimator")
    if method.family != "deep"
    for name, kinds in _annotations(type(method.example())).items()
    if any(typing.get_origin(kind) in (typing.Annotated, typing.Literal) for kind in kinds)
]


@pytest.mark.parametrize("method, name, kinds", CASES)
def test_what_an_annotation_forbids_is_refused_by_name(method, name, kinds):
    learner = method.example()
    check_parameters(learner)
    wrong = [value for kind in kinds for value in WRONG.get(kind, ())]
    if any(typing.get_origin(kind) is typing.Literal for kind in kinds):
        wrong.append("nonsense")
    for value in wrong:
        with pytest.raises(ValueError, match=f"{name}="):
            check_parameters(clone(learner).set_params(**{name: value}))
    for value in (value for kind in kinds for value in RIGHT.get(kind, ())):
        check_parameters(clone(learner).set_params(**{name: value}))


def test_fit_and_partial_fit_look_at_the_parameters_first():
    X, y = make_blobs()
    with pytest.raises(ValueError, match=r"t=2 must lie in \[0, 1\]"):
        GMML(t=2).fit(X[:1], y)
    with pytest.raises(ValueError, match=r"t=2 must lie in \[0, 1\]"):
        GMML(t=2).partial_fit(X, y)
    with pytest.raises(ValueError, match="objective='product' is unknown; expected 'sum' or 'log'"):
        NCA(objective="product").fit(X, y)
