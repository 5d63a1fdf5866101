"""Margin-based loss: a learned boundary between similar and dissimilar distances."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import Distance, as_weights, masks
from isometry.deep.loss import Loss, check_labels
from isometry.deep.miners import Miner, TripleMiner
from isometry.parameters import NotNegative, checked


class MarginLoss(Loss):
    """Margin-based loss: similar pairs nearer than β − α, dissimilar ones farther than β + α; β is learned.

        [α + t_ij (d_ij − β)]_+  over its non-zero terms, plus ν mean β;     t = +1 similar, −1 dissimilar

    Published together with the ``DistanceWeighted`` miner; without a miner all pairs of the batch take part.

    Parameters
    ----------
    margin : float, default=0.2
        The half width α of the boundary.
    beta : float, default=1.2
        The boundary β at the start.
    nu : float, default=0.0
        The weight ν of β itself: above 0 it draws the boundary inwards.
    learn_beta : bool, default=True
        Learn β with the network; False keeps it as given.
    num_classes : int or None, default=None
        One β for each class of anchors instead of one for all.
    beta_lr : float, default=5e-4
        Learning rate of β in ``param_groups``.
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For batches with very unequal distances: the boundary moves to where the data are. Meant to stand with
    ``DistanceWeighted(p)``, which draws negatives of all distances. Costs O(B² p) with all pairs.

    References
    ----------
    | C.-Y. Wu, R. Manmatha, A. J. Smola, P. Krähenbühl, "Sampling matters in deep embedding learning", ICCV 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MarginLoss
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = MarginLoss(margin=0.2)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    of_pairs = True

    def __init__(
        self,
        margin: float = 0.2,
        beta: float = 1.2,
        nu: float = 0.0,
        learn_beta: bool = True,
        num_classes: int | None = None,
        beta_lr: float = 5e-4,
        *,
        distance: Distance = "euclidean",
        miner: Miner | str | None = None,
        normalize: bool = True,
    ):
        super().__init__(distance, miner, normalize)
        self.margin, self.nu = checked("margin", margin, float), checked("nu", nu, NotNegative)
        self.num_classes, self.beta_lr = num_classes, checked("beta_lr", beta_lr, NotNegative)
        self.beta = nn.Parameter(
            torch.full((num_classes or 1,), float(checked("beta", beta, float))), requires_grad=learn_beta
        )

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        D = self.distances(z, refs)
        pos, neg = masks(y, ref_y, self_index)
        shifted = D - self.boundary(y, len(z)).to(z.dtype)[:, None]
        if isinstance(self.miner, TripleMiner) and self.miner.gives_triples:
            with torch.no_grad():
                a, p, n = self.miner.triples(self.as_mined(D.detach()), pos, neg)
            value = self.average(self.margin + torch.cat([shifted[a, p], -shifted[a, n]]))
        else:
            value = self.loss(shifted, *self.mine(D, pos, neg))
        return value + self.nu * self.beta.to(z.dtype).mean()

    def boundary(self, y: Tensor, n: int) -> Tensor:
        """The boundary β of each anchor (B,).

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        n : int
            Number of anchors.
        """
        if self.num_classes is None:
            return self.beta.expand(n)
        if y.ndim != 1:
            raise ValueError("one β a class needs class labels (B,); leave num_classes out for a similarity matrix")
        check_labels(y, self.num_classes)
        return self.beta[y]

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """The formula, where D is d − β.

        Parameters
        ----------
        D : Tensor
            Distances less the boundary (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        sign = as_weights(pos, D.dtype) - as_weights(neg, D.dtype)  # t, 0 for a pair that takes no part
        return self.average(torch.addcmul(self.margin * sign.abs(), sign, D))

    def average(self, terms: Tensor) -> Tensor:
        """The positive parts of the terms over the number of those above zero.

        Parameters
        ----------
        terms : Tensor
            One term a pair.
        """
        return terms.relu().sum() / (terms > 0).sum().clamp_min(1)

    def param_groups(self, lr: float) -> list[dict[str, Any]]:
        return [{"params": [self.beta], "lr": self.beta_lr, "weight_decay": 0.0}] if self.beta.requires_grad else []
