"""Networks in other forms: the layers of plain ones as arrays, all others as ONNX."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from isometry.deep.models import MLP, LinearMap

__all__ = ["plain_layers", "write_onnx"]

OPSET = 18


def plain_layers(metric: Any) -> list[tuple[np.ndarray, np.ndarray | None]] | None:
    """Weight (p, d) and bias of each linear layer, with ReLU between them; None for any other network."""
    network = metric.network()
    if isinstance(network, LinearMap):
        return [(network.weight.detach().numpy(), None)]
    if not isinstance(network, MLP) or type(network).forward is not MLP.forward:
        return None
    layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    return [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in layers]


@contextlib.contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Nothing but errors from this logger inside the block."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Mapped(nn.Module):
    """The whole map of a deep metric: units, network, length."""

    def __init__(self, metric: Any):
        super().__init__()
        self.network, self.normalized = metric.network(), bool(metric.normalized_)
        self.mean = nn.Buffer(torch.as_tensor(metric.mean_, dtype=torch.float32))
        self.scale = nn.Buffer(torch.as_tensor(metric.scale_, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        z = self.network((x - self.mean) / self.scale)
        return nn.functional.normalize(z, dim=1) if self.normalized else z


def write_onnx(metric: Any, path: str | os.PathLike[str]) -> None:
    """Write a deep metric as ONNX, by torch's own exporter; ``X`` (n, …) float32 in, ``Z`` (n, p) out."""
    sample = torch.zeros(2, *metric.sample_shape_)
    rows = torch.export.Dim("n")
    with warnings.catch_warnings(), _silent(logging.getLogger("torch.onnx")):
        warnings.simplefilter("ignore")  # of the exporter about itself
        torch.onnx.export(
            _Mapped(metric).eval(),
            (sample,),
            os.fspath(path),
            input_names=["X"],
            output_names=["Z"],
            dynamic_shapes=({0: rows},),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
