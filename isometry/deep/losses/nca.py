"""Neighbourhood component analysis in a batch, and its easy-positive form."""

from __future__ import annotations

from torch import Tensor

from isometry.deep.functional import Distance, masked_logsumexp, masked_mean, one_of
from isometry.deep.loss import Loss
from isometry.deep.miners import EasyPositive, Miner


def nca(s: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
    """log p_i (B,): log-probability that a softmax over similarities s picks a positive; −inf if there is none."""
    return masked_logsumexp(s, pos) - masked_logsumexp(s, pos | neg)


def mean_of_anchors(value: Tensor, log_p: Tensor) -> Tensor:
    """Mean of the values of the anchors that have a positive: those whose log p is finite."""
    return masked_mean(value, log_p.detach().isfinite())


class NCALoss(Loss):
    """The probability that a stochastic neighbour has the anchor's class.

        p_i = Σ_{j ∈ pos(i)} e^{−d_ij/τ} / Σ_{k ≠ i} e^{−d_ik/τ},     −mean log p_i    or    1 − mean p_i

    Parameters
    ----------
    temperature : float
        τ.
    form : {"log", "exp"}
        Mean of −log p_i, or one minus the expected accuracy.
    denominator : {"all", "negatives"}
        ``"negatives"``: the ratio d_ap + log Σ_neg e^{−d_an} averaged over positive pairs; not a probability, and
        unbounded below.

    References
    ----------
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        form: str = "log",
        denominator: str = "all",
        *,
        distance: Distance = "sqeuclidean",
        miner: Miner | None = None,
        normalize: bool = False,
    ):
        super().__init__(distance, miner, normalize)
        self.temperature = temperature
        self.form = one_of("form", form, ("log", "exp"))
        self.denominator = one_of("denominator", denominator, ("all", "negatives"))

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s = D / -self.temperature
        if self.denominator == "negatives":
            return masked_mean(masked_logsumexp(s, neg)[:, None] - s, pos & neg.any(1, keepdim=True))
        log_p = nca(s, pos, neg)
        return mean_of_anchors(-log_p if self.form == "log" else 1 - log_p.exp(), log_p)


class EasyPositiveNCA(Loss):
    """Only the most similar positive of each anchor, against all, the hardest, or the hardest semi-hard negative.

        s⁺ = max_pos ẑ_iᵀẑ_j,     −mean log( e^{s⁺/σ} / (e^{s⁺/σ} + Σ_neg e^{s_ik/σ}) )

    Parameters
    ----------
    temperature : float
        σ.
    negatives : {"semihard", "hard", "all"}
        ``"semihard"``: the most similar negative that is less similar than s⁺; an anchor without one is dropped.

    References
    ----------
    H. Xuan, A. Stylianou, R. Pless, "Improved embeddings with easy positive triplet mining", WACV 2020.
    """

    def __init__(self, temperature: float = 0.1, negatives: str = "semihard"):
        super().__init__("inner", EasyPositive(negatives), normalize=True)
        self.temperature = temperature

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        log_p = nca(D / -self.temperature, pos, neg)
        return mean_of_anchors(-log_p, log_p)
