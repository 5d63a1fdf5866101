"""Which samples are held out together: folds for labels, for unseen classes, and for pairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from isometry.supervision import Labels, Supervision, Targets, Views

Protocol = Literal["closed", "open"]
Folds = tuple[np.ndarray, list[str]]  # fold of each sample (n,), and notes for the reader
MAX_COMPONENT_SHARE = 0.5  # a component with more of the samples than this has to be cut
MANY_CLASSES = 20  # more classes whose names are floats may well be numbers


class Split(NamedTuple):
    """One fold: row numbers to learn from, and row numbers to score."""

    train: np.ndarray
    test: np.ndarray
    repeat: int = 0


@dataclass(frozen=True)
class Plan:
    """Repeated cross-validation; every repeat holds out a sample at most once."""

    splits: list[Split]  # repeat by repeat
    groups: np.ndarray | None  # (n,) samples of one group depend on one another; None: every sample is its own group
    notes: list[str] = field(default_factory=list)

    @property
    def n_splits(self) -> int:
        return sum(split.repeat == 0 for split in self.splits)


def make_plan(side: Supervision, protocol: Protocol, n_splits: int, n_repeats: int, rng: np.random.RandomState) -> Plan:
    """Folds that suit the supervision.

    Targets and views: at random. Labels, closed: stratified by class. Labels, open: whole classes are held out, so
    that a test class is never seen in training. Pairs, triplets, …: whole components of their graph are held out where
    it falls apart; a graph in one piece is cut by samples, and what joins two folds takes part in neither.
    """
    assign, groups = _assignment(side, protocol)
    drawn = [assign(side, n_splits, rng) for _ in range(n_repeats)]
    splits = [split for repeat, (fold, _) in enumerate(drawn) for split in _splits(fold, repeat)]
    notes = dict.fromkeys(note for _, noted in drawn for note in noted)
    return Plan(splits, groups, list(notes))


def _assignment(side: Supervision, protocol: Protocol) -> tuple[Callable[..., Folds], np.ndarray | None]:
    """The function (side, n_splits, rng) → folds to use, and which samples depend on one another."""
    if isinstance(side, Labels):
        return (_open_folds, side.codes) if protocol == "open" else (_closed_folds, None)
    if isinstance(side, Targets | Views):
        return _plain_folds, None
    components = side.components()
    return (_component_folds, components) if _falls_apart(components) else (_sample_folds, None)


def can_hold_out_classes(labels: Labels) -> bool:
    """Whether there are two classes to learn from and two to hold out, each with a sample to be found by another."""
    return bool(np.sum(labels.counts > 1) >= 4)


def _splits(fold: np.ndarray, repeat: int) -> list[Split]:
    """Rows of fold −1 are in every training part and never held out."""
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f), repeat) for f in range(fold.max() + 1)]


def _closed_folds(labels: Labels, n_splits: int, rng: np.random.RandomState) -> Folds:
    """The samples of each class go to the folds in turn: a class of m ≤ k samples is spread over m folds."""
    rows, codes, notes = _holdable(labels)
    if len(np.unique(codes)) < 2:
        raise ValueError(
            "the labels have fewer than 2 classes with at least 2 samples: one sample to hold out needs another of its "
            "class to be found by. Give more data, or merge rare classes"
        )
    if len(rows) < n_splits:
        raise ValueError(
            f"n_splits={n_splits} folds need at least {n_splits} samples to hold out, but there are {len(rows)}: give "
            "more data or lower n_splits"
        )
    small = int(np.sum((labels.counts > 1) & (labels.counts < n_splits)))
    if small:
        notes.append(f"{small} classes have fewer samples than the {n_splits} folds: some folds hold out none of them")
    order = rows[np.lexsort((rng.permutation(len(rows)), codes))]
    fold = np.full(len(labels), -1)
    fold[order] = np.arange(len(rows)) % n_splits
    return fold, notes


def _plain_folds(targets: Targets | Views, n_splits: int, rng: np.random.RandomState) -> Folds:
    """Samples go to the folds at random, equally many to each."""
    n = len(targets)
    if n < 2 * n_splits:
        raise ValueError(
            f"n_splits={n_splits} folds with 2 samples each need at least {2 * n_splits} samples, but there are {n}: "
            "give more data or lower n_splits"
        )
    return rng.permutation(n) % n_splits, []


def _open_folds(labels: Labels, n_splits: int, rng: np.random.RandomState) -> Folds:
    """Classes go to the folds from the largest to the smallest, in zigzag order, so that folds are balanced."""
    rows, codes, notes = _holdable(labels)
    classes, sizes = np.unique(codes, return_counts=True)
    k = min(n_splits, len(classes) // 2)
    if k < 2:
        raise ValueError(
            f"the open protocol holds out at least 2 classes at a time and learns from at least 2 others, but only "
            f"{len(classes)} classes have 2 or more samples: use protocol='closed'"
        )
    if k < n_splits:
        notes.append(f"{len(classes)} classes allow {k} class-disjoint folds of at least 2 classes, not {n_splits}")
    scale = np.floor(np.log2(sizes))  # classes of about one size are shuffled between repeats
    fold_of = np.full(len(labels.classes), -1)
    fold_of[classes[np.lexsort((rng.permutation(len(classes)), -scale))]] = _zigzag(len(classes), k)
    fold = np.full(len(labels), -1)
    fold[rows] = fold_of[codes]
    return fold, notes


def _holdable(labels: Labels) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Rows that can be held out: labelled, and not the only one of their class."""
    single = int(np.sum(labels.counts == 1))
    notes = [f"{single} classes have a single sample, which is trained on and never held out"] if single else []
    if labels.classes.dtype.kind == "f" and len(labels.classes) > MANY_CLASSES:
        notes.append(
            f"the {len(labels.classes)} values of y are whole numbers and taken for classes; Targets(y) takes them for "
            "numbers to predict"
        )
    rows = np.flatnonzero(labels.labelled)
    rows = rows[labels.counts[labels.codes[rows]] > 1]
    return rows, labels.codes[rows], notes


