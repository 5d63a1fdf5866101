"""Triplet losses: a positive nearer than a negative by a margin. All triplets of a batch without listing them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import REDUCTIONS, Distance, as_weights, count_of_row, packed, passes, reduced, softplus
from isometry.deep.loss import TripletForm, as_embeddings
from isometry.deep.miners import Miner
from isometry.deep.slopes import apart, gradients, of_triples
from isometry.deep.terms import Terms
from isometry.parameters import checked, one_of

Term = Callable[..., Tensor]  # (d_ap, d_an) or (d_ap, d_an, d_pn) to one term a triplet, of any shape
FEW = 64  # up to so many positives of a row, comparing with each costs less than sorting them


class SumOfTriplets(TripletForm):
    """A sum, or a mean, of one term for each triplet."""

    def __init__(self, distance: Distance, miner: Miner | str | None, normalize: bool, reduction: str):
        super().__init__(distance, miner, normalize)
        self.reduction = one_of("reduction", reduction, REDUCTIONS)

    @abstractmethod
    def term(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        """The term of each triplet: the formula.

        Parameters
        ----------
        d_ap : Tensor
            Distances of anchors to positives.
        d_an : Tensor
            Distances of anchors to negatives.
        d_pn : Tensor or None, default=None
            Distances of positives to negatives.
        """

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        terms = self.term(d_ap, d_an, d_pn)
        return reduced(terms.sum(), len(terms), (terms > 0).sum(), self.reduction)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None) -> Tensor:
        total, above_zero = sum_over_triplets(self.term, D, pos, neg, D_refs)
        return reduced(total, n_triplets(pos, neg), above_zero, self.reduction)

    def terms(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Terms:
        if self.uses_pn or self.reduction == "sum":
            raise self.no_terms()
        miner = self.lists()
        if miner is None:
            return super().terms(z, y, refs, ref_y, self_index)
        pos, neg = self.masks(y, ref_y, self_index, z.dtype)
        choose = lambda D: miner.triples(self.as_mined(D), pos, neg)  # noqa: E731
        d_ap, d_an, a, _, _ = of_triples(self.distance, *self.prepare(z, refs), choose)
        return self.of_list(len(z), a, self.term(d_ap, d_an))

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        a, p, n = (pos[:, :, None] & neg[:, None]).nonzero(as_tuple=True)
        return self.of_list(len(D), a, self.term(D[a, p], D[a, n]))

    def of_list(self, B: int, a: Tensor, terms: Tensor) -> Terms:
        """The terms of a list of triplets with anchors a, summed for each of B anchors.

        Parameters
        ----------
        B : int
            Anchors of the batch.
        a : Tensor
            Anchors of the triplets (T,), as rows of the batch.
        terms : Tensor
            The term of each triplet (T,).
        """
        counts = (terms.detach() > 0).to(terms.dtype) if self.reduction == "mean_nonzero" else torch.ones_like(terms)
        zero = terms.new_zeros(B)
        return zero.index_add(0, a, terms), zero.index_add(0, a, counts)

    def not_split(self) -> str:
        return "(reduction='sum')" if self.reduction == "sum" else "(swap=True)"


class Triplet(SumOfTriplets):
    """Triplet loss: every positive of an anchor nearer than every negative, by a margin.

        [d_ap − d_an + m]_+      or, with margin="soft",      log(1 + exp(d_ap − d_an))

    Without a miner all triplets of the batch take part (batch-all), in O(B² log B) time and O(B²) memory. With
    ``BatchHard`` or ``BatchSemiHard`` the loss is the batch-hard or semi-hard one.

    Parameters
    ----------
    margin : float or "soft", default=0.2
        The margin m; ``"soft"`` for the second form, which has none.
    swap : bool, default=False
        Take min(d_an, d_pn) in place of d_an: the negative is held away from whichever of anchor and positive is
        nearer. All triplets then take one pass over (B, R) for each positive of an anchor.
    distance : str or callable, default="sqeuclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.
    reduction : {"mean_nonzero", "mean", "sum"}, default="mean_nonzero"
        Mean over the triplets that violate the margin, over all triplets, or their sum.

    Notes
    -----
    The first choice for retrieval with classes of a few samples each, in batches of ``PKBatchSampler``. With all
    triplets most terms are zero late in training, which is what ``reduction="mean_nonzero"`` and miners are for;
    ``BatchHard`` from the start can draw all embeddings to one point, which ``BatchSemiHard`` was made to avoid. With
    many samples of few classes, losses with proxies or a softmax over the classes need no choice of triplets. All
    triplets cost O(B² log B) time and O(B²) memory.

    References
    ----------
    | F. Schroff, D. Kalenichenko, J. Philbin, "FaceNet: a unified embedding for face recognition and clustering", CVPR
      2015.
    | A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", arXiv 2017.
    | V. Balntas, E. Riba, D. Ponsa, K. Mikolajczyk, "Learning local feature descriptors with triplets and shallow
      convolutional neural networks", BMVC 2016 (swap).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Triplet(margin=0.2)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> Triplet("soft", miner="BatchHard")(z, torch.tensor([0, 0, 1, 1])).item() > 0
    True
    """

    def __init__(
        self,
        margin: float | str = 0.2,
        *,
        swap: bool = False,
        distance: Distance = "sqeuclidean",
        miner: Miner | str | None = None,
        normalize: bool = True,
        reduction: str = "mean_nonzero",
    ):
        super().__init__(distance, miner, normalize, reduction)
        self.soft = isinstance(margin, str) and one_of("margin", margin, ("soft",)) == "soft"
        self.margin = 0.0 if self.soft else float(checked("margin", margin, float))
        self.swap = self.uses_pn = swap
        self.accelerated = not (self.soft or swap)
        if self.soft and reduction == "mean_nonzero":
            self.reduction = "mean"  # no term is zero, but for rounding

    def term(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        excess = d_ap - (d_an if d_pn is None else torch.minimum(d_an, d_pn)) + self.margin
        return softplus(excess) if self.soft else excess.relu()

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Tensor | None) -> tuple[Tensor, Tensor]:
        total, active, W = hinge_triplets(D, pos, neg, self.margin)
        share = reduced(D.new_ones(()), n_triplets(pos, neg), active.sum(), self.reduction)
        return share * total, W.mul_(share)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        if not self.accelerated:
            return super().split(D, pos, neg)
        _, active, W = hinge_triplets(D.detach(), pos, neg, self.margin)  # the sum of each row is linear in D
        values = (W * D).sum(1) + self.margin * active.to(D.dtype)
        return values, active if self.reduction == "mean_nonzero" else count_of_row(pos) * count_of_row(neg)


class Tuplet(Triplet):
    """Tuplet hinge loss: one positive against several negatives, a hinge for each.

        mean over (a, p), j of  [d(a, p) − d(a, n_j) + m]_+

    The survey prints this under the name of the multi-class N-pair paper, whose loss is another one: ``NPair``.

    Parameters
    ----------
    margin : float, default=0.2
        The margin m.
    distance : str or callable, default="sqeuclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.
    reduction : {"mean_nonzero", "mean", "sum"}, default="mean"
        Mean over the terms above zero, over all terms, or their sum.

    Notes
    -----
    For data that come as one positive and a list of negatives: ``tuples`` takes them as they are. For labelled batches
    it is ``Triplet`` with a mean over all triplets; a softmax over the negatives is ``NPair``. Costs O(B² log B) for a
    batch, O(B k) for tuples of k negatives.

    References
    ----------
    | B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
      survey", arXiv 2022.
    | K. Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NIPS 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Tuplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Tuplet(margin=0.2)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> loss.tuples(z[:2], z[:2], z[2:].expand(2, 2, 2)).item()
    0.0
    """

    def __init__(
        self,
        margin: float = 0.2,
        *,
        distance: Distance = "sqeuclidean",
        miner: Miner | str | None = None,
        normalize: bool = True,
        reduction: str = "mean",
    ):
        super().__init__(margin, distance=distance, miner=miner, normalize=normalize, reduction=reduction)

    def tuples(self, anchors: Tensor, positives: Tensor, negatives: Tensor, present: Tensor | None = None) -> Tensor:
        """The loss of tuples: anchors and positives (B, p), negatives (B, k, p) of which ``present`` (B, k) count.

        Parameters
        ----------
        anchors : Tensor (B, p)
            Embeddings of the anchors.
        positives : Tensor (B, p)
            Embeddings of one positive of each anchor.
        negatives : Tensor (B, k, p)
            Embeddings of k negatives of each anchor.
        present : Tensor (B, k) or None, default=None
            Which negatives count; None: all.

        Returns
        -------
        Tensor
            The scalar.
        """
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


class RatioTriplet(SumOfTriplets):
    """Squared softmax ratio: the share of the positive's distance, the loss of the first triplet network.

        mean over triplets of  (e^{d_ap} / (e^{d_ap} + e^{d_an}))² = σ(d_ap − d_an)²

    Without a miner all triplets of the batch take part, in O(B²) memory.

    Parameters
    ----------
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    Of historical interest, and bounded: a term lies in (0, 1), so that no outlier dominates. Without a margin it goes
    on separating what is separated already; ``Triplet`` stops there. Costs O(B² K) time for K positives an anchor.

    References
    ----------
    | E. Hoffer, N. Ailon, "Deep metric learning using triplet network", SIMBAD 2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RatioTriplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = RatioTriplet()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, *, distance: Distance = "euclidean", miner: Miner | str | None = None, normalize: bool = False):
        super().__init__(distance, miner, normalize, reduction="mean")

    def term(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        return (d_ap - d_an).sigmoid().square()


def n_triplets(pos: Tensor, neg: Tensor) -> Tensor:
    """Σ_i |pos(i)| |neg(i)|, the number of triplets of the masks."""
    return (count_of_row(pos) * count_of_row(neg)).sum()


def triplet_counts(pos: Tensor, neg: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """In how many triplets of the masks each positive pair and each negative pair occurs, (B, R) each."""
    w_pos, w_neg = as_weights(pos, dtype), as_weights(neg, dtype)
    n_pos, n_neg = w_pos.sum(1, keepdim=True), w_neg.sum(1, keepdim=True)
    return w_pos.mul_(n_neg), w_neg.mul_(n_pos)


def hinge_triplets(D: Tensor, pos: Tensor, neg: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """Σ [D_ap − D_an + m]_+ over all triplets, how many of each row are active, and slopes W (B, R).

    O(B R log K) for K positives a row.

    The sum is linear in D once it is known which triplets are active: W∘D summed, plus m for each. W counts: the active
    negatives of each positive and, with a minus, the active positives of each negative.
    """
    columns, filled = packed(pos)  # (B, K)
    t = (D.gather(1, columns) + margin).detach()  # a negative is active for each threshold above it
    count = one_by_one if t.shape[1] <= FEW else by_sorting
    W, under = count(D.detach(), neg, t, filled)
    W.scatter_add_(1, columns, under)  # empty cells add 0 to column 0
    active = under.sum(1, dtype=torch.long)
    return (W * D).sum() + margin * active.sum().to(D.dtype), active, W


def one_by_one(D: Tensor, neg: Tensor, t: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """Minus the thresholds t (B, K) above each negative (B, R), and the negatives under each threshold (B, K).

    A comparison with one threshold of each row at a time. O(B R K), but each step runs on several numbers at once and
    on all threads, which neither a search nor a scattered sum does.
    """
    D, t = D.masked_fill(~neg, torch.inf), t.masked_fill(~filled, -torch.inf)
    W, is_under, under = torch.zeros_like(D), torch.empty_like(D), torch.empty_like(t)
    for k in range(t.shape[1]):
        torch.lt(D, t[:, k, None], out=is_under)
        torch.sum(is_under, 1, out=under[:, k])
        W.sub_(is_under)
    return W, under


def by_sorting(D: Tensor, neg: Tensor, t: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
    """The same in O(B R log K), by a search for each negative among the sorted thresholds of its row."""
    t, order = t.masked_fill(~filled, torch.inf).sort(1)
    below = torch.searchsorted(t, D, right=True)  # (B, R), thresholds not above D
    is_neg = as_weights(neg, D.dtype)
    per_bin = D.new_zeros(len(D), t.shape[1] + 1).scatter_add_(1, below, is_neg)
    under = per_bin.cumsum(1)[:, :-1].masked_fill(~filled, 0)  # filled thresholds come first
    W = below.to(D.dtype).sub_(filled.sum(1, keepdim=True)).mul_(is_neg)
    return W, torch.empty_like(under).scatter_(1, order, under)


def sum_over_triplets(
    term: Term, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Σ term(D_ap, D_an), or Σ term(D_ap, D_an, D_pn) given ``D_refs`` (R, R), over all triplets of the masks (B, R).

    Also how many terms are above zero. One pass over (B, R) for each positive of a row keeps memory at O(B R).
    """
    matrices = (D,) if D_refs is None else (D, D_refs)
    return _SumOverTriplets.apply(term, pos, neg, *matrices)


class _SumOverTriplets(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, term: Term, pos: Tensor, neg: Tensor, *matrices: Tensor) -> tuple[Tensor, Tensor]:
        total, above_zero = pos.new_zeros((), dtype=matrices[0].dtype), pos.new_zeros((), dtype=torch.long)
        slopes = [torch.zeros_like(D) for D in matrices]
        for p, kept in passes(pos, neg):
            weight = as_weights(kept, total.dtype)  # (B, R)
            with torch.enable_grad():
                parts = [d.detach().requires_grad_() for d in distances_of_pass(p, *matrices)]
                terms = term(*parts)
            d_ap, d_an, *d_pn = torch.autograd.grad(terms, parts, weight)
            counted = weight.mul_(terms.detach())
            total += counted.sum()
            above_zero += counted.count_nonzero()
            slopes[0].add_(d_an).scatter_add_(1, p[:, None], d_ap)
            if d_pn:
                slopes[1].index_add_(0, p, d_pn[0])
        ctx.arguments = term, pos, neg
        ctx.save_for_backward(*matrices, *slopes)
        ctx.mark_non_differentiable(above_zero)
        return total, above_zero

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        half = len(ctx.saved_tensors) // 2
        matrices, slopes = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        if not torch.is_grad_enabled():
            return None, None, None, *(g * W for W in slopes)
        term, pos, neg = ctx.arguments  # these gradients will be differentiated again
        matrices = apart(*matrices)
        sums = [term(*distances_of_pass(p, *matrices)).where(kept, 0).sum() for p, kept in passes(pos, neg)]
        total = torch.stack([*sums, *(0 * D.sum() for D in matrices)]).sum()  # each is part of the graph
        return None, None, None, *gradients(total, matrices, g, ctx.needs_input_grad[3:])


def distances_of_pass(p: Tensor, D: Tensor, D_refs: Tensor | None = None) -> list[Tensor]:
    """d_ap (B, 1), d_an (B, R) and, given distances of references, d_pn (B, R)."""
    return [D.gather(1, p[:, None]), D, *(() if D_refs is None else (D_refs[p],))]
