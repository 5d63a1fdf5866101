"""NCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import NCA


def KernelNCA(
    n_components: int | None = 30,
    *,
    objective: Literal["sum", "log"] = "sum",
    reg: float | Literal["auto"] = "auto",
    init: Any = "pca",
    max_iter: Iterations = 500,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel neighbourhood component analysis: `NCA` in feature space.

    max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_i = Σ_{j: y_j = y_i} p_ij,  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²),  k_i = k(X, x_i)

    Parameters
    ----------
    n_components : p, columns of T; None: as many as the rank of the kernel
    objective, reg, init : of `NCA`. The penalty is needed: where K has full rank, p_i → 1 comes for free. For the same
        reason a start from LDA, which separates the classes completely, leads nowhere
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    References
    ----------
    W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = NCA(n_components, objective=objective, reg=reg, init=init, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
