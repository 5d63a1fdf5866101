"""Every learner on every kind of messy input: a finite metric that is not zero, or an error in our own words.

An error counts as ours if it was raised in this package, or in scikit-learn's check of its input. Where the input is
sound, if unusual, there must be no error; where it says the same as plain arrays, the metric must be the same, too.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp

import isometry
from isometry.core.distance import sqdist
from isometry.registry import all_methods
from tests.conftest import make_blobs

pytestmark = pytest.mark.slow

METHODS = [m for m in all_methods(kind="estimator") if m.family != "deep"]


class Made(NamedTuple):
    """What this exam asks of a row of the table."""

    key: str
    sees: str
    example: Callable
    traits: tuple = ()
    target: str = ""

    @property
    def name(self):
        return self.key


METHODS += [  # learners made of others, and a metric that is given: no rows of the table
    Made(*row)
    for row in (
        ("Normalized(RCA)", "labels", lambda: isometry.Normalized(isometry.RCA())),
        ("Normalized(KDCA)", "labels", lambda: isometry.Normalized(isometry.KDCA(random_state=0))),
        ("Shrunk(GMML)", "labels", lambda: isometry.Shrunk(isometry.GMML(reg=0.1))),
        ("Shrunk(LMNN)", "labels", lambda: isometry.Shrunk(isometry.LMNN(max_iter=30))),
        ("AutoMetric", "labels, targets", lambda: isometry.AutoMetric([isometry.RCA(), isometry.GMML()], n_splits=3)),
        ("FixedMetric", "none", lambda: isometry.FixedMetric(np.diag([1.0, 2.0, 3.0, 4.0]))),
    )
]
PLAIN = "values: as it is"
OURS = ("isometry", "sklearn.utils", "sklearn.base")
pd = pytest.importorskip("pandas")


def make_matrices(columns, n=45, seed=0):
    """SPD matrices (n, 3, 3) of three classes, or orthonormal frames (n, 3, 2) if there are fewer columns."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], n // 3)
    A = rng.standard_normal((n, 3, 3)) + 2 * rng.standard_normal((3, 3, 3))[y]
    return (A @ A.swapaxes(1, 2) + np.eye(3), y) if columns == 3 else (np.linalg.qr(A)[0][:, :, :columns], y)


