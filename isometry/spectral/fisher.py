"""Metrics related to Fisher discriminant analysis, in closed form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from isometry.base import check_components
from isometry.core.linalg import factor, fix_signs, top_eigenvectors
from isometry.core.moments import between_scatter
from isometry.core.warn import warn_user
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, check_choices, parameters
from isometry.strength import Reg
from isometry.supervision import Labels, Pairs

CONSTRAINTS = ("trace", "orthonormal", "scatter")


@parameters
class FisherML(MomentsMetric):
    """Metric related to Fisher discriminant analysis: similar pairs near, dissimilar pairs far, on average.

    min_U tr(Uᵀ(M_S − M_D)U)  subject to  UᵀM_S U = I ("scatter"),  UᵀU = I ("orthonormal")  or tr(UUᵀ) = 1 ("trace")

    with M_S, M_D the mean scatters of similar and of dissimilar pairs. All three have closed forms: the eigenvectors
    with the smallest eigenvalues of M_S − M_D ("trace", scaled by 1/√p, and "orthonormal"), or the leading generalised
    eigenvectors of (M_D, M_S) ("scatter"), which with all pairs of equal classes span the LDA subspace.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension p of the map; "auto" is c − 1 with labels; with pairs, the number of directions that separate at all.
        With labels and "scatter" they are the c − 1 along which the class means differ most: where classes are uneven,
        a leading eigenvector may show no more than that a small class is wide.
    constraint : {"scatter", "orthonormal", "trace"}, default="scatter"
        Which of the three problems above is solved.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on M_S ("scatter" only), as a number (0: as published); "auto": the data choose it, and how much
        of the metric is mixed with the Euclidean one, see `AutomaticStrength`.
    solver : {"eigen", "sdp"}, default="eigen"
        "eigen"; or "sdp", the semidefinite programme of "trace" by cvxpy, to see that it gives the same.

    Notes
    -----
    For labels or pairs and a map to few dimensions: with labels, the span of linear discriminant analysis, as a
    metric. It is fast, and right where classes are single clouds. Where a class has several clusters, `LFDA`, `MFA`
    or `ANMM` keep them apart; c − 1 directions can be too few for two classes.

    A fit costs O(n d² + d³) from labels, O(m d² + d³) from m pairs.

    The survey solves the trace-constrained problem as a semidefinite programme; its minimiser is the rank-one projector
    on the lowest eigenvector, and for p > 1 we take the mean of the p lowest projectors (0 ⪯ W ⪯ I/p, tr W = 1).

    References
    ----------
    | B. Alipanahi, M. Biggs, A. Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.
    | A. Ghodsi, D. Wilkinson, F. Southey, "Improving embeddings by flexible exploitation of side information", IJCAI
      2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import FisherML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = FisherML().fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | Literal["auto"] | None = "auto"
    _: KW_ONLY
    constraint: str = "scatter"
    reg: Reg = "auto"
    solver: Literal["eigen", "sdp"] = "eigen"

    def _fit_moments(self, moments: Any) -> None:
        check_choices(self, constraint=CONSTRAINTS)
        if self.solver == "sdp" and self.constraint != "trace":
            raise ValueError(f"solver='sdp' is for constraint='trace', not {self.constraint!r}; use solver='eigen'")
        M_S, M_D = moments.mean_pair_scatters()
        d = len(M_S)
        p = check_components(self.n_components, self.n_features_in_)
        if self.constraint == "scatter":
            values, V = top_eigenvectors(M_D, M_S, reg=float(self.reg))
            separating = values > 1  # dissimilar pairs spread more than similar ones
        else:
            values, V = top_eigenvectors(M_S - M_D, smallest=True)
            separating = values < 0.05 * values[0]
        if p is None:
            p = int(separating.sum()) if moments.n_classes is None else moments.n_classes - 1
            if moments.n_classes is not None and self.constraint == "scatter":
                between = np.einsum("dp,de,ep->p", V, between_scatter(moments), V)
                order = np.sort(np.argsort(-between, kind="stable")[: max(p, 1)])
                values, V = values[order], V[:, order]
        p = min(max(p, 1), V.shape[1])
        if p == d and self.constraint == "orthonormal":
            warn_user("n_components equals the number of features: the map is a rotation and the metric Euclidean")
        elif p == d and self.constraint == "scatter":
            warn_user(
                "n_components equals the number of features: the metric is the inverse of the similar scatter, "
                "whatever the dissimilar pairs"
            )
        scale = np.sqrt(1 / p) if self.constraint == "trace" else 1.0
        self.eigenvalues_ = values[:p]
        L = scale * fix_signs(V[:, :p].T) if self.solver == "eigen" else fantope_minimum(M_S - M_D, p)
        self._store(moments.lift(L), moments.dtype)


def fantope_minimum(A: np.ndarray, p: int) -> np.ndarray:
    """L (·, d) with W = LᵀL = argmin tr(WA) over 0 ⪯ W ⪯ I/p, tr W = 1, by an interior-point method."""
    try:
        import cvxpy as cp
    except ImportError as error:
        raise ImportError("solver='sdp' needs cvxpy: pip install cvxpy") from error
    W = cp.Variable(A.shape, PSD=True)
    unit = np.abs(A).max() or 1.0
    limits = [cp.trace(W) == 1, np.eye(len(A)) / p - W >> 0]
    cp.Problem(cp.Minimize(cp.trace(W @ (A / unit))), limits).solve(solver="CLARABEL")
    return factor(np.asarray(W.value), p)
