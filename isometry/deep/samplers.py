"""Samplers: which rows of a data set make a batch or an episode.

A sampler gives indices to a ``DataLoader``. What it gives is a function of (random_state, epoch, rank): processes of a
group share one plan without talking, and an epoch can be entered in the middle.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Sampler, default_collate

from isometry.deep.distributed import is_distributed
from isometry.deep.walks import SqrtDraws, Walk, per_step
from isometry.parameters import one_of

LabelList = Sequence[Any] | np.ndarray | Tensor


def rank_and_size() -> tuple[int, int]:
    """(rank, world_size) of this process."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


class EpochSampler(Sampler[Any], ABC):
    """What all samplers share.

    Parameters
    ----------
    random_state : int
        Seed; the same in all processes.
    rank : int or None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0. Leave the sharding to
        one side: a loader that splits batches by itself needs ``rank=0, world_size=1`` here.
    world_size : int or None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.
    """

    def __init__(self, random_state: int, rank: int | None, world_size: int | None):
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size go together: give both, or neither to ask torch.distributed")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0 … world_size − 1 = {world_size - 1}, got {rank}")
        self.random_state = random_state
        self._rank_and_size = None if rank is None or world_size is None else (rank, world_size)
        self.epoch, self.position = 0, 0
        self._start = 0

    @property
    def rank_and_size(self) -> tuple[int, int]:
        """(rank, world_size)."""
        return rank_and_size() if self._rank_and_size is None else self._rank_and_size

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; without it each complete iteration moves on to the next.

        Parameters
        ----------
        epoch : int
            Its number, from 0.
        """
        if epoch != self.epoch:
            self.epoch, self.position, self._start = epoch, 0, 0

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Where the sampler stands: the epoch, and how many items of it are done.

        A ``DataLoader`` with workers fetches ahead; pass the number of items that training has used as ``position``.

        Parameters
        ----------
        position : int or None, default=None
            Items of the epoch that are done; None: those that were given out.

        Returns
        -------
        dict
            The numbers ``epoch`` and ``position``.
        """
        return {"epoch": self.epoch, "position": self.position if position is None else position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration continue where the state was taken.

        Parameters
        ----------
        state : dict
            What ``state_dict`` gave.
        """
        self.epoch, self._start = state["epoch"], state["position"]
        self.position = self._start

    def __iter__(self) -> Iterator[Any]:
        self.position, self._start = self._start, 0
        for item in self.items(self.position):
            self.position += 1
            yield item
        self.epoch, self.position = self.epoch + 1, 0

    @abstractmethod
    def items(self, start: int) -> Iterator[Any]:
        """What this process gets in the present epoch, from item ``start`` on.

        Parameters
        ----------
        start : int
            The first item.

        Returns
        -------
        iterator
            The items.
        """

    @abstractmethod
    def __len__(self) -> int:
        """Items of this process in an epoch."""


# -- classes × samples -------------------------------------------------------------------------------------------------


class PKBatchSampler(EpochSampler):
    """Batches of P classes with K samples each: pass it as ``batch_sampler``.

        P different classes, K different samples of each; no sample again before all others of its class

    Classes come in shuffled passes, each class once a pass; so do the samples of a class. The passes run on through the
    epochs: no sample comes again before all others of its class have come. A batch holds P different classes and, of a
    class with at least K samples, K different ones. Several processes cut one plan: in a step they have different
    classes, or, where there are too few, different samples.

    Parameters
    ----------
    labels : sequence (n,) or bool array (n, c)
        One label a sample, of any type; or which of c classes it belongs to, then a sample can stand in a batch for
        several of them.
    classes_per_batch : int, default=8
        Classes of a batch, P.
    samples_per_class : int, default=8
        Samples of each class in a batch, K.
    n_batches : int or None, default=None
        Batches in an epoch; None: as many as it takes for all samples, the last included.
    small : {"repeat", "skip"}, default="repeat"
        A class with fewer than K samples gives some of them several times, or is left out, with a warning.
    frequency : {"equal", "sqrt"}, default="equal"
        Each class as often as any other, or in proportion to the square root of its size, at most once a step.
    categories : sequence (n,) or None, default=None
        The category of each sample, of which its class is a part; None: there are none. Categories come in shuffled
        passes, and so do the classes of each; batches from few categories are harder. Categories with fewer classes
        than a batch takes from each are left out, with a warning.
    categories_per_batch : int, default=1
        Of how many categories a batch takes its P classes, as many of each.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For every loss of pairs or triplets: a batch without positives teaches nothing. Losses with proxies or a classifier
    take any batch. An epoch costs O(n) to plan.

    References
    ----------
    | A. Hermans, L. Beyer, B. Leibe, "In defense of the triplet loss for person re-identification", arXiv 2017.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import PKBatchSampler, TableDataset
    >>> y = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    >>> sampler = PKBatchSampler(y, classes_per_batch=2, samples_per_class=2)
    >>> batch = next(iter(sampler))
    >>> len(set(batch)), len({y[i] for i in batch})
    (4, 2)
    >>> loader = torch.utils.data.DataLoader(TableDataset(torch.randn(9, 3), y), batch_sampler=sampler)
    >>> [part.shape for part in next(iter(loader))]
    [torch.Size([4, 3]), torch.Size([4])]
    """

    def __init__(
        self,
        labels: LabelList,
        classes_per_batch: int = 8,
        samples_per_class: int = 8,
        *,
        n_batches: int | None = None,
        small: str = "repeat",
        frequency: str = "equal",
        categories: LabelList | None = None,
        categories_per_batch: int = 1,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.small = one_of("small", small, ("repeat", "skip"))
        self.frequency = one_of("frequency", frequency, ("equal", "sqrt"))
        self.classes_per_batch = positive("classes_per_batch", classes_per_batch)
        self.samples_per_class = positive("samples_per_class", samples_per_class)
        self.n_batches = None if n_batches is None else positive("n_batches", n_batches)
        members = class_members(labels)
        if small == "skip":
            members = large_enough(members, samples_per_class, "samples_per_class")
        if len(members) < classes_per_batch:
            raise ValueError(
                f"classes_per_batch={classes_per_batch}, but there are {len(members)} classes to draw from; "
                "lower classes_per_batch, or raise samples_per_class to keep the size of the batch"
            )
        self.members = members
        if categories is not None and frequency != "equal":
            raise ValueError("frequency='sqrt' draws classes one by one and does not go with categories; choose one")
        if categories is None and categories_per_batch != 1:
            raise ValueError(f"categories_per_batch={categories_per_batch} needs categories, one value a sample")
        self.categories_per_batch = positive("categories_per_batch", categories_per_batch)
        self.groups = self._grouped(categories)  # classes of each category
        self._walks: dict[tuple[int, int, int], Walk] = {}
        self._drawn: SqrtDraws | None = None

    def __len__(self) -> int:
        if self.n_batches is not None:
            return self.n_batches
        n_samples = sum(len(self.members[c]) for group in self.groups for c in group)
        return ceil_div(n_samples, self._slots * self.samples_per_class)

    def items(self, start: int) -> Iterator[list[int]]:
        choose = self._chosen if self.frequency == "equal" else self._drawn_by_size
        for batch in range(self.epoch * len(self) + start, (self.epoch + 1) * len(self)):
            yield np.concatenate([self._samples(c, turn, often) for c, turn, often in choose(batch)]).tolist()

    @property
    def _slots(self) -> int:
        """Classes in a step of all processes together."""
        return self.classes_per_batch * self.rank_and_size[1]

    def _grouped(self, categories: LabelList | None) -> list[np.ndarray]:
        if categories is None:
            return [np.arange(len(self.members))]
        each, rest = divmod(self.classes_per_batch, self.categories_per_batch)
        if rest:
            raise ValueError(
                f"classes_per_batch={self.classes_per_batch} cannot be shared evenly by categories_per_batch="
                f"{self.categories_per_batch}; make one a multiple of the other"
            )
        kinds = category_of_each(self.members, categories)
        groups = class_members(kinds, overlap=False)
        groups = large_enough(groups, each, "classes of a batch in each", ("categories", "classes"))
        if len(groups) < self.categories_per_batch:
            raise ValueError(
                f"categories_per_batch={self.categories_per_batch}, but there are {len(groups)} categories with {each} "
                "classes; lower classes_per_batch or categories_per_batch"
            )
        return groups

    def _chosen(self, batch: int) -> Iterator[tuple[int, int, int]]:
        """Class, how often it has come before, and how often it can come in a step: P of them.

        The number of the pass through a category says how often it has come before; that through its classes likewise.
        """
        rank, world = self.rank_and_size
        G, n = self.categories_per_batch, len(self.groups)
        each, visits = self.classes_per_batch // G, per_step(G * world, n)  # visits of a category in a step, at most
        slot = (batch * world + rank) * G
        for k, g in enumerate(self._walk(0, 0, n, G * world if visits == 1 else G).take(slot, G).tolist()):
            group, first = self.groups[g], (slot + k) // n * each
            often = per_step(visits * each, len(group), aligned=G * world % n == 0)
            gap = visits * each if often == 1 else each
            classes = group[self._walk(1, g, len(group), gap).take(first, each)]
            yield from ((c, (first + i) // len(group), often) for i, c in enumerate(classes.tolist()))

    def _drawn_by_size(self, batch: int) -> Iterator[tuple[int, int, int]]:
        rank, P = self.rank_and_size[0], self.classes_per_batch
        if self._drawn is None or self._drawn.count != self._slots:
            self._drawn = SqrtDraws([len(rows) for rows in self.members], self._slots, [self.random_state, 0, 0, 2])
        classes, turns = self._drawn.step(batch)
        mine = slice(rank * P, (rank + 1) * P)
        return ((c, turn, 1) for c, turn in zip(classes[mine].tolist(), turns[mine].tolist()))

    def _samples(self, c: int, turn: int, often: int) -> np.ndarray:
        rows, K = self.members[c], self.samples_per_class
        return rows[self._walk(2, c, len(rows), min(len(rows), often * K)).take(turn * K, K)]

    def _walk(self, level: int, which: int, n: int, gap: int) -> Walk:
        """The walk through the categories, the classes of a category, or the samples of a class (level 0, 1, 2)."""
        if (level, which, gap) not in self._walks:
            seed = [[0, 0, 1], [0, which], [which + 1]][level]
            self._walks[level, which, gap] = Walk(n, gap, [self.random_state, *seed])
        return self._walks[level, which, gap]


# -- episodes ----------------------------------------------------------------------------------------------------------


class Episode(NamedTuple):
    """A small classification task, its classes renamed to 0 … n_way − 1.

    Attributes
    ----------
    xs : Tensor (S, …)
        Samples of the support, class by class.
    ys : Tensor (S,)
        Their classes.
    xq : Tensor (Q, …)
        Samples of the query.
    yq : Tensor (Q,)
        Their classes.
    classes : list
        What the classes were called, in the order of their new numbers.

    Notes
    -----
    What ``EpisodeSampler.collate`` makes, and objectives of episodes take.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import Episode, Prototypes
    >>> task = Episode(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), torch.tensor([0, 1]), ["cat", "dog"])
    >>> Prototypes()(torch.nn.Identity(), task).item() > 0
    True
    """

    xs: Any  # support, (n_way · k_shot, …)
    ys: Tensor
    xq: Any  # query, (n_way · k_query, …)
    yq: Tensor
    classes: Any  # the labels of the data set, (n_way,)


class EpisodeSampler(EpochSampler):
    """Episodes of c ways and k shots: pass it as ``batch_sampler``, and its ``collate`` as ``collate_fn``.

        c classes;     of each k_s support and k_q query samples, all different

    An episode draws ``n_way`` classes and of each ``k_shot`` support and ``k_query`` query samples, all different. The
    indices of the support come first, each part class by class. Processes get different episodes.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample. Classes with fewer than k_shot + k_query samples are left out, with a warning.
    n_way : int, default=5
        Classes of an episode, c.
    k_shot : int, default=1
        Support samples of each class, k_s.
    k_query : int, default=15
        Query samples of each class, k_q.
    episodes : int, default=100
        Episodes of a process in an epoch.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For few-shot learning and for measuring it; ``episode_loader`` puts it together with a data set. For retrieval,
    batches of ``PKBatchSampler`` use samples better. An episode costs O(c (k_s + k_q)) to draw.

    References
    ----------
    | O. Vinyals, C. Blundell, T. Lillicrap, K. Kavukcuoglu, D. Wierstra, "Matching networks for one shot learning",
      NIPS 2016.

    Examples
    --------
    >>> from isometry.deep import EpisodeSampler
    >>> sampler = EpisodeSampler([0] * 5 + [1] * 5 + [2] * 5, n_way=2, k_shot=1, k_query=3, episodes=4)
    >>> [len(indices) for indices in sampler]
    [8, 8, 8, 8]
    """

    def __init__(
        self,
        labels: LabelList,
        n_way: int = 5,
        k_shot: int = 1,
        k_query: int = 15,
        episodes: int = 100,
        *,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.n_way, self.k_shot = positive("n_way", n_way), positive("k_shot", k_shot)
        self.k_query, self.episodes = positive("k_query", k_query), positive("episodes", episodes)
        self.members = large_enough(class_members(labels, overlap=False), k_shot + k_query, "k_shot + k_query")
        if len(self.members) < n_way:
            raise ValueError(
                f"n_way={n_way}, but only {len(self.members)} classes have k_shot + k_query = {k_shot + k_query} "
                "samples; lower n_way, k_shot or k_query"
            )

    def __len__(self) -> int:
        return self.episodes

    def items(self, start: int) -> Iterator[list[int]]:
        rank, _ = self.rank_and_size
        for number in range(start, self.episodes):
            rng = np.random.default_rng([self.random_state, self.epoch, rank, number])
            classes = rng.choice(len(self.members), self.n_way, replace=False)
            k = self.k_shot + self.k_query
            rows = np.stack([rng.choice(self.members[c], k, replace=False) for c in classes])  # (n_way, k)
            yield [*rows[:, : self.k_shot].ravel().tolist(), *rows[:, self.k_shot :].ravel().tolist()]

    def collate(self, samples: list[tuple[Any, Any]]) -> Episode:
        """The samples (x, label) of one episode, in the order of its indices.

        Parameters
        ----------
        samples : list of tuple
            Pairs (sample, label) in the order of the indices.

        Returns
        -------
        Episode
            The task, its classes renamed.
        """
        n_support, code = self.n_way * self.k_shot, torch.arange(self.n_way)
        xs, xq = (default_collate([x for x, _ in part]) for part in (samples[:n_support], samples[n_support:]))
        classes = default_collate([label for _, label in samples[: n_support : self.k_shot]])
        return Episode(xs, code.repeat_interleave(self.k_shot), xq, code.repeat_interleave(self.k_query), classes)


# -- labels ------------------------------------------------------------------------------------------------------------


def class_members(labels: LabelList, overlap: bool = True) -> list[np.ndarray]:
    """The rows of each class, in the order of the sorted labels; ``overlap`` allows a boolean matrix (n, c)."""
    y = as_array(labels)
    if y.ndim == 2 and y.dtype == bool and overlap:
        members = [np.flatnonzero(column) for column in y.T]
        if (y.sum(1) == 0).any():
            raise ValueError(f"{(y.sum(1) == 0).sum()} samples belong to no class; leave them out of the data set")
        return [rows for rows in members if len(rows)]
    if y.ndim != 1 or not len(y):
        allowed = "(n,) or a boolean matrix (n, c)" if overlap else "(n,)"
        raise ValueError(f"labels must be {allowed}, not empty; got shape {y.shape} of {y.dtype}")
    _, code, count = np.unique(y, return_inverse=True, return_counts=True)
    return np.split(np.argsort(code, kind="stable"), count.cumsum()[:-1])


def as_array(labels: LabelList) -> np.ndarray:
    """Labels as an array."""
    return labels.numpy(force=True) if isinstance(labels, Tensor) else np.asarray(labels)


def category_of_each(members: list[np.ndarray], categories: LabelList) -> np.ndarray:
    """The category of each class (C,), from those of its samples, which must agree."""
    kind = as_array(categories)
    n = 1 + max(int(rows.max()) for rows in members)
    if kind.ndim != 1 or len(kind) < n:
        raise ValueError(f"categories must be one value a sample, ({n},), got shape {kind.shape}")
    for rows in members:
        if (kind[rows] != kind[rows[0]]).any():
            pair = sorted(set(kind[rows].tolist()))[:2]
            raise ValueError(f"a class has samples of the categories {pair[0]!r} and {pair[1]!r}; it must lie in one")
    return kind[[rows[0] for rows in members]]


def large_enough(
    members: list[np.ndarray], size: int, name: str, nouns: tuple[str, str] = ("classes", "samples")
) -> list[np.ndarray]:
    """The classes with at least ``size`` samples; a warning says how many others there are."""
    kept = [rows for rows in members if len(rows) >= size]
    if len(kept) < len(members):
        lost = sum(map(len, members)) - sum(map(len, kept))
        warnings.warn(
            f"{len(members) - len(kept)} of {len(members)} {nouns[0]} have fewer than {name} = {size} {nouns[1]} and "
            f"are left out, {lost} {nouns[1]} in all",
            stacklevel=3,
        )
    return kept


def positive(name: str, value: int) -> int:
    """``value`` if it is a count, else an error."""
    if not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉."""
    return -(-a // b)
