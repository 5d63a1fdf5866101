"""Information geometry in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.probabilistic import IGML
from isometry.strength import Reg


def KernelIGML(
    n_components: int | None = None,
    *,
    label_reg: float = 1e-2,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = 0.25,
    **options: Any,
) -> Kernelized:
    """Kernel information geometry metric learning: `IGML` in feature space.

    min_{R ≻ 0} tr(K_L⁻¹KRK) − log det R,  K_L = YYᵀ + λI,  over R = TTᵀ in the leading components of the kernel

    Parameters
    ----------
    n_components : keep the leading eigenvectors of the metric
    label_reg : λ, of `IGML`
    reg : relative ridge on the matrix that is inverted
    variance, max_rank : components to keep of the centred kernel; with all of them the learned kernel of the training
        samples is K_L whatever the data, which is overfitting at its most complete
    kernel, gamma, **options : of `Kernelized`

    References
    ----------
    S. Wang, R. Jin, "An information geometry approach for distance metric learning", AISTATS 2009.
    """
    learner = IGML(n_components, label_reg=label_reg, reg=reg)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, **options)
