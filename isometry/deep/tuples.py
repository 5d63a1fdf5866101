"""Pairs, triplets and views: samplers of index tuples, and data sets that turn them into samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from isometry.deep.samplers import EpochSampler, LabelList, ceil_div, class_members, positive
from isometry.parameters import one_of


class TupleSampler(EpochSampler):
    """Index tuples, drawn anew each epoch: pass it as ``sampler``, with a data set that takes tuples.

    All processes draw the same tuples and take every ``world_size``-th; the first few come twice if the number does not
    divide.
    """

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """The tuples (m, k) of an epoch, of all processes together.

        Parameters
        ----------
        rng : np.random.Generator
            Source of random numbers.
        """

    @property
    @abstractmethod
    def total(self) -> int:
        """m, known before drawing."""

    def __len__(self) -> int:
        return ceil_div(self.total, self.rank_and_size[1])

    def items(self, start: int) -> Iterator[tuple[int, ...]]:
        rng = np.random.default_rng([self.random_state, self.epoch])
        rank, world = self.rank_and_size
        tuples = self.draw(rng)
        order = rng.permutation(len(tuples))
        mine = order[np.arange(rank, len(self) * world, world) % len(order)]
        yield from map(tuple, tuples[mine[start:]].tolist())


class TripletSampler(TupleSampler):
    """Random triplets of a data set: (anchor, positive, negative), to feed a ``TripletDataset``.

        p uniform in class(a) ∖ {a};     n uniform over the points of other classes, or over the other classes first

    Each sample of a class with two or more is an anchor.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample.
    triplets_per_anchor : int, default=1
        Triplets of each anchor in an epoch.
    negative : {"points", "classes"}, default="points"
        Uniform over the samples of all other classes, or over the other classes and then over the samples of one.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For training on explicit triplets, ``Siamese(Triplet())``. Most random triplets are easy; batches of
    ``PKBatchSampler`` hold far more triplets for as many samples. An epoch costs O(n) to draw.

    References
    ----------
    | B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
      survey", arXiv 2022.

    Examples
    --------
    >>> from isometry.deep import TripletSampler
    >>> y = [0, 0, 1, 1, 1]
    >>> sampler = TripletSampler(y, triplets_per_anchor=2)
    >>> len(sampler), all(y[a] == y[p] != y[n] and a != p for a, p, n in sampler)
    (10, True)
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
        self.anchors = self.classes.with_partner()

    @property
    def total(self) -> int:
        return len(self.anchors) * self.triplets_per_anchor

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        a = self.anchors.repeat(self.triplets_per_anchor)
        n = self.classes.negatives(a, rng) if self.negative == "points" else self.classes.negatives_by_class(a, rng)
        return np.stack([a, self.classes.positives(a, rng), n], 1)  # (m, 3)


