"""The rank-one solution of MMC with squared distances."""

from __future__ import annotations

import numpy as np

from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, NotNegative, parameters
from isometry.supervision import Labels, Pairs


@parameters
class RankOneMMC(MixedMetric):
    """MMC with squared distances in its constraint: one direction, the leading one of dissimilar over similar scatter.

    max_{W ⪰ 0} tr(W M_D)  subject to  tr(W M_S) ≤ 1,  solved by  W = uuᵀ,  M_D u = λ_max M_S u,  uᵀM_S u = 1

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    reg : float ≥ 0, default=1e-6
        Relative ridge on M_S.

    Notes
    -----
    For a look at the single direction that parts similar from dissimilar pairs best, in closed form. One direction
    is too few for several classes: `FisherML` keeps c − 1 of them.

    A fit costs O(n d² + d³) from labels, O(m d² + d³) from m pairs.

    References
    ----------
    | E. P. Xing, A. Y. Ng, M. I. Jordan, S. Russell, "Distance metric learning with application to clustering with
      side-information", NIPS 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RankOneMMC
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RankOneMMC(strength=1).fit(X, y)
    >>> metric.transform(X).shape
    (150, 1)
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    reg: NotNegative = 1e-6

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> None:
        values, U = top_eigenvectors(*mean_pair_scatters(X, side)[::-1], 1, reg=self.reg)
        self.eigenvalue_ = float(values[0])
        self._store(fix_signs(U.T), X.dtype)
