"""Softmax over the cosines to one learned direction for each class, the own cosine lessened by a margin first."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import own_index, unit
from isometry.deep.loss import LabelLoss, check_batch, check_labels
from isometry.deep.losses.proxy import random_proxies
from isometry.deep.terms import Terms
from isometry.parameters import Count, NotNegative, Positive, Share, checked, one_of

LARGE = 1 << 17  # cosines of a batch from which on a copy of them costs more than a further step of the graph


class ClassCosines(LabelLoss):
    """A loss of the cosines (B, C) between embeddings and one learned direction for each class."""

    normalize = True  # what is learned is compared by angles
    squared = True
    sparse = False  # True: the gradient of some directions is a sparse matrix

    def __init__(self, num_classes: int, embedding_size: int):
        super().__init__()
        self.num_classes = checked("num_classes", num_classes, Count)
        self.proxies = random_proxies(num_classes, checked("embedding_size", embedding_size, Count))

    def cosines(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        """Cosines (B, C) to the directions of all classes, or of some.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        classes : Tensor or None, default=None
            Which classes, (c,); None: all.

        Returns
        -------
        Tensor
            Cosines (B, C), or (B, c).
        """
        return self.nearest(unit(z), unit(self.directions(classes).to(z.dtype)))

    def nearest(self, z: Tensor, directions: Tensor) -> Tensor:
        """Cosines (B, C) of unit vectors to the directions of classes.

        Parameters
        ----------
        z : Tensor
            Embeddings of unit length (B, p).
        directions : Tensor
            Directions of the classes (C, p).
        """
        return z @ directions.T

    def directions(self, classes: Tensor | None = None) -> Tensor:
        """The directions of all classes, or of some.

        Parameters
        ----------
        classes : Tensor or None, default=None
            Which classes, (c,); None: all.
        """
        if classes is None:
            return self.proxies
        return F.embedding(classes, self.proxies, sparse=True) if self.sparse else self.proxies[classes]

    def check(self, z: Tensor, y: Tensor) -> Tensor:
        """Labels (B,), or similarities (B, C) to the classes in the precision of z; an error for anything else.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        shape = self.num_classes, self.proxies.shape[-1]
        check_batch(z, y, z.new_empty(()).expand(shape), y.new_empty(()).expand(shape[:1]))
        if y.ndim == 1:
            check_labels(y, self.num_classes)
            return y
        if not ((y >= 0) & (y <= 1)).all():
            raise ValueError(f"similarities to the classes must lie in [0, 1], got {float(y.min())} … {float(y.max())}")
        return y.to(z.dtype)


