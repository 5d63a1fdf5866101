"""LFDA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.spectral import LFDA
from isometry.strength import Reg


def KernelLFDA(
    n_components: int | None = None,
    *,
    n_neighbors: int = 7,
    embedding: Literal["weighted", "plain", "orthonormal"] = "weighted",
    reg: Reg = "auto",
    beta: float = 0.0,
    kernel: Any = "rbf",
    gamma: float | None = None,
    **options: Any,
) -> Kernelized:
    """Kernel local Fisher discriminant analysis: `LFDA` in feature space.

    max_T tr((TᵀK_lwT)⁻¹ TᵀK_lbT),  K_l· = K Laplacian(A_l·) K

    with A_lw, A_lb the weights of pairs in the local scatters of `LFDA`, near being near in feature space.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions to keep; None: all whose λ is positive.
    n_neighbors : int, default=7
        Number k of neighbours that set the local scale σ_i, at most one less than the size of the class.
    embedding : {"weighted", "plain", "orthonormal"}, default="weighted"
        Rows of the map: "weighted", √λ v, so that directions count by how well they separate; "plain", v;
        "orthonormal", an orthonormal basis of their span.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on K_lw, as a number; "auto": the data choose it, and how much of the metric is mixed with the
        Euclidean one, see `AutomaticStrength`.
    beta : float, default=0.0
        Share β of the scatter of all samples.
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
    For labels whose classes are bent or in several clusters, and a map to few dimensions. With thousands of samples
    give ``landmarks``; where a linear map will do, `LFDA` is faster.

    A fit costs O(n³), with m landmarks O(n m² + n² m).

    References
    ----------
    | M. Sugiyama, "Dimensionality reduction of multimodal labeled data by local Fisher discriminant analysis", JMLR
      2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelLFDA
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelLFDA(2).fit(X, y)
    >>> metric.transform(X).shape
    (150, 2)
    """
    return Kernelized(
        LFDA(n_components, n_neighbors=n_neighbors, embedding=embedding, reg=reg, beta=beta),
        kernel,
        gamma=gamma,
        **{"center": True, "variance": "auto", **options},
    )
