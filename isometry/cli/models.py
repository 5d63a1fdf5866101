"""Saved metrics, and the tables that they take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from isometry.cli.code import is_code, load_factory
from isometry.cli.inputs import read_file
from isometry.cli.outputs import UsageError, usage_errors

if TYPE_CHECKING:
    from isometry.io import Table


def load_model(file: Path, backbone: str | None = None) -> Any:
    """The fitted metric of a file; ``backbone`` names the code of its network, if that was the user's own."""
    from isometry.io import load

    with usage_errors(FileNotFoundError, IsADirectoryError, ValueError):
        model = load(file)
    if not hasattr(model, "transform"):
        raise UsageError(
            f"{file} holds {type(model).__name__}, which is no metric: give a file of fit or compare --save"
        )
    if backbone is not None:
        if not is_code(getattr(model, "model", None)):
            raise UsageError(f"{file} holds all of its metric: leave out --backbone")
        model.set_params(model=load_factory(backbone))
    if is_code(getattr(model, "model", None)):
        raise UsageError(
            f"the network of {file} was made by code, which a file does not hold: give --backbone {model.model}"
        )
    return model


def read_for(
    model: Any,
    model_file: Path,
    file: Path,
    target: str | None,
    drop: str | None,
    key: str | None,
    delimiter: str | None,
    decimal: str | None,
    *,
    float32: bool = False,
    unlabelled: str | None = None,
) -> Table:
    """A table with the columns that a metric was fitted on."""
    return read_file(file, target, drop, key, delimiter, decimal, float32=float32, model=model, unlabelled=unlabelled)
