"""Augmentation of a batch at once: every sample gets random numbers of its own, none a Python loop.

All transforms draw from torch's global generator, which checkpoints keep: a resumed run sees the same images. Of
several processes each has its own stream, so that their samples are varied independently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from isometry.deep.objective import TrainingObjective
from isometry.deep.wrapper import ObjectiveWrapper


class Augmented(ObjectiveWrapper):
    """An objective that sees augmented samples; only in training, and the network knows nothing of it.

    Parameters
    ----------
    objective : LossModule or callable
        A loss, or an objective ``(model, batch) → scalar``; its batches are samples, or (samples, labels, …).
    augment : nn.Module
        A module ``(samples, labels or None) → samples``.

    Notes
    -----
    Costs what the transforms cost, on the device of the batch.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Affine, Augment, Augmented, ConvNet, Noise, Triplet
    >>> objective = Augmented(Triplet(), Augment(Affine(), Noise(0.05)))
    >>> images, y = torch.rand(4, 1, 8, 8), torch.tensor([0, 0, 1, 1])
    >>> objective(ConvNet((1, 8, 8), 4, width=8), (images, y)).shape
    torch.Size([])
    """

    def __init__(self, objective: nn.Module | TrainingObjective, augment: nn.Module):
        super().__init__(objective)
        self.augment = augment

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The objective of a batch whose samples were varied, in training mode.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : Tensor or tuple
            Samples (B, …), or these and what belongs to them.

        Returns
        -------
        Tensor
            The scalar.
        """
        if self.training:
            x, *rest = batch if isinstance(batch, (tuple, list)) else (batch,)
            x = self.augment(x, rest[0] if rest else None)
            batch = (x, *rest) if rest else x
        return self.objective(model, batch)


class Augment(nn.Module):
    """Several transforms, one after another.

    Parameters
    ----------
    *transforms : nn.Module
        Modules ``(samples, labels or None) → samples``, in their order.
    image_shape : tuple (c, h, w) or None, default=None
        The shape to treat flat samples (B, c·h·w) as images; None: samples keep the shape they have.

    Notes
    -----
    The shape of a batch stays as it is.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Augment, Flip, Shift
    >>> Augment(Shift(1), Flip(), image_shape=(1, 8, 8))(torch.rand(2, 64)).shape
    torch.Size([2, 64])
    """

    def __init__(self, *transforms: nn.Module, image_shape: Sequence[int] | None = None):
        super().__init__()
        self.transforms = nn.ModuleList(transforms)
        self.image_shape = None if image_shape is None else tuple(image_shape)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Samples (B, …) and, for those who need them, labels (B,).

        Parameters
        ----------
        x : Tensor
            Samples (B, …).
        y : Tensor or None, default=None
            Labels (B,), for transforms that need them.

        Returns
        -------
        Tensor
            Samples of the same shape.
        """
        shape = x.shape
        if self.image_shape is not None:
            x = x.reshape(len(x), *self.image_shape)
        for transform in self.transforms:
            x = transform(x, y)
        return x.reshape(shape)

    @classmethod
    def standard(cls, image_shape: Sequence[int] | None = None) -> Augment:
        """What rarely hurts: small motions of images, mixing and noise for tables in standard units.

        Images are not mirrored: letters and digits are others then.

        Parameters
        ----------
        image_shape : tuple (c, h, w) or None, default=None
            The shape of images; None: samples are rows of a table.

        Returns
        -------
        Augment
            The transforms.
        """
        return cls(Mix(0.5), Noise(0.1)) if image_shape is None else cls(Affine(), image_shape=image_shape)


class Affine(nn.Module):
    """Turn, zoom and move images, bilinearly; what comes in at the border continues the border.

        u' = R(α) u / s + t        for pixels u of the new image, u' of the old one, from the centre

    Parameters
    ----------
    degrees : float, default=10.0
        The largest angle α, in degrees, either way.
    scale : float, default=0.1
        The largest difference of the zoom s from 1.
    shift : float, default=0.07
        The largest move t, as a share of the side.

    Notes
    -----
    For images whose class does not depend on small motions; digits bear 10 degrees, not 180. Costs one bilinear
    sampling of the batch.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Affine
    >>> images = torch.rand(2, 1, 8, 8)
    >>> Affine()(images).shape
    torch.Size([2, 1, 8, 8])
    >>> torch.allclose(Affine(0, 0, 0)(images), images, atol=1e-5)
    True
    """

    def __init__(self, degrees: float = 10.0, scale: float = 0.1, shift: float = 0.07):
        super().__init__()
        if not 0 <= scale < 1:
            raise ValueError(f"scale={scale} is the largest change of size: choose it between 0 and 1")
        self.degrees, self.scale, self.shift = degrees, scale, shift

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Images (B, c, h, w) or (B, h, w).

        Parameters
        ----------
        x : Tensor
            Images (B, c, h, w) or (B, h, w).
        y : Tensor or None, default=None
            Labels, which are not looked at.

        Returns
        -------
        Tensor
            Images of the same shape.
        """
        images = x if x.ndim == 4 else x[:, None]
        grid = F.affine_grid(self.draw(images), list(images.shape), align_corners=False)  # (B, h, w, 2)
        return F.grid_sample(images, grid, padding_mode="border", align_corners=False).view_as(x)

    def draw(self, x: Tensor) -> Tensor:
        """Maps (B, 2, 3) in coordinates where the image is [−1, 1]², whatever its aspect.

        Parameters
        ----------
        x : Tensor
            Images (B, c, h, w).
        """
        B, _, h, w = x.shape
        angle = math.radians(self.degrees) * uniform(x, B)
        zoom = 1 + self.scale * uniform(x, B)
        cos, sin = angle.cos() / zoom, angle.sin() / zoom
        tx, ty = 2 * self.shift * uniform(x, 2, B)
        return torch.stack([cos, -sin * (h / w), tx, sin * (w / h), cos, ty], 1).view(B, 2, 3)


