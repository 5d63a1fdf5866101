"""Siamese and triplet networks: explicit pairs or triplets of samples through one network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.distributed import gather
from isometry.deep.loss import Loss, LossModule, TripletForm
from isometry.deep.losses.contrastive import Contrastive
from isometry.deep.losses.triplet import RatioTriplet as RatioTriplet  # files of earlier versions look for it here
from isometry.deep.objective import watch
from isometry.deep.objectives.columns import encode


class Siamese(nn.Module):
    """Siamese and triplet networks: all branches of a pair or triplet are the same network, passed once.

        z = f([x¹; x²; …]),    L(z¹, z², similar)   or   L(z_a, z_p, z_n)

    The gradient of the weights is the sum over the branches. The loss decides what a batch is: (x¹, x², similar), as
    from a ``PairDataset``, for a loss of pairs; (x_a, x_p, x_n), as from a ``TripletDataset``, for a loss of triplets.

    Parameters
    ----------
    loss : Loss, SimilarityHead or None, default=None
        Of pairs: ``Contrastive``, ``GeneralizedContrastive`` (then ``similar`` may be a number in [0, 1]),
        ``MarginLoss``, ``SimilarityHead``, …; of triplets: ``Triplet``, ``RatioTriplet``, ``Angular``, …; None:
        ``Contrastive()``. Losses that need positives and negatives of an anchor at once, such as ``NCALoss``, are
        refused.
    separate_forward : bool, default=False
        Pass the branches one after another, so that batch normalisation sees each by itself. Branches of different
        shape, such as texts of unequal length, always are.

    Notes
    -----
    For given pairs or triplets without classes. With classes, a loss on batches of ``PKBatchSampler`` compares O(B²)
    pairs for the same pass of the network, where this compares O(B).

    References
    ----------
    | J. Bromley, I. Guyon, Y. LeCun, E. Säckinger, R. Shah, "Signature verification using a Siamese time delay neural
      network", NIPS 1993.
    | E. Hoffer, N. Ailon, "Deep metric learning using triplet network", SIMBAD 2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, PairDataset, PairSampler, Siamese, SimilarityHead, Trainer
    >>> samples, labels = torch.eye(8), [0, 0, 0, 0, 1, 1, 1, 1]
    >>> batches = torch.utils.data.DataLoader(PairDataset(samples), 4, sampler=PairSampler(labels))
    >>> trainer = Trainer(MLP(8, 2), Siamese(SimilarityHead(2)), max_epochs=1, monitor="loss")
    >>> trainer.fit(batches).embed(samples).shape
    torch.Size([8, 2])
    """

    def __init__(self, loss: LossModule | None = None, *, separate_forward: bool = False):
        super().__init__()
        loss = Contrastive() if loss is None else loss
        if not isinstance(loss, (Loss, SimilarityHead)):
            raise TypeError(f"{type(loss).__name__} has no form for pairs or triplets; take Contrastive or Triplet")
        if isinstance(loss, Loss) and not isinstance(loss, TripletForm):
            refuse_without_pairs(loss)
        self.loss, self.separate_forward = loss, separate_forward
        self.active: Tensor | None = None  # share of the samples that the loss still moves, known after backward

    def forward(self, model: nn.Module, batch: Sequence[Any]) -> Tensor:
        """The loss of a batch of pairs or triplets.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple
            Two columns of samples and what says which pairs are similar, or three columns of samples.

        Returns
        -------
        Tensor
            The scalar.
        """
        if len(batch) != 3:
            raise ValueError(
                f"a batch must be (x1, x2, similar) or (anchors, positives, negatives), got {len(batch)} parts; "
                "load it from a PairDataset or a TripletDataset"
            )
        if isinstance(self.loss, TripletForm):
            anchors, positives, negatives = gather(*self.embed(model, batch))
            return loss_of_triplets(self.loss, anchors, positives, negatives)
        return loss_of_pairs(self.loss, *gather(*self.embed(model, batch[:2]), batch[2]))

    def embed(self, model: nn.Module, samples: Sequence[Any]) -> tuple[Tensor, ...]:
        """Embeddings (B, p) of each branch.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings.
        samples : tuple
            The branches, (B, …) each.

        Returns
        -------
        tuple of Tensor
            Embeddings (B, p), one for each branch.
        """
        z = encode(model, samples, self.separate_forward)
        watch(self, z)
        return z.chunk(len(samples))

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        """Optimiser groups for the parameters of the loss.

        Parameters
        ----------
        lr : float
            Learning rate of the backbone.
        """
        return self.loss.param_groups(lr)


class SimilarityHead(LossModule):
    """A learned probability that two samples are of the same kind, trained by cross-entropy.

        P(similar) = σ(Σ_j α_j abs(z¹_j − z²_j) + b)

    Parameters
    ----------
    embedding_size : int
        Dimension p of the embeddings. The start is α_j = −1/√p, b = 1: near means similar.

    Notes
    -----
    The loss of ``Siamese`` for verification: a probability for each pair. It is no distance that an index could search.
    Costs O(B p).

    References
    ----------
    | G. Koch, R. Zemel, R. Salakhutdinov, "Siamese neural networks for one-shot image recognition", ICML workshop 2015.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SimilarityHead
    >>> head = SimilarityHead(4)
    >>> near, far = head.probability(torch.zeros(2, 4), torch.tensor([[0.0] * 4, [9.0] * 4])).tolist()
    >>> near > 0.5 > far
    True
    """

    def __init__(self, embedding_size: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((embedding_size,), -(embedding_size**-0.5)))
        self.bias = nn.Parameter(torch.ones(()))

    def logits(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The logarithm of P / (1 − P) of each pair, in full precision.

        Parameters
        ----------
        z1 : Tensor
            Embeddings (B, p).
        z2 : Tensor
            Their partners (B, p).

        Returns
        -------
        Tensor
            Logits (B,).
        """
        with torch.autocast(z1.device.type, enabled=False):
            return (z1.to(self.alpha.dtype) - z2.to(self.alpha.dtype)).abs() @ self.alpha + self.bias

    def probability(self, z1: Tensor, z2: Tensor) -> Tensor:
        """The probability that the two of each pair are similar.

        Parameters
        ----------
        z1 : Tensor
            Embeddings (B, p).
        z2 : Tensor
            Their partners (B, p).

        Returns
        -------
        Tensor
            Probabilities (B,).
        """
        return self.logits(z1, z2).sigmoid()

    def forward(self, z1: Tensor, z2: Tensor, similar: Tensor) -> Tensor:
        """The mean cross-entropy of pairs with ``similar`` (B,) in [0, 1].

        Parameters
        ----------
        z1 : Tensor
            Embeddings (B, p).
        z2 : Tensor
            Their partners (B, p).
        similar : Tensor
            Which pairs are similar (B,), or a number in [0, 1].

        Returns
        -------
        Tensor
            The scalar.
        """
        logits = self.logits(z1, z2)
        if not len(logits):
            return logits.sum()
        return F.binary_cross_entropy_with_logits(logits, similar.to(logits.dtype))


