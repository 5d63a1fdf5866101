"""Distances, masks and masked reductions: what every loss is made of.

A distance takes embeddings (B, p) and references (R, p) and gives a matrix (B, R); smaller means closer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, wraps
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Distance = str | Callable[[Tensor, Tensor], Tensor]

# Squared distances below this share of ‖z‖² + ‖r‖² lose digits in the Gram form and are recomputed by difference.
_NEAR = 1e-3
LOG2E = 1.4426950408889634
_CHUNK = 1 << 16  # pairs recomputed at a time


# -- distances ---------------------------------------------------------------------------------------------------------


class Centred(NamedTuple):
    """Embeddings and references about their common centre, and their squared norms: distances lose fewer digits so."""

    a: Tensor  # (B, p)
    b: Tensor  # (R, p)
    a2: Tensor  # (B,)
    b2: Tensor  # (R,)

    @classmethod
    def of(cls, z: Tensor, refs: Tensor) -> Centred:
        centre = z.mean(0)
        a = z - centre
        b = a if refs is z else refs - centre
        a2 = a.square().sum(1)
        return cls(a, b, a2, a2 if refs is z else b.square().sum(1))


def gram_sqdist(z: Tensor, refs: Tensor, centred: Centred, rows: slice = slice(None)) -> Tensor:
    """‖z_i − r_j‖² for the rows i asked for: one product, nearly coincident pairs by explicit difference."""
    a, a2 = centred.a[rows], centred.a2[rows]
    D = torch.addmm(centred.b2, a, centred.b.T, alpha=-2).add_(a2[:, None])  # (B, R)
    if refs is not z:
        return _recompute_near(D, z[rows], refs, a2, centred.b2)
    itself = D[:, rows].diagonal()
    itself.fill_(torch.inf)  # no need to look at a point and itself
    _recompute_near(D, z[rows], refs, a2, centred.b2)
    itself.fill_(0)
    return D


def _recompute_near(D: Tensor, z: Tensor, refs: Tensor, a2: Tensor, b2: Tensor) -> Tensor:
    """Replace what cancellation has spoilt. Rows without a small distance, the usual case, are dismissed at once."""
    if not D.numel():
        return D
    limit = _NEAR * (a2 + b2.max())
    rows = (D.amin(1) <= limit).nonzero().squeeze(1)
    if not len(rows):
        return D
    i, j = (D[rows] <= limit[rows, None]).nonzero(as_tuple=True)
    i = rows[i]
    near = D[i, j] <= _NEAR * (a2[i] + b2[j])
    for s, t in zip(i[near].split(_CHUNK), j[near].split(_CHUNK)):
        D[s, t] = (z[s] - refs[t]).square().sum(1)
    return D


class _Euclidean(torch.autograd.Function):
    """‖z_i − r_j‖, or its square, with gradient zero where the two coincide."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, refs: Tensor, squared: bool) -> Tensor:
        D = gram_sqdist(z, refs, Centred.of(z, refs))
        if not squared:
            D.sqrt_()
        ctx.squared = squared
        ctx.save_for_backward(z, refs, *(() if squared else (D,)))
        return D

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        z, refs, *D = ctx.saved_tensors
        W = 2 * G if ctx.squared else G / D[0].masked_fill(D[0] == 0, torch.inf)  # (B, R)
        a, b, *_ = Centred.of(z, refs)
        dz = pulled(W, a, b) if ctx.needs_input_grad[0] else None
        return dz, pulled(W.T, b, a) if ctx.needs_input_grad[1] else None, None


