"""PCCA in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, Literal

from isometry.kernelized import Kernelized
from isometry.parameters import Iterations, NotNegative
from isometry.probabilistic import PCCA


def KernelPCCA(
    n_components: int | None = None,
    *,
    beta: float = 3.0,
    margin: float = 1.0,
    reg: float = 1e-3,
    pairs: Any = "auto",
    max_iter: Iterations = 200,
    tol: NotNegative = 1e-6,
    kernel: Any = "rbf",
    gamma: float | None = None,
    random_state: Any = None,
    verbose: bool = False,
    strength: float | Literal["auto"] = "auto",
    **options: Any,
) -> Kernelized:
    """Kernel pairwise constrained component analysis: `PCCA` in feature space.

    min_A mean over pairs of (1/β) log(1 + exp(β t (|A(k_i − k_j)|² − b))) + reg tr(AKAᵀ),  k_i = k(X, x_i)

    Parameters
    ----------
    n_components : p, rows of A; None: 40, or the rank of the kernel if that is lower
    beta, margin, pairs : of `PCCA`
    reg : penalty on the map in feature space, in the unit of the kernel: for the same distances, a kernel c times as
        large needs c times as much
    kernel, gamma, **options : of `Kernelized`
    max_iter, tol, random_state, verbose : most iterations; relative slope or decrease to stop at; seed; progress bar
    strength : "auto": the data choose how much of the metric is mixed with the distance of the kernel, see
        `SearchedMetric`; 1 is the method as published

    Notes
    -----
    The published step A − 2ηAK Lap is the gradient in the coordinates used here: it is better conditioned than the raw
    gradient 2AK Lap K by a factor of K.

    References
    ----------
    A. Mignon, F. Jurie, "PCCA: a new approach for distance learning from sparse pairwise constraints", CVPR 2012.
    """
    common = {"max_iter": max_iter, "tol": tol, "random_state": random_state, "verbose": verbose}
    learner = PCCA(n_components, beta=beta, margin=margin, reg=reg, pairs=pairs, strength=strength, **common)
    return Kernelized(learner, kernel, gamma=gamma, random_state=random_state, **options)
