"""Threshold-consistent margin: one threshold shall fit all classes."""

from __future__ import annotations

import warnings
from typing import Annotated

from torch import Tensor

from isometry.deep.functional import as_weights, masked_mean
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.parameters import NotNegative, Rule, checked

Cosine = Annotated[float, Rule(lambda v: -1 <= v <= 1, "must lie in [-1, 1]: it is a cosine")]


class ThresholdConsistentMargin(Loss):
    """Threshold-consistent margin: hard pairs of all classes are brought to the same two similarities.

        λ⁺ mean{ m⁺ − s : positive, s ≤ m⁺ } + λ⁻ mean{ s − m⁻ : negative, s ≥ m⁻ },     s = cos

    A regulariser: it stands beside a loss that separates the classes, ``WeightedSum(ArcFace(C, p),
    ThresholdConsistentMargin())``.

    Parameters
    ----------
    pos_margin : float, default=0.9
        The similarity m⁺ that positives are brought to; pairs beyond it cost nothing.
    neg_margin : float, default=0.5
        The similarity m⁻ that negatives are brought to; pairs beyond it cost nothing.
    pos_weight : float, default=1.0
        The weight λ⁺ of the positives.
    neg_weight : float, default=1.0
        The weight λ⁻ of the negatives.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    For verification with one threshold for all classes. Costs O(B² p).

    References
    ----------
    | Q. Zhang, L. Xu, Q. Tang, J. Fang, Y. N. Wu, J. Tighe, Y. Xing, "Threshold-consistent margin loss for open-world
      deep metric learning", ICLR 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ThresholdConsistentMargin
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = ThresholdConsistentMargin()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    of_pairs = True
    accelerated = True

    def __init__(
        self,
        pos_margin: float = 0.9,
        neg_margin: float = 0.5,
        pos_weight: float = 1.0,
        neg_weight: float = 1.0,
        *,
        miner: Miner | None = None,
    ):
        super().__init__("inner", miner, normalize=True)
        self.pos_margin = checked("pos_margin", pos_margin, Cosine)
        self.neg_margin = checked("neg_margin", neg_margin, Cosine)
        self.pos_weight = checked("pos_weight", pos_weight, NotNegative)
        self.neg_weight = checked("neg_weight", neg_weight, NotNegative)
        if neg_margin >= pos_margin:
            warnings.warn(
                f"neg_margin={neg_margin} is not below pos_margin={pos_margin}: pairs between the two are pulled and "
                "pushed towards each other's side; take neg_margin < pos_margin",
                stacklevel=2,
            )

    def hard(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs on the wrong side of their margin; D is −s.

        Parameters
        ----------
        D : Tensor
            Minus the cosines (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        return pos & (-self.pos_margin <= D), neg & (-self.neg_margin >= D)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        pos, neg = self.hard(D, pos, neg)
        pull, push = masked_mean(self.pos_margin + D, pos), masked_mean(-D - self.neg_margin, neg)
        return self.pos_weight * pull + self.neg_weight * push

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        pos, neg = self.hard(D, pos, neg)
        pull = as_weights(pos, D.dtype).mul_(self.pos_weight).div_(pos.count_nonzero().clamp_min(1))
        push = as_weights(neg, D.dtype).mul_(self.neg_weight).div_(neg.count_nonzero().clamp_min(1))
        value = self.pos_margin * pull.sum() - self.neg_margin * push.sum()
        C = pull.sub_(push)
        return value + (C * D).sum(), C
