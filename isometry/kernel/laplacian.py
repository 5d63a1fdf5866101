"""A kernel matrix learned from pairs, smooth on the neighbour graph."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, aslinearoperator, eigsh
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from isometry.base import MetricLearner
from isometry.core.edges import ListedEdges
from isometry.core.graph import nearest_allowed
from isometry.core.linalg import fix_signs, svd
from isometry.core.order import row_order
from isometry.core.progress import report
from isometry.core.scatter import laplacian
from isometry.core.solve import Solution, lbfgs
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, parameters
from isometry.sampling import RandomPairs, Sampler, choose_pairs
from isometry.supervision import EdgeList, Labels, Pairs

N_DISSIMILAR = 200  # dissimilar pairs that "auto" draws; few, because each is a constraint with its own multiplier
LBFGS_ITERATIONS = 300  # at most, in each round
MAX_DENSE_SIZE = 500  # up to this size a dense eigenvalue solver is faster than Lanczos
SAME_POINT = 1e-6  # a neighbour nearer than this, in units of the distance to the last one, is the sample itself


@parameters
class LaplacianKernelML(MetricLearner):
    """Kernel matrix with Laplacian regularisation: similar samples and neighbours near, dissimilar ones √c apart.

    min_{K ⪰ 0} tr(E_S K) + (λ/n) tr(LK)  subject to  K_ii + K_jj − 2K_ij ≥ c for dissimilar pairs,  1ᵀK1 = 0

    with E_S the Laplacian of the similar pairs over their number and L that of the graph of nearest neighbours. The
    semidefinite programme is solved as K = YYᵀ, Y (n, r) with r(r + 1)/2 above the number of constraints, by augmented
    Lagrangians. A new sample, which the method knows nothing of, gets the mean position of its nearest neighbours: the
    harmonic extension, which minimises the same smoothness. Samples with the label −1, or in no pair, count in L.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading principal axes of the positions to keep; None: all that are not zero.
    n_neighbors : int, default=10
        Number of neighbours in the graph, and of a new sample.
    reg : float > 0, default=1.0
        Weight λ > 0 of the smoothness.
    margin : float > 0, default=1.0
        Smallest squared distance c of dissimilar pairs; it only sets the scale.
    pairs : str or Sampler, default="auto"
        Which pairs to take if given labels: "auto" takes all similar ones and 200 dissimilar ones at random; or a
        sampler such as `AllPairs()` or `RandomPairs(500)`.
    max_iter : int, default=50
        Largest number of rounds, each of which solves for Y and then updates the multipliers.
    tol : float ≥ 0, default=0.0001
        Largest relative violation of the constraints before the positions are scaled to meet them, relative gap between
        ``objective_`` and the value of the dual problem, and minus ``certificate_``: how far the multipliers are
        outside its constraints.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, p)
        Positions Y of the training samples.
    objective_ : float
        Value of the objective at the solution.
    multipliers_ : ndarray of shape (m,)
        Multipliers μ ≥ 0 of the dissimilar pairs; c Σμ is the value of the dual problem.
    certificate_ : float
        Smallest eigenvalue of Q − Laplacian(μ), Q = E_S + λL/n, over the mean diagonal of Q; if it is ≥ 0, up to
        ``tol``, the positions are a global optimum.

    Notes
    -----
    For clustering with a few similar and dissimilar pairs: positions of the samples themselves are learned, with a
    certificate. A new sample gets the mean of its Euclidean neighbours, no better than they are: for new samples
    use `KernelFisherML` or `KDCA`.

    A round costs O((n k + m) r) for m pairs and r columns of Y, a few tens; the neighbours cost O(n² d).

    K is only determined up to a translation, hence the centring; the survey's smoothness lacks 1/n. A graph in several
    pieces is joined by its shortest links, else pieces would collapse to points at arbitrary distances. Pairs are drawn
    from labels in an order of the samples that does not depend on how the table lists them.

    References
    ----------
    | M. S. Baghshah, S. B. Shouraki, "Kernel-based metric learning for semi-supervised clustering", Neurocomputing
      2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LaplacianKernelML, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> side = Pairs([0, 50, 0, 50], [1, 51, 60, 110], [True, True, False, False], n=150)
    >>> metric = LaplacianKernelML(2, tol=1e-2, random_state=0).fit(X, side)
    >>> metric.embedding_.shape
    (150, 2)
    """

    _sees = (Labels, Pairs)
    _unlabelled = "minus one"

    n_components: Count | None = None
    _: KW_ONLY
    n_neighbors: Count = 10
    reg: Positive = 1.0
    margin: Positive = 1.0
    pairs: str | Sampler = "auto"
    max_iter: Iterations = 50
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        rng, n, origin = check_random_state(self.random_state), len(X), X.mean(axis=0)
        order = row_order(X)  # what is drawn at random shall not depend on how the samples are listed
        X, side = X[order], side[order]
        graph = neighbor_graph(X - origin, self.n_neighbors)
        E_S, dissimilar = self._pairs(X, side, rng)
        unit = 2 / n * (1 + self.reg / n * graph.nnz)  # mean of the diagonal of the sum below
        Q = (E_S + aslinearoperator(self.reg / n * laplacian(graph))) * (1 / unit)
        solution, mu, least_eigenvalue = solve_semidefinite(Q, dissimilar, rng, max_iter=self.max_iter, tol=self.tol)
        Y = np.sqrt(self.margin) * solution.x
        U, s, _ = svd(Y - Y.mean(axis=0))
        leading = np.flatnonzero(s > 1e-5 * s[0])[: self.n_components]
        self.embedding_, self.samples_, self.origin_ = np.empty((n, len(leading))), np.empty_like(X), origin
        self.embedding_[order] = fix_signs((U * s)[:, leading].T).T  # (n, p)
        self.samples_[order] = X - origin
        self.objective_ = unit * float(np.vdot(Y, Q @ Y))
        self.multipliers_ = unit * mu
        self.certificate_ = least_eigenvalue
        return solution

    def _pairs(self, X, side, rng) -> tuple[LinearOperator, EdgeList]:
        """E_S, and the dissimilar pairs."""
        for_similar = for_dissimilar = side
        if isinstance(side, Pairs):
            side.refuse_weights("LaplacianKernelML keeps all dissimilar pairs apart", ("dissimilar",))
        else:
            auto = isinstance(self.pairs, str) and self.pairs == "auto"
            for_dissimilar = choose_pairs(side, RandomPairs(N_DISSIMILAR) if auto else self.pairs, X, rng)
            for_similar = side if auto else for_dissimilar
        return similar_laplacian(for_similar), for_dissimilar.dissimilar

    def _transform(self, X: np.ndarray) -> np.ndarray:
        k = min(self.n_neighbors, len(self.samples_))
        dist, index = NearestNeighbors(n_neighbors=k).fit(self.samples_).kneighbors(X - self.origin_)  # (n, k)
        weight = dist <= SAME_POINT * dist[:, -1:]
        weight[~weight.any(axis=1)] = True
        weight = weight / weight.sum(axis=1, keepdims=True)
        W = sp.csr_matrix(
            (weight.ravel(), index.ravel(), np.arange(0, index.size + 1, k)), shape=(len(X), len(self.samples_))
        )
        return (W @ self.embedding_).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return self.embedding_.shape[1]


def similar_laplacian(side: Labels | Pairs) -> LinearOperator:
    """E_S, the Laplacian of the similar pairs over their number. That of all pairs of a class is n_c I − 11ᵀ."""
    if isinstance(side, Pairs):
        S = side.similar
        return aslinearoperator(pair_laplacian(S, S.weight / S.weight.sum(), len(side)))
    rows, n_c = np.flatnonzero(side.labelled), side.counts.astype(np.float64)
    H = sp.csr_matrix((np.ones(len(rows)), (rows, side.codes[rows])), shape=(len(side), len(n_c)))
    degree, members = aslinearoperator(sp.diags(H @ n_c)), aslinearoperator(H)
    return (degree - members @ members.T) * (2 / (n_c @ (n_c - 1)))


def pair_laplacian(edges: EdgeList, weight: np.ndarray, n: int) -> sp.csr_matrix:
    """Laplacian(w) (n, n) of listed pairs."""
    return laplacian(sp.coo_matrix((weight, (edges.i, edges.j)), shape=(n, n)))


def neighbor_graph(X: np.ndarray, k: int) -> sp.csr_matrix:
    """(n, n) one entry for each link of the graph of k nearest neighbours; its pieces are joined by shortest links."""
    A = NearestNeighbors(n_neighbors=min(k, len(X) - 1)).fit(X).kneighbors_graph()
    n_pieces, piece = connected_components(A, directed=False)
    if n_pieces > 1:
        warn_user(
            f"the graph of {k} nearest neighbours falls into {n_pieces} pieces, which are joined by their shortest "
            "links; raise `n_neighbors` to join them otherwise"
        )
    while n_pieces > 1:  # Borůvka: every piece is linked to the nearest sample outside it
        links = _shortest_links(X, piece)
        A = A.maximum(sp.csr_matrix((np.ones(len(links)), links.T), shape=A.shape))
        n_pieces, piece = connected_components(A, directed=False)
    return sp.triu(A.maximum(A.T), 1, format="csr")


def _shortest_links(X: np.ndarray, piece: np.ndarray) -> np.ndarray:
    """(q, 2) the shortest link from each of q pieces to any other."""
    nearest, dist = nearest_allowed(X, 1, lambda rows: piece[rows, None] != piece)  # (n, 1)
    order = np.lexsort((dist[:, 0], piece))
    first = order[np.unique(piece[order], return_index=True)[1]]
    return np.stack([first, nearest[first, 0]], axis=1)


def solve_semidefinite(
    Q: LinearOperator, dissimilar: EdgeList, rng: np.random.RandomState, *, max_iter: int, tol: float
) -> tuple[Solution, np.ndarray, float]:
    """min tr(YᵀQY) subject to |y_i − y_j|² ≥ 1 for the listed pairs.

    Returned are Y (n, r), the multipliers μ, and the least eigenvalue of Q − Laplacian(μ).

    Augmented Lagrangian: with m = [μ + ρ(1 − d)]₊, minimise tr(YᵀQY) + Σ(m² − μ²)/2ρ, then μ ← m. A minimiser has
    tr(YᵀQY) = Σμ, the value of the dual problem, whose constraint is Q − Laplacian(μ) ⪰ 0; Y is returned scaled so
    that no constraint is violated.
    """
    n, m = Q.shape[0], len(dissimilar.i)
    r = min(n, int(np.ceil(np.sqrt(2 * m))) + 1)  # with so many columns, nearly every local minimum is global
    edges = ListedEdges(dissimilar.i, dissimilar.j, n)
    Y = rng.standard_normal((n, r)) / np.sqrt(r)
    mu, rho = np.zeros(m), 1.0
    last_violation = np.inf
    history: list[float] = []
    for _ in range(max(1, max_iter)):
        # flat is small: a search that ends early, where the value hardly changes, gives wrong multipliers
        Y = lbfgs(_augmented(Q, edges, mu, rho), Y, max_iter=LBFGS_ITERATIONS, tol=tol / 10, flat=tol * 1e-8).x
        d = edges.sqdist(Y, slice(None))
        mu = np.maximum(mu + rho * (1 - d), 0)
        violation = max(1 - d.min(), 0.0)
        value = float(np.vdot(Y, Q @ Y)) / max(1 - violation, 1e-300)  # of Y as it is returned
        history.append(value)
        report(value)
        done = violation <= tol and abs(value - mu.sum()) <= tol * value
        if done:
            least = smallest_eigenvalue(Q - aslinearoperator(pair_laplacian(dissimilar, mu, n)), rng)
            done = least >= -tol
        if done:
            break
        if violation > max(last_violation / 2, tol):
            rho *= 2
        last_violation = violation
    if not done:
        least = smallest_eigenvalue(Q - aslinearoperator(pair_laplacian(dissimilar, mu, n)), rng)
    reason = "constraints and duality gap within tol" if done else f"max_iter={max_iter} reached"
    return Solution(Y / np.sqrt(1 - violation), value, len(history), reason, done, history), mu, least


def _augmented(Q: LinearOperator, edges: ListedEdges, mu: np.ndarray, rho: float):
    def loss(d, block):
        m = np.maximum(mu[block] + rho * (1 - d), 0)
        return float(m @ m - mu[block] @ mu[block]) / (2 * rho), -m

    def f(Y):
        QY = Q @ Y
        value, pull = edges.evaluate(Y, loss)  # pull = −Laplacian(m) Y
        return float(np.vdot(Y, QY)) + value, 2 * (QY + pull)

    return f


def smallest_eigenvalue(A: LinearOperator, rng: np.random.RandomState) -> float:
    """λ_min of a symmetric operator, by Lanczos on λ_max I − A, whose largest eigenvalue gives it."""
    n = A.shape[0]
    if n <= MAX_DENSE_SIZE:
        return float(np.linalg.eigvalsh(A @ np.eye(n))[0])
    top = eigsh(A, k=1, which="LA", v0=rng.standard_normal(n), return_eigenvectors=False)[0]
    shifted = aslinearoperator(top * sp.identity(n)) - A
    return float(
        top - eigsh(shifted, k=1, which="LA", tol=1e-6, v0=rng.standard_normal(n), return_eigenvectors=False)[0]
    )
