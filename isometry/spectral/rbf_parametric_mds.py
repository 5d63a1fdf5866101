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
    n_components : size of the output (default: the number of features)
    n_basis : number of basis functions; their centres are those of k-means
    beta : β of the basis and of the dissimilarities; None: the mean squared distance
    reg : relative penalty on |L|²
    pairs, max_iter, tol, random_state, verbose : as in `ParametricMDS`

    Attributes
    ----------
    centers_, coef_ : (k, d) centres about the mean of X, and L (p, k)

    References
    ----------
    Z. Zhang, J. T. Kwok, D.-Y. Yeung, "Parametric distance metric learning with label information", IJCAI 2003.
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
