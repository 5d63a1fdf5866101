"""Tuplet margin loss and intra-pair variance, which were published together."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from isometry.deep.functional import (
    any_of_row,
    as_weights,
    cosine_of_sum,
    masked_logsumexp,
    masked_mean,
    overwritable,
    softplus,
)
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, mean_of_terms, where
from isometry.parameters import NotNegative, Positive, Rule, checked

SmallAngle = Annotated[float, Rule(lambda v: 0 <= v <= 1, "must lie in [0, 1]: it is an angle in radians")]


def intra_pair_variance(s: Tensor, pos: Tensor, neg: Tensor, eps: float) -> Tensor:
    """Squared hinges of positive similarities below their mean μ⁺ and of negative ones above theirs, μ⁻."""
    below = ((1 - eps) * masked_mean(s, pos) - s).relu()
    above = (s - (1 + eps) * masked_mean(s, neg)).relu()
    return masked_mean(below.square(), pos) + masked_mean(above.square(), neg)


class TupletMargin(Loss):
    """Tuplet margin loss: a softmax of each positive pair against all negatives, with slack for its angle.

        mean_{(a,p)} log(1 + Σ_n e^{s (cos θ_an − cos(θ_ap − β))}) + v · IntraPairVariance

    Parameters
    ----------
    margin : float, default=0.1
        The margin β, in radians: a positive pair need not come nearer than this.
    scale : float, default=64.0
        The factor s of the cosines.
    variance_weight : float, default=0.5
        The weight v of the intra-pair variance.
    eps : float, default=0.01
        How far a pair may be from the mean of its kind, as a share of it, ε of `IntraPairVariance`.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    A softmax over negatives as in ``NPair``, on the sphere; the slack β keeps easy positives from being pulled to one
    point. Costs O(B² K) time for K positives an anchor.

    References
    ----------
    | B. Yu, D. Tao, "Deep metric learning with tuplet margin loss", ICCV 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import TupletMargin
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = TupletMargin()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        margin: float = 0.1,
        scale: float = 64.0,
        variance_weight: float = 0.5,
        eps: float = 0.01,
        *,
        miner: Miner | None = None,
    ):
        super().__init__("inner", miner, normalize=True)
        self.margin, self.scale = checked("margin", margin, SmallAngle), checked("scale", scale, Positive)
        self.variance_weight = checked("variance_weight", variance_weight, NotNegative)
        self.eps = checked("eps", eps, NotNegative)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        value = mean_of_terms(*self.tuplets(-D, pos, neg))
        if not self.variance_weight:
            return value
        return value + self.variance_weight * intra_pair_variance(-D, pos, neg, self.eps)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        if self.variance_weight:  # a variance over the whole batch
            raise self.no_terms()
        return self.tuplets(-D, pos, neg)

    def not_split(self) -> str:
        return f"(variance_weight={self.variance_weight:g})"

    def tuplets(self, cos: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        """A term for each positive pair (B, R), against all negatives of the anchor.

        Parameters
        ----------
        cos : Tensor
            Cosines (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        rivals = masked_logsumexp(self.scale * cos, neg)[:, None]  # (B, 1)
        own = self.scale * cosine_of_sum(cos, -self.margin)  # (B, R)
        return where(softplus(rivals - own), pos & any_of_row(neg)[:, None])


class IntraPairVariance(Loss):
    """Intra-pair variance: similarities of one kind shall not differ much.

        mean_pos [(1 − ε) μ⁺ − s]_+² + mean_neg [s − (1 + ε) μ⁻]_+²,     s = cos,  μ⁺ and μ⁻ their means in the batch

    A regulariser beside a loss that separates the classes.

    Parameters
    ----------
    eps : float, default=0.01
        How far a pair may be from the mean, as a share of it, ε.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    It narrows distributions and separates nothing: ``WeightedSum(Triplet(), IntraPairVariance())``. Costs O(B² p).

    References
    ----------
    | B. Yu, D. Tao, "Deep metric learning with tuplet margin loss", ICCV 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import IntraPairVariance, Triplet, WeightedSum
    >>> loss = WeightedSum(Triplet(), IntraPairVariance(), weights=(1.0, 0.5))
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).item() > 0
    True
    """

    of_pairs = True
    accelerated = True

    def __init__(self, eps: float = 0.01, *, miner: Miner | None = None):
        super().__init__("inner", miner, normalize=True)
        self.eps = checked("eps", eps, NotNegative)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        return intra_pair_variance(-D, pos, neg, self.eps)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        pull, C = squared_spread(D, pos, 1 - self.eps)
        push, C_neg = squared_spread(-D, neg, 1 + self.eps)
        return pull + push, C.sub_(C_neg)


def squared_spread(x: Tensor, mask: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """mean [x − share · mean x]_+² under the mask, and its slopes (B, R)."""
    n, weight = mask.count_nonzero().clamp_min(1).to(x.dtype), as_weights(mask, x.dtype)
    mean = torch.dot(weight.flatten(), x.flatten()) / n
    excess = overwritable((x - share * mean).relu_()).mul_(weight)
    value = torch.dot(excess.flatten(), excess.flatten()) / n
    return value, torch.addcmul(excess, weight, -share / n * excess.sum()).mul_(2 / n)
