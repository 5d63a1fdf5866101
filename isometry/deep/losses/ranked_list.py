"""Ranked list loss: each anchor ranks its violators."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isometry.deep.functional import any_of_row, masked_softmax
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import NotNegative, Positive, Share, checked


class RankedList(Loss):
    """Ranked list loss: positives within a ball, negatives beyond a larger one, violators weighted by how far they err.

        mean_i (1 − λ) Σ_{P*} w x / Σ_{P*} w + λ Σ_{N*} w x / Σ_{N*} w,     w = e^{T x}
        P* = positives with x = d − (α − m) > 0,  N* = negatives with x = α − d > 0

    d is the distance of unit vectors. The mean is over the anchors that have positives and negatives.

    Parameters
    ----------
    margin : float, default=0.4
        The margin m between the two balls.
    alpha : float, default=1.2
        The radius α of the larger ball, in (m, 2].
    neg_temperature : float, default=10.0
        The temperature T of the negatives; 0: all violators weigh alike.
    pos_temperature : float, default=0.0
        The temperature T of the positives; 0: all violators weigh alike.
    balance : float, default=0.5
        The weight λ of the negatives, 1 − λ that of the positives.
    detach_weights : bool, default=True
        Weights are constants in the gradient: they say how much each violator moves.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    Keeps positives within a ball of radius α − m rather than drawing them to a point, which leaves classes their inner
    structure. Costs O(B² p).

    References
    ----------
    | X. Wang, Y. Hua, E. Kodirov, G. Hu, R. Garnier, N. M. Robertson, "Ranked list loss for deep metric learning", CVPR
      2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RankedList
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = RankedList()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    accelerated = True

    def __init__(
        self,
        margin: float = 0.4,
        alpha: float = 1.2,
        neg_temperature: float = 10.0,
        pos_temperature: float = 0.0,
        balance: float = 0.5,
        detach_weights: bool = True,
        *,
        miner: Miner | None = None,
    ):
        super().__init__("euclidean", miner, normalize=True)
        self.margin = checked("margin", margin, Positive)
        if not margin < checked("alpha", alpha, float) <= 2:
            raise ValueError(f"alpha={alpha} must lie in (margin, 2] = ({margin}, 2]: 2 is the diameter of the sphere")
        self.alpha, self.balance, self.detach_weights = alpha, checked("balance", balance, Share), detach_weights
        self.neg_temperature = checked("neg_temperature", neg_temperature, NotNegative)
        self.pos_temperature = checked("pos_temperature", pos_temperature, NotNegative)

    def sides(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[tuple[float, float, Tensor, Tensor], ...]:
        """Share, temperature, excess x (B, R) and violators of the positives and of the negatives.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        x, v = D - (self.alpha - self.margin), self.alpha - D
        return (
            (1 - self.balance, self.pos_temperature, x, pos & (x > 0)),
            (self.balance, self.neg_temperature, v, neg & (v > 0)),
        )

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        value = D.new_zeros(len(D))
        for share, temperature, x, violators in self.sides(D, pos, neg):
            _, w = masked_softmax(temperature * x, violators)  # (B, R)
            value = value + share * ((w.detach() if self.detach_weights else w) * x).sum(1)
        return where(value, any_of_row(pos) & any_of_row(neg))

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return (any_of_row(pos) & any_of_row(neg)).count_nonzero().clamp_min(1)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        weight = (any_of_row(pos) & any_of_row(neg)).to(D.dtype) / totals  # (B,)
        value, slopes = D.new_zeros(()), []
        for share, temperature, x, violators in self.sides(D, pos, neg):
            _, w = masked_softmax(temperature * x, violators)
            mean = (w * x).sum(1)  # (B,)
            value = value + share * (weight * mean).sum()
            if not self.detach_weights:  # ∂ mean / ∂x = w (1 + T (x − mean))
                w = w * (1 + temperature * (x - mean[:, None]))
            slopes.append(w * (share * weight)[:, None])
        return value, slopes[0] - slopes[1]
