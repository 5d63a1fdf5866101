"""Circle loss: each similarity is weighted by how far it is from its optimum."""

from __future__ import annotations

from typing import Annotated, Any

from torch import Tensor

from isometry.deep.functional import any_of_row, masked_logsumexp, masked_softmax, softplus
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import Positive, Rule, checked

InsideOne = Annotated[float, Rule(lambda v: 0 < v < 1, "must lie in (0, 1)")]


class Circle(Loss):
    """Circle loss: a softmax triplet loss of all pairs of an anchor, each weighted by its distance from its optimum.

        mean_i log(1 + Σ_neg e^{γ a_n (s_n − m)} Σ_pos e^{−γ a_p (s_p − 1 + m)})
        a_p = [1 + m − s_p]_+,  a_n = [s_n + m]_+

    s is the cosine; the weights a are constants in the gradient. The mean is over anchors with both kinds of pairs.

    Parameters
    ----------
    margin : float, default=0.4
        The margin m, in (0, 1): 0.4 for retrieval, 0.25 for faces and people.
    gamma : float, default=80.0
        The factor γ of the similarities: 80 for retrieval, 256 for faces, 128 for people.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    Pairs far from their optimum are moved most. γ and m are tied: with a small γ all pairs weigh alike, with a large
    one the hardest decide. Costs O(B² p).

    References
    ----------
    | Y. Sun, C. Cheng, Y. Zhang, C. Zhang, L. Zheng, Z. Wang, Y. Wei, "Circle loss: a unified perspective of pair
      similarity optimization", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Circle
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Circle()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    accelerated = True

    def __init__(self, margin: float = 0.4, gamma: float = 80.0, *, miner: Miner | None = None):
        super().__init__("inner", miner, normalize=True)
        self.margin, self.gamma = checked("margin", margin, InsideOne), checked("gamma", gamma, Positive)

    def rates(self, D: Tensor) -> tuple[Tensor, Tensor]:
        """γ a_p and γ a_n of all pairs; D is −s.

        Parameters
        ----------
        D : Tensor
            Minus the cosines (B, R).
        """
        s = -D.detach()
        return self.gamma * (1 + self.margin - s).relu(), self.gamma * (s + self.margin).relu()

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        pull, push = self.rates(D)  # (B, R)
        far = masked_logsumexp(pull * (D + 1 - self.margin), pos)  # (B,)
        near = masked_logsumexp(-push * (D + self.margin), neg)
        return where(softplus(far + near), any_of_row(pos) & any_of_row(neg))

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return (any_of_row(pos) & any_of_row(neg)).count_nonzero().clamp_min(1)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        pull, push = self.rates(D)
        far, P = masked_softmax(pull * (D + 1 - self.margin), pos)
        near, Q = masked_softmax(-push * (D + self.margin), neg)
        weight = (far + near).sigmoid() / totals  # (B,), 0 where one kind is missing
        return softplus(far + near).sum() / totals, (P.mul_(pull) - Q.mul_(push)) * weight[:, None]
