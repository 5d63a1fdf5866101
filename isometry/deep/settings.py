"""Settings of a trainer, in groups that belong together, and which of them a flat keyword belongs to."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from isometry.deep.run import COLUMNS
from isometry.deep.schedules import SCHEDULES, Plateau
from isometry.parameters import Count, Iterations, NotNegative, Positive, PositiveShare, Share, check_parameters, one_of

OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
}


@dataclass(frozen=True)
class Optimization:
    """How weights follow the gradient.

    Parameters
    ----------
    lr, weight_decay : of the model; a loss sets the learning rate of its own parameters and has no weight decay
    optimizer : "adamw", "sgd", or ``groups → Optimizer``
    schedule : "cosine", "linear", "constant", "onecycle", "wsd" (stable, then down in the last fifth), "step" (a tenth
        after half of the steps, a hundredth after three quarters), "plateau" or a `Plateau` (down where ``monitor`` has
        not improved), or factor of the learning rate by the share of the steps done
    warmup : share of the steps in which the learning rate rises from zero
    lr_groups : factors of the learning rate by the name of a part of the model: ``{"backbone": 0.1}``
    layer_decay : factor of the learning rate from a layer to the one before it, in the model's longest stack of layers
    freeze : names of parts of the model that do not change, ``("backbone",)``: neither their weights nor the means that
        batch normalisation counts
    unfreeze_at : epoch after which frozen parts learn, or one for each of them; None: never
    ema : decay of a moving average of the weights, such as 0.999, in the first steps at most (1 + t)/(10 + t) after t
        of them; the averaged network is then the one that is measured and kept
    clip_norm : largest norm of the gradient
    accumulate : batches whose mean loss makes one update. Pairs are compared within a batch only; to compare more,
        take more processes or a ``CrossBatchMemory``
    """

    lr: NotNegative = 1e-3
    weight_decay: NotNegative = 1e-4
    optimizer: str | Callable[[list[dict[str, Any]]], torch.optim.Optimizer] = "adamw"
    schedule: str | Plateau | Callable[[float], float] = "cosine"
    warmup: Share = 0.0
    lr_groups: Mapping[str, float] | None = None
    layer_decay: PositiveShare | None = None
    freeze: str | Sequence[str] = ()
    unfreeze_at: int | Sequence[int] | None = None
    ema: Share | None = None
    clip_norm: Positive | None = None
    accumulate: Count = 1

    def __post_init__(self) -> None:
        check_parameters(self)
        if not math.isfinite(self.lr):
            raise ValueError(f"lr={self.lr!r} must be finite, such as 0.001")
        if isinstance(self.optimizer, str):
            one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        if isinstance(self.schedule, str):
            one_of("schedule", self.schedule, (*SCHEDULES, "plateau"))
        if isinstance(self.freeze, str):
            object.__setattr__(self, "freeze", (self.freeze,))
        if self.unfreeze_at is not None and not self.freeze:
            raise ValueError("unfreeze_at says when frozen parts begin to learn: name them in freeze")
        bad = [f"{part}: {factor!r}" for part, factor in (self.lr_groups or {}).items() if not factor >= 0]
        if bad:
            raise ValueError(f"lr_groups holds factors of the learning rate, which must not be negative: {bad[0]}")
        if self.ema == 1:
            raise ValueError("ema=1 would keep the first weights for ever: choose a decay below 1, such as 0.999")

    def make_optimizer(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimiser of these groups of parameters."""
        return (OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer)(groups)

    @property
    def plateau(self) -> Plateau | None:
        """The schedule, if it waits for a plateau."""
        return (
            Plateau() if self.schedule == "plateau" else self.schedule if isinstance(self.schedule, Plateau) else None
        )

    def lr_factor(self, share: float) -> float:
        """Factor of the learning rate after a share of the steps."""
        warm = min(1.0, share / self.warmup) if self.warmup else 1.0
        if isinstance(self.schedule, Plateau) or self.schedule == "plateau":
            return warm
        return warm * (SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule)(share)


