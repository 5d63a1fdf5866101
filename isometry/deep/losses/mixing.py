"""Points made of two others: more to compare a batch with, at no cost for the network."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import unit
from isometry.deep.loss import Loss, LossAround, as_embeddings, as_labels
from isometry.deep.losses.contrast import SupCon
from isometry.deep.losses.contrastive import GeneralizedContrastive
from isometry.deep.losses.npair import disjoint_pairs
from isometry.deep.losses.triplet import Triplet
from isometry.deep.miners import BatchHard, Draws
from isometry.parameters import Count, Iterations, NotNegative, checked

TAKE_SOFT_LABELS = (GeneralizedContrastive, SupCon)


class EmbeddingExpansion(LossAround):
    """Embedding expansion: a loss in which points between two positives are further negatives for the other classes.

        L(z, y; z ∪ V),     V = { (k z_i + (n + 1 − k) z_j) / (n + 1) : k = 1 … n }  for pairs (i, j) of one class

    The points of V lie on the sphere if the loss normalises. Positives are real points only. The members of each class
    are paired two by two in the order of the batch.

    Parameters
    ----------
    loss : Loss or None, default=None
        The loss L, any that takes references; None: ``Triplet`` of hardest positives and negatives, as published.
    n : int, default=2
        Points between two positives; 0 leaves L as it is.

    Notes
    -----
    More negatives at no cost for the network, for small batches. Points between two members of a class must belong to
    it, which bent classes break. Costs that of L with about n B / 2 further references, O(n B² p) for a loss of pairs.

    References
    ----------
    | B. Ko, G. Gu, "Embedding expansion: augmentation in embedding space for deep metric learning", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import EmbeddingExpansion
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = EmbeddingExpansion(n=2)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, loss: Loss | None = None, n: int = 2):
        super().__init__(Triplet(miner=BatchHard(), distance="euclidean") if loss is None else loss)
        if not isinstance(self.loss, Loss):
            raise TypeError(f"a loss that compares pairs is expected, such as Triplet(), got {type(loss).__name__}")
        self.n = checked("n", n, Iterations)

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels (B,).

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
        if not self.n or y.shape != (len(z),):
            return self.loss(z, y)
        i, j = disjoint_pairs(y)
        if not len(i):
            return self.loss(z, y)
        inner = between(unit(z) if self.loss.normalize else z, i, j, self.n)
        same = (y[:, None] == torch.cat([y, y[i].repeat(self.n)])).to(z.dtype)  # (B, R)
        same[:, len(z) :].masked_fill_(same[:, len(z) :] == 1, torch.nan)  # neither positive nor negative
        own = torch.arange(len(z), device=z.device)
        return self.loss(z, same, torch.cat([z, unit(inner) if self.loss.normalize else inner]), None, own)


def between(z: Tensor, i: Tensor, j: Tensor, n: int) -> Tensor:
    """(k z_i + (n + 1 − k) z_j) / (n + 1) for k = 1 … n, one k after the other: (n P, p) of P pairs."""
    k = torch.arange(1, n + 1, device=z.device, dtype=z.dtype)[:, None, None] / (n + 1)
    return (k * z[i] + (1 - k) * z[j]).flatten(0, 1)


class MixedPairs(Draws, LossAround):
    """Metrix, mixed pairs: a loss against points that are mixed of two classes, with labels mixed in the same way.

        L(z, y; z, y) + w L(z, y; V, S),     v = λ x + (1 − λ) x',   s_iv = λ [y_i = y_x] + (1 − λ) [y_i = y_x']

    For each anchor one point is mixed: x is another member of its class or, with probability ½, the anchor itself; x'
    is any member of another class, and λ is drawn from Beta(α, α). In eval mode there is no mixing.

    Parameters
    ----------
    loss : Loss or None, default=None
        The loss L, which takes similarities in [0, 1] for labels, such as ``GeneralizedContrastive()``; None:
        ``SupCon()``.
    weight : float, default=0.4
        The weight w of the mixed points.
    alpha : int, default=2
        The parameter α of the Beta distribution: large ones mix evenly.
    random_state : int or None, default=None
        Seed of the draws; None: torch's global generator.

    Notes
    -----
    A regulariser for small sets and long runs, which keeps embeddings from jumping between classes. Costs about twice
    that of L, O(B² p) for a loss of pairs.

    References
    ----------
    | S. Venkataramanan, B. Psomas, E. Kijak, L. Amsaleg, K. Karantzalos, Y. Avrithis, "It takes two to tango: mixup for
      deep metric learning", ICLR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MixedPairs
    >>> loss = MixedPairs(random_state=0)
    >>> z, y = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> loss(z, y).item() > 0
    True
    >>> bool(loss.eval()(z, y) == loss.loss(z, y))  # no mixing in eval mode
    True
    """

    def __init__(self, loss: Loss | None = None, weight: float = 0.4, alpha: int = 2, random_state: int | None = None):
        super().__init__(SupCon() if loss is None else loss)
        if not isinstance(self.loss, TAKE_SOFT_LABELS):
            names = " and ".join(kind.__name__ for kind in TAKE_SOFT_LABELS)
            raise TypeError(
                f"mixed points have labels between 0 and 1, which {type(loss).__name__} does not take; {names} do"
            )
        self.weight, self.alpha = checked("weight", weight, NotNegative), checked("alpha", alpha, Count)
        self.random_state = random_state

    def forward(self, z: Tensor, y: Tensor) -> Tensor:
        """The loss of embeddings (B, p) with labels (B,).

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
        value = self.loss(z, y)
        if not self.training or not self.weight or y.shape != (len(z),) or not len(z):
            return value
        same = y[:, None] == y
        if same.all():  # there is nothing to mix with
            return value
        luck = torch.rand(len(z), 2 * self.alpha - 1, generator=self.generator(z.device), device=z.device)
        v, S = mixed(z, y, *self.partners(same), luck.median(1).values.to(z.dtype))
        return value + self.weight * self.loss(z, S, v)

    def partners(self, same: Tensor) -> tuple[Tensor, Tensor]:
        """The points x and x' of each anchor: rows of the batch.

        Parameters
        ----------
        same : Tensor
            Which samples are of one class, a boolean matrix (B, B).
        """
        n = len(same)
        luck = torch.rand(2, n, n, generator=self.generator(same.device), device=same.device)
        itself = torch.eye(n, dtype=torch.bool, device=same.device)
        share = same.sum(1) - 1  # the anchor itself gets as much as all others of its class: ½
        chance = torch.where(itself, luck[0] ** (1 / share.clamp_min(1)), luck[0])
        first = chance.masked_fill(~same, -1).argmax(1)
        return first, luck[1].masked_fill(same, -1).argmax(1)


def mixed(z: Tensor, y: Tensor, i: Tensor, j: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Points λ z_i + (1 − λ) z_j (R, p), and how similar every sample is to each of them, (B, R)."""
    v = share[:, None] * z[i] + (1 - share)[:, None] * z[j]
    of = [(y[:, None] == y[k]).to(z.dtype) for k in (i, j)]
    return v, share * of[0] + (1 - share) * of[1]
