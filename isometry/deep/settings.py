"""Settings of a trainer, in groups that belong together, and which of them a flat keyword belongs to."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from isometry.deep.run import COLUMNS
from isometry.deep.schedules import SCHEDULES, Plateau
from isometry.parameters import Count, Iterations, NotNegative, Positive, PositiveShare, Share, check_parameters, one_of


def adamw(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    """AdamW, on a CPU in one pass over the weights, which takes less than half of the time of one pass an operation."""
    fused = all(in_one_pass(p) for group in groups for p in group["params"])
    return torch.optim.AdamW(groups, fused=True if fused else None)


def in_one_pass(p: torch.Tensor) -> bool:
    """Whether torch's pass over the weights on a CPU, which reads memory from end to end, is right for a parameter.

    A slice does not fill its memory. One that is transposed does, but moments that come from a file lie row by row.
    """
    if is_lazy(p) or p.device.type != "cpu" or p.layout != torch.strided:
        return False
    return p.is_floating_point() and p.is_contiguous()


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "sgd": lambda groups: torch.optim.SGD(groups, momentum=0.9, nesterov=True),
}


@dataclass(frozen=True)
class Optimization:
    """How weights follow the gradient.

    Parameters
    ----------
    lr : float, default=0.001
        Learning rate of the model; a loss sets that of its own parameters.
    weight_decay : float, default=0.0001
        Weight decay of the model; the parameters of a loss have none.
    optimizer : str or callable, default="adamw"
        "adamw", "sgd", or ``groups → Optimizer``.
    schedule : str, Plateau or callable, default="cosine"
        "cosine", "linear", "constant", "onecycle", "wsd" (stable, then down in the last fifth), "step" (a tenth after
        half of the steps, a hundredth after three quarters), "plateau" or a `Plateau` (down where ``monitor`` has not
        improved), or a function from the share of the steps done to a factor of the learning rate.
    warmup : float, default=0.0
        Share of the steps in which the learning rate rises from zero.
    lr_groups : dict or None, default=None
        Factors of the learning rate by the name of a part of the model: ``{"backbone": 0.1}``; None: 1 for all.
    layer_decay : float or None, default=None
        Factor of the learning rate from a layer to the one before it, in the model's longest stack of layers; None: 1.
    freeze : str or sequence of str, default=()
        Names of parts of the model that do not change, ``("backbone",)``: neither their weights nor the means that
        batch normalisation counts.
    unfreeze_at : int, sequence of int or None, default=None
        Epoch after which frozen parts learn, or one for each of them; None: never.
    ema : float or None, default=None
        Decay of a moving average of the weights, such as 0.999, in the first steps at most (1 + t)/(10 + t) after t of
        them; the averaged network is then the one that is measured and kept. None: no average.
    clip_norm : float or None, default=None
        Largest norm of the gradient; None: any.
    accumulate : int, default=1
        Batches whose mean loss makes one update. Pairs are compared within a batch only; to compare more, take more
        processes or a ``CrossBatchMemory``.

    Notes
    -----
    A group of settings of a `Trainer`, which also takes each by its name: ``Trainer(..., lr=0.01)``. A moving average
    costs a second copy of the weights.

    Examples
    --------
    >>> from isometry.deep import Optimization
    >>> settings = Optimization(lr=0.01, schedule="linear", warmup=0.1)
    >>> settings.lr_factor(0.05) < settings.lr_factor(0.1)
    True
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
        """The optimiser of these groups of parameters.

        Parameters
        ----------
        groups : list of dict
            Groups of parameters, as ``torch.optim`` takes them.

        Returns
        -------
        torch.optim.Optimizer
            The optimiser.
        """
        return (OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer)(groups)

    @property
    def plateau(self) -> Plateau | None:
        """The schedule, if it waits for a plateau."""
        return (
            Plateau() if self.schedule == "plateau" else self.schedule if isinstance(self.schedule, Plateau) else None
        )

    def lr_factor(self, share: float) -> float:
        """Factor of the learning rate after a share of the steps.

        Parameters
        ----------
        share : float
            The share of the steps done, in [0, 1].

        Returns
        -------
        float
            The factor.
        """
        warm = min(1.0, share / self.warmup) if self.warmup else 1.0
        if isinstance(self.schedule, Plateau) or self.schedule == "plateau":
            return warm
        return warm * (SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule)(share)


