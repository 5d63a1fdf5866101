"""KISSME in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.probabilistic import KISSME
from isometry.strength import Reg


def KernelKISSME(
    n_components: int | None = None,
    *,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel likelihood ratio of Gaussian differences: `KISSME` in feature space.

    W = [Σ_S⁻¹ − Σ_D⁻¹]₊,  Σ the mean scatters of φ(x_i) − φ(x_j) over similar and over dissimilar pairs

    Parameters
    ----------
    n_components, reg : of `KISSME`
    kernel, gamma, **options : of `Kernelized`; the kernel is centred and keeps 95 % of its trace, if not told otherwise

    References
    ----------
    B. Nguyen, B. De Baets, "Kernel distance metric learning using pairwise constraints for person re-identification",
    IEEE Transactions on Image Processing 2019.
    M. Köstinger, M. Hirzer, P. Wohlhart, P. M. Roth, H. Bischof, "Large scale metric learning from equivalence
    constraints", CVPR 2012.
    """
    return Kernelized(
        KISSME(n_components, reg=reg), kernel, gamma=gamma, **{"center": True, "variance": 0.95, **options}
    )
