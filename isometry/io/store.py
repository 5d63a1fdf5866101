"""Fitted estimators in one safetensors file: arrays as tensors, all else as JSON beside them. Nothing is pickled.

The file's metadata holds a tree of tagged values: ``{"$array": "3"}`` points at tensor 3, ``{"$object":
"isometry.LMNN", …}`` opens an estimator. Reading builds only the classes listed in ``io/classes.py``, so an untrusted
file can hold wrong numbers but runs no code.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import re
from collections import UserList
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from isometry.io.atomic import atomic_write
from isometry.io.classes import PACKAGE, find_class, name_of, sklearn_names, today_attribute, today_parameters
from isometry.io.model_card import described, versions
from isometry.io.tensors import ContainerError, read_tensors, write_tensors

__all__ = ["StoreError", "load", "read_card", "save"]

FORMAT = 2  # 1: classes by their modules, text arrays as JSON
# routing of fit arguments, of no use to a fitted estimator; values of all samples in a comparison
NOT_KEPT = ("_metadata_request", "comparison_")
TENSOR_KINDS = "biuf"
MAX_EXPANSION = 4  # arrays may take this many times the size of the file in memory
NUMBER_TYPES = ("float64", "float32", "int64", "int32", "bool", "object")  # that transformers keep
LAST_CHARACTER = 0x10FFFF  # of Unicode
STATE_WORDS = 624  # in the state of numpy's RandomState
Tree = Any  # what JSON can hold


class StoreError(ValueError):
    """A file that cannot be read as a stored estimator, or an estimator that cannot be stored.

    Examples
    --------
    >>> from isometry import load
    >>> from isometry.io import StoreError
    >>> try:
    ...     load("no-such-file.safetensors")
    ... except StoreError:
    ...     print("nothing to read")
    nothing to read
    """


class _NoFile(StoreError, FileNotFoundError):
    """A missing file: both a `StoreError` and a `FileNotFoundError`."""


def save(estimator: Any, path: str | os.PathLike[str], card: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator, or a whole pipeline of them, to one file; `load` gives it back bit for bit.

    The same estimator gives the same bytes. The ``memory`` of a pipeline, a folder of this computer, is not written.

    Parameters
    ----------
    estimator : estimator or Pipeline
        An estimator of this package, or a scikit-learn pipeline of them with the usual scalers and projections.
    path : str or path-like
        The file to write; by custom it ends in ``.safetensors``. An older file is replaced only by a complete one.
    card : mapping or None, default=None
        What else should be known of it beside its parameters, as JSON can hold it: data, score, date. What
        ``MetricLearner.card`` gives, for example. `read_card` shows it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, save
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "metric.safetensors"
    ...     save(RCA().fit(X, y), path, {"data": "iris"})
    ...     print(path.stat().st_size > 0)
    True
    """
    check_is_fitted(estimator)
    writer = _Writer()
    tree = json.dumps(writer.encode(estimator, type(estimator).__name__), allow_nan=False)
    metadata = {
        "format": PACKAGE,
        "format_version": str(FORMAT),
        "versions": json.dumps(versions()),
        "estimator": tree,
        "sha256": _digest(tree, writer.tensors),
        "card": json.dumps({**described(estimator), **(card or {})}, allow_nan=False),
    }
    with atomic_write(path) as temporary:
        write_tensors(temporary, writer.tensors, metadata)


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file says of itself: the estimator, versions it was written with, and the card that `save` was given.

    Parameters
    ----------
    path : str or path-like
        The file, as `save` wrote it.

    Returns
    -------
    dict
        Name, parameters and versions, and the card.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, save
    >>> from isometry.io import read_card
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "metric.safetensors"
    ...     save(RCA().fit(X, y), path, {"data": "iris"})
    ...     told = read_card(path)
    >>> "iris" in str(told)
    True
    """
    try:
        metadata = read_tensors(path)[0]
        tree = json.loads(metadata["estimator"])
        card = json.loads(metadata.get("card", "{}"))
        made_with = json.loads(metadata["versions"])
        if not isinstance(card, dict) or not isinstance(made_with, dict):
            raise ValueError("its card is no table")
    except FileNotFoundError as error:
        raise _NoFile(f"there is no file {path}") from error
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise StoreError(f"{path} is no file of {PACKAGE}, or a damaged one: {error}") from error
    return {"estimator": _outline(tree), "format": metadata.get("format_version"), "versions": made_with, **card}


def _outline(tree: Tree) -> str:
    """The class of an estimator in a tree, with those of its steps."""
    name = str(tree.get("$object", "?")).rpartition(".")[2] if isinstance(tree, dict) else "?"
    steps = tree.get("params", {}).get("steps") if isinstance(tree, dict) else None
    if not isinstance(steps, list):
        return name
    inside = [step["$tuple"][1] for step in steps if isinstance(step, dict) and len(step.get("$tuple", ())) == 2]
    return f"{name}({', '.join(_outline(step) for step in inside)})"


def load(path: str | os.PathLike[str]) -> Any:
    """Read back what `save` wrote, of this version or an earlier one.

    Whatever the file holds, no other error than `StoreError` is raised and none of its contents is run. SECURITY.md
    says what exactly is promised.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    estimator
        The estimator or pipeline, fitted as it was.

    Raises
    ------
    StoreError
        If there is no such file, or it is damaged, foreign, or from a newer version.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, load, save
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RCA().fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "metric.safetensors"
    ...     save(metric, path)
    ...     again = load(path)
    >>> bool((again.transform(X) == metric.transform(X)).all())
    True
    """
    path = Path(path)
    try:
        metadata, tensors, size = read_tensors(path)
    except FileNotFoundError as error:
        raise _NoFile(f"there is no file {path}") from error
    except ContainerError as error:
        raise StoreError(f"{path} is no safetensors file, or a damaged or cut one: {error}") from error
    except (OSError, ValueError, MemoryError) as error:  # ValueError: a name that no file can have
        raise StoreError(f"{path} cannot be read: {error}") from error
    if metadata.get("format") != PACKAGE:
        raise StoreError(f"{path} is a safetensors file of another program: `{PACKAGE}.save` did not write it")
    version, made_by = metadata.get("format_version", ""), metadata.get("versions", "an unknown version")
    if version not in map(str, range(1, FORMAT + 1)):
        raise StoreError(
            f"{path} has format {version!r}, written by {made_by}; this version reads up to {FORMAT}: upgrade {PACKAGE}"
        )
    tree = metadata.get("estimator", "")
    if metadata.get("sha256") != _digest(tree, tensors):
        raise StoreError(f"{path} is damaged: its contents do not match its checksum. Save the estimator again")
    memory_left = MAX_EXPANSION * size - sum(a.nbytes for a in tensors.values())
    reader = _Reader(tensors, old=version == "1", memory_left=memory_left)
    try:
        return reader.read(json.loads(tree))
    except StoreError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except ImportError as error:
        extra = ': pip install "isometry[deep]"' if error.name == "torch" else ""
        raise StoreError(f"{path} needs {error.name}, which cannot be imported ({error}){extra}") from error
    except Exception as error:  # a forged tree can fail in any way
        raise StoreError(
            f"{path} does not describe an estimator this version knows ({type(error).__name__}: {error}); it was "
            f"written with {made_by}, this is {json.dumps(versions())}"
        ) from error


def digest(estimator: Any) -> str:
    """A text that two estimators share if and only if `save` would write the same parameters and arrays of them."""
    writer = _Writer()
    tree = json.dumps(writer.encode(estimator, type(estimator).__name__), allow_nan=False)
    return _digest(tree, writer.tensors)


def _digest(tree: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(tree.encode(errors="surrogatepass"))
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype.name} {tensors[name].shape}".encode(errors="surrogatepass"))
        digest.update(tensors[name].data if tensors[name].size else b"")
    return digest.hexdigest()


class _Writer:
    """Turns values into a JSON tree and collects the arrays met on the way."""

    def __init__(self) -> None:
        self.tensors: dict[str, np.ndarray] = {}

    def encode(self, value: Any, where: str) -> Tree:
        """``value`` as JSON; ``where`` names it in error messages."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if isinstance(value, np.generic):
            return {"$scalar": self._array(np.asarray(value), where)}
        if isinstance(value, UserList) and type(value).__module__.startswith("sklearn."):
            value = value.data  # columns of a ColumnTransformer before scikit-learn 1.8; reading them one by one warns
        if type(value) in (list, tuple):
            items = [self.encode(v, f"{where}[{k}]") for k, v in enumerate(value)]
            return items if type(value) is list else {"$tuple": items}
        if type(value) is dict:
            return {"$dict": [[self.encode(k, where), self.encode(v, f"{where}[{k!r}]")] for k, v in value.items()]}
        if type(value) in (slice, range):
            parts = [value.start, value.stop, value.step]
            return {f"${type(value).__name__}": [self.encode(v, where) for v in parts]}
        if isinstance(value, np.dtype) and value.name in NUMBER_TYPES:
            return {"$dtype": value.name}
        if isinstance(value, type) and issubclass(value, np.generic) and value.__name__ in NUMBER_TYPES:
            return {"$type": value.__name__}
        if type(value) is np.random.RandomState:
            return {"$random_state": [self.encode(v, where) for v in value.get_state()]}
        return self._object(value, where)

    def _array(self, a: np.ndarray, where: str) -> Tree:
        if a.dtype.kind == "O":
            items = [self.encode(v, where) for v in a.ravel().tolist()]
            return {"$items": items, "dtype": "|O", "shape": list(a.shape)}
        if a.dtype.kind == "c":
            return {"$complex": self._array(np.stack([a.real, a.imag], axis=-1), where)}
        if a.dtype.kind not in TENSOR_KINDS + "U" or (a.dtype.kind != "U" and a.dtype.itemsize > 8):
            raise StoreError(f"{where} is an array of {a.dtype}, which cannot be stored: convert it to float64")
        # the memory order is kept: matrix products of the two orders may differ in the last bit
        transposed = a.ndim > 1 and a.flags.f_contiguous and not a.flags.c_contiguous
        b = a.T if transposed else a
        # ascontiguousarray makes vectors of scalars
        b = np.ascontiguousarray(b, dtype=a.dtype.newbyteorder("=")).reshape(b.shape)
        if text := b.dtype.kind == "U":
            b = b.reshape(*b.shape, 1).view(np.uint32)  # characters by their numbers, in one more dimension
        name = str(len(self.tensors))
        self.tensors[name] = b
        return {"$text" if text else "$array": name, **({"transposed": True} if transposed else {})}

    def _object(self, value: Any, where: str) -> Tree:
        kind = "estimator" if isinstance(value, BaseEstimator) else "named" if isinstance(value, tuple) else "plain"
        name = name_of(type(value), kind)
        if name is None:
            raise StoreError(f"{where} cannot be stored: {_complaint(value)}")
        if kind == "named":
            return {"$named": name, "items": [self.encode(v, f"{where}[{k}]") for k, v in enumerate(value)]}
        params = value.get_params(deep=False) if kind == "estimator" else {}
        left = {*params, *NOT_KEPT, *getattr(value, "_only_of_fit", tuple)()}
        state = {k: v for k, v in vars(value).items() if k not in left}
        for k in state:
            _check_attribute(type(value), k)
        if isinstance(value, Pipeline):
            params["memory"] = None
        tree = {"$object": name, "params": {k: self.encode(v, f"{where}.{k}") for k, v in params.items()}}
        inside = {"state": {k: self.encode(v, f"{where}.{k}") for k, v in state.items()}}
        return {**tree, **inside} if kind == "estimator" else {"$plain": name, **inside}


