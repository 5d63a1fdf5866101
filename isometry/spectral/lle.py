"""Trace-ratio metric that keeps the locally linear geometry of all samples, labelled or not."""

from __future__ import annotations

from typing import Literal

import numpy as np

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import column_range, fix_signs, top_eigenvectors
from isometry.core.ratio import ratio_directions
from isometry.core.reconstruct import reconstruction_weights
from isometry.core.solve import Solution
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, check_choices, parameters
from isometry.strength import AutomaticStrength, Reg
from isometry.supervision import Labels, Pairs

ALGORITHMS, WEIGHTINGS = ("trace_ratio", "gevp"), ("sum", "mean")


@parameters
class LLERegularizedML(AutomaticStrength):
    """Trace-ratio metric regularised by locally linear embedding: each sample stays the same mixture of its neighbours.

    max_U tr(UᵀM_DU) / tr(Uᵀ(M_S + λ XᵀEX/m)U)  subject to  UᵀU = I_p,  E = (I − S)ᵀ(I − S)

    with M_S the mean over m similar pairs and S the reconstruction weights of locally linear embedding.
    Semi-supervised: samples with the label −1, or in no pair, count in E.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension p of the map; "auto" is max(2, c − 1) with labels and 2 with pairs, but fewer than the data span.
    n_neighbors : int, default=10
        Number k of neighbours that a sample is reconstructed from.
    reg : "auto" or float ≥ 0, default="auto"
        Weight λ ≥ 0 of the geometry, as a number (1 in the papers' trials); "auto": the data choose it, and how much of
        the metric is mixed with the Euclidean one, see `AutomaticStrength`.
    weighting : {"sum", "mean"}, default="sum"
        "sum": λ is what one sample weighs against one similar pair, so that the labels take over as they become many;
        or "mean": m is the number of samples, and λ weighs means, whatever the numbers.
    lle_reg : float ≥ 0, default=0.001
        Relative ridge on the local Gram matrices, needed for k > d.
    algorithm : {"trace_ratio", "gevp"}, default="trace_ratio"
        "trace_ratio", or "gevp": the leading generalised eigenvectors, which are not orthonormal.
    max_iter : int, default=50
        Largest number of iterations of the search for the ratio.
    tol : float ≥ 0, default=1e-10
        Relative change of the ratio at which the search stops.

    Attributes
    ----------
    ratio_ : float
        The ratio at the solution ("trace_ratio"), or the sum of the leading eigenvalues ("gevp").

    Notes
    -----
    For few labels or pairs and many samples without: these keep their place among their neighbours. With labels for
    all samples the geometry adds little, and `TraceRatioML` is faster.

    A fit costs O(n² d) for the neighbours, O(n k³) for the weights and O(d³) for each of the eigenproblems.

    References
    ----------
    | M. S. Baghshah, S. B. Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import Labels, LLERegularizedML
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 5 == 0, y, -1)
    >>> metric = LLERegularizedML(2, reg=1.0).fit(X, Labels(some, unlabelled=-1))
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)
    _unlabelled = "minus one"

    n_components: Count | Literal["auto"] | None = "auto"
    _: KW_ONLY
    n_neighbors: Count = 10
    reg: Reg = "auto"
    weighting: str = "sum"
    lle_reg: NotNegative = 1e-3
    algorithm: str = "trace_ratio"
    max_iter: Iterations = 50
    tol: NotNegative = 1e-10

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        check_choices(self, algorithm=ALGORITHMS, weighting=WEIGHTINGS)
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X.astype(np.float64))
        M_S, M_D = mean_pair_scatters(frame.X, side)
        E = reconstruction_weights(frame.X, self.n_neighbors, self.lle_reg)
        R = frame.X - E @ frame.X  # (n, r), the residuals
        n_similar = side.pair_counts[0] if isinstance(side, Labels) else side.similar.weight.sum()
        m = len(X) if self.weighting == "mean" else n_similar
        C = M_S + float(self.reg) / m * R.T @ R
        default = max(2, len(side.classes) - 1) if isinstance(side, Labels) else 2
        if self.algorithm == "trace_ratio":
            U, self.ratio_, solution = ratio_directions(M_D, C, p, default, self.max_iter, self.tol)
        else:
            values, U = top_eigenvectors(M_D, C, p or max(1, min(default, column_range(M_D).shape[1] - 1)))
            self.ratio_ = float(values.sum())
            solution = Solution(U, self.ratio_, 1, "closed form", True, [self.ratio_])
        self._store(fix_signs(frame.lift(U.T)), X.dtype)
        return solution
