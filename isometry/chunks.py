"""Rows and pairs in chunks of a Dask array: objectives are made where the chunks are, and only sums travel."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.utils import check_array

from isometry.core.edges import ListedEdges
from isometry.core.parts import Parts, add_up
from isometry.sampling import SignedEdges
from isometry.supervision import Labels, Pairs, as_supervision

FAN_IN = 8  # sums that one task adds up
SAMPLED_ROWS = 25_000  # brought to this process: they tell where a search starts and how long it goes on
SAMPLED_PAIRS = 20_000
PAIRS_OF_A_CHUNK = 100_000


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, without importing Dask."""
    return hasattr(X, "__dask_graph__") and hasattr(X, "to_delayed") and hasattr(X, "map_blocks")


def mapped(learner: Any, X: Any) -> Any:
    """A Dask array of what ``learner`` makes of each chunk of rows, lazily."""
    if X.shape[1] != learner.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {type(learner).__name__} is expecting {learner.n_features_in_} features"
        )
    X = X.rechunk({1: -1})
    return X.map_blocks(learner._transform, dtype=X.dtype, chunks=(X.chunks[0], (len(learner.components_),)))


@dataclass(frozen=True)
class DaskParts:
    """Parts that stay where the chunks are; a sum over them is a tree of tasks."""

    items: list[Any]  # delayed, and begun already

    def total(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
        delayed = _dask().delayed
        shared = [delayed(argument, pure=False) for argument in arguments]  # one copy for all tasks
        sums = [delayed(function, pure=False)(item, *shared) for item in self.items]
        while len(sums) > 1:
            sums = [delayed(_added_up, pure=False)(sums[k : k + FAN_IN]) for k in range(0, len(sums), FAN_IN)]
        return sums[0].compute()


def _added_up(sums: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    total = sums[0]
    for other in sums[1:]:
        total = add_up(total, other)
    return total


@dataclass(frozen=True)
class LabelledChunks:
    """Chunks of rows with their classes; each is compared within itself."""

    rows: list[Any]  # delayed arrays (m, d)
    codes: list[np.ndarray]
    classes: np.ndarray
    centre: np.ndarray  # subtracted from every row

    def parts(self, make: Callable[[np.ndarray, Any], Any]) -> Parts:
        n, delayed = sum(map(len, self.codes)), _dask().delayed
        made = [
            delayed(_part_of_rows, pure=False)(make, len(codes) / n, X, codes, self.classes, self.centre)
            for X, codes in zip(self.rows, self.codes, strict=True)
            if len(codes)
        ]
        return DaskParts(list(_dask().persist(*made)))


def _part_of_rows(
    make: Callable[..., Any], share: float, X: Any, codes: np.ndarray, classes: np.ndarray, centre: np.ndarray
) -> tuple[float, Any]:
    rows = check_array(X, dtype=(np.float64, np.float32), ensure_min_samples=0)
    return share, make(rows - centre.astype(rows.dtype), Labels.from_codes(codes, classes))


@dataclass(frozen=True)
class PairChunks:
    """A list of pairs in chunks, each with both rows of its pairs, which are gathered once."""

    ends: list[tuple[Any, Any]]  # delayed arrays (m, d) of the first and of the second rows
    signed: list[tuple[np.ndarray, np.ndarray]]  # signs and weights (m,)
    n_similar: float
    n_dissimilar: float
    centre: np.ndarray

    def parts(self, make: Callable[[np.ndarray, Any], Any]) -> Parts:
        delayed, totals = _dask().delayed, (self.n_similar, self.n_dissimilar)
        made = [
            delayed(_part_of_pairs, pure=False)(make, first, second, sign, weight, totals, self.centre)
            for (first, second), (sign, weight) in zip(self.ends, self.signed, strict=True)
        ]
        return DaskParts(list(_dask().persist(*made)))


def _part_of_pairs(
    make: Callable[..., Any],
    first: Any,
    second: Any,
    sign: np.ndarray,
    weight: np.ndarray,
    totals: tuple[float, float],
    centre: np.ndarray,
) -> tuple[float, Any]:
    X = check_array(np.concatenate([first, second]), dtype=(np.float64, np.float32))
    m = len(sign)
    edges = ListedEdges(np.arange(m), np.arange(m, 2 * m), 2 * m)
    return 1.0, make(X - centre.astype(X.dtype), SignedEdges(edges, *totals, sign=sign, weight=weight))


def gathered(
    X: Any, y: Any, name: str, kinds: tuple[type, ...] = (Labels, Pairs)
) -> tuple[np.ndarray, Any, LabelledChunks | PairChunks]:
    """Of a Dask array X and labels or `Pairs`: some rows with what is known of them, and where all of them are.

    ``kinds`` are those of the two that the learner of this ``name`` can use.
    """
    if X.ndim != 2:
        raise ValueError(f"{name} expects a table (n_samples, n_features) as a Dask array, got {X.ndim} dimensions")
    if np.isnan(X.shape[0]):
        raise ValueError("the chunks of X have unknown lengths: call X.compute_chunk_sizes() first")
    if y is None:
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
    X = X.rechunk({1: -1})
    y = y.compute() if is_dask(y) else y
    side: Any = as_supervision(y, len(X))
    if not isinstance(side, kinds):
        words = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} learns from a Dask array with {words}; it cannot use {side.kind} there")
    if isinstance(side, Pairs):
        return _gathered_pairs(X, side)
    assert isinstance(side, Labels)
    if not side.labelled.all():
        raise ValueError("some rows of the Dask array have no label: leave them out first")
    return _gathered_labels(X, side)


def _gathered_labels(X: Any, side: Labels) -> tuple[np.ndarray, Any, LabelledChunks]:
    ends = np.cumsum((0, *X.chunks[0]))
    rng = np.random.RandomState(0)
    some = np.sort(rng.permutation(len(X))[:SAMPLED_ROWS])
    sample = np.asarray(X[some].compute())
    codes = [side.codes[a:b] for a, b in pairwise(ends)]
    rows = list(X.to_delayed().ravel())
    return sample, side[some], LabelledChunks(rows, codes, side.classes, sample.mean(axis=0))


def _gathered_pairs(X: Any, side: Pairs) -> tuple[np.ndarray, Any, PairChunks]:
    S, D = side.similar, side.dissimilar
    sign = np.repeat([1.0, -1.0], [len(S.i), len(D.i)])
    i, j, weight = (np.concatenate(column) for column in zip(S, D, strict=True))
    order = np.lexsort((j, i))  # neighbours in the list have rows of few chunks
    i, j, sign, weight = i[order], j[order], sign[order], weight[order]
    rng = np.random.RandomState(0)
    drawn = rng.permutation(len(i))[:SAMPLED_PAIRS]
    some = np.unique(np.concatenate([i[drawn], j[drawn]]))
    sample = np.asarray(X[some].compute())
    blocks = [slice(a, a + PAIRS_OF_A_CHUNK) for a in range(0, len(i), PAIRS_OF_A_CHUNK)]
    ends = [tuple(X[rows[block]].rechunk(-1).to_delayed().item() for rows in (i, j)) for block in blocks]
    signed = [(sign[block], weight[block]) for block in blocks]
    totals = float(S.weight.sum()), float(D.weight.sum())
    return sample, side[some], PairChunks(ends, signed, *totals, sample.mean(axis=0))


def _dask() -> Any:
    return importlib.import_module("dask")  # typed in part only
