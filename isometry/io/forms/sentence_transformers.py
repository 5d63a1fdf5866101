"""A folder that sentence-transformers loads: its module ``Dense``, or a stack of ``Dense`` and ``Normalize``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from isometry.io.forms.layers import linear_layers
from isometry.io.forms.steps import Affine, Step
from isometry.io.tensors import write_tensors


def write_dense(steps: list[Step], folder: Path, about: dict[str, str]) -> None:
    """A linear map alone is the module ``Dense``; with unit length it is a model of several modules, read as a whole.

    ``SentenceTransformer(folder)`` reads the latter, and its modules are put after those of the encoder::

        SentenceTransformer(modules=[*encoder, *SentenceTransformer(folder)])
    """
    layers = linear_layers(steps)
    if len(layers) == 1 and not (layers[0].unit_first or layers[0].unit_last):
        _write_dense(layers[0].affine, folder)
        return
    modules: list[dict[str, Any]] = []

    def place(kind: str) -> Path:
        k = len(modules)
        modules.append(
            {"idx": k, "name": str(k), "path": f"{k}_{kind}", "type": f"sentence_transformers.models.{kind}"}
        )
        (folder / f"{k}_{kind}").mkdir()
        return folder / f"{k}_{kind}"

    for layer in layers:
        if layer.unit_first:
            _write_json({}, place("Normalize"))
        _write_dense(layer.affine, place("Dense"))
        if layer.unit_last:
            _write_json({}, place("Normalize"))
    _write_json(modules, folder, "modules.json")


def _write_dense(affine: Affine, folder: Path) -> None:
    weight, bias = affine.matrix.astype(np.float32), affine.offset.astype(np.float32)
    config = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write_json(config, folder)
    tensors = {"linear.weight": np.ascontiguousarray(weight), "linear.bias": bias}
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})


def _write_json(value: Any, folder: Path, name: str = "config.json") -> None:
    (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
