"""DMLMJ in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.geometric import DMLMJ
from isometry.kernelized import Kernelized
from isometry.strength import Reg


def KernelDMLMJ(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel metric learning through maximal Jeffrey divergence: `DMLMJ` in feature space.

    max_T KL(P ‖ Q) + KL(Q ‖ P),  P = N(0, TᵀK_ST),  Q = N(0, TᵀK_DT)

    K_S, K_D are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near samples of the class and of others.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension p of the map, the directions of the largest λ + 1/λ; None: those with λ > 1, along which other classes
        spread more than the own class. All of them would give S⁻¹, whatever D.
    n_neighbors : int, default=5
        Number k of nearest samples of the class, and of other classes.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on K_S, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks``; the kernel is centred and loses its
        last components (``variance="auto"``), if not told otherwise.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For labels whose classes are bent: near samples tell the directions of feature space apart. With thousands of
    samples give ``landmarks``; where a linear map will do, `DMLMJ` is faster.

    A fit costs O(n³), with m landmarks O(n m² + n² m).

    References
    ----------
    | B. Nguyen, C. Morell, B. De Baets, "Supervised distance metric learning through maximization of the Jeffrey
      divergence", Pattern Recognition 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelDMLMJ
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelDMLMJ(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    return Kernelized(
        DMLMJ(n_components, n_neighbors=n_neighbors, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": "auto", **options},
    )
