"""Self-supervision without negatives: two views agree, and no two coordinates say the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import safe_sqrt, unit
from isometry.deep.pair_form import PairForm
from isometry.parameters import NotNegative, checked


class VICReg(PairForm):
    """Variance, invariance, covariance: views agree, coordinates vary and are uncorrelated.

        λ mean ‖a − b‖²/p + μ ½ Σ_v mean_k [1 − √(var_k + ε)]_+ + ν Σ_v (1/p) Σ_{k≠l} cov_kl²

    v runs over the two views, k and l over coordinates; variances are unbiased. Embeddings are not normalised.

    Parameters
    ----------
    invariance : float, default=25.0
        The weight λ of the agreement of the views.
    variance : float, default=25.0
        The weight μ of the variance.
    covariance : float, default=1.0
        The weight ν of the covariances.
    eps : float, default=1e-4
        The constant ε under the root.

    Notes
    -----
    For views without labels, in batches that are too small for negatives; it wants a wide embedding, from a projection
    that is dropped afterwards. Costs O(n p²) time and O(p²) memory.

    References
    ----------
    | A. Bardes, J. Ponce, Y. LeCun, "VICReg: variance-invariance-covariance regularization for self-supervised
      learning", ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import VICReg
    >>> a = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> bool(VICReg()(a, a) < VICReg()(a, a.flip(0)))
    True
    """

    most_columns = 2

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0, eps: float = 1e-4):
        super().__init__()
        self.invariance = checked("invariance", invariance, NotNegative)
        self.variance = checked("variance", variance, NotNegative)
        self.covariance = checked("covariance", covariance, NotNegative)
        self.eps = checked("eps", eps, NotNegative)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        a, b = columns
        n, p = a.shape
        if n < 2:
            return (a + b).sum() * 0
        value = self.invariance * (a - b).square().mean()
        for z in (a, b):
            z = z - z.mean(0)
            var = z.square().sum(0) / (n - 1)
            value = value + self.variance / 2 * (1 - (var + self.eps).sqrt()).relu().mean()
            value = value + self.covariance * squares_off_the_diagonal(z, z) / ((n - 1) ** 2 * p)
        return value


class BarlowTwins(PairForm):
    """Barlow twins: the correlations between the coordinates of two views are those of the identity.

        Σ_k (1 − c_kk)² + λ Σ_{k≠l} c_kl²

    c_kl is the correlation over the batch of coordinate k of one view with l of the other, 0 for a constant one.

    Parameters
    ----------
    weight : float, default=0.005
        The weight λ of the correlations between different coordinates.

    Notes
    -----
    As ``VICReg``, by correlations: the scale of a coordinate does not count. Costs O(n p²) time and O(p²) memory.

    References
    ----------
    | J. Zbontar, L. Jing, I. Misra, Y. LeCun, S. Deny, "Barlow twins: self-supervised learning via redundancy
      reduction", ICML 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import BarlowTwins
    >>> a = torch.tensor([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> bool(BarlowTwins()(a, a) < BarlowTwins()(a, a.flip(0)))
    True
    """

    most_columns = 2

    def __init__(self, weight: float = 0.005):
        super().__init__()
        self.weight = checked("weight", weight, NotNegative)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        a, b = columns
        if len(a) < 2:
            return (a + b).sum() * 0
        a, b = standardised(a), standardised(b)
        own = (a * b).mean(0)  # (p,)
        return (1 - own).square().sum() + self.weight * squares_off_the_diagonal(a, b) / len(a) ** 2


class MMCR(PairForm):
    """Maximum manifold capacity: the views of a sample are one point, and the points of samples fill the space.

        λ mean_i ‖Z_i‖_* − ‖C‖_*

    Z_i (K, p) holds the K views of sample i on the unit sphere, C (n, p) their means; ‖·‖_* is the sum of the singular
    values. Means are long where views agree, and their singular values are many where samples differ.

    Parameters
    ----------
    weight : float, default=0.005
        The weight λ of the spread of the views, which the means lessen already.

    Notes
    -----
    For views without labels, two or more of each sample; nothing is compared pair by pair. It wants as many samples in
    a batch as dimensions. Costs O(n p min(n, p)) for the singular values of C, and O(n p K²) for those of the views.

    References
    ----------
    | T. Yerxa, Y. Kuang, E. Simoncelli, S. Chung, "Learning efficient coding of natural images with maximum manifold
      capacity representations", NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MMCR
    >>> a = torch.eye(4)
    >>> bool(MMCR()(a, a) < MMCR()(a, a.flip(0)))
    True
    """

    normalize = True

    def __init__(self, weight: float = 0.005):
        super().__init__()
        self.weight = checked("weight", weight, NotNegative)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        views = torch.stack([unit(z) for z in columns], 1)  # (n, K, p)
        value = -torch.linalg.svdvals(views.mean(1)).sum()
        return value + self.weight * torch.linalg.svdvals(views).sum(1).mean() if self.weight else value


def squares_off_the_diagonal(a: Tensor, b: Tensor) -> Tensor:
    """Σ_{k≠l} (aᵀb)_kl², by way of the smaller of the matrices (p, p) and (n, n): ‖aᵀb‖² = ⟨aaᵀ, bbᵀ⟩."""
    n, p = a.shape
    if p <= n:
        return (a.T @ b).fill_diagonal_(0).square().sum()
    return ((a @ a.T) * (b @ b.T)).sum() - (a * b).sum(0).square().sum()


def standardised(z: Tensor) -> Tensor:
    """Columns of mean 0 and (biased) variance 1; a constant one, up to round-off, becomes 0.

    In units of its largest entry the squares of a column neither overflow nor vanish.
    """
    size = z.detach().abs().amax(0)
    empty = size < 1e4 * torch.finfo(z.dtype).tiny  # gradients, of order 1/size, would not be finite
    z = z / size.masked_fill(empty, 1)
    mean = z.mean(0)
    z = z - mean
    std = safe_sqrt(z.square().mean(0))
    constant = (std.detach() <= 4 * torch.finfo(z.dtype).eps * mean.detach().abs()) | empty
    return (z / std.masked_fill(constant, 1)).masked_fill(constant, 0)
