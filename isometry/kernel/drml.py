"""DRML in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.geometric import DRML
from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative


def KernelDRML(
    n_components: int | None = None,
    *,
    reg: float = 0.01,
    prior: Any = "identity",
    pairs: Any = "auto",
    init: Any = "pca",
    max_iter: Iterations = 200,
    tol: NotNegative = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = 500,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel dimensionality reduction and metric learning: `DRML` in feature space.

    min_{T,Λ} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + reg D(Λ, Λ₀),  d² = |Λ^{1/2}Tᵀ(k_i − k_j)|²,  TᵀKT = I

    Parameters
    ----------
    n_components : p, columns of T; None: all components that are kept of the kernel
    reg, prior, pairs, init : of `DRML`; in an rbf kernel d² ≤ 2 before learning, so that ``reg`` is smaller than there
    kernel, gamma, **options : of `Kernelized`
    variance, max_rank : components to keep of the centred kernel: directions of almost no variance do not generalise
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    References
    ----------
    M. Harandi, M. Salzmann, R. Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML
    2017.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = DRML(n_components, reg=reg, prior=prior, pairs=pairs, init=init, strength=strength, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
