"""What LMNN minimises: pull on target neighbours, push on impostors or on given triplets."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np
from sklearn import get_config

from isometry.core.distance import pair_sqdist, row_blocks, sqdist
from isometry.core.edges import ListedEdges
from isometry.core.hinge import rounded_hinge
from isometry.core.scatter import pair_scatter
from isometry.core.threads import in_threads, n_threads
from isometry.supervision import Triplets

BYTES_PER_PAIR = 160  # of a list in use
ROWS, COLUMNS = 128, 2048  # of a tile of distances
THREADED = 1000  # points from which threads are worth their start


class Near(NamedTuple):
    """Pairs a < b of different classes, one of which may be an impostor of the other."""

    a: np.ndarray
    b: np.ndarray
    sqdist: np.ndarray  # in the metric of the list
    of_a: np.ndarray | None = None  # where b may count as impostor of a; None: wherever it is one
    of_b: np.ndarray | None = None


class Impostors:
    """The objective for labels. Targets are fixed; impostors are listed with a rim around them.

    The list is complete as long as no point has moved so far that a pair outside the rim could have become one, which
    is checked at every evaluation. If the list outgrows the memory, or the user sets a limit, each anchor keeps its
    nearest ones, and the list stays until ``search`` makes it anew.
    """

    def __init__(self, X, codes, targets, margin, max_impostors):
        n, k = targets.shape
        self.order = np.argsort(codes, kind="stable")  # class by class: partners of other classes come in one piece
        rank = np.argsort(self.order)
        self.X, self.codes, self.margin, self.max_impostors = X[self.order], codes[self.order], margin, max_impostors
        targets = np.where(targets >= 0, rank[targets], -1)[self.order]
        self.class_end = np.searchsorted(self.codes, self.codes, side="right")  # (n,)
        self.valid = targets >= 0  # (n, k)
        i = np.repeat(np.arange(n), k)[self.valid.ravel()]
        self.targets = ListedEdges(i, targets[self.valid], n)
        self.pull = pair_scatter(self.X, self.targets.i, self.targets.j)  # (d, d)
        self.cap: int | None = None  # impostors an anchor may have, if that limits any
        self.near: Near | None = None
        self.place = self.reach = self.radius = np.zeros(0)  # points, reach and reach with rim, where the list was made
        self.rim, self.used = 0.0, 0

    @property
    def patience(self) -> int:
        """Iterations for which a list is good."""
        return sys.maxsize if self.cap is None else 20

    def _measure(self, L) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Points (n, p), differences to targets, their squares (n, k), and how far (n,) an impostor can be."""
        Z = self.X @ L.T.astype(self.X.dtype)
        delta = Z[self.targets.i] - Z[self.targets.j]
        t = np.full(self.valid.shape, -np.inf)  # where there is no target
        t[self.valid] = np.einsum("ij,ij->i", delta, delta)
        return Z, delta, t, np.sqrt(np.maximum(self.margin + t.max(axis=1), 0))

    def restart(self, L) -> Near:
        """Forget the list and make it anew."""
        self.near, self.cap, self.rim = None, None, 0.0
        Z, _, _, reach = self._measure(L)
        return self._list(Z, reach)

    def search(self, L) -> int:
        """Bring a limited list up to date; returns how many impostors it lacked. Others look after themselves."""
        if self.near is not None and self.cap is None:
            return 0
        n, before, after = len(self.X), self.near, self.restart(L)
        if before is None:
            return len(after.a)
        return int((~np.isin(after.a * n + after.b, before.a * n + before.b)).sum())

    def __call__(self, L, mu, tau):
        n = len(self.X)
        Z, delta, t, reach = self._measure(L)
        a, b, d, of_a, of_b = self._listed(Z, reach)
        value, slopes, weight = 0.0, np.zeros(len(d)), np.zeros(t.shape)  # weight: live triplets of each target pair
        for anchor, allowed in ((a, of_a), (b, of_b)):
            live = np.flatnonzero((d < reach[anchor] ** 2) & (True if allowed is None else allowed))
            i = anchor[live]
            h, slope = rounded_hinge(self.margin + t[i] - d[live, None], tau)  # (m, k)
            value += float(h.sum())
            slopes[live] += slope.sum(axis=1)
            for j in range(t.shape[1]):
                weight[:, j] += np.bincount(i, slope[:, j], n)
        live = np.flatnonzero(slopes)
        G = ListedEdges(a[live], b[live], n).pull(-mu * slopes[live], Z)
        G += self.targets.incidence.T @ (delta * (mu * weight[self.valid])[:, None])
        LA = (1 - mu) * L @ self.pull
        return mu * value + float(np.vdot(LA, L)), 2 * (G.T @ self.X + LA)

    def _listed(self, Z, reach) -> Near:
        """The list, with distances in the current metric; made anew if it may lack an impostor."""
        self.used += 1
        if self.near is not None and self.cap is not None:
            return self.near._replace(sqdist=pair_sqdist(Z, self.near.a, self.near.b))
        if self.near is not None and self.rim > 0:
            drift = np.sqrt(np.einsum("ij,ij->i", Z - self.place, Z - self.place))
            drift += drift.max()  # of both ends of a pair
            if np.all(reach + drift <= self.radius):
                return self.near._replace(sqdist=pair_sqdist(Z, self.near.a, self.near.b))
        return self._list(Z, reach)

    def _list(self, Z, reach) -> Near:
        self.rim = self._next_rim(Z, reach)
        pairs = int(get_config()["working_memory"] * 2**20 / BYTES_PER_PAIR)
        near = self._pairs_within(Z, reach + self.rim, pairs)
        if near is None and self.rim > 0:
            self.rim, near = 0.0, self._pairs_within(Z, reach, pairs)
        limit = self.max_impostors
        if near is None and limit is None:
            limit = max(10, pairs // len(Z))
        if near is None or (limit is not None and crowd(near, reach).max(initial=0) > limit):
            self.cap, near = limit, self._nearest(Z, reach, limit)
        self.near, self.place, self.reach, self.radius, self.used = near, Z, reach, reach + self.rim, 0
        return near

    def _next_rim(self, Z, reach) -> float:
        """Wide enough for a few evaluations at the present pace, or none if that is not worth the longer list."""
        if self.near is None or self.place.shape != Z.shape:
            return 0.0
        drift = np.sqrt(np.einsum("ij,ij->i", Z - self.place, Z - self.place))
        pace = float((reach + drift + drift.max() - self.reach).max()) / max(self.used, 1)
        n, p = Z.shape
        gather, matrix = len(self.near.a) * (50 + 5 * p), n * n * (1 + 0.02 * p)  # nanoseconds
        return 5 * pace if 0 < 5 * pace < 0.1 * np.median(reach) and gather < matrix else 0.0

    def _pairs_within(self, Z, radius, most: int) -> Near | None:
        """Pairs of different classes that are nearer than the larger of their radii; None if there are too many."""
        n, end, square = len(Z), self.class_end, (radius**2).astype(Z.dtype)
        sq, one = np.einsum("ij,ij->i", Z, Z)[:, None], np.ones((n, 1), dtype=Z.dtype)
        left, right = np.hstack([Z, sq, one]), np.hstack([-2 * Z, one, sq])  # their products are squared distances
        parts = n_threads() if n >= THREADED else 1
        starts = range(0, n, ROWS)

        def work(part: int, parts: int) -> dict[int, list[tuple[np.ndarray, ...]]]:
            found: dict[int, list[tuple[np.ndarray, ...]]] = {}
            count = 0
            for start in starts[part::parts]:
                rows = slice(start, min(start + ROWS, n))
                found[start] = []
                for c in range(end[start], n, COLUMNS):
                    columns = slice(c, min(c + COLUMNS, n))
                    D = left[rows] @ right[columns].T  # (b, c)
                    close = square[rows, None] > D
                    close |= square[columns] > D
                    if c < end[rows.stop - 1]:  # the block holds several classes
                        close &= np.arange(columns.start, columns.stop) >= end[rows, None]
                    flat = np.flatnonzero(close)
                    i, j = np.divmod(flat, columns.stop - c)
                    found[start].append((i + start, j + c, np.maximum(D.ravel()[flat], 0)))
                    count += len(flat)
                    if count > most // parts:
                        return {}
            return found

        blocks: dict[int, list[tuple[np.ndarray, ...]]] = {}
        for found in in_threads(work, parts):
            blocks |= found
        if len(blocks) < len(starts):
            return None
        tiles = [tile for start in starts for tile in blocks[start]]
        if not tiles:
            empty = np.zeros(0, dtype=np.intp)
            return Near(empty, empty, np.zeros(0))
        a, b, d = (np.concatenate(part) for part in zip(*tiles))
        order = np.argsort(a, kind="stable")
        return Near(a[order], b[order], d[order])

    def _nearest(self, Z, reach, cap) -> Near:
        """The nearest ``cap`` impostors of every anchor, as unordered pairs with a note of whose impostors they are."""
        n, keys = len(Z), []
        for rows in row_blocks(n, n * Z.itemsize):
            D = sqdist(Z[rows], Z)
            D[self.codes[rows, None] == self.codes] = np.inf
            close = (1.25 * reach[rows] ** 2)[:, None] > D
            crowded = np.flatnonzero(close.sum(axis=1) > cap)
            if len(crowded):
                kth = np.partition(D[crowded], cap - 1, axis=1)[:, cap - 1 : cap]
                close[crowded] &= D[crowded] <= kth
            i, l = np.nonzero(close)
            keys.append((i + rows.start).astype(np.int64) * n + l)
        ordered = np.concatenate(keys)
        i, l = ordered // n, ordered % n
        pair = np.unique(np.minimum(i, l) * n + np.maximum(i, l))
        a, b = pair // n, pair % n
        of_a, of_b = (np.isin(key, ordered, assume_unique=True) for key in (a * n + b, b * n + a))
        return Near(a, b, pair_sqdist(Z, a, b), of_a, of_b)

    def value(self, L, mu) -> float:
        """The objective with the sharp hinge over all impostors, without a list."""
        Z, _, t, _ = self._measure(L)
        t, push = np.sort(t, axis=1), 0.0
        for rows in row_blocks(len(Z), len(Z) * Z.itemsize):
            D = sqdist(Z[rows], Z)
            D[self.codes[rows, None] == self.codes] = np.inf
            for j in range(t.shape[1]):
                h = self.margin + t[rows, j, None] - D
                push += float(h[h > 0].sum(dtype=np.float64))
        return (1 - mu) * float(np.vdot(L @ self.pull, L)) + mu * push

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(anchor, target, impostor) for every target and every point of another class."""
        e = self.targets
        which, l = np.nonzero(self.codes[e.i, None] != self.codes)
        if len(l) > 500_000:
            raise ValueError(
                f"solver='sdp' is for small problems; {len(self.X)} samples make {len(l)} triplets. Use solver='lbfgs'"
            )
        return self.order[e.i[which]], self.order[e.j[which]], self.order[l]


def crowd(near: Near, reach: np.ndarray) -> np.ndarray:
    """(n,) impostors of each anchor."""
    n = len(reach)
    return sum(np.bincount(i[near.sqdist < reach[i] ** 2], minlength=n) for i in (near.a, near.b))  # type: ignore


class ListedTriplets:
    """The objective for given triplets; each pair (a, p) is pulled once."""

    cap, patience = None, sys.maxsize  # the list is complete

    def __init__(self, X, triplets: Triplets, margin):
        n = len(X)
        self.X, self.margin, self.triplets = X, margin, triplets
        pulled = np.unique(triplets.a.astype(np.int64) * n + triplets.p)
        self.pull = pair_scatter(X, pulled // n, pulled % n)
        self.near, self.far = ListedEdges(triplets.a, triplets.p, n), ListedEdges(triplets.a, triplets.n, n)

    def restart(self, L) -> None:
        """All triplets are listed for good."""

    def search(self, L) -> int:
        return 0

    def __call__(self, L, mu, tau):
        Z = self.X @ L.T.astype(self.X.dtype)
        near, far = (Z[e.i] - Z[e.j] for e in (self.near, self.far))
        h = self.margin + np.einsum("ij,ij->i", near, near) - np.einsum("ij,ij->i", far, far)
        value, slope = rounded_hinge(h, tau)
        G = self.near.incidence.T @ (near * slope[:, None]) - self.far.incidence.T @ (far * slope[:, None])
        LA = (1 - mu) * L @ self.pull
        return mu * value.sum() + float(np.vdot(LA, L)), 2 * (mu * G.T @ self.X + LA)

    def value(self, L, mu) -> float:
        return float(self(L, mu, 1e-12)[0])

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.triplets.a, self.triplets.p, self.triplets.n
