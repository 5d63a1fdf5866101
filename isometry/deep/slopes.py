"""Losses that know their slopes: a scalar of many distances and its gradient, without a graph over matrices (B, R).

For f(D) with slopes C = ∂f/∂D the gradient of the embeddings is a pull, ∂f/∂z_i = Σ_j C_ij (z_i − r_j) / d_ij: two
matrix products. It is taken at once, block by block of anchors, while the block is in the cache.

Under ``create_graph=True`` the backward works C(D) out anew, with a graph, so that second derivatives are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import Centred, Distance, get_distance, gram_sqdist, paired, pulled

# (rows, D of those rows) ↦ their share of f, and ∂f/∂D as a matrix of its own; D stays as it is. It may be called again
# in backward with a D that has a graph: it must give the same, and slopes that can be differentiated.
BlockSlopes = Callable[[slice, Tensor], tuple[Tensor, Tensor]]
Triples = tuple[Tensor, Tensor, Tensor]
EUCLIDEAN = ("euclidean", "sqeuclidean")
BLOCK, MIN_ROWS = 1 << 19, 64  # numbers in a block; fewer rows would make poor matrix products


def in_blocks(distance: Distance, z: Tensor, refs: Tensor, f: BlockSlopes) -> Tensor:
    """Σ f over blocks of rows of the distances D (B, R) of embeddings (B, p) to references (R, p)."""
    if distance in (*EUCLIDEAN, "inner"):
        return _InBlocks.apply(z, refs, distance, f)
    return with_slopes(get_distance(distance)(z, refs), lambda D: f(slice(0, len(D)), D))


def with_slopes(D: Tensor, f: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """f(D), where f gives its value and its slopes, for a matrix that is part of a graph."""
    return _WithSlopes.apply(D, f)


def slopes_of_rows(
    D: Tensor, f: Callable[[slice, Tensor], Tensor], numbers: int, block: int = BLOCK // 4
) -> tuple[Tensor, Tensor]:
    """Σ f(rows, D[rows]) over blocks of rows, where f needs so many ``numbers`` a row, and its slopes by autograd.

    The graph of one block is in memory at a time. For ``with_slopes``: the slopes have a graph if D has one.
    """
    graph = D.requires_grad and torch.is_grad_enabled()
    most = max(1, min(block, 4 * D.numel()) // max(numbers, 1))  # no more than four matrices of the size of D
    value = D.new_zeros(())
    slopes: list[Tensor] = []
    for start in range(0, len(D), most):
        rows = slice(start, start + most)
        with torch.enable_grad():
            part = D[rows] if graph else D[rows].detach().requires_grad_()
            share = f(rows, part)
        slopes += torch.autograd.grad(share, part, create_graph=graph)
        value = value + (share if graph else share.detach())
    return value, torch.cat(slopes)


def of_triples(distance: Distance, z: Tensor, refs: Tensor, choose: Callable[[Tensor], Triples]) -> tuple[Tensor, ...]:
    """Distances d_ap and d_an (T,) of the triplets chosen by looking at D (B, R), and their indices a, p, n."""
    if distance in EUCLIDEAN:
        return _ChosenEuclidean.apply(z, refs, distance == "sqeuclidean", choose)
    D = get_distance(distance)(z, refs)
    a, p, n = choose(D.detach())
    return D[a, p], D[a, n], a, p, n


def at_once(z: Tensor, refs: Tensor) -> bool:
    """Whether the distances of embeddings (B, p) to references (R, p) are one block."""
    return len(z) <= max(MIN_ROWS, BLOCK // max(len(refs), 1))


def blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Consecutive rows of a matrix, as many at a time as stay in a cache, in parts of about equal size."""
    most = max(MIN_ROWS, BLOCK // max(n_columns, 1))
    step = max(1, -(-n_rows // max(1, -(-n_rows // most))))
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


class _WithSlopes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, D: Tensor, f: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        value, C = f(D.detach())
        ctx.f = f
        ctx.save_for_backward(D, C)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        D, C = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            _, C = ctx.f(D)
        return g * C, None


class _InBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, refs: Tensor, distance: str, f: BlockSlopes) -> Tensor:
        pulls = inner_pulls if distance == "inner" else partial(euclidean_pulls, squared=distance == "sqeuclidean")
        value, dz, drefs = pulls(z, refs, f, *ctx.needs_input_grad[:2])
        ctx.distance, ctx.f = distance, f
        ctx.save_for_backward(z, refs, dz, drefs)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z, refs, *d = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            z, refs = apart(z, refs)
            D = get_distance(ctx.distance)(z, refs)
            _, C = ctx.f(slice(0, len(z)), D)
            return *gradients(D, (z, refs), g * C, ctx.needs_input_grad[:2]), None, None
        return *(None if x is None else g * x for x in d), None, None


def euclidean_pulls(
    z: Tensor, refs: Tensor, f: BlockSlopes, for_z: bool, for_refs: bool, squared: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Σ f of Euclidean distances, or their squares, and its gradients in z and in refs, those that are wanted."""
    centred = Centred.of(z, refs)
    a, b = centred.a, centred.b

    def of_rows(rows: slice) -> tuple[Tensor, Tensor]:
        D = gram_sqdist(z, refs, centred, rows)
        share, W = f(rows, D if squared else D.sqrt_())
        return share, W.mul_(2 if squared else inverse_(D))

    if at_once(z, refs):
        value, W = of_rows(slice(None))
        if refs is z:  # one product for both: the pulls of W and of its transpose
            return value, pulled(W + W.T, a, a) if for_z or for_refs else None, None
        return value, pulled(W, a, b) if for_z else None, pulled(W.T, b, a) if for_refs else None
    value = z.new_zeros(())
    dz, pull, weight = torch.empty_like(z), b.new_zeros(b.shape[::-1]), b.new_zeros(len(b))  # (B, p), (p, R), (R,)
    for rows in blocks(len(z), len(refs)):
        share, W = of_rows(rows)
        value += share
        if for_z:
            dz[rows] = pulled(W, a[rows], b)
        if for_refs:
            pull.addmm_(a[rows].T, W)
            weight += W.sum(0)
    return value, dz if for_z else None, torch.addcmul(-pull.T, weight[:, None], b) if for_refs else None


def inner_pulls(
    z: Tensor, refs: Tensor, f: BlockSlopes, for_z: bool, for_refs: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The same for D = −z rᵀ, whose slopes W pull by −W r and −Wᵀz."""
    if at_once(z, refs):
        value, W = f(slice(None), (z @ refs.T).neg_())
        if refs is z:  # one product for both: the pulls of W and of its transpose
            return value, (W + W.T).neg_() @ z if for_z or for_refs else None, None
        return value, (W @ refs).neg_() if for_z else None, (W.T @ z).neg_() if for_refs else None
    value, dz, pull = z.new_zeros(()), torch.empty_like(z), refs.new_zeros(refs.shape[::-1])  # (B, p), (p, R)
    for rows in blocks(len(z), len(refs)):
        share, W = f(rows, (z[rows] @ refs.T).neg_())
        value += share
        if for_z:
            torch.mm(W, refs, out=dz[rows]).neg_()
        if for_refs:
            pull.addmm_(z[rows].T, W, alpha=-1)
    return value, dz if for_z else None, pull.T if for_refs else None


class _ChosenEuclidean(torch.autograd.Function):
    """Only as many slopes as chosen pairs: the pull is a sparse product, O(T p)."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, refs: Tensor, squared: bool, choose: Callable[[Tensor], Triples]
    ) -> tuple[Tensor, ...]:
        D = gram_sqdist(z, refs, Centred.of(z, refs))
        a, p, n = choose(D if squared else D.sqrt_())
        d = D[a, p], D[a, n]
        ctx.squared = squared
        ctx.save_for_backward(z, refs, a, p, n, *d)
        ctx.mark_non_differentiable(a, p, n)
        return *d, a, p, n

    @staticmethod
    def backward(ctx: Any, g_ap: Tensor, g_an: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        z, refs, a, p, n, *d = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients will be differentiated again
            (z, refs), name = apart(z, refs), "sqeuclidean" if ctx.squared else "euclidean"
            both = torch.cat([paired(name, z[a], refs[p]), paired(name, z[a], refs[n])])
            return *gradients(both, (z, refs), torch.cat([g_ap, g_an]), ctx.needs_input_grad[:2]), None, None
        slopes = torch.cat([g_ap, g_an])  # (2T,)
        slopes.mul_(2 if ctx.squared else inverse_(torch.cat(d)))
        W = sparse(torch.cat([a, a]), torch.cat([p, n]), slopes, len(z), len(refs))
        centred = Centred.of(z, refs)
        dz = pulled(W, centred.a, centred.b) if ctx.needs_input_grad[0] else None
        return dz, pulled(W.t(), centred.b, centred.a) if ctx.needs_input_grad[1] else None, None, None


def apart(*tensors: Tensor) -> list[Tensor]:
    """The same tensors as different nodes of a graph: gradients then tell two arguments apart that are one tensor."""
    return [x.view_as(x) for x in tensors]


def gradients(y: Tensor, xs: Sequence[Tensor], g: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """gᵀ ∂y/∂x for the x that are wanted, None for the others, with a graph."""
    found = iter(torch.autograd.grad(y, [x for x, w in zip(xs, wanted) if w], g, create_graph=True))
    return [next(found) if w else None for w in wanted]


def sparse(i: Tensor, j: Tensor, values: Tensor, *shape: int) -> Tensor:
    """The sparse matrix of the values at (i, j); those at the same place add up."""
    return torch.sparse_coo_tensor(torch.stack([i, j]), values, shape, check_invariants=False)


def inverse_(D: Tensor) -> Tensor:
    """1 / D in place, 0 where two points coincide: there the gradient of a distance is set to zero."""
    return D.reciprocal_().nan_to_num_(posinf=0.0)
