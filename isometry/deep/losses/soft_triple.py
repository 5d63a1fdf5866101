"""SoftTriple loss: several centres for each class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import LOG2E, length, masks, unit
from isometry.deep.losses.nca import log_probability, of_found
from isometry.deep.losses.proxy import ProxyForm, random_proxies
from isometry.deep.slopes import BlockSlopes, apart, blocks, gradients
from isometry.deep.terms import Terms
from isometry.parameters import Count, NotNegative, Positive, checked

SHARP_GAMMA = 0.05  # for γ below, e^{1/γ} may overflow when squared, and the largest cosine is subtracted first


class SoftTriple(ProxyForm):
    """SoftTriple loss: several learned centres for each class, softly assigned; a softmax over classes with a margin.

        S_il = Σ_k softmax_k(ẑᵀw_l^k / γ) ẑᵀw_l^k
        −mean log( e^{λ(S_iy − δ)} / (e^{λ(S_iy − δ)} + Σ_{l ≠ y} e^{λ S_il}) )
            + τ Σ_l Σ_{t<s} √(2 − 2 w_l^sᵀ w_l^t) / (C K (K − 1))

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    centers_per_class : int, default=10
        Centres of each class, K.
    la : float, default=20.0
        The factor λ of the similarities.
    gamma : float, default=0.1
        The temperature γ of the soft choice among the centres of a class.
    tau : float, default=0.2
        The weight τ of the term that merges centres.
    margin : float, default=0.01
        The margin δ, a difference of similarities.

    Notes
    -----
    For classes that fall into several groups, of unknown number: τ merges what is not needed. Any batch will do. Costs
    O(B C K p) time and O(B C K) memory.

    References
    ----------
    | Q. Qian, L. Shang, B. Sun, J. Hu, H. Li, R. Jin, "SoftTriple loss: deep metric learning without triplet sampling",
      ICCV 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SoftTriple
    >>> loss = SoftTriple(num_classes=3, embedding_size=4, centers_per_class=2)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    accelerated = True

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
        super().__init__(num_classes, embedding_size)
        self.centers = random_proxies(
            num_classes, checked("centers_per_class", centers_per_class, Count), embedding_size
        )
        self.la, self.gamma = checked("la", la, Positive), checked("gamma", gamma, Positive)
        self.tau, self.margin = checked("tau", tau, NotNegative), checked("margin", margin, float)

    @property
    def references(self) -> Tensor:
        return self.centers

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        pos, neg = masks(y, ref_y)  # (B, C)
        if y.ndim == 2 or not self.accelerated:
            S, w = similarities(unit(z), refs, self.gamma)
            return self.loss(-S, pos, neg) + self.tau * spread(w)
        f = lambda rows, D: self.cross_entropy(D, y[rows], len(z))  # noqa: E731
        return _SoftTriple.apply(unit(z), refs, self.gamma, self.tau, f)

    def terms(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Terms:
        if self.tau:
            raise self.no_terms()
        return self.split(-similarities(unit(z), refs, self.gamma)[0], *masks(y, ref_y))

    def not_split(self) -> str:
        return f"(tau={self.tau:g})"

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        """Here D is −S.

        Parameters
        ----------
        D : Tensor
            Minus the similarities to the classes (B, C).
        pos : Tensor
            Which classes are positive, a boolean matrix (B, C).
        neg : Tensor
            Which classes are negative, a boolean matrix (B, C).
        """
        log_p = log_probability(-self.la * (D + self.margin * pos.to(D.dtype)), pos, neg)
        return of_found(-log_p, log_p)

    def cross_entropy(self, D: Tensor, y: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The part of some anchors, of n, in ``loss``, and its slopes in D (B, C); each has one class, y.

        Parameters
        ----------
        D : Tensor
            Minus the similarities to the classes (B, C).
        y : Tensor
            Labels (B,).
        n : int
            Anchors of the whole batch.
        """
        own = y[:, None]
        s = D.mul(-self.la).scatter_add_(1, own, D.new_full(own.shape, -self.la * self.margin))
        log_p = s.log_softmax(1)
        value = log_p.gather(1, own).sum() / -n
        C = log_p.exp().mul(-self.la / n)
        return value, C.scatter_add_(1, own, D.new_full(own.shape, self.la / n))


class _SoftTriple(torch.autograd.Function):
    """f(−S) + τ spread, for S_il = Σ_k q_k c_k with c_k = z_iᵀ w_l^k and q = softmax(c/γ); z and w of unit length.

    ∂S/∂c_k = q_k (1 + (c_k − S)/γ). Block by block of anchors, gradients at once: no matrix (B, C K) is kept.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, centers: Tensor, gamma: float, tau: float, f: BlockSlopes) -> Tensor:
        (C, K, p), n = centers.shape, length(centers)
        w = centers.new_empty(K, C, p)  # classes before the embedding, to run over them at once
        torch.div(centers, n, out=w.transpose(0, 1))
        dz, dw = torch.empty_like(z), torch.zeros_like(w)
        value = tau * spread_(w.transpose(0, 1), tau, dw.transpose(0, 1)) if tau else z.new_zeros(())
        w_rows, dw_rows = w.view(K * C, p), dw.view(K * C, p)
        scaled = z * (LOG2E / gamma)  # so that q ∝ 2^c; here c and S are in these units
        parts = list(blocks(len(z), K * C))
        memory = z.new_empty(2, parts[0].stop, K, C)  # one for all blocks: fresh pages cost more than the work on them
        for rows in parts:
            c, q = memory[:, : rows.stop - rows.start]  # (block, K, C) each
            torch.mm(scaled[rows], w_rows.T, out=c.view(-1, K * C))
            torch.exp2(c if gamma > SHARP_GAMMA else c - c.amax(1, keepdim=True), out=q)
            total = q.sum(1)  # (block, C)
            S = q[:, 0] * c[:, 0]
            for k in range(1, K):  # a sum of products without a place for the products
                S.addcmul_(q[:, k], c[:, k])
            S.div_(total)
            share, G = f(rows, S * (-gamma / LOG2E))
            value += share
            G.div_(total.mul_(-LOG2E))
            H = c.sub_(S.sub_(LOG2E)[:, None]).mul_(q).mul_(G[:, None]).flatten(1)  # ∂f/∂(zᵀw)
            torch.mm(H, w_rows, out=dz[rows])
            dw_rows.addmm_(H.T, z[rows])
        dw.addcmul_(torch.linalg.vecdot(dw, w)[..., None], w, value=-1)  # no change of length
        ctx.settings = gamma, tau, f
        ctx.save_for_backward(z, centers, dz, dw.transpose(0, 1).div_(n))
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, centers, dz, dw = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            (gamma, tau, f), (z, centers) = ctx.settings, apart(z, centers)
            S, w = similarities(z, centers, gamma)
            _, G = f(slice(0, len(z)), -S)
            parts = torch.cat([S.flatten(), spread(w)[None]])
            slopes = torch.cat([(-g * G).flatten(), (g * tau)[None]])
            return *gradients(parts, (z, centers), slopes, ctx.needs_input_grad[:2]), None, None, None
        return g * dz, g * dw, None, None, None


def similarities(z: Tensor, centers: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """S (B, C) of embeddings of unit length, and the centres (C, K, p) at unit length, in plain operations."""
    w = unit(centers)
    c = torch.einsum("bp,ckp->bck", z, w)
    return ((c / gamma).softmax(2) * c).sum(2), w


def spread(w: Tensor) -> Tensor:
    """Σ_l Σ_{t<s} ‖w_l^s − w_l^t‖ / (C K (K − 1)) of unit centres (C, K, p), in plain operations."""
    C, K, _ = w.shape
    s, t = torch.triu_indices(K, K, 1, device=w.device)
    return (2 + 1e-5 - 2 * (w @ w.mT)[:, s, t]).clamp_min(1e-12).sqrt().sum() / max(C * K * (K - 1), 1)


def spread_(w: Tensor, tau: float, dw: Tensor) -> Tensor:
    """Σ_l Σ_{t<s} ‖w_l^s − w_l^t‖ / (C K (K − 1)) of unit centres (C, K, p); merges centres a class does not need.

    τ times its gradient is added to ``dw``. Each pair is counted from both ends, which makes that one product.
    """
    C, K, _ = w.shape
    pairs = max(C * K * (K - 1), 1)
    d = (w @ w.mT).mul_(-2).add_(2 + 1e-5).clamp_min_(1e-12).sqrt_()  # (C, K, K)
    d.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    dw.sub_(d.reciprocal() @ w, alpha=tau / pairs)
    d.diagonal(dim1=1, dim2=2).fill_(0)
    return d.sum() / (2 * pairs)
