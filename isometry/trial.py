"""Trials on what was held out: whether a metric helps rows, pairs or comparisons that it was not learned from.

A trial splits the samples the same way in whatever order they come, and gives one value for each item held out, so that
two metrics can be compared item by item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from isometry.core.distance import pair_sqdist, sqdist
from isometry.eval.retrieval_scores import map_at_r
from isometry.eval.verification import auc_and_residuals
from isometry.supervision import Pairs, Quadruplets, Supervision, Targets, Triplets

__all__ = ["aiming_at"]

NEIGHBORS = 3  # of whose nearest neighbours the share of the own class is the value of a row; fewer tell less
FOLDS = 5
OPEN_FOLDS = 3  # where whole classes are held out
MIN_OPEN_CLASSES = 20  # with so many classes, new ones are what a metric will mostly meet: whole classes are held out
MAX_WHOLE = 2_000  # rows up to which every row is held out once
MAX_HELD = 1_000  # rows held out of larger tables, which are split once
MAX_OPEN = 600  # rows of new classes, which are looked for among one another
MAX_GALLERY = 2_000  # rows among which their neighbours are looked for
MAX_LEARNED = 20_000  # rows that a metric on trial is learned from
FEW = 8  # nearest neighbours up to which minima one by one are quicker than a partition
MAX_PAIRED = 300  # rows with each of which every row held out makes a pair

Embed = Callable[[np.ndarray], np.ndarray]  # rows → their images


@dataclass(frozen=True)
class Aim:
    """What the neighbours of a metric are for: by which score a trial of classes values them."""

    score: Literal["neighbors", "vote", "map@r", "pair_auc"] = "neighbors"
    n_neighbors: int = NEIGHBORS
    protocol: str = "auto"  # "closed", "open", or the latter from 20 classes on

    @classmethod
    def of(cls, scoring: str, n_neighbors: int = NEIGHBORS, protocol: str = "auto") -> Aim:
        """That of a score of `compare` by its name."""
        if scoring in ("map@r", "r_precision"):
            return cls("map@r", protocol=protocol)
        if scoring == "pair_auc":
            return cls("pair_auc", protocol=protocol)
        if k := re.fullmatch(r"(?:recall|precision)@([1-9]\d*)", scoring):
            n_neighbors = int(k[1])
        elif scoring not in ("knn", "knn_r2", "ordering"):
            raise ValueError(
                f"scoring={scoring!r} is unknown: choose 'knn', 'recall@k', 'precision@k', 'r_precision', 'map@r', "
                "'pair_auc', 'ordering' or 'knn_r2'"
            )
        return cls(n_neighbors=max(n_neighbors, NEIGHBORS), protocol=protocol)


_aim: ContextVar[Aim] = ContextVar("isometry_aim", default=Aim())  # noqa: B039 it is frozen


@contextmanager
def aiming_at(
    scoring: str, *, n_neighbors: int = NEIGHBORS, protocol: Literal["auto", "closed", "open"] = "auto"
) -> Iterator[None]:
    """Learners that are fitted inside choose their strength (``reg="auto"``, ``strength="auto"``) by this score.

    Without it they look at the three nearest neighbours, and from 20 classes on at MAP@R of classes held out whole;
    those that search then see to it that known classes lose nothing.
    `compare` and `AutoMetric` aim at their own score; what is written here is for searches of one's own::

        with isometry.aiming_at("map@r", protocol="closed"):
            GridSearchCV(NCA(), {"n_components": [2, 5, None]}, scoring="map@r").fit(X, y)

    Processes that such a search starts do not hear of it: leave its ``n_jobs`` at 1.

    Parameters
    ----------
    scoring : str
        A score of `compare`: "knn", "recall@k", "precision@k", "r_precision", "map@r" or "pair_auc". Pairs are always
        valued by their area under the ROC curve, comparisons by the share that holds, targets by the R² of neighbours.
    n_neighbors : int, default=3
        Number k of neighbours of "knn" and "knn_r2"; fewer than three tell metrics apart worse, so that three are
        looked at.
    protocol : {"auto", "closed", "open"}, default="auto"
        "closed": new samples are of known classes; "open": of classes that were never seen; "auto": the latter from 20
        classes on.

    Returns
    -------
    context manager
        Fits inside its block aim at the score.

    Notes
    -----
    It costs O(1), and the trials of a fit what the score costs on the samples held out.

    Examples
    --------
    >>> import isometry
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> with isometry.aiming_at("map@r", protocol="closed"):
    ...     metric = isometry.RCA().fit(X, y)
    >>> bool(0 <= metric.share_ <= 1)
    True
    """
    before = _aim.set(Aim.of(scoring, n_neighbors, protocol))
    try:
        yield
    finally:
        _aim.reset(before)


def is_told_of_new_classes() -> bool:
    """Whether somebody said that new samples are of classes never seen, instead of saying nothing."""
    return _aim.get().protocol == "open"


class Split(NamedTuple):
    """Rows to learn from, rows held out, and those among which the neighbours of the latter are looked for."""

    learn: np.ndarray
    held: np.ndarray
    gallery: np.ndarray


class Outside(Protocol):
    """Coordinates that were made of the samples themselves, such as those of a kernel: what they are for new rows."""

    def __len__(self) -> int: ...

    def __call__(self, learn: np.ndarray, held: np.ndarray) -> np.ndarray:
        """(m, r) the rows ``held`` in coordinates that know of the rows ``learn`` alone."""
        ...


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
    """What the neighbours of a row held out are worth, looked for among known rows.

    That is the share of its own class among the three nearest, or another score that was aimed at. With ``open``, rows
    held out are of classes that the metric has not met, and look for one another: a value is the mean over the rows of
    a class, since classes are what was drawn, and if nothing else was aimed at, that of MAP@R.
    """

    codes: np.ndarray  # (n,) −1: of no class
    splits: list[Split]
    open: bool = False
    aim: Aim = Aim()

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        gallery = embed(split.gallery)
        D = _sqdist_in_single(gallery if self.open else embed(split.held), gallery)
        if self.open:
            np.fill_diagonal(D, np.inf)
        return D

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        own = self.codes[split.held]
        valued = {"neighbors": self._shares, "vote": self._hits, "map@r": self._precisions, "pair_auc": self._areas}
        found = valued[self.aim.score](D, own, self.codes[split.gallery])
        if not self.open:
            return found
        own = np.unique(own, return_inverse=True)[1]  # (m,)
        size = np.bincount(own)
        return (np.bincount(own, weights=found) / size)[size > 1]  # (classes,)

    def _shares(self, D: np.ndarray, own: np.ndarray, of_gallery: np.ndarray) -> np.ndarray:
        """(m,) the share of the own class among the nearest."""
        nearest = _nearest(D, min(self.aim.n_neighbors, D.shape[1] - self.open))
        return np.asarray((of_gallery[nearest] == own[:, None]).mean(axis=1))

    def _hits(self, D: np.ndarray, own: np.ndarray, of_gallery: np.ndarray) -> np.ndarray:
        """(m,) whether the three nearest name the own class: two of them, or the first of three different ones."""
        first, second, third = of_gallery[_nearest(D, NEIGHBORS)].T
        return np.asarray(np.where(second == third, second, first) == own, dtype=np.float64)

    def _precisions(self, D: np.ndarray, own: np.ndarray, of_gallery: np.ndarray) -> np.ndarray:
        """(m,) MAP@R."""
        size = np.bincount(of_gallery[of_gallery >= 0], minlength=own.max() + 1)
        R = size[own] - self.open  # (m,) others of its class
        depth = max(int(R.max()), 1)
        nearest = np.argpartition(D, depth - 1, axis=1)[:, :depth] if depth < D.shape[1] else np.arange(depth)[None]
        nearest = np.broadcast_to(nearest, (len(D), depth))
        nearest = np.take_along_axis(nearest, np.take_along_axis(D, nearest, axis=1).argsort(axis=1), axis=1)
        return map_at_r(of_gallery[nearest] == own[:, None], R)

    def _areas(self, D: np.ndarray, own: np.ndarray, of_gallery: np.ndarray) -> np.ndarray:
        """(m,) what each row adds to the area under the ROC curve of its pairs with some of the others."""
        some = thin(np.arange(D.shape[1]), MAX_PAIRED)
        D, same = D[:, some], of_gallery[some] == own[:, None]
        known = np.isfinite(D)  # not the pairs of a row with itself
        if not (same & known).any() or not (~same & known).any():
            return np.zeros(len(D))
        area, residuals = auc_and_residuals(D.ravel(), np.stack([same & known, ~same & known]).reshape(2, -1) * 1.0)
        return area + len(D) * residuals.reshape(D.shape).sum(axis=1)


@dataclass(frozen=True)
class TargetTrial:
    """How well the nearest neighbours of a row held out predict its targets: values whose mean is their R²."""

    targets: np.ndarray  # (n, q) in units of their standard deviations
    splits: list[Split]
    n_neighbors: int = NEIGHBORS

    def distances(self, embed: Embed, split: Split) -> np.ndarray:
        return _sqdist_in_single(embed(split.held), embed(split.gallery))

    def values(self, D: np.ndarray, split: Split) -> np.ndarray:
        nearest = split.gallery[_nearest(D, min(self.n_neighbors, D.shape[1]))]  # (m, k)
        residuals = self.targets[split.held] - self.targets[nearest].mean(axis=1)
        return np.asarray(1 - np.mean(residuals**2, axis=1))


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


def _sqdist_in_single(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """(m, n) squared distances of rows in single precision."""
    centre = B.mean(axis=0)  # distances from a product lose digits far from 0
    return sqdist((A - centre).astype(np.float32), (B - centre).astype(np.float32))


def _nearest(D: np.ndarray, k: int) -> np.ndarray:
    """(m, k) columns of the k smallest of each row, the nearest first."""
    if k > FEW:
        part = np.argpartition(D, k - 1, axis=1)[:, :k] if k < D.shape[1] else np.tile(np.arange(k), (len(D), 1))
        return np.take_along_axis(part, np.take_along_axis(D, part, axis=1).argsort(axis=1), axis=1)
    rows, D = np.arange(len(D)), D.copy()
    found = np.empty((len(D), k), dtype=np.intp)
    for j in range(k):  # a few minima are found sooner than a partition
        found[:, j] = D.argmin(axis=1)
        D[rows, found[:, j]] = np.inf
    return found


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
    whole ("open"); "auto" is what is aimed at, by default the latter from 20 classes on. ``key`` is
    `distance_from_mean`, if it is known already.
    """
    key = distance_from_mean(X) if key is None else key
    aim = _aim.get()
    protocol = aim.protocol if protocol == "auto" else protocol
    if isinstance(side, Targets):
        return _trial_of_targets(side, key, folds, aim.n_neighbors)
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
            default = aim == Aim(protocol=aim.protocol)  # of new classes, whole rankings tell more than three
            return NeighborTrial(codes, splits, open=True, aim=Aim("map@r") if default else aim)
    return NeighborTrial(codes, _row_splits(_in_order(codes, counts, key), folds), aim=aim)


