"""What LMNN minimises: distances to target neighbours, and hinges on impostors or on given triplets."""

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
from isometry.core.threads import in_slices, in_threads, n_threads, product
from isometry.spectral.large_margin import HingeSums
from isometry.supervision import Triplets

BYTES_PER_PAIR = 160  # memory that one listed pair takes, with all arrays computed from it
ROWS, COLUMNS = 256, 2048  # size of a tile of the distance matrix
MAX_LISTED_SHARE = 0.015  # if a list would hold more than this share of all pairs, visiting all of them is faster
SHARP_WIDTH = 1e-12  # in units of the margin; a hinge rounded over this width counts as not rounded
MIN_THREADED_POINTS = 1000  # with fewer points, starting threads takes longer than they save
MAX_SAMPLED_TRIPLETS = 1 << 21  # (anchor, target, other sample) that `best_multiple` computes the loss from


class CandidatePairs(NamedTuple):
    """Pairs a < b of different classes that are so near that one may be an impostor of the other."""

    a: np.ndarray
    b: np.ndarray
    sqdist: np.ndarray  # squared distances
    of_a: np.ndarray | None = None  # mask of the pairs in which b may count as impostor of a; None: all pairs
    of_b: np.ndarray | None = None  # the same for a as impostor of b


class Impostors:
    """The objective for labels. Targets are fixed; pairs that are impostors, or nearly so, are kept in a list.

    A sample is an impostor of an anchor if it has another class and lies within the anchor's reach. The list holds all
    pairs within reach + slack, so that it stays complete while points move a little; every evaluation checks this, and
    makes a new list if points have moved too far. If the list would be too long, all pairs are visited instead. If the
    user limits the number of impostors, each anchor keeps its nearest ones, and the list stays until ``refresh``.
    """

    def __init__(self, X, codes, targets, margin, max_impostors):
        n, k = targets.shape
        self.order = np.argsort(codes, kind="stable")  # sorted by class: samples of later classes are contiguous
        rank = np.argsort(self.order)
        self.X, self.codes, self.margin, self.max_impostors = X[self.order], codes[self.order], margin, max_impostors
        targets = np.where(targets >= 0, rank[targets], -1)[self.order]
        self.class_end = np.searchsorted(self.codes, self.codes, side="right")  # (n,)
        self.valid = targets >= 0  # (n, k)
        i = np.repeat(np.arange(n), k)[self.valid.ravel()]
        self.targets = ListedEdges(i, targets[self.valid], n)
        self.target_scatter = pair_scatter(self.X, self.targets.i, self.targets.j)  # (d, d)
        self.cap: int | None = None  # largest number of impostors of an anchor; None: no anchor has more than allowed
        self.listed_pairs: CandidatePairs | None = None  # the list
        self.slack = 0.0  # added to the reach of every anchor when the list was made
        self.listed_Z = np.zeros(0)  # (n, p) points when the list was made
        self.listed_reach = np.zeros(0)  # (n,) reach when the list was made
        self.n_evaluations = 0  # since the list was made
        self.visit_all = False  # whether all pairs are visited because a list would be too long
        self.buffer = np.zeros((0, 0, 0))

    @property
    def list_lifetime(self) -> int:
        """Iterations after which the list needs a ``refresh``."""
        return sys.maxsize if self.cap is None else 20

    def _measure(self, L) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Points (n, p), differences to targets, their squared lengths (n, k), and the reach (n,) of each anchor.

        Only samples of other classes within the reach of an anchor are impostors.
        """
        Z = product(self.X, L.T.astype(self.X.dtype))
        delta, ends = self._target_buffer(Z)
        sqdist = np.empty(len(delta), dtype=Z.dtype)

        def work(mine: slice) -> None:
            np.take(Z, self.targets.i[mine], axis=0, out=delta[mine], mode="clip")
            np.take(Z, self.targets.j[mine], axis=0, out=ends[mine], mode="clip")
            delta[mine] -= ends[mine]
            np.einsum("ij,ij->i", delta[mine], delta[mine], out=sqdist[mine])

        in_slices(work, len(delta), MIN_THREADED_POINTS)
        t = np.full(self.valid.shape, -np.inf)  # −inf where there is no target
        t[self.valid] = sqdist
        return Z, delta, t, np.sqrt(np.maximum(self.margin + t.max(axis=1), 0))

    def _target_buffer(self, Z) -> np.ndarray:
        """(2, m, p) for both ends of the target pairs; reused, because allocating it costs more than filling it."""
        shape = 2, len(self.targets.i), Z.shape[1]
        if self.buffer.shape != shape:
            self.buffer = np.empty(shape, dtype=Z.dtype)
        return self.buffer

    def restart(self, L) -> CandidatePairs | None:
        """Discard the list and make a new one."""
        self.listed_pairs = None
        self.cap = None
        self.slack = 0.0
        self.visit_all = False
        Z, _, _, reach = self._measure(L)
        return self._make_list(Z, reach)

    def refresh(self, L) -> int:
        """Make a limited list anew and count the pairs it lacked. Other lists are checked at each evaluation."""
        if self.cap is None:
            return 0
        n, before, after = len(self.X), self.listed_pairs, self.restart(L)
        if before is None or after is None:
            return 0 if after is None else len(after.a)
        return int((~np.isin(after.a * n + after.b, before.a * n + before.b)).sum())

    def __call__(self, L, mu, tau):
        Z, delta, t, reach = self._measure(L)
        sums, weight, G = self._push(Z, t, reach, tau, Z)
        delta *= weight[self.valid].astype(delta.dtype)[:, None]
        G += self.targets.incidence.T @ delta
        LA = (1 - mu) * L @ self.target_scatter
        target_loss = float(np.vdot(LA, L))
        gradient = 2 * (mu * product(G.T, self.X) + LA)
        return mu * sums.rounded + target_loss, gradient, mu * sums.sharp(tau) + target_loss

    def push_gradient(self, L, tau) -> tuple[np.ndarray, HingeSums]:
        """∂/∂W (d, d) of the sum of hinges rounded over τ, and the sums."""
        Z, _, t, reach = self._measure(L)
        X = self.X.astype(np.float64, copy=False)
        sums, weight, pull = self._push(Z, t, reach, tau, X)
        return product(X.T, pull + self.targets.pull(weight[self.valid], X)), sums

    def _push(self, Z, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """Sums of hinges, slopes (n, k) in the targets' distances, Laplacian of the slopes in pairs times V (n, ·)."""
        pairs = self._current_list(Z, reach)
        return self._sum_all(Z, t, reach, tau, V) if pairs is None else self._sum_listed(pairs, t, reach, tau, V)

    def _hinges(self, pairs: CandidatePairs, t, reach, tau) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """Sums over pairs, their slopes (n, k) in squared distances of targets, and those (m,) in the pairs' own."""
        a, b, d, of_a, of_b = pairs
        value, squares = 0.0, 0.0
        slopes, weight = np.zeros(len(d)), np.zeros(t.shape)
        for anchor, allowed in ((a, of_a), (b, of_b)):
            active = np.flatnonzero((d < reach[anchor] ** 2) & (True if allowed is None else allowed))
            i = anchor[active]
            h, slope = rounded_hinge(self.margin + t[i] - d[active, None], tau)  # (m, k)
            value += float(h.sum())
            squares += float(np.vdot(slope, slope))
            slopes[active] -= slope.sum(axis=1)
            for j in range(t.shape[1]):
                weight[:, j] += np.bincount(i, slope[:, j], len(t))
        return HingeSums(value, float(weight.sum()), squares), weight, slopes

    def _sum_listed(self, pairs: CandidatePairs, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        sums, weight, slopes = self._hinges(pairs, t, reach, tau)
        active = np.flatnonzero(slopes)
        return sums, weight, ListedEdges(pairs.a[active], pairs.b[active], len(V)).pull(slopes[active], V)

    def _sum_all(self, Z, t, reach, tau, V) -> tuple[HingeSums, np.ndarray, np.ndarray]:
        """The same for all pairs, tile by tile, without a list."""
        left, right, bound = factors_and_bounds(Z, reach**2, Z.dtype)

        def work(part: int, parts: int) -> tuple[np.ndarray, int, np.ndarray, np.ndarray]:
            sums, count = np.zeros(3), 0
            weight, pull = np.zeros(t.shape), np.zeros(V.shape)
            buffer = tile_buffer(left)
            for rows, columns, same in self._tiles[part::parts]:
                D = tile(left[rows], right[columns], buffer)  # (b, c)
                pairs = close_pairs(D, bound, rows, columns, same)
                tile_sums, tile_weight, slopes = self._hinges(pairs, t, reach, tau)
                sums = sums + tile_sums
                count += len(slopes)
                weight = weight + tile_weight
                D.fill(0)
                D[pairs.a - rows.start, pairs.b - columns.start] = slopes
                pull[rows] += D.sum(axis=1)[:, None] * V[rows] - D @ V[columns]
                pull[columns] += D.sum(axis=0)[:, None] * V[columns] - D.T @ V[rows]
            return sums, count, weight, pull

        sums, counts, weights, pulls = zip(*in_threads(work, n_threads() if len(Z) >= MIN_THREADED_POINTS else 1))
        self.visit_all = sum(counts) > self._max_listed / 2
        return HingeSums(*map(float, np.sum(sums, axis=0))), np.sum(weights, axis=0), np.sum(pulls, axis=0)

    @property
    def _max_listed(self) -> int:
        """The largest number of pairs that a list may hold."""
        n, memory = len(self.X), get_config()["working_memory"] * 2**20
        return min(int(memory / BYTES_PER_PAIR), max(int(MAX_LISTED_SHARE * n * n), 20_000))

    @cached_property
    def _tiles(self) -> list[tuple[slice, slice, np.ndarray]]:
        """Rows, columns right of their classes, and a mask (b, c') of first columns that share the class of a row.

        Large tiles come first, so that threads that take every other one have as much to do.
        """
        n, end, tiles = len(self.X), self.class_end, []
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            for c in range(end[start], n, COLUMNS):
                columns = slice(c, min(c + COLUMNS, n))
                mixed = max(0, min(end[rows.stop - 1], columns.stop) - c)
                tiles.append((rows, columns, np.arange(c, c + mixed) < end[rows, None]))
        return sorted(tiles, key=lambda tile: len(self.X[tile[0]]) * len(self.X[tile[1]]), reverse=True)

    def _current_list(self, Z, reach) -> CandidatePairs | None:
        """The list, with distances in the current metric; a new one if it may lack an impostor. None: too long."""
        self.n_evaluations += 1
        if self.visit_all and self.cap is None:
            return None
        if self.listed_pairs is None:
            return self._make_list(Z, reach)
        if self.cap is not None or (self.slack > 0 and self._is_complete(Z, reach)):
            return self.listed_pairs._replace(sqdist=pair_sqdist(Z, self.listed_pairs.a, self.listed_pairs.b))
        return self._make_list(Z, reach)

    def _is_complete(self, Z, reach) -> bool:
        """Whether no pair outside the list can have become an impostor since it was made."""
        if self.listed_Z.shape != Z.shape:  # the map has another number of rows since
            return False
        drift = self._drift(Z)
        drift += drift.max()  # the largest change of a distance to any other point: both ends move
        return bool(np.all(reach + drift <= self.listed_reach + self.slack))

    def _drift(self, Z) -> np.ndarray:
        """(n,) how far each point has moved since the list was made."""
        return np.sqrt(np.einsum("ij,ij->i", Z - self.listed_Z, Z - self.listed_Z))

    def _make_list(self, Z, reach) -> CandidatePairs | None:
        slack, limit = self._next_slack(Z, reach), self.max_impostors
        pairs = self._pairs_within(Z, reach + slack)
        if pairs is None and slack > 0:
            slack, pairs = 0.0, self._pairs_within(Z, reach)
        if limit is not None and (pairs is None or impostor_counts(pairs, reach).max(initial=0) > limit):
            self.cap, pairs = limit, self._nearest(Z, reach, limit)
        if pairs is not None:
            self.listed_pairs = pairs
            self.slack = slack
            self.listed_Z = Z
            self.listed_reach = reach
            self.n_evaluations = 0
        return pairs

    def _next_slack(self, Z, reach) -> float:
        """Enough for about five evaluations if points go on to move as fast; 0 if that is not worth the longer list."""
        if self.listed_pairs is None or self.listed_Z.shape != Z.shape:
            return 0.0
        drift = self._drift(Z)
        change = float((reach + drift + drift.max() - self.listed_reach).max()) / max(self.n_evaluations, 1)
        n, p = Z.shape
        list_time = len(self.listed_pairs.a) * (50 + 5 * p)  # nanoseconds
        matrix_time = n * n * (1 + 0.02 * p)
        return 5 * change if 0 < 5 * change < 0.1 * np.median(reach) and list_time < matrix_time else 0.0

    def _pairs_within(self, Z, radius) -> CandidatePairs | None:
        """Pairs of different classes that are nearer than the larger of their radii; None if there are too many."""
        square = radius**2
        unit = float(np.abs(Z).max()) or 1.0  # so that float32 neither overflows nor underflows
        left, right, bound = factors_and_bounds(Z / unit, square / unit**2, np.float32)
        parts = n_threads() if len(Z) >= MIN_THREADED_POINTS else 1

        def work(part: int, parts: int) -> list[CandidatePairs]:
            none = np.zeros(0, dtype=np.intp)
            found, count, buffer = [CandidatePairs(none, none, np.zeros(0))], 0, tile_buffer(left)
            for rows, columns, same in self._tiles[part::parts]:
                found.append(close_pairs(tile(left[rows], right[columns], buffer), bound, rows, columns, same))
                count += len(found[-1].a)
                if count > self._max_listed // parts:
                    return []
            return found

        shares = in_threads(work, parts)
        if not all(shares):
            return None
        a, b = (np.concatenate([tile[side] for share in shares for tile in share]) for side in (0, 1))
        d = pair_sqdist(Z, a, b)
        keep = np.flatnonzero(d < np.maximum(square[a], square[b]))
        order = keep[np.argsort(a[keep], kind="stable")]
        return CandidatePairs(a[order], b[order], d[order])

    def _nearest(self, Z, reach, cap) -> CandidatePairs:
        """The nearest ``cap`` impostors of every anchor, as unordered pairs with masks of whose impostors they are."""
        n, keys = len(Z), []
        for rows in row_blocks(n, n * Z.itemsize):
            D = sqdist(Z[rows], Z)
            D[self.codes[rows, None] == self.codes] = np.inf
            close = (1.25 * reach[rows] ** 2)[:, None] > D
            above_cap = np.flatnonzero(close.sum(axis=1) > cap)
            if len(above_cap):
                kth = np.partition(D[above_cap], cap - 1, axis=1)[:, cap - 1 : cap]
                close[above_cap] &= D[above_cap] <= kth
            i, l = np.nonzero(close)
            keys.append((i + rows.start).astype(np.int64) * n + l)
        ordered = np.concatenate(keys)
        i, l = ordered // n, ordered % n
        pair = np.unique(np.minimum(i, l) * n + np.maximum(i, l))
        a, b = pair // n, pair % n
        of_a, of_b = (np.isin(key, ordered, assume_unique=True) for key in (a * n + b, b * n + a))
        return CandidatePairs(a, b, pair_sqdist(Z, a, b), of_a, of_b)

    def value(self, L, mu) -> float:
        """The objective with the sharp hinge over all impostors, whether or not their number is limited."""
        if self.cap is None:
            return self(L, mu, SHARP_WIDTH * self.margin)[2]
        Z, _, t, reach = self._measure(L)
        sums, _, _ = self._sum_all(Z, t, reach, SHARP_WIDTH * self.margin, Z)
        return (1 - mu) * float(np.vdot(L @ self.target_scatter, L)) + mu * sums.rounded

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(anchor, target, impostor) for every target and every point of another class, as rows of ``X``."""
        i, j = self.targets.i, self.targets.j
        which, l = np.nonzero(self.codes[i, None] != self.codes)
        if len(l) > 500_000:
            raise ValueError(
                f"solver='sdp' is for small problems; {len(self.X)} samples make {len(l)} triplets. Use solver='lbfgs'"
            )
        return i[which], j[which], l


def best_multiple(
    Z: np.ndarray, codes: np.ndarray, targets: np.ndarray, mu: float, margin: float, rng: np.random.RandomState
) -> float:
    """w > 0 for which the squared distances w |z_i − z_j|² have the least loss, over a sample of anchors if n is large.

    The loss is convex in w: its slope (1 − μ) Σ t + μ Σ (t − d) over impostors, d < t + margin/w, changes sign once.
    """
    n, k = targets.shape
    n_anchors = max(1, MAX_SAMPLED_TRIPLETS // (n * k))
    anchors = np.arange(n) if n <= n_anchors else rng.permutation(n)[:n_anchors]
    D = sqdist(Z[anchors], Z)  # (a, n)
    partners = targets[anchors]  # (a, k)
    t = np.where(partners >= 0, np.take_along_axis(D, partners, axis=1), -np.inf)
    other_class = codes[anchors, None] != codes
    gaps = (t[:, :, None] - np.where(other_class, D, np.inf)[:, None]).ravel()  # (a k n,)
    gaps = gaps[np.isfinite(gaps)].astype(np.float64)
    target_sum = float(t[partners >= 0].sum())
    mean_distance = float(D.mean(dtype=np.float64))

    def slope(w: float) -> float:
        return (1 - mu) * target_sum + mu * float(gaps[gaps > -margin / w].sum())

    if mu == 0 or not 0 < mean_distance < np.inf or slope(1.0) == 0:  # there is no best w, or none better than 1
        return 1.0
    low, high = -12.0, 12.0  # log₂ of w, in units of the margin over the mean squared distance
    while high - low > 0.02:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(margin / mean_distance * 2.0**middle) < 0 else (low, middle)
    return margin / mean_distance * 2.0**low


def factors_and_bounds(Z: np.ndarray, square: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """left, right (n, p + 2) and bound (n,): where leftᵢᵀrightⱼ ≥ boundᵢ, the squared distance ≥ squareᵢ for certain.

    The products are squared distances with rounding errors; a bound is the square plus the largest possible error.
    """
    sq = np.einsum("ij,ij->i", Z, Z, dtype=np.float64)
    rounding = 2 * (Z.shape[1] + 4) * np.finfo(dtype).eps * (sq + sq.max())
    return *sqdist_factors(Z, dtype), (square + rounding).astype(dtype)


def tile_buffer(left: np.ndarray) -> np.ndarray:
    """Memory of a tile, for one thread: to fetch it anew for each would cost as much as the product."""
    return np.empty(ROWS * COLUMNS, dtype=left.dtype)


def tile(left: np.ndarray, right: np.ndarray, buffer: np.ndarray) -> np.ndarray:
    """left rightᵀ (b, c), in the buffer."""
    shape = len(left), len(right)
    return np.matmul(left, right.T, out=buffer[: shape[0] * shape[1]].reshape(shape))


def close_pairs(D: np.ndarray, bound: np.ndarray, rows: slice, columns: slice, same: np.ndarray) -> CandidatePairs:
    """The pairs of a tile of squared distances below the bound of one of their ends, and not of the same class."""
    close = bound[rows, None] > D
    close |= bound[columns] > D
    close[:, : same.shape[1]][same] = False
    flat = np.flatnonzero(close)
    i, j = np.divmod(flat, D.shape[1])
    return CandidatePairs(i + rows.start, j + columns.start, np.maximum(D.ravel()[flat], 0))


def impostor_counts(pairs: CandidatePairs, reach: np.ndarray) -> np.ndarray:
    """(n,) number of impostors of each anchor."""
    n = len(reach)
    return sum(np.bincount(i[pairs.sqdist < reach[i] ** 2], minlength=n) for i in (pairs.a, pairs.b))  # type: ignore


class ListedTriplets:
    """The objective for given triplets; a pair (a, p) counts once among the targets, in however many triplets it is.

    A hinge counts as often as the weight of its triplet says; triplets of weight 0 are left out.
    """

    cap = None  # the list is complete
    max_impostors: int | None = None
    list_lifetime = sys.maxsize

    def __init__(self, X, triplets: Triplets, margin):
        n, there = len(X), triplets.weight > 0
        if not there.all():
            parts = (v[there] for v in (triplets.a, triplets.p, triplets.n))
            triplets = Triplets(*parts, n_samples=n, weight=triplets.weight[there])
        self.X, self.margin, self.triplets, self.weight = X, margin, triplets, triplets.weight
        target_pairs = np.unique(triplets.a.astype(np.int64) * n + triplets.p)
        self.target_scatter = pair_scatter(X, target_pairs // n, target_pairs % n)
        self.positives = ListedEdges(triplets.a, triplets.p, n)
        self.negatives = ListedEdges(triplets.a, triplets.n, n)

    def restart(self, L) -> None:
        """Nothing to do: the triplets stay the same."""

    def refresh(self, L) -> int:
        return 0

    def __call__(self, L, mu, tau):
        Z = self.X @ L.T.astype(self.X.dtype)
        near, far = (Z[e.i] - Z[e.j] for e in (self.positives, self.negatives))
        h = self.margin + np.einsum("ij,ij->i", near, near) - np.einsum("ij,ij->i", far, far)
        value, slope = rounded_hinge(h, tau)
        value, slope = value * self.weight, slope * self.weight
        G = self.positives.incidence.T @ (near * slope[:, None]) - self.negatives.incidence.T @ (far * slope[:, None])
        LA = (1 - mu) * L @ self.target_scatter
        target_loss = float(np.vdot(LA, L))
        sharp = mu * float(np.maximum(h, 0) @ self.weight) + target_loss
        return mu * float(value.sum()) + target_loss, 2 * (mu * G.T @ self.X + LA), sharp

    def push_gradient(self, L, tau) -> tuple[np.ndarray, HingeSums]:
        X = self.X.astype(np.float64, copy=False)
        Z = self.X @ L.T.astype(self.X.dtype)
        near, far = (pair_sqdist(Z, e.i, e.j) for e in (self.positives, self.negatives))
        h = self.margin + near - far
        value, slope = rounded_hinge(h, tau)
        often = slope * self.weight
        G = X.T @ (self.positives.pull(often, X) - self.negatives.pull(often, X))
        return G, HingeSums(float(value @ self.weight), float(often.sum()), float(np.vdot(often, slope)))

    def value(self, L, mu) -> float:
        return self(L, mu, SHARP_WIDTH * self.margin)[2]

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.triplets.a, self.triplets.p, self.triplets.n
