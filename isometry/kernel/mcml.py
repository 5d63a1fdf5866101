"""MCML in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import MCML


def KernelMCML(
    n_components: int | None = None,
    *,
    penalty: Literal["trace", "frobenius"] = "trace",
    reg: float = 1e-4,
    max_iter: Iterations = 500,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel maximally collapsing metric learning: `MCML` in feature space.

    min_{R ⪰ 0} (1/n) Σ_i KL(p⁰_i ‖ p_i) + reg tr(RK),  p_ij ∝ exp(−(k_i − k_j)ᵀR(k_i − k_j)),  k_i = k(X, x_i)

    or with reg/2 · tr(RKRK): the trace and the Frobenius norm of the metric in feature space. Convex in R.

    Parameters
    ----------
    n_components : keep the leading eigenvectors of the metric
    penalty, reg : "trace" or "frobenius", and its weight. It must be positive: where K has full rank every class can be
        collapsed, and without a penalty there is no minimiser
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    References
    ----------
    A. Globerson, S. Roweis, "Metric learning by collapsing classes", NIPS 2005.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = MCML(n_components, penalty=penalty, reg=reg, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
