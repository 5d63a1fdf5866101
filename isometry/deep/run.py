"""The state of a training run that is not a tensor: counts, means of the epoch, history, the best so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

NOT_FINITE = (
    "the loss or its gradient was NaN or infinite in {} steps in a row, up to step {} in epoch {}; lower lr, set "
    "clip_norm, or look for bad samples"
)
COLUMNS = (  # of the history; NaN where not measured
    *("loss", "active", "skipped", "lr", "grad_norm", "rank", "recall@1", "map@r"),
    *("norm", "d_ap", "d_an", "contrast"),  # of the last batch of the epoch
)
LESS_IS_BETTER = ("loss", "active", "skipped", "grad_norm", "d_ap")
CLOSE_EPOCHS = 3  # in which embeddings may be too close together: many runs begin so, and recover
CLOSE_SHARE = 0.2  # of the norm: negative pairs nearer than that are close together
SHRUNK_SHARE = 0.1  # of the norm in the first epoch


@dataclass
class Run:
    """Where training stands."""

    epoch: int = 0  # epochs done
    batch: int = 0  # batches done of the next
    step: int = 0  # updates done in all
    bad_steps: int = 0  # in a row
    skipped: int = 0  # bad steps of the epoch
    best: float = -math.inf
    best_epoch: int = 0  # none yet
    stop_reason: str | None = None
    failed: bool = False  # stopped by a guard
    geometry: dict[str, float] = field(default_factory=dict)  # of the last batch, if the run was saved after it
    sums: dict[str, list[float]] = field(default_factory=dict)  # [sum, count] of the epoch
    history: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})

    def record(
        self, batches: int, loss: float, active: float | None, good: bool, grad_norm: float | None = None
    ) -> None:
        """Take a step into the counts; a step that is not good changed nothing."""
        self.step, self.batch = self.step + 1, self.batch + batches
        self.bad_steps = 0 if good else self.bad_steps + 1
        self.skipped += not good
        for name, value in (("loss", loss), ("active", active), ("grad_norm", grad_norm)):
            if good and value is not None:
                total, n = self.sums.get(name, (0.0, 0))
                self.sums[name] = [total + value, n + 1]

    def fail(self, reason: str) -> None:
        """Stop: a guard has found something wrong."""
        self.stop_reason, self.failed = reason, True

    def mean(self, name: str) -> float:
        """The mean of the epoch so far; NaN if nothing was counted."""
        total, n = self.sums.get(name, (0.0, 0))
        return total / n if n else math.nan

    def status(self) -> str:
        """For a progress bar."""
        shown = {"loss": self.mean("loss"), "active": self.mean("active")}
        shown |= {name: self.history[name][-1] for name in ("recall@1", "map@r") if self.epoch}
        return ", ".join(f"{name} {value:.4g}" for name, value in shown.items() if not math.isnan(value))

    def close_epoch(self, row: dict[str, float]) -> None:
        """Write a row of the history and begin a new epoch."""
        for name in COLUMNS:
            column = self.history.setdefault(name, [math.nan] * self.epoch)  # a checkpoint may have fewer
            column.append(row.get(name, math.nan))
        self.epoch, self.batch, self.skipped, self.sums, self.geometry = self.epoch + 1, 0, 0, {}, {}

    def indistinct(self, min_contrast: float, unit_length: bool) -> bool:
        """Whether the loss has not been able to tell the embeddings apart for some epochs, and they do not part.

        Its contrast is low, and negative pairs are close by the size of embeddings, or these have shrunk to a tenth. A
        low contrast alone may come from labels that have nothing to do with the samples.
        """
        if self.epoch < CLOSE_EPOCHS:
            return False
        contrast, d_an, norm = (self.history[name][-CLOSE_EPOCHS:] for name in ("contrast", "d_an", "norm"))
        close = all(d < CLOSE_SHARE * (1.0 if unit_length else n) for d, n in zip(d_an, norm))
        shrunk = not unit_length and all(n < SHRUNK_SHARE * self.history["norm"][0] for n in norm)
        unseen = all(c < min_contrast for c in contrast)
        return unseen and (close or shrunk) and d_an[-1] <= d_an[0]  # where one is NaN: no

    def scores(self, monitor: str) -> list[float]:
        """A column of the history such that more is better; the number of the epoch if what counts is being last."""
        if monitor == "last":
            return [float(epoch) for epoch in range(1, self.epoch + 1)]
        return [-value if monitor in LESS_IS_BETTER else value for value in self.history[monitor]]

    def improved(self, monitor: str, min_delta: float = 0.0) -> bool:
        """Whether the last epoch is the best so far, by more than ``min_delta``; it is kept."""
        score = self.scores(monitor)[-1]
        if self.failed or not score > self.best + min_delta:  # NaN is no improvement
            return False
        self.best, self.best_epoch = score, self.epoch
        return True
