"""Which triplets (anchor, positive, negative) of labelled points a large-margin method learns from."""

from __future__ import annotations

import numpy as np

from isometry.core.distance import sqdist_blocks
from isometry.core.graph import k_smallest
from isometry.supervision import Triplets

NEAREST, FARTHEST = 1, -1
EXTREMES = {  # which k positives are matched with which k negatives
    "batch_hard": (FARTHEST, NEAREST),
    "HPEN": (FARTHEST, FARTHEST),
    "EPEN": (NEAREST, FARTHEST),
    "EPHN": (NEAREST, NEAREST),
}
MINERS = ("semi_hard", *EXTREMES, "negative_sampling")
MAX_WEIGHT = 1.4  # of 1/q(d), so that very near negatives do not take all draws


def mine(Z: np.ndarray, codes: np.ndarray, k: int, miner: str, rng: np.random.RandomState) -> Triplets:
    """Up to k · k triplets for each anchor, by the distances of Z (n, p); equally far points in order of index.

    "batch_hard", "HPEN", "EPEN", "EPHN": k positives × k negatives, each the nearest or the farthest. "semi_hard": the
    k nearest positives, each with the k nearest of the negatives farther than it. "negative_sampling": the k nearest
    positives × k negatives drawn without replacement by ``sampling_logweight``, on rows of Z scaled to length 1.
    """
    k = min(k, len(Z) - 1)
    found: list[tuple[np.ndarray, ...]] = []
    U = Z / np.maximum(np.linalg.norm(Z, axis=1, keepdims=True), np.finfo(Z.dtype).tiny)
    for rows, D in sqdist_blocks(U if miner == "negative_sampling" else Z, buffers=8):  # (b, n)
        same = codes[rows, None] == codes
        other = ~same
        same[:, rows][np.diag_indices(len(D))] = False
        sign_p, sign_n = EXTREMES.get(miner, (NEAREST, NEAREST))
        P = _first(sign_p * D, same, k)  # (b, k)
        if miner == "semi_hard":
            farther = (other & (D[np.arange(len(D)), p][:, None] < D) for p in P.T)
            N = np.stack([_first(D, allowed, k) for allowed in farther], axis=1)  # (b, k, k)
        elif miner == "negative_sampling":
            # the k largest of log-weight + Gumbel noise are k draws without replacement
            key = sampling_logweight(D, Z.shape[1]) + rng.gumbel(size=D.shape)
            N = _first(-key, other, k)[:, None]
        else:
            N = _first(sign_n * D, other, k)[:, None]  # (b, 1, k)
        A = np.arange(rows.start, rows.stop)[:, None, None]
        a, p, n = (part.ravel() for part in np.broadcast_arrays(A, P[:, :, None], N))
        keep = (p >= 0) & (n >= 0)
        found.append((a[keep], p[keep], n[keep]))
    return Triplets(*(np.concatenate(part) for part in zip(*found, strict=True)), n_samples=len(Z))


def sampling_logweight(D: np.ndarray, dim: int) -> np.ndarray:
    """log min(1.4, 1/q(d)) of squared distances D on the unit sphere, with q(d) = d^{dim−2} (1 − d²/4)^{(dim−3)/2}.

    q is how often a distance occurs between uniform points on the sphere: its inverse makes all distances as likely.
    """
    D = np.clip(D, 1e-8, 4 - 1e-8)
    return np.minimum(-(dim - 2) / 2 * np.log(D) - (dim - 3) / 2 * np.log1p(-D / 4), np.log(MAX_WEIGHT))


def _first(D: np.ndarray, allowed: np.ndarray, k: int) -> np.ndarray:
    """(b, k) columns of the k smallest allowed entries of each row, −1 where there are fewer."""
    index, value = k_smallest(np.where(allowed, D, np.inf), k)
    index[~np.isfinite(value)] = -1
    return index