def _complaint(value: Any) -> str:
    if callable(value) and not isinstance(value, BaseEstimator):
        name = getattr(value, "__name__", type(value).__name__)
        if name == "make_column_selector":
            return f"{name} is a function, and a file without code cannot hold one; list the names of columns instead"
        return f"{name} is a function, and a file without code cannot hold one; use a named option instead"
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{kind} is neither a class of {PACKAGE} nor one of scikit-learn's {', '.join(sklearn_names())}"


class _Reader:
    """Turns the tree of a file back into values. Each array is used once, so that a tree cannot multiply them.

    Parameters
    ----------
    tensors : the arrays of the file
    old : the file is of version 0.1, which names classes by their modules
    memory_left : bytes that arrays may take beside these
    """

    def __init__(self, tensors: dict[str, np.ndarray], *, old: bool, memory_left: int):
        self.tensors = dict(tensors)
        self.old = old
        self.memory_left = memory_left

    def read(self, tree: Tree) -> Any:
        """The estimator of a whole file."""
        value = self.decode(tree)
        if not isinstance(value, BaseEstimator):
            raise StoreError(f"it holds a {type(value).__name__}, not an estimator")
        if self.tensors:
            raise StoreError(f"{len(self.tensors)} of its arrays belong to nothing")
        return value

    def decode(self, tree: Tree) -> Any:
        """The value that `_Writer.encode` turned into ``tree``."""
        if isinstance(tree, list):
            return [self.decode(v) for v in tree]
        if not isinstance(tree, dict):
            return tree
        tag = next(iter(tree), "")
        if tag not in DECODERS:
            raise StoreError(f"it holds a value of the unknown kind {tag!r}")
        return DECODERS[tag](self, tree[tag], tree)

    def _tensor(self, name: str, tree: dict[str, Tree]) -> np.ndarray:
        if name not in self.tensors:
            raise StoreError(f"its array {name!r} is missing, or used twice")
        return self.tensors.pop(name)

    def _array(self, name: str, tree: dict[str, Tree]) -> np.ndarray:
        a = self._tensor(name, tree)
        return a.T if tree.get("transposed") is True else a

    def _text(self, name: str, tree: dict[str, Tree]) -> np.ndarray:
        a = self._tensor(name, tree)  # (…, width)
        if a.dtype != np.uint32 or a.ndim == 0 or a.shape[-1] == 0 or a.max(initial=0) > LAST_CHARACTER:
            raise StoreError(f"its array {name!r} is no text")
        a = a.view(f"U{a.shape[-1]}")[..., 0]
        return a.T if tree.get("transposed") is True else a

    def _items(self, items: Tree, tree: dict[str, Tree]) -> np.ndarray:
        dtype = tree["dtype"]
        if not isinstance(items, list) or not re.fullmatch(r"\|O|[<>]U\d{1,9}", dtype):
            raise StoreError(f"it holds an array of the unknown type {dtype!r}")
        if len(items) * np.dtype(dtype).itemsize > self.memory_left:
            dtype = "|O"  # one long text makes all cells wide: here they stay the strings they are
        self._take_memory(len(items) * np.dtype(dtype).itemsize)
        a = np.empty(len(items), dtype=dtype)
        for k, v in enumerate(items):
            a[k] = self.decode(v)
        return a.reshape(tree["shape"])

    def _complex(self, part: Tree, tree: dict[str, Tree]) -> np.ndarray:
        parts = self.decode(part)  # (…, 2)
        if not isinstance(parts, np.ndarray) or parts.dtype not in (np.float64, np.float32) or parts.shape[-1:] != (2,):
            raise StoreError("an array of complex numbers has no real and imaginary parts")
        if not parts.flags.c_contiguous:
            self._take_memory(parts.nbytes)
        return np.ascontiguousarray(parts).view(np.complex128 if parts.dtype == np.float64 else np.complex64)[..., 0]

    def _take_memory(self, n_bytes: int) -> None:
        self.memory_left -= n_bytes
        if self.memory_left < 0:
            raise StoreError("its arrays would take more memory than those of a file of its size can")

    def _scalar(self, part: Tree, tree: dict[str, Tree]) -> Any:
        a = self.decode(part)
        if not isinstance(a, np.ndarray) or a.ndim:
            raise StoreError("it holds an array instead of a number")
        return a[()]

    def _float(self, text: Tree, tree: dict[str, Tree]) -> float:
        if text not in ("nan", "inf", "-inf"):
            raise StoreError(f"it holds {text!r} instead of a number")
        return float(text)

    def _dtype(self, name: Tree, tree: dict[str, Tree]) -> np.dtype:
        if name not in NUMBER_TYPES:
            raise StoreError(f"it names the unknown type {name!r}")
        return np.dtype(name)

    def _random_state(self, parts: Tree, tree: dict[str, Tree]) -> np.random.RandomState:
        kind, keys, position, has_gauss, gauss = self.decode(parts)
        # numpy does not check the position, and would read beyond its words
        if (
            kind != "MT19937"
            or not isinstance(keys, np.ndarray)
            or keys.shape != (STATE_WORDS,)
            or keys.dtype != np.uint32
        ):
            raise StoreError("the state of a random generator has not the form of numpy's RandomState")
        if type(position) is not int or not 0 <= position <= STATE_WORDS or has_gauss not in (0, 1):
            raise StoreError("the state of a random generator makes no sense")
        rng = np.random.RandomState(0)
        rng.set_state((kind, keys, position, int(has_gauss), float(gauss)))
        return rng

    def _find(self, name: Tree, kind: str) -> Any:
        cls = find_class(name, kind, by_path=self.old) if isinstance(name, str) else None
        if cls is None:
            raise StoreError(f"it names the class {name!r}, which is not on the list of classes that may be read")
        return cls

    def _object(self, name: Tree, tree: dict[str, Tree]) -> BaseEstimator:
        cls = self._find(name, "estimator")
        params = today_parameters(cls, {k: self.decode(v) for k, v in tree["params"].items()})
        unknown = sorted(params.keys() - set(cls._get_param_names()))
        if unknown:
            raise StoreError(f"{cls.__name__} has no parameter {', '.join(map(repr, unknown))}")
        if issubclass(cls, Pipeline):
            params["memory"] = None  # a folder of this computer that a file chooses would be written to, and unpickled
            _check_steps(params.get("steps"))
        if issubclass(cls, ColumnTransformer):
            params["n_jobs"] = None
            _check_parts(params.get("transformers"))
        return self._fill(cls(**params), tree["state"], "estimator")  # constructors only store

    def _plain(self, name: Tree, tree: dict[str, Tree]) -> Any:
        cls = self._find(name, "plain")
        return self._fill(cls.__new__(cls), tree["state"], "plain")

    def _named(self, name: Tree, tree: dict[str, Tree]) -> Any:
        return self._find(name, "named")(*self.decode(tree["items"]))

    def _fill(self, value: Any, state: dict[str, Tree], kind: str) -> Any:
        """Give an object its attributes."""
        for name, tree in state.items():
            name = today_attribute(type(value), kind, name)
            _check_attribute(type(value), name)
            vars(value)[name] = self.decode(tree)
        return value