def _zigzag(n: int, k: int) -> np.ndarray:
    """0, 1, …, k−1, k−1, …, 1, 0, 0, 1, … (n,): n ≥ 2k items give every fold at least two."""
    step = np.arange(n) % (2 * k)
    return np.minimum(step, 2 * k - 1 - step)


def _falls_apart(components: np.ndarray) -> bool:
    sizes = np.bincount(components)
    joined = sizes[sizes > 1]
    return len(joined) > 1 and joined.max() <= MAX_COMPONENT_SHARE * joined.sum()


def _component_folds(side: Supervision, n_splits: int, rng: np.random.RandomState) -> Folds:
    components = side.components()
    sizes = np.bincount(components)
    joined = np.flatnonzero(sizes > 1)
    order = joined[np.lexsort((rng.permutation(len(joined)), -np.floor(np.log2(sizes[joined]))))]

    def deal(k: int) -> np.ndarray:
        fold_of = np.full(len(sizes), -1)
        fold_of[order] = _zigzag(len(order), k)
        return np.asarray(fold_of[components])

    return _first_scorable(side, n_splits, deal)


def _sample_folds(side: Supervision, n_splits: int, rng: np.random.RandomState) -> Folds:
    components = side.components()
    joined = np.flatnonzero(np.bincount(components)[components] > 1)
    order = rng.permutation(len(joined))

    def deal(k: int) -> np.ndarray:
        fold = np.full(len(side), -1)
        fold[joined] = order % k
        return fold

    fold, notes = _first_scorable(side, n_splits, deal)
    note = "the supervision is one connected graph: it is cut by samples, and what joins two folds is left out"
    return fold, [note, *notes]


def _first_scorable(side: Supervision, n_splits: int, deal: Callable[[int], np.ndarray]) -> Folds:
    """The folds of ``deal(k)`` for the largest k ≤ n_splits that leaves both kinds of pairs in every fold."""
    for k in range(n_splits, 1, -1):
        fold = deal(k)
        if all(_has_both_kinds(side[np.flatnonzero(fold == f)]) for f in range(k)):
            return fold, [f"there are enough {side.kind} for {k} folds, not {n_splits}"] if k < n_splits else []
    raise ValueError(
        f"there are too few {side.kind} to hold some out: 2 folds, each with similar and dissimilar pairs, cannot be "
        "made. Give more of them, of both kinds"
    )


def _has_both_kinds(side: Supervision) -> bool:
    return len(side.similar.i) > 0 and len(side.dissimilar.i) > 0