@dataclass(frozen=True)
class Batches:
    """What a batch and an epoch are made of.

    Parameters
    ----------
    classes_per_batch, samples_per_class : P, K; without labels a batch has P · K samples
    batches_per_epoch : by default, and always without labels, an epoch is all samples
    bucket : batches of texts that are dealt out by length together, so that those of a batch need little padding; with
        labels each class deals out its own; 0: not at all
    prompts : text that is put before every text of a column, by its name
    workers : processes that load data
    """

    classes_per_batch: Count = 8
    samples_per_class: Count = 8
    batches_per_epoch: Count | None = None
    bucket: Iterations = 50
    prompts: Mapping[str, str] | None = None
    workers: Iterations = 0

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True)
class Stopping:
    """When training ends, and which weights it keeps.

    Parameters
    ----------
    max_epochs : length of training
    monitor : what chooses the epoch whose weights are put back in the end: a column of the history, such as "map@r",
        "recall@1" or "loss", or "last". Of loss, active, skipped, grad_norm and d_ap less is better, of others more
    patience : epochs without improvement before training stops; None: no limit
    min_delta : what counts as an improvement must be larger
    restore : weights that the model has in the end: "best" by the monitor, "last", or "ema", the last average
    min_rank, min_active : stop when the effective rank of the embeddings falls below (0: one point, 1: a line), or when
        no larger share of the samples gets a gradient
    min_contrast : stop when embeddings come so close together that the loss stays at that of one point, such as the
        margin of a triplet loss: when twice their differences would change it by a smaller share; 0: never
    max_bad_steps : stop after so many steps in a row with a loss or gradient that is not finite; they change no weight
    """

    max_epochs: Count = 20
    monitor: str = "map@r"
    patience: Count | None = None
    min_delta: NotNegative = 0.0
    restore: str = "best"
    min_rank: float = 1.0
    min_active: float = 0.0
    min_contrast: float = 0.05
    max_bad_steps: Count = 3

    def __post_init__(self) -> None:
        check_parameters(self)
        one_of("monitor", self.monitor, (*COLUMNS, "last"))
        one_of("restore", self.restore, ("best", "last", "ema"))


@dataclass(frozen=True)
class Hardware:
    """Where and in which arithmetic the model is computed.

    Parameters
    ----------
    device : None for an accelerator if there is one, or "cpu"
    precision : "no", "bf16", "fp16", or "auto", which is bf16 on an accelerator that has it, of the model; losses are
        computed in float32
    compile : compile the model
    """

    device: str | None = None
    precision: str = "no"
    compile: bool = False

    def __post_init__(self) -> None:
        one_of("precision", self.precision, ("no", "bf16", "fp16", "auto"))


@dataclass(frozen=True)
class Saving:
    """Which checkpoints are written to the folder.

    Parameters
    ----------
    save_every : updates between two checkpoints, beside the one after each epoch; None: no others
    keep : newest checkpoints that are kept by the number of their updates too, ``step-1200.safetensors``; 0: none
    """

    save_every: Count | None = None
    keep: Iterations = 0

    def __post_init__(self) -> None:
        check_parameters(self)


GROUPS = {
    "optimization": Optimization,
    "batches": Batches,
    "stopping": Stopping,
    "hardware": Hardware,
    "saving": Saving,
}
GROUP_OF = {field.name: group for group, kind in GROUPS.items() for field in fields(kind)}  # of each flat keyword


def check_known(name: str, others: Iterable[str]) -> None:
    """An error for a keyword that is in no group; it names the closest one, also among ``others`` that are known."""
    if name not in GROUP_OF:
        close = difflib.get_close_matches(name, [*GROUP_OF, *others], 1, cutoff=0)
        raise TypeError(f"Trainer has no parameter {name!r}; the closest is {close[0]!r}")
