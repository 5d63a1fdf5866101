"""Triplet losses: a positive nearer than a negative by a margin. All triplets of a batch without listing them."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import REDUCTIONS, Distance, as_weights, count_of_row, packed, reduced, softplus, spare
from isometry.deep.loss import SlopeForm, TripletForm, as_embeddings
from isometry.deep.miners import Miner, Triples
from isometry.parameters import one_of


class Triplet(TripletForm, SlopeForm):
    """Triplet loss: every positive of an anchor nearer than every negative, by a margin.

        [d_ap − d_an + m]_+      or, with margin="soft",      log(1 + exp(d_ap − d_an))

    Without a miner all triplets of the batch take part (batch-all), in O(B² log B) time and O(B²) memory. With
    ``BatchHard`` or ``BatchSemiHard`` the loss is the batch-hard or semi-hard one.

    Parameters
    ----------
    margin : float or "soft"
        m.
    swap : bool
        min(d_an, d_pn) in place of d_an: the negative is held away from whichever of anchor and positive is nearer.
        All triplets then take one pass over (B, R) for each positive of an anchor.
    reduction : {"mean_nonzero", "mean", "sum"}
        Mean over the triplets that violate the margin, over all triplets, or their sum.

    References
    ----------
    F. Schroff, D. Kalenichenko, J. Philbin, "FaceNet: a unified embedding for face recognition and clustering", CVPR
    2015.
    A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", arXiv 2017.
    V. Balntas, E. Riba, D. Ponsa, K. Mikolajczyk, "Learning local feature descriptors with triplets and shallow
    convolutional neural networks", BMVC 2016 (swap).
    """

    whole = True  # how many triplets are active is known at the end

    def __init__(
        self,
        margin: float | str = 0.2,
        *,
        swap: bool = False,
        distance: Distance = "sqeuclidean",
        miner: Miner | None = None,
        normalize: bool = True,
        reduction: str = "mean_nonzero",
    ):
        super().__init__(distance, miner, normalize)
        self.soft = isinstance(margin, str) and one_of("margin", margin, ("soft",)) == "soft"
        self.margin, self.swap = 0.0 if self.soft else float(margin), swap
        self.reduction = one_of("reduction", reduction, REDUCTIONS)

    def compute(self, z, y, refs, ref_y, self_index):
        if not self.swap:
            return super().compute(z, y, refs, ref_y, self_index)
        if self.triple_miner is not None:
            d_ap, d_an, _, p, n = self.mined(self.triple_miner, z, y, refs, ref_y, self_index)
            return self.triplet_loss(d_ap, torch.minimum(d_an, self.pair_distances(refs[p], refs[n])))
        D, pos, neg = self.compare(z, y, refs, ref_y, self_index)
        among_refs = D if refs is z else self.distances(refs, refs)  # (R, R): positives also see the negatives
        pos, neg = self.mine(D, pos, neg)
        total, active = _SwappedTriplets.apply(D, among_refs, pos, neg, self.margin, self.soft)
        count = n_triplets(pos, neg)
        return reduced(total, count, count if self.soft else active, self.reduction)

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return n_triplets(pos, neg)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
        if self.soft:
            total, _, W, _ = triplets_by_slot(D, None, pos, neg, self.margin, self.soft)
            active = totals
        else:
            total, active, W = hinge_triplets(D, pos, neg, self.margin)
        share = reduced(D.new_ones(()), totals, active, self.reduction)
        return share * total, W.mul_(share)

    def triplets(self, z: Tensor, triples: Triples, refs: Tensor | None = None) -> Tensor:
        if not self.swap:
            return super().triplets(z, triples, refs)
        z = as_embeddings(z, "z")
        refs = z if refs is None else as_embeddings(refs, "refs").to(z.dtype)
        a, p, n = triples
        with torch.autocast(z.device.type, enabled=False):
            near = torch.minimum(self.pair_distances(z[a], refs[n]), self.pair_distances(refs[p], refs[n]))
            return self.triplet_loss(self.pair_distances(z[a], refs[p]), near)

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor) -> Tensor:
        terms = softplus(d_ap - d_an) if self.soft else (d_ap - d_an + self.margin).relu()
        return reduced(terms.sum(), len(terms), (terms > 0).sum(), self.reduction)


class Tuplet(TripletForm, SlopeForm):
    """Tuplet hinge loss: one positive against several negatives, a hinge for each.

        mean over (a, p), j of  [d(a, p) − d(a, n_j) + m]_+

    The survey prints this under the name of the multi-class N-pair paper, whose loss is another one: ``NPair``.

    References
    ----------
    B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
    survey", arXiv 2022.
    K. Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NIPS 2016.
    """

    whole = True

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

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return n_triplets(pos, neg)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor) -> tuple[Tensor, Tensor]:
        total, active, W = hinge_triplets(D, pos, neg, self.margin)
        share = reduced(D.new_ones(()), totals, active, self.reduction)
        return share * total, W.mul_(share)

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor) -> Tensor:
        terms = (d_ap - d_an + self.margin).relu()
        return reduced(terms.sum(), len(terms), (terms > 0).sum(), self.reduction)


def n_triplets(pos: Tensor, neg: Tensor) -> Tensor:
    """Σ_i |pos(i)| |neg(i)|, the number of triplets of the masks."""
    return (count_of_row(pos) * count_of_row(neg)).sum()


def triplet_counts(pos: Tensor, neg: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """In how many triplets of the masks each positive pair and each negative pair occurs, (B, R) each."""
    w_pos, w_neg = as_weights(pos, dtype), as_weights(neg, dtype)
    n_pos, n_neg = w_pos.sum(1, keepdim=True), w_neg.sum(1, keepdim=True)
    return w_pos.mul_(n_neg), w_neg.mul_(n_pos)


def hinge_triplets(D: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Σ [D_ap − D_an + m]_+ over all triplets, how many are active, and slopes W; O(B R log K) for K positives a row.

    The sum is linear in D once it is known which triplets are active: W∘D summed, plus m for each. W counts: the active
    negatives of each positive and, with a minus, the active positives of each negative.
    """
    columns, filled = packed(pos)  # (B, K)
    t = (D.gather(1, columns) + margin).masked_fill(~filled, torch.inf)
    t, order = t.sort(1)  # a negative is active for each threshold above it
    columns = columns.gather(1, order)
    below = torch.searchsorted(t, D, right=True)  # (B, R), thresholds not above D
    is_neg = as_weights(neg, D.dtype)
    per_bin = D.new_zeros(len(D), t.shape[1] + 1).scatter_add_(1, below, is_neg)
    under = per_bin.cumsum(1)[:, :-1].masked_fill(~filled, 0)  # (B, K), negatives under each threshold
    W = below.to(D.dtype).sub_(filled.sum(1, keepdim=True)).mul_(is_neg)
    W.scatter_add_(1, columns, under)  # empty cells add 0 to column 0
    active = under.sum(dtype=torch.long)
    return (W * D).sum() + margin * active.to(D.dtype), active, W