class PairSampler(TupleSampler):
    """Random pairs of a data set: (i, j, similar), to feed a ``PairDataset``.

        similar with a given share;     j uniform within the class of i, or outside of it

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample.
    pos_fraction : float, default=0.5
        Share of similar pairs.
    n_pairs : int or None, default=None
        Pairs in an epoch; None: one for each sample.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For training on explicit pairs, ``Siamese(Contrastive())``, and for verification. Batches of ``PKBatchSampler`` hold
    far more pairs for as many samples. An epoch costs O(n) to draw.

    References
    ----------
    | B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
      survey", arXiv 2022.

    Examples
    --------
    >>> from isometry.deep import PairSampler
    >>> y = [0, 0, 1, 1, 1]
    >>> all((y[i] == y[j]) == bool(similar) for i, j, similar in PairSampler(y, n_pairs=20))
    True
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
        self.anchors = self.classes.with_partner()
        self.n_pairs = positive("n_pairs", len(self.classes) if n_pairs is None else n_pairs)

    @property
    def total(self) -> int:
        return self.n_pairs

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        n_similar = round(self.pos_fraction * self.n_pairs)
        i = rng.choice(self.anchors, n_similar)
        k = rng.integers(len(self.classes), size=self.n_pairs - n_similar)
        similar = np.stack([i, self.classes.positives(i, rng), np.ones_like(i)], 1)
        dissimilar = np.stack([k, self.classes.negatives(k, rng), np.zeros_like(k)], 1)
        return np.concatenate([similar, dissimilar])  # (m, 3)


class _ByClass:
    """Rows sorted by class, so that a partner is a random position inside or outside a range of them."""

    def __init__(self, labels: LabelList):
        members = class_members(labels, overlap=False)
        self.order = np.concatenate(members)  # (n,)
        self.size = np.array([len(rows) for rows in members])  # (C,)
        self.first = self.size.cumsum() - self.size  # (C,), where the range of a class begins
        self.position = np.empty(len(self), dtype=int)  # (n,), inverse of order
        self.position[self.order] = np.arange(len(self))
        self.code = np.empty(len(self), dtype=int)  # (n,)
        self.code[self.order] = np.arange(len(members)).repeat(self.size)
        if len(members) < 2:
            raise ValueError("all samples have the same label; negatives need at least two classes")

    def __len__(self) -> int:
        return len(self.order)

    def with_partner(self) -> np.ndarray:
        """The rows that are not alone in their class."""
        rows = np.flatnonzero(self.size[self.code] > 1)
        if not len(rows):
            raise ValueError("every sample has a label of its own; positives need a class with two samples or more")
        return rows

    def positives(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Another row of the same class: a position among size − 1, moved past the row itself."""
        c, k = self.code[rows], rng.integers(self.size[self.code[rows]] - 1)
        own = self.position[rows] - self.first[c]
        return self.order[self.first[c] + k + (k >= own)]

    def negatives(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row of any other class: a position among n − size, moved past the class."""
        c = self.code[rows]
        k = rng.integers(len(self) - self.size[c])
        return self.order[k + np.where(k >= self.first[c], self.size[c], 0)]

    def negatives_by_class(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A row of another class, each class with the same chance."""
        c = self.code[rows]
        other = rng.integers(len(self.size) - 1, size=len(rows))
        other += other >= c
        return self.order[self.first[other] + rng.integers(self.size[other])]


class TripletDataset(Dataset[Any]):
    """A data set that takes triples of rows and gives triples of samples, for a ``TripletSampler``.

    Parameters
    ----------
    samples : data set or array (n, …)
        Samples, or tuples that begin with one.

    Notes
    -----
    For batches (x_a, x_p, x_n), as ``Siamese`` takes them for a loss of triplets.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import TripletDataset, TripletSampler
    >>> triplets = TripletDataset(torch.randn(4, 3))
    >>> loader = torch.utils.data.DataLoader(triplets, 2, sampler=TripletSampler([0, 0, 1, 1]))
    >>> [x.shape for x in next(iter(loader))]
    [torch.Size([2, 3]), torch.Size([2, 3]), torch.Size([2, 3])]
    """

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, Any]:
        a, p, n = (self.samples[i] for i in index)
        return a, p, n


class PairDataset(Dataset[Any]):
    """A data set that takes (i, j, similar) and gives two samples and the same flag, for a ``PairSampler``.

    Parameters
    ----------
    samples : data set or array (n, …)
        Samples, or tuples that begin with one.

    Notes
    -----
    For batches (x¹, x², similar), as ``Siamese`` takes them for a loss of pairs.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import PairDataset, PairSampler
    >>> pairs = PairDataset(torch.randn(4, 3))
    >>> loader = torch.utils.data.DataLoader(pairs, 2, sampler=PairSampler([0, 0, 1, 1]))
    >>> [x.shape for x in next(iter(loader))]
    [torch.Size([2, 3]), torch.Size([2, 3]), torch.Size([2])]
    """

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, int]:
        i, j, similar = index
        return self.samples[i], self.samples[j], similar


class ViewsDataset(Dataset[Any]):
    """Positives by augmentation: independent random views of one sample, and its index, which serves as label.

        x_i ↦ (t₁(x_i), t₂(x_i), …, i),     t independent random augmentations

    All other samples are negatives, those of the same unknown class too.

    Parameters
    ----------
    samples : data set
        Samples without labels.
    augment : callable
        A sample to a random variant of it.
    n_views : int, default=2
        Views of each sample.

    Notes
    -----
    For learning without labels: ``InfoNCE``, ``SoftmaxTriplet`` and others by ``loss.views``, ``VICReg`` and
    ``BarlowTwins`` as they are. What is learned is to overlook what the augmentation changes, no more. Costs O(n_views)
    augmentations a sample.

    References
    ----------
    | B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
      survey", arXiv 2022.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import InfoNCE, ViewsDataset
    >>> views = ViewsDataset(torch.eye(4), lambda x: x + 0.1 * torch.randn_like(x))
    >>> x1, x2, i = next(iter(torch.utils.data.DataLoader(views, batch_size=4)))
    >>> x1.shape, InfoNCE().views(x1, x2).item() > 0
    (torch.Size([4, 4]), True)
    """

    def __init__(self, samples: Any, augment: Callable[[Any], Any], n_views: int = 2):
        self.samples, self.augment, self.n_views = samples, augment, positive("n_views", n_views)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        x = self.samples[index]
        return (*(self.augment(x) for _ in range(self.n_views)), index)
