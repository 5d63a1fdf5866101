"""Neighbourhood component analysis."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg as sla

from isometry.base import ObjectiveMetric
from isometry.core.edges import DenseEdges
from isometry.core.objective import Objective
from isometry.core.probability import neighbor_softmax
from isometry.core.start import neighbor_sqdist
from isometry.supervision import Labels


class NCA(ObjectiveMetric):
    """Maximise the expected leave-one-out accuracy of a stochastic nearest neighbour.

    max_L (1/n) Σ_i p_i − reg |L|²,  p_i = Σ_{j: y_j = y_i} p_ij,  p_ij = exp(−d_ij) / Σ_{k≠i} exp(−d_ik),  d_ij = |L(x_i − x_j)|²

    or, with objective="log", the same with log p_i. All candidates count for every anchor; they are visited in blocks.

    Parameters
    ----------
    n_components : p (default: all features)
    objective : "sum" of p_i, or "log": sum of log p_i (anchors without a partner are left out)
    reg : penalty on |L|²; the MAP estimate under a Gaussian prior of variance 1/(2 n reg). "auto": a thousandth of the
        value above which L = 0 becomes a local optimum
    init : "auto" (LDA if p ≤ c − 1, else PCA), "pca", "lda", "identity", "random" or an array (p, d); named starts are
        scaled so that neighbours are at distance about 1
    max_iter, tol, random_state, verbose : see the solver; ``verbose=True`` shows a progress bar

    References
    ----------
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.
    Z. Yang, J. Laaksonen, "Regularized neighborhood component analysis", SCIA 2007.
    """

    _sees = (Labels,)
    _needs = ("similar", "dissimilar")
    _start_sqdist = staticmethod(neighbor_sqdist)  # a saturated softmax has no gradient

    def __init__(
        self,
        n_components=None,
        *,
        objective="sum",
        reg=0.0,
        init="auto",
        max_iter=100,
        tol=1e-5,
        random_state=None,
        verbose=False,
    ):
        self.n_components = n_components
        self.objective = objective
        self.reg = reg
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _objective(self, X, side, rng):
        if self.objective not in ("sum", "log"):
            raise ValueError(f"objective={self.objective!r} is unknown; expected 'sum' or 'log'")
        loss = (sum_loss if self.objective == "sum" else log_loss)(side)
        edges = DenseEdges(len(X))
        reg = self._critical_reg(X, side) * 1e-3 if isinstance(self.reg, str) else self.reg
        penalty = None if reg == 0 else lambda L: (reg * float(np.vdot(L, L)), 2 * reg * L)
        self.reg_ = float(reg)
        return Objective(X, edges, loss, penalty)

    def _critical_reg(self, X, side) -> float:
        """The reg above which L = 0 is a local optimum: λ_max of the slopes' scatter at the uniform softmax, over n."""
        if self.reg != "auto":
            raise ValueError(f"reg={self.reg!r} must be a number or 'auto'")
        objective = Objective(X, DenseEdges(len(X)), sum_loss(side))
        critical = -sla.eigvalsh(objective.metric_gradient(np.zeros((1, X.shape[1]))))[0]
        if critical <= 0:
            warnings.warn("the labels do not show in any direction of X: reg='auto' becomes 0", stacklevel=4)
        return max(critical, 0.0)


def sum_loss(labels: Labels):
    """−(1/n) Σ p_i over a block of anchors, and its slopes (M∘P − p P)/n."""
    codes, n = labels.codes, len(labels)

    def loss(D, rows):
        P, _ = neighbor_softmax(D)  # (b, n)
        hits = np.where(codes[rows, None] == codes, P, 0)
        p = hits.sum(axis=1, keepdims=True)
        P *= p
        np.subtract(hits, P, out=hits)
        hits /= n
        return -float(p.sum(dtype=np.float64)) / n, hits

    return loss


def log_loss(labels: Labels):
    """−(1/n) Σ log p_i, as a difference of two log-sum-exps, so that it stays finite when p_i underflows."""
    codes, n = labels.codes, int((labels.counts[labels.codes] > 1).sum())

    def loss(D, rows):
        alone = labels.counts[codes[rows]] < 2
        hits = np.where(codes[rows, None] == codes, D, np.inf)
        hits[alone] = D[alone]  # an anchor without a partner: both terms cancel
        H, lse_hits = neighbor_softmax(hits)
        P, lse_all = neighbor_softmax(D)
        H -= P
        H /= n
        return float((lse_all - lse_hits).sum(dtype=np.float64)) / n, H

    return loss
