"""Embeddings that are there, adapted to what is known of some of them; or left as they are."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from isometry.core.rows import RowFacts, look_at_rows, unit_rows
from isometry.core.threads import own_threads
from isometry.eval import Interval, hubness
from isometry.select.allotment import Allotment
from isometry.select.budget import Budget, duration
from isometry.select.crossfit import automatic_choice, gain_interval
from isometry.select.folds import Plan, Split
from isometry.select.heads import (
    HEAD,
    IDENTITY,
    QUERY_MAP,
    Blends,
    Head,
    Lesson,
    Setting,
    can_train,
    identity,
    learned_maps,
    make_head,
    planned_maps,
    trained_head,
)
from isometry.select.progress import Progress
from isometry.select.questions import TITLES, Questions, Values
from isometry.select.result import BASELINE, AutomaticChoice
from isometry.select.tasks import (
    Fold,
    Relevance,
    Task,
    class_task,
    document_task,
    group_task,
    groups_of_pairs,
    tuple_task,
)
from isometry.supervision import Labels, Pairs, Triplets, as_supervision

__all__ = ["Adaptation", "Relevance", "Score", "adapt"]

SATURATED = 0.98  # a score from which on there is little to gain
HUBS = 3.0  # skewness of how often items are neighbours, from which on a few of them are everywhere
ALL = "all embeddings: map what is indexed and what is asked"
N_HUBS = 10  # neighbours that are counted
MOST_NAMED = 5  # rows in a message
STAYS = Setting(IDENTITY)


class Score(NamedTuple):
    """One score on what was held out: as the embeddings are, after the map, and the paired difference.

    Attributes
    ----------
    name : str
        Such as "map@r".
    before : float
        Mean as the embeddings are.
    after : float
        Mean after the map.
    difference : Interval
        The paired difference, with its interval.

    Examples
    --------
    >>> from isometry.eval import Interval
    >>> from isometry.select import Score
    >>> Score("map@r", 0.5, 0.6, Interval(0.1, 0.05, 0.15)).difference.contains(0.12)
    True
    """

    name: str
    before: float
    after: float
    difference: Interval


@dataclass
class Adaptation:
    """The outcome of `adapt`. Printing it shows the scores and the verdict.

    Attributes
    ----------
    head : Pipeline
        The map of embeddings; of queries alone, if ``query_only``.
    setting : Setting
        What was learned; its method is "identity" if nothing was reliably better.
    scores : list of Score
        The first is the one that decides.
    verdict : str
        The outcome in words.
    kind : str
        Labels, pairs, triplets or relevance: what was known.
    held_out : str
        What was held out, in words.
    query_only : bool
        Whether the map is of queries alone.
    level : float
        Confidence of the intervals.
    candidates : list of tuple
        Of each method its best setting and the gain of that, best first.
    by_fold : list of str
        What was chosen in each fold, by the others.
    data : dict
        Name, rows, features, and how much was known.
    hubs : tuple of float
        Skewness of the numbers of times that rows are neighbours, before and after.
    warnings : list of str
        What the reader should be careful with.
    notes : list of str
        What the reader should know.
    seconds : float
        Time that it took.
    random_state : int
        The seed.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import adapt
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(12), 6)
    >>> outcome = adapt(rng.normal(size=(12, 4))[y] + rng.normal(size=(72, 4)), y, heads=False, n_splits=2)
    >>> [score.name for score in outcome.scores]
    ['map@r', 'recall@1', 'recall@10', 'ndcg@10', 'pair_auc']
    """

    head: Pipeline
    setting: Setting
    scores: list[Score]
    verdict: str
    kind: str
    held_out: str
    query_only: bool
    level: float
    candidates: list[tuple[Setting, Interval]]
    by_fold: list[str]
    data: dict[str, Any]
    hubs: tuple[float, float]
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = np.nan
    random_state: int = 0

    @property
    def adapted(self) -> bool:
        """Whether a map was learned; else the embeddings stay as they are."""
        return self.setting.method != IDENTITY

    @property
    def main(self) -> Score:
        """The score that decides."""
        return self.scores[0]

    def transform(self, X: Any) -> np.ndarray:
        """Map embeddings, of queries alone if ``query_only``; compare images by Euclidean distance.

        Parameters
        ----------
        X : array of shape (n, d)
            Embeddings.

        Returns
        -------
        array of shape (n, p)
            Their images.
        """
        return np.asarray(self.head.transform(X))

    def to_dict(self) -> dict[str, Any]:
        """Everything but the head, as JSON can hold it.

        Returns
        -------
        dict
            Scores, verdict, candidates, warnings and notes.
        """
        scores = {s.name: {"before": s.before, "after": s.after, **s.difference._asdict()} for s in self.scores}
        return {
            "adapted": self.adapted,
            "map": "query" if self.query_only else "symmetric",
            "setting": self.setting._asdict(),
            "verdict": self.verdict,
            "scores": scores,
            "supervision": self.kind,
            "held_out": self.held_out,
            "level": self.level,
            "candidates": [{"setting": str(s), **gain._asdict()} for s, gain in self.candidates],
            "by_fold": self.by_fold,
            "data": self.data,
            "hubs": {"before": self.hubs[0], "after": self.hubs[1]},
            "warnings": self.warnings,
            "notes": self.notes,
            "seconds": self.seconds,
        }

    def save(self, path: Any, card: dict[str, Any] | None = None) -> None:
        """Write the head to one file, with the scores in its card; `isometry.load` reads it back.

        Parameters
        ----------
        path : str or path-like
            The file to write.
        card : dict or None, default=None
            What else the file should say of itself.
        """
        from isometry.io.store import save

        save(self.head, path, {**(card or {}), **self.quality()})

    def quality(self) -> dict[str, Any]:
        """What a saved head says of itself.

        Returns
        -------
        dict
            What was learned, the verdict, and the scores.
        """
        return {
            "adapted": str(self.setting),
            "map": f"of {'queries alone: documents stay as they are' if self.query_only else ALL}",
            "verdict": self.verdict,
            "quality": {s.name: {"before": round(s.before, 6), "after": self._of_head(s)} for s in self.scores}
            | {"held out": self.held_out},
        }

    def _of_head(self, score: Score) -> float:
        """What the head that is kept scores: as the embeddings are, where no map was taken."""
        return round(score.after if self.adapted else score.before, 6)

    def report(self, path: str | Path) -> Path:
        """Write the report page.

        Parameters
        ----------
        path : str or path-like
            An ``.html`` file, or a folder, which gets an ``index.html``.

        Returns
        -------
        Path
            Where the page is.
        """
        from isometry.report import write_adaptation_report

        return write_adaptation_report(self, path)

    def __str__(self) -> str:
        lines = [f"{'score':<18}{'before':>8}{'after':>8}   difference, {100 * self.level:g} % interval"]
        for s in self.scores:
            gap = f"{s.difference.mean:+.4f} [{s.difference.low:+.4f}, {s.difference.high:+.4f}]"
            lines.append(f"{TITLES[s.name]:<18}{s.before:8.4f}{s.after:8.4f}   {gap}")
        lines += [f"warning: {w}" for w in self.warnings] + [f"note: {n}" for n in self.notes]
        return "\n".join([*lines, "", self.verdict])


def adapt(
    X: Any,
    y: Any,
    *,
    documents: Any = None,
    query_only: bool = False,
    protocol: Literal["open", "closed"] = "open",
    heads: bool = True,
    n_splits: int = 5,
    level: float = 0.95,
    budget: float | Budget | None = 300.0,
    random_state: int = 0,
    verbose: bool = False,
    name: str = "embeddings",
) -> Adaptation:
    """Learn a map of embeddings from labels, pairs, triplets or relevant documents; keep them if none is better.

    Rows are compared by their angle: they are brought to unit length first. Maps of several closed forms, each with
    several ridges, mixed with the metric that is there and with or without unit length after the map, are learned from
    moments of the rows; with labels and torch a linear head is trained as well. They are judged on what was held out:
    whole classes, components of the graph of pairs, or queries. In each fold the map is taken that did best in the
    others, so that the difference is not that of the luckiest; if its interval leaves out zero, the best map of all is
    learned from everything, else the embeddings stay as they are.

    Parameters
    ----------
    X : array of shape (n, d)
        Embeddings of 16, 32 or 64 bits. A large array may be mapped from a file, and is then read in blocks.
    y : array, Labels, Pairs, Triplets or Relevance
        Class labels; pairs, of similar ones alone if need be; triplets; or which documents are relevant to the rows.
    documents : array of shape (m, d) or None, default=None
        Embeddings of documents, with `Relevance`.
    query_only : bool, default=False
        Map queries alone, and leave documents as they are indexed: score = ⟨Aq, d⟩.
    protocol : {"open", "closed"}, default="open"
        For labels: rows of new classes will come, or new rows of known classes.
    heads : bool, default=True
        Whether a linear head is trained, where there are labels in memory and torch.
    n_splits : int, default=5
        Folds; at most 3 beyond 200,000 rows.
    level : float, default=0.95
        Confidence of the intervals.
    budget : float, Budget or None, default=300.0
        Seconds that it may take. What there is no time for in every fold is left out, closed forms after the first
        ones and then heads, and a note names it; None: everything is tried.
    random_state : int, default=0
        Seed of folds, samples and heads.
    verbose : bool, default=False
        Show progress on standard error.
    name : str, default="embeddings"
        Name of the data.

    Returns
    -------
    Adaptation
        Scores, verdict and head.

    Examples
    --------
    >>> import numpy as np
    >>> from isometry import adapt
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(30), 12)
    >>> X = np.hstack([rng.normal(size=(30, 8))[y], 3 * rng.normal(size=(360, 8))])
    >>> outcome = adapt(X, y, budget=None)
    >>> outcome.adapted, outcome.main.after > outcome.main.before
    (True, True)
    """
    if budget is not None and not isinstance(budget, Budget):
        budget = Budget(budget)
    progress = Progress(verbose, time.monotonic if budget is None else budget.clock)
    task = _task(X, y, documents, query_only, protocol, heads, n_splits, random_state, progress)
    allotment = Allotment(budget, len(task.folds), progress.started)
    found = _try_folds(task, allotment, query_only, random_state, progress)
    folds = task.folds[: max(len(found), 1)]
    settings = [s for s in found[0].tried if all(s in of.tried for of in found)] if len(found) > 1 else []
    names = [BASELINE, *map(str, settings)]
    if settings:
        plan = _plan([of.before for of in found])
        V = [np.concatenate([of.before.v for of in found])[None]]
        V += [np.concatenate([of.tried[s] for of in found])[None] for s in settings]
        choice = automatic_choice(names, V, plan, level)
        if choice is None:
            raise ValueError("nothing that was held out could be scored: too little is known of the rows")
        candidates = _best_of_each(settings, V, plan, level)
    elif allotment.note(compared=False):
        choice, candidates = None, []
    else:
        failures = found[0].lesson.failures
        raise ValueError(f"no map could be learned: {'; '.join(f'{k}: {v}' for k, v in failures.items())}")
    by_name = dict(zip(names[1:], settings, strict=True))
    progress.say_now("judging the maps that were chosen")
    chosen = [by_name.get(picked) for picked in choice.by_fold] if choice else [None] * len(folds)
    heads_of_folds = [s and _head(found[f].lesson, s, found[f].head, query_only) for f, s in enumerate(chosen)]
    scores, hubs = _judge(folds, heads_of_folds, level)
    better = choice is not None and choice.picked != BASELINE and scores[0].difference.low > 0
    setting = by_name[choice.leader] if choice and better else STAYS
    progress.say_now("learning from everything")
    head = _final(task, setting, query_only, random_state)
    outcome = Adaptation(
        head=identity(task.sample) if head is None else head.estimator(task.sample),
        setting=setting,
        scores=scores,
        verdict=_in_words(choice, setting, scores[0], level, task, query_only),
        kind=task.kind,
        held_out=task.held_out,
        query_only=query_only,
        level=level,
        candidates=candidates,
        by_fold=[str(s or STAYS) for s in chosen],
        data={"name": name, "rows": len(X), "features": int(X.shape[1]), **task.facts},
        hubs=hubs,
        warnings=task.warnings,
        notes=task.notes + allotment.note(compared=bool(settings)) + _failures([of.lesson for of in found]),
        seconds=progress.clock() - progress.started,
        random_state=random_state,
    )
    outcome.warnings += _remarks(outcome)
    if progress.verbose:
        progress.say_now("")
    return outcome


@dataclass(frozen=True)
class _Tried:
    """What one fold has shown."""

    lesson: Lesson
    before: Values  # of the main score, as the embeddings are
    tried: dict[Setting, np.ndarray]  # values of the main score
    head: np.ndarray | None  # the map (d, d) of a linear head


def _try_folds(task: Task, allotment: Allotment, query_only: bool, seed: int, progress: Progress) -> list[_Tried]:
    """All maps in all folds, or as many as there is time for."""
    found: list[_Tried] = []
    n = len(task.folds)
    for f, fold in enumerate(task.folds, start=1):
        if not allotment.begin():
            break
        progress.say_now(f"fold {f} of {n}: moments")
        lesson = fold.learn()
        with own_threads():  # hundreds of small decompositions: on a busy machine threads of BLAS wait for each other
            before = fold.quick.first(fold.quick.X, _documents(fold.quick))
            tried = dict(_tried(lesson, fold.quick, query_only, allotment, progress))
        L = None
        if can_train(lesson):
            progress.say_now(f"fold {f} of {n}: a linear head")
            L = allotment.head(partial(trained_head, lesson, seed))
        if L is not None:
            with own_threads():
                tried.update(_blended(Blends(lesson, _stacked(fold.quick)), HEAD, 0.0, L, fold.quick))
        lesson.labelled = None
        found.append(_Tried(lesson, before, tried, L))
        spent = duration(progress.clock() - progress.started, about=False)
        progress.say(f"fold {f} of {n} {'cut short' if allotment.cut else 'done'} after {spent}")
    return found[: allotment.folds()]


def _task(
    X: Any,
    y: Any,
    documents: Any,
    query_only: bool,
    protocol: str,
    heads: bool,
    n_splits: int,
    seed: int,
    progress: Progress,
) -> Task:
    if protocol not in ("open", "closed"):
        raise ValueError(f"protocol={protocol!r} must be 'open' or 'closed'")
    if n_splits < 2:
        raise ValueError(f"n_splits={n_splits} must be at least 2")
    progress.say_now("looking at the rows")
    facts = check_embeddings(X, "X")
    rows = unit_rows(X)
    options: dict[str, Any] = {"n_splits": n_splits, "query_only": query_only, "seed": seed}
    if isinstance(y, Relevance):
        if documents is None:
            raise ValueError("Relevance is of documents to the rows of X: give their embeddings as documents")
        more = check_embeddings(documents, "documents")
        if documents.shape[1] != X.shape[1]:
            raise ValueError(f"queries have {X.shape[1]} numbers and documents {documents.shape[1]}")
        task = document_task(rows, unit_rows(documents), y, facts.keys, **options)
        unit = facts.unit and more.unit
    else:
        if documents is not None:
            raise ValueError("documents go with Relevance; labels, pairs and triplets are of the rows of X")
        unit = facts.unit
        side = as_supervision(y, len(X))
        if isinstance(side, Labels):
            task = class_task(rows, side, facts.keys, protocol=protocol, heads=heads, **options)
        elif isinstance(side, Pairs) and (groups := groups_of_pairs(side)) is not None:
            task = group_task(rows, groups, facts.keys, heads=heads, **options)
        elif isinstance(side, (Pairs, Triplets)):
            task = tuple_task(rows, side, facts.keys, **options)
        else:
            raise ValueError("y must be class labels, Pairs, Triplets or Relevance")
    if not unit:
        task.notes.append("rows are not of unit length: they are brought to it, and compared by their angle")
    return task


def check_embeddings(X: Any, name: str) -> RowFacts:
    """Refuse what is no table of finite numbers with a direction in every row; the message names the rows."""
    if getattr(X, "ndim", 0) != 2 or X.dtype.kind != "f":
        what = f"{X.dtype} of shape {X.shape}" if hasattr(X, "dtype") else type(X).__name__
        raise ValueError(f"{name} must be a table (n, d) of floating-point numbers, one row per embedding; got {what}")
    facts = look_at_rows(X)
    for rows, what in ((facts.bad, "hold NaN or infinite numbers"), (facts.zero, "are 0 and have no direction")):
        if len(rows):
            raise ValueError(f"{len(rows)} rows of {name} {what}: {named(rows)}. Leave them out")
    return facts


def named(values: Any) -> str:
    """The first of some names, and how many more there are."""
    shown = ", ".join(map(str, values[:MOST_NAMED]))
    return shown + (f" and {len(values) - MOST_NAMED} more" if len(values) > MOST_NAMED else "")


def _documents(questions: Questions) -> np.ndarray:
    return questions.X if questions.gallery is None else questions.gallery


def _stacked(questions: Questions) -> np.ndarray:
    return questions.X if questions.gallery is None else np.vstack([questions.X, questions.gallery])


def _tried(
    lesson: Lesson, questions: Questions, query_only: bool, allotment: Allotment, progress: Progress
) -> Iterator[tuple[Setting, np.ndarray]]:
    """Values of the main score for every setting that follows from moments, and that there is time for."""
    maps = allotment.maps(planned_maps(lesson, query_only), learned_maps(lesson, query_only), lesson.failures)
    if query_only:
        for method, reg, A in maps:
            found = questions.first(Head(A, query_only=True).queries(questions.X), _documents(questions))
            yield Setting(method, reg), found.v
        return
    blends = Blends(lesson, _stacked(questions))
    for method, reg, L in maps:
        progress.say_now(f"{method}, ridge {reg:g}")
        yield from _blended(blends, method, reg, L, questions)


def _blended(
    blends: Blends, method: str, reg: float, L: np.ndarray, questions: Questions
) -> Iterator[tuple[Setting, np.ndarray]]:
    m = len(questions.X)
    for share, unit, Z in blends.under(L):
        queries = Z[:m]
        found = questions.first(queries, queries if questions.gallery is None else Z[m:])
        yield Setting(method, reg, share, unit), found.v


def _plan(values: list[Values]) -> Plan:
    """Items of all folds one after the other, and which of them depend on one another."""
    ends = np.cumsum([0, *(len(v.v) for v in values)])
    empty = np.zeros(0, dtype=np.intp)
    splits = [Split(empty, np.arange(a, b)) for a, b in itertools.pairwise(ends)]
    if values[0].groups is None:
        return Plan(splits, None)
    shift = 1 + max(int(v.groups.max(initial=0)) for v in values if v.groups is not None)
    groups = [v.groups + f * shift for f, v in enumerate(values) if v.groups is not None]
    return Plan(splits, np.concatenate(groups))


@own_threads()
def _head(lesson: Lesson, setting: Setting | None, trained: np.ndarray | None, query_only: bool) -> Head | None:
    """The head of a setting; None for the identity."""
    if setting is None or setting.method == IDENTITY:
        return None
    if setting.method == HEAD:
        assert trained is not None
        return make_head(lesson, setting, trained)
    maps = learned_maps(lesson, query_only, None if setting.method == QUERY_MAP else setting.method)
    return make_head(lesson, setting, next(L for _, reg, L in maps if reg == setting.reg))


def _final(task: Task, setting: Setting, query_only: bool, seed: int) -> Head | None:
    """The head of a setting, learned from everything."""
    if setting.method == IDENTITY:
        return None
    lesson = task.everything()
    return _head(lesson, setting, trained_head(lesson, seed) if setting.method == HEAD else None, query_only)


@own_threads()
def _judge(folds: list[Fold], heads: list[Head | None], level: float) -> tuple[list[Score], tuple[float, float]]:
    """Every score before and after, and how uneven neighbours are, over what the folds held out."""
    before, after, hubs = [], [], []
    for fold, head in zip(folds, heads, strict=True):
        asked = fold.full
        X, D = asked.X, _documents(asked)
        before.append(asked.all(X, D))
        Zq = X if head is None else head.queries(X)
        Zd = D if head is None else Zq if asked.gallery is None and not head.query_only else head.documents(D)
        after.append(before[-1] if head is None else asked.all(Zq, Zd))
        k = min(N_HUBS, len(D) - 1)
        alone = asked.gallery is None
        hubs.append([hubness(q, k, None if alone and q is d else d).skewness for q, d in ((X, D), (Zq, Zd))])
    main = folds[0].full.main
    names = sorted(set.intersection(*(set(b) for b in before)), key=lambda n: (n != main, list(TITLES).index(n)))
    scores = []
    for name in names:
        plan = _plan([b[name] for b in before])
        a, b = (np.concatenate([values[name].v for values in part]) for part in (after, before))
        known = np.isfinite(a) & np.isfinite(b)
        gain = gain_interval(np.where(known, a - b, np.nan)[None], None, plan, level)
        if gain is not None:
            scores.append(Score(name, float(b[known].mean()), float(a[known].mean()), gain))
    if not scores or scores[0].name != main:
        raise ValueError("nothing that was held out could be scored: too little is known of the rows")
    skew = np.mean(hubs, axis=0)
    return scores, (float(skew[0]), float(skew[1]))


def _best_of_each(
    settings: list[Setting], V: list[np.ndarray], plan: Plan, level: float
) -> list[tuple[Setting, Interval]]:
    """Of each method the setting of the highest mean, with its gain, best first."""
    best: dict[str, tuple[Setting, Interval]] = {}
    for setting, values in zip(settings, V[1:], strict=True):
        gain = gain_interval(values - V[0], None, plan, level)
        if gain is not None and (setting.method not in best or gain.mean > best[setting.method][1].mean):
            best[setting.method] = setting, gain
    return sorted(best.values(), key=lambda found: -found[1].mean)


def _failures(lessons: list[Lesson]) -> list[str]:
    failed = {name: why for lesson in lessons for name, why in lesson.failures.items()}
    return [f"{name} could not learn in every fold: {why}" for name, why in failed.items()]


def _remarks(outcome: Adaptation) -> list[str]:
    """What the reader should be warned of."""
    found = []
    main = outcome.main
    if main.before >= SATURATED:
        found.append(
            f"{TITLES[main.name]} is {main.before:.3f} as the embeddings are: there is little left to gain, and what "
            "was held out may be easier than what will come"
        )
    fallen = [s for s in outcome.scores[1:] if s.difference.high < 0]
    if outcome.adapted and fallen:
        listed = ", ".join(
            f"{TITLES[s.name]} {100 * s.difference.mean:+.1f} points ({s.before:.4f} to {s.after:.4f})" for s in fallen
        ).replace("-", "−")
        found.append(
            f"the map was chosen by {TITLES[main.name]}, and is reliably worse by another score: {listed}. Keep the "
            "embeddings as they are if that one matters more"
        )
    skew = outcome.hubs[1] if outcome.adapted else outcome.hubs[0]
    if skew > HUBS:
        found.append(
            f"a few rows are among the {N_HUBS} nearest of very many (skewness {skew:.1f}; {outcome.hubs[0]:.1f} "
            "as the embeddings are): isometry.eval.HubnessCorrection ranks with fewer of these hubs"
        )
    return found


def _in_words(
    choice: AutomaticChoice | None, setting: Setting, main: Score, level: float, task: Task, query_only: bool
) -> str:
    if choice is None:
        return "Keep the embeddings as they are: the budget was over before a map could be compared with them."
    mean, low, high = (f"{100 * v:+.1f}".replace("-", "−") for v in main.difference)
    gap = f"{mean} points of {TITLES[main.name]} ({100 * level:g} % interval {low} to {high})"
    where = f"with {task.held_out} held out"
    if setting.method != IDENTITY:
        what = "Map the queries" if query_only else "Map all embeddings"
        return f"{what} by {setting}: {gap} {where}, {main.after:.4f} against {main.before:.4f}."
    if choice.leader == BASELINE:
        return f"Keep the embeddings as they are: no map did better {where} by more than a standard error."
    best = f"The choice, mostly {choice.leader}, is {gap} {where}"
    return f"Keep the embeddings as they are: no map is reliably better. {best}."
