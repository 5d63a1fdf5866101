"""A network whose coordinates come in the order of how much they say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import unit
from isometry.deep.offline import embed


class Rotated(nn.Module):
    """A network followed by a rotation, f(x) Q: all distances and angles are as before.

    Parameters
    ----------
    model : nn.Module
        The network f.
    axes : Tensor (p, p)
        The orthogonal matrix Q, an axis in each column.

    Notes
    -----
    ``principal_axes`` finds the rotation. Costs O(B p²) beside the network.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Rotated
    >>> model = Rotated(torch.nn.Identity(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> model(torch.tensor([[3.0, 4.0]]))
    tensor([[4., 3.]])
    """

    axes: Tensor  # (p, p), orthogonal

    def __init__(self, model: nn.Module, axes: Tensor):
        super().__init__()
        self.model = model
        self.register_buffer("axes", axes)

    def forward(self, x: Any) -> Tensor:
        """Samples (B, …) to embeddings (B, p).

        Parameters
        ----------
        x : Tensor or dict
            Samples (B, …).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
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
    samples : data set or array (n, …)
        Samples to find the axes on, such as those it was trained on; of tuples the first entry is taken.
    normalize : bool, default=False
        Embeddings are compared by angle: axes of unit vectors, about the origin in place of their mean.
    batch_size : int, default=256
        Samples that pass the network at a time.

    Returns
    -------
    Rotated
        The network with the rotation behind it.

    Notes
    -----
    Where embeddings will be cut, before training with ``Matryoshka`` is thought of. Costs a pass over the samples and
    O(n p² + p³).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import principal_axes
    >>> X = torch.tensor([[0.0, 5.0], [0.0, -5.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> turned = principal_axes(torch.nn.Identity(), X)
    >>> turned(X).var(0)[0] > turned(X).var(0)[1]
    tensor(True)
    """
    z = embed(model, samples, batch_size).double()
    z = unit(z) if normalize else z - z.mean(0)
    axes = torch.linalg.eigh(z.T @ z).eigenvectors.flip(1)  # (p, p), the largest first
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # one choice for all machines
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    return Rotated(model, (axes * signs).to(dtype).contiguous())
