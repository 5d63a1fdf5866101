"""What annotations of parameters promise, for every learner of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from isometry import DRML, GMML, ITML, NCA, PCCA, FastNCA, Kernelized, RandomPairs
from isometry.parameters import (
    Count,
    Iterations,
    NotNegative,
    Positive,
    PositiveShare,
    Seed,
    Share,
    _annotations,
    check_parameters,
    union_members,
)
from isometry.registry import all_methods
from tests.conftest import make_blobs

WRONG = {
    Positive: (0, -1.0, np.nan, [1.0]),
    NotNegative: (-1e-9, -1, np.nan, np.inf),
    union_members(Seed)[0]: (-1, 2**32, 2.5),
    Share: (-0.1, 1.1, np.nan),
    PositiveShare: (0, -0.1, 1.1, np.nan),
    Count: (0, 1.5, -3, np.nan),
    Iterations: (-1, 2.5, np.nan),
    float: (np.nan,),
    int: (2.5,),
    bool: (2.5, None),
    Any: (5, -1),  # a learner, columns of views
    Sequence[Any]: ([[99]], 5),
    np.ndarray: (np.ones((7, 9)), np.full((4, 4), np.nan)),
    Sequence[int]: ([0, 1], [2.5, 1]),
    tuple[float, float]: ((1.0,), (2.0, 1.0), (np.nan, 1.0)),
}
RIGHT = {
    Positive: (1e-9, 3, np.inf, np.float32(2)),
    NotNegative: (0, 1.0),
    union_members(Seed)[0]: (0, 2**32 - 1, np.int64(5)),
    Share: (0, 1),
    PositiveShare: (0.5, 1),
    Count: (1, np.int64(5)),
    Iterations: (0, 7),
    float: (-2.5, 3, np.float32(2)),
    int: (-1, np.int64(5)),
    bool: (True, np.False_),
}
METHODS = [m for m in all_methods(kind="estimator") if m.family != "deep"]
CASES = [
    pytest.param(method, name, kinds, id=f"{method.key}-{name}")
    for method in METHODS
    for name, kinds in _annotations(type(method.example())).items()
]


def data_for(method):
    if "histograms" in method.traits:
        X, y = make_blobs()
        return np.abs(X), y
    if "matrix-samples" not in method.traits:
        return make_blobs()
    X, y = make_blobs(d=9)
    A = X.reshape(-1, 3, 3)
    return (A @ A.swapaxes(1, 2) if "SPD" in method.name else A[:, :, :2]), y


@pytest.mark.parametrize("method, name, kinds", CASES)
def test_what_a_parameter_may_not_be_is_refused_by_name(method, name, kinds):
    """Every parameter of every learner, with text, objects, fractions, negative numbers, 0 and NaN."""
    (X, y), learner = data_for(method), method.example()
    check_parameters(learner)
    wrong = ["nonsense", object(), *(value for kind in kinds for value in WRONG.get(kind, ()))]
    numbers = [kind for kind in kinds if kind in (float, int)]  # any finite number is allowed
    wrong = [v for v in wrong if not (numbers and isinstance(v, Real) and v == v and (float in kinds or v == int(v)))]
    if type(None) in kinds:
        wrong = [value for value in wrong if value is not None]
    if name == "prior" and getattr(learner, "reg", 1) == 0:  # then a prior is of no use, and its shape not looked at
        learner.set_params(reg=0.1)
    for value in wrong:
        with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b|\bview "):
            clone(learner).set_params(**{name: value}).fit(X, y)
    for value in (value for kind in kinds for value in RIGHT.get(kind, ())):
        check_parameters(clone(learner).set_params(**{name: value}))


@pytest.mark.parametrize("method", [m for m in METHODS if "max_iter" in m.example().get_params()], ids=lambda m: m.key)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_iterations_leave_the_start_or_are_refused(method):
    X, y = data_for(method)
    learner = method.example().set_params(max_iter=0)
    if Count in _annotations(type(learner))["max_iter"]:
        with pytest.raises(ValueError, match="max_iter=0 must be at least 1"):
            learner.fit(X, y)
    else:
        Z = np.asarray(learner.fit(X, y).transform(X))
        assert np.isfinite(Z).all() and np.ptp(Z, axis=0).max() > 0


@pytest.mark.parametrize("learner", [NCA, FastNCA, PCCA, DRML])
def test_dimensions_are_counted_in_features_also_where_samples_are_fewer(learner):
    X, y = np.random.default_rng(0).standard_normal((6, 10)), [0, 1] * 3
    with pytest.raises(ValueError, match="n_components=11 must be between 1 and the number of features, 10"):
        learner(11).fit(X, y)
    assert learner(6).fit(X, y).transform(X).shape == (6, 5)  # all that 6 samples span


def test_fit_and_partial_fit_look_at_the_parameters_first():
    X, y = make_blobs()
    with pytest.raises(ValueError, match=r"t=2 must lie in \[0, 1\]"):
        GMML(t=2).fit(X[:1], y)
    with pytest.raises(ValueError, match=r"t=2 must lie in \[0, 1\]"):
        GMML(t=2).partial_fit(X, y)
    with pytest.raises(ValueError, match="objective='product' is unknown; expected 'sum' or 'log'"):
        NCA(objective="product").fit(X, y)


def test_parameters_of_samplers_and_of_learners_within_are_checked():
    X, y = make_blobs()
    for sampler in (RandomPairs(0), RandomPairs(2.5), RandomPairs("many")):
        with pytest.raises(ValueError, match="n="):
            ITML(pairs=sampler).fit(X, y)
    with pytest.raises(ValueError, match="t=2 must lie in"):
        Kernelized(GMML(t=2)).fit(X, y)
    with pytest.raises(TypeError, match="learner must be a metric learner"):
        Kernelized("GMML").fit(X, y)


def test_text_columns_of_a_table_are_named():
    pd = pytest.importorskip("pandas")
    X, y = make_blobs()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(city=["text"] * len(X), kind=pd.Categorical(["b"] * len(X)))
    with pytest.raises(ValueError, match="Columns of X that do not hold numbers: city, kind"):
        NCA().fit(frame, y)
