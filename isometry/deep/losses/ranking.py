"""Losses of ranks: average precision and recall of a batch, with the step that counts who comes before made soft.

For an anchor i and its positive j the rank is R_ij = 1 + Σ_{k≠j} H(s_ik − s_ij), in O(B² K) time for K positives an
anchor. The (b, K, R) differences of a block of anchors are in memory at a time.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod

import torch
from torch import Tensor

from isometry.deep.functional import (
    any_of_row,
    as_weights,
    count_of_row,
    packed,
)
from isometry.deep.loss import Loss
from isometry.deep.losses.threshold_margin import ThresholdConsistentMargin
from isometry.deep.miners import Miner
from isometry.deep.slopes import BLOCK, slopes_of_rows, with_slopes
from isometry.deep.terms import Terms, where
from isometry.parameters import Positive, Share, checked, one_of


class RankLoss(Loss):
    """Abstract: the mean over anchors of a loss of the ranks of their positives by cosine."""

    def __init__(self, temperature: float, count_self: bool = False, miner: Miner | None = None):
        super().__init__("inner", miner, normalize=True)
        self.temperature, self.count_self = checked("temperature", temperature, Positive), count_self

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        return super().masks(y, ref_y, None if self.count_self else self_index, dtype)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        anchors = any_of_row(pos) & any_of_row(neg)
        n, most = anchors.count_nonzero().clamp_min(1), int(count_of_row(pos).max())

        def of_rows(rows: slice, D: Tensor) -> Tensor:
            P, N, filled = self.before(-D, pos[rows], neg[rows])
            shares = self.shares(P, N, count_of_row(pos[rows])[:, None].clamp_min(1).to(D.dtype))
            return shares.masked_fill(~(filled & anchors[rows, None]), 0).sum() / n

        def slopes(D: Tensor) -> tuple[Tensor, Tensor]:
            graph = D.requires_grad and torch.is_grad_enabled()  # the slopes will be differentiated
            if graph or type(self).before is not RankLoss.before:
                return slopes_of_rows(D, of_rows, most * D.shape[1])
            return self.sigmoid_slopes(D, pos, neg, anchors)

        return with_slopes(D, slopes)

    def sigmoid_slopes(self, D: Tensor, pos: Tensor, neg: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and its slopes (B, R), where steps are sigmoids: H' = H (1 − H), in the memory of H.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        anchors : Tensor
            Which anchors have a positive and a negative, a boolean vector (B,).
        """
        s, masks, columns, filled = self.packed(-D, pos, neg)
        used, n_pos = filled & anchors[:, None], count_of_row(pos)[:, None].clamp_min(1).to(D.dtype)
        n, value, C = anchors.count_nonzero().clamp_min(1), D.new_zeros(()), torch.empty_like(D)
        step = max(1, min(BLOCK, 4 * D.numel()) // max(columns.shape[1] * D.shape[1], 1))  # H: four times D at most
        for start in range(0, len(D), step):
            rows = slice(start, start + step)
            M = masks[rows]
            H = steps(s[rows], columns[rows])
            before = (H @ M).requires_grad_()  # (b, K, 2), positives and negatives before each positive
            with torch.enable_grad():
                P, N = before.unbind(2)
                share = self.shares(P + 0.5, N, n_pos[rows]).masked_fill(~used[rows], 0).sum() / n
            (g,) = torch.autograd.grad(share, before)
            value += share.detach()
            H.addcmul_(H, H, value=-1)
            own = ((H @ M) * g).sum(2)  # (b, K), of the similarity of the positive itself
            torch.sum((g.mT @ H) * M.mT, 1, out=C[rows])
            C[rows].scatter_add_(1, columns[rows], own.neg_())
        return value, C.div_(-self.temperature)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        P, N, filled = self.before(-D, pos, neg)
        shares = self.shares(P, N, count_of_row(pos)[:, None].clamp_min(1).to(D.dtype))
        return where(shares.masked_fill(~filled, 0).sum(1), any_of_row(pos) & any_of_row(neg))

    def before(self, s: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How many positives, itself included, and negatives each positive has before it, and where there is one.

        (b, K) each, for b anchors with up to K positives.

        Parameters
        ----------
        s : Tensor
            Cosines of b anchors to the references (b, R).
        pos : Tensor
            Which references are positive, a boolean matrix (b, R).
        neg : Tensor
            Which references are negative, a boolean matrix (b, R).
        """
        s, masks, columns, filled = self.packed(s, pos, neg)
        P, N = (steps(s, columns) @ masks).unbind(2)
        return P + 0.5, N, filled  # of itself H(0) = ½

    def packed(self, s: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """s / τ, the masks as numbers (b, R, 2), which references the positives are, and where there is one (b, K).

        Parameters
        ----------
        s : Tensor
            Cosines of b anchors to the references (b, R).
        pos : Tensor
            Which references are positive, a boolean matrix (b, R).
        neg : Tensor
            Which references are negative, a boolean matrix (b, R).
        """
        masks = torch.stack([as_weights(m, s.dtype) for m in (pos, neg)], 1).mT  # rows of a mask stay in one piece
        return s / self.temperature, masks, *packed(pos)

    @abstractmethod
    def shares(self, P: Tensor, N: Tensor, n_pos: Tensor) -> Tensor:
        """The share of each positive (b, K) in the loss of its anchor, which has ``n_pos`` (b, 1).

        Parameters
        ----------
        P : Tensor
            Positives before each positive, itself included (b, K).
        N : Tensor
            Negatives before each positive (b, K).
        n_pos : Tensor
            Positives of each anchor (b, 1).
        """


def steps(s: Tensor, columns: Tensor) -> Tensor:
    """σ(s_ik − s_ij) (b, K, R) for the positives j of each anchor."""
    return (s[:, None] - s.gather(1, columns)[:, :, None]).sigmoid_()


class SmoothAP(RankLoss):
    """Smooth average precision: the share of positives among what is ranked before each positive.

        1 − mean_i mean_{j ∈ pos(i)} R⁺_ij / R_ij,     R_ij = 1 + Σ_{k≠j} σ((s_ik − s_ij)/τ),   R⁺ over positives only

    Parameters
    ----------
    temperature : float, default=0.01
        The temperature τ of the soft steps; towards 0 the loss is 1 − AP itself, and its gradient vanishes.
    count_self : bool, default=False
        Count the query as its own first positive, as the authors' code does.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    When average precision is what will be reported, as a fine-tuning of a network that ranks well already. Wants large
    batches with several positives an anchor. Costs O(B² K) time for K positives an anchor, in blocks of anchors.

    References
    ----------
    | A. Brown, W. Xie, V. Kalogeiton, A. Zisserman, "Smooth-AP: smoothing the path towards large-scale image
      retrieval", ECCV 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SmoothAP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SmoothAP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(self, temperature: float = 0.01, count_self: bool = False, *, miner: Miner | None = None):
        super().__init__(temperature, count_self, miner)

    def shares(self, P: Tensor, N: Tensor, n_pos: Tensor) -> Tensor:
        return N / (P + N) / n_pos


class PNP(RankLoss):
    """Positives with no negative before them: a penalty on the number of negatives before each positive.

        mean_i mean_{j ∈ pos(i)} f(N_ij),     N_ij = Σ_neg σ((s_ik − s_ij)/τ)

    Parameters
    ----------
    variant : {"Dq", "Ds", "Iu", "Ib", "O"}, default="Dq"
        f(N): 1 − (1+N)^{−α}; log(1+N); (1+N) log(1+N); (bN − log(1+bN))/b²; N.
    alpha : float, default=4.0
        The exponent α of variant "Dq".
    b : float, default=2.0
        The constant b of variant "Ib".
    temperature : float, default=0.01
        The temperature τ of the soft steps: the smaller, the nearer to exact counts.
    count_self : bool, default=False
        Count the query as a positive of its own, as the authors' code does.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    Only negatives before a positive cost anything; the order among positives is free. "Dq" cares most for positives
    that are nearly first, "Iu" and "Ib" most for those far behind. Costs O(B² K) time for K positives an anchor.

    References
    ----------
    | Z. Li, W. Min, J. Song, Y. Zhu, L. Kang, X. Wei, X. Wei, S. Jiang, "Rethinking the optimization of average
      precision: only penalizing negative instances before positive ones is enough", AAAI 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import PNP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = PNP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        variant: str = "Dq",
        alpha: float = 4.0,
        b: float = 2.0,
        temperature: float = 0.01,
        count_self: bool = False,
        *,
        miner: Miner | None = None,
    ):
        super().__init__(temperature, count_self, miner)
        self.variant = one_of("variant", variant, ("Dq", "Ds", "Iu", "Ib", "O"))
        self.alpha, self.b = checked("alpha", alpha, Positive), checked("b", b, Positive)

    def shares(self, P: Tensor, N: Tensor, n_pos: Tensor) -> Tensor:
        f = {
            "Dq": lambda: -(-self.alpha * N.log1p()).expm1(),
            "Ds": N.log1p,
            "Iu": lambda: (1 + N) * N.log1p(),
            "Ib": lambda: (self.b * N - (self.b * N).log1p()) / self.b**2,
            "O": lambda: N,
        }
        return f[self.variant]() / n_pos


class SupAP(RankLoss):
    """Upper bound of 1 − AP: positives are counted exactly, negatives by a step that never lies below the exact one.

        1 − mean_i mean_{j ∈ pos(i)} R⁺_ij / (R⁺_ij + Σ_neg H⁻(s_ik − s_ij))
        H⁻(t) = σ(t/τ) for t ≤ 0;   σ(t/τ) + ½ up to δ;   σ(δ/τ) + ½ + ρ(t − δ) beyond

    A negative far above a positive keeps the slope ρ, where that of ``SmoothAP`` vanishes.

    Parameters
    ----------
    temperature : float, default=0.01
        The temperature τ of the soft steps: the smaller, the nearer to exact ranks.
    rho : float, default=100.0
        The slope ρ that a negative far above a positive keeps.
    delta : float, default=0.05
        Where the linear part begins, δ.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    An upper bound of 1 − AP, so that its minimisation cannot deceive. Usually as the first part of ``ROADMAP``. Costs
    O(B² K) time for K positives an anchor.

    References
    ----------
    | E. Ramzi, N. Thome, C. Rambour, N. Audebert, X. Bitot, "Robust and decomposable average precision for image
      retrieval", NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import SupAP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = SupAP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self, temperature: float = 0.01, rho: float = 100.0, delta: float = 0.05, *, miner: Miner | None = None
    ):
        super().__init__(temperature, miner=miner)
        self.rho, self.delta = checked("rho", rho, Positive), checked("delta", delta, Positive)

    def before(self, s: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        columns, filled = packed(pos)
        t = s[:, None] - s.gather(1, columns)[:, :, None]  # (b, K, R)
        P = (t.detach() >= 0).to(s.dtype) @ as_weights(pos, s.dtype)[:, :, None]
        H = (t.clamp_max(self.delta) / self.temperature).sigmoid() + self.rho * (t - self.delta).relu() + (t > 0) / 2
        return P.squeeze(2), (H @ as_weights(neg, s.dtype)[:, :, None]).squeeze(2), filled

    def shares(self, P: Tensor, N: Tensor, n_pos: Tensor) -> Tensor:
        return N / (P + N).clamp_min(1) / n_pos


class ROADMAP(SupAP):
    """Robust and decomposable average precision: SupAP, and one threshold for the positives of all anchors.

        (1 − λ) SupAP + λ ( mean_{pos, s<m⁺} (m⁺ − s) + mean_{neg, s>m⁻} (s − m⁻) )

    Parameters
    ----------
    weight : float, default=0.5
        The weight λ of the second term.
    pos_margin : float, default=0.9
        The similarity m⁺ below which a positive costs.
    neg_margin : float, default=0.6
        The similarity m⁻ above which a negative costs.
    temperature : float, default=0.01
        The temperature τ of the soft steps, see `SupAP`.
    rho : float, default=100.0
        The slope ρ that a negative far above a positive keeps, see `SupAP`.
    delta : float, default=0.05
        Where the linear part begins, δ, see `SupAP`.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    Average precision of a batch is not that of the whole set; the second term makes similarities comparable between
    batches. Costs O(B² K) time for K positives an anchor.

    References
    ----------
    | E. Ramzi, N. Thome, C. Rambour, N. Audebert, X. Bitot, "Robust and decomposable average precision for image
      retrieval", NeurIPS 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ROADMAP
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = ROADMAP()
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        weight: float = 0.5,
        pos_margin: float = 0.9,
        neg_margin: float = 0.6,
        temperature: float = 0.01,
        rho: float = 100.0,
        delta: float = 0.05,
        *,
        miner: Miner | None = None,
    ):
        super().__init__(temperature, rho, delta, miner=miner)
        self.weight = checked("weight", weight, Share)
        self.calibration = ThresholdConsistentMargin(pos_margin, neg_margin)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        calibration = self.calibration.loss(D, pos, neg)
        anchors = (any_of_row(pos) & any_of_row(neg)).any()  # nothing to calibrate without both
        return (1 - self.weight) * super().loss(D, pos, neg) + self.weight * anchors * calibration

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        raise self.no_terms()  # the calibration is a mean over the hard pairs of the batch


class RecallAtK(RankLoss):
    """Recall at k: how many positives have a rank up to k, for several k.

        1 − mean_i mean_k Σ_{j ∈ pos(i)} σ((k − R_ij)/τ₁) / min(k, |pos(i)|),     R_ij with τ₂

    A perfect ranking does not reach 0 (½ for k = 1, τ₁ = 1): ``floor`` says what it reaches. Wants large batches, see
    ``GradientCache``.

    Parameters
    ----------
    k : sequence of int, default=(1, 2, 4, 8, 16)
        The numbers k; those not below the number of references are left out, with a warning.
    rank_temperature : float, default=1.0
        The temperature τ₁ of the soft step at k.
    temperature : float, default=0.01
        The temperature τ₂ of the soft steps in the ranks: the smaller, the nearer to exact ranks.
    normalizer : {"min", "positives"}, default="min"
        Divide by the smaller of k and the number of positives, as in the authors' code, or by the number of positives,
        as in the paper.
    count_self : bool, default=False
        Let the query take rank 1, as the authors' code does.
    miner : Miner, str or None, default=None
        What chooses among the positives and negatives, a miner or its name; None: all take part.

    Notes
    -----
    When recall at k will be reported and classes have few samples; batches should hold thousands. Costs O(B² K) time
    for K positives an anchor.

    References
    ----------
    | Y. Patel, G. Tolias, J. Matas, "Recall@k surrogate loss with large batches and similarity mixup", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RecallAtK
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> loss = RecallAtK(k=(1, 2))
    >>> right, wrong = loss(z, torch.tensor([0, 0, 1, 1])), loss(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(right < wrong)
    True
    """

    def __init__(
        self,
        k: tuple[int, ...] = (1, 2, 4, 8, 16),
        rank_temperature: float = 1.0,
        temperature: float = 0.01,
        normalizer: str = "min",
        count_self: bool = False,
        *,
        miner: Miner | None = None,
    ):
        super().__init__(temperature, count_self, miner)
        self.k = self.used = tuple(k)
        if not self.k or min(self.k) < 1:
            raise ValueError(f"k must be one or more numbers from 1 on, got {k!r}")
        self.rank_temperature = checked("rank_temperature", rank_temperature, Positive)
        self.normalizer = one_of("normalizer", normalizer, ("min", "positives"))

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        with_self, neg = super().masks(y, ref_y, self_index, dtype)
        pos = Loss.masks(self, y, ref_y, self_index, dtype)[0]
        return pos, neg | with_self & ~pos  # the query takes a rank, and is no positive

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        self.choose_k(pos, neg)
        return super().loss(D, pos, neg)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        self.choose_k(pos, neg)
        return super().split(D, pos, neg)

    def choose_k(self, pos: Tensor, neg: Tensor) -> None:
        """Those k that leave a reference out.

        Parameters
        ----------
        pos : Tensor
            Which references are positive, a boolean matrix (B, R).
        neg : Tensor
            Which references are negative, a boolean matrix (B, R).
        """
        candidates = int(count_of_row(pos | neg).max())
        self.used = tuple(k for k in self.k if k < candidates)
        if len(self.used) < len(self.k) and bool((any_of_row(pos) & any_of_row(neg)).any()):
            left_out = ", ".join(str(k) for k in self.k if k >= candidates)
            warnings.warn(f"RecallAtK left out k = {left_out}: there are {candidates} references", stacklevel=2)

    def shares(self, P: Tensor, N: Tensor, n_pos: Tensor) -> Tensor:
        recall = [self.within_k(k, P + N, n_pos) for k in self.used]
        return 1 / n_pos - torch.stack(recall).mean(0) if recall else 0 * N

    def within_k(self, k: int, rank: Tensor, n_pos: Tensor) -> Tensor:
        """The share of each positive in the recall at k.

        Parameters
        ----------
        k : int
            The number k.
        rank : int
            Ranks of the positives (b, K).
        n_pos : Tensor
            Positives of each anchor (b, 1).
        """
        return ((k - rank) / self.rank_temperature).sigmoid() / (
            n_pos.clamp_max(k) if self.normalizer == "min" else n_pos
        )

    def floor(self, n_pos: int) -> float:
        """The loss of an anchor whose ``n_pos`` positives come first.

        Parameters
        ----------
        n_pos : int
            Positives of the anchor.
        """
        rank, n = torch.arange(1, n_pos + 1) + float(self.count_self), torch.tensor([float(n_pos)])
        return float(1 - torch.stack([self.within_k(k, rank, n).sum() for k in self.k]).mean())
