"""Margins that depend on the sample: on the length of its embedding, on how well it is learned, or on chance."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from isometry.deep.functional import cosine_of_sum, masked_min, turned
from isometry.deep.losses.arcface import Angle
from isometry.deep.losses.margin_softmax import MarginSoftmax
from isometry.deep.miners import Draws
from isometry.deep.terms import Terms
from isometry.parameters import NotNegative, Positive, PositiveShare, checked, one_of


def norms(z: Tensor) -> Tensor:
    """‖z‖ of each row (B, 1)."""
    return torch.linalg.vector_norm(z, dim=1, keepdim=True)


class AdaFace(MarginSoftmax):
    """AdaFace: a long embedding tells of a good image; hard samples count more if they are good ones.

        t = cos(θ_y − m q) − (m + m q),     q = clip(h (‖z‖ − μ)/σ, −1, 1)

    q = −1 is ArcFace, q = 0 CosFace. Lengths ‖z‖ are cut to [1e-3, 100] and are constants in the gradient; μ and σ are
    their running mean and standard deviation, begun with the first batch.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.4
        The margin m.
    h : float, default=0.333
        How many standard deviations make q = 1: 1/h.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    alpha : float, default=0.01
        Share of a new batch in μ and σ.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    For images of very unequal quality: of those that tell nothing, hard ones are given up. The quality is the length of
    the embedding, so the network must not normalise. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | M. Kim, A. K. Jain, X. Liu, "AdaFace: quality adaptive margin for face recognition", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import AdaFace
    >>> loss = AdaFace(num_classes=3, embedding_size=4)
    >>> z = torch.tensor([[2.0, 0, 0, 0], [0, 3.0, 0, 0], [0, 0, 4.0, 0]])  # lengths tell of quality
    >>> loss(z, torch.tensor([0, 1, 2])).item() > 0
    True
    """

    mean: Tensor
    std: Tensor
    batches: Tensor  # taken into the two

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: float = 0.4,
        h: float = 0.333,
        scale: float | str = 64.0,
        alpha: float = 0.01,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        self.margin, self.h = checked("margin", margin, Angle), checked("h", h, Positive)
        self.alpha = checked("alpha", alpha, PositiveShare)
        for name in ("mean", "std"):
            self.register_buffer(name, torch.zeros(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def observe(self, z: Tensor) -> None:
        if self.training and len(z) > 1:  # one length has no spread
            self.update(self.lengths(z))

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        mq = self.margin * self.quality(z)  # (B, 1)
        return turned(cos, -mq) - (self.margin + mq)

    @torch.no_grad()
    def quality(self, z: Tensor) -> Tensor:
        """q (B, 1); before any training in units of the batch itself.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            The quality q (B, 1), between −1 and 1.
        """
        n = self.lengths(z)
        own = n.mean(), n.std(correction=min(1, len(n) - 1))
        mean, std = (self.mean.to(n), self.std.to(n)) if self.batches else own
        return (self.h * (n - mean) / (std + 1e-3)).clamp(-1, 1)

    @torch.no_grad()
    def update(self, n: Tensor) -> None:
        """Take the lengths of a batch into μ and σ.

        Parameters
        ----------
        n : Tensor
            Lengths (B, 1).
        """
        mean, std = n.mean(), n.std()
        if std <= 1e-6 * mean and not self.batches:
            warnings.warn(
                "AdaFace reads the quality of a sample from the length of its embedding, and here all have the same; "
                "do not normalise the output of the network. With q = 0 the loss is CosFace",
                stacklevel=2,
            )
        share = self.alpha if self.batches else 1.0
        self.mean.lerp_(mean.to(self.mean), share)
        self.std.lerp_(std.to(self.std), share)
        self.batches += 1

    @staticmethod
    def lengths(z: Tensor) -> Tensor:
        """‖z‖ (B, 1), cut and without gradient.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        """
        return norms(z.detach()).clamp(1e-3, 100)


class MagFace(MarginSoftmax):
    """MagFace: a longer embedding has a larger margin, and length is rewarded; so it tells the quality of a sample.

        t = cos(θ_y + m(a)),  a = ‖z‖ cut to [l_a, u_a],  m(a) linear from l_m to u_m;     L + λ mean (1/a + a/u_a²)

    Gradients flow through a. What is learned is compared by angles; ``quality(z)`` is the length.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    length_bounds : tuple of float, default=(10.0, 110.0)
        The bounds (l_a, u_a) of the length.
    margin_bounds : tuple of float, default=(0.45, 0.8)
        The bounds (l_m, u_m) of the margin, in radians.
    weight : float, default=35.0
        The weight λ of the reward for length. Below s k u_a² l_a² / (u_a² − l_a²), with k the slope of m, longer is not
        always better.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    easy : bool, default=True
        No margin for cos θ_y ≤ 0, as in the authors' code; False: continued as in ``ArcFace``.
    norm_scale : float or None, default=None
        Lengths are multiplied by this number first, which is learned from there on; for networks whose embeddings are
        shorter or longer than the bounds.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    When a measure of quality is wanted beside the embedding: ``quality(z)``. The network must not normalise, and its
    embeddings should reach the bounds, or ``norm_scale`` be given. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | Q. Meng, S. Zhao, Z. Huang, F. Zhou, "MagFace: a universal representation for face recognition and quality
      assessment", CVPR 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MagFace
    >>> loss = MagFace(num_classes=3, embedding_size=4)
    >>> z = torch.tensor([[20.0, 0, 0, 0], [0, 30.0, 0, 0], [0, 0, 40.0, 0]])
    >>> loss(z, torch.tensor([0, 1, 2])).item() > 0
    True
    >>> loss.quality(z)
    tensor([20., 30., 40.])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        length_bounds: tuple[float, float] = (10.0, 110.0),
        margin_bounds: tuple[float, float] = (0.45, 0.8),
        weight: float = 35.0,
        scale: float | str = 64.0,
        easy: bool = True,
        norm_scale: float | None = None,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        (low, high), (least, most) = length_bounds, (checked("margin_bounds", m, Angle) for m in margin_bounds)
        if not 0 < low < high:
            raise ValueError(f"length_bounds={length_bounds} must be (shortest, longest), both positive")
        self.length_bounds, self.margin_bounds, self.easy = length_bounds, margin_bounds, easy
        self.weight = checked("weight", weight, NotNegative)
        start = None if norm_scale is None else math.log(checked("norm_scale", norm_scale, Positive))
        self.log_scale = None if start is None else nn.Parameter(torch.tensor(start))
        self.slope = (most - least) / (high - low)
        self.warned = False
        bound = self.scale * self.slope * high**2 * low**2 / (high**2 - low**2)
        if 0 < weight < bound:
            warnings.warn(f"weight={weight} is below {bound:.4g}: a longer embedding may not be better", stacklevel=2)

    def quality(self, z: Tensor) -> Tensor:
        """The length of each embedding (B,), larger for better samples.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).

        Returns
        -------
        Tensor
            Lengths (B,).
        """
        return self.lengths(z).squeeze(1)

    def lengths(self, z: Tensor) -> Tensor:
        """‖z‖ (B, 1), in the unit of the bounds.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        """
        return norms(z) if self.log_scale is None else self.log_scale.to(z.dtype).exp() * norms(z)

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        (low, high), least = self.length_bounds, self.margin_bounds[0]
        m = least + self.slope * (self.lengths(z).clamp(low, high) - low)  # (B, 1)
        return torch.where(cos > 0, cosine_of_sum(cos, m), cos) if self.easy else turned(cos, m)

    def observe(self, z: Tensor) -> None:
        n, (low, high) = self.lengths(z.detach()), self.length_bounds
        if self.training and not self.warned and not ((n > low) & (n < high)).any():
            self.warned = True
            found = f"{float(n.detach().min()):.3g} … {float(n.detach().max()):.3g}"
            warnings.warn(
                f"all embeddings have lengths {found}, outside of length_bounds={self.length_bounds}: nothing is "
                "learned of quality; set length_bounds, or norm_scale",
                stacklevel=2,
            )

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        return super().compute(z, y) + self.shortness(z).mean()

    def terms(self, z: Tensor, y: Tensor) -> Terms:
        if self.class_weight is not None:  # the lengths are not weighted by it
            raise self.no_terms()
        values, counts = super().terms(z, y)
        return values + self.shortness(z), counts

    def not_split(self) -> str:
        return "(class_weight=…)"

    def shortness(self, z: Tensor) -> Tensor:
        """λ g(a) (B,), which is less for longer embeddings.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        """
        low, high = self.length_bounds
        a = self.quality(z).clamp(low, high)
        return self.weight * (1 / a + a / high**2)


