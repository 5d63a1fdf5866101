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
    n_components : int or None, default=None
        Number of leading eigenvectors of the metric to keep; None: all.
    label_reg : float, default=0.01
        Ridge λ of the kernel of the labels, as in `IGML`.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on the matrix that is inverted, as a number; "auto": the data choose it, see `AutomaticStrength`.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    variance : float, default=0.95
        Share of the trace of the centred kernel that is kept; with all of it the learned kernel of the training samples
        is K_L whatever the data, which is overfitting at its most complete.
    max_rank : float or None, default=0.25
        Largest number of components to keep, or a share of the landmarks if below 1; None: no limit.
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks`` or ``max_rank``.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels of bent classes, in closed form. The truncation of the kernel is what keeps it from repeating the
    labels: look at rows held out. Where a linear map will do, `IGML` is faster.

    A fit costs O(n³), with m landmarks O(n m²).

    References
    ----------
    | S. Wang, R. Jin, "An information geometry approach for distance metric learning", AISTATS 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelIGML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelIGML().fit(X, y)
    >>> metric.transform(X).shape[0]
    150
    """
    learner = IGML(n_components, label_reg=label_reg, reg=reg)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, **options)
