"""Metrics related to Fisher discriminant analysis in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.parameters import one_of
from isometry.spectral import FisherML
from isometry.strength import Reg

CONSTRAINTS = {"orthonormal": "orthonormal", "similar": "scatter"}  # of T in feature space -> of FisherML


def KernelFisherML(
    n_components: int | str = "auto",
    *,
    constraint: str = "orthonormal",
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel metric related to Fisher discriminant analysis: `FisherML` in feature space.

    min_T tr(Tᵀ(Σ_S − Σ_D)T)  subject to  TᵀKT = I, or TᵀΣ_ST = I

    with Σ_S, Σ_D the means of (k_i − k_j)(k_i − k_j)ᵀ over similar and over dissimilar pairs, k_i = k(X, x_i).

    Parameters
    ----------
    n_components : p; "auto" is c − 1 with labels; with pairs, the number of directions that separate at all
    constraint : "orthonormal" (TᵀKT = I), or "similar" (TᵀΣ_ST = I), which does not change under linear maps of the
        feature space
    reg : relative ridge on the similar scatter ("similar" only)
    kernel, gamma, **options : of `Kernelized`

    References
    ----------
    B. Alipanahi, M. Biggs, A. Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.
    """
    one_of("constraint", constraint, CONSTRAINTS)
    learner = FisherML(n_components, constraint=CONSTRAINTS[constraint], reg=reg)
    return Kernelized(learner, kernel, gamma=gamma, **{"center": True, **options})