class CurricularFace(MarginSoftmax):
    """CurricularFace: as ArcFace, and wrong classes that win are at first eased, later stressed, as training proceeds.

        cos θ_l ← cos θ_l (t + cos θ_l)  where  cos θ_l > cos(θ_y + m),     t ← 0.99 t + 0.01 mean cos θ_y

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
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.

    Notes
    -----
    As ``ArcFace``, for long runs that begin from scratch: hard negatives count little until the own cosines are large.
    Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | Y. Huang, Y. Wang, Y. Tai, X. Liu, P. Shen, S. Li, J. Li, F. Huang, "CurricularFace: adaptive curriculum learning
      loss for deep face recognition", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CurricularFace
    >>> loss = CurricularFace(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> loss(z, y).item() > 0
    True
    >>> loss.logits(z).shape
    torch.Size([4, 3])
    """

    t: Tensor

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        margin: float = 0.5,
        scale: float | str = 64.0,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        self.margin = checked("margin", margin, Angle)
        self.register_buffer("t", torch.zeros(()))

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        return turned(cos, self.margin)

    def with_margin(self, cos: Tensor, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        own = nn.functional.one_hot(y, cos.shape[1]).bool() if y.ndim == 1 else y > 0.5  # (B, C)
        with torch.no_grad():
            if self.training and own.any():
                self.t.lerp_(cos[own].mean().to(self.t), 0.01)
            wrong = ~own & (cos > masked_min(cosine_of_sum(cos, self.margin), own)[:, None])
        eased = cos * (self.t.to(cos.dtype) + cos)
        return torch.where(wrong, eased, super().with_margin(cos, z, y, classes))


class ElasticFace(Draws, MarginSoftmax):
    """ElasticFace: the margin of each sample is drawn anew in each step.

        t = cos(θ_y + m_i) or cos θ_y − m_i,     m_i ~ N(m, σ²)

    In eval mode m_i = m.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.5
        The mean margin m, in radians for ``form="arc"``.
    sigma : float, default=0.05
        The standard deviation σ of the margins, below m.
    form : {"arc", "cos"}, default="arc"
        Added to the angle, as in ArcFace, or subtracted from the cosine, as in CosFace.
    plus : bool, default=False
        The drawn margins are dealt so that samples with low cosines get the large ones.
    scale : float or "auto", default=64.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    label_smoothing : float, default=0.0
        Share of the target spread evenly over all classes.
    class_weight : Tensor or None, default=None
        Weights of the classes (C,); None: all count alike.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    As ``ArcFace`` or ``CosFace``, when one margin does not fit all classes. Two calls on the same batch differ in
    training mode, not in eval mode. Costs O(B C p) time and O(B C) memory.

    References
    ----------
    | F. Boutros, N. Damer, F. Kirchbuchner, A. Kuijper, "ElasticFace: elastic margin loss for deep face recognition",
      CVPR workshops 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ElasticFace
    >>> loss = ElasticFace(num_classes=3, embedding_size=4, random_state=0)
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
        sigma: float = 0.05,
        form: str = "arc",
        plus: bool = False,
        scale: float | str = 64.0,
        label_smoothing: float = 0.0,
        class_weight: Tensor | None = None,
        random_state: int | None = None,
    ):
        super().__init__(num_classes, embedding_size, scale, label_smoothing, class_weight)
        self.form = one_of("form", form, ("arc", "cos"))
        self.margin = checked("margin", margin, Angle if form == "arc" else NotNegative)
        self.sigma = checked("sigma", sigma, NotNegative)
        if sigma and sigma >= margin:
            raise ValueError(f"sigma={sigma} must be below margin={margin}: many margins would be negative")
        self.plus, self.random_state = plus, random_state

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        m = self.margins(cos)
        return turned(cos, m) if self.form == "arc" else cos - m

    @torch.no_grad()
    def margins(self, cos: Tensor) -> Tensor:
        """The margins of samples with these cosines, of the same shape.

        Parameters
        ----------
        cos : Tensor
            Cosines (B, C).
        """
        if not self.training:
            return torch.full_like(cos, self.margin)
        noise = torch.randn(cos.shape, generator=self.generator(cos.device), dtype=cos.dtype, device=cos.device)
        m = self.margin + self.sigma * noise
        return torch.empty_like(m).scatter_(0, cos.argsort(0), m.sort(0, descending=True).values) if self.plus else m
