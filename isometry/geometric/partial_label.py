"""Geometric mean metric learning from candidate label sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from isometry.base import LinearMetric
from isometry.core.distance import row_blocks
from isometry.core.edges import DenseEdges
from isometry.core.graph import nearest_allowed
from isometry.core.linalg import definite
from isometry.core.nnls import nonnegative_minimum
from isometry.core.scatter import scatter
from isometry.core.spd import inverse_geodesic_factor
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, NotNegative, Positive, Share, parameters
from isometry.supervision import Candidates


@parameters
class PartialLabelGMML(LinearMetric):
    """Geometric mean metric learning from candidate labels: each sample has several, one of which is right.

    W = S⁻¹ ♯_t D,  S = Σ_i (Σ_{j∈N_i⁺} w_ij z_ij z_ijᵀ / Σ_j w_ij + λ r_i r_iᵀ),  D = Σ_i Σ_{j∈N_i⁻} z_ij z_ijᵀ,

    with z_ij = x_i − x_j. N_i⁺ are the k nearest samples that share a candidate with i, N_i⁻ those that share none
    and are no farther than the farthest of N_i⁺. The weights w_i ≥ 0 rebuild the candidates of i from those of N_i⁺,
    ``min (1/q)|y_i − Σ w_j y_j|² + (λ₁/k)|w|²``, and r_i is what N_i⁺ leaves of x_i,
    ``min_{v ≥ 0} |x_i − Σ v_j x_j|²``.

    Parameters
    ----------
    n_neighbors : int, default=10
        Number k of neighbours.
    weight_reg : float > 0, default=0.1
        Ridge λ₁ > 0, which evens out the weights w.
    reconstruction : float ≥ 0, default=0.1
        Weight λ ≥ 0 of the residuals r.
    t : float in [0, 1], default=0.5
        Position on the geodesic: 0 is the inverse of the similar scatter, 1 the dissimilar scatter.
    reg : float ≥ 0, default=0.0001
        Relative ridge on both scatters; one that is singular without it gets a small one, with a warning.

    Notes
    -----
    For samples of which only a set of candidate labels is known, one of them right: names under a picture, several
    annotators who disagree. With one label for each sample use `GMML`.

    A fit costs O(n² d) for the neighbours, O(n k³) for the weights and O(n k d² + d³) for the metric.

    X is centred, since r depends on the origin; both scatters are means. Where no N_i⁻ has a member, the k nearest
    samples without a common candidate take its place; where no such samples exist, all pairs do.

    References
    ----------
    | Y. Zhou, H. Gu, "Geometric mean metric learning for partial label data", Neurocomputing 275, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import Candidates, PartialLabelGMML
    >>> X, y = load_iris(return_X_y=True)
    >>> mask = np.eye(3, dtype=bool)[y]
    >>> mask[::4, 0] = True
    >>> metric = PartialLabelGMML().fit(X, Candidates(mask))
    >>> metric.transform(X).shape
    (150, 4)
    """

    _sees = (Candidates,)
    _needs = ()

    _: KW_ONLY
    n_neighbors: Count = 10
    weight_reg: Positive = 0.1
    reconstruction: NotNegative = 0.1
    t: Share = 0.5
    reg: NotNegative = 1e-4

    def _fit(self, X: np.ndarray, side: Candidates) -> None:
        if side.mask.shape[1] < 2:
            raise ValueError("PartialLabelGMML needs at least 2 classes; y names 1 class")
        Y, dtype = side.mask.astype(np.float32), X.dtype
        X = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
        hits, dist = nearest_allowed(X, self.n_neighbors, lambda rows: Y[rows] @ Y.T > 0)  # (n, k), −1: none left
        anchors = int((hits[:, 0] >= 0).sum())
        if anchors == 0:
            raise ValueError("no two samples share a candidate label: there are no similar pairs to learn from")
        A, R = self._reconstruct(X, Y, hits)
        S = (scatter(X, A) + self.reconstruction * R.T @ R) / anchors
        D = self._dissimilar_scatter(X, Y, np.where(np.isfinite(dist), dist, -1).max(axis=1))
        S, D = (definite(M, self.reg, beside=X.T @ X / len(X)) for M in (S, D))
        self._store(inverse_geodesic_factor(S, D, self.t), dtype)

    def vote_predict(self, X: Any, X_train: Any, candidates: Any) -> np.ndarray:
        """The candidate with the largest vote of the neighbours.

        The k nearest training rows in the learned space vote for all their candidates; one at distance d_r has the
        weight 1 − d_r/Σ_s d_s, so that near ones count more.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples to classify.
        X_train : array-like of shape (n, d)
            Training samples.
        candidates : array-like of bool, shape (n, q)
            Sets of candidates of the training rows.

        Returns
        -------
        ndarray of shape (m,)
            A column of ``candidates`` for each sample.
        """
        mask = candidates.mask if isinstance(candidates, Candidates) else np.asarray(candidates)
        Z_train, Z = (np.asarray(self.transform(part), dtype=np.float64) for part in (X_train, X))
        if len(mask) != len(Z_train):
            raise ValueError(f"X_train has {len(Z_train)} rows but candidates has {len(mask)}")
        k = min(self.n_neighbors, len(Z_train))
        dist, index = NearestNeighbors(n_neighbors=k).fit(Z_train).kneighbors(Z)  # (m, k)
        total = dist.sum(axis=1, keepdims=True)
        weight = 1 - np.divide(dist, total, out=np.zeros_like(dist), where=(total > 0) & (k > 1))
        return np.einsum("mk,mkq->mq", weight, mask[index]).argmax(axis=1)

    def _reconstruct(self, X: np.ndarray, Y: np.ndarray, hits: np.ndarray) -> tuple[sp.csr_matrix, np.ndarray]:
        """Weights w (n, n), rows of sum 1, and residuals r (n, d)."""
        (n, k), q = hits.shape, Y.shape[1]
        weights, R = np.zeros((n, k)), np.zeros_like(X)
        for rows in row_blocks(n, 8 * k * (k + X.shape[1] + q)):
            index = hits[rows]  # (b, k)
            exists = index >= 0
            m = np.maximum(exists.sum(axis=1), 1)  # (b,)
            w = combination(Y[index], Y[rows], exists, self.weight_reg * q / m)
            w = np.where(w.any(axis=1, keepdims=True), w, exists)
            weights[rows] = w / np.maximum(w.sum(axis=1, keepdims=True), np.finfo(float).tiny)
            ridge = 1e-6 * np.einsum("bkd,bkd,bk->b", X[index], X[index], exists) / m
            v = combination(X[index], X[rows], exists, np.where(ridge > 0, ridge, 1.0))
            R[rows] = np.where(exists.any(axis=1, keepdims=True), X[rows] - np.einsum("bk,bkd->bd", v, X[index]), 0)
        i, column = np.nonzero(hits >= 0)
        return sp.csr_matrix((weights[i, column], (i, hits[i, column])), shape=(n, n)), R

    def _dissimilar_scatter(self, X: np.ndarray, Y: np.ndarray, radius: np.ndarray) -> np.ndarray:
        """Mean scatter of the pairs that share no candidate and are as near as those that do."""
        reach = radius * (1 + 1e-9)  # so that rounding does not exclude pairs at exactly this distance

        def negatives(D, rows):
            C = ((Y[rows] @ Y.T == 0) & (reach[rows, None] >= D)).astype(np.float64)
            return C.sum(), C

        count, pull = DenseEdges(len(X)).evaluate(X, negatives)
        if count > 0:
            return X.T @ pull / count
        misses, _ = nearest_allowed(X, self.n_neighbors, lambda rows: Y[rows] @ Y.T == 0)
        i, column = np.nonzero(misses >= 0)
        instead = "nearest samples without a common candidate take their place" if len(i) else "all pairs stand in"
        warn_user(f"no sample without a common candidate is near enough to count; {instead}")
        if len(i) == 0:
            return 2 * np.cov(X, rowvar=False).reshape(X.shape[1], -1)
        return scatter(X, sp.csr_matrix((np.ones(len(i)), (i, misses[i, column])), shape=(len(X),) * 2)) / len(i)


def combination(parts: np.ndarray, whole: np.ndarray, use: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """argmin_{w ≥ 0} |whole − Σ_j w_j parts_j|² + penalty |w|² for each of b problems, w_j = 0 where not ``use``.

    parts (b, k, d), whole (b, d), use (b, k), penalty (b,).
    """
    parts = np.where(use[..., None], parts, 0).astype(np.float64)
    H = parts @ parts.transpose(0, 2, 1) + penalty[:, None, None] * np.eye(parts.shape[1])  # (b, k, k)
    return nonnegative_minimum(H, np.einsum("bkd,bd->bk", parts, whole.astype(np.float64)))
