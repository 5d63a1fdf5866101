"""Softmax triplet loss: a positive should win the softmax over the batch, a negative should lose it."""

from __future__ import annotations

from torch import Tensor

from isometry.deep.functional import Distance, log1mexp, masked_logsumexp
from isometry.deep.loss import Loss
from isometry.deep.losses.nca import log_probability
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import NotNegative, Positive, checked, one_of


class SoftmaxTriplet(Loss):
    """Softmax triplet loss: positives recognised, and negatives rejected, by a softmax over all other points.

        p_ij = e^{ẑ_iᵀẑ_j/τ} / Σ_{k≠i} e^{ẑ_iᵀẑ_k/τ}
        −mean_i ( Σ_{j ∈ pos(i)} log p_ij + Σ_{j ∈ neg(i)} log(1 − p_ij) )

    Parameters
    ----------
    temperature : float, default=0.1
        The temperature τ: the smaller, the more the closest pairs count.
    multi_positive : {"sum_log", "log_sum"}, default="sum_log"
        With several positives they compete in one softmax. ``"sum_log"`` is the equation above; its floor is n log n
        for n positives. ``"log_sum"`` has log Σ_j p_ij for the first term and tends to 0. Equal for one positive.
    neg_weight : float, default=1.0
        Weight of the second sum; 0 leaves InfoNCE.
    detach_reference : bool, default=False
        Let gradient reach the anchors only, as in the authors' code.
    distance : str or callable, default="inner"
        How embeddings are compared, smaller for closer pairs; ``"sqeuclidean"`` gives the distance form, with logits
        −‖z_i − z_j‖²/τ.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    Published for unlabelled data, where the only positive is an augmented view: ``loss.views(z1, z2)``. With labels and
    several positives prefer ``multi_positive="log_sum"``, or ``SupCon``. Costs O(B² p).

    References
    ----------
    | M. Ye, X. Zhang, P. C. Yuen, S.-F. Chang, "Unsupervised embedding learning via invariant and spreading instance
      feature", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SoftmaxTriplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SoftmaxTriplet()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        temperature: float = 0.1,
        multi_positive: str = "sum_log",
        neg_weight: float = 1.0,
        detach_reference: bool = False,
        *,
        distance: Distance = "inner",
        miner: Miner | str | None = None,
        normalize: bool = True,
    ):
        super().__init__(distance, miner, normalize)
        self.multi_positive = one_of("multi_positive", multi_positive, ("sum_log", "log_sum"))
        self.temperature = checked("temperature", temperature, Positive)
        self.neg_weight = checked("neg_weight", neg_weight, NotNegative)
        self.detach_reference = detach_reference

    def prepare(self, z: Tensor, refs: Tensor) -> tuple[Tensor, Tensor]:
        z, refs = super().prepare(z, refs)
        return z, refs.detach() if self.detach_reference else refs

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        s, anchors = -D / self.temperature, pos.any(1)
        log_p = s - masked_logsumexp(s, pos | neg)[:, None].masked_fill(~anchors[:, None], 0)  # (B, R)
        if self.multi_positive == "sum_log":
            found = log_p.masked_fill(~pos, 0).sum(1)
        else:
            found = log_probability(s, pos, neg).masked_fill(~anchors, 0)
        rejected = log1mexp(log_p).masked_fill(~neg, 0).sum(1)
        return where(-(found + self.neg_weight * rejected), anchors)
