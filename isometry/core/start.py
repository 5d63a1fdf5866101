"""Where a search over maps L (p, d) begins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as sla

from isometry.core.distance import sqdist
from isometry.core.frame import Frame
from isometry.core.linalg import fix_signs, svd, top_eigenvectors
from isometry.core.memory import once
from isometry.core.moments import ArrayMoments, between_scatter

MAX_SAMPLED_DISTANCES = 1 << 24
MAX_MEDIAN_SQDIST = 25  # largest median of all squared distances from which a neighbour softmax starts
STARTS = ("auto", "identity", "pca", "lda", "random")


def initial_map(
    frame: Frame,
    side: Any,
    init: str | np.ndarray,
    p: int | None,
    rng: np.random.RandomState,
    *,
    unit: Callable[[np.ndarray], float] | None = None,
) -> np.ndarray:
    """L₀ (p, r) in the coordinates of a frame: by name, or an array in the features (p, d). p ≤ r; None: r.

    Where the samples span fewer than p dimensions, an array may have all p rows: its metric between them is kept.

    "auto" is LDA if labels offer p directions, else PCA; "identity" with p < r is PCA. A named start is scaled so that
    ``unit`` of the mapped samples, a squared distance, becomes 1.
    """
    r = frame.X.shape[1]
    if not isinstance(init, str):
        return within_rank(frame.lower(given_map(init, p, r, frame.n_features)))
    p = min(p or r, r)
    L = _named_map(frame.X, getattr(side, "codes", None), init, p, rng)
    return L if unit is None else L / np.sqrt(unit(frame.X @ L.T.astype(frame.X.dtype)))


def given_map(init: np.ndarray, p: int | None, r: int, d: int) -> np.ndarray:
    """A start that was given as an array, L₀ (p, d), p None: d. Samples of rank r have no use for more than r rows."""
    L, most, least = np.array(init, dtype=np.float64), p or d, min(p or r, r)
    if L.ndim != 2 or not least <= len(L) <= most or L.shape[1] != d:
        rows = most if least == most else f"{least} to {most}"
        raise ValueError(f"init must have shape ({rows}, {d}) (n_components, n_features), got {L.shape}")
    return L


def within_rank(L: np.ndarray) -> np.ndarray:
    """The same metric by no more rows than columns."""
    return L if len(L) <= L.shape[1] else sla.qr(L, mode="r")[0][: L.shape[1]]


def _named_map(X: np.ndarray, codes: np.ndarray | None, init: str, p: int, rng: np.random.RandomState) -> np.ndarray:
    if init not in STARTS:
        raise ValueError(f"init={init!r} is unknown; expected an array or one of {', '.join(STARTS)}")
    d = X.shape[1]
    if init == "auto":
        init = "lda" if codes is not None and p <= codes.max() else "pca"
    if init == "random":
        return rng.standard_normal((p, d)) / np.sqrt(d)
    if init == "lda" and codes is not None:
        return _lda(X, codes, p)
    if init == "identity" and p == d:
        return np.eye(d)
    return _pca(X, p)


@once
def _pca(X: np.ndarray, p: int) -> np.ndarray:
    Xc = (X - X.mean(axis=0)).astype(np.float64)
    if len(X) < X.shape[1]:
        V = svd(Xc, full_matrices=True)[2]
        return fix_signs(V[:p])
    return fix_signs(top_eigenvectors(Xc.T @ Xc, p=p)[1].T)


@once
def _lda(X: np.ndarray, codes: np.ndarray, p: int) -> np.ndarray:
    moments = ArrayMoments(X, codes)
    (within,) = moments.within(np.ones(len(moments.counts)))
    n = moments.counts.sum()
    L = top_eigenvectors(between_scatter(moments) / n, within / n, p, reg=1e-4)[1].T
    if len(L) < p:  # fewer independent directions than asked for: fill up with principal ones
        L = np.vstack([L, _pca(X, p)[: p - len(L)]])
    return L


def neighbor_sqdist(Z: np.ndarray, rng: np.random.RandomState, anchors: int = 500) -> float:
    """The squared distance that is 1 where a neighbour softmax starts: neither saturated nor uniform.

    The median over a sample of anchors of the distance to the nearest other point, without duplicates; but at
    least 1/25 of the median of all distances, because in few dimensions neighbours can be so near that all others would
    have probability 0.
    """
    return float(_neighbor_sqdist(Z, rng.permutation(len(Z))[: max(1, min(anchors, MAX_SAMPLED_DISTANCES // len(Z)))]))


@once
def _neighbor_sqdist(Z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The same of given anchors, as an array of one number."""
    Z = Z.astype(np.float64)
    D = sqdist(Z[rows], Z)
    D[1e-12 * D.max() >= D] = np.inf  # a point itself, and its duplicates
    nearest, others = D.min(axis=1), D[np.isfinite(D)]
    if not len(others):
        return np.ones(())
    return np.maximum(np.median(nearest[np.isfinite(nearest)]), np.median(others) / MAX_MEDIAN_SQDIST)


def mean_sqdist(Z: np.ndarray) -> float:
    """Mean squared distance over all pairs of rows."""
    return float(2 * np.var(Z, axis=0, dtype=np.float64).sum()) or 1.0
