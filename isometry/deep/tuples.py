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
        """The tuples (m, k) of an epoch, of all processes together."""

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
    triplets_per_anchor : int
        Triplets of each anchor in an epoch.
    negative : {"points", "classes"}
        Uniform over the samples of all other classes, or over the other classes and then over the samples of one.

    References
    ----------
    B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
    survey", arXiv 2022.
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
    pos_fraction : float
        Share of similar pairs.
    n_pairs : int, optional
        Pairs in an epoch; by default one for each sample.

    References
    ----------
    B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
    survey", arXiv 2022.
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
    """Index triples to triples of samples: ``DataLoader(TripletDataset(xs), 64, sampler=TripletSampler(y))``."""

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, Any]:
        a, p, n = (self.samples[i] for i in index)
        return a, p, n


class PairDataset(Dataset[Any]):
    """(i, j, similar) to two samples and the same flag: ``DataLoader(PairDataset(xs), 64, sampler=PairSampler(y))``."""

    def __init__(self, samples: Any):
        self.samples = samples

    def __getitem__(self, index: tuple[int, int, int]) -> tuple[Any, Any, int]:
        i, j, similar = index
        return self.samples[i], self.samples[j], similar


class ViewsDataset(Dataset[Any]):
    """Positives by augmentation: independent random views of one sample, and its index, which serves as label.

        x_i ↦ (t₁(x_i), t₂(x_i), …, i),     t independent random augmentations

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

    References
    ----------
    B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, "Spectral, probabilistic, and deep metric learning: tutorial and
    survey", arXiv 2022.
    """

    def __init__(self, samples: Any, augment: Callable[[Any], Any], n_views: int = 2):
        self.samples, self.augment, self.n_views = samples, augment, positive("n_views", n_views)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        x = self.samples[index]
        return (*(self.augment(x) for _ in range(self.n_views)), index)
