"""Metric learning for kernel regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.distance import row_blocks, sqdist
from isometry.core.edges import DenseEdges, EdgeLoss
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, ridge_penalty
from isometry.core.probability import neighbor_softmax
from isometry.core.solve import Solution
from isometry.core.solvers import whole_or_batches
from isometry.core.start import initial_map, neighbor_sqdist
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Targets


@parameters
class MLKR(SearchedMetric):
    """Metric learning for kernel regression: the leave-one-out error of a regression by neighbours is minimised.

    min_L (1/n) Σ_i |y_i − ŷ_i|² + reg s |L|²,  ŷ_i = Σ_{j≠i} p_ij y_j,  p_ij ∝ exp(−|L(x_i − x_j)|²),  s = tr Cov X/d

    Targets are one number for each sample or several; each column is brought to mean 0 and variance 1, and a constant
    one is left out. A `Labels` object becomes one column for each class.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    reg : float ≥ 0, default=0.01
        Penalty on ``|L|²``, in units of the variance of X.
    init : {"pca", "identity", "random"} or ndarray, default="pca"
        Where the search starts; named starts are scaled so that neighbours are at distance about 1, an array is a map
        (p, d).
    batch_size : int or None, default=None
        Size of mini-batches, for n beyond 10⁵: so many samples at a time, against all others. Adam takes
        the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it; ``history_``
        has the means of the batches. None: no batches.
    max_iter : int, default=100
        Largest number of iterations.
    tol : float ≥ 0, default=1e-06
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For targets that are numbers: a regression by neighbours, `NCA` for what is not a class. It searches, so that
    `SIR`, in closed form, comes first where the target follows few directions; the kernel regression itself is
    ``kernel_predict``.

    An evaluation costs O(n² p + n d p), with batches of b samples O(b n p).

    References
    ----------
    | K. Q. Weinberger, G. Tesauro, "Metric learning for kernel regression", AISTATS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import MLKR
    >>> X = np.random.default_rng(0).normal(size=(100, 4))
    >>> y = np.sin(2 * X[:, 0])
    >>> metric = MLKR(1, random_state=0).fit(X, y)
    >>> bool(abs(metric.components_[0]).argmax() == 0)
    True
    >>> metric.kernel_predict(X[:5], X, y).shape
    (5,)
    """

    _sees = (Targets, Labels)

    n_components: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 1e-2
    init: str | np.ndarray = "pca"
    batch_size: Count | None = None
    max_iter: Iterations = 100
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Targets | Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, None, self.init, p, rng, unit=lambda Z: neighbor_sqdist(Z, rng))
        solution = whole_or_batches(self.batch_size, rng, self.max_iter, self.tol).minimize(objective, L)
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Targets | Labels, rng: Any) -> DistanceObjective:
        reg = self.reg * float(np.var(X, axis=0, dtype=np.float64).mean())
        return DistanceObjective(X, DenseEdges(len(X)), regression_loss(columns(side)), ridge_penalty(reg))

    def kernel_predict(self, X: Any, X_train: Any, y_train: Any) -> np.ndarray:
        """Σ_j p_j y_j over the training samples, for each row of X: the regression whose error was minimised.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples to predict for.
        X_train : array-like of shape (n, d)
            Training samples.
        y_train : array-like of shape (n,) or (n, q)
            Their targets.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, q)
            The predictions.
        """
        Z, Z_train = (np.asarray(self.transform(part), dtype=np.float64) for part in (X, X_train))
        y = np.asarray(y_train, dtype=np.float64)
        if len(y) != len(Z_train):
            raise ValueError(f"X_train has {len(Z_train)} rows but y_train has {len(y)}")
        blocks = row_blocks(len(Z), 8 * len(Z_train))
        return np.concatenate([neighbor_softmax(sqdist(Z[rows], Z_train))[0] @ y for rows in blocks])


def columns(side: Targets | Labels) -> np.ndarray:
    """(n, q) what is predicted: the targets that vary, or a column for each class; mean 0, variance 1."""
    Y = np.eye(len(side.classes))[side.codes] if isinstance(side, Labels) else side.varying
    Y = Y - Y.mean(axis=0)
    return Y / Y.std(axis=0)


def regression_loss(Y: np.ndarray) -> EdgeLoss:
    """(1/n) Σ |y_i − ŷ_i|² over rows of distances, and its slopes −(2/n) p_ij r_iᵀ(y_j − ŷ_i), r = ŷ − y."""
    n = len(Y)

    def loss(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        P, _ = neighbor_softmax(D)  # (b, n)
        targets = Y.astype(D.dtype, copy=False)
        estimate = P @ targets  # (b, q)
        r = estimate - targets[rows]
        P *= (-2 / n) * (r @ targets.T - np.einsum("ij,ij->i", r, estimate)[:, None])
        return float(np.einsum("ij,ij->", r, r, dtype=np.float64)) / n, P

    return loss
