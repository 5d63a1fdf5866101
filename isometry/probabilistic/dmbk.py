"""Distance metric by balancing KL divergences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

from isometry.base import LinearMetric, mean_pair_scatters
from isometry.core.edges import Edges, Loss
from isometry.core.linalg import ridge, row_range, sym_fn
from isometry.core.solve import Progress, lbfgs
from isometry.core.start import initial_map
from isometry.sampling import signed_edges
from isometry.supervision import Labels

DIVERGENCES = {"normalised": (1.0, 0.0), "plain": (0.0, 1.0), "both": (1.0, 1.0)}  # weights of log e and of log KL
SMOOTHING = 1e-12  # under the root of a distance, whose slope is infinite at 0


class DMBK(LinearMetric):
    """A subspace in which the divergences between all classes, small ones too, are large and balanced.

    max_U mean_{i≠j} log e_ij + reg mean_D |Uᵀ(x − x')|  subject to  mean_S |Uᵀ(x − x')|² = 1

    e_ij = n_i n_j KL_ij / Σ_{k≠l} n_k n_l KL_kl,  KL_ij = KL(N(Uᵀμ_i, UᵀΣ_iU) ‖ N(Uᵀμ_j, UᵀΣ_jU)), U (d, p)

    over all ordered pairs of classes, and S, D the similar and the dissimilar pairs of samples.

    Parameters
    ----------
    n_components : p < d, since with p = d the divergences do not depend on U (default: max(c − 1, d // 2), below d)
    divergence : "normalised", log e_ij as above; "plain", log KL_ij, which enlarges divergences rather than balance
        them; or "both", their sum
    reg : weight of the distances of dissimilar pairs
    whiten : the divergences fix the span of U only. True: within it, whiten the covariance of the classes; False: the
        literal optimum, which likes one or two long directions
    shrinkage : share of a multiple of the identity in each Σ_i
    pairs : which pairs enter D: "auto", `AllPairs()` or `RandomPairs(n)`
    n_init : starts: discriminant directions first, then random ones
    max_iter, tol, random_state, verbose : as everywhere

    Notes
    -----
    The survey takes i < j under a root of c(c − 1), and its KL lacks −p. Classes of one sample have no divergence and
    count in S and D only.

    References
    ----------
    L. Feng, H. Wang, B. Jin, H. Li, M. Xue, L. Wang, "Learning a distance metric by balancing KL-divergence for
    imbalanced datasets", IEEE Transactions on Systems, Man, and Cybernetics: Systems 2018.
    """

    _sees = (Labels,)
    _needs = ("similar", "dissimilar")

    def __init__(
        self,
        n_components=None,
        *,
        divergence="normalised",
        reg=1.0,
        whiten=True,
        shrinkage=1e-3,
        pairs="auto",
        n_init=3,
        max_iter=200,
        tol=1e-6,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.divergence = divergence
        self.reg = reg
        self.whiten = whiten
        self.shrinkage = shrinkage
        self.pairs = pairs
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, side):
        if self.divergence not in DIVERGENCES:
            raise ValueError(f"divergence={self.divergence!r} is unknown; expected one of {', '.join(DIVERGENCES)}")
        if self.reg < 0 or self.shrinkage < 0 or self.n_init < 1:
            raise ValueError(
                f"reg={self.reg} and shrinkage={self.shrinkage} must not be negative, n_init={self.n_init} at least 1"
            )
        rng, p = check_random_state(self.random_state), self._check_n_components(X.shape[1])
        Q = row_range(X) if X.shape[1] > len(X) else np.eye(X.shape[1])  # n < d: differences span n − 1 dimensions
        Y = (X - X.mean(axis=0)).astype(np.float64) @ Q
        d = Y.shape[1]
        p = min(p or max(1, min(d - 1, max(len(side.classes) - 1, d // 2))), d)
        problem = self._problem(Y, side, rng)
        with Progress(self.verbose, "DMBK", self.n_init * self.max_iter) as progress:
            runs = [
                lbfgs(problem, V, max_iter=self.max_iter, tol=self.tol, progress=progress)
                for V in self._starts(Y, side, p, rng)
            ]
        best = min(runs, key=lambda run: run.value)
        U = problem.normalise(best.x)
        if self.whiten:
            U = problem.normalise(U @ sym_fn(ridge(U.T @ problem.pooled @ U, 1e-6), lambda w: 1 / np.sqrt(w)))
        self._set_components((Q @ U).T, X.dtype)
        self._record(best)

    def _starts(self, Y, side, p, rng):
        """Discriminant directions filled up with principal ones, all orthonormal; then random subspaces."""
        q = min(p, max(len(side.classes) - 1, 1))
        directions = [initial_map(Y, side, "lda", q, rng).T, initial_map(Y, side, "pca", Y.shape[1], rng).T]
        yield np.linalg.qr(np.hstack(directions))[0][:, :p]
        for _ in range(self.n_init - 1):
            yield np.linalg.qr(rng.standard_normal((Y.shape[1], p)))[0]

    def _problem(self, Y, side, rng) -> BalancedDivergence:
        groups = [Y[side.codes == c] for c in np.flatnonzero(side.counts > 1)]
        counts, means = np.array([len(G) for G in groups], dtype=np.float64), np.array([G.mean(axis=0) for G in groups])
        covariances = np.array([np.cov(G, rowvar=False, bias=True).reshape(Y.shape[1], -1) for G in groups])
        pooled = np.tensordot(counts / counts.sum(), covariances, axes=1)
        spread = np.maximum(np.trace(covariances, axis1=1, axis2=2), 1e-3 * np.trace(pooled))  # copies have none
        covariances += (self.shrinkage * spread / Y.shape[1])[:, None, None] * np.eye(Y.shape[1])
        signed = signed_edges(side, self.pairs, Y, rng)

        def far(d, t):
            root = np.sqrt(d + SMOOTHING)
            return -root, -0.5 / root

        weight = self.reg / max(signed.n_dissimilar, 1)
        loss = signed.loss(far, similar=0.0, dissimilar=weight)
        similar = ridge(mean_pair_scatters(Y, side)[0], 1e-12)
        terms = DIVERGENCES[self.divergence]
        return BalancedDivergence(Y, signed.edges, loss, similar, pooled, counts, means, covariances, terms)


@dataclass(frozen=True)
class BalancedDivergence:
    """The objective, to minimise over V (d, p): it is evaluated at U = V/√tr(VᵀM_S V), where the constraint holds."""

    Y: np.ndarray  # (n, d)
    edges: Edges
    loss: Loss  # −reg · mean distance over dissimilar pairs
    similar: np.ndarray  # (d, d) M_S
    pooled: np.ndarray  # (d, d) covariance within classes
    counts: np.ndarray  # (c,)
    means: np.ndarray  # (c, d)
    covariances: np.ndarray  # (c, d, d)
    terms: tuple[float, float]

    def normalise(self, V: np.ndarray) -> np.ndarray:
        return V / np.sqrt(np.vdot(V, self.similar @ V))

    def __call__(self, V: np.ndarray) -> tuple[float, np.ndarray]:
        U = self.normalise(V)
        value, G = self.divergence(U)
        far, pull = self.edges.evaluate(self.Y @ U, self.loss)
        G = 2 * self.Y.T @ pull - G
        scale = np.sqrt(np.vdot(V, self.similar @ V))
        return far - value, (G - self.similar @ U * np.vdot(G, U)) / scale

    def kl(self, U: np.ndarray):
        """KL_ij (c, c) between the projected classes, and what its gradient needs."""
        SU = self.covariances @ U  # (c, d, p)
        S = U.T @ SU  # (c, p, p)
        A, logdet = np.linalg.inv(S), np.linalg.slogdet(S)[1]
        M = self.means @ U
        delta = M[:, None] - M  # (c, c, p)
        traces = np.einsum("jpq,ipq->ij", A, S) + np.einsum("ijp,jpq,ijq->ij", delta, A, delta)
        return (logdet - logdet[:, None] + traces - U.shape[1]) / 2, SU, S, A, delta

    def divergence(self, U: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean of log e_ij (and of log KL_ij) over ordered pairs of classes, and its gradient in U."""
        c = len(self.counts)
        if c < 2:
            return 0.0, np.zeros_like(U)
        KL, SU, S, A, delta = self.kl(U)
        off = ~np.eye(c, dtype=bool)
        KL = np.maximum(KL, 1e-12)
        mass = np.outer(self.counts, self.counts) * off
        total = np.sum(mass * KL)
        normalised, plain = self.terms
        log_kl = np.log(KL[off]).mean()
        value = normalised * (log_kl + np.log(mass[off] / total).mean()) + plain * log_kl
        w = off * ((normalised + plain) / (c * (c - 1) * KL) - normalised * mass / total)  # ∂value/∂KL_ij
        T = np.einsum("ij,ipq->jpq", w, S) + np.einsum("ij,ijp,ijq->jpq", w, delta, delta)  # Σ_i w_ij UᵀB_ijU
        R = (w.sum(axis=0) - w.sum(axis=1))[:, None, None] * A - A @ T @ A + np.einsum("kj,jpq->kpq", w, A)
        E = np.einsum("ij,ijp,jpq->ijq", w, delta, A)
        return value, np.einsum("kdp,kpq->dq", SU, R) + self.means.T @ (E.sum(axis=1) - E.sum(axis=0))
