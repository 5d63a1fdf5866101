"""SoftTriple loss: several centres for each class."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from isometry.deep.functional import masks, unit
from isometry.deep.losses.nca import mean_of_anchors, nca
from isometry.deep.losses.proxy import ProxyForm, random_proxies


class SoftTriple(ProxyForm):
    """Several learned centres for each class, softly assigned; a softmax over classes with a margin.

        S_il = Σ_k softmax_k(ẑᵀw_l^k / γ) ẑᵀw_l^k
        −mean log( e^{λ(S_iy − δ)} / (e^{λ(S_iy − δ)} + Σ_{l ≠ y} e^{λ S_il}) )
            + τ Σ_l Σ_{t<s} √(2 − 2 w_l^sᵀ w_l^t) / (C K (K − 1))

    Parameters
    ----------
    num_classes, embedding_size, centers_per_class : int
        C, dimension of the embeddings, K.
    la, gamma, tau, margin : float
        λ, γ, τ, δ.

    References
    ----------
    Q. Qian et al., "SoftTriple loss: deep metric learning without triplet sampling", ICCV 2019.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        centers_per_class: int = 10,
        la: float = 20.0,
        gamma: float = 0.1,
        tau: float = 0.2,
        margin: float = 0.01,
    ):
        super().__init__(num_classes)
        self.centers = random_proxies(num_classes, centers_per_class, embedding_size)
        self.la, self.gamma, self.tau, self.margin = la, gamma, tau, margin

    @property
    def references(self) -> Tensor:
        return self.centers

    def compute(self, z, y, refs, ref_y, self_index):
        w = unit(refs)  # (C, K, p)
        C, K, _ = w.shape
        cos = (unit(z) @ w.transpose(0, 1).flatten(0, 1).T).view(len(z), K, C)  # classes last, to run over them at once
        S = _SoftlyNearest.apply(cos, self.gamma)  # (B, C)
        spread = self.tau * center_spread(w)
        if y.ndim == 2:
            return self.loss(-S, *masks(y, ref_y)) + spread
        return F.cross_entropy(self.la * (S - self.margin * F.one_hot(y, C).to(S.dtype)), y) + spread

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        log_p = nca(-self.la * (D + self.margin * pos.to(D.dtype)), pos, neg)
        return mean_of_anchors(-log_p, log_p)


class _SoftlyNearest(torch.autograd.Function):
    """S = Σ_k softmax_k(c_k/γ) c_k over axis 1 of (B, K, C); its derivative is q_k (1 + (c_k − S)/γ)."""

    @staticmethod
    def forward(ctx, c, gamma):
        q = (c / gamma).softmax(1)
        S = (q * c).sum(1)
        ctx.gamma = gamma
        ctx.save_for_backward(c, q, S)
        return S

    @staticmethod
    @once_differentiable
    def backward(ctx, G):
        c, q, S = ctx.saved_tensors
        return (c - S[:, None]).div_(ctx.gamma).add_(1).mul_(q).mul_(G[:, None]), None


def center_spread(w: Tensor) -> Tensor:
    """Σ_l Σ_{t<s} ‖w_l^s − w_l^t‖ / (C K (K − 1)) of unit centres (C, K, p); merges centres a class does not need."""
    C, K, _ = w.shape
    t, s = torch.triu_indices(K, K, 1, device=w.device)
    gram = (w @ w.mT)[:, t, s]  # (C, K (K − 1) / 2)
    return (2 + 1e-5 - 2 * gram).sqrt().sum() / max(C * K * (K - 1), 1)
