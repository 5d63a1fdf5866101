"""ArcFace: a margin added to the angle of the own class; several centres and margins by size of class."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from isometry.deep.functional import inside, turned, unit
from isometry.deep.loss import as_embeddings
from isometry.deep.losses.margin_softmax import MarginSoftmax, of_each_class
from isometry.deep.losses.proxy import random_proxies
from isometry.deep.slopes import apart, blocks, gradients
from isometry.parameters import Count, NotNegative, Positive, Rule, checked, one_of

Angle = Annotated[float, Rule(lambda v: 0 <= v <= math.pi / 2, "must lie in [0, π/2]: it is an angle in radians")]
AtLeastOne = Annotated[float, Rule(lambda v: v >= 1, "must be at least 1")]


class ArcFace(MarginSoftmax):
    """ArcFace, additive angular margin: a softmax over cosines, a margin added to the own angle.

        −mean log( e^{s t} / (e^{s t} + Σ_{l≠y} e^{s cos θ_l}) ),     t = cos(k θ_y + m) − d

    k = 1, d = 0 is ArcFace; other values combine its margin with those of SphereFace and CosFace. Where k θ + m exceeds
    π, t goes on as cos θ less a constant, so that it keeps falling.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.5
        The margin m, in radians.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    multiplier : float, default=1.0
        The factor k ≥ 1 of the own angle.
    cosine_margin : float, default=0.0
        What is subtracted from the own cosine, d.
    gradient : {"true", "straight"}, default="true"
        The derivative of t in cos θ, or 1 in its place: the authors' PyTorch code works t out without a graph.
    label_smoothing : float, default=0.0
        Share of the target spread over all classes, or over those of the same category.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.
    categories : sequence of int or None, default=None
        The category of each class (C,): ``label_smoothing`` is then spread over the other classes of the same one;
        None: over all.

    Notes
    -----
    For identification with many classes, such as faces; the embedding serves for classes that were not seen. With few
    classes take ``scale="auto"``. Noisy labels: ``SubCenterArcFace``; classes of unequal size: ``DynamicArcFace``; very
    many: ``SampledSoftmax``. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | J. Deng, J. Guo, N. Xue, S. Zafeiriou, "ArcFace: additive angular margin loss for deep face recognition", CVPR
      2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ArcFace
    >>> loss = ArcFace(num_classes=3, embedding_size=4, scale="auto")
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: float = 0.5,
        scale: float | str = 64.0,
        multiplier: float = 1.0,
        cosine_margin: float = 0.0,
        gradient: str = "true",
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        categories: Sequence[int] | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight, categories)
        self.margin = checked("margin", margin, Angle)
        self.multiplier = checked("multiplier", multiplier, AtLeastOne)
        self.cosine_margin = checked("cosine_margin", cosine_margin, NotNegative)
        self.gradient = one_of("gradient", gradient, ("true", "straight"))

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        t = (turned(cos, self.margin) if self.multiplier == 1 else self.multiplied(cos)) - self.cosine_margin
        return t if self.gradient == "true" else cos + (t - cos).detach()

    def multiplied(self, cos: Tensor) -> Tensor:
        """The cosine of k θ + m, and cos θ less a constant where that angle exceeds π.

        Parameters
        ----------
        cos : Tensor
            Cosines (B, C).
        """
        k, m = self.multiplier, self.margin
        angle = k * inside(cos).acos() + m
        drop = max(m * math.sin(m), 1 + math.cos((math.pi - m) / k))
        return torch.where(angle > math.pi, cos - drop, angle.cos())


