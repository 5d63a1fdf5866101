"""Embeddings of a network's early layers, so that it may be cut to fewer layers after training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from isometry.deep.distributed import gather
from isometry.deep.functional import full_precision, without_autocast
from isometry.deep.gradient_cache import InChunks
from isometry.deep.losses.contrast import SupCon
from isometry.deep.objective import TrainingObjective, as_objective
from isometry.deep.pair_form import PairForm
from isometry.deep.parts import longest_stack
from isometry.deep.wrapper import ObjectiveWrapper
from isometry.parameters import Count, Iterations, NotNegative, Positive, checked


class EarlyLayers(ObjectiveWrapper):
    """Early layers: what a network has found after a part of its layers serves as an embedding, too.

        L(z) + (λ/|S|) Σ_{l∈S} L(z_l) + γ T mean_{l∈S} KL(softmax(z/T) ‖ softmax(z_l/T))

    z_l is the embedding without the layers after l: what the layer gives passes through all that follows the stack,
    norm, pooling and head. S are some layers that are drawn anew at each step. z teaches as a constant. Afterwards
    ``first_layers(model, n)`` is a network of the first n layers alone, and its embeddings are those that were trained.
    Around ``Matryoshka(loss)`` it is the two-dimensional Matryoshka: fewer layers and fewer coordinates.

    Parameters
    ----------
    objective : nn.Module, callable or None, default=None
        A loss L, or an objective such as ``Columns(Ranking())``; None: ``SupCon()``.
    layers : sequence of str or None, default=None
        Names of layers, each in a ``ModuleList`` or ``Sequential``, or of any module if there is ``read``; None: all
        but the last of the longest stack of layers of one kind, as transformers have.
    layers_per_step : int or None, default=1
        Layers that are drawn at each step in training; None: all.
    weight : float, default=1.0
        The weight λ of the early layers.
    teaching : float, default=1.0
        The weight γ of the divergence from the last layer.
    temperature : float, default=0.3
        The temperature T of the softmaxes.
    read : callable or None, default=None
        ``(model, output, x) → (B, p)``, the embedding of a layer's output for samples x; None: that of the network
        without the layers after it.
    random_state : int, default=0
        Seed of the draws, which are those of all processes alike.

    Notes
    -----
    For deep networks that will be run with fewer layers, where time matters more than the last bit of quality. A step
    costs one pass of the network, and for each layer drawn the loss once more, O(B² p) for a loss of pairs, and what
    comes before and after the stack; layers of the stack only if a pass runs them twice or changes in place what they
    gave. What a loss or the network counts, such as the memory of a ``CrossBatchMemory`` or the means of batch
    normalisation, is copied for each layer drawn, so that it stays that of the last layer alone. Not within a
    ``GradientCache``, which keeps no activations.

    References
    ----------
    | X. Li, Z. Li, J. Li, H. Xie, Q. Li, "2D Matryoshka sentence embeddings", arXiv 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import EarlyLayers, InfoNCE, first_layers
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    >>> objective = EarlyLayers(InfoNCE())
    >>> objective(model, (torch.eye(4), torch.tensor([0, 0, 1, 1]))).shape
    torch.Size([])
    >>> len(first_layers(model, 2))
    2
    """

    steps: Tensor

    def __init__(
        self,
        objective: nn.Module | TrainingObjective | None = None,
        layers: Sequence[str] | None = None,
        layers_per_step: int | None = 1,
        weight: float = 1.0,
        teaching: float = 1.0,
        temperature: float = 0.3,
        read: Callable[[Any, Any, Any], Tensor] | None = None,
        random_state: int = 0,
    ):
        objective = SupCon() if objective is None else objective
        if isinstance(objective, PairForm):
            name = type(objective).__name__
            raise TypeError(f"{name} compares columns of embeddings: give EarlyLayers(Columns({name}()))")
        super().__init__(as_objective(objective))
        self.layers = None if layers is None else names_of(layers)
        self.layers_per_step = None if layers_per_step is None else checked("layers_per_step", layers_per_step, Count)
        self.weight, self.teaching = checked("weight", weight, NotNegative), checked("teaching", teaching, NotNegative)
        self.temperature, self.read = checked("temperature", temperature, Positive), read
        self.random_state = checked("random_state", random_state, Iterations)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The objective of a batch, of the network and of some of its early layers.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple or dict
            What the objective takes.

        Returns
        -------
        Tensor
            The scalar.
        """
        if isinstance(model, InChunks):
            raise TypeError("EarlyLayers reads the outputs of layers, which a GradientCache does not keep")
        names = self.names(model)
        watched = list(dict.fromkeys(layer for name in names for layer in up_to(model, name)[1].values()))
        chosen = self.chosen(names)
        objective: Any = self.objective  # which calls what it is given, and asks nothing else of it
        replicas = [with_own_state(objective, model) for _ in chosen]  # of now: all layers find the same state
        calls: list[tuple[Any, Tensor, Outputs]] = []  # samples, embeddings and outputs, pass by pass

        def recorded(x: Any) -> Tensor:
            with outputs_of(watched) as found:
                z: Tensor = model(x)
            calls.append((x, z, found))
            return z

        value: Tensor = objective(recorded, batch)
        with own_random_numbers(z for _, z, _ in calls):
            for name, early in zip(chosen, replicas):
                zs = [self.embedding(model, name, found, x, z) for x, z, found in calls]
                replayed = iter(zs)
                share = early(lambda x, replayed=replayed: next(replayed), batch)
                value = value + self.weight / len(chosen) * share
                if self.teaching:
                    last = torch.cat([z.detach() for _, z, _ in calls])
                    value = value + self.teaching / len(chosen) * self.divergence(torch.cat(zs), last)
        return value

    def names(self, model: nn.Module) -> list[str]:
        """The names of the layers that are read.

        Parameters
        ----------
        model : nn.Module
            The network.
        """
        if self.layers is None:
            stack, _ = longest_stack(model, "EarlyLayers")
            keys = list(model.get_submodule(stack)._modules)[:-1]
            return [f"{stack}.{key}".lstrip(".") for key in keys]
        known = [name for name, _ in model.named_modules() if name]
        missing = [name for name in self.layers if name not in known]
        if missing:
            raise ValueError(f"the network has no module {missing[0]!r}; it has {', '.join(known)}")
        alone = [name for name in self.layers if up_to(model, name)[0] is None]
        if alone and self.read is None:
            raise ValueError(
                f"{alone[0]!r} is in no stack of layers, a ModuleList or Sequential, that could end there: say by read "
                "how its output becomes an embedding"
            )
        return list(self.layers)

    def chosen(self, names: list[str]) -> list[str]:
        """Which of the layers take part in this step: the same in all processes, and in a run that is resumed.

        Parameters
        ----------
        names : list of str
            The names of all.
        """
        if self.layers_per_step is None or self.layers_per_step >= len(names) or not self.training:
            return names
        draw = np.random.default_rng([self.random_state, int(self.steps)])
        self.steps += 1
        return [names[k] for k in sorted(draw.permutation(len(names))[: self.layers_per_step].tolist())]

    def embedding(self, model: Any, name: str, found: Outputs, x: Any, z: Tensor) -> Tensor:
        """The embedding (B, p) of what a layer gave, of the shape of those of the last layer.

        Parameters
        ----------
        model : nn.Module
            The network.
        name : str
            The name of the layer.
        found : dict of list
            What the layer, and those before it in its stack, gave.
        x : Tensor or dict
            The samples.
        z : Tensor
            Embeddings (B, p) of the last layer.
        """
        stack, layers = up_to(model, name)
        if self.read is not None:
            if not found[layers[name]]:
                raise ValueError(f"the network did not run its layer {name!r}, so that there is nothing to read")
            output = found[layers[name]][-1].output
            early = self.read(model, output[0] if isinstance(output, tuple) else output, x)
        else:
            with ending(stack, {key: as_before(layer, found[layer]) for key, layer in layers.items()}):
                own = {key: buffer.clone() for key, buffer in model.named_buffers()}
                early = functional_call(model, own, (x,))
        if early.shape != z.shape:
            raise ValueError(
                f"a layer gives embeddings of shape {tuple(early.shape)}, the last one of {tuple(z.shape)}: say by "
                "read how an output becomes an embedding"
            )
        return early

    def divergence(self, early: Tensor, last: Tensor) -> Tensor:
        """T KL(softmax(z/T) ‖ softmax(z_l/T)), the mean over samples.

        Parameters
        ----------
        early : Tensor
            Embeddings z_l of a layer (B, p).
        last : Tensor
            Embeddings z of the last layer (B, p), constants.
        """
        early, last = gather(full_precision(early), full_precision(last))
        with without_autocast(early.device):
            of, to = ((z / self.temperature).log_softmax(1) for z in (early, last))
            return self.temperature * F.kl_div(of, to, reduction="batchmean", log_target=True)


