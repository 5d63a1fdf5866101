"""The numbers behind the pictures, drawn by matplotlib in `figures` and as SVG in the pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import eigh
from sklearn.utils import check_random_state

from isometry.core.distance import pair_sqdist
from isometry.core.linalg import svd

# Okabe and Ito's colours, told apart with every common kind of colour vision; grey stands in for their black, which
# would vanish on a dark page
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C8C", "#C8B400")
BETTER, WORSE, UNCLEAR = "#0072B2", "#D55E00", "#8C8C8C"
VERDICTS = {"better": BETTER, "worse": WORSE}
SAME, DIFFERENT = "#0072B2", "#E69F00"
POSITIVE, NEGATIVE = "#542788", "#B35806"  # entries of a matrix
N_BINS = 40
ROWS_A_DIRECTION = 10  # of a plane that is chosen by the classes of the rows
RIDGE = 1e-3  # of the within-class scatter, relative to its mean: with few points it is singular


def planar(Z: np.ndarray) -> np.ndarray:
    """Rows (n, p) in the plane of their two widest directions, (n, 2); up to two dimensions pass through."""
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or 0 in Z.shape:
        raise ValueError(f"Z must have rows and columns to draw; its shape is {Z.shape}")
    if Z.shape[1] <= 2:
        return np.pad(Z, ((0, 0), (0, 2 - Z.shape[1])))
    centred = Z - Z.mean(axis=0)
    axes = svd(centred)[2][:2]  # (2, p)
    largest = axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)]
    axes = axes * np.sign(largest)[:, None]  # svd leaves the sign open: this picture is the same each time
    P = centred @ axes.T
    return np.pad(P, ((0, 0), (0, 2 - P.shape[1])))  # one row alone has one direction


def discriminant_plane(Z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Rows (n, p) in the plane that tells their classes apart best, (n, 2): Fisher's, scaled to unit within-scatter.

    It is looked for in the n/10 widest directions: in as many directions as rows, any classes can be set apart.
    """
    Z, codes = np.asarray(Z, dtype=np.float64), np.unique(codes, return_inverse=True)[1]
    centred = Z - Z.mean(axis=0)
    most = max(2, len(Z) // ROWS_A_DIRECTION)
    if centred.shape[1] > most:
        centred = centred @ svd(centred)[2][:most].T
    means = np.stack([centred[codes == c].mean(axis=0) for c in range(codes.max() + 1)])  # (c, p)
    inside = centred - means[codes]
    W = inside.T @ inside
    B = (means * np.bincount(codes)[:, None]).T @ means
    V = eigh(B, W + RIDGE * max(np.trace(W) / len(W), 1e-300) * np.eye(len(W)))[1][:, ::-1][:, :2]  # (p, 2)
    P = centred @ V
    return np.pad(P, ((0, 0), (0, 2 - P.shape[1])))


def pair_sample(Z: np.ndarray, y: Any, max_rows: int = 300, random_state: Any = 0) -> tuple[np.ndarray, np.ndarray]:
    """Distances (m,) of all pairs among at most ``max_rows`` random rows, and whether each pair shares its label."""
    y = np.unique(np.asarray(y), return_inverse=True)[1]
    rows = np.arange(len(y))
    if len(rows) > max_rows:
        rows = check_random_state(random_state).choice(len(y), max_rows, replace=False)
    i, j = np.triu_indices(len(rows), 1)
    return np.sqrt(pair_sqdist(np.asarray(Z)[rows], i, j)), y[rows][i] == y[rows][j]


def densities(
    distance: np.ndarray, similar: np.ndarray, bins: int = N_BINS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (b + 1,), and the densities (b,) of the distances of similar and of dissimilar pairs; zeros if none."""
    distance, similar = np.asarray(distance, dtype=np.float64), np.asarray(similar, dtype=bool)
    edges = np.linspace(0.0, max(float(distance.max(initial=0.0)), 1e-12), bins + 1)
    counts = [np.histogram(distance[mask], edges)[0] for mask in (similar, ~similar)]
    return edges, *(c / max(c.sum(), 1) / np.diff(edges) for c in counts)


def remaining(history: Sequence[float] | np.ndarray) -> np.ndarray:
    """(h_t − h_end)/(h_0 − h_end): the share of the whole descent (or ascent) that is still to come."""
    h = np.asarray(history, dtype=np.float64)
    h = h[np.isfinite(h)]
    if len(h) == 0:
        return h
    drop = h[0] - h[-1]
    return (h - h[-1]) / drop if drop else np.zeros_like(h)


def weight_matrix(metric: Any) -> np.ndarray:
    """W = LᵀL (d, d) of a fitted linear metric, or of the last step of a pipeline; or W itself, given as an array."""
    learner = metric[-1] if hasattr(metric, "steps") else metric
    W: np.ndarray | None = metric if isinstance(metric, np.ndarray) else getattr(learner, "mahalanobis_", None)
    if W is None:
        raise TypeError(f"{type(learner).__name__} is not linear: it has no matrix W over the features to draw")
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"a metric's matrix is square; this one has shape {W.shape}")
    return W


def leading_features(W: np.ndarray, names: Sequence[str] | None, most: int) -> tuple[np.ndarray, list[str]]:
    """The block of W of the ``most`` features with the largest weights W_kk, and their names, heaviest first.

    W is scaled to mean weight 1 over all features: its unit has no meaning.
    """
    if names is not None and len(names) != len(W):
        raise ValueError(f"there are {len(names)} feature names for a metric over {len(W)} features")
    weight = np.diag(W)
    top = np.argsort(-weight, kind="stable")[:most]
    scale = weight.mean() if weight.mean() > 0 else 1.0
    return W[np.ix_(top, top)] / scale, [f"x{k}" if names is None else str(names[k]) for k in top]