class SubCenterArcFace(ArcFace):
    """Sub-centre ArcFace: several directions for each class, of which the nearest counts; the others take the noise.

        cos θ_l = max_k ẑᵀŵ_lk,     then as ArcFace

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    sub_centers : int, default=3
        Directions of each class.
    margin : float, default=0.5
        The margin m, in radians.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    For noisy labels and for classes that fall into several groups; ``outliers`` names the samples that lie apart. With
    clean, compact classes the further centres are idle. Costs O(B C K p) for K directions a class.

    References
    ----------
    | J. Deng, J. Guo, T. Liu, M. Gong, S. Zafeiriou, "Sub-center ArcFace: boosting face recognition by large-scale
      noisy web faces", ECCV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SubCenterArcFace
    >>> loss = SubCenterArcFace(num_classes=3, embedding_size=4, sub_centers=2)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        sub_centers: int = 3,
        margin: float = 0.5,
        scale: float | str = 64.0,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(
            num_classes, embedding_size, margin, scale, label_smoothing=label_smoothing, class_weight=class_weight
        )
        self.proxies = random_proxies(num_classes, checked("sub_centers", sub_centers, Count), embedding_size)

    def nearest(self, z: Tensor, directions: Tensor) -> Tensor:
        """Of K directions of each class, (C, K, p), the nearest.

        Parameters
        ----------
        z : Tensor
            Embeddings of unit length (B, p).
        directions : Tensor
            Directions (C, K, p).
        """
        return _Nearest.apply(z, directions)

    @torch.no_grad()
    def outliers(self, z: Tensor, y: Tensor, degrees: float = 75.0) -> Tensor:
        """Rows that are farther than this angle from the sub-centre that most of their class are nearest to.

        Parameters
        ----------
        z : Tensor
            Embeddings (n, p).
        y : Tensor
            Labels (n,).
        degrees : float, default=75.0
            The angle, in degrees.

        Returns
        -------
        Tensor
            Numbers of the rows.
        """
        z = as_embeddings(z, "z", squared=True)
        self.check(z, y)
        cos = torch.einsum("bp,bkp->bk", unit(z), unit(self.proxies.to(z.dtype))[y])  # (B, K)
        C, K, _ = self.proxies.shape
        uses = torch.bincount(y * K + cos.argmax(1), minlength=C * K).view(C, K)
        own = cos.gather(1, uses.argmax(1)[y, None]).squeeze(1)  # (B,)
        return (own < math.cos(math.radians(degrees))).nonzero().squeeze(1)


class _Nearest(torch.autograd.Function):
    """max_k z_iᵀ w_lk (B, C) of embeddings (B, p) and directions (C, K, p).

    Block by block of anchors, also backwards: no matrix (B, C K) is ever whole, which would cost as much as the
    products do. Directions are taken with k first, so that the maximum is one of K rows of C numbers, and which k it
    is stays a float: comparisons into floats, products and maxima run several numbers at a time, choices do not.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, directions: Tensor) -> Tensor:
        C, K, p = directions.shape
        w = directions.transpose(0, 1).reshape(K * C, p)
        cos, which = z.new_empty(len(z), C), z.new_zeros(len(z), C)
        for rows, memory in parts_of(z, K * C):
            c = torch.mm(z[rows], w.T, out=memory).view(-1, K, C)
            largest = c[:, 0]
            for k in range(1, K):
                larger = torch.maximum(largest, c[:, k])
                torch.maximum(which[rows], c[:, k].gt_(largest).mul_(k), out=which[rows])  # the k come in order
                largest = larger
            cos[rows] = largest
        ctx.save_for_backward(z, directions, w, which)
        return cos

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        z, directions, w, which = ctx.saved_tensors
        (C, K, p), (for_z, for_w) = directions.shape, ctx.needs_input_grad
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            z, directions = apart(z, directions)
            cos = torch.einsum("bp,ckp->bck", z, directions).gather(2, which.long()[:, :, None])
            return tuple(gradients(cos[:, :, 0], (z, directions), G, (for_z, for_w)))
        dz, dw = torch.empty_like(z), torch.zeros_like(w)
        for rows, memory in parts_of(z, K * C):
            slopes = memory.view(-1, K, C)
            for k in range(K):  # those of the largest alone
                slopes[:, k].copy_(which[rows]).eq_(k).mul_(G[rows])
            if for_z:
                torch.mm(memory, w, out=dz[rows])
            if for_w:
                dw.addmm_(memory.T, z[rows])
        return dz if for_z else None, dw.view(K, C, p).transpose(0, 1) if for_w else None


def parts_of(z: Tensor, n_columns: int) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of rows, each with a matrix to write on: the same memory for all, since fresh pages cost time."""
    memory = None
    for rows in blocks(len(z), n_columns):
        memory = z.new_empty(rows.stop, n_columns) if memory is None else memory
        yield rows, memory[: rows.stop - rows.start]


class DynamicArcFace(SubCenterArcFace):
    """Dynamic margins: ArcFace with a larger margin for a rarer class.

        m_l = a n_l^{−λ} + b,     a and b such that the rarest class has the larger bound, the commonest the smaller

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    class_counts : sequence of int
        Samples of each class in the training set (C,).
    margin_bounds : tuple of float, default=(0.05, 0.5)
        Smallest and largest margin, in radians; classes of equal size all have the largest.
    power : float, default=0.25
        The exponent λ: how fast the margin falls with the size of a class.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    sub_centers : int, default=1
        Directions of each class; the published solution has 3.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    For classes of very unequal size, of which the rare ones need the larger margin. With classes of equal size it is
    ``SubCenterArcFace``. Costs O(B C K p) for K directions a class.

    References
    ----------
    | Q. Ha, B. Liu, F. Liu, P. Liao, "Google Landmark Recognition 2020 competition third place solution", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import DynamicArcFace
    >>> loss = DynamicArcFace(num_classes=3, embedding_size=4, class_counts=[100, 10, 1])
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    >>> bool(loss.margins[2] > loss.margins[0])  # the rarest class
    True
    """

    margins: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        class_counts: Sequence[int],
        margin_bounds: tuple[float, float] = (0.05, 0.5),
        power: float = 0.25,
        scale: float | str = 64.0,
        sub_centers: int = 1,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        low, high = (checked("margin_bounds", bound, Angle) for bound in margin_bounds)
        if low > high:
            raise ValueError(f"margin_bounds={margin_bounds} must be (smallest, largest)")
        super().__init__(num_classes, embedding_size, sub_centers, high, scale, label_smoothing, class_weight)
        counts = of_each_class("class_counts", class_counts, num_classes)
        if counts is None or not (counts > 0).all():
            raise ValueError(f"class_counts must be positive, got {class_counts}; leave out classes without samples")
        rarity = counts.double() ** -checked("power", power, Positive)
        spread = (rarity.max() - rarity).div((rarity.max() - rarity.min()).clamp_min(1e-300))  # 0 … 1, 0 for the rarest
        self.register_buffer("margins", (high - (high - low) * spread).float())

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        return turned(cos, self.margins[classes].to(cos.dtype))
