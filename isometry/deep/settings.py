"""Settings of a trainer, in groups that belong together, and which of them a flat keyword belongs to."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

import torch

from isometry.parameters import Count, Iterations, NotNegative, Positive, Share, check_parameters, one_of

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
}
SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the steps done → factor of the learning rate
    "constant": lambda t: 1.0,
    "cosine": lambda t: (1 + math.cos(math.pi * t)) / 2,
    "linear": lambda t: 1 - t,
}


@dataclass(frozen=True)
class Optimization:
    """How weights follow the gradient.

    Parameters
    ----------
    lr, weight_decay : of the model; a loss sets the learning rate of its own parameters and has no weight decay
    optimizer : "adamw", "sgd", or ``groups → Optimizer``
    schedule : "cosine", "linear", "constant", or factor of the learning rate by the share of the steps done
    warmup : share of the steps in which the learning rate rises from zero
    clip_norm : largest norm of the gradient
    accumulate : batches whose mean loss makes one update. Pairs are compared within a batch only; to compare more,
        take more processes or a ``CrossBatchMemory``
    """

    lr: NotNegative = 1e-3
    weight_decay: NotNegative = 1e-4
    optimizer: str | Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = "adamw"
    schedule: str | Callable[[float], float] = "cosine"
    warmup: Share = 0.0
    clip_norm: Positive | None = None
    accumulate: Count = 1

    def __post_init__(self) -> None:
        check_parameters(self)
        if not math.isfinite(self.lr):
            raise ValueError(f"lr={self.lr!r} must be finite, such as 0.001")
        if isinstance(self.optimizer, str):
            one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        if isinstance(self.schedule, str):
            one_of("schedule", self.schedule, tuple(SCHEDULES))

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser of these groups of parameters."""
        return (OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer)(groups)

    def lr_factor(self, share: float) -> float:
        """Factor of the learning rate after a share of the steps."""
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return schedule(share) * (min(1.0, share / self.warmup) if self.warmup else 1.0)


@dataclass(frozen=True)
class Batches:
    """What a batch and an epoch are made of.

    Parameters
    ----------
    classes_per_batch, samples_per_class : P, K; without labels a batch has P · K samples
    batches_per_epoch : by default, and always without labels, an epoch is all samples
    workers : processes that load data
    """

    classes_per_batch: Count = 8
    samples_per_class: Count = 8
    batches_per_epoch: Count | None = None
    workers: Iterations = 0

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True)
class Stopping:
    """When training ends, and which weights it keeps.

    Parameters
    ----------
    max_epochs : length of training
    monitor : what chooses the epoch whose weights are put back in the end: "map@r", "recall@1", "loss", or "last"
    patience : epochs without improvement before training stops; None: no limit
    min_rank, min_active : stop when the effective rank of the embeddings falls below (0: one point, 1: a line), or when
        no larger share of the samples gets a gradient
    min_contrast : stop when embeddings come so close together that the loss stays at that of one point, such as the
        margin of a triplet loss: when twice their differences would change it by a smaller share; 0: never
    max_bad_steps : stop after so many steps in a row with a loss or gradient that is not finite; they change no weight
    """

    max_epochs: Count = 20
    monitor: str = "map@r"
    patience: Count | None = None
    min_rank: float = 1.0
    min_active: float = 0.0
    min_contrast: float = 0.05
    max_bad_steps: Count = 3

    def __post_init__(self) -> None:
        check_parameters(self)
        one_of("monitor", self.monitor, ("map@r", "recall@1", "loss", "last"))


@dataclass(frozen=True)
class Hardware:
    """Where and in which arithmetic the model is computed.

    Parameters
    ----------
    device : None for an accelerator if there is one, or "cpu"
    precision : "no", "bf16" or "fp16", of the model; losses are computed in float32
    compile : compile the model
    """

    device: str | None = None
    precision: str = "no"
    compile: bool = False

    def __post_init__(self) -> None:
        one_of("precision", self.precision, ("no", "bf16", "fp16"))


GROUPS = {"optimization": Optimization, "batches": Batches, "stopping": Stopping, "hardware": Hardware}
GROUP_OF = {field.name: group for group, kind in GROUPS.items() for field in fields(kind)}  # of each flat keyword


def check_known(name: str, others: Iterable[str]) -> None:
    """An error for a keyword that is in no group; it names the closest one, also among ``others`` that are known."""
    if name not in GROUP_OF:
        close = difflib.get_close_matches(name, [*GROUP_OF, *others], 1, cutoff=0)
        raise TypeError(f"Trainer has no parameter {name!r}; the closest is {close[0]!r}")
