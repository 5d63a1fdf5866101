"""A backbone for small images."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class ConvNet(nn.Module):
    """Blocks of two 3 × 3 convolutions that halve the image and double the channels, then a linear layer.

    Norms are over groups of channels, not over the batch: an embedding depends on its own image alone, in training
    too, and batches of class-balanced or hard samples, or cut over processes, do not bias it.

    Parameters
    ----------
    shape : tuple (c, h, w)
        Channels, height and width of the images.
    n_components : int
        Dimension p of the embeddings.
    width : int, default=32
        Channels of the first block, a multiple of 8.
    blocks : int, default=2
        Number of blocks; no more are built than leave one pixel.

    Notes
    -----
    For small images learned from scratch; for photographs take a trained network, `backbone`.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ConvNet
    >>> ConvNet((1, 8, 8), n_components=4, width=8)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, shape: Sequence[int], n_components: int, width: int = 32, blocks: int = 2):
        super().__init__()
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"shape must be (channels, height, width), got {tuple(shape)}")
        if width % 8:
            raise ValueError(f"width must be a multiple of 8, got {width}")
        channels, height, side = shape
        layers: list[nn.Module] = []
        for k in range(blocks):
            if min(height, side) < 2:
                break
            layers += [*_convolution(channels, width << k), *_convolution(width << k, width << k), nn.MaxPool2d(2)]
            channels, height, side = width << k, height // 2, side // 2
        self.shape = tuple(shape)
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * height * side, n_components))

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, c, h, w), (B, h, w) or flat (B, c·h·w) to embeddings (B, p).

        Parameters
        ----------
        x : Tensor
            Images (B, c, h, w), (B, h, w), or flat (B, c·h·w).

        Returns
        -------
        Tensor
            Embeddings (B, p).
        """
        return self.layers(x.reshape(x.shape[0], *self.shape))


def _convolution(before: int, after: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(before, after, 3, padding=1, bias=False), nn.GroupNorm(8, after), nn.ReLU()
