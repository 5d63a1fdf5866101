"""Prototypical classification of episodes, and what all episodic objectives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from isometry.deep.batches import as_dataset
from isometry.deep.functional import Distance, full_precision, get_distance, unit
from isometry.deep.samplers import Episode, EpisodeSampler, LabelList


class Prototypes(nn.Module):
    """Prototypical classification of episodes: by the distance to the mean embedding of each class of the support.

        p(l | q) ∝ e^{−d(z_q, μ_l)/τ},     μ_l = mean_{s ∈ S_l} z_s,     −mean_q log p(y_q | q)

    An objective: a batch is an episode or several of them, whose mean is taken. Processes have episodes of their own.

    Parameters
    ----------
    temperature : float, default=1.0
        The temperature τ of the softmax.
    distance : str or callable, default="sqeuclidean"
        The distance d; the mean is the best prototype for the squared Euclidean one.
    normalize : bool, default=False
        Put embeddings on the unit sphere; their means are not put back on it.

    Notes
    -----
    For few-shot classification, and as a strong, simple baseline for it. Episodes should have as many shots as the task
    will have. Costs O(Q c p) an episode beside the network.

    References
    ----------
    | J. Snell, K. Swersky, R. Zemel, "Prototypical networks for few-shot learning", NIPS 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Episode, Prototypes
    >>> y = torch.tensor([0, 1])
    >>> task = Episode(torch.eye(2), y, 0.9 * torch.eye(2), y, None)
    >>> objective = Prototypes()
    >>> objective(torch.nn.Identity(), task).item() > 0
    True
    >>> objective.score(torch.nn.Identity(), task.xs, task.ys, task.xq).argmax(1)
    tensor([0, 1])
    """

    def __init__(self, temperature: float = 1.0, *, distance: Distance = "sqeuclidean", normalize: bool = False):
        super().__init__()
        if not temperature > 0:
            raise ValueError(f"temperature must be above 0, got {temperature}")
        get_distance(distance)
        self.temperature, self.distance, self.normalize = temperature, distance, normalize

    def forward(self, model: nn.Module, batch: Episode | Sequence[Episode]) -> Tensor:
        """The mean loss of one episode or several.

        Parameters
        ----------
        model : nn.Module
            Samples to embeddings (B, p).
        batch : Episode or sequence of Episode
            The episodes.

        Returns
        -------
        Tensor
            The scalar.
        """
        return torch.stack([self.loss(model(e.xs), e.ys, model(e.xq), e.yq) for e in tasks(batch)]).mean()

    def loss(self, zs: Tensor, ys: Tensor, zq: Tensor, yq: Tensor) -> Tensor:
        """Cross-entropy of the queries (Q, p), given the support (S, p); classes are 0 … c − 1.

        Parameters
        ----------
        zs : Tensor
            Embeddings of the support (S, p).
        ys : Tensor
            Their classes (S,).
        zq : Tensor
            Embeddings of the queries (Q, p).
        yq : Tensor
            Their classes (Q,).

        Returns
        -------
        Tensor
            The scalar.
        """
        return F.cross_entropy(self.logits(zs, ys, zq), yq)

    def logits(self, zs: Tensor, ys: Tensor, zq: Tensor) -> Tensor:
        """Logits −d(z_q, μ_l)/τ of queries, in full precision.

        Parameters
        ----------
        zs : Tensor
            Embeddings of the support (S, p).
        ys : Tensor
            Their classes (S,).
        zq : Tensor
            Embeddings of the queries (Q, p).

        Returns
        -------
        Tensor
            Logits (Q, c).
        """
        zs, zq = (full_precision(unit(z) if self.normalize else z) for z in (zs, zq))
        with torch.autocast(zs.device.type, enabled=False):
            return get_distance(self.distance)(zq, class_means(zs, ys)) / -self.temperature

    def score(self, model: nn.Module, xs: Tensor, ys: Tensor, xq: Tensor) -> Tensor:
        """Scores (Q, c) of queries, given the support of an episode.

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
        return self.logits(model(xs), ys, model(xq))