def _check_attribute(cls: type, name: str) -> None:
    """Refuse the name of a method or property, which an attribute would cover, and that of a parameter.

    Parameters are checked when the object is made, and some are never taken from a file: none may come afterwards.
    """
    defined = inspect.getattr_static(cls, name, None)
    covers = callable(defined) or hasattr(type(defined), "__get__")  # also what only some objects of a class have
    parameter = name in getattr(cls, "_get_param_names", list)()
    if not name.isidentifier() or name.startswith("__") or covers or parameter:
        raise StoreError(f"{cls.__name__} cannot have an attribute {name!r}")


def _check_parts(parts: Any) -> None:
    for part in parts if isinstance(parts, list) and parts else [None]:
        if not isinstance(part, tuple) or len(part) != 3 or not isinstance(part[0], str):
            raise StoreError("the parts of a column transformer are not a name, an estimator and columns each")
        if not isinstance(part[1], BaseEstimator) and part[1] not in ("drop", "passthrough"):
            raise StoreError(f"part {part[0]!r} of a column transformer is no estimator")
        columns = part[2] if isinstance(part[2], list) else [part[2]]
        if not all(type(c) in (int, str, slice) for c in columns):  # a function would choose them
            raise StoreError(f"part {part[0]!r} of a column transformer names no columns")


