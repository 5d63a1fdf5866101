"""Triplet global loss: first and second moments of the two kinds of distance."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.loss import TripletForm
from isometry.deep.losses.triplet import triplet_counts
from isometry.deep.miners import Miner
from isometry.parameters import NotNegative, checked


class TripletGlobal(TripletForm):
    """Triplet global loss: small variances of positive and negative distances, and their means a margin apart.

        σ₊² + σ₋² + λ [μ₊ − μ₋ + t]_+,     d = ‖ẑ_i − ẑ_j‖² / 4 ∈ [0, 1]

    Moments are over the triplets of the batch, so there is one hinge for all. Usually added to a triplet loss:
    ``WeightedSum(Triplet(), TripletGlobal())``.

    Parameters
    ----------
    lam : float, default=0.8
        The weight λ of the hinge between the means.
    margin : float, default=0.4
        The margin t between the mean distances, in [0, 1].
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    A regulariser of all triplets at once: it narrows the two distributions of distances and needs large batches for its
    variances. It stands beside a ``Triplet``. Costs O(B²).

    References
    ----------
    | B. G. V. Kumar, G. Carneiro, I. Reid, "Learning local image descriptors with deep Siamese and triplet
      convolutional networks by minimising global loss functions", CVPR 2016.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import TripletGlobal
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = TripletGlobal()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self, lam: float = 0.8, margin: float = 0.4, *, miner: Miner | str | None = None, normalize: bool = True
    ):
        super().__init__("sqeuclidean", miner, normalize)
        self.lam, self.margin = checked("lam", lam, NotNegative), checked("margin", margin, float)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor, D_refs: Tensor | None = None) -> Tensor:
        return self.moments(D, D, *triplet_counts(pos, neg, D.dtype))

    def triplet_loss(self, d_ap: Tensor, d_an: Tensor, d_pn: Tensor | None = None) -> Tensor:
        return self.moments(d_ap, d_an, torch.ones_like(d_ap), torch.ones_like(d_an))

    def moments(self, d_pos: Tensor, d_neg: Tensor, w_pos: Tensor, w_neg: Tensor) -> Tensor:
        """The loss of squared distances by their weights.

        Parameters
        ----------
        d_pos : Tensor
            Squared distances of the positive pairs.
        d_neg : Tensor
            Squared distances of the negative pairs.
        w_pos : Tensor
            In how many triplets each positive pair is.
        w_neg : Tensor
            In how many triplets each negative pair is.

        Returns
        -------
        Tensor
            The scalar.
        """
        mean_pos, var_pos = _moments(d_pos / 4, w_pos)
        mean_neg, var_neg = _moments(d_neg / 4, w_neg)
        hinge = (mean_pos - mean_neg + self.margin).relu()
        return (var_pos + var_neg + self.lam * hinge) * (w_pos.sum() > 0)


def _moments(d: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and biased variance; the mean first, so that no squares of large numbers are subtracted."""
    weight = weight / weight.sum().clamp_min(1)
    mean = (weight * d).sum()
    return mean, (weight * (d - mean).square()).sum()
