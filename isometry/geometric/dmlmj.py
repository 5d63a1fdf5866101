"""Metric learning by the Jeffrey divergence of two Gaussians of differences."""

from __future__ import annotations

from typing import Any

import numpy as np

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.core.scatter import neighbor_scatters
from isometry.core.warn import warn_user
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, parameters
from isometry.strength import Reg, ScatterMetric
from isometry.supervision import Labels, Pairs


@parameters
class DMLMJ(ScatterMetric):
    """Distance metric learning through maximal Jeffrey divergence: differences of near pairs tell the two kinds apart.

    max_V KL(P ‖ Q) + KL(Q ‖ P),  P = N(0, VᵀSV),  Q = N(0, VᵀDV),  VᵀSV = I

    with S, D the mean scatters of differences to the k nearest samples of the class, and of other classes; given pairs,
    those of similar and of dissimilar ones. The divergence is Σ_l (λ_l + 1/λ_l)/2 − p over eigenvalues Dv = λSv.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map, the directions of the largest λ + 1/λ; None: those with λ > 1, along which other classes
        spread more than the own class. All of them would give S⁻¹, whatever D.
    n_neighbors : int, default=5
        Number k of nearest samples of the class, and of other classes.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on S, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Values λ of the rows of the map.

    Notes
    -----
    For labels, and few dimensions in which near samples of other classes spread more than near ones of the own
    class. It looks at neighbours, like `MFA`, and is scale-free, unlike `ANMM`. With few samples in a class
    `FisherML` is steadier.

    A fit costs O(n² d + d³).

    References
    ----------
    | B. Nguyen, C. Morell, B. De Baets, "Supervised distance metric learning through maximization of the Jeffrey
      divergence", Pattern Recognition 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DMLMJ
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DMLMJ(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: Count = 5
    reg: Reg = "auto"

    def scatters(self, X: np.ndarray, side: Labels | Pairs) -> tuple[Frame, np.ndarray, np.ndarray]:
        """The scatters that the metric follows from, for any ``reg``.

        Parameters
        ----------
        X : ndarray of shape (n, d)
            Samples.
        side : Labels or Pairs
            What is known of them.

        Returns
        -------
        frame : Frame
            The frame of the samples.
        S : ndarray
            Scatter of similar samples in it.
        D : ndarray
            Scatter of dissimilar samples in it.
        """
        frame = Frame.of(X.astype(np.float64))
        if isinstance(side, Labels):
            return frame, *neighbor_scatters(frame.X, side.codes, self.n_neighbors, self.n_neighbors)
        return frame, *mean_pair_scatters(frame.X, side)

    def _fit(self, X: np.ndarray, side: Labels | Pairs, scatters: Any = None) -> None:
        p = check_components(self.n_components, X.shape[1])
        frame, S, D = scatters or self.scatters(X, side)
        lam, V = top_eigenvectors(D, S, reg=float(self.reg))
        if p is None:
            if lam[0] <= 1:
                warn_user("other classes spread no more than the own class in any direction: the best of them is kept")
            order = np.arange(max(1, int(np.sum(lam > 1))))
        else:
            order = np.argsort(-(lam + 1 / np.maximum(lam, 1e-300)), kind="stable")[:p]
        self.eigenvalues_ = lam[order]
        self._store(frame.lift(fix_signs(V[:, order].T)), X.dtype)
