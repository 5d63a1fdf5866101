"""The moving average of weights, which is often the better network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from isometry.deep.objective import Step


class WeightAverage:
    """An exponential moving average of the weights of model and objective.

        w̄ ← d_t w̄ + (1 − d_t) w,    d_t = min(d, (1 + t)/(10 + t))    after update t

    Weights are averaged, and so is what the model counts along, such as the means of batch normalisation. Whole
    numbers, and what the objective keeps besides its weights, such as a memory of embeddings, are those of the moment.

    Parameters
    ----------
    step : Step
        Model and objective.
    decay : float
        The decay d, in [0, 1).
    """

    def __init__(self, step: Step, decay: float):
        self.step, self.decay, self.updates = step, decay, 0
        self.live = [*step.parameters(), *(b for b in step.model.buffers() if b.is_floating_point())]
        self.mean = [w.detach().clone() for w in self.live]

    @torch.no_grad()
    def update(self) -> None:
        """Take the present weights in."""
        self.updates += 1
        weight = 1 - min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.mean, [w.detach() for w in self.live], weight)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which the network has the averaged weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the weights of the moment and the average."""
        for live, mean in zip(self.live, self.mean):
            held = live.clone()
            live.copy_(mean)
            mean.copy_(held)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"updates": self.updates, "mean": [m.detach().cpu().clone() for m in self.mean]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put back what `state_dict` gave."""
        self.updates = state["updates"]
        for mean, saved in zip(self.mean, state["mean"], strict=True):
            mean.copy_(saved)
