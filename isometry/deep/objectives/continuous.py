"""Continuous similarity scores: a network scores pairs, and the labels it learns from are learned too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isometry.deep.distributed import gather
from isometry.deep.functional import full_precision, paired
from isometry.deep.models.mlp import MLP
from isometry.deep.objectives.prototypes import class_means
from isometry.deep.samplers import Episode


class ContinuousScores(nn.Module):
    """Metric learning with continuous scores: scores s of pairs, regressed on soft labels y′ that follow them.

        y′ = 1 − (1 − β) d  (similar),   α − α d  (dissimilar),     d = ‖z_i − z_j‖² / its maximum in the batch
        label step    y′ ← y′ − 2 η λ (y′ − s),  clipped to [β, 1] or [0, α]
        network step  mean (s − y′)² + μ ([β − s]_+² for similar, [s − α]_+² for dissimilar pairs)

    Embeddings of a pair, one above the other, are convolved to several relation vectors (R), which a perceptron turns
    into the score (S). An objective; a batch is (x, labels), of which all pairs are taken; or an episode: all pairs of
    support and query; or pairs (x, partner, similar); or, with ``n_pairs``, (x, partner, similar, id).

    Parameters
    ----------
    n_components : int
        Dimension p of the embeddings, whose entries should be about 1 in size: of unit vectors in many dimensions the
        relations see next to nothing.
    n_relations : int, default=32
        Number of relation vectors of a pair.
    alpha : float, default=0.2
        The largest label α of a dissimilar pair.
    beta : float, default=0.8
        The smallest label β of a similar pair.
    lam : float, default=0.5
        The weight λ of the labels.
    eta : float, default=0.1
        The step η of the labels; λη counts, and 0 keeps the labels as they begin.
    mu : float, default=1.0
        The weight μ of the penalty for scores outside the interval.
    symmetric : bool, default=True
        Take the mean of the relations of (i, j) and (j, i), so that the score is symmetric.
    n_pairs : int or None, default=None
        Number of pairs that recur, with ids 0 … n_pairs − 1: each keeps its label from epoch to epoch. None: labels
        begin anew in each batch, and move once.

    Notes
    -----
    For pairs that are more or less similar, though labels only say whether. What it gives is a score, O(p n_relations)
    a pair, which no index searches.

    MAP@R of the embeddings, mean of five runs of 400 steps (new classes of isolet and of ts_faceall, known ones of
    usps) on splits that chose nothing: 0.622 with 8 relation vectors, of which one run is below the raw features, and
    0.679 with 32, of which none is; 0.457 for raw features, 0.683 for `Triplet`.

    A step costs O(B² p n_relations) with all pairs of the batch.

    References
    ----------
    | After X. Xu, H. Cao, Y. Yang, E. Yang, C. Deng, "Zero-shot metric learning", IJCAI 2019.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import MLP, ContinuousScores
    >>> model, objective = MLP(4, 8), ContinuousScores(8, n_relations=4)
    >>> objective(model, (torch.eye(4), torch.tensor([0, 0, 1, 1]))).item() > 0
    True
    >>> objective.score_pairs(model, torch.eye(4)[:2], torch.eye(4)[2:]).shape
    torch.Size([2])
    """

    soft: Tensor

    def __init__(
        self,
        n_components: int,
        n_relations: int = 32,
        *,
        alpha: float = 0.2,
        beta: float = 0.8,
        lam: float = 0.5,
        eta: float = 0.1,
        mu: float = 1.0,
        symmetric: bool = True,
        n_pairs: int | None = None,
    ):
        super().__init__()
        if not 0 < alpha < beta < 1:
            raise ValueError(f"expected 0 < alpha < beta < 1, got alpha={alpha} and beta={beta}")
        if not 0 <= 2 * eta * lam <= 1 or mu < 0:
            raise ValueError(f"expected 0 ≤ 2 · eta · lam ≤ 1 and mu ≥ 0, got eta={eta}, lam={lam}, mu={mu}")
        self.alpha, self.beta, self.mu = alpha, beta, mu
        self.lam, self.eta, self.symmetric = lam, eta, symmetric
        self.relation = nn.Sequential(nn.Conv1d(2, n_relations, 1), nn.ReLU(), nn.Flatten())
        self.scorer = MLP(n_relations * n_components, 1, hidden=(64,))
        self.register_buffer("soft", torch.full((n_pairs or 0,), torch.nan))  # y′ by pair, NaN before its first step

    def forward(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss of a batch: of samples with labels, of an episode, or of pairs.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : tuple or Episode
            As the class describes it.

        Returns
        -------
        Tensor
            The scalar.
        """
        z, other, similar, ids = self._pairs(model, batch)
        s = self.scores(z, other)
        y = self.labels(z, other, similar, ids)
        y = self.label_step(y, s, similar)
        if ids is not None and self.training:
            ids, kept = gather(ids, y)  # all processes know the labels of all
            self.soft[ids] = kept.to(self.soft.dtype)
        return self.loss(s, y, similar)

    def scores(self, z: Tensor, other: Tensor) -> Tensor:
        """s (m,) of pairs of embeddings (m, p).

        Parameters
        ----------
        z : Tensor
            Embeddings (m, p).
        other : Tensor
            Their partners (m, p).

        Returns
        -------
        Tensor
            Scores (m,), between 0 and 1.
        """
        r = self.relation(torch.stack([z, other], 1))  # (m, n_relations · p)
        if self.symmetric:
            r = (r + self.relation(torch.stack([other, z], 1))) / 2
        return full_precision(self.scorer(r).squeeze(1)).sigmoid()

    def score_pairs(self, model: nn.Module, x: Tensor, other: Tensor) -> Tensor:
        """s (m,) of each sample and its partner.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings.
        x : Tensor
            Samples (m, …).
        other : Tensor
            Their partners (m, …).

        Returns
        -------
        Tensor
            Scores (m,), between 0 and 1.
        """
        return self.scores(model(x), model(other))

    def score(self, model: nn.Module, xs: Tensor, ys: Tensor, xq: Tensor) -> Tensor:
        """Scores (Q, c) of queries: the mean of those with the support of the class.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings.
        xs : Tensor
            Samples of the support (S, …).
        ys : Tensor
            Their classes (S,).
        xq : Tensor
            Queries (Q, …).

        Returns
        -------
        Tensor
            Scores (Q, c).
        """
        i, j = all_combinations(len(xq), len(xs), xs.device)
        s = self.scores(model(xq)[i], model(xs)[j]).view(len(xq), len(xs))
        return class_means(s.T, ys).T

    @torch.no_grad()
    def labels(self, z: Tensor, other: Tensor, similar: Tensor, ids: Tensor | None = None) -> Tensor:
        """Soft labels y′ (m,): what was kept for a pair, or else from its distance among those of the batch.

        Parameters
        ----------
        z : Tensor
            Embeddings (m, p).
        other : Tensor
            Their partners (m, p).
        similar : Tensor
            Which pairs are similar (m,).
        ids : Tensor or None, default=None
            Numbers of the pairs (m,), if they recur.
        """
        d2 = paired("sqeuclidean", full_precision(z), full_precision(other))
        # a pair alone would have distance 1 whatever it is: nothing is known, and it begins at the extreme
        d = d2 / d2.max().clamp_min(torch.finfo(d2.dtype).tiny) if len(d2) > 1 else torch.zeros_like(d2)
        y = torch.where(similar, 1 - (1 - self.beta) * d, self.alpha - self.alpha * d)
        if ids is None:
            return y
        kept = self.soft[ids].to(y.dtype)
        return torch.where(kept.isnan(), y, kept)

    @torch.no_grad()
    def label_step(self, y: Tensor, s: Tensor, similar: Tensor) -> Tensor:
        """Soft labels a step nearer to the scores, inside their interval.

        Parameters
        ----------
        y : Tensor
            Soft labels (m,).
        s : Tensor
            Scores (m,).
        similar : Tensor
            Which pairs are similar (m,).
        """
        y = y - 2 * self.eta * self.lam * (y - s)
        return torch.where(similar, y.clamp(self.beta, 1), y.clamp(0, self.alpha))

    def loss(self, s: Tensor, y: Tensor, similar: Tensor) -> Tensor:
        """The network's part of the objective, of scores and soft labels (m,).

        Parameters
        ----------
        s : Tensor
            Scores (m,).
        y : Tensor
            Soft labels (m,).
        similar : Tensor
            Which pairs are similar (m,).
        """
        outside = torch.where(similar, self.beta - s, s - self.alpha).relu()
        return ((s - y).square() + self.mu * outside.square()).sum() / max(1, len(s))

    def _pairs(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Embeddings (m, p) of samples and partners, whether they are similar, and the ids of the pairs."""
        if isinstance(batch, Episode):
            i, j = all_combinations(len(batch.xq), len(batch.xs), batch.ys.device)
            return model(batch.xq)[i], model(batch.xs)[j], batch.yq[i] == batch.ys[j], None
        if len(batch) == 2:
            x, y = batch
            i, j = torch.triu_indices(len(x), len(x), 1, device=y.device)
            z = model(x)
            return z[i], z[j], y[i] == y[j], None
        x, other, similar, *ids = batch
        if bool(ids) != bool(len(self.soft)):
            raise ValueError("pairs with ids need n_pairs, their number; pairs without ids must not have it")
        return model(x), model(other), similar.bool(), ids[0] if ids else None


def all_combinations(n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Indices (n · m,) of every first with every second."""
    return torch.arange(n, device=device).repeat_interleave(m), torch.arange(m, device=device).repeat(n)
