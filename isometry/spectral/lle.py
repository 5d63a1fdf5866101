"""Trace-ratio metric that keeps the locally linear geometry of all samples, labelled or not."""

from __future__ import annotations

import numpy as np

from isometry.base import LinearMetric
from isometry.core.linalg import column_range, fix_signs, row_range, top_eigenvectors
from isometry.core.reconstruct import reconstruction_weights
from isometry.core.solve import Solution
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, check_choices, check_components, parameters
from isometry.spectral.trace_ratio import ratio_directions
from isometry.supervision import Labels, Pairs

ALGORITHMS, WEIGHTINGS = ("trace_ratio", "gevp"), ("sum", "mean")


@parameters
class LLERegularizedML(LinearMetric):
    """Trace-ratio metric regularised by locally linear embedding: each sample stays the same mixture of its neighbours.

    max_U tr(UᵀM_DU) / tr(Uᵀ(M_S + λ XᵀEX/m)U)  subject to  UᵀU = I_p,  E = (I − S)ᵀ(I − S)

    with M_S the mean over m similar pairs and S the reconstruction weights of locally linear embedding.
    Semi-supervised: samples with the label −1, or in no pair, count in E.

    Parameters
    ----------
    n_components : p; "auto" is max(2, c − 1) with labels and 2 with pairs, but fewer than the data span
    n_neighbors : k neighbours a sample is reconstructed from
    reg : λ ≥ 0, weight of the geometry
    weighting : "sum": λ is what one sample weighs against one similar pair, so that the labels take over as they become
        many; or "mean": m is the number of samples, and λ weighs means, whatever the numbers
    lle_reg : relative ridge on the local Gram matrices, needed for k > d
    algorithm : "trace_ratio", or "gevp": the leading generalised eigenvectors, which are not orthonormal
    max_iter, tol : of the search for the ratio

    Attributes
    ----------
    ratio_ : the ratio at the solution ("trace_ratio"), or the sum of the leading eigenvalues ("gevp")

    References
    ----------
    M. S. Baghshah, S. B. Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.
    """

    _sees = (Labels, Pairs)
    _unlabelled = "minus one"

    n_components: int | str | None = "auto"
    _: KW_ONLY
    n_neighbors: int = 10
    reg: float = 1.0
    weighting: str = "sum"
    lle_reg: float = 1e-3
    algorithm: str = "trace_ratio"
    max_iter: int = 50
    tol: float = 1e-10

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        check_choices(self, algorithm=ALGORITHMS, weighting=WEIGHTINGS)
        if self.n_neighbors < 1 or self.reg < 0:
            raise ValueError(f"n_neighbors={self.n_neighbors} must be at least 1 and reg={self.reg} not negative")
        p, dtype = check_components(self.n_components, X.shape[1]), X.dtype
        Q = row_range(X) if X.shape[1] > len(X) else np.eye(X.shape[1])  # n < d: work where the samples are
        X = (X - X.mean(axis=0)) @ Q
        M_S, M_D = mean_pair_scatters(X, side)
        R = X - reconstruction_weights(X, self.n_neighbors, self.lle_reg) @ X  # (n, d), RᵀR = XᵀEX
        m = len(X) if self.weighting == "mean" else n_similar(side)
        C = M_S + self.reg / m * R.T @ R
        few = max(2, len(side.classes) - 1) if isinstance(side, Labels) else 2
        if self.algorithm == "trace_ratio":
            U, self.ratio_, solution = ratio_directions(M_D, C, p, few=few, max_iter=self.max_iter, tol=self.tol)
        else:
            values, U = top_eigenvectors(M_D, C, p or max(1, min(few, column_range(M_D).shape[1] - 1)))
            self.ratio_ = float(values.sum())
            solution = Solution(U, self.ratio_, 1, "closed form", True, [self.ratio_])
        self._store(fix_signs((Q @ U).T), dtype)
        return solution


def n_similar(side: Labels | Pairs) -> float:
    """How many similar pairs there are, in weight; of labels, all."""
    if isinstance(side, Labels):
        return float(np.sum(side.counts * (side.counts - 1)) / 2)
    return float(side.similar.weight.sum())
