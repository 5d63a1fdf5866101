"""Multidimensional scaling of label-aware dissimilarities by a linear map."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import LinearMetric
from isometry.core.linalg import fix_signs, row_range
from isometry.core.solve import Progress
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Seed, check_choices, parameters
from isometry.sampling import Sampler
from isometry.spectral.stress import fit_map, label_targets, scale_of
from isometry.supervision import Labels, Pairs

LOSSES = ("stress", "sstress")


@parameters
class ParametricMDS(LinearMetric):
    """Multidimensional scaling by a linear map: its distances fit dissimilarities that know the labels.

    min_L mean over pairs of (|L(x_i − x_j)| − δ_ij)²,  δ_ij² = 2 − exp(−|x_i − x_j|²/β) − [i, j similar]

    δ is a metric, and every dissimilar pair has δ ≥ 1 > every similar one. The loss "sstress" is
    mean (|L(x_i − x_j)|² − δ_ij²)² instead, which is convex in W = LᵀL.

    Parameters
    ----------
    n_components : rows of L (default: all features)
    beta : β; None: the mean squared distance
    loss : "stress" or "sstress"
    pairs : which pairs to take if given labels: "auto", `AllPairs()`, or `RandomPairs(n)`, weighted to stand for all
    max_iter, tol, random_state, verbose : as everywhere

    Notes
    -----
    ``Pairs(i, j, target=e, n=n)`` bring distances of their own, which take the place of δ.

    The survey prints Euclidean targets, which W = I meets exactly: nothing would be learned. The form of δ is ours; the
    paper asks for a metric that separates between-class from within-class values.

    References
    ----------
    Z. Zhang, J. T. Kwok, D.-Y. Yeung, "Parametric distance metric learning with label information", IJCAI 2003.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    beta: float | None = None
    loss: str = "stress"
    pairs: str | Sampler = "auto"
    max_iter: int = 300
    tol: float = 1e-6
    random_state: Seed = None
    verbose: bool | int = False

    def _check_side(self, side):
        if getattr(side, "target", None) is None:
            super()._check_side(side)
        elif not side.weight.any():
            raise ValueError("ParametricMDS needs pairs with a target; y holds none")

    def _fit(self, X, side):
        check_choices(self, loss=LOSSES)
        p, dtype, rng = self._check_n_components(X.shape[1]), X.dtype, check_random_state(self.random_state)
        X = X.astype(np.float64) - X.mean(axis=0)
        Q = row_range(X)
        X = X @ Q
        targets = label_targets(X, side, self.pairs, scale_of(self.beta, X), rng)
        L0 = initial_map(X, side, "pca", min(p or X.shape[1], X.shape[1]), rng)
        with Progress(self.verbose, "ParametricMDS", self.max_iter) as progress:
            options = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            solution = fit_map(X, targets, L0, self.loss, **options)
        _, s, Vt = np.linalg.svd(solution.x, full_matrices=False)
        keep = s > 1e-7 * s[0]
        self._set_components(fix_signs((s[:, None] * Vt)[keep]) @ Q.T, dtype)
        self._record(solution)
