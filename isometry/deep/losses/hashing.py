"""Embeddings that shall serve as codes of bits or bytes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from isometry.deep.loss import LossAround, LossModule, as_embeddings
from isometry.deep.losses.contrast import SupCon
from isometry.deep.losses.margin_softmax import MarginSoftmax
from isometry.parameters import NotNegative, checked, one_of

DRAWS = 100  # random sets of codes, of which the best is kept


class OrthoHash(MarginSoftmax):
    """OrthoHash: a softmax over the cosines to a fixed code of bits for each class, a margin subtracted from the own.

        −mean log( e^{s(cos(z, c_y) − m)} / (e^{s(cos(z, c_y) − m)} + Σ_{l≠y} e^{s cos(z, c_l)}) ),     c_l ∈ {−1, 1}^b

    Embeddings are drawn to the corners of a cube, so that their signs lose little: ``codes(z)``. A batch
    normalisation before the embedding helps to balance the bits.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int, default=64
        Dimension of the embeddings, b, the number of bits.
    margin : float, default=0.2
        The margin m, a difference of cosines.
    scale : float or "auto", default=8.0
        The factor s of the cosines; ``"auto"``: √2 log(C − 1), at least 8, since few classes want less than many.
    random_state : int, default=0
        Seed of the codes, where they are drawn: they are rows of a Hadamard matrix if b is a power of two and C ≤ b.

    Notes
    -----
    When embeddings will be stored as bits and searched by Hamming distance. Known classes only: a code for each is
    fixed beforehand, whether classes are alike or not. Costs O(B C b).

    References
    ----------
    | J. T. Hoe, K. W. Ng, T. Zhang, C. S. Chan, Y.-Z. Song, T. Xiang, "One loss for all: deep hashing with a single
      cosine similarity based learning objective", NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import OrthoHash
    >>> loss = OrthoHash(num_classes=3, embedding_size=8)
    >>> z = torch.eye(8)[:4]
    >>> loss(z, torch.tensor([0, 0, 1, 2])).item() > 0
    True
    >>> loss.codes(z).packed.shape  # eight bits in a byte
    torch.Size([4, 1])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int = 64,
        margin: float = 0.2,
        scale: float | str = 8.0,
        random_state: int = 0,
    ):
        super().__init__(num_classes, embedding_size, scale)
        self.margin = checked("margin", margin, NotNegative)
        del self.proxies
        self.register_buffer("proxies", class_codes(num_classes, embedding_size, random_state))

    def target(self, cos: Tensor, z: Tensor, classes: Tensor) -> Tensor:
        return cos - self.margin

    @staticmethod
    def codes(z: Tensor) -> BinaryCodes:
        """The signs of embeddings (n, b) as codes.

        Parameters
        ----------
        z : Tensor
            Embeddings (n, b).
        """
        return BinaryCodes.of(z)


def class_codes(count: int, bits: int, random_state: int = 0) -> Tensor:
    """Codes (C, b) of −1 and 1 that are far apart: orthogonal if possible, else the best of many random draws."""
    if bits < 1 or count > 2 ** min(bits, 62):
        raise ValueError(f"{count} classes need as many different codes, and {bits} bits make fewer")
    if bits & (bits - 1) == 0 and count <= bits:
        H = torch.ones(1, 1)
        while len(H) < bits:
            H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
        return H[:count].contiguous()
    generator = torch.Generator().manual_seed(random_state)
    best, farthest = torch.empty(0), -1.0
    for _ in range(DRAWS):
        codes = _drawn(count, bits, generator)
        least = float((bits - (codes @ codes.T).fill_diagonal_(-torch.inf)).min()) / 2 if count > 1 else float(bits)
        if least > farthest:
            best, farthest = codes, least
    return best