@dataclass(frozen=True)
class Batches:
    """What a batch and an epoch are made of.

    Parameters
    ----------
    classes_per_batch : int, default=8
        Classes of a batch, P.
    samples_per_class : int, default=8
        Samples of each class in a batch, K; without labels a batch has P · K samples.
    batches_per_epoch : int or None, default=None
        Batches in an epoch; None, and always without labels: as many as it takes for all samples.
    bucket : int, default=50
        Batches of texts that are dealt out by length together, so that those of a batch need little padding; with
        labels each class deals out its own; 0: not at all.
    no_duplicates : bool, default=True
        Of rows of texts without labels or scores, put no text into a batch twice: the other rows are negatives there.
        Where texts repeat so often that it cannot be, there is a warning, and batches are shuffled regardless.
    prompts : dict or None, default=None
        Text that is put before every text of a column, by its name; None: nothing.
    workers : int, default=0
        Processes that load data.

    Notes
    -----
    A group of settings of a `Trainer`, which also takes each by its name: ``Trainer(..., classes_per_batch=16)``.
    Losses of pairs cost O((P K)²) a batch.

    Examples
    --------
    >>> from isometry.deep import Batches
    >>> Batches(classes_per_batch=16).samples_per_class
    8
    """

    classes_per_batch: Count = 8
    samples_per_class: Count = 8
    batches_per_epoch: Count | None = None
    bucket: Iterations = 50
    no_duplicates: bool = True
    prompts: Mapping[str, str] | None = None
    workers: Iterations = 0

    def __post_init__(self) -> None:
        check_parameters(self)


@dataclass(frozen=True)
class Stopping:
    """When training ends, and which weights it keeps.

    Parameters
    ----------
    max_epochs : int, default=20
        Most epochs.
    monitor : str, default="map@r"
        What chooses the epoch whose weights are put back in the end: a column of the history, such as "map@r",
        "recall@1" or "loss", or "last". Of loss, active, skipped, grad_norm and d_ap less is better, of others more.
    patience : int or None, default=None
        Epochs without improvement before training stops; None: no limit.
    min_delta : float, default=0.0
        What an improvement must exceed to count.
    restore : {"best", "last", "ema"}, default="best"
        Weights that the model has in the end: the best by the monitor, the last, or the last average.
    min_rank : float, default=1.0
        Stop when the effective rank of the embeddings falls below this (0: one point, 1: a line).
    min_active : float, default=0.0
        Stop when no larger share of the samples gets a gradient.
    min_contrast : float, default=0.05
        Stop when embeddings come so close together that the loss stays at that of one point, such as the margin of a
        triplet loss: when twice their differences would change it by a smaller share; 0: never.
    max_bad_steps : int, default=3
        Stop after so many steps in a row with a loss or gradient that is not finite; they change no weight.

    Notes
    -----
    A group of settings of a `Trainer`, which also takes each by its name: ``Trainer(..., patience=5)``.

    Examples
    --------
    >>> from isometry.deep import Stopping
    >>> Stopping(max_epochs=100, patience=5).monitor
    'map@r'
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
    device : str or None, default=None
        "cpu", or another name of torch; None: an accelerator if there is one.
    precision : {"no", "bf16", "fp16", "auto"}, default="no"
        Arithmetic of the model; "auto" is bf16 on an accelerator that has it. Losses are computed in float32.
    compile : bool, default=False
        Compile the model.

    Notes
    -----
    A group of settings of a `Trainer`, which also takes each by its name: ``Trainer(..., device="cpu")``.

    Examples
    --------
    >>> from isometry.deep import Hardware
    >>> Hardware(device="cpu").precision
    'no'
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
    save_every : int or None, default=None
        Updates between two checkpoints, beside the one after each epoch; None: no others.
    keep : int, default=0
        Newest checkpoints that are kept by the number of their updates too, ``step-1200.safetensors``; 0: none.

    Notes
    -----
    A group of settings of a `Trainer`, which also takes each by its name: ``Trainer(..., folder="run", keep=3)``. A
    checkpoint is as large as the weights and the state of the optimiser.

    Examples
    --------
    >>> from isometry.deep import Saving
    >>> Saving(save_every=100).keep
    0
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
