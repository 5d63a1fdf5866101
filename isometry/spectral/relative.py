"""Metrics from relative comparisons: one pair nearer than another."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from sklearn.utils import check_random_state

from isometry.core.basis import BasisProblem
from isometry.core.frame import Frame
from isometry.core.hinge import WIDTHS, rounded_hinge
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, Penalty, logdet_penalty
from isometry.core.probability import softplus
from isometry.core.solve import Solution
from isometry.core.solvers import Certified, Lbfgs, in_rounds
from isometry.parameters import KW_ONLY, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Comparisons, Sampler, comparisons
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Quadruplets, Triplets

LEAST_WEIGHT = 1e-10  # of a feature, in units of the start, where log det keeps all weights above 0


@parameters
class RelativeML(SearchedMetric):
    """Metric from relative comparisons: "a is nearer to b than c to d", each with a margin, and a penalty on W.

    min_{W ⪰ 0} mean over comparisons of ℓ(d²(near) − d²(far)) + reg Ω(W),  ℓ(h) = [1 + h]₊,  Ω(W) = tr W/(d w₀)

    with W = w₀ I where the search starts. Samples are scaled to mean squared distance 1, and 1/w₀ is the median gap
    ``|d²(near) − d²(far)|``, so that the margin 1 is a typical gap and ``reg`` has no unit.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    loss : {"hinge", "squared_hinge", "logistic"}, default="hinge"
        Loss ℓ: "hinge" [1 + h]₊, "squared_hinge" [1 + h]₊², "logistic" log(1 + exp(h)).
    penalty : {"trace", "frobenius", "logdet"}, default="trace"
        Penalty Ω: "trace" tr W/(d w₀), "frobenius" ``|W|²/(2 d w₀²)``, "logdet" (tr W/w₀ − log det(W/w₀))/d − 1.
    reg : float ≥ 0, default=0.1
        Weight of the penalty.
    structure : {"full", "diagonal"}, default="full"
        "full", or "diagonal": one weight for each feature.
    A : ndarray of shape (d, k) or None, default=None
        Fixed map: the metric is A W Aᵀ with W (k, k); None: the features themselves.
    comparisons : str or Sampler, default="auto"
        Which comparisons to take if given labels: "auto" is `NeighborTriplets(3, misses=10)`, "ordinal", for labels
        with an order, `OrdinalTriplets()`; or `RandomComparisons(n)` or another sampler.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    objective_ : float
        Value of the objective at the solution, the hinge rounded over a hundredth of the margin.

    Notes
    -----
    For triplets and quadruplets, when loss and penalty are to be chosen: the hinge for sure comparisons, the
    logistic loss for noisy ones, the trace for few directions, "diagonal" for a choice of features. With labels
    alone `LMNN` finds its own triplets.

    An evaluation costs O(m d + n d²) for m comparisons.

    References
    ----------
    | M. Schultz, T. Joachims, "Learning a distance metric from relative comparisons", NIPS 2003.
    | Y. Ying, K. Huang, C. Campbell, "Sparse metric learning via smooth optimization", NIPS 2009.
    | W.-S. Zheng, S. Gong, T. Xiang, "Person re-identification by probabilistic relative distance comparison", CVPR
      2011.
    | J. Mei, M. Liu, H. R. Karimi, H. Gao, "LogDet divergence-based metric learning with triplet constraints and its
      applications", IEEE Transactions on Image Processing 2014.
    | B. Nguyen, C. Morell, B. De Baets, "Distance metric learning for ordinal classification based on triplet
      constraints", Knowledge-Based Systems 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RelativeML, Triplets
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Triplets([0, 50, 100], [1, 51, 101], [60, 110, 20], n_samples=150)
    >>> metric = RelativeML().fit(X, side)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < far)
    True
    """

    _sees = (Labels, Triplets, Quadruplets)

    _: KW_ONLY
    loss: Literal["hinge", "squared_hinge", "logistic"] = "hinge"
    penalty: Literal["trace", "frobenius", "logdet"] = "trace"
    reg: NotNegative = 0.1
    structure: Literal["full", "diagonal"] = "full"
    A: np.ndarray | None = None
    comparisons: str | Sampler = "auto"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets | Quadruplets) -> Solution:
        A = None if self.A is None else _check_map(self.A, X.shape[1])
        frame = Frame.of(X if A is None else X @ A.astype(X.dtype), scaled=True)
        if frame.basis is not None and self.structure == "diagonal":
            frame = Frame(frame.X @ frame.basis.T.astype(X.dtype), None, frame.unit)  # weights of the features
        compared = comparisons(side, self.comparisons, frame.X, check_random_state(self.random_state))
        widths = WIDTHS if self.loss == "hinge" else (0.0,)
        problems = (self._problem(frame.X, compared, width) for width in widths)
        d, w0 = frame.X.shape[1], 1 / compared.gap(frame.X)
        if self.structure == "diagonal":
            least = LEAST_WEIGHT * w0 if self.penalty == "logdet" else 0.0
            diagonals = (BasisProblem(problem, np.eye(d)) for problem in problems)
            solution = in_rounds(
                lambda f, w, budget: f.minimize(w, budget, self.tol, least), diagonals, np.full(d, w0), self.max_iter
            )
            L = np.diag(np.sqrt(np.maximum(solution.x, 0)))
        else:
            solver = Lbfgs if self.penalty == "logdet" and self.reg > 0 else Certified
            solution = in_rounds(
                lambda f, L, budget: solver(budget, self.tol).minimize(f, L),
                problems,
                np.sqrt(w0) * np.eye(d),
                self.max_iter,
            )
            L = canonical(solution.x, tol=1e-7)
        self.objective_ = solution.value
        L = frame.lift(L)
        self._store(L if A is None else L @ A.T, X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Any, rng: np.random.RandomState) -> DistanceObjective:
        return self._problem(X, comparisons(side, self.comparisons, X, rng), WIDTHS[0])

    def _problem(self, X: np.ndarray, compared: Comparisons, width: float) -> DistanceObjective:
        """The objective at scaled samples, a hinge being rounded over ``width``."""

        def link(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if self.loss == "logistic":
                return softplus(h)
            if self.loss == "hinge":
                return rounded_hinge(1 + h, width)
            positive = np.maximum(1 + h, 0)
            return positive**2, 2 * positive

        d, w0, loss = X.shape[1], 1 / compared.gap(X), compared.mean_loss(link)
        if self.penalty == "trace" or self.reg == 0:
            return DistanceObjective(X, compared.edges, loss, linear=self.reg / (d * w0) * np.eye(d))
        penalty, slope = (_frobenius if self.penalty == "frobenius" else _logdet)(self.reg / d, w0)
        return DistanceObjective(X, compared.edges, loss, penalty, slope)


def _frobenius(reg: float, w0: float) -> tuple[Penalty, Any]:
    """reg |W|²/(2 w₀²) with its gradients in L and in W."""
    a = reg / w0**2

    def penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
        K = L @ L.T
        return a / 2 * float(np.vdot(K, K)), 2 * a * K @ L

    return penalty, lambda W: a * W


def _logdet(reg: float, w0: float) -> tuple[Penalty, Any]:
    """reg times the LogDet divergence of W from w₀ I, with its gradients in L and in W."""

    def penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = logdet_penalty(L / np.sqrt(w0))
        return reg * value, reg / np.sqrt(w0) * gradient

    return penalty, lambda W: reg * (np.eye(len(W)) / w0 - np.linalg.inv(W))


def _check_map(A: Any, d: int) -> np.ndarray:
    A = np.asarray(A, dtype=np.float64)
    if A.ndim != 2 or len(A) != d or not np.isfinite(A).all():
        raise ValueError(f"A must be a finite matrix with {d} rows, one for each feature; got shape {A.shape}")
    return A
