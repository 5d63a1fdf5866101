"""Joint dimensionality reduction and metric learning on Stiefel × SPD."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import canonical, svd
from isometry.core.objective import DistanceObjective, Penalty
from isometry.core.priors import prior_matrix
from isometry.core.probability import softplus
from isometry.core.solve import Solution
from isometry.core.solvers import Lbfgs
from isometry.core.start import initial_map, mean_sqdist
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import Sampler, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs


@parameters
class DRML(SearchedMetric):
    """Joint dimensionality reduction and metric learning: a subspace V and a metric Λ within it, learned together.

    min_{V,Λ} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + reg (tr ΛΛ₀⁻¹ − log det ΛΛ₀⁻¹ − p)
    d² = (x_i − x_j)ᵀ VΛVᵀ (x_i − x_j),  VᵀV = I,  Λ ≻ 0

    over similar and dissimilar pairs. Every map of full rank is L = OΛ^{1/2}Vᵀ with a rotation O: the search runs over
    L without constraints, and ``components_`` is Λ^{1/2}Vᵀ with Λ diagonal. Convex in W = VΛVᵀ if p = d.

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
    reg : float > 0, default=0.1
        Weight λ > 0 of the LogDet divergence that keeps Λ near Λ₀ and of full rank.
    prior : "identity" or ndarray, default="identity"
        Prior Λ₀ of the metric: "identity" or a positive definite array (p, p).
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    init : {"pca", "identity", "lda", "random"} or ndarray, default="pca"
        Where the search starts; named starts are scaled to mean squared distance 1, an array is a map (p, d).
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For pairs or labels and a map to few dimensions that is learned together with the metric in it, instead of after
    a PCA. With p = d it is convex, and `LDML`, which also learns a threshold, is its sibling.

    An evaluation costs O(n² p + n d p) over all pairs, O(m p + n d p) over m listed ones.

    The exponent is the squared distance, as in a Gaussian (the survey prints the distance, which is not smooth at 0),
    and sums are means. V and Λ may be rotated together, so Λ₀ only acts through its eigenvalues: the largest of Λ meets
    the largest of Λ₀.

    References
    ----------
    | M. Harandi, M. Salzmann, R. Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML
      2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DRML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DRML(2, random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    reg: Positive = 0.1
    prior: str | np.ndarray = "identity"
    pairs: str | Sampler = "auto"
    init: str | np.ndarray = "pca"
    max_iter: Iterations = 200
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]), Frame.of(X)
        rng = check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, side, self.init, p, rng, unit=mean_sqdist)
        solution = Lbfgs(self.max_iter, self.tol).minimize(objective, L)
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState) -> DistanceObjective:
        signed = signed_edges(side, self.pairs, X, rng)
        loss = signed.loss(logistic, similar=1 / signed.n_similar, dissimilar=1 / signed.n_dissimilar)
        p = min(self.n_components or X.shape[1], X.shape[1])
        return DistanceObjective(X, signed.edges, loss, divergence(self.reg, self._prior_spectrum(p)))

    def _prior_spectrum(self, p: int) -> np.ndarray:
        """Eigenvalues of Λ₀, largest first."""
        if isinstance(self.prior, str) and self.prior != "identity":
            raise ValueError(f"prior={self.prior!r} is unknown; expected 'identity' or an array {(p, p)}")
        return np.linalg.eigvalsh(prior_matrix(self.prior, np.empty((0, p))))[::-1]


def logistic(d: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log(1 + e^{td}) and its slope in d: similar pairs (t = 1) near, dissimilar ones (t = −1) far."""
    value, slope = softplus(t * d)
    return value, t * slope


def divergence(reg: float, mu: np.ndarray) -> Penalty:
    """reg · min_O D(OᵀΛO, Λ₀) over rotations O = reg · Σ σ²/μ − log(σ²/μ) − 1.

    σ are the singular values of L, so σ² the eigenvalues of Λ, and μ those of Λ₀, both in falling order.
    """

    def penalty(L: np.ndarray) -> tuple[float, np.ndarray]:
        U, s, Vt = svd(L)
        if s[-1] <= 0:
            return np.inf, np.zeros_like(L)
        q = s**2 / mu
        return reg * float(np.sum(q - np.log(q) - 1)), (U * (2 * reg * (s / mu - 1 / s))) @ Vt

    return penalty
