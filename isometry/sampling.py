"""Which pairs, triplets or chunklets a method looks at, drawn from labels.

A sampler is a small parameter object: ``ITML(pairs=RandomPairs(500))`` is searchable as ``pairs__n``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from isometry.core.edges import Edges, ListedEdges, Loss, TriangleEdges
from isometry.core.graph import nearest_allowed, target_neighbors
from isometry.parameters import KW_ONLY, parameters
from isometry.supervision import Chunklets, EdgeList, Labels, Pairs, Supervision, Triplets

__all__ = ["AllPairs", "NeighborPairs", "NeighborTriplets", "RandomChunklets", "RandomPairs"]

AUTO_ALL_PAIRS = 2_000_000  # up to this many pairs "auto" takes all of them: the blocked form makes that cheap
REMEMBERED = 1_000  # up to this many samples the signs of all pairs are kept, 16 bytes a pair


class Sampler(BaseEstimator):
    """Abstract: draws a supervision object from labels."""

    def draw(self, X: np.ndarray, labels: Labels, rng: np.random.RandomState) -> Supervision:
        raise NotImplementedError


class AllPairs(Sampler):
    """All pairs of labelled samples, never listed: distances are visited in blocks."""

    def draw(self, X, labels, rng):
        return labels


@parameters
class RandomPairs(Sampler):
    """``n`` similar and ``n`` dissimilar pairs, uniform over pairs, without replacement.

    ``balanced=True`` draws the class of a similar pair uniformly instead, so that small classes count as much as large.
    """

    n: int = 100_000
    _: KW_ONLY
    balanced: bool = False

    def draw(self, X, labels, rng):
        n_c, n = labels.counts.astype(float), float(labels.counts.sum())
        n_similar = np.sum(n_c * (n_c - 1)) / 2
        n_dissimilar = n * (n - 1) / 2 - n_similar
        # where most pairs are wanted, chance would take long to find the last ones: list all and leave some out
        similar = (
            _some(labels.similar, self.n, rng)
            if self.n > n_similar / 4 and not self.balanced
            else EdgeList.make(*_random_similar(labels, self.n, self.balanced, rng))
        )
        dissimilar = (
            _some(labels.dissimilar, self.n, rng)
            if self.n > n_dissimilar / 4
            else EdgeList.make(*_random_dissimilar(labels, self.n, rng))
        )
        return Pairs.from_edges(similar, dissimilar, len(labels))


@parameters
class NeighborPairs(Sampler):
    """Each sample with its k nearest samples of the same label and its k nearest of other labels."""

    k: int = 3

    def draw(self, X, labels, rng):
        codes = labels.codes
        hits = target_neighbors(X, codes, self.k)
        misses, _ = nearest_allowed(X, self.k, lambda rows: codes[rows, None] != codes)
        parts = [(np.repeat(np.arange(len(X)), t.shape[1]), t.ravel()) for t in (hits, misses)]
        (si, sj), (di, dj) = [(i[j >= 0], j[j >= 0]) for i, j in parts]
        return Pairs.from_edges(EdgeList.make(*_unique(si, sj)), EdgeList.make(*_unique(di, dj)), len(X))


@parameters
class NeighborTriplets(Sampler):
    """Each sample with its k nearest of the same label, against its k nearest of other labels: k² triplets a sample."""

    k: int = 3

    def draw(self, X, labels, rng):
        codes = labels.codes
        hits = target_neighbors(X, codes, self.k)  # (n, k)
        misses, _ = nearest_allowed(X, self.k, lambda rows: codes[rows, None] != codes)
        shape = (len(X), hits.shape[1], misses.shape[1])
        a = np.broadcast_to(np.arange(len(X))[:, None, None], shape).ravel()
        p, n = np.broadcast_to(hits[:, :, None], shape).ravel(), np.broadcast_to(misses[:, None, :], shape).ravel()
        keep = (p >= 0) & (n >= 0)
        return Triplets(a[keep], p[keep], n[keep], n_samples=len(X))


@parameters
class RandomChunklets(Sampler):
    """Random groups of ``size`` samples within each class; ``n`` groups in all (None: as many as there are)."""

    n: int | None = None
    _: KW_ONLY
    size: int = 2

    def draw(self, X, labels, rng):
        codes = labels.codes
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        order = order[codes[order] >= 0]
        starts = np.concatenate([[0], np.cumsum(labels.counts)])
        place = np.arange(len(order)) - starts[codes[order]]  # position within the class
        full = place < (labels.counts // self.size * self.size)[codes[order]]
        group_of = np.cumsum(full & (place % self.size == 0)) - 1
        n_groups = group_of[-1] + 1 if len(order) else 0
        if n_groups == 0:
            raise ValueError(f"no class has {self.size} samples: no chunklet of that size can be drawn")
        chosen = rng.permutation(n_groups)[: self.n]
        renamed = np.full(n_groups, -1)
        renamed[chosen] = np.arange(len(chosen))
        chunk = np.full(len(codes), -1)
        chunk[order[full]] = renamed[group_of[full]]
        return Chunklets(chunk)


@dataclass(frozen=True)
class SignedEdges:
    """Similar and dissimilar pairs in the form the engine evaluates: in dense blocks, or listed."""

    edges: Edges
    n_similar: float  # total weight of the similar pairs
    n_dissimilar: float
    codes: np.ndarray | None = None  # dense: labels
    sign: np.ndarray | None = None  # listed: +1 similar, −1 dissimilar
    weight: np.ndarray | None = None  # listed

    def loss(
        self,
        link: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
        *,
        similar: float = 1.0,
        dissimilar: float = 1.0,
    ) -> Loss:
        """Σ over pairs of weight · ℓ(d, t), where ``link(d, t) → (ℓ, ∂ℓ/∂d)`` works elementwise and t is ±1.

        ``similar`` and ``dissimilar`` weigh the two kinds, e.g. 1/n_similar to average.
        """
        if self.codes is not None:
            codes = self.codes

            def signs(start, stop, dtype):
                same = codes[start:stop, None] == codes[start:]  # (b, n − start)
                weight = np.where(same, dtype.type(similar), dtype.type(dissimilar))
                weight[:, : len(same)][np.tri(len(same), dtype=bool)] = 0  # pairs that another anchor counts
                return np.where(same, dtype.type(1), dtype.type(-1)), weight

            if len(codes) <= REMEMBERED:
                signs = cache(signs)

            def dense(D, rows):
                sign, weight = signs(rows.start, rows.stop, D.dtype)
                value, slope = link(D, sign)
                slope *= weight
                return float(np.einsum("ij,ij->", value, weight, dtype=np.float64)), slope

            return dense
        assert self.sign is not None and self.weight is not None  # listed
        sign, weight = self.sign, self.weight * np.where(self.sign > 0, similar, dissimilar)

        def listed(d, block):
            value, slope = link(d, sign[block].astype(d.dtype, copy=False))
            return float(value @ weight[block]), slope * weight[block]

        return listed


def signed_edges(
    side: Supervision, sampler: Any, X: np.ndarray, rng: np.random.RandomState, *, listed: bool = False
) -> SignedEdges:
    """Pairs for a method that looks at every pair: from Pairs as they are, from Labels by the sampler.

    ``sampler="auto"``: all pairs while there are at most two million, else 100,000 of each kind at random; the latter
    always if they must be ``listed``, to be taken in batches.
    """
    if isinstance(side, Labels):
        if listed and isinstance(sampler, AllPairs):
            raise ValueError("batch_size takes pairs from a list, and AllPairs() makes none: use RandomPairs(n)")
        side = choose_pairs(side, RandomPairs() if listed and sampler == "auto" else sampler, X, rng)
    if isinstance(side, Labels):
        n_c, n = side.counts.astype(float), float(side.counts.sum())
        n_similar = float(np.sum(n_c * (n_c - 1)) / 2)
        return SignedEdges(TriangleEdges(len(side)), n_similar, n * (n - 1) / 2 - n_similar, codes=side.codes)
    S, D = side.similar, side.dissimilar
    sign = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
    i, j, weight = (np.concatenate(part) for part in zip(S, D, strict=True))
    return SignedEdges(
        ListedEdges(i, j, len(side)), float(S.weight.sum()), float(D.weight.sum()), sign=sign, weight=weight
    )


def choose_pairs(labels: Labels, sampler: Any, X: np.ndarray, rng: np.random.RandomState) -> Supervision:
    """Labels themselves (all pairs, implicit) or the pairs a sampler draws."""
    if isinstance(sampler, str) and sampler == "auto":
        n = len(labels)
        sampler = AllPairs() if n * (n - 1) / 2 <= AUTO_ALL_PAIRS else RandomPairs()
    if not isinstance(sampler, Sampler):
        raise TypeError(f"pairs must be 'auto' or a sampler such as AllPairs() or RandomPairs(500), got {sampler!r}")
    return sampler.draw(X, labels, rng)


def _some(edges: EdgeList, n: int, rng: np.random.RandomState) -> EdgeList:
    """n of the edges, or all of them if there are no more."""
    if len(edges.i) <= n:
        return edges
    keep = np.sort(rng.choice(len(edges.i), n, replace=False))
    return EdgeList(edges.i[keep], edges.j[keep], edges.weight[keep])


def _random_similar(labels: Labels, n: int, balanced: bool, rng) -> tuple[np.ndarray, np.ndarray]:
    counts = labels.counts.astype(np.float64)
    available = counts * (counts - 1) / 2
    order = np.argsort(labels.codes, kind="stable")[(labels.codes < 0).sum() :]
    starts = np.concatenate([[0], np.cumsum(labels.counts)[:-1]])
    if available.sum() == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    p = (available > 0) / (available > 0).sum() if balanced else available / available.sum()

    def draw(m):
        c = rng.choice(len(counts), size=m, p=p)
        first = rng.randint(0, labels.counts[c])
        second = rng.randint(0, labels.counts[c] - 1)
        second += second >= first
        return order[starts[c] + first], order[starts[c] + second]

    return _distinct(draw, min(n, int(available.sum())))


def _random_dissimilar(labels: Labels, n: int, rng) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero(labels.labelled)
    total, counts = float(len(rows)), labels.counts.astype(float)
    available = (total**2 - np.sum(counts**2)) / 2
    if available == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)

    def draw(m):
        i, j = rows[rng.randint(0, len(rows), size=(2, m))]
        keep = labels.codes[i] != labels.codes[j]
        return i[keep], j[keep]

    return _distinct(draw, min(n, int(available)))


def _distinct(draw, n: int) -> tuple[np.ndarray, np.ndarray]:
    """n distinct unordered pairs from a function that proposes pairs. Stops short if they are nearly used up."""
    i, j = np.zeros(0, np.intp), np.zeros(0, np.intp)
    for _ in range(100):
        if len(i) >= n:
            break
        a, b = draw(max(64, int(1.1 * (n - len(i)))))
        i, j = _unique(np.concatenate([i, a]), np.concatenate([j, b]))
    return i[:n], j[:n]


def _unique(i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each unordered pair once, in the order of first appearance."""
    low, high = np.minimum(i, j).astype(np.int64), np.maximum(i, j).astype(np.int64)
    _, first = np.unique(low * (int(high.max(initial=0)) + 1) + high, return_index=True)
    first.sort()
    return low[first].astype(np.intp), high[first].astype(np.intp)
