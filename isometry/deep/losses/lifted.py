"""Lifted structured embedding: each positive pair against all negatives of both its ends."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import Distance, masked_logsumexp, masked_mean, masked_min
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner
from isometry.parameters import NotNegative, checked, one_of


class Lifted(Loss):
    """Lifted structured embedding: each positive pair nearer than the negatives of either end.

        (1 / 2|P|) Σ_{(i,j) ∈ P} [J_ij]_+²
        J_ij = log( Σ_{k ∈ neg(i)} e^{m − d_ik} + Σ_{l ∈ neg(j)} e^{m − d_jl} ) + d_ij

    With ℓ_i = log Σ_k e^{m − d_ik} the logarithm is logaddexp(ℓ_i, ℓ_j): O(B²) for the batch. When references differ
    from the batch, the negatives of a positive reference are the anchors of other classes.

    Parameters
    ----------
    margin : float, default=1.0
        The margin m.
    form : {"logsumexp", "max", "generalized"}, default="logsumexp"
        ``"max"``: the hardest negative of the two ends in place of the log-sum-exp. ``"generalized"``: one term an
        anchor, [log Σ_pos e^{d_ij} + log Σ_neg e^{m − d_ik}]_+.
    l2_reg : float, default=0.0
        Weight of the mean squared norm of the embeddings.
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    Every negative of a batch takes part in every positive pair, so that few positives suffice. The authors' form is
    sensitive to the scale of unnormalised embeddings, hence ``l2_reg``; with ``normalize=True`` take a margin below 2.
    Costs O(B² p) time and O(B²) memory.

    References
    ----------
    | H. Oh Song, Y. Xiang, S. Jegelka, S. Savarese, "Deep metric learning via lifted structured feature embedding",
      CVPR 2016.
    | A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", arXiv 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Lifted
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Lifted(margin=1.0)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        margin: float = 1.0,
        form: str = "logsumexp",
        l2_reg: float = 0.0,
        *,
        distance: Distance = "euclidean",
        miner: Miner | str | None = None,
        normalize: bool = False,
    ):
        super().__init__(distance, miner, normalize)
        self.form = one_of("form", form, ("logsumexp", "max", "generalized"))
        self.margin, self.l2_reg = checked("margin", margin, float), checked("l2_reg", l2_reg, NotNegative)

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        value = super().compute(z, y, refs, ref_y, self_index)
        return value + self.l2_reg * z.square().sum(1).mean() if self.l2_reg else value

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        if self.form == "generalized":
            anchors = pos.any(1) & neg.any(1)
            J = masked_logsumexp(D, pos) + masked_logsumexp(self.margin - D, neg)
            return masked_mean(J.masked_fill(~anchors, 0).relu(), anchors)
        i, j = pos.nonzero(as_tuple=True)
        if self.form == "max":
            push = torch.maximum(self.margin - masked_min(D, neg, 1)[i], self.margin - masked_min(D, neg, 0)[j])
        else:
            lowest = torch.finfo(D.dtype).min / 4  # −inf for an end without negatives would give NaN in logaddexp
            row, column = (masked_logsumexp(self.margin - D, neg, dim).clamp_min(lowest) for dim in (1, 0))
            push = torch.logaddexp(row[i], column[j])
        return (push + D[i, j]).relu().square().sum() / max(2 * len(i), 1)
