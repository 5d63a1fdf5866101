"""Ours beside the peers: same data, same start, same threads, one process a fit. `make bench`, `make bench-quick`.

Writes docs/results/speed.md. The claim is the ratio, not the seconds: those belong to the machine.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.contests import FIGURES, SETS, Contest, Side, all_contests, stored
from benchmarks.environments import Outcome, measure
from benchmarks.large import METHODS, SECTIONS, large
from benchmarks.scaling import scaling

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results" / "speed.md"
INTRODUCTION = """# Speed, side by side

Same standardised data, same start where there is one (our LMNN takes the best multiple of it), one process a
fit with {threads} thread{s}, all in one run; `make bench` writes this page. Seconds are CPU seconds of the fit
alone, without imports and reading. Memory is the peak above what there was when the fit began, without mapped
files. A ratio is that to the first row, so more than 1 is in favour of the first row. Losses and accuracies are
computed by our code for every map that a library returned; accuracy is leave-one-out on the rows that were
fitted, so it compares maps and says nothing about new data. A fit is ended after {limit:g} s of wall time
({longest:g} s where a line says so) or above {gib:g} GiB. mlpack's LMNN does not minimise the loss that is
shown: its maps may shrink almost to 0, where this loss is large.

Stopping rules differ, so below a table stands how soon our fit is as far as a peer is at its end: the fewest iterations
(of {paces}) after which our objective is no worse, or, where ours stops too early by
default, the loosest of tol={tighter}. Each is a fit of its own with that setting.
"""
PACES = (3, 5, 8, 12, 18, 27, 40, 60, 90, 135)  # max_iter
TIGHTER = (1e-4, 1e-5, 1e-6)  # tol


def judge(contest: Contest, outcome: Outcome, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The figures of merit of one side."""
    if outcome.figures:
        return {name: value for name, value in outcome.figures.items() if name != "trace"}
    if outcome.failure or outcome.L is None:
        return {}
    L, arrays = np.real(outcome.L).astype(np.float64), contest.arrays(X, y)
    return {FIGURES[key][0]: FIGURES[key][1](L, X, y, arrays) for key in contest.figures}


def ratio(mine: float, theirs: float) -> str:
    return f"{theirs / mine:.3g} ×" if np.isfinite(mine) and np.isfinite(theirs) and mine > 0 else ""


def rows(contest: Contest, *, limit: float, threads: int) -> list[str]:
    """The lines of one contest's table, printed as they come."""
    folder = stored(contest.data)
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r" if name == "X" else None) for name in "Xy")
    names = ["recall@1", "map@r"] if contest.title == "Retrieval metrics" else [FIGURES[k][0] for k in contest.figures]
    title = f"{contest.title}: {contest.data} ({len(X):,} × {X.shape[1]})"
    lines = ["", f"### {title}", ""]
    if contest.note:
        lines += [contest.note, ""]
    lines += [
        "| | s | ratio | MiB | ratio |" + "".join(f" {name} |" for name in names),
        "|---|--:|--:|--:|--:|" + "--:|" * len(names),
    ]
    print("\n".join(lines[1:]), flush=True)
    run = partial(attempt, folder=folder, contest=contest, X=X, y=y, limit=contest.limit or limit, threads=threads)
    first: Outcome | None = None
    rivals = []
    for side in (*contest.ours, *contest.theirs):
        outcome = run(side)
        first = first or outcome
        figures = judge(contest, outcome, X, y)
        lines.append(row(side, outcome, first, figures, names))
        print(lines[-1], flush=True)
        if figures and (outcome is first or side.name in contest.paced):
            rivals.append((side, outcome, figures[names[0]]))
    if contest.limit:
        lines += ["", f"A fit of this table had {contest.limit:g} s."]
    if rivals and rivals[0][0] is contest.ours[0]:
        lines += ["", *(f"- {line}" for line in catch_up(rivals, names[0], run, lambda o: judge(contest, o, X, y)))]
        print("\n".join(lines[-len(rivals) :]), flush=True)
    return lines


