"""Metrics related to Fisher discriminant analysis, in closed form."""

from __future__ import annotations

import warnings

import numpy as np

from isometry.base import LinearMetric, mean_pair_scatters
from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.supervision import Labels, Pairs

CONSTRAINTS = ("trace", "orthonormal", "scatter")


class FisherML(LinearMetric):
    """Similar pairs near, dissimilar pairs far, on average, under one of three constraints.

    min_U tr(Uᵀ(M_S − M_D)U)  subject to  tr(UUᵀ) = 1, UᵀU = I, or UᵀM_S U = I,

    with M_S, M_D the mean scatters of similar and of dissimilar pairs. All three have closed forms: the eigenvectors
    with the smallest eigenvalues of M_S − M_D ("trace", scaled by 1/√p, and "orthonormal"), or the leading generalised
    eigenvectors of (M_D, M_S) ("scatter"), which with all pairs of equal classes span the LDA subspace.

    Parameters
    ----------
    n_components : p; "auto" is c − 1 with labels; with pairs, the number of directions that separate at all
    constraint : "scatter", "orthonormal" or "trace"
    reg : relative ridge on M_S ("scatter" only)

    Notes
    -----
    The survey solves the trace-constrained problem as a semidefinite programme; its minimiser is the rank-one projector
    on the lowest eigenvector, and for p > 1 we take the mean of the p lowest projectors (0 ⪯ W ⪯ I/p, tr W = 1).

    References
    ----------
    A. Ghodsi, D. Wilkinson, F. Southey, "Improving embeddings by flexible exploitation of side information",
    IJCAI 2007.
    B. Alipanahi, M. Biggs, A. Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    def __init__(self, n_components="auto", *, constraint="scatter", reg=1e-6):
        self.n_components = n_components
        self.constraint = constraint
        self.reg = reg

    def _fit(self, X, side):
        if self.constraint not in CONSTRAINTS:
            raise ValueError(f"constraint={self.constraint!r} is unknown; expected one of {', '.join(CONSTRAINTS)}")
        d = X.shape[1]
        p = self._check_n_components(d)
        M_S, M_D = mean_pair_scatters(X, side)
        if self.constraint == "scatter":
            values, V = top_eigenvectors(M_D, M_S, reg=self.reg)
            separating = values > 1  # dissimilar pairs spread more than similar ones
        else:
            values, V = top_eigenvectors(M_S - M_D, smallest=True)
            separating = values < 0.05 * values[0]
        if p is None:
            p = len(side.classes) - 1 if isinstance(side, Labels) else int(separating.sum())
        p = min(max(p, 1), V.shape[1])
        if p == d and self.constraint == "orthonormal":
            warnings.warn(
                "n_components equals the number of features: the map is a rotation and the metric Euclidean",
                stacklevel=3,
            )
        elif p == d and self.constraint == "scatter":
            warnings.warn(
                "n_components equals the number of features: the metric is the inverse of the similar scatter, "
                "whatever the dissimilar pairs",
                stacklevel=3,
            )
        scale = np.sqrt(1 / p) if self.constraint == "trace" else 1.0
        self.eigenvalues_ = values[:p]
        self._set_components(scale * fix_signs(V[:, :p].T), X.dtype)


def TraceSDP(n_components="auto") -> FisherML:
    """The trace-normalised semidefinite programme: FisherML(constraint="trace")."""
    return FisherML(n_components, constraint="trace")
