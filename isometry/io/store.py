"""Fitted estimators in one safetensors file: arrays as tensors, all else as JSON beside them. Nothing is pickled.

The file's metadata holds a tree of tagged values: ``{"$array": "3"}`` points at tensor 3, ``{"$object":
"module:Class", …}`` opens an estimator. Reading builds only classes of this package and those listed in ``SKLEARN``, so
a file from a stranger can hold wrong numbers but runs no code.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from isometry.io.atomic import replacing

__all__ = ["StoreError", "load", "save"]

FORMAT = 1
PACKAGE = __name__.partition(".")[0]
SKLEARN = {
    "decomposition": ("PCA", "TruncatedSVD", "FastICA", "NMF"),
    "discriminant_analysis": ("LinearDiscriminantAnalysis",),
    "feature_selection": ("VarianceThreshold",),
    "impute": ("SimpleImputer",),
    "pipeline": ("Pipeline",),
    "preprocessing": (
        *("MaxAbsScaler", "MinMaxScaler", "Normalizer", "PowerTransformer", "QuantileTransformer"),
        *("RobustScaler", "StandardScaler"),
    ),
    "random_projection": ("GaussianRandomProjection",),
}
ALLOWED = {name: f"sklearn.{module}" for module, names in SKLEARN.items() for name in names}
NOT_KEPT = ("_metadata_request",)  # routing of fit arguments: of no use to a fitted estimator
TENSOR_KINDS = "biuf"
Tree = Any  # what JSON can hold


class StoreError(ValueError):
    """A file that cannot be read as a stored estimator, or an estimator that cannot be stored."""


def save(estimator: Any, path: str | os.PathLike) -> None:
    """Write a fitted estimator, or a whole pipeline of them, to one file; `load` gives it back bit for bit.

    Parameters
    ----------
    estimator : an estimator of this package, or a scikit-learn pipeline of them with the usual scalers and projections
    path : the file to write; by custom it ends in ``.safetensors``. An older file is replaced only by a complete one
    """
    from safetensors.numpy import save_file

    check_is_fitted(estimator)
    writer = _Writer()
    tree = json.dumps(writer.encode(estimator, type(estimator).__name__), allow_nan=False)
    metadata = {
        "format": PACKAGE,
        "format_version": str(FORMAT),
        "versions": json.dumps(_versions()),
        "estimator": tree,
        "sha256": _digest(tree, writer.tensors),
    }
    with replacing(path) as temporary:
        save_file(writer.tensors, temporary, metadata=metadata)


def load(path: str | os.PathLike) -> Any:
    """Read back what `save` wrote; `StoreError` if the file is damaged, foreign, or from a newer version."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}")
    metadata, tensors = _read(path)
    if metadata.get("format") != PACKAGE:
        raise StoreError(f"{path} is a safetensors file of another program: `{PACKAGE}.save` did not write it")
    version = metadata.get("format_version", "")
    if not version.isdecimal() or int(version) > FORMAT:
        made_by = metadata.get("versions", "an unknown version")
        raise StoreError(
            f"{path} has format {version!r}, written by {made_by}; this version reads up to {FORMAT}: upgrade {PACKAGE}"
        )
    tree = metadata.get("estimator", "")
    if metadata.get("sha256") != _digest(tree, tensors):
        raise StoreError(f"{path} is damaged: its contents do not match its checksum. Save the estimator again")
    try:
        return _decode(json.loads(tree), tensors)
    except StoreError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, ImportError, RecursionError) as error:
        raise StoreError(
            f"{path} does not describe an estimator this version knows ({error}); it was written with "
            f"{metadata.get('versions')}, this is {json.dumps(_versions())}"
        ) from error


