"""Embeddings of a network's early layers, so that it may be cut to fewer layers after training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.backbones import Network, pool
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

    z_l is what layer l gives, pooled and passed through the head as the last layer is, and S some layers that are drawn
    anew at each step. z teaches as a constant. Afterwards ``first_layers(model, n)`` is a network of the first n layers
    alone. Around ``Matryoshka(loss)`` it is the two-dimensional Matryoshka: fewer layers and fewer coordinates.

    Parameters
    ----------
    objective : nn.Module, callable or None, default=None
        A loss L, or an objective such as ``Columns(Ranking())``; None: ``SupCon()``.
    layers : sequence of str or None, default=None
        Names of the modules whose outputs are read; None: all but the last of the longest stack of layers of one kind,
        as transformers have.
    layers_per_step : int or None, default=1
        Layers that are drawn at each step in training; None: all.
    weight : float, default=1.0
        The weight λ of the early layers.
    teaching : float, default=1.0
        The weight γ of the divergence from the last layer.
    temperature : float, default=0.3
        The temperature T of the softmaxes.
    read : callable or None, default=None
        ``(model, output, x) → (B, p)``, the embedding of a layer's output for samples x; None: tokens are pooled as the
        network does, and ``model.head`` follows if there is one.
    random_state : int, default=0
        Seed of the draws, which are those of all processes alike.

    Notes
    -----
    For deep networks that will be run with fewer layers, where time matters more than the last bit of quality. A step
    costs one pass of the network and the loss once more for each layer drawn, O(B² p) for a loss of pairs. Not within a
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
        self.layers = None if layers is None else tuple(layers)
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
        calls: list[tuple[Any, Tensor, dict[str, Any]]] = []  # samples, embeddings and outputs, pass by pass

        def recorded(x: Any) -> Tensor:
            with outputs_of(model, names) as found:
                z: Tensor = model(x)
            calls.append((x, z, found))
            return z

        objective: Any = self.objective  # which calls what it is given, and asks nothing else of it
        value: Tensor = objective(recorded, batch)
        early = copy.copy(objective)  # the same loss; what is watched of the last layer stays as it is
        chosen = self.chosen(names)
        for name in chosen:
            zs = [self.embedding(model, found[name], x, z) for x, z, found in calls]
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
            stack, n = longest_stack(model, "EarlyLayers")
            return [f"{stack}.{k}".lstrip(".") for k in range(n - 1)]
        known = dict(model.named_modules())
        missing = [name for name in self.layers if name not in known]
        if missing:
            raise ValueError(f"the network has no module {missing[0]!r}; it has {', '.join(n for n in known if n)}")
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
        draw = torch.Generator().manual_seed((self.random_state << 32) + int(self.steps))
        self.steps += 1
        order = torch.randperm(len(names), generator=draw)
        return [names[k] for k in sorted(order[: self.layers_per_step].tolist())]

    def embedding(self, model: Any, output: Any, x: Any, z: Tensor) -> Tensor:
        """The embedding (B, p) of what a layer gave, of the shape of those of the last layer.

        Parameters
        ----------
        model : nn.Module
            The network.
        output : Tensor or tuple
            What the layer gave; of a tuple the first counts.
        x : Tensor or dict
            The samples.
        z : Tensor
            Embeddings (B, p) of the last layer.
        """
        output = output[0] if isinstance(output, tuple) else output
        if self.read is not None:
            found = self.read(model, output, x)
        else:
            if output.ndim == 3:
                mask = x.get("attention_mask") if hasattr(x, "get") else None
                output = pool(output, mask, model.pooling if isinstance(model, Network) else "mean")
            head = getattr(model, "head", None)
            found = output.flatten(1) if head is None else head(output.flatten(1))
        if found.shape != z.shape:
            raise ValueError(
                f"a layer gives embeddings of shape {tuple(found.shape)}, the last one of {tuple(z.shape)}: say by "
                "read how an output becomes an embedding"
            )
        return found

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


@contextmanager
def outputs_of(model: nn.Module, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What modules of these names give while the network runs."""
    found: dict[str, Any] = {}

    def keep(name: str) -> Callable[[Any, Any, Any], None]:
        return lambda module, inputs, output: found.__setitem__(name, output)

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


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
    if not 1 <= n <= length:
        raise ValueError(f"n={n} must lie in 1 … {length}, the layers of {name or 'the network'}")
    cut = copy.deepcopy(model)
    if not name:
        return cut[:n]  # type: ignore[index]
    parent, _, last = name.rpartition(".")
    setattr(cut.get_submodule(parent), last, cut.get_submodule(name)[:n])  # type: ignore[index]
    return cut
