"""Embeddings of all processes in one batch, with gradient.

Every process computes the loss of the whole batch. In backward the gradients that reach a process's rows are summed
over the processes; ``DistributedDataParallel`` then averages the parameters' gradients, and both the backbone's and
the loss's own come out as those of one process that holds the whole batch.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from isometry.deep.functional import first_derivative_only


class _Gather(torch.autograd.Function):
    """Rows of all processes, in rank order; gradient summed over processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = x.new_zeros(max(sizes), *x.shape[1:])  # collectives want equal shapes
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:n] for part, n in zip(parts, sizes)])

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None]:
        G = G.contiguous()
        dist.all_reduce(G)
        return G.split(ctx.sizes)[dist.get_rank()], None


def is_distributed() -> bool:
    """Whether there is a process group of more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def end_process(code: int = 0) -> NoReturn:
    """Leave the process group, if there is one, and end this process now, with its output written.

    The threads of gloo outlive the group where ``DistributedDataParallel`` was used. One that lets go of a tensor of
    Python's while the interpreter shuts down aborts the process, though its work is done ("terminate called without
    an active exception"). So the interpreter is not shut down: functions of `atexit` run, buffers are written, no more.
    """
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def gather(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Each tensor (n, …) with the rows of all processes (Σ n, …), in rank order; n may differ between processes.

    A single process gets its tensors back. All processes must call it, with tensors of the same kind.

    Parameters
    ----------
    *tensors : Tensor
        Tensors (n, …) with as many rows each.

    Returns
    -------
    tuple of Tensor
        The rows of all processes, with gradient.

    Notes
    -----
    Costs one exchange of all rows between processes.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import gather
    >>> z, y = gather(torch.eye(2), torch.tensor([0, 1]))  # one process alone
    >>> z.shape, y.tolist()
    (torch.Size([2, 2]), [0, 1])
    """
    if not is_distributed():
        return tensors
    n = torch.tensor([len(tensors[0])], device=tensors[0].device)
    counts = [torch.empty_like(n) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, n)
    sizes = [int(c) for c in counts]
    return tuple(_Gather.apply(x, sizes) for x in tensors)


@contextmanager
def first_stream(device: torch.device) -> Iterator[None]:
    """A block in which all processes of a group draw from torch's generator what the first of them draws.

    The first goes on from there, the others from where they were. All processes must enter the block.
    """
    generator: Any = torch if device.type == "cpu" else torch.get_device_module(device)
    own = generator.get_rng_state()
    shared = own.to(device, copy=True)
    dist.broadcast(shared, 0)
    try:
        generator.set_rng_state(shared.cpu())
        yield
    finally:
        if dist.get_rank():
            generator.set_rng_state(own)


class Gathered(nn.Module):
    """A loss of the batches of all processes together.

    Wrap it, with the model, in ``DistributedDataParallel``. Miners that draw at random must be given a
    ``random_state``, the same everywhere.

    Parameters
    ----------
    loss : nn.Module
        The loss of embeddings and labels.

    Notes
    -----
    For training loops of your own; a `Trainer` gathers by itself. Every process computes the loss of the whole batch:
    O(B²) for all of them, B the sum of their batches.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Gathered, Triplet
    >>> Gathered(Triplet())(torch.eye(4), torch.tensor([0, 0, 1, 1])).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss = loss

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of the rows of all processes.

        Parameters
        ----------
        z : Tensor
            Embeddings (n, p) of this process.
        y : Tensor
            Labels (n,) of this process.

        Returns
        -------
        Tensor
            The scalar, the same in all processes.
        """
        return self.loss(*gather(z, y))
