"""Parts of a network by their names: learning rates of their own, and parts that are frozen for a while."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn


def inside(name: str, prefix: str) -> bool:
    """Whether a parameter or module is the part of this name, or in it."""
    return name == prefix or name.startswith(f"{prefix}.")


def check_parts(model: nn.Module, prefixes: Iterable[str], setting: str) -> None:
    """An error for a part that the model does not have; it names the nearest."""
    names = [name for name, _ in model.named_parameters()]
    for prefix in prefixes:
        if not any(inside(name, prefix) for name in names):
            parts = sorted({".".join(name.split(".")[:k]) for name in names for k in range(1, name.count(".") + 2)})
            near = difflib.get_close_matches(prefix, parts, 1, cutoff=0)
            first = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise ValueError(f"{setting}: the model has no part {prefix!r}; its parts are {first}, and the nearest "
                             f"name is {near[0]!r}" if near else f"{setting}: the model has no parameters")  # fmt: skip


# -- learning rates ----------------------------------------------------------------------------------------------------


def model_groups(
    model: nn.Module, lr: float, weight_decay: float, factors: Mapping[str, float] | None, layer_decay: float | None
) -> list[dict[str, Any]]:
    """Optimiser groups of the parameters to be trained: one for each learning rate, in the order of the model.

    Parameters
    ----------
    model : nn.Module
        The network.
    lr : float
        Its learning rate.
    weight_decay : float
        Its weight decay.
    factors : dict or None
        Factors of the learning rate, by the name of a part; of several that hold a parameter the longest name counts.
        None: 1 for all.
    layer_decay : float or None
        Factor from layer to layer, see `depths`; None: 1.
    """
    check_parts(model, factors or {}, "lr_groups")
    depth = {} if layer_decay is None else depths(model)
    deepest = max(depth.values(), default=0)
    groups: dict[float, dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        near = max((prefix for prefix in factors or {} if inside(name, prefix)), key=len, default=None)
        factor = 1.0 if factors is None or near is None else factors[near]
        if layer_decay is not None:
            factor *= layer_decay ** (deepest - depth[name])
        group = groups.setdefault(factor, {"params": [], "lr": lr * factor, "weight_decay": weight_decay})
        group["params"].append(parameter)
    return list(groups.values())


def depths(model: nn.Module) -> dict[str, int]:
    """How deep each parameter lies by the longest stack of layers of one kind, such as the blocks of a transformer.

    What comes before the stack, such as embeddings, has depth 0, layer k has k + 1, and what comes after has one more
    than the last.
    """
    stack, length = longest_stack(model, "layer_decay")
    found, begun = {}, False
    for name, _ in model.named_parameters():
        within = inside(name, stack) or not stack
        begun = begun or within
        layer = int(name.removeprefix(stack).lstrip(".").partition(".")[0]) + 1 if within else None
        found[name] = layer if layer is not None else (length + 1) * begun
    return found


def longest_stack(model: nn.Module, user: str) -> tuple[str, int]:
    """Name and length of the longest stack of layers of one kind; an error, in the name of its user, if none is."""
    stacks = {
        name: len(module)
        for name, module in model.named_modules()
        if isinstance(module, (nn.ModuleList, nn.Sequential))
        and len({type(m) for m in module}) == 1
        and len(module) > 1
    }
    if not stacks:
        raise ValueError(f"{user} needs a stack of layers of one kind, as transformers have; this model has none")
    name = max(stacks, key=lambda name: stacks[name])
    return name, stacks[name]


# -- freezing ----------------------------------------------------------------------------------------------------------


class Freezing:
    """Parts of a model that do not change before some epoch: neither weights nor what batch normalisation counts.

    Parameters
    ----------
    model : nn.Module
        The network.
    parts : sequence of str
        Names of its parts.
    until : int, sequence of int or None
        Epochs done when each part begins to learn; one number for all, or None for never.
    shared : bool, default=False
        Whether several processes train; then gradients of frozen parts are computed and dropped, as which parameters
        have one must not change after the processes have agreed on it.
    """

    def __init__(self, model: nn.Module, parts: Sequence[str], until: int | Sequence[int] | None, shared: bool = False):
        check_parts(model, parts, "freeze")
        whens = [until] * len(parts) if until is None or isinstance(until, int) else list(until)
        if len(whens) != len(parts):
            raise ValueError(f"unfreeze_at has {len(whens)} epochs for {len(parts)} frozen parts: give one for each")
        self.model, self.until, self.shared = model, dict(zip(parts, whens)), shared
        self.trained = {name for name, p in model.named_parameters() if p.requires_grad}
        self.frozen: list[str] = []  # parts, at the moment

    def begin(self, epoch: int) -> None:
        """Freeze and unfreeze for an epoch, with the model in training mode."""
        if not self.until:
            return
        self.frozen = [part for part, when in self.until.items() if when is None or epoch < when]
        for name, parameter in self.model.named_parameters():
            learns = name in self.trained and not self.is_frozen(name)
            parameter.requires_grad_(learns or (self.shared and name in self.trained and self.until_some_epoch(name)))
        for name, module in self.model.named_modules():
            if self.is_frozen(name):
                module.training = False

    def is_frozen(self, name: str) -> bool:
        """Whether a parameter or module is in a part that is frozen."""
        return any(inside(name, part) for part in self.frozen)

    def until_some_epoch(self, name: str) -> bool:
        """Whether it is in parts that begin to learn one day."""
        return all(when is not None for part, when in self.until.items() if inside(name, part))

    def drop_gradients(self) -> None:
        """Leave frozen parts without a gradient, so that the optimiser passes them over."""
        if self.frozen and self.shared:
            for name, parameter in self.model.named_parameters():
                if self.is_frozen(name):
                    parameter.grad = None

    def end(self) -> None:
        """Leave the model as trainable as it was."""
        if self.until:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(name in self.trained)
