"""Average precision of ranks, differentiated by a second ranking."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import (
    any_of_row,
    as_weights,
    count_of_row,
    first_derivative_only,
)
from isometry.deep.loss import Loss
from isometry.deep.miners import Draws, Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import NotNegative, Positive, checked


class BlackboxAP(Draws, Loss):
    """Average precision itself, with a gradient from a second ranking of scores moved along it.

        L = 1 − AP of s − (m/2)[pos] + (m/2)[neg],     ∂L/∂s := −(rk(s) − rk(s + λ ∂L/∂rk)) / λ

    Ranks are divided by the number of references. The value changes in jumps. Few ranks change in a small batch:
    published with references of several batches, see ``CrossBatchMemory``.

    Parameters
    ----------
    lam : float, default=4.0
        How far scores are moved for the second ranking, λ.
    margin : float, default=0.02
        The margin m of the scores.
    noise : bool, default=False
        Draw a factor of m for each pair, the absolute value of a normal number, as the authors' code does.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    random_state : int or None, default=None
        Seed of the noise.

    Notes
    -----
    Ranks are exact and the gradient is not: in small batches few ranks change and most gradients are zero. ``SmoothAP``
    has a gradient everywhere. Costs O(B² log B).

    References
    ----------
    | M. Rolínek, V. Musil, A. Paulus, M. Vlastelica, C. Michaelis, G. Martius, "Optimizing rank-based metrics with
      blackbox differentiation", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BlackboxAP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> BlackboxAP()(z, torch.tensor([0, 0, 1, 1])).item()  # every positive comes first
    0.0
    """

    def __init__(
        self,
        lam: float = 4.0,
        margin: float = 0.02,
        noise: bool = False,
        *,
        miner: Miner | None = None,
        random_state: int | None = None,
    ):
        super().__init__("inner", miner, normalize=True)
        self.lam, self.margin = checked("lam", lam, Positive), checked("margin", margin, NotNegative)
        self.noise, self.random_state = noise, random_state

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        anchors, w = any_of_row(pos) & any_of_row(neg), as_weights(pos, D.dtype)
        shift = (0.5 - w) * self.margin  # (B, R)
        if self.noise and self.training:
            normal = torch.randn(D.shape, generator=self.generator(D.device), dtype=D.dtype, device=D.device)
            shift = shift * normal.abs()
        s = (shift - D).masked_fill(~(pos | neg), -torch.inf)
        n = count_of_row(pos | neg)[:, None].clamp_min(1)
        rank = _Ranks.apply(s, n, self.lam)  # (B, R), of 1
        with torch.no_grad():
            order = rank.argsort(1)
            among = torch.empty_like(w).scatter_(1, order, w.gather(1, order).cumsum(1)) / n  # ranks among positives
        precision = (w * among / rank).sum(1) / w.sum(1).clamp_min(1)
        return where(1 - precision, anchors)


class _Ranks(torch.autograd.Function):
    """Rank / n of each score in its row, the largest first and equals by index; the gradient is a difference of two."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, n: Tensor, lam: float) -> Tensor:
        rank = ranks(s) / n
        ctx.lam = lam
        ctx.save_for_backward(s, n, rank)
        return rank

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        s, n, rank = ctx.saved_tensors
        return (ranks(s + ctx.lam * g) / n - rank) / ctx.lam, None, None


def ranks(s: Tensor) -> Tensor:
    """1 for the largest of each row, 2 for the next, …; of equals the first in the row comes first."""
    place = torch.arange(1, s.shape[1] + 1, dtype=s.dtype, device=s.device).expand_as(s)
    return torch.empty_like(s).scatter_(1, s.argsort(dim=1, descending=True, stable=True), place)
