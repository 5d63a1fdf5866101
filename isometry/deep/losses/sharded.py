"""A softmax over classes whose directions are spread over processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isometry.deep.functional import first_derivative_only


class ShardedCrossEntropy(torch.autograd.Function):
    """−mean log softmax(x)[y] of logits (B, C) of which this process holds some columns, (B, C_k).

        m_i = max_l x_il,   Z_i = Σ_l e^{x_il − m_i}   over all processes;     slopes (softmax − [l = y_i]) / B

    ``own`` (B,) is the column of the label among those held here, −1 if it is elsewhere. Two collectives of (B,), one
    for the maximum, one for the sum and the own logit. Every process gets the value of the whole; its gradient is that
    of its columns.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: Tensor) -> Tensor:
        top = x.amax(1) if x.shape[1] else x.new_full((len(x),), -torch.inf)
        dist.all_reduce(top, dist.ReduceOp.MAX)
        e = (x - top[:, None]).exp_()
        here = own >= 0
        target = torch.where(here, x.gather(1, own.clamp_min(0)[:, None]).squeeze(1) if x.shape[1] else 0.0, 0.0)
        sums = torch.stack([e.sum(1), target])  # (2, B)
        dist.all_reduce(sums)
        total, target = sums
        rows = here.nonzero().squeeze(1)
        slopes = e.div_(total[:, None])
        slopes[rows, own[rows]] -= 1
        ctx.save_for_backward(slopes.div_(len(x)))
        return (total.log() + top - target).mean()

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return g * slopes, None


class SummedGradient(torch.autograd.Function):
    """The same numbers in all processes, whose gradients are shares of the whole: they are added up in backward."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.view_as(z)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> Tensor:
        G = G.clone()
        dist.all_reduce(G)
        return G


def share_of_classes(count: int) -> slice:
    """The classes that this process holds: as many as any other, or one fewer."""
    rank, world = dist.get_rank(), dist.get_world_size()
    each, more = divmod(count, world)
    first = rank * each + min(rank, more)
    return slice(first, first + each + (rank < more))
