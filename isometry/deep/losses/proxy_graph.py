"""Proxy-based graph learning: each sample looks at the few proxies most similar to it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import masks, unit
from isometry.deep.losses.nca import log_probability, mean_of_anchors
from isometry.deep.losses.proxy import ProxyForm, random_proxies
from isometry.parameters import Count, NotNegative, PositiveShare, checked


class ProxyGML(ProxyForm):
    """Proxy-based graph metric learning: several proxies a class; a softmax over the classes of the nearest of them.

        S_il = Σ_{kept proxies π of class l} ẑ_iᵀπ̂,     −mean_i log softmax_l(S_i)[y_i] + λ CE(proxies)

    Kept are the most similar proxies of each sample, those of its own class always; classes without a kept proxy are
    not in the softmax. CE(proxies) is the cross-entropy of the proxies' own sums S over all proxies.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    centers_per_class : int, default=10
        Proxies of each class, N.
    share : float or None, default=None
        The share of all C N proxies that are kept; None: 0.05, and for fewer than 100 classes as many as five of them
        have.
    weight : float, default=0.3
        The weight λ of the proxies' own cross-entropy.

    Notes
    -----
    For classes that fall into several groups. Costs O(B C N p) time and O(B C N) memory.

    References
    ----------
    | Y. Zhu, M. Yang, C. Deng, W. Liu, "Fewer is more: a deep graph metric learning perspective using fewer proxies",
      NeurIPS 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProxyGML
    >>> loss = ProxyGML(num_classes=3, embedding_size=4, centers_per_class=2)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centers_per_class: int = 10,
        share: float | None = None,
        weight: float = 0.3,
    ):
        super().__init__(num_classes, embedding_size)
        share = max(0.05, min(1.0, 5 / num_classes)) if share is None else checked("share", share, PositiveShare)
        if share * num_classes < 1:
            raise ValueError(
                f"share={share} of the proxies of {num_classes} classes is less than those of one class, which are "
                f"always kept; take at least {1 / num_classes:.3g}"
            )
        self.proxies = random_proxies(
            num_classes, checked("centers_per_class", centers_per_class, Count), embedding_size
        )
        self.kept = math.ceil(share * num_classes * centers_per_class)
        self.weight = checked("weight", weight, NotNegative)

    @property
    def references(self) -> Tensor:
        return self.proxies

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        w, (pos, neg) = unit(refs), masks(y, ref_y)  # (C, N, p), (B, C)
        s = unit(z) @ w.flatten(0, 1).T  # (B, C N)
        own = pos.repeat_interleave(w.shape[1], 1)
        nearest = s.detach().masked_fill(own, torch.inf).topk(self.kept, 1).indices
        kept = own.scatter(1, nearest, True).unflatten(1, w.shape[:2])  # (B, C, N)
        S, there = (s.unflatten(1, w.shape[:2]) * kept).sum(2), kept.any(2)  # (B, C)
        value = self.loss(-S, pos & there, neg & there)
        if not self.weight:
            return value
        among = w.flatten(0, 1) @ w.sum(1).T  # (C N, C)
        classes = torch.arange(len(w), device=z.device).repeat_interleave(w.shape[1])
        return value + self.weight * F.cross_entropy(among, classes)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The formula, where D is −S.

        Parameters
        ----------
        D : Tensor
            Minus the sums of similarities (B, C).
        pos : Tensor
            Which classes are the sample's, a boolean matrix (B, C).
        neg : Tensor
            Which classes are not, a boolean matrix (B, C).
        """
        log_p = log_probability(-D, pos, neg)
        return mean_of_anchors(-log_p, log_p)
