"""Hard-mining centre-triplet loss: class centres of the batch as anchors."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import Distance, class_indicator, masked_max, masked_mean, masked_min
from isometry.deep.loss import Loss
from isometry.parameters import Count, checked, one_of


class CenterTriplet(Loss):
    """Hard-mining centre-triplet loss: a class's farthest member nearer to its centre than any point of another.

        mean_l [max_{i ∈ l} d(μ_l, z_i) − min_{k ∉ l} d(μ_l, z_k) + m]_+,     μ_l = mean_{i ∈ l} z_i

    Only (classes × B) distances are computed.

    Parameters
    ----------
    margin : float, default=0.3
        The margin m.
    negatives : {"samples", "centers"}, default="samples"
        Nearest sample, or nearest centre, of another class.
    detach_centers : bool, default=False
        Hold the centres constant in the gradient.
    min_count : int, default=1
        Classes with fewer samples in the batch are no anchors; a single sample is its own centre.
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For batches of ``PKBatchSampler``: a class is judged by its worst member, and one mislabelled sample is that member.
    Costs O(C B p) for C classes of a batch, less than all pairs.

    References
    ----------
    | X. Lv, C. Zhao, W. Chen, "A novel hard mining center-triplet loss for person re-identification", PRCV 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CenterTriplet
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = CenterTriplet()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        margin: float = 0.3,
        negatives: str = "samples",
        detach_centers: bool = False,
        min_count: int = 1,
        *,
        distance: Distance = "euclidean",
        normalize: bool = False,
    ):
        super().__init__(distance, None, normalize)
        self.negatives = one_of("negatives", negatives, ("samples", "centers"))
        self.margin, self.detach_centers = checked("margin", margin, float), detach_centers
        self.min_count = checked("min_count", min_count, Count)

    def compute(self, z: Tensor, y: Tensor, refs: Tensor, ref_y: Tensor | None, self_index: Tensor | None) -> Tensor:
        """Class centres of the batch are the anchors: distances (C_b, R) to the references, or to the other centres.

        Parameters
        ----------
        z : Tensor
            Embeddings (B, p).
        y : Tensor
            Labels (B,).
        refs : Tensor
            References (R, p).
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.
        """
        if y.ndim != 1 or ref_y is None:
            raise ValueError("CenterTriplet needs class labels (B,); a similarity matrix has no centres")
        classes, members = class_indicator(y, z.dtype)  # (C_b,), (C_b, B)
        count = members.sum(1, keepdim=True)
        centers = members @ z / count  # (C_b, p)
        if self.detach_centers:
            centers = centers.detach()
        pos = (classes[:, None] == ref_y) & (count >= self.min_count)
        neg = classes[:, None] != ref_y
        if self.negatives == "centers":
            refs, none = torch.cat([refs, centers]), torch.zeros_like(classes[:, None] == classes)
            pos, neg = torch.cat([pos, none], 1), torch.cat([torch.zeros_like(neg), classes[:, None] != classes], 1)
        return self.loss(self.distances(centers, refs), pos, neg)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        anchors = pos.any(1) & neg.any(1)
        gap = (masked_max(D, pos) - masked_min(D, neg)).masked_fill(~anchors, 0)
        return masked_mean((gap + self.margin).relu(), anchors)