def few(X, y, n, labels):
    return X[:: len(X) // n][:n], np.asarray(labels)


def widened(X, y):
    """A third of the rows; of a table, with thirty columns more."""
    noise = np.random.default_rng(5).standard_normal((len(X[::3]), 30))
    return (np.c_[X[::3], noise] if X.ndim == 2 else X[::3]), y[::3]


def scattered(X, y):
    """Every second row of an array twice as long."""
    wide = np.zeros((2 * len(X), *X.shape[1:]))
    wide[::2] = X
    return wide[::2], y


VALUES = {
    "as it is": lambda X, y: (X, y),
    "offset 1e3": lambda X, y: (X + 1e3, y),
    "offset 1e6": lambda X, y: (X + 1e6, y),
    "offset 1e9": lambda X, y: (X + 1e9, y),
    "offset of one column": lambda X, y: (X + np.r_[1e9, np.zeros(X.shape[-1] - 1)], y),
    "offset in float32": lambda X, y: ((X + 1e4).astype(np.float32), y),
    "offset beyond all digits": lambda X, y: (X + 1e18, y),
    "scales 1e-6 to 1e6": lambda X, y: (X * np.logspace(-6, 6, X.shape[-1]), y),
    "scales and offsets": lambda X, y: ((X + 10) * np.logspace(-3, 5, X.shape[-1]), y),
    "constant": lambda X, y: (np.full_like(X, 3.7), y),
    "zero": lambda X, y: (np.zeros_like(X), y),
    "constant in each class": lambda X, y: (X[np.searchsorted(np.sort(y), y)], y),
    "constant but one entry": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 5, 1.0, 0.0), y),
    "two different rows": lambda X, y: (X[y % 2], y),
    "one column varies": lambda X, y: (np.where(np.arange(X.shape[-1]) == 1, X, 2.5), y),
    "huge 1e200": lambda X, y: (X * 1e200, y),
    "huge 1e308": lambda X, y: (X / np.abs(X).max() * 1e308, y),
    "one huge column": lambda X, y: (X * np.r_[1e200, np.ones(X.shape[-1] - 1)], y),
    "one huge entry": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 5, 1e200, X), y),
    "one outlier": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 5, 1e12, X), y),
    "huge float32": lambda X, y: ((X * 1e20).astype(np.float32), y),
    "large 1e20": lambda X, y: (X * 1e20, y),
    "small 1e-20": lambda X, y: (X * 1e-20, y),
    "large 1e45": lambda X, y: (X * 1e45, y),
    "small 1e-45": lambda X, y: (X * 1e-45, y),
    "tiny 1e-100": lambda X, y: (X * 1e-100, y),
    "tiny 1e-160": lambda X, y: (X * 1e-160, y),
    "tiny 1e-310": lambda X, y: (X * 1e-310, y),
    "tiny float32": lambda X, y: ((X * 1e-30).astype(np.float32), y),
}
SIZES = {
    "n < d": widened,
    "n < d, offset": lambda X, y: (widened(X, y)[0] + 1e6, y[::3]),
    "2 rows, 2 classes": lambda X, y: few(X, y, 2, [0, 1]),
    "2 rows, 1 class": lambda X, y: few(X, y, 2, [1, 1]),
    "3 rows, 2 classes": lambda X, y: few(X, y, 3, [0, 0, 1]),
    "3 rows, 3 classes": lambda X, y: few(X, y, 3, [0, 1, 2]),
    "4 rows, 2 classes": lambda X, y: few(X, y, 4, [0, 0, 1, 1]),
    "one column": lambda X, y: (X[..., :1], y),
    "classes of one": lambda X, y: (X, np.where(np.arange(len(y)) < 40, 0, np.arange(len(y)))),
    "each row a class": lambda X, y: (X, np.arange(len(y))),
    "one class": lambda X, y: (X, np.zeros(len(y), dtype=int)),
}
LABELS = {
    "strings": lambda X, y: (X, np.array(["b", "a", "c"])[y]),
    "booleans": lambda X, y: (X, y > 0),
    "objects": lambda X, y: (X, np.array(["b", "a", "c"], dtype=object)[y]),
    "float codes": lambda X, y: (X, y.astype(float)),
    "categorical": lambda X, y: (X, pd.Series(pd.Categorical.from_codes(y, ["x", "y", "z"]))),
    "unsigned": lambda X, y: (X, y.astype(np.uint8)),
    "a column": lambda X, y: (X, y[:, None]),
    "a list": lambda X, y: (X, y.tolist()),
    "a series": lambda X, y: (X, pd.Series(y, index=np.arange(len(y))[::-1])),
    "far apart": lambda X, y: (X, y * 10**12 - 7),
    "mixed": lambda X, y: (X, np.array([0, "a", 2.5], dtype=object)[y]),
    "mixed list": lambda X, y: (X, [[0, "a", 2][k] for k in y]),
    "dates": lambda X, y: (X, np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")[y]),
    "numbers": lambda X, y: (X, X.reshape(len(X), -1)[:, 0]),
    "a table": lambda X, y: (X, np.c_[y, y]),
    "too few": lambda X, y: (X, y[:-1]),
    "none": lambda X, y: (X, None),
}
CONTAINERS = {
    "list": lambda X, y: (X.tolist(), y),
    "data frame": lambda X, y: (pd.DataFrame(X, columns=list("abcd")), y) if X.ndim == 2 else (X, y),
    "mixed data frame": lambda X, y: (
        (pd.DataFrame({"a": X[:, 0], "b": ["text"] * len(X)}), y) if X.ndim == 2 else (X, y)
    ),
    "Fortran order": lambda X, y: (np.asfortranarray(X), y),
    "float32": lambda X, y: (X.astype(np.float32), y),
    "float16": lambda X, y: (X.astype(np.float16), y),
    "not contiguous": scattered,
    "reversed": lambda X, y: (X[::-1, ..., ::-1], y[::-1]),
    "read only": lambda X, y: (np.frombuffer(X.tobytes()).reshape(X.shape), y),
    "integers": lambda X, y: (np.round(10 * X).astype(int), y),
    "small integers": lambda X, y: (np.round(10 * np.abs(X)).astype(np.uint8), y),
    "booleans": lambda X, y: (X > 0, y),
    "objects": lambda X, y: (X.astype(object), y),
    "complex": lambda X, y: (X + 1j, y),
    "sparse": lambda X, y: (sp.csr_matrix(X.reshape(len(X), -1)), y),
    "missing": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 5, np.nan, X), y),
    "infinite": lambda X, y: (np.where(np.arange(X.size).reshape(X.shape) == 5, np.inf, X), y),
    "one dimension": lambda X, y: (X.ravel()[: len(y)], y),
    "no rows": lambda X, y: (X[:0], y[:0]),
}
MESSES = {
    f"{group}: {name}": mess
    for group, messes in (("values", VALUES), ("size", SIZES), ("labels", LABELS), ("container", CONTAINERS))
    for name, mess in messes.items()
}


