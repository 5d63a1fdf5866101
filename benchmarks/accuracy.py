"""Every classical method on real tables: does it help nearest neighbours? `make accuracy` measures, and writes a page.

What has been measured is kept in docs/results/accuracy.json, one cell for each method, setting, set and protocol, so
that a run goes on where the last one stopped. The page, docs/results/accuracy.md, says what has not been measured yet.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from multiprocessing.connection import Connection
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import isometry
from benchmarks.stamps import Code
from benchmarks.tables import DATA, MANY_CLASSES, ROOT, Fold, folds, names_of_sets, shape_of, shuffled_folds, shuffles
from isometry.eval import knn_hits, retrieval
from isometry.registry import Method, all_methods, get
from isometry.select import candidates
from isometry.select.budget import Budget
from isometry.select.verdict import p_value

STORE = ROOT / "docs" / "results" / "accuracy.json"
N_NEIGHBORS = 3
AUTO = "AutoMetric"
AUTO_SECONDS = 20.0  # its budget, of CPU time
LIMIT = 60.0
MARGIN = 0.02  # so far below Euclidean a published method must say why, and an automatic one is named
Cell = dict[str, Any]  # score, gain, gains, p, seconds, unconverged, failure, over, stamp: see `measure`
HERE = Code()
ALWAYS = (("benchmarks.tables", "folds"), ("benchmarks.tables", "shuffled_folds"), ("isometry.base", "LinearMetric"))
CALLS = ("fit", "transform")
NO_PART = (  # in what a fit finds in a good table
    *("isometry.base", "isometry.eval", "isometry.supervision"),  # what all have in common, and tests hold in place
    *("isometry.core.progress", "isometry.core.scale", "isometry.core.warn", "isometry.parameters"),  # tell and refuse
    *("isometry.explanation", "isometry.io", "isometry.registry", "isometry.report", "isometry.search"),
)
CHOICE = ("isometry.mixed", "isometry.searched", "isometry.strength", "isometry.trial")  # no part in what is published


@dataclass(frozen=True)
class Row:
    """A method with one of its settings."""

    key: str  # of the method table, or AutoMetric
    setting: str  # "published" or "automatic"

    @property
    def method(self) -> Method | None:
        return None if self.key == AUTO else get(self.key)

    @property
    def name(self) -> str:
        return self.method.name if self.method else self.key

    def make(self, protocol: str) -> Any:
        if self.method is None:
            return isometry.AutoMetric(protocol=protocol, budget=Budget(AUTO_SECONDS, time.process_time), scaler=None)
        learner = self.method.make(**(self.method.published if self.setting == "published" else {}))
        return learner.set_params(**{name: 0 for name in learner.get_params() if name.endswith("random_state")})


@dataclass(frozen=True)
class Task:
    """One cell of a table."""

    row: Row
    data: str
    protocol: str  # "closed" or "open"

    @property
    def name(self) -> str:
        return f"{self.protocol} {self.data} {self.row.key} {self.row.setting}"


def contestants() -> list[Method]:
    """Classical methods on vectors that learn from classes, one row for each distinct estimator."""
    rows = [
        m
        for m in all_methods(kind="estimator")
        if m.family != "deep"
        and not {"matrix-samples", "histograms"} & set(m.traits)
        and ("labels" in m.sees or m.key == "EUC")
    ]
    distinct: dict[tuple[str, str], Method] = {}
    for m in rows:
        distinct.setdefault((m.target, repr(sorted(m.make().get_params().items()))), m)
    return list(distinct.values())


def turn_of(row: Row) -> int:
    """When its turn comes: Euclidean distance, closed forms, `AutoMetric`, what iterates, kernels."""
    if row.key == "EUC":
        return 0
    if row.method is None:
        return 2
    return 4 if row.method.family == "kernel" else 3 if "iterative" in row.method.traits else 1


def rows() -> list[Row]:
    """Each method as published, and with automatic strength where it has one; in the order of their turns."""
    made = [Row(AUTO, "automatic")]
    for m in contestants():
        made += [Row(m.key, "published")] + [Row(m.key, "automatic")] * bool(m.published)
    return sorted(made, key=turn_of)


def plan(sets: list[str]) -> list[Task]:
    """All cells, so that a run cut short has measured the same sets for all methods of a turn; automatic ones first."""
    tasks: list[Task] = []
    for turn, setting in sorted({(turn_of(row), row.setting) for row in rows()}):
        some = [row for row in rows() if (turn_of(row), row.setting) == (turn, setting)]
        for protocol in ("closed", "open"):
            names = [n for n in sets if protocol == "closed" or shape_of(n)[2] >= MANY_CLASSES]
            tasks += [Task(row, name, protocol) for name in names for row in some]
    return tasks


@cache
def stamp(row: Row, code: Code = HERE) -> str:
    """Of the code that the result of a row comes from; of this checkout unless another is given."""
    roots, settings, without = [*ALWAYS], [], NO_PART
    if row.method is None:
        roots.append(("isometry.select.auto", "AutoMetric"))
        methods = [get(name) for name in candidates.DEFAULT]
    else:
        methods = [row.method]
        settings.append(sorted(row.method.params.items()))
        if row.setting == "published":
            settings.append(sorted(row.method.published.items()))
            without += CHOICE
    for method in methods:
        module, _, name = method.target.partition(":")
        roots.append((module, name))
    found = code.stamp(roots, calls=CALLS, without=without)
    return hashlib.sha256(f"{found} {settings}".encode()).hexdigest()[:8]


def values(fold: Fold, protocol: str, Z: np.ndarray, Z_test: np.ndarray) -> np.ndarray:
    """(m,) of each row held out: whether 3-NN names its class, or MAP@R among the others that were held out."""
    if protocol == "closed":
        return knn_hits(Z, fold.y, Z_test, fold.y_test, N_NEIGHBORS).astype(np.float64)
    found = retrieval(Z_test, fold.y_test)
    if len(found.queries) != len(Z_test):
        raise ValueError("a class that was held out has a single row")
    return found.map_at_r


def aim(protocol: str) -> AbstractContextManager[None]:
    """What a fit is told of its use: nothing, but that it is for new classes where these are what is measured."""
    return nullcontext() if protocol == "closed" else isometry.aiming_at("map@r", protocol="open")


def work(task: Task, splits: list[Fold], limit: float, sink: Connection) -> None:
    """In a process of its own, which the kernel ends if a fit exceeds the limit; sends the outcome of each fold."""
    for fold in splits:
        spent = math.ceil(time.process_time() + limit)
        resource.setrlimit(resource.RLIMIT_CPU, (spent, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        outcome: dict[str, Any] = {"failure": ""}
        with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                learner = task.row.make(task.protocol)
                start = time.process_time()
                with aim(task.protocol):
                    learner.fit(fold.X, isometry.Labels(fold.y))  # codes might be numbers to predict
                outcome["seconds"] = time.process_time() - start
                maps = learner.transform(fold.X), learner.transform(fold.X_test)
                outcome["values"] = values(fold, task.protocol, *maps)
            except Exception as error:  # whatever it is, it is reported and the table goes on
                outcome["failure"] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        outcome["unconverged"] = any(issubclass(w.category, ConvergenceWarning) for w in caught)
        sink.send(outcome)
        if outcome["failure"]:
            return


@dataclass(frozen=True)
class Prepared:
    """The folds of a set, shuffle by shuffle: the same for all methods."""

    splits: list[Fold]
    held: np.ndarray  # (shuffles, n) which row it is that was held out
    plain: np.ndarray  # (shuffles, n) the value of each under Euclidean distance


@lru_cache(maxsize=3)
def prepared(data: str, protocol: str) -> Prepared:
    if protocol == "closed":
        splits, held = zip(*(shuffled_folds(data, seed) for seed in range(shuffles(data))), strict=True)
        every, rows = [fold for several in splits for fold in several], np.stack(held)
    else:
        every = folds(data, protocol)
        rows = np.arange(sum(len(fold.y_test) for fold in every))[None]
    with threadpool_limits(1):
        plain = np.concatenate([values(fold, protocol, fold.X, fold.X_test) for fold in every])
    return Prepared(every, rows, plain.reshape(rows.shape))


def measure(task: Task, limit: float) -> Cell:
    """One cell: all folds of all shuffles, ended at the first that fails or takes longer than the limit.

    What a row gains is its mean over the shuffles, in each of which it is held out once.
    """
    given = prepared(task.data, task.protocol)
    cell, found = outcome(task, given.splits, limit)
    if found is None:
        return cell
    change = found.reshape(given.held.shape) - given.plain
    of_row = np.bincount(given.held.ravel(), weights=change.ravel()) / len(change)  # (n,)
    groups = None if task.protocol == "closed" else np.concatenate([fold.y_test for fold in given.splits])
    exact = {"score": found.mean(), "gain": change.mean(), "p": p_value(of_row, groups)}
    gains = [float(f"{gain:.4g}") for gain in change.mean(axis=1)]
    return cell | {k: float(f"{v:.6g}") for k, v in exact.items()} | {"gains": gains}


def outcome(task: Task, splits: list[Fold], limit: float) -> tuple[Cell, np.ndarray | None]:
    """What a cell says of the fits to these folds; and the values (n,) of their rows held out, if all went well."""
    context = multiprocessing.get_context("forkserver")
    source, sink = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(task, splits, limit, sink), daemon=True)
    process.start()
    sink.close()
    outcomes: list[dict[str, Any]] = []
    cell: Cell = {"stamp": stamp(task.row), "seconds": [], "unconverged": 0}
    try:
        while len(outcomes) < len(splits):
            outcomes.append(source.recv())
            if failure := outcomes[-1]["failure"]:
                cell["failure"] = f"fold {len(outcomes)}: {failure}"
                break
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            cell["over"] = limit
        else:
            cell["failure"] = f"fold {len(outcomes) + 1}: the process died with {process.exitcode}"
    finally:
        if process.is_alive():
            process.kill()
        process.join()
    cell["unconverged"] = sum(o["unconverged"] for o in outcomes)
    seconds = [o["seconds"] for o in outcomes if "seconds" in o]
    cell["seconds"] = round(float(np.mean(seconds)), 4) if seconds else None
    failed = "over" in cell or "failure" in cell
    return cell, None if failed else np.concatenate([o["values"] for o in outcomes])


def is_current(cell: Cell, task: Task) -> bool:
    """Whether a cell is of this code, and of as many shuffles as are wanted now."""
    wanted = shuffles(task.data) if task.protocol == "closed" else 1
    return bool(cell["stamp"] == stamp(task.row) and ("gain" not in cell or len(cell.get("gains", ())) >= wanted))


def is_done(cell: Cell | None, task: Task, limit: float) -> bool:
    """Whether a cell need not be measured: it is current, and was not given up sooner than it would be now."""
    return cell is not None and is_current(cell, task) and cell.get("over", limit) >= limit


def read_store() -> dict[str, Cell]:
    return json.loads(STORE.read_text("utf-8")) if STORE.is_file() else {}


def write_store(cells: dict[str, Cell]) -> None:
    """One line for each cell, in place of the old file at once: an interruption loses nothing."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(cells[name])}" for name in sorted(cells))
    part = STORE.with_suffix(".part")
    part.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    os.replace(part, STORE)


