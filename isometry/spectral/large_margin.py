"""How large-margin problems are solved: with a hinge that gets sharper, up to a proven distance from the minimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg as sla

from isometry.core.linalg import factor, svd, symmetrize
from isometry.core.solve import Solution, lbfgs

# Widths over which the hinge is rounded, in units of the margin.
WIDTHS = (1e-1, 3e-3)  # of the first runs; each run starts from the result of the one before
NARROW = 1e-4  # of the last runs of a problem whose minimum cannot be proven
NARROWEST = 1e-10  # the smallest that a proof may use
# L-BFGS stops when an iteration lowers the value by less than this, relatively.
FLAT = 1e-5  # in the first runs
FLATTEST = 1e-14  # in the last runs
# The minimum often has a rank far below d, and what an evaluation costs grows with the rows of M.
WIDE = 64  # coordinates above which directions that hardly count are left out; with fewer, rows cost little
LEFT_OUT = (5e-2, 1e-4)  # share of the loss of the targets that may be lost by it, before sharp hinges and later on
BELOW_ROUNDING = (
    "the objective falls along directions in which samples differ by hardly more than rounding errors. Leave out "
    "features that others determine, or set `n_components`"
)
MOST_RIDGE = 0.1  # share of the value that the ridge may add
RIDGE = 1e-12  # added to the target scatter of standardised features, in units of its mean diagonal


class HingeSums(NamedTuple):
    """Sums over all triplets, for a hinge that is rounded over a width τ and has slopes s in [0, 1]."""

    rounded: float  # Σ of rounded hinges
    slopes: float  # Σ s
    squares: float  # Σ s²

    def sharp(self, tau: float) -> float:
        """Σ [h]₊: above the width h is the rounded value + τ/2, below it is τs, and both are rounded + τ(s − s²/2)."""
        return self.rounded + tau * (self.slopes - self.squares / 2)


class MarginProblem(Protocol):
    """(1 − μ) tr(W A) + μ Σ_t [margin + tr(W C_t)]₊ over W = LᵀL, with A the scatter of the target pairs."""

    X: np.ndarray  # (n, d), centred
    margin: float
    max_impostors: int | None  # of an anchor; None: all count
    target_scatter: np.ndarray  # A (d, d)

    def __call__(self, L: np.ndarray, mu: float, tau: float) -> tuple[float, np.ndarray, float]:
        """Value and gradient with a hinge rounded over τ, and the value with the sharp hinge."""
        ...

    def push_gradient(self, L: np.ndarray, tau: float) -> tuple[np.ndarray, HingeSums]:
        """Σ s_t C_t (d, d), which is the gradient of the sum of rounded hinges in W, and the sums."""
        ...

    def value(self, L: np.ndarray, mu: float) -> float: ...

    def all_triplets(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...

    def restart(self, L: np.ndarray) -> Any: ...

    def refresh(self, L: np.ndarray) -> int: ...

    @property
    def cap(self) -> int | None: ...

    @property
    def list_lifetime(self) -> int: ...


class Certificate(NamedTuple):
    """What the slopes s of the hinges at a metric W prove of all metrics."""

    value: float  # of the objective at W, with the sharp hinge
    bound: float  # no metric has a smaller one
    rounding: float  # what would be left of value − bound at the minimum, because the hinge is rounded
    ridge: float  # what the ridge of `target_coordinates` would add to the value; the bound is of their sum
    G: np.ndarray  # the gradient in W (d, d), in coordinates of M


class Search:
    """L-BFGS on M, L = M Tᵀ, in coordinates where the loss of the targets is |M|², on hinges that get sharper."""

    def __init__(self, problem: MarginProblem, L: np.ndarray, mu: float, max_iter: int):
        self.problem, self.mu, self.max_iter = problem, mu, max_iter
        self.T, inverse = target_coordinates(problem, mu)
        self.M, self.n_rows = L @ inverse.T, len(L)
        self.n_iter = 0
        self.history: list[float] = []
        self.step = 0.0  # the last step length that ``grow`` accepted; 0: none so far
        problem.restart(L)

    @property
    def L(self) -> np.ndarray:
        return self.M @ self.T.T

    @property
    def exhausted(self) -> bool:
        return self.n_iter >= self.max_iter

    def rounded(self, width: float) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """The objective in M with a hinge rounded over ``width`` margins: value and gradient."""

        def f(M: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient, self.sharp = self.problem(M @ self.T.T, self.mu, width * self.problem.margin)
            return value, gradient @ self.T

        return f

    def compress(self, share: float) -> None:
        """Where W has many directions, leave out those that add at most ``share`` of the loss of the targets, |M|².

        For convex problems only: ``grow`` brings back what matters, since the proof is one of W, whatever its rank.
        """
        if self.M.shape[1] <= WIDE:
            return
        _, s, Vt = svd(self.M)
        lost = np.cumsum(s[::-1] ** 2)[::-1]  # with this direction and all after it
        rank = max(int(np.sum(lost > share * lost[0])), 1)
        if rank <= len(self.M) / 2:  # else it saves too little
            self.M = s[:rank, None] * Vt[:rank]

    def run(self, width: float, flat: float = FLAT) -> None:
        """Descend until an iteration lowers the rounded objective by less than ``flat``, relatively."""
        f = self.rounded(width)
        n_missing, ended = 1, False
        while not self.exhausted and (n_missing or not ended):
            budget = min(self.problem.list_lifetime, self.max_iter - self.n_iter)
            solution = lbfgs(
                f,
                self.M,
                max_iter=budget,
                tol=min(1e2 * flat, 1e-3),
                flat=flat,
                memory=20,
                shown=lambda: self.sharp,  # an iteration ends at the point that was evaluated last
            )
            self.n_iter += max(solution.n_iter, 1)
            self.history += solution.history[1:] if self.history else solution.history
            n_missing = self.problem.refresh(solution.x @ self.T.T)
            ended = solution.n_iter < budget
            if n_missing == 0 or f(solution.x)[0] < f(self.M)[0]:  # is it still lower with the missing impostors?
                self.M = solution.x

    def prove(self, tol: float) -> tuple[Solution, float]:
        """Go on until the value is proven to be within tol of the minimum; the solution, and the relative gap."""
        width, flat = WIDTHS[-1], FLAT
        bound = 0.0  # the largest lower bound of the minimum so far
        least_scale = 0.1 * self.mu * self.problem.margin  # of the relative gap, where the minimum is 0 or nearly so
        while True:
            proof = certificate(self.problem, self.M, self.T, self.mu, width * self.problem.margin)
            least_scale = max(least_scale, 1e-6 * proof.value)
            bound, scale = max(bound, proof.bound - proof.ridge), max(proof.value, least_scale)
            gap = max(proof.value - bound, 0.0) / scale
            if gap <= tol:
                return self.result(proof.value, f"the objective is proven to be within {gap:.1g} of the minimum"), gap
            if proof.ridge > MOST_RIDGE * scale:  # the bound is one of another problem, and rounding errors come next
                return self.result(proof.value, BELOW_ROUNDING, False), 1.0
            if self.exhausted:
                return self.unproven(proof.value, f"max_iter={self.max_iter} reached", gap), gap
            if proof.rounding > tol / 2 * scale and width > NARROWEST:
                width /= 10
            self.compress(LEFT_OUT[1])
            decrease = self.grow(proof.G, width)
            if flat <= FLATTEST and decrease <= 1e-12 * scale:
                if width <= NARROWEST:
                    return self.unproven(proof.value, "no further decrease within rounding", gap), gap
                width /= 10
            flat = max(flat / 10, FLATTEST)
            self.run(width, flat)

    def settle(self, tol: float) -> Solution:
        """Go on until a further run lowers the value by less than tol/10."""
        value, flat = self.problem.value(self.L, self.mu), FLAT
        while not self.exhausted:
            self.run(NARROW, flat)
            before, value, flat = value, self.problem.value(self.L, self.mu), flat / 10
            if before - value <= tol / 10 * before:
                return self.result(value, "no further decrease after a restart")
        return self.result(value, f"max_iter={self.max_iter} reached", False)

    def result(self, value: float, reason: str, converged: bool = True) -> Solution:
        return Solution(padded(self.L, self.n_rows), value, self.n_iter, reason, converged, self.history or [value])

    def unproven(self, value: float, why: str, gap: float) -> Solution:
        return self.result(value, f"{why}, where the objective is proven to be within {gap:.1g} of the minimum", False)

    def grow(self, G: np.ndarray, width: float) -> float:
        """Step along all directions of descent in W, W + step Σ |λ| v vᵀ over λ < 0 of G; returns the decrease.

        L-BFGS on M sees slopes M G, which vanish with M in directions where W is still 0.
        """
        f, (w, V) = self.rounded(width), sla.eigh(G)
        B = V[:, w < 0] * np.sqrt(-w[w < 0])
        if not B.any():
            return 0.0
        (p, d), b = self.M.shape, B.shape[1]
        self.M = padded(self.M, min(p + b, d))
        start = best = f(self.M)[0]
        W, chosen = self.M.T @ self.M, self.M

        def stepped(step: float) -> np.ndarray:
            if p + b <= d:  # the directions become rows of their own
                return np.vstack([self.M[:p], np.sqrt(step) * B.T])
            w, V = sla.eigh(W + step * B @ B.T)
            return (V * np.sqrt(np.maximum(w, 0))).T

        step = self.step or (1e-2 * np.trace(W) + 1e-12) / max(float(np.vdot(B, B)), 1e-300)
        factor = 4.0
        for _ in range(20):
            M = stepped(step)
            value = f(M)[0]
            if value < best:
                best, chosen, self.step = value, M, step
            elif best < start:  # the step before was better
                break
            else:
                factor = 0.25
            step *= factor
        self.M = chosen
        return start - best


def descend(
    problem: MarginProblem,
    L: np.ndarray,
    mu: float,
    *,
    max_iter: int,
    tol: float,
) -> tuple[Solution, float | None]:
    """The solution, and how far it is above the minimum at most, relatively, where that can be proven.

    With a square L and all impostors the problem is convex in W = LᵀL, and the search ends with a proof; otherwise when
    the value no longer falls. Without the loss of the targets (μ = 1) slopes prove nothing, and without hinges (μ = 0)
    the minimum is W = 0.
    """
    search, convex = Search(problem, L, mu, max_iter), len(L) == L.shape[1] and 0 < mu < 1
    search.run(WIDTHS[0])
    if convex and problem.max_impostors is None:
        search.compress(LEFT_OUT[0])
    search.run(WIDTHS[1])
    if convex and problem.cap is None:
        return search.prove(tol)
    return search.settle(tol), None


def padded(M: np.ndarray, n_rows: int) -> np.ndarray:
    """M with rows of zeros below, so many that there are ``n_rows``."""
    return M if len(M) >= n_rows else np.vstack([M, np.zeros((n_rows - len(M), M.shape[1]))])


def semidefinite_programme(problem: MarginProblem, mu: float, n_components: int) -> Solution:
    """The convex problem in W by cvxpy, and the leading rows of a factor of its solution."""
    try:
        import cvxpy as cp
    except ImportError as error:
        raise ImportError("solver='sdp' needs cvxpy: pip install cvxpy") from error
    X = problem.X.astype(np.float64)
    W = cp.Variable((X.shape[1], X.shape[1]), PSD=True)
    a, b, c = problem.all_triplets()
    near, far = (cp.sum(cp.multiply(D @ W, D), axis=1) for D in (X[a] - X[b], X[a] - X[c]))
    push = cp.sum(cp.pos(problem.margin + near - far)) if len(a) else 0
    programme = cp.Problem(cp.Minimize((1 - mu) * cp.trace(W @ problem.target_scatter) + mu * push))
    programme.solve(solver="CLARABEL")
    L = factor(np.asarray(W.value), n_components)
    value, n_iter = problem.value(L, mu), programme.solver_stats.num_iters or 0
    return Solution(L, value, n_iter, programme.status, programme.status == "optimal", [value])


def target_coordinates(problem: MarginProblem, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """T (d, d) with Tᵀ((1 − μ)A + ridge)T = I, and its inverse. The ridge is for directions in which no targets differ.

    In these coordinates L-BFGS needs a tenth of the iterations or less if features have different scales or correlate.
    """
    deviation = problem.X.std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1.0
    A = problem.target_scatter / np.outer(deviation, deviation)
    ridge = RIDGE * (np.trace(A) / len(A) or 1.0)
    w, V = sla.eigh((1 - mu) * symmetrize(A) + ridge * np.eye(len(A)))
    w = np.sqrt(np.maximum(w, ridge))
    return V / w / deviation[:, None], (V * w).T * deviation


def certificate(problem: MarginProblem, M: np.ndarray, T: np.ndarray, mu: float, tau: float) -> Certificate:
    """Weak duality, with slopes s of the rounded hinges as dual variables.

    For any s in [0, 1] the objective at W' is at least tr(W' G(s)) + μ margin Σ s. If G(αs) ⪰ 0 the first term is not
    negative, so μ margin α Σ s is a lower bound of the minimum; the largest such α ≤ 1 is −1/λ for λ the smallest
    eigenvalue of μ Σ s_t C_t in coordinates where (1 − μ)A is I.
    """
    L = M @ T.T
    push, sums = problem.push_gradient(L, tau)
    pull = max((1 - mu) * float(np.vdot(L @ problem.target_scatter, L)), 0.0)  # rounding errors may say less
    C = symmetrize(mu * T.T @ push @ T)
    scale = 1 / max(1.0, -float(sla.eigvalsh(C, subset_by_index=[0, 0])[0]))
    rounding = mu * tau * (sums.slopes - sums.squares)  # Σ [h]₊ − s h, with h = τ s where s < 1
    value, bound = pull + mu * sums.sharp(tau), mu * problem.margin * scale * sums.slopes
    ridge = max(float(np.vdot(M, M)) - pull, 0.0)
    return Certificate(value, bound, rounding, ridge, np.eye(len(C)) + C)
