"""Trace-ratio metric in feature space that keeps the locally linear geometry of all samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from isometry.core.kernels import KernelMap
from isometry.core.linalg import RANK_TOL, fix_signs, ridge, svd
from isometry.core.ratio import ratio_directions
from isometry.core.reconstruct import reconstruction_weights
from isometry.core.solve import Solution
from isometry.kernelized import KernelMetric, kernel_coordinates
from isometry.moments import mean_pair_scatters
from isometry.parameters import (
    KW_ONLY,
    Count,
    Iterations,
    NotNegative,
    Positive,
    PositiveShare,
    Seed,
    check_choices,
    parameters,
)
from isometry.supervision import Labels, Pairs

CHOICES = {"geometry": ("input", "kernel"), "constraint": ("rkhs", "coef"), "basis": ("all", "constrained")}


@parameters
class KernelLLE(KernelMetric):
    """Kernel trace ratio regularised by locally linear embedding: `LLERegularizedML` in feature space.

    max_T tr(TᵀK L_b KT) / tr(TᵀK (L_w + λE) KT)  subject to  TᵀKT = I_p,  E = (I − S)ᵀ(I − S)/n

    with L_b, L_w the Laplacians of dissimilar and of similar pairs over their numbers, and S the reconstruction weights
    of locally linear embedding. Semi-supervised: samples with the label −1, or in no pair, count in E.

    Parameters
    ----------
    n_components : int, "auto" or None, default="auto"
        Dimension p of the map; "auto" is max(2, c − 1) with labels and 2 with pairs, but fewer than the kernel keeps.
    n_neighbors : int, default=10
        Number of neighbours that a sample is reconstructed from.
    reg : float ≥ 0, default=0.1
        Weight λ ≥ 0 of the geometry.
    lle_reg : float ≥ 0, default=0.001
        Relative ridge on the local Gram matrices.
    geometry : {"input", "kernel"}, default="input"
        Neighbours and weights in the "input" space, or in the components kept of the "kernel": the only choice if it is
        precomputed.
    ridge : float ≥ 0, default=0.001
        Relative ridge on the denominator.
    constraint : {"rkhs", "coef"}, default="rkhs"
        "rkhs", TᵀKT = I: orthonormal directions of feature space; or "coef", TᵀT = I, which depends on the samples that
        span it.
    basis : {"all", "constrained"}, default="all"
        "all" samples may carry coefficients, or only the "constrained" ones: those that occur in a similar pair. If
        there are landmarks, of either kind only those that are landmarks.
    kernel : str or callable, default="rbf"
        Kernel: a name that scikit-learn knows, such as "rbf", "linear" or "poly", a function k(x, y) of two samples, or
        "precomputed": X then holds k(samples, training samples).
    gamma : float > 0 or None, default=None
        Width of the kernel; None: 1/(d · mean feature variance).
    degree : int, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and of the sigmoid kernel.
    landmarks : int or None, default=None
        Number of samples, drawn at random, that span the feature space; None: all.
    variance : float in (0, 1], default=0.95
        Share of the trace of the centred kernel that is kept before the ratio is formed: it would be won by directions
        of almost no variance, which do not generalise.
    max_rank : float > 0 or None, default=500
        Largest number of components to keep, or a share of the landmarks if below 1; None: no limit.
    max_iter : int, default=50
        Largest number of iterations of the search for the ratio.
    tol : float ≥ 0, default=1e-10
        Relative change of the ratio at which the search stops.
    random_state : int, RandomState instance or None, default=None
        Seed of the landmarks.

    Attributes
    ----------
    ratio_ : float
        The ratio at the solution.

    Notes
    -----
    For few labels or pairs and many samples without, on bent data: neighbours keep their place in feature space.
    With labels for all samples use `KernelFisherML`; with a linear map `LLERegularizedML`.

    A fit costs O(n³), with m landmarks O(n m² + n² d) for the kernel and the neighbours.

    No projected gradient is needed: in coordinates of the feature space this is the trace ratio of `LLERegularizedML`,
    which is solved globally.

    References
    ----------
    | M. S. Baghshah, S. B. Shouraki, "Semi-supervised metric learning using pairwise constraints", IJCAI 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from isometry import KernelLLE, Labels
    >>> X, y = load_iris(return_X_y=True)
    >>> some = np.where(np.arange(150) % 5 == 0, y, -1)
    >>> metric = KernelLLE(2).fit(X, Labels(some, unlabelled=-1))
    >>> metric.transform(X).shape
    (150, 2)
    """

    _sees = (Labels, Pairs)

    n_components: Count | Literal["auto"] | None = "auto"
    _: KW_ONLY
    n_neighbors: Count = 10
    reg: NotNegative = 0.1
    lle_reg: NotNegative = 1e-3
    geometry: str = "input"
    ridge: NotNegative = 1e-3
    constraint: str = "rkhs"
    basis: str = "all"
    kernel: str | Callable[..., Any] = "rbf"
    gamma: Positive | None = None
    degree: Count = 3
    coef0: float = 1.0
    landmarks: Count | None = None
    variance: PositiveShare = 0.95
    max_rank: Positive | None = 500
    max_iter: Iterations = 50
    tol: NotNegative = 1e-10
    random_state: Seed = None

    def _fit(self, X: np.ndarray, side: Labels | Pairs) -> Solution:
        check_choices(self, **CHOICES)
        p = None if isinstance(self.n_components, str) else self.n_components
        phi = kernel_coordinates(self, X, variance=self.variance, max_rank=self.max_rank)
        F = phi.fitted(X)  # (n, r)
        base = F if self.geometry == "kernel" or phi.landmarks is None else X - X.mean(axis=0)
        A = self._directions(phi, F, side)  # (r, q)
        F = F @ A
        M_S, M_D = mean_pair_scatters(F, side)
        R = F - reconstruction_weights(base, self.n_neighbors, self.lle_reg) @ F  # (n, q), RᵀR = FᵀEF
        C = ridge(M_S + self.reg / len(X) * R.T @ R, self.ridge)
        default = max(2, len(side.classes) - 1) if isinstance(side, Labels) else 2
        U, self.ratio_, solution = ratio_directions(M_D, C, p, default, self.max_iter, self.tol)
        self._store(phi, fix_signs((A @ U).T))
        return solution

    def _directions(self, phi: KernelMap, F: np.ndarray, side: Labels | Pairs) -> np.ndarray:
        """A (r, q) such that z = UᵀAᵀφ with orthonormal U is the map of a T that meets the constraint.

        T = Bc for the samples B that may carry coefficients, whose images F_B = VSQᵀ: z = cᵀF_B φ. TᵀKT = |F_Bᵀc|², so
        that A = Q for "rkhs"; with c = VU, TᵀT = UᵀU and A = QS for "coef".
        """
        if self.basis == "all":
            S, Q = np.sqrt(phi.spectrum), np.eye(F.shape[1])
        else:
            linked = np.zeros(len(F), dtype=bool)
            if isinstance(side, Labels):
                linked[side.labelled] = side.counts[side.codes[side.labelled]] >= 2
            else:
                linked[side.similar.i] = linked[side.similar.j] = True
            images = F[phi.rows][linked[phi.rows]]
            if len(images) == 0:
                raise ValueError(
                    f"basis='constrained': none of the {len(phi.basis)} landmarks occurs in a similar pair; raise "
                    "`landmarks`, or set basis='all'"
                )
            _, S, Qt = svd(images)
            rank = np.count_nonzero(S / S[0] > RANK_TOL)
            S, Q = S[:rank], Qt[:rank].T
        return Q * S if self.constraint == "coef" else Q
