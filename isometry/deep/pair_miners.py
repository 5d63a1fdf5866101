"""Miners by a rule: pairs beyond a margin, the hardest share, even over distances; triplets by margin or angle."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import masked_max, masked_min, passes
from isometry.deep.miners import BatchAll, Draws, Miner, TripleMiner
from isometry.deep.samplers import positive
from isometry.deep.slopes import Triples
from isometry.parameters import PositiveShare, checked, one_of


class PairMargin(Miner):
    """Pairs beyond a margin: positives that are far, negatives that are near.

        { p : d_ap > m⁺ },     { n : d_an < m⁻ }

    Parameters
    ----------
    pos_margin : float, default=0.2
        Positives farther than this are kept, m⁺, in the unit of the distance of the loss.
    neg_margin : float, default=0.8
        Negatives nearer than this are kept, m⁻, in the unit of the distance of the loss.

    Notes
    -----
    A fixed rule: it needs distances of known scale, such as those of unit vectors. Costs O(B R).

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "PyTorch metric learning", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import PairMargin, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = PairMargin(pos_margin=0.1, neg_margin=1.4)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, pos_margin: float = 0.2, neg_margin: float = 0.8):
        super().__init__()
        self.pos_margin = checked("pos_margin", pos_margin, float)
        self.neg_margin = checked("neg_margin", neg_margin, float)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return pos & (self.pos_margin < D), neg & (self.neg_margin > D)


class Overlap(Miner):
    """Pairs in the overlap: positives farther than the nearest negative of the batch, negatives nearer than a positive.

        { (a, p) : d_ap > min d_an },     { (a, n) : d_an < max d_ap },     over all pairs of the batch

    With ``Contrastive`` it is the online contrastive loss.

    Notes
    -----
    Compares all pairs of the batch with one another, so that it suits thresholds and verification; one outlier widens
    the overlap for all. Costs O(B R).

    References
    ----------
    | N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Contrastive, Overlap
    >>> loss = Contrastive(miner=Overlap())
    >>> loss(torch.tensor([[0.0], [1.0], [9.0], [10.0]]), torch.tensor([0, 0, 1, 1])).item()  # no overlap
    0.0
    """

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        if not D.numel():
            return pos, neg
        return pos & (masked_min(D, neg).min() < D), neg & (masked_max(D, pos).max() > D)


class HDC(Miner):
    """Hard-aware selection: the hardest share of all positive pairs of the batch, and of all negative ones.

        ⌈share · |P|⌉ farthest positives,     ⌈share · |N|⌉ nearest negatives

    Parameters
    ----------
    share : float, default=0.5
        The share of the pairs that is kept, in (0, 1].

    Notes
    -----
    Always leaves something to learn from, however well the batch is ranked; some anchors get nothing. Costs O(B R) for
    the choice.

    References
    ----------
    | Y. Yuan, K. Yang, C. Zhang, "Hard-aware deeply cascaded embedding", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import HDC, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = HDC(share=0.5)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, share: float = 0.5):
        super().__init__()
        self.share = checked("share", share, PositiveShare)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return self.hardest(D, pos, True), self.hardest(D, neg, False)

    def hardest(self, D: Tensor, mask: Tensor, farthest: bool) -> Tensor:
        """The hardest share of the pairs of a mask.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        mask : Tensor
            Of which pairs, (B, R).
        farthest : bool
            Whether far pairs are the hard ones.

        Returns
        -------
        Tensor
            The pairs that are kept, a boolean matrix (B, R).
        """
        i, j = mask.nonzero(as_tuple=True)
        kept = D[i, j].topk(math.ceil(self.share * len(i)), largest=farthest).indices
        return marked(mask, i[kept], j[kept])


class Ranked(Miner):
    """Some of the hardest: the farthest positives and the nearest negatives of each anchor.

        n⁺ largest d_ap,     n⁻ smallest d_an

    Parameters
    ----------
    n_pos : int, default=2
        How many of the farthest positives of an anchor are kept, n⁺.
    n_neg : int, default=8
        How many of the nearest negatives of an anchor are kept, n⁻.

    Notes
    -----
    Between ``BatchHard`` (1 and 1) and all pairs; several hard ones are less at the mercy of a wrong label. Costs
    O(B R log R).

    References
    ----------
    | A. Shabanov, A. Tarasov, S. Nikolenko, "STIR: Siamese transformer for image retrieval postprocessing", arXiv 2023.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Ranked, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = Ranked(n_pos=1, n_neg=1)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, n_pos: int = 2, n_neg: int = 8):
        super().__init__()
        self.n_pos, self.n_neg = positive("n_pos", n_pos), positive("n_neg", n_neg)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return first_of_rows(-D, pos, self.n_pos), first_of_rows(D, neg, self.n_neg)


