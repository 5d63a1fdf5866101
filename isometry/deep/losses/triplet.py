"""Triplet losses: a positive nearer than a negative by a margin. All triplets of a batch without listing them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isometry.deep.functional import REDUCTIONS, Distance, one_of, packed, reduced, softplus
from isometry.deep.loss import TripletForm, as_embeddings
from isometry.deep.miners import Miner


class Triplet(TripletForm):
    """Every positive of an anchor nearer than every negative, by a margin.

        [d_ap − d_an + m]_+      or, with margin="soft",      log(1 + exp(d_ap − d_an))

    Without a miner all triplets of the batch take part (batch-all), in O(B² log B) time and O(B²) memory. With
    ``BatchHard`` or ``BatchSemiHard`` the loss is the batch-hard or semi-hard one.

    Parameters
    ----------
    margin : float or "soft"
        m.
    reduction : {"mean_nonzero", "mean", "sum"}
        Mean over the triplets that violate the margin, over all triplets, or their sum.

    References
    ----------
    F. Schroff, D. Kalenichenko, J. Philbin, "FaceNet: a unified embedding for face recognition", CVPR 2015.
    A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", 2017.
    """

    def __init__(
        self,
        margin: float | str = 0.2,
        *,
        distance: Distance = "sqeuclidean",
        miner: Miner | None = None,
        normalize: bool = True,
        reduction: str = "mean_nonzero",
    ):
        super().__init__(distance, miner, normalize)
        self.soft = isinstance(margin, str) and one_of("margin", margin, ("soft",)) == "soft"
        self.margin = 0.0 if self.soft else float(margin)
        self.reduction = one_of("reduction", reduction, REDUCTIONS)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        n_triplets = (pos.sum(1) * neg.sum(1)).sum()
        if self.soft:
            return reduced(_SoftTriplets.apply(D, pos, neg), n_triplets, n_triplets, self.reduction)
        total, active = hinge_triplets(D, pos, neg, self.margin)
        return reduced(total, n_triplets, active, self.reduction)

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor) -> Tensor:
        terms = softplus(d_ap - d_an) if self.soft else (d_ap - d_an + self.margin).relu()
        return reduced(terms.sum(), len(terms), (terms > 0).sum(), self.reduction)


class Tuplet(TripletForm):
    """One positive against several negatives, a hinge for each.

        mean over (a, p), j of  [d(a, p) − d(a, n_j) + m]_+

    The survey prints this under the name of the multi-class N-pair paper, whose loss is another one: ``NPair``.

    References
    ----------
    K. Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NIPS 2016.
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        distance: Distance = "sqeuclidean",
        miner: Miner | None = None,
        normalize: bool = True,
        reduction: str = "mean",
    ):
        super().__init__(distance, miner, normalize)
        self.margin, self.reduction = margin, one_of("reduction", reduction, REDUCTIONS)

    def tuples(self, anchors: Tensor, positives: Tensor, negatives: Tensor, present: Tensor | None = None) -> Tensor:
        """The loss of tuples: anchors and positives (B, p), negatives (B, k, p) of which ``present`` (B, k) count."""
        z = as_embeddings(anchors, "anchors")
        others = torch.cat([positives[:, None], negatives], 1)  # (B, 1 + k, p)
        refs = as_embeddings(others.flatten(0, 1), "positives and negatives").view_as(others).to(z.dtype)
        with torch.autocast(z.device.type, enabled=False):
            D = self.pair_distances(z[:, None].expand_as(refs), refs)  # (B, 1 + k)
            pos = torch.zeros_like(D, dtype=torch.bool)
            pos[:, 0] = True
            neg = ~pos
            if present is not None:
                neg[:, 1:] &= present
            return self.loss(D, *self.mine(D, pos, neg))

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        total, active = hinge_triplets(D, pos, neg, self.margin)
        return reduced(total, (pos.sum(1) * neg.sum(1)).sum(), active, self.reduction)

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor) -> Tensor:
        terms = (d_ap - d_an + self.margin).relu()
        return reduced(terms.sum(), len(terms), (terms > 0).sum(), self.reduction)


def triplet_counts(pos: Tensor, neg: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """In how many triplets of the masks each positive pair and each negative pair occurs, (B, R) each."""
    return pos.to(dtype) * neg.sum(1, keepdim=True), neg.to(dtype) * pos.sum(1, keepdim=True)


def hinge_triplets(D: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Σ [D_ap − D_an + m]_+ over all triplets, and how many are active; O(B R log K) for K positives a row.

    The sum is linear in D once it is known which triplets are active: W∘D summed, plus m for each. W counts: the active
    negatives of each positive and, with a minus, the active positives of each negative.
    """
    W, active = _hinge_counts(D.detach(), pos, neg, margin)
    return (W * D).sum() + margin * active.to(D.dtype), active


@torch.no_grad()
def _hinge_counts(D: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    columns, filled = packed(pos)  # (B, K)
    t = (D.gather(1, columns) + margin).masked_fill(~filled, torch.inf)
    t, order = t.sort(1)  # a negative is active for each threshold above it
    columns = columns.gather(1, order)
    below = torch.searchsorted(t, D, right=True)  # (B, R), thresholds not above D
    per_bin = D.new_zeros(len(D), t.shape[1] + 1).scatter_add_(1, below, neg.to(D.dtype))
    under = per_bin.cumsum(1)[:, :-1].masked_fill(~filled, 0)  # (B, K), negatives under each threshold
    W = (below - filled.sum(1, keepdim=True)).to(D.dtype).masked_fill_(~neg, 0)
    W.scatter_add_(1, columns, under)  # empty cells add 0 to column 0
    return W, under.sum(dtype=torch.long)


class _SoftTriplets(torch.autograd.Function):
    """Σ log(1 + exp(D_ap − D_an)) over all triplets: one pass over (B, R) for each positive of a row, O(B R) memory."""

    @staticmethod
    def forward(ctx, D, pos, neg):
        columns, filled = packed(pos)
        total, W = D.new_zeros(()), torch.zeros_like(D)
        for column, used in zip(columns.T, filled.T):
            x = D.gather(1, column[:, None]) - D  # (B, R)
            kept = neg & used[:, None]
            total += softplus(x).masked_fill_(~kept, 0).sum()
            slope = x.sigmoid_().masked_fill_(~kept, 0)
            W -= slope
            W.scatter_add_(1, column[:, None], slope.sum(1, keepdim=True))
        ctx.save_for_backward(W)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None, None
