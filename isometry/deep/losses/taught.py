"""Losses that follow a teacher: its scores of documents, or its embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.functional import paired, unit
from isometry.deep.pair_form import PairForm
from isometry.parameters import Positive, checked, one_of


class TaughtRanking(PairForm):
    """Abstract: queries, a positive and negatives, and a teacher's scores of them."""

    fewest_columns = 3
    target = "the teacher's scores (n, k + 1) of the positive and k negatives"

    def __init__(self, similarity: str):
        super().__init__()
        self.similarity = one_of("similarity", similarity, ("inner", "cosine"))
        self.normalize = similarity == "cosine"

    def scores(self, columns: Sequence[Tensor]) -> Tensor:
        """Scores s (n, k + 1) of each query with its positive and negatives.

        Parameters
        ----------
        columns : sequence of Tensor
            Queries, positives and k columns of negatives, (n, p) each.
        """
        query, *docs = (unit(z) for z in columns) if self.similarity == "cosine" else columns
        return torch.stack([-paired("inner", query, d) for d in docs], 1)


class MarginMSE(TaughtRanking):
    """Margin distillation: positives ahead of negatives by as much as a teacher has them.

        mean_{i,k} ( (s_i⁺ − s_ik⁻) − (t_i⁺ − t_ik⁻) )²

    The target is the teacher's scores (n, k + 1), or the margins (n, k) themselves.

    Parameters
    ----------
    similarity : {"inner", "cosine"}, default="inner"
        How the student's embeddings are compared, s.

    Notes
    -----
    For a small encoder taught by a cross-encoder that scores queries and documents: only differences of scores count,
    so that the two may have scales of their own. Costs O(n k p) for k negatives.

    References
    ----------
    | S. Hofstätter, S. Althammer, M. Schröder, M. Sertkan, A. Hanbury, "Improving efficient neural ranking models with
      cross-architecture knowledge distillation", arXiv 2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MarginMSE
    >>> q, d, n = torch.eye(2), torch.eye(2), torch.eye(2).flip(0)  # scores 1 and 0
    >>> MarginMSE()(q, d, n, target=torch.tensor([[3.0, 2.0], [9.0, 8.0]])).item()
    0.0
    """

    def __init__(self, similarity: str = "inner"):
        super().__init__(similarity)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s, target = self.scores(columns), given["target"]
        t = target[:, None] if target.ndim == 1 else target
        if t.shape == s.shape:
            t = t[:, :1] - t[:, 1:]
        if t.shape != s[:, 1:].shape:
            n, k = s[:, 1:].shape
            raise ValueError(f"the target must be scores {(n, k + 1)} or margins {(n, k)}, got {tuple(target.shape)}")
        return (s[:, :1] - s[:, 1:] - t.detach()).square().mean()


class ScoreKL(TaughtRanking):
    """Distillation of scores: the student's softmax over the candidates of a query is the teacher's.

        T² mean_i KL( softmax(t_i/T_t) ‖ softmax(s_i/T) )

    Parameters
    ----------
    temperature : float, default=1.0
        The temperature T of the student's softmax.
    teacher_temperature : float, default=1.0
        The temperature T_t of the teacher's softmax.
    similarity : {"inner", "cosine"}, default="inner"
        How the student's embeddings are compared, s.

    Notes
    -----
    As ``MarginMSE``, when the order of several candidates matters more than the size of the differences. Costs O(n k p)
    for k negatives.

    References
    ----------
    | J. Chen, S. Xiao, P. Zhang, K. Luo, D. Lian, Z. Liu, "M3-Embedding: multi-linguality, multi-functionality,
      multi-granularity text embeddings through self-knowledge distillation", ACL Findings 2024.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import ScoreKL
    >>> q, d, n = torch.eye(2), torch.eye(2), torch.eye(2).flip(0)  # scores 1 and 0
    >>> ScoreKL()(q, d, n, target=torch.tensor([[1.0, 0.0], [8.0, 7.0]])).item() < 1e-6
    True
    """

    def __init__(self, temperature: float = 1.0, teacher_temperature: float = 1.0, similarity: str = "inner"):
        super().__init__(similarity)
        self.temperature = checked("temperature", temperature, Positive)
        self.teacher_temperature = checked("teacher_temperature", teacher_temperature, Positive)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        s, target = self.scores(columns), given["target"]
        if target.shape != s.shape:
            raise ValueError(f"the target must be the teacher's scores {tuple(s.shape)}, got {tuple(target.shape)}")
        log_p, log_t = (
            (s / self.temperature).log_softmax(1),
            (target.detach() / self.teacher_temperature).log_softmax(1),
        )
        return self.temperature**2 * (log_t.exp() * (log_t - log_p)).sum(1).mean()


class EmbeddingDistillation(PairForm):
    """Distillation of embeddings: those of a teacher, after a linear map if dimensions differ.

        mean_i (1 − cos(P z_i, t_i))     or     mean (P z − t)²

    Parameters
    ----------
    loss : {"cosine", "mse"}, default="cosine"
        One minus the cosine, or squared differences.
    projection : tuple (p, q) or None, default=None
        The dimensions p of the student and q of the teacher, between which P (q, p) is learned; None: they are equal.

    Notes
    -----
    For a small encoder in place of a large one, on texts or images without labels. It copies the teacher's space; where
    only neighbours matter, ``ScoreKL`` asks for less. Costs O(n p q).

    References
    ----------
    | N. Reimers, I. Gurevych, "Making monolingual sentence embeddings multilingual using knowledge distillation", EMNLP
      2020.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import EmbeddingDistillation
    >>> EmbeddingDistillation()(torch.eye(2), target=torch.eye(2)).item()
    0.0
    >>> EmbeddingDistillation(projection=(2, 3))(torch.eye(2), target=torch.ones(2, 3)).item() >= 0
    True
    """

    fewest_columns = most_columns = 1
    target = "the teacher's embeddings (n, q)"

    def __init__(self, loss: str = "cosine", projection: tuple[int, int] | None = None):
        super().__init__()
        self.loss = one_of("loss", loss, ("cosine", "mse"))
        self.normalize = loss == "cosine"
        self.map = nn.Identity() if projection is None else nn.Linear(*projection, bias=False)

    def compute(self, *columns: Tensor, **given: Any) -> Tensor:
        z, target = self.map(columns[0]), given["target"]
        if target.shape != z.shape:
            raise ValueError(
                f"the teacher's embeddings must be {tuple(z.shape)}, got {tuple(target.shape)}; for other dimensions "
                f"give projection=({columns[0].shape[1]}, {target.shape[-1]})"
            )
        if self.loss == "mse":
            return (z - target.detach()).square().mean()
        return (1 - (unit(z) * unit(target.detach())).sum(1)).mean()
