"""The margin method for pairs in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.spectral import MarginSVM


def KernelMarginSVM(
    n_components: int | None = None,
    *,
    C_S: float = 1.0,
    C_D: float = 10.0,
    nu: float = 0.5,
    psd: bool = True,
    pairs: Any = "auto",
    max_iter: Iterations = 2000,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel metric by the margin of a support vector machine: `MarginSVM` in feature space.

    max_a Σ_D a zᵀz − ½|[Σ_D a zzᵀ − C_S M_S]₊|_F²  subject to  0 ≤ a ≤ C_D/|D|,  Σ_D a ≥ C_D ν,  z = φ(x_i) − φ(x_j)

    where products of differences are values of the kernel, z_ijᵀz_kl = k_ik − k_il − k_jk + k_jl.

    Parameters
    ----------
    n_components : keep only this many leading directions of the metric
    C_S, C_D, nu, psd, pairs : of `MarginSVM`
    kernel, gamma, **options : of `Kernelized`
    variance, max_rank : components to keep of the centred kernel; a step costs the square of their number
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `MixedMetric`; 1 is the method as published

    References
    ----------
    I. W. Tsang, J. T. Kwok, "Distance metric learning with kernels", ICANN 2003.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = MarginSVM(n_components, C_S=C_S, C_D=C_D, nu=nu, psd=psd, pairs=pairs, strength=strength, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
