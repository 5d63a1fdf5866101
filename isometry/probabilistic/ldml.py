"""Logistic discriminant metric learning."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import factor
from isometry.core.probability import pair_logistic
from isometry.core.solve import Solution
from isometry.core.start import mean_sqdist
from isometry.core.threshold import ThresholdObjective, minimize_threshold
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Sampler, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs


@parameters
class LDML(SearchedMetric):
    """Logistic discriminant metric learning: logistic regression of "same or not" on the learned squared distance.

    min_{W ⪰ 0, b} mean over pairs of log(1 + exp(t (d_W²(i, j) − b))) + reg tr(W),  t = +1 similar, −1 dissimilar

    so that a pair is similar with probability σ(b − d_W²). Convex; the global minimum is certified.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map: p < d starts from the leading eigenvectors of the full solution and descends on from
        there; None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    reg : float ≥ 0, default=0.0
        Penalty on tr(W). Pairs that a metric can separate have no finite minimiser without one: 1e-4 is a good choice.
    fit_bias : bool, default=True
        Whether to learn the threshold b; False fixes b = 1.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    bias_ : float
        The threshold b, a squared distance; ``threshold_`` is its root, to compare with ``pair_distance``.

    Notes
    -----
    For verification: a probability for each pair, and a threshold, learned beside the metric. The problem is
    convex, and the minimum certified. One threshold serves all pairs, so that few directions meet it best and local
    detail is lost: for neighbours use `NCA` or `LMNN`.

    An evaluation costs O(n² d) over all pairs, O(m d + n d²) over m listed ones, and the certificate O(d³).

    b is a free variable, not a given constant; a pair of a sample with itself says nothing and is left out.

    References
    ----------
    | M. Guillaumin, J. Verbeek, C. Schmid, "Is that you? Metric learning approaches for face identification", ICCV
      2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LDML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LDML(strength=1, reg=1e-4).fit(X[::3], y[::3])
    >>> same, different = metric.pair_probability(X, [[0, 1], [0, 60]])
    >>> bool(same > 0.5 > different)
    True
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
        loss = signed.mean_loss(pair_logistic)
        objective = ThresholdObjective([frame.X], signed.edges, loss, [self.reg])
        L, b = np.eye(frame.X.shape[1]) / np.sqrt(mean_sqdist(frame.X)), np.ones(1)
        bounds = (None, None) if self.fit_bias else (1.0, 1.0)
        solution = minimize_threshold(objective, [L, b], bounds, p, max_iter=self.max_iter, tol=self.tol)
        L, self.bias_ = solution.x[0], float(solution.x[1].item())
        self.threshold_ = float(np.sqrt(max(self.bias_, 0.0)))
        self._store(frame.lift(factor(L.T @ L)), X.dtype)
        return solution

    def pair_probability(self, X: Any, pairs: Any = None) -> np.ndarray:
        """Probability of being similar, at the share of similar pairs learned from.

        Parameters
        ----------
        X : array-like of shape (n, d) or (m, 2, d)
            Rows, of which ``pairs`` lists some; or an array of pairs.
        pairs : array-like of shape (m, 2), Pairs or None, default=None
            Row numbers of the pairs, or a `Pairs` object; None: X itself holds pairs.

        Returns
        -------
        ndarray of shape (m,)
            The probabilities.
        """
        return expit(self.bias_ - self.pair_distance(X, pairs).astype(np.float64) ** 2)
