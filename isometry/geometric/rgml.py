"""Robust geometric metric learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.core.frame import Frame
from isometry.core.linalg import column_range, factor, symmetrize
from isometry.core.solve import Solution, alternate
from isometry.core.warn import warn_user
from isometry.mixed import MixedMetric
from isometry.parameters import KW_ONLY, Count, Iterations, NotNegative, Positive, Seed, Share, parameters
from isometry.supervision import Chunklets, Labels

MIN_ROWS = 10  # of a class of its own; fewer in few dimensions
MIN_SCATTER = 1e-6  # of a class of its own, relative to the pooled one
MIN_LENGTH = 1e-6  # of a difference, relative to the median: below, it may be rounding, and so is its direction
HALVINGS = 12
FAR = 1.0  # a larger reg holds each class so tightly that only all of them together can move far


@parameters
class RGML(MixedMetric):
    """Robust geometric metric learning: one covariance for each class, and the metric in the middle of them.

    min_{A, Σ_k ≻ 0} Σ_k π_k [mean over pairs of class k of ρ(zᵀΣ_k⁻¹z) + log det Σ_k + reg δ²(A, Σ_k)],  W = A⁻¹

    π_k is the share of class k, δ the Riemannian distance of positive definite matrices. With ρ(t) = d log t (Tyler) a
    pair counts by its direction, not its length, so that wrong labels and outliers do little harm; with ρ(t) = t every
    Σ_k would be the mean scatter of its class. Both are geodesically convex.

    Parameters
    ----------
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    reg : float ≥ 0, default=0.1
        Weight of the pull of the classes' covariances towards A.
    rho : {"tyler", "gaussian"}, default="tyler"
        Function ρ: "tyler" or "gaussian".
    shrink : float in [0, 1], default=0.05
        Share of tr(Σ_k⁻¹) in the place of ρ, in units in which the mean scatter of all classes has trace d; it keeps
        Σ_k definite, and without it Tyler's ρ leaves its scale open. More is taken for a class whose samples span fewer
        than d dimensions, where Tyler's ρ has no minimum without.
    n_pairs : int, default=500
        Number of pairs of each class, drawn at random where there are more.
    random_state : int, RandomState instance or None, default=None
        Seed of the pairs.
    max_iter : int, default=100
        Largest number of iterations of the descent.
    tol : float > 0, default=1e-5
        Relative slope at which the descent stops.
    verbose : bool, default=False
        Whether to show a progress bar.

    Notes
    -----
    For labels with mistakes and for features with outliers: with Tyler's ρ the length of a difference does not
    count. It looks at no dissimilar pairs, and needs classes with more samples than features; for many small
    classes use `RCA`.

    An iteration costs O(c (m d² + d³)) for m pairs in each of c classes.

    Classes with fewer than min(d + 2, 10) samples, or with hardly any scatter, take no part; if none is left, all
    classes are taken for one.

    References
    ----------
    | A. Collas, A. Breloy, G. Ginolhac, C. Ren, J.-P. Ovarlez, "Robust geometric metric learning", EUSIPCO 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import RGML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = RGML(random_state=0).fit(X, y)
    >>> metric.transform(X).shape
    (150, 4)
    """

    _sees = (Labels, Chunklets)
    _needs = ("similar",)

    _: KW_ONLY
    reg: NotNegative = 0.1
    rho: Literal["tyler", "gaussian"] = "tyler"
    shrink: Share = 0.05
    n_pairs: Count = 500
    random_state: Seed = None
    max_iter: Iterations = 100
    tol: Positive = 1e-5
    verbose: bool = False

    def _fit(self, X: np.ndarray, side: Labels | Chunklets) -> Solution:
        frame = Frame.of(X.astype(np.float64), reduced=True)
        classes, counts = class_differences(frame.X, side.codes, self.n_pairs, check_random_state(self.random_state))
        pooled = sum(n * Z.T @ Z / len(Z) for Z, n in zip(classes, counts, strict=True)) / sum(counts)
        unit = np.trace(pooled) / len(pooled)
        share = np.array(counts) / sum(counts)
        tyler = self.rho == "tyler"
        shrink = np.array([max(self.shrink, least_shrink(Z) if tyler else 0) for Z in classes])
        problem = Problem([Z / np.sqrt(unit) for Z in classes], share, shrink, self.reg, tyler)
        start = ridge_of(pooled / unit, self.shrink)
        state = start, np.repeat(start[None], len(classes), axis=0)
        solution = alternate(problem.step, state, max_iter=self.max_iter, tol=self.tol)
        self._store(frame.lift(factor(sla.inv(unit * solution.x[0]))), X.dtype)
        return solution


def least_shrink(Z: np.ndarray) -> float:
    """What Tyler's estimate needs where the differences Z (m, d) span r < d dimensions: more than 1 − r/d."""
    d = Z.shape[1]
    r = column_range(Z.T @ Z).shape[1]
    return 0.0 if r == d else 1 - 0.9 * r / d


