"""Proxy-anchor loss: each proxy looks at all samples of a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from isometry.deep.functional import masked_logsumexp, softplus
from isometry.deep.losses.proxy import ProxyForm
from isometry.parameters import NotNegative, Positive, checked


class ProxyAnchor(ProxyForm):
    """Proxy-anchor loss: proxies are anchors, which pull their hardest samples most and push the nearest others most.

        1/|P⁺| Σ_{π∈P⁺} log(1 + Σ_{i∈π} e^{−α(s_iπ − δ)}) + 1/C Σ_π log(1 + Σ_{i∉π} e^{α(s_iπ + δ)}),     s = cos

    P⁺ are the proxies of classes in the batch.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.1
        The margin δ.
    alpha : float, default=32.0
        How sharply hard samples stand out, α.

    Notes
    -----
    Proxies look at all samples of the batch, so that relations between samples count and hard ones lead; any batch will
    do. Costs O(B C p), less than all pairs if C is below B.

    References
    ----------
    | S. Kim, D. Kim, M. Cho, S. Kwak, "Proxy anchor loss for deep metric learning", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProxyAnchor
    >>> loss = ProxyAnchor(num_classes=3, embedding_size=4)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def __init__(self, num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32.0):
        super().__init__(num_classes, embedding_size)
        self.distance = "inner"
        self.margin, self.alpha = checked("margin", margin, NotNegative), checked("alpha", alpha, Positive)
        self.proxies = nn.Parameter(torch.randn(num_classes, embedding_size) * math.sqrt(2 / num_classes))
        self.lr_cap = 1e-2

    @property
    def references(self) -> Tensor:
        return self.proxies

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The formula, where D is −s (B, C).

        Parameters
        ----------
        D : Tensor
            Minus the cosines to the proxies (B, C).
        pos : Tensor
            Which proxies are of the sample's class, a boolean matrix (B, C).
        neg : Tensor
            Which proxies are not, a boolean matrix (B, C).
        """
        pull = softplus(masked_logsumexp(self.alpha * (D + self.margin), pos, dim=0))  # (C,), 0 for an absent class
        push = softplus(masked_logsumexp(-self.alpha * (D - self.margin), neg, dim=0))
        return pull.sum() / pos.any(0).count_nonzero().clamp_min(1) + push.mean()
