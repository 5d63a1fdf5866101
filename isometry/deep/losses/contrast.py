"""Contrastive losses of a softmax over the batch: InfoNCE, supervised, decoupled; and of a sigmoid: SigLIP."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import (
    Distance,
    any_of_row,
    as_weights,
    clear_self,
    count_of_row,
    masked_logsumexp,
    masked_softmax,
    softplus,
)
from isometry.deep.loss import Loss
from isometry.deep.losses.nca import log_probability, nca_slopes, of_found, softmax_slopes
from isometry.deep.miners import Miner
from isometry.deep.terms import Terms, where
from isometry.parameters import Positive, PositiveShare, checked, one_of


def share_of_pairs(pos: Tensor, dtype: torch.dtype, each: str = "anchors") -> Tensor:
    """Weights (B, R) of the positive pairs: those of each anchor together 1, or as they are: 1 each of a mask."""
    weight = as_weights(pos, dtype)
    if each == "pairs":
        return weight
    total = weight.sum(1, keepdim=True)
    return weight.div_(total.masked_fill_(total == 0, 1))


def against_negatives(s: Tensor, weight: Tensor, neg: Tensor) -> Tensor:
    """w_ij log(1 + Σ_{k ∈ neg(i)} e^{s_ik − s_ij}) (B, R): each positive against the negatives; 0 without any."""
    return weight * softplus(masked_logsumexp(s, neg)[:, None] - s)


def against_negatives_slopes(s: Tensor, weight: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
    """The same with its slopes (B, R) in s: −w σ for a positive, the sum of these, shared by softmax, for negatives."""
    lse, Q = masked_softmax(s, neg)
    excess = lse[:, None] - s
    C = weight * excess.sigmoid()
    return (weight * softplus(excess)).sum(), Q.mul_(C.sum(1, keepdim=True)).sub_(C)


class InfoNCE(Loss):
    """InfoNCE, also NT-Xent: each positive should win a softmax against the negatives of its anchor.

        mean over positive pairs of  −log( e^{s⁺/T} / (e^{s⁺/T} + Σ_neg e^{s_ik/T}) ),     s = cos

    Other positives of the anchor are in neither sum. Of two views it is SimCLR's loss: ``views(z1, z2)``.

    Parameters
    ----------
    temperature : float, default=0.07
        The temperature T: the smaller, the more the closest pairs count; SimCLR has 0.5 for views.
    reduction : {"pairs", "anchors"}, default="pairs"
        One mean over all positive pairs, or over those of each anchor first, which is SINCERE.
    distance : str or callable, default="inner"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For two views or for pairs of matching samples, the other rows of the batch being negatives; it wants many of them:
    large batches, ``GradientCache``, ``CrossBatchMemory``. With classes of many samples ``SupCon`` uses all positives
    at once. Costs O(B² p); slopes are worked out in blocks of anchors.

    References
    ----------
    | A. van den Oord, Y. Li, O. Vinyals, "Representation learning with contrastive predictive coding", arXiv 2018.
    | T. Chen, S. Kornblith, M. Norouzi, G. Hinton, "A simple framework for contrastive learning of visual
      representations", ICML 2020.
    | P. Feeney, M. C. Hughes, "SINCERE: supervised information noise-contrastive estimation revisited", arXiv 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import InfoNCE
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = InfoNCE(temperature=0.1)
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> loss.views(z[:2], z[2:]).item() > 0
    True
    """

    accelerated = True

    def __init__(
        self,
        temperature: float = 0.07,
        reduction: str = "pairs",
        *,
        distance: Distance = "inner",
        miner: Miner | None = None,
        normalize: bool = True,
    ):
        super().__init__(distance, miner, normalize)
        self.temperature = checked("temperature", temperature, Positive)
        self.reduction = one_of("reduction", reduction, ("pairs", "anchors"))

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        used = pos & any_of_row(neg)[:, None]
        return (used if self.reduction == "pairs" else any_of_row(used)).count_nonzero().clamp_min(1)

    def counts(self, pos: Tensor, neg: Tensor, dtype: torch.dtype) -> Tensor:
        """What each positive pair counts, (B, R); nothing, if its anchor has no negative.

        Parameters
        ----------
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        dtype : torch.dtype
            Type of the counts.
        """
        return share_of_pairs(pos & any_of_row(neg)[:, None], dtype, self.reduction)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        counts = self.counts(pos, neg, D.dtype)
        return against_negatives(D / -self.temperature, counts, neg), counts

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        weight = self.counts(pos, neg, D.dtype).div_(totals)
        value, C = against_negatives_slopes(D / -self.temperature, weight, neg)
        return value, C.div_(-self.temperature)


class SupCon(Loss):
    """Supervised contrastive loss: all positives of an anchor share a softmax over all other points.

        −mean_i Σ_{j ∈ pos(i)} w_ij log( e^{s_ij/T} / Σ_{k≠i} e^{s_ik/T} ) / Σ_j w_ij,     s = cos

    w = 1 for labels. Of soft labels, a matrix ``y`` (B, R), or of sets of labels, w_ij is the similarity where it
    reaches a threshold, and 0 below it.

    Parameters
    ----------
    temperature : float, default=0.1
        The temperature T: the smaller, the more the closest pairs count.
    form : {"out", "in", "apart"}, default="out"
        The mean over positives outside the logarithm, as above, or inside it; ``"apart"``: each positive against the
        negatives only (SINCERE). The last two count positives alike, whatever w.
    labels : {"classes", "sets"}, default="classes"
        ``"sets"``: y is a boolean matrix (B, c), which of c labels each sample has; w is the Jaccard similarity of two
        sets, 1 for two empty ones.
    threshold : float, default=0.5
        From which similarity on two samples are positives.
    distance : str or callable, default="inner"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For labelled batches with several samples a class, for similarities in [0, 1] and for sets of labels. Its value does
    not reach 0, since positives compete in one softmax: compare runs by their retrieval, not by the loss. Costs
    O(B² p); slopes are worked out in blocks of anchors.

    References
    ----------
    | P. Khosla, P. Teterwak, C. Wang, A. Sarna, Y. Tian, P. Isola, A. Maschinot, C. Liu, D. Krishnan, "Supervised
      contrastive learning", NeurIPS 2020.
    | P. Feeney, M. C. Hughes, "SINCERE: supervised information noise-contrastive estimation revisited", arXiv 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SupCon
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SupCon()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    >>> sets = torch.tensor([[True, False], [True, True], [False, True], [False, True]])
    >>> SupCon(labels="sets")(z, sets).item() > 0
    True
    """

    accelerated = True

    def __init__(
        self,
        temperature: float = 0.1,
        form: str = "out",
        labels: str = "classes",
        threshold: float = 0.5,
        *,
        distance: Distance = "inner",
        miner: Miner | None = None,
        normalize: bool = True,
    ):
        super().__init__(distance, miner, normalize)
        self.temperature = checked("temperature", temperature, Positive)
        self.form = one_of("form", form, ("out", "in", "apart"))
        self.labels = one_of("labels", labels, ("classes", "sets"))
        self.threshold = checked("threshold", threshold, PositiveShare)

    def read_labels(self, y: Tensor, ref_y: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return (y, ref_y) if self.labels == "classes" else (jaccard(y, ref_y), None)

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Weights of the positives, a matrix of booleans if all are 1, and which references are negative.

        Parameters
        ----------
        y : Tensor
            Labels (B,).
        ref_y : Tensor or None
            Labels of the references (R,).
        self_index : Tensor or None
            Which reference is the anchor itself (B,), −1 for none.
        dtype : torch.dtype
            Type of the embeddings.
        """
        if y.ndim == 1 or not y.is_floating_point():
            return super().masks(y, ref_y, self_index, dtype)
        weight = torch.where(clear_self(y >= self.threshold, self_index), y, 0).to(dtype)
        return weight, clear_self(y < self.threshold, self_index)

    def mine(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor]:
        if self.miner is None:
            return pos, neg
        kept, neg = super().mine(D, pos > 0, neg)
        return pos * kept, neg

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        anchors = any_of_row(pos > 0)
        return (anchors & any_of_row(neg) if self.form == "apart" else anchors).count_nonzero().clamp_min(1)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        s = D / -self.temperature
        if self.form == "apart":
            weight = share_of_pairs((pos > 0) & any_of_row(neg)[:, None], s.dtype)
            return against_negatives(s, weight, neg), weight
        if self.form == "in":
            log_p = log_probability(s, pos > 0, neg)
            return of_found(count_of_row(pos > 0).clamp_min(1).to(s.dtype).log() - log_p, log_p)
        weight = share_of_pairs(pos, s.dtype)
        lse = masked_logsumexp(s, (pos > 0) | neg)[:, None]
        return weight * (lse.masked_fill(lse == -torch.inf, 0) - s), weight

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        s, some = D / -self.temperature, pos > 0
        if self.form == "apart":
            weight = share_of_pairs(some & any_of_row(neg)[:, None], s.dtype).div_(totals)
            value, C = against_negatives_slopes(s, weight, neg)
        elif self.form == "in":
            value, C = nca_slopes(s, some, neg, totals)
            value = value + count_of_row(some).clamp_min(1).to(s.dtype).log().sum() / totals
        else:
            value, C = softmax_slopes(s, share_of_pairs(pos, s.dtype).div_(totals), some | neg)
        return value, C.div_(-self.temperature)


