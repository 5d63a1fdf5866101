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
from isometry.parameters import NotNegative, checked


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
        """What each pair costs if it is similar, and if it is not, (B, R) each.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        """
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
    margin : float, default=1.0
        The margin m, beyond which a dissimilar pair costs nothing.
    pos_margin : float, default=0.0
        The distance within which a similar pair costs nothing.
    squared_hinge : bool, default=True
        False: the linear form d and [m − d]_+, to be used with ``distance="sqeuclidean"`` or ``"euclidean"``.
    balanced : bool, default=False
        Mean over similar pairs plus mean over dissimilar pairs, in place of one mean over all.
    jitter : float, default=0.0
        Size of normal noise added to the embeddings in training. Dissimilar points that coincide have no direction in
        which to part, and stay together without it.
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.
    random_state : int or None, default=None
        Seed of the noise.

    Notes
    -----
    For pairs that are known to be similar or dissimilar and nothing more, and for verification by a threshold:
    distances mean the same for every anchor. The margin sets the scale and must fit it, hence ``normalize=True`` with a
    margin below 2, or a network that is free to scale. For a ranking of neighbours a triplet or softmax loss asks for
    less. Costs O(B² p) time; the slopes are worked out in blocks of anchors, beside masks of O(B²) memory.

    References
    ----------
    | R. Hadsell, S. Chopra, Y. LeCun, "Dimensionality reduction by learning an invariant mapping", CVPR 2006.
    | T. Yuan, W. Deng, J. Tang, Y. Tang, B. Chen, "Signal-to-noise ratio: a robust distance metric for deep metric
      learning", CVPR 2019 (snr).

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Contrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = Contrastive(margin=1.0, normalize=True)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
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
        self.margin, self.pos_margin = checked("margin", margin, float), checked("pos_margin", pos_margin, float)
        self.squared_hinge, self.balanced = squared_hinge, balanced
        self.jitter, self.random_state = checked("jitter", jitter, NotNegative), random_state

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
    margin : float, default=0.5
        The margin m, beyond which a dissimilar pair costs nothing.
    distance : str or callable, default="euclidean"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For graded similarities, such as overlap of views or cosines of other descriptors; with 0 and 1 it is
    ``Contrastive``. A similarity of ½ pulls and pushes at once, so that such pairs settle between 0 and the margin.
    Costs O(B² p).

    References
    ----------
    | M. Leyva-Vallina, N. Strisciuglio, N. Petkov, "Generalized contrastive optimization of Siamese networks for place
      recognition", arXiv 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import GeneralizedContrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = GeneralizedContrastive(normalize=True)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> S = torch.tensor([[1.0, 0.9, 0.1, 0.2]] * 4)  # similarities in place of labels
    >>> loss(z, S, refs=z).item() > 0
    True
    """

    def __init__(self, margin: float = 0.5, *, distance: Distance = "euclidean", normalize: bool = False):
        super().__init__(distance, None, normalize)
        self.margin = checked("margin", margin, float)

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
    threshold : float, default=0.5
        The cosine λ above which a dissimilar pair counts.
    hinge : bool, default=False
        Count a dissimilar pair by its excess s − λ, which makes the loss continuous.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    The default loss of ``CrossBatchMemory``. It sums over references where others average: give memories and large
    batches a lower learning rate, or let ``CrossBatchMemory`` weigh them. Costs O(B R p).

    References
    ----------
    | X. Wang, H. Zhang, W. Huang, M. R. Scott, "Cross-batch memory for embedding learning", CVPR 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ThresholdContrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = ThresholdContrastive(threshold=0.5)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    of_pairs = True
    sums = True  # over the references: twice as many give twice the loss

    def __init__(self, threshold: float = 0.5, hinge: bool = False, *, miner: Miner | str | None = None):
        super().__init__("cosine", miner)
        self.threshold, self.hinge = checked("threshold", threshold, float), hinge

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s = 1 - D
        push = s - self.threshold if self.hinge else s
        terms = torch.where(pos, D, push.masked_fill(~neg | (s <= self.threshold), 0))  # (B, R)
        return terms.sum() / len(D)
