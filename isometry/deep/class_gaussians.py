"""Bayesian updating: classes as Gaussians that learn from every batch, and triplets drawn from them."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from isometry.deep.functional import class_indicator, masked_logsumexp, masked_mean, one_of, packed, softplus
from isometry.deep.loss import LossModule, as_embeddings, check_labels
from isometry.deep.miners import _Draws


class ClassGaussians(nn.Module):
    """Count n, mean μ and scatter Λ = Σ (z − μ)(z − μ)ᵀ of every class, updated batch by batch.

        n ← n₀ + n',   μ ← (n₀μ₀ + n'μ') / n,   Λ ← Λ₀ + S' + (n₀n'/n)(μ₀ − μ')(μ₀ − μ')ᵀ

    Updates in any order and of any size give what one update with all data gives.

    Parameters
    ----------
    num_classes, embedding_size : int
        C, p.
    forget : float
        In (0, 1]: n₀ and Λ₀ are multiplied by it at each update of the class, for embeddings that drift.
    covariance : {"full", "diag", "shared"}
        A covariance matrix for each class; only its diagonal; or one matrix for all classes.
    jitter : float
        Added to the diagonal before the Cholesky factorisation, in units of the mean variance.
    """

    count: Tensor  # (C,)
    mean: Tensor  # (C, p)
    scatter: Tensor  # (C, p, p), (C, p) or (1, p, p)

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        forget: float = 1.0,
        covariance: str = "full",
        jitter: float = 1e-6,
    ):
        super().__init__()
        if not 0 < forget <= 1:
            raise ValueError(f"forget must lie in (0, 1], got {forget}; 1 keeps everything")
        C, p = num_classes, embedding_size
        self.kind = one_of("covariance", covariance, ("full", "diag", "shared"))
        self.forget, self.jitter = forget, jitter
        self.register_buffer("count", torch.zeros(C))
        self.register_buffer("mean", torch.zeros(C, p))
        self.register_buffer("scatter", torch.zeros({"full": (C, p, p), "diag": (C, p), "shared": (1, p, p)}[self.kind]))

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Take in a batch of embeddings (B, p) with labels 0 … C − 1."""
        z = _wide(z)
        classes, members = class_indicator(y, z.dtype)  # (C_b,), (C_b, B)
        n0, mean0 = self.forget * _wide(self.count)[classes], _wide(self.mean)[classes]
        n1 = members.sum(1)
        mean1 = members @ z / n1[:, None]
        n = n0 + n1
        within = z - members.T @ mean1  # (B, p)
        between = (n0 * n1 / n).sqrt()[:, None] * (mean0 - mean1)  # (C_b, p)
        self.count[classes] = n.to(self.count.dtype)
        self.mean[classes] = (mean1 + (n0 / n)[:, None] * (mean0 - mean1)).to(self.mean.dtype)
        self._add(classes, members, within, between)

    def _add(self, classes: Tensor, members: Tensor, within: Tensor, between: Tensor) -> None:
        """Λ ← f Λ₀ + withinᵀwithin + betweenᵀbetween, class by class or for all."""
        if self.kind == "shared":
            old = self.forget * _wide(self.scatter)
            self.scatter.copy_(old + within.T @ within + between.T @ between)
            return
        old = self.forget * _wide(self.scatter)[classes]
        if self.kind == "diag":
            new = old + members @ within.square() + between.square()
        else:
            columns, filled = packed(members > 0)  # (C_b, K)
            rows = within[columns] * filled[..., None]  # (C_b, K, p)
            new = old + rows.mT @ rows + between[:, :, None] * between[:, None]
        self.scatter[classes] = new.to(self.scatter.dtype)

    @property
    def known(self) -> Tensor:
        """Which classes have been seen, (C,)."""
        return self.count > 0

    @torch.no_grad()
    def covariance(self, classes: Tensor | None = None) -> Tensor:
        """Posterior mean of the covariance of each class: (C, p, p), or variances (C, p) for "diag".

        Λ/(n − p − 1), the mean of an inverse Wishart distribution with scale Λ and n degrees of freedom, if
        n ≥ 2(p + 1); below that, half the sample covariance Λ/n and half its mean variance in all directions.
        """
        classes = self._all if classes is None else classes
        scatter, n = _wide(self.scatter), _wide(self.count)
        if self.kind == "shared":  # one covariance, estimated from all
            scatter, n = scatter.expand(len(n), -1, -1), n.sum().expand(len(n))
        scatter, n = scatter[classes], n[classes]
        p = self.mean.shape[1]
        diagonal = scatter if self.kind == "diag" else scatter.diagonal(dim1=1, dim2=2)
        round_ = (diagonal.sum(1) / p)[:, None].expand_as(diagonal)  # (C, p), the mean variance times n
        round_ = round_ if self.kind == "diag" else torch.diag_embed(round_)
        n = n.reshape(-1, *[1] * (scatter.ndim - 1))
        few = (scatter + round_) / (2 * n.clamp_min(1))
        return torch.where(n >= 2 * (p + 1), scatter / (n - p - 1).clamp_min(1), few)

    @torch.no_grad()
    def sample(self, classes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One point z ∼ N(μ_c, Σ_c) for each class c of a list (m,): (m, p)."""
        noise = torch.randn(
            len(classes), self.mean.shape[1], generator=generator, device=classes.device, dtype=self.mean.dtype
        )
        present, code = classes.unique(return_inverse=True)
        if self.kind == "diag":
            return self.mean[classes] + self.covariance(present).sqrt().to(noise.dtype)[code] * noise
        factors = self._factors(present).to(noise.dtype)  # (C_m, p, p)
        order, sizes = code.argsort(), code.bincount().tolist()
        # a product for each class: the factors need not be repeated for each point
        spread = torch.cat([e @ L.T for e, L in zip(noise[order].split(sizes), factors)]) if len(order) else noise
        return self.mean[classes].index_add(0, order, spread)

    def _factors(self, classes: Tensor) -> Tensor:
        """Cholesky factors of the covariances; a matrix that is not positive definite gets ten times more jitter."""
        S = self.covariance(classes)
        unit = S.diagonal(dim1=1, dim2=2).mean(1)[:, None].expand(S.shape[:2])  # (C, p)
        unit = unit + torch.finfo(S.dtype).tiny  # a class without any spread is its mean
        jitter = torch.full_like(unit, self.jitter)
        L, info = torch.linalg.cholesky_ex(S + torch.diag_embed(jitter * unit))
        while info.any():
            jitter = torch.where(info[:, None] > 0, 10 * jitter, jitter)
            L, info = torch.linalg.cholesky_ex(S + torch.diag_embed(jitter * unit))
        return L

    @property
    def _all(self) -> Tensor:
        return torch.arange(len(self.count), device=self.count.device)