def pulled(W: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Σ_j W_ij (a_i − b_j) for each i, of weights dense or sparse: the gradient of ½ Σ W_ij ‖a_i − b_j‖² in a."""
    return (W @ b.new_ones(len(b), 1)) * a - W @ b


def euclidean(z: Tensor, refs: Tensor) -> Tensor:
    """Distances ‖z_i − r_j‖."""
    return _Euclidean.apply(z, refs, False)


def sqeuclidean(z: Tensor, refs: Tensor) -> Tensor:
    """Squared distances ‖z_i − r_j‖²."""
    return _Euclidean.apply(z, refs, True)


def cosine(z: Tensor, refs: Tensor) -> Tensor:
    """Dissimilarities 1 − cos(z_i, r_j)."""
    return 1 - unit(z) @ unit(refs).T


def inner(z: Tensor, refs: Tensor) -> Tensor:
    """−z_iᵀ r_j: the inner product turned into something that is small for similar points."""
    return -(z @ refs.T)


def manhattan(z: Tensor, refs: Tensor) -> Tensor:
    """Distances Σ_k |z_ik − r_jk|."""
    return torch.cdist(z, refs, p=1)


def snr(z: Tensor, refs: Tensor) -> Tensor:
    """var(z_i − r_j) / var(z_i) over the coordinates: noise to signal, seen from z_i, and so not symmetric.

    Adding a constant to all coordinates of a row changes nothing. A row without variance is divided by 1.
    """
    a = _without_mean(z)
    b = a if refs is z else _without_mean(refs)
    return sqeuclidean(a, b) / _signal(a)


def _without_mean(z: Tensor) -> Tensor:
    if z.shape[-1] < 2:
        raise ValueError("distance='snr' compares variances over the coordinates, and these embeddings have only one")
    return z - z.mean(-1, keepdim=True)


def _signal(a: Tensor) -> Tensor:
    """Σ a² of each row (…, 1), 1 for a row of (nearly) zeros."""
    total = a.square().sum(-1, keepdim=True)
    return torch.where(total > 1e-12, total, 1)


class Lp:
    """The distance (Σ_k abs(z_ik − r_jk)^p)^(1/p) as a ``distance`` of losses and miners.

    Parameters
    ----------
    p : float
        The order, at least 1: 1 is "manhattan", 2 "euclidean".

    Notes
    -----
    Costs O(B R p) time like the others, without a matrix product: slower than "euclidean".

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Lp
    >>> Lp(1)(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    tensor([[7., 1.]])
    """

    def __init__(self, p: float):
        if not p >= 1:
            raise ValueError(f"p={p} must be at least 1: otherwise it is no distance")
        self.p = p

    def __call__(self, z: Tensor, refs: Tensor) -> Tensor:
        return torch.cdist(z, refs, p=self.p, compute_mode="donot_use_mm_for_euclid_dist")

    def paired(self, a: Tensor, b: Tensor) -> Tensor:
        """Distances between partners, (…, p) and (…, p) to (…).

        Parameters
        ----------
        a : Tensor
            Embeddings (…, p).
        b : Tensor
            Their partners (…, p).

        Returns
        -------
        Tensor
            Distances (…).
        """
        return torch.linalg.vector_norm(a - b, self.p, dim=-1)

    def __repr__(self) -> str:
        return f"Lp({self.p})"


def poincare(z: Tensor, refs: Tensor) -> Tensor:
    """The distance of the Poincaré ball, with its default curvature; see ``Poincare``."""
    return _ball()(z, refs)


def _ball() -> Any:
    from isometry.deep.models.hyperbolic import Poincare  # which is made of the distances here

    return Poincare()


DISTANCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "euclidean": euclidean,
    "sqeuclidean": sqeuclidean,
    "cosine": cosine,
    "inner": inner,
    "manhattan": manhattan,
    "snr": snr,
    "poincare": poincare,
}


def get_distance(distance: Distance) -> Callable[[Tensor, Tensor], Tensor]:
    """The function behind a name of ``DISTANCES``; a callable is returned as it is."""
    if callable(distance):
        return distance
    if distance not in DISTANCES:
        raise ValueError(f"unknown distance {distance!r}; expected one of {', '.join(DISTANCES)} or a callable")
    return DISTANCES[distance]


def safe_sqrt(x: Tensor) -> Tensor:
    """√x with gradient zero, not infinite, at zero."""
    positive = x > 0
    return torch.where(positive, x, 1).sqrt().masked_fill(~positive, 0)


def paired(distance: Distance, a: Tensor, b: Tensor) -> Tensor:
    """The distance of each vector of ``a`` (..., p) to its partner in ``b`` (..., p), by explicit difference."""
    if distance == "poincare":
        distance = _ball()
    if hasattr(distance, "paired"):
        partners: Tensor = distance.paired(a, b)
        return partners
    if callable(distance):
        rows = torch.vmap(lambda u, v: distance(u[None], v[None])[0, 0])
        return rows(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])).reshape(a.shape[:-1])
    if distance == "cosine":
        return 1 - (unit(a) * unit(b)).sum(-1)
    if distance == "inner":
        return -(a * b).sum(-1)
    if distance == "manhattan":
        return (a - b).abs().sum(-1)
    if distance == "snr":
        a = _without_mean(a)
        return (a - _without_mean(b)).square().sum(-1) / _signal(a).squeeze(-1)
    d2 = (a - b).square().sum(-1)
    return d2 if distance == "sqeuclidean" else safe_sqrt(d2)


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        n = length(z)
        u = z / n
        ctx.save_for_backward(z, n, u)
        return u

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Tensor:
        z, n, u = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            n = length(z)
            u = z / n
        return torch.addcmul(G, torch.linalg.vecdot(G, u)[..., None], u, value=-1) / n


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A block in which nothing is cast to half precision; it costs nothing where nothing would be."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def is_finite(x: Tensor) -> bool:
    """Whether all numbers are finite, in one pass for those that are of moderate size."""
    return math.isfinite(torch.linalg.vector_norm(x.detach()).item()) or bool(x.isfinite().all())


def full_precision(x: Tensor) -> Tensor:
    """Half precision raised to float32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def length(z: Tensor) -> Tensor:
    """‖z‖ of each row (…, 1), 1 for a row of zeros."""
    n = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return torch.where(n > 1e-12, n, 1)


def unit(z: Tensor) -> Tensor:
    """z / ‖z‖ row by row; a row of zeros stays zero and keeps a finite gradient."""
    return _Unit.apply(z)


def inside(cos: Tensor) -> Tensor:
    """Cosines kept a little away from ±1, with slope 0 beyond: there the angle, and its sine, have no derivative."""
    most = 1 - (1e-12 if cos.dtype == torch.float64 else 1e-7)
    return cos.clamp(-most, most)


def cosine_of_sum(cos: Tensor, angle: float | Tensor) -> Tensor:
    """cos(θ + angle) of angles θ in [0, π] given by their cosines, in radians."""
    m, c = torch.as_tensor(angle, dtype=cos.dtype, device=cos.device), inside(cos)
    return c * m.cos() - ((1 - c) * (1 + c)).sqrt() * m.sin()


def turned(cos: Tensor, angle: float | Tensor) -> Tensor:
    """cos(θ + angle), decreasing in θ also where θ + angle leaves [0, π]; the angle between −π/2 and π/2.

    Above π it goes on as cos θ − angle · sin(angle), below 0 it stays at 1.
    """
    m = torch.as_tensor(angle, dtype=cos.dtype, device=cos.device)
    t = torch.where((m > 0) & (cos < -m.cos()), cos - m * m.sin(), cosine_of_sum(cos, m))
    return t.masked_fill((m < 0) & (cos > m.cos()), 1.0)


@torch.no_grad()
def cosine_dissimilarity(x: Tensor, refs: Tensor | None = None) -> Tensor:
    """Dissimilarities ψ_ij = (1 − cos(x_i, x_j)) / 2 in [0, 1], soft scores for unlabelled inputs, without gradient.

    Parameters
    ----------
    x : Tensor
        Inputs (B, d).
    refs : Tensor or None, default=None
        What they are compared with, (R, d); None: themselves.

    Returns
    -------
    Tensor
        Dissimilarities (B, R).

    Notes
    -----
    ``1 - cosine_dissimilarity(x)`` serves as labels of ``GeneralizedContrastive``.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import cosine_dissimilarity
    >>> cosine_dissimilarity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    tensor([[0., 1.],
            [1., 0.]])
    """
    return (cosine(x, x if refs is None else refs) / 2).clamp(0, 1)


# -- masks -------------------------------------------------------------------------------------------------------------


def masks(y: Tensor, ref_y: Tensor | None = None, self_index: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Which references are positive and which negative for each anchor: two boolean matrices (B, R).

    ``y`` is a vector of labels, compared with ``ref_y`` (by default with itself); or a matrix (B, R), boolean or of
    similarities in [0, 1]: above ½ is positive, below ½ negative, ½ and NaN are neither. ``self_index[i]`` is the
    column that holds anchor i itself (−1: none); an anchor is never its own positive or negative.
    """
    if y.ndim == 1:
        pos = torch.eq(y[:, None], y if ref_y is None else ref_y)
        neg = ~pos
        if (ref_y is None or ref_y is y) and not y.is_floating_point():
            return clear_self(pos, self_index), neg  # an anchor has its own label, and is no negative of itself
    elif y.dtype == torch.bool:
        pos, neg = y.clone(), ~y
    else:
        pos, neg = y > 0.5, y < 0.5
    return clear_self(pos, self_index), clear_self(neg, self_index)


def soft_masks(y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weights s and 1 − s in place of the two masks; zero for the anchor itself and for unknown (NaN) pairs."""
    s = (torch.eq(y[:, None], y if ref_y is None else ref_y) if y.ndim == 1 else y).to(dtype)
    known = clear_self(~s.isnan(), self_index)
    return s.masked_fill(~known, 0), (1 - s).masked_fill(~known, 0)


@lru_cache(maxsize=16)
def own_index(n: int, device: torch.device) -> Tensor:
    """0 … n − 1, the columns of anchors that are their own references; one tensor for all batches of a size.

    It is recognised by identity, which spares a look at its numbers at every step.
    """
    with torch.inference_mode(False):
        return torch.arange(n, device=device)


def clear_self(mask: Tensor, self_index: Tensor | None) -> Tensor:
    """The mask with the entry of each anchor itself set to False, in place."""
    if self_index is None or not len(self_index):
        return mask
    if self_index is own_index(len(mask), mask.device):
        return mask.fill_diagonal_(False)
    if self_index.min() >= 0:
        return mask.scatter_(1, self_index[:, None], False)
    rows = (self_index >= 0).nonzero().squeeze(1)
    mask[rows, self_index[rows]] = False
    return mask


def packed(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Columns of the True entries of each row, left-aligned in a table (B, K), and which cells are filled."""
    count = count_of_row(mask)  # (B,)
    width = int(count.max()) if len(count) else 0
    i, j = mask.nonzero(as_tuple=True)
    slot = torch.arange(len(i), device=mask.device) - (count.cumsum(0) - count)[i]
    columns = torch.zeros(len(mask), width, dtype=torch.long, device=mask.device)
    columns[i, slot] = j
    return columns, torch.arange(width, device=mask.device) < count[:, None]


def passes(pos: Tensor, neg: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """One positive p (B,) of each row at a time, and which of (B, R) are its negatives; none in a row without p."""
    columns, filled = packed(pos)
    return ((p, neg & used[:, None]) for p, used in zip(columns.T, filled.T))


# -- reductions --------------------------------------------------------------------------------------------------------


def as_weights(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as a new matrix of zeros and ones; torch converts bytes several times faster than booleans."""
    return mask.view(torch.int8).to(dtype) if mask.dtype == torch.bool else mask.to(dtype, copy=True)


def any_of_row(mask: Tensor) -> Tensor:
    """``mask.any(1)`` as a maximum of bytes, which torch vectorises; R ≥ 1."""
    return mask.view(torch.uint8).amax(1).bool()


def count_of_row(mask: Tensor) -> Tensor:
    """``mask.sum(1)`` by way of a sum of floats, which torch vectorises."""
    return as_weights(mask, torch.float32).sum(1).long()


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of x where the mask holds; 0, still part of the graph, where it holds nowhere."""
    return x.masked_fill(~mask, 0).sum() / mask.count_nonzero().clamp_min(1)


def masked_max(x: Tensor, mask: Tensor, dim: int = 1) -> Tensor:
    """Largest x under the mask along ``dim``; −inf for a slice without any."""
    return x.masked_fill(~mask, -torch.inf).max(dim).values


def masked_min(x: Tensor, mask: Tensor, dim: int = 1) -> Tensor:
    """Smallest x under the mask along ``dim``; +inf for a slice without any."""
    return x.masked_fill(~mask, torch.inf).min(dim).values


def first_derivative_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a ``backward`` whose gradient cannot be differentiated again: an error then, where torch would be wrong."""

    @wraps(backward)
    def wrapper(ctx: Any, *gradients: Tensor) -> Any:
        if torch.is_grad_enabled():  # under create_graph=True
            name = type(ctx).__name__.removesuffix("Backward").lstrip("_")
            raise RuntimeError(f"{name} can be differentiated only once: call backward without create_graph=True")
        return backward(ctx, *gradients)

    return wrapper


def overwritable(x: Tensor) -> Tensor:
    """A tensor that may be overwritten: x itself, or a copy if a graph is recorded, which may need x as it is."""
    return x.clone() if x.requires_grad else x


def _exponentials(x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """e^{x − top} under the mask and 0 elsewhere, its sum along ``dim``, and top, the largest x there."""
    e = torch.where(mask, x, -torch.inf)
    top = e.detach().amax(dim, keepdim=True).clamp_min_(torch.finfo(x.dtype).min)  # finite for a slice without any
    e = exp_(e.sub_(top))
    return e, e.sum(dim, keepdim=True), top


def _log_total(total: Tensor) -> Tensor:
    """log of a sum of exponentials, the largest of which is 1: −inf, with gradient zero, where there is none."""
    if not total.requires_grad:
        return total.log()
    return total.clamp_min(1).log().masked_fill(total == 0, -torch.inf)


def exp_(x: Tensor) -> Tensor:
    """eˣ in place, as 2^(x log₂e): on CPUs exp itself is many times slower where the result is zero or denormal."""
    return x.mul_(LOG2E).exp2_()


def masked_softmax(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ exp(x) (B,) and the softmax (B, R) of each row under the mask; −inf and zeros for a row without any."""
    e, total, top = _exponentials(x, mask, 1)
    return (_log_total(total) + top).squeeze(1), overwritable(e).div_(total.clamp_min(1))


class _MaskedLogSumExp(torch.autograd.Function):
    """Keeps the exponentials e, which are also the gradient, so that none is computed twice.

    They are a second output, ∂e/∂x = e, so that a gradient made of them can be differentiated again without keeping x.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        e, total, top = _exponentials(x, mask, dim)
        ctx.dim = dim
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(e, total)
        return (_log_total(total) + top).squeeze(dim), e

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, g_e: Tensor | None) -> tuple[Tensor, None, None]:
        e, total = ctx.saved_tensors
        factor = torch.zeros_like(total) if g_e is None else g_e
        if g is not None:
            if torch.is_grad_enabled():  # this gradient will be differentiated again
                total = e.sum(ctx.dim, keepdim=True)
            factor = factor + (g.unsqueeze(ctx.dim) / total.clamp_min(1)).masked_fill(total == 0, 0)
        return e * factor, None, None


def masked_logsumexp(x: Tensor, mask: Tensor, dim: int = 1) -> Tensor:
    """log Σ exp(x) under the mask along ``dim``; −inf, with gradient zero, for a slice without any."""
    return _MaskedLogSumExp.apply(x, mask, dim)[0]


def softplus(x: Tensor) -> Tensor:
    """log(1 + eˣ); torch's own default switches to x at 20, too early for float64."""
    return F.softplus(x, threshold=40.0)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 − eˣ) for x < 0, accurate near 0 and far from it."""
    x = x.clamp_max(-1e-7)
    close = x > -0.6931471805599453
    return torch.where(close, torch.log(-torch.expm1(x)), torch.log1p(-torch.exp(torch.where(close, -1.0, x))))


REDUCTIONS = ("mean_nonzero", "mean", "sum")


def reduced(total: Tensor, terms: Tensor | int, nonzero: Tensor | int, reduction: str) -> Tensor:
    """A sum of terms as it is, over their number, or over the number of those that are not zero."""
    if reduction == "sum":
        return total
    count = terms if reduction == "mean" else nonzero
    return total / torch.as_tensor(count).clamp_min(1)


def class_indicator(y: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The distinct labels (C,) and the 0/1 matrix (C, B) of their members: a product with it sums by class."""
    classes, code = y.unique(return_inverse=True)
    return classes, F.one_hot(code, len(classes)).T.to(dtype)