def catch_up(rivals, figure: str, run: Callable[[Side], Outcome], judged: Callable[[Outcome], dict]) -> Iterator[str]:
    """How soon ours, the first of the rivals (side, outcome, value), is no worse than each of the others."""
    (mine, done, reached), *others = rivals
    sign, name = (1 if "↓" in figure else -1), figure.rstrip(" ↓↑")
    tried: dict[tuple[str, float], tuple[Outcome, float]] = {}

    def value_of(setting: tuple[str, float]) -> tuple[Outcome, float]:
        if setting not in tried:
            outcome = run(replace(mine, params={**mine.params, setting[0]: setting[1]}))
            tried[setting] = outcome, judged(outcome).get(figure, sign * np.inf)
        return tried[setting]

    for side, theirs, value in others:
        enough = sign * reached <= sign * value
        for setting in [("max_iter", k) for k in PACES] if enough else [("tol", t) for t in TIGHTER]:
            outcome, found = value_of(setting)
            if sign * found <= sign * value:
                break
        else:
            setting, outcome, found = ("default", ""), done, reached  # type: ignore[assignment]
        how = "=".join(map(str, setting)) if setting[1] else "defaults"
        text = f"ours with {how}: {name} {found:.6g} in {outcome.cpu:.3g} s, {side.name} {value:.6g}"
        yield f"{text}; ratio of time **{ratio(outcome.cpu, theirs.cpu)}**" + (
            "" if sign * found <= sign * value else ", **not as far**"
        )


def attempt(side: Side, *, folder: Path, contest: Contest, X, y, limit: float, threads: int) -> Outcome:
    return measure(
        side.environment,
        side.call,
        side.params,
        folder,
        mapped=side.mapped,
        arrays=contest.arrays(X, y),
        limit=limit,
        threads=threads,
    )


def row(side: Side, outcome: Outcome, first: Outcome, figures: dict[str, float], names: list[str]) -> str:
    seconds = f"{outcome.cpu:.3g}" if np.isfinite(outcome.cpu) else "–"
    memory = f"{outcome.mib:,.0f}" if np.isfinite(outcome.mib) else "–"
    mine = outcome is first
    cells = [side.name, seconds, "" if mine else ratio(first.cpu, outcome.cpu), memory]
    cells.append("" if mine else ratio(max(first.mib, 1), outcome.mib))
    if outcome.failure:
        cells[0] += f": **{outcome.failure}**".replace("|", "/")
    cells += [f"{figures[name]:.5g}" if name in figures else "–" for name in names]
    return "| " + " | ".join(cells) + " |"


def with_tables(page: str, lines: list[str]) -> str:
    """The page with these tables in the place of those of the same title, each of which it must have once."""
    for table in re.split(r"\n(?=### )", "\n".join(lines).strip()):
        title, _, rest = table.partition("\n")
        old = re.compile(rf"^{re.escape(title)}\n.*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
        text = f"{title}\n{rest.rstrip()}\n\n"
        page, n = old.subn(lambda _, text=text: text, page)
        if n != 1:
            raise ValueError(f"the page has {n} tables {title!r}, not one: a complete run writes them")
    return page.rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small contests only; nothing is written")
    parser.add_argument("--only", nargs="+", default=[], help="contests whose title or data contain one of these words")
    parser.add_argument("--limit", type=float, help="seconds a fit may take (default 300, quick 60)")
    parser.add_argument("--threads", type=int, default=1, help="of BLAS and OpenMP, on all sides (default 1)")
    parser.add_argument("--write", action="store_true", help="with --only: put its tables in the place of the old ones")
    parser.add_argument("--no-scaling", action="store_true", help="leave out the curves over n and d")
    args = parser.parse_args()
    limit, started = args.limit or (60 if args.quick else 300), time.monotonic()
    contests = [c for c in all_contests() if c.small or not args.quick]
    if args.only:
        contests = [c for c in contests if any(word.lower() in f"{c.title} {c.data}".lower() for word in args.only)]
    longest = max([limit, *(c.limit for c in contests)])
    paces, tighter = ", ".join(map(str, PACES)), ", ".join(f"{t:g}" for t in TIGHTER)
    plural = "" if args.threads == 1 else "s"
    head = {"threads": args.threads, "s": plural, "limit": limit, "longest": longest, "gib": 9}
    lines = [INTRODUCTION.format(paces=paces, tighter=tighter, **head)]
    for contest in contests:
        try:
            stored(contest.data)
        except FileNotFoundError:
            lines += ["", f"### {contest.title}: {contest.data}", "", "Left out: the data set is not at hand."]
            print(lines[-1], flush=True)
            continue
        lines += rows(contest, limit=limit, threads=args.threads)
    if not (args.quick or args.only or args.no_scaling):
        lines += scaling(limit=limit, threads=args.threads)
        for text in large(SECTIONS, list(METHODS), max(limit, 600)):
            lines.append(text)
            print(text, flush=True)
    minutes = (time.monotonic() - started) / 60
    print(f"{len(contests)} contests on {len({c.data for c in contests} & set(SETS))} sets in {minutes:.1f} minutes")
    if args.only and args.write:
        RESULTS.write_text(with_tables(RESULTS.read_text(), lines[1:]))
        return 0
    if args.quick or args.only:
        print("nothing was written: only a complete run is a result, or tables that --write puts in their place")
        return 0
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("\n".join([*lines, ""]))
    print(f"written: {RESULTS.relative_to(RESULTS.parents[2])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
