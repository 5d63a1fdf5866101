"""Sparse determinant metric learning."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg as sla
from sklearn.covariance import graphical_lasso
from sklearn.exceptions import ConvergenceWarning

from isometry.core.linalg import factor, symmetrize
from isometry.core.priors import prior_matrix
from isometry.core.solve import Solution
from isometry.core.warn import warn_user
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Count, NotNegative, PositiveShare, parameters
from isometry.supervision import Labels, Pairs

MANY_FEATURES = 300  # a sweep of the graphical lasso takes O(d³), and there are many


@parameters
class SDML(MixedMetric):
    """Sparse determinant metric learning: a metric near a prior, with few entries off the diagonal.

    min_{W ≻ 0} tr((W₀⁻¹ + η(M_S − M_D)) W) − log det W + λ Σ_{i≠j} |W_ij|

    There is a minimum for every λ if and only if η < η* = 1/λ_max(W₀^½ (M_D − M_S) W₀^½), so that η = balance · η*.
    Likewise λ = sparsity · the largest entry off the diagonal of W₀⁻¹ + η(M_S − M_D): at 1 all others vanish.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    balance : float in (0, 1], default=0.9
        Ratio η/η*: 1 is the limit at which a direction gets infinite weight, and is lowered a little.
    sparsity : float ≥ 0, default=0.1
        Price λ over its largest useful value.
    prior : {"identity", "covariance"} or ndarray, default="identity"
        Prior metric W₀: "identity", "covariance" or a positive definite array.
    max_iter : int, default=200
        Largest number of sweeps of the graphical lasso.
    tol : float ≥ 0, default=0.0001
        Duality gap at which the sweeps stop.

    Notes
    -----
    For pairs or labels of many features, where few are thought to interact: most entries of W off the diagonal are
    0. It depends on the axes, so that features must mean something; after a PCA use `ITML` or `GMML`.

    A sweep costs O(d³) after O(n d²) for the scatters.

    References
    ----------
    | G.-J. Qi, J. Tang, Z.-J. Zha, T.-S. Chua, H.-J. Zhang, "An efficient sparse metric learning in high-dimensional
      space via l1-penalized log-determinant regularization", ICML 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import SDML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = SDML(sparsity=1.0).fit(X, y)
    >>> W = metric.get_mahalanobis_matrix()
    >>> bool(abs(W - W.diagonal() * [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]).max() < 1e-6)
    True
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    balance: PositiveShare = 0.9
    sparsity: NotNegative = 0.1
    prior: str | np.ndarray = "identity"
    max_iter: Count = 200
    tol: NotNegative = 1e-4

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        d = X.shape[1]
        if d > MANY_FEATURES:
            warn_user(
                f"SDML takes O(d³) a sweep, which is long for {d} features; reduce them first, by PCA for example"
            )
        W0, (S, D) = prior_matrix(self.prior, X), mean_pair_scatters(X, side)
        B = sla.cholesky(W0)  # W₀ = BᵀB
        largest = float(sla.eigvalsh(symmetrize(B @ (D - S) @ B.T))[-1])
        balance = min(self.balance, 1 - 1e-6)
        if largest <= 1e-12 * float(np.trace(B @ (D + S) @ B.T)):
            warn_user("dissimilar pairs are no further apart than similar ones in any direction: the prior is kept")
            balance, largest = 0.0, 1.0
        while True:
            E = symmetrize(sla.cho_solve((B, False), np.eye(d)) + balance / largest * (S - D))
            try:
                solution = sparse_precision(E, self.sparsity, self.max_iter, self.tol)
                break
            except FloatingPointError:
                balance /= 2
                warn_user(f"the graphical lasso failed; it is tried again with balance={balance:g}")
        self.balance_ = balance
        self._store(factor(solution.x), X.dtype)
        return solution


def sparse_precision(E: np.ndarray, sparsity: float, max_iter: int, tol: float) -> Solution:
    """argmin_W tr(E W) − log det W + λ Σ_{i≠j} |W_ij| for E ≻ 0, λ = sparsity · its largest entry off the diagonal."""
    scale = float(np.trace(E)) / len(E)
    E = E / scale
    alpha = sparsity * float(np.abs(E - np.diag(np.diag(E))).max())
    if sparsity >= 1 or len(E) == 1:
        return Solution(np.diag(1 / np.diag(E)) / scale, 0.0, 1, "the solution is diagonal", True, [0.0])
    if alpha == 0:
        return Solution(symmetrize(sla.inv(E)) / scale, 0.0, 1, "the solution is an inverse", True, [0.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, W, costs, n_iter = graphical_lasso(
            E,
            alpha,
            tol=max(tol, 1e-12),
            enet_tol=min(tol, 1e-4),
            max_iter=max_iter,
            return_costs=True,
            return_n_iter=True,
        )
    done = not any(issubclass(w.category, ConvergenceWarning) for w in caught)
    reason = "duality gap below tol" if done else f"max_iter={max_iter} reached"
    history = [float(cost) for cost, _ in costs]
    return Solution(symmetrize(W) / scale, history[-1], max(n_iter, 1), reason, done, history)