class Call(NamedTuple):
    """What a layer gave, and how often that had been changed in place by then."""

    output: Any
    changes: list[int]


Outputs = dict[nn.Module, list[Call]]


def names_of(layers: Sequence[str]) -> tuple[str, ...]:
    """Names of layers, each once; or an error for one string and for none at all."""
    if isinstance(layers, str):
        raise TypeError(f"layers={layers!r} is one string: give a sequence of names, such as [{layers!r}]")
    if not len(layers):
        raise ValueError("layers=[] leaves the loss as it is: name a layer or more, or give None for those of a stack")
    return tuple(dict.fromkeys(layers))


def up_to(model: nn.Module, name: str) -> tuple[nn.Module | None, dict[str, nn.Module]]:
    """The stack that a layer is in, and by their names its layers up to this one; no stack and the module if none."""
    parent, _, last = name.rpartition(".")
    stack = model.get_submodule(parent)
    if not isinstance(stack, (nn.ModuleList, nn.Sequential)):
        return None, {name: stack.get_submodule(last)}
    keys = list(stack._modules)
    return stack, {f"{parent}.{key}".lstrip("."): stack.get_submodule(key) for key in keys[: keys.index(last) + 1]}


@contextmanager
def outputs_of(modules: Sequence[nn.Module]) -> Iterator[Outputs]:
    """What modules give while the network runs."""
    found: Outputs = {module: [] for module in modules}

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        found[module].append(Call(output, changes(output)))

    handles = [module.register_forward_hook(keep) for module in modules]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def ending(stack: Any, layers: dict[str, nn.Module]) -> Iterator[None]:
    """A block in which a stack has these layers in place of its own, under the last parts of their names."""
    before = stack._modules
    stack._modules = {name.rpartition(".")[2]: layer for name, layer in layers.items()}
    try:
        yield
    finally:
        stack._modules = before