class UniformHistogram(Draws, Miner):
    """Pairs evenly over distance: as many of each bin, drawn at random, of positives and of negatives.

        up to k pairs with d in each of b even bins of [min d, max d]

    Parameters
    ----------
    bins : int, default=100
        Number of bins b.
    per_bin : int, default=10
        How many pairs of each bin are kept, k.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    As ``DistanceWeighted`` for any distance, by the distances at hand. Costs O(B R log(B R)).

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "PyTorch metric learning", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import UniformHistogram
    >>> miner = UniformHistogram(bins=2, per_bin=1, random_state=0)
    >>> D = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    >>> pos, neg = miner.select(D, torch.zeros(1, 4, dtype=torch.bool), torch.ones(1, 4, dtype=torch.bool))
    >>> neg.sum().item()  # one of each bin
    2
    """

    def __init__(self, bins: int = 100, per_bin: int = 10, random_state: int | None = None):
        super().__init__()
        self.bins, self.per_bin = positive("bins", bins), positive("per_bin", per_bin)
        self.random_state = random_state

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return self.even(D, pos), self.even(D, neg)

    def even(self, D: Tensor, mask: Tensor) -> Tensor:
        """As many pairs of each bin of distances.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        mask : Tensor
            Of which pairs, (B, R).

        Returns
        -------
        Tensor
            The pairs that are kept, a boolean matrix (B, R).
        """
        i, j = mask.nonzero(as_tuple=True)
        if not len(i):
            return mask
        d = D[i, j]
        low, high = d.min(), d.max()
        place = (d - low) / (high - low) if high > low else torch.zeros_like(d)
        kept = drawn(self, (place * self.bins).long().clamp_max(self.bins - 1), self.per_bin)
        return marked(mask, i[kept], j[kept])


class RuleOfTriplets(TripleMiner):
    """Abstract: all triplets that satisfy a rule, one positive of each anchor at a time, in O(B R) memory."""

    @abstractmethod
    def keeps(self, D: Tensor, p: Tensor, candidates: Tensor) -> Tensor:
        """Which of the candidates (B, R) are negatives that anchors take with their positives p (B,).

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        p : Tensor
            The positive of each anchor (B,).
        candidates : Tensor
            The negatives to choose from, a boolean matrix (B, R).
        """

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        a, p, n = [pos.new_empty(0, dtype=torch.long)], [pos.new_empty(0, dtype=torch.long)], [pos.new_empty(0).long()]
        for column, candidates in passes(pos, neg):
            anchors, negatives = self.keeps(D, column, candidates).nonzero(as_tuple=True)
            a.append(anchors)
            p.append(column[anchors])
            n.append(negatives)
        return torch.cat(a), torch.cat(p), torch.cat(n)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The pairs that occur in those triplets, without a list of them.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        chosen = torch.zeros_like(pos), torch.zeros_like(neg)
        for column, candidates in passes(pos, neg):
            kept = self.keeps(D, column, candidates)
            a = kept.any(1).nonzero().squeeze(1)
            chosen[0][a, column[a]] = True
            chosen[1].logical_or_(kept)
        return chosen


