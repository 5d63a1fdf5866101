"""Distance metric by balancing KL divergences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.edges import EdgeLoss, Edges
from isometry.core.frame import Frame
from isometry.core.linalg import is_zero, ridge, sym_fn, top_eigenvectors
from isometry.core.moments import ClassMoments, between_scatter
from isometry.core.solve import Solution, lbfgs
from isometry.mixed import MixedMetric
from isometry.moments import MomentsMetric, label_moments
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Seed, check_choices, parameters
from isometry.sampling import Sampler, signed_edges
from isometry.supervision import Labels

DIVERGENCES = {"normalised": (1.0, 0.0), "plain": (0.0, 1.0), "both": (1.0, 1.0)}  # weights of log e and of log KL
SMOOTHING = 1e-12  # added to squared distances before the root, whose slope would be infinite at 0


@parameters
class DMBK(MixedMetric, MomentsMetric):
    """Distance metric by balancing KL divergences: those between all classes, small ones too, large and balanced.

    max_U mean_{i≠j} log e_ij + reg mean_D |Uᵀ(x − x')|  subject to  mean_S |Uᵀ(x − x')|² = 1
    e_ij = n_i n_j KL_ij / Σ_{k≠l} n_k n_l KL_kl,  KL_ij = KL(N(Uᵀμ_i, UᵀΣ_iU) ‖ N(Uᵀμ_j, UᵀΣ_jU)), U (d, p)

    over all ordered pairs of classes, and S, D the similar and the dissimilar pairs of samples.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p < d of the map, since with p = d the divergences do not depend on U; None: max(c − 1, d // 2), below
        d.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published, as it is of chunks of rows, which leave nothing to try. See `MixedMetric`.
    divergence : {"normalised", "plain", "both"}, default="normalised"
        "normalised", log e_ij as above; "plain", log KL_ij, which enlarges divergences rather than balance them; or
        "both", their sum.
    reg : float ≥ 0, default=1.0
        Weight of the distances of dissimilar pairs. With 0 class Gaussians are all that is needed, and chunks will do.
    whiten : bool, default=True
        Whether U is sought among those that whiten the covariance of the classes, since the divergences fix its span
        only; False: any U. The supremum is then often not attained: one or two directions grow without end.
    kl_constant : bool, default=True
        Whether the divergences contain their −p/2, without which a class differs from itself.
    shrinkage : float ≥ 0, default=0.001
        Share of a multiple of the identity in each Σ_i, and in the covariance that is whitened.
    pairs : str or Sampler, default="auto"
        Which pairs enter D: "auto", `AllPairs()` or `RandomPairs(n)`.
    n_init : int, default=3
        Number of starts: discriminant directions first, then random ones.
    max_iter : int, default=500
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool or int, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels with classes of very different sizes, and fewer dimensions: the divergences of small classes count as
    much as those of large ones. Classes are taken for Gaussian clouds; it reduces the dimension, which loses detail
    where d is small.

    An evaluation costs O(c p³ + c² p² + n d p) for c classes, plus O(n² p) for the distances of dissimilar pairs.

    The survey takes i < j under a root of c(c − 1), and its KL lacks −p. Classes of one sample have no divergence and
    count in S and D only.

    References
    ----------
    | L. Feng, H. Wang, B. Jin, H. Li, M. Xue, L. Wang, "Learning a distance metric by balancing KL-divergence for
      imbalanced datasets", IEEE Transactions on Systems, Man, and Cybernetics: Systems 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import DMBK
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = DMBK(2, reg=0.0, n_init=1, random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels,)

    n_components: Count | None = None
    _: KW_ONLY
    divergence: str = "normalised"
    reg: NotNegative = 1.0
    whiten: bool = True
    kl_constant: bool = True
    shrinkage: NotNegative = 1e-3
    pairs: str | Sampler = "auto"
    n_init: Count = 3
    max_iter: Iterations = 500
    tol: NotNegative = 1e-5
    random_state: Seed = None
    verbose: bool | int = False

    @property
    def _pooled(self) -> bool | str:
        if self.reg > 0:
            return f"set reg=0, since reg={self.reg} asks for distances between rows of all chunks"
        return False

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        frame, rng = Frame.of(X.astype(np.float64)), check_random_state(self.random_state)
        U, solution = self._solve(self._problem(frame.X, side, rng), label_moments(frame.X, side), rng)
        self._store(frame.lift(U.T), X.dtype)
        return solution

    def _fit_moments(self, moments: ClassMoments) -> Solution:
        U, solution = self._solve(self._gaussians(moments), moments, check_random_state(self.random_state))
        self._store(U.T, moments.dtype)
        return solution

    def _check_parameters(self) -> None:
        check_choices(self, divergence=DIVERGENCES)

    def _solve(
        self, problem: BalancedDivergence, moments: ClassMoments, rng: np.random.RandomState
    ) -> tuple[np.ndarray, Solution]:
        """U (d, p), the best of all starts, and how it was found."""
        self._check_parameters()
        d, p = len(problem.similar), check_components(self.n_components, self.n_features_in_)
        p = min(p or max(1, min(d - 1, max(moments.n_classes - 1, d // 2))), d)
        search = WhiteDivergence(problem, max(self.shrinkage, 1e-9)) if self.whiten else problem
        starts = self._starts(moments, p, rng)
        runs = [lbfgs(search, V, max_iter=self.max_iter, tol=self.tol, memory=50) for V in starts]
        best = min(runs, key=lambda run: run.value)
        return search.normalise(best.x), best

    def _starts(self, moments: ClassMoments, p: int, rng: np.random.RandomState) -> Iterator[np.ndarray]:
        """Discriminant directions filled up with principal ones, all orthonormal; then random subspaces."""
        within, n = moments.pooled(), moments.counts.sum()
        q, between = min(p, max(moments.n_classes - 1, 1)), between_scatter(moments)
        directions = [top_eigenvectors(between / n, within / n, q, reg=1e-4)[1], top_eigenvectors(within + between)[1]]
        yield np.linalg.qr(np.hstack(directions))[0][:, :p]
        for _ in range(self.n_init - 1):
            yield np.linalg.qr(rng.standard_normal((len(within), p)))[0]

    def _problem(self, Y: np.ndarray, side: Labels, rng: np.random.RandomState) -> BalancedDivergence:
        self._check_parameters()
        gaussians = self._gaussians(label_moments(Y, side))
        if self.reg == 0:
            return gaussians
        signed = signed_edges(side, self.pairs, Y, rng)

        def minus_distance(d: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            root = np.sqrt(d + SMOOTHING)
            return -root, -0.5 / root

        weight = self.reg / max(signed.n_dissimilar, 1)
        loss = signed.loss(minus_distance, similar=0.0, dissimilar=weight)
        return replace(gaussians, distance_term=(Y, signed.edges, loss))

    def _gaussians(self, moments: ClassMoments) -> BalancedDivergence:
        """The divergences alone: a Gaussian for every class of two samples or more."""
        used = np.flatnonzero(moments.counts > 1)
        counts, means = moments.counts[used], moments.offsets[used]
        factors = [F / np.sqrt(n) for F, n in zip(moments.class_factors(used), counts, strict=True)]
        d, sizes = means.shape[1], [len(F) for F in factors]
        factor = np.concatenate([np.zeros((0, d)), *factors])
        share = np.repeat(counts / max(counts.sum(), 1), sizes)[:, None]  # of the class of each row
        pooled = (share * factor).T @ factor
        if is_zero(pooled, beside=moments.covariance()):
            raise ValueError("in every class all samples are equal: a Gaussian of no variance has no divergence")
        spread = np.array([np.vdot(F, F) for F in factors])
        spread = np.maximum(spread, 1e-3 * np.trace(pooled))  # not 0, even if the rows of a class are equal
        similar = ridge(moments.mean_pair_scatters()[0], 1e-12)
        terms, ends = DIVERGENCES[self.divergence], np.cumsum([0, *sizes])
        rows = [slice(*ends[k : k + 2]) for k in range(len(sizes))]
        floor = self.shrinkage * spread / d
        return BalancedDivergence(similar, pooled, counts, means, factor, rows, floor, terms, self.kl_constant)


@dataclass(frozen=True)
class BalancedDivergence:
    """The objective, to minimise over V (d, p): it is evaluated at U = V/√tr(VᵀM_S V), where the constraint holds."""

    similar: np.ndarray  # (d, d) M_S
    pooled: np.ndarray  # (d, d) covariance within classes
    counts: np.ndarray  # (c,)
    means: np.ndarray  # (c, d) about any point
    factor: np.ndarray  # (m, d) F, with Σ_i = F_iᵀF_i + floor_i I for the rows F_i of class i
    rows: list[slice]  # (c,)
    floor: np.ndarray  # (c,)
    terms: tuple[float, float]
    constant: bool = True
    distance_term: tuple[np.ndarray, Edges, EdgeLoss] | None = None  # rows (n, d), pairs, −reg · mean_D |Uᵀ(x − x')|

    def normalise(self, V: np.ndarray) -> np.ndarray:
        return V / np.sqrt(np.vdot(V, self.similar @ V))

    def __call__(self, V: np.ndarray) -> tuple[float, np.ndarray]:
        U = self.normalise(V)
        value, G = self.divergence(U)
        value, G = -value, -G
        if self.distance_term is not None:
            Y, edges, loss = self.distance_term
            term, pull = edges.evaluate(Y @ U, loss)
            value, G = value + term, G + 2 * Y.T @ pull
        scale = np.sqrt(np.vdot(V, self.similar @ V))
        return value, (G - self.similar @ U * np.vdot(G, U)) / scale

    def kl(self, U: np.ndarray):
        """KL of each projected class i from class j (c, c), a row for each j, and what its gradient needs."""
        c, FU = len(self.means), self.factor @ U  # (m, p)
        S = self.floor[:, None, None] * (U.T @ U)  # (c, p, p)
        for S_i, rows in zip(S, self.rows, strict=True):
            S_i += FU[rows].T @ FU[rows]
        A, logdet = np.linalg.inv(S), np.linalg.slogdet(S)[1]
        M = self.means @ U
        delta = M - M[:, None]  # (c, c, p), m_i − m_j
        pulled = delta @ A  # (c, c, p), A_j(m_i − m_j)
        traces = A.reshape(c, -1) @ S.reshape(c, -1).T + np.einsum("jip,jip->ji", pulled, delta)
        return (logdet[:, None] - logdet + traces - U.shape[1] * self.constant) / 2, FU, S, A, delta, pulled

    def divergence(self, U: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean of log e_ij (and of log KL_ij) over ordered pairs of classes, and its gradient in U."""
        c = len(self.counts)
        if c < 2:
            return 0.0, np.zeros_like(U)
        KL, FU, S, A, delta, pulled = self.kl(U)
        off = ~np.eye(c, dtype=bool)
        KL = np.maximum(KL, 1e-12)
        mass = np.outer(self.counts, self.counts) * off
        total = np.sum(mass * KL)
        normalised, plain = self.terms
        log_kl = np.log(KL[off]).mean()
        value = normalised * (log_kl + np.log(mass[off] / total).mean()) + plain * log_kl
        w = off * ((normalised + plain) / (c * (c - 1) * KL) - normalised * mass / total)  # ∂value/∂KL_ji
        weighted = w[:, :, None] * delta
        T = (w @ S.reshape(c, -1)).reshape(A.shape) + weighted.transpose(0, 2, 1) @ delta  # Σ_i w_ji UᵀB_ijU
        R = (w.sum(axis=1) - w.sum(axis=0))[:, None, None] * A - A @ T @ A
        R += (w.T @ A.reshape(c, -1)).reshape(A.shape)
        E = w[:, :, None] * pulled
        FUR = np.concatenate([FU[rows] @ R_i for R_i, rows in zip(R, self.rows, strict=True)])
        G = self.factor.T @ FUR + U @ np.tensordot(self.floor, R, axes=1)  # Σ_i Σ_iUR_i
        return value, G + self.means.T @ (E.sum(axis=0) - E.sum(axis=1))


class WhiteDivergence:
    """The objective over subspaces, span(HV) for V (d, p), H = C_w^{-1/2}: at U = HT, T the Q factor of V.

    It depends on the span of V alone, so that a search cannot drift in scale or rotation, which do not change it.
    """

    def __init__(self, objective: BalancedDivergence, shrinkage: float):
        self.objective, self.root = objective, sym_fn(ridge(objective.pooled, shrinkage), lambda w: 1 / np.sqrt(w))

    def normalise(self, V: np.ndarray) -> np.ndarray:
        return self.objective.normalise(self.root @ np.linalg.qr(V)[0])

    def __call__(self, V: np.ndarray) -> tuple[float, np.ndarray]:
        T, R = np.linalg.qr(V)
        value, G = self.objective(self.root @ T)
        G = self.root @ G
        return value, sla.solve_triangular(R, (G - T @ (T.T @ G)).T).T
