"""Exact gradients of batches too large for memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from isometry.deep.objective import TrainingObjective
from isometry.deep.samplers import positive
from isometry.deep.wrapper import ObjectiveWrapper


class GradientCache(ObjectiveWrapper):
    """A large batch through the network a chunk at a time, with the gradient of the batch as a whole.

        ∂L/∂θ = Σ_chunks (∂L/∂z_chunk) · (∂z_chunk/∂θ)

    The first pass keeps embeddings only; the loss compares all of them; the second pass computes each chunk again, with
    the same random numbers, when its gradient is due. Activations of one chunk are in memory at a time, for one more
    forward pass. Accumulating gradients over small batches is no substitute: it compares no pairs across them.

    A network whose output for a sample depends on the others of its batch, such as one with batch norm, sees chunks.

    Parameters
    ----------
    objective : LossModule or callable
        A loss, or an objective that calls the model on samples.
    chunk_size : int
        Samples that pass the network with a graph at a time.

    Notes
    -----
    When a loss wants larger batches than memory holds. It costs one more forward pass; memory is O(chunk_size) for the
    network and that of the loss for the whole batch.

    References
    ----------
    | L. Gao, Y. Zhang, J. Han, J. Callan, "Scaling deep contrastive learning batch size under memory limited setup",
      RepL4NLP 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, GradientCache, NCALoss, Trainer
    >>> objective = GradientCache(NCALoss(), chunk_size=2)
    >>> objective(MLP(4, 2), (torch.eye(4), torch.tensor([0, 0, 1, 1]))).item() > 0
    True
    """

    def __init__(self, objective: nn.Module | TrainingObjective, chunk_size: int):
        super().__init__(objective)
        self.chunk_size = positive("chunk_size", chunk_size)

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The objective of a batch, by a network that passes chunks.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple
            What the objective takes.

        Returns
        -------
        Tensor
            The scalar.
        """
        return self.objective(InChunks(model, self.chunk_size), batch)


class InChunks(nn.Module):
    """A network that keeps no activations: they are computed again in backward, chunk by chunk."""

    def __init__(self, model: nn.Module, chunk_size: int):
        super().__init__()
        self.model, self.chunk_size = model, chunk_size

    def forward(self, x: Any) -> Tensor:
        """Samples (B, …), or several things (B, …) of each sample by name, to embeddings (B, p)."""
        if isinstance(x, Mapping):
            parts = zip(*(value.split(self.chunk_size) for value in x.values()))
            chunks: Any = (dict(zip(x, part)) for part in parts)
        else:
            chunks = x.split(self.chunk_size)
        return torch.cat([checkpoint(self.model, chunk, use_reentrant=False) for chunk in chunks])
