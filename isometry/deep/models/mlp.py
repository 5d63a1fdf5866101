"""Backbones for tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn


class LinearMap(nn.Linear):
    """z = Lx: with it, deep training learns a Mahalanobis metric W = LᵀL."""

    def __init__(self, n_features: int, n_components: int):
        super().__init__(n_features, n_components, bias=False)


class MLP(nn.Module):
    """A multi-layer perceptron: linear layers with ReLU between them, and dropout if wanted.

    Parameters
    ----------
    n_features, n_components : int
        Dimension of the samples and of the embeddings.
    hidden : sequence of int
        Sizes of the layers between.
    dropout : float
        Share of hidden units dropped in training.
    """

    def __init__(self, n_features: int, n_components: int, hidden: Sequence[int] = (128,), dropout: float = 0.0):
        super().__init__()
        sizes = [n_features, *hidden]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()] + [nn.Dropout(dropout)] * (dropout > 0)
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], n_components))

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, d) to embeddings (B, p)."""
        return self.layers(x)
