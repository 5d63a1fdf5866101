"""Least squared residuals of relative comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.core.edges import EdgeLoss
from isometry.core.frame import Frame
from isometry.core.objective import DistanceObjective, logdet_penalty
from isometry.core.priors import prior_matrix
from isometry.core.solve import Solution
from isometry.core.solvers import Lbfgs
from isometry.parameters import KW_ONLY, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Sampler, comparisons
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Quadruplets, Triplets


@parameters
class LSML(SearchedMetric):
    """Least squared residuals of relative comparisons: distances that are in the wrong order, near a prior metric.

    min_{W ≻ 0} γ Σ_q w_q [d_W(a, b) − d_W(c, d)]₊² + tr(W W₀⁻¹) − log det(W W₀⁻¹) − d,  Σ w_q = 1

    Distances are not squared. Convex, since (√u − √v)² = u + v − 2√(uv) and √(uv) is concave.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    gamma : float ≥ 0, default=10000.0
        Price γ of the residuals; 1 hardly moves the metric, 10² to 10⁴ are useful.
    prior : {"identity", "covariance"} or ndarray, default="identity"
        Prior metric W₀, of which an array is positive definite. The identity is in units in which the mean squared
        distance is 1; the others are taken as they are.
    comparisons : str or Sampler, default="auto"
        Which comparisons to take if given labels: "auto" is `NeighborTriplets(3, misses=10)`; `RandomComparisons(n)` or
        another sampler.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For triplets or quadruplets: "a and b are nearer than c and d", from judgements of people or from ranks. It
    stays near a prior metric, and is quick. Where the prior is far from the truth, `RelativeML` moves farther;
    pairs marked as same or different are for `ITML` or `KISSME`.

    An evaluation costs O(m d + n d²) for m comparisons, plus O(d³).

    References
    ----------
    | E. Y. Liu, Z. Guo, X. Zhang, V. Jojic, W. Wang, "Metric learning from relative comparisons by minimizing squared
      residual", ICDM 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LSML, Quadruplets
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Quadruplets([0, 50], [1, 51], [0, 50], [60, 110], n_samples=150)
    >>> metric = LSML().fit(X, side)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < far)
    True
    """

    _sees = (Labels, Triplets, Quadruplets)

    _: KW_ONLY
    gamma: NotNegative = 1e4
    prior: str | np.ndarray = "identity"
    comparisons: str | Sampler = "auto"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets | Quadruplets) -> Solution:
        by_name = isinstance(self.prior, str)
        B = sla.cholesky(prior_matrix(self.prior, X))  # W₀ = BᵀB
        frame = Frame.of(X @ B.T.astype(X.dtype), scaled=by_name and self.prior == "identity")  # the prior is I here
        objective = self._objective(frame.X, side, check_random_state(self.random_state))
        solution = Lbfgs(self.max_iter, self.tol).minimize(objective, np.eye(frame.X.shape[1]))
        self._store(frame.extend(solution.x) @ B, X.dtype)
        return replace(solution, n_iter=max(solution.n_iter, 1))  # none is needed where the prior violates nothing

    def _objective(self, X: np.ndarray, side: Any, rng: np.random.RandomState) -> DistanceObjective:
        compared = comparisons(side, self.comparisons, X, rng)
        loss = residual_loss(self.gamma * compared.weight)
        return DistanceObjective(X, compared.edges, loss, logdet_penalty, lambda W: np.eye(len(W)) - np.linalg.inv(W))


def residual_loss(weight: np.ndarray) -> EdgeLoss:
    """Σ w [√u − √v]₊² over squared distances u of the near and v of the far pairs, and its slopes."""

    def loss(d: np.ndarray, where: Any) -> tuple[float, np.ndarray]:
        near, far = np.sqrt(d)
        excess = np.maximum(near - far, 0) * weight[where]
        slopes = np.zeros_like(d)
        np.divide(excess, near, out=slopes[0], where=near > 0)
        np.divide(-excess, far, out=slopes[1], where=far > 0)  # two equal points cannot be moved apart
        return float(excess @ np.maximum(near - far, 0)), slopes

    return loss
