"""Fast NCA in the feature space of a kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from isometry.core.objective import Objective, Penalty
from isometry.core.solve import Solution
from isometry.kernelized import Kernelized
from isometry.parameters import one_of, parameters
from isometry.probabilistic import FastNCA
from isometry.probabilistic.nca import penalty_weight
from isometry.supervision import Labels


def KernelFastNCA(
    n_components: int | None = 30,
    *,
    n_neighbors: int = 10,
    penalty: str = "rkhs",
    reg: float | str = "auto",
    init: Any = "pca",
    max_iter: int = 500,
    tol: float = 1e-5,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    **options: Any,
) -> Kernelized:
    """Kernel fast neighbourhood component analysis: `FastNCA` in feature space.

    max_T (1/n) Σ_i p_i − reg tr(TᵀKT),  p_i = Σ_{j∈H_i} p_ij,  p_ij ∝ exp(−|Tᵀ(k_i − k_j)|²) on H_i ∪ M_i

    with H_i the n_neighbors nearest samples of the same class and M_i those of other classes, by the distance of
    feature space, k_ii + k_jj − 2k_ij.

    Parameters
    ----------
    n_components : p, columns of T; None: as many as the rank of the kernel
    n_neighbors, reg, init : of `FastNCA`; see `KernelNCA` about the start
    penalty : what ``reg`` weighs: "rkhs", tr(TᵀKT), the norm of the map in feature space; or "coef", |T|², that of its
        coefficients, which suppresses directions of little variance
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : as everywhere

    Notes
    -----
    The survey's gradient of the penalty, 2 reg T, is that of |T|², which depends on the basis; the norm of the map is
    tr(TᵀKT), with gradient 2 reg KT.

    References
    ----------
    W. Yang, K. Wang, W. Zuo, "Fast neighborhood component analysis", Neurocomputing 2012.
    """
    one_of("penalty", penalty, PENALTIES)
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PENALTIES[penalty](n_components, n_neighbors=n_neighbors, reg=reg, init=init, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)


@parameters
class CoefficientFastNCA(FastNCA):
    """`FastNCA` in coordinates φ of a kernel, with the penalty reg |T|² = reg Σ_j |l_j|²/e_j for L = (l_1, …, l_r).

    e are the eigenvalues of the kernel of the samples that carry coefficients: all, or the landmarks.
    """

    spectrum: np.ndarray | None = None  # e (r,), which `Kernelized` gives

    def _fit(self, X: np.ndarray, side: Labels) -> Solution:
        if self.spectrum is None:
            raise ValueError("penalty='coef' looks at the coefficients of a kernel: use KernelFastNCA(penalty='coef')")
        if X.shape[1] > len(X):
            raise ValueError(
                f"penalty='coef' needs the labelled samples, {len(X)}, to span the feature space, which has "
                f"{X.shape[1]} dimensions: leave out samples without a label, or lower max_rank"
            )
        return super()._fit(X, side)

    def _penalty(self, accuracy: Objective) -> Penalty:
        e = np.asarray(self.spectrum)
        self.reg_ = reg = penalty_weight(self.reg, replace(accuracy, X=accuracy.X * np.sqrt(e)))
        return lambda L: (reg * float(np.vdot(L / e, L)), 2 * reg * L / e)


PENALTIES = {"rkhs": FastNCA, "coef": CoefficientFastNCA}
