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
    n_components : int, None or "auto", default="auto"
        Dimension p of the map; "auto" is c − 1 with labels; with pairs, the number of directions that separate at all.
    constraint : {"orthonormal", "similar"}, default="orthonormal"
        "orthonormal" (TᵀKT = I), or "similar" (TᵀΣ_ST = I), which does not change under linear maps of the feature
        space.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on the similar scatter ("similar" only), as a number; "auto": the data choose it, and how much of
        the metric is mixed with the Euclidean one, see `AutomaticStrength`.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks`` or ``max_rank``.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels or pairs of bent classes and few dimensions, in closed form. It keeps c − 1 directions, one for two
    classes, which can be too few: give ``n_components``. Where a linear map will do, `FisherML` is faster.

    A fit costs O(n³), with m landmarks O(n m²).

    References
    ----------
    | B. Alipanahi, M. Biggs, A. Ghodsi, "Distance metric learning vs. Fisher discriminant analysis", AAAI 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelFisherML
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelFisherML(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    one_of("constraint", constraint, CONSTRAINTS)
    learner = FisherML(n_components, constraint=CONSTRAINTS[constraint], reg=reg)
    return Kernelized(learner, kernel, gamma=gamma, **{"center": True, **options})
