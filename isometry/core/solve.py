"""Algorithms that minimise. Each returns a Solution that says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.linalg as sla
import scipy.optimize as so

from isometry.core.linalg import RANK_TOL, extreme_eigenpairs, symmetrize
from isometry.core.memory import remembered
from isometry.core.progress import report
from isometry.core.threads import own_threads

MAX_STORED_NUMBERS = 1 << 22  # in the steps, and in the changes of the gradient, that L-BFGS stores


@dataclass
class Solution:
    """A minimiser, how it was found and why the search ended."""

    x: Any
    value: float
    n_iter: int
    reason: str
    converged: bool = True
    history: list[float] = field(default_factory=list)
    on_purpose: bool = False  # ended before it converged because that was wanted

    def following(self, earlier: int, max_iter: int, history: Sequence[float] = ()) -> Solution:
        """The same as the end of a longer search: after earlier iterations, of ``max_iter`` allowed in all."""
        n_iter = earlier + self.n_iter
        used_up = not self.converged and n_iter >= max_iter
        reason = f"max_iter={max_iter} reached" if used_up else self.reason
        return replace(self, n_iter=n_iter, reason=reason, history=[*history, *self.history])


@own_threads()
def lbfgs(
    fun: Callable[[Any], tuple[float, Any]],
    x0: Any,
    *,
    bounds: list[tuple[float | None, float | None]] | None = None,
    max_iter: int = 200,
    tol: float = 1e-6,
    flat: float | None = None,
    memory: int = 10,
    shown: Callable[[], float] | None = None,
) -> Solution:
    """Minimise ``fun(x) → (value, gradient)`` over an array, or a list of arrays, by SciPy's L-BFGS-B, in float64.

    The variables are scaled so that the start has norm 10: the first step then changes it by a tenth in any units,
    and cannot land on 0, which is a stationary point of every function of LᵀL. Stops when the largest entry of the
    (projected) gradient in those variables is ≤ tol · max(its value at the start, |f|/100), or when an iteration lowers
    the value by less than ``flat`` (default tol · 1e-4), relatively. ``bounds`` has one pair for each number.
    ``memory`` is the number of steps it remembers, fewer if they are long. ``shown()``, asked after each iteration, is
    what the history holds where that is another number than the value.
    """
    as_vector, as_parts = packing(x0)
    start = as_vector(x0)
    unit = float(np.linalg.norm(start)) / 10 or 1.0

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = fun(as_parts(u * unit))
        return float(f), as_vector(g) * unit

    u0 = start / unit
    f0, g0 = evaluate(u0)

    # where an evaluation leaves something behind, it must take place
    computed = remembered(evaluate, u0, f0, g0) if shown is None else evaluate

    def scaled(u: np.ndarray) -> tuple[float, np.ndarray]:
        return (f0, g0.copy()) if np.array_equal(u, u0) else computed(u)  # SciPy evaluates the start once more

    history = [f0 if shown is None else shown()]
    if not np.isfinite(f0):
        raise FloatingPointError("the objective is not finite at the starting point; scale the data or change `init`")
    gtol = tol * max(np.abs(g0).max(initial=0.0), 1e-2 * abs(f0), 1e-300)
    if max_iter <= 0:
        return Solution(as_parts(start), f0, 0, "no iteration asked for", False, history)

    def callback(intermediate_result: Any) -> None:
        history.append(float(intermediate_result.fun if shown is None else shown()))
        report(history[-1])

    if bounds is not None:
        bounds = [(None if a is None else a / unit, None if b is None else b / unit) for a, b in bounds]
    result = so.minimize(
        scaled,
        u0,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        callback=callback,
        options={
            "maxiter": max_iter,
            "maxfun": 20 * max_iter,
            "gtol": gtol,
            "ftol": tol * 1e-4 if flat is None else flat,
            "maxcor": min(memory, max(10, MAX_STORED_NUMBERS // max(start.size, 1))),
        },
    )
    x = result.x * unit if result.fun <= f0 else start
    value = float(min(result.fun, f0))
    reasons = {
        0: "gradient or relative decrease below tol",
        1: f"max_iter={max_iter} reached",
        2: "the line search found no lower point",
    }
    # status 2: the line search found no lower point, i.e. the value is flat to rounding; accept if the slope is small
    abnormal_ok = result.status == 2 and np.abs(result.jac).max(initial=0.0) <= 1e3 * gtol
    reason = "no further decrease within rounding" if abnormal_ok else reasons.get(result.status, str(result.message))
    return Solution(as_parts(x), value, int(result.nit), reason, bool(result.status == 0 or abnormal_ok), history)


def packing(x: Any) -> tuple[Callable[[Any], np.ndarray], Callable[[np.ndarray], Any]]:
    """How an array, or a list of arrays, becomes one vector, and how a vector becomes what it was."""
    if not isinstance(x, list):
        shape = np.shape(x)
        return lambda array: np.asarray(array, dtype=np.float64).ravel(), lambda vector: vector.reshape(shape)
    shapes = [np.shape(part) for part in x]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def as_vector(parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([np.asarray(part, dtype=np.float64).ravel() for part in parts])

    def as_parts(vector: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(vector, ends), shapes, strict=True)]

    return as_vector, as_parts


def fista(
    fun: Callable[[np.ndarray], tuple[float, np.ndarray]],
    project: Callable[[np.ndarray], np.ndarray],
    x0: np.ndarray,
    *,
    step: float = 1.0,
    max_iter: int = 500,
    tol: float = 1e-8,
    gap: Callable[[np.ndarray], float] | None = None,
) -> Solution:
    """Minimise a smooth convex ``fun`` over a convex set given by its projection: FISTA, backtracking, restart.

    Stops when a step moves x by less than tol · max(1, |x|) without momentum; or, given a duality ``gap``, when that is
    at most tol, at which it looks every tenth step.
    """
    x = project(np.asarray(x0, dtype=np.float64))
    f, _ = fun(x)
    y, momentum, history = x, 1.0, [f]
    for it in range(1, max_iter + 1):
        fy, g = fun(y)
        while True:
            x_new = project(y - step * g)
            move = x_new - y
            f_new, _ = fun(x_new)
            bound = fy + np.vdot(g, move) + np.vdot(move, move) / (2 * step)
            if f_new <= bound + 1e-12 * abs(fy) or step < 1e-18:
                break
            step /= 2
        change = np.linalg.norm(x_new - x)
        history.append(min(f_new, history[-1]))
        report(history[-1])
        if f_new > f:  # function restart: drop the momentum and try a plain step from x
            if y is x:
                return Solution(x, f, it, "no further decrease within rounding", True, history)
            y, momentum = x, 1.0
            continue
        if gap is not None and it % 10 == 0 and gap(x_new) <= tol:
            return Solution(x_new, f_new, it, "duality gap below tol", True, history)
        done = gap is None and change <= tol * max(1.0, float(np.linalg.norm(x_new)))
        if done and momentum == 1.0:
            return Solution(x_new, f_new, it, "relative step below tol", True, history)
        momentum_new = 1.0 if done else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        y = x_new if done else x_new + (momentum - 1) / momentum_new * (x_new - x)
        x, f, momentum = x_new, f_new, momentum_new
        step *= 1.25
    return Solution(x, f, max_iter, f"max_iter={max_iter} reached", False, history)


def trace_ratio(
    B: np.ndarray, C: np.ndarray, p: int, *, max_iter: int = 50, tol: float = 1e-10
) -> tuple[Solution, float]:
    """max tr(UᵀBU)/tr(UᵀCU) over UᵀU = I_p for PSD B, C inside range(B + C); returns U (d, p) and the ratio.

    Dinkelbach–Newton: λ ← ratio, U ← top eigenvectors of B − λC. If the denominator can vanish (p ≤ dim null C within
    the range), U maximises tr(UᵀBU) over that null space and the ratio is infinite.
    """
    B, C = symmetrize(B), symmetrize(C)
    r = len(B)
    w, V = sla.eigh(C)
    null = V[:, w <= RANK_TOL * max(w[-1], 0)]  # (r, r − rank C)
    if p <= null.shape[1]:
        _, U = sla.eigh(symmetrize(null.T @ B @ null))
        U = null @ U[:, ::-1][:, :p]
        return Solution(U, float(np.trace(U.T @ B @ U)), 1, "denominator vanishes: null-space branch"), np.inf
    lam, history = np.trace(B) / np.trace(C), []
    scale = max(np.abs(B).max(), 1e-300)
    for it in range(1, max(max_iter, 1) + 1):
        w, V = extreme_eigenpairs(B - lam * C, p)
        U = V[:, ::-1]
        history.append(float(lam))
        if abs(w.sum()) <= tol * scale * r:  # g(λ) = max tr(Uᵀ(B − λC)U) = 0 at the optimum
            return Solution(U, lam, it, "root of the trace-ratio function found", True, history), float(lam)
        lam = np.trace(U.T @ B @ U) / np.trace(U.T @ C @ U)
    return Solution(U, lam, max_iter, f"max_iter={max_iter} reached", False, history), float(lam)


def alternate(
    step: Callable[[Any], tuple[Any, float]],
    x0: Any,
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Solution:
    """Repeat ``x, value = step(x)``, where each step lowers the value, until the relative decrease is below tol.

    One step is always taken.
    """
    x, history = x0, []
    for it in range(1, max(max_iter, 1) + 1):
        x, value = step(x)
        history.append(float(value))
        report(value)
        if it > 1 and abs(history[-2] - value) <= tol * max(abs(history[-2]), 1e-300):
            return Solution(x, value, it, "relative decrease below tol", True, history)
    return Solution(x, history[-1], max_iter, f"max_iter={max_iter} reached", False, history)


def riemannian(
    manifold: Any,
    cost: Callable[..., float],
    gradient: Callable[..., Any],
    x0: Any,
    *,
    max_iter: int = 250,
    tol: float = 1e-6,
) -> Solution:
    """Minimise ``cost`` on a pymanopt manifold by conjugate gradients, given its Euclidean gradient.

    Converged is what has a gradient of norm ≤ tol · max(1, |f|). Where a line search finds no lower point, the search
    begins anew along the gradient; where that finds none either, it ends, and is converged if the gradient is
    small but for rounding: ≤ 1e3 tol · max(1, |f|).
    """
    import pymanopt
    from pymanopt.optimizers import ConjugateGradient
    from pymanopt.optimizers.line_search import AdaptiveLineSearcher

    history: list[float] = []

    @pymanopt.function.numpy(manifold)
    def counted(*point: np.ndarray) -> float:
        value = float(cost(*point))
        history.append(min(value, history[-1]) if history else value)
        return value

    @pymanopt.function.numpy(manifold)
    def egrad(*point: np.ndarray) -> Any:
        return gradient(*point)

    problem = pymanopt.Problem(manifold, counted, euclidean_gradient=egrad)
    x, value, n_iter = x0, np.inf, 0
    while True:
        optimizer = ConjugateGradient(
            line_searcher=AdaptiveLineSearcher(max_iterations=50),
            max_iterations=max_iter - n_iter,
            min_gradient_norm=tol * max(1.0, abs(value) if np.isfinite(value) else 0.0),
            min_step_size=1e-12,
            max_time=np.inf,
            verbosity=0,
        )
        result = optimizer.run(problem, initial_point=x)
        before, x, value, n_iter = value, result.point, float(result.cost), n_iter + result.iterations
        slope = result.gradient_norm / max(1.0, abs(value))
        if slope <= tol:
            return Solution(x, value, n_iter, "gradient below tol", True, history)
        if n_iter >= max_iter:
            return Solution(x, value, n_iter, f"max_iter={max_iter} reached", False, history)
        if not value < before - 1e-12 * abs(before):
            ok = slope <= 1e3 * tol
            reason = "no further decrease within rounding" if ok else "the line search found no lower point"
            return Solution(x, value, n_iter, reason, ok, history)


class Adam:
    """Directions of steps from noisy gradients: their running mean over the root of that of their squares."""

    def __init__(self, shape: tuple[int, ...], decay: tuple[float, float] = (0.9, 0.999)):
        self.decay = decay
        self.mean, self.mean_square = np.zeros(shape), np.zeros(shape)  # running means of g and g²
        self.n_steps = 0

    def direction(self, g: np.ndarray) -> np.ndarray:
        a, b = self.decay
        self.n_steps += 1
        self.mean = a * self.mean + (1 - a) * g
        self.mean_square = b * self.mean_square + (1 - b) * g**2
        return self.mean / (1 - a**self.n_steps) / (np.sqrt(self.mean_square / (1 - b**self.n_steps)) + 1e-8)


def adam(
    fun: Callable[..., tuple[float, np.ndarray]],
    x0: np.ndarray,
    epochs: Iterable[Iterable[tuple[Any, ...]]],
    *,
    whole: Callable[[np.ndarray], float] | None = None,
    step: float = 1e-2,
    patience: int = 25,
    flat: float = 1e-3,
    decay: tuple[float, float] = (0.9, 0.999),
) -> Solution:
    """Adam over epochs of batches: ``fun(x, *batch) → (value, gradient)``; for objectives that jump or are too large.

    ``whole(x)`` is the objective that the batches are parts of; None: each epoch is one batch, which is all of it. Its
    values are the history, and the lowest point is what is returned. When ``patience`` steps have lowered the lowest
    value by less than ``flat``, relatively, the search goes on from the lowest point with half the step; it ends when
    the step is 1/64 of the first. A point where it ends need not be stationary: that is for the caller to check.
    """
    x: np.ndarray = np.array(x0, dtype=np.float64)
    best, lowest = x, np.inf  # the lowest point so far, and its value
    earlier_lowest = np.inf  # the lowest value when ``steps`` was last set to 0
    first_step, steps = step, 0
    directions = Adam(x.shape, decay)
    history: list[float] = []
    for epoch in epochs:
        start, value = x, np.nan
        for k, batch in enumerate(epoch):
            f, g = fun(x, *batch)
            value = f if k == 0 else value
            x = x - step * directions.direction(g)
            steps += 1
        point, value = (start, value) if whole is None else (x, whole(x))
        history.append(float(value))
        report(history[-1])
        if value < lowest:
            best, lowest = point, float(value)
        if steps >= patience:
            if lowest > earlier_lowest - flat * abs(earlier_lowest):
                x, step, directions = best, step / 2, Adam(x.shape, decay)
                if step < first_step / 64:
                    return Solution(
                        best, lowest, len(history), "no lower value with ever smaller steps", False, history
                    )
            earlier_lowest, steps = lowest, 0
    return Solution(best, lowest, len(history), f"{len(history)} epochs done", False, history)
