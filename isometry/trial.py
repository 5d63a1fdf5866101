"""Trials on what was held out: whether a metric helps rows, pairs or comparisons that it was not learned from.

A trial splits the samples the same way in whatever order they come, and gives one value for each item held out, so that
two metrics can be compared item by item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from isometry.core.distance import pair_sqdist, sqdist
from isometry.eval.retrieval_scores import map_at_r
from isometry.eval.verification import auc_and_residuals
from isometry.supervision import Pairs, Quadruplets, Supervision, Triplets

NEIGHBORS = 3  # of whose nearest neighbours the share of the own class is the value of a row
FOLDS = 5
OPEN_FOLDS = 3  # where whole classes are held out
MIN_OPEN_CLASSES = 20  # with so many classes, new ones are what a metric will mostly meet: whole classes are held out
MAX_WHOLE = 2_000  # rows up to which every row is held out once
MAX_HELD = 1_000  # rows held out of larger tables, which are split once
MAX_OPEN = 600  # rows of new classes, which are looked for among one another
MAX_GALLERY = 2_000  # rows among which their neighbours are looked for
MAX_LEARNED = 20_000  # rows that a metric on trial is learned from

Embed = Callable[[np.ndarray], np.ndarray]  # rows → their images


class Split(NamedTuple):
    """Rows to learn from, rows held out, and those among which the neighbours of the latter are looked for."""

    learn: np.ndarray
    held: np.ndarray
    gallery: np.ndarray


class Trial(Protocol):
    """What a metric is tried on. Distances of two metrics can be mixed before they are valued."""

    @property
    def splits(self) -> list[Split]: ...

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        """Squared distances that matter in this split, under a map of its rows."""
        ...

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        """(m,) one value for each item held out, the higher the better; their mean is the score."""
        ...


@dataclass(frozen=True)
class NeighborTrial:
    """The share of its own class among the three nearest neighbours of a row, looked for among known rows.

    With ``open``, rows held out are of classes that the metric has not met, and look for one another: a value is the
    mean of MAP@R over the rows of a class, since classes are what was drawn.
    """

    codes: np.ndarray  # (n,) −1: of no class
    splits: list[Split]
    open: bool = False

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        gallery = embed(split.gallery)
        centre = gallery.mean(axis=0)  # distances from a product in single precision lose digits far from 0
        queries = gallery if self.open else embed(split.held)
        D = sqdist((queries - centre).astype(np.float32), (gallery - centre).astype(np.float32))
        if self.open:
            np.fill_diagonal(D, np.inf)
        return D

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        return self._of_classes(D, split) if self.open else self._of_rows(D, split)

    def _of_rows(self, D: np.ndarray, split: Split) -> np.ndarray:
        rows, D = np.arange(len(D)), D.copy()
        hits = np.zeros(len(D))
        for _ in range(k := min(NEIGHBORS, D.shape[1])):  # a few minima are found sooner than a partition
            nearest = D.argmin(axis=1)
            hits += self.codes[split.gallery[nearest]] == self.codes[split.held]
            D[rows, nearest] = np.inf
        return hits / k

    def _of_classes(self, D: np.ndarray, split: Split) -> np.ndarray:
        own = np.unique(self.codes[split.held], return_inverse=True)[1]  # (m,)
        size = np.bincount(own)
        R = size[own] - 1  # (m,) others of its class
        nearest = np.argpartition(D, R.max() - 1, axis=1)[:, : R.max()]
        nearest = np.take_along_axis(nearest, np.take_along_axis(D, nearest, axis=1).argsort(axis=1), axis=1)
        found = map_at_r(own[nearest] == own[:, None], R)  # (m,)
        return (np.bincount(own, weights=found) / size)[size > 1]  # (classes,)


@dataclass(frozen=True)
class PairTrial:
    """Whether similar pairs are nearer than dissimilar ones: the area under the ROC curve, as a mean over pairs."""

    side: Pairs
    splits: list[Split]

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        pairs: Any = self.side[split.held]
        return pair_sqdist(embed(split.held), pairs.i, pairs.j)

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        pairs: Any = self.side[split.held]
        area, residuals = auc_and_residuals(D, pairs.weight * np.stack([pairs.similarity, 1 - pairs.similarity]))
        return area + len(D) * residuals


@dataclass(frozen=True)
class ComparisonTrial:
    """The share of comparisons that hold: of a triplet (a, p, n), whether p is nearer to a than n is."""

    side: Triplets | Quadruplets
    splits: list[Split]

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        held = self.side[split.held]
        Z = embed(split.held)
        return np.stack([pair_sqdist(Z, e.i, e.j) for e in (held.similar, held.dissimilar)])  # (2, m)

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        near, far = D
        return np.where(near == far, 0.5, near < far)


def trial_of(
    X: np.ndarray,
    side: Supervision | None,
    *,
    protocol: str = "auto",
    folds: int = FOLDS,
    key: np.ndarray | None = None,
) -> Trial | None:
    """A trial for this kind of supervision, of so many folds; None if too little of it can be held out.

    ``protocol`` says for classes whether held-out rows are of known classes ("closed") or of classes that were held out
    whole ("open"); "auto" is the latter from 20 classes on. ``key`` is `distance_from_mean`, if it is known already.
    """
    key = distance_from_mean(X) if key is None else key
    if isinstance(side, Pairs):
        splits = _graph_splits(side, key, folds)
        return PairTrial(side, splits) if splits else None
    if isinstance(side, Triplets | Quadruplets):
        splits = _graph_splits(side, key, folds)
        return ComparisonTrial(side, splits) if splits else None
    codes = getattr(side, "codes", None)
    if codes is None:
        return None
    counts = np.bincount(codes[codes >= 0]) if np.any(codes >= 0) else np.zeros(0, dtype=np.intp)
    if np.sum(counts >= 1) < 2 or counts.max(initial=0) < 2:
        return None
    if protocol == "open" or (protocol == "auto" and np.sum(counts >= 2) >= MIN_OPEN_CLASSES):
        splits = _class_splits(codes, counts, key, folds)
        if splits:
            return NeighborTrial(codes, splits, open=True)
    return NeighborTrial(codes, _row_splits(codes, counts, key, folds))


def scarcity(trial: Trial, folds: int) -> str:
    """What a trial had to do without, in words: it holds out one row at a time, or is of fewer folds than asked for."""
    whole = len(trial.splits) > 1 and not getattr(trial, "open", False)  # else there are as many as usual
    if whole and all(len(split.held) == 1 for split in trial.splits):
        return "with so few rows, one was held out at a time"
    return f"tried in {len(trial.splits)} folds, more would be too small" if whole and len(trial.splits) < folds else ""


def distance_from_mean(X: np.ndarray) -> np.ndarray:
    """(n,) a number of each row that does not change when rows are reordered or features rotated."""
    Z = X - X.mean(axis=0, dtype=np.float64)
    return np.asarray(np.einsum("ij,ij->i", Z, Z))


def _in_order(codes: np.ndarray, counts: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Rows that have a class, class by class, each from its midst outwards; classes in an order free of their names."""
    rows = np.flatnonzero(codes >= 0)
    of_class = np.bincount(codes[rows], weights=key[rows], minlength=len(counts)) / np.maximum(counts, 1)
    return rows[np.lexsort((key[rows], of_class[codes[rows]]))]


