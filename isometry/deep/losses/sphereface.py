"""SphereFace and the large-margin softmax: the angle of the own class is multiplied, lengths are kept."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from isometry.deep.functional import length
from isometry.deep.losses.margin_softmax import MarginSoftmax
from isometry.parameters import Rule, checked

Multiple = Annotated[int, Rule(lambda v: 1 <= v <= 8, "must lie in 1 … 8")]


class SphereFace(MarginSoftmax):
    """SphereFace, multiplicative angular margin: the own angle is multiplied; logits keep the length of the embedding.

        logits ‖z‖ cos θ_l, own ‖z‖ ψ(θ_y),     ψ(θ) = (−1)^k cos(mθ) − 2k,  k = ⌊mθ/π⌋

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : int, default=4
        The factor m of the own angle, 1 to 8.
    scale : float, default=1.0
        The factor of all logits.
    anneal : tuple (start, end, rate) or None, default=None
        The target is (λ cos θ + ψ)/(1 + λ) with λ = max(end, start / (1 + rate · step)), by steps of training. The
        papers have (1000, 5, 0.12); by default the target is ψ from the start.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    The first of the angular margins; ``ArcFace`` and ``CosFace`` are easier to train. From a random start give
    ``anneal``: with m = 4 at once the loss may not begin to fall. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | W. Liu, Y. Wen, Z. Yu, M. Li, B. Raj, L. Song, "SphereFace: deep hypersphere embedding for face recognition", CVPR
      2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SphereFace
    >>> loss = SphereFace(num_classes=3, embedding_size=4, margin=2)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    """

    steps: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: int = 4,
        scale: float = 1.0,
        anneal: tuple[float, float, float] | None = None,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        self.margin, self.anneal = checked("margin", margin, Multiple), anneal
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def size(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        return self.scale * length(z)

    def observe(self, z: Tensor) -> None:
        if self.training:
            self.steps += 1

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        psi = self.psi(cos)
        if self.anneal is None:
            return psi
        start, end, rate = self.anneal
        la = max(end, start / (1 + rate * int(self.steps)))
        return (la * cos + psi) / (1 + la)

    def psi(self, cos: Tensor) -> Tensor:
        """The function ψ of the angle with this cosine; cos(mθ) is the Chebyshev polynomial T_m of it.

        Parameters
        ----------
        cos : Tensor
            Cosines (B, C).
        """
        before, T = torch.ones_like(cos), cos
        for _ in range(self.margin - 1):
            before, T = T, 2 * cos * T - before
        k = (cos.detach().clamp(-1, 1).acos() * (self.margin / math.pi)).floor().clamp_max(self.margin - 1)
        return (1 - 2 * (k % 2)) * T - 2 * k


class LargeMarginSoftmax(SphereFace):
    """Large-margin softmax: the own angle is multiplied; logits keep the lengths of embedding and weights.

        logits ‖w_l‖‖z‖ cos θ_l, own ‖w_y‖‖z‖ ψ(θ_y),     ψ(θ) = (−1)^k cos(mθ) − 2k,  k = ⌊mθ/π⌋

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : int, default=4
        The factor m of the own angle, 1 to 8.
    scale : float, default=1.0
        The factor of all logits.
    anneal : tuple (start, end, rate) or None, default=None
        The target is (λ cos θ + ψ)/(1 + λ) with λ = max(end, start / (1 + rate · step)), by steps of training; None:
        the target is ψ from the start.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    As ``SphereFace`` where lengths carry information, such as how frequent a class is. Classes of long weights win
    ties: for retrieval by angle take ``SphereFace`` or later losses. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | W. Liu, Y. Wen, Z. Yu, M. Yang, "Large-margin softmax loss for convolutional neural networks", ICML 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LargeMarginSoftmax
    >>> loss = LargeMarginSoftmax(num_classes=3, embedding_size=4, margin=2)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    """

    def size(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        return super().size(z) * length(self.directions(classes).to(z.dtype)).T
