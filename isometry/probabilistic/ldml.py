"""Logistic discriminant metric learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import factor
from isometry.core.parts import current_source
from isometry.core.probability import pair_logistic
from isometry.core.solve import Solution
from isometry.core.start import mean_sqdist
from isometry.core.threshold import SpreadThreshold, ThresholdObjective, minimize_threshold
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Sampler, SignedEdges, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs


@parameters
class LDML(SearchedMetric):
    """Logistic discriminant metric learning: logistic regression of "same or not" on the learned squared distance.

    min_{W ⪰ 0, b} mean over pairs of log(1 + exp(t (d_W²(i, j) − b))) + reg tr(W),  t = +1 similar, −1 dissimilar

    so that a pair is similar with probability σ(b − d_W²). Convex; the global minimum is certified.

    Parameters
    ----------
    n_components : p < d starts from the leading eigenvectors of the full solution and descends on from there
    reg : penalty on tr(W). Pairs that a metric can separate have no finite minimiser without one: 1e-4 is a good choice
    fit_bias : learn the threshold b; False fixes b = 1
    pairs : which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength, early_stopping : "auto": the data choose how much of the metric is mixed with the Euclidean one, and how
        many iterations help, see `SearchedMetric`; strength=1 is the method as published, early_stopping=False always
        searches to the end

    Attributes
    ----------
    bias_ : b, a squared distance; ``threshold_`` is its root, to compare with ``pair_distance``

    Notes
    -----
    b is a free variable, not a given constant; a pair of a sample with itself says nothing and is left out.

    References
    ----------
    M. Guillaumin, J. Verbeek, C. Schmid, "Is that you? Metric learning approaches for face identification", ICCV 2009.
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 0.0
    fit_bias: bool = True
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        signed = signed_edges(side, self.pairs, frame.X, check_random_state(self.random_state))
        source = current_source()
        objective: ThresholdObjective | SpreadThreshold
        if source is None:
            objective = mean_logistic(frame.X, signed, self.reg)
        else:
            objective = SpreadThreshold(source.parts(mean_logistic), self.reg)
        L, b = np.eye(frame.X.shape[1]) / np.sqrt(mean_sqdist(frame.X)), np.ones(1)
        bounds = (None, None) if self.fit_bias else (1.0, 1.0)
        solution = minimize_threshold(objective, [L, b], bounds, p, max_iter=self.max_iter, tol=self.tol)
        L, self.bias_ = solution.x[0], float(solution.x[1].item())
        self.threshold_ = float(np.sqrt(max(self.bias_, 0.0)))
        self._store(frame.lift(factor(L.T @ L)), X.dtype)
        return solution

    def pair_probability(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Probability of being similar, at the share of similar pairs learned from; see ``pair_distance``."""
        return expit(self.bias_ - self.pair_distance(X, pairs).astype(np.float64) ** 2)


def mean_logistic(X: np.ndarray, signed: SignedEdges, reg: float = 0.0) -> ThresholdObjective:
    """The mean over all pairs of log(1 + exp(t (d − b))), plus reg |L|²."""
    return ThresholdObjective([X], signed.edges, signed.mean_loss(pair_logistic), [reg])
