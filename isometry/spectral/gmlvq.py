"""Generalised matrix learning vector quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.centroids import class_centroids
from isometry.core.distance import sqdist
from isometry.core.edges import CenterEdges
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.solve import Solution, lbfgs
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels

LEAST = 1e-12  # added to d⁺ + d⁻, in units of the mean squared distance


@parameters
class GMLVQ(SearchedMetric):
    """Generalised matrix learning vector quantisation: prototypes of the classes, and the metric that suits them.

    min_{L, μ} (1/n) Σ_i σ(β (d⁺ − d⁻)/(d⁺ + d⁻)) − (reg/2) [log det(LLᵀ)/p − log(tr LLᵀ/p)]

    with d^± the squared distance of Lx_i to the nearest Lμ of its own and of another class. The value is the same for
    every scale of L; tr LᵀL = 1 afterwards.

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
    n_prototypes : int, default=3
        Number of prototypes of each class; a smaller class has as many as samples.
    beta : float > 0, default=1.0
        Steepness β of the sigmoid σ.
    reg : float ≥ 0, default=0.1
        Weight of the penalty that keeps all p directions alive; without it the rank collapses.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    prototypes_ : ndarray of shape (K, d)
        The prototypes.
    prototype_classes_ : ndarray of shape (K,)
        The label of each prototype.

    Notes
    -----
    For labels, where a classifier that can be looked at is wanted as well: a few prototypes for each class, and
    which features matter. It learns from all samples at once, and one evaluation does not grow with n². For
    k-nearest neighbours in the learned space alone, `NCA` and `LMNN` fit the task more closely.

    An evaluation costs O(n d p + n K p) for K prototypes.

    References
    ----------
    | P. Schneider, M. Biehl, B. Hammer, "Adaptive relevance matrices in learning vector quantization", Neural
      Computation 2009.
    | P. Schneider, K. Bunte, H. Stiekema, B. Hammer, T. Villmann, M. Biehl, "Regularization in matrix relevance
      learning", IEEE Transactions on Neural Networks 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import GMLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = GMLVQ(n_prototypes=1, random_state=0).fit(X, y)
    >>> metric.prototypes_.shape
    (3, 4)
    >>> bool((metric.predict(X) == y).mean() > 0.9)
    True
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_prototypes: Count = 3
    beta: Positive = 1.0
    reg: NotNegative = 0.1
    max_iter: Iterations = 1000
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X, scaled=True)
        rng = check_random_state(self.random_state)
        mu, classes = class_centroids(frame.X, side.codes, self.n_prototypes, rng.randint(2**31))
        problem = PrototypeProblem(frame.X.astype(np.float64), side.codes, classes, self.beta, self.reg)
        L = initial_map(frame, side, "identity", p, rng)
        solution = lbfgs(problem, [L / np.linalg.norm(L), mu], max_iter=self.max_iter, tol=self.tol)
        L, mu = solution.x
        self.prototypes_ = (mu if frame.basis is None else mu @ frame.basis.T) * frame.unit + X.mean(axis=0)
        self.prototypes_ = self.prototypes_.astype(X.dtype)
        self.prototype_classes_ = side.classes[classes]
        L = frame.lift(canonical(L))
        self._store(L / np.linalg.norm(L), X.dtype)
        return solution

    def _take(self, learner: Any) -> None:
        super()._take(learner)
        self.prototypes_ = self._in_all_features(self.prototypes_)

    def predict(self, X: Any) -> np.ndarray:
        """The class of the nearest prototype.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            The classes.
        """
        Z = np.asarray(self.transform(X), dtype=np.float64)
        nearest = sqdist(Z, self._transform(self.prototypes_).astype(np.float64)).argmin(axis=1)
        return self.prototype_classes_[nearest]


@dataclass(frozen=True)
class PrototypeProblem:
    """The objective over [L (p, d), prototypes (K, d)]; samples X (n, d) in float64."""

    X: np.ndarray
    codes: np.ndarray  # (n,)
    classes: np.ndarray  # (K,)
    beta: float
    reg: float

    def __call__(self, x: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        L, mu = x
        n = len(self.X)
        both = np.concatenate([self.X, mu])
        value, pull = CenterEdges(len(mu), n).evaluate(both @ L.T, self._loss)
        gradient = 2 * pull.T @ both
        if self.reg:
            f, g = rank_penalty(L)
            value, gradient = value + self.reg * f, gradient + self.reg * g
        return value, [gradient, 2 * pull[n:] @ L]

    def _loss(self, D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        own = self.codes[rows, None] == self.classes
        nearest = [np.where(mask, D, np.inf).argmin(axis=1) for mask in (own, ~own)]
        line = np.arange(len(D))
        plus, minus = (D[line, k] for k in nearest)
        total = plus + minus + LEAST
        s = expit(self.beta * (plus - minus) / total)
        slope = self.beta * s * (1 - s) / len(self.X) / total**2
        C = np.zeros_like(D)
        C[line, nearest[0]] = slope * (2 * minus + LEAST)
        C[line, nearest[1]] = -slope * (2 * plus + LEAST)
        return float(s.sum()) / len(self.X), C


def rank_penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
    """−½ [log det(LLᵀ)/p − log(tr LLᵀ/p)] ≥ 0 and its gradient; 0 where all rows are orthogonal and equally long."""
    p, K = len(L), L @ L.T
    sign, logdet = np.linalg.slogdet(K)
    if sign <= 0:
        return np.inf, np.zeros_like(L)
    trace = float(np.trace(K))
    return -(logdet / p - np.log(trace / p)) / 2, L / trace - np.linalg.solve(K, L) / p
