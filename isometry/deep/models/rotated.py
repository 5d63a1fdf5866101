"""A network whose coordinates come in the order of how much they say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import unit
from isometry.deep.offline import embed


class Rotated(nn.Module):
    """A network followed by a rotation: f(x) Q. All distances and angles are as before."""

    axes: Tensor  # (p, p), orthogonal

    def __init__(self, model: nn.Module, axes: Tensor):
        super().__init__()
        self.model = model
        self.register_buffer("axes", axes)

    def forward(self, x: Any) -> Tensor:
        """Samples (B, …) to embeddings (B, p)."""
        z: Tensor = self.model(x)
        return z @ self.axes.to(z.dtype)


@torch.no_grad()
def principal_axes(model: nn.Module, samples: Any, *, normalize: bool = False, batch_size: int = 256) -> Rotated:
    """The network turned to the principal axes of its embeddings, so that the first coordinates can stand for all.

    Distances at full width stay as they are. Embeddings cut after this keep as much of their variance as any linear map
    to so few dimensions could.

    Parameters
    ----------
    model : nn.Module
        A trained network.
    samples : data set
        Samples to find the axes on, such as those it was trained on; of tuples the first entry is taken.
    normalize : bool
        Embeddings are compared by angle: axes of unit vectors, about the origin in place of their mean.
    """
    z = embed(model, samples, batch_size).double()
    z = unit(z) if normalize else z - z.mean(0)
    axes = torch.linalg.eigh(z.T @ z).eigenvectors.flip(1)  # (p, p), the largest first
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # one choice for all machines
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    return Rotated(model, (axes * signs).to(dtype).contiguous())
