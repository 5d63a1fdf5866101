"""MFA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.spectral import MFA
from isometry.strength import Reg


def KernelMFA(
    n_components: int | None = None,
    *,
    n_neighbors: int = 5,
    n_misses: int = 20,
    margin: Literal["sample", "class"] = "sample",
    reg: Reg = "auto",
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel marginal Fisher analysis: `MFA` in feature space.

    max_T tr((TᵀK_wT)⁻¹ TᵀK_bT)

    K_w, K_b are means of (k_i − k_j)(k_i − k_j)ᵀ, k_i = k(X, x_i), over near pairs inside classes and across them.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: those with λ > 1, along which other classes spread more. All of them
        would give S_w⁻¹, whatever S_b.
    n_neighbors : int, default=5
        Number of nearest samples of the class.
    n_misses : int, default=20
        Number of nearest samples of other classes.
    margin : {"sample", "class"}, default="sample"
        Pairs of S_b: the nearest of other classes of every sample ("sample"), or the ``n_misses`` shortest pairs that
        join a class to others ("class"), as the article has it.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on K_w, as a number; "auto": the data choose it, and how much of the metric is mixed with the
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
    For labels where the border between bent classes matters. With thousands of samples give ``landmarks``; where a
    linear map will do, `MFA` is faster.

    A fit costs O(n³), with m landmarks O(n m² + n² m).

    References
    ----------
    | S. Yan, D. Xu, B. Zhang, H.-J. Zhang, Q. Yang, S. Lin, "Graph embedding and extensions: a general framework for
      dimensionality reduction", TPAMI 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelMFA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelMFA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    return Kernelized(
        MFA(n_components, n_neighbors=n_neighbors, n_misses=n_misses, margin=margin, reg=reg),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": "auto", **options},
    )
