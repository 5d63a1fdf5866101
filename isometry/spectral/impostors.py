"""What LMNN minimises: pull on target neighbours, push on impostors or on given triplets."""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn import get_config

from isometry.core.distance import pair_sqdist, row_blocks, sqdist, sqdist_factors
from isometry.core.edges import ListedEdges
from isometry.core.hinge import rounded_hinge
from isometry.core.scatter import pair_scatter
from isometry.core.threads import in_threads, n_threads
from isometry.spectral.large_margin import HingeSums
from isometry.supervision import Triplets

BYTES_PER_PAIR = 160  # of a list in use
ROWS, COLUMNS = 128, 2048  # of a tile of distances
CROWDED = 0.015  # share of all pairs from which a list is slower than looking at all of them
SHARP = 1e-12  # width of the rounding of a hinge that is as good as sharp, in units of the margin
THREADED = 1000  # points from which threads are worth their start
JUDGED = 1 << 21  # pairs of a target and an impostor that judge a multiple


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
    is checked at every evaluation. Where impostors crowd there is no list, and all pairs are visited. If the user sets
    a limit, each anchor keeps its nearest ones, and the list stays until ``search`` makes it anew.
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
        self.rim, self.used, self.crowded = 0.0, 0, False
        self.room = np.zeros((0, 0, 0))

    @property
    def patience(self) -> int:
        """Iterations for which a list is good."""
        return sys.maxsize if self.cap is None else 20

    def _measure(self, L) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Points (n, p), differences to targets, their squares (n, k), and how far (n,) an impostor can be."""
        Z = self.X @ L.T.astype(self.X.dtype)
        delta, to = self._room(Z)
        np.take(Z, self.targets.i, axis=0, out=delta, mode="clip")
        np.take(Z, self.targets.j, axis=0, out=to, mode="clip")
        delta -= to
        t = np.full(self.valid.shape, -np.inf)  # where there is no target
        t[self.valid] = np.einsum("ij,ij->i", delta, delta)
        return Z, delta, t, np.sqrt(np.maximum(self.margin + t.max(axis=1), 0))

    def _room(self, Z) -> np.ndarray:
        """(2, m, p) for the ends of the target pairs; kept, because fresh pages cost more than what is done on them."""
        shape = 2, len(self.targets.i), Z.shape[1]
        if self.room.shape != shape:
            self.room = np.empty(shape, dtype=Z.dtype)
        return self.room

    def restart(self, L) -> Near | None:
        """Forget the list and make it anew."""
        self.near, self.cap, self.rim, self.crowded = None, None, 0.0, False
        Z, _, _, reach = self._measure(L)
        return self._list(Z, reach)

    def search(self, L) -> int:
        """Bring a limited list up to date; returns how many impostors it lacked. Others look after themselves."""
        if self.cap is None:
            return 0
        n, before, after = len(self.X), self.near, self.restart(L)
        if before is None or after is None:
            return 0 if after is None else len(after.a)
        return int((~np.isin(after.a * n + after.b, before.a * n + before.b)).sum())

    def __call__(self, L, mu, tau):
        Z, delta, t, reach = self._measure(L)
        sums, weight, G = self._push(Z, t, reach, tau, Z)
        delta *= weight[self.valid].astype(delta.dtype)[:, None]
        G += self.targets.incidence.T @ delta
        LA = (1 - mu) * L @ self.pull
        pull = float(np.vdot(LA, L))
        return mu * sums.rounded + pull, 2 * (mu * (G.T @ self.X) + LA), mu * sums.sharp(tau) + pull

    def push_gradient(self, L, tau) -> tuple[np.ndarray, HingeSums]:
        """∂/∂W (d, d) of the sum of hinges rounded over τ, and the sums."""
        (Z, _, t, reach), X = self._measure(L), self.X.astype(np.float64, copy=False)
        sums, weight, pull = self._push(Z, t, reach, tau, X)
        return X.T @ (pull + self.targets.pull(weight[self.valid], X)), sums

    def _push(self, Z, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """Sums of hinges, slopes (n, k) in the targets' distances, Laplacian of the slopes in pairs times V (n, ·)."""
        near = self._listed(Z, reach)
        return self._all_pairs(Z, t, reach, tau, V) if near is None else self._listed_pairs(near, t, reach, tau, V)

    def _hinges(self, near: Near, t, reach, tau) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """Sums over pairs, their slopes (n, k) in squared distances of targets, and those (m,) in the pairs' own."""
        (a, b, d, of_a, of_b), n = near, len(t)
        value, squares, slopes, weight = 0.0, 0.0, np.zeros(len(d)), np.zeros(t.shape)
        for anchor, allowed in ((a, of_a), (b, of_b)):
            live = np.flatnonzero((d < reach[anchor] ** 2) & (True if allowed is None else allowed))
            i = anchor[live]
            h, slope = rounded_hinge(self.margin + t[i] - d[live, None], tau)  # (m, k)
            value, squares = value + float(h.sum()), squares + float(np.vdot(slope, slope))
            slopes[live] -= slope.sum(axis=1)
            for j in range(t.shape[1]):
                weight[:, j] += np.bincount(i, slope[:, j], n)
        return HingeSums(value, float(weight.sum()), squares), weight, slopes

    def _listed_pairs(self, near: Near, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        sums, weight, slopes = self._hinges(near, t, reach, tau)
        live = np.flatnonzero(slopes)
        return sums, weight, ListedEdges(near.a[live], near.b[live], len(V)).pull(slopes[live], V)

    def _all_pairs(self, Z, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """The same tile by tile, without a list."""
        left, right, bound = sieve(Z, reach**2, Z.dtype)

        def work(part: int, parts: int) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
            sums, count, weight, pull = np.zeros(3), 0, np.zeros(t.shape), np.zeros(V.shape)
            for rows, columns, same in self._tiles[part::parts]:
                D = left[rows] @ right[columns].T  # (b, c)
                near = close_pairs(D, bound, rows, columns, same)
                f, w, slopes = self._hinges(near, t, reach, tau)
                sums, count, weight = sums + f, count + len(slopes), weight + w
                D.fill(0)
                D[near.a - rows.start, near.b - columns.start] = slopes
                pull[rows] += D.sum(axis=1)[:, None] * V[rows] - D @ V[columns]
                pull[columns] += D.sum(axis=0)[:, None] * V[columns] - D.T @ V[rows]
            return sums, count, weight, pull

        sums, counts, weights, pulls = zip(*in_threads(work, n_threads() if len(Z) >= THREADED else 1))
        self.crowded = sum(counts) > self._most / 2
        return HingeSums(*map(float, np.sum(sums, axis=0))), np.sum(weights, axis=0), np.sum(pulls, axis=0)

    @property
    def _most(self) -> int:
        """Pairs that a list may have."""
        n, memory = len(self.X), get_config()["working_memory"] * 2**20
        return min(int(memory / BYTES_PER_PAIR), max(int(CROWDED * n * n), 20_000))

    @cached_property
    def _tiles(self) -> list[tuple[slice, slice, np.ndarray]]:
        """Rows × columns of later classes, and (b, c') which of their first columns share the class of a row."""
        n, end, tiles = len(self.X), self.class_end, []
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            for c in range(end[start], n, COLUMNS):
                columns = slice(c, min(c + COLUMNS, n))
                mixed = max(0, min(end[rows.stop - 1], columns.stop) - c)
                tiles.append((rows, columns, np.arange(c, c + mixed) < end[rows, None]))
        return tiles

    def _listed(self, Z, reach) -> Near | None:
        """The list, with distances in the current metric; made anew if it may lack an impostor. None: too many."""
        self.used += 1
        if self.crowded and self.cap is None:
            return None
        if self.near is not None and self.cap is not None:
            return self.near._replace(sqdist=pair_sqdist(Z, self.near.a, self.near.b))
        if self.near is not None and self.rim > 0:
            drift = np.sqrt(np.einsum("ij,ij->i", Z - self.place, Z - self.place))
            drift += drift.max()  # of both ends of a pair
            if np.all(reach + drift <= self.radius):
                return self.near._replace(sqdist=pair_sqdist(Z, self.near.a, self.near.b))
        return self._list(Z, reach)

    def _list(self, Z, reach) -> Near | None:
        rim, limit = self._next_rim(Z, reach), self.max_impostors
        near = self._pairs_within(Z, reach + rim)
        if near is None and rim > 0:
            rim, near = 0.0, self._pairs_within(Z, reach)
        if limit is not None and (near is None or crowd(near, reach).max(initial=0) > limit):
            self.cap, near = limit, self._nearest(Z, reach, limit)
        if near is not None:
            self.near, self.place, self.reach, self.radius, self.rim, self.used = near, Z, reach, reach + rim, rim, 0
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

    def _pairs_within(self, Z, radius) -> Near | None:
        """Pairs of different classes that are nearer than the larger of their radii; None if there are too many."""
        square = radius**2
        unit = float(np.abs(Z).max()) or 1.0  # float32 overflows and underflows early
        left, right, bound = sieve(Z / unit, square / unit**2, np.float32)
        parts = n_threads() if len(Z) >= THREADED else 1

        def work(part: int, parts: int) -> list[Near]:
            none = np.zeros(0, dtype=np.intp)
            found, count = [Near(none, none, np.zeros(0))], 0
            for rows, columns, same in self._tiles[part::parts]:
                found.append(close_pairs(left[rows] @ right[columns].T, bound, rows, columns, same))
                count += len(found[-1].a)
                if count > self._most // parts:
                    return []
            return found

        shares = in_threads(work, parts)
        if not all(shares):
            return None
        a, b = (np.concatenate([tile[side] for share in shares for tile in share]) for side in (0, 1))
        d = pair_sqdist(Z, a, b)
        keep = np.flatnonzero(d < np.maximum(square[a], square[b]))
        order = keep[np.argsort(a[keep], kind="stable")]
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
        """The objective with the sharp hinge over all impostors, whether or not their number is limited."""
        if self.cap is None:
            return self(L, mu, SHARP * self.margin)[2]
        Z, _, t, reach = self._measure(L)
        sums, _, _ = self._all_pairs(Z, t, reach, SHARP * self.margin, Z)
        return (1 - mu) * float(np.vdot(L @ self.pull, L)) + mu * sums.rounded

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(anchor, target, impostor) for every target and every point of another class, as rows of ``X``."""
        e = self.targets
        which, l = np.nonzero(self.codes[e.i, None] != self.codes)
        if len(l) > 500_000:
            raise ValueError(
                f"solver='sdp' is for small problems; {len(self.X)} samples make {len(l)} triplets. Use solver='lbfgs'"
            )
        return e.i[which], e.j[which], l


def best_multiple(
    Z: np.ndarray, codes: np.ndarray, targets: np.ndarray, mu: float, margin: float, rng: np.random.RandomState
) -> float:
    """w > 0 for which the squared distances w |z_i − z_j|² have the least loss, judged by some anchors if n is large.

    The loss is convex in w: its slope (1 − μ) Σ t + μ Σ (t − d) over impostors, d < t + margin/w, changes sign once.
    """
    n, k = targets.shape
    most = max(1, JUDGED // (n * k))
    some = np.arange(n) if n <= most else rng.permutation(n)[:most]
    D, partners = sqdist(Z[some], Z), targets[some]  # (a, n), (a, k)
    t = np.where(partners >= 0, np.take_along_axis(D, partners, axis=1), -np.inf)
    strangers = codes[some, None] != codes
    gaps = (t[:, :, None] - np.where(strangers, D, np.inf)[:, None]).ravel()  # (a k n,)
    gaps, pull = gaps[np.isfinite(gaps)].astype(np.float64), float(t[partners >= 0].sum())
    unit = float(D.mean(dtype=np.float64))

    def slope(w: float) -> float:
        return (1 - mu) * pull + mu * float(gaps[gaps > -margin / w].sum())

    if mu == 0 or not 0 < unit < np.inf or slope(1.0) == 0:  # no best one, or none better
        return 1.0
    low, high = -12.0, 12.0  # log₂ of w, in units of the margin over the mean distance
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(margin / unit * 2.0**middle) < 0 else (low, middle)
    return margin / unit * 2.0**low


def sieve(Z: np.ndarray, square: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """left, right (n, p + 2) and bound (n,): where leftᵢᵀrightⱼ ≥ boundᵢ, the squared distance ≥ squareᵢ for certain.

    The products are squared distances; bounds are so much wider as rounding can move them.
    """
    sq = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
    rounding = 2 * (Z.shape[1] + 4) * np.finfo(dtype).eps * (sq + sq.max())
    return *sqdist_factors(Z, dtype), (square + rounding).astype(dtype)


def close_pairs(D: np.ndarray, bound: np.ndarray, rows: slice, columns: slice, same: np.ndarray) -> Near:
    """The pairs of a tile of squared distances below the bound of one of their ends, and not of the same class."""
    close = bound[rows, None] > D
    close |= bound[columns] > D
    close[:, : same.shape[1]][same] = False
    flat = np.flatnonzero(close)
    i, j = np.divmod(flat, D.shape[1])
    return Near(i + rows.start, j + columns.start, np.maximum(D.ravel()[flat], 0))


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
        pull = float(np.vdot(LA, L))
        sharp = mu * float(np.maximum(h, 0).sum()) + pull
        return mu * float(value.sum()) + pull, 2 * (mu * G.T @ self.X + LA), sharp

    def push_gradient(self, L, tau) -> tuple[np.ndarray, HingeSums]:
        X = self.X.astype(np.float64, copy=False)
        Z = self.X @ L.T.astype(self.X.dtype)
        h = self.margin + pair_sqdist(Z, self.near.i, self.near.j) - pair_sqdist(Z, self.far.i, self.far.j)
        value, slope = rounded_hinge(h, tau)
        G = X.T @ (self.near.pull(slope, X) - self.far.pull(slope, X))
        return G, HingeSums(float(value.sum()), float(slope.sum()), float(np.vdot(slope, slope)))

    def value(self, L, mu) -> float:
        return self(L, mu, SHARP * self.margin)[2]

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.triplets.a, self.triplets.p, self.triplets.n
