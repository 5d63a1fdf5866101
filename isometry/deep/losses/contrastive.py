"""Contrastive losses: similar pairs together, dissimilar pairs apart by a margin."""

from __future__ import annotations

import torch
from torch import Tensor

from isometry.deep.functional import Distance, signed_excess, soft_masks
from isometry.deep.loss import Loss
from isometry.deep.miners import Miner


class Contrastive(Loss):
    """Similar pairs are pulled together, dissimilar ones pushed a margin apart.

        mean over pairs of  ½ d²  (similar)  and  ½ [m − d]_+²  (dissimilar)

    Parameters
    ----------
    margin : float
        m, beyond which a dissimilar pair costs nothing.
    pos_margin : float
        Within which a similar pair costs nothing.
    squared_hinge : bool
        False: the linear form d and [m − d]_+, to be used with ``distance="sqeuclidean"`` or ``"euclidean"``.
    balanced : bool
        Mean over similar pairs plus mean over dissimilar pairs, in place of one mean over all.

    References
    ----------
    R. Hadsell, S. Chopra, Y. LeCun, "Dimensionality reduction by learning an invariant mapping", CVPR 2006.
    """

    def __init__(
        self,
        margin: float = 1.0,
        pos_margin: float = 0.0,
        squared_hinge: bool = True,
        balanced: bool = False,
        *,
        distance: Distance = "euclidean",
        miner: Miner | None = None,
        normalize: bool = False,
    ):
        super().__init__(distance, miner, normalize)
        self.margin, self.pos_margin = margin, pos_margin
        self.squared_hinge, self.balanced = squared_hinge, balanced

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        terms = signed_excess(D, pos, neg, self.pos_margin, self.margin).relu_()  # (B, R)
        if self.squared_hinge:
            terms = terms.square()
        n_pos, n_neg = pos.sum(), neg.sum()
        if self.balanced:
            share = 1 / torch.stack([n_neg, n_pos]).clamp_min(1).to(D.dtype)
            value = (terms * torch.where(pos, share[1], share[0])).sum()
        else:
            value = terms.sum() / (n_pos + n_neg).clamp_min(1)
        return value / 2 if self.squared_hinge else value


class GeneralizedContrastive(Loss):
    """The contrastive loss for similarities s in [0, 1]: given as a matrix ``y`` (B, R), or 0/1 from labels.

        mean over pairs of  s ½ d² + (1 − s) ½ [m − d]_+²

    ``1 - cosine_dissimilarity(x)`` makes such a matrix from unlabelled inputs.

    References
    ----------
    M. Leyva-Vallina, N. Strisciuglio, N. Petkov, "Generalized contrastive optimization of Siamese networks for place
    recognition", 2021.
    """

    def __init__(self, margin: float = 0.5, *, distance: Distance = "euclidean", normalize: bool = False):
        super().__init__(distance, None, normalize)
        self.margin = margin

    def compare(self, z, y, refs, ref_y, self_index):
        return self.distances(z, refs), *soft_masks(y, ref_y, self_index, z.dtype)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        total = (pos * D.square() + neg * (self.margin - D).relu().square()).sum() / 2
        return total / (pos + neg).sum().clamp_min(1)


class ThresholdContrastive(Loss):
    """Pairs on the unit sphere: all similar ones, and dissimilar ones whose cosine s exceeds a threshold.

        (1/B) Σ_i ( Σ_pos (1 − s_ij) + Σ_{neg, s_ik > λ} s_ik )

    The pair loss that cross-batch memory was published with; it sums over the references.

    Parameters
    ----------
    threshold : float
        λ.
    hinge : bool
        Count a dissimilar pair by its excess s − λ, which makes the loss continuous.

    References
    ----------
    X. Wang, H. Zhang, W. Huang, M. R. Scott, "Cross-batch memory for embedding learning", CVPR 2020.
    """

    def __init__(self, threshold: float = 0.5, hinge: bool = False, *, miner: Miner | None = None):
        super().__init__("cosine", miner)
        self.threshold, self.hinge = threshold, hinge

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s = 1 - D
        push = s - self.threshold if self.hinge else s
        terms = torch.where(pos, D, push.masked_fill(~neg | (s <= self.threshold), 0))  # (B, R)
        return terms.sum() / len(D)
