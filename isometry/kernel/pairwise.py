"""Pairwise losses in the feature space of a kernel."""

from __future__ import annotations

from typing import Any

from isometry.geometric import DRML
from isometry.kernelized import Kernelized
from isometry.probabilistic import PCCA
from isometry.spectral import MarginSVM


def KernelPCCA(
    n_components: int | None = None,
    *,
    beta: float = 3.0,
    margin: float = 1.0,
    reg: float = 1e-3,
    pairs: Any = "auto",
    max_iter: int = 200,
    tol: float = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    **options: Any,
) -> Kernelized:
    """A low-dimensional map from a sparse list of pairs, in feature space: kernel version of `PCCA`.

    min_A mean over pairs of (1/β) log(1 + exp(β t (|A(k_i − k_j)|² − b))) + reg tr(AKAᵀ),  k_i = k(X, x_i)

    Parameters
    ----------
    n_components : p, rows of A; None: 40, or the rank of the kernel if that is lower
    beta, margin, pairs : of `PCCA`
    reg : penalty on the map in feature space, in the unit of a kernel with k(x, x) = 1 on average
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : as everywhere

    Notes
    -----
    The published step A − 2ηAK Lap is the gradient in the coordinates used here: it is better conditioned than the raw
    gradient 2AK Lap K by a factor of K.

    References
    ----------
    A. Mignon, F. Jurie, "PCCA: a new approach for distance learning from sparse pairwise constraints", CVPR 2012.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PCCA(n_components, beta=beta, margin=margin, reg=reg, pairs=pairs, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)


def KernelDRML(
    n_components: int | None = None,
    *,
    reg: float = 0.01,
    prior: Any = "identity",
    pairs: Any = "auto",
    init: Any = "pca",
    max_iter: int = 200,
    tol: float = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = 500,
    random_state: Any = None,
    verbose: bool = False,
    **options: Any,
) -> Kernelized:
    """A subspace of feature space and a metric within it, learned together: kernel version of `DRML`.

    min_{T,Λ} mean_S log(1 + e^{d²}) + mean_D log(1 + e^{−d²}) + reg D(Λ, Λ₀),  d² = |Λ^{1/2}Tᵀ(k_i − k_j)|²,  TᵀKT = I

    Parameters
    ----------
    n_components : p, columns of T; None: all components that are kept of the kernel
    reg, prior, pairs, init : of `DRML`; in an rbf kernel d² ≤ 2 before learning, so that ``reg`` is smaller than there
    kernel, gamma, **options : of `Kernelized`
    variance, max_rank : components to keep of the centred kernel: directions of almost no variance do not generalise
    max_iter, tol, random_state, verbose : as everywhere

    References
    ----------
    M. Harandi, M. Salzmann, R. Hartley, "Joint dimensionality reduction and metric learning: a geometric take", ICML
    2017.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = DRML(n_components, reg=reg, prior=prior, pairs=pairs, init=init, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)


def KernelMarginSVM(
    n_components: int | None = None,
    *,
    C_S: float = 1.0,
    C_D: float = 10.0,
    nu: float = 0.5,
    psd: bool = True,
    pairs: Any = "auto",
    max_iter: int = 2000,
    tol: float = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    variance: float = 0.95,
    max_rank: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    **options: Any,
) -> Kernelized:
    """Dissimilar images farther apart than they were, by a margin that is maximised: kernel version of `MarginSVM`.

    max_a Σ_D a zᵀz − ½|[Σ_D a zzᵀ − C_S M_S]₊|_F²  subject to  0 ≤ a ≤ C_D/|D|,  Σ_D a ≥ C_D ν,  z = φ(x_i) − φ(x_j)

    where products of differences are values of the kernel, z_ijᵀz_kl = k_ik − k_il − k_jk + k_jl.

    Parameters
    ----------
    n_components : keep only this many leading directions of the metric
    C_S, C_D, nu, psd, pairs : of `MarginSVM`
    kernel, gamma, **options : of `Kernelized`
    variance, max_rank : components to keep of the centred kernel; a step costs the square of their number
    max_iter, tol, random_state, verbose : as everywhere

    References
    ----------
    I. W. Tsang, J. T. Kwok, "Distance metric learning with kernels", ICANN 2003.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = MarginSVM(n_components, C_S=C_S, C_D=C_D, nu=nu, psd=psd, pairs=pairs, **common)
    options = {"center": True, "variance": variance, "max_rank": max_rank, **options}
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
