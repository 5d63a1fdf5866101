"""What a trainer is given, as batches: arrays, data sets and loaders; which samples are held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from isometry.deep.row_samplers import apart
from isometry.deep.samplers import (
    EpochSampler,
    LabelList,
    PKBatchSampler,
    as_array,
    class_members,
    positive,
    rank_and_size,
)
from isometry.deep.settings import Batches
from isometry.parameters import one_of

LARGEST_REPEAT = 4  # how often a batch may hold the whole data set
SMALL_BATCH = 1024  # samples that a batch may always have
LOOKED_THROUGH = 20  # times the size of a batch: rows that are looked through for some that go with a small batch
PROBE_SIZE = 512  # training samples that are looked at after an epoch, if none are held out


class TableDataset(Dataset[Any]):
    """Samples in memory, with labels 0 … C − 1 if there are any; a batch is cut out in one piece.

    Parameters
    ----------
    samples : array (n, …)
        Samples; floats are brought to ``dtype``.
    labels : sequence (n,) or None, default=None
        One label a sample, of any type; None: there are none.
    dtype : torch.dtype, default=torch.float32
        Type of the samples.

    Notes
    -----
    What a `Trainer` makes of arrays. All samples stay in memory, and a batch costs one indexing.

    Examples
    --------
    >>> import torch
    >>> from isometry.deep import TableDataset
    >>> table = TableDataset(torch.eye(3), ["cat", "dog", "cat"])
    >>> x, y = table[[0, 1, 2]]
    >>> x.shape, y.tolist()
    (torch.Size([3, 3]), [0, 1, 0])
    """

    def __init__(self, samples: Any, labels: LabelList | None = None, dtype: torch.dtype = torch.float32):
        x = as_tensor(samples)
        self.x = x.to(dtype) if x.is_floating_point() else x
        self.y = None if labels is None else class_codes(labels)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int | list[int]) -> Any:
        """The sample (x, y), or x without labels; for a list of rows the whole batch."""
        return self.x[row] if self.y is None else (self.x[row], self.y[row])


class LabelledDataset(Dataset[Any]):
    """A data set of samples alone, with labels that were given beside it."""

    def __init__(self, samples: Dataset[Any], labels: LabelList):
        self.samples, self.y = samples, class_codes(labels)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row: int) -> Any:
        """The sample (x, y)."""
        item = self.samples[row]
        return item[0] if isinstance(item, (tuple, list)) else item, self.y[row]


class ShuffledBatches(EpochSampler):
    """All samples in random order, in batches of equal size; what does not fill one waits for another epoch.

    Parameters
    ----------
    n : int
        Number of samples.
    batch_size : int
        Samples of a batch, of all processes together.
    random_state : int, default=0
        Seed of the draws.

    Notes
    -----
    What a `Trainer` uses where there are no labels. An epoch costs O(n) to shuffle.

    Examples
    --------
    >>> from isometry.deep import ShuffledBatches
    >>> [len(batch) for batch in ShuffledBatches(10, batch_size=4)]
    [4, 4]
    """

    def __init__(self, n: int, batch_size: int, *, random_state: int = 0):
        super().__init__(random_state, None, None)
        self.n, self.batch_size = positive("n", n), min(positive("batch_size", batch_size), n)

    def __len__(self) -> int:
        return self.n // self.batch_size

    def items(self, start: int) -> Iterator[list[int]]:
        rank, world = self.rank_and_size
        order = self.order(np.random.default_rng([self.random_state, self.epoch]))
        for b in range(start, len(self)):
            yield np.array_split(order[b * self.batch_size : (b + 1) * self.batch_size], world)[rank].tolist()

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of an epoch, one batch after another.

        Parameters
        ----------
        rng : np.random.Generator
            Source of random numbers.
        """
        return rng.permutation(self.n)


