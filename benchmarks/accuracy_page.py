"""The accuracy page: tables, the critical-difference diagram, the picture of methods × sets, and what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.accuracy import AUTO, AUTO_SECONDS, MARGIN, N_NEIGHBORS, Cell, Row, Task, is_current
from benchmarks.tables import ENOUGH_ROWS, MOST_ROWS, MOST_SHUFFLES, N_FOLDS, ROOT, shape_of
from isometry.select.verdict import holm

PAGE = ROOT / "docs" / "results" / "accuracy.md"
IMAGES = ROOT / "docs" / "images"
ALPHA = 0.05
LARGEST_CHANGE = 15.0  # points; beyond, the picture has one colour
PROTOCOLS = {
    "closed": f"{N_NEIGHBORS}-nearest-neighbour accuracy, samples of known classes",
    "open": "MAP@R, samples of classes never seen",
}


@dataclass(frozen=True)
class Summary:
    """A row of a table, over the sets where it was measured; changes are in points."""

    row: Row
    change: dict[str, float]  # by set
    better: int  # sets
    worse: int
    seconds: float  # CPU, median over sets
    over: list[str]  # sets where a fit took longer than the limit
    failed: list[str]
    older: int  # cells of older code, or of fewer shuffles
    unconverged: int
    planned: int  # sets

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.change.values()))) if self.change else np.nan

    @property
    def waiting(self) -> int:
        """Sets that have not been measured yet."""
        return self.planned - len(self.change) - len(self.over) - len(self.failed)

    @property
    def worst(self) -> tuple[str, float]:
        return min(self.change.items(), key=lambda item: item[1])


def summarise(tasks: Sequence[Task], cells: dict[str, Cell]) -> Summary:
    """Of the tasks of one row. Reliably better or worse: Holm's correction over the sets of this row, at 5 %."""
    known = {t.data: cells[t.name] for t in tasks if t.name in cells}
    scored = {name: cell for name, cell in known.items() if "gain" in cell}
    sure = holm([cell["p"] for cell in scored.values()], ALPHA)
    gains = np.array([cell["gain"] for cell in scored.values()])
    seconds = [float(np.mean(cell["seconds"])) for cell in scored.values()]  # older cells have some of each fold
    return Summary(
        tasks[0].row,
        {name: 100 * cell["gain"] for name, cell in scored.items()},
        better=int(np.sum(sure & (gains > 0))),
        worse=int(np.sum(sure & (gains < 0))),
        seconds=float(np.median(seconds)) if seconds else np.nan,
        over=[name for name, cell in known.items() if "over" in cell],
        failed=[name for name, cell in known.items() if "failure" in cell],
        older=sum(t.name in cells and not is_current(cells[t.name], t) for t in tasks),
        unconverged=sum(cell["unconverged"] for cell in scored.values()),
        planned=len(tasks),
    )


def by_row(tasks: Sequence[Task]) -> list[list[Task]]:
    grouped: dict[Row, list[Task]] = {}
    for task in tasks:
        grouped.setdefault(task.row, []).append(task)
    return list(grouped.values())


def write(tasks: Sequence[Task], cells: dict[str, Cell]) -> None:
    """Pictures and page, of all cells that have been measured."""
    lines = ["# Accuracy", "", *_about()]
    for protocol, title in PROTOCOLS.items():
        mine = [t for t in tasks if t.protocol == protocol]
        found = [summarise(group, cells) for group in by_row(mine)]
        most = max((len(s.change) for s in found), default=0)
        scored = sorted((s for s in found if s.change), key=lambda s: (2 * len(s.change) < most, -s.mean))
        if not scored:
            continue
        sets = list(dict.fromkeys(t.data for t in mine))
        lines += ["", f"## {title[0].upper()}{title[1:]}", "", f"{len(sets)} sets: {', '.join(map(_described, sets))}."]
        lines += ["", *_table(scored)]
        lines += ["", *_pictures(protocol, scored, sets)]
        lines += ["", *_missing(found, cells, mine)]
        if protocol == "closed":
            lines += ["", *_low(mine, cells), "", *_below(scored)]
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}", flush=True)


