"""Geometric mean metric learning of low rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import scipy.linalg as sla
from sklearn.utils import check_random_state

from isometry.base import check_components
from isometry.core.linalg import RANK_TOL, svd, symmetrize, top_eigenvectors
from isometry.core.solve import Solution, riemannian
from isometry.core.spd import definite_pair, inverse_geodesic_factor
from isometry.mixed import MixedMetric
from isometry.moments import mean_pair_scatters
from isometry.parameters import (
    KW_ONLY,
    Count,
    Iterations,
    NotNegative,
    Positive,
    Seed,
    Share,
    check_choices,
    parameters,
)
from isometry.supervision import Labels, Pairs

# f(U) = Σ φ(log m_i): φ and φ' as functions of m
OBJECTIVES: dict[str, tuple[Callable, Callable]] = {
    "geodesic": (lambda m: np.log(m) ** 2 / 4, lambda m: np.log(m) / 2),
    "trace": (lambda m: 2 * np.sqrt(m), np.sqrt),
}


@parameters
class LowRankGMML(MixedMetric):
    """Low-rank geometric mean metric learning: a p-dimensional subspace and the geometric mean metric within it.

    min_U Σ_i φ(log m_i),  m = eig(S̃D̃),  S̃ = UᵀSU,  D̃ = UᵀDU,  UᵀU = I;  then  W = UBUᵀ,  B = S̃⁻¹ ♯_t D̃

    with S, D the mean scatters of similar and dissimilar pairs. φ(s) = s²/4 is what the weighted distances of B to S̃⁻¹
    and to D̃ leave at their best B ("geodesic"), φ(s) = 2e^{s/2} what tr(BS̃) + tr(B⁻¹D̃) leaves ("trace").

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension p of the subspace; "auto" is min(d, max(c, ⌈d/2⌉)) for c classes.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the Euclidean one. "auto": the data choose it; 1 is the method as
        published. See `MixedMetric`.
    t : float in [0, 1], default=0.5
        Position of B on the geodesic: 0 is the inverse of the similar scatter, 1 the dissimilar scatter; U does not
        depend on it.
    objective : {"geodesic", "trace"}, default="geodesic"
        Which function φ of the eigenvalues is minimised.
    subspace : {"optimise", "discriminant"}, default="optimise"
        "optimise" as above, or "discriminant": the leading eigenvectors of D relative to S, orthonormalised.
        Recommended where p is small: neither objective looks for directions that separate.
    scale : float > 0 or "auto", default="auto"
        Factor on both scatters before U is sought. "auto", 1/√(λ_max(S) λ_max(D)), makes every m ≤ 1, so that neither
        units nor other starts change the subspace; ``√(|S||D|)/(|S| + |D|)`` is that of the published code.
    init : {"gmml", "discriminant", "random"} or ndarray, default="gmml"
        Where the search starts: "gmml" (leading eigenvectors of GMML's W), "discriminant", "random", or an array (p, d)
        whose rows span it.
    n_init : int, default=1
        Number of starts; those after the first are random.
    reg : float ≥ 0, default=1e-6
        Relative ridge on both scatters.
    max_iter : int, default=250
        Largest number of iterations.
    tol : float ≥ 0, default=1e-6
        Relative slope or decrease at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.

    Attributes
    ----------
    subspace_ : ndarray of shape (d, p)
        The basis U of the subspace.

    Notes
    -----
    For pairs or labels and a metric of low rank by the geometric mean. The objective of the subspace does not look
    for directions that separate; with few dimensions use subspace="discriminant", or `FisherML`.

    A fit costs O(n d²) for the scatters and O(d² p + p³) for every iteration.

    The survey inverts W of rank p and fixes Λ while U moves, where the objective is not one of subspaces; with B
    eliminated it is. "trace" prefers directions in which both scatters are tiny.

    References
    ----------
    | M. Bhutani, P. Jawanpuria, H. Kasai, B. Mishra, "Low-rank geometric mean metric learning", arXiv 1806.05454, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import LowRankGMML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LowRankGMML(2, random_state=0).fit(X, y)
    >>> metric.subspace_.shape
    (4, 2)
    """

    _sees = (Labels, Pairs)

    n_components: Count | Literal["auto"] | None = "auto"
    _: KW_ONLY
    t: Share = 0.5
    objective: str = "geodesic"
    subspace: str = "optimise"
    scale: Positive | Literal["auto"] = "auto"
    init: str | np.ndarray = "gmml"
    n_init: Count = 1
    reg: NotNegative = 1e-6
    max_iter: Iterations = 250
    tol: NotNegative = 1e-6
    random_state: Seed = None

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        self._check_params()
        p, d = check_components(self.n_components, X.shape[1]), X.shape[1]
        if p is None:
            c = len(side.classes) if isinstance(side, Labels) else 0
            p = min(d, max(c, -(-d // 2)))
        Q, S, D = definite_pair(*mean_pair_scatters(X, side), self.reg)
        solution = self._find_subspace(
            S, D, min(p, len(S)), None if isinstance(self.init, str) else self._init_basis(Q, p)
        )
        U = solution.x
        self.subspace_ = Q @ U
        self._store(inverse_geodesic_factor(U.T @ S @ U, U.T @ D @ U, self.t) @ self.subspace_.T, X.dtype)
        return solution

    def _check_params(self) -> None:
        check_choices(self, objective=OBJECTIVES, subspace=("optimise", "discriminant"))
        if isinstance(self.init, str):
            check_choices(self, init=("gmml", "discriminant", "random"))

    def _init_basis(self, Q: np.ndarray, p: int) -> np.ndarray:
        """The subspace that ``init`` spans, as an orthonormal basis (r, p) in the coordinates Q (d, r)."""
        init = np.asarray(self.init, dtype=np.float64)
        if init.shape != (p, len(Q)):
            raise ValueError(f"init has shape {init.shape}; expected (n_components, n_features) = {(p, len(Q))}")
        basis, s, _ = svd(Q.T @ init.T)
        if not s[-1] > RANK_TOL * s[0]:
            raise ValueError(f"the rows of init span fewer than {p} dimensions of the space of the data")
        return basis

    def _find_subspace(self, S: np.ndarray, D: np.ndarray, p: int, given: np.ndarray | None = None) -> Solution:
        """U (r, p), best over the starts."""
        scale = 1 / np.sqrt(sla.eigvalsh(S)[-1] * sla.eigvalsh(D)[-1]) if isinstance(self.scale, str) else self.scale
        S, D, r = scale * S, scale * D, len(S)
        if self.subspace == "discriminant" or p == r:
            U = discriminant(S, D, p)
            return Solution(U, cost(U, S, D, self.objective), 1, "closed form")
        from pymanopt.manifolds import Grassmann  # loads every autodiff library that is installed: only if needed

        solutions = [
            riemannian(
                Grassmann(r, p),
                lambda U: cost(U, S, D, self.objective),
                lambda U: gradient(U, S, D, self.objective),
                U0,
                max_iter=self.max_iter,
                tol=self.tol,
            )
            for U0 in self._starts(S, D, p, given)
        ]
        return min(solutions, key=lambda solution: solution.value)

    def _starts(self, S: np.ndarray, D: np.ndarray, p: int, given: np.ndarray | None) -> Iterator[np.ndarray]:
        rng = check_random_state(self.random_state)
        for k in range(self.n_init):
            if k == 0 and given is not None:
                yield given
            elif k > 0 or self.init == "random":
                yield np.linalg.qr(rng.standard_normal((len(S), p)))[0]
            elif self.init == "gmml":
                yield svd(inverse_geodesic_factor(S, D), full_matrices=True)[2][:p].T
            else:
                yield discriminant(S, D, p)


def discriminant(S: np.ndarray, D: np.ndarray, p: int) -> np.ndarray:
    """Orthonormal basis (r, p) of the leading eigenvectors of D v = λ S v."""
    return np.linalg.qr(top_eigenvectors(D, S, p)[1])[0]


def products(U: np.ndarray, S: np.ndarray, D: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m = eig(S̃D̃), and V, W with D̃V = W diag(√m), S̃W = V diag(√m), VᵀD̃V = WᵀS̃W = I.

    √m are the singular values of RᵀG for S̃ = RRᵀ, D̃ = GGᵀ. Where both scatters decay, m spans the product of their
    condition numbers: an eigenproblem of RᵀD̃R would lose the small ones to rounding errors.
    """
    R = sla.cholesky(symmetrize(U.T @ S @ U), lower=True)
    G = sla.cholesky(symmetrize(U.T @ D @ U), lower=True)
    Q, s, Pt = svd(R.T @ G)
    V = sla.solve_triangular(G, Pt.T, lower=True, trans="T")
    W = sla.solve_triangular(R, Q, lower=True, trans="T")
    return s**2, V, W


def cost(U: np.ndarray, S: np.ndarray, D: np.ndarray, objective: str) -> float:
    """f(U) = Σ φ(log m_i)."""
    m, _, _ = products(U, S, D)
    return float(OBJECTIVES[objective][0](m).sum())


def gradient(U: np.ndarray, S: np.ndarray, D: np.ndarray, objective: str) -> np.ndarray:
    """∂f/∂U = 2 DUV diag(l) Vᵀ + 2 SUW diag(l) Wᵀ,  l = φ'(log m)."""
    m, V, W = products(U, S, D)
    l = OBJECTIVES[objective][1](m)
    return 2 * D @ U @ (V * l) @ V.T + 2 * S @ U @ (W * l) @ W.T
