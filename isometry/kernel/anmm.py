"""ANMM in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.kernelized import Kernelized
from isometry.spectral import ANMM
from isometry.strength import Reg


def KernelANMM(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    n_misses: int | None = None,
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel average neighbourhood margin maximisation: `ANMM` in feature space.

    max_T tr(Tᵀ(K_b − K_w)T)  subject to  TᵀKT = I

    K_w, K_b are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near samples of the class and of others.

    Parameters
    ----------
    n_components : int or None, default=None
        Number p of directions; None: those with a positive margin. All of them are a mere rotation.
    n_neighbors : int, default=5
        Number of nearest samples of the class.
    n_misses : int or None, default=None
        Number of nearest samples of other classes; None: as many as ``n_neighbors``.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on K_w: the margin that a direction must have beyond it (0: as published); "auto": 0, and the
        data choose how much of the metric is mixed with the Euclidean one, see `AutomaticStrength`.
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
    For labels whose classes are bent and have several clusters. With thousands of samples give ``landmarks``; for
    data that a linear map separates, `ANMM` is faster.

    A fit costs O(n³), with m landmarks O(n m² + n² m) for the kernel and the neighbours.

    References
    ----------
    | F. Wang, C. Zhang, "Feature extraction by maximizing the average neighborhood margin", CVPR 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelANMM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelANMM(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    return Kernelized(
        ANMM(n_components, n_neighbors=n_neighbors, n_misses=n_misses, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": "auto", **options},
    )
