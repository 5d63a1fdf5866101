"""Marginal Fisher analysis."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from isometry.base import check_components
from isometry.core.distance import pair_sqdist
from isometry.core.frame import Frame
from isometry.core.graph import nearest_misses, target_neighbors, undirected, unique_pairs
from isometry.core.linalg import fix_signs, top_eigenvectors
from isometry.core.scatter import pair_scatter
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, parameters
from isometry.strength import Reg, ScatterMetric
from isometry.supervision import Labels


@parameters
class MFA(ScatterMetric):
    """Marginal Fisher analysis: pairs across the border of classes far, relative to near pairs inside them.

    max_V tr((VᵀS_wV)⁻¹ VᵀS_bV)

    S_w is the mean scatter of pairs of which one is among the k nearest of its class to the other; S_b of pairs of
    different classes of which one is among the nearest of other classes to the other.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: those with λ > 1, along which other classes spread more. All of them
        would give S_w⁻¹, whatever S_b.
    n_neighbors : int, default=5
        Number of nearest samples of the class.
    n_misses : int, default=20
        Number of nearest samples of other classes.
    margin : {"sample", "class"}, default="sample"
        Pairs of S_b: the nearest of other classes of every sample ("sample"), or the ``n_misses`` shortest pairs that
        join a class to others ("class"), as the article has it.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on S_w, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.

    Attributes
    ----------
    eigenvalues_ : ndarray
        Values λ of S_b v = λ S_w v for the rows of the map.

    Notes
    -----
    For labels where only the border between classes matters: pairs across it are pushed, near pairs inside a class
    are drawn. It makes no assumption about the shape of classes. With very few samples in a class its neighbours
    are noise, and `FisherML` is steadier.

    A fit costs O(n² d + d³).

    References
    ----------
    | S. Yan, D. Xu, B. Zhang, H.-J. Zhang, Q. Yang, S. Lin, "Graph embedding and extensions: a general framework for
      dimensionality reduction", TPAMI 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MFA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = MFA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels,)

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: Count = 5
    n_misses: Count = 20
    margin: Literal["sample", "class"] = "sample"
    reg: Reg = "auto"

    def scatters(self, X: np.ndarray, side: Labels) -> tuple[Frame, np.ndarray, np.ndarray]:
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
        S_w : ndarray
            Scatter of near pairs within classes, in it.
        S_b : ndarray
            Scatter of near pairs across classes, in it.
        """
        frame = Frame.of(X.astype(np.float64))
        Z, codes = frame.X, side.codes
        inside = undirected(target_neighbors(Z, codes, self.n_neighbors))
        across = undirected(nearest_misses(Z, codes, min(self.n_misses, len(Z) - 1)))
        if self.margin == "class":
            across = shortest_of_each_class(Z, codes, *across, self.n_misses)
        S_w, S_b = (pair_scatter(Z, i, j) / len(i) for i, j in (inside, across))
        return frame, S_w, S_b

    def _fit(self, X: np.ndarray, side: Labels, scatters: Any = None) -> None:
        p = check_components(self.n_components, X.shape[1])
        frame, S_w, S_b = scatters or self.scatters(X, side)
        lam, V = top_eigenvectors(S_b, S_w, reg=float(self.reg))
        n_separating = int(np.sum(lam > 1))
        if p is None and n_separating == 0:
            warn_user(
                "other classes spread no more than neighbours of the own in any direction: the best of them is kept"
            )
        keep = min(p or max(n_separating, 1), len(lam))
        self.eigenvalues_ = lam[:keep]
        self._store(frame.lift(fix_signs(V[:, :keep].T)), X.dtype)


def shortest_of_each_class(
    X: np.ndarray, codes: np.ndarray, i: np.ndarray, j: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of pairs of different classes, the k shortest that each class takes part in; every pair once."""
    order = np.argsort(pair_sqdist(X, i, j), kind="stable")
    i, j = i[order], j[order]
    chosen = [np.flatnonzero((codes[i] == c) | (codes[j] == c))[:k] for c in np.unique(codes)]
    return unique_pairs(i[np.concatenate(chosen)], j[np.concatenate(chosen)])
