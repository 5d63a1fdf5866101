"""Large margin nearest neighbours."""

from __future__ import annotations

import numpy as np
from sklearn import get_config
from sklearn.utils import check_random_state

from isometry.base import LinearMetric
from isometry.core.distance import row_blocks, sqdist
from isometry.core.edges import ListedEdges
from isometry.core.graph import target_neighbors
from isometry.core.hinge import SMOOTHING, rounded_hinge
from isometry.core.linalg import fix_signs, row_range
from isometry.core.scatter import pair_scatter
from isometry.core.solve import Progress, Solution, lbfgs
from isometry.core.start import initial_map
from isometry.supervision import Labels, Triplets

BYTES_PER_IMPOSTOR = 160
ROUND = 20  # iterations between two searches for impostors


class LMNN(LinearMetric):
    """Pull target neighbours near and push differently labelled impostors a margin away.

    min_W (1 − μ) Σ_{i, j→i} d²(i, j) + μ Σ_{i, j→i} Σ_{l: y_l ≠ y_i} [margin + d²(i, j) − d²(i, l)]₊,  d² = d_W²

    where j → i are the k nearest samples of the same class in the input space. Given `Triplets`, they take the place of
    (i, j, l). Convex in W = LᵀL when p = d.

    Parameters
    ----------
    n_components : rows of L (default: all features)
    n_neighbors : k target neighbours; a smaller class uses all its members
    mu : μ in [0, 1], weight of the push term
    margin : its unit is that of squared distances: standardise the features
    init : "pca", "identity", "lda", "random" or an array (p, d)
    max_impostors : impostors an anchor may have, nearest first. None: all, unless they outgrow scikit-learn's
        ``working_memory``; ``max_impostors_`` tells the cap that was needed, if one was
    solver : "lbfgs" on L, or "sdp": the convex programme by cvxpy, for some 60 samples at most
    max_iter, tol, random_state, verbose : as everywhere

    Attributes
    ----------
    objective_ : the value of the objective at the solution, over all impostors

    References
    ----------
    K. Q. Weinberger, L. K. Saul, "Distance metric learning for large margin nearest neighbor classification",
    JMLR 2009.
    """

    _sees = (Labels, Triplets)
    _needs = ("similar", "dissimilar")

    def __init__(
        self,
        n_components=None,
        *,
        n_neighbors=3,
        mu=0.5,
        margin=1.0,
        init="pca",
        max_impostors=None,
        solver="lbfgs",
        max_iter=200,
        tol=1e-5,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.mu = mu
        self.margin = margin
        self.init = init
        self.max_impostors = max_impostors
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, side):
        if not 0 <= self.mu <= 1:
            raise ValueError(f"mu={self.mu} must lie in [0, 1]")
        if self.n_neighbors < 1 or self.margin <= 0:
            raise ValueError(f"n_neighbors={self.n_neighbors} must be at least 1 and margin={self.margin} positive")
        if self.solver not in ("lbfgs", "sdp"):
            raise ValueError(f"solver={self.solver!r} is unknown; expected 'lbfgs' or 'sdp'")
        p, dtype = self._check_n_components(X.shape[1]), X.dtype
        X = X - X.mean(axis=0)
        Q = row_range(X) if X.shape[1] > len(X) else np.eye(X.shape[1])
        X = X @ Q.astype(dtype)
        rng, d = check_random_state(self.random_state), X.shape[1]
        if isinstance(side, Triplets):
            problem = ListedTriplets(X, side, self.margin)
        else:
            problem = Impostors(
                X, side.codes, target_neighbors(X, side.codes, self.n_neighbors), self.margin, self.max_impostors
            )
        if self.solver == "sdp":
            L = self._sdp(problem, X, p)
        else:
            L = self._descend(problem, initial_map(X, side, self.init, min(p or d, d), rng, basis=Q))
        self.objective_ = problem.value(L, self.mu)
        self.max_impostors_ = problem.cap
        _, s, Vt = np.linalg.svd(L, full_matrices=False)
        self._set_components(fix_signs(s[:, None] * Vt) @ Q.T, dtype)

    def _descend(self, problem, L: np.ndarray) -> np.ndarray:
        """L-BFGS on a rounded hinge that gets sharper; impostors are sought anew until no new one is active."""
        history, n_iter = [], 0
        with Progress(self.verbose, "LMNN", None) as progress:
            for tau in SMOOTHING:
                budget = self.max_iter if tau == SMOOTHING[0] else max(10, self.max_iter // 4)  # then a polish
                f = lambda M, tau=tau: problem(M, self.mu, tau * self.margin)  # noqa: E731
                problem.restart(L)
                while True:
                    size = min(ROUND, budget)
                    solution = lbfgs(f, L, max_iter=size, tol=self.tol, flat=0.1 * self.tol, progress=progress)
                    n_iter, budget = n_iter + solution.n_iter, budget - max(solution.n_iter, 1)
                    history += solution.history
                    fresh = problem.search(solution.x)  # active impostors that were not in the list
                    if fresh == 0 or f(solution.x)[0] < f(L)[0]:  # with the list completed, is it still progress?
                        L = solution.x
                    if budget <= 0 or (fresh == 0 and solution.converged):
                        break
                    if fresh == 0:
                        problem.restart(L)
        reason = solution.reason if solution.converged else f"max_iter={self.max_iter} reached"
        self._record(Solution(L, solution.value, n_iter, reason, solution.converged, history))
        return L

    def _sdp(self, problem, X, p) -> np.ndarray:
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
        solved = programme.status == "optimal"
        self._record(
            Solution(W.value, programme.value, programme.solver_stats.num_iters or 0, programme.status, solved)
        )
        return factor(np.asarray(W.value), p)


class Impostors:
    """The objective for labels: targets are fixed, impostors are kept in a list that ``search`` brings up to date."""

    def __init__(self, X, codes, targets, margin, max_impostors):
        n, k = targets.shape
        self.X, self.codes, self.margin, self.max_impostors = X, codes, margin, max_impostors
        self.valid = targets >= 0  # (n, k)
        i = np.repeat(np.arange(n), k)[self.valid.ravel()]
        self.targets = ListedEdges(i, targets[self.valid], n)
        self.pull = pair_scatter(X, self.targets.i, self.targets.j)  # (d, d)
        self.listed = self.latest = np.zeros(0, dtype=np.int64)  # i·n + l of the impostors l of i
        self.impostors, self.cap = None, None

    def _target_sqdist(self, Z):
        """(n, k) squared distances to the targets, −inf where there is none."""
        t = np.full(self.valid.shape, -np.inf)
        delta = Z[self.targets.i] - Z[self.targets.j]
        t[self.valid] = np.einsum("ij,ij->i", delta, delta)
        return t, delta

    def restart(self, L) -> None:
        """Forget the list and make it anew around the current metric."""
        self.listed, self.impostors = np.zeros(0, dtype=np.int64), None
        self.search(L)

    def search(self, L, slack: float = 0.25) -> int:
        """List every impostor of the current metric and a rim around them; return how many active ones were missing."""
        n, Z = len(self.X), self.X @ L.T.astype(self.X.dtype)
        reach = self.margin + self._target_sqdist(Z)[0].max(axis=1)  # (n,), −inf for an anchor without target
        cap = self.max_impostors or max(10, int(get_config()["working_memory"] * 2**20 / (BYTES_PER_IMPOSTOR * n)))
        found, fresh = [self.listed], 0
        for rows in row_blocks(n, n * Z.itemsize):
            D = sqdist(Z[rows], Z)
            D[self.codes[rows, None] == self.codes] = np.inf
            near = (reach[rows] * (1 + slack))[:, None] > D
            crowded = np.flatnonzero(near.sum(axis=1) > cap)
            if len(crowded):  # keep the nearest ones of the anchors that have too many
                self.cap = cap
                kth = np.partition(D[crowded], cap - 1, axis=1)[:, cap - 1 : cap]
                near[crowded] &= D[crowded] <= kth
            i, l = np.nonzero(near)
            pair = (i + rows.start).astype(np.int64) * n + l
            active = pair[D[i, l] < reach[rows][i]]
            fresh += (
                len(active) - np.isin(active, self.listed, assume_unique=True).sum()
                if len(self.listed)
                else len(active)
            )
            found.append(pair)
        if fresh or self.impostors is None:
            latest = np.concatenate(found[1:])
            # capped lists do not pile up: the impostors of the last two metrics stay
            kept = [self.latest, latest] if self.cap is not None else [self.listed, latest]
            self.listed, self.latest = np.unique(np.concatenate(kept)), latest
            self.impostors = ListedEdges(self.listed // n, self.listed % n, n)
        return int(fresh)

    def __call__(self, L, mu, tau):
        X = self.X
        Z = X @ L.T.astype(X.dtype)  # (n, p)
        t, delta = self._target_sqdist(Z)
        weight = np.zeros(t.shape)  # (n, k): active triplets of each target pair

        def push(d, block):
            i = self.impostors.i[block]
            value, slope = rounded_hinge(self.margin + t[i] - d[:, None], tau)  # (b, k)
            for j in range(slope.shape[1]):
                weight[:, j] += np.bincount(i, slope[:, j], len(X))
            return mu * value[slope > 0].sum(), -mu * slope.sum(axis=1)

        value, G = self.impostors.evaluate(Z, push)
        G += self.targets.incidence.T @ (delta * (mu * weight[self.valid])[:, None])
        LA = (1 - mu) * L @ self.pull
        return value + float(np.vdot(LA, L)), 2 * (G.T @ X + LA)

    def value(self, L, mu) -> float:
        """The objective with the sharp hinge over all impostors, without a list."""
        Z = self.X @ L.T.astype(self.X.dtype)
        t, push = np.sort(self._target_sqdist(Z)[0], axis=1), 0.0
        for rows in row_blocks(len(Z), len(Z) * Z.itemsize):
            D = sqdist(Z[rows], Z)
            D[self.codes[rows, None] == self.codes] = np.inf
            for j in range(t.shape[1]):
                h = self.margin + t[rows, j, None] - D
                push += float(h[h > 0].sum(dtype=np.float64))
        return (1 - mu) * float(np.vdot(L @ self.pull, L)) + mu * push

    def all_triplets(self):
        n, e = len(self.X), self.targets
        which, l = np.nonzero(self.codes[e.i, None] != self.codes)
        if len(l) > 500_000:
            raise ValueError(
                f"solver='sdp' is for small problems; {n} samples make {len(l)} triplets. Use solver='lbfgs'"
            )
        return e.i[which], e.j[which], l


class ListedTriplets:
    """The objective for given triplets; each pair (a, p) is pulled once."""

    cap = None

    def __init__(self, X, triplets: Triplets, margin):
        n = len(X)
        self.X, self.margin, self.triplets = X, margin, triplets
        pulled = np.unique(triplets.a.astype(np.int64) * n + triplets.p)
        self.pull = pair_scatter(X, pulled // n, pulled % n)
        self.near, self.far = ListedEdges(triplets.a, triplets.p, n), ListedEdges(triplets.a, triplets.n, n)

    def restart(self, L) -> None:
        """All triplets are listed for good."""

    def search(self, L) -> int:
        return 0

    def __call__(self, L, mu, tau):
        Z = self.X @ L.T.astype(self.X.dtype)
        near, far = (Z[e.i] - Z[e.j] for e in (self.near, self.far))
        h = self.margin + np.einsum("ij,ij->i", near, near) - np.einsum("ij,ij->i", far, far)
        value, slope = rounded_hinge(h, tau)
        G = self.near.incidence.T @ (near * slope[:, None]) - self.far.incidence.T @ (far * slope[:, None])
        LA = (1 - mu) * L @ self.pull
        return mu * value.sum() + float(np.vdot(LA, L)), 2 * (mu * G.T @ self.X + LA)

    def value(self, L, mu) -> float:
        return float(self(L, mu, 1e-12)[0])

    def all_triplets(self):
        return self.triplets.a, self.triplets.p, self.triplets.n
