"""Tables of many rows in parts: an objective that compares all rows becomes a mean over parts, linear in the rows.

Each row is compared with those of its own part alone. The mean is an objective like any other: it is evaluated as a
whole, so that L-BFGS minimises it without a step length to choose, and as a sum over parts it can be spread over
threads, processes or machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class MeanObjective:
    """The mean of objectives of the same map, each with a share, plus a penalty; summed up in the order they are in."""

    parts: Sequence[Objective]
    shares: Sequence[float]
    penalty: Penalty | None = None

    def __call__(self, L: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = (0.0, np.zeros(L.shape)) if self.penalty is None else self.penalty(L)
        for share, part in zip(self.shares, self.parts, strict=True):
            f, g = part(L)
            value, gradient = value + share * f, gradient + share * g
        return value, gradient

    def metric_gradient(self, L: np.ndarray) -> np.ndarray:
        """∂f/∂W (d, d) at W = LᵀL, without the penalty."""
        return np.asarray(
            sum(share * part.metric_gradient(L) for share, part in zip(self.shares, self.parts, strict=True))
        )


def mean_over_parts(
    make: Callable[[np.ndarray, Any], Any], X: np.ndarray, side: Any, parts: Sequence[np.ndarray] | None
) -> Any:
    """The objective that ``make(X, side)`` gives; of several parts, the mean of theirs, weighted by their rows."""
    if parts is None:
        return make(X, side)
    made = [make(X[rows], side[rows]) for rows in parts]
    return MeanObjective(made, [len(rows) / len(X) for rows in parts])


def parts_of(
    X: np.ndarray, codes: np.ndarray, batch_size: int | str | None, rng: np.random.RandomState
) -> list[np.ndarray] | None:
    """The rows of each part, if ``batch_size`` is "auto" and there are many rows; None: all are compared."""
    if batch_size != "auto" or work(*X.shape) <= MOST_WORK or len(X) < 2 * PART_ROWS:
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