class Shift(nn.Module):
    """Move images by whole pixels, as a random crop of the padded image does; the border is continued.

    Parameters
    ----------
    pixels : int, default=2
        The largest move along each side.

    Notes
    -----
    Cheaper than `Affine`, and without blur.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Shift
    >>> Shift(2)(torch.rand(2, 1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """

    def __init__(self, pixels: int = 2):
        super().__init__()
        self.pixels = pixels

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Images (B, …, h, w).

        Parameters
        ----------
        x : Tensor
            Images (B, …, h, w).
        y : Tensor or None, default=None
            Labels, which are not looked at.

        Returns
        -------
        Tensor
            Images of the same shape.
        """
        for dim in (-2, -1):
            move = torch.randint(-self.pixels, self.pixels + 1, (len(x), 1), device=x.device)
            source = (torch.arange(x.shape[dim], device=x.device) + move).clamp(0, x.shape[dim] - 1)  # (B, side)
            shape = [len(x)] + [1] * (x.ndim - 1)
            shape[dim] = x.shape[dim]
            x = x.gather(dim, source.view(shape).expand_as(x))
        return x


class Flip(nn.Module):
    """Mirror images left to right, each with a given probability.

    Parameters
    ----------
    p : float, default=0.5
        The probability.

    Notes
    -----
    For scenes and objects; letters and digits are others then.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Flip
    >>> Flip(p=1.0)(torch.tensor([[[[1.0, 2.0]]]]))
    tensor([[[[2., 1.]]]])
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Images (B, …, h, w).

        Parameters
        ----------
        x : Tensor
            Images (B, …, h, w).
        y : Tensor or None, default=None
            Labels, which are not looked at.

        Returns
        -------
        Tensor
            Images of the same shape.
        """
        return torch.where(per_sample(torch.rand(len(x), device=x.device) < self.p, x), x.flip(-1), x)


class Noise(nn.Module):
    """Add Gaussian noise of a given standard deviation.

    Parameters
    ----------
    std : float, default=0.1
        The standard deviation, in the units of the samples.

    Notes
    -----
    For tables in standard units, and images.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Noise
    >>> Noise(std=0.1)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, std: float = 0.1):
        super().__init__()
        self.std = std

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Samples (B, …).

        Parameters
        ----------
        x : Tensor
            Samples (B, …).
        y : Tensor or None, default=None
            Labels, which are not looked at.

        Returns
        -------
        Tensor
            Samples of the same shape.
        """
        return x + self.std * torch.randn_like(x)


class Mix(nn.Module):
    """Move each sample towards a random one of its class.

        x_i + t (x_j − x_i),    t uniform in [0, most],    y_j = y_i

    Parameters
    ----------
    most : float, default=0.5
        The largest share t of the other sample.

    Notes
    -----
    For tables; of images the mean of two is a ghost. Costs O(B log B) beside the samples.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Mix
    >>> x, y = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> mixed = Mix()(x, y)
    >>> bool((mixed[:2] <= 1).all()), mixed[2].item()  # alone in its class
    (True, 5.0)
    """

    def __init__(self, most: float = 0.5):
        super().__init__()
        self.most = most

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Samples (B, …) with labels (B,).

        Parameters
        ----------
        x : Tensor
            Samples (B, …).
        y : Tensor or None, default=None
            Labels (B,), which must be given.

        Returns
        -------
        Tensor
            Samples of the same shape.
        """
        if y is None:
            raise ValueError("Mix moves a sample towards others of its class: it needs labels")
        t = self.most * torch.rand(len(x), device=x.device, dtype=x.dtype)
        return torch.lerp(x, x[partners(y)], per_sample(t, x))


def partners(y: Tensor) -> Tensor:
    """(B,) for each sample one of its class, itself included: a random permutation inside each class."""
    shuffles = [torch.randperm(len(y), device=y.device) for _ in range(2)]
    order, other = (shuffled[y[shuffled].argsort(stable=True)] for shuffled in shuffles)
    return torch.empty_like(order).scatter_(0, order, other)  # both orders have the classes at the same places


def uniform(x: Tensor, *shape: int) -> Tensor:
    """Random numbers in [−1, 1], of the type of x."""
    return 2 * torch.rand(shape, dtype=x.dtype, device=x.device) - 1


def per_sample(values: Tensor, x: Tensor) -> Tensor:
    """Values (B,) shaped so that each meets its sample (B, …)."""
    return values.view(-1, *[1] * (x.ndim - 1))
