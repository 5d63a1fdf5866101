"""Orders in which classes and samples come: shuffled passes, and draws by size. Functions of a seed and a position."""

from __future__ import annotations

import numpy as np


def per_step(wanted: int, n: int, aligned: bool = True) -> int:
    """How often one of n things can come in a step that takes ``wanted`` of a walk in passes; 1 if all can differ.

    ``aligned``: every step takes just as many, so that whole passes coincide with steps if the numbers divide.
    """
    if wanted <= n:
        return 1
    return wanted // n if aligned and wanted % n == 0 else -(-wanted // n) + 1


class SqrtDraws:
    """Steps of ``count`` different classes, each with a chance in proportion to the square root of its size.

    Systematic sampling: the chances, in a random order, laid end to end on a line, and each of the points u, u + 1,
    u + 2, … picks the class it falls on. A class whose chance would exceed 1 comes in every step.
    """

    def __init__(self, sizes: list[int], count: int, seed: list[int]):
        if count > len(sizes):
            raise ValueError(
                f"frequency='sqrt' takes {count} different classes a step, all processes together, and there are "
                f"{len(sizes)}; lower classes_per_batch or use frequency='equal'"
            )
        self.count, self.seed = count, seed
        self.chance = _capped(np.sqrt(sizes), count)  # (C,)
        self._begin()

    def _begin(self) -> None:
        self._next, self._seen = 0, np.zeros(len(self.chance), dtype=int)

    def step(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes of a step and how often each has come before. A step back counts again from the beginning."""
        if number < self._next:
            self._begin()
        while True:
            classes = self._classes(self._next)
            turns = self._seen[classes]
            self._seen[classes] += 1
            self._next += 1
            if self._next > number:
                return classes, turns

    def _classes(self, number: int) -> np.ndarray:
        rng = np.random.default_rng([*self.seed, number])
        order = rng.permutation(len(self.chance))
        line = self.chance[order].cumsum()
        line[-1] = self.count  # rounding must not lose the last point
        return rng.permutation(order[np.searchsorted(line, np.arange(self.count) + rng.random(), side="right")])


def _capped(weight: np.ndarray, count: int) -> np.ndarray:
    """Chances in proportion to the weights that sum to ``count``, none above 1."""
    chance, free = np.zeros(len(weight)), np.ones(len(weight), dtype=bool)
    while free.any():
        chance[free] = weight[free] * (count - (~free).sum()) / weight[free].sum()
        over = free & (chance >= 1)
        if not over.any():
            break
        chance[over], free = 1.0, free & ~over
    return chance


class Walk:
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
