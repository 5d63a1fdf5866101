"""Contrastive learning with hard, debiased negatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isometry.deep.functional import masked_logsumexp, masks, softplus
from isometry.deep.loss import Loss, as_embeddings, as_instances
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, mean_of_terms, where
from isometry.parameters import Positive, checked


class HardNegativeContrastive(Loss):
    """Contrastive loss with hard negatives: the harder they are the more they count, corrected for false ones.

        R = Σ_k e^{(β+1)s_k/t} / mean_k e^{βs_k/t},     N_g = max( (R − τ⁺ N e^{s⁺/t}) / (1 − τ⁺), N e^{−1/t} )
        mean over positive pairs of  −log( e^{s⁺/t} / (e^{s⁺/t} + N_g) )

    With labels the negatives are known to be true and τ⁺ = 0. ``views(z1, z2)`` is the unsupervised form: two views of
    each sample, all other samples as negatives, a share τ⁺ of which belongs to the anchor's unknown class.

    Parameters
    ----------
    temperature : float, default=0.5
        The temperature t: the smaller, the more the closest pairs count.
    tau_plus : float, default=0.1
        The share τ⁺ of the anchor's own class among unlabelled samples.
    beta : float, default=1.0
        How much more hard negatives count, β; 0: all alike.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    For unlabelled views with few classes behind them, where many "negatives" are of the anchor's class. With labels τ⁺
    is 0 and only the weights of hard negatives remain. Costs O(B² p).

    References
    ----------
    | J. Robinson, C.-Y. Chuang, S. Sra, S. Jegelka, "Contrastive learning with hard negative samples", ICLR 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import HardNegativeContrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = HardNegativeContrastive()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> loss.views(z[:2], z[2:]).item() > 0
    True
    """

    def __init__(
        self, temperature: float = 0.5, tau_plus: float = 0.1, beta: float = 1.0, *, miner: Miner | str | None = None
    ):
        super().__init__("inner", miner, normalize=True)
        if not 0 <= checked("tau_plus", tau_plus, float) < 1:
            raise ValueError(f"tau_plus is the prior of the anchor's class, in [0, 1), got {tau_plus}")
        self.temperature = checked("temperature", temperature, Positive)
        self.tau_plus, self.beta = tau_plus, checked("beta", beta, float)

    def views(self, *zs: Tensor) -> Tensor:
        """The debiased loss of two or more views (m, p) of the same unlabelled samples.

        Parameters
        ----------
        *zs : Tensor (m, p)
            Embeddings of one view each; row i is the same sample in all of them.

        Returns
        -------
        Tensor
            The scalar.
        """
        z, y = as_instances(*zs)
        z = as_embeddings(z, "z")
        with torch.autocast(z.device.type, enabled=False):
            D = self.distances(z, z)
            pos, neg = self.mine(D, *masks(y, y, torch.arange(len(z), device=z.device)))
            return mean_of_terms(*self.split(D, pos, neg, self.tau_plus))

    def split(self, D: Tensor, pos: Tensor, neg: Tensor, tau_plus: float = 0.0) -> Terms:
        s = -D / self.temperature  # (B, R)
        N = neg.sum(1).to(D.dtype)  # (B,)
        log_R = masked_logsumexp((self.beta + 1) * s, neg) - masked_logsumexp(self.beta * s, neg) + N.log()
        anchors = neg.any(1)
        log_R = log_R.masked_fill(~anchors, 0)[:, None]
        excess = log_R - s  # log(R / e^{s⁺}), for every candidate positive
        if tau_plus:
            excess = self.debiased(excess, s, N[:, None], tau_plus)
        return where(softplus(excess), pos & anchors[:, None])

    def debiased(self, excess: Tensor, s: Tensor, N: Tensor, tau_plus: float) -> Tensor:
        """The logarithm of N_g / e^{s⁺}: the expected share of positives taken out of R, bounded by what cosines allow.

        Parameters
        ----------
        excess : Tensor
            The logarithm of R / e^{s⁺}, of each positive pair.
        s : Tensor
            Similarities s⁺ of the positive pairs.
        N : Tensor
            Number of negatives.
        tau_plus : float
            The share τ⁺.
        """
        false = tau_plus * N * torch.exp(-excess)  # share of R
        left = excess + torch.log1p(-false.clamp_max(1 - 1e-6)) - math.log(1 - tau_plus)
        floor = N.log() - 1 / self.temperature - s
        return torch.where(false < 1 - 1e-6, torch.maximum(left, floor), floor)
