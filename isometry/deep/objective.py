"""Objectives ``(model, batch) → scalar``, and what can be told of embeddings while they are trained."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.distributed import Gathered, gather
from isometry.deep.functional import euclidean, is_finite, masked_mean, masks, unit
from isometry.deep.loss import LossModule, as_labels, own_parameters

TrainingObjective = Callable[[nn.Module, Any], Tensor]
MODEL_NAMES = ("model", "network", "net", "module", "encoder")  # an objective's name for what it trains
POINT_VARIANCE = 1e-6  # embeddings whose variance is below this share of their mean square are one point


class LossObjective(nn.Module):
    """An objective of a loss of embeddings and labels: loss(model(x), y), over the batches of all processes.

    Parameters
    ----------
    loss : nn.Module
        The loss ``(embeddings, labels) → scalar``, also one of another library.

    Notes
    -----
    A `Trainer` makes it of any loss of this package; a loss of another library that could be taken for an objective
    needs it.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LossObjective, Triplet
    >>> objective = LossObjective(Triplet())
    >>> objective(torch.nn.Identity(), (torch.eye(4), torch.tensor([0, 0, 1, 1]))).shape
    torch.Size([])
    """

    def __init__(self, loss: nn.Module):
        super().__init__()
        self.loss = loss.loss if isinstance(loss, Gathered) else loss
        self.active: Tensor | None = None  # share of the samples that the loss still moves, known after backward
        self.last: tuple[Tensor, Tensor] | None = None  # embeddings and labels of the last batch

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a batch (samples, labels).

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple
            Samples (B, …) and labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        x, y = samples_and_labels(batch)
        z = model(x)
        watch(self, z)
        z, y = gather(z, y)
        self.last = z.detach(), y
        return self.loss(z, y) if is_finite(z) else z.sum()  # not finite: the trainer counts and reports it

    @torch.no_grad()
    def geometry(self) -> dict[str, float]:
        """Of the last batch: the mean norm, mean distances of positive and negative pairs, and the contrast.

        Returns
        -------
        dict of float
            Empty before the first batch.
        """
        if self.last is None or not self.last[0].isfinite().all():
            return {}
        z, y = self.last
        z = z if z.device.type == "mps" else z.double()
        found = {"norm": float(z.norm(dim=1).mean())}
        if y.ndim == 1 and not y.is_floating_point():
            D = euclidean(*[unit(z) if on_sphere(self.loss) else z] * 2)  # (B, B)
            pairs = masks(y, self_index=torch.arange(len(y), device=y.device))
            found |= {name: float(masked_mean(D, pair)) for name, pair in zip(("d_ap", "d_an"), pairs) if pair.any()}
        if isinstance(self.loss, LossModule):
            found["contrast"] = contrast(self.loss, z, y)
        return found

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the loss.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return parameter_groups(self.loss, lr)


def samples_and_labels(batch: Any) -> tuple[Any, Tensor]:
    """The two parts of a batch, or an error that says what a loss needs."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        got = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else f"one {type(batch).__name__}"
        raise ValueError(
            f"a loss of embeddings and labels needs batches (samples, labels), got {got}: give labels to fit, or a "
            "data set whose items are (sample, label)"
        )
    x, y = batch
    first = next(iter(x.values()), None) if isinstance(x, Mapping) else x  # a tokeniser gives several tensors by name
    return x, as_labels(y, first.device if isinstance(first, Tensor) else torch.device("cpu"))


class Step(nn.Module):
    """Model and objective in one module: all parameters are synchronised, saved and cast together."""

    def __init__(self, model: nn.Module, objective: TrainingObjective):
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Tensor:
        try:
            value = self.objective(self.model, batch)
            if not isinstance(value, Tensor) or value.numel() != 1:
                got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{value!r:.80}"
                raise ValueError(f"the objective must give one number to minimise, it gave {got}: take a mean or a sum")
            return value
        except OverflowError as error:  # the trainer counts such steps; NaN reaches all parameters, in all processes
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
            return torch.stack([p.sum() for p in self.parameters()]).sum() * torch.nan


def watch(objective: Any, z: Tensor) -> None:
    """Let ``objective.active`` be the share of the samples whose embeddings (B, p) get a gradient in backward."""

    def note(gradient: Tensor) -> None:
        objective.active = (gradient != 0).any(1).float().mean()

    if z.requires_grad:
        z.register_hook(note)  # type: ignore[no-untyped-call, unused-ignore]


