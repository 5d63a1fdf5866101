"""Multi-scale metric learning: a learned relation between a query and a class, from maps of several scales."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from isometry.deep.functional import full_precision
from isometry.deep.models.mlp import MLP
from isometry.deep.objectives.prototypes import class_means, tasks
from isometry.deep.samplers import Episode

Maps = Sequence[Tensor]


class MultiScale(nn.Module):
    """Multi-scale metric learning: a network's score r_ql of query q and class l is largest for the right class.

        CE(r_q·, y_q) + λ mean_{l ≠ y_q} [r_ql − r_qy + m]_+

    The model gives maps of several scales, as ``FeaturePyramid`` does. On each scale the support maps of a class are
    averaged, and a small network looks at the maps of query and class together; what all scales say makes the score.
    An objective: a batch is an episode or several of them. A learned relation needs many classes to be trained on: with
    a handful it is far below plain prototypes.

    Parameters
    ----------
    channels : int, default=64
        Channels of each map of the model, a multiple of 8.
    depths : sequence of int, default=(1, 2, 3)
        Layers of the network of each scale, from fine to coarse.
    margin : float, default=0.5
        The margin m.
    lam : float, default=1.0
        The weight λ of the hinges.
    queries_at_once : int, default=128
        Queries whose maps are combined with those of all classes at a time; bounds the memory without a gradient.

    Notes
    -----
    For few-shot learning of images with many training classes. Every query is compared with every class by a network:
    O(Q c) of its passes an episode.

    References
    ----------
    | After W. Jiang, K. Huang, J. Geng, X. Deng, "Multi-scale metric learning for few-shot learning", IEEE TCSVT 2021.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Episode, FeaturePyramid, MultiScale
    >>> model = FeaturePyramid((1, 8, 8), channels=8, levels=2)
    >>> objective = MultiScale(channels=8, depths=(1, 1))
    >>> y = torch.tensor([0, 1])
    >>> task = Episode(torch.rand(2, 1, 8, 8), y, torch.rand(2, 1, 8, 8), y, None)
    >>> objective(model, task).item() > 0
    True
    """

    def __init__(
        self,
        channels: int = 64,
        depths: Sequence[int] = (1, 2, 3),
        *,
        margin: float = 0.5,
        lam: float = 1.0,
        queries_at_once: int = 128,
    ):
        super().__init__()
        if channels % 8 or not depths or min(depths) < 1:
            raise ValueError(f"expected channels in eights and depths of 1 or more, got {channels} and {tuple(depths)}")
        self.margin, self.lam, self.queries_at_once = margin, lam, queries_at_once
        self.relations = nn.ModuleList(Relation(channels, depth) for depth in depths)
        self.head = MLP(channels * len(depths), 1, hidden=(channels,))

    def forward(self, model: nn.Module, batch: Episode | Sequence[Episode]) -> Tensor:
        """The mean loss of one episode or several.

        Parameters
        ----------
        model : nn.Module
            Images to maps of several scales.
        batch : Episode or sequence of Episode
            The episodes.

        Returns
        -------
        Tensor
            The scalar.
        """
        losses = [self.loss(self.score(model, e.xs, e.ys, e.xq), e.yq) for e in tasks(batch)]
        return torch.stack(losses).mean()

    def loss(self, r: Tensor, y: Tensor) -> Tensor:
        """The loss of scores (Q, c) of queries with classes (Q,).

        Parameters
        ----------
        r : Tensor
            Scores (Q, c).
        y : Tensor
            Classes (Q,).
        """
        r = full_precision(r)
        others = 1 - F.one_hot(y, r.shape[1]).to(r.dtype)  # (Q, c)
        excess = (r - r.gather(1, y[:, None]) + self.margin).relu() * others
        return F.cross_entropy(r, y) + self.lam * excess.sum() / others.sum().clamp_min(1)

    def score(self, model: nn.Module, xs: Tensor, ys: Tensor, xq: Tensor) -> Tensor:
        """Scores r (Q, c) of queries, given the support of an episode.

        Parameters
        ----------
        model : nn.Module
            Images to maps of several scales.
        xs : Tensor
            Images of the support (S, …).
        ys : Tensor
            Their classes (S,).
        xq : Tensor
            Queries (Q, …).

        Returns
        -------
        Tensor
            Scores (Q, c).
        """
        prototypes = [class_means(m, ys) for m in self._maps(model, xs)]
        parts = zip(*(m.split(self.queries_at_once) for m in self._maps(model, xq)))
        return torch.cat([self._relate(queries, prototypes, cross=True) for queries in parts]).view(len(xq), -1)

    def score_pairs(self, model: nn.Module, x: Tensor, other: Tensor) -> Tensor:
        """Scores (m,) of each sample and its partner, as the only support of a class.

        Parameters
        ----------
        model : nn.Module
            Images to maps of several scales.
        x : Tensor
            Images (m, …).
        other : Tensor
            Their partners (m, …).

        Returns
        -------
        Tensor
            Scores (m,).
        """
        return self._relate(self._maps(model, x), self._maps(model, other), cross=False)

    def _relate(self, queries: Maps, prototypes: Maps, cross: bool) -> Tensor:
        """Scores (Q · c,) of each query with each class, or (m,) of each with its partner."""
        seen = [net(q, mu, cross) for net, q, mu in zip(self.relations, queries, prototypes)]
        return self.head(torch.cat(seen, 1)).squeeze(1)

    def _maps(self, model: nn.Module, x: Tensor) -> Maps:
        maps = model(x)
        if isinstance(maps, Tensor) or len(maps) != len(self.relations):
            got = "one tensor" if isinstance(maps, Tensor) else f"{len(maps)} maps"
            raise ValueError(
                f"the model must give {len(self.relations)} maps, one for each of depths, as FeaturePyramid does; "
                f"it gave {got}"
            )
        return maps


class Relation(nn.Module):
    """What the maps of a query and of a class, one above the other, have to do with each other: (m, channels).

    The first convolution is linear: its parts for queries and for classes are computed before the two are paired, and
    of_query(q) + of_class(μ) is the convolution of the maps stacked.
    """

    def __init__(self, channels: int, depth: int):
        super().__init__()
        self.of_query = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.of_class = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        layers: list[nn.Module] = [nn.GroupNorm(channels // 8, channels), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [
                nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                nn.GroupNorm(channels // 8, channels),
                nn.ReLU(),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, q: Tensor, mu: Tensor, cross: bool) -> Tensor:
        a, b = self.of_query(q), self.of_class(mu)
        both = (a[:, None] + b).flatten(0, 1) if cross else a + b  # (m, channels, h, w)
        return self.layers(both).mean((2, 3))
