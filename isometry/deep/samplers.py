"""Samplers: which rows of a data set make a batch, a pair, a triplet or an episode.

A sampler gives indices to a ``DataLoader``. What it gives is a function of (random_state, epoch, rank): processes of a
group share one plan without talking, and an epoch can be entered in the middle.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset, Sampler, default_collate

from isometry.deep.functional import one_of
from isometry.deep.gather import is_distributed

LabelList = Sequence[Any] | np.ndarray | Tensor


def current_place() -> tuple[int, int]:
    """(rank, world_size) of this process."""
    return (dist.get_rank(), dist.get_world_size()) if is_distributed() else (0, 1)


class EpochSampler(Sampler, ABC):
    """What all samplers share.

    Parameters
    ----------
    random_state : int
        Seed; the same in all processes.
    rank, world_size : int, optional
        This process and how many there are; by default those of ``torch.distributed``, if a group exists. Leave the
        sharding to one side: a loader that splits batches by itself needs ``rank=0, world_size=1`` here.
    """

    def __init__(self, random_state: int, rank: int | None, world_size: int | None):
        if (rank is None) != (world_size is None):
            raise ValueError("rank and world_size go together: give both, or neither to ask torch.distributed")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise ValueError(f"rank must lie in 0 … world_size − 1 = {world_size - 1}, got {rank}")
        self.random_state = random_state
        self._place = None if rank is None or world_size is None else (rank, world_size)
        self.epoch, self.position = 0, 0
        self._start = 0

    @property
    def place(self) -> tuple[int, int]:
        """(rank, world_size)."""
        return current_place() if self._place is None else self._place

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; without it each complete iteration moves on to the next."""
        if epoch != self.epoch:
            self.epoch, self.position, self._start = epoch, 0, 0

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Where the sampler stands: the epoch, and how many items of it are done.

        A ``DataLoader`` with workers fetches ahead; pass the number of items that training has used as ``position``.
        """
        return {"epoch": self.epoch, "position": self.position if position is None else position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration continue where the state was taken."""
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
        """What this process gets in the present epoch, from item ``start`` on."""

    @abstractmethod
    def __len__(self) -> int:
        """Items of this process in an epoch."""


# -- classes × samples -------------------------------------------------------------------------------------------------


