"""Selectively contrastive triplet loss: where a negative is nearer than the positive, only push."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import softplus
from isometry.deep.loss import TripletForm
from isometry.deep.miners import EasyPositive
from isometry.parameters import NotNegative, Positive, checked


class SelectiveTriplet(TripletForm):
    """Selectively contrastive triplet loss: the nearest positive and the hardest negative; a hard one is only pushed.

        mean_i  λ s⁻  if s⁻ > s⁺,  else  log(1 + e^{(s⁻ − s⁺)/σ}),     s⁺ = max_pos cos,  s⁻ = max_neg cos

    Parameters
    ----------
    weight : float, default=1.0
        The weight λ of hard negatives.
    temperature : float, default=0.1
        The temperature σ of the easy triplets.
    hard_above : float or None, default=None
        Also a triplet with s⁻ above this is hard; the authors' code has 0.8.
    min_distance : float or None, default=None
        Positives with 1 − cos at most this large count as copies of the anchor and are passed over; the authors' code
        has 1e-4.

    Notes
    -----
    For mining the hardest negatives from the start of training, which makes ``Triplet`` collapse: a hard negative is
    pushed away and nothing is pulled. It learns from one positive and one negative an anchor, so batches should be
    large. Costs O(B² p).

    References
    ----------
    | H. Xuan, A. Stylianou, X. Liu, R. Pless, "Hard negative examples are hard, but useful", ECCV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SelectiveTriplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SelectiveTriplet()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        weight: float = 1.0,
        temperature: float = 0.1,
        hard_above: float | None = None,
        min_distance: float | None = None,
    ):
        super().__init__("cosine", EasyPositive("hard", min_distance))
        self.weight = checked("weight", weight, NotNegative)
        self.temperature = checked("temperature", temperature, Positive)
        self.hard_above = hard_above

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        negative = 1 - d_an  # (T,), s⁻
        hard = d_an < d_ap if self.hard_above is None else (d_an < d_ap) | (negative > self.hard_above)
        terms = torch.where(hard, self.weight * negative, softplus((d_ap - d_an) / self.temperature))
        return terms.sum() / max(len(terms), 1)
