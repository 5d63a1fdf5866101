"""Embeddings and what is known of them, dealt to folds: what each fold learns from, and what it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from isometry.core.rows import part_of
from isometry.sampling import lacks_negatives, with_random_negatives
from isometry.select.folds import MAX_COMPONENT_SHARE, Plan, can_hold_out_classes, make_plan
from isometry.select.heads import Lesson, class_lesson, document_relevance, pair_lesson
from isometry.select.questions import (
    ClassQuestions,
    DocumentQuestions,
    PairQuestions,
    Questions,
    TripletQuestions,
)
from isometry.supervision import Labels, Pairs, Triplets
from isometry.trial import thin

QUICK, FULL, GALLERY = 800, 2_000, 2_000  # rows that are asked when maps are chosen, when one is judged, and found
PER_CLASS = 4  # rows of a class at least, as far as it has them: with many classes some of them are asked
MIN_CLASSES = 20  # with fewer, intervals over classes are wide
MAX_DOCUMENTS = 20_000  # among which queries look for those that are relevant to them
LARGE, LARGE_SPLITS = 200_000, 3  # rows from which on there are fewer folds


class Relevance(NamedTuple):
    """Which documents are relevant to which queries.

    Attributes
    ----------
    queries : array of shape (r,)
        Rows of the table of queries.
    documents : array of shape (r,)
        Rows of the table of documents, one for each of these queries.
    grade : array of shape (r,) or None
        Numbers above 0, the higher the more relevant; None: all alike.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import Relevance
    >>> Relevance(np.array([0, 0, 1]), np.array([4, 7, 2])).grade is None
    True
    """

    queries: np.ndarray
    documents: np.ndarray
    grade: np.ndarray | None = None


class Fold(NamedTuple):
    """One part held out."""

    learn: Callable[[], Lesson]  # from all other parts
    quick: Questions  # by which maps are chosen
    full: Questions  # by which the chosen one is judged


@dataclass(frozen=True)
class Task:
    """A way to learn maps and to judge them."""

    kind: str  # of what is known: labels, pairs, triplets or relevance
    held_out: str  # in words
    folds: list[Fold]
    everything: Callable[[], Lesson]
    sample: np.ndarray  # (·, d) some rows
    facts: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def class_task(
    X: Any, labels: Labels, keys: np.ndarray, *, protocol: str, n_splits: int, query_only: bool, heads: bool, seed: int
) -> Task:
    """Whole classes are held out ("open"), or rows of every class ("closed")."""
    rng = check_random_state(seed)
    labelled = np.flatnonzero(labels.labelled)
    if len(X) > LARGE:
        n_splits = min(n_splits, LARGE_SPLITS)
    plan = make_plan(labels, protocol, n_splits, 1, rng)  # type: ignore[arg-type]
    codes, n_classes = labels.codes, int(np.sum(labels.counts > 1))
    options = {"query_only": query_only, "heads": heads}

    def lesson(rows: np.ndarray) -> Callable[[], Lesson]:
        return lambda: class_lesson(part_of(X, rows), codes[rows], **options)

    def questions(test: np.ndarray, train: np.ndarray, most: int) -> ClassQuestions:
        rows = few_of_each(codes, test, most, rng)
        if protocol == "closed":
            known = few_of_each(codes, train, GALLERY, rng)
            return ClassQuestions(X[rows], codes[rows], X[known], codes[known])
        if query_only:  # a row is the nearest document of itself: one half of each class asks for the other
            order = rows[np.argsort(codes[rows], kind="stable")]
            asked, found = np.sort(order[::2]), np.sort(order[1::2])
            return ClassQuestions(X[asked], codes[asked], X[found], codes[found])
        return ClassQuestions(X[rows], codes[rows])

    folds = []
    for split in plan.splits:
        train = split.train[labels.labelled[split.train]]
        folds.append(Fold(lesson(train), questions(split.test, train, QUICK), questions(split.test, train, FULL)))
    warnings = leakage(plan, keys, "classes" if protocol == "open" else "rows")
    if protocol == "open" and n_classes < MIN_CLASSES:
        warnings.append(
            f"only {n_classes} classes have 2 or more rows: what holds for new classes is judged by few of them, and a "
            f"gain must be large to be seen; {MIN_CLASSES} or more are better"
        )
    return Task(
        kind="labels",
        held_out="whole classes" if protocol == "open" else "rows of known classes",
        folds=folds,
        everything=lesson(labelled),
        sample=X[thin(labelled, GALLERY)],
        facts={"classes": len(labels.classes), "labelled": len(labelled)},
        warnings=warnings,
        notes=list(plan.notes),
    )


def groups_of_pairs(side: Pairs) -> Labels | None:
    """What similar pairs join, directly or through others, as classes, where dissimilar pairs are not given.

    None where there are dissimilar ones, or where most rows are joined: "similar" then hardly means "the same".
    """
    if not lacks_negatives(side):
        return None
    groups = side.components()
    size = np.bincount(groups)[groups]
    labels = Labels.from_codes(np.where(size > 1, groups, -1))
    if not can_hold_out_classes(labels) or labels.counts.max() > MAX_COMPONENT_SHARE * labels.labelled.sum():
        return None
    return labels


def group_task(
    X: Any, groups: Labels, keys: np.ndarray, *, n_splits: int, query_only: bool, heads: bool, seed: int
) -> Task:
    """Similar pairs alone: what they join is one class, and all else is different."""
    rows = np.flatnonzero(groups.labelled)
    labels = Labels.from_codes(np.unique(groups.codes[rows], return_inverse=True)[1])
    options: dict[str, Any] = {"n_splits": n_splits, "query_only": query_only, "heads": heads, "seed": seed}
    task = class_task(part_of(X, rows), labels, keys[rows], protocol="open", **options)
    told = "no dissimilar pairs were given: rows that similar ones join, directly or through others, count as the same"
    return replace(
        task,
        kind="pairs",
        held_out="groups that pairs join",
        facts={"rows in pairs": len(rows), "groups": len(labels.classes)},
        notes=[f"{told}, all others as different", *task.notes],
    )


def tuple_task(X: Any, side: Pairs | Triplets, keys: np.ndarray, *, n_splits: int, query_only: bool, seed: int) -> Task:
    """Whole components of the graph of pairs or triplets are held out, or rows where it is in one piece."""
    rng = check_random_state(seed)
    rows = np.unique(np.concatenate([e for edges in (side.similar, side.dissimilar) for e in (edges.i, edges.j)]))
    X, keys = np.asarray(X[rows]), keys[rows]
    known: Any = side[rows]
    facts = {"tuples": len(side.weight), "rows in them": len(rows)}
    notes = []
    if lacks_negatives(known):
        full = with_random_negatives(known, rng, parts=n_splits)
        notes.append(f"no dissimilar pairs were given: {len(full.i) - len(known.i)} were drawn at random")
        known = full
    plan = make_plan(known, "closed", n_splits, 1, rng)
    grouped = plan.groups is not None

    def lesson(rows: np.ndarray) -> Callable[[], Lesson]:
        return lambda: pair_lesson(X[rows], known[rows], query_only=query_only)

    kind: Any = TripletQuestions if isinstance(known, Triplets) else PairQuestions
    folds = []
    for split in plan.splits:
        asked = kind(X[split.test], known[split.test], grouped)
        folds.append(Fold(lesson(split.train), asked, asked))
    if isinstance(known, Pairs):
        notes.append("recall, MAP@R and nDCG count listed pairs alone: what is alike but not listed counts as wrong")
    return Task(
        kind=side.kind,
        held_out=f"components of the graph of {side.kind}" if grouped else f"rows of the graph of {side.kind}",
        folds=folds,
        everything=lesson(np.arange(len(X))),
        sample=X[thin(np.arange(len(X)), GALLERY)],
        facts=facts,
        warnings=leakage(plan, keys, "rows"),
        notes=[*notes, *plan.notes],
    )


def document_task(
    queries: Any,
    documents: Any,
    relevance: Relevance,
    keys: np.ndarray,
    *,
    n_splits: int,
    query_only: bool,
    seed: int,
) -> Task:
    """Queries are held out; the documents are there in every fold."""
    rng = check_random_state(seed)
    i, j, grade = relevance
    grade = np.ones(len(i)) if grade is None else np.asarray(grade, dtype=np.float64)
    if len(i) != len(j) or len(i) != len(grade):
        raise ValueError(f"relevance lists {len(i)} queries, {len(j)} documents and {len(grade)} grades: one of each")
    if not (np.isfinite(grade) & (grade >= 0)).all():
        raise ValueError("grades of relevance must be finite numbers ≥ 0")
    i, j, grade = (np.asarray(x)[grade > 0] for x in (i, j, grade))
    asked = np.unique(i)
    if len(asked) < 2 * n_splits:
        raise ValueError(
            f"{len(asked)} queries have a relevant document: {n_splits} folds with two each need {2 * n_splits}. Give "
            "more, or lower n_splits"
        )
    Q = np.asarray(queries[asked])
    i = np.searchsorted(asked, i)
    D, j, notes = _some_documents(documents, j, rng)
    fold = rng.permutation(len(asked)) % n_splits

    def lesson(kept: np.ndarray) -> Callable[[], Lesson]:
        return lambda: _document_lesson(Q, D, *(x[kept[i]] for x in (i, j, grade)), query_only=query_only, seed=seed)

    folds, splits = [], []
    for f in range(n_splits):
        test = np.flatnonzero(fold == f)
        inside = fold[i] == f
        number = np.cumsum(fold == f) - 1
        asks = DocumentQuestions(Q[test], D, number[i[inside]], j[inside], grade[inside])
        folds.append(Fold(lesson(fold != f), asks, asks))
        splits.append(test)
    return Task(
        kind="relevance",
        held_out="queries",
        folds=folds,
        everything=lesson(np.ones(len(asked), dtype=bool)),
        sample=np.vstack([thin_rows(Q, GALLERY // 2), thin_rows(D, GALLERY // 2)]),
        facts={"queries": len(asked), "documents": len(documents), "relevant pairs": len(i)},
        warnings=_straddling(keys[asked], fold, "queries"),
        notes=notes,
    )


def _some_documents(
    documents: Any, j: np.ndarray, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Documents in memory, all if they are not too many, else those that are relevant and some others."""
    n = len(documents)
    kept = relevant = np.unique(j)
    if n <= MAX_DOCUMENTS:
        kept = np.arange(n)
    elif len(relevant) < MAX_DOCUMENTS:
        others = np.setdiff1d(np.arange(n), relevant)
        kept = np.sort(np.append(relevant, rng.choice(others, MAX_DOCUMENTS - len(relevant), replace=False)))
    notes = []
    if len(kept) < n:
        notes.append(f"queries look among {len(kept)} of {n} documents, all relevant ones included")
    return np.asarray(documents[kept]), np.searchsorted(kept, j), notes


