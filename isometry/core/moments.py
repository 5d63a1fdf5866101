"""Per-class counts, means and second moments, and every scatter over *all* pairs that follows from them.

With W_c the scatter of class c about its mean, n_c its size and T the scatter about the grand mean, the sums over all
similar and all dissimilar pairs i < j are  Σ_S = Σ_c n_c W_c  and  Σ_D = n T − Σ_S: no pair is ever listed.

Means are kept as offsets from a point near the mean of the rows, the origin. Scatters are computed from the offsets, so
that a column far from 0, such as time stamps, loses no digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from isometry.core.distance import row_blocks
from isometry.core.frame import Frame
from isometry.core.linalg import fix_signs, triangular_factor
from isometry.core.scatter import pair_scatter

BLOCK_MIB = 16  # size of a block of rows, which must fit in the cache
SORTED_MIB = 128  # size of a block of rows that is sorted by class; only the rows of one class are copied at a time
MAX_CONVERTED_SIZE = 1 << 20  # float32 arrays up to here become float64: rounded, a singular scatter looks regular
MIN_MEMBERS = 1024  # if classes are larger than this on average, it is faster to multiply class by class
POOLED = "pooled moments hold the sum of the scatters of all classes only, not the scatter of each"


class Group(NamedTuple):
    """Moments of one set of rows."""

    n: float  # how many
    offset: np.ndarray  # (d,) mean about the origin of the moments it belongs to
    scatter: np.ndarray  # (d, d) about the mean


class Moments:
    """Abstract: moments of rows of features or, with fewer rows than features, of coordinates in their row space."""

    dtype: str  # of the rows
    frame: Frame | None = None  # of the coordinates; None: the features themselves
    of_features: Any = None  # the moments of the features, where these are of coordinates

    def once(self, name: Any, compute: Callable[[], Any]) -> Any:
        """What ``compute`` gives; moments that stay as they are compute it once, for all metrics of a path."""
        return compute()

    def in_features(self) -> Any:
        """The moments of the features, for a metric that does not vanish where no row differs from another."""
        return self if self.of_features is None else self.of_features

    def lift(self, L: np.ndarray) -> np.ndarray:
        """A map of what the moments are of (p, r) as a map of the features (p, d)."""
        return L if self.frame is None else fix_signs(self.frame.lift(L))


class ClassMoments(Moments):
    """Abstract: what the closed forms need to know about a labelled sample."""

    counts: np.ndarray  # (c,)
    origin: np.ndarray = np.zeros(())  # (d,) a point near the mean of the rows; 0 in model files of version 0.1
    offsets: np.ndarray  # (c, d) class means about the origin
    _differ: np.ndarray | None = None

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        """Σ_c w_c W_c for each vector of class weights w (c,), w ≥ 0."""
        raise NotImplementedError

    def rest(self) -> Group:
        """The rows that belong to no class."""
        raise NotImplementedError

    @property
    def n_classes(self) -> int:
        return len(self.counts)

    @property
    def means(self) -> np.ndarray:
        """(c, d) class means; 0 for a class without rows."""
        return self.offsets + self.origin * (self.counts > 0)[:, None]

    @property
    def differ(self) -> np.ndarray:
        """(c, c) which classes are known to differ: by default all."""
        return ~np.eye(self.n_classes, dtype=bool) if self._differ is None else self._differ

    @property
    def any_differ(self) -> bool:
        """Whether any two classes are known to differ."""
        return self.n_classes > 1 if self._differ is None else bool(self._differ.any())

    def pooled(self) -> np.ndarray:
        """Σ_c W_c."""
        return self.within(np.ones(self.n_classes))[0]

    def mean_pair_scatters(self) -> tuple[np.ndarray, np.ndarray]:
        """M_S, M_D: mean of (x_i − x_j)(x_i − x_j)ᵀ over all similar and over all dissimilar pairs."""
        S, D, n_similar, n_dissimilar = all_pair_scatters(self)
        return S / max(n_similar, 1), D / max(n_dissimilar, 1)

    def class_scatters(self) -> np.ndarray:
        """(c, d, d) W_c of each class."""
        raise NotImplementedError

    def class_factors(self, classes: np.ndarray) -> list[np.ndarray]:
        """F (r, d) of each of these classes, r ≤ d, with W_c = FᵀF."""
        return [triangular_factor(W) for W in self.class_scatters()[classes]]

    def covariance(self, within: np.ndarray | None = None, *, ddof: int = 0) -> np.ndarray:
        """T / (n − ddof) over all rows, those of no class included; ``within`` is Σ_c W_c, if it is known already."""
        T = total_scatter(self, self.pooled() if within is None else within)
        n, rest = self.counts.sum(), self.rest()
        if rest.n:
            gap = rest.offset - self.counts @ self.offsets / max(n, 1)
            T = T + rest.scatter + n * rest.n / (n + rest.n) * np.outer(gap, gap)
        return T / (n + rest.n - ddof)


class ArrayMoments(ClassMoments):
    """Moments of rows in memory or in a mapped file, read block by block; nothing of size c·d² is stored.

    One pass over X serves a call of ``within`` and, on the way, the means. Rows with code −1 belong to no class.
    """

    def __init__(
        self, X: np.ndarray, codes: np.ndarray, n_classes: int | None = None, *, differ: np.ndarray | None = None
    ):
        self.dtype = X.dtype.name
        if X.size <= MAX_CONVERTED_SIZE:
            X = X.astype(np.float64, copy=False)
        self._X, self._codes, self._differ = X, np.asarray(codes), differ
        c = int(self._codes.max(initial=-1)) + 1 if n_classes is None else n_classes
        self.counts = np.bincount(self._codes[self._codes >= 0], minlength=c).astype(np.float64)
        self._shift = _probe_shift(X).astype(X.dtype)
        self._centred = not self._shift.any()
        self.origin = self._shift.astype(np.float64)
        self._offsets: np.ndarray | None = None
        self._known: dict[Any, Any] = {}  # scatters by their weights, and what else a path of metrics asks for again

    def once(self, name: Any, compute: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = compute()
        return self._known[name]

    @property
    def offsets(self) -> np.ndarray:  # type: ignore[override]
        return self._offsets if self._offsets is not None else self._pass()[1]

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        key = b"".join(np.asarray(w, dtype=np.float64).tobytes() for w in weights)
        if key not in self._known:
            S, m = self._pass(*weights)
            self._known[key] = [s - m.T @ (m * (self.counts * w)[:, None]) for s, w in zip(S, weights, strict=True)]
            for known in self._known[key]:
                known.setflags(write=False)
        return self._known[key]

    def rest(self) -> Group:
        outside = np.where(self._codes < 0, 0, -1)
        if not np.any(outside == 0):
            d = self._X.shape[1]
            return Group(0.0, np.zeros(d), np.zeros((d, d)))
        moments = ArrayMoments(self._X, outside, 1)
        scatter = moments.pooled()
        return Group(float(moments.counts[0]), moments.offsets[0] + (moments.origin - self.origin), scatter)

    def class_scatters(self) -> np.ndarray:
        return _class_scatters(self._X, self._codes, self.means)

    def class_factors(self, classes: np.ndarray) -> list[np.ndarray]:
        factors, d = {}, self._X.shape[1]
        for k, Z in _by_class(self._X, self._codes):
            Z -= self.means[k]
            factors[k] = Z if len(Z) <= d else triangular_factor(Z.T @ Z)
        return [factors[k] for k in classes.tolist()]

    def residuals(self, *, within: bool = True) -> np.ndarray:
        """(n, d) rows about their class means, or about the mean of all."""
        return self._X - (self.means[self._codes] if within else self._X.mean(axis=0))

    def _pass(self, *weights: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Σ_i w_i z_i z_iᵀ for each weighting of the classes, and the class means of z, z the rows about the shift.

        Every product is of a matrix with itself, which costs half of a general one. Large classes are multiplied one by
        one, and then one product serves all weightings; else each weighting takes a product of the rows times √w.
        """
        c, d = self.n_classes, self._X.shape[1]
        S, sums = [np.zeros((d, d)) for _ in weights], np.zeros((c, d))
        one_by_one = len(weights) > 1 and self.counts.sum() >= MIN_MEMBERS * c
        for rows in self._blocks(SORTED_MIB if one_by_one else BLOCK_MIB):
            X, codes = self._X[rows], self._codes[rows]
            if one_by_one:
                for k, Z in _by_class(X, codes):
                    if not self._centred:
                        Z -= self._shift
                    product = Z.T @ Z
                    sums[k] += np.ones(len(Z), dtype=Z.dtype) @ Z
                    for s, w in zip(S, weights, strict=True):
                        s += w[k] * product
            else:
                Z = X if self._centred else X - self._shift
                if self._offsets is None:
                    sums += _class_sums(Z, codes, c)
                for s, w in zip(S, weights, strict=True):
                    s += _weighted_square(Z, np.append(w, 0.0)[codes])  # code −1 weighs 0
        if self._offsets is None:
            self._offsets = sums / np.maximum(self.counts, 1)[:, None]
        return S, self._offsets

    def _blocks(self, mib: float) -> Iterator[slice]:
        return row_blocks(len(self._X), self._X.shape[1] * self._X.itemsize, buffers=1, limit_mib=mib)


