"""Losses of pairs with a score, such as how similar two texts are."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from isometry.deep.functional import softplus, unit
from isometry.deep.pair_form import PairForm
from isometry.deep.slopes import with_slopes
from isometry.parameters import Positive, checked


class ScoredPairs(PairForm):
    """Abstract: two columns and a score for each row."""

    normalize = True
    most_columns = 2
    target = "the score of each row (n,), larger for more similar pairs"

    def check_target(self, target: Tensor | None, z: Tensor) -> Tensor:
        target = super().check_target(target, z)
        if target.ndim != 1:
            raise ValueError(f"{type(self).__name__} needs one score for each row (n,), got {tuple(target.shape)}")
        return target


class CoSENT(ScoredPairs):
    """CoSENT: pairs with a higher score should have a higher cosine.

        log( 1 + Σ_{y_i < y_j} e^{λ (s_i − s_j)} ),     s_i = cos(a_i, b_i)

    Only the order of the scores matters. By sorting, in O(n log n).

    Parameters
    ----------
    scale : float, default=20.0
        The factor λ of the cosines.

    Notes
    -----
    For pairs with graded scores, such as those of semantic textual similarity: scores of different annotators need
    agree in their order only. For scores that are to be met, ``CosineRegression``. Costs O(n log n + n p).

    References
    ----------
    | X. Huang, H. Peng, D. Zou, Z. Liu, J. Li, K. Liu, J. Wu, J. Su, P. S. Yu, "CoSENT: consistent sentence embedding
      via similarity ranking", IEEE/ACM TASLP 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CoSENT
    >>> a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
    >>> loss = CoSENT()
    >>> bool(loss(a, b, target=torch.tensor([5.0, 1.0])) < loss(a, b, target=torch.tensor([1.0, 5.0])))
    True
    """

    def __init__(self, scale: float = 20.0):
        super().__init__()
        self.scale = checked("scale", scale, Positive)

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        """s (n,) of each row.

        Parameters
        ----------
        a : Tensor
            Embeddings (n, p).
        b : Tensor
            Their partners (n, p).

        Returns
        -------
        Tensor
            Similarities (n,).
        """
        return (unit(a) * unit(b)).sum(1)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        target = given["target"]
        order = target.argsort()
        y = target[order].contiguous()
        return with_slopes(self.scale * self.similarity(*columns)[order], lambda x: order_slopes(x, y))


def order_slopes(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + Σ_{y_i < y_j} e^{x_i − x_j}) of x (n,) with ascending y, and its slopes in x."""
    lowest = torch.finfo(x.dtype).min / 4  # log 0, but finite: differences of two are no NaN
    below, upto = torch.searchsorted(y, y), torch.searchsorted(y, y, right=True)  # how many are smaller, not larger
    prefix = x.logcumsumexp(0)
    lower = torch.where(below > 0, prefix[(below - 1).clamp_min(0)], lowest)  # log Σ of the smaller
    terms = torch.where(below > 0, lower - x, lowest)
    total = terms.logsumexp(0)
    share = torch.where(below > 0, terms - total, lowest)  # log of the share of j in the sum
    suffix = torch.where(below > 0, share - lower, lowest).flip(0).logcumsumexp(0).flip(0)
    held = torch.where(upto < len(x), suffix[upto.clamp_max(len(x) - 1)], lowest)
    return softplus(total), total.sigmoid() * ((held + x).exp() - share.exp())


class AnglE(CoSENT):
    """AnglE: as CoSENT, with the sum of the real and imaginary part of a complex quotient as similarity.

        log( 1 + Σ_{y_i < y_j} e^{λ (s_i − s_j)} ),     s = |x̂ᵀ(ŷ + Jŷ)| = √2 |cos(x, R₄₅ y)|

    J turns the halves (u, v) of a vector into (−v, u). s is 1 for y = x and for y = −x, and largest at a turn of 45°:
    ``CoSENT`` has no such choices.

    Parameters
    ----------
    scale : float, default=20.0
        The factor λ of the similarities.

    Notes
    -----
    For comparison with published results; the dimension must be even. Costs O(n log n + n p).

    References
    ----------
    | X. Li, J. Li, "AoE: angle-optimized embeddings for semantic textual similarity", ACL 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import AnglE
    >>> AnglE()(torch.eye(2), torch.eye(2), target=torch.tensor([5.0, 1.0])).item() > 0
    True
    """

    def similarity(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = (F.pad(unit(z), (0, z.shape[1] % 2)) for z in (a, b))  # an odd dimension gets a zero
        u, v = y.chunk(2, 1)
        return (x * (y + torch.cat([-v, u], 1))).sum(1).abs()


class CosineRegression(ScoredPairs):
    """Cosine regression: the cosine of a pair is its score.

        mean_i (cos(a_i, b_i) − y_i)²

    Parameters
    ----------
    score_range : tuple (low, high), default=(0.0, 1.0)
        Scores are mapped from here to [0, 1]: (0, 5) for scores up to five.

    Notes
    -----
    For scores on a known scale that cosines are to meet, so that thresholds keep their meaning. Costs O(n p).

    References
    ----------
    | N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import CosineRegression
    >>> a, b = torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # cosines 1 and 0
    >>> CosineRegression(score_range=(0, 5))(a, b, target=torch.tensor([5.0, 0.0])).item()
    0.0
    """

    def __init__(self, score_range: tuple[float, float] = (0.0, 1.0)):
        super().__init__()
        self.score_range = score_range
        if not score_range[0] < score_range[1]:
            raise ValueError(f"score_range must be (low, high) with low < high, got {score_range}")

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        target, (low, high) = given["target"], self.score_range
        y = (target - low) / (high - low)
        if y.abs().max() > 1:
            warnings.warn(
                f"scores up to {float(target.abs().max()):g} are no cosines; give score_range=(low, high)", stacklevel=2
            )
        a, b = columns
        return ((unit(a) * unit(b)).sum(1) - y).square().mean()