class BucketedBatches(ShuffledBatches):
    """All samples in random order, such that those of a batch are of similar length: texts need little padding then.

    Shuffled samples are taken ``bucket`` batches at a time and sorted by length; the batches are shuffled again.

    Parameters
    ----------
    lengths : sequence (n,)
        Length of each sample.
    batch_size : int
        Samples of a batch, of all processes together.
    bucket : int, default=50
        Batches that are sorted together.
    random_state : int, default=0
        Seed of the draws.

    Notes
    -----
    For texts of unequal length without labels. With few, long buckets batches are less random. An epoch costs
    O(n log n).

    Examples
    --------
    >>> from isometry.deep import BucketedBatches
    >>> lengths = [1, 9, 1, 9, 1, 9]
    >>> [len({lengths[i] for i in batch}) for batch in BucketedBatches(lengths, batch_size=3)]
    [1, 1]
    """

    def __init__(self, lengths: Any, batch_size: int, bucket: int = 50, *, random_state: int = 0):
        self.lengths, self.bucket = np.asarray(lengths), positive("bucket", bucket)
        super().__init__(len(self.lengths), batch_size, random_state=random_state)

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """The rows of an epoch, one batch after another.

        Parameters
        ----------
        rng : np.random.Generator
            Source of random numbers.
        """
        rows, size = super().order(rng)[: len(self) * self.batch_size], self.batch_size
        parts = np.split(rows, range(self.bucket * size, len(rows), self.bucket * size))
        parts = [part[np.argsort(self.lengths[part], kind="stable")] for part in parts]
        batches = np.concatenate(parts).reshape(-1, size)
        return batches[rng.permutation(len(batches))].ravel()


