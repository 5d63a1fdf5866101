"""Tables of many rows in parts: an objective that compares all rows becomes a mean over parts, linear in the rows.

Each row is compared with those of its own part alone. The mean is an objective like any other: it is evaluated as a
whole, so that L-BFGS minimises it without a step length to choose, and as a sum over parts it can be spread over
threads, processes or machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np

from isometry.core.objective import Penalty
from isometry.core.order import row_order

MOST_WORK = 8e10  # up to here "auto" compares all rows with one another; see `work`
PART_ROWS = 5_000  # of a part, about
MIN_MEMBERS = 10  # of a class in a part, if the class has as many


class Objective(Protocol):
    """A function of maps L (p, d)."""

    def __call__(self, L: np.ndarray, /) -> tuple[float, np.ndarray]: ...

    def metric_gradient(self, L: np.ndarray, /) -> np.ndarray: ...


class Parts(Protocol):
    """Some objects, in memory or elsewhere, of which only sums are asked for."""

    def total(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
        """Σ over the parts of ``function(part, *arguments)``, a tuple of numbers and arrays, in a fixed order."""
        ...


@dataclass(frozen=True)
class HeldParts:
    """Parts in the memory of this process."""

    items: Sequence[Any]

    def total(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
        return reduce(add_up, (function(part, *arguments) for part in self.items))


def add_up(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sums of the numbers and arrays of two parts."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


class Source(Protocol):
    """Rows that are elsewhere: what a search would make of the rows in memory it makes where they are."""

    def parts(self, make: Callable[[np.ndarray, Any], Any]) -> Parts:
        """(share, ``make(X, side)``) of each chunk of rows or pairs."""
        ...


_source: ContextVar[Source | None] = ContextVar("isometry_rows_elsewhere", default=None)


@contextmanager
def rows_elsewhere(source: Source | None) -> Iterator[None]:
    """Objectives made inside are of the rows of ``source``, if there is one; those in memory are a sample of them."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)


def current_source() -> Source | None:
    return _source.get()


@dataclass(frozen=True)
class MeanObjective:
    """The mean of objectives of the same map, plus a penalty."""

    parts: Parts  # of (share, objective)
    penalty: Penalty | None = None

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = self.parts.total(_share_of_value, L)
        if self.penalty is not None:
            f, g = self.penalty(L)
            value, gradient = value + f, gradient + g
        return float(value), gradient

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        """∂f/∂W (d, d) at W = LᵀL, without the penalty."""
        return np.asarray(self.parts.total(_share_of_metric_gradient, L)[0])


def _share_of_value(part: tuple[float, Objective], L: np.ndarray) -> tuple[float, np.ndarray]:
    share, objective = part
    value, gradient = objective(L)
    return share * value, share * gradient


def _share_of_metric_gradient(part: tuple[float, Objective], L: np.ndarray) -> tuple[np.ndarray]:
    share, objective = part
    return (share * objective.metric_gradient(L),)


def mean_over_parts(
    make: Callable[[np.ndarray, Any], Any], X: np.ndarray, side: Any, parts: Sequence[np.ndarray] | None = None
) -> Any:
    """The objective that ``make(X, side)`` gives; of several parts, the mean of theirs, weighted by their rows.

    Where the rows are elsewhere, it is the mean of the chunks there.
    """
    if parts is None and current_source() is None:
        return make(X, side)
    return MeanObjective(shared_parts(make, X, side, parts))


def shared_parts(
    make: Callable[[np.ndarray, Any], Any], X: np.ndarray, side: Any, parts: Sequence[np.ndarray] | None
) -> Parts:
    """(share of the rows, ``make(X, side)``) of each part, or of each chunk of rows that are elsewhere."""
    if (source := current_source()) is not None:
        return source.parts(make)
    assert parts is not None
    return HeldParts([(len(rows) / len(X), make(X[rows], side[rows])) for rows in parts])


def parts_of(
    X: np.ndarray, codes: np.ndarray, batch_size: int | str | None, rng: np.random.RandomState
) -> list[np.ndarray] | None:
    """The rows of each part, if ``batch_size`` is "auto" and there are many rows; None: all are compared."""
    if batch_size != "auto" or work(*X.shape) <= MOST_WORK or len(X) < 2 * PART_ROWS or current_source() is not None:
        return None
    return deal(X, codes, PART_ROWS, rng)


def work(n: int, d: int) -> float:
    """What it takes to compare n rows of d features with one another: what is done with a distance costs as much as 80.

    The limit is reached by 28,000 rows of 20 features, 20,000 of 120, 13,000 of 384 and 9,700 of 768.
    """
    return float(n) ** 2 * (d + 80)


def deal(X: np.ndarray, codes: np.ndarray, size: int, rng: np.random.RandomState) -> list[np.ndarray]:
    """Rows dealt at random to parts of about ``size``, every class evenly to all of them.

    A small class goes to fewer parts, where it keeps ten members each. Neither the order of the rows nor the names of
    the classes matter.
    """
    n, n_parts = len(X), -(-len(X) // size)
    order = row_order(X)[rng.permutation(n)]
    _, first, inverse = np.unique(codes[order], return_index=True, return_inverse=True)
    of_class = np.argsort(np.argsort(first))[inverse]  # classes are numbered as they come
    order, of_class = order[by := np.argsort(of_class, kind="stable")], of_class[by]
    counts = np.bincount(of_class)
    rank = np.arange(n) - (np.cumsum(counts) - counts)[of_class]  # of a row in its class
    spread = np.clip(counts // MIN_MEMBERS, 1, n_parts)  # parts that a class is dealt to
    used = np.where(spread < n_parts, spread, counts)  # the next class begins where the last one has ended
    part = ((np.cumsum(used) - used)[of_class] + rank % spread[of_class]) % n_parts
    return [np.sort(order[part == k]) for k in range(n_parts) if np.any(part == k)]


def in_parts(reason: str, parts: Sequence[Any] | None) -> str:
    """Why a search ended, with a word about the parts."""
    if parts is None:
        return reason
    return f"{reason}; with so many rows, each was compared with those of one of {len(parts)} parts"