def as_before(layer: nn.Module, calls: list[Call]) -> nn.Module:
    """A layer that gives what it gave, or if that cannot be told the layer itself, which then runs once more.

    Of one that ran twice, the second input may have come from the layers after it, which a network of fewer has not.
    """
    told = len(calls) == 1 and changes(calls[0].output) == calls[0].changes
    return Given(layer, calls[0].output) if told else layer


def changes(output: Any) -> list[int]:
    """How often the tensors of an output have been changed in place, where torch counts it."""
    if isinstance(output, Tensor):
        return [] if output.is_inference() else [output._version]
    return [count for part in output for count in changes(part)] if isinstance(output, (tuple, list)) else []


def copied(output: Any) -> Any:
    """An output whose tensors may be changed in place: backward needs those that were given as they are."""
    if isinstance(output, Tensor):
        return output.clone()
    return type(output)(map(copied, output)) if type(output) in (tuple, list) else output


class Given(nn.Module):
    """A layer that gives what it has given; asked for anything else, such as its kind, it answers as before."""

    def __init__(self, layer: nn.Module, output: Any):
        super().__init__()
        vars(self).update(layer=layer, output=output)  # not as a part, whose buffers would be copied

    def forward(self, *inputs: Any, **options: Any) -> Any:
        return copied(self.output)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layer, name)


def with_own_state(objective: Any, model: nn.Module) -> Any:
    """A copy of an objective with the same parameters, but buffers, counters and generators of its own.

    The network, and what an objective holds of it, stay the same, too. Of an objective that is no module, whose
    parameters cannot be told from its state, only the attributes are its own.
    """
    if not isinstance(objective, nn.Module):
        return copy.copy(objective)
    held = [part for module in objective.modules() for part in vars(module).values() if isinstance(part, Tensor)]
    learnt = [part for part in held if part.requires_grad]
    shared = [*objective.parameters(), *learnt, *model.modules(), *model.parameters(), *model.buffers()]
    return copy.deepcopy(objective, {id(part): part for part in shared})


@contextmanager
def own_random_numbers(embeddings: Iterable[Tensor]) -> Iterator[None]:
    """A block whose draws leave torch's generators, that of the embeddings' device too, as they were."""
    with torch.random.fork_rng({z.device for z in embeddings if z.device.type == "cuda"}):
        yield


def first_layers(model: nn.Module, n: int) -> nn.Module:
    """A copy of a network that has the first n layers of its longest stack only.

    Parameters
    ----------
    model : nn.Module
        A network with a stack of layers of one kind, as transformers have.
    n : int
        How many layers are kept, 1 or more.

    Returns
    -------
    nn.Module
        The copy; what comes before and after the stack is as it was.

    Notes
    -----
    After training with `EarlyLayers`, which makes early layers serve as embeddings.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import first_layers
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3)))
    >>> bool((first_layers(model, 1)(torch.eye(4)) == model[0](torch.eye(4))).all())
    True
    """
    name, length = longest_stack(model, "first_layers")
    if checked("n", n, Count) > length:
        raise ValueError(f"n={n} must lie in 1 … {length}, the layers of {name or 'the network'}")
    cut = copy.deepcopy(model)
    stack: Any = cut.get_submodule(name)
    stack._modules = dict(list(stack._modules.items())[:n])
    return cut
