"""Batches of rows that belong to no class: without repeats inside a batch, or from one of several sources at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from isometry.deep.samplers import EpochSampler, as_array, ceil_div, positive
from isometry.parameters import one_of


class NoDuplicates(EpochSampler):
    """Batches in which no key comes twice, for losses that take the other rows of a batch for negatives.

        every row once an epoch;     in a batch no key, of any column, twice

    Pass it as ``batch_sampler``. A row whose key is already in the batch waits for the next one; at the end batches may
    be small. Several processes take the batches in turn; the first ones come twice if their number does not divide.

    Parameters
    ----------
    keys : sequence (n,) or (n, c)
        What must not repeat: a text, a number, for each row and column.
    batch_size : int, default=64
        Rows of a batch.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    For ``Ranking`` and other losses that take the rest of a batch for negatives. It compares keys, not meanings:
    paraphrases pass, for which there is ``GuidedRanking``. An epoch costs O(n c) to plan.

    References
    ----------
    | N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.

    Examples
    --------
    >>> from isometry.deep import NoDuplicates
    >>> keys = ["a", "b", "a", "c", "b", "d"]
    >>> batches = list(NoDuplicates(keys, batch_size=3))
    >>> all(len({keys[i] for i in batch}) == len(batch) for batch in batches), sorted(sum(batches, []))
    (True, [0, 1, 2, 3, 4, 5])
    """

    def __init__(
        self,
        keys: Any,
        batch_size: int = 64,
        *,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.batch_size = positive("batch_size", batch_size)
        table = as_array(keys)
        if table.ndim not in (1, 2) or not len(table):
            raise ValueError(f"keys must be (n,) or (n, c), not empty; got shape {table.shape}")
        codes = np.unique(table.ravel().astype(str) if table.dtype == object else table, return_inverse=True)[1]
        self.codes = codes.reshape(len(table), -1)  # (n, c), the same number for the same key in any column
        common = any((self.codes == code).any(1).all() for code in set(self.codes[0].tolist()))
        if batch_size > 1 and len(table) > 1 and common:
            raise ValueError("all rows have a key in common: every batch would hold a single row; give other keys")
        self._plan: tuple[int, list[list[int]]] | None = None

    @property
    def batches(self) -> list[list[int]]:
        """All batches of the present epoch, of all processes together."""
        if self._plan is None or self._plan[0] != self.epoch:
            order = np.random.default_rng([self.random_state, self.epoch]).permutation(len(self.codes))
            self._plan = self.epoch, apart(self.codes, order, self.batch_size)
        return self._plan[1]

    def __len__(self) -> int:
        return ceil_div(len(self.batches), self.rank_and_size[1])

    def items(self, start: int) -> Iterator[list[int]]:
        rank, world = self.rank_and_size
        batches = self.batches
        for step in range(start, ceil_div(len(batches), world)):
            yield batches[(step * world + rank) % len(batches)]


def apart(codes: np.ndarray, order: np.ndarray, size: int) -> list[list[int]]:
    """Batches of rows, in this order as far as possible, in which no code (n, c) comes twice; O(n).

    A row waits under one key that the batch has already. Of those that wait for a key, one is let go when the batch is
    full, since the next batch can take no more; or when the one let go before has found another key to wait for.
    """
    keys = [tuple(dict.fromkeys(row)) for row in codes.tolist()]
    ready, waiting = deque(order.tolist()), dict[int, deque[int]]()
    came_from: dict[int, int] = {}  # a row that was let go → the key it had waited for
    batches: list[list[int]] = []
    while ready:
        batch: list[int] = []
        used: set[int] = set()
        while ready and len(batch) < size:
            row = ready.popleft()
            taken = next((key for key in keys[row] if key in used), None)
            if taken is None:
                batch.append(row)
                used.update(keys[row])
                came_from.pop(row, None)
                continue
            before = came_from.pop(row, taken)
            waiting.setdefault(taken, deque()).append(row)
            if before != taken and before not in used:
                _let_go(before, waiting, ready, came_from)
        batches.append(batch)
        for key in used:
            _let_go(key, waiting, ready, came_from)
    return batches


def _let_go(key: int, waiting: dict[int, deque[int]], ready: deque[int], came_from: dict[int, int]) -> None:
    """The first row that waits for a key goes to the front of those that are ready."""
    if waiting.get(key):
        row = waiting[key].popleft()
        came_from[row] = key
        ready.appendleft(row)


class MultiSource(EpochSampler):
    """Batches from one of several data sets at a time, joined by ``torch.utils.data.ConcatDataset``.

        each batch from one source;     in proportion to their sizes, or in turn

    Pass it as ``batch_sampler``. In a step all processes have the same source, so that what they gather is of one.

    Parameters
    ----------
    sizes : sequence of int
        How many samples each source has, in the order in which they are joined.
    batch_size : int, default=64
        Samples of a batch, of each process.
    order : {"proportional", "round_robin"}, default="proportional"
        All batches of all sources, shuffled; or one of each source in turn, until the smallest has no more.
    random_state : int, default=0
        Seed of the draws; the same in all processes.
    rank : int or None, default=None
        Number of this process; None: that of ``torch.distributed``, if a group exists, else 0.
    world_size : int or None, default=None
        How many processes share the epoch; None: as many as ``torch.distributed`` has, else 1.

    Notes
    -----
    When negatives of another source would be too easy, as for texts of several kinds. "proportional" lets large sources
    decide; "round_robin" wastes what they have more than the smallest. An epoch costs O(n) to plan.

    References
    ----------
    | N. Reimers, I. Gurevych, "Sentence-BERT: sentence embeddings using Siamese BERT-networks", EMNLP 2019.

    Examples
    --------
    >>> from isometry.deep import MultiSource
    >>> [sorted(batch) for batch in MultiSource([2, 2], batch_size=2, order="round_robin")]
    [[0, 1], [2, 3]]
    """

    def __init__(
        self,
        sizes: Sequence[int],
        batch_size: int = 64,
        order: str = "proportional",
        *,
        random_state: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ):
        super().__init__(random_state, rank, world_size)
        self.sizes = [positive("the size of a source", int(n)) for n in sizes]
        if not self.sizes:
            raise ValueError("sizes must hold one or more sources")
        self.batch_size = positive("batch_size", batch_size)
        self.order = one_of("order", order, ("proportional", "round_robin"))

    @property
    def steps(self) -> list[int]:
        """How many steps each source has in an epoch."""
        count = [ceil_div(n, self.batch_size * self.rank_and_size[1]) for n in self.sizes]
        return count if self.order == "proportional" else [min(count)] * len(count)

    def __len__(self) -> int:
        return sum(self.steps)

    def items(self, start: int) -> Iterator[list[int]]:
        rank, world = self.rank_and_size
        rng = np.random.default_rng([self.random_state, self.epoch])
        first = np.cumsum([0, *self.sizes])
        rows = [first[s] + rng.permutation(n) for s, n in enumerate(self.sizes)]
        steps, width = self.steps, self.batch_size * world
        if self.order == "proportional":
            plan = rng.permutation(np.repeat(np.arange(len(steps)), steps))
        else:
            plan = np.tile(np.arange(len(steps)), min(steps))
        turn = [0] * len(steps)
        for number, s in enumerate(plan.tolist()):
            part = rows[s][turn[s] * width : (turn[s] + 1) * width]
            turn[s] += 1
            if number >= start:
                padded = np.resize(part, ceil_div(len(part), world) * world)  # the first again, where a few are missing
                yield padded[rank::world].tolist()