class PKBatchSampler(EpochSampler):
    """Batches of exactly P classes with K samples each: pass it as ``batch_sampler``.

    Classes come in shuffled passes, each class once a pass; so do the samples of a class. The passes run on through the
    epochs: no sample comes again before all others of its class have come. A batch holds P different classes and, of a
    class with at least K samples, K different ones. Several processes cut one plan: in a step they have different
    classes, or, where there are too few, different samples.

    Parameters
    ----------
    labels : sequence (n,), or boolean matrix (n, c)
        One label a sample, of any type; or which of c classes it belongs to, then a sample can stand in a batch for
        several of them.
    classes_per_batch, samples_per_class : int
        P, K.
    n_batches : int, optional
        Batches in an epoch; by default as many as have room for all samples, the last included.
    small : {"repeat", "skip"}
        A class with fewer than K samples gives some of them several times, or is left out, with a warning.
    """

    def __init__(
        self,
        labels: LabelList,
        classes_per_batch: int = 8,
        samples_per_class: int = 8,
        *,
        n_batches: int | None = None,
        small: str = "repeat",
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.small = one_of("small", small, ("repeat", "skip"))
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
        self._walks: dict[tuple[int, int], _Walk] = {}

    def __len__(self) -> int:
        if self.n_batches is not None:
            return self.n_batches
        return ceil_div(sum(map(len, self.members)), self._slots * self.samples_per_class)

    def items(self, start: int) -> Iterator[list[int]]:
        rank, P, C = self.place[0], self.classes_per_batch, len(self.members)
        for batch in range(self.epoch * len(self) + start, (self.epoch + 1) * len(self)):
            slot = batch * self._slots + rank * P
            classes = self._walk(-1, C, self._slots if self._slots <= C else P).take(slot, P)
            turns = (slot + np.arange(P)) // C  # the number of the pass is how often the class has come before
            yield np.concatenate([self._samples(c, turn) for c, turn in zip(classes.tolist(), turns.tolist())]).tolist()

    @property
    def _slots(self) -> int:
        """Classes in a step of all processes together."""
        return self.classes_per_batch * self.place[1]

    def _samples(self, c: int, turn: int) -> np.ndarray:
        rows, K, C = self.members[c], self.samples_per_class, len(self.members)
        turns_per_step = 1 if self._slots <= C else ceil_div(self._slots, C) + 1  # at most
        return rows[self._walk(c, len(rows), min(len(rows), turns_per_step * K)).take(turn * K, K)]

    def _walk(self, c: int, n: int, gap: int) -> _Walk:
        """The walk through the samples of class c, or through the classes (c = −1)."""
        if (c, gap) not in self._walks:
            self._walks[c, gap] = _Walk(n, gap, [self.random_state, c + 1])
        return self._walks[c, gap]


class _Walk:
    """An endless walk through 0 … n − 1 in shuffled passes, such that any ``gap`` steps in a row are different."""

    def __init__(self, n: int, gap: int, seed: list[int]):
        self.n, self.gap, self.seed = n, gap, seed
        self._begin()

    def _begin(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._pass, self._order = 0, self._rng.permutation(self.n)

    def take(self, start: int, count: int) -> np.ndarray:
        """Steps start … start + count − 1. Cheap if it goes forward; a step back walks again from the beginning."""
        first, offset = divmod(start, self.n)
        if first < self._pass:
            self._begin()
        parts = []
        while count:
            while self._pass < first:
                self._advance()
            parts.append(self._order[offset : offset + count])
            count -= len(parts[-1])
            first, offset = first + 1, 0
        return np.concatenate(parts)

    def _advance(self) -> None:
        """Shuffle; what came among the last gap − 1 is put in later, no nearer than the gap allows."""
        late = self.n - self.gap + 1
        order = self._rng.permutation(self._order[:late]).tolist()
        for k, item in enumerate(self._order[late:].tolist()):
            order.insert(self._rng.integers(k + 1, len(order) + 1), item)
        self._pass, self._order = self._pass + 1, np.array(order)


# -- pairs and triplets ------------------------------------------------------------------------------------------------


class TupleSampler(EpochSampler):
    """Index tuples, drawn anew each epoch: pass it as ``sampler``, with a data set that takes tuples.

    All processes draw the same tuples and take every ``world_size``-th; the first few come twice if the number does not
    divide.
    """

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The tuples (m, k) of an epoch, of all processes together."""

    @property
    @abstractmethod
    def total(self) -> int:
        """m, known before drawing."""

    def __len__(self) -> int:
        return ceil_div(self.total, self.place[1])

    def items(self, start: int) -> Iterator[tuple[int, ...]]:
        rng = np.random.default_rng([self.random_state, self.epoch])
        rank, world = self.place
        tuples = self.draw(rng)
        order = rng.permutation(len(tuples))
        mine = order[np.arange(rank, len(self) * world, world) % len(order)]
        yield from map(tuple, tuples[mine[start:]].tolist())


class TripletSampler(TupleSampler):
    """Random triplets (anchor, positive, negative) of a data set; feed a ``TripletDataset``.

    Each sample of a class with two or more is an anchor; its positive is uniform among the others of the class.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample.
    triplets_per_anchor : int
        Triplets of each anchor in an epoch.
    negative : {"points", "classes"}
        Uniform over the samples of all other classes, or over the other classes and then over the samples of one.
    """

    def __init__(
        self,
        labels: LabelList,
        triplets_per_anchor: int = 1,
        negative: str = "points",
        *,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.negative = one_of("negative", negative, ("points", "classes"))
        self.triplets_per_anchor = positive("triplets_per_anchor", triplets_per_anchor)
        self.classes = _ByClass(labels)
        self.anchors = self.classes.with_company()

    @property
    def total(self) -> int:
        return len(self.anchors) * self.triplets_per_anchor

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        a = self.anchors.repeat(self.triplets_per_anchor)
        n = self.classes.stranger(a, rng) if self.negative == "points" else self.classes.of_other_class(a, rng)
        return np.stack([a, self.classes.companion(a, rng), n], 1)  # (m, 3)


class PairSampler(TupleSampler):
    """Random pairs (i, j, similar) of a data set; feed a ``PairDataset``.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample.
    pos_fraction : float
        Share of similar pairs.
    n_pairs : int, optional
        Pairs in an epoch; by default one for each sample.
    """

    def __init__(
        self,
        labels: LabelList,
        pos_fraction: float = 0.5,
        n_pairs: int | None = None,
        *,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        if not 0 <= pos_fraction <= 1:
            raise ValueError(f"pos_fraction is a share between 0 and 1, got {pos_fraction}")
        self.pos_fraction = pos_fraction
        self.classes = _ByClass(labels)
        self.anchors = self.classes.with_company()
        self.n_pairs = positive("n_pairs", len(self.classes) if n_pairs is None else n_pairs)

    @property
    def total(self) -> int:
        return self.n_pairs

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        n_similar = round(self.pos_fraction * self.n_pairs)
        i = rng.choice(self.anchors, n_similar)
        k = rng.integers(len(self.classes), size=self.n_pairs - n_similar)
        similar = np.stack([i, self.classes.companion(i, rng), np.ones_like(i)], 1)
        return np.concatenate([similar, np.stack([k, self.classes.stranger(k, rng), np.zeros_like(k)], 1)])  # (m, 3)


class _ByClass:
    """Rows sorted by class, so that a partner is a random place inside or outside a stretch of them."""

    def __init__(self, labels: LabelList):
        members = class_members(labels, overlap=False)
        self.order = np.concatenate(members)  # (n,)
        self.size = np.array([len(rows) for rows in members])  # (C,)
        self.first = self.size.cumsum() - self.size  # (C,), where the stretch begins
        self.place = np.empty(len(self), dtype=int)  # (n,), inverse of order
        self.place[self.order] = np.arange(len(self))
        self.code = np.empty(len(self), dtype=int)  # (n,)
        self.code[self.order] = np.arange(len(members)).repeat(self.size)
        if len(members) < 2:
            raise ValueError("all samples have the same label; negatives need at least two classes")

    def __len__(self) -> int:
        return len(self.order)

    def with_company(self) -> np.ndarray:
        """The rows that are not alone in their class."""
        rows = np.flatnonzero(self.size[self.code] > 1)
        if not len(rows):
            raise ValueError("every sample has a label of its own; positives need a class with two samples or more")
        return rows

    def companion(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Another row of the same class: a place among size − 1, moved past the row itself."""
        c, k = self.code[rows], rng.integers(self.size[self.code[rows]] - 1)
        own = self.place[rows] - self.first[c]
        return self.order[self.first[c] + k + (k >= own)]

    def stranger(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row of any other class: a place among n − size, moved past the class."""
        c = self.code[rows]
        k = rng.integers(len(self) - self.size[c])
        return self.order[k + np.where(k >= self.first[c], self.size[c], 0)]

    def of_other_class(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row of another class, each class with the same chance."""
        c = self.code[rows]
        other = rng.integers(len(self.size) - 1, size=len(rows))
        other += other >= c
        return self.order[self.first[other] + rng.integers(self.size[other])]


class TripletDataset(Dataset):
    """Index triples to triples of samples: ``DataLoader(TripletDataset(xs), 64, sampler=TripletSampler(y))``."""

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, Any]:
        a, p, n = index
        return self.samples[a], self.samples[p], self.samples[n]


class PairDataset(Dataset):
    """(i, j, similar) to two samples and the same flag: ``DataLoader(PairDataset(xs), 64, sampler=PairSampler(y))``."""

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, int]:
        i, j, similar = index
        return self.samples[i], self.samples[j], similar


class ViewsDataset(Dataset):
    """Positives by augmentation: independent random views of one sample, and its index, which serves as label.

    ``for x1, x2, i in DataLoader(ViewsDataset(xs, augment), 64, shuffle=True): loss.views(model(x1), model(x2))``.
    All other samples are negatives, those of the same unknown class too.

    Parameters
    ----------
    samples : map-style data set
        Without labels.
    augment : callable
        A sample to a random variant of it.
    n_views : int
        Views of each sample.
    """

    def __init__(self, samples: Any, augment: Callable[[Any], Any], n_views: int = 2):
        self.samples, self.augment, self.n_views = samples, augment, positive("n_views", n_views)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        x = self.samples[index]
        return (*(self.augment(x) for _ in range(self.n_views)), index)


# -- episodes ----------------------------------------------------------------------------------------------------------


class Episode(NamedTuple):
    """A small classification task, its classes renamed to 0 … n_way − 1."""

    xs: Any  # support, (n_way · k_shot, …)
    ys: Tensor
    xq: Any  # query, (n_way · k_query, …)
    yq: Tensor
    classes: Any  # the labels of the data set, (n_way,)


class EpisodeSampler(EpochSampler):
    """Episodes for few-shot learning: pass it as ``batch_sampler``, and its ``collate`` as ``collate_fn``.

    An episode draws ``n_way`` classes and of each ``k_shot`` support and ``k_query`` query samples, all different. The
    indices of the support come first, each part class by class. Processes get different episodes.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample. Classes with fewer than k_shot + k_query samples are left out, with a warning.
    n_way, k_shot, k_query : int
        Classes, support and query samples of each.
    episodes : int
        Episodes of a process in an epoch.
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
        rank, _ = self.place
        for number in range(start, self.episodes):
            rng = np.random.default_rng([self.random_state, self.epoch, rank, number])
            classes = rng.choice(len(self.members), self.n_way, replace=False)
            k = self.k_shot + self.k_query
            rows = np.stack([rng.choice(self.members[c], k, replace=False) for c in classes])  # (n_way, k)
            yield [*rows[:, : self.k_shot].ravel().tolist(), *rows[:, self.k_shot :].ravel().tolist()]

    def collate(self, samples: list[tuple[Any, Any]]) -> Episode:
        """The samples (x, label) of one episode, in the order of its indices."""
        n_support, code = self.n_way * self.k_shot, torch.arange(self.n_way)
        xs, xq = (default_collate([x for x, _ in part]) for part in (samples[:n_support], samples[n_support:]))
        classes = default_collate([label for _, label in samples[: n_support : self.k_shot]])
        return Episode(xs, code.repeat_interleave(self.k_shot), xq, code.repeat_interleave(self.k_query), classes)


# -- labels ------------------------------------------------------------------------------------------------------------


def class_members(labels: LabelList, overlap: bool = True) -> list[np.ndarray]:
    """The rows of each class, in the order of the sorted labels; ``overlap`` allows a boolean matrix (n, c)."""
    y = labels.numpy(force=True) if isinstance(labels, Tensor) else np.asarray(labels)
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


def large_enough(members: list[np.ndarray], size: int, name: str) -> list[np.ndarray]:
    """The classes with at least ``size`` samples; a warning says how many others there are."""
    kept = [rows for rows in members if len(rows) >= size]
    if len(kept) < len(members):
        lost = sum(map(len, members)) - sum(map(len, kept))
        warnings.warn(
            f"{len(members) - len(kept)} of {len(members)} classes have fewer than {name} = {size} samples and are "
            f"left out, {lost} samples in all",
            stacklevel=3,
        )
    return kept


def positive(name: str, value: int) -> int:
    """``value`` if it is a count, else an error."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉."""
    return -(-a // b)