def refuse_without_pairs(loss: Loss) -> None:
    """An error if a list of pairs would train nothing: each anchor then has a positive or a negative, never both."""
    name = type(loss).__name__
    if not loss.of_pairs:
        raise ValueError(
            f"{name} compares the positives of an anchor with its negatives, and in a list of pairs an anchor has only "
            "one of the two: nothing would be trained. Take a loss with a term for each pair (of_pairs = True), such "
            f"as Contrastive or MarginLoss, a loss of triplets, or {name} on labelled batches, without Siamese"
        )
    if loss.miner is not None:
        raise ValueError(
            f"the pairs are given and {type(loss.miner).__name__} has nothing to choose among; build {name} without it"
        )


def loss_of_triplets(loss: TripletForm, anchors: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """The loss of listed triplets, (T, p) each; not finite where an embedding is, for the trainer to count."""
    if not all(z.isfinite().all() for z in (anchors, positives, negatives)):
        return anchors.sum() + positives.sum() + negatives.sum()
    return loss.triplets(anchors, positives, negatives)


def loss_of_pairs(loss: nn.Module, z1: Tensor, z2: Tensor, similar: Tensor) -> Tensor:
    """The loss of listed pairs, (B, p) each: to each anchor one reference is known, all others are not."""
    if isinstance(loss, SimilarityHead):
        return loss(z1, z2, similar)
    if not (z1.isfinite().all() and z2.isfinite().all()):
        return z1.sum() + z2.sum()
    known = torch.full((len(z1), len(z2)), torch.nan, device=z1.device)  # (B, B)
    known.diagonal().copy_(similar)
    return loss(z1, known, z2)
