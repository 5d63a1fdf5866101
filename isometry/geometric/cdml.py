"""Curvilinear distance metric learning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.curves import Curves
from isometry.core.linalg import factor, fix_signs, top_eigenvectors
from isometry.core.order import row_order
from isometry.core.solve import Solution, adam, lbfgs
from isometry.geometric.gmml import GMML
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import AllPairs, Sampler, SignedEdges, choose_pairs, signed_edges
from isometry.supervision import Labels, Pairs

INITIAL_NOISE = 1e-2  # standard deviation of the coefficients of higher powers at the start
QUANTILE_ROWS = 600  # samples from whose distances the default margins are computed
HISTORY_ROWS = 2000  # samples whose pairs are used for the history, if there are more


@parameters
class CDML(MetricLearner):
    """Curvilinear distance metric learning: points are projected to p polynomial curves, and arc lengths compared.

    min_M mean over pairs of [d² − u]₊² if similar, [v − d²]₊² if dissimilar,  + reg Σ_l |M_l|²
    d²(x, x') = Σ_l a_l (∫_{T_l(x)}^{T_l(x')} |θ_l'|)²,  θ_l(t) = Σ_{k=1}^c M_lk t^k,  T_l(x) = argmin_t |θ_l(t) − x|

    with ``a_l = (∫₀¹ |θ_l'|)²``. d is the Euclidean distance of ``φ_l(x) = √a_l ∫₀^{T_l(x)} |θ_l'|``.

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of curves; None: min(d, 10).
    degree : int, default=3
        Degree c of the curves; 1 gives a Mahalanobis distance.
    reg : float ≥ 0, default=0.001
        Penalty on the coefficients.
    margins : tuple of two floats or None, default=None
        Margins (u, v) on squared distances; None: their 25 % and 75 % quantiles at the start.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto" (all), `AllPairs()` or `RandomPairs(n)`.
    n_quad : int, default=32
        Number of nodes of the Gauss–Legendre rule for arc lengths.
    n_epochs : int, default=400
        Length of the search; more epochs fit the training pairs better, not always new ones.
    batch_size : int, default=512
        Number of samples of a step; all pairs among them if given labels. With no more samples than this, a step sees
        all.
    learning_rate : float > 0, default=0.03
        First step of the search.
    tol : float ≥ 0, default=0.001
        Slope at which the search counts as converged: ``converged_`` says that ``|gradient| |M|`` ≤ tol · objective,
        over all pairs.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    curves_ : ndarray of shape (p, d, c)
        The coefficients M, in units of ``scale_`` about ``mean_``.
    margins_ : tuple of two floats
        The margins (u, v).

    Notes
    -----
    For pairs or labels on curved data of few features, where a linear map is too stiff and arcs along which classes
    change make sense. It is by far the slowest of the geometric methods and has many local minima; try `GMML`,
    `KernelFisherML` or `GBLMNN` first.

    An epoch costs O(n p d c q) for curves of degree c and q nodes, and O(n² p) for the pairs of a batch.

    The curves start as the lines of GMML and pass through the mean of the training samples. Gradients are exact,
    including the motion of T and of a_l. ``history_`` is the objective over all pairs
    (among 2000 samples, if there are more and they have labels).

    The objective jumps where a sample changes over to another part of a curve. That stops a line search but not Adam,
    which goes back to the lowest point with half the step when it finds no lower one; L-BFGS then goes on to the next
    jump. Many minima lie at the edge of a jump, where the gradient is not 0, and a search that ends at one does not
    call itself converged. With degree=1 the objective is smooth, and L-BFGS alone finds a minimum.

    The order of rows and columns matters by rounding alone, which jumps can magnify: on ionosphere three orders of the
    rows ended at 110.4, 110.9 and 117.1 after 400 epochs, on wine they agreed to eleven digits.

    References
    ----------
    | S. Chen, L. Luo, J. Yang, C. Gong, J. Li, H. Huang, "Curvilinear distance metric learning", NeurIPS 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import CDML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = CDML(2, n_epochs=3, random_state=0).fit(X[::5], y[::5])
    >>> metric.curves_.shape
    (2, 4, 3)
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)

    n_components: Count | None = None
    _: KW_ONLY
    degree: Count = 3
    reg: NotNegative = 1e-3
    margins: tuple[float, float] | None = None
    pairs: str | Sampler = "auto"
    n_quad: Count = 32
    n_epochs: Iterations = 400
    batch_size: Count = 512
    learning_rate: Positive = 3e-2
    tol: NotNegative = 1e-3
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        self._check_params(X.shape[1])
        rng, order = check_random_state(self.random_state), row_order(X)
        X, side = X[order], side[order]  # what is drawn at random shall not depend on how the samples are listed
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        self.scale_ = float(np.sqrt(X.var(axis=0, dtype=np.float64).mean())) or 1.0
        Y = self._standardize(X)
        M0 = self._start(Y, side, rng)
        self.margins_ = self._find_margins(Y, M0, rng)
        chosen: Any = side
        if isinstance(side, Labels) and self.pairs != "auto":
            chosen = choose_pairs(side, self.pairs, Y, rng)
        solution = self._minimize(Y, chosen, M0, rng)
        self.curves_ = solution.x
        return solution

    def _minimize(self, Y: np.ndarray, side: Labels | Pairs, M: np.ndarray, rng: np.random.RandomState) -> Solution:
        """Lines have a smooth objective, for L-BFGS; curves go by Adam over its jumps, then by L-BFGS to the next."""
        small = len(Y) <= self.batch_size
        whole = self._objective_pairs(Y, side, rng)

        def objective(M):
            return self._cost(M, *whole)

        n_iter, reason = 0, ""
        history: list[float] = []
        if self.degree > 1 or not small:
            epochs = ((whole,) if small else self._batches(Y, side, rng) for _ in range(self.n_epochs))
            value = None if small else lambda M: objective(M)[0]
            solution = adam(self._cost, M, epochs, whole=value, step=self.learning_rate)
            M, n_iter, history, reason = solution.x, solution.n_iter, solution.history, solution.reason
        while small and n_iter < self.n_epochs:
            solution = lbfgs(objective, M, max_iter=self.n_epochs - n_iter, tol=1e-4 * self.tol)
            M, n_iter, reason = solution.x, n_iter + solution.n_iter, solution.reason
            history = history + solution.history
            # steps that L-BFGS remembers can lead it into steps too short to go on: where nothing jumps, it begins anew
            # as long as that helps
            helped = solution.n_iter > 0 and solution.value < solution.history[0]
            if self.degree > 1 or not helped or self._is_stationary(M, *objective(M)):
                break
        return self._with_verdict(Solution(M, np.nan, n_iter, reason, False, history), *objective(M))

    def _with_verdict(self, solution: Solution, value: float, gradient: np.ndarray) -> Solution:
        """The solution with its value, and whether it is stationary."""
        solution.value, solution.converged = value, self._is_stationary(solution.x, value, gradient)
        solution.history = [*solution.history, value]
        if solution.converged:
            solution.reason = "|gradient| |M| is at most tol times the objective"
        elif solution.n_iter >= self.n_epochs:
            solution.reason = f"n_epochs={self.n_epochs} reached"
        else:
            slope = np.linalg.norm(gradient) * np.linalg.norm(solution.x) / value
            solution.reason += f"; |gradient| |M| is {slope:.2g} times the objective, as at the edge of a jump"
        return solution

    def _is_stationary(self, M: np.ndarray, value: float, gradient: np.ndarray) -> bool:
        """If f is convex within |M| of M, it falls there by at most tol f."""
        return bool(np.linalg.norm(gradient) * np.linalg.norm(M) <= self.tol * value)

    def _objective_pairs(
        self, Y: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState
    ) -> tuple[np.ndarray, SignedEdges]:
        """The samples and pairs of the objective itself; of many samples with labels, a part."""
        if isinstance(side, Labels) and len(Y) > max(self.batch_size, HISTORY_ROWS):
            rows = np.sort(rng.permutation(len(Y))[:HISTORY_ROWS])
            return Y[rows], signed_edges(side[rows], AllPairs(), Y[rows], rng)
        return Y, signed_edges(side, AllPairs(), Y, rng)

    def _check_params(self, d: int) -> None:
        if self.n_components is not None and not 1 <= self.n_components <= d:
            raise ValueError(f"n_components={self.n_components} must be between 1 and the number of features, {d}")
        if self.batch_size < 2 or not self.tol > 0:
            raise ValueError(f"batch_size={self.batch_size} must be at least 2 and tol={self.tol} positive")
        if self.margins is not None and not 0 <= self.margins[0] < self.margins[1]:
            raise ValueError(f"margins={self.margins} must satisfy 0 ≤ u < v")

    def _start(self, Y: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState) -> np.ndarray:
        """Lines along the leading rows of GMML's map, with a little noise in the higher powers."""
        L = factor(GMML(reg=0.0).fit(Y, side).mahalanobis_, min(Y.shape[1], self.n_components or 10))
        axes = fix_signs(top_eigenvectors(Y.T @ Y)[1].T)  # (d, d), which turn with the features
        noise = INITIAL_NOISE * rng.standard_normal((len(L), self.degree, Y.shape[1]))
        M = np.ascontiguousarray((noise @ axes).swapaxes(1, 2))  # (p, d, c)
        M[..., 0] = L
        return M

    def _find_margins(self, Y: np.ndarray, M: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        if self.margins is not None:
            return np.array(self.margins, dtype=np.float64)
        rows = rng.permutation(len(Y))[:QUANTILE_ROWS]
        return np.quantile(pdist(self._embed(M, Y[rows]), "sqeuclidean"), [0.25, 0.75])

    def _batches(
        self, Y: np.ndarray, side: Labels | Pairs, rng: np.random.RandomState
    ) -> Iterator[tuple[np.ndarray, SignedEdges]]:
        """One epoch: samples with all pairs among them if given labels, else pairs with their samples."""
        if len(Y) <= self.batch_size:
            yield Y, signed_edges(side, AllPairs(), Y, rng)
        elif isinstance(side, Labels):
            for rows in np.array_split(rng.permutation(len(Y)), -(-len(Y) // self.batch_size)):
                yield Y[rows], signed_edges(side[rows], AllPairs(), Y[rows], rng)
        else:
            n_pairs = len(side.i)
            for chunk in np.array_split(rng.permutation(n_pairs), -(-n_pairs // (self.batch_size // 2))):
                rows, position = np.unique([side.i[chunk], side.j[chunk]], return_inverse=True)
                i, j = position.reshape(2, -1)
                part = Pairs(i, j, side.similarity[chunk], n=len(rows), weight=side.weight[chunk])
                yield Y[rows], signed_edges(part, AllPairs(), Y[rows], rng)

    def _cost(self, M: np.ndarray, Y: np.ndarray, signed: SignedEdges) -> tuple[float, np.ndarray]:
        """The objective over the pairs of Y, and its gradient in M."""
        u, v = self.margins_

        def link(d, t):
            h = np.maximum(np.where(t > 0, d - u, v - d), 0)
            return h**2, 2 * t * h

        average = 1 / max(signed.n_similar + signed.n_dissimilar, 1e-300)
        curves = Curves(M, self.n_quad)
        T = curves.project(Y)
        loss = signed.loss(link, similar=average, dissimilar=average)
        value, pull = signed.edges.evaluate(curves.embed(T), loss)
        gradient = curves.pullback(Y, T, 2 * pull)
        return value + self.reg * float(np.vdot(M, M)), gradient + 2 * self.reg * M

    def _standardize(self, X: np.ndarray) -> np.ndarray:
        return (X.astype(np.float64) - self.mean_) / self.scale_

    def _embed(self, M: np.ndarray, Y: np.ndarray) -> np.ndarray:
        curves = Curves(M, self.n_quad)
        return curves.embed(curves.project(Y))

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return self._embed(self.curves_, self._standardize(X)).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self.curves_)
