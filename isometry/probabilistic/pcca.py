"""Pairwise constrained component analysis."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.objective import DistanceObjective, ridge_penalty
from isometry.core.probability import softplus
from isometry.core.solve import Solution
from isometry.core.solvers import whole_or_batches
from isometry.core.start import initial_map, mean_sqdist
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import Sampler, signed_edges
from isometry.searched import SearchedMetric
from isometry.supervision import Labels, Pairs


@parameters
class PCCA(SearchedMetric):
    """Pairwise constrained component analysis: a low-dimensional map from a sparse list of pairs, by a logistic loss.

    min_L mean over pairs of (1/β) log(1 + exp(β t (|L(x_i − x_j)|² − b))) + reg |L|²,  t = +1 similar, −1 dissimilar

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: min(d, 40).
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `SearchedMetric`.
    early_stopping : bool, default=True
        Whether the data also choose how many iterations help, if ``strength`` is "auto"; False always searches to the
        end.
    beta : float > 0, default=3.0
        Sharpness β of the loss.
    margin : float > 0, default=1.0
        Squared distance b that separates similar from dissimilar. Only βb shapes the metric: margin b and sharpness β
        give √b times the map of margin 1 and sharpness βb.
    reg : float ≥ 0, default=0.0
        Penalty on ``|L|²``.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto", `AllPairs()` or `RandomPairs(n)`.
    batch_size : int or None, default=None
        Size of mini-batches, for n beyond 10⁵: so many pairs at a time; of labels, random pairs. Adam takes the place
        of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it; ``history_`` has the
        means of the batches. None: no batches.
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
    For a sparse list of pairs in many dimensions: a map to few dimensions, learned at once. It has local minima;
    where d is small, `LDML` solves the same kind of problem to its certified minimum.

    An evaluation costs O(m p + n d p) for m pairs, O(n² p + n d p) over all pairs.

    References
    ----------
    | A. Mignon, F. Jurie, "PCCA: a new approach for distance learning from sparse pairwise constraints", CVPR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import PCCA, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 50, 100, 0, 50], [1, 51, 101, 60, 110], [True, True, True, False, False], n=150)
    >>> metric = PCCA(2, strength=1, random_state=0).fit(X, side)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < 1 < far)
    True
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    beta: Positive = 3.0
    margin: Positive = 1.0
    reg: NotNegative = 0.0
    pairs: str | Sampler = "auto"
    batch_size: Count | None = None
    max_iter: Iterations = 200
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        p, frame = check_components(self.n_components, X.shape[1]) or 40, Frame.of(X)
        rng = check_random_state(self.random_state)
        objective = self._objective(frame.X, side, rng)
        L = initial_map(frame, side, "identity", p, rng, unit=lambda Z: mean_sqdist(Z) / self.margin)
        solver = whole_or_batches(self.batch_size, rng, self.max_iter, self.tol)
        solution = solver.minimize(objective, L)
        self.threshold_ = float(self.margin) ** 0.5
        self._store(frame.lift(canonical(solution.x)), X.dtype)
        return solution

    def _objective(self, X: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState) -> DistanceObjective:
        signed = signed_edges(side, self.pairs, X, rng, listed=self.batch_size is not None)
        beta, b = self.beta, self.margin

        def link(d: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            value, slope = softplus(beta * t * (d - b))
            return value / beta, t * slope

        loss = signed.mean_loss(link)
        return DistanceObjective(X, signed.edges, loss, ridge_penalty(self.reg))
