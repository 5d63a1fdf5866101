"""Model, objective, optimiser and batches, placed on their device by Accelerate: the moving parts of a trainer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import send_to_device
from torch import nn
from torch.utils.data import DataLoader

from isometry.deep.averages import WeightAverage
from isometry.deep.batches import batches_of, plan_of
from isometry.deep.checkpoint import CheckpointError, load_weights, rng_state, seed_of_process, seed_rng, set_rng_state
from isometry.deep.objective import Step, TrainingObjective, parameter_groups
from isometry.deep.parts import Freezing, model_groups
from isometry.deep.settings import Optimization


def make_accelerator(precision: str, device: str | None) -> Accelerator:
    """An accelerator with this precision, whatever the one before it in this process had."""
    AcceleratorState._reset_state()  # a singleton; the process group is kept elsewhere
    # told so, Accelerate forms a group of CPU processes; otherwise each would train alone
    cpu = device == "cpu" or not torch.accelerator.is_available()
    if precision == "auto":
        precision = "bf16" if not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported(False) else "no"
    return Accelerator(cpu=cpu, mixed_precision=precision)


class Engine:
    """Turns batches into gradients and gradients into updates, and says where it stands.

    Each process has random numbers of its own: the samples of one must not get the dropout and the augmentation of
    those of another. The first has those of a run without others.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        objective: TrainingObjective,
        loader: DataLoader[Any],
        optimization: Optimization,
        random_state: int,
    ):
        self.accelerator, self.objective, self.loader = accelerator, objective, loader
        self.optimization, self.random_state = optimization, random_state
        self.plan, self.items_per_batch = plan_of(loader)
        self.module = Step(model, objective)
        factors, decay = optimization.lr_groups, optimization.layer_decay
        groups = model_groups(model, optimization.lr, optimization.weight_decay, factors, decay)
        groups += parameter_groups(objective, optimization.lr)
        if not groups:
            raise ValueError("nothing to train: neither model nor objective has parameters that need gradients")
        self.lrs = [group["lr"] for group in groups]
        self.parameters = [p for group in groups for p in group["params"]]
        shared = accelerator.num_processes > 1
        self.freezing = Freezing(model, optimization.freeze, optimization.unfreeze_at, shared)
        self.freezing.begin(0)  # before Accelerate looks which parameters have a gradient
        self.slower = 1.0  # factor of the learning rate after plateaus
        self.grad_norm: float | None = None  # of the last update
        self.step, self.optimizer = accelerator.prepare(self.module), optimization.make_optimizer(groups)
        if accelerator.scaler is not None:  # Accelerate's optimiser asks at every step what is installed, which costs
            self.optimizer = accelerator.prepare(self.optimizer)
        self.on_cpu, self.alone = accelerator.device.type == "cpu", not shared  # asked at every step
        self.average = None if optimization.ema is None else WeightAverage(self.module, optimization.ema)
        if self.rank:
            seed_rng(seed_of_process(random_state, self.rank))

    def groups(self, epoch: int, start: int) -> Iterator[list[Any]]:
        """The batches of an epoch from batch ``start`` on, as many at a time as make one update."""
        self.step.train()
        self.freezing.begin(epoch)
        if self.plan is not None:
            self.plan.set_epoch(epoch)
        if self.loader.generator is not None:
            self.loader.generator.manual_seed(seed_of_process(self.random_state + epoch, self.rank))
        before = rng_state()
        batches = iter(batches_of(self.loader))
        if start:
            set_rng_state(before)  # the loader draws a seed where an epoch begins, and this one has begun already
        while group := list(itertools.islice(batches, self.optimization.accumulate)):
            yield group

    def set_lr(self, share: float) -> None:
        """The learning rates after a share of all updates."""
        factor = self.optimization.lr_factor(share) * self.slower
        for group, lr in zip(self.optimizer.param_groups, self.lrs):
            group["lr"] = lr * factor

    def backward(self, group: list[Any]) -> tuple[float, float | None]:
        """Gradients of the mean loss of some batches; that mean, and the share of samples that got a gradient.

        The list is empty then: memory of a batch that is held while the next one is read cannot be used for that.
        """
        total, active, n = 0.0, [], len(group)
        while group:
            batch = group.pop(0)
            with nullcontext() if not group else self.accelerator.no_sync(self.step):
                loss = self.step(batch if self.on_cpu else send_to_device(batch, self.accelerator.device))
                loss = loss if n == 1 else loss / n
                loss.backward() if self.accelerator.scaler is None else self.accelerator.backward(loss)
            total += float(loss.detach())
            share = getattr(self.objective, "active", None)
            if share is not None:
                active.append(float(share))
        return total, sum(active) / len(active) if active else None

    def update(self, loss: float) -> bool:
        """A step along the gradient; none, and False, if it or the loss is not finite in some process."""
        self.freezing.drop_gradients()
        norm = self._clip()
        # in fp16 the gradient scaler skips what is not finite by itself
        finite = math.isfinite(loss) and (self.accelerator.scaler is not None or math.isfinite(norm))
        self.grad_norm = norm if finite else None
        good = not self.any(not finite)
        if good:
            self.optimizer.step()
            if self.average is not None:
                self.average.update()
        self.optimizer.zero_grad()
        return good

    def _clip(self) -> float:
        """The norm of the gradient, after it has been cut to the largest that is allowed."""
        if self.accelerator.scaler is not None:
            self.accelerator.unscale_gradients()
        if self.optimization.clip_norm is not None:
            return float(nn.utils.clip_grad_norm_(self.parameters, self.optimization.clip_norm))
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if not self.on_cpu:  # where reading a number waits for the device: once
            return float(nn.utils.get_total_norm(gradients)) if gradients else 0.0
        return math.hypot(*[norm.item() for norm in torch._foreach_norm(gradients)]) if gradients else 0.0

    def averaged(self) -> AbstractContextManager[None]:
        """A block in which the network has the averaged weights, if there is an average."""
        return nullcontext() if self.average is None else self.average.in_place()

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self.accelerator.process_index

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in some process."""
        return self.mean(float(flag)) > 0

    def mean(self, value: float) -> float:
        """The mean over the processes."""
        if self.alone:
            return value
        there = torch.tensor(value, dtype=torch.float64, device=self.accelerator.device)
        return float(self.accelerator.reduce(there, "mean"))

    def weights(self) -> dict[str, torch.Tensor]:
        """A copy of the weights of model and objective, on the CPU."""
        return {k: v.detach().cpu().clone() for k, v in self.module.state_dict().items()}

    def state(self, batches_done: int) -> dict[str, Any]:
        """All that the next step depends on and that is the same in all processes."""
        scaler = self.accelerator.scaler
        return {
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "sampler": None if self.plan is None else self.plan.state_dict(batches_done * self.items_per_batch),
        }

    def load_state(self, state: dict[str, Any], path: Any) -> None:
        """Put back what `state` gave; of another model, refuse before anything is changed."""
        load_weights(self.module, state["weights"], path)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.average is not None:
            if state.get("average") is None:
                raise CheckpointError(f"{path} is of a run without ema: continue it without, or begin anew with it")
            self.average.load_state_dict(state["average"])
        if self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        if self.plan is not None:
            self.plan.load_state_dict(state["sampler"])