class MarginSoftmax(ClassCosines):
    """Cross-entropy of scaled cosines to the classes. A loss of this family says what becomes of the own: ``target``.

        −mean log( e^{s t(cos θ_y)} / (e^{s t(cos θ_y)} + Σ_{l≠y} e^{s cos θ_l}) )

    Labels may also be similarities (B, C) in [0, 1]: Σ_l y_l times the cross-entropy of class l, with the margin in
    the columns y_l > ½. ``logits`` are those without a margin, to classify with.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.
    categories : sequence of int or None, default=None
        The category of each class (C,): ``label_smoothing`` is then spread over the other classes of the same one.
    """

    class_weight: Tensor | None
    categories: Tensor | None

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float | str = 64.0,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        categories: Sequence[int] | None = None,
    ):
        super().__init__(num_classes, embedding_size)
        if isinstance(scale, str) and one_of("scale", scale, ("auto",)) == "auto":
            scale = max(8.0, math.sqrt(2) * math.log(max(num_classes - 1, 1)))
        self.scale = checked("scale", scale, Positive)
        self.label_smoothing = checked("label_smoothing", label_smoothing, Share)
        self.register_buffer("class_weight", of_each_class("class_weight", class_weight, num_classes))
        self.register_buffer("categories", of_each_class("categories", categories, num_classes))

    @abstractmethod
    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        """The own cosines with their margin.

        Either (B, 1), one for each row of z, with ``classes`` (B, 1); or (B, C) for all classes (C,), of which those
        that are similar will be used.

        Parameters
        ----------
        cos : Tensor
            Cosines to the own class (B, 1), or to all classes (B, C).
        z : Tensor
            Embeddings (B, p).
        classes : Tensor
            Which classes, (c,).
        """

    def with_margin(self, cos: Tensor, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        """The cosines (B, C) to these classes, the own ones replaced by ``target``; y counts in ``classes``.

        Parameters
        ----------
        cos : Tensor
            Cosines (B, C).
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        classes : Tensor
            Which classes, (c,).
        """
        if y.ndim == 2:
            return torch.where(y > 0.5, self.target(cos, z, classes), cos)
        own = y[:, None]
        return cos.scatter(1, own, self.target(cos.gather(1, own), z, classes[own]))

    def size(self, z: Tensor, classes: Tensor | None = None) -> Tensor | float:
        """What cosines are multiplied by: a number, or (B, 1), or (B, C).

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        classes : Tensor or None, default=None
            Which classes, (c,); None: all.
        """
        return self.scale

    def logits(self, z: Tensor) -> Tensor:
        """Scores (B, C) of the classes, without a margin.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            Logits (B, C): the largest is the class that is told.
        """
        return self.size(z) * self.cosines(z)

    def observe(self, z: Tensor) -> None:
        """Take a batch into what the loss keeps of earlier ones; before its value is worked out.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        """

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        y = self.check(z, y)
        self.observe(z)
        return self.among(None, self.cosines(z), z, y)

    def terms(self, z: Tensor, y: Tensor) -> Terms:
        y = self.check(z, y)
        self.observe(z)
        values = self.among(None, self.cosines(z), z, y, "none")
        weighted = self.class_weight is not None and y.ndim == 1 and self.categories is None
        return values, self.class_weight[y].to(z.dtype) if weighted else torch.ones_like(values)  # type: ignore[index]

    def among(
        self, classes: Tensor | None, cos: Tensor, z: Tensor, y: Tensor, reduction: Literal["mean", "none"] = "mean"
    ) -> Tensor:
        """The loss of cosines (B, C) to some classes, or to all; y counts in ``classes``.

        Parameters
        ----------
        classes : Tensor or None
            Which classes, (c,); None: all.
        cos : Tensor
            Cosines (B, C).
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        reduction : {"mean", "none"}, default="mean"
            The mean, or the terms of the samples (B,).
        """
        ids, size = own_index(self.num_classes, z.device) if classes is None else classes, self.size(z, classes)
        plain = y.ndim == 1 and type(self).with_margin is MarginSoftmax.with_margin
        if plain and cos.numel() >= LARGE:  # the same with one copy less, and one more product of the own cosines
            own = y[:, None]
            target = self.target(cos.gather(1, own), z, ids[own])
            each = size.expand_as(cos).gather(1, own) if isinstance(size, Tensor) else size
            logits = (size * cos).scatter_(1, own, each * target)
        else:
            logits = size * self.with_margin(cos, z, y, ids)
        return self.cross_entropy(logits, y, ids, reduction)

    def cross_entropy(
        self, logits: Tensor, y: Tensor, classes: Tensor, reduction: Literal["mean", "none"] = "mean"
    ) -> Tensor:
        """The mean over the batch, or its terms, with the weights of the classes and smoothed labels.

        Parameters
        ----------
        logits : Tensor
            Scores of the classes (B, C).
        y : Tensor
            Labels (B,).
        classes : Tensor
            Which classes, (c,).
        reduction : {"mean", "none"}, default="mean"
            The mean, or the terms of the samples (B,).
        """
        weight = None if self.class_weight is None else self.class_weight[classes].to(logits.dtype)
        if self.categories is None:
            return F.cross_entropy(logits, y, weight, reduction=reduction, label_smoothing=self.label_smoothing)
        category = self.categories[classes]
        relatives = (category[:, None] == category).to(logits.dtype).fill_diagonal_(0)  # (C, C)
        relatives = relatives / relatives.sum(1, keepdim=True).clamp_min(1)
        spread = self.label_smoothing * relatives.sum(1)  # (C,), 0 for a class alone in its category
        soft = torch.diag(1 - spread) + self.label_smoothing * relatives
        return F.cross_entropy(logits, soft[y] if y.ndim == 1 else y @ soft, weight, reduction=reduction)


def of_each_class(name: str, values: Any, num_classes: int) -> Tensor | None:
    """A number for each class as a tensor (C,), or None; an error if there are more or fewer."""
    if values is None:
        return None
    values = torch.as_tensor(values)
    if values.shape != (num_classes,):
        raise ValueError(f"{name} must have one number for each of {num_classes} classes, got {tuple(values.shape)}")
    return values


class NormalizedSoftmax(MarginSoftmax):
    """Normalised softmax: cross-entropy of the cosines to the classes, divided by a temperature; no margin.

        −mean log softmax_l(cos θ_l / T)[y]

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    temperature : float, default=0.05
        The temperature T: the smaller, the more the nearest class counts.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    A plain baseline for closed sets of classes with many samples each: no pairs to mine, any batch will do. For very
    many classes see ``SampledSoftmax``. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | A. Zhai, H.-Y. Wu, "Classification is a strong baseline for deep metric learning", BMVC 2019.
    | F. Wang, X. Xiang, J. Cheng, A. L. Yuille, "NormFace: L2 hypersphere embedding for face verification", ACM
      Multimedia 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import NormalizedSoftmax
    >>> loss = NormalizedSoftmax(3, 4)
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
        temperature: float = 0.05,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        scale = 1 / checked("temperature", temperature, Positive)
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        return cos

    def with_margin(self, cos: Tensor, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        return cos

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        # embeddings are scaled in place of cosines: without a margin it is the same, on (B, p) numbers, not (B, C)
        y = self.check(z, y)
        logits = (self.scale * unit(z)) @ unit(self.directions().to(z.dtype)).T
        return self.cross_entropy(logits, y, own_index(self.num_classes, z.device))


class CosFace(MarginSoftmax):
    """CosFace, large margin cosine loss: a softmax over cosines, a margin subtracted from the own.

        −mean log( e^{s(cos θ_y − m)} / (e^{s(cos θ_y − m)} + Σ_{l≠y} e^{s cos θ_l}) )

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.35
        The margin m, a difference of cosines.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    For identification with many classes, such as faces. With few classes, or many that are hard, take a smaller
    ``scale`` ("auto") and margin: at scale 64 the softmax is all but a maximum. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | H. Wang, Y. Wang, Z. Zhou, X. Ji, D. Gong, J. Zhou, Z. Li, W. Liu, "CosFace: large margin cosine loss for deep
      face recognition", CVPR 2018.
    | X. Zhang, R. Zhao, Y. Qiao, X. Wang, H. Li, "AdaCos: adaptively scaling cosine logits for effectively learning
      deep face representations", CVPR 2019 (scale).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CosFace
    >>> loss = CosFace(num_classes=3, embedding_size=4, scale="auto")
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
        margin: float = 0.35,
        scale: float | str = 64.0,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        self.margin = checked("margin", margin, NotNegative)

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        return cos - self.margin
