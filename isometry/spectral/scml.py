"""Sparse compositional metric learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.core.basis import BasisProblem, bounded_below
from isometry.core.centroids import centroids
from isometry.core.distance import row_blocks, sqdist
from isometry.core.frame import Frame
from isometry.core.hinge import WIDTHS, rounded_hinge
from isometry.core.linalg import RANK_TOL, ZERO_TOL, factor, fix_signs, sym_fn
from isometry.core.objective import DistanceObjective
from isometry.core.scatter import pair_scatter
from isometry.core.solve import Solution
from isometry.core.solvers import in_rounds
from isometry.core.warn import warn_user
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, parameters
from isometry.sampling import Comparisons, Sampler, comparisons
from isometry.spectral.task_metric import TaskMetric
from isometry.supervision import Labels, Supervision, Triplets

NEIGHBORS = (10, 20)  # rows of each class, around a centre, that a local discriminant analysis sees
RIDGE = 1e-2  # relative, of a local discriminant analysis
ROUNDED = 1e-6  # weight below which the norm over tasks is rounded; those of samples of mean squared distance 1


@parameters
class SCML(TaskMetric):
    """Sparse compositional metric learning: a sparse sum of rank-one metrics, from locally discriminative directions.

    min_{w ≥ 0} mean over triplets of [1 + d²(a, p) − d²(a, n)]₊ + (reg/K) Σ_k w_k,  d² that of W = Σ_k w_k b_k b_kᵀ

    The directions b_k are fixed: of labels, those of discriminant analyses of the 10 and of the 20 nearest rows of each
    class around every centre of k-means; of triplets, eigenvectors of Σ z_ap z_apᵀ − Σ z_an z_anᵀ over d triplets at a
    time. Samples are scaled to mean squared distance 1, so that ``reg`` has no unit.

    Several tasks share the directions: ``fit(X, y, tasks=t)`` with a name for each sample gives weights to each
    task, and the penalty is (reg/K) Σ_k ``|(w_k¹ … w_k^T)|₂``, so that a direction is of use to many tasks or to
    none. Triplets count where all three samples are of one task. ``transform`` takes the mean of the weights,
    ``task_transform`` those of one task.

    Parameters
    ----------
    n_basis : int or None, default=None
        Number K of directions, about; None: 20 for each feature, at most 400.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    reg : float ≥ 0, default=0.01
        Weight of Σ w: larger means fewer directions.
    comparisons : str or Sampler, default="auto"
        Which triplets to take if given labels: "auto" is `NeighborTriplets(3, misses=10)`; `RandomComparisons(n)` or
        another sampler.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float ≥ 0, default=0.0001
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Attributes
    ----------
    basis_ : ndarray of shape (K, d)
        The unit vectors b_k.
    weights_ : ndarray of shape (K,)
        The weights w for samples in their own units; with tasks the mean of theirs.
    tasks_ : ndarray of shape (T,)
        Names of the tasks.
    task_weights_ : ndarray of shape (T, K)
        Weights of the tasks.
    task_components_ : ndarray of shape (T, d, d)
        Maps of the tasks.
    objective_ : float
        Value of the objective at the solution, the hinge rounded over a hundredth of the margin.

    Notes
    -----
    For many features: of a few hundred directions those are kept that help, so that the metric has few numbers to
    learn. Also for several tasks. The directions come from the labels; with few labels and few features `LMNN` is
    freer.

    An iteration costs O(T K) for T triplets and K directions.

    References
    ----------
    | Y. Shi, A. Bellet, F. Sha, "Sparse compositional metric learning", AAAI 2014.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import SCML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = SCML(40, random_state=0).fit(X[::2], y[::2])
    >>> metric.weights_.shape == (len(metric.basis_),)
    True
    >>> bool((metric.weights_ >= 0).all())
    True
    """

    _sees = (Labels, Triplets)

    n_basis: Count | None = None
    _: KW_ONLY
    reg: NotNegative = 1e-2
    comparisons: str | Sampler = "auto"
    max_iter: Iterations = 1000
    tol: NotNegative = 1e-4
    random_state: Seed = None
    verbose: bool | int = False

    def _fit(self, X: np.ndarray, side: Labels | Triplets, tasks: np.ndarray | None = None) -> Solution:
        frame, rng = Frame.of(X, scaled=True), check_random_state(self.random_state)
        self.tasks_, task = np.unique(np.zeros(len(X)) if tasks is None else tasks, return_inverse=True)
        parts = [(frame.X[task == t], side[task == t]) for t in range(len(self.tasks_))]
        K = -(-(self.n_basis or min(20 * frame.X.shape[1], 400)) // len(parts))
        compared = [comparisons(of, self.comparisons, Z, rng) for Z, of in parts]
        basis = np.concatenate([directions(Z, of, K, rng) for Z, of in parts])
        solution = self._weights([Z for Z, _ in parts], compared, basis)
        self.objective_ = solution.value
        self.basis_ = frame.lift(basis) * frame.unit
        self.task_weights_ = np.maximum(solution.x, 0) / frame.unit**2
        self.weights_ = self.task_weights_.mean(axis=0)
        self.task_components_ = np.stack([self._square_root(w) for w in self.task_weights_]).astype(X.dtype)
        self._store(factor(self._square_root(self.weights_).T @ self._square_root(self.weights_)), X.dtype)
        return solution

    def _square_root(self, w: np.ndarray) -> np.ndarray:
        """(d, d) the symmetric L with LᵀL = Σ_k w_k b_k b_kᵀ."""
        B = np.sqrt(w)[:, None] * self.basis_
        return sym_fn(B.T @ B, lambda v: np.sqrt(np.maximum(v, 0)))

    def _weights(self, X: list[np.ndarray], compared: list[Comparisons], basis: np.ndarray) -> Solution:
        """w (T, K) ≥ 0 with the least objective, for the scaled samples and comparisons of each task."""
        K = len(basis)
        start = np.stack([np.full(K, Z.shape[1] / K / c.gap(Z)) for Z, c in zip(X, compared, strict=True)])
        problems = (
            SharedBasis([_hinges(Z, c, basis, width) for Z, c in zip(X, compared, strict=True)], self.reg / K)
            for width in WIDTHS
        )
        solution = in_rounds(lambda f, w, budget: bounded_below(f, w, budget, self.tol), problems, start, self.max_iter)
        if solution.x.sum() <= 1e-6 * start.sum():
            warn_user(
                "no direction has a weight: the comparisons are all met, or contradict one another. Equal weights are "
                "kept; lower `reg` to let the comparisons count for more"
            )
            solution.x = start
        return solution


def _hinges(X: np.ndarray, compared: Comparisons, basis: np.ndarray, width: float) -> BasisProblem:
    """The mean hinge with margin 1, rounded over ``width``, over the weights of directions."""
    loss = compared.mean_loss(lambda h: rounded_hinge(1 + h, width))
    return BasisProblem(DistanceObjective(X, compared.edges, loss), basis)


@dataclass(frozen=True)
class SharedBasis:
    """Σ_t f_t(w^t) + β Σ_k |(w_k¹ … w_k^T)|₂ over w (T, K) ≥ 0, with norms rounded where they are nearly 0."""

    tasks: list[BasisProblem]
    beta: float

    def __call__(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        found = [f(weights) for f, weights in zip(self.tasks, w, strict=True)]
        if len(w) == 1:
            norms, slopes = w[0], np.ones_like(w)
        else:
            norms = np.sqrt(np.sum(w**2, axis=0) + ROUNDED**2)
            slopes = w / norms
        value = sum(value for value, _ in found) + self.beta * float(norms.sum())
        return value, np.stack([slope for _, slope in found]) + self.beta * slopes


def directions(X: np.ndarray, side: Supervision, n_basis: int, rng: np.random.RandomState) -> np.ndarray:
    """(K, d) unit vectors from the samples of one task."""
    if isinstance(side, Labels):
        return local_discriminants(X, side.codes, n_basis, rng.randint(2**31))
    assert isinstance(side, Triplets)
    return triplet_directions(X, side, n_basis, rng)


def local_discriminants(X: np.ndarray, codes: np.ndarray, n_basis: int, seed: int) -> np.ndarray:
    """(K, d) unit vectors: discriminant directions of the rows around each of K/(2(c − 1)) centres."""
    c = int(codes.max()) + 1
    X = X.astype(np.float64, copy=False)
    centers = centroids(X, max(1, round(n_basis / (2 * (c - 1)))), seed, n_init=1)
    D, members = sqdist(centers, X), [np.flatnonzero(codes == k) for k in range(c)]
    # of each class the rows around every centre, nearest first, as many as are looked at
    near = [rows[np.argsort(D[:, rows], axis=1, kind="stable")[:, : max(NEIGHBORS)]] for rows in members]
    found = []
    for some in row_blocks(len(centers), 8 * X.shape[1] ** 2):
        V, counts = zip(*(discriminants(X, [rows[some, :m] for rows in near]) for m in NEIGHBORS), strict=True)
        found.append(np.stack(V, axis=1)[np.stack(counts, axis=1)])  # all of one centre, then those of the next
    basis = np.concatenate(found)[:n_basis]
    if not len(basis):
        raise ValueError("the classes have equal means everywhere: no direction tells them apart")
    return fix_signs(basis)


def discriminants(X: np.ndarray, classes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Directions along which the means of the classes differ most, against the spread within them, in R places at once.

    ``classes`` has for each class the numbers (R, m_c) of its rows in every place. Returned are unit vectors (R, q, d),
    best first, q = min(c − 1, d), and which of them (R, q) are there: fewer where the means span less.

    Between classes there are no more than q directions, so that S_b = MMᵀ with a column of M for each class: S_b v =
    λ S_w v is solved by v = S_w⁻¹Mu, with u an eigenvector of the small matrix MᵀS_w⁻¹M.
    """
    d, sizes = X.shape[1], np.array([rows.shape[1] for rows in classes])
    means, within = np.empty((len(classes[0]), len(classes), d)), np.zeros((len(classes[0]), d, d))
    for k, rows in enumerate(classes):
        Z = X[rows]  # (R, m_c, d)
        means[:, k] = Z.mean(axis=1)
        Z -= means[:, k, None]
        within += Z.transpose(0, 2, 1) @ Z
    M = means - means[:, [sizes.argmax()]]  # of equal means exactly 0
    M -= (sizes @ M)[:, None] / sizes.sum()
    M *= np.sqrt(sizes)[:, None]  # (R, c, d)
    spread, apart = np.trace(within, axis1=1, axis2=2), np.einsum("rcd,rcd->r", M, M)
    # nothing where the means are equal to rounding, or all of the samples in one place
    there = apart > ZERO_TOL * np.maximum(spread, sizes.sum())
    scale = np.where(spread > 0, spread, np.where(there, apart, 1.0))  # classes of one row each have no spread
    within /= scale[:, None, None]
    within += RIDGE / d * np.eye(d)
    solved = np.linalg.solve(within, M.transpose(0, 2, 1))  # (R, d, c)
    values, U = np.linalg.eigh(M @ solved)
    q = min(len(classes) - 1, d)
    values, V = values[:, ::-1][:, :q], (solved @ U[:, :, ::-1][:, :, :q]).transpose(0, 2, 1)  # (R, q), (R, q, d)
    kept = there[:, None] & (values > RANK_TOL * values[:, :1])
    return V / np.where(kept, np.linalg.norm(V, axis=2), 1.0)[:, :, None], kept


def triplet_directions(X: np.ndarray, triplets: Triplets, n_basis: int, rng: Any) -> np.ndarray:
    """(K, d) unit vectors: eigenvectors of Σ z_ap z_apᵀ − Σ z_an z_anᵀ over d random triplets at a time."""
    d, found, there = X.shape[1], list[np.ndarray](), np.flatnonzero(triplets.weight > 0)
    while sum(map(len, found)) < n_basis:
        some = rng.choice(there, min(d, len(there)), replace=False)
        a, p, n = triplets.a[some], triplets.p[some], triplets.n[some]
        values, V = sla.eigh(pair_scatter(X, a, p) - pair_scatter(X, a, n))
        keep = np.abs(values) > RANK_TOL * np.abs(values).max()
        if not keep.any():
            raise ValueError("the triplets compare equal differences: they hold no direction to learn from")
        found.append(fix_signs(V[:, keep].T))
    return np.concatenate(found)[:n_basis]
