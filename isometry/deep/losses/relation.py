"""Similarities within a batch that follow those of a teacher, such as the names of the classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import unit
from isometry.deep.loss import LossAround, LossModule, as_embeddings, as_labels, check_classes
from isometry.deep.losses.multi_similarity import MultiSimilarity
from isometry.parameters import NotNegative, Positive, checked, one_of


def relation_kl(s: Tensor, t: Tensor, temperature: float, direction: str = "forward") -> Tensor:
    """T² mean_i KL(softmax_j(t_ij/T) ‖ softmax_j(s_ij/T)) of similarities (B, B), or the two exchanged; t is constant.

    An anchor's similarity to itself takes part.
    """
    student, teacher = ((x / temperature).log_softmax(1) for x in (s, t.detach()))
    p, q = (teacher, student) if direction == "forward" else (student, teacher)
    return temperature**2 * (p.exp() * (p - q)).sum() / len(s)


def cosines(z: Tensor) -> Tensor:
    """cos(z_i, z_j), (B, B)."""
    u = unit(z)
    return u @ u.T


class LanguageGuidance(LossAround):
    """Language guidance: a loss, and similarities within the batch that follow those of the names of the classes.

        L(z, y) + γ T² mean_i KL(softmax_j(t_ij/T) ‖ softmax_j(s_ij/T)),     s_ij = cos(z_i, z_j)

    t_ij is the cosine of the vectors that stand for the classes of i and j.

    Parameters
    ----------
    class_vectors : array (C, q)
        An embedding of the name of each class by any text encoder.
    loss : LossModule or None, default=None
        The loss L of embeddings and labels; None: ``MultiSimilarity()``.
    weight : float, default=1.0
        The weight γ of the guidance.
    temperature : float, default=1.0
        The temperature T of the softmaxes.
    direction : {"forward", "backward"}, default="forward"
        KL(teacher ‖ student), or KL(student ‖ teacher).

    Notes
    -----
    When names of classes mean something that images show: breeds, models, products. Numbered classes have nothing to
    tell. Costs O(B² (p + q)) beside L.

    References
    ----------
    | K. Roth, O. Vinyals, Z. Akata, "Integrating language guidance into vision-based deep metric learning", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LanguageGuidance, Triplet
    >>> names = torch.eye(3)  # embeddings of three names
    >>> loss = LanguageGuidance(names, Triplet(), weight=0.5)
    >>> loss(torch.eye(4), torch.tensor([0, 0, 1, 2])).item() > 0
    True
    """

    class_vectors: Tensor

    def __init__(
        self,
        class_vectors: Any,
        loss: LossModule | None = None,
        weight: float = 1.0,
        temperature: float = 1.0,
        direction: str = "forward",
    ):
        super().__init__(MultiSimilarity() if loss is None else loss)
        vectors = torch.as_tensor(class_vectors)
        if vectors.ndim != 2 or not len(vectors):
            raise ValueError(f"class_vectors must be one row for each class, (C, q), got shape {tuple(vectors.shape)}")
        vectors = as_embeddings(vectors if vectors.is_floating_point() else vectors.float(), "class_vectors")
        self.register_buffer("class_vectors", vectors.clone())
        self.weight = checked("weight", weight, NotNegative)
        self.temperature = checked("temperature", temperature, Positive)
        self.direction = one_of("direction", direction, ("forward", "backward"))

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels 0 … C − 1.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).

        Returns
        -------
        Tensor
            The scalar.
        """
        z, y = as_embeddings(z, "z", squared=True), as_labels(y, z.device)
        points = z.new_empty(()).expand(len(self.class_vectors), z.shape[1])
        check_classes(z, y, points)
        value = self.loss(z, y)
        if not self.weight or not len(z):
            return value
        with torch.autocast(z.device.type, enabled=False):
            teacher = cosines(self.class_vectors.to(z.dtype)[y])
            return value + self.weight * relation_kl(cosines(z), teacher, self.temperature, self.direction)
