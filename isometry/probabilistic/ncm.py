"""Nearest class mean metrics, with one or several centroids of each class."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.centroids import class_centroids
from isometry.core.distance import sqdist
from isometry.core.edges import CenterEdges, EdgeLoss
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, ridge_penalty
from isometry.core.probability import neighbor_softmax
from isometry.core.solve import Solution
from isometry.core.solvers import whole_or_batches
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.searched import SearchedMetric
from isometry.supervision import Labels


@parameters
class NCM(SearchedMetric):
    """Nearest class mean metric: the likelihood of the class when a sample chooses among centroids by distance.

    min_L −(1/n) Σ_i log Σ_{m of class y_i} p(m|x_i) + reg s |L|²,  p(m|x) ∝ exp(−|L(x − μ_m)|²/2),  s = tr Cov X/d

    The centroids μ_m are those of k-means in each class, and stay fixed.

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
    n_centroids : int, default=5
        Number of centroids of each class, at most half its samples; 1: the class means.
    reg : float ≥ 0, default=0.01
        Penalty on ``|L|²``. Without it the scale of a map that separates all classes grows without bound.
    init : {"auto", "pca", "lda", "identity", "random"} or ndarray, default="auto"
        Where the search starts: "auto" is LDA if p ≤ c − 1, else PCA; named starts are scaled so that the nearest
        centroid is at distance about 1, an array is a map (p, d).
    batch_size : int or None, default=None
        Size of mini-batches of samples; Adam takes the place of L-BFGS, an iteration is 100 batches, and the result is
        near the optimum, not at it; ``history_`` has the means of the batches. None: no batches.
    max_iter : int, default=300
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    centroids_ : ndarray of shape (K, d)
        The centroids.
    centroid_classes_ : ndarray of shape (K,)
        The label of each centroid.

    Notes
    -----
    For many samples and many classes, to which new ones may be added by their means: an evaluation grows with the
    centroids, not with n². It also classifies by itself. Where the vote of neighbours is what counts, `NCA` and
    `LMNN` fit the task more closely.

    An evaluation costs O(n d p + n K p) for K centroids.

    References
    ----------
    | T. Mensink, J. Verbeek, F. Perronnin, G. Csurka, "Distance-based image classification: generalizing to new classes
      at near-zero cost", IEEE Transactions on Pattern Analysis and Machine Intelligence 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import NCM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = NCM(n_centroids=1, random_state=0).fit(X, y)
    >>> metric.centroids_.shape
    (3, 4)
    >>> bool((metric.predict(X) == y).mean() > 0.9)
    True
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    n_centroids: Count = 5
    reg: NotNegative = 1e-2
    init: str | np.ndarray = "auto"
    batch_size: Count | None = None
    max_iter: Iterations = 300
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        mu, classes = self._find_centroids(frame.X, side, rng)
        objective = centroid_likelihood(frame.X, side.codes, mu, classes, self.reg)
        L = initial_map(frame, side, self.init, p, rng)
        if isinstance(self.init, str):
            nearest = sqdist(frame.X @ L.T.astype(X.dtype), (mu @ L.T).astype(X.dtype)).min(axis=1)
            nearest = nearest[nearest > 1e-12 * nearest.max(initial=0)]
            L = L / np.sqrt(np.median(nearest) if len(nearest) else 1.0)
        solution = whole_or_batches(self.batch_size, rng, self.max_iter, self.tol).minimize(objective, L)
        features = mu if frame.basis is None else mu @ frame.basis.T
        self.centroids_ = (features + X.mean(axis=0)).astype(X.dtype)
        self.centroid_classes_ = side.classes[classes]
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels, rng: np.random.RandomState) -> DistanceObjective:
        return centroid_likelihood(X, side.codes, *self._find_centroids(X, side, rng), self.reg)

    def _find_centroids(self, X: np.ndarray, side: Labels, rng: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
        return class_centroids(X, side.codes, self.n_centroids, rng.randint(2**31), share=0.5)

    def _take(self, learner: Any) -> None:
        super()._take(learner)
        self.centroids_ = self._in_all_features(self.centroids_)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, in the order of ``np.unique`` of the labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples, c)
            The probabilities.
        """
        P, _ = neighbor_softmax(self._to_centroids(X) / 2)  # (n, K)
        classes, code = np.unique(self.centroid_classes_, return_inverse=True)
        return P @ np.eye(len(classes))[code]

    def predict(self, X: Any) -> np.ndarray:
        """The class of the nearest centroid.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            The classes.
        """
        nearest = self._to_centroids(X).argmin(axis=1)
        return self.centroid_classes_[nearest]

    def _to_centroids(self, X: Any) -> np.ndarray:
        """(n, K) squared distances."""
        Z = np.asarray(self.transform(X), dtype=np.float64)
        return sqdist(Z, self._transform(self.centroids_).astype(np.float64))


def centroid_likelihood(
    X: np.ndarray, codes: np.ndarray, mu: np.ndarray, classes: np.ndarray, reg: float
) -> DistanceObjective:
    """The objective at centred samples X (n, d), for centroids mu (K, d) of ``classes`` (K,)."""
    reg = reg * float(np.var(X, axis=0, dtype=np.float64).mean())
    both = np.concatenate([X, mu.astype(X.dtype)])
    return DistanceObjective(both, CenterEdges(len(mu), len(X)), class_loss(codes, classes), ridge_penalty(reg))


def class_loss(codes: np.ndarray, classes: np.ndarray) -> EdgeLoss:
    """−(1/n) Σ log p(class) for p ∝ exp(−d/2) over centroids, as a difference of two log-sum-exps, and its slopes."""
    n = len(codes)

    def loss(D: np.ndarray, rows: Any) -> tuple[float, np.ndarray]:
        D = D / 2
        own, of_own = neighbor_softmax(np.where(codes[rows, None] == classes, D, np.inf))
        P, of_all = neighbor_softmax(D)
        return float((of_all - of_own).sum(dtype=np.float64)) / n, (own - P) / (2 * n)

    return loss
