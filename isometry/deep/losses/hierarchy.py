"""Contrast on every level of a hierarchy of labels."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from isometry.deep.functional import any_of_row, clear_self, count_of_row, masked_logsumexp, masked_mean
from isometry.deep.loss import Loss
from isometry.parameters import Positive, checked, one_of

BATCHES = 10  # that are looked at


class HierarchicalContrast(Loss):
    """Hierarchical multi-label contrast: a supervised contrastive loss on every level, finer levels weighing more.

        Σ_{l=1}^{L} (2^{1/l} / (L+1)) mean_i mean_{j ∈ pos_l(i)} max(−log p_ij, m_l),     p = softmax_{k≠i} cos_ik/T

    l counts from the finest level; pos_l(i) are the samples that share all codes down to it. m_l is the largest −log p
    of a pair that is positive on a finer level: a pair that has less in common may not cost less.

    ``y`` (B, L) holds integer codes from coarse to fine, best a number of its own for each class of a level. A number
    that comes under several parents stands for as many classes, which is told of once. Labels (B,) are one level.

    Parameters
    ----------
    temperature : float, default=0.1
        The temperature T: the smaller, the more the closest pairs count.
    constraint : {"pairs", "level", "none"}, default="pairs"
        ``"level"``: a level costs at least as much as the finer ones, as in the authors' code; ``"none"``: m = −∞.

    Notes
    -----
    For labels with a tree above them: product, brand, department. With one level it is ``SupCon``. Siblings may be
    numbered anew under every parent, too, and the warning of numbers that come under several is then to be ignored.
    Costs O(L B² p) for L levels.

    References
    ----------
    | S. Zhang, R. Xu, C. Xiong, C. Ramaiah, "Use all the labels: a hierarchical multi-label contrastive learning
      framework", CVPR 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import HierarchicalContrast
    >>> z = torch.tensor([[1.0, 0.1], [1.0, 0.2], [0.1, 1.0], [0.3, 1.0]])
    >>> y = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 0]])  # department, product
    >>> HierarchicalContrast()(z, y).item() > 0
    True
    """

    levels = 1  # of the labels at hand
    looked_at = 0  # batches whose codes were looked at for what may be a mistake

    def __init__(self, temperature: float = 0.1, constraint: str = "pairs"):
        super().__init__("inner", None, normalize=True)
        self.temperature = checked("temperature", temperature, Positive)
        self.constraint = one_of("constraint", constraint, ("pairs", "level", "none"))

    def read_labels(self, y: Tensor, ref_y: Tensor | None) -> tuple[Tensor, Tensor | None]:
        codes = y.ndim == 2 and not y.is_floating_point() and y.dtype != torch.bool
        self.levels = y.shape[1] if codes else 1
        if not codes:
            return y, ref_y
        if ref_y is None or ref_y.ndim != 2 or ref_y.shape[1] != y.shape[1]:
            raise ValueError(f"references need codes ref_y (R, {y.shape[1]}) of as many levels as y")
        if self.looked_at < BATCHES:
            self.looked_at = BATCHES if warn_of_shared_codes(y) else self.looked_at + 1
        return levels_apart(y, ref_y), None

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """How many of the finest levels two samples do not share, and which pairs are known.

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
        if y.ndim == 2 and not y.is_floating_point() and y.dtype != torch.bool:
            return y, clear_self(torch.ones_like(y, dtype=torch.bool), self_index)
        pos, neg = super().masks(y, ref_y, self_index, dtype)
        return (~pos).long(), pos | neg

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        apart, known = pos, neg
        s = D / -self.temperature
        lse = masked_logsumexp(s, known)[:, None]
        cost = lse.masked_fill(lse == -torch.inf, 0) - s  # (B, R), −log p
        total, largest, finer = 0 * s.sum(), cost.new_tensor(-torch.inf), cost.new_tensor(-torch.inf)
        for level in range(1, self.levels + 1):
            same = known & (apart < level)
            terms = torch.maximum(cost, largest) if self.constraint == "pairs" else cost
            per_anchor = terms.masked_fill(~same, 0).sum(1) / count_of_row(same).clamp_min(1)
            value = masked_mean(per_anchor, any_of_row(same))
            if self.constraint == "level":
                finer = value = torch.maximum(value, finer)
            total = total + 2 ** (1 / level) / (self.levels + 1) * value
            largest = cost.masked_fill(~same, -torch.inf).max()
        return total


def levels_apart(y: Tensor, ref_y: Tensor) -> Tensor:
    """How many of the finest of L levels rows of codes (B, L) and (R, L) do not share, (B, R): 0 for equal rows."""
    same = torch.ones(len(y), len(ref_y), dtype=torch.bool, device=y.device)
    apart = torch.full(same.shape, y.shape[1], device=y.device)
    for a, b in zip(y.T, ref_y.T):
        same &= a[:, None] == b
        apart -= same.long()
    return apart


def warn_of_shared_codes(y: Tensor) -> bool:
    """Whether a code of codes (B, L) comes under several parents, with a warning: labels may have lost their tree."""
    for level in range(1, y.shape[1]):
        of_level, with_parents = y[:, level].unique(), y[:, : level + 1].unique(dim=0)
        if len(with_parents) > len(of_level):
            codes, counts = with_parents[:, level].unique(return_counts=True)
            warnings.warn(
                f"code {int(codes[counts.argmax()])} of level {level + 1} comes under {int(counts.max())} parents: "
                "these are taken for different classes. If they are one class, its parents cannot all be right; if "
                "siblings are numbered anew under every parent, all is well",
                stacklevel=3,
            )
            return True
    return False
