"""The matrix of a linear map: npy, or safetensors with its offset."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from isometry.io.forms.steps import Affine, ExportError, Step, Unit
from isometry.io.tensors import write_tensors


def only_linear(steps: list[Step]) -> Affine:
    """The one linear map that the steps are."""
    if len(steps) == 1 and isinstance(steps[0], Affine):
        return steps[0]
    if all(isinstance(step, (Affine, Unit)) for step in steps):
        raise ExportError("rows are brought to unit length, which a matrix alone cannot say")
    raise ExportError("it is not a linear map")


def write_npy(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """W (p, d): distances are |W(x − y)|; the offset does not matter to them."""
    np.save(path, only_linear(steps).matrix)


def write_safetensors(steps: list[Step], path: Path, about: dict[str, str]) -> None:
    """``weight`` (p, d) and ``bias`` (p,): z = weight x + bias."""
    affine = only_linear(steps)
    write_tensors(path, {"weight": np.ascontiguousarray(affine.matrix), "bias": affine.offset}, about)
