"""N-pair and (N+1)-tuplet loss."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import (
    Distance,
    as_weights,
    masked_logsumexp,
    masked_mean,
    own_index,
    softplus,
    unit,
)
from isometry.deep.loss import Loss
from isometry.deep.losses.contrast import against_negatives_slopes
from isometry.deep.miners import Miner
from isometry.parameters import NotNegative, Positive, checked, one_of


class NPair(Loss):
    """Multi-class N-pair loss: the positive's inner product above those of all negatives, by a log-sum-exp.

        mean over pairs of  log(1 + Σ_j exp(fᵀf_j⁻ − fᵀf⁺)) + (λ/4) (‖f‖² + ‖f⁺‖²)

    Parameters
    ----------
    pairs : {"halves", "one", "all"}, default="halves"
        Anchor-positive pairs of a batch: each class cut in order into disjoint pairs; one pair a class, as published;
        or every ordered positive pair against the negatives of its anchor (the (N+1)-tuplet loss). With the first two
        an anchor's negatives are the positives of other classes. Given references or a matrix ``y`` always mean "all".
    variant : {"mc", "ovo"}, default="mc"
        One log-sum-exp over the negatives, or a sum of one-versus-one terms.
    scale : float, default=1.0
        Factor of the inner products; with ``normalize=True`` the inverse temperature of in-batch softmax training.
    symmetric : bool, default=False
        With disjoint pairs: average with the loss of positives as anchors.
    l2_reg : float, default=0.002
        The weight λ of the squared norms, which keeps those of unnormalised embeddings in check.
    distance : str or callable, default="inner"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For batches of pairs, one from each of many classes; embeddings are not normalised, and inner products grow unless
    ``l2_reg`` holds them. With ``normalize=True`` and a ``scale`` it is the in-batch softmax that ``InfoNCE`` has too.
    Costs O(B² p).

    References
    ----------
    | K. Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NIPS 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import NPair
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = NPair(pairs="all")
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        pairs: str = "halves",
        variant: str = "mc",
        scale: float = 1.0,
        symmetric: bool = False,
        l2_reg: float = 0.002,
        *,
        distance: Distance = "inner",
        miner: Miner | str | None = None,
        normalize: bool = False,
    ):
        super().__init__(distance, miner, normalize)
        self.pairs = one_of("pairs", pairs, ("halves", "one", "all"))
        self.variant = one_of("variant", variant, ("mc", "ovo"))
        self.scale, self.symmetric = checked("scale", scale, Positive), symmetric
        self.l2_reg = checked("l2_reg", l2_reg, NotNegative)
        self.accelerated = variant == "mc"

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        if refs is not z or y.ndim == 2 or self.pairs == "all":
            return super().compute(z, y, refs, ref_y, self_index) + self.l2_reg / 2 * z.square().sum(1).mean()
        a, p = disjoint_pairs(y, one=self.pairs == "one")
        if not len(a):
            return z.sum() * 0
        both = z.index_select(0, torch.cat([a, p]))
        f, g = (unit(both) if self.normalize else both).chunk(2)
        if self.pairs == "one" and self.variant == "mc" and self.distance == "inner" and self.miner is None:
            value = of_classes(self.scale * f @ g.T, self.symmetric)
        else:
            pos = torch.eye(len(a), dtype=torch.bool, device=z.device)
            neg = y[a][:, None] != y[p]
            value = self.compare(f, g, pos, neg)
            if self.symmetric:
                value = (value + self.compare(g, f, pos, neg.T)) / 2
        return value + self.l2_reg / 2 * both.square().sum(1).mean() if self.l2_reg else value

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return pos.count_nonzero().clamp_min(1)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        weight = as_weights(pos, D.dtype).div_(totals)
        value, C = against_negatives_slopes(D * -self.scale, weight, neg)
        return value, C.mul_(-self.scale)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s = -self.scale * D
        if self.variant == "mc":
            return masked_mean(softplus(masked_logsumexp(s, neg)[:, None] - s), pos)
        if (pos.sum(1) > 1).any():
            raise ValueError("variant='ovo' takes one positive an anchor; use pairs='halves' or 'one', or variant='mc'")
        positive = s.masked_fill(~pos, 0).sum(1, keepdim=True)  # (B, 1)
        return softplus(s - positive).masked_fill(~(neg & pos.any(1, keepdim=True)), 0).sum() / pos.sum().clamp_min(1)


def of_classes(s: Tensor, symmetric: bool) -> Tensor:
    """The loss of one pair a class, from similarities s (C, C) of anchors to positives: a cross-entropy of each row."""
    own = own_index(len(s), s.device)
    value = F.cross_entropy(s, own)
    return (value + F.cross_entropy(s.T, own)) / 2 if symmetric else value


def disjoint_pairs(y: Tensor, one: bool = False) -> tuple[Tensor, Tensor]:
    """Indices of anchors and positives: the members of each class, in order, two by two; or the first two of each."""
    sorted_y, order = y.sort(stable=True)
    starts = sorted_y[:-1] == sorted_y[1:]  # the next one is of the same class
    if one:
        starts[1:] &= sorted_y[:-2] != sorted_y[1:-1]  # and the one before is not
    else:
        rank = torch.arange(len(y), device=y.device) - torch.searchsorted(sorted_y, sorted_y)  # place within the class
        starts &= rank[:-1] % 2 == 0
    k = starts.nonzero().squeeze(1)
    return order[k], order[k + 1]
