"""Feature maps of several scales from one image."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FeaturePyramid(nn.Module):
    """Maps of several scales, all with the same channels, in which fine maps also know what coarse ones have seen.

        p_L = a_L(c_L),     p_l = a_l(c_l) + upsampled p_{l+1},     then a 3 × 3 convolution of each p_l

    c_1 … c_L are maps of a bottom-up network, from fine to coarse, and a_l are 1 × 1 convolutions.

    Parameters
    ----------
    shape : tuple (c, h, w)
        Channels, height and width of the images.
    channels : int, default=64
        Channels of each map, a multiple of 8.
    levels : int, default=3
        Number of maps L, for the network built here: blocks of a 3 × 3 convolution that halve the image. Ignored with
        ``layers``.
    backbone : nn.Module or None, default=None
        Another bottom-up network, trained before, say; None: one is built.
    layers : sequence of str or None, default=None
        Which layers of that network give the maps c_1 … c_L.

    Notes
    -----
    The model of ``MultiScale``. Beside the bottom-up network it costs a 1 × 1 and a 3 × 3 convolution of each map.

    References
    ----------
    | T.-Y. Lin, P. Dollár, R. Girshick, K. He, B. Hariharan, S. Belongie, "Feature pyramid networks for object
      detection", CVPR 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import FeaturePyramid
    >>> maps = FeaturePyramid((1, 16, 16), channels=8, levels=2)(torch.zeros(3, 1, 16, 16))
    >>> [m.shape[:2] for m in maps]
    [torch.Size([3, 8]), torch.Size([3, 8])]
    """

    def __init__(
        self,
        shape: Sequence[int],
        channels: int = 64,
        levels: int = 3,
        *,
        backbone: nn.Module | None = None,
        layers: Sequence[str] | None = None,
    ):
        super().__init__()
        if len(shape) != 3 or min(shape) < 1:
            raise ValueError(f"shape must be (channels, height, width), got {tuple(shape)}")
        if channels % 8:
            raise ValueError(f"channels must be a multiple of 8, got {channels}")
        if (backbone is None) != (layers is None):
            raise ValueError("backbone and layers go together: give both, or neither for the network built here")
        if backbone is None or layers is None:
            if min(shape[1:]) < 2**levels:
                raise ValueError(f"an image of {shape[1]} × {shape[2]} pixels cannot be halved {levels} times")
            sizes = [shape[0], *[channels] * levels]
            backbone = nn.Sequential(*(block(before, after) for before, after in itertools.pairwise(sizes)))
            layers = [str(k) for k in range(levels)]
        if unknown := set(layers) - dict(backbone.named_modules()).keys():
            raise ValueError(f"the backbone has no layer {', '.join(sorted(unknown))}; see its named_modules()")
        self.shape, self.backbone, self.layers = tuple(shape), backbone, tuple(layers)
        with torch.no_grad():
            widths = [c.shape[1] for c in self._bottom_up(torch.zeros(1, *shape))]
        self.lateral = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in widths)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images (B, c, h, w), (B, h, w) or flat to maps (B, channels, h_l, w_l), from fine to coarse.

        Parameters
        ----------
        x : Tensor
            Images (B, c, h, w), (B, h, w) or flat.

        Returns
        -------
        list of Tensor
            Maps (B, channels, h_l, w_l), from fine to coarse.
        """
        below = self._bottom_up(x.reshape(x.shape[0], *self.shape))
        maps: list[Tensor] = []
        for c, lateral in zip(reversed(below), reversed(self.lateral)):
            p = lateral(c)
            maps.append(p + F.interpolate(maps[-1], size=p.shape[-2:]) if maps else p)
        return [smooth(p) for smooth, p in zip(self.smooth, reversed(maps))]

    def _bottom_up(self, x: Tensor) -> list[Tensor]:
        """What the named layers give on the way of x through the backbone."""
        seen: dict[str, Tensor] = {}
        hooks = [
            self.backbone.get_submodule(name).register_forward_hook(
                lambda _, __, out, name=name: seen.update({name: out})
            )
            for name in self.layers
        ]
        try:
            self.backbone(x)
        finally:
            for hook in hooks:
                hook.remove()
        return [seen[name] for name in self.layers]


def block(before: int, after: int) -> nn.Module:
    """A 3 × 3 convolution, normalised over groups of eight channels, that halves the image."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.GroupNorm(after // 8, after), nn.ReLU(), nn.MaxPool2d(2)
    )
