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
    n_components : int or None, default=None
        Number of leading directions of W to keep; None: all.
    reg : "auto" or float ≥ 0, default="auto"
        Relative ridge on both scatters, as a number; "auto": the data choose it, and how much of the metric is mixed
        with the Euclidean one, see `AutomaticStrength`.
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
    For verification of pairs whose differences are not Gaussian as they are, in closed form. With thousands of
    samples give ``landmarks``; `KISSME` is faster, and enough for embeddings.

    A fit costs O(n³), with m landmarks O(n m²).

    References
    ----------
    | B. Nguyen, B. De Baets, "Kernel distance metric learning using pairwise constraints for person re-identification",
      IEEE Transactions on Image Processing 2019.
    | M. Köstinger, M. Hirzer, P. Wohlhart, P. M. Roth, H. Bischof, "Large scale metric learning from equivalence
      constraints", CVPR 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelKISSME
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelKISSME().fit(X, y)
    >>> near, far = metric.pair_distance(X, [[0, 1], [0, 60]])
    >>> bool(near < far)
    True
    """
    return Kernelized(
        KISSME(n_components, reg=reg), kernel, gamma=gamma, **{"center": True, "variance": "auto", **options}
    )
