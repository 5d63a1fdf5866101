"""Which pairs, comparisons or chunklets a method looks at, drawn from labels.

A sampler is a small parameter object: ``ITML(pairs=RandomPairs(500))`` is searchable as ``pairs__n``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from isometry.core.compare import ComparisonEdges
from isometry.core.edges import EdgeLoss, ListedEdges, MeasuredEdges, TriangleEdges
from isometry.core.graph import components, nearest_allowed, target_neighbors, undirected, unique_pairs
from isometry.core.order import row_order
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, parameters
from isometry.supervision import Chunklets, EdgeList, Labels, Pairs, Quadruplets, Supervision, Triplets

__all__ = [
    "AllPairs",
    "NeighborPairs",
    "NeighborTriplets",
    "OrdinalTriplets",
    "RandomChunklets",
    "RandomComparisons",
    "RandomPairs",
]

RANDOM_NEGATIVES = 5_000  # drawn where y holds similar pairs alone, or as many as these if they are more
ALL_PAIRS_UP_TO = 2_000_000  # "auto" takes all pairs up to this many: methods visit them in blocks, unlisted
KEEP_SIGNS_UP_TO = 1_000  # samples; up to this many, the signs of all pairs are computed once, 16 bytes a pair

Link = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # (d, t) → (ℓ, ∂ℓ/∂d), elementwise


class Sampler(BaseEstimator):
    """Abstract: draws a supervision object from labels."""

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Supervision:
        """Draw from labels.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers.

        Returns
        -------
        Supervision
            What was drawn, over the rows of X.
        """
        raise NotImplementedError


def in_own_order(X: np.ndarray, labels: Labels) -> tuple[np.ndarray, Labels]:
    """The samples in an order of their own, and classes numbered as they come: for draws that depend on neither."""
    order = row_order(X)
    _, first, codes = np.unique(labels.codes[order], return_index=True, return_inverse=True)
    return X[order], Labels.from_codes(np.argsort(np.argsort(first))[codes])


class AllPairs(Sampler):
    """All pairs of labelled samples, never listed: distances are visited in blocks.

    Notes
    -----
    For ``pairs=`` of a learner, where "auto" would sample. An objective over all pairs costs O(n²) time, and memory
    O(block · n).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LDML, AllPairs
    >>> X, y = load_iris(return_X_y=True)
    >>> LDML(pairs=AllPairs(), strength=1, max_iter=5).fit(X[::3], y[::3]).transform(X).shape
    (150, 4)
    """

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Labels:
        """Give the labels themselves, which stand for all pairs.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers, not used.

        Returns
        -------
        Labels
            The labels.
        """
        return labels


@parameters
class RandomPairs(Sampler):
    """Random similar and dissimilar pairs, uniform over pairs, without replacement.

    Parameters
    ----------
    n : int, default=100000
        Number of similar pairs, and of dissimilar ones.
    balanced : bool, default=False
        Whether to draw the class of a similar pair uniformly instead, so that small classes count as much as large.

    Notes
    -----
    For ``pairs=`` of a learner, where all pairs are too many. Up to two million pairs, all of them, in blocks, are
    both exact and faster. Draws cost O(n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, RandomPairs
    >>> pairs = RandomPairs(3).draw(np.zeros((6, 1)), Labels([0, 0, 0, 1, 1, 1]), np.random.RandomState(0))
    >>> len(pairs.i), int(pairs.similarity.sum())
    (6, 3)
    """

    n: Count = 100_000
    _: KW_ONLY
    balanced: bool = False

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Pairs:
        # drawing at random takes long to find the last pairs: where more than a quarter is wanted, all are listed
        """Draw pairs from labels.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers.

        Returns
        -------
        Pairs
            The pairs, over the rows of X.
        """
        if self.n > labels.pair_counts[0] / 4 and not self.balanced:
            similar = _subset(labels.similar, self.n, rng)
        else:
            similar = _random_similar(labels, self.n, self.balanced, rng)
        dissimilar = _some_dissimilar(labels, self.n, rng)
        return Pairs.from_edges(similar, dissimilar, len(labels))


@parameters
class NeighborPairs(Sampler):
    """Each sample with its k nearest samples of the same label and its k nearest of other labels.

    Parameters
    ----------
    k : int, default=3
        Number of neighbours of either kind.

    Notes
    -----
    For classes of several clusters: far samples of one class are not drawn together. The search costs O(n² d).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, NeighborPairs
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> pairs = NeighborPairs(1).draw(X, Labels([0, 0, 1, 1]), np.random.RandomState(0))
    >>> type(pairs).__name__, len(pairs.i)
    ('Pairs', 5)
    """

    k: Count = 3

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Pairs:
        """Find the pairs of labelled samples.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers, not used.

        Returns
        -------
        Pairs
            The pairs, over the rows of X.
        """
        edges = []
        for neighbors in _neighbors_by_label(X, labels.codes, self.k):
            edges.append(EdgeList.make(*undirected(neighbors)))
        same, other = edges
        return Pairs.from_edges(same, other, len(X))


@parameters
class NeighborTriplets(Sampler):
    """Each sample with its k nearest of the same label, against its nearest samples of other labels.

    Parameters
    ----------
    k : int, default=3
        Number of nearest samples of the same label.
    misses : int or None, default=None
        Number of nearest samples of other labels; None: k.

    Notes
    -----
    What learners of comparisons take by default. The search costs O(n² d).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, NeighborTriplets
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> triplets = NeighborTriplets(1).draw(X, Labels([0, 0, 1, 1]), np.random.RandomState(0))
    >>> np.column_stack([triplets.a, triplets.p, triplets.n]).tolist()
    [[0, 1, 2], [1, 0, 2], [2, 3, 1], [3, 2, 1]]
    """

    k: Count = 3
    misses: Count | None = None

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Triplets:
        """Find the triplets of labelled samples.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers, not used.

        Returns
        -------
        Triplets
            The triplets, over the rows of X.
        """
        same, other = _neighbors_by_label(X, labels.codes, self.k, self.misses)  # (n, k), (n, m)
        return _triplets(same, other)


@parameters
class RandomComparisons(Sampler):
    """Random triplets: a sample, one of its own label, one of another.

    Parameters
    ----------
    n : int, default=10000
        Number of triplets, or of quadruplets.
    anchored : bool, default=True
        Whether the two distances share a sample; False draws quadruplets instead, a similar against a dissimilar pair:
        if there are fewer of either than n, as many as there are.
    balanced : bool, default=False
        Whether to draw the class of the first sample uniformly, so that small classes count as much as large.

    Notes
    -----
    For learners of comparisons, where classes are single clouds or samples too many for a search of neighbours.
    Most random triplets are easy: where the border matters, use `NeighborTriplets`. Draws cost O(n).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, RandomComparisons
    >>> y = np.array([0, 0, 1, 1, 1])
    >>> triplets = RandomComparisons(10).draw(np.zeros((5, 1)), Labels(y), np.random.RandomState(0))
    >>> len(triplets.a), bool((y[triplets.a] == y[triplets.p]).all()), bool((y[triplets.a] != y[triplets.n]).all())
    (10, True, True)
    """

    n: Count = 10_000
    _: KW_ONLY
    anchored: bool = True
    balanced: bool = False

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Triplets | Quadruplets:
        """Draw triplets or quadruplets from labels.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers.

        Returns
        -------
        Triplets or Quadruplets
            The comparisons, over the rows of X.
        """
        if not self.anchored:
            S, D = _random_similar(labels, self.n, self.balanced, rng), _random_dissimilar(labels, self.n, rng)
            m = min(len(S.i), len(D.i))
            near, far = (rng.permutation(len(e.i))[:m] for e in (S, D))
            return Quadruplets(S.i[near], S.j[near], D.i[far], D.j[far], n_samples=len(labels))
        codes, counts = labels.codes, labels.counts
        rows = np.flatnonzero(codes >= 0)
        order = rows[np.argsort(codes[rows], kind="stable")]  # class by class
        starts = np.cumsum(counts) - counts
        rank = np.empty(len(codes), dtype=np.intp)  # of a sample among its class
        rank[order] = np.arange(len(order)) - starts[codes[order]]
        anchors = rows[counts[codes[rows]] > 1]
        if len(anchors) == 0 or len(counts) < 2:
            return Triplets([], [], [], n_samples=len(labels))
        share = 1 / counts[codes[anchors]] if self.balanced else np.ones(len(anchors))
        a = rng.choice(anchors, self.n, p=share / share.sum())
        c = codes[a]
        p = rng.randint(0, counts[c] - 1)
        p = order[starts[c] + p + (p >= rank[a])]
        n = rng.randint(0, len(order) - counts[c])
        n = order[n + np.where(n >= starts[c], counts[c], 0)]
        return Triplets(a, p, n, n_samples=len(labels))


@parameters
class OrdinalTriplets(Sampler):
    """Triplets from labels with an order: own label before others, and of two others the one nearer in the order.

    Each sample with its k nearest of the same label against its nearest ``misses`` of other labels; and two of those,
    j against l, where y_i < y_j < y_l or y_i > y_j > y_l.

    Parameters
    ----------
    k : int, default=5
        Number of nearest samples of the same label.
    misses : int, default=15
        Number of nearest samples of other labels.

    Notes
    -----
    For labels that are grades or ages: a wrong neighbour two grades away is worse than one beside. Labels without
    an order are for `NeighborTriplets`. The search costs O(n² d).

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, OrdinalTriplets
    >>> X = np.arange(6.0)[:, None]
    >>> triplets = OrdinalTriplets(1, 2).draw(X, Labels([0, 0, 1, 1, 2, 2]), np.random.RandomState(0))
    >>> type(triplets).__name__
    'Triplets'
    """

    k: Count = 5
    misses: Count = 15

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Triplets:
        """Find the triplets of samples whose labels have an order.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers, not used.

        Returns
        -------
        Triplets
            The triplets, over the rows of X.
        """
        codes = labels.codes
        same, other = _neighbors_by_label(X, codes, self.k, self.misses)
        by_class = _triplets(same, other)
        y, of = codes[:, None], np.where(other >= 0, codes[other], codes[:, None])  # an absent one is in no order
        i, j, l = np.nonzero(
            ((y < of)[:, :, None] & (of[:, :, None] < of[:, None]))
            | ((y > of)[:, :, None] & (of[:, :, None] > of[:, None]))
        )
        a, p, n = (
            np.concatenate(part)
            for part in zip((by_class.a, by_class.p, by_class.n), (i, other[i, j], other[i, l]), strict=True)
        )
        return Triplets(a, p, n, n_samples=len(X))


def _triplets(near: np.ndarray, far: np.ndarray) -> Triplets:
    """Every sample with each of its near ones (n, k) against each of its far ones (n, m); −1 stands for none."""
    shape = (len(near), near.shape[1], far.shape[1])
    a = np.broadcast_to(np.arange(len(near))[:, None, None], shape).ravel()
    p = np.broadcast_to(near[:, :, None], shape).ravel()
    n = np.broadcast_to(far[:, None, :], shape).ravel()
    keep = (p >= 0) & (n >= 0)
    return Triplets(a[keep], p[keep], n[keep], n_samples=len(near))


def _neighbors_by_label(
    X: np.ndarray, codes: np.ndarray, k: int, misses: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) the nearest samples of the same label, and (n, misses or k) of other labels; −1 where there are fewer.

    Samples without a label have no neighbours, and are none.
    """
    X = X if X.dtype.kind == "f" else X.astype(np.float64)
    rows = np.flatnonzero(codes >= 0)
    if len(rows) < len(codes):
        found = _neighbors_by_label(X[rows], codes[rows], k, misses)
        every = [np.full((len(codes), near.shape[1]), -1, dtype=np.intp) for near in found]
        for whole, near in zip(every, found, strict=True):
            whole[rows] = np.where(near >= 0, rows[near], -1)
        return every[0], every[1]
    other = nearest_allowed(X, misses or k, lambda rows: codes[rows, None] != codes)[0]
    return target_neighbors(X, codes, k), other


@parameters
class RandomChunklets(Sampler):
    """Random groups of samples within each class.

    Parameters
    ----------
    n : int or None, default=None
        Number of groups in all; None: as many as there are.
    size : int, default=2
        Number of samples in a group.

    Notes
    -----
    To try what methods of chunklets, such as `RCA` and `DCA`, learn from little: labels stay unknown but for the
    groups.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Labels, RandomChunklets
    >>> X, y = np.zeros((8, 1)), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> chunklets = RandomChunklets(3).draw(X, Labels(y), np.random.RandomState(0))
    >>> np.bincount(chunklets.codes[chunklets.codes >= 0]).tolist()
    [2, 2, 2]
    """

    n: Count | None = None
    _: KW_ONLY
    size: Count = 2

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Chunklets:
        """Draw chunklets from labels.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        labels : Labels
            Their labels.
        rng : RandomState instance
            Random numbers.

        Returns
        -------
        Chunklets
            The chunklets, over the rows of X.
        """
        codes = labels.codes
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        order = order[codes[order] >= 0]
        starts = np.concatenate([[0], np.cumsum(labels.counts)])
        rank = np.arange(len(order)) - starts[codes[order]]  # within the class
        in_group = rank < (labels.counts // self.size * self.size)[codes[order]]  # the rest of a class fills no group
        group_of = np.cumsum(in_group & (rank % self.size == 0)) - 1
        n_groups = group_of[-1] + 1 if len(order) else 0
        if n_groups == 0:
            raise ValueError(f"no class has {self.size} samples: no chunklet of that size can be drawn")
        chosen = rng.permutation(n_groups)[: self.n]
        renumbered = np.full(n_groups, -1)
        renumbered[chosen] = np.arange(len(chosen))
        chunklet = np.full(len(codes), -1)
        chunklet[order[in_group]] = renumbered[group_of[in_group]]
        return Chunklets(chunklet)


@dataclass(frozen=True)
class SignedEdges:
    """Similar and dissimilar pairs in the form the engine evaluates: in dense blocks, or listed."""

    edges: MeasuredEdges
    n_similar: float  # total weight of the similar pairs
    n_dissimilar: float
    codes: np.ndarray | None = None  # dense: labels
    sign: np.ndarray | None = None  # listed: +1 similar, −1 dissimilar
    weight: np.ndarray | None = None  # listed

    def mean_loss(self, link: Link) -> EdgeLoss:
        """The mean over all pairs of ℓ(d, t)."""
        average = 1 / max(self.n_similar + self.n_dissimilar, 1e-300)
        return self.loss(link, similar=average, dissimilar=average)

    def loss(self, link: Link, *, similar: float = 1.0, dissimilar: float = 1.0) -> EdgeLoss:
        """Σ over pairs of weight · ℓ(d, t), where ``link(d, t) → (ℓ, ∂ℓ/∂d)`` works elementwise and t is ±1.

        ``similar`` and ``dissimilar`` weigh the two kinds, e.g. 1/n_similar to average.
        """
        if self.codes is not None:
            return _dense_loss(link, self.codes, similar, dissimilar)
        assert self.sign is not None and self.weight is not None  # listed
        sign, weight = self.sign, self.weight * np.where(self.sign > 0, similar, dissimilar)

        def loss(d: np.ndarray, block: slice) -> tuple[float, np.ndarray]:
            value, slope = link(d, sign[block].astype(d.dtype, copy=False))
            return float(value @ weight[block]), slope * weight[block]

        return loss


def _dense_loss(link: Link, codes: np.ndarray, similar: float, dissimilar: float) -> EdgeLoss:
    def compute_signs(start: int, stop: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        same = codes[start:stop, None] == codes[start:]  # (b, n − start)
        weight = np.where(same, dtype.type(similar), dtype.type(dissimilar))
        weight[:, : len(same)][np.tri(len(same), dtype=bool)] = 0  # pairs that another anchor counts
        return np.where(same, dtype.type(1), dtype.type(-1)), weight

    signs = cache(compute_signs) if len(codes) <= KEEP_SIGNS_UP_TO else compute_signs

    def loss(D: np.ndarray, rows: slice) -> tuple[float, np.ndarray]:
        sign, weight = signs(rows.start, rows.stop, D.dtype)
        value, slope = link(D, sign)
        slope *= weight
        return float(np.einsum("ij,ij->", value, weight, dtype=np.float64)), slope

    return loss


def signed_edges(
    side: Supervision, sampler: str | Sampler, X: np.ndarray, rng: np.random.RandomState, *, listed: bool = False
) -> SignedEdges:
    """Pairs for a method that looks at every pair: from Pairs as they are, from Labels by the sampler.

    ``listed``: pairs of labels must be listed, to be taken in batches, hence "auto" never takes all of them.
    """
    if isinstance(side, Labels):
        if listed and isinstance(sampler, AllPairs):
            raise ValueError("batch_size takes pairs from a list, and AllPairs() makes none: use RandomPairs(n)")
        side = choose_pairs(side, sampler, X, rng, all_up_to=0 if listed else ALL_PAIRS_UP_TO)
    if isinstance(side, Labels):
        return SignedEdges(TriangleEdges(len(side)), *side.pair_counts, codes=side.codes)
    S, D = side.similar, side.dissimilar
    sign = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
    i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
    return SignedEdges(
        ListedEdges(i, j, len(side)), float(S.weight.sum()), float(D.weight.sum()), sign=sign, weight=weight
    )


@dataclass(frozen=True)
class Comparisons:
    """Comparisons in the form the engine evaluates, with weights of sum 1."""

    edges: ComparisonEdges
    weight: np.ndarray  # (m,)

    def mean_loss(self, link: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]) -> EdgeLoss:
        """The weighted mean of ℓ(h), h = d_near − d_far, where ``link(h) → (ℓ, ∂ℓ/∂h)`` works elementwise."""

        def loss(d: np.ndarray, where: Any) -> tuple[float, np.ndarray]:
            value, slope = link(d[0] - d[1])
            w = self.weight[where]
            return float(value @ w), np.stack([slope * w, -slope * w])

        return loss

    def gap(self, Z: np.ndarray) -> float:
        """The median of |d_near − d_far|, by weight: what a margin is measured in. 1 if more than half of it is 0."""
        gaps = np.abs(self.edges.gaps(Z)).astype(np.float64)
        order = np.argsort(gaps)
        total = np.cumsum(self.weight[order])
        low, high = np.searchsorted(total, [0.5 * total[-1] * (1 - 1e-9), 0.5 * total[-1] * (1 + 1e-9)])
        return float(gaps[order[[low, high]]].mean()) or 1.0


def comparisons(side: Supervision, sampler: str | Sampler, X: np.ndarray, rng: np.random.RandomState) -> Comparisons:
    """Triplets or quadruplets as they are, those of labels by a sampler or its name.

    "auto" is `NeighborTriplets(3, misses=10)`, "ordinal" is `OrdinalTriplets()`.
    """
    given = not isinstance(side, Labels)
    if isinstance(side, Labels):
        named: dict[Any, Sampler] = {"auto": NeighborTriplets(3, misses=10), "ordinal": OrdinalTriplets()}
        drawn = named.get(sampler, sampler) if isinstance(sampler, str) else sampler
        if not isinstance(drawn, Sampler):
            raise TypeError(
                f"comparisons must be 'auto', 'ordinal' or a sampler such as NeighborTriplets(3), got {sampler!r}"
            )
        side = drawn.draw(X, side, rng)
    if not isinstance(side, Triplets | Quadruplets):
        raise TypeError(f"{sampler!r} draws {side.kind}; comparisons are triplets or quadruplets")
    there = side.weight > 0
    if not there.any():
        raise ValueError("there is nothing to compare: y holds no triplet or quadruplet, or its classes yield none")
    near, far = side.similar, side.dissimilar
    edges = ComparisonEdges(near.i[there], near.j[there], far.i[there], far.j[there], len(side))
    if given and edges.n_contradictions:
        warn_user(
            f"{edges.n_contradictions} of {edges.size} comparisons contradict one another: no distance can satisfy "
            "them all. They are kept, and the loss weighs them against each other"
        )
    return Comparisons(edges, side.weight[there] / side.weight.sum())


def choose_pairs(
    labels: Labels,
    sampler: str | Sampler,
    X: np.ndarray,
    rng: np.random.RandomState,
    *,
    all_up_to: int = ALL_PAIRS_UP_TO,
) -> Supervision:
    """Labels themselves (all pairs, implicit) or the pairs a sampler draws, where `resolve_sampler` explains "auto"."""
    return resolve_sampler(sampler, len(labels), all_up_to).draw(X, labels, rng)


def resolve_sampler(sampler: str | Sampler, n: int, all_up_to: int = ALL_PAIRS_UP_TO) -> Sampler:
    """A sampler as it is; for "auto" all pairs if n samples have at most ``all_up_to``, else 100,000 of each kind."""
    if isinstance(sampler, str) and sampler == "auto":
        return AllPairs() if n * (n - 1) / 2 <= all_up_to else RandomPairs()
    if not isinstance(sampler, Sampler):
        raise TypeError(f"pairs must be 'auto' or a sampler such as AllPairs() or RandomPairs(500), got {sampler!r}")
    return sampler


def lacks_negatives(side: Supervision | None) -> bool:
    """Whether these are pairs of which some are similar and none is dissimilar."""
    return isinstance(side, Pairs) and len(side.similar.i) > 0 and len(side.dissimilar.i) == 0


def with_random_negatives(pairs: Pairs, rng: np.random.RandomState, parts: int = 1) -> Pairs:
    """Similar pairs, and dissimilar ones drawn at random from all samples.

    Samples that similar pairs join, directly or through others, are never drawn. With several ``parts``, what is joined
    is dealt to that many, and drawn within each, so that pairs can be held out part by part.
    """
    n, S = len(pairs), pairs.similar
    identity = components(S.i, S.j, n)
    paired = np.flatnonzero(np.bincount(identity)[identity] > 1)
    parts = max(1, min(parts, len(np.unique(identity[paired])) // 2))
    part = rng.permutation(identity.max() + 1)[identity] % parts  # (n,)
    if parts > 1:  # equally many joined samples in each, whatever the others are
        joined, of = np.unique(identity[paired], return_inverse=True)
        part[paired] = (rng.permutation(len(joined)) % parts)[of]
    wanted = max(RANDOM_NEGATIVES, len(S.i)) // parts + 1
    drawn = [_some_dissimilar(Labels.from_codes(np.where(part == k, identity, -1)), wanted, rng) for k in range(parts)]
    i, j, weight = (np.concatenate(column) for column in zip(S, *drawn, strict=True))
    if len(i) == len(S.i):
        raise ValueError("all samples are known to be the same: no dissimilar pair can be drawn")
    similar = np.arange(len(i)) < len(S.i)
    return Pairs(i, j, similar, n=n, weight=weight)


def _subset(edges: EdgeList, n: int, rng: np.random.RandomState) -> EdgeList:
    """n of the edges, or all of them if there are no more."""
    if len(edges.i) <= n:
        return edges
    keep = np.sort(rng.choice(len(edges.i), n, replace=False))
    return EdgeList(edges.i[keep], edges.j[keep], edges.weight[keep])


def _random_similar(labels: Labels, n: int, balanced: bool, rng: np.random.RandomState) -> EdgeList:
    counts = labels.counts.astype(np.float64)
    available = counts * (counts - 1) / 2
    if available.sum() == 0:
        return EdgeList.make([], [])
    order = np.argsort(labels.codes, kind="stable")[(labels.codes < 0).sum() :]
    starts = np.concatenate([[0], np.cumsum(labels.counts)[:-1]])
    p = (available > 0) / (available > 0).sum() if balanced else available / available.sum()

    def draw(m: int) -> tuple[np.ndarray, np.ndarray]:
        c = rng.choice(len(counts), size=m, p=p)
        first = rng.randint(0, labels.counts[c])
        second = rng.randint(0, labels.counts[c] - 1)
        second += second >= first
        return order[starts[c] + first], order[starts[c] + second]

    return _distinct(draw, min(n, int(available.sum())))


def _some_dissimilar(labels: Labels, n: int, rng: np.random.RandomState) -> EdgeList:
    """n dissimilar pairs, or all if there are no more."""
    if n > labels.pair_counts[1] / 4:
        return _subset(labels.dissimilar, n, rng)
    return _random_dissimilar(labels, n, rng)


def _random_dissimilar(labels: Labels, n: int, rng: np.random.RandomState) -> EdgeList:
    available = labels.pair_counts[1]
    if available == 0:
        return EdgeList.make([], [])
    rows = np.flatnonzero(labels.labelled)

    def draw(m: int) -> tuple[np.ndarray, np.ndarray]:
        i, j = rows[rng.randint(0, len(rows), size=(2, m))]
        keep = labels.codes[i] != labels.codes[j]
        return i[keep], j[keep]

    return _distinct(draw, min(n, int(available)))


def _distinct(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], n: int) -> EdgeList:
    """n distinct unordered pairs from a function that proposes pairs. Stops short if they are nearly used up."""
    i, j = np.zeros(0, np.intp), np.zeros(0, np.intp)
    for _ in range(100):
        if len(i) >= n:
            break
        a, b = draw(max(64, int(1.1 * (n - len(i)))))
        i, j = unique_pairs(np.concatenate([i, a]), np.concatenate([j, b]))
    return EdgeList.make(i[:n], j[:n])
