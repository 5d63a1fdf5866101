"""Contrastive losses: similar pairs together, dissimilar pairs apart by a margin."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from isometry.deep.functional import Distance, as_weights, overwritable, soft_masks
from isometry.deep.loss import Loss
from isometry.deep.miners import Draws, Miner
from isometry.deep.terms import Terms


class PairHinges(Loss):
    """Σ w⁺ h(d − m⁺) / n⁺ + Σ w⁻ h(m − d) / n⁻ over pairs, h(x) = ½ [x]_+² or [x]_+; ``totals`` are n⁺, n⁻."""

    of_pairs = True
    accelerated = True
    pos_margin = 0.0
    squared_hinge = True
    balanced = False
    margin: float

    @abstractmethod
    def totals(self, pos: Tensor, neg: Tensor) -> Tensor: ...

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        n_pos, n_neg = self.totals(pos, neg)
        pull, push = self.hinges(D)
        return (pull * pos).sum() / n_pos + (push * neg).sum() / n_neg

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        if self.balanced:
            raise self.no_terms()
        pull, push = self.hinges(D)
        return pull * pos + push * neg, as_weights(pos, D.dtype) + as_weights(neg, D.dtype)

    def not_split(self) -> str:
        return "(balanced=True)"

    def hinges(self, D: Tensor) -> tuple[Tensor, Tensor]:
        """What each pair costs if it is similar, and if it is not, (B, R) each."""
        pull, push = (D - self.pos_margin).relu(), (self.margin - D).relu()
        return (pull.square() / 2, push.square() / 2) if self.squared_hinge else (pull, push)

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        pull, C = _hinges(D - self.pos_margin, as_weights(pos, D.dtype), self.squared_hinge)
        push, C_neg = _hinges(self.margin - D, as_weights(neg, D.dtype), self.squared_hinge)
        return pull / totals[0] + push / totals[1], C.div_(totals[0]).sub_(C_neg.div_(totals[1]))


def _hinges(x: Tensor, weight: Tensor, squared: bool) -> tuple[Tensor, Tensor]:
    """Σ w h(x), and its slopes (B, R), in the memory of the two arguments."""
    x.relu_()
    C = weight.mul_(x if squared else x.sign())
    value = overwritable(x).mul_(C).sum()
    return value / 2 if squared else value, C


class Contrastive(Draws, PairHinges):
    """Contrastive loss: similar pairs are pulled together, dissimilar ones pushed a margin apart.

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
    jitter : float
        Size of normal noise added to the embeddings in training. Dissimilar points that coincide have no direction in
        which to part, and stay together without it.
    random_state : int, optional
        Seed of the noise.

    References
    ----------
    R. Hadsell, S. Chopra, Y. LeCun, "Dimensionality reduction by learning an invariant mapping", CVPR 2006.
    T. Yuan, W. Deng, J. Tang, Y. Tang, B. Chen, "Signal-to-noise ratio: a robust distance metric for deep metric
    learning", CVPR 2019 (snr).
    """

    def __init__(
        self,
        margin: float = 1.0,
        pos_margin: float = 0.0,
        squared_hinge: bool = True,
        balanced: bool = False,
        *,
        jitter: float = 0.0,
        distance: Distance = "euclidean",
        miner: Miner | str | None = None,
        normalize: bool = False,
        random_state: int | None = None,
    ):
        super().__init__(distance, miner, normalize)
        self.margin, self.pos_margin = margin, pos_margin
        self.squared_hinge, self.balanced = squared_hinge, balanced
        self.jitter, self.random_state = jitter, random_state

    def prepare(self, z: Tensor, refs: Tensor) -> tuple[Tensor, Tensor]:
        same, (z, refs) = refs is z, super().prepare(z, refs)
        if self.jitter and self.training:
            noise = torch.randn(z.shape, generator=self.generator(z.device), dtype=z.dtype, device=z.device)
            z = z + self.jitter * noise
        return z, z if same else refs

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        n_pos, n_neg = pos.count_nonzero(), neg.count_nonzero()
        return torch.stack([n_pos, n_neg] if self.balanced else [n_pos + n_neg] * 2).clamp_min(1)


class GeneralizedContrastive(PairHinges):
    """Generalised contrastive loss: for similarities s in [0, 1], a matrix ``y`` (B, R), or 0/1 from labels.

        mean over pairs of  s ½ d² + (1 − s) ½ [m − d]_+²

    ``1 - cosine_dissimilarity(x)`` makes such a matrix from unlabelled inputs.

    Parameters
    ----------
    margin : float
        m, beyond which a dissimilar pair costs nothing.

    References
    ----------
    M. Leyva-Vallina, N. Strisciuglio, N. Petkov, "Generalized contrastive optimization of Siamese networks for place
    recognition", arXiv 2021.
    """

    def __init__(self, margin: float = 0.5, *, distance: Distance = "euclidean", normalize: bool = False):
        super().__init__(distance, None, normalize)
        self.margin = margin

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        return soft_masks(y, ref_y, self_index, dtype)

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return (pos.sum() + neg.sum()).clamp_min(1).expand(2)


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

    of_pairs = True
    sums = True  # over the references: twice as many give twice the loss

    def __init__(self, threshold: float = 0.5, hinge: bool = False, *, miner: Miner | str | None = None):
        super().__init__("cosine", miner)
        self.threshold, self.hinge = threshold, hinge

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s = 1 - D
        push = s - self.threshold if self.hinge else s
        terms = torch.where(pos, D, push.masked_fill(~neg | (s <= self.threshold), 0))  # (B, R)
        return terms.sum() / len(D)
