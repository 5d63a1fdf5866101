"""Regularisers: what embeddings, or the proxies of a loss, should look like whatever their labels."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import Centred, gram_sqdist, masked_logsumexp, masked_mean, paired, unit
from isometry.deep.loss import LossModule, as_embeddings, finite
from isometry.deep.miners import Draws
from isometry.deep.slopes import slopes_of_rows, with_slopes
from isometry.parameters import Count, Positive, Rule, Share, checked, one_of

AtLeastOne = Annotated[float, Rule(lambda v: v >= 1, "must be at least 1")]
AtLeastTwo = Annotated[int, Rule(lambda v: v >= 2, "must be at least 2")]


class Regularizer(nn.Module, ABC):
    """Abstract regulariser: a scalar from embeddings or proxies (n, p); with fewer than two rows it is 0.

    Notes
    -----
    A regulariser of your own writes ``compute``; `Regularized` puts it beside a loss.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Regularizer
    >>> class Small(Regularizer):
    ...     def compute(self, z):
    ...         return z.square().mean()
    >>> Small()(torch.ones(2, 3)).item()
    1.0
    """

    weight = 1.0  # beside a loss, unless told otherwise

    def forward(self, z: Tensor) -> Tensor:
        """The penalty of the rows of z (n, p).

        Parameters
        ----------
        z : Tensor
            Embeddings or proxies (n, p).

        Returns
        -------
        Tensor
            The scalar.
        """
        z = as_embeddings(z, "z", squared=True)
        if len(z) < 2:
            return z.sum() * 0
        with torch.autocast(z.device.type, enabled=False):
            return finite(self.compute(z), self, z)

    @abstractmethod
    def compute(self, z: Tensor) -> Tensor:
        """The scalar, in full precision.

        Parameters
        ----------
        z : Tensor
            Embeddings or proxies (n, p).

        Returns
        -------
        Tensor
            The scalar.
        """


class Regularized(LossModule):
    """A loss and a regulariser: L(z, y) + w Ω(z), or w Ω of the proxies of L.

    Parameters
    ----------
    loss : LossModule
        The loss L of embeddings and labels.
    regularizer : Regularizer
        The regulariser Ω.
    weight : float or None, default=None
        The weight w; None: that of the regulariser, which is 1, but 0.005 for ``LpNorm`` and 0.1 for ``KoLeo``.
    on : {"embeddings", "proxies"}, default="embeddings"
        Whether Ω looks at the embeddings of the batch, or at the proxies of the loss.

    Notes
    -----
    Costs what both cost.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ProxyNCA, RegularFace, Regularized
    >>> loss = Regularized(ProxyNCA(3, 4), RegularFace(), on="proxies")
    >>> bool(loss(torch.eye(4), torch.tensor([0, 0, 1, 2])).isfinite())
    True
    """

    def __init__(self, loss: LossModule, regularizer: Regularizer, weight: float | None = None, on: str = "embeddings"):
        super().__init__()
        self.loss, self.regularizer = loss, regularizer
        self.weight = regularizer.weight if weight is None else weight
        self.on = one_of("on", on, ("embeddings", "proxies"))
        if on == "proxies" and self.proxies() is None:
            raise ValueError(f"{type(loss).__name__} has no proxies; take on='embeddings'")

    def proxies(self) -> Tensor | None:
        """The proxies of the loss (…, p), if it has any."""
        found = getattr(self.loss, "references", None)
        return getattr(self.loss, "proxies", None) if found is None else found

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels (B,).

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
        value, proxies = self.loss(z, y), self.proxies()
        rows = z if self.on == "embeddings" or proxies is None else proxies.flatten(0, -2)
        return value + self.weight * self.regularizer(rows)

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        return self.loss.param_groups(lr)


class LpNorm(Regularizer):
    """Short vectors: the mean ℓ_p norm.

        mean_i ‖z_i‖_p

    Parameters
    ----------
    p : float, default=2.0
        Order of the norm, 1 or more.

    Notes
    -----
    For losses of inner products, whose embeddings grow otherwise. Of no use on the unit sphere. Costs O(n p).

    References
    ----------
    | K. Sohn, "Improved deep metric learning with multi-class N-pair loss objective", NIPS 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LpNorm
    >>> LpNorm(1)(torch.tensor([[3.0, -4.0], [1.0, 0.0]])).item()
    4.0
    """

    weight = 0.005

    def __init__(self, p: float = 2.0):
        super().__init__()
        self.p = checked("p", p, AtLeastOne)

    def compute(self, z: Tensor) -> Tensor:
        return torch.linalg.vector_norm(z, self.p, 1).mean()


class ZeroMean(Regularizer):
    """Coordinates that add up to zero: the regulariser of the signal-to-noise ratio as a distance.

        mean_i |Σ_k z_ik|

    Notes
    -----
    Beside losses with ``distance="snr"``. Costs O(n p).

    References
    ----------
    | T. Yuan, W. Deng, J. Tang, Y. Tang, B. Chen, "Signal-to-noise ratio: a robust distance metric for deep metric
      learning", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ZeroMean
    >>> ZeroMean()(torch.tensor([[1.0, -1.0], [2.0, 1.0]])).item()
    1.5
    """

    def compute(self, z: Tensor) -> Tensor:
        return z.sum(1).abs().mean()


class CenterInvariant(Regularizer):
    """Classes of equal weight: the variance of the squared norms of their proxies.

        ¼ mean_l (‖w_l‖² − mean ‖w‖²)²

    Notes
    -----
    For proxies that keep their length and classes of unequal size: ``Regularized(loss, CenterInvariant(),
    on="proxies")``. Losses that normalise their proxies do not see it. Costs O(C p).

    References
    ----------
    | Y. Wu, H. Liu, J. Li, Y. Fu, "Deep face recognition with center invariant loss", ACM Multimedia workshops 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CenterInvariant
    >>> CenterInvariant()(torch.eye(3)).item()  # all of one length
    0.0
    """

    def compute(self, z: Tensor) -> Tensor:
        n = z.square().sum(1)
        return (n - n.mean()).square().mean() / 4


class RegularFace(Regularizer):
    """Classes apart: the cosine of each proxy and the one nearest to it.

        mean_l max_{k≠l} cos(w_l, w_k)

    Notes
    -----
    For proxies of few classes in few dimensions, which may lie close together: ``on="proxies"``. Costs O(C² p).

    References
    ----------
    | K. Zhao, J. Xu, M.-M. Cheng, "RegularFace: deep face recognition via exclusive regularization", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RegularFace
    >>> RegularFace()(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])).item() > 0.6  # two of one direction
    True
    """

    def compute(self, z: Tensor) -> Tensor:
        u = unit(z)
        return (u * u[nearest(u)]).sum(1).mean()


class Spherical(Regularizer):
    """Equal norms: the squared deviation from their mean, which is held constant.

        mean_i (‖z_i‖ − μ)²

    Parameters
    ----------
    momentum : float, default=0.0
        Share of the past in μ: 0, as published, is the mean norm of the batch alone.

    Notes
    -----
    Beside losses of angles, whose embeddings may have any length: gradients of long ones are short. Costs O(n p).

    References
    ----------
    | D. Zhang, Y. Li, Z. Zhang, "Deep metric learning with spherical embedding", NeurIPS 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Spherical
    >>> Spherical()(torch.tensor([[1.0, 0.0], [0.0, 3.0]])).item()  # norms 1 and 3 about 2
    1.0
    """

    mean: Tensor

    def __init__(self, momentum: float = 0.0):
        super().__init__()
        self.momentum = checked("momentum", momentum, Share)
        self.register_buffer("mean", torch.tensor(torch.nan))

    def compute(self, z: Tensor) -> Tensor:
        n = torch.linalg.vector_norm(z, dim=1)
        mean = n.detach().mean()
        if self.momentum:
            past = self.mean.to(mean.dtype)
            mean = mean if past.isnan() else self.momentum * past + (1 - self.momentum) * mean
            if self.training:
                self.mean.copy_(mean)
        return (n - mean).square().mean()


class KoLeo(Regularizer):
    """Points spread over the sphere: the log-distance of each to its nearest neighbour, an estimate of entropy.

        −mean_i log min_{j≠i} ‖ẑ_i − ẑ_j‖

    Notes
    -----
    For embeddings that will be quantised or searched by an index, and against collapse. It drives samples of one class
    apart as well, so that its weight should be small. Costs O(n² p).

    References
    ----------
    | A. Sablayrolles, M. Douze, C. Schmid, H. Jégou, "Spreading vectors for similarity search", ICLR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import KoLeo
    >>> near, apart = torch.tensor([[1.0, 0.0], [1.0, 0.1]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> bool(KoLeo()(near) > KoLeo()(apart))
    True
    """

    weight = 0.1

    def compute(self, z: Tensor) -> Tensor:
        u = unit(z)
        return -paired("euclidean", u, u[nearest(u)]).clamp_min(1e-8).log().mean()


class Uniformity(Regularizer):
    """Points spread over the sphere: the log of the mean Gaussian potential of two of them.

        log mean_{i≠j} e^{−t ‖ẑ_i − ẑ_j‖²}

    Parameters
    ----------
    t : float, default=2.0
        How fast the potential falls with the squared distance.

    Notes
    -----
    As ``KoLeo``, by all pairs: smoother, and blind to what is nearer than 1/√t. Costs O(n² p).

    References
    ----------
    | T. Wang, P. Isola, "Understanding contrastive representation learning through alignment and uniformity on the
      hypersphere", ICML 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Uniformity
    >>> near, apart = torch.tensor([[1.0, 0.0], [1.0, 0.1]]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> bool(Uniformity()(near) > Uniformity()(apart))
    True
    """

    def __init__(self, t: float = 2.0):
        super().__init__()
        self.t = checked("t", t, Positive)

    def compute(self, z: Tensor) -> Tensor:
        u, n = unit(z), len(z)
        x = (2 * self.t * (u @ u.T - 1)).view(1, -1)
        return masked_logsumexp(x, off_diagonal(z).view(1, -1)).squeeze() - math.log(n * (n - 1))


class SpreadOut(Regularizer):
    """Global orthogonality: cosines of mean 0, and of mean square no more than those of random directions.

        (mean_{i≠j} s_ij)² + [mean_{i≠j} s_ij² − 1/p]_+,     s = cos

    Notes
    -----
    Published for pairs that do not match, beside a triplet loss; here of all pairs of the batch. Costs O(n² p).

    References
    ----------
    | X. Zhang, F. X. Yu, S. Kumar, S.-F. Chang, "Learning spread-out local feature descriptors", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SpreadOut
    >>> bool(SpreadOut()(torch.eye(4)) < SpreadOut()(torch.ones(4, 4)))
    True
    """

    def compute(self, z: Tensor) -> Tensor:
        u, off = unit(z), off_diagonal(z)
        S = u @ u.T
        return masked_mean(S, off).square() + (masked_mean(S.square(), off) - 1 / z.shape[1]).relu()


class SIGReg(Draws, Regularizer):
    """Embeddings like a standard normal sample: the Epps–Pulley statistic of random projections, which is their mean.

        n ∫_{−3}^{3} |φ̂(t) − e^{−t²/2}|² e^{−t²/2} dt,     φ̂(t) = mean_i e^{it aᵀz_i},   a random, ‖a‖ = 1

    Parameters
    ----------
    slices : int, default=1024
        Number of random projections.
    knots : int, default=17
        Points of the integral in [0, 3].
    random_state : int or None, default=None
        Seed of the projections.

    Notes
    -----
    Against collapse without negatives or teachers, beside a loss that makes views agree. Embeddings must be free to
    scale, not on the sphere. Costs O(n p slices + n slices knots).

    References
    ----------
    | R. Balestriero, Y. LeCun, "LeJEPA: provable and scalable self-supervised learning without the heuristics", arXiv
      2025.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SIGReg
    >>> penalty = SIGReg(slices=64, random_state=0)
    >>> grid = torch.special.ndtri((torch.arange(100.0) + 0.5) / 100)[:, None]  # normal quantiles
    >>> bool(penalty(grid) < penalty(torch.ones(100, 1)))
    True
    """

    def __init__(self, slices: int = 1024, knots: int = 17, random_state: int | None = None):
        super().__init__()
        self.slices, self.knots = checked("slices", slices, Count), checked("knots", knots, AtLeastTwo)
        self.random_state = random_state

    def compute(self, z: Tensor) -> Tensor:
        a = torch.randn(z.shape[1], self.slices, generator=self.generator(z.device), dtype=z.dtype, device=z.device)
        t = torch.linspace(0, 3, self.knots, dtype=z.dtype, device=z.device)
        normal = (-t.square() / 2).exp()
        weight = 6 / (self.knots - 1) * normal  # both sides of 0, by trapezia
        weight[[0, -1]] /= 2

        def statistic(rows: slice, X: Tensor) -> Tensor:
            x = X[:, :, None] * t  # (slices, n, knots)
            distance = (x.cos().mean(1) - normal).square() + x.sin().mean(1).square()
            return (distance @ weight).sum() * len(z) / self.slices

        X = (a / a.norm(dim=0)).T @ z.T  # (slices, n)
        return with_slopes(X, lambda X: slopes_of_rows(X, statistic, X.shape[1] * self.knots))


def off_diagonal(z: Tensor) -> Tensor:
    """All pairs of different rows, (n, n)."""
    return ~torch.eye(len(z), dtype=torch.bool, device=z.device)


@torch.no_grad()
def nearest(z: Tensor) -> Tensor:
    """The row nearest to each row but itself, (n,)."""
    return gram_sqdist(z, z, Centred.of(z, z)).fill_diagonal_(torch.inf).argmin(1)
