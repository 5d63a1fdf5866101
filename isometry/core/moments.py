"""Per-class counts, means and second moments, and every scatter over *all* pairs that follows from them.

With W_c the scatter of class c about its mean, n_c its size and T the scatter about the grand mean, the sums over all
similar and all dissimilar pairs i < j are  Σ_S = Σ_c n_c W_c  and  Σ_D = n T − Σ_S: no pair is ever listed.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from isometry.core.distance import row_blocks


class Moments(Protocol):
    """What the closed-form methods need to know about a labelled sample."""

    counts: np.ndarray  # (c,)
    means: np.ndarray  # (c, d)

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        """Σ_c w_c W_c for each vector of class weights w (c,)."""
        ...


class ArrayMoments:
    """Moments of rows in memory (or memory-mapped): two passes over X, nothing of size c·d² is stored.

    Rows with code −1 are left out.
    """

    def __init__(self, X: np.ndarray, codes: np.ndarray, n_classes: int | None = None):
        self._X, self._codes = X, np.asarray(codes)
        c = int(self._codes.max(initial=-1)) + 1 if n_classes is None else n_classes
        self.counts = np.bincount(self._codes[self._codes >= 0], minlength=c).astype(np.float64)
        self._shift = _probe_mean(X)
        self.means = np.zeros((c, X.shape[1]))  # about the shift, until the end
        for rows in self._blocks():
            self.means += _class_sums(X[rows], self._codes[rows], c)
        n_rows = np.maximum(self.counts, 1)[:, None]
        self._offset = self.means / n_rows - self._shift * (self.counts > 0)[:, None]  # class means about the shift
        self.means = self.means / n_rows

    def _blocks(self):
        return row_blocks(len(self._X), self._X.shape[1] * self._X.itemsize, buffers=3)

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        X, codes, d = self._X, self._codes, self._X.shape[1]
        shift = self._shift.astype(X.dtype)
        row_weights = [np.append(np.asarray(w, dtype=np.float64), 0.0)[codes] for w in weights]  # code −1 → 0
        plain = [bool(np.all(r == r[:1])) for r in row_weights]
        S = [np.zeros((d, d)) for _ in weights]
        for rows in self._blocks():
            Xb = X[rows] - shift  # (b, d)
            for s, r, same in zip(S, row_weights, plain, strict=True):
                if same:
                    s += (Xb.T @ Xb) * r[0]
                else:
                    s += Xb.T @ (Xb * r[rows, None].astype(X.dtype))
        m = self._offset
        return [s - m.T @ (m * (self.counts * w)[:, None]) for s, w in zip(S, weights, strict=True)]


class StreamMoments:
    """Moments that grow by ``update`` and ``merge``: one pass, memory c·d², exact to rounding."""

    def __init__(self, n_features: int, n_classes: int = 0):
        self.counts = np.zeros(n_classes)
        self.means = np.zeros((n_classes, n_features))
        self._scatters = np.zeros((n_classes, n_features, n_features))  # about the class means

    def _grow(self, c: int) -> None:
        extra = c - len(self.counts)
        if extra > 0:
            d = self.means.shape[1]
            self.counts = np.concatenate([self.counts, np.zeros(extra)])
            self.means = np.concatenate([self.means, np.zeros((extra, d))])
            self._scatters = np.concatenate([self._scatters, np.zeros((extra, d, d))])

    def update(self, X: np.ndarray, codes: np.ndarray) -> StreamMoments:
        """Add rows; −1 is left out, a code not seen before opens a class."""
        X, codes = np.asarray(X, dtype=np.float64), np.asarray(codes)
        new = StreamMoments(X.shape[1], max(int(codes.max(initial=-1)) + 1, len(self.counts)))
        order = np.argsort(codes, kind="stable")[(codes < 0).sum() :]
        for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(order) else ():
            c, Xc = codes[rows[0]], X[rows]  # every row is touched once, however many classes there are
            new.counts[c], new.means[c] = len(Xc), Xc.mean(axis=0)
            centred = Xc - new.means[c]
            new._scatters[c] = centred.T @ centred
        return self.merge(new)

    def merge(self, other: StreamMoments) -> StreamMoments:
        """Add the moments of other rows of the same classes (pairwise update of Chan, Golub and LeVeque)."""
        self._grow(len(other.counts))
        other._grow(len(self.counts))
        n = self.counts + other.counts
        gap = other.means - self.means  # (c, d)
        share = np.divide(other.counts, n, out=np.zeros_like(n), where=n > 0)
        self._scatters += other._scatters + np.einsum("c,ci,cj->cij", self.counts * share, gap, gap)
        self.means = self.means + share[:, None] * gap
        self.counts = n
        return self

    def within(self, *weights: np.ndarray) -> list[np.ndarray]:
        return [np.tensordot(np.asarray(w, dtype=np.float64), self._scatters, axes=1) for w in weights]


def total_scatter(moments: Moments, within: np.ndarray) -> np.ndarray:
    """T = Σ_c W_c + Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ, given the unweighted within-class scatter."""
    return within + between_scatter(moments)


def between_scatter(moments: Moments) -> np.ndarray:
    """Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ."""
    n = moments.counts
    M = moments.means - (n @ moments.means) / max(n.sum(), 1)
    return M.T @ (M * n[:, None])


def all_pair_scatters(moments: Moments) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Σ_S, Σ_D over all similar and all dissimilar pairs i < j, and how many there are of each."""
    n_c = moments.counts
    n = n_c.sum()
    if np.all(n_c[n_c > 0] == n_c.max()):  # equal class sizes: one product instead of two
        (within,) = moments.within(np.ones_like(n_c))
        similar = n_c.max() * within
    else:
        within, similar = moments.within(np.ones_like(n_c), n_c)
    dissimilar = n * total_scatter(moments, within) - similar
    n_similar = float(np.sum(n_c * (n_c - 1)) / 2)
    return similar, dissimilar, n_similar, float(n * (n - 1) / 2 - n_similar)


def _probe_mean(X: np.ndarray, rows: int = 4096) -> np.ndarray:
    """A point amid the data, to take second moments about: exactness does not depend on it, round-off does."""
    step = max(1, len(X) // rows)
    return np.asarray(X[::step], dtype=np.float64).mean(axis=0)


def _class_sums(X: np.ndarray, codes: np.ndarray, c: int) -> np.ndarray:
    """(c, d) sums of the rows of each class, in float64, by one sparse product."""
    import scipy.sparse as sp

    members = np.flatnonzero(codes >= 0)
    indicator = sp.csr_matrix((np.ones(len(members)), (codes[members], members)), shape=(c, len(X)))
    return np.asarray(indicator @ X.astype(np.float64, copy=False))
