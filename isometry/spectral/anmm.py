"""Average neighbourhood margin maximisation."""

from __future__ import annotations

import numpy as np

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import fix_signs, ridge, top_eigenvectors
from isometry.core.scatter import neighbor_scatters
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, parameters
from isometry.strength import AutomaticStrength, Reg
from isometry.supervision import Labels


@parameters
class ANMM(AutomaticStrength):
    """Average neighbourhood margin maximisation: near samples of other classes far, near ones of the own class close.

    max_{UᵀU = I} tr(Uᵀ(S_b − S_w)U)

    S_w = (1/n) Σ_i (1/k_i) Σ_j (x_i − x_j)(x_i − x_j)ᵀ over the k_i nearest samples of the class, S_b the same over
    nearest samples of other classes.

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of directions; None: those with a positive margin. All of them are a mere rotation.
    n_neighbors : int, default=5
        Number of nearest samples of the class.
    n_misses : int or None, default=None
        Number of nearest samples of other classes; None: as many as ``n_neighbors``.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on S_w: the margin that a direction must have beyond it (0: as published); "auto": 0, and the
        data choose how much of the metric is mixed with the Euclidean one, see `AutomaticStrength`.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Margins of the kept directions.

    Notes
    -----
    For labelled samples whose classes have several clusters: only near samples count, and nothing is assumed of the
    shape of a class. Where classes are single clouds, `FisherML` or `DCA` say the same with fewer pairs. The
    criterion is a difference, so that features of large variance decide: standardise them.

    A fit costs O(n² d) for the neighbours and O(d³) for the directions.

    References
    ----------
    | F. Wang, C. Zhang, "Feature extraction by maximizing the average neighborhood margin", CVPR 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import ANMM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = ANMM(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> bool((metric.eigenvalues_[:-1] >= metric.eigenvalues_[1:]).all())
    True
    """

    _sees = (Labels,)
    regs = (0.0,)  # more would drop directions, which is no step towards Euclidean distance

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: Count = 5
    n_misses: Count | None = None
    reg: Reg = "auto"

    def _fit(self, X: np.ndarray, side: Labels) -> None:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X.astype(np.float64), reduced=True)
        S_w, S_b = neighbor_scatters(frame.X, side.codes, self.n_neighbors, self.n_misses or self.n_neighbors)
        margins, U = top_eigenvectors(S_b - ridge(S_w, float(self.reg)))
        n_positive = int(np.sum(margins > 0))
        if p is None and n_positive == 0:
            warn_user("the classes separate locally in no direction: the best of them is kept")
        if p == X.shape[1]:
            warn_user("n_components equals the number of features: the map is a rotation and the metric Euclidean")
        keep = min(p or max(n_positive, 1), len(margins))
        self.eigenvalues_ = margins[:keep]
        self._store(fix_signs(frame.lift(U[:, :keep].T)), X.dtype)