def fill(tasks: list[Task], cells: dict[str, Cell], limit: float, minutes: float, jobs: int = 1) -> Iterator[Task]:
    """Measure what is missing or of older code, and yield each cell as it is there; what took too long comes last."""
    until = time.monotonic() + 60 * minutes
    todo = [t for t in tasks if not is_done(cells.get(t.name), t, limit)]
    todo.sort(key=lambda t: ("over" in cells.get(t.name, {}), t.name in cells))  # else what is missing comes first
    print(f"{len(todo)} of {len(tasks)} cells are to be measured", flush=True)

    def measured(task: Task) -> tuple[Task, Cell | None]:
        return task, measure(task, limit) if time.monotonic() < until else None

    with ThreadPool(jobs) as pool:  # each cell has a process of its own
        for task, cell in pool.imap_unordered(measured, todo):
            if cell is not None:
                cells[task.name] = cell
                write_store(cells)
                yield task


def main() -> int:
    from benchmarks import accuracy_page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", help="names; by default all")
    parser.add_argument("--methods", nargs="+", help="names or keys of the method table, or AutoMetric; by default all")
    parser.add_argument("--setting", choices=["published", "automatic"], help="by default both")
    parser.add_argument("--protocol", choices=["closed", "open"], help="by default both")
    parser.add_argument("--limit", type=float, default=LIMIT, help="CPU seconds that a fit may take (default 60)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end the run after so long (default: never)")
    parser.add_argument("--jobs", type=int, default=1, help="cells measured at the same time (default 1)")
    args = parser.parse_args()
    if not DATA.is_dir():
        print(
            "Nothing measured: no data sets were found. Set ISOMETRY_DATA to a folder of .npz files with arrays X and "
            "y, or put them in shared/data beside the checkout."
        )
        return 0
    sets = names_of_sets()
    for name in args.sets or ():
        if name not in sets:
            parser.error(f"no set is called {name}; there are {', '.join(sets)}")
    every = plan(sets)
    asked = [
        t
        for t in every
        if (not args.sets or t.data in args.sets)
        and (not args.methods or {t.row.key, t.row.name} & set(args.methods))
        and (not args.setting or t.row.setting == args.setting)
        and (not args.protocol or t.protocol == args.protocol)
    ]
    used = {"isometry.eval", "isometry.select", *(m.target.split(":")[0] for m in contestants())}
    multiprocessing.get_context("forkserver").set_forkserver_preload(sorted(used))  # imported once, not in every cell
    cells = read_store()
    try:
        for task in fill(asked, cells, args.limit, args.minutes, args.jobs):
            cell = cells[task.name]
            told = cell.get("failure") or (
                f"over {cell['over']:g} s" if "over" in cell else f"{100 * cell['gain']:+.1f}"
            )
            print(f"{task.protocol} {task.data}, {task.row.name} {task.row.setting}: {told}", flush=True)
    except KeyboardInterrupt:
        print("interrupted: what has been measured is kept", flush=True)
    accuracy_page.write(every, cells)
    return 0


if __name__ == "__main__":
    sys.exit(main())