def parameter_groups(part: Any, lr: float) -> list[dict[str, Any]]:
    """Optimiser groups of a loss or objective: those it gives, or one of all its parameters."""
    if hasattr(part, "param_groups"):
        groups: list[dict[str, Any]] = part.param_groups(lr)
        return groups
    return own_parameters(part, lr) if isinstance(part, nn.Module) else []


def as_objective(objective: nn.Module | TrainingObjective) -> TrainingObjective:
    """A loss turned into an objective; an objective as it is.

    A foreign module says by its ``forward`` what it is: an objective calls its first argument ``model`` or ``network``,
    anything else is a loss of embeddings and labels.
    """
    if isinstance(objective, LossModule) and objective.beside:
        warnings.warn(f"{type(objective).__name__} alone draws all to one point; take {objective.beside}", stacklevel=3)
    if isinstance(objective, (LossModule, Gathered)) or (isinstance(objective, nn.Module) and _is_loss(objective)):
        return LossObjective(objective)
    return objective


def _is_loss(module: nn.Module) -> bool:
    taken = list(inspect.signature(module.forward).parameters.values())
    required = [
        p.name for p in taken if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if not taken or taken[0].kind is taken[0].VAR_POSITIONAL or taken[0].name in MODEL_NAMES:
        return False
    if len(required) > 2 or len(taken) < 2:
        raise ValueError(
            f"{type(module).__name__} takes ({', '.join(p.name for p in taken)}); expected is a loss (embeddings, "
            "labels) or an objective (model, batch). isometry.deep has losses that form pairs and triplets themselves"
        )
    return True


def on_sphere(objective: Any) -> bool:
    """Whether distances are between unit vectors: the loss, or one inside it, normalises or compares angles.

    Distances of pytorch-metric-learning say so by ``normalize_embeddings``; their ``normalize`` is a method.
    """
    parts = objective.modules() if isinstance(objective, nn.Module) else ()
    says = ("normalize", "normalize_embeddings")
    return any(
        any(getattr(m, name, None) is True for name in says) or getattr(m, "distance", None) == "cosine" for m in parts
    )


def contrast(loss: LossModule, z: Tensor, y: Tensor) -> float:
    """How much of its value a loss owes to the differences between embeddings.

        max_{s ∈ {1, 2}} |L(s) − L(0)| / |L(0)|,     L(s) = loss(c + s (z − c)),   c = mean z

    L(0) is the loss of one point, such as the margin of a triplet loss. If twice the differences hardly change it, the
    embeddings are too close together for the loss to tell them apart. For 0 a thousandth is taken, which leaves miners
    what they compare. The loss itself, and its random numbers, stay as they are.
    """
    copied = copy.deepcopy(loss).to(z.dtype).eval()
    centre = z.mean(0)
    with torch.random.fork_rng([z.device] if z.device.type == "cuda" else []):
        try:
            point, *values = (float(copied(centre + s * (z - centre), y)) for s in (1e-3, 1, 2))
        except OverflowError:  # large differences are no collapse
            return math.inf
    return max(abs(value - point) for value in values) / abs(point) if point else math.nan


def effective_rank(z: Tensor) -> float:
    """The effective rank exp H(λ / Σλ) of embeddings, for the eigenvalues λ of their covariance.

    Parameters
    ----------
    z : Tensor
        Embeddings (n, p).

    Returns
    -------
    float
        Between 1, for a line, and p, for equal variance in all directions; 0 for (nearly) a point.

    Notes
    -----
    Tells of collapse before the loss does: a `Trainer` watches it. Costs O(n p² + p³).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import effective_rank
    >>> effective_rank(torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])) < 1.01  # a line
    True
    >>> effective_rank(torch.ones(3, 2))  # a point
    0.0
    """
    z = z.double()
    centred = z - z.mean(0)
    spectrum = torch.linalg.eigvalsh(centred.T @ centred / len(z)).clamp_min(0)  # (p,)
    total = spectrum.sum()
    if total <= POINT_VARIANCE * z.square().sum(1).mean():
        return 0.0
    w = spectrum / total
    return float(torch.special.entr(w).sum().exp())