class DistinctBatches(BucketedBatches):
    """Batches of columns of texts in which no text comes twice, of similar length; else as `BucketedBatches`.

    There are as many batches as there would be otherwise. Where texts repeat so often that batches cannot be filled,
    the smallest ones wait for another epoch. One that is left with nothing to compare, in some process, borrows rows of
    other batches of the epoch, which then come twice, and if none go with it, another batch takes its place.

    Parameters
    ----------
    codes : array (n, c)
        A number for each text, the same for the same text in any column.
    lengths : sequence (n,)
        Length of each sample.
    batch_size : int
        Samples of a batch, of all processes together.
    bucket : int
        Batches that are sorted together; 0: none are.
    random_state : int, default=0
        Seed of the draws.
    """

    def __init__(self, codes: np.ndarray, lengths: Any, batch_size: int, bucket: int, *, random_state: int = 0):
        super().__init__(
            lengths if bucket else np.zeros(len(codes)), batch_size, max(bucket, 1), random_state=random_state
        )
        self.codes = codes
        self._planned: tuple[int, list[list[int]]] | None = None

    @property
    def batches(self) -> list[list[int]]:
        """The batches of the present epoch."""
        if self._planned is None or self._planned[0] != self.epoch:
            plan = self._plan(self.epoch)
            enough = cycle([batch for batch in plan if len(batch) >= self.least] or [self.largest])
            self._planned = self.epoch, [batch if len(batch) >= self.least else next(enough) for batch in plan]
        return self._planned[1]

    @property
    def least(self) -> int:
        """Rows of a batch that holds something to compare, for every process."""
        return max(2, self.rank_and_size[1])

    @cached_property
    def largest(self) -> list[int]:
        """The largest batch of the first epoch."""
        return max(self._plan(0), key=len)

    @property
    def fills(self) -> bool:
        """Whether all batches, of every epoch, hold something to compare, for every process."""
        return len(self.largest) >= self.least

    def _plan(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, of which some may still be too small."""
        rng = np.random.default_rng([self.random_state, epoch])
        order = rng.permutation(self.n)
        step = self.bucket * self.batch_size
        parts = [
            part[np.argsort(self.lengths[part], kind="stable")] for part in np.split(order, range(step, self.n, step))
        ]
        found = apart(self.codes, np.concatenate(parts), self.batch_size)
        full = sorted(range(len(found)), key=lambda k: -len(found[k]))[: len(self)]
        others = cycle(order.tolist())
        return [self._filled(found[k], others) for k in rng.permutation(full)]

    def _filled(self, batch: list[int], others: Iterator[int]) -> list[int]:
        """The batch, or if it is too small the batch with those of the next other rows that go with it."""
        if len(batch) >= self.least:
            return batch
        batch, used = list(batch), set(self.codes[batch].ravel().tolist())
        for row in islice(others, min(self.n, LOOKED_THROUGH * self.batch_size)):
            if len(batch) == self.batch_size:
                break
            keys = self.codes[row].tolist()
            if used.isdisjoint(keys):
                batch.append(row)
                used.update(keys)
        return batch

    def items(self, start: int) -> Iterator[list[int]]:
        rank, world = self.rank_and_size
        for batch in self.batches[start:]:
            yield np.array_split(batch, world)[rank].tolist()


def text_codes(data: Any) -> np.ndarray | None:
    """Codes (n, c) of the texts of a table whose rows are negatives of one another, if some come in several rows."""
    texts = getattr(data, "texts", [])
    if len(texts) < 2 or len(data.inputs) < len(data.columns):  # labels or scores: no row is a negative of others
        return None
    number: dict[str, int] = {}
    codes = np.array([[number.setdefault(text, len(number)) for text in data.columns[name]] for name in texts]).T
    rows = np.sort(codes, 1)
    distinct = 1 + (np.diff(rows, axis=1) != 0).sum(1)  # of each row
    return codes if distinct.sum() > len(number) else None


class BucketedClasses(PKBatchSampler):
    """Batches of P classes with K samples each, such that samples of a batch are of similar length.

    Which classes a batch has is what `PKBatchSampler` plans. Of ``bucket`` batches together, each class deals its
    samples out by length: its shortest to the batch that shall be shortest, and so on, in a random order of the
    batches. A class still gives K different samples at a time, and the same ones in all.

    Parameters
    ----------
    labels : sequence (n,)
        One label a sample, of any type.
    lengths : sequence (n,)
        Length of each sample.
    classes_per_batch : int, default=8
        Classes of a batch, P.
    samples_per_class : int, default=8
        Samples of each class in a batch, K.
    bucket : int, default=50
        Batches that are dealt out together.
    n_batches : int, default=None
        Batches in an epoch; None: as many as it takes for all samples.
    random_state : int, default=0
        Seed; the same in all processes.

    Examples
    --------
    >>> from isometry.deep import BucketedClasses
    >>> lengths = [1, 2, 3, 4, 10, 20, 30, 40]
    >>> batches = list(BucketedClasses([0, 0, 1, 1, 0, 0, 1, 1], lengths, 2, 2))
    >>> sorted(max(lengths[row] for row in rows) for rows in batches)
    [4, 40]
    """

    def __init__(
        self,
        labels: LabelList,
        lengths: Any,
        classes_per_batch: int = 8,
        samples_per_class: int = 8,
        bucket: int = 50,
        *,
        n_batches: int | None = None,
        random_state: int = 0,
    ):
        super().__init__(labels, classes_per_batch, samples_per_class, n_batches=n_batches, random_state=random_state)
        self.lengths, self.bucket = np.asarray(lengths), positive("bucket", bucket)
        n = len(as_array(labels))
        if self.lengths.shape != (n,):
            raise ValueError(f"{n} samples need as many lengths, got shape {self.lengths.shape}")

    def items(self, start: int) -> Iterator[list[int]]:
        for first in range(start // self.bucket * self.bucket, len(self), self.bucket):
            batches = self._dealt(first, min(self.bucket, len(self) - first))
            yield from batches[max(start - first, 0) :]

    def _dealt(self, first: int, count: int) -> list[list[int]]:
        """The rows of ``count`` batches of this epoch from batch ``first`` on."""
        offset = self.epoch * len(self) + first
        plan = [
            [(c, self._samples(c, turn, often), often) for c, turn, often in self._chosen(offset + b)]
            for b in range(count)
        ]
        rng = np.random.default_rng([self.random_state, self.epoch, first])  # the same in all processes
        visits: dict[int, list[tuple[int, int]]] = {}  # class → where it comes, from the shortest batch on
        for b in rng.permutation(count).tolist():
            for k, (c, _, often) in enumerate(plan[b]):
                if often == 1:  # else processes share the class in a step, and its samples are divided already
                    visits.setdefault(c, []).append((b, k))
        rows = [[part for _, part, _ in batch] for batch in plan]
        for places in visits.values():
            planned = [rows[b][k] for b, k in places]
            for (b, k), dealt in zip(places, by_length(planned, self.lengths)):
                rows[b][k] = dealt
        return [np.concatenate(batch).tolist() for batch in rows]


def by_length(parts: list[np.ndarray], lengths: np.ndarray) -> list[np.ndarray]:
    """Parts of K different rows each, dealt out anew from the shortest to the longest; still K different rows each."""
    rows, count = np.unique(np.concatenate(parts), return_counts=True)
    if len(parts) < 2 or any(len(set(part.tolist())) < len(part) for part in parts):
        return parts
    order = np.argsort(lengths[rows], kind="stable")
    rows, count, dealt = rows[order], count[order], []
    for left in range(len(parts), 0, -1):
        must = np.flatnonzero(count == left)  # rows that all parts that are left need
        free = np.flatnonzero((count > 0) & (count < left))[: len(parts[0]) - len(must)]
        taken = np.sort(np.concatenate([must, free]))
        count[taken] -= 1
        dealt.append(rows[taken])
    return dealt


def class_balanced(
    labels: LabelList,
    classes_per_batch: int,
    samples_per_class: int,
    n_batches: int | None,
    random_state: int,
    lengths: Any = None,
    bucket: int = 0,
) -> PKBatchSampler:
    """P × K batches, all processes together; with fewer classes than P all of them, and K raised to keep the size.

    Given the lengths of samples, those of a batch are of similar length, ``bucket`` batches at a time.
    """
    world = rank_and_size()[1]
    P, K, members = classes_per_batch, samples_per_class, class_members(labels)
    if P % world:
        raise ValueError(f"classes_per_batch={P} classes cannot be cut for {world} processes: choose a multiple")
    if len(members) < P // world:
        K = max(K, min(P // world * K // len(members), max(map(len, members))))
        P = len(members) * world
    n = len(as_array(labels))
    if max(LARGEST_REPEAT * n, SMALL_BATCH) < P * K:
        raise ValueError(
            f"batches of {P} classes with {K} samples each are {P * K} samples, but there are only {n}: lower "
            "classes_per_batch or samples_per_class"
        )
    if lengths is None or not bucket:
        return PKBatchSampler(labels, P // world, K, n_batches=n_batches, random_state=random_state)
    return BucketedClasses(labels, lengths, P // world, K, bucket, n_batches=n_batches, random_state=random_state)


class Probe(NamedTuple):
    """Samples that are looked at after each epoch, and their labels if they are held out."""

    samples: Dataset[Any]
    labels: np.ndarray | None


def training_data(
    samples: Any,
    labels: LabelList | None,
    validation: float | tuple[Any, LabelList] | None,
    protocol: str,
    batches: Batches,
    as_data: Callable[[Any, LabelList | None], Dataset[Any]],
    random_state: int,
) -> tuple[DataLoader[Any], Probe | None]:
    """A loader of class-balanced batches, or of shuffled ones without labels, and what to look at after an epoch."""
    if labels is None:
        labels = getattr(samples, "labels", None)  # of images in folders, and of tables of columns
    if isinstance(validation, (int, float)) and (labels is None or isinstance(samples, DataLoader)):
        raise ValueError("a share can be held out of labelled samples only; give validation=(samples, labels)")
    probe = None
    if isinstance(validation, tuple):
        probe = Probe(as_data(validation[0], None), np.asarray(validation[1]))
    if isinstance(samples, DataLoader):
        return samples, probe
    if labels is not None and len(as_array(labels)) != len(samples):
        raise ValueError(f"{len(samples)} samples need as many labels, got {len(as_array(labels))}")
    if isinstance(validation, (int, float)) and labels is not None:
        labels = as_array(labels)
        kept, held = hold_out(labels, validation, protocol, random_state)
        probe = Probe(as_data(take(samples, held), None), labels[held])
        samples, labels = take(samples, kept), labels[kept]
    elif validation is None and labels is not None and getattr(samples, "splits", None) is not None:
        labels, held = as_array(labels), samples.splits == "val"
        if held.any():
            probe = Probe(as_data(take(samples, np.flatnonzero(held)), None), labels[held])
            samples, labels = take(samples, np.flatnonzero(~held)), labels[~held]
    data: Any = as_data(samples, labels)
    lengths = getattr(data, "lengths", None)
    if labels is None:
        size = batches.classes_per_batch * batches.samples_per_class
        codes = text_codes(data) if batches.no_duplicates else None
        distinct = (
            None if codes is None else DistinctBatches(codes, lengths, size, batches.bucket, random_state=random_state)
        )
        if distinct is not None and not distinct.fills:
            warnings.warn(
                f"no_duplicates cannot be kept: texts repeat so often that not even {distinct.least} rows of a batch "
                f"of {distinct.batch_size} are free of them; batches are filled regardless. Leave repeated texts out, "
                "or set no_duplicates=False if they shall stay",
                stacklevel=2,
            )
        if distinct is not None and distinct.fills:
            plan: ShuffledBatches = distinct
        elif lengths is None or not batches.bucket:
            plan = ShuffledBatches(len(data), size, random_state=random_state)
        else:
            plan = BucketedBatches(lengths, size, batches.bucket, random_state=random_state)
        return make_loader(data, plan, batches.workers), probe
    P, K, n_batches = batches.classes_per_batch, batches.samples_per_class, batches.batches_per_epoch
    plan_of_classes = class_balanced(labels, P, K, n_batches, random_state, lengths, batches.bucket)
    loader = make_loader(data, plan_of_classes, batches.workers)
    if probe is None:
        rows = np.random.default_rng(random_state).permutation(len(data))[:PROBE_SIZE]
        probe = Probe(as_data(take(samples, rows), None), None)
    return loader, probe


def as_dataset(
    samples: Any, labels: LabelList | None, dtype: torch.dtype, *, keep_integers: bool = False
) -> Dataset[Any]:
    """A data set as it is, with labels if these were given and its items have none; an array as a table.

    Whole numbers become ``dtype`` too, unless the network looks them up in a table: ``keep_integers``.
    """
    if not isinstance(samples, Dataset):
        x = as_tensor(samples)
        return TableDataset(x if keep_integers else x.to(dtype), labels, dtype)
    if labels is None or not len(samples):  # type: ignore[arg-type]
        return samples
    first = samples[0]
    bare = len(first) == 1 if isinstance(first, (tuple, list)) else isinstance(first, (Tensor, np.ndarray, int, float))
    return LabelledDataset(samples, labels) if bare else samples


def as_tensor(samples: Any) -> Tensor:
    """Samples as a tensor of real numbers, or an error that says what they are."""
    try:
        x = samples if isinstance(samples, Tensor) else torch.as_tensor(np.ascontiguousarray(samples))
    except (TypeError, ValueError) as error:
        raise ValueError(f"samples must be an array of numbers (n, …), all of one shape: {error}") from error
    if x.is_complex():
        raise ValueError(f"samples must be real numbers, got {x.dtype}: give real and imaginary part as two features")
    return x


def class_codes(labels: LabelList) -> Tensor:
    """Labels of any type as 0 … C − 1."""
    return torch.as_tensor(np.unique(as_array(labels), return_inverse=True)[1])


def make_loader(data: Dataset[Any], sampler: EpochSampler, workers: int = 0) -> DataLoader[Any]:
    """A loader of the sampler's batches whose own random numbers leave torch's generator alone."""
    generator = torch.Generator()
    if isinstance(data, TableDataset):
        return DataLoader(data, batch_size=None, sampler=sampler, num_workers=workers, generator=generator)
    collate = getattr(data, "collate", None)
    return DataLoader(data, batch_sampler=sampler, num_workers=workers, generator=generator, collate_fn=collate)


def batches_of(loader: DataLoader[Any]) -> Iterable[Any]:
    """The batches of a loader; those of a table in this process are read without its machinery, which takes time."""
    table, sampler = loader.dataset, loader.sampler
    plain = type(loader) is DataLoader and loader.num_workers == 0 and loader.batch_size is None
    if plain and isinstance(table, TableDataset) and isinstance(sampler, EpochSampler):
        return (table[rows] for rows in sampler)
    return loader


def plan_of(loader: DataLoader[Any]) -> tuple[EpochSampler | None, int]:
    """The sampler that can enter an epoch in the middle, if the loader has one, and its items in a batch."""
    for sampler, items in ((loader.batch_sampler, 1), (loader.sampler, loader.batch_size or 1)):
        if isinstance(sampler, EpochSampler):
            return sampler, items
    return None, 1


def hold_out(labels: LabelList, share: float, protocol: str, random_state: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to learn from and rows to validate on.

    ``"open"`` holds out whole classes, ``"closed"`` a share of each class. Held-out samples look for one another, so
    each class held out has two of them or more.
    """
    one_of("protocol", protocol, ("open", "closed"))
    if not 0 < share < 1:
        raise ValueError(f"validation={share} is the share held out: choose it between 0 and 1, e.g. 0.2")
    rng, members = np.random.default_rng(random_state), class_members(labels, overlap=False)
    if protocol == "open":
        usable = rng.permutation([c for c, rows in enumerate(members) if len(rows) > 1])
        held = set(usable[: max(2, round(share * len(members)))].tolist())
        parts = [rows for c, rows in enumerate(members) if c in held]
        if len(parts) < 2 or len(members) - len(parts) < 2:
            raise ValueError(
                f"{len(members)} classes cannot be split into 2 or more to learn from and 2 or more to validate on, "
                "with at least 2 samples each; use protocol='closed' (--protocol closed), or give validation="
                "(samples, labels)"
            )
    else:
        sizes = [max(2, round(share * len(rows))) for rows in members]
        parts = [rng.choice(rows, size, replace=False) for rows, size in zip(members, sizes) if len(rows) - size > 1]
        if len(parts) < 2:
            raise ValueError(
                "too few samples to hold some out: 2 classes must have 4 samples or more; train without validation"
            )
    held_rows = np.sort(np.concatenate(parts))
    return np.setdiff1d(np.arange(sum(map(len, members))), held_rows), held_rows


def take(samples: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, or of a data set."""
    if hasattr(samples, "subset"):
        return samples.subset(rows)
    if isinstance(samples, list) and samples and isinstance(samples[0], str):
        return [samples[k] for k in rows]
    if isinstance(samples, Dataset):
        return Subset(samples, rows.tolist())
    return samples[rows] if isinstance(samples, Tensor) else np.asarray(samples)[rows]