def _about() -> list[str]:
    return [
        f"Every classical method on real tables of up to {MOST_ROWS:,} rows, raw: no projection, features standardised "
        f"by the rows that are learned from. {N_FOLDS} folds; smaller tables in so many orders of their rows that "
        f"{ENOUGH_ROWS:,} are held out in all, {MOST_SHUFFLES} at most, and what a row gains is its mean over these. "
        "In a single order three rows are three points of a table of a hundred, and the least of some thousand changes "
        "is that of chance. Fits of one BLAS thread, `random_state=0`. *Published* is the method with the settings of "
        "its paper, *automatic* with the strength that the data choose, the default of methods that have both. Nothing "
        "else was tuned. `make accuracy` measures what is missing and writes this page; what has been measured is kept "
        "in `accuracy.json`.",
        "",
        "Changes are differences to Euclidean distance in points, on the same held-out rows. *Better* and *worse* "
        "count sets where the paired difference is reliable: at 5 %, for the sets of a row jointly (Holm's "
        "correction). Seconds are CPU time of a fit, the median over the sets. All columns are of the sets that a row "
        "was measured on, which the last one counts: rows of different sets cannot be compared. Why others are missing "
        "stands below each table. In the open protocol embeddings are brought to unit length instead of standardised, "
        "as `isometry compare` does, and fits are told that they are for new classes "
        '(`aiming_at("map@r", protocol="open")`): untold, a fit assumes so from 20 classes on. '
        "The strength and the candidates of `AutoMetric` were designed on many of these "
        "sets: to them these are not new.",
    ]


def _described(name: str) -> str:
    n, d, classes = shape_of(name)
    return f"{name} ({n} × {d}, {classes} classes)"


def _table(summaries: Sequence[Summary]) -> list[str]:
    lines = [
        "| method | setting | mean | worst set | better | worse | CPU s | sets |",
        "|---|---|---:|---|---:|---:|---:|---|",
    ]
    for s in summaries:
        name, change = s.worst
        planned = len(s.change) + len(s.over) + len(s.failed) + s.waiting
        sets = f"{len(s.change)}/{planned}" if len(s.change) < planned else f"{planned}"
        figures = f"{s.mean:+.1f} | {change:+.1f} {name} | {s.better} | {s.worse} | {_seconds(s.seconds)} | {sets}"
        lines.append(f"| {s.row.name} | {s.row.setting} | {figures} |")
    return lines


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def label(row: Row) -> str:
    """In pictures."""
    return row.name if row.setting == "published" or row.key == AUTO else f"{row.name}, automatic"


def _pictures(protocol: str, summaries: Sequence[Summary], sets: Sequence[str]) -> list[str]:
    """Drawn of what has been measured; lines of the page that show them."""
    picture = IMAGES / f"accuracy_{protocol}.png"
    draw_changes(summaries, sets, picture)
    lines = [
        f"![changes of each method on each set](../images/{picture.name})",
        "",
        f"Change against Euclidean distance in points, blue above, red below, one colour beyond {LARGEST_CHANGE:g}; "
        "grey: over the limit, failed, or not measured yet. Rows by mean change, last those with fewer than half of "
        "the sets.",
    ]
    complete, shared = largest_block(summaries, sets)
    if len(complete) < 3 or len(shared) < 3:
        return [*lines, "", "There is no critical-difference diagram yet: fewer than three rows share three sets."]
    picture = IMAGES / f"accuracy_{protocol}_ranks.png"
    ranks, difference, p = mean_ranks(np.array([[s.change[name] for name in shared] for s in complete]))
    draw_ranks([label(s.row) for s in complete], ranks, difference, picture)
    return [
        *lines,
        "",
        f"![critical-difference diagram](../images/{picture.name})",
        "",
        f"Mean rank, 1 is best, of the {len(complete)} rows that were measured on all of these {len(shared)} sets: "
        f"{', '.join(shared)}. Two rows differ reliably at 5 % if their ranks are further apart than the critical "
        f"difference of Nemenyi's test, {difference:.1f}: then their bars, of half of it to each side, do not touch. "
        f"Friedman's test of all rows being alike: p = {p:.2g}.",
    ]


