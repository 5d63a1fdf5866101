"""Backbones for tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import Tensor, nn


class LinearMap(nn.Linear):
    """A linear map z = Lx: with it, deep training learns a Mahalanobis metric W = LᵀL.

    Parameters
    ----------
    n_features : int
        Dimension d of the samples.
    n_components : int
        Dimension p of the embeddings.

    Notes
    -----
    The baseline for tables and for embeddings of a frozen network: any loss of this package then learns what the
    classical methods learn, in batches. Costs O(B d p).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LinearMap
    >>> model = LinearMap(n_features=4, n_components=2)
    >>> model(torch.eye(4)).shape, model.bias is None
    (torch.Size([4, 2]), True)
    """

    def __init__(self, n_features: int, n_components: int):
        super().__init__(n_features, n_components, bias=False)


class MLP(nn.Module):
    """A multi-layer perceptron: linear layers with ReLU between them, and dropout if wanted.

    Parameters
    ----------
    n_features : int
        Dimension d of the samples.
    n_components : int
        Dimension p of the embeddings.
    hidden : sequence of int, default=(128,)
        Sizes of the layers between.
    dropout : float, default=0.0
        Share of hidden units dropped in training.

    Notes
    -----
    For tables whose classes no linear map separates; bring the columns to one scale first. Costs O(B) times the number
    of weights.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP
    >>> MLP(4, 2, hidden=(16, 8))(torch.eye(4)).shape
    torch.Size([4, 2])
    """

    def __init__(self, n_features: int, n_components: int, hidden: Sequence[int] = (128,), dropout: float = 0.0):
        super().__init__()
        sizes = [n_features, *hidden]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()] + [nn.Dropout(dropout)] * (dropout > 0)
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], n_components))

    def forward(self, x: Tensor) -> Tensor:
        """Samples (B, d) to embeddings (B, p).

        Parameters
        ----------
        x : Tensor
            Samples (B, d).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        return self.layers(x)
