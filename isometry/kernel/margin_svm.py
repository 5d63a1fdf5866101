"""The margin method for pairs in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.spectral import MarginSVM


def KernelMarginSVM(
    n_components: int | None = None,
    *,
    C_S: float = 1.0,
    C_D: float = 10.0,
    nu: float = 0.5,
    psd: bool = True,
    pairs: Any = "auto",
    max_iter: Iterations = 2000,
    tol: NotNegative = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel metric by the margin of a support vector machine: `MarginSVM` in feature space.

    max_a Σ_D a zᵀz − ½|[Σ_D a zzᵀ − C_S M_S]₊|_F²  subject to  0 ≤ a ≤ C_D/|D|,  Σ_D a ≥ C_D ν,  z = φ(x_i) − φ(x_j)

    where products of differences are values of the kernel, z_ijᵀz_kl = k_ik − k_il − k_jk + k_jl.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of leading directions of the metric to keep; None: all.
    C_S : float, default=1.0
        Weight of the similar pairs.
    C_D : float, default=10.0
        Weight of the dissimilar pairs.
    nu : float, default=0.5
        Share ν: at most so many of the dissimilar pairs lie within a positive margin.
    psd : bool, default=True
        Whether W ⪰ 0 is asked for; False solves without it, as the survey's dual does, and drops the negative part of W
        afterwards.
    pairs : str or Sampler, default="auto"
        Which dissimilar pairs to take if given labels: "auto" (all up to 200,000, else half of that at random),
        `AllPairs()` or `RandomPairs(n)`.
    max_iter : int, default=2000
        Largest number of iterations.
    tol : float ≥ 0, default=1e-5
        Relative slope or decrease at which the search stops.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    variance : float, default=0.95
        Share of the trace of the centred kernel that is kept; a step costs the square of the number of components.
    max_rank : float or None, default=None
        Largest number of components to keep, or a share of the landmarks if below 1; None: no limit.
    random_state : int, RandomState instance or None, default=None
        Seed of what is random; an int gives the same result again.
    verbose : bool, default=False
        Whether to show a progress bar.
    strength : float in [0, 1] or "auto", default="auto"
        Share of the learned metric in a mixture with the distance of the kernel. "auto": the data choose it; 1 is the
        method as published. See `SearchedMetric`.
    **options : dict
        Further parameters of `Kernelized`, such as ``landmarks`` or ``max_rank``.

    Returns
    -------
    Kernelized
        The learner in feature space, not fitted yet.

    Notes
    -----
    For pairs of bent data with the theory of support vector machines. Few directions of feature space carry the
    metric; `KDCA` and `KernelFisherML` keep as many as asked for, in closed form.

    An iteration costs O(m r² + r³) for m dissimilar pairs and r coordinates of the kernel, which costs O(n³).

    References
    ----------
    | I. W. Tsang, J. T. Kwok, "Distance metric learning with kernels", ICANN 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelMarginSVM
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = KernelMarginSVM(2, C_D=1.0, random_state=0).fit(X[::3], y[::3])
    >>> metric.transform(X).shape
    (150, 2)
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = MarginSVM(n_components, C_S=C_S, C_D=C_D, nu=nu, psd=psd, pairs=pairs, strength=strength, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
