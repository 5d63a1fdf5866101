"""Large margin nearest neighbours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import LinearMetric
from isometry.core.graph import target_neighbors
from isometry.core.linalg import fix_signs, row_range
from isometry.core.objective import Objective, minimize_batches
from isometry.core.solve import Progress, Solution
from isometry.core.start import initial_map
from isometry.parameters import KW_ONLY, Seed, check_choices, parameters
from isometry.spectral.energy import energies
from isometry.spectral.impostor_batches import lmnn_by_anchors
from isometry.spectral.impostors import Impostors, ListedTriplets, best_multiple
from isometry.spectral.large_margin import descend
from isometry.spectral.mining import MINERS, mine
from isometry.supervision import Labels, Triplets


@parameters
class LMNN(LinearMetric):
    """Large margin nearest neighbours: target neighbours near, differently labelled impostors a margin away.

    min_W (1 − μ) Σ_{i, j→i} d²(i, j) + μ Σ_{i, j→i} Σ_{l: y_l ≠ y_i} [margin + d²(i, j) − d²(i, l)]₊,  d² = d_W²

    where j → i are the k nearest samples of the same class in the input space. Given `Triplets`, or triplets found by a
    miner, they take the place of (i, j, l). Convex in W = LᵀL when p = d.

    Parameters
    ----------
    n_components : rows of L (default: all features)
    n_neighbors : k target neighbours; a smaller class uses all its members
    mu : μ in [0, 1], weight of the push term
    margin : its unit is that of squared distances: standardise the features
    init : "pca", "identity", "lda", "random" or an array (p, d); of a named start the multiple with the least loss
    mining : positives × negatives of every anchor: "batch_all", the k nearest × all, which is the problem above; fewer
        triplets are a smaller problem: "semi_hard", "batch_hard", "HPEN", "EPEN", "EPHN" or "negative_sampling", k × k
        each, see `isometry.spectral.mining`
    n_mining : how often triplets are mined: once in the input space, then in the metric found so far
    max_impostors : impostors an anchor may have, nearest first ("batch_all" only); None: all. ``max_impostors_`` is
        this number if it left any out, else None
    batch_size : mini-batches, for n beyond 10⁵: so many anchors at a time, with all their impostors: O(batch · n).
        Adam takes the place of L-BFGS, an iteration is 100 batches, and the result is near the optimum, not at it;
        ``history_`` has the means of the batches, ``objective_`` their last mean. None: no batches
    solver : "lbfgs" on L, or "sdp": the convex programme by cvxpy, for some 60 samples at most
    tol : with p = d and all impostors, how far above the minimum the objective may be, relatively: the search ends when
        duality proves that it is not. Otherwise it ends when a further run would lower it by less than tol/10
    max_iter, random_state, verbose : as everywhere

    Attributes
    ----------
    objective_ : the value of the objective at the solution, over all impostors
    gap_ : how far it is above the minimum at most, relatively, as proven; None where the problem is not convex
    history_ : the objective after each iteration; with ``max_impostors``, over the impostors that were listed

    References
    ----------
    K. Q. Weinberger, L. K. Saul, "Distance metric learning for large margin nearest neighbor classification", JMLR
    2009.
    P. A. Poorheravi, B. Ghojogh, V. Gaudet, F. Karray, M. Crowley, "Acceleration of large margin metric learning for
    nearest neighbor classification using triplet mining and stratified sampling", Journal of Computational Vision and
    Imaging Systems 6(1), 2020.
    """

    _sees = (Labels, Triplets)
    _needs = ("similar", "dissimilar")

    n_components: int | None = None
    _: KW_ONLY
    n_neighbors: int = 3
    mu: float = 0.5
    margin: float = 1.0
    init: str | np.ndarray = "pca"
    mining: str = "batch_all"
    n_mining: int = 1
    max_impostors: int | None = None
    batch_size: int | None = None
    solver: str = "lbfgs"
    max_iter: int = 1000
    tol: float = 1e-3
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X, side):
        if not 0 <= self.mu <= 1:
            raise ValueError(f"mu={self.mu} must lie in [0, 1]")
        if self.n_neighbors < 1 or self.margin <= 0:
            raise ValueError(f"n_neighbors={self.n_neighbors} must be at least 1 and margin={self.margin} positive")
        if self.n_mining < 1:
            raise ValueError(f"n_mining={self.n_mining} must be at least 1")
        check_choices(self, solver=("lbfgs", "sdp"), mining=("batch_all", *MINERS))
        p, dtype = self._check_n_components(X.shape[1]), X.dtype
        X = X - X.mean(axis=0)
        Q = row_range(X) if X.shape[1] > len(X) else np.eye(X.shape[1])
        X = X @ Q.astype(dtype)
        rng, d = check_random_state(self.random_state), X.shape[1]
        L = initial_map(X, side, self.init, min(p or d, d), rng, basis=Q)
        Z, n_iter, history, self.gap_ = X, 0, [], None
        with Progress(self.verbose, "LMNN", None) as progress:
            for _ in range(self.n_mining):
                all_impostors = isinstance(side, Labels) and self.mining == "batch_all"
                targets = target_neighbors(Z, side.codes, self.n_neighbors) if all_impostors else None
                if targets is not None and isinstance(self.init, str) and not n_iter:
                    multiple = best_multiple(X @ L.T.astype(dtype), side.codes, targets, self.mu, self.margin, rng)
                    L *= np.sqrt(multiple)
                problem = self._problem(X, side, Z, targets, rng)
                solution = self._solve(problem, X, L, p, rng, progress)
                L, n_iter, history = solution.x, n_iter + solution.n_iter, history + solution.history
                Z = X @ L.T.astype(dtype)
        self.objective_ = solution.value
        self.max_impostors_ = None if isinstance(problem, Objective) else problem.cap
        _, s, Vt = np.linalg.svd(L, full_matrices=False)
        self._set_components(fix_signs(s[:, None] * Vt) @ Q.T, dtype)
        self._record(replace(solution, n_iter=n_iter, history=history))

    def _solve(self, problem, X, L, p, rng, progress) -> Solution:
        options: dict[str, Any] = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
        if isinstance(problem, Objective):
            assert self.batch_size is not None
            return minimize_batches(problem, L, self.batch_size, rng, **options)
        if self.solver == "sdp":
            return self._sdp(problem, X, p)
        solution, self.gap_ = descend(problem, L, self.mu, **options)
        return solution

    def _problem(self, X, side, Z, targets, rng) -> Impostors | ListedTriplets | Objective:
        """The objective over given triplets, over all impostors of the targets, or over triplets of the points Z."""
        if self.batch_size is not None and (
            self.solver == "sdp" or self.mining != "batch_all" or isinstance(side, Triplets)
        ):
            raise ValueError("batch_size needs labels, mining='batch_all' and solver='lbfgs'; leave it None otherwise")
        if isinstance(side, Triplets):
            return ListedTriplets(X, side, self.margin)
        if targets is not None:
            if self.batch_size is not None:
                return lmnn_by_anchors(X, side.codes, targets, self.mu, self.margin)
            return Impostors(X, side.codes, targets, self.margin, self.max_impostors)
        triplets = mine(Z, side.codes, self.n_neighbors, self.mining, rng)
        if len(triplets.a) == 0:
            raise ValueError(
                f"mining={self.mining!r} found no triplet: no positive has a negative that suits it. Use another "
                "miner, such as mining='batch_all'"
            )
        return ListedTriplets(X, triplets, self.margin)

    def _sdp(self, problem, X, p) -> Solution:
        from isometry.core.linalg import factor

        try:
            import cvxpy as cp
        except ImportError as error:
            raise ImportError("solver='sdp' needs cvxpy: pip install cvxpy") from error
        d = X.shape[1]
        W = cp.Variable((d, d), PSD=True)
        a, b, c = problem.all_triplets()
        D = [(X[a] - X[e]).astype(np.float64) for e in (b, c)]
        near, far = (cp.sum(cp.multiply(Z @ W, Z), axis=1) for Z in D)
        push = cp.sum(cp.pos(self.margin + near - far)) if len(a) else 0
        programme = cp.Problem(cp.Minimize((1 - self.mu) * cp.trace(W @ problem.pull) + self.mu * push))
        programme.solve(solver="CLARABEL")
        L, n_iter = factor(np.asarray(W.value), p), programme.solver_stats.num_iters or 0
        value = problem.value(L, self.mu)
        return Solution(L, value, n_iter, programme.status, programme.status == "optimal", [value])

    def energy_predict(self, X: Any, X_train: Any, y_train: Any) -> np.ndarray:
        """The label under which each row of X would add least to the objective, as one more point of the training data.

        A rule beside the vote of neighbours: it also asks how many training points the new one would be an impostor of.
        Targets are the nearest of each class in the learned space; see `isometry.spectral.energy`.
        """
        labels = Labels(y_train)
        Z_train, Z = (np.asarray(self.transform(part), dtype=np.float64) for part in (X_train, X))
        E = energies(Z, Z_train, labels.codes, self.n_neighbors, self.mu, self.margin)  # (m, c)
        return labels.classes[E.argmin(axis=1)]
