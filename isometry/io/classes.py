"""The classes that a model file may name: this list, and nothing else.

A file names a class by its public name, such as ``isometry.LMNN`` or ``sklearn.decomposition.PCA``. Where the class
lives in the code is looked up here, so that code can move and files stay readable. A name that is not on the list is
refused before anything is imported.
"""

from __future__ import annotations

import importlib
from functools import cache

from isometry.registry import all_methods

__all__ = ["find_class", "name_of", "today_attribute", "today_parameters"]

PACKAGE = __name__.partition(".")[0]

# learners, samplers and descriptors beside those of the method table
ESTIMATORS = {
    "isometry.FixedMetric": "isometry.fixed",
    "isometry.Kernelized": "isometry.kernelized",
    "isometry.Shrunk": "isometry.shrunk",
    "isometry.AutoMetric": "isometry.select.auto",
    "isometry.Normalized": "isometry.normalized",
    "isometry.PairVerifier": "isometry.select.calibrate",
    "isometry.SigmoidLink": "isometry.select.link",
    "isometry.StepLink": "isometry.select.link",
    "isometry.Index": "isometry.search.index",
    "isometry.Matcher": "isometry.search.matcher",
    "isometry.Quantizer": "isometry.search.quantizer",
    "isometry.AllPairs": "isometry.sampling",
    "isometry.NeighborPairs": "isometry.sampling",
    "isometry.NeighborTriplets": "isometry.sampling",
    "isometry.OrdinalTriplets": "isometry.sampling",
    "isometry.RandomChunklets": "isometry.sampling",
    "isometry.RandomComparisons": "isometry.sampling",
    "isometry.RandomPairs": "isometry.sampling",
    "isometry.CoefficientFastNCA": "isometry.kernel.coefficient_penalty",
    "isometry.CovarianceDescriptor": "isometry.geometric.descriptors",
    "isometry.SubspaceDescriptor": "isometry.geometric.descriptors",
}
# values that learners keep
PLAIN = {
    "isometry.Candidates": "isometry.supervision",
    "isometry.Chunklets": "isometry.supervision",
    "isometry.Labels": "isometry.supervision",
    "isometry.Pairs": "isometry.supervision",
    "isometry.Quadruplets": "isometry.supervision",
    "isometry.Slices": "isometry.supervision",
    "isometry.StreamMoments": "isometry.core.moments",
    "isometry.Targets": "isometry.supervision",
    "isometry.Triplets": "isometry.supervision",
}
NAMED_TUPLES = {
    "isometry.EdgeList": "isometry.supervision",
    "isometry.Group": "isometry.core.moments",
    "isometry.HeldOutPairs": "isometry.select.operating",
    "isometry.Interval": "isometry.eval.intervals",
    "isometry.Prior": "isometry.probabilistic.bayesian",
    "isometry.Seen": "isometry.probabilistic.bayesian",
}
SKLEARN = {
    "sklearn.compose": ("ColumnTransformer",),
    "sklearn.decomposition": ("PCA", "TruncatedSVD", "FastICA", "NMF"),
    "sklearn.discriminant_analysis": ("LinearDiscriminantAnalysis",),
    "sklearn.frozen": ("FrozenEstimator",),
    "sklearn.feature_selection": ("VarianceThreshold",),
    "sklearn.impute": ("MissingIndicator", "SimpleImputer"),
    "sklearn.pipeline": ("Pipeline",),
    "sklearn.preprocessing": (
        *("MaxAbsScaler", "MinMaxScaler", "Normalizer", "PowerTransformer", "QuantileTransformer"),
        *("OneHotEncoder", "OrdinalEncoder", "RobustScaler", "StandardScaler"),
    ),
    "sklearn.random_projection": ("GaussianRandomProjection",),
}

# names that files of earlier versions use → names of today. An entry is never removed
RENAMED: dict[str, str] = {}
# the same for parameters, by the class's name of today; None for a parameter that is gone
RENAMED_PARAMETERS: dict[str, dict[str, str | None]] = {}
# the same for fitted attributes
RENAMED_ATTRIBUTES: dict[str, dict[str, str]] = {"isometry.StreamMoments": {"_means": "_offsets"}}


@cache
def _modules(kind: str) -> dict[str, str]:
    """Public name → module, for "estimator", "plain" or "named"."""
    if kind != "estimator":
        return PLAIN if kind == "plain" else NAMED_TUPLES
    modules = dict(ESTIMATORS)
    for row in all_methods(kind="estimator"):
        module, _, name = row.target.partition(":")
        modules[f"{PACKAGE}.deep.{name}" if row.family == "deep" else f"{PACKAGE}.{name}"] = module
    return modules | {f"{module}.{name}": module for module, names in SKLEARN.items() for name in names}


def find_class(name: str, kind: str, *, by_path: bool = False) -> type | None:
    """The class of that name and kind, None if it is not on the list.

    ``by_path``: files of version 0.1 say ``"isometry.spectral.lmnn:LMNN"``, with the module of that time. Of it only
    the last name counts, which no two classes share.
    """
    if by_path:
        name = _name_of_path(name)
    name = RENAMED.get(name, name)
    module = _modules(kind).get(name)
    if module is None:
        return None
    found = getattr(importlib.import_module(module), name.rpartition(".")[2])
    return found if isinstance(found, type) else None  # some rows of the method table are functions


def _name_of_path(path: str) -> str:
    module, _, last = path.partition(":")
    if not module.startswith(f"{PACKAGE}."):
        return f"{module}.{last}"
    return f"{PACKAGE}.deep.{last}" if module.startswith(f"{PACKAGE}.deep.") else f"{PACKAGE}.{last}"


def name_of(cls: type, kind: str) -> str | None:
    """The public name of a class that may be stored, None for any other."""
    for name in _modules(kind):
        if name.rpartition(".")[2] == cls.__name__ and find_class(name, kind) is cls:
            return name
    return None


def today_parameters(cls: type, params: dict[str, object]) -> dict[str, object]:
    """Parameters under the names they have today, without those that are gone."""
    renamed = RENAMED_PARAMETERS.get(name_of(cls, "estimator") or "", {})
    return {new: value for old, value in params.items() if (new := renamed.get(old, old)) is not None}


def today_attribute(cls: type, kind: str, name: str) -> str:
    """A fitted attribute under the name it has today."""
    return RENAMED_ATTRIBUTES.get(name_of(cls, kind) or "", {}).get(name, name)


def sklearn_names() -> list[str]:
    """What may be stored of scikit-learn, for messages."""
    return sorted(name for names in SKLEARN.values() for name in names)
