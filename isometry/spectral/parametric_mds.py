"""Multidimensional scaling of label-aware dissimilarities by a linear map."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.frame import Frame
from isometry.core.linalg import canonical
from isometry.core.solve import Solution
from isometry.core.start import initial_map
from isometry.mixed import MixedMetric
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, check_choices, parameters
from isometry.sampling import Sampler
from isometry.spectral.stress import fit_map, label_targets, scale_of
from isometry.supervision import Labels, Pairs

LOSSES = ("stress", "sstress")


@parameters
class ParametricMDS(MixedMetric):
    """Multidimensional scaling by a linear map: its distances fit dissimilarities that know the labels.

    min_L mean over pairs of (|L(x_i − x_j)| − δ_ij)²,  δ_ij² = 2 − exp(−|x_i − x_j|²/β) − [i, j similar]

    δ is a metric, and every dissimilar pair has δ ≥ 1 > every similar one. The loss "sstress" is
    ``mean (|L(x_i − x_j)|² − δ_ij²)²`` instead, which is convex in W = LᵀL.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map; None: all features.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    beta : float > 0 or None, default=None
        Unit β of squared distances; None: the mean squared distance.
    loss : {"stress", "sstress"}, default="stress"
        Which of the two losses.
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

    Notes
    -----
    For labels or pairs and a picture: distances in two dimensions that show classes apart and still follow the
    input. It also learns from distances that pairs should have. For classification alone, `NCA` or `LMNN` are
    nearer to the task.

    An evaluation costs O(n² p + n d p) over all pairs, O(m p) over m listed ones.

    ``Pairs(i, j, target=e, n=n)`` bring distances of their own, which take the place of δ.

    The survey prints Euclidean targets, which W = I meets exactly: nothing would be learned. The form of δ is ours; the
    paper asks for a metric that separates between-class from within-class values.

    References
    ----------
    | Z. Zhang, J. T. Kwok, D.-Y. Yeung, "Parametric distance metric learning with label information", IJCAI 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import ParametricMDS
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = ParametricMDS(2, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)
    _needs = ()  # pairs with a target are neither similar nor dissimilar

    n_components: Count | None = None
    _: KW_ONLY
    beta: Positive | None = None
    loss: str = "stress"
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 300
    tol: NotNegative = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        check_choices(self, loss=LOSSES)
        p, rng = check_components(self.n_components, X.shape[1]), check_random_state(self.random_state)
        frame = Frame.of(X.astype(np.float64), reduced=True)
        targets = label_targets(frame.X, side, self.pairs, scale_of(self.beta, frame.X), rng)
        L = initial_map(frame, side, "pca", p, rng)
        solution = fit_map(frame.X, targets, L, self.loss, max_iter=self.max_iter, tol=self.tol)
        self._store(frame.lift(canonical(solution.x, tol=1e-7)), X.dtype)
        return solution
