"""Multidimensional scaling of label-aware dissimilarities by a parametric map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg as sla
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from isometry.base import LinearMetric, MetricLearner
from isometry.core.distance import sqdist
from isometry.core.edges import DenseEdges, Edges, ListedEdges
from isometry.core.linalg import RANK_TOL, fix_signs, row_range, symmetrize
from isometry.core.objective import Objective, minimize_psd
from isometry.core.solve import Progress, Solution, lbfgs
from isometry.core.start import initial_map, mean_sqdist
from isometry.sampling import choose_pairs
from isometry.supervision import Labels, Pairs

LOSSES = ("stress", "sstress")
KEPT_ROWS = 4096  # up to this many samples the matrix of dissimilarities is kept (128 MiB), not computed again


class ParametricMDS(LinearMetric):
    """A linear map whose distances fit dissimilarities that know the labels.

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

    def __init__(
        self,
        n_components=None,
        *,
        beta=None,
        loss="stress",
        pairs="auto",
        max_iter=300,
        tol=1e-6,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.beta = beta
        self.loss = loss
        self.pairs = pairs
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _check_side(self, side):
        if getattr(side, "target", None) is None:
            super()._check_side(side)
        elif len(side.i) == 0:
            raise ValueError("ParametricMDS needs pairs with a target; y holds none")

    def _fit(self, X, side):
        if self.loss not in LOSSES:
            raise ValueError(f"loss={self.loss!r} is unknown; expected 'stress' or 'sstress'")
        p, dtype, rng = self._check_n_components(X.shape[1]), X.dtype, check_random_state(self.random_state)
        X = X.astype(np.float64) - X.mean(axis=0)
        Q = row_range(X)
        X = X @ Q
        targets = label_targets(X, side, self.pairs, _check_beta(self.beta, X), rng)
        L0 = initial_map(X, side, "pca", min(p or X.shape[1], X.shape[1]), rng)
        with Progress(self.verbose, "ParametricMDS", self.max_iter) as progress:
            options = {"max_iter": self.max_iter, "tol": self.tol, "progress": progress}
            solution = fit_map(X, targets, L0, self.loss, **options)
        _, s, Vt = np.linalg.svd(solution.x, full_matrices=False)
        keep = s > 1e-7 * s[0]
        self._set_components(fix_signs((s[:, None] * Vt)[keep]) @ Q.T, dtype)
        self._record(solution)


class RBFParametricMDS(MetricLearner):
    """`ParametricMDS` with stress on radial basis functions: f(x) = Lψ(x), ψ_l(x) = exp(−|x − c_l|²/β).

    Parameters
    ----------
    n_components : size of the output (default: the number of features)
    n_basis : number of basis functions; their centres are those of k-means
    beta : β of the basis and of the dissimilarities; None: the mean squared distance
    reg : relative penalty on |L|²
    pairs, max_iter, tol, random_state, verbose : as in `ParametricMDS`

    Attributes
    ----------
    centers_, coef_ : (k, d) centres about the mean of X, and L (p, k)

    References
    ----------
    Z. Zhang, J. T. Kwok, D.-Y. Yeung, "Parametric distance metric learning with label information", IJCAI 2003.
    """

    _sees = (Labels, Pairs)
    _needs = ("similar", "dissimilar")

    def __init__(
        self,
        n_components=None,
        *,
        n_basis=100,
        beta=None,
        reg=1e-3,
        pairs="auto",
        max_iter=300,
        tol=1e-6,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.n_basis = n_basis
        self.beta = beta
        self.reg = reg
        self.pairs = pairs
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, side):
        p = X.shape[1] if self.n_components is None else self.n_components
        if p < 1 or self.n_basis < 1 or self.reg < 0:
            raise ValueError("n_components and n_basis must be at least 1, reg not negative")
        rng, self.mean_ = check_random_state(self.random_state), X.mean(axis=0, dtype=np.float64)
        X = X - self.mean_
        self.beta_ = _check_beta(self.beta, X)
        points = np.unique(X, axis=0)
        if len(points) > self.n_basis:
            points = KMeans(self.n_basis, n_init=1, random_state=rng).fit(X).cluster_centers_
        self.centers_ = points
        Psi = self._psi(X)
        targets = label_targets(X, side, self.pairs, self.beta_, rng)
        L0 = initial_map(Psi, side, "pca", min(p, Psi.shape[1]), rng)
        with Progress(self.verbose, "RBFParametricMDS", self.max_iter) as progress:
            solution = fit_map(Psi, targets, L0, reg=self.reg, max_iter=self.max_iter, tol=self.tol, progress=progress)
        self.coef_ = solution.x
        self._record(solution)

    def _psi(self, X) -> np.ndarray:
        return np.exp(-sqdist(X, self.centers_) / self.beta_)  # (n, k)

    def _transform(self, X):
        return (self._psi(X - self.mean_) @ self.coef_.T).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return self.coef_.shape[0]


@dataclass(frozen=True)
class Targets:
    """Pairs, the distance δ each should have, and its weight w: a number, or one for each listed pair; Σw = 1."""

    edges: Edges
    delta: Callable[[slice], np.ndarray]
    weight: Callable[[slice], Any]

    def stress(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w(√d − δ)² and its slopes w(√d − δ)/√d in d, 0 where d = 0."""
        q = np.sqrt(_finite(d, where), out=d)
        r = q - self.delta(where)
        wr = self.weight(where) * r
        value = float(np.vdot(wr, r))
        q[q == 0] = np.inf
        return value, np.divide(wr, q, out=wr)

    def sstress(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w(d − δ²)² and its slopes."""
        r = _finite(d, where) - self.delta(where) ** 2
        wr = self.weight(where) * r
        return float(np.vdot(wr, r)), 2 * wr

    def overlap(self, d: np.ndarray, where: slice) -> tuple[float, np.ndarray]:
        """Σ w δ√d, with w itself as slopes."""
        w = self.weight(where)
        return float(np.sum(w * self.delta(where) * np.sqrt(_finite(d, where)))), np.broadcast_to(w, d.shape)


def _finite(d: np.ndarray, where: slice) -> np.ndarray:
    """d with 0 for the distance of a point to itself, whose slope cancels out whatever it is."""
    if d.ndim == 2:
        d[np.arange(len(d)), np.arange(where.start, where.stop)] = 0
    return d


def label_targets(X: np.ndarray, side: Labels | Pairs, sampler: Any, beta: float, rng) -> Targets:
    """δ² = 2 − exp(−|z|²/β) − [similar] for all pairs of labelled rows, for sampled ones, or for given pairs.

    Pairs with a target of their own keep it.
    """
    n, n_c = len(X), side.counts.astype(float) if isinstance(side, Labels) else None
    if isinstance(side, Pairs) and side.target is not None:
        e, w = side.target, side.weight / side.weight.sum()
        return Targets(ListedEdges(side.i, side.j, n), lambda block: e[block], lambda block: w[block])
    drawn = choose_pairs(side, sampler, X, rng) if isinstance(side, Labels) else side
    if isinstance(drawn, Labels):
        edges, codes = DenseEdges(n), drawn.codes

        def delta_block(rows):
            return _delta(edges.sqdist(X, rows), codes[rows, None] == codes, beta)  # (b, n)

        if n <= KEPT_ROWS:
            table = delta_block(slice(0, n))
            return Targets(edges, lambda rows: table[rows], lambda rows: 1 / (n * (n - 1)))
        return Targets(edges, delta_block, lambda rows: 1 / (n * (n - 1)))
    S, D = drawn.similar, drawn.dissimilar
    listed = ListedEdges(np.concatenate([S.i, D.i]), np.concatenate([S.j, D.j]), n)
    delta = _delta(listed.sqdist(X), np.repeat([True, False], [len(S.i), len(D.i)]), beta)
    parts = [S.weight, D.weight]
    if n_c is not None:  # a sample of each kind stands for all of that kind
        n_similar = n_c @ (n_c - 1) / 2
        parts = [w * total / max(w.sum(), 1) for w, total in zip(parts, (n_similar, n * (n - 1) / 2 - n_similar))]
    w = np.concatenate(parts)
    w /= w.sum()
    return Targets(listed, lambda block: delta[block], lambda block: w[block])


def _delta(d: np.ndarray, similar: np.ndarray, beta: float) -> np.ndarray:
    return np.sqrt(np.maximum(2 - np.exp(-d / beta) - similar, 0))


def _check_beta(beta: float | None, X: np.ndarray) -> float:
    if beta is not None and beta <= 0:
        raise ValueError(f"beta={beta} must be positive, or None for the mean squared distance")
    return float(mean_sqdist(X) if beta is None else beta)


def fit_map(
    Psi: np.ndarray, targets: Targets, L0: np.ndarray, loss: str = "stress", reg: float = 0.0, **options
) -> Solution:
    """L (p, k) of least loss + ε|L|² for Z = ΨLᵀ, from L₀ at its best scale; ε = ``reg`` · tr(G)/k.

    The stress has the majorising quadratic tr(LGLᵀ) + linear, G = ΨᵀLap(w)Ψ. In coordinates with G + ε = I, half a
    gradient is the Guttman step of iterative majorisation, and L-BFGS comes to the same point in far fewer steps.
    """
    overlap, spread = targets.edges.evaluate(Psi @ L0.T, targets.overlap, V=Psi)
    G = symmetrize(Psi.T @ spread)  # (k, k)
    w, V = sla.eigh(G)
    eps = reg * np.trace(G) / len(G)
    keep = w > RANK_TOL * w[-1]  # in other directions no pair differs
    V, root = V[:, keep], np.sqrt(w[keep] + eps)
    L = L0 @ V * root * (overlap / max(np.vdot(L0 @ G, L0), 1e-300))
    f = Objective(Psi @ V / root, targets.edges, getattr(targets, loss), linear=np.diag(eps / root**2))
    convex = loss == "sstress" and len(L) == L.shape[1]  # then the minimum is certified as global
    solution = minimize_psd(f, f.metric_gradient, L, **options) if convex else lbfgs(f, L, **options)
    return replace(solution, x=solution.x / root @ V.T)