def _read(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            # copies: a view of the mapped file would change with it, and estimators may update arrays in place
            return file.metadata() or {}, {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no safetensors file, or a damaged or cut one ({error})") from error


def _versions() -> dict[str, str]:
    import sklearn

    return {
        PACKAGE: importlib.import_module(PACKAGE).__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
    }


def _digest(tree: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(tree.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype.name} {tensors[name].shape}".encode())
        digest.update(tensors[name].data if tensors[name].size else b"")
    return digest.hexdigest()


class _Writer:
    """Turns values into a JSON tree and collects the arrays met on the way."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}

    def encode(self, value: Any, where: str) -> Tree:
        """``value`` as JSON; ``where`` is its place in the estimator, for the error message."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, np.generic):
            return {"$scalar": self._array(np.asarray(value), where)}
        if type(value) in (list, tuple):
            items = [self.encode(v, f"{where}[{k}]") for k, v in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        if type(value) is dict:
            return {"$dict": [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
        if type(value) in (slice, range):
            parts = [value.start, value.stop, value.step]
            return {f"${type(value).__name__}": [self.encode(v, where) for v in parts]}
        if type(value) is np.random.RandomState:
            return {"$random_state": [self.encode(v, where) for v in value.get_state()]}
        return self._object(value, where)

    def _array(self, a: np.ndarray, where: str) -> Tree:
        if a.dtype.kind in "UO":
            items = [self.encode(v, where) for v in a.ravel().tolist()]
            return {"$items": items, "dtype": a.dtype.str, "shape": list(a.shape)}
        if a.dtype.kind == "c":
            return {"$complex": self._array(np.stack([a.real, a.imag], axis=-1), where)}
        if a.dtype.kind not in TENSOR_KINDS or a.dtype.itemsize > 8:
            raise StoreError(f"{where} is an array of {a.dtype}, which cannot be stored: convert it to float64")
        name = str(len(self.tensors))
        # the memory order is kept: matrix products of the two orders may differ in the last bit
        transposed = a.ndim > 1 and a.flags.f_contiguous and not a.flags.c_contiguous
        self.tensors[name] = np.ascontiguousarray(a.T if transposed else a, dtype=a.dtype.newbyteorder("=")).reshape(
            a.T.shape if transposed else a.shape  # ascontiguousarray makes vectors of scalars
        )
        return {"$array": name, "transposed": True} if transposed else {"$array": name}

    def _object(self, value: Any, where: str) -> Tree:
        reference = _reference(type(value))
        if reference is None:
            raise StoreError(f"{where} cannot be stored: {_complaint(value)}")
        if isinstance(value, BaseEstimator):
            params = value.get_params(deep=False)
            state = {k: v for k, v in vars(value).items() if k not in params and k not in NOT_KEPT}
            return {
                "$object": reference,
                "params": {k: self.encode(v, f"{where}.{k}") for k, v in params.items()},
                "state": {k: self.encode(v, f"{where}.{k}") for k, v in state.items()},
            }
        if isinstance(value, tuple):
            return {"$named": reference, "items": [self.encode(v, f"{where}[{k}]") for k, v in enumerate(value)]}
        return {"$plain": reference, "state": {k: self.encode(v, f"{where}.{k}") for k, v in vars(value).items()}}


def _complaint(value: Any) -> str:
    if callable(value) and not isinstance(value, BaseEstimator):
        name = getattr(value, "__name__", type(value).__name__)
        return f"{name} is a function, and a file without code cannot hold one; use a named option instead"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{kind} is neither a class of {PACKAGE} nor one of scikit-learn's {', '.join(sorted(ALLOWED))}"


def _reference(cls: type) -> str | None:
    """``"module:Class"`` of a class that may be stored; scikit-learn's by the public module, which does not move."""
    module = cls.__module__
    if module.startswith("sklearn.") and cls.__name__ in ALLOWED:
        module = ALLOWED[cls.__name__]
        return f"{module}:{cls.__name__}" if getattr(importlib.import_module(module), cls.__name__) is cls else None
    return f"{module}:{cls.__qualname__}" if module.startswith(f"{PACKAGE}.") and "." not in cls.__qualname__ else None


def _resolve(reference: str, *, estimator: bool) -> type:
    """The class of a reference, if it is one that `_reference` gives: no other name is even imported."""
    module, _, name = reference.partition(":")
    if ALLOWED.get(name) != module and not module.startswith(f"{PACKAGE}."):
        raise StoreError(f"it names the class {reference!r}, which is not on the list of classes that may be read")
    cls = getattr(importlib.import_module(module), name)
    if not isinstance(cls, type) or _reference(cls) != reference or issubclass(cls, BaseEstimator) != estimator:
        raise StoreError(f"it names {reference!r}, which is not a class that may be read")
    return cls


def _decode(tree: Tree, tensors: dict[str, np.ndarray]) -> Any:
    """The value that `_Writer.encode` turned into ``tree``."""
    if isinstance(tree, list):
        return [_decode(v, tensors) for v in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree), "")
    return DECODERS[tag](tree, lambda part: _decode(part, tensors), tensors)


def _decode_array(tree, decode, tensors):
    a = tensors[tree["$array"]]
    return a.T if tree.get("transposed") else a


def _decode_items(tree, decode, tensors):
    a = np.empty(len(tree["$items"]), dtype=np.dtype(tree["dtype"]))
    a[:] = decode(tree["$items"])
    return a.reshape(tree["shape"])


def _decode_complex(tree, decode, tensors):
    parts = decode(tree["$complex"])
    return parts[..., 0] + 1j * parts[..., 1]


def _decode_random_state(tree, decode, tensors):
    rng = np.random.RandomState()
    rng.set_state(tuple(decode(tree["$random_state"])))
    return rng


def _decode_object(tree, decode, tensors):
    cls = _resolve(tree["$object"], estimator=True)
    value = cls(**{k: decode(v) for k, v in tree["params"].items()})
    vars(value).update({k: decode(v) for k, v in tree["state"].items()})
    return value


def _decode_plain(tree, decode, tensors):
    cls = _resolve(tree["$plain"], estimator=False)
    value = cls.__new__(cls)
    vars(value).update({k: decode(v) for k, v in tree["state"].items()})
    return value


DECODERS: dict[str, Callable[..., Any]] = {
    "$float": lambda tree, decode, tensors: float(tree["$float"]),
    "$scalar": lambda tree, decode, tensors: decode(tree["$scalar"])[()],
    "$tuple": lambda tree, decode, tensors: tuple(decode(tree["$tuple"])),
    "$dict": lambda tree, decode, tensors: {decode(k): decode(v) for k, v in tree["$dict"]},
    "$slice": lambda tree, decode, tensors: slice(*decode(tree["$slice"])),
    "$range": lambda tree, decode, tensors: range(*decode(tree["$range"])),
    "$named": lambda tree, decode, tensors: _resolve(tree["$named"], estimator=False)(*decode(tree["items"])),
    "$array": _decode_array,
    "$items": _decode_items,
    "$complex": _decode_complex,
    "$random_state": _decode_random_state,
    "$object": _decode_object,
    "$plain": _decode_plain,
}
