"""Miners: which positives and negatives of a batch a loss gets to see.

A miner reads the matrix of distances (B, R) and the two masks, without gradient. ``select`` narrows the masks;
where the choice of a negative depends on the positive, ``triples`` returns indices (anchor, positive, negative).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from isometry.deep.functional import Distance, any_of_row, get_distance, masked_max, masked_min, masks, packed, unit
from isometry.deep.slopes import Triples
from isometry.parameters import Count, Positive, checked, one_of


class Miner(nn.Module, ABC):
    """Abstract miner: narrows which positives and negatives of a batch a loss gets to see.

    Notes
    -----
    A miner of your own writes ``select``. It sees distances as the loss compares them, without gradient; all pairs of a
    batch cost O(B R).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Miner, Triplet
    >>> class Near(Miner):
    ...     def select(self, D, pos, neg):
    ...         return pos, neg & (D < 1)
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> Triplet(miner=Near())(z, torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    needs_unit_euclidean = False  # True: the distances must be Euclidean between unit vectors

    @abstractmethod
    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        """Masks (B, R) of the positives and negatives to use, subsets of those given.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).

        Returns
        -------
        tuple of Tensor
            The positives and the negatives, boolean matrices (B, R).
        """

    @torch.no_grad()
    def forward(self, z: Tensor, y: Tensor, distance: Distance = "euclidean", normalize: bool = False) -> Triples:
        """Triplets of a batch of embeddings (B, p) with labels (B,): indices of anchors, positives and negatives.

        A loss with a triplet form takes them: ``loss.triplets(z, miner(z, y))``. ``distance`` and ``normalize`` are
        those of the loss; a miner that needs unit vectors makes them.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        distance : str or callable, default="euclidean"
            That of the loss.
        normalize : bool, default=False
            Put embeddings on the unit sphere first, as the loss does.

        Returns
        -------
        tuple of Tensor
            Rows of anchors, positives and negatives, (T,) each.
        """
        if z.ndim != 2 or y.shape != (len(z),):
            raise ValueError(f"a miner takes embeddings (B, p) and labels (B,), got {tuple(z.shape)}, {tuple(y.shape)}")
        z = unit(z) if normalize or self.needs_unit_euclidean else z
        D = get_distance("euclidean" if self.needs_unit_euclidean else distance)(z, z)
        return self.choose(D, *masks(y, self_index=torch.arange(len(y), device=y.device)))

    def choose(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        """All triplets of the masks that it selects.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).

        Returns
        -------
        tuple of Tensor
            Rows of anchors, and columns of positives and negatives, (T,) each.
        """
        pos, neg = self.select(D, pos, neg)
        a, p, n = (pos[:, :, None] & neg[:, None]).nonzero(as_tuple=True)
        return a, p, n


class TripleMiner(Miner):
    """Abstract miner of triplets: a loss without a triplet form uses the pairs that occur in them.

    Notes
    -----
    For rules in which the negative depends on the positive; a miner of your own writes ``triples``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchSemiHard, TripleMiner
    >>> miner = BatchSemiHard()
    >>> isinstance(miner, TripleMiner)
    True
    >>> a, p, n = miner(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> len(a) == len(p) == len(n)
    True
    """

    gives_triples = True  # False: here ``select`` says more than a list of triplets could

    @abstractmethod
    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        """Indices of anchors, positives and negatives, three vectors of equal length.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).

        Returns
        -------
        tuple of Tensor
            Rows of anchors, and columns of positives and negatives, (T,) each.
        """

    def choose(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        return self.triples(D, pos, neg) if self.gives_triples else super().choose(D, pos, neg)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        a, p, n = self.triples(D, pos, neg)
        chosen = torch.zeros_like(pos), torch.zeros_like(neg)
        chosen[0][a, p] = True
        chosen[1][a, n] = True
        return chosen


class Draws:
    """A stream of random numbers from ``random_state``; it is saved with the state of the module."""

    random_state: int | None
    _stream: torch.Generator | None = None
    _resume: Tensor | None = None

    def generator(self, device: torch.device) -> torch.Generator | None:
        """The stream of random numbers on a device; None for torch's global one.

        Parameters
        ----------
        device : torch.device
            Where the numbers are needed.

        Returns
        -------
        torch.Generator or None
            The generator.
        """
        if self.random_state is None:
            return None  # torch's default generator
        if self._stream is None or self._stream.device != device:
            self._stream = torch.Generator(device).manual_seed(self.random_state)
            if self._resume is not None:
                self._stream.set_state(self._resume)
                self._resume = None
        return self._stream

    def get_extra_state(self) -> Tensor:
        """The state of the stream, which is saved with the module.

        Returns
        -------
        Tensor
            Bytes; none if nothing was drawn.
        """
        return torch.empty(0, dtype=torch.uint8) if self._stream is None else self._stream.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Go on where a saved stream was.

        Parameters
        ----------
        state : Tensor
            What ``get_extra_state`` gave.
        """
        self._stream, self._resume = None, state.cpu() if len(state) else None


class BatchAll(Miner):
    """All triplets of a batch: every positive with every negative.

        (a, p, n),     p ∈ pos(a),  n ∈ neg(a)

    Notes
    -----
    What a loss without a miner does; as a miner of its own it lists O(B K R) triplets for K positives an anchor, for
    ``loss.triplets`` or for looking at them.

    References
    ----------
    | S. Ding, L. Lin, G. Wang, H. Chao, "Deep feature learning with relative distance comparison for person
      re-identification", Pattern Recognition 2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchAll, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = BatchAll()
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        return pos, neg


class BatchHard(TripleMiner):
    """Hardest positive and hardest negative: the farthest positive and the nearest negative of each anchor.

        p(a) = argmax_{p ∈ pos(a)} d_ap,     n(a) = argmin_{n ∈ neg(a)} d_an

    Notes
    -----
    Few triplets and all of them hard: fast in batches of 4 to 8 samples a class. Mislabelled samples are the hardest of
    all, and from a random start all embeddings may fall together: begin with ``BatchSemiHard`` or with a soft margin.
    Costs O(B R).

    References
    ----------
    | A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", arXiv 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchHard, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = BatchHard()
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        return _complete(_farthest(D, pos), _nearest(D, neg), pos, neg)


class BatchSemiHard(TripleMiner):
    """Hardest of the semi-hard negatives: for each positive pair the nearest negative farther than the positive.

        n(a, p) = argmin { d_an : d_an > d_ap }

    Parameters
    ----------
    fallback : {"skip", "easiest"}, default="skip"
        What a pair without such a negative gets: nothing, or the farthest negative.

    Notes
    -----
    Negatives that are too near already are passed over, so that training from a random start is stable; late in
    training few triplets are left. Costs O(B R log R).

    References
    ----------
    | F. Schroff, D. Kalenichenko, J. Philbin, "FaceNet: a unified embedding for face recognition and clustering", CVPR
      2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BatchSemiHard, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = BatchSemiHard()
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, fallback: str = "skip"):
        super().__init__()
        self.fallback = one_of("fallback", fallback, ("skip", "easiest"))

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        N, order = D.masked_fill(~neg, torch.inf).sort(1)  # (B, R)
        n_neg = neg.sum(1, keepdim=True)  # (B, 1)
        columns, filled = packed(pos)  # (B, K)
        k = torch.searchsorted(N, D.gather(1, columns), right=True)  # (B, K), first negative beyond the positive
        if self.fallback == "easiest":
            k = torch.minimum(k, n_neg - 1)
        a, slot = (filled & (k < n_neg) & (n_neg > 0)).nonzero(as_tuple=True)
        return a, columns[a, slot], order[a, k[a, slot]]


class EasyPositive(TripleMiner):
    """Easiest positive: the nearest of each anchor, with all, the nearest, or the nearest semi-hard negative.

        p(a) = argmin_{p ∈ pos(a)} d_ap,     n ∈ neg(a)

    Parameters
    ----------
    negatives : {"all", "hard", "semihard"}, default="all"
        ``"semihard"``: the nearest negative farther than the positive; an anchor without one is dropped.
    min_distance : float or None, default=None
        Positives at most this far away count as copies of the anchor and are passed over.

    Notes
    -----
    For classes that vary widely inside, which need not become one cluster. It asks for nothing of far positives, so
    that a class may stay in pieces. Costs O(B R).

    References
    ----------
    | H. Xuan, A. Stylianou, R. Pless, "Improved embeddings with easy positive triplet mining", WACV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import EasyPositive, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = EasyPositive(negatives="hard")
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, negatives: str = "all", min_distance: float | None = None):
        super().__init__()
        self.negatives = one_of("negatives", negatives, ("all", "hard", "semihard"))
        self.min_distance = min_distance

    @property
    def gives_triples(self) -> bool:  # type: ignore[override]
        """Whether each anchor has one negative."""
        return self.negatives != "all"

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        """One triplet an anchor; for ``"hard"`` and ``"semihard"`` negatives.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        pos = self.candidates(D, pos)
        p = _nearest(D, pos)
        if self.negatives == "semihard":
            neg = neg & (D.gather(1, p[:, None]) < D)
        return _complete(p, _nearest(D, neg), pos, neg)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        if self.gives_triples:
            return super().select(D, pos, neg)
        pos = self.candidates(D, pos)
        anchors = (any_of_row(pos) & any_of_row(neg))[:, None]
        nearest = torch.zeros_like(pos).scatter_(1, _nearest(D, pos)[:, None], anchors)
        return nearest, neg & anchors

    def candidates(self, D: Tensor, pos: Tensor) -> Tensor:
        """The positives that are no copies of their anchor.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        """
        return pos if self.min_distance is None else pos & (self.min_distance < D)


class MultiSimilarityMiner(Miner):
    """Pairs that violate a ranking: positives beyond the nearest negative, negatives within the farthest positive.

        { p : d_ap + ε > min_n d_an },     { n : d_an − ε < max_p d_ap }

    An anchor that lacks one of the two is left out.

    Parameters
    ----------
    eps : float, default=0.1
        How far a pair may fall short of a violation, ε, in the unit of the distance.

    Notes
    -----
    The miner of ``MultiSimilarity``, where it is built in. With well separated classes it leaves nothing, and the loss
    is 0. Costs O(B R).

    References
    ----------
    | X. Wang, X. Han, W. Huang, D. Dong, M. R. Scott, "Multi-similarity loss with general pair weighting for deep
      metric learning", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Contrastive, MultiSimilarityMiner
    >>> z = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
    >>> a, p, n = MultiSimilarityMiner(eps=0.1)(z, torch.tensor([0, 0, 1, 1]))
    >>> bool(((a == 2) & (p == 3)).any())  # the positive of row 2 lies beyond its negatives
    True
    """

    def __init__(self, eps: float = 0.1):
        super().__init__()
        self.eps = checked("eps", eps, float)

    def select(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        nearest, farthest = masked_min(D, neg)[:, None], masked_max(D, pos)[:, None]  # (B, 1)
        pos, neg = pos & (D + self.eps > nearest), neg & (D - self.eps < farthest)
        anchors = (any_of_row(pos) & any_of_row(neg))[:, None]
        return pos & anchors, neg & anchors


class Extreme(Draws, TripleMiner):
    """Triplets of extreme distances: easy (near) or hard (far) positive, easy (far) or hard (near) negative.

        p(a) = argmin or argmax_{p ∈ pos(a)} d_ap,     n(a) = argmax or argmin_{n ∈ neg(a)} d_an

    Parameters
    ----------
    strategy : {"EPHN", "EPEN", "HPEN", "HPHN", "assorted"}, default="EPHN"
        E easy, H hard, P positive, N negative; ``"assorted"`` draws one of the four for each anchor.
    random_state : int or None, default=None
        Seed of the draws of ``"assorted"``.

    Notes
    -----
    For comparing the four extremes; "HPHN" is ``BatchHard``. "EPEN" learns little: both are right already. Costs
    O(B R).

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, A. Safarpoor, F. Karray, M. Crowley, H. Tizhoosh, "Offline versus online triplet mining
      based on extreme distances of histopathology patches", ISVC 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Extreme, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = Extreme("HPHN")
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    STRATEGIES = ("EPEN", "EPHN", "HPEN", "HPHN")

    def __init__(self, strategy: str = "EPHN", random_state: int | None = None):
        super().__init__()
        self.strategy = one_of("strategy", strategy, (*self.STRATEGIES, "assorted"))
        self.random_state = random_state

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        if self.strategy == "assorted":
            code = torch.randint(4, (len(D),), generator=self.generator(D.device), device=D.device)  # (B,)
        else:
            code = torch.tensor(self.STRATEGIES.index(self.strategy), device=D.device)
        p = torch.where(code >= 2, _farthest(D, pos), _nearest(D, pos))
        n = torch.where(code % 2 == 1, _nearest(D, neg), _farthest(D, neg))
        return _complete(p, n, pos, neg)


class RandomTriplets(Draws, TripleMiner):
    """Random triplets of a batch: ``t_per_anchor`` for each anchor.

        p uniform in pos(a),     n uniform in neg(a),     independent

    Parameters
    ----------
    t_per_anchor : int, default=1
        Triplets of each anchor.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    The baseline for miners, and a cheap one for losses that need a list. Most triplets are easy once training has
    begun. Costs O(B R + T).

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. Tizhoosh, "Batch-incremental triplet sampling for training
      triplet networks using Bayesian updating theorem", ICPR 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RandomTriplets, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = RandomTriplets(t_per_anchor=2, random_state=0)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    def __init__(self, t_per_anchor: int = 1, random_state: int | None = None):
        super().__init__()
        self.t_per_anchor, self.random_state = checked("t_per_anchor", t_per_anchor, Count), random_state

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        a = (any_of_row(pos) & any_of_row(neg)).nonzero().squeeze(1)
        p, n = (_draw(mask[a].to(D.dtype), self.t_per_anchor, self.generator(D.device)) for mask in (pos, neg))
        return a.repeat_interleave(self.t_per_anchor), p.flatten(), n.flatten()


class DistanceWeighted(Draws, TripleMiner):
    """Distance-weighted sampling: for each positive pair one negative, drawn evenly over distances, not over points.

        P(n | a) ∝ 1 / q(d_an),   q(d) ∝ d^{p−2} (1 − d²/4)^{(p−3)/2}

    q is the density of the distance between random points of the unit sphere in p dimensions. Distances are raised to
    ``cutoff`` first, which bounds the weight of the hardest; negatives beyond ``nonzero_loss_cutoff`` are left out, and
    so is an anchor that has no other.

    Parameters
    ----------
    embedding_size : int
        Dimension p of the embeddings; below 3 the negatives within the cutoff are drawn uniformly.
    cutoff : float, default=0.5
        Smaller distances count as this.
    nonzero_loss_cutoff : float, default=1.4
        Negatives farther than this are left out.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    For ``MarginLoss`` and triplets: negatives of all distances are seen, neither the hardest alone nor, as by chance,
    those at √2. Embeddings must be compared on the unit sphere. Costs O(B R).

    References
    ----------
    | C.-Y. Wu, R. Manmatha, A. J. Smola, P. Krähenbühl, "Sampling matters in deep embedding learning", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import DistanceWeighted, Triplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> miner = DistanceWeighted(embedding_size=2, random_state=0)
    >>> anchors, positives, negatives = miner(z, y)
    >>> bool((y[anchors] == y[positives]).all()), bool((y[anchors] != y[negatives]).all())
    (True, True)
    >>> Triplet(miner=miner)(z, y).shape
    torch.Size([])
    """

    needs_unit_euclidean = True

    def __init__(
        self,
        embedding_size: int,
        cutoff: float = 0.5,
        nonzero_loss_cutoff: float = 1.4,
        random_state: int | None = None,
    ):
        super().__init__()
        self.embedding_size = embedding_size
        self.cutoff = checked("cutoff", cutoff, Positive)
        self.nonzero_loss_cutoff = checked("nonzero_loss_cutoff", nonzero_loss_cutoff, Positive)
        self.random_state = random_state

    def log_weight(self, D: Tensor) -> Tensor:
        """The logarithm of 1 / q(d), up to a constant.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        """
        p = self.embedding_size
        if p < 3:
            return torch.zeros_like(D)
        d = D.clamp(self.cutoff, 2 - 1e-4)
        return -((p - 2) * d.log() + (p - 3) / 2 * torch.log1p(-d.square() / 4))

    def triples(self, D: Tensor, pos: Tensor, neg: Tensor) -> Triples:
        near = neg & (self.nonzero_loss_cutoff > D)
        a = (any_of_row(pos) & any_of_row(near)).nonzero().squeeze(1)
        if not len(a):
            return a, a, a
        columns, filled = packed(pos[a])  # (A, K)
        # A softmax of each row by itself: log-weights span hundreds of nats, one common scale would erase whole rows.
        P = self.log_weight(D[a]).masked_fill(~near[a], -torch.inf).softmax(1)  # (A, R)
        n = _draw(P, columns.shape[1], self.generator(D.device))  # (A, K)
        return a.repeat_interleave(filled.sum(1)), columns[filled], n[filled]


def _draw(weights: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """``count`` columns of each row, with replacement, in proportion to the weights."""
    if not len(weights):
        return torch.empty(0, count, dtype=torch.long, device=weights.device)
    return torch.multinomial(weights, count, replacement=True, generator=generator)


def _nearest(D: Tensor, mask: Tensor) -> Tensor:
    """Column of the smallest D of each row under the mask, of equals the first; arbitrary for an empty row."""
    return torch.where(mask, D, torch.inf).argmin(1)


def _farthest(D: Tensor, mask: Tensor) -> Tensor:
    """Column of the largest D of each row under the mask."""
    return torch.where(mask, D, -torch.inf).argmax(1)


def _complete(p: Tensor, n: Tensor, pos: Tensor, neg: Tensor) -> Triples:
    """Triplets of the anchors that have both a positive and a negative."""
    a = (any_of_row(pos) & any_of_row(neg)).nonzero().squeeze(1)
    return a, p[a], n[a]