def largest_block(summaries: Sequence[Summary], sets: Sequence[str]) -> tuple[list[Summary], list[str]]:
    """Rows and sets without a gap: the sets of one of the rows, and all rows that have them; those with most cells."""
    blocks: list[tuple[list[Summary], list[str]]] = [([], [])]
    for row in summaries:
        shared = [name for name in sets if name in row.change]
        blocks.append(([s for s in summaries if all(name in s.change for name in shared)], shared))
    return max(blocks, key=lambda block: len(block[0]) * len(block[1]))


def mean_ranks(changes: np.ndarray) -> tuple[np.ndarray, float, float]:
    """(k,) mean ranks of k rows over N sets, ties shared; the critical difference; and p of Friedman's test.

    With q the studentised range of k means and infinitely many degrees of freedom, the difference is
    q √(k (k + 1) / (12 N)).
    """
    k, n = changes.shape
    ranks = np.mean([stats.rankdata(-column) for column in changes.T], axis=0)
    difference = stats.studentized_range.ppf(1 - ALPHA, k, math.inf) * math.sqrt(k * (k + 1) / (12 * n))
    return ranks, float(difference), float(stats.friedmanchisquare(*changes).pvalue)


def draw_changes(summaries: Sequence[Summary], sets: Sequence[str], path: Path) -> None:
    plt = _plotting()
    grid = np.array([[s.change.get(name, np.nan) for name in sets] for s in summaries])
    figure, ax = plt.subplots(figsize=(3.4 + 0.27 * len(sets), 1.6 + 0.17 * len(summaries)))
    ax.set_facecolor("0.85")  # of cells without a number
    image = ax.imshow(grid, cmap="RdBu", vmin=-LARGEST_CHANGE, vmax=LARGEST_CHANGE, aspect="auto")
    ax.set_xticks(range(len(sets)), sets, rotation=90, fontsize=7)
    ax.set_yticks(range(len(summaries)), [label(s.row) for s in summaries], fontsize=7)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    figure.colorbar(image, ax=ax, shrink=min(1.0, 12 / len(summaries)), label="points", pad=0.015)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def draw_ranks(names: Sequence[str], ranks: np.ndarray, difference: float, path: Path) -> None:
    """Mean ranks with bars of half the critical difference to each side, best on top."""
    plt = _plotting()
    order = np.argsort(ranks, kind="stable")
    figure, ax = plt.subplots(figsize=(7.5, 1.0 + 0.17 * len(names)))
    at = np.arange(len(names))
    marked = np.array([names[i] == "Euclidean" for i in order])
    for chosen, colour in ((~marked, "#2b6cb0"), (marked, "black")):
        ax.errorbar(ranks[order][chosen], at[chosen], xerr=difference / 2, fmt="o", ms=3, lw=1, color=colour)
    if marked.any():
        plain = ranks[order][marked][0]
        ax.axvspan(plain - difference / 2, plain + difference / 2, color="0.92", zorder=0)
    ax.set_yticks(at, [names[i] for i in order], fontsize=7)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlabel(
        f"mean rank; bars that do not touch differ reliably (critical difference {difference:.1f})", fontsize=8
    )
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=7)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def _plotting() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _missing(found: Sequence[Summary], cells: dict[str, Cell], tasks: Sequence[Task]) -> list[str]:
    """What is over the limit, failed, not converged, of older code, and not measured at all."""
    limits = sorted({cells[t.name]["over"] for t in tasks if "over" in cells.get(t.name, {})})
    lines = ["### Over the limit", ""]
    over = [f"- {s.row.name}, {s.row.setting}: {', '.join(s.over)}" for s in found if s.over]
    if over:
        lines += [f"A fit took more than {' or '.join(f'{x:g}' for x in limits)} s of CPU time:", ""]
    lines += over or ["None."]
    lines += ["", "### Failures", ""]
    failures = [
        f"- {t.row.name}, {t.row.setting}, on {t.data}, {cells[t.name]['failure']}"
        for t in tasks
        if "failure" in cells.get(t.name, {})
    ]
    lines += failures or ["None."]
    waiting = [label(s.row) for s in found if s.waiting == s.planned]
    partly = sum(s.waiting for s in found if s.waiting < s.planned)
    lines += ["", "### Not measured yet", ""]
    if waiting:
        lines.append(f"On no set: {', '.join(waiting)}.")
    if partly:
        lines.append(f"Of the rows above, {partly} cells, which the last column counts.")
    lines += [] if waiting or partly else ["Nothing."]
    older = sum(s.older for s in found)
    if older:
        lines += [
            "",
            f"{older} cells are of older code of their method, or of a single order of the rows; the next run measures "
            "them anew.",
        ]
    unconverged = [f"{label(s.row)} {s.unconverged}" for s in found if s.unconverged]
    if unconverged:
        lines += ["", f"Fits that ended with a `ConvergenceWarning`: {', '.join(unconverged)}."]
    return lines


