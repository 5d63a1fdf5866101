"""Maximally collapsing metric learning."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective
from isometry.core.probability import neighbor_softmax
from isometry.core.softmax import Slopes, SoftmaxEdges, SoftmaxLoss
from isometry.core.solve import Solution
from isometry.core.solvers import Certified
from isometry.core.start import initial_map, neighbor_sqdist
from isometry.moments import label_moments
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels


@parameters
class MCML(SearchedMetric):
    """Maximally collapsing metric learning: neighbour probabilities as near as can be to uniform over one's own class.

    min_{W ⪰ 0} (1/n) Σ_i KL(p⁰_i ‖ p_i) + penalty,  p⁰_ij = 1/(n_{y_i} − 1) in one's own class, p_ij ∝ exp(−d_W²(i, j))

    Convex in W; the solver works on a square factor and certifies the global minimum.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading eigenvectors of W to keep; None: all.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    penalty : {"trace", "frobenius"}, default="trace"
        Penalty: tr(W) ("trace") or ``|W|²``/2 ("frobenius"), times ``reg``.
    reg : float ≥ 0, default=0.0
        Weight of the penalty. Classes that can be collapsed perfectly have no finite minimiser without one: the scale
        then grows until the decrease falls below ``tol``.
    init : {"identity", "pca", "lda", "random"} or ndarray, default="identity"
        Where the search starts; an array is a map (d, d).
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels and classes that are single clouds: each should become a point, far from the others. It is convex and
    has no local minima. Classes of several clusters cannot collapse, and lose: use `NCA` or `LMNN`, which ask for
    near neighbours only.

    An evaluation costs O(n² d + n d²), and the certificate O(d³).

    References
    ----------
    | A. Globerson, S. Roweis, "Metric learning by collapsing classes", NIPS 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import MCML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = MCML(2, strength=1, reg=0.001).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    penalty: Literal["trace", "frobenius"] = "trace"
    reg: NotNegative = 0.0
    init: str | np.ndarray = "identity"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, side, self.init, None, rng, unit=lambda Z: neighbor_sqdist(Z, rng))
        solution = Certified(self.max_iter, self.tol).minimize(objective, L)
        self._store(frame.lift(canonical(solution.x, p, tol=1e-7)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels, rng: Any) -> DistanceObjective:
        n_c, d = side.counts.astype(np.float64), X.shape[1]
        anchors = n_c[side.codes] > 1  # a class of one has no target distribution
        m = int(anchors.sum())
        weights = np.divide(2 * n_c, n_c - 1, out=np.zeros_like(n_c), where=n_c > 1) / m
        (A0,) = label_moments(X, side).within(weights)  # (1/m) Σ_ij p⁰_ij (x_i − x_j)(x_i − x_j)ᵀ
        entropy = float(np.log(n_c[side.codes][anchors] - 1).sum()) / m

        def by_rows(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
            P, lse = neighbor_softmax(D)  # (b, n)
            use = anchors[rows]
            P *= -(use / m)[:, None].astype(P.dtype)
            return float(lse[use].sum(dtype=np.float64)) / m - entropy * len(P) / len(X), P

        def by_sums(s: np.ndarray, h: np.ndarray) -> Slopes:
            value, v = np.where(anchors, np.log(s), 0) / m - entropy / len(X), np.where(anchors, 1 / s, 0) / m
            return Slopes(value, np.zeros_like(s), v, s)

        edges, loss, reg = SoftmaxEdges(np.arange(len(X))), SoftmaxLoss(by_rows, by_sums), self.reg
        if self.penalty == "trace" or reg == 0:
            return DistanceObjective(X, edges, loss, linear=A0 + reg * np.eye(d))

        def frobenius(L: np.ndarray) -> tuple[float, np.ndarray]:
            W = L.T @ L
            return reg / 2 * float(np.vdot(W, W)), 2 * reg * L @ W

        return DistanceObjective(X, edges, loss, frobenius, penalty_slope=lambda W: reg * W, linear=A0)
