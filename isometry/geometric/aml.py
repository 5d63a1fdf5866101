"""Adversarial metric learning."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from isometry.core.linalg import svd
from isometry.core.solve import Solution, alternate, lbfgs
from isometry.core.spd import definite_pair, inverse_geodesic_factor
from isometry.core.start import mean_sqdist
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import KW_ONLY, Iterations, NotNegative, Positive, parameters
from isometry.supervision import Labels, Pairs


@parameters
class AML(MixedMetric):
    """Adversarial metric learning: GMML that must also hold on adversarial pairs, moved so as to confuse the metric.

    min_{W ≻ 0} ℓ(W; X, t) + α ℓ(W; Π*, t),  ℓ(W; P, t) = mean_{t=1} δᵀWδ + mean_{t=−1} δᵀW⁻¹δ
    Π* = argmin_Π ℓ(W; Π, −t) + β Σ (|x − π|_W² + |x' − π'|_W²)

    where δ is the difference of a pair, and β the price of moving its points. Π* has a closed form: midpoints stay,
    differences become r(W)δ with r(l) = βl²/(2 + βl²) for similar and βδ/(2 + β) for dissimilar pairs. What is left is
    a problem in the two mean scatters: they take one pass over the samples, or over listed pairs, and then every step
    costs O(d³), however many pairs there are.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    alpha : float ≥ 0, default=1.0
        Weight α ≥ 0 of the adversarial pairs; 0 is GMML.
    beta : float > 0, default=1.0
        Price β > 0 of moving a point; ∞ leaves the pairs where they are.
    solver : {"bilevel", "alternating"}, default="bilevel"
        "bilevel" descends on the problem above; "alternating" refits W on the pairs it moved last, which has another
        fixed point.
    reg : float ≥ 0, default=1e-6
        Relative ridge on both scatters.
    max_iter : int, default=200
        Largest number of iterations.
    tol : float ≥ 0, default=1e-8
        Relative slope or decrease at which the search stops.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels or pairs that are few or noisy: the metric must also hold for pairs that an adversary moved, which
    keeps it from leaning on single pairs. With plenty of data `GMML` gives nearly the same at once.

    A fit costs O(n d²) for the scatters, then O(d³) for every iteration.

    The survey sums the confusion step over the training pairs, where it cannot depend on Π; it belongs on Π, with
    flipped labels, which keeps it bounded.

    References
    ----------
    | S. Chen, C. Gong, J. Yang, X. Li, Y. Wei, J. Li, "Adversarial metric learning", IJCAI 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import AML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = AML().fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    >>> bool(metric.score(X, y) > 0.9)
    True
    """

    _sees = (Labels, Pairs)

    _: KW_ONLY
    alpha: NotNegative = 1.0
    beta: Positive = 1.0
    solver: Literal["bilevel", "alternating"] = "bilevel"
    reg: NotNegative = 1e-6
    max_iter: Iterations = 200
    tol: NotNegative = 1e-8
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        S, D = (M / mean_sqdist(X) for M in mean_pair_scatters(X, side))  # the minimiser has no unit, tolerances have
        Q, A, B = definite_pair(S, D, self.reg)
        solution = (self._descend if self.solver == "bilevel" else self._alternate)(A, B)
        self._store(solution.x @ Q.T, X.dtype)
        return solution

    def _descend(self, A: np.ndarray, B: np.ndarray) -> Solution:
        L0 = inverse_geodesic_factor(A, B)  # GMML's solution; searching relative to it evens out the scales of A and B

        def relative(K: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = self._cost(K @ L0, A, B)
            return value, gradient @ L0.T

        solution = lbfgs(relative, np.eye(len(A)), max_iter=self.max_iter, tol=self.tol)
        solution.x = solution.x @ L0
        return solution

    def _alternate(self, A: np.ndarray, B: np.ndarray) -> Solution:
        def step(L):
            R = self._confusion(L)
            L = inverse_geodesic_factor(A + self.alpha * R @ A @ R, self._push() * B)
            return L, self._cost(L, A, B)[0]

        return alternate(step, inverse_geodesic_factor(A, B), max_iter=self.max_iter, tol=self.tol)

    def _cost(self, L: np.ndarray, A: np.ndarray, B: np.ndarray) -> tuple[float, np.ndarray]:
        """F(W) = tr(φ(W)A) + (1 + α(β/(2+β))²) tr(W⁻¹B), φ(l) = l + α l r(l)², and its gradient in L."""
        P, s, Ut = svd(L, full_matrices=True)
        if s[-1] <= 0:
            return np.inf, np.zeros_like(L)
        l, c = s**2, self._push()  # (d,) eigenvalues of W
        A, B = Ut @ A @ Ut.T, c * (Ut @ B @ Ut.T)
        r = self._shrink(l)
        phi, slope = l + self.alpha * l * r**2, 1 + self.alpha * r**2 * (5 - 4 * r)
        G = divided_differences(l, phi, slope) * A - B / np.outer(l, l)  # ∂F/∂W in the eigenbasis of W
        return float(phi @ np.diag(A) + np.sum(np.diag(B) / l)), 2 * (P * s) @ G @ Ut

    def _shrink(self, l: np.ndarray) -> np.ndarray:
        """r(l) = βl²/(2 + βl²): what confusion leaves of a similar pair's difference."""
        return 1 / (1 + 2 / (self.beta * l**2))

    def _push(self) -> float:
        return 1 + self.alpha / (1 + 2 / self.beta) ** 2

    def _confusion(self, L: np.ndarray) -> np.ndarray:
        """r(W) for W = LᵀL of full rank on the rows of L."""
        _, s, Ut = svd(L)
        return (Ut.T * self._shrink(s**2)) @ Ut

    def adversarial_pairs(self, X: Any, pairs: Pairs) -> np.ndarray:
        """Where the adversary moves the points of each pair.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.
        pairs : Pairs
            Pairs over the rows of X.

        Returns
        -------
        ndarray of shape (m, 2, d)
            The moved points.
        """
        X = np.asarray(X, dtype=np.float64)
        R = self._confusion(self.components_.astype(np.float64))
        x, x_ = X[pairs.i], X[pairs.j]  # (m, d)
        delta = np.where((pairs.similarity >= 0.5)[:, None], (x - x_) @ R, (x - x_) / (1 + 2 / self.beta))
        return ((x + x_)[:, None] + np.stack([delta, -delta], axis=1)) / 2


def divided_differences(l: np.ndarray, phi: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """(φ(l_i) − φ(l_j))/(l_i − l_j), the mean of the two slopes where l_i and l_j nearly agree."""
    gap = np.subtract.outer(l, l)
    near = np.abs(gap) <= 1e-6 * np.add.outer(l, l)
    return np.where(near, np.add.outer(slope, slope) / 2, np.subtract.outer(phi, phi) / np.where(near, 1, gap))