def _document_lesson(
    Q: np.ndarray, D: np.ndarray, i: np.ndarray, j: np.ndarray, grade: np.ndarray, *, query_only: bool, seed: int
) -> Lesson:
    if query_only:
        mean, C = D.mean(axis=0, dtype=np.float64), np.cov(D, rowvar=False, ddof=0)
        return Lesson(mean, C, [], document_relevance(Q, D, i, j, grade))
    X = np.vstack([Q, D])
    pairs = Pairs(i, len(Q) + j, np.ones(len(i)), n=len(X), weight=grade)
    lesson = pair_lesson(X, with_random_negatives(pairs, check_random_state(seed)), query_only=False)
    lesson.moments = lesson.moments[:1]  # documents of several queries join these: no groups can be made of that
    return lesson


def thin_rows(X: np.ndarray, most: int) -> np.ndarray:
    """At most so many rows, evenly spread."""
    return X[thin(np.arange(len(X)), most)]


def few_of_each(codes: np.ndarray, rows: np.ndarray, most: int, rng: np.random.RandomState) -> np.ndarray:
    """At most about ``most`` of the rows, at least `PER_CLASS` of a class where there are: else of some classes."""
    order = rows[np.lexsort((rng.permutation(len(rows)), codes[rows]))]
    own = np.unique(codes[order], return_inverse=True)[1]
    n_classes = int(own.max(initial=-1)) + 1
    kept = np.sort(rng.permutation(n_classes)[: max(2, most // PER_CLASS)])
    each = max(PER_CLASS, most // max(len(kept), 1))
    start = np.searchsorted(own, np.arange(n_classes))
    chosen = np.isin(own, kept) & (np.arange(len(own)) - start[own] < each)
    return np.sort(order[chosen])


def leakage(plan: Plan, keys: np.ndarray, what: str) -> list[str]:
    """A warning where equal vectors lie on both sides of a split."""
    fold = np.full(len(keys), -1)
    for f, split in enumerate(plan.splits):
        fold[split.test] = f
    known = fold >= 0
    return _straddling(keys[known], fold[known], what)


def _straddling(keys: np.ndarray, fold: np.ndarray, what: str) -> list[str]:
    _, own = np.unique(keys, return_inverse=True)
    low, high = np.full(own.max() + 1, np.iinfo(np.intp).max), np.full(own.max() + 1, -1)
    np.minimum.at(low, own, fold)
    np.maximum.at(high, own, fold)
    n = int(np.sum(low[own] < high[own]))
    if n == 0:
        return []
    share = f"{n} of {len(keys)} ({n / len(keys):.1%})"
    return [
        f"{share} vectors have an equal one on the other side of a split of {what}: what was learned from one is asked "
        "of the other. Remove duplicates (isometry.duplicates finds them) to be sure of the gain"
    ]