def triplets_by_slot(
    D: Tensor, D_refs: Tensor | None, pos: Tensor, neg: Tensor, margin: float, soft: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Sum over all triplets, how many are above zero, and the slopes in D (B, R) and in the distances of references.

    A term is [x]_+ or, if soft, log(1 + eˣ), of x = D_ap − D_an + m; given ``D_refs`` (R, R), of
    x = D_ap − min(D_an, D_pn) + m. One pass over (B, R) for each positive of a row keeps memory at O(B R).
    """
    columns, filled = packed(pos)
    total, active, W = D.new_zeros(()), D.new_zeros((), dtype=torch.long), torch.zeros_like(D)
    W_refs = None if D_refs is None else torch.zeros_like(D_refs)
    for p, used in zip(columns.T, filled.T):
        near = D if D_refs is None else torch.minimum(D, D_refs[p])  # (B, R)
        x = D.gather(1, p[:, None]) + margin - near
        kept = as_weights(neg & used[:, None], D.dtype)
        slope = spare(x.sigmoid() if soft else (x > 0).to(D.dtype)).mul_(kept)
        total = total + spare(softplus(x) if soft else x.relu_()).mul_(kept).sum()
        active += slope.count_nonzero()
        W.scatter_add_(1, p[:, None], slope.sum(1, keepdim=True))
        if D_refs is None or W_refs is None:
            W -= slope
        else:
            W.addcmul_(slope, (near == D).to(D.dtype), value=-1)
            W_refs.index_add_(0, p, slope * (near < D), alpha=-1)
    return total, active, W, W_refs


class _SwappedTriplets(torch.autograd.Function):
    @staticmethod
    def forward(ctx, D, D_refs, pos, neg, margin, soft):
        total, active, W, W_refs = triplets_by_slot(D, D_refs, pos, neg, margin, soft)
        ctx.settings = pos, neg, margin, soft
        ctx.save_for_backward(D, D_refs, W, W_refs)
        ctx.mark_non_differentiable(active)
        return total, active

    @staticmethod
    def backward(ctx, g, _):
        D, D_refs, W, W_refs = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            *_, W, W_refs = triplets_by_slot(D, D_refs, *ctx.settings)
        return g * W, g * W_refs, None, None, None, None