class TripletMargin(RuleOfTriplets):
    """Triplets by their margin: those that violate it, the hard or the semi-hard among them, or the others.

        d_an − d_ap ≤ m  (all),     ≤ 0 too  (hard),     > 0 too  (semihard),     > m  (easy)

    ``Triplet`` without a miner takes all violating triplets already, without listing them.

    Parameters
    ----------
    margin : float, default=0.2
        The margin m, in the unit of the distance of the loss.
    kind : {"all", "hard", "semihard", "easy"}, default="all"
        All triplets that violate the margin, the hard or the semi-hard among them, or those that keep it.

    Notes
    -----
    For lists of triplets, and for losses that have no margin of their own. Costs O(B R K) time for K positives an
    anchor, and O(B R) memory beside the list.

    References
    ----------
    | F. Schroff, D. Kalenichenko, J. Philbin, "FaceNet: a unified embedding for face recognition and clustering", CVPR
      2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import TripletMargin, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = TripletMargin(margin=2.0)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, margin: float = 0.2, kind: str = "all"):
        super().__init__()
        self.margin = checked("margin", margin, float)
        self.kind = one_of("kind", kind, ("all", "hard", "semihard", "easy"))

    def keeps(self, D: Tensor, p: Tensor, candidates: Tensor) -> Tensor:
        gap = D - D.gather(1, p[:, None])  # (B, R)
        if self.kind == "easy":
            return candidates & (gap > self.margin)
        violating = candidates & (gap <= self.margin)
        return violating if self.kind == "all" else violating & (gap <= 0 if self.kind == "hard" else gap > 0)


class AngularMiner(RuleOfTriplets):
    """Triplets by their angle: those whose negative sees anchor and positive under a wide angle.

        atan( d_ap / (2 ‖n − c‖) ) > α,     c = (a + p)/2,     ‖n − c‖² = ½ d_an² + ½ d_pn² − ¼ d_ap²

    It needs the distances between positives and negatives, hence a batch that is its own references.

    Parameters
    ----------
    angle : float, default=20.0
        The angle α, in degrees; wider ones are chosen.

    Notes
    -----
    The rule of ``Angular`` as a miner for other losses. Costs O(B² K) time for K positives an anchor.

    References
    ----------
    | J. Wang, F. Zhou, S. Wen, X. Liu, Y. Lin, "Deep metric learning with angular loss", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import AngularMiner, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = AngularMiner(angle=1.0)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    needs_unit_euclidean = True

    def __init__(self, angle: float = 20.0):
        super().__init__()
        if not 0 < checked("angle", angle, float) < 90:
            raise ValueError(f"angle must lie in (0, 90) degrees, got {angle!r}")
        self.angle = angle

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        return super().triples(of_one_batch(D), pos, neg)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return super().select(of_one_batch(D), pos, neg)

    def keeps(self, D: Tensor, p: Tensor, candidates: Tensor) -> Tensor:
        ap = D.gather(1, p[:, None]).square()
        to_centre = (D.square() + D[p].square()) / 2 - ap / 4  # ‖n − c‖²
        return candidates & (ap > (2 * math.tan(math.radians(self.angle))) ** 2 * to_centre)


class Inner(TripleMiner):
    """Abstract: changes what another miner sees or chose; it lists triplets if the other does."""

    def __init__(self, miner: Miner | None):
        super().__init__()
        self.miner: Any = BatchAll() if miner is None else miner
        self.needs_unit_euclidean = self.miner.needs_unit_euclidean

    @property
    def gives_triples(self) -> bool:  # type: ignore[override]
        """Whether the miner inside lists triplets."""
        return isinstance(self.miner, TripleMiner) and self.miner.gives_triples