def _drawn(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Random codes; different ones where there are few."""
    if bits > 16:
        return torch.randint(0, 2, (count, bits), generator=generator) * 2.0 - 1
    numbers = torch.randperm(2**bits, generator=generator)[:count]
    return (numbers[:, None] >> torch.arange(bits) & 1) * 2.0 - 1


@dataclass(frozen=True)
class BinaryCodes:
    """Codes of bits, eight in a byte.

    Attributes
    ----------
    packed : Tensor
        The bytes (n, ⌈b/8⌉), the first bit of each the highest.
    bits : int
        The number of bits b.

    Notes
    -----
    Codes take a 32nd of the memory of float32 embeddings. Distances of all pairs cost O(n m b) as one product of signs.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BinaryCodes
    >>> a = BinaryCodes.of(torch.tensor([[0.3, -2.0, 1.0, 1.0, -1.0, 1.0, 1.0, -0.5]]))
    >>> a.packed
    tensor([[182]], dtype=torch.uint8)
    >>> a.hamming(BinaryCodes.of(torch.ones(1, 8)))
    tensor([[3]])
    """

    packed: Tensor  # (n, ⌈b/8⌉) uint8, the first bit of a byte being the highest
    bits: int

    @classmethod
    def of(cls, z: Tensor) -> BinaryCodes:
        """The signs of z (n, b), 0 as positive; zeros fill the last byte, with a warning, if 8 does not divide b.

        Parameters
        ----------
        z : Tensor
            Embeddings (n, b).

        Returns
        -------
        BinaryCodes
            The codes.
        """
        z = as_embeddings(z.detach(), "z")
        n, bits = z.shape
        if bits % 8:
            warnings.warn(f"{bits} bits do not fill bytes: the last one is padded with {-bits % 8} zeros", stacklevel=2)
        set_bits = torch.nn.functional.pad((z >= 0).to(torch.uint8), (0, -bits % 8)).view(n, -1, 8)
        place = 1 << torch.arange(7, -1, -1, device=z.device)
        return cls((set_bits * place).sum(2).to(torch.uint8), bits)

    def signs(self) -> Tensor:
        """−1 and 1, (n, b).

        Returns
        -------
        Tensor
            −1 and 1, (n, b).
        """
        place = torch.arange(7, -1, -1, device=self.packed.device)
        set_bits = (self.packed[:, :, None].long() >> place) & 1
        return set_bits.flatten(1)[:, : self.bits] * 2.0 - 1

    def hamming(self, other: BinaryCodes) -> Tensor:
        """How many bits differ, (n, m): (b − cᵀc') / 2.

        Parameters
        ----------
        other : BinaryCodes
            Codes of as many bits, m of them.

        Returns
        -------
        Tensor
            Distances (n, m), whole numbers.
        """
        if self.bits != other.bits:
            raise ValueError(f"codes of {self.bits} and of {other.bits} bits cannot be compared")
        return ((self.bits - self.signs() @ other.signs().T) / 2).long()

    def __len__(self) -> int:
        return len(self.packed)


class QuantizationAware(LossAround):
    """Quantisation-aware training: a loss of the embeddings as they will be stored.

        L(q(z), y),     q rounds to 255 steps a coordinate, or takes the sign;   ∂q/∂z = 1, for signs where |z| ≤ 1

    Parameters
    ----------
    loss : LossModule or None, default=None
        The loss L of embeddings and labels; None: ``SupCon()``.
    kind : {"int8", "binary"}, default="int8"
        A byte for each coordinate, its largest absolute value in the batch being 127; or its sign.

    Notes
    -----
    When embeddings will be stored as bytes or bits, so that the network allows for the rounding. Bytes lose little
    without it; bits more. Costs what L costs, and O(B p) for the rounding.

    References
    ----------
    | Y. Bengio, N. Léonard, A. Courville, "Estimating or propagating gradients through stochastic neurons for
      conditional computation", arXiv 2013.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import QuantizationAware, Triplet
    >>> loss = QuantizationAware(Triplet(), kind="binary")
    >>> z = torch.eye(4, requires_grad=True)
    >>> loss(z, torch.tensor([0, 0, 1, 1])).backward()  # rounding lets the gradient through
    >>> z.grad.shape
    torch.Size([4, 4])
    """

    def __init__(self, loss: LossModule | None = None, kind: str = "int8"):
        super().__init__(SupCon() if loss is None else loss)
        self.kind = one_of("kind", kind, ("int8", "binary"))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        z = as_embeddings(z, "z", squared=True)
        return self.loss(straight_through(z, self.kind) if len(z) else z, y)


def straight_through(z: Tensor, kind: str) -> Tensor:
    """q(z) with the gradient of z."""
    if kind == "binary":
        signs, kept = torch.where(z >= 0, 1.0, -1.0).to(z.dtype), z.clamp(-1, 1)
        return signs + (kept - kept.detach())
    step = z.detach().abs().amax(0) / 127
    step = torch.where(step > 0, step, 1)
    return (z.detach() / step).round() * step + (z - z.detach())