def _trial_of_targets(side: Targets, key: np.ndarray, folds: int, n_neighbors: int) -> Trial | None:
    T = side.varying
    if len(T) < 2 * NEIGHBORS or not T.shape[1]:
        return None
    splits = _row_splits(np.argsort(key, kind="stable"), folds)
    return TargetTrial((T - T.mean(axis=0)) / T.std(axis=0), splits, n_neighbors)


def scarcity(trial: Trial, folds: int) -> str:
    """What a trial had to do without, in words: it holds out one row at a time, or is of fewer folds than asked for."""
    whole = len(trial.splits) > 1 and not getattr(trial, "open", False)  # else there are as many as usual
    if whole and all(len(split.held) == 1 for split in trial.splits):
        return "with so few rows, one was held out at a time"
    return f"tried in {len(trial.splits)} folds, more would be too small" if whole and len(trial.splits) < folds else ""


def as_new(X: np.ndarray, split: Split, outside: Outside | None, unit: float = 1.0) -> np.ndarray:
    """The table X, in which the rows held out stand as rows that its coordinates were not made of.

    ``outside`` knows these, in a unit of its own; without it, or of some of its rows, X is the table as it is.
    """
    if outside is None or len(outside) != len(X):
        return X
    seen = X.copy()
    seen[split.held] = outside(split.learn, split.held) / unit
    return seen


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


