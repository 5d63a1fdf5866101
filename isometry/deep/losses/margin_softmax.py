"""Softmax over the cosines to one learned direction for each class, the own cosine lessened by a margin first."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import inside, length, own_index, turned, unit
from isometry.deep.loss import LabelLoss, as_embeddings, check_batch, check_labels
from isometry.deep.losses.proxy import random_proxies
from isometry.parameters import Count, NotNegative, Positive, Rule, Share, checked, one_of

Angle = Annotated[float, Rule(lambda v: 0 <= v <= math.pi / 2, "must lie in [0, π/2]: it is an angle in radians")]
Multiple = Annotated[int, Rule(lambda v: 1 <= v <= 8, "must lie in 1 … 8")]
AtLeastOne = Annotated[float, Rule(lambda v: v >= 1, "must be at least 1")]


class ClassCosines(LabelLoss):
    """A loss of the cosines (B, C) between embeddings and one learned direction for each class."""

    normalize = True  # what is learned is compared by angles
    squared = True
    sparse = False  # True: the gradient of some directions is a sparse matrix

    def __init__(self, num_classes: int, embedding_size: int):
        super().__init__()
        self.num_classes = num_classes
        self.proxies = random_proxies(num_classes, embedding_size)

    def cosines(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        """Cosines (B, C) to the directions of all classes, or of some."""
        return self.nearest(unit(z), unit(self.directions(classes).to(z.dtype)))

    def nearest(self, z: Tensor, directions: Tensor) -> Tensor:
        """Cosines (B, C) of unit vectors to the directions of classes."""
        return z @ directions.T

    def directions(self, classes: Tensor | None = None) -> Tensor:
        """The directions of all classes, or of some."""
        if classes is None:
            return self.proxies
        return F.embedding(classes, self.proxies, sparse=True) if self.sparse else self.proxies[classes]

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
        ids = own_index(self.num_classes, z.device) if classes is None else classes
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

    def with_margin(self, cos: Tensor, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
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


class SubCenterArcFace(ArcFace):
    """Sub-centre ArcFace: several directions for each class, of which the nearest counts; the others take the noise.

        cos θ_l = max_k ẑᵀŵ_lk,     then as ArcFace

    Parameters
    ----------
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    sub_centers : int
        Directions of each class.
    margin : float
        m, in radians.
    scale : float or "auto"
        s.
    label_smoothing, class_weight
        See ``ArcFace``.

    References
    ----------
    J. Deng, J. Guo, T. Liu, M. Gong, S. Zafeiriou, "Sub-center ArcFace: boosting face recognition by large-scale noisy
    web faces", ECCV 2020.
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
        """Of K directions of each class, (C, K, p), the nearest."""
        return (z @ directions.flatten(0, 1).T).unflatten(1, directions.shape[:2]).max(2).values

    @torch.no_grad()
    def outliers(self, z: Tensor, y: Tensor, degrees: float = 75.0) -> Tensor:
        """Rows that are farther than this angle from the sub-centre that most of their class are nearest to."""
        z = as_embeddings(z, "z", squared=True)
        self.check(z, y)
        cos = torch.einsum("bp,bkp->bk", unit(z), unit(self.proxies.to(z.dtype))[y])  # (B, K)
        C, K, _ = self.proxies.shape
        uses = torch.bincount(y * K + cos.argmax(1), minlength=C * K).view(C, K)
        own = cos.gather(1, uses.argmax(1)[y, None]).squeeze(1)  # (B,)
        return (own < math.cos(math.radians(degrees))).nonzero().squeeze(1)


class DynamicArcFace(SubCenterArcFace):
    """Dynamic margins: ArcFace with a larger margin for a rarer class.

        m_l = a n_l^{−λ} + b,     a and b such that the rarest class has the larger bound, the commonest the smaller

    Parameters
    ----------
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    class_counts : sequence of int
        Samples of each class in the training set (C,).
    margin_bounds : tuple of float
        Smallest and largest margin, in radians; classes of equal size all have the largest.
    power : float
        λ.
    scale : float or "auto"
        s.
    sub_centers : int
        Directions of each class; the published solution has 3.
    label_smoothing, class_weight
        See ``ArcFace``.

    References
    ----------
    Q. Ha, B. Liu, F. Liu, P. Liao, "Google Landmark Recognition 2020 competition third place solution", arXiv 2020.
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


class SphereFace(MarginSoftmax):
    """SphereFace, multiplicative angular margin: the own angle is multiplied; logits keep the length of the embedding.

        logits ‖z‖ cos θ_l, own ‖z‖ ψ(θ_y),     ψ(θ) = (−1)^k cos(mθ) − 2k,  k = ⌊mθ/π⌋

    Parameters
    ----------
    num_classes, embedding_size : int
        C and the dimension of the embeddings.
    margin : int
        m, 1 to 8.
    scale : float
        By which all logits are multiplied.
    anneal : tuple (start, end, rate), optional
        The target is (λ cos θ + ψ)/(1 + λ) with λ = max(end, start / (1 + rate · step)), by steps of training. The
        papers have (1000, 5, 0.12); by default the target is ψ from the start.
    label_smoothing, class_weight
        See ``ArcFace``.

    References
    ----------
    W. Liu, Y. Wen, Z. Yu, M. Li, B. Raj, L. Song, "SphereFace: deep hypersphere embedding for face recognition", CVPR
    2017.
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

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        return super().compute(z, y)

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        psi = self.psi(cos)
        if self.anneal is None:
            return psi
        start, end, rate = self.anneal
        la = max(end, start / (1 + rate * int(self.steps)))
        return (la * cos + psi) / (1 + la)

    def psi(self, cos: Tensor) -> Tensor:
        """ψ of the angle with this cosine; cos(mθ) is the Chebyshev polynomial T_m of it."""
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
    num_classes, embedding_size, margin, scale, anneal, label_smoothing, class_weight
        See ``SphereFace``.

    References
    ----------
    W. Liu, Y. Wen, Z. Yu, M. Yang, "Large-margin softmax loss for convolutional neural networks", ICML 2016.
    """

    def size(self, z: Tensor, classes: Tensor | None = None) -> Tensor:
        return super().size(z) * length(self.directions(classes).to(z.dtype)).T