def class_differences(
    X: np.ndarray, codes: np.ndarray, n_pairs: int, rng: np.random.RandomState
) -> tuple[list[np.ndarray], list[int]]:
    """Differences (m, d) of pairs of each class that takes part, and how many samples these have."""
    d, parts, counts = X.shape[1], [], []
    for c in np.unique(codes[codes >= 0]):
        Z, n = _differences(X[codes == c], n_pairs, rng), int(np.sum(codes == c))
        if len(Z):
            parts.append(Z)
            counts.append(n)
    if not parts:
        raise ValueError("all samples of every class are equal: there is no scatter to learn from")
    sizes = np.array([np.einsum("ij,ij->", Z, Z) / len(Z) for Z in parts])
    least = MIN_SCATTER * np.average(sizes, weights=counts)
    enough = [k for k, n in enumerate(counts) if n >= min(d + 2, MIN_ROWS) and sizes[k] >= least]
    if enough:
        return [parts[k] for k in enough], [counts[k] for k in enough]
    warn_user("no class has enough samples for a covariance of its own: all classes are taken for one")
    return [np.concatenate(parts)], [sum(counts)]


def _differences(X: np.ndarray, n_pairs: int, rng: np.random.RandomState) -> np.ndarray:
    n = len(X)
    if n * (n - 1) // 2 <= n_pairs:
        i, j = np.triu_indices(n, 1)
    else:
        i, step = rng.randint(n, size=n_pairs), rng.randint(1, n, size=n_pairs)
        j = (i + step) % n
    Z = X[i] - X[j]
    length = np.linalg.norm(Z, axis=1)
    return np.asarray(Z[length > MIN_LENGTH * np.median(length[length > 0])]) if length.any() else Z[:0]


State = tuple[np.ndarray, np.ndarray]  # A (d, d), Σ (c, d, d)