class EpisodicObjective(Protocol):
    """An objective of episodes that can also classify the queries of one."""

    def score(self, model: nn.Module, xs: Tensor, ys: Tensor, xq: Tensor) -> Tensor: ...


def episode_scorer(
    objective: EpisodicObjective, model: nn.Module
) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """How the objective classifies, for ``isometry.eval.few_shot(samples, labels, score=...)``; in eval mode.

    Parameters
    ----------
    objective : Prototypes, TwoStep, MultiScale or ContinuousScores
        An objective of episodes, with a ``score``.
    model : nn.Module
        The network that it scores with.

    Returns
    -------
    callable
        From support (S, …), its classes (S,) and queries (Q, …) to scores (Q, c), all arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from isometry.deep import Prototypes, episode_scorer
    >>> score = episode_scorer(Prototypes(), torch.nn.Identity())
    >>> score(np.eye(2, dtype=np.float32), np.array([0, 1]), np.eye(2, dtype=np.float32)).argmax(1)
    array([0, 1])
    """
    first = next(model.parameters(), torch.empty(0))  # without parameters: samples are embeddings already

    @torch.no_grad()
    def score(xs: np.ndarray, ys: np.ndarray, xq: np.ndarray) -> np.ndarray:
        was_training = model.training
        model.eval()
        try:
            support, query = (torch.as_tensor(x).to(first.device, first.dtype) for x in (xs, xq))
            return objective.score(model, support, torch.as_tensor(ys, device=first.device), query).numpy(force=True)
        finally:
            model.train(was_training)

    return score


def episode_loader(
    samples: Any,
    labels: LabelList,
    n_way: int = 5,
    k_shot: int = 1,
    k_query: int = 15,
    episodes: int = 100,
    *,
    random_state: int = 0,
) -> DataLoader[Any]:
    """Episodes for ``Trainer.fit``: of an array with labels, or of a data set of (sample, label) that has these labels.

    ``episodes`` make an epoch. A meta-batch of several is ``Trainer(accumulate=...)``, which averages their gradients.

    Parameters
    ----------
    samples : data set or array (n, …)
        Samples, or a data set of (sample, label).
    labels : sequence (n,)
        One label a sample.
    n_way : int, default=5
        Classes of an episode.
    k_shot : int, default=1
        Support samples of each class.
    k_query : int, default=15
        Query samples of each class.
    episodes : int, default=100
        Episodes of an epoch.
    random_state : int, default=0
        Seed of the draws.

    Returns
    -------
    DataLoader
        Batches that are `Episode` each.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import episode_loader
    >>> batches = episode_loader(torch.randn(20, 3), [0] * 10 + [1] * 10, n_way=2, k_query=4, episodes=3)
    >>> task = next(iter(batches))
    >>> len(batches), task.xs.shape, task.xq.shape
    (3, torch.Size([2, 3]), torch.Size([8, 3]))
    """
    sampler = EpisodeSampler(labels, n_way, k_shot, k_query, episodes, random_state=random_state)
    data = as_dataset(samples, labels, torch.float32, keep_integers=True)
    return DataLoader(data, batch_sampler=sampler, collate_fn=sampler.collate, generator=torch.Generator())


def tasks(batch: Episode | Sequence[Episode]) -> Sequence[Episode]:
    """The episodes of a batch."""
    return [batch] if isinstance(batch, Episode) else batch


def class_means(z: Tensor, y: Tensor) -> Tensor:
    """Means (c, …) of the rows of z (S, …) with labels 0, …, c − 1."""
    c = int(y.max()) + 1
    shape = (-1, *(1,) * (z.ndim - 1))
    return z.new_zeros(c, *z.shape[1:]).index_add(0, y, z) / torch.bincount(y, minlength=c).view(shape)
