"""A folder that sentence-transformers loads as its module ``Dense``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from isometry.core.warn import warn_user
from isometry.io.forms.matrix import only_linear
from isometry.io.forms.steps import Step, Unit
from isometry.io.tensors import write_tensors


def write_dense(steps: list[Step], folder: Path, about: dict[str, str]) -> None:
    """``config.json`` and ``model.safetensors``; unit length is a module of its own, ``Normalize``, to be put after."""
    ends_in_unit = len(steps) > 1 and isinstance(steps[-1], Unit)
    affine = only_linear(steps[:-1] if ends_in_unit else steps)
    weight, bias = affine.matrix.astype(np.float32), affine.offset.astype(np.float32)
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {"linear.weight": np.ascontiguousarray(weight), "linear.bias": bias}
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    if ends_in_unit:
        warn_user("the metric ends in unit length: put the module Normalize() of sentence-transformers after Dense")
