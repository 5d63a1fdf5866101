"""A network that is its own teacher."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.distributed import gather
from isometry.deep.functional import full_precision
from isometry.deep.loss import LossModule, own_parameters
from isometry.deep.losses.multi_similarity import MultiSimilarity
from isometry.deep.losses.relation import cosines, relation_kl
from isometry.deep.objective import parameter_groups, samples_and_labels
from isometry.parameters import Iterations, NotNegative, Positive, checked


class S2SD(nn.Module):
    """Simultaneous similarity-based self-distillation: wider heads on the same features teach the embedding.

        ½ (L(z) + mean_k L(h_k(f))) + γ mean_k KL(h_k(f) ‖ z) + γ KL(f ‖ z)

    f are the features and z the embeddings of the network, h_k perceptrons of one hidden layer that are wider than z
    and of use in training only. KL is between softmaxes of the cosines within the batch, see ``LanguageGuidance``; the
    teacher is a constant. Features teach after some steps.

    Parameters
    ----------
    feature_size : int
        Dimension of the features f.
    loss : LossModule, callable or None, default=None
        The loss L; None: ``MultiSimilarity()``. A loss with parameters of the embedding's dimension is given as a
        function of that dimension, ``lambda p: ProxyAnchor(C, p)``, together with ``embedding_size``.
    widths : sequence of int, default=(512, 1024, 1536, 2048)
        Dimensions of the heads; none leave L.
    weight : float, default=50.0
        The weight γ of the teaching.
    temperature : float, default=1.0
        The temperature T of the softmaxes.
    delay : int, default=1000
        Training steps before the features teach.
    embedding_size : int or None, default=None
        Dimension p of z, if ``loss`` is a function of it.

    Notes
    -----
    For short embeddings on a large network, at no cost after training. A step costs O(B w²) for a head of width w and
    O(B² w) for its cosines, beside the network.

    References
    ----------
    | K. Roth, T. Milbich, B. Ommer, J. P. Cohen, M. Ghassemi, "Simultaneous similarity-based self-distillation for deep
      metric learning", ICML 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, S2SD, Headed
    >>> model = Headed(MLP(4, 8), torch.nn.Linear(8, 2))
    >>> objective = S2SD(8, widths=(16,))
    >>> objective(model, (torch.eye(4), torch.tensor([0, 0, 1, 1]))).item() > 0
    True
    """

    steps: Tensor
    normalize = True  # what is taught are cosines

    def __init__(
        self,
        feature_size: int,
        loss: LossModule | Callable[[int], LossModule] | None = None,
        widths: Sequence[int] = (512, 1024, 1536, 2048),
        weight: float = 50.0,
        temperature: float = 1.0,
        delay: int = 1000,
        embedding_size: int | None = None,
    ):
        super().__init__()
        self.weight = checked("weight", weight, NotNegative)
        self.temperature = checked("temperature", temperature, Positive)
        self.delay = checked("delay", delay, Iterations)
        self.loss, self.losses = self._losses(MultiSimilarity() if loss is None else loss, widths, embedding_size)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(feature_size, w), nn.ReLU(), nn.Linear(w, w)) for w in widths
        )
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @staticmethod
    def _losses(loss: Any, widths: Sequence[int], size: int | None) -> tuple[nn.Module, nn.ModuleList]:
        """L of the embeddings, and one for each head."""
        if isinstance(loss, nn.Module):
            if any(True for _ in loss.parameters()):
                name = type(loss).__name__
                raise ValueError(
                    f"{name} has parameters of its own: give a function of the dimension, such as "
                    f"loss=lambda p: {name}(C, p), and embedding_size"
                )
            return loss, nn.ModuleList(copy.deepcopy(loss) for _ in widths)
        if size is None:
            raise ValueError("a loss that is a function of the dimension needs embedding_size")
        return loss(size), nn.ModuleList(loss(w) for w in widths)

    def forward(self, model: Any, batch: Any) -> Tensor:
        """The loss of a batch: that of all heads, and what they teach.

        Parameters
        ----------
        model : Headed
            A network with ``features`` and ``head``.
        batch : tuple
            Samples (B, …) and labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        x, y = samples_and_labels(batch)
        if not (hasattr(model, "features") and hasattr(model, "head")):
            raise TypeError(
                f"S2SD needs a network that shows its features, and {type(model).__name__} has no features(x) and "
                "head(f); build it as Headed(backbone, head)"
            )
        f = model.features(x)
        f, z, y = gather(full_precision(f), full_precision(model.head(f)), y)
        if self.training:
            self.steps += 1
        value = self.loss(z, y)
        if len(self.heads):
            wide = [head(f) for head in self.heads]
            value = (value + torch.stack([loss(w, y) for loss, w in zip(self.losses, wide)]).mean()) / 2
            value = value + self.weight * torch.stack([self.taught(z, w) for w in wide]).mean()
        if self.steps > self.delay:
            value = value + self.weight * self.taught(z, f)
        return value

    def taught(self, z: Tensor, teacher: Tensor) -> Tensor:
        """How far the cosines of z are from those of the teacher.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        teacher : Tensor
            Embeddings of the teacher (B, q).
        """
        with torch.autocast(z.device.type, enabled=False):
            return relation_kl(cosines(z), cosines(teacher.detach().to(z.dtype)), self.temperature)

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups of the heads, and of the losses.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        groups = own_parameters(self.heads, lr)
        return groups + [g for loss in (self.loss, *self.losses) for g in parameter_groups(loss, lr)]
