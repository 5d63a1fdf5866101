"""Softmax over the cosines to one learned direction for each class, the own cosine lessened by a margin first."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import inside, turned, unit
from isometry.deep.loss import LabelLoss, check_batch, check_labels
from isometry.deep.losses.proxy import random_proxies
from isometry.parameters import NotNegative, Positive, Rule, Share, checked, one_of

Angle = Annotated[float, Rule(lambda v: 0 <= v <= math.pi / 2, "must lie in [0, π/2]: it is an angle in radians")]
AtLeastOne = Annotated[float, Rule(lambda v: v >= 1, "must be at least 1")]


class ClassCosines(LabelLoss):
    """A loss of the cosines (B, C) between embeddings and one learned direction for each class."""

    normalize = True  # what is learned is compared by angles
    squared = True

    def __init__(self, num_classes: int, embedding_size: int):
        super().__init__()
        self.num_classes = num_classes
        self.proxies = random_proxies(num_classes, embedding_size)

    def cosines(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        """Cosines (B, C) to the directions of all classes, or of some."""
        proxies = self.proxies if classes is None else self.proxies[classes]
        return unit(z) @ unit(proxies.to(z.dtype)).T

    def check(self, z: Tensor, y: Tensor) -> Tensor:
        """Labels (B,), or similarities (B, C) to the classes in the precision of z; an error for anything else."""
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
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    scale : float or "auto"
        s. ``"auto"``: √2 log(C − 1), at least 8, after AdaCos; few classes want less than many.
    label_smoothing : float
        Share of the target spread evenly over all classes.
    class_weight : Tensor, optional
        Weights of the classes (C,).
    categories : sequence of int, optional
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
        """

    def with_margin(self, cos: Tensor, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        """The cosines (B, C) to these classes, the own ones replaced by ``target``; y counts in ``classes``."""
        if y.ndim == 2:
            return torch.where(y > 0.5, self.target(cos, z, classes), cos)
        own = y[:, None]
        return cos.scatter(1, own, self.target(cos.gather(1, own), z, classes[own]))

    def size(self, z: Tensor, classes: Tensor | None = None) -> Tensor | float:
        """What cosines are multiplied by: a number, or (B, 1), or (B, C)."""
        return self.scale

    def logits(self, z: Tensor) -> Tensor:
        """Scores (B, C) of the classes, without a margin."""
        return self.size(z) * self.cosines(z)

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        y = self.check(z, y)
        return self.among(None, self.cosines(z), z, y)

    def among(self, classes: Tensor | None, cos: Tensor, z: Tensor, y: Tensor) -> Tensor:
        """The loss of cosines (B, C) to some classes, or to all; y counts in ``classes``."""
        ids = torch.arange(self.num_classes, device=z.device) if classes is None else classes
        return self.cross_entropy(self.size(z, classes) * self.with_margin(cos, z, y, ids), y, ids)

    def cross_entropy(self, logits: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        """The mean over the batch, with the weights of the classes and smoothed labels."""
        weight = None if self.class_weight is None else self.class_weight[classes].to(logits.dtype)
        if self.categories is None:
            return F.cross_entropy(logits, y, weight, label_smoothing=self.label_smoothing)
        category = self.categories[classes]
        relatives = (category[:, None] == category).to(logits.dtype).fill_diagonal_(0)  # (C, C)
        relatives = relatives / relatives.sum(1, keepdim=True).clamp_min(1)
        spread = self.label_smoothing * relatives.sum(1)  # (C,), 0 for a class alone in its category
        soft = torch.diag(1 - spread) + self.label_smoothing * relatives
        return F.cross_entropy(logits, soft[y] if y.ndim == 1 else y @ soft, weight)


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
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    temperature : float
        T.
    label_smoothing : float
        Share of the target spread evenly over all classes.
    class_weight : Tensor, optional
        Weights of the classes (C,).

    References
    ----------
    A. Zhai, H.-Y. Wu, "Classification is a strong baseline for deep metric learning", BMVC 2019.
    F. Wang, X. Xiang, J. Cheng, A. L. Yuille, "NormFace: L2 hypersphere embedding for face verification", ACM
    Multimedia 2017.
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


class CosFace(MarginSoftmax):
    """CosFace, large margin cosine loss: a softmax over cosines, a margin subtracted from the own.

        −mean log( e^{s(cos θ_y − m)} / (e^{s(cos θ_y − m)} + Σ_{l≠y} e^{s cos θ_l}) )

    Parameters
    ----------
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    margin : float
        m, a difference of cosines.
    scale : float or "auto"
        s; ``"auto"`` grows with the number of classes, as √2 log(C − 1), and is at least 8.
    label_smoothing : float
        Share of the target spread evenly over all classes.
    class_weight : Tensor, optional
        Weights of the classes (C,).

    References
    ----------
    H. Wang, Y. Wang, Z. Zhou, X. Ji, D. Gong, J. Zhou, Z. Li, W. Liu, "CosFace: large margin cosine loss for deep face
    recognition", CVPR 2018.
    X. Zhang, R. Zhao, Y. Qiao, X. Wang, H. Li, "AdaCos: adaptively scaling cosine logits for effectively learning deep
    face representations", CVPR 2019 (scale).
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


class ArcFace(MarginSoftmax):
    """ArcFace, additive angular margin: a softmax over cosines, a margin added to the own angle.

        −mean log( e^{s t} / (e^{s t} + Σ_{l≠y} e^{s cos θ_l}) ),     t = cos(k θ_y + m) − d

    k = 1, d = 0 is ArcFace; other values combine its margin with those of SphereFace and CosFace. Where k θ + m exceeds
    π, t goes on as cos θ less a constant, so that it keeps falling.

    Parameters
    ----------
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    margin : float
        m, in radians.
    scale : float or "auto"
        s; ``"auto"`` grows with the number of classes, as √2 log(C − 1), and is at least 8.
    multiplier, cosine_margin : float
        k ≥ 1 and d.
    gradient : {"true", "straight"}
        The derivative of t in cos θ, or 1 in its place: the authors' PyTorch code works t out without a graph.
    label_smoothing : float
        Share of the target spread over all classes, or over those of the same category.
    class_weight : Tensor, optional
        Weights of the classes (C,).
    categories : sequence of int, optional
        The category of each class (C,).

    References
    ----------
    J. Deng, J. Guo, N. Xue, S. Zafeiriou, "ArcFace: additive angular margin loss for deep face recognition", CVPR 2019.
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
        """cos(k θ + m), and cos θ less a constant where the angle exceeds π."""
        k, m = self.multiplier, self.margin
        angle = k * inside(cos).acos() + m
        drop = max(m * math.sin(m), 1 + math.cos((math.pi - m) / k))
        return torch.where(angle > math.pi, cos - drop, angle.cos())
