"""Multidimensional scaling of label-aware dissimilarities on radial basis functions."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.distance import sqdist
from isometry.core.frame import Frame
from isometry.core.solve import Solution
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import Sampler
from isometry.spectral.stress import fit_map, label_targets, scale_of
from isometry.supervision import Labels, Pairs


@parameters
class RBFParametricMDS(MetricLearner):
    """Multidimensional scaling by radial basis functions: f(x) = Lψ(x), with the stress of `ParametricMDS`.

    min_L mean over pairs of (|L(ψ(x_i) − ψ(x_j))| − δ_ij)² + ε|L|²,  ψ_l(x) = exp(−|x − c_l|²/β)

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the output; None: the number of features.
    n_basis : int, default=100
        Number k of basis functions; their centres are those of k-means.
    beta : float > 0 or None, default=None
        Width β of the basis and of the dissimilarities; None: the mean squared distance.
    reg : float ≥ 0, default=0.001
        Relative penalty on ``|L|²``.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()`, or `RandomPairs(n)`, weighted to stand for all.
    max_iter : int, default=300
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    centers_ : ndarray of shape (k, d)
        Centres about the mean of X.
    coef_ : ndarray of shape (p, k)
        The map L.

    Notes
    -----
    As `ParametricMDS`, for relations that are not linear: a smooth map of radial basis functions. Far from the
    training samples it is constant; with many features distances to centres are all alike, and a linear map does
    better.

    An evaluation costs O(n² p + n k p) for k basis functions.

    References
    ----------
    | Z. Zhang, J. T. Kwok, D.-Y. Yeung, "Parametric distance metric learning with label information", IJCAI 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RBFParametricMDS
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RBFParametricMDS(2, n_basis=20, max_iter=20, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)
    _needs = ()  # pairs with a target are neither similar nor dissimilar

    n_components: Count | None = None
    _: KW_ONLY
    n_basis: Count = 100
    beta: Positive | None = None
    reg: NotNegative = 1e-3
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 300
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p = X.shape[1] if self.n_components is None else self.n_components
        rng, self.mean_ = check_random_state(self.random_state), X.mean(axis=0, dtype=np.float64)
        X = X - self.mean_
        self.beta_ = scale_of(self.beta, X)
        points = np.unique(X, axis=0)
        if len(points) > self.n_basis:
            points = KMeans(self.n_basis, n_init=1, random_state=rng).fit(X).cluster_centers_
        self.centers_ = points
        Psi = self._psi(X)
        targets = label_targets(X, side, self.pairs, self.beta_, rng)
        L = initial_map(Frame(Psi), side, "pca", p, rng)
        solution = fit_map(Psi, targets, L, reg=self.reg, max_iter=self.max_iter, tol=self.tol)
        self.coef_ = solution.x
        return solution

    def _psi(self, X: np.ndarray) -> np.ndarray:
        return np.exp(-sqdist(X, self.centers_) / self.beta_)  # (n, k)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return (self._psi(X - self.mean_) @ self.coef_.T).astype(X.dtype, copy=False)