@dataclass(frozen=True)
class Problem:
    """The objective, in units in which the pooled scatter has trace d, and a step that lowers it."""

    classes: list[np.ndarray]  # c × (m, d)
    share: np.ndarray  # (c,) π
    shrink: np.ndarray  # (c,)
    reg: float
    tyler: bool

    def value(self, A: np.ndarray, S: np.ndarray) -> float:
        return float(self.share @ [self.class_value(k, A, S[k]) for k in range(len(S))])

    def class_value(self, k: int, A: np.ndarray, S: np.ndarray) -> float:
        R = sla.cholesky(S, lower=True)
        inverse = sla.solve_triangular(R, np.eye(len(S)), lower=True)
        q = np.sum((self.classes[k] @ inverse.T) ** 2, axis=1)  # zᵀΣ⁻¹z
        rho = len(S) * np.mean(np.log(q)) if self.tyler else q.mean()
        own = (1 - self.shrink[k]) * rho + self.shrink[k] * np.sum(inverse**2)
        gap = self.reg * np.sum(np.log(sla.eigvalsh(inverse @ A @ inverse.T)) ** 2) if self.reg else 0.0
        return float(own + 2 * np.log(np.diag(R)).sum() + gap)

    def scatter(self, k: int, S: np.ndarray) -> np.ndarray:
        """C with tr(C Σ⁻¹) the tangent of ρ and the shrinkage at Σ = S."""
        Z, d = self.classes[k], len(S)
        weight = d / _forms(Z, S) if self.tyler else np.ones(len(Z))
        return np.asarray((1 - self.shrink[k]) * Z.T @ (Z * weight[:, None]) / len(Z) + self.shrink[k] * np.eye(d))

    def gradient(self, k: int, A: np.ndarray, S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G = I − Σ^{−½}CΣ^{−½} − 2 reg log(Σ^{−½}AΣ^{−½}), the slope along Σ^{½}exp(tH)Σ^{½}; and Σ^{½}."""
        root, inverse = _roots(S)
        G = np.eye(len(S)) - inverse @ self.scatter(k, S) @ inverse
        return symmetrize(G - 2 * self.reg * _log(inverse @ A @ inverse)), root

    def step(self, state: State) -> tuple[State, float]:
        """Each Σ_k by a natural gradient step, A to their middle, then all of them by one common map."""
        A, S = state[0], state[1].copy()
        for k in range(len(S)):
            G, root = self.gradient(k, A, S[k])

            def along(eta: float, root: np.ndarray = root, G: np.ndarray = G) -> np.ndarray:
                return symmetrize(root @ _exp(-eta * G) @ root)

            eta = _step_length(G, 1 / (1 + 2 * self.reg))
            S[k] = _descend(along, lambda M, k=k: self.class_value(k, A, M), S[k], eta)
        A, S = self._rescaled(karcher_mean(S, self.share, A, 1), S)
        if self.reg > FAR:
            A, S = self._common_step(A, S)
        return (A, S), self.value(A, S)

    def _rescaled(self, A: np.ndarray, S: np.ndarray) -> State:
        """A and all Σ_k times the number that is best, which single steps approach slowly."""
        if self.tyler:  # its own part does not depend on the scale
            weight = self.share * self.shrink
            forms = [np.trace(sla.inv(s)) for s in S]
        else:
            weight, forms = self.share, [np.trace(sla.solve(s, self.scatter(k, s))) for k, s in enumerate(S)]
        best = float(weight @ forms) / (len(A) * weight.sum()) if weight.any() else 1.0
        return best * A, best * S

    def _common_step(self, A: np.ndarray, S: np.ndarray) -> State:
        """Move A and all Σ_k by one congruence, which leaves their distances: for large reg nothing else moves far."""
        root, inverse = _roots(A)
        pull = sum(p * self.scatter(k, S[k]) @ sla.inv(S[k]) for k, p in enumerate(self.share))
        H = symmetrize(np.eye(len(A)) - inverse @ pull @ root)

        def along(eta: float) -> State:
            M = root @ _exp(-eta / 2 * H) @ inverse
            return symmetrize(M @ A @ M.T), np.array([symmetrize(M @ s @ M.T) for s in S])

        found: State = _descend(along, lambda x: self.value(*x), (A, S), _step_length(H, 1.0))
        return found


def karcher_mean(S: np.ndarray, share: np.ndarray, A: np.ndarray, n_steps: int = 5) -> np.ndarray:
    """argmin_A Σ_k π_k δ²(A, Σ_k), from A, by steps of which none raises the sum."""

    def total(M: np.ndarray) -> float:
        return float(share @ [np.sum(np.log(sla.eigvalsh(s, M)) ** 2) for s in S])

    for _ in range(n_steps):
        root, inverse = _roots(A)
        T = sum(p * _log(symmetrize(inverse @ s @ inverse)) for p, s in zip(share, S, strict=True))
        A = _descend(lambda eta, root=root, T=T: symmetrize(root @ _exp(eta * T) @ root), total, A, 1.0)
    return A


def ridge_of(S: np.ndarray, shrink: float) -> np.ndarray:
    """Where the search begins: positive definite also if S is not."""
    return S + max(shrink, 1e-6) * np.eye(len(S))


def _descend(along: Any, value: Any, here: Any, eta: float) -> Any:
    """The first point of ``along`` at eta, eta/2, … that is no higher than ``here``, or else ``here``."""
    start = value(here)
    for _ in range(HALVINGS):
        there = along(eta)
        if value(there) <= start:
            return there
        eta /= 2
    return here


def _step_length(G: np.ndarray, most: float) -> float:
    """No variance changes by more than the factor e in one step."""
    return float(min(most, 1 / max(np.abs(sla.eigvalsh(G)).max(), 1e-300)))


def _forms(Z: np.ndarray, S: np.ndarray) -> np.ndarray:
    """zᵀS⁻¹z (m,)."""
    R = sla.solve_triangular(sla.cholesky(S, lower=True), Z.T, lower=True)
    return np.asarray(np.einsum("ij,ij->j", R, R))


def _roots(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w, V = sla.eigh(S)
    w = np.sqrt(np.maximum(w, 1e-15 * w[-1]))
    return (V * w) @ V.T, (V / w) @ V.T


def _log(S: np.ndarray) -> np.ndarray:
    w, V = sla.eigh(symmetrize(S))
    return np.asarray((V * np.log(np.maximum(w, 1e-300))) @ V.T)


def _exp(S: np.ndarray) -> np.ndarray:
    w, V = sla.eigh(S)
    return np.asarray((V * np.exp(w)) @ V.T)
