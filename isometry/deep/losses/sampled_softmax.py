"""A margin softmax over some of the classes at a time, for very many of them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from isometry.deep.distributed import is_distributed
from isometry.deep.functional import unit
from isometry.deep.loss import LabelLoss
from isometry.deep.losses.arcface import ArcFace
from isometry.deep.losses.margin_softmax import MarginSoftmax, NormalizedSoftmax
from isometry.deep.losses.sharded import ShardedCrossEntropy, SummedGradient, share_of_classes
from isometry.deep.miners import Draws
from isometry.parameters import PositiveShare, checked

SHARDED = (MarginSoftmax.with_margin, NormalizedSoftmax.with_margin)  # a row's own column alone is changed


class SampledSoftmax(Draws, LabelLoss):
    """Sampled softmax, partial FC: a margin softmax over the classes of the batch and a random part of the others.

        L over K ⊂ {1 … C},     K ⊇ {y_i},  |K| = r C

    In eval mode, and for labels that are similarities (B, C), all classes take part. The directions of the classes
    that are not drawn have gradient zero: plain SGD leaves them as they are, while the moments of Adam go on moving
    them. With ``sparse`` the gradient holds the drawn rows only, as ``torch.optim.SparseAdam`` takes it, which keeps
    moments row by row.

    Parameters
    ----------
    loss : MarginSoftmax or None, default=None
        The loss L, a margin softmax such as ``CosFace``; None: ``ArcFace(num_classes, embedding_size)``.
    sample_rate : float, default=0.1
        The share r of the classes that take part, in (0, 1].
    filter : float or None, default=None
        Cosines to other classes above this are set to 0: classes that are one in truth do not push each other.
    sparse : bool, default=False
        Give the class directions a sparse gradient.
    shard : bool, default=False
        Under several processes each works out the cosines to a part of the drawn classes only: the matrix (B, r C) is
        divided among them, at the cost of two sums over processes of (B,) numbers and two of gradients. The batch must
        be gathered, as a `Trainer` and ``Gathered`` do. All processes keep all directions, so that values, gradients
        and files are those of one process.
    num_classes : int or None, default=None
        Number of classes C, for the default loss.
    embedding_size : int or None, default=None
        Dimension p of the embeddings, for the default loss.
    random_state : int or None, default=None
        Seed of the draws; under several processes it must be given.

    Notes
    -----
    For 10⁵ classes and more, where the matrix (B, C) fills the memory; below that the loss by itself is exact and
    simpler. Costs O(B r C p) time and O(B r C) memory.

    References
    ----------
    | X. An, J. Deng, J. Guo, Z. Feng, X. Zhu, J. Yang, T. Liu, "Killing two birds with one stone: efficient and robust
      training of face recognition CNNs by partial FC", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SampledSoftmax
    >>> loss = SampledSoftmax(sample_rate=0.1, num_classes=100, embedding_size=4, random_state=0)
    >>> loss.draw(torch.tensor([3, 70])).shape  # the classes of the batch are among them
    torch.Size([10])
    >>> loss(torch.eye(4), torch.tensor([0, 1, 2, 99])).item() > 0
    True
    """

    normalize = True
    squared = True

    def __init__(
        self,
        loss: MarginSoftmax | None = None,
        sample_rate: float = 0.1,
        filter: float | None = None,
        sparse: bool = False,
        shard: bool = False,
        *,
        num_classes: int | None = None,
        embedding_size: int | None = None,
        random_state: int | None = None,
    ):
        super().__init__()
        if loss is None:
            if num_classes is None or embedding_size is None:
                raise ValueError("give a loss, such as ArcFace(C, p), or num_classes and embedding_size")
            loss = ArcFace(num_classes, embedding_size)
        if not isinstance(loss, MarginSoftmax):
            raise TypeError(f"a softmax with a margin is expected, such as ArcFace(C, p), got {type(loss).__name__}")
        if sparse and loss.proxies.ndim != 2:
            raise ValueError(f"{type(loss).__name__} has several directions for each class; build it with sparse=False")
        if shard and (type(loss).with_margin not in SHARDED or loss.label_smoothing or loss.class_weight is not None):
            raise ValueError(
                f"{type(loss).__name__} cannot be divided among processes: a row depends on more than its own "
                "column and a sum; take ArcFace or CosFace without label_smoothing and class_weight, or shard=False"
            )
        self.loss, self.filter, self.random_state, self.shard = loss, filter, random_state, shard
        self.loss.sparse = sparse
        self.sample_rate = checked("sample_rate", sample_rate, PositiveShare)
        self.warned = False

    def compute(self, z: Tensor, y: Tensor) -> Tensor:
        if not self.training or y.ndim == 2:
            return self.loss.compute(z, y)
        y = self.loss.check(z, y)
        self.loss.observe(z)
        classes = self.draw(y)
        if self.shard and is_distributed():
            return self.divided(z, y, classes)
        cos, own = self.loss.cosines(z, classes), torch.searchsorted(classes, y)
        if self.filter is not None:
            alike = (cos.detach() > self.filter).scatter(1, own[:, None], False)
            cos = cos.masked_fill(alike, 0)
        return self.loss.among(classes, cos, z, own)

    def divided(self, z: Tensor, y: Tensor, classes: Tensor) -> Tensor:
        """The same loss, of which this process works out the columns of its share of the classes.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        classes : Tensor
            Which classes, (c,).
        """
        mine, loss = share_of_classes(len(classes)), self.loss
        z = SummedGradient.apply(z)
        held = classes[mine]
        directions = SummedGradient.apply(loss.directions(classes).to(z.dtype))[mine]
        cos = loss.nearest(unit(z), unit(directions))  # (B, C_k)
        column = torch.searchsorted(held, y)
        here = (column < len(held)) & (held[column.clamp_max(max(len(held) - 1, 0))] == y) if len(held) else y < 0
        own = column.masked_fill(~here, 0)[:, None]
        if self.filter is not None:
            alike = (cos.detach() > self.filter) & ~(here[:, None] & (torch.arange(len(held), device=z.device) == own))
            cos = cos.masked_fill(alike, 0)
        if len(held) and type(loss).with_margin is MarginSoftmax.with_margin:
            target = loss.target(cos.gather(1, own), z, held[own])
            cos = torch.where(here[:, None], cos.scatter(1, own, target), cos)
        return ShardedCrossEntropy.apply(loss.size(z, held) * cos, own[:, 0].masked_fill(~here, -1))

    def draw(self, y: Tensor) -> Tensor:
        """The classes of a batch and some others, in order.

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        """
        present = y.unique()
        count = round(self.sample_rate * self.loss.num_classes)
        if count < len(present) and not self.warned:
            self.warned = True
            warnings.warn(
                f"the batch has {len(present)} classes, more than sample_rate={self.sample_rate} of "
                f"{self.loss.num_classes}: all of them take part; raise sample_rate, or take fewer classes a batch",
                stacklevel=2,
            )
        luck = torch.rand(self.loss.num_classes, generator=self.generator(y.device), device=y.device)
        luck[present] = 2.0
        return luck.topk(max(count, len(present))).indices.sort().values

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        return self.loss.param_groups(lr)