def jaccard(y: Tensor, ref_y: Tensor | None) -> Tensor:
    """|A ∩ B| / |A ∪ B| (B, R) of sets of labels, the rows of boolean matrices (B, c) and (R, c); 1 for empty sets."""
    for sets in (y, ref_y):
        if sets is None or sets.dtype != torch.bool or sets.ndim != 2:
            got = "none" if sets is None else f"{sets.dtype} of shape {tuple(sets.shape)}"
            raise ValueError(
                "labels='sets' takes a boolean matrix (B, c), which of c labels each sample has, and one more as ref_y "
                f"with refs; got {got}"
            )
    a, b = (as_weights(sets, torch.float64) for sets in (y, ref_y) if sets is not None)
    both = a @ b.T
    either = a.sum(1, keepdim=True) + b.sum(1) - both
    return torch.where(either > 0, both / either.clamp_min(1), 1)


class DecoupledContrastive(Loss):
    """Decoupled contrastive loss: InfoNCE without the positive in the denominator.

        mean over positive pairs of  −w s⁺/T + log Σ_neg e^{s_ik/T},     s = cos
        w = 1,   or for n pairs  w = 2 − n e^{s⁺/σ} / Σ_pairs e^{s⁺/σ},  held constant

    It may be negative. The gradient of an easy positive does not vanish, so that small batches serve.

    Parameters
    ----------
    temperature : float, default=0.1
        The temperature T: the smaller, the more the closest pairs count.
    weighted : bool, default=False
        Take the second w, larger for pairs that are far apart (DCLW).
    sigma : float, default=0.5
        The width σ of the weights.
    distance : str or callable, default="inner"
        How embeddings are compared, smaller for closer pairs: "euclidean", "sqeuclidean", "cosine", "inner",
        "manhattan", "snr", "poincare", or a callable ``(B, p), (R, p) -> (B, R)``.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.
    normalize : bool, default=True
        Put embeddings and references on the unit sphere first.

    Notes
    -----
    For small batches, where the positive in the denominator of ``InfoNCE`` takes a large share. The value has no lower
    bound at 0. Costs O(B² p).

    References
    ----------
    | C.-H. Yeh, C.-Y. Hong, Y.-C. Hsu, T.-L. Liu, Y. Chen, Y. LeCun, "Decoupled contrastive learning", ECCV 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import DecoupledContrastive
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = DecoupledContrastive()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    accelerated = True

    def __init__(
        self,
        temperature: float = 0.1,
        weighted: bool = False,
        sigma: float = 0.5,
        *,
        distance: Distance = "inner",
        miner: Miner | None = None,
        normalize: bool = True,
    ):
        super().__init__(distance, miner, normalize)
        self.temperature, self.sigma = checked("temperature", temperature, Positive), checked("sigma", sigma, Positive)
        self.weighted = weighted

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor | None:
        return None if self.weighted else (pos & any_of_row(neg)[:, None]).count_nonzero().clamp_min(1)

    def pairs(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        """Share of each positive pair in the mean, and the same times w, (B, R) each.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        totals : Tensor
            What ``totals`` gave.
        """
        used = pos & any_of_row(neg)[:, None]
        share = as_weights(used, D.dtype).div_(used.count_nonzero().clamp_min(1) if totals is None else totals)
        if not self.weighted:
            return share, share
        e = masked_softmax(D.detach().flatten()[None] / -self.sigma, used.flatten()[None])[1].view_as(D)
        return share, 2 * share - e  # n softmax / n

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        s, (share, pull) = D / -self.temperature, self.pairs(D, pos, neg, None)
        lse = masked_logsumexp(s, neg).masked_fill(~any_of_row(neg), 0)
        return (share.sum(1) * lse).sum() - (pull * s).sum()

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        if self.weighted:  # w is a softmax over the pairs of the whole batch
            raise self.no_terms()
        s, used = D / -self.temperature, pos & any_of_row(neg)[:, None]
        return where(masked_logsumexp(s, neg)[:, None] - s, used)

    def not_split(self) -> str:
        return "(weighted=True)"

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        share, pull = self.pairs(D, pos, neg, totals)
        value, C = softmax_slopes(D / -self.temperature, pull, neg, share.sum(1))
        return value, C.div_(-self.temperature)


class SigLIP(Loss):
    """Sigmoid loss of pairs: each pair by itself is to be told a match or none.

        (1/B) Σ_i Σ_j log(1 + e^{∓(t s_ij + b)}),     − for a match, + for any other pair,     s = cos

    t and b are learned. It divides by the number of anchors, not of pairs, and sums over the references. For images and
    their texts: ``Columns(SigLIP())``.

    Parameters
    ----------
    scale : float, default=10.0
        The factor t at the start.
    bias : float, default=-5.0
        The offset b at the start: a pair of cosine −b/t is as likely a match as not.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    No softmax over the batch: a batch may be of any size, and several positives of an anchor do no harm.

    Published is b = −10, for batches of tens of thousands of images and texts, in which a match is rare. In batches of
    32 classes × 4 (sentences of clinc150, a linear map, unseen classes, two halves of them) that start pulls the
    matches together and leaves the others alone: MAP@R .583 and .622, below the .596 and .632 of the embeddings as they
    are; −5 gives .632 and .678, −8 with t = 16 .627 and .673.

    Costs O(B² p).

    References
    ----------
    | X. Zhai, B. Mustafa, A. Kolesnikov, L. Beyer, "Sigmoid loss for language image pre-training", ICCV 2023.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SigLIP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SigLIP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    of_pairs = True
    sums = True  # over the references: twice as many give twice the loss

    def __init__(self, scale: float = 10.0, bias: float = -5.0, *, miner: Miner | None = None):
        super().__init__("inner", miner, normalize=True)
        self.log_scale = nn.Parameter(torch.tensor(math.log(checked("scale", scale, Positive))))
        self.bias = nn.Parameter(torch.tensor(float(checked("bias", bias, float))))

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        x = self.bias - self.log_scale.exp() * D  # (B, R)
        terms = softplus(-x).masked_fill(~pos, 0) + softplus(x).masked_fill(~neg, 0)
        return terms.sum(1), any_of_row(pos | neg)
