"""Fast NCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernel.coefficient_penalty import CoefficientFastNCA
from isometry.kernelized import Kernelized
from isometry.parameters import Count, Iterations, NotNegative, one_of
from isometry.probabilistic import FastNCA


def KernelFastNCA(
    n_components: int | None = 30,
    *,
    n_neighbors: Count = 10,
    penalty: str = "rkhs",
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
    """Kernel fast neighbourhood component analysis: `FastNCA` in feature space.

    max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_i = Σ_{j∈H_i} p_ij,  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²) on H_i ∪ M_i

    with H_i the n_neighbors nearest samples of the same class and M_i those of other classes, by the distance of
    feature space, k_ii + k_jj − 2k_ij.

    Parameters
    ----------
    n_components : p, columns of T; None: as many as the rank of the kernel
    n_neighbors, reg, init : of `FastNCA`; see `KernelNCA` about the start
    penalty : what ``reg`` weighs: "rkhs", tr(TᵀKT), the norm of the map in feature space; or "coef", |T|², that of its
        coefficients, which suppresses directions of little variance
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    Notes
    -----
    The survey's gradient of the penalty, 2 reg T, is that of |T|², which depends on the basis; the norm of the map is
    tr(TᵀKT), with gradient 2 reg KT.

    References
    ----------
    W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.
    """
    one_of("penalty", penalty, PENALTIES)
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PENALTIES[penalty](n_components, n_neighbors=n_neighbors, reg=reg, init=init, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)


PENALTIES = {"rkhs": FastNCA, "coef": CoefficientFastNCA}
