"""Bayesian updating: classes as Gaussians that learn from every batch, and triplets drawn from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import class_indicator, softplus
from isometry.deep.loss import LossModule, as_embeddings, as_labels, check_labels
from isometry.deep.miners import Draws
from isometry.parameters import one_of


class ClassGaussians(nn.Module):
    """Count n, mean μ and scatter Λ = Σ (z − μ)(z − μ)ᵀ of every class, updated batch by batch.

        n ← n₀ + n',   μ ← (n₀μ₀ + n'μ') / n,   Λ ← Λ₀ + S' + (n₀n'/n)(μ₀ − μ')(μ₀ − μ')ᵀ

    Updates in any order and of any size give what one update with all data gives.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    forget : float, default=1.0
        In (0, 1]: n₀ and Λ₀ are multiplied by it at each update of the class, for embeddings that drift.
    covariance : {"full", "diag", "shared"}, default="full"
        A covariance matrix for each class; only its diagonal; or one matrix for all classes.
    jitter : float, default=1e-6
        Added to the diagonal before the Cholesky factorisation, in units of the mean variance.

    Notes
    -----
    What ``BUT`` and ``BUNCA`` draw from; by itself, moments of classes from any number of batches. "full" costs O(C p²)
    memory, "diag" O(C p), "shared" O(p²).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ClassGaussians
    >>> classes = ClassGaussians(num_classes=2, embedding_size=2)
    >>> classes.update(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([0, 0]))
    >>> classes.mean[0], classes.known
    (tensor([1., 2.]), tensor([ True, False]))
    >>> classes.sample(torch.tensor([0, 0, 0])).shape
    torch.Size([3, 2])
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
        if jitter <= 0:
            raise ValueError(f"jitter must be above 0, got {jitter}; 1e-6 is the default")
        C, p = num_classes, embedding_size
        self.kind = one_of("covariance", covariance, ("full", "diag", "shared"))
        self.forget, self.jitter = forget, jitter
        self.register_buffer("count", torch.zeros(C))
        self.register_buffer("mean", torch.zeros(C, p))
        self.register_buffer(
            "scatter", torch.zeros({"full": (C, p, p), "diag": (C, p), "shared": (1, p, p)}[self.kind])
        )

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor) -> None:
        """Take in a batch of embeddings (B, p) with labels 0 … C − 1.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        """
        z = _double(z)
        classes, members = class_indicator(as_labels(y, z.device), z.dtype)  # (C_b,), (C_b, B)
        aged = slice(None) if self.kind == "shared" else classes
        self.count[aged] *= self.forget
        self.scatter[aged] *= self.forget
        n0, mean0 = _double(self.count[classes]), _double(self.mean[classes])
        n1 = members.sum(1)
        mean1 = members @ z / n1[:, None]
        step = mean0 - mean1
        within = z - members.T @ mean1  # (B, p)
        between = (n0 * n1 / (n0 + n1)).sqrt()[:, None] * step  # (C_b, p)
        self.count[classes] = (n0 + n1).to(self.count.dtype)
        self.mean[classes] = (mean1 + (n0 / (n0 + n1))[:, None] * step).to(self.mean.dtype)
        added = self._scatter_of(within, between, members)
        self.scatter[aged] = (_double(self.scatter[aged]) + added).to(self.scatter.dtype)

    def _scatter_of(self, within: Tensor, between: Tensor, members: Tensor) -> Tensor:
        """Sums of outer products of the rows of each class, of their diagonals, or of all rows together."""
        if self.kind == "diag":
            return members @ within.square() + between.square()
        if self.kind == "shared":
            return within.T @ within + between.T @ between
        rows = within[members.argmax(0).argsort()].split(members.sum(1).int().tolist())
        return torch.stack([w.T @ w for w in rows]) + between[:, :, None] * between[:, None]

    @property
    def known(self) -> Tensor:
        """Which classes have been seen, (C,)."""
        return self.count > 0

    @torch.no_grad()
    def covariance(self, classes: Tensor | None = None) -> Tensor:
        """Posterior mean of the covariance of each class: (C, p, p), or variances (C, p) for "diag".

        Λ/(n − p − 1), the mean of an inverse Wishart distribution with scale Λ and n degrees of freedom, if
        n ≥ 2(p + 1); below that, half the sample covariance Λ/n and half its mean variance in all directions.

        Parameters
        ----------
        classes : Tensor or None, default=None
            Which classes, (c,); None: all.

        Returns
        -------
        Tensor
            Covariances (C, p, p), or variances (C, p) for "diag".
        """
        classes = self._all if classes is None else classes
        scatter, n = _double(self.scatter), _double(self.count)
        if self.kind == "shared":  # one covariance, estimated from all
            scatter, n = scatter.expand(len(n), -1, -1), n.sum().expand(len(n))
        scatter, n = scatter[classes], n[classes]
        p = self.mean.shape[1]
        diagonal = scatter if self.kind == "diag" else scatter.diagonal(dim1=1, dim2=2)
        isotropic = (diagonal.sum(1) / p)[:, None].expand_as(diagonal)  # (C, p), the mean variance times n
        isotropic = isotropic if self.kind == "diag" else torch.diag_embed(isotropic)
        n = n.reshape(-1, *[1] * (scatter.ndim - 1))
        shrunk = (scatter + isotropic) / (2 * n.clamp_min(1))
        return torch.where(n >= 2 * (p + 1), scatter / (n - p - 1).clamp_min(1), shrunk)

    @torch.no_grad()
    def sample(self, classes: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """One point z ∼ N(μ_c, Σ_c) for each class c of a list (m,): (m, p).

        Parameters
        ----------
        classes : Tensor
            The class of each point, (m,).
        generator : torch.Generator or None, default=None
            Source of random numbers; None: torch's global generator.

        Returns
        -------
        Tensor
            The points (m, p).
        """
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
        variance = S.diagonal(dim1=1, dim2=2).mean(1)  # (C,)
        least = torch.finfo(S.dtype).tiny  # a class without any spread is its mean
        jitter = torch.full_like(variance, self.jitter)
        while True:
            ridge = (jitter * variance + least)[:, None].expand(S.shape[:2])
            L, info = torch.linalg.cholesky_ex(S + torch.diag_embed(ridge))
            if not info.any():
                return L
            jitter = torch.where(info > 0, 10 * jitter, jitter)

    @property
    def _all(self) -> Tensor:
        return torch.arange(len(self.count), device=self.count.device)


def _double(x: Tensor) -> Tensor:
    """At least float64, where the device has it."""
    return x if x.device.type == "mps" else x.double()


class BayesianUpdating(Draws, LossModule, ABC):
    """Anchors of the batch against positives and negatives drawn from Gaussians of the classes.

    A training step first updates the Gaussians with the batch. Then each anchor meets one point of every other class
    seen so far and as many points of its own. The points are constants: the gradient goes through the anchors.

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    n_samples : int or None, default=None
        Meet only so many other classes, drawn at random for each anchor; memory is O(B n_samples p).
    forget : float, default=1.0
        Share of the past that is kept at each update of a class, in (0, 1], see `ClassGaussians`.
    covariance : {"full", "diag", "shared"}, default="full"
        What is kept of the covariance of each class, see `ClassGaussians`.
    jitter : float, default=1e-6
        What is added to the diagonal of a covariance, see `ClassGaussians`.
    random_state : int or None, default=None
        Seed of the draws; needed, the same everywhere, under several processes.

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. R. Tizhoosh, "Batch-incremental triplet sampling for training
      triplet networks using Bayesian updating theorem", ICPR 2021.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        *,
        n_samples: int | None = None,
        forget: float = 1.0,
        covariance: str = "full",
        jitter: float = 1e-6,
        random_state: int | None = None,
    ):
        super().__init__()
        if n_samples is not None and n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}; None means all other classes")
        self.gaussians = ClassGaussians(num_classes, embedding_size, forget, covariance, jitter)
        self.num_classes, self.n_samples, self.random_state = num_classes, n_samples, random_state

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels 0 … C − 1.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        z = as_embeddings(z, "z")
        y = as_labels(y, z.device)
        if y.shape != (len(z),):
            raise ValueError(f"{len(z)} embeddings need labels ({len(z)},), got shape {tuple(y.shape)}")
        check_labels(y, self.num_classes)
        if z.shape[1] != self.gaussians.mean.shape[1]:
            raise ValueError(f"embedding_size is {self.gaussians.mean.shape[1]}, got embeddings of {z.shape[1]}")
        if not len(z):
            return z.sum() * 0
        with torch.autocast(z.device.type, enabled=False):
            if self.training:
                self.gaussians.update(z.detach(), y)
            known = self.gaussians.known
            z, y = z[known[y]], y[known[y]]
            others = self.other_classes(y, known.nonzero().squeeze(1))  # (B, J)
            if not others.numel():
                return z.sum() * 0
            return self.loss(self._sqdist(z, y[:, None].expand_as(others)), self._sqdist(z, others))

    def other_classes(self, y: Tensor, known: Tensor) -> Tensor:
        """The known classes an anchor does not belong to, all of them or some, (B, J).

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        known : Tensor
            Which classes have been seen (C,).
        """
        k = torch.arange(len(known) - 1, device=y.device).expand(len(y), -1)
        if self.n_samples is not None and self.n_samples < k.shape[1]:
            keys = torch.rand(k.shape, generator=self.generator(y.device), device=y.device)
            k = keys.argsort(1)[:, : self.n_samples]
        return known[k + (k >= torch.searchsorted(known, y)[:, None])]

    def _sqdist(self, z: Tensor, classes: Tensor) -> Tensor:
        """‖z_i − s_ij‖² to one draw s_ij from each of the classes (B, J)."""
        s = self.gaussians.sample(classes.flatten(), self.generator(z.device)).to(z.dtype)
        return (z[:, None] - s.view(*classes.shape, -1)).square().sum(2)

    @abstractmethod
    def loss(self, d_pos: Tensor, d_neg: Tensor) -> Tensor:
        """Squared distances to positives and to negatives, (B, J) each, to a scalar.

        Parameters
        ----------
        d_pos : Tensor
            Squared distances to the positives (B, J).
        d_neg : Tensor
            Squared distances to the negatives (B, J).
        """


class BUT(BayesianUpdating):
    """Bayesian updating triplet loss: positives and negatives are drawn from Gaussians of the classes.

        mean_ij [‖z_i − s⁺_ij‖² − ‖z_i − s⁻_ij‖² + m]_+,     s⁺_ij ∼ N(μ_{y_i}, Σ_{y_i}),   s⁻_ij ∼ N(μ_j, Σ_j), j ≠ y_i

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    margin : float, default=0.25
        The margin m.
    **more : dict
        ``n_samples``, ``forget``, ``covariance``, ``jitter`` and ``random_state``, see the notes.

    Notes
    -----
    A training step first updates the Gaussians with the batch. Then each anchor meets one point of every other class
    seen so far, or of ``n_samples`` of them drawn at random, and as many points of its own; memory is O(B n_samples p).
    ``forget``, ``covariance`` and ``jitter`` are those of `ClassGaussians`; ``random_state`` is the seed of the draws,
    needed, the same everywhere, under several processes.

    For small batches, which hold few classes at a time: negatives come from all classes seen. The Gaussians lag behind
    a network that moves fast; ``forget`` below 1 helps. Full covariances cost O(C p²) memory and O(C p³) time a step.

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. Tizhoosh, "Batch-incremental triplet sampling for training
      triplet networks using Bayesian updating theorem", ICPR 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BUT
    >>> loss = BUT(num_classes=3, embedding_size=4, random_state=0)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def __init__(self, num_classes: int, embedding_size: int, margin: float = 0.25, **more: Any):
        super().__init__(num_classes, embedding_size, **more)
        self.margin = margin

    def loss(self, d_pos: Tensor, d_neg: Tensor) -> Tensor:
        return (d_pos - d_neg + self.margin).relu().mean()


class BUNCA(BayesianUpdating):
    """Bayesian updating NCA loss: positives and negatives are drawn from Gaussians of the classes.

        −mean_ij log( e^{−‖z_i − s⁺_ij‖²} / (e^{−‖z_i − s⁺_ij‖²} + Σ_l e^{−‖z_i − s⁻_il‖²}) )

    Parameters
    ----------
    num_classes : int
        Number of classes C.
    embedding_size : int
        Dimension p of the embeddings.
    denominator : {"all", "negatives"}, default="all"
        ``"negatives"`` leaves the positive out of the denominator, as printed in the survey: unbounded below, and the
        embedding grows without end.
    **more : dict
        ``n_samples``, ``forget``, ``covariance``, ``jitter`` and ``random_state``, see `BUT`.

    Notes
    -----
    As ``BUT``, with a softmax in place of a margin. Full covariances cost O(C p²) memory and O(C p³) time a step.

    References
    ----------
    | M. Sikaroudi, B. Ghojogh, F. Karray, M. Crowley, H. Tizhoosh, "Batch-incremental triplet sampling for training
      triplet networks using Bayesian updating theorem", ICPR 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BUNCA
    >>> loss = BUNCA(num_classes=3, embedding_size=4, random_state=0)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 2])
    >>> value = loss(z, y)
    >>> value.shape, bool(value.isfinite())
    (torch.Size([]), True)
    """

    def __init__(self, num_classes: int, embedding_size: int, denominator: str = "all", **more: Any):
        super().__init__(num_classes, embedding_size, **more)
        self.denominator = one_of("denominator", denominator, ("all", "negatives"))

    def loss(self, d_pos: Tensor, d_neg: Tensor) -> Tensor:
        excess = d_pos + (-d_neg).logsumexp(1, keepdim=True)
        return (softplus(excess) if self.denominator == "all" else excess).mean()
