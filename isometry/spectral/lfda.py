"""Local Fisher discriminant analysis, also with samples that have no label."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from isometry.base import check_components
from isometry.core.distance import pair_sqdist, row_blocks, sqdist
from isometry.core.edges import ListedEdges
from isometry.core.frame import Frame
from isometry.core.graph import target_neighbors, unique_pairs
from isometry.core.linalg import (
    clearly_definite,
    definite,
    fix_signs,
    leading_eigenpairs,
    scatter_range,
    symmetric_product,
    symmetrize,
)
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Share, parameters
from isometry.strength import Reg, ScatterMetric
from isometry.supervision import Labels

DENSE_UP_TO = 5_000  # samples of a class; above, affinities join near ones only
NEAREST = 50  # that many
AT_ONCE = 2_000  # samples of a class whose distances are kept, 32 MiB


@parameters
class LFDA(ScatterMetric):
    """Local Fisher discriminant analysis: classes apart, and near samples of a class together, whatever its shape.

    max_V tr((VᵀS_lwV)⁻¹ VᵀS_lbV)

    S_lw = ½ Σ A_ij/n_c zzᵀ over pairs of a class, S_lb = ½ Σ A_ij(1/n − 1/n_c) zzᵀ over these and ½ Σ zzᵀ/n over
    pairs of different classes, with z = x_i − x_j and ``A_ij = exp(−|z|²/(σ_iσ_j))``, σ_i the distance to the k-th
    nearest sample of the class. Far samples of one class are not drawn together, so that it may fall into several
    clusters.

    With ``beta`` the scatter S_t of all samples, labelled or not, takes part (SELF): S_b = (1 − β)S_lb + βS_t and
    S_w = (1 − β)S_lw + β tr(S_t)/d I, between LFDA (0) and PCA (1). Then −1 in y marks samples without a label.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: all whose λ is positive.
    n_neighbors : int, default=7
        Number k of neighbours that set the local scale σ_i, at most one less than the size of the class.
    embedding : {"weighted", "plain", "orthonormal"}, default="weighted"
        Rows of the map: "weighted", √λ v, so that directions count by how well they separate; "plain", v;
        "orthonormal", an orthonormal basis of their span.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on S_w, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.
    beta : float in [0, 1], default=0.0
        Share β of the scatter of all samples.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Values λ of S_b v = λ S_w v for the rows of the map.

    Notes
    -----
    For labels where classes may fall into several clusters, and for a map to few dimensions; with ``beta`` also
    where most samples have no label. Where classes are single clouds `FisherML` does the same without neighbours.

    A fit costs O(n² d + d³), the square for pairs within classes and for σ.

    References
    ----------
    | M. Sugiyama, "Dimensionality reduction of multimodal labeled data by local Fisher discriminant analysis", JMLR
      2007.
    | M. Sugiyama, T. Idé, S. Nakajima, J. Sese, "Semi-supervised local Fisher discriminant analysis for dimensionality
      reduction", Machine Learning 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LFDA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LFDA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> metric.eigenvalues_.shape
    (2,)
    """

    _sees = (Labels,)

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: Count = 7
    embedding: Literal["weighted", "plain", "orthonormal"] = "weighted"
    reg: Reg = "auto"
    beta: Share = 0.0

    @property
    def _unlabelled(self) -> str:  # type: ignore[override]
        return "minus one" if self.beta > 0 else "dropped"

    def scatters(self, X: np.ndarray, side: Labels) -> tuple[Frame, np.ndarray, np.ndarray, np.ndarray]:
        """The scatters that the metric follows from, for any ``reg``.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        side : Labels
            Their labels.

        Returns
        -------
        frame : Frame
            The frame of the samples.
        S_b : ndarray
            Local scatter between classes, in it.
        S_w : ndarray
            Local scatter within classes, in it.
        S_m : ndarray
            A scatter that is 0 only where no two samples differ, in it.
        """
        frame = Frame.of(X.astype(np.float64, copy=False))
        Z, known, b = frame.X, side.labelled, self.beta
        some = slice(None) if known.all() else known  # which does not copy Z
        S_lw, S_lm = local_scatters(Z[some], side.codes[some], self.n_neighbors)
        if not b:
            return frame, S_lm - S_lw, S_lw, S_lm
        S_t = known.sum() / len(Z) * scatter(Z)
        S_w = (1 - b) * S_lw + b * np.trace(S_t) / len(S_t) * np.eye(len(S_t))
        return frame, (1 - b) * (S_lm - S_lw) + b * S_t, S_w, S_t

    def _fit(self, X: np.ndarray, side: Labels, scatters: Any = None) -> None:
        p = check_components(self.n_components, X.shape[1])
        frame, S_b, S_w, S_m = scatters or self.scatters(X, side)
        Q = None if clearly_definite(S_m) else scatter_range(S_m)  # (r, q): elsewhere no two samples differ
        if Q is not None:
            S_w, S_b, S_m = (symmetrize(Q.T @ S @ Q) for S in (S_w, S_b, S_m))
        lam, V = leading_eigenpairs(S_b, definite(S_w, float(self.reg), beside=S_m), p or len(S_b))
        V = V if Q is None else Q @ V
        n_positive = int(np.sum(lam > 0))
        if n_positive == 0:
            warn_user("no direction separates the classes more than it spreads them: the best of them is kept")
        keep = max(1, n_positive)
        lam, V = lam[:keep], V[:, :keep]
        if self.embedding == "orthonormal":
            V = np.linalg.qr(V)[0]
        scale = np.sqrt(lam) if self.embedding == "weighted" and n_positive else np.ones(keep)
        self.eigenvalues_ = lam
        self._store(frame.lift(fix_signs(scale[:, None] * V.T)), X.dtype)


def scatter(X: np.ndarray) -> np.ndarray:
    """Σ_i (x_i − μ)(x_i − μ)ᵀ."""
    X = X - X.mean(axis=0)
    return X.T @ X


def local_scatters(X: np.ndarray, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """S_lw = Σ_c G_c/n_c, and S_lm = S_lb + S_lw = B + Σ_c (1 − n_c/n)W_c + G_c/n with G_c = ½ Σ A_ij zzᵀ over class c.

    W_c is the scatter of the class and B that of the means. With rows x̃ about the mean of their class and Laplacians Δ
    of the affinities, G_c = X̃ᵀΔX̃ and W_c = X̃ᵀX̃, so that each of the two is one product over all rows.
    """
    n, sizes, centre = len(X), np.bincount(codes), X.mean(axis=0)
    own = X[np.argsort(codes, kind="stable")]  # class by class; about their means below
    pulls, means, ends = np.empty_like(own), np.zeros((len(sizes), X.shape[1])), np.cumsum(sizes)
    for c in np.flatnonzero(sizes):
        rows = slice(ends[c] - sizes[c], ends[c])
        means[c] = own[rows].mean(axis=0)
        own[rows] -= means[c]
        pulls[rows] = affinity_pull(own[rows], k) / sizes[c] if sizes[c] > 1 else 0
    S_lw = symmetric_product(own, pulls)
    share = np.repeat(sizes / n, sizes)[:, None]  # (n, 1) of the class of each row
    pulls *= share
    pulls += (1 - share) * own
    means = np.sqrt(sizes)[:, None] * (means - centre)
    return S_lw, means.T @ means + symmetric_product(own, pulls)


def affinity_pull(X: np.ndarray, k: int) -> np.ndarray:
    """Σ_j A_ij (x_i − x_j), A_ij = exp(−d_ij/(σ_iσ_j)), σ_i the distance to the k-th nearest row, or the farthest.

    For σ = 0, A is 1 of duplicates and 0 of others.
    """
    n = len(X)
    D = sqdist(X) if n <= AT_ONCE else None
    sigma = local_scales(X, min(k, n - 1), D)
    if n > DENSE_UP_TO:
        from sklearn.neighbors import NearestNeighbors

        near = NearestNeighbors(n_neighbors=NEAREST).fit(X).kneighbors(return_distance=False)
        i, j = unique_pairs(np.repeat(np.arange(n), NEAREST), near.ravel())
        return ListedEdges(i, j, n).pull(affinity(pair_sqdist(X, i, j), sigma[i] * sigma[j], 0.0), X)
    pull, duplicate = np.empty_like(X), 1e-12 * np.einsum("ij,ij->i", X, X).max(initial=0)
    for rows in row_blocks(n, 8 * n):
        d = sqdist(X[rows], X) if D is None else D[rows]
        A = affinity(d, sigma[rows, None] * sigma, duplicate)  # (b, n)
        pull[rows] = A.sum(axis=1)[:, None] * X[rows] - A @ X
    return pull


def local_scales(X: np.ndarray, k: int, D: np.ndarray | None) -> np.ndarray:
    """(n,) the distance of each row to the k-th nearest other one; D are the squared distances, if they are known."""
    n = len(X)
    if D is None:
        kth = target_neighbors(X, np.zeros(n, dtype=np.intp), k)[:, -1]
    else:
        np.fill_diagonal(D, np.inf)
        kth = np.argpartition(D, k - 1, axis=1)[:, k - 1]
        np.fill_diagonal(D, 0)
    return np.sqrt(pair_sqdist(X, np.arange(n), kth))


def affinity(d: np.ndarray, product: np.ndarray, duplicate: float) -> np.ndarray:
    """exp(−d/product); where that is 0/0, 1 for d up to ``duplicate``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        A = np.exp(-d / product)
    return np.where(product > 0, A, d <= duplicate)