def _low(tasks: Sequence[Task], cells: dict[str, Cell]) -> list[str]:
    """Cells where an automatic strength lost, and how that differs from one order of the rows to the other."""
    low = [t for t in tasks if t.row.setting == "automatic" and cells.get(t.name, {}).get("gain", 0.0) < -MARGIN]
    low = [t for t in low if t.row.method is None or "n_components" not in t.row.method.params]
    lines = [
        f"## More than {100 * MARGIN:g} points below Euclidean on a set, with automatic strength",
        "",
        "Where few dimensions were asked for, no strength brings back what they lose; these rows are left out.",
        "",
    ]
    if not low:
        return [*lines, "None."]
    lines += ["| method | set | change | p | orders | lowest | highest |", "|---|---|---:|---:|---:|---:|---:|"]
    for task in sorted(low, key=lambda t: cells[t.name]["gain"]):
        cell = cells[task.name]
        gains = [100 * gain for gain in cell.get("gains", [cell["gain"]])]
        figures = f"{100 * cell['gain']:+.1f} | {cell['p']:.2g} | {len(gains)} | {min(gains):+.1f} | {max(gains):+.1f}"
        lines.append(f"| {task.row.name} | {task.data} | {figures} |")
    return lines


def _below(summaries: Sequence[Summary]) -> list[str]:
    """The published methods under Euclidean, on average or on single sets, with the reason the method table gives."""
    published = [(s, s.row.method) for s in summaries if s.row.setting == "published"]
    below = [(s, m) for s, m in published if m and s.mean < -100 * MARGIN]
    low = [f"- {m.name} ({s.mean:+.1f}): {m.below_euclidean}" for s, m in below if m.below_euclidean]
    unexplained = [m.name for _, m in below if not m.below_euclidean]
    lines = [f"## More than {100 * MARGIN:g} points below Euclidean on average, as published", "", *(low or ["None."])]
    if unexplained:
        lines += ["", f"The method table gives no reason yet for {', '.join(unexplained)}."]
    single = []
    for s, m in published:
        worst = [(n, c) for n, c in sorted(s.change.items(), key=lambda item: item[1])[:3] if c < -100 * MARGIN]
        if m and s.mean >= -100 * MARGIN and m.below_euclidean and worst:
            single.append(f"- {m.name} ({', '.join(f'{n} {c:+.1f}' for n, c in worst)}): {m.below_euclidean}")
    if single:
        lines += ["", f"## Not so on average, but by more than {100 * MARGIN:g} points on single sets", "", *single]
    lines += [
        "",
        "## Left out",
        "",
        "SPDGMML and GrassmannGMML learn from matrices, not vectors (see `examples/matrices.py`); deep methods need a "
        "network; SIR, CCA and Procrustes learn from targets or from two views. Rows of the method table with the same "
        f"estimator and parameters are measured once. `AutoMetric` has {AUTO_SECONDS:g} s of CPU time to compare.",
    ]
    return lines
