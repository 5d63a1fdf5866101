"""Losses of labels that have a distance: ages, poses, ratings; how far apart two are, not only whether they differ."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from isometry.deep.functional import clear_self, count_of_row, masked_logsumexp, masked_mean
from isometry.deep.loss import Loss
from isometry.deep.terms import Terms, where
from isometry.parameters import Positive, checked, one_of


class LabelDistanceLoss(Loss):
    """Abstract: in place of masks, the distances g (B, R) between labels and which pairs are known.

    ``y`` (B,) holds numbers, and g is the absolute value of their difference; or it is the matrix g (B, R) itself, NaN
    where unknown.

    Parameters
    ----------
    distance : str or callable
        How embeddings are compared.
    labels : {"numbers", "vectors"}, default="numbers"
        ``"numbers"``: y is (B,); ``"vectors"``: y is (B, q), and g is the sum of the absolute differences.
    normalize : bool, default=False
        Put embeddings and references on the unit sphere first.
    """

    def __init__(self, distance: str, labels: str = "numbers", normalize: bool = False):
        super().__init__(distance, None, normalize)
        self.labels = one_of("labels", labels, ("numbers", "vectors"))

    def read_labels(self, y: Tensor, ref_y: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.labels == "numbers":
            return y, ref_y
        if ref_y is None or y.ndim != 2 or ref_y.ndim != 2 or y.isnan().any() or ref_y.isnan().any():
            raise ValueError("labels='vectors' takes numbers (B, q), none of them NaN, and (R, q) as ref_y with refs")
        return torch.cdist(y.double(), ref_y.double(), p=1), None

    def masks(
        self, y: Tensor, ref_y: Tensor | None, self_index: Tensor | None, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        if y.dtype == torch.bool:
            raise ValueError(f"{type(self).__name__} takes distances between labels, which are numbers, got booleans")
        if y.ndim == 2:
            g = y.to(dtype)
        elif ref_y is None or y.isnan().any() or ref_y.isnan().any():
            raise ValueError("labels must be numbers, some are NaN; leave those samples out, or give distances (B, R)")
        else:
            g = (y[:, None] - ref_y).abs().to(dtype)
        return g, clear_self(~g.isnan(), self_index)

    def views(self, *zs: Tensor) -> NoReturn:
        raise TypeError(f"{type(self).__name__} needs labels: give loss(torch.cat([z1, z2]), torch.cat([y, y]))")


class RankNContrast(LabelDistanceLoss):
    """Rank-N-Contrast: every sample nearer in label should be nearer than all that are farther in label.

        −mean_{i, j≠i} log( e^{−d_ij/T} / Σ_{k≠i, g_ik ≥ g_ij} e^{−d_ik/T} ),     d = ‖z_i − z_j‖,   g = |y_i − y_j|

    By sorting each row by g, in O(B² log B). Class labels are taken as numbers, so they should have an order.
    Published with two views of each sample: ``loss(torch.cat([z1, z2]), torch.cat([y, y]))``.

    Parameters
    ----------
    temperature : float, default=2.0
        The temperature T: the smaller, the more the closest pairs count.
    labels : {"numbers", "vectors"}, default="numbers"
        ``"numbers"``: y is (B,); ``"vectors"``: y is (B, q), and g is the sum of the absolute differences.

    Notes
    -----
    For continuous targets such as ages or poses: the order of label distances becomes the order of distances. It says
    nothing of their size; where ratios of label distances mean something, take ``LogRatio``. Costs O(B² log B).

    References
    ----------
    | K. Zha, P. Cao, J. Son, Y. Yang, D. Katabi, "Rank-N-Contrast: learning continuous representations for regression",
      NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import RankNContrast
    >>> age = torch.tensor([20.0, 30.0, 50.0, 80.0])
    >>> loss = RankNContrast()
    >>> bool(loss(age[:, None] / 10, age) < loss(age[[2, 0, 3, 1], None] / 10, age))
    True
    """

    accelerated = True

    def __init__(self, temperature: float = 2.0, labels: str = "numbers"):
        super().__init__("euclidean", labels)
        self.temperature = checked("temperature", temperature, Positive)

    def totals(self, pos: Tensor, neg: Tensor) -> Tensor:
        return neg.count_nonzero().clamp_min(1)

    def loss(self, D: Tensor, pos: Tensor, neg: Tensor) -> Tensor:
        """One log-sum-exp for each reference of an anchor, which is what ``slopes`` gets by sorting.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Distances between labels (B, R).
        neg : Tensor
            Which pairs are known, a boolean matrix (B, R).
        """
        s, g, known = D / -self.temperature, pos, neg
        lse = [masked_logsumexp(s, known & (g >= g[:, [j]])) for j in range(s.shape[1])]
        return masked_mean(torch.stack(lse, 1).masked_fill(~known, 0) - s, known)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        """The terms (B, R) in the order of the distance in label.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Distances in label (B, R).
        neg : Tensor
            Which references are known, a boolean matrix (B, R).
        """
        _, known, x, lse, last = self.sorted_sums(D, pos, neg)
        return where(lse.gather(1, last) - x, known)

    def sorted_sums(self, D: Tensor, pos: Tensor, neg: Tensor) -> tuple[Tensor, ...]:
        """Rows sorted from the farthest label on.

        Parameters
        ----------
        D : Tensor
            Distances (B, R).
        pos : Tensor
            Distances in label (B, R).
        neg : Tensor
            Which references are known, a boolean matrix (B, R).

        Returns
        -------
        tuple of Tensor
            Where they were, which are known, s, its running log-sum-exp, and the last reference as far in label.
        """
        g, order = pos.masked_fill(~neg, -torch.inf).sort(1, descending=True)  # (B, R), unknown ones last
        known = neg.gather(1, order)
        x = (D / -self.temperature).gather(1, order).masked_fill(~known, lowest(D.dtype))
        last = torch.searchsorted(-g, -g, right=True) - 1
        return order, known, x, x.logcumsumexp(1), last

    def slopes(self, D: Tensor, pos: Tensor, neg: Tensor, totals: Any) -> tuple[Tensor, Tensor]:
        order, known, x, lse, last = self.sorted_sums(D, pos, neg)
        value = (lse.gather(1, last) - x).masked_fill(~known, 0).sum() / totals
        # e^{x_k} Σ_j e^{−lse_j} over the sums that hold k, less 1
        ends = torch.zeros_like(x).scatter_add_(1, last, known.to(x.dtype))
        held = torch.where(ends > 0, ends.log() - lse, lowest(D.dtype)).flip(1).logcumsumexp(1).flip(1)
        C = ((held + x).exp() - 1).masked_fill(~known, 0) / (-self.temperature * totals)
        return value, torch.zeros_like(x).scatter(1, order, C)


def lowest(dtype: torch.dtype) -> float:
    """log 0, but finite: differences of two are no NaN."""
    return torch.finfo(dtype).min / 4


class LogRatio(LabelDistanceLoss):
    """Log-ratio loss: ratios of distances between embeddings are those of distances between labels.

        mean_a mean_{i<j} (log d_ai/d_aj − log g_ai/g_aj)² = mean_a 2 var_i(log d_ai − log g_ai)

    d is the squared Euclidean distance, g the distance between labels, var unbiased: O(B²), without a list of triplets.

    Parameters
    ----------
    squared : bool, default=True
        False: d is the distance itself, as in the authors' code.
    ties : {"skip", "eps"}, default="skip"
        Pairs of equal label, g = 0: left out, or with ε added to every g as in the code.
    eps : float, default=1e-6
        The constant ε, added to d.
    labels : {"numbers", "vectors"}, default="numbers"
        ``"numbers"``: y is (B,); ``"vectors"``: y is (B, q), and g is the sum of the absolute differences.

    Notes
    -----
    For labels whose distances are proportions, such as poses or graded relevance. Embeddings are not normalised: a
    sphere cannot hold all ratios. For class labels all distances g are 0 or 1 and a pair loss serves better. Costs
    O(B² p).

    References
    ----------
    | S. Kim, M. Seo, I. Laptev, M. Cho, S. Kwak, "Deep metric learning beyond binary supervision", CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import LogRatio
    >>> y = torch.tensor([0.0, 1.0, 2.0, 4.0])
    >>> loss = LogRatio(squared=False)
    >>> bool(loss(y[:, None], y) < loss(y[[1, 0, 3, 2], None], y))  # distances in proportion to those of labels
    True
    """

    def __init__(self, squared: bool = True, ties: str = "skip", eps: float = 1e-6, labels: str = "numbers"):
        super().__init__("sqeuclidean" if squared else "euclidean", labels)
        self.ties, self.eps = one_of("ties", ties, ("skip", "eps")), checked("eps", eps, Positive)

    def split(self, D: Tensor, pos: Tensor, neg: Tensor) -> Terms:
        g, used = (pos, neg & (pos > 0)) if self.ties == "skip" else (pos + self.eps, neg)
        n = count_of_row(used)[:, None].to(D.dtype)
        u = ((D + self.eps).log() - torch.where(used, g, 1).log()).masked_fill(~used, 0)  # (B, R)
        deviation = (u - u.sum(1, keepdim=True) / n.clamp_min(1)).masked_fill(~used, 0)
        variance = deviation.square().sum(1) / (n.squeeze(1) - 1).clamp_min(1)
        return where(2 * variance, n.squeeze(1) > 1)
