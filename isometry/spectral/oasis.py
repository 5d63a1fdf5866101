"""Online learning of a bilinear similarity."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from isometry.base import OnlineMetric, pair_rows
from isometry.core.linalg import factor, sym_fn, symmetrize
from isometry.core.progress import check_time
from isometry.core.solve import Solution
from isometry.parameters import KW_ONLY, Count, Positive, Seed, parameters
from isometry.sampling import RandomComparisons, in_own_order
from isometry.supervision import Labels, Triplets

PROJECT_EVERY = 1000  # steps


@parameters
class OASIS(OnlineMetric):
    """Online algorithm for scalable image similarity: a similarity xᵀWx' learned from triplets, one at a time.

    W ← argmin_W' ½|W' − W|² + C ξ  subject to  s(x, x⁺) − s(x, x⁻) ≥ 1 − ξ, ξ ≥ 0,  s(x, x') = xᵀW'x'

    which is W + τ x(x⁺ − x⁻)ᵀ with ``τ = min(C, loss/(|x|²|x⁺ − x⁻|²))``; W = I at first. Samples are taken about
    the mean of those seen first, and in units in which their mean squared norm is 1.

    W is a similarity, not a metric: ``score_pairs`` gives it. The map, and all distances, are those of the positive
    semi-definite part of (W + Wᵀ)/2.

    Parameters
    ----------
    C : float > 0, default=0.1
        Length of the longest step.
    n_iter : int, default=20000
        Number of random triplets that are drawn from labels; given triplets are taken once each, in their order, or as
        often as their weight says, the last time in part.
    balanced : bool, default=False
        Whether to draw the class of a triplet first, so that small classes count as much as large ones.
    project : bool, default=False
        Whether to keep W symmetric and positive semi-definite, by a projection every 1,000 steps.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    bilinear_ : ndarray of shape (d, d)
        The matrix W, for samples ``(x − mean_)/unit_``.
    mean_ : ndarray of shape (d,)
        What is subtracted from samples.
    unit_ : float
        What samples are divided by.

    Notes
    -----
    For streams, and for very many samples: a step costs the same however many were seen. What is learned is a
    similarity; where a distance is wanted, and the data fit in memory, `LMNN` or `NCA` search for one.

    A step costs O(d²), with ``project`` and for the map O(d³) now and then.

    ``partial_fit`` takes a stream: triplets one after another, however they are cut into chunks.

    References
    ----------
    | G. Chechik, V. Sharma, U. Shalit, S. Bengio, "Large scale online learning of image similarity through ranking",
      JMLR 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import OASIS
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = OASIS(n_iter=500, random_state=0).fit(X, y)
    >>> metric.bilinear_.shape
    (4, 4)
    >>> metric.score_pairs(X, [[0, 1], [0, 60]]).shape
    (2,)
    """

    _sees = (Labels, Triplets)

    _: KW_ONLY
    C: Positive = 0.1
    n_iter: Count = 20_000
    balanced: bool = False
    project: bool = False
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets, update: bool = False) -> Solution:
        W = vars(self).get("bilinear_") if update else None
        if W is None:
            self.mean_ = X.mean(axis=0, dtype=np.float64)
            self.unit_ = float(np.sqrt(np.var(X, axis=0, dtype=np.float64).sum())) or 1.0
            W, self.n_steps_ = np.eye(X.shape[1]), 0
        W = W.copy()
        if isinstance(side, Labels):
            X, side = in_own_order(X, side)
            side = self._draw(X, side)
        if len(side.a) == 0 and not update:
            raise ValueError("there is nothing to compare: y holds no triplet, or its classes yield none")
        losses = self._pass(W, (X - self.mean_) / self.unit_, side)
        self.bilinear_ = W
        self._store(factor(W) / self.unit_, X.dtype)  # of the symmetric part; negative eigenvalues are left out
        parts = np.array_split(losses, max(1, len(losses) // PROJECT_EVERY))
        history = [float(part.mean()) for part in parts if len(part)] or [0.0]
        return Solution(W, history[-1], len(losses), "all triplets seen", True, history)

    def _draw(self, X: np.ndarray, labels: Labels) -> Triplets:
        sampler = RandomComparisons(self.n_iter, balanced=self.balanced)
        return cast(Triplets, sampler.draw(X, labels, check_random_state(self.random_state)))

    def _pass(self, W: np.ndarray, X: np.ndarray, triplets: Triplets) -> np.ndarray:
        """Steps for every triplet, in order, in place; their losses (m,) before them."""
        losses = np.zeros(len(triplets.a))
        sizes = np.einsum("ij,ij->i", X, X)
        for t, (a, p, n, weight) in enumerate(zip(triplets.a, triplets.p, triplets.n, triplets.weight, strict=True)):
            check_time()
            x, v = X[a], X[p] - X[n]
            size = sizes[a] * (v @ v)
            while weight > 1e-12 and size > 0:  # nothing can be done for x = 0 or x⁺ = x⁻
                loss, share = 1 - x @ W @ v, min(weight, 1.0)
                if loss > 0:
                    losses[t] += share * loss
                    W += np.outer(share * min(self.C, loss / size) * x, v)
                weight -= 1
            self.n_steps_ += 1
            if self.project and self.n_steps_ % PROJECT_EVERY == 0:
                W[:] = sym_fn(symmetrize(W), lambda w: np.maximum(w, 0))
        return losses

    def score_pairs(self, X: Any, pairs: Any) -> np.ndarray:
        """The learned similarity xᵀWx' of listed pairs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        pairs : array-like of shape (m, 2) or Pairs
            Pairs of rows of X.

        Returns
        -------
        ndarray of shape (m,)
            The similarities.
        """
        check_is_fitted(self)
        X = (validate_data(self, X, dtype=np.float64, reset=False) - self.mean_) / self.unit_
        i, j = pair_rows(pairs, len(X))
        return np.einsum("ij,ij->i", X[i] @ self.bilinear_, X[j])
