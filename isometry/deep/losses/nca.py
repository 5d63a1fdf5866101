"""Neighbourhood component analysis in a batch, and its easy-positive form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import (
    Distance,
    any_of_row,
    as_weights,
    masked_logsumexp,
    masked_min,
    masked_softmax,
)
from isometry.deep.loss import Loss
from isometry.deep.miners import EasyPositive, Miner
from isometry.deep.terms import Terms, mean_of_terms, where
from isometry.parameters import Positive, checked, one_of


def log_probability(s: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
    """log p_i (B,): log-probability that a softmax over similarities s picks a positive; −inf if there is none."""
    return masked_logsumexp(s, pos) - masked_logsumexp(s, pos | neg)


def of_found(value: Tensor, log_p: Tensor) -> Terms:
    """The values (B,) of the anchors that have a positive: those whose log p is finite."""
    return where(value, log_p.detach().isfinite())


def mean_of_anchors(value: Tensor, log_p: Tensor) -> Tensor:
    """Mean of the values of the anchors that have a positive."""
    return mean_of_terms(*of_found(value, log_p))


def nca_slopes(s: Tensor, pos: Tensor, neg: Tensor, n: Tensor, form: str = "log") -> tuple[Tensor, Tensor]:
    """Σ −log p_i / n, or Σ (1 − p_i) / n, over the anchors that have a positive, and its slopes (B, R) in s.

    ∂ log p_i / ∂s_ij = P_ij − Q_ij: the softmax over the positives less the softmax over all.
    """
    (lse_pos, P), (lse_all, Q) = masked_softmax(s, pos), masked_softmax(s, pos | neg)
    alone = lse_pos == -torch.inf  # (B,), anchors without a positive
    log_p, weight = (lse_pos - lse_all).masked_fill(alone, 0), (~alone).to(s.dtype) / n
    C = Q.sub_(P)
    if form == "log":
        return -(weight * log_p).sum(), C.mul_(weight[:, None])
    return -(weight * log_p.expm1()).sum(), C.mul_((weight * log_p.exp())[:, None])


class NCALoss(Loss):
    """Neighbourhood component analysis loss: the probability that a stochastic neighbour has the anchor's class.

        p_i = Σ_{j ∈ pos(i)} e^{−d_ij/τ} / Σ_{k ≠ i} e^{−d_ik/τ},     −mean log p_i    or    1 − mean p_i

    Parameters
    ----------
    temperature : float, default=1.0
        The temperature τ: the smaller, the more the closest pairs count.
    form : {"log", "exp"}, default="log"
        Mean of −log p_i, or one minus the expected accuracy.
    denominator : {"all", "negatives"}, default="all"
        ``"negatives"``: the ratio d_ap + log Σ_neg e^{−d_an} averaged over positive pairs; not a probability, and
        unbounded below.
    distance : str or callable, default="sqeuclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    Optimises what k-nearest-neighbour classification needs: an anchor is content when any positive is near, so that
    classes may fall into several clusters. Unnormalised distances set the scale; if they are large, the gradient of far
    anchors vanishes: raise the temperature or normalise. Costs O(B² p).

    References
    ----------
    | J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood components analysis", NIPS 2005.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import NCALoss
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = NCALoss()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    accelerated = True

    def __init__(
        self,
        temperature: float = 1.0,
        form: str = "log",
        denominator: str = "all",
        *,
        distance: Distance = "sqeuclidean",
        miner: Miner | str | None = None,
        normalize: bool = False,
    ):
        super().__init__(distance, miner, normalize)
        self.temperature = checked("temperature", temperature, Positive)
        self.form = one_of("form", form, ("log", "exp"))
        self.denominator = one_of("denominator", denominator, ("all", "negatives"))

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        s = D / -self.temperature
        if self.denominator == "negatives":
            ratio = masked_logsumexp(s, neg)[:, None] - s  # (B, R)
            return where(ratio, pos & any_of_row(neg)[:, None])
        log_p = log_probability(s, pos, neg)
        return of_found(-log_p if self.form == "log" else -log_p.expm1(), log_p)

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        terms = any_of_row(pos) if self.denominator == "all" else pos & any_of_row(neg)[:, None]
        return terms.count_nonzero().clamp_min(1)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        s = D / -self.temperature
        if self.denominator == "all":
            value, C = nca_slopes(s, pos, neg, totals, self.form)
        else:
            value, C = ratio_slopes(s, pos, neg, totals)
        return value, C.div_(-self.temperature)


def ratio_slopes(s: Tensor, pos: Tensor, neg: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """Σ (log Σ_neg e^{s_ik} − s_ij) / n over the positive pairs that have negatives, and its slopes (B, R) in s."""
    return softmax_slopes(s, as_weights(pos & any_of_row(neg)[:, None], s.dtype).div_(n), neg)


def softmax_slopes(s: Tensor, pull: Tensor, among: Tensor, push: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Σ_i (push_i log Σ_{k among i} e^{s_ik} − Σ_j pull_ij s_ij), push_i = Σ_j pull_ij, and its slopes (B, R) in s."""
    push = pull.sum(1) if push is None else push
    lse, Q = masked_softmax(s, among)
    value = (push * lse.masked_fill(push == 0, 0)).sum() - (pull * s).sum()
    return value, Q.mul_(push[:, None]).sub_(pull)


class EasyPositiveNCA(Loss):
    """Easy-positive NCA loss: the most similar positive against all, the hardest, or the hardest semi-hard negative.

        s⁺ = max_pos ẑ_iᵀẑ_j,     −mean log( e^{s⁺/σ} / (e^{s⁺/σ} + Σ_neg e^{s_ik/σ}) )

    Parameters
    ----------
    temperature : float, default=0.1
        The temperature σ: the smaller, the more the closest pairs count.
    negatives : {"semihard", "hard", "all"}, default="semihard"
        ``"semihard"``: the most similar negative that is less similar than s⁺; an anchor without one is dropped.
    drop_nonpositive : bool, default=False
        Drop the anchors for which s⁺ or the largest similarity of a negative is not above zero, as some versions of the
        authors' code do.

    Notes
    -----
    For classes that vary widely inside, such as one object from all sides: only the nearest positive is pulled, and the
    class keeps its spread. Not for classes of two samples, where it is the only positive anyway. Costs O(B² p).

    References
    ----------
    | H. Xuan, A. Stylianou, R. Pless, "Improved embeddings with easy positive triplet mining", WACV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import EasyPositiveNCA
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = EasyPositiveNCA(negatives="all")
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, temperature: float = 0.1, negatives: str = "semihard", drop_nonpositive: bool = False):
        super().__init__("inner", EasyPositive(negatives), normalize=True)
        self.temperature = checked("temperature", temperature, Positive)
        self.drop_nonpositive = drop_nonpositive

    def mine(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        pos, neg = super().mine(D, pos, neg)
        if not self.drop_nonpositive:
            return pos, neg
        similar = (masked_min(D, pos) < 0) & (masked_min(D, neg) < 0)  # D is minus the cosine
        return pos & similar[:, None], neg & similar[:, None]

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        log_p = log_probability(D / -self.temperature, pos, neg)
        return of_found(-log_p, log_p)
