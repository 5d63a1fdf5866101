"""Fast NCA with a penalty on the coefficients of a kernel."""

from __future__ import annotations

import numpy as np

from isometry.core.objective import Penalty
from isometry.core.parts import Objective
from isometry.core.solve import Solution
from isometry.parameters import parameters
from isometry.probabilistic import FastNCA
from isometry.probabilistic.nca import penalty_weight
from isometry.supervision import Labels


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

    def _penalty(self, accuracy: Objective, d: int) -> Penalty:
        e = np.asarray(self.spectrum)
        self.reg_ = reg = penalty_weight(self.reg, accuracy, d, np.sqrt(e))
        return lambda L: (reg * float(np.vdot(L / e, L)), 2 * reg * L / e)
