"""Losses whose terms do not all count alike: by the class of the anchor, or by their size."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import without_autocast
from isometry.deep.loss import LabelLoss, Loss, LossAround, as_labels, check_labels, finite
from isometry.deep.losses.contrast import InfoNCE
from isometry.deep.terms import Terms, as_weight, mean_of_terms


class OfTerms(LossAround):
    """Abstract: another mean of the terms of a loss."""

    def __init__(self, loss: Loss | LabelLoss | None):
        super().__init__(InfoNCE() if loss is None else loss)
        if not isinstance(self.loss, Loss | LabelLoss):
            raise TypeError(
                f"{type(self).__name__} needs a loss of embeddings and labels, such as InfoNCE() or ArcFace(C, p), "
                f"got {type(loss).__name__}"
            )

    def forward(self, z: Tensor, y: Tensor, *references: Any) -> Tensor:
        """The loss of embeddings (B, p) with labels, against references if the loss inside takes any.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        *references : Tensor or None
            References (R, p), their labels (R,), and which of them is the anchor itself (B,), −1 for none.
        """
        if isinstance(self.loss, LabelLoss):
            inputs = self.loss.inputs(z, y)
        else:
            inputs = self.loss.inputs(z, y, *(*references, None, None, None)[:3])
        z = inputs[0]
        if not len(z):
            return z.sum() * 0
        with without_autocast(z.device):
            return finite(self.mean(self.loss.terms(*inputs), as_labels(y, z.device), z), self, z)

    def mean(self, terms: Terms, y: Tensor, z: Tensor) -> Tensor:
        """The scalar, of the terms and the labels of a batch z (B, p).

        Parameters
        ----------
        terms : tuple of Tensor
            What each term adds, and what it counts, (B,) or (B, R) each.
        y : Tensor
            Labels (B,).
        z : Tensor
            Embeddings (B, p).
        """
        raise NotImplementedError


class ClassWeighted(OfTerms):
    """Weights of classes: the terms of an anchor count as much as its class does.

        Σ_i w_{y_i} Σ_t ℓ_it / Σ_i w_{y_i} n_i,     ℓ_it the n_i terms of anchor i

    For losses that are one mean over terms of anchors; others, such as those of a histogram of the batch, raise a
    ``TypeError``.

    Parameters
    ----------
    loss : Loss or LabelLoss, default=None
        The loss ℓ, for example ``ArcFace(C, p)``; None: ``InfoNCE()``.
    weights : sequence of float or "balanced", default="balanced"
        Weights w, one for each class 0 … C − 1, not negative. ``"balanced"``: n / (C n_l) for the numbers of samples
        given as ``class_counts``, so that all classes count alike.
    class_counts : sequence of int, default=None
        How many samples each class has, for ``"balanced"``.
    normalize_weights : bool, default=True
        Divide by the sum of the weights, as above. False: by the number of terms Σ n_i.

    Notes
    -----
    For classes of unequal size where samples cannot be drawn evenly; with ``PKBatchSampler`` each class of a batch
    counts alike already. Rare classes then weigh much: their labels should be right. Costs what the loss inside costs,
    and O(B) for the weights.

    References
    ----------
    | G. King, L. Zeng, "Logistic regression in rare events data", Political Analysis 2001.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ClassWeighted, InfoNCE
    >>> z = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    >>> y = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1])
    >>> loss = ClassWeighted(InfoNCE(0.5), class_counts=[6, 2])
    >>> [round(w, 3) for w in loss.weights.tolist()]
    [0.667, 2.0]
    >>> bool(loss(z, y) > 0)
    True
    """

    weights: Tensor

    def __init__(
        self,
        loss: Loss | LabelLoss | None = None,
        weights: Any = "balanced",
        class_counts: Any = None,
        normalize_weights: bool = True,
    ):
        super().__init__(loss)
        if isinstance(weights, str):
            weights = balanced(weights, class_counts)
        weights = torch.as_tensor(weights, dtype=torch.float64)
        if weights.ndim != 1 or not len(weights):
            raise ValueError(f"weights must be one for each class, (C,), got shape {tuple(weights.shape)}")
        as_weight(weights, weights[:, None])
        self.register_buffer("weights", weights.float())
        self.normalize_weights = normalize_weights

    def mean(self, terms: Terms, y: Tensor, z: Tensor) -> Tensor:
        check_labels(y, len(self.weights))
        weight = self.weights.to(z.dtype)[y]
        value = mean_of_terms(*terms, weight)
        if self.normalize_weights:
            return value
        counts = terms[1]
        return value * mean_of_terms(counts * weight.view(-1, *(1,) * (counts.ndim - 1)), counts)


def balanced(name: str, class_counts: Any) -> Tensor:
    """n / (C n_l), or an error that says what is missing."""
    if name != "balanced":
        raise ValueError(f"weights must be 'balanced' or one number for each class, got {name!r}")
    if class_counts is None:
        raise ValueError(
            "weights='balanced' needs class_counts, how many samples each class has: torch.bincount(y) of all labels; "
            "or give the weights themselves"
        )
    counts = torch.as_tensor(class_counts, dtype=torch.float64)
    if counts.ndim != 1 or not len(counts) or not bool((counts > 0).all()):
        raise ValueError(f"class_counts must be a positive number for each class, got {class_counts!r}")
    return counts.sum() / (len(counts) * counts)


class Threshold(OfTerms):
    """A range of terms: those of a loss that are too small or too large are left out of its mean.

        mean of the terms ℓ_it with  low < ℓ_it < high

    ``low=0`` averages over the terms that are not zero; a finite ``high`` leaves out the worst, such as mislabelled
    samples. For losses that are one mean over terms of anchors; others raise a ``TypeError``.

    Parameters
    ----------
    loss : Loss or LabelLoss, default=None
        The loss ℓ; None: ``InfoNCE()``.
    low : float, default=0.0
        Terms up to this value are left out.
    high : float or None, default=None
        Terms from this value on are left out; None: none are too large.

    Notes
    -----
    For losses most of whose terms are zero late in training, and for labels that are wrong now and then. A ``high``
    that is too low leaves out hard samples with right labels. Costs what the terms of the loss inside cost, O(B²) for
    pairs of a batch.

    References
    ----------
    | K. Musgrave, S. Belongie, S.-N. Lim, "PyTorch metric learning", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Contrastive, Threshold
    >>> z = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
    >>> loss = Contrastive(margin=2.0)  # of 12 pairs, 4 are similar and 8 are farther apart than the margin
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> round(loss(z, y).item(), 4), Threshold(loss)(z, y).item()
    (0.1667, 0.5)
    """

    def __init__(self, loss: Loss | LabelLoss | None = None, low: float = 0.0, high: float | None = None):
        super().__init__(loss)
        high = math.inf if high is None else high
        for name, end in (("low", low), ("high", high)):
            if not isinstance(end, Real):
                raise ValueError(f"{name} must be a number, got {end!r}")
        if not low < high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        self.low, self.high = float(low), float(high)

    def mean(self, terms: Terms, y: Tensor, z: Tensor) -> Tensor:
        values, counts = terms
        each = values.detach() / torch.where(counts > 0, counts, 1)
        kept = (counts > 0) & (each > self.low) & (each < self.high)
        return mean_of_terms(values.masked_fill(~kept, 0), counts * kept)