class StreamMoments(ClassMoments):
    """Moments that grow by ``update`` and ``merge``: one pass, exact to rounding, memory c·d².

    Classes go by their names, so that chunks may bring them in any order; ``classes`` lists those seen, sorted.

    Parameters
    ----------
    n_features : int
        Number of features.
    pooled : bool, default=False
        Whether to keep only Σ_c W_c, in memory d²: enough where all classes weigh the same.
    """

    def __init__(self, n_features: int, *, pooled: bool = False):
        self.classes = np.zeros(0, dtype=np.intp)  # (c,)
        self.is_pooled = pooled
        self.dtype = "float32"  # becomes float64 with the first chunk that is
        # the last group are the rows of no class; pooled scatters are those of all classes together and of this group
        self._counts = np.zeros(1)
        self.origin = np.zeros(n_features)
        self._offsets = np.zeros((1, n_features))
        self._scatters = np.zeros((2 if pooled else 1, n_features, n_features))

    @property
    def counts(self) -> np.ndarray:  # type: ignore[override]
        return self._counts[:-1]

    @property
    def offsets(self) -> np.ndarray:  # type: ignore[override]
        return self._offsets[:-1]

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        weights = tuple(np.asarray(w, dtype=np.float64) for w in weights)
        if not self.is_pooled:
            return [np.tensordot(w, self._scatters[:-1], axes=1) for w in weights]
        if not all(np.all(w == w[:1]) for w in weights):
            raise ValueError(POOLED)
        return [self._scatters[0] * w[0] for w in weights]

    def class_scatters(self) -> np.ndarray:
        if self.is_pooled:
            raise ValueError(POOLED)
        return self._scatters[:-1]

    def rest(self) -> Group:
        return Group(float(self._counts[-1]), self._offsets[-1], self._scatters[-1])

    def update(self, X: np.ndarray, codes: np.ndarray, classes: np.ndarray | None = None) -> StreamMoments:
        """Add rows. ``codes`` (n,) are indices into ``classes``, or names if that is None; −1: of no class."""
        codes = np.asarray(codes)
        if classes is None:
            classes, inverse = np.unique(codes[codes >= 0], return_inverse=True)
            codes = np.where(codes < 0, -1, codes)
            codes[codes >= 0] = inverse
        c, new = len(classes), StreamMoments(X.shape[1], pooled=self.is_pooled)
        groups = np.where(codes < 0, c, codes)
        rows = ArrayMoments(X, groups, c + 1)
        new.classes, new.dtype, new._counts = np.asarray(classes), rows.dtype, rows.counts
        if self.is_pooled:
            in_class = np.append(np.ones(c), 0.0)
            weights = [in_class] if rows.counts[-1] == 0 else [in_class, 1 - in_class]
            for k, scatter in enumerate(rows.within(*weights)):
                new._scatters[k] = scatter
        else:
            new._scatters = _class_scatters(X, groups, rows.means)
        new.origin, new._offsets = rows.origin, rows.offsets
        if not self._counts.any():  # nothing to merge with
            vars(self).update(vars(new))
            return self
        return self.merge(new)

    def merge(self, other: StreamMoments) -> StreamMoments:
        """Add the moments of other rows (pairwise update of Chan, Golub and LeVeque); ``other`` stays as it is."""
        if self.is_pooled != other.is_pooled:
            raise ValueError("moments of single classes and pooled moments cannot be merged")
        classes = _union(self.classes, other.classes)
        if not self._counts.any():
            self.origin = other.origin
        n_a, offsets_a, scatters = self._aligned(classes)
        n_b, offsets_b, other_scatters = other._aligned(classes)
        offsets_b = offsets_b + (other.origin - self.origin)  # both about the same origin
        n = n_a + n_b
        gap = offsets_b - offsets_a  # (c + 1, d)
        share = np.divide(n_b, n, out=np.zeros_like(n), where=n > 0)
        spread = n_a * share
        scatters += other_scatters
        if self.is_pooled:
            scatters[0] += gap[:-1].T @ (gap[:-1] * spread[:-1, None])
            scatters[1] += spread[-1] * np.outer(gap[-1], gap[-1])
        else:
            for k in np.flatnonzero(spread):  # one class at a time: no second array of c·d²
                scatters[k] += spread[k] * np.outer(gap[k], gap[k])
        self.dtype = np.result_type(self.dtype, other.dtype).name
        self.classes = classes
        self._counts = n
        self._offsets = offsets_a + share[:, None] * gap
        self._scatters = scatters
        return self

    def _aligned(self, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts, offsets and scatters of ``classes``, 0 for those not seen; the rows of no class stay last."""
        if len(classes) == len(self.classes):
            return self._counts, self._offsets, self._scatters
        c, d = len(classes), self._offsets.shape[1]
        position = np.append(np.searchsorted(classes, self.classes), c)
        counts, offsets = np.zeros(c + 1), np.zeros((c + 1, d))
        counts[position] = self._counts
        offsets[position] = self._offsets
        if self.is_pooled:
            return counts, offsets, self._scatters
        scatters = np.zeros((c + 1, d, d))
        scatters[position] = self._scatters
        return counts, offsets, scatters


class ListedMoments(Moments):
    """What the closed forms need to know about rows with listed pairs (i, j, weight); there are no classes."""

    n_classes = None

    def __init__(self, X: np.ndarray, similar: Any, dissimilar: Any):
        self._X, self._similar, self._dissimilar = X, similar, dissimilar
        self.dtype = X.dtype.name

    def mean_pair_scatters(self) -> tuple[np.ndarray, np.ndarray]:
        """M_S, M_D: mean of (x_i − x_j)(x_i − x_j)ᵀ over the similar and over the dissimilar pairs."""
        S, D = (pair_scatter(self._X, *e) / max(e[2].sum(), 1e-300) for e in (self._similar, self._dissimilar))
        return S, D

    def covariance(self, *, ddof: int = 0) -> np.ndarray:
        return ArrayMoments(self._X, np.zeros(len(self._X), dtype=np.intp), 1).covariance(ddof=ddof)


class CrossMoments(Moments):
    """What the closed forms need to know about pairs of different groups, such as pictures from different cameras.

    With F(P) the sum over all pairs inside a part of the partition P of the rows, those of one class and different
    groups sum to F(classes) − F(classes ∩ groups), and all of different groups to F(everything) − F(groups).
    """

    n_classes = None

    def __init__(self, X: np.ndarray, side: Any, groups: np.ndarray):
        self._X, self._side, self._groups = X, side, groups
        self.dtype = X.dtype.name

    def mean_pair_scatters(self) -> tuple[np.ndarray, np.ndarray]:
        """M_S, M_D: mean of (x_i − x_j)(x_i − x_j)ᵀ over similar and over dissimilar pairs of different groups."""
        if hasattr(self._side, "codes"):
            (S, n_similar), (D, n_dissimilar) = self._from_classes(self._side.codes)
        else:
            (S, n_similar), (D, n_dissimilar) = (
                self._from_list(e) for e in (self._side.similar, self._side.dissimilar)
            )
        for kind, n in (("similar", n_similar), ("dissimilar", n_dissimilar)):
            if n == 0:
                raise ValueError(f"no {kind} pair joins two groups: y and groups leave nothing to learn from")
        return S / n_similar, D / n_dissimilar

    def _from_list(self, edges: Any) -> tuple[np.ndarray, float]:
        across = self._groups[edges.i] != self._groups[edges.j]
        i, j, weight = edges.i[across], edges.j[across], edges.weight[across]
        return pair_scatter(self._X, i, j, weight), float(weight.sum())

    def _from_classes(self, codes: np.ndarray) -> list[tuple[np.ndarray, float]]:
        groups, one = self._groups, np.zeros_like(codes)
        parts = np.unique(codes * (groups.max() + 1) + groups, return_inverse=True)[1]
        inside = [all_pair_scatters(ArrayMoments(self._X, c))[::2] for c in (codes, parts, one, groups)]
        (F_class, n_class), (F_part, n_part), (F_one, n_one), (F_group, n_group) = inside
        S, n_similar = F_class - F_part, n_class - n_part
        return [(S, n_similar), (F_one - F_group - S, n_one - n_group - n_similar)]


def total_scatter(moments: ClassMoments, within: np.ndarray) -> np.ndarray:
    """T = Σ_c W_c + Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ, given the unweighted within-class scatter."""
    return within + between_scatter(moments)


def between_scatter(moments: ClassMoments) -> np.ndarray:
    """Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ."""
    n, offsets = moments.counts, moments.offsets
    M = offsets - (offsets[n.argmax()] if len(n) else 0)  # of equal means exactly 0
    M -= (n @ M) / max(n.sum(), 1)
    return M.T @ (M * n[:, None])


def all_pair_scatters(moments: ClassMoments) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Σ_S, Σ_D over all similar and all dissimilar pairs i < j, and how many there are of each."""
    n_c = moments.counts
    n = n_c.sum()
    if np.all(n_c[n_c > 0] == n_c.max()):  # equal class sizes: one product instead of two
        within = moments.pooled()
        similar = n_c.max() * within
    else:
        within, similar = moments.within(np.ones_like(n_c), n_c)
    dissimilar = n * total_scatter(moments, within) - similar
    n_similar = float(np.sum(n_c * (n_c - 1)) / 2)
    return similar, dissimilar, n_similar, float(n * (n - 1) / 2 - n_similar)


def _probe_shift(X: np.ndarray, rows: int = 4096) -> np.ndarray:
    """A point near the mean of the data, subtracted before second moments are taken: it only affects rounding errors.

    It is 0, and nothing needs to be subtracted, where every mean is at most one standard deviation from 0.
    """
    probe = np.asarray(X[:: max(1, len(X) // rows)], dtype=np.float64)
    mean = probe[0] + (probe - probe[0]).mean(axis=0)  # of equal rows exactly that row
    return np.zeros_like(mean) if np.all(mean**2 <= np.square(probe - mean).mean(axis=0)) else mean


def _class_sums(Z: np.ndarray, codes: np.ndarray, c: int) -> np.ndarray:
    """(c, d) sums of the rows of each class, by one sparse product."""
    known = codes >= 0
    indicator = sp.csr_matrix(
        (known.astype(Z.dtype), np.where(known, codes, 0), np.arange(len(Z) + 1)), shape=(len(Z), c)
    )
    return np.asarray(indicator.T @ Z)


def _weighted_square(Z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Σ_i w_i z_i z_iᵀ (d, d) with w ≥ 0 (b,)."""
    if np.all(weight == weight[:1]):
        return (Z.T @ Z) * weight[:1]
    Y = Z * np.sqrt(weight).astype(Z.dtype)[:, None]
    return Y.T @ Y


def _by_class(X: np.ndarray, codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each class that occurs, with a copy of its rows: a row is touched once, however many classes there are."""
    short = codes.astype(np.int16) if codes.max(initial=0) < 2**15 else codes  # 16 bits are sorted by radix
    order = np.argsort(short, kind="stable")[(codes < 0).sum() :]
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else ():
        yield int(codes[rows[0]]), X.take(rows, axis=0)  # faster than X[rows]


def _class_scatters(X: np.ndarray, codes: np.ndarray, means: np.ndarray) -> np.ndarray:
    """(c, d, d) scatter of each class about its mean."""
    S = np.zeros((len(means), X.shape[1], X.shape[1]))
    for rows in row_blocks(len(X), X.shape[1] * X.itemsize, buffers=1, limit_mib=SORTED_MIB):
        for c, Z in _by_class(X[rows], codes[rows]):
            Z -= means[c].astype(X.dtype)
            S[c] += Z.T @ Z
    return S


def _union(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """All class names of two chunks, sorted."""
    if len(a) == 0 or len(b) == 0:
        return a if len(b) == 0 else b
    if (a.dtype.kind in "US") != (b.dtype.kind in "US") and "O" not in (a.dtype.kind, b.dtype.kind):
        raise TypeError(
            f"class labels must be of one kind in all chunks; these are {a.dtype} ({a[0]!r}, …), those before "
            f"{b.dtype} ({b[0]!r}, …)"
        )
    return np.union1d(a, b)
