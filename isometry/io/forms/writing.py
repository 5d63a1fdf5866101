"""Which forms there are, and how a metric is written in one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from isometry.io.atomic import atomic_write
from isometry.io.forms.matrix import write_npy, write_safetensors
from isometry.io.forms.numpy_file import write_numpy
from isometry.io.forms.onnx_graph import write_onnx
from isometry.io.forms.sentence_transformers import write_dense
from isometry.io.forms.sql import write_duckdb, write_pgvector
from isometry.io.forms.steps import ExportError, Step, steps_of

__all__ = ["FORMS", "export", "exportable_forms", "form_of"]


@dataclass(frozen=True)
class Form:
    """One way to write a metric."""

    ending: str  # of the file's name; none for a folder
    words: str
    write: Callable[[list[Step], Path, dict[str, str]], None]


FORMS = {
    "npy": Form(".npy", "the matrix of a linear map", write_npy),
    "safetensors": Form(".safetensors", "matrix and offset of a linear map", write_safetensors),
    "onnx": Form(".onnx", "a graph for onnxruntime", write_onnx),
    "numpy": Form(".py", "a Python file that needs NumPy alone", write_numpy),
    "duckdb": Form(".duckdb.sql", "SQL for DuckDB", write_duckdb),
    "pgvector": Form(".pgvector.sql", "SQL for PostgreSQL with pgvector", write_pgvector),
    "sentence-transformers": Form("", "a folder of modules Dense and Normalize", write_dense),
}


def form_of(path: str | os.PathLike[str], form: str | None = None) -> str:
    """The form that the ending of a path names, or that is given."""
    if form is not None:
        if form not in FORMS:
            raise ExportError(f"form={form!r} is unknown: expected one of {', '.join(FORMS)}")
        return form
    name = Path(path).name.lower()
    for known, row in FORMS.items():
        if row.ending and name.endswith(row.ending):
            return known
    if "." not in name:
        return "sentence-transformers"
    endings = ", ".join(f"{row.ending} ({row.words})" for row in FORMS.values() if row.ending)
    raise ExportError(
        f"{path}: the ending says no form; expected {endings}, or a folder without an ending (sentence-transformers)"
    )


def export(model: Any, path: str | os.PathLike[str], form: str | None = None) -> Path:
    """Write a fitted metric, or a pipeline that ends in one, so that it runs without isometry.

    Parameters
    ----------
    model : fitted metric or Pipeline
        A fitted metric or pipeline.
    path : str or path-like
        File or folder, whose ending names the form: ``.npy`` or ``.safetensors`` (the matrix of a linear map),
        ``.onnx``, ``.py`` (NumPy alone), ``.duckdb.sql``, ``.pgvector.sql``, or none, for a folder with a `Dense`
        module of sentence-transformers, or with several modules where rows have unit length before or after the map.
        An older file is replaced only by a complete one.
    form : str or None, default=None
        A name of `isometry.io.forms.FORMS`, whatever the ending.

    Returns
    -------
    Path
        What was written.

    Raises
    ------
    ExportError
        If the metric cannot be written in this form; the message says in which it can.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA, export
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export(RCA().fit(X, y), pathlib.Path(folder) / "metric.npy")
    ...     print(np.load(written).shape)
    (4, 4)
    """
    check_is_fitted(model)
    form = form_of(path, form)
    name = type(model).__name__
    try:
        steps = steps_of(model)
    except ExportError as error:
        raise ExportError(
            f"{name} cannot be exported in any form: {error}. `save` writes it whole, for isometry itself"
        ) from error
    try:
        with _place(path, form) as temporary:
            FORMS[form].write(steps, temporary, _about(model, path))
    except ExportError as error:
        others = ", ".join(exportable_forms(model)) or "none"
        raise ExportError(f"{name} cannot be exported as {form}: {error}. Forms it can: {others}") from error
    return Path(path)


def exportable_forms(model: Any) -> list[str]:
    """Names of the forms in which a fitted metric can be written.

    Parameters
    ----------
    model : fitted metric or Pipeline
        A fitted metric or pipeline.

    Returns
    -------
    list of str
        Names of forms, as `export` takes them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RCA
    >>> from isometry.io import exportable_forms
    >>> X, y = load_iris(return_X_y=True)
    >>> "npy" in exportable_forms(RCA().fit(X, y))
    True
    """
    try:
        steps = steps_of(model)
    except ExportError:
        return []
    return [form for form in FORMS if _fits(model, steps, form)]


def _fits(model: Any, steps: list[Step], form: str) -> bool:
    """Whether the form can be written: tried, in a folder that is thrown away; of ONNX it is known."""
    if form == "onnx":
        return True
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            FORMS[form].write(steps, Path(folder) if not FORMS[form].ending else Path(folder) / "x", _about(model, "x"))
        except ExportError:
            return False
    return True


def _about(model: Any, path: str | os.PathLike[str]) -> dict[str, str]:
    """What a file says of itself."""
    from isometry import __version__
    from isometry.io.model_card import outline

    about = {"isometry": __version__, "metric": outline(model), "file": Path(path).name}
    about["n_features"] = str(model.n_features_in_)
    names = getattr(model, "feature_names_in_", None)
    return about if names is None else {**about, "feature_names": repr([str(name) for name in names])}


@contextlib.contextmanager
def _place(path: str | os.PathLike[str], form: str) -> Iterator[Path]:
    """A temporary file or folder that takes its place once it is complete."""
    if FORMS[form].ending:
        with atomic_write(path) as temporary:
            yield temporary
        return
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{path} is there already: give the name of a new or an empty folder")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}; create it first")
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        temporary.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
