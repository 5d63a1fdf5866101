"""Orthonormal directions with the largest ratio of dissimilar to similar scatter."""

from __future__ import annotations

from typing import Any, Literal

from isometry.base import check_components
from isometry.core.linalg import fix_signs, ridge
from isometry.core.ratio import ratio_directions
from isometry.core.solve import Solution
from isometry.moments import MomentsMetric
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, parameters
from isometry.strength import Reg
from isometry.supervision import Labels, Pairs


@parameters
class TraceRatioML(MomentsMetric):
    """Orthonormal trace-ratio metric: the projection on which dissimilar pairs are farthest relative to similar ones.

    max_U tr(UᵀM_DU) / tr(UᵀM_SU)  subject to  UᵀU = I_p

    with M_S, M_D the mean scatters of similar and of dissimilar pairs, in the space they span. If M_S leaves at least p
    directions of it unused, U maximises tr(UᵀM_DU) among those and the ratio is infinite.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension p of the map; "auto" is c − 1 with labels and 2 with pairs, but fewer than the data span: all is a
        rotation.
    lam : float or "auto", default="auto"
        Ratio λ: "auto" finds the optimal one; a number solves max tr(Uᵀ(M_D − λM_S)U) instead, a maximum margin
        criterion.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on M_S, as a number (0: as published); "auto": the data choose it, and how much of the metric is
        mixed with the Euclidean one, see `AutomaticStrength`.
    max_iter : int, default=50
        Largest number of eigenproblems in the search for the ratio: 3 to 10 were needed on 16 real sets.
    tol : float ≥ 0, default=1e-10
        Relative change of the ratio at which the search stops.

    Attributes
    ----------
    ratio_ : float
        The ratio at the solution.

    Notes
    -----
    For labels or pairs and an orthonormal projection, which leaves distances within it as they are. Where
    directions should be weighed as well, `FisherML` or `DCA` do that; where n < d it takes directions in which
    similar pairs do not differ.

    A fit costs O(n d² + r d³) for r eigenproblems, mostly 5 to 7.

    References
    ----------
    | S. Xiang, F. Nie, C. Zhang, "Learning a Mahalanobis distance metric for data clustering and classification",
      Pattern Recognition 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import TraceRatioML
    >>> X, y = load_iris(return_X_y=True)
    >>> import numpy as np
    >>> metric = TraceRatioML(2, reg=0.0).fit(X, y)
    >>> bool(np.allclose(metric.components_ @ metric.components_.T, np.eye(2)))
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | Literal["auto"] | None = "auto"
    _: KW_ONLY
    lam: float | Literal["auto"] = "auto"
    reg: Reg = "auto"
    max_iter: Iterations = 50
    tol: NotNegative = 1e-10

    def _fit_moments(self, moments: Any) -> Solution:
        M_S, M_D = moments.mean_pair_scatters()
        M_S = ridge(M_S, float(self.reg))
        p = check_components(self.n_components, self.n_features_in_)
        default = 2 if moments.n_classes is None else moments.n_classes - 1
        U, self.ratio_, solution = ratio_directions(M_D, M_S, p, default, self.max_iter, self.tol, self.lam)
        self._store(moments.lift(fix_signs(U.T)), moments.dtype)
        return solution