def _check_steps(steps: Any) -> None:
    for step in steps if isinstance(steps, list) and steps else [None]:
        if not isinstance(step, tuple) or len(step) != 2 or not isinstance(step[0], str):
            raise StoreError("the steps of a pipeline are not pairs of a name and an estimator")
        if not isinstance(step[1], BaseEstimator) and step[1] not in (None, "passthrough"):
            raise StoreError(f"step {step[0]!r} of a pipeline is no estimator")


DECODERS: dict[str, Any] = {
    "$array": _Reader._array,
    "$text": _Reader._text,
    "$items": _Reader._items,
    "$complex": _Reader._complex,
    "$scalar": _Reader._scalar,
    "$float": _Reader._float,
    "$dtype": _Reader._dtype,
    "$type": lambda self, part, tree: self._dtype(part, tree).type,
    "$random_state": _Reader._random_state,
    "$object": _Reader._object,
    "$plain": _Reader._plain,
    "$named": _Reader._named,
    "$tuple": lambda self, part, tree: tuple(self.decode(part)),
    "$dict": lambda self, part, tree: {self.decode(k): self.decode(v) for k, v in part},
    "$slice": lambda self, part, tree: slice(*self.decode(part)),
    "$range": lambda self, part, tree: range(*self.decode(part)),
}