SAME = {  # nothing but another way to write the same samples and classes
    *(f"labels: {name}" for name in LABELS if name not in ("booleans", "mixed", "mixed list", "numbers", "a table")),
    *(
        f"container: {name}"
        for name in ("list", "data frame", "Fortran order", "not contiguous", "read only", "objects")
    ),
} - {"labels: too few", "labels: none"}
SOUND = SAME | {
    "values: as it is",
    *(f"values: {name}" for name in VALUES if name.startswith(("offset", "scales", "large", "small"))),
    *("values: one column varies", "values: one outlier"),
    *(
        "size: n < d",
        "size: n < d, offset",
        "size: 3 rows, 2 classes",
        "size: 4 rows, 2 classes",
        "size: classes of one",
    ),
    *("labels: booleans", "container: float32", "container: float16", "container: reversed", "container: integers"),
} - {"values: offset beyond all digits"}
WRONG = {
    *(f"values: {name}" for name in VALUES if "huge" in name),
    *(f"labels: {name}" for name in ("mixed", "mixed list", "numbers", "a table", "too few")),
    *(
        f"container: {name}"
        for name in ("mixed data frame", "complex", "sparse", "missing", "infinite", "one dimension")
    ),
    "container: no rows",
}
NOT_FOR_MATRICES = {  # entries of a symmetric matrix, or of a basis, are no features with units of their own
    *("values: offset of one column", "values: scales 1e-6 to 1e6", "values: scales and offsets"),
    *("values: one column varies", "values: one outlier", "values: offset in float32", "container: reversed"),
}


MAY_REFUSE = {
    "CCA": {"values: one column varies"},  # and one of two views does not
    "KernelCCA": {"values: one column varies"},
    "Procrustes": {"values: one column varies"},
    "FixedMetric": {"size: n < d", "size: n < d, offset"},  # it is a matrix for four columns
    "AutoMetric": {"size: 3 rows, 2 classes", "size: classes of one"},  # there is nothing to hold out
}
RENAMED = {"labels: strings", "labels: objects"}  # classes in another order: to ordinal labels that is another order


def data_for(method):
    if "histograms" in method.traits:
        X, y = make_blobs()
        return np.abs(X), y
    if "matrix-samples" not in method.traits:
        return make_blobs()
    return make_matrices(2 if "Grassmann" in method.target else 3)


def outcome(method, mess):
    """What became of the fit: an error, or what it maps the samples to."""
    X, y = MESSES[mess](*data_for(method))
    learner = method.example()
    if "random_state" in learner.get_params():
        learner.set_params(random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            Z = np.asarray(learner.fit(X, y).transform(X))
        except Exception as error:
            return SimpleNamespace(Z=None, error=error, said=said)
    return SimpleNamespace(Z=Z, error=None, said=said)


@cache
def plain_distances(method):
    return np.sqrt(sqdist(np.asarray(outcome(method, PLAIN).Z, dtype=np.float64)))


def complaint(method, mess):
    """What is wrong with an outcome, in words; "" if nothing is."""
    result, tables = outcome(method, mess), "matrix-samples" not in method.traits
    learns = method.key != "EUC"  # the Euclidean distance leaves equal samples where they are
    classes = ("labels" in method.sees or "chunklets" in method.sees) and "targets" not in method.sees
    free = "labels" in mess and not classes  # y may be numbers, or none
    if result.error is not None:
        frame, line = list(traceback.walk_tb(result.error.__traceback__))[-1]
        module = frame.f_globals.get("__name__", "")
        if not isinstance(result.error, ValueError | TypeError) or not module.startswith(OURS):
            return f"{type(result.error).__name__} in {module}, line {line}: {result.error}"
        if free or "histograms" in method.traits:
            return ""
        if mess in MAY_REFUSE.get(method.name, ()):
            return ""
        if mess in SOUND and (tables or mess not in NOT_FOR_MATRICES):
            return f"refused: {result.error}"
        return ""
    scaled = method.name == "AutoMetric" and mess == "values: huge float32"  # it divides by deviations first
    if mess in WRONG and (tables or "data frame" not in mess) and not free and not scaled:
        return "wrong input, and no error"
    if not np.isfinite(result.Z).all():
        return "not finite"
    told = any("at distance 0 of one another" in str(w.message) for w in result.said)
    if learns and not np.ptp(result.Z, axis=0).max() > 0 and not told:
        return "all samples at one point, without a word"
    if mess in SAME and not free and not (mess in RENAMED and "ordinal" in method.name):
        plain, these = plain_distances(method), np.sqrt(sqdist(np.asarray(result.Z, dtype=np.float64)))
        if np.abs(plain - these).max() > (1e-3 if "iterative" in method.traits else 1e-6) * plain.max():
            return "another metric than for plain arrays"
    numeric = [str(w.message) for w in result.said if issubclass(w.category, RuntimeWarning)]
    return f"numpy warns: {numeric[0]}" if numeric else ""


@pytest.mark.parametrize("mess", MESSES)
@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
def test_a_metric_or_an_error_of_ours(method, mess):
    assert complaint(method, mess) == ""