def _row_splits(order: np.ndarray, folds: int) -> list[Split]:
    """Rows dealt to folds, of so many that follow one another one to each; of many rows, one split."""
    n = len(order)
    if n <= MAX_WHOLE and folds > 1:
        folds = min(folds, n)
        fold = _dealt(n, folds)
        parts = [(order[fold != f], order[fold == f]) for f in range(folds)]
        return [Split(learn, held, _mingled(learn)) for learn, held in parts]
    fold = _dealt(n, max(3, -(-n // MAX_HELD)))
    learn = order[fold > 0]
    return [Split(thin(learn, MAX_LEARNED), order[fold == 0], _mingled(thin(learn, MAX_GALLERY)))]


def _dealt(n: int, folds: int) -> np.ndarray:
    """(n,) a fold for each, all folds once in every run of so many, each time in another order.

    In the same order, a table that lists all combinations of some values would lose all rows of one value at a time.
    """
    runs = np.tile(np.arange(folds), (-(-n // folds), 1))
    return np.random.default_rng(0).permuted(runs, axis=1).ravel()[:n]


def _mingled(rows: np.ndarray) -> np.ndarray:
    """The rows in an order that has nothing to do with their classes: of equally near ones, the first counts."""
    return np.random.default_rng(0).permutation(rows)


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
        learn, held = order[fold[codes[order]] != f], _mingled(thin(order[fold[codes[order]] == f], MAX_OPEN))
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
