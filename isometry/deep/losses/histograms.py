"""Losses of histograms of distances or similarities."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from isometry.deep.functional import (
    any_of_row,
    as_weights,
    count_of_row,
)
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import Rule, checked

AtLeastTwo = Annotated[int, Rule(lambda v: v >= 2, "must be at least 2")]


def soft_histogram(x: Tensor, weight: Tensor, bins: int) -> Tensor:
    """Weights (B, R) at places x of [0, 1] shared between the two nearest of ``bins`` + 1 even nodes: (B, bins + 1)."""
    x = (x * bins).clamp(0, bins)
    left = x.detach().long().clamp_max(bins - 1)
    right = (x - left) * weight
    nodes = x.new_zeros(len(x), bins + 1)
    return nodes.scatter_add(1, left, weight - right).scatter_add(1, left + 1, right)


class FastAP(Loss):
    """Average precision by soft histograms of the distances: precision over recall, bin by bin.

        1 − mean_i (1/|pos(i)|) Σ_l h⁺_l H⁺_l / H_l

    h⁺ counts positives by squared distance of unit vectors, in [0, 4]; H⁺ and H cumulate those of positives and of all.

    Parameters
    ----------
    bins : int, default=10
        Number of bins.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    Average precision of a large batch with few samples a class; bins of width 4/bins blur what is nearer than that, so
    that fine rankings late in training are not seen. Costs O(B² bins) time and memory.

    References
    ----------
    | F. Cakir, K. He, X. Xia, B. Kulis, S. Sclaroff, "Deep metric learning to rank", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import FastAP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = FastAP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, bins: int = 10, *, miner: Miner | None = None):
        super().__init__("sqeuclidean", miner, normalize=True)
        self.bins = at_least_two(bins)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        h_pos, h_neg = (soft_histogram(D / 4, as_weights(m, D.dtype), self.bins) for m in (pos, neg))
        H_pos, H_neg = h_pos.cumsum(1), h_neg.cumsum(1)
        n_pos = count_of_row(pos).clamp_min(1)
        missed = (h_pos * (H_neg / (H_pos + H_neg).clamp_min(torch.finfo(D.dtype).tiny))).sum(1) / n_pos
        return where(missed, any_of_row(pos) & any_of_row(neg))


class HistogramLoss(Loss):
    """Histogram loss: the probability that a random negative pair is more similar than a random positive pair.

        Σ_r p⁻_r Σ_{q≤r} p⁺_q

    p⁺ and p⁻ are soft histograms of the cosines of all positive and all negative pairs, in [−1, 1].

    Parameters
    ----------
    bins : int, default=100
        Number of bins.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    No margin and no other constant to choose; it looks at all pairs of the batch together, not at anchors. Small
    batches have poor histograms. Costs O(B²) time, and O(bins) beside the distances.

    References
    ----------
    | E. Ustinova, V. Lempitsky, "Learning deep embeddings with histogram loss", NIPS 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import HistogramLoss
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = HistogramLoss()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, bins: int = 100, *, miner: Miner | None = None):
        super().__init__("inner", miner, normalize=True)
        self.bins = at_least_two(bins)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        x = ((1 - D) / 2).view(1, -1)
        h_pos, h_neg = (soft_histogram(x, as_weights(m, D.dtype).view(1, -1), self.bins) for m in (pos, neg))
        n = pos.count_nonzero().to(D.dtype) * neg.count_nonzero()
        return (h_neg * h_pos.cumsum(1)).sum() / n.clamp_min(1)


def at_least_two(bins: int) -> int:
    """A number of bins."""
    return checked("bins", bins, AtLeastTwo)