class InRange(Inner):
    """Pairs within a range of distances, of which another miner then chooses.

        { p : l⁺ ≤ d_ap ≤ u⁺ },     { n : l⁻ ≤ d_an ≤ u⁻ }

    Parameters
    ----------
    miner : Miner or None, default=None
        The miner that chooses among the pairs in range; None: all are taken.
    pos : tuple (low, high), default=(-math.inf, math.inf)
        Distances l⁺ and u⁺ of positives, in the unit of the distance of the loss.
    neg : tuple (low, high), default=(-math.inf, math.inf)
        Distances l⁻ and u⁻ of negatives, in the unit of the distance of the loss.

    Notes
    -----
    Leaves out copies (too near) and suspected errors of labels (too far) before another miner looks. Costs O(B R)
    beside it.

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "PyTorch metric learning", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchHard, InRange, Triplet
    >>> miner = InRange(BatchHard(), neg=(0.1, 2.0))  # no negatives that may be copies
    >>> Triplet(miner=miner)(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(
        self,
        miner: Miner | None = None,
        pos: tuple[float, float] = (-math.inf, math.inf),
        neg: tuple[float, float] = (-math.inf, math.inf),
    ):
        super().__init__(miner)
        for name, (low, high) in (("pos", pos), ("neg", neg)):
            if not low < high:
                raise ValueError(f"{name} must be (low, high) with low < high, got {(low, high)}")
        self.pos, self.neg = pos, neg

    def inside(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """The masks within the ranges.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        return pos & (self.pos[0] <= D) & (self.pos[1] >= D), neg & (self.neg[0] <= D) & (self.neg[1] >= D)

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        chosen: Triples = self.miner.triples(D, *self.inside(D, pos, neg))
        return chosen

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        chosen: tuple[Tensor, Tensor] = self.miner.select(D, *self.inside(D, pos, neg))
        return chosen


class AtMost(Draws, Inner):
    """A sample of what another miner chose: so many triplets of each anchor, or so many of its positives and negatives.

        t of the chosen (a, p, n) of each a, uniformly, without replacement

    Parameters
    ----------
    miner : Miner or None, default=None
        The miner whose choice is sampled; None: all pairs.
    t : int, default=10
        Most triplets, or positives and negatives, of an anchor.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    Bounds the number of triplets where a rule would list very many. Costs O(T log T) beside the other miner.

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "PyTorch metric learning", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import AtMost, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = AtMost(t=1, random_state=0)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, miner: Miner | None = None, t: int = 10, random_state: int | None = None):
        super().__init__(miner)
        self.t, self.random_state = positive("t", t), random_state

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        a, p, n = self.miner.triples(D, pos, neg)
        kept = drawn(self, a, self.t)
        return a[kept], p[kept], n[kept]

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        if self.gives_triples:
            return super().select(D, pos, neg)
        pos, neg = self.miner.select(D, pos, neg)
        keys = torch.rand(2, *D.shape, generator=self.generator(D.device), device=D.device)
        return first_of_rows(keys[0], pos, self.t), first_of_rows(keys[1], neg, self.t)


def marked(like: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """A mask of the same shape that holds at (i, j) only."""
    mask = torch.zeros_like(like)
    mask[i, j] = True
    return mask


def first_of_rows(x: Tensor, mask: Tensor, n: int) -> Tensor:
    """The mask at the n smallest x of each row that it holds for, or at all of them if they are fewer."""
    columns = torch.where(mask, x, torch.inf).topk(min(n, x.shape[1]), 1, largest=False).indices
    return mask & torch.zeros_like(mask).scatter_(1, columns, True)


def drawn(draws: Draws, group: Tensor, most: int) -> Tensor:
    """Indices of at most so many members of each group (T,), drawn without replacement."""
    shuffled = torch.randperm(len(group), generator=draws.generator(group.device), device=group.device)
    order = shuffled[group[shuffled].argsort(stable=True)]
    ordered = group[order]
    rank = torch.arange(len(group), device=group.device) - torch.searchsorted(ordered, ordered)
    return order[rank < most]


def of_one_batch(D: Tensor) -> Tensor:
    """Distances of a batch to itself, or an error."""
    if len(D) != D.shape[1] or (D.diagonal() != 0).any() or not torch.allclose(D, D.T, atol=1e-4):
        raise ValueError("AngularMiner compares positives with negatives: the references must be the batch itself")
    return D