def thin(rows: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the rows, evenly spread."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).round().astype(np.intp)]


def _row_splits(codes: np.ndarray, counts: np.ndarray, key: np.ndarray, folds: int) -> list[Split]:
    """Rows dealt to folds in turn; of many rows, one split."""
    order = _in_order(codes, counts, key)
    n = len(order)
    if n <= MAX_WHOLE and folds > 1:
        folds = min(folds, n)
        parts = [(np.delete(order, np.s_[f::folds]), order[f::folds]) for f in range(folds)]
        return [Split(learn, held, learn) for learn, held in parts]
    step = max(3, -(-n // MAX_HELD))
    learn = np.delete(order, np.s_[::step])
    return [Split(thin(learn, MAX_LEARNED), order[::step], thin(learn, MAX_GALLERY))]


def _class_splits(codes: np.ndarray, counts: np.ndarray, key: np.ndarray, folds: int) -> list[Split]:
    """Classes dealt to three folds in turn; of many rows, one split. None if the folds would hold too few classes."""
    order = _in_order(codes, counts, key)
    first = np.unique(codes[order], return_index=True)
    classes = first[0][np.argsort(first[1])]  # in the order of their rows
    if len(classes) < 2 * OPEN_FOLDS:
        return []
    fold = np.empty(len(counts), dtype=np.intp)
    fold[classes] = np.arange(len(classes)) % OPEN_FOLDS
    splits = []
    for f in range(OPEN_FOLDS if len(order) <= MAX_WHOLE and folds > 1 else 1):
        learn, held = order[fold[codes[order]] != f], thin(order[fold[codes[order]] == f], MAX_OPEN)
        if np.unique(codes[held], return_counts=True)[1].max(initial=0) < 2:
            return []
        splits.append(Split(thin(learn, MAX_LEARNED), held, held))
    return splits


def _graph_splits(side: Any, key: np.ndarray, most: int) -> list[Split]:
    """Groups of rows that the supervision joins, or single rows if it joins most of them, dealt to folds in turn.

    As many folds as leave something to compare in every one; none if two do not.
    """
    components = side.components()
    size = np.bincount(components)[components]
    joined = size > 1
    whole = size.max(initial=0) > 0.5 * joined.sum()  # one graph: what joins two folds is left out
    group = np.arange(len(key)) if whole else components
    first = np.full(int(group.max(initial=0)) + 1, np.inf)
    np.minimum.at(first, group, key)
    rank = np.argsort(np.argsort(first, kind="stable"), kind="stable")[group]
    order = np.argsort(rank, kind="stable")
    dealt = np.cumsum(np.append(0, np.diff(rank[order]) != 0)) if len(order) else order
    for folds in range(max(most, 2), 1, -1):
        fold = np.empty(len(key), dtype=np.intp)
        fold[order] = dealt % folds
        rows = [(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in range(folds)]
        if all(_has_both(side[learn]) and _has_both(side[held]) for learn, held in rows):
            return [Split(learn, held, held) for learn, held in rows]
    return []


def _has_both(side: Any) -> bool:
    return len(side.similar.i) > 0 and len(side.dissimilar.i) > 0
